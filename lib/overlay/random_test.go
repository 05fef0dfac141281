package overlay

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// The test binary runs itself as root of namespaces of its own, where it mounts
// overlays in the directories of this variable.
const placesVariable = "PK_OVERLAY_PLACES"

func TestMain(m *testing.M) {
	places := os.Getenv(placesVariable)
	if places == "" {
		os.Exit(m.Run())
	}
	unix.Umask(0o022)
	if err := serve(strings.Split(places, ":")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// round is an overlay after random work in it.
type round struct {
	Seed         uint64
	Upper, Lower string
	Want         []record // by a comparison of whole trees
	Inside       string   // the fault found in a namespace that reads everything
	Stale        string   // entries that the mounted overlay showed, and a new mount does not
}

// record is the part of a Change that a comparison of trees knows.
type record struct {
	Path             string
	Op               Op
	OldMode, NewMode uint32
	OldSize, NewSize int64 // not of directories
	OldIno           uint64
	Content          bool
}

func (r record) String() string {
	return fmt.Sprintf("%s %q %o>%o %d>%d %d %v", r.Op, r.Path, r.OldMode, r.NewMode, r.OldSize, r.NewSize, r.OldIno, r.Content)
}

func recordOf(c Change) record {
	r := record{c.Path, c.Op, c.Old.Mode, c.New.Mode, c.Old.Size, c.New.Size, c.Old.Ino, c.Content}
	if c.Old.IsDir() {
		r.OldSize = 0
	}
	if c.New.IsDir() {
		r.NewSize = 0
	}
	return r
}

// TestRandomChanges compares Changes with a comparison of all of the merged tree with
// all of the lower layer, after random work by several threads and programs: by a
// process that can read everything and by its parent, while the overlay is mounted and
// then while it is not. PK_SEED is the first of PK_ROUNDS.
func TestRandomChanges(t *testing.T) {
	rounds, first := 60, uint64(1) // the same in each run, so that a failure is one of the change
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		rounds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("PK_SEED"), 10, 64); err == nil {
		first = n
	}
	places := []string{t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "pk-overlay-"); err == nil { // often another file system
		t.Cleanup(func() { os.RemoveAll(dir) })
		places = append(places, dir)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(self)
	child.Env = append(os.Environ(), placesVariable+"="+strings.Join(places, ":"))
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	to, err := child.StdinPipe()
	require.NoError(t, err)
	from, err := child.StdoutPipe()
	require.NoError(t, err)
	err = child.Start()
	t.Cleanup(func() {
		if child.ProcessState == nil && child.Process != nil {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("this machine has no user namespaces:", err)
	}
	require.NoError(t, err)
	send, receive := gob.NewEncoder(to), gob.NewDecoder(from)
	failed, records, unread, stale := 0, 0, 0, 0
	for seed := first; seed < first+uint64(rounds) && failed < 10; seed++ {
		var r round
		require.NoError(t, send.Encode(seed))
		require.NoError(t, receive.Decode(&r), "seed %d", seed)
		ok := assert.Empty(t, r.Inside, "PK_SEED=%d PK_ROUNDS=1, inside", seed)
		for _, mounted := range []bool{true, false} {
			if !mounted {
				require.NoError(t, send.Encode(seed)) // unmount
				var unmounted bool
				require.NoError(t, receive.Decode(&unmounted))
				require.True(t, unmounted)
			}
			changes, err := collect(r.Upper, r.Lower, Options{})
			if st, bad := stat(unix.AT_FDCWD, r.Upper); bad == nil && unreadable(st) {
				assert.ErrorIs(t, err, unix.EACCES)
				continue
			}
			require.NoError(t, err)
			types, err := collect(r.Upper, r.Lower, Options{Types: true})
			require.NoError(t, err)
			ok = assert.Equal(t, shapes(changes), shapes(types), "PK_SEED=%d PK_ROUNDS=1, types alone", seed) && ok
			n, wrong := judge(r.Want, changes)
			ok = assert.Empty(t, wrong, "PK_SEED=%d PK_ROUNDS=1, outside, mounted %v", seed, mounted) && ok
			unread += n
		}
		if records += len(r.Want); r.Stale != "" {
			stale++
			t.Logf("seed %d: a new mount shows something else: %s", seed, r.Stale)
		}
		if !ok {
			failed++
		}
	}
	assert.LessOrEqual(t, stale, 1+rounds/1000)
	require.NoError(t, to.Close())
	require.NoError(t, child.Wait())
	t.Logf("seeds %d to %d: %d changes, %d unreadable", first, first+uint64(rounds)-1, records, unread)
}

// shapes returns the parts of changes that Options.Types keeps.
func shapes(changes []Change) (list lines) {
	for _, c := range changes {
		list = append(list, fmt.Sprintf("%v %q %o %v", c.Op, c.Path, c.New.Mode&unix.S_IFMT, c.Content))
	}
	return list
}

// judge compares the changes of a process that possibly cannot read everything. It
// returns the number of unreadable entries, and the first fault.
func judge(want []record, changes []Change) (unread int, wrong string) {
	expected, told := map[string]record{}, map[string]bool{}
	for _, r := range want {
		expected[r.Path] = r
	}
	var closed []string // directories that cannot be read
	for i, c := range changes {
		got, known := recordOf(c), expected[c.Path]
		told[c.Path] = true
		if i > 0 && compare(changes[i-1].Path, c.Path) >= 0 {
			wrong += fmt.Sprintf("%q after %q\n", c.Path, changes[i-1].Path)
		}
		if c.Err == nil {
			if got != known {
				wrong += fmt.Sprintf("got  %v\nwant %v\n", got, known)
			}
			continue
		}
		unread++
		if c.Old.IsDir() || c.New.IsDir() {
			closed = append(closed, c.Path+"/")
		}
		if known.Path == "" {
			known = got
			if c.Op != Modified || c.Old.Mode != c.New.Mode {
				wrong += fmt.Sprintf("none expected: %v\n", got)
			}
		}
		known.Content = got.Content || known.Content // it may turn out to be the same
		if got != known {
			wrong += fmt.Sprintf("got  %v\nwant %v\n", got, known)
		}
		if !errors.Is(c.Err, unix.EACCES) || !unreadable(c.Old) && !unreadable(c.New) {
			wrong += fmt.Sprintf("%v: %v\n", got, c.Err)
		}
	}
	for _, r := range want {
		if !told[r.Path] && !slices.ContainsFunc(closed, func(dir string) bool { return strings.HasPrefix(r.Path, dir) }) {
			wrong += fmt.Sprintf("missing: %v\n", r)
		}
	}
	return unread, wrong
}

// unreadable reports whether the owner cannot read a file, or look into a directory.
func unreadable(f File) bool {
	switch f.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return f.Mode&0o400 == 0 && os.Geteuid() != 0
	case unix.S_IFDIR:
		return f.Mode&0o500 != 0o500 && os.Geteuid() != 0
	}
	return false
}

// serve makes a round for each seed that it is sent.
func serve(places []string) error {
	receive, send := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	var old []string
	for {
		var seed uint64
		end := receive.Decode(&seed)
		for _, dir := range old {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		if end == io.EOF {
			return nil
		} else if end != nil {
			return end
		}
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
		r, merged, err := g.round(seed, places)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if err := send.Encode(r); err != nil {
			return err
		}
		if err := receive.Decode(&seed); err != nil {
			return err
		}
		if err := unix.Unmount(merged, 0); err != nil {
			return err
		}
		if err := send.Encode(true); err != nil {
			return err
		}
		// The parent still reads these layers. It sends the next seed when it has done so.
		old = []string{filepath.Dir(r.Upper), filepath.Dir(r.Lower)}
	}
}

// generator does random work. It is used by one goroutine.
type generator struct {
	*rand.Rand
	root, lower string // where it works; where it copies from
}

var (
	names = []string{"a", "b", "c", "d", "a", "b", "c", "d", "e", "new\nline", "\xff\xfe", "sp ace", "-rf", ".pk-1.tmp", "é", "#3"}
	large = strings.Repeat("0123456789abcdef", bufferSize/16)
	texts = []string{"", "a", "b", "a", "b", "ab", "ba", "abc", large, large + "1", large + "2"}
	modes = []uint32{0o644, 0o644, 0o600, 0o755, 0o755, 0o700, 0o444, 0o555, 0, 0o200, 0o300, 0o100, 0o400, 0o1755, 0o2755, 0o4755, 0o1777}
)

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// path is that of a file that may be there.
func (g *generator) path() string {
	path := g.root
	for range 1 + g.IntN(4) {
		path += "/" + pick(g, names[:4+g.IntN(1+g.IntN(len(names)-4))])
	}
	return path
}

// text is mostly short.
func (g *generator) text() string {
	if g.IntN(8) == 0 {
		return pick(g, texts)
	}
	return pick(g, texts[:8])
}

func (g *generator) round(seed uint64, places []string) (round, string, error) {
	lowerBase, err := os.MkdirTemp(pick(g, places), "")
	if err != nil {
		return round{}, "", err
	}
	upperBase, err := os.MkdirTemp(pick(g, places), "")
	if err != nil {
		return round{}, "", err
	}
	for _, dir := range []string{lowerBase, upperBase} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return round{}, "", err
		}
	}
	r := round{Seed: seed, Upper: upperBase + "/upper", Lower: lowerBase + "/lower"}
	merged, work := upperBase+"/merged", upperBase+"/work"
	for _, dir := range []string{r.Upper, r.Lower, merged, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return r, "", err
		}
	}
	g.root = r.Lower
	g.fill()
	options := "userxattr,lowerdir=" + r.Lower + ",upperdir=" + r.Upper + ",workdir=" + work
	volatile := ",volatile" // only saves the fsync of each copy
	if seed%16 == 0 {
		volatile = ""
	}
	if err := unix.Mount("overlay", merged, "overlay", 0, options+volatile); err != nil {
		return r, "", fmt.Errorf("cannot mount an overlay: %w", err)
	}
	g.root, g.lower = merged, r.Lower
	g.work(5 << g.IntN(6))
	r.Want = difference(tree(merged), tree(r.Lower))
	wrong, err := inside(r)
	if err != nil || wrong == "" {
		return r, merged, err
	}
	// Several threads at once can make Linux 6.18 show no file where its layers
	// have one; the kernel says "failed to lock workdir+upperdir". A new mount shows
	// the real layers.
	if err := unix.Unmount(merged, 0); err != nil {
		return r, "", err
	}
	if err := os.RemoveAll(work); err != nil { // volatile allows no second mount
		return r, "", err
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return r, "", err
	}
	if err := unix.Mount("overlay", merged, "overlay", 0, options+volatile); err != nil {
		return r, "", fmt.Errorf("cannot mount an overlay again: %w", err)
	}
	r.Want = difference(tree(merged), tree(r.Lower))
	r.Inside, err = inside(r)
	if r.Inside == "" {
		r.Stale = wrong
	}
	return r, merged, err
}

// inside returns a fault of Changes where everything can be read.
func inside(r round) (wrong string, err error) {
	changes, err := collect(r.Upper, r.Lower, Options{})
	if err != nil {
		return "", err
	}
	got := []record{}
	for _, c := range changes {
		if c.Err != nil {
			wrong += fmt.Sprintf("%q: %v\n", c.Path, c.Err)
		}
		got = append(got, recordOf(c))
	}
	if !slices.Equal(got, r.Want) {
		wrong += fmt.Sprintf("got  %v\nwant %v\n", got, r.Want)
	}
	return wrong, nil
}

// fill makes a lower layer.
func (g *generator) fill() {
	var dirs []string
	for range g.IntN(60) {
		path := g.path()
		switch g.IntN(12) {
		case 0, 1, 2:
			_ = os.MkdirAll(path, 0o755)
			dirs = append(dirs, path)
		case 3:
			_ = os.Symlink(pick(g, names), path)
		case 4:
			_ = unix.Mkfifo(path, pick(g, modes))
		case 5:
			_ = unix.Mknod(path, unix.S_IFSOCK|pick(g, modes), 0)
		case 6:
			_ = os.Link(g.path(), path)
		default:
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			put(path, unix.O_CREAT|unix.O_TRUNC, g.text())
			if g.IntN(3) == 0 {
				_ = unix.Chmod(path, pick(g, modes))
			}
		}
	}
	if g.IntN(4) == 0 {
		g.device()
	}
	for _, dir := range dirs {
		if g.IntN(4) == 0 {
			_ = unix.Chmod(dir, pick(g, modes))
		}
	}
}

// device makes a device 0:0, which the kernel allows all users outside of overlays.
func (g *generator) device() { _ = unix.Mknod(g.path(), unix.S_IFCHR, 0) }

// work does n things, some by several threads.
func (g *generator) work(n int) {
	var wg sync.WaitGroup
	workers := 1
	if g.IntN(3) == 0 {
		workers = 2 + g.IntN(2)
	}
	programs := g.IntN(10) == 0
	for range workers {
		one := &generator{rand.New(rand.NewPCG(g.Uint64(), 2)), g.root, g.lower}
		wg.Go(func() {
			for range n / workers {
				if programs && one.IntN(5) == 0 {
					one.program()
				}
				one.do()
			}
		})
	}
	wg.Wait()
}

// program runs a common program.
func (g *generator) program() {
	script := pick(g, []string{`mv -fT "$1" "$2"`, `cp -a "$1" "$2"`, `sed -i s/a/b/ "$1"`, `rm -rf "$1"`, `chmod -R u+rwX "$1"`, `find "$1" -type f -exec touch {} +`,
		`tar -cf "$2" -C "$1" . && rm -rf "$1" && mkdir "$1" && tar -xf "$2" -C "$1"`, `rm -rf "$2" && cp -a "$3" "$2"`})
	from := g.path()
	cmd := exec.Command("timeout", "2", "sh", "-c", script, "sh", from, g.path(), g.lower+strings.TrimPrefix(from, g.root))
	_ = cmd.Run()
}

// remove removes a tree. os.RemoveAll opens the directory above as if it were a file, and
// waits if that is a FIFO.
func remove(path string) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	e := fsat.Eraser{Opener: fsat.Kernel()}
	return e.Remove(dir, filepath.Base(path))
}

