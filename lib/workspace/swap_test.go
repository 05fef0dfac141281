package workspace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/workspace"
)

func init() {
	children["swap and die"] = swapAndDie
	children["swap on a full disk"] = swapOnFullDisk
	children["swap under a mount"] = swapUnderMount
	children["swap in an overlay"] = swapInOverlay
	children["swap in an unlisted directory"] = swapUnlisted
}

// form is an entry on one line: "" is missing, "d 755" a directory, "l target" a
// link, "f 644 content" a file.
func form(text string) (workspace.Entry, string) {
	kind, rest, _ := strings.Cut(text, " ")
	perm, content, _ := strings.Cut(rest, " ")
	bits, _ := strconv.ParseUint(perm, 8, 32)
	switch kind {
	case "d":
		return workspace.Entry{Kind: workspace.KindDir, Perm: fs.FileMode(bits)}, ""
	case "l":
		return workspace.Entry{Kind: workspace.KindLink, Target: rest}, ""
	case "f":
		hash := workspace.HashOf([]byte(content))
		return workspace.Entry{Kind: workspace.KindFile, Perm: fs.FileMode(bits), Size: int64(len(content)), Hash: hash}, content
	}
	return workspace.Entry{}, ""
}

// swapForms swaps one form for another.
func swapForms(w workspace.Workspace, path, old, next string) error {
	from, _ := form(old)
	to, content := form(next)
	return workspace.Swap(ctx, w, path, from, to, strings.NewReader(content))
}

// plant makes a form behind a workspace, in one step.
func plant(path, text string) error {
	e, content := form(text)
	temp := path + ".planted"
	err := os.RemoveAll(path + ".gone")
	if _, missing := os.Lstat(path); missing == nil && (e.Kind == workspace.KindDir || e.Kind == workspace.KindMissing) {
		err = os.Rename(path, path+".gone")
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(path + ".gone")
	switch e.Kind {
	case workspace.KindMissing:
		return nil
	case workspace.KindDir:
		if err = os.Mkdir(temp, 0o700); err == nil {
			err = os.Chmod(temp, e.Perm)
		}
	case workspace.KindLink:
		err = os.Symlink(e.Target, temp)
	case workspace.KindFile:
		if err = os.WriteFile(temp, []byte(content), 0o600); err == nil {
			err = os.Chmod(temp, e.Perm)
		}
	}
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Rename(temp, path)
	}
	return nil
}

// formAt is the form of the entry at a path of the host, "!" for another.
func formAt(path string) string {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return ""
	case info.IsDir():
		return fmt.Sprintf("d %o", info.Mode().Perm())
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(path)
		return "l " + target
	case info.Mode().IsRegular():
		data, _ := os.ReadFile(path)
		return fmt.Sprintf("f %o %s", info.Mode().Perm(), data)
	}
	return "!"
}

var forms = []string{"", "f 644 old", "f 755 old", "f 644 new", "d 755", "d 700", "l a", "l b"}

// namesIn are the entries of a directory of the host.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// swapAndDie swaps root/f, puts the entry meanwhile at the path once the swap has checked
// it, and kills itself at a step. An argument "-" is none.
func swapAndDie(args []string) error {
	root, old, next, meanwhile, death := args[0], args[1], args[2], args[3], args[4]
	w, err := workspace.NewLocalWorkspace(root)
	if err != nil {
		return err
	}
	workspace.AtSteps(w, func(step string) {
		if step == "looked" && meanwhile != "-" {
			if err := plant(root+"/f", meanwhile); err != nil {
				panic(err)
			}
		}
		if death == "-" {
			fmt.Println(step)
		}
		if step == death {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	})
	err = swapForms(w, "f", old, next)
	if meanwhile == "-" || death != "-" {
		return err
	}
	return nil
}

// steps are those of a swap, in the order in which a child runs them.
func steps(t *testing.T, old, next, meanwhile string) []string {
	root := shm(t)
	require.NoError(t, plant(root+"/f", old))
	out, err := child(t, "swap and die", root, old, next, meanwhile, "-").Output()
	require.NoError(t, err, "%q to %q, %q", old, next, meanwhile)
	return strings.Fields(string(out))
}

func shm(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("/dev/shm", "pk-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	return base
}

// die makes a child die at a step.
func die(t *testing.T, root, old, next, meanwhile, step string) {
	t.Helper()
	require.NoError(t, plant(root+"/f", old))
	err := child(t, "swap and die", root, old, next, meanwhile, step).Run()
	status, ok := err.(*exec.ExitError)
	require.True(t, ok, "%v", err)
	require.Equal(t, syscall.SIGKILL, status.Sys().(syscall.WaitStatus).Signal())
}

// A swap that is killed leaves the old entry or the new one. The next attempt has the
// same result and leaves no other file.
func TestKilledSwapIsRunAgain(t *testing.T) {
	kills := 0
	for _, row := range [][2]string{
		{"", "f 644 new"}, {"", "d 700"}, {"", "l a"}, {"f 644 old", "f 755 new"}, {"f 644 old", "f 755 old"}, {"f 644 old", ""},
		{"f 644 old", "d 700"}, {"f 644 old", "l a"}, {"d 755", "f 644 new"}, {"d 755", "d 700"}, {"d 755", ""}, {"d 755", "l a"},
		{"l a", "l b"}, {"l a", ""}, {"l a", "f 644 new"}, {"l a", "d 700"},
	} {
		old, next := row[0], row[1]
		for _, step := range steps(t, old, next, "-") {
			root := shm(t)
			die(t, root, old, next, "-", step)
			kills++
			what := fmt.Sprintf("%q to %q, killed when it had %s", old, next, step)
			now := formAt(root + "/f")
			require.Contains(t, []string{old, next}, now, what)
			w, err := workspace.NewLocalWorkspace(root)
			require.NoError(t, err)
			listed, err := w.List(ctx, ".")
			require.NoError(t, err)
			assert.LessOrEqual(t, len(listed), 2, "%s: %v", what, listed) // lists show a directory
			require.NoError(t, swapForms(w, "f", now, next), what)
			require.NoError(t, w.Close())
			assert.Equal(t, next, formAt(root+"/f"), what)
			want := []string{"f"}
			if next == "" {
				want = nil
			}
			assert.Equal(t, want, namesIn(t, root), what)
		}
	}
	t.Logf("%d kills", kills)
}

// An edit that a swap displaced is not lost when the swap is killed before it could
// put the edit back.
func TestKilledSwapLosesNoEdit(t *testing.T) {
	kills, kept := 0, 0
	for _, row := range [][2]string{{"f 644 old", "f 644 new"}, {"f 644 old", ""}, {"f 644 old", "l a"}, {"l a", "f 644 new"}, {"l a", ""}, {"d 755", "f 644 new"}, {"f 644 old", "d 755"}} {
		for _, edit := range []string{"f 644 edit", "l edit", "d 711"} {
			old, next := row[0], row[1]
			for _, step := range steps(t, old, next, edit) {
				root := shm(t)
				die(t, root, old, next, edit, step)
				kills++
				what := fmt.Sprintf("%q to %q, edited to %q, killed when it had %s", old, next, edit, step)
				now := formAt(root + "/f")
				want := []string{edit, next}
				if step == "made" || step == "filled" {
					want = []string{old}
				}
				require.Contains(t, want, now, what)
				w, err := workspace.NewLocalWorkspace(root)
				require.NoError(t, err)
				names, err := w.Recover(ctx, ".")
				require.NoError(t, err, what)
				if now == edit || now == old {
					assert.Empty(t, names, what)
				} else if assert.Len(t, names, 1, what) {
					kept++
					assert.True(t, strings.HasPrefix(names[0], "f.pk-kept-"), names[0])
					assert.Equal(t, edit, formAt(root+"/"+names[0]), what)
				}
				if now != "" {
					names = append(names, "f")
				}
				assert.ElementsMatch(t, names, namesIn(t, root), what)
				assert.Equal(t, now, formAt(root+"/f"), what)
				require.NoError(t, w.Close())
			}
		}
	}
	t.Logf("%d kills, %d edits kept", kills, kept)
}

// An edit at any moment of a swap is at the path afterwards, or it came after the last
// check of the swap.
func TestEditDuringSwap(t *testing.T) {
	for _, weak := range []bool{false, true} {
		for _, old := range forms {
			for _, next := range forms {
				if old == next {
					continue
				}
				var seen []string
				w, root := local(t)
				workspace.AtSteps(w, func(step string) { seen = append(seen, step) })
				require.NoError(t, plant(root+"/f", old))
				require.NoError(t, swapForms(w, "f", old, next), "%q to %q", old, next)
				if weak {
					workspace.WithoutExchange(w)
				}
				for _, at := range seen {
					for _, edit := range []string{"f 644 edit", "l edit", "d 711", ""} {
						if edit == old || weak && at != "made" && at != "filled" && at != "moved" {
							continue // without RENAME_EXCHANGE, this edit is lost
						}
						editOnce(t, w, root, at, old, next, edit)
					}
				}
			}
		}
	}
}

func editOnce(t *testing.T, w *workspace.LocalWorkspace, root, at, old, next, edit string) {
	for _, name := range namesIn(t, root) {
		require.NoError(t, os.RemoveAll(root+"/"+name))
	}
	require.NoError(t, plant(root+"/f", old))
	edited := false
	workspace.AtSteps(w, func(step string) {
		if step == at && !edited {
			edited = true
			require.NoError(t, plant(root+"/f", edit))
		}
	})
	err := swapForms(w, "f", old, next)
	if matches(err, workspace.ErrUnsupported) {
		return // a directory, without RENAME_EXCHANGE
	}
	what := fmt.Sprintf("%q to %q, edited to %q when it had %s: %v", old, next, edit, at, err)
	require.True(t, edited, what)
	now := formAt(root + "/f")
	names := namesIn(t, root)
	if now != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "f" })
	}
	if err == nil {
		// Either the edit replaced next, or a swap in place changed its mode back.
		assert.Contains(t, []string{edit, next}, now, what)
		if now != edit {
			assert.Contains(t, []string{"made", "filled"}, at, what)
		}
		assert.Empty(t, names, what)
		return
	}
	assert.ErrorIs(t, err, workspace.ErrChanged, what)
	assert.Equal(t, edit, now, what)
	for _, name := range names {
		assert.Contains(t, name, "f.pk-kept-", what)
		assert.Contains(t, err.Error(), strconv.Quote(name), what)
	}
}