// put writes to a file, and does not wait for the reader of a FIFO.
func put(path string, flags int, text string) bool {
	fd, err := unix.Open(path, flags|unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err == nil
}

// do does one thing, or fails to.
func (g *generator) do() {
	path := g.path()
	write := func(flags int, text string) { put(path, flags, text) }
	switch g.IntN(26) {
	case 0:
		if g.IntN(2) == 0 {
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		write(unix.O_CREAT|unix.O_TRUNC, g.text())
	case 1:
		write(0, g.text()) // in place
	case 2:
		write(unix.O_APPEND, g.text())
	case 3:
		_ = unix.Truncate(path, int64(g.IntN(4)))
	case 4, 5: // as editors save
		temp := g.path()
		if put(temp+"~", unix.O_CREAT, g.text()) && os.Rename(temp+"~", path) != nil {
			_ = os.Remove(temp + "~")
		}
	case 6, 7:
		_ = unix.Rename(path, g.path())
	case 8:
		_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, g.path(), unix.RENAME_EXCHANGE)
	case 9:
		_ = remove(path)
	case 10, 11: // opaque
		if remove(path) == nil {
			_ = os.Mkdir(path, 0o755)
			if g.IntN(2) == 0 { // one more below it
				g.restore(path + "/" + pick(g, names))
			}
		}
	case 12:
		_ = os.Mkdir(path, 0o755)
	case 13:
		_ = os.MkdirAll(path, 0o755)
	case 14:
		_ = os.Symlink(pick(g, names), path)
	case 15: // another type
		_ = remove(path)
		_ = os.Symlink(pick(g, names), path)
	case 16:
		_ = remove(path)
		write(unix.O_CREAT, g.text())
	case 17, 18:
		_ = unix.Chmod(path, pick(g, modes))
	case 19:
		_ = os.Link(path, g.path())
	case 20:
		_ = unix.Mkfifo(path, pick(g, modes))
	case 21:
		_ = unix.Mknod(path, unix.S_IFSOCK|pick(g, modes), 0)
	case 22:
		_ = os.Chtimes(path, time.Unix(1, 0), time.Unix(2, 0)) // copied up, not changed
	case 23, 24:
		g.restore(path)
	case 25:
		if g.IntN(4) == 0 {
			_ = unix.Chmod(g.root, pick(g, modes))
		}
	}
}

// restore gives a path the content of the lower layer, in place or anew.
func (g *generator) restore(path string) {
	old := g.lower + strings.TrimPrefix(path, g.root)
	st, err := os.Lstat(old)
	if err != nil {
		_ = remove(path)
		return
	}
	mode := st.Sys().(*syscall.Stat_t).Mode & 0o7777
	switch st.Mode().Type() {
	case os.ModeDir:
		_ = os.Mkdir(path, 0o755)
		entries, _ := os.ReadDir(old)
		for _, entry := range entries {
			g.restore(path + "/" + entry.Name())
		}
	case 0:
		text, _ := os.ReadFile(old)
		if g.IntN(2) == 0 {
			_ = remove(path)
		}
		put(path, unix.O_CREAT|unix.O_TRUNC, string(text))
	case os.ModeSymlink:
		target, _ := os.Readlink(old)
		_ = remove(path)
		_ = os.Symlink(target, path)
		return
	}
	_ = unix.Chmod(path, mode)
}

// node is a file of a tree.
type node struct {
	mode uint32
	size int64
	ino  uint64
	text string // content, or the target of a link
	dev  uint64 // of a device
}

func (n node) isNull() bool { return n.mode&unix.S_IFMT == unix.S_IFCHR && n.dev == 0 }

// tree reads a tree, by the means of package os.
func tree(root string) map[string]node {
	nodes := map[string]node{}
	var walk func(path string)
	walk = func(path string) {
		at := filepath.Join(root, path)
		info, err := os.Lstat(at)
		if errors.Is(err, os.ErrNotExist) {
			return // an overlay lists the devices 0:0 of its lower layer
		}
		must(err)
		st := info.Sys().(*syscall.Stat_t)
		n := node{mode: st.Mode, ino: st.Ino, dev: uint64(st.Rdev), size: st.Size}
		switch info.Mode().Type() {
		case 0:
			text, err := os.ReadFile(at)
			must(err)
			n.text = string(text)
		case os.ModeSymlink:
			n.text, err = os.Readlink(at)
			must(err)
		case os.ModeDir:
			n.size = 0
			entries, err := os.ReadDir(at)
			must(err)
			for _, entry := range entries {
				walk(filepath.Join(path, entry.Name()))
			}
		}
		nodes[path] = n
	}
	walk(".")
	return nodes
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// difference is the changes between two trees.
func difference(merged, lower map[string]node) []record {
	want := []record{}
	for path, now := range merged {
		old, had := lower[path]
		r := record{path, Modified, old.mode, now.mode, old.size, now.size, old.ino, false}
		switch isLink := now.mode&unix.S_IFMT == unix.S_IFLNK; {
		case !had || old.isNull():
			r.Op = Added
		case old.mode&unix.S_IFMT != now.mode&unix.S_IFMT:
			r.Op = Retyped
		case old.text != now.text || old.dev != now.dev:
			r.Content = true
		case old.mode == now.mode || isLink:
			continue
		}
		want = append(want, r)
	}
	for path, old := range lower {
		if _, has := merged[path]; !has && !old.isNull() {
			want = append(want, record{path, Removed, old.mode, 0, old.size, 0, old.ino, false})
		}
	}
	slices.SortFunc(want, func(a, b record) int { return compare(a.Path, b.Path) })
	return want
}