// errRemoved: the file was removed before the program had it open.
var errRemoved = errors.New("removed")

// saveInPlace writes to a file as editors do that keep the inode.
func saveInPlace(flags int) func(path, content string) error {
	return func(path, content string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return err
		}
		if st.Nlink == 0 {
			return errRemoved
		}
		if _, err := f.WriteString(content); err != nil {
			return err
		}
		return f.Close()
	}
}

// While a program saves a file all the time, each version is at the path, or a swap was
// allowed to replace it, or is kept and reported. Swap promises nothing about a program
// that looks the path up before the exchange and opens the file after its removal.
func TestSwapLosesNoSave(t *testing.T) {
	for name, save := range map[string]func(path, content string) error{
		"by rename":                    func(path, content string) error { return plant(path, "f 644 "+content) },
		"in place":                     saveInPlace(os.O_TRUNC),
		"in place, without truncating": saveInPlace(0),
	} {
		t.Run(name, func(t *testing.T) { saves(t, save) })
	}
}

func saves(t *testing.T, save func(path, content string) error) {
	rounds := confinetest.Share(1000)
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		rounds = 100 * n
	}
	w, root := local(t)
	path := root + "/f"
	const length = 40_000
	content := func(by string, n int) string { return fmt.Sprintf("%s%09d", strings.Repeat(by, length), n) }
	require.NoError(t, save(path, content("u", 0)))

	var replaced sync.Map    // contents that a swap was allowed to replace, or that were kept
	var swapped atomic.Int64 // swaps that have ended
	done := make(chan struct{})
	var saved atomic.Int64
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			switch err := save(path, content("u", n)); {
			case errors.Is(err, errRemoved):
				continue
			case err != nil:
				t.Errorf("%v", err)
				return
			}
			saved.Store(int64(n))
			for begun := swapped.Load(); ; {
				ended := swapped.Load() >= begun+2 // any swap in progress has ended
				if _, ok := replaced.Load(content("u", n)); ok || formAt(path) == "f 644 "+content("u", n) {
					break
				}
				select {
				case <-done:
					ended = true
				default:
				}
				if _, ok := replaced.Load(content("u", n)); ended && !ok && formAt(path) != "f 644 "+content("u", n) {
					t.Errorf("version %d is lost", n)
					return
				}
			}
		}
	})
	swaps, conflicts, kept := 0, 0, map[string]bool{}
	for round := range rounds {
		old := formAt(path)
		if rand.IntN(2) == 0 {
			old = "f 644 " + content("u", int(saved.Load())) // a guess at the next version
		}
		err := swapForms(w, "f", old, "f 644 "+content("s", round))
		switch {
		case err == nil:
			swaps++
			replaced.Store(strings.TrimPrefix(old, "f 644 "), true)
		case matches(err, workspace.ErrChanged):
			conflicts++
		default:
			require.NoError(t, err)
		}
		for _, name := range namesIn(t, root) {
			if strings.Contains(name, ".pk-kept-") { // the program may still be writing to it
				kept[name] = true
				replaced.Store(strings.TrimPrefix(formAt(root+"/"+name), "f 644 "), true)
			}
		}
		swapped.Add(1)
	}
	close(done)
	writer.Wait()
	names := slices.DeleteFunc(namesIn(t, root), func(name string) bool { return kept[name] })
	assert.Equal(t, []string{"f"}, names)
	assert.Positive(t, swaps)
	t.Logf("%d saves, %d swaps, %d conflicts, %d kept", saved.Load(), swaps, conflicts, len(kept))
}

// reasons are those that fit an error.
func reasons(err error) (names []string) {
	for _, reason := range []error{
		workspace.ErrChanged, workspace.ErrNotDir, workspace.ErrInvalid, workspace.ErrAccessDenied, workspace.ErrUnsupported, workspace.ErrNotFound,
		workspace.ErrPathTraversal, workspace.ErrExist, workspace.ErrIsDir,
	} {
		if matches(err, reason) {
			names = append(names, reason.Error())
		}
	}
	return names
}

// Random swaps do the same on disk as in memory.
func TestSwapsAsInMemory(t *testing.T) {
	for seed := range 40 {
		if !confinetest.Mine(seed / 4) {
			continue
		}
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		pick := func(of []string) string { return of[random.IntN(len(of))] }
		disk, root := local(t)
		if seed%4 == 1 {
			workspace.WithoutOpenat2(disk)
		}
		memory := workspace.NewMemWorkspace()
		done := 0
		for range 300 {
			path := pick([]string{"a", "b", "a/a", "a/b", "a/b/c", "b/x", ".", "b/../a", ".git", "../a"})
			old, _ := form(pick(forms[:6]))
			if there, err := workspace.EntryOf(ctx, memory, path); err == nil && random.IntN(4) > 0 {
				old = there
			}
			next, content := form(pick(forms[:6]))
			err := workspace.Swap(ctx, disk, path, old, next, strings.NewReader(content))
			want := workspace.Swap(ctx, memory, path, old, next, strings.NewReader(content))
			require.Equal(t, reasons(want), reasons(err), "seed %d: %q, %+v to %+v: %v, in memory %v", seed, path, old, next, err, want)
			if err == nil {
				done++
			}
			require.Equal(t, tree(t, memory), tree(t, disk), "seed %d: %q, %+v to %+v", seed, path, old, next)
		}
		assert.Greater(t, done, 50)
		assert.Equal(t, len(tree(t, disk)), len(strings.Split(strings.TrimSpace(picture(t, root)), "\n"))-1)
	}
}

// tree describes all entries of a workspace.
func tree(t *testing.T, w workspace.Workspace) (all []string) {
	for entry, err := range workspace.Tree(ctx, w, ".") {
		require.NoError(t, err)
		e, err := workspace.EntryOf(ctx, w, entry.Path)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %+v", entry.Path, e))
	}
	slices.Sort(all)
	return all
}

// A swap on a full disk leaves the old entry, and no litter.
func TestSwapOnFullDisk(t *testing.T) {
	cmd := child(t, "swap on a full disk", t.TempDir())
	cmd.SysProcAttr = ownMounts()
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "full, and fine\n", string(out))
}

func swapOnFullDisk(args []string) error {
	dir := args[0]
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("cannot mount a small disk: %w", err)
	}
	w, err := workspace.NewLocalWorkspace(dir, workspace.WithSync())
	if err != nil {
		return err
	}
	old, big := "f 644 "+strings.Repeat("old ", 100_000), "f 644 "+strings.Repeat("x", 800_000)
	if err := swapForms(w, "f", "", old); err != nil {
		return err
	}
	for _, row := range [][2]string{{"f", old}, {"g", ""}} {
		if err := swapForms(w, row[0], row[1], big); !matches(err, workspace.ErrNoSpace) {
			return fmt.Errorf("%s: %v, want %v", row[0], err, workspace.ErrNoSpace)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || formAt(dir+"/f") != old {
			return fmt.Errorf("%s: %d files are left, error %v", row[0], len(entries), err)
		}
	}
	fmt.Println("full, and fine")
	return nil
}

// A directory that may be entered and written, and not listed, cannot be locked. Of several conditional
// writes at once one succeeds all the same.
func TestSwapInUnlistedDirectory(t *testing.T) {
	out, err := child(t, "swap in an unlisted directory", t.TempDir()).Output()
	require.NoError(t, err)
	assert.Equal(t, "1 swap, 1 write, 1 deletion\n", string(out))
}

func swapUnlisted(args []string) error {
	const writers, another = 8, 54321
	dir := args[0] + "/d"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(args[0], 0o711), os.Chmod(filepath.Dir(args[0]), 0o711), plant(dir+"/f", "f 644 old")); err != nil {
		return err
	}
	if os.Geteuid() == 0 { // root may list everything
		err := errors.Join(os.Chown(dir, another, -1), os.Chown(dir+"/f", another, -1), syscall.Setresuid(another, another, another))
		if err != nil {
			return err
		}
	}
	if err := errors.Join(unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0), os.Chmod(dir, 0o311)); err != nil { // for /proc/self/fd
		return err
	}
	w, err := workspace.NewLocalWorkspace(args[0])
	if err != nil {
		return err
	}
	atOnce := func(write func(n int) error) (succeeded int, err error) {
		results := make(chan error)
		for n := range writers {
			go func() { results <- write(n) }()
		}
		for range writers {
			switch result := <-results; {
			case result == nil:
				succeeded++
			case !errors.Is(result, workspace.ErrChanged):
				err = errors.Join(err, result)
			}
		}
		return succeeded, err
	}
	swaps, err1 := atOnce(func(n int) error { return swapForms(w, "d/f", "f 644 old", fmt.Sprint("f 644 swapped ", n)) })
	now, err := w.Read(ctx, "d/f")
	if err != nil {
		return errors.Join(err1, err)
	}
	writes, err2 := atOnce(func(n int) error {
		out, err := w.Create(ctx, "d/f", workspace.WriteOptions{Atomic: true, IfHash: workspace.HashOf(now)})
		if err == nil {
			_, err = fmt.Fprintf(out, "written %d", n)
			err = errors.Join(err, out.Close())
		}
		return err
	})
	if now, err = w.Read(ctx, "d/f"); err != nil {
		return errors.Join(err2, err)
	}
	deletions, err3 := atOnce(func(int) error { return swapForms(w, "d/f", "f 644 "+string(now), "") })
	fmt.Printf("%d swap, %d write, %d deletion\n", swaps, writes, deletions)
	return errors.Join(err1, err2, err3)
}

// A mount point is neither exchanged nor removed, nor entered if the workspace is on one
// file system.
func TestSwapAtMounts(t *testing.T) {
	cmd := child(t, "swap under a mount", t.TempDir())
	cmd.SysProcAttr = ownMounts()
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "all refused\n", string(out))
}

func swapUnderMount(args []string) error {
	root := args[0]
	for path, text := range map[string]string{"d": "d 755", "f": "f 644 old", "other": "f 644 old"} {
		if err := plant(root+"/"+path, text); err != nil {
			return err
		}
	}
	if err := unix.Mount("none", root+"/d", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if err := unix.Mount(root+"/other", root+"/f", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	for _, openat2 := range []bool{true, false} {
		plain, err := workspace.NewLocalWorkspace(root)
		if err != nil {
			return err
		}
		strict, err := workspace.NewLocalWorkspace(root, workspace.WithOneFileSystem())
		if err != nil {
			return err
		}
		if !openat2 {
			workspace.WithoutOpenat2(plain)
			workspace.WithoutOpenat2(strict)
		}
		for path, old := range map[string]string{"d": "d 755", "f": "f 644 old"} {
			for _, next := range []string{"", "f 644 new", "d 700", "l a"} {
				if path == "d" && next == "d 700" {
					continue // the mode of the mounted root
				}
				if err := swapForms(plain, path, old, next); !matches(err, workspace.ErrAccessDenied) {
					return fmt.Errorf("%s to %q: %v", path, next, err)
				}
				if err := swapForms(strict, path, old, next); !matches(err, workspace.ErrPathTraversal) {
					return fmt.Errorf("%s to %q, on one file system: %v", path, next, err)
				}
			}
			if _, err := strict.Entry(ctx, path); !matches(err, workspace.ErrPathTraversal) {
				return fmt.Errorf("entry of %s: %v", path, err)
			}
		}
		if err := swapForms(strict, "d/x", "", "f 644 new"); !matches(err, workspace.ErrPathTraversal) {
			return fmt.Errorf("below a mount: %v", err)
		}
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 3 || formAt(root+"/other") != "f 644 old" {
			return fmt.Errorf("%d entries are left, error %v", len(entries), err)
		}
	}
	fmt.Println("all refused")
	return nil
}

// An overlay does not move a directory of its lower layer, but removes it.
func TestSwapInOverlay(t *testing.T) {
	cmd := child(t, "swap in an overlay", shm(t))
	cmd.SysProcAttr = ownMounts()
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "as it should be\n", string(out))
}

func swapInOverlay(args []string) error {
	base := args[0]
	for _, name := range []string{"lower", "upper", "work", "merged", "lower/d", "lower/e"} {
		if err := os.Mkdir(base+"/"+name, 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"f": "f 644 old", "g": "f 644 old", "l": "l a"} {
		if err := plant(base+"/lower/"+name, text); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("userxattr,lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base)
	if err := unix.Mount("overlay", base+"/merged", "overlay", 0, options); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	w, err := workspace.NewLocalWorkspace(base + "/merged")
	if err != nil {
		return err
	}
	for _, row := range [][3]string{
		{"f", "f 644 old", "f 600 new"}, {"f", "f 600 new", "d 755"}, {"f", "d 755", "l b"}, {"g", "f 644 old", "f 755 old"}, {"g", "f 755 old", ""},
		{"l", "l a", "l b"}, {"l", "l b", "f 644 new"}, {"d", "d 755", "d 700"}, {"d", "d 700", ""},
	} {
		if err := swapForms(w, row[0], row[1], row[2]); err != nil {
			return fmt.Errorf("%q: %w", row, err)
		}
		if now := formAt(base + "/merged/" + row[0]); now != row[2] {
			return fmt.Errorf("%q: it is %q", row, now)
		}
	}
	if err := swapForms(w, "e", "d 755", "f 644 new"); !matches(err, workspace.ErrUnsupported) {
		return fmt.Errorf("a directory of the lower layer: %v", err)
	}
	if entries, err := os.ReadDir(base + "/merged"); err != nil || len(entries) != 3 {
		return fmt.Errorf("%v are left, error %v", entries, err)
	}
	fmt.Println("as it should be")
	return nil
}

// Guards are asked before a swap reveals or changes anything.
func TestSwapAsksGuards(t *testing.T) {
	for name, under := range map[string]func() workspace.Workspace{
		"local": func() workspace.Workspace { w, _ := local(t); return w },
		"mem":   func() workspace.Workspace { return workspace.NewMemWorkspace() },
	} {
		w := under()
		for _, path := range []string{"open", "hidden", "fixed"} {
			require.NoError(t, swapForms(w, path, "", "f 644 old"), name)
		}
		s := must[*workspace.ScopedWorkspace](t)(workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("open", "hidden", "new"), workspace.WithDenyRead("hidden")))
		require.NoError(t, swapForms(s, "open", "f 644 old", "f 644 new"))
		require.NoError(t, swapForms(s, "new", "", "f 644 new"))
		for _, old := range []string{"f 644 old", "f 644 wrong", "d 755"} {
			for _, path := range []string{"hidden", "fixed"} {
				for _, next := range []string{"", "f 755 old", "f 644 new"} {
					err := swapForms(s, path, old, next)
					assert.ErrorIs(t, err, workspace.ErrAccessDenied, "%s: %s, %q to %q", name, path, old, next)
					assert.NotErrorIs(t, err, workspace.ErrChanged)
				}
			}
		}
		_, err := s.Entry(ctx, "hidden")
		assert.ErrorIs(t, err, workspace.ErrAccessDenied)
		_, err = s.Recover(ctx, ".")
		assert.ErrorIs(t, err, workspace.ErrAccessDenied)
		for _, write := range []bool{false, true} {
			g := workspace.Guarded(w, func(a workspace.Access) error {
				if a.Write == write {
					return workspace.ErrAccessDenied
				}
				return nil
			})
			assert.ErrorIs(t, swapForms(g, "fixed", "f 644 wrong", ""), workspace.ErrAccessDenied, "%s: write %v", name, write)
			assert.ErrorIs(t, swapForms(g, "fixed", "f 644 old", ""), workspace.ErrAccessDenied, "%s: write %v", name, write)
		}
		assert.ErrorIs(t, swapForms(workspace.ReadOnly(w), "open", "f 644 new", ""), workspace.ErrReadOnly)
		for _, path := range []string{"hidden", "fixed"} {
			data, err := w.Read(ctx, path)
			require.NoError(t, err)
			assert.Equal(t, "old", string(data), "%s: %s", name, path)
		}
	}
}

// A swap detects a program that has the old file open for writing, since its later writes
// would be lost.
func TestSwapNoticesOpenWriter(t *testing.T) {
	w, root := local(t)
	for _, next := range []string{"f 644 new", "", "l a"} {
		require.NoError(t, os.WriteFile(root+"/f", []byte("old"), 0o644))
		require.NoError(t, os.Chmod(root+"/f", 0o644))
		f, err := os.OpenFile(root+"/f", os.O_RDWR, 0)
		require.NoError(t, err)
		err = swapForms(w, "f", "f 644 old", next)
		assert.ErrorIs(t, err, workspace.ErrChanged)
		assert.ErrorContains(t, err, "open for writing")
		_, err = f.WriteAt([]byte("edit"), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		assert.Equal(t, "f 644 edit", formAt(root+"/f"))
		assert.Equal(t, []string{"f"}, namesIn(t, root))
	}
}

// A forged leftover replaces nothing: at most it gets a visible name.
func TestForgedSwapNames(t *testing.T) {
	w, root := local(t)
	outside := filepath.Dir(root) + "/outside"
	require.NoError(t, os.WriteFile(outside, []byte("SECRET"), 0o600))
	require.NoError(t, os.WriteFile(root+"/f", []byte("old"), 0o644))
	name := func(c string) string { return root + "/.pk-" + strings.Repeat(c, 78) + "-f.swap" }
	require.NoError(t, os.Symlink(outside, name("A")))
	require.NoError(t, unix.Mkfifo(name("B"), 0o644))
	require.NoError(t, os.MkdirAll(name("C")+"/x", 0o755))
	require.NoError(t, os.Link(outside, name("D")))
	require.NoError(t, os.WriteFile(name("E"), nil, 0o644))
	require.NoError(t, os.Truncate(name("E"), 1<<40))
	listed, err := w.List(ctx, ".")
	require.NoError(t, err)
	assert.Len(t, listed, 2, "a directory does not hide")
	kept, err := w.Recover(ctx, ".")
	require.NoError(t, err)
	assert.Len(t, kept, 5)
	assert.Equal(t, "f 644 old", formAt(root+"/f"))
	assert.Equal(t, "f 600 SECRET", formAt(outside))
	assert.Len(t, namesIn(t, root), 6)
	for _, name := range kept {
		assert.True(t, strings.HasPrefix(name, "f.pk-kept-"), name)
	}
	narrow := must[*workspace.ScopedWorkspace](t)(workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("**"), workspace.WithDenyRead("f")))
	require.NoError(t, os.WriteFile(name("F"), nil, 0o644))
	kept, err = narrow.Recover(ctx, ".")
	require.NoError(t, err)
	assert.Empty(t, kept, "a view that may not read the name")
	assert.FileExists(t, name("F"))
}

// A long name is swapped too.
func TestSwapOfLongNames(t *testing.T) {
	w, root := local(t)
	for _, name := range []string{strings.Repeat("x", 255), strings.Repeat("ä", 127), "\xff" + strings.Repeat("y", 100)} {
		require.NoError(t, swapForms(w, name, "", "f 644 old"))
		require.NoError(t, swapForms(w, name, "f 644 old", "d 755"))
		require.NoError(t, swapForms(w, name, "d 755", "l a"))
		require.NoError(t, swapForms(w, name, "l a", ""))
	}
	assert.Empty(t, namesIn(t, root))
}

// A replacement has the owner and the group of the old entry; a group that it cannot have
// gets no permissions.
func TestSwapKeepsOwner(t *testing.T) {
	w, root := local(t)
	require.NoError(t, swapForms(w, "f", "", "f 664 old"))
	require.NoError(t, swapForms(w, "d", "", "d 755"))
	if os.Getuid() != 0 {
		require.NoError(t, swapForms(w, "f", "f 664 old", "f 664 new"))
		assert.Equal(t, "f 664 new", formAt(root+"/f"))
		return
	}
	require.NoError(t, os.Chown(root+"/f", 12345, 12346))
	require.NoError(t, os.Chown(root+"/d", 12345, 12346))
	require.NoError(t, os.Chmod(root+"/d", fs.ModeSetgid|0o755))
	require.NoError(t, swapForms(w, "f", "f 664 old", "f 775 new"))
	require.NoError(t, swapForms(w, "d/e", "", "d 755"))
	for name, want := range map[string]string{"f": "12345 12346 775", "d/e": "0 12346 2755"} {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(root+"/"+name, &st))
		assert.Equal(t, want, fmt.Sprintf("%d %d %o", st.Uid, st.Gid, st.Mode&0o7777), name)
	}
}

// A sweep by another writer leaves the files of a swap in progress alone.
func TestSweepLeavesLiveSwapsAlone(t *testing.T) {
	w, root := local(t)
	for _, row := range [][2]string{{"f 644 old", "f 644 new"}, {"f 644 old", "l a"}, {"l a", "d 755"}, {"d 755", ""}} {
		require.NoError(t, plant(root+"/f", row[0]))
		workspace.AtSteps(w, func(string) {
			other, err := workspace.NewLocalWorkspace(root)
			require.NoError(t, err)
			require.NoError(t, workspace.AtomicWrite(ctx, other, "g", nil))
			require.NoError(t, other.Close())
		})
		require.NoError(t, swapForms(w, "f", row[0], row[1]))
		assert.Equal(t, row[1], formAt(root+"/f"))
	}
	assert.Equal(t, []string{"g"}, namesIn(t, root))
}

// A swap detects a program that opens the old file for writing during the check too.
func TestSwapNoticesLateWriter(t *testing.T) {
	w, root := local(t)
	require.NoError(t, plant(root+"/f", "f 644 old"))
	require.NoError(t, os.Link(root+"/f", root+"/hard"))
	opened := false
	workspace.AtSteps(w, func(step string) {
		if step == "checked" && !opened {
			opened = true
			_, err := unix.Open(root+"/hard", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			require.ErrorIs(t, err, unix.EWOULDBLOCK)
		}
	})
	assert.ErrorContains(t, swapForms(w, "f", "f 644 old", "f 644 new"), "open for writing")
	assert.Equal(t, "f 644 old", formAt(root+"/f"))
}

// A swap detects a program that has the new file open for writing while it puts the old
// one back: the new file stays at the path, and the old one is kept.
func TestSwapNoticesWriterOfNewFile(t *testing.T) {
	w, root := local(t)
	require.NoError(t, plant(root+"/f", "f 644 old"))
	var f *os.File
	workspace.AtSteps(w, func(step string) {
		var err error
		switch step {
		case "looked":
			err = plant(root+"/f", "f 644 edit")
		case "exchanged":
			f, err = os.OpenFile(root+"/f", os.O_WRONLY, 0)
		}
		require.NoError(t, err)
	})
	err := swapForms(w, "f", "f 644 old", "f 644 new")
	assert.ErrorIs(t, err, workspace.ErrChanged)
	_, err = f.WriteString("second")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Equal(t, "f 644 second", formAt(root+"/f"))
	names := namesIn(t, root)
	require.Len(t, names, 2)
	assert.Equal(t, "f 644 edit", formAt(root+"/"+names[1]))
}

// A change of the mode alone is undone if the file was written or replaced.
func TestEditDuringChmod(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		hard, root := local(t, workspace.WithHardLinks())
		require.NoError(t, plant(root+"/f", "f 644 old"))
		require.NoError(t, os.Link(root+"/f", root+"/hard"))
		workspace.AtSteps(hard, func(step string) {
			if step == "changed" && replaced {
				require.NoError(t, plant(root+"/f", "f 600 edit"))
			} else if step == "changed" {
				require.NoError(t, os.WriteFile(root+"/f", []byte("edited"), 0))
			}
		})
		assert.ErrorIs(t, swapForms(hard, "f", "f 644 old", "f 755 old"), workspace.ErrChanged)
		assert.Equal(t, map[bool]string{false: "f 644 edited", true: "f 600 edit"}[replaced], formAt(root+"/f"))
		assert.Equal(t, map[bool]string{false: "f 644 edited", true: "f 644 old"}[replaced], formAt(root+"/hard"))
	}
}

// The other names of a file keep their mode: the name gets a new file, if there is content.
func TestModeOfAFileWithHardLinks(t *testing.T) {
	w, root := local(t)
	require.NoError(t, plant(root+"/f", "f 644 old"))
	require.NoError(t, os.Link(root+"/f", root+"/hard"))
	old, err := workspace.EntryOf(ctx, w, "f")
	require.NoError(t, err)
	next := old
	next.Perm = 0o755
	assert.ErrorIs(t, workspace.Swap(ctx, w, "f", old, next, nil), workspace.ErrAccessDenied)
	assert.Equal(t, "f 644 old", formAt(root+"/f"))
	require.NoError(t, workspace.Swap(ctx, w, "f", old, next, strings.NewReader("old")))
	assert.Equal(t, "f 755 old", formAt(root+"/f"))
	assert.Equal(t, "f 644 old", formAt(root+"/hard"))
	assert.Equal(t, []string{"f", "hard"}, namesIn(t, root))
}

// A file that is replaced keeps its ACL, whose mask stat(2) shows as the permissions of the group, and
// the user's attributes. Where it cannot, the group gets none.
func TestAttributesOfAReplacedFile(t *testing.T) {
	const aclName = "system.posix_acl_access"
	w, root := local(t)
	acl := []byte{2, 0, 0, 0}
	for _, e := range [][3]uint32{{1, 6, 1<<32 - 1}, {2, 6, 1000}, {4, 0, 1<<32 - 1}, {16, 6, 1<<32 - 1}, {32, 0, 1<<32 - 1}} {
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
		acl = binary.LittleEndian.AppendUint32(acl, e[2])
	}
	require.NoError(t, plant(root+"/f", "f 600 old"))
	require.NoError(t, unix.Setxattr(root+"/f", aclName, acl, 0))
	require.NoError(t, unix.Setxattr(root+"/f", "user.x", []byte("y"), 0))
	get := func(name string) string {
		value := make([]byte, 1000)
		n, err := unix.Getxattr(root+"/f", name, value)
		assert.NoError(t, err, name)
		return string(value[:max(n, 0)])
	}
	for _, write := range []func() error{
		func() error { return swapForms(w, "f", "f 660 old", "f 660 new") },
		func() error { return swapForms(w, "f", "f 660 new", "f 660 old") },
		func() error { return workspace.AtomicWrite(ctx, w, "f", []byte("atomic")) },
	} {
		require.NoError(t, write())
		assert.Equal(t, string(acl), get(aclName))
		assert.Equal(t, "y", get("user.x"))
	}
	assert.Equal(t, "f 660 atomic", formAt(root+"/f"))
	require.NoError(t, swapForms(w, "f", "f 660 atomic", "f 600 less"))
	assert.Equal(t, "f 600 less", formAt(root+"/f"), "the mask of the ACL is the mode's")
}

// A plain conflict does not show the new entry at the path for a moment.
func TestConflictShowsNothing(t *testing.T) {
	w, root := local(t)
	require.NoError(t, os.MkdirAll(root+"/d/x", 0o755))
	require.NoError(t, plant(root+"/f", "f 644 there"))
	workspace.AtSteps(w, func(step string) { assert.Contains(t, []string{"made", "filled"}, step) })
	for _, next := range []string{"", "f 644 new", "l a"} {
		assert.ErrorIs(t, swapForms(w, "d", "d 755", next), workspace.ErrChanged)
		assert.ErrorIs(t, swapForms(w, "f", "f 644 old", next), workspace.ErrChanged)
	}
}

// A workspace that is not a Swapper does not swap.
func TestSwapUnsupported(t *testing.T) {
	_, err := workspace.EntryOf(ctx, naive{t.TempDir()}, "f")
	assert.ErrorIs(t, err, workspace.ErrUnsupported)
	assert.ErrorIs(t, swapForms(naive{t.TempDir()}, "f", "", "d 755"), workspace.ErrUnsupported)
	g := workspace.Guarded(naive{t.TempDir()}, func(workspace.Access) error { return nil })
	assert.ErrorIs(t, swapForms(g, "f", "", "d 755"), workspace.ErrUnsupported)
	weak, root := local(t)
	workspace.WithoutExchange(weak)
	require.NoError(t, weak.Write(context.Background(), "f", []byte("old")))
	require.NoError(t, os.Chmod(root+"/f", 0o644))
	assert.ErrorIs(t, swapForms(weak, "f", "f 644 old", "d 755"), workspace.ErrUnsupported)
	assert.Equal(t, "f 644 old", formAt(root+"/f"))
	assert.Equal(t, []string{"f"}, namesIn(t, root))
}

// If a program edits the path again while a swap puts an edit back, the later edit is at
// the path, and the first is kept unless the later one replaced it.
func TestSecondEditDuringSwap(t *testing.T) {
	kept := 0
	for _, row := range [][2]string{{"f 644 old", "f 644 new"}, {"f 644 old", ""}, {"f 644 old", "l a"}, {"l a", "f 644 new"}, {"f 644 old", "d 755"}, {"d 755", "f 644 old"}} {
		for _, second := range []string{"f 644 second", "l second", "d 711", ""} {
			for _, at := range []string{"exchanged", "moved", "wrong", "undone"} {
				w, root := local(t)
				require.NoError(t, plant(root+"/f", row[0]))
				edited := false
				workspace.AtSteps(w, func(step string) {
					switch step {
					case "looked":
						require.NoError(t, plant(root+"/f", "f 600 first"))
					case at:
						edited = true
						require.NoError(t, plant(root+"/f", second))
					}
				})
				err := swapForms(w, "f", row[0], row[1])
				what := fmt.Sprintf("%q to %q, edited again to %q when it had %s: %v", row[0], row[1], second, at, err)
				assert.ErrorIs(t, err, workspace.ErrChanged, what)
				if !edited {
					continue // a deletion exchanges nothing, and others move nothing
				}
				now, names := formAt(root+"/f"), namesIn(t, root)
				switch {
				case at == "undone":
					assert.Equal(t, second, now, what)
					assert.NotContains(t, strings.Join(names, " "), ".pk-", what)
				case second == "":
					// The path is free again, and the first edit came after old.
					assert.Equal(t, "f 600 first", now, what)
					assert.Equal(t, []string{"f"}, names, what)
				default:
					assert.Equal(t, second, now, what)
					if assert.Len(t, names, 2, what) {
						kept++
						assert.Equal(t, "f 600 first", formAt(root+"/"+names[1]), what)
						assert.Contains(t, err.Error(), strconv.Quote(names[1]), what)
					}
				}
			}
		}
	}
	t.Logf("%d kept", kept)
}
