package trial

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitland"
	"pikuri/lib/session"
	"pikuri/lib/workspace"
)

// stage is a project and the layer of a trial over it. Nothing is mounted: the tests
// write to the upper layer as the kernel does.
type stage struct {
	project, overlays string
	root              *Root
}

func newStage(t *testing.T, lines ...string) *stage {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	s := &stage{project: base + "/project", overlays: base + "/" + session.OverlayDir}
	require.NoError(t, os.Mkdir(s.project, 0o755))
	grow(t, s.project, lines...)
	tick(t)
	s.command(t)
	return s
}

// command opens and closes the trial as a command does.
func (s *stage) command(t *testing.T, upper ...string) {
	t.Helper()
	r, err := Open(s.overlays, s.project, true)
	require.NoError(t, err)
	grow(t, r.Upper(), upper...)
	r.Started()
	require.NoError(t, r.Close())
	s.root = s.again(t)
}

// again opens the trial as pk-diff does.
func (s *stage) again(t *testing.T) *Root {
	t.Helper()
	roots, err := Roots(s.overlays)
	require.NoError(t, err)
	require.Len(t, roots, 1)
	return roots[0]
}

// tick waits until the coarse clock is ahead of all times that files have now.
func tick(t *testing.T) {
	t.Helper()
	for begun, now := time.Now().UnixNano(), int64(0); now <= begun; {
		var err error
		now, err = coarseNow()
		require.NoError(t, err)
	}
}

// grow makes entries from lines: "d/" a directory, "l => target" a link, "f: text" a
// file. Words before the text: a mode, a type, an attribute of overlays.
func grow(t *testing.T, root string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if name, target, ok := strings.Cut(line, " => "); ok {
			require.NoError(t, os.Symlink(target, root+"/"+name))
			continue
		}
		name, words, _ := strings.Cut(line, ":")
		at, text, mode, attribute := filepath.Join(root, name), "", uint64(0o644), ""
		kind := "file"
		if strings.HasSuffix(name, "/") {
			kind, mode = "dir", 0o755
		}
		for _, word := range strings.Fields(words) {
			n, err := strconv.ParseUint(word, 8, 32)
			switch {
			case word[0] == '0' && err == nil:
				mode = n
			case word == "whiteout" || word == "FIFO" || word == "socket":
				kind = word
			case word == "opaque" || word == "origin":
				attribute = word
			default:
				text = word
			}
		}
		_ = os.Remove(at)
		switch kind {
		case "dir":
			require.NoError(t, os.MkdirAll(at, 0o755))
		case "whiteout":
			require.NoError(t, unix.Mknod(at, unix.S_IFCHR, 0))
			continue
		case "FIFO":
			require.NoError(t, unix.Mkfifo(at, 0o644))
		case "socket":
			require.NoError(t, unix.Mknod(at, unix.S_IFSOCK|0o644, 0))
		default:
			require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
		}
		switch attribute {
		case "opaque":
			require.NoError(t, unix.Lsetxattr(at, opaqueName, []byte("y"), 0))
		case "origin":
			require.NoError(t, unix.Lsetxattr(at, "user.overlay.origin", nil, 0))
		}
		require.NoError(t, unix.Chmod(at, uint32(mode)))
	}
}

// list formats the changes as lines, with the reason if one does not land.
func (s *stage) list(t *testing.T, o ListOptions) []string {
	t.Helper()
	items, err := s.again(t).List(o)
	require.NoError(t, err)
	lines := []string{}
	for _, i := range items {
		line := i.Op.String() + " " + i.Path
		if i.PermOnly() {
			line = "P " + i.Path
		}
		switch {
		case i.Refused != "":
			line += ": refused: " + i.Refused
		case i.Conflict != "":
			line += ": conflict: " + i.Conflict
		case i.Repository:
			line += ": repository"
		}
		lines = append(lines, line)
	}
	return lines
}

// apply lands listed changes, at some paths or all, and returns the refused ones.
func (s *stage) apply(t *testing.T, o ApplyOptions, paths ...string) (refused []string) {
	t.Helper()
	r := s.again(t)
	items, err := r.List(ListOptions{})
	require.NoError(t, err)
	if len(paths) > 0 {
		items = slices.DeleteFunc(items, func(i Item) bool { return !slices.Contains(paths, i.Path) })
	}
	o.Number, o.GitState = Number(), s.overlays+"/git"
	require.NoError(t, r.Apply(items, o, func(i Item, err error) {
		if err != nil {
			refused = append(refused, i.Path+": "+err.Error())
		}
	}))
	return refused
}

// names are all entries below a directory, with the text of files.
func names(t *testing.T, dir string) []string {
	t.Helper()
	found := []string{}
	require.NoError(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if at == dir || err != nil {
			return err
		}
		line := at[len(dir)+1:]
		switch {
		case d.IsDir():
			line += "/"
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(at)
			line += " => " + target
		case d.Type().IsRegular():
			text, _ := os.ReadFile(at)
			line += ": " + string(text)
		default:
			line += ": special"
		}
		found = append(found, line)
		return nil
	}))
	return found
}

type lines = []string

func TestConflicts(t *testing.T) {
	const (
		changed  = "it has changed in the project"
		replaced = "it has been replaced in the project"
	)
	for _, row := range []struct {
		name           string
		project, upper lines
		host           string
		want           lines
	}{
		{"nothing on the host", lines{"f: 1", "d/", "d/g: 1"}, lines{"f: 2", "d/", "d/g: whiteout", "n: 1"}, ``, lines{"D d/g", "M f", "A n"}},
		{"written", lines{"f: 1"}, lines{"f: 2"}, `echo 3 >f`, lines{"M f: conflict: " + changed}},
		{"written, with the old time", lines{"f: 1"}, lines{"f: 2"}, `echo 3 >f; touch -d '2 days ago' f`, lines{"M f: conflict: " + changed}},
		{"replaced", lines{"f: 1"}, lines{"f: 2"}, `cp -p f g; mv g f`, lines{"M f: conflict: " + changed}},
		{"mode", lines{"f: 1"}, lines{"f: 0755 1"}, `chmod 600 f`, lines{"P f: conflict: " + changed}},
		{"written, removed in the trial", lines{"f: 1"}, lines{"f: whiteout"}, `echo 3 >f`, lines{"D f: conflict: " + changed}},
		{"written, another type in the trial", lines{"f: 1"}, lines{"f/", "f/g: 1"}, `echo 3 >f`, lines{"T f: conflict: " + changed, "A f/g"}},
		{"removed", lines{"f: 1"}, lines{"f: 2"}, `rm f`, lines{"A f: conflict: it has been removed from the project"}},
		{"removed on both sides", lines{"f: 1"}, lines{"f: whiteout"}, `rm f`, lines{}},
		{"came", nil, lines{"f: 2"}, `echo 3 >f`, lines{"M f: conflict: it has come to the project since"}},
		{"came, and the same", nil, lines{"f: 2"}, `printf 2 >f`, lines{}},
		{"came, removed in the trial", nil, lines{"f: whiteout"}, `echo 3 >f`, lines{"D f: conflict: it has come to the project since"}},
		{"directory came", nil, lines{"d/", "d/f: 1"}, `mkdir d`, lines{"A d/f"}},
		{"mode of a directory", lines{"d/"}, lines{"d/: 0700"}, `chmod 711 d`, lines{"P d: conflict: its permissions have changed in the project"}},
		{"entries of a directory", lines{"d/", "d/f: 1"}, lines{"d/: 0700"}, `echo 1 >d/g; rm d/f`, lines{"P d"}},
		{"directory replaced", lines{"d/", "d/f: 1"}, lines{"d/", "d/f: 2"}, `mv d e; cp -a e d; touch -d '2 days ago' d/f`, lines{`M d/f: conflict: the project's directory "d" has been replaced`}},
		{"directory above replaced", lines{"d/", "d/e/", "d/e/f: 1"}, lines{"d/", "d/e/", "d/e/f: 2"}, `mkdir x; mv d/e x; mv d y; mv x d`, lines{`M d/e/f: conflict: the project's directory "d/e" has been replaced`}},
		{"directory replaced, removed in the trial", lines{"d/", "d/f: 1"}, lines{"d: whiteout"}, `mv d e; mkdir d`, lines{"D d: conflict: " + replaced}},
		{"directory became a file", lines{"d/", "d/f: 1"}, lines{"d/", "d/f: 2"}, `rm -r d; echo 1 >d`, lines{"T d: conflict: " + changed, "A d/f: conflict: it has been removed from the project"}},
		{"link", lines{"l => a"}, lines{"l => b"}, `ln -sfn c l`, lines{"M l: conflict: " + changed}},
		{"false deletion in an opaque directory", lines{"d/", "d/f: 1", "d/e/", "d/e/g: 1"}, lines{"d/: opaque", "d/n: 1"}, `echo 1 >d/user; mkdir d/own; echo 1 >d/own/f; echo 1 >d/e/user`,
			lines{"D d/e", "D d/e/g", "D d/f", "A d/n"}},
		{"false deletion in a removed directory", lines{"d/", "d/f: 1"}, lines{"d: whiteout"}, `echo 1 >d/user`, lines{"D d", "D d/f"}},
		{"false deletion of a directory of the same name", lines{"d/", "d/e/", "d/e/f: 1"}, lines{"d: whiteout"}, `mkdir d/x; rm -r d/e; mv d/x d/e; echo 1 >d/e/g`, lines{"D d"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStage(t, row.project...)
			s.command(t, row.upper...)
			host(t, s.project, row.host)
			assert.Equal(t, row.want, s.list(t, ListOptions{}))
		})
	}
}

func host(t *testing.T, dir, script string) {
	t.Helper()
	defer tick(t)
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A file that was copied up after the host had changed it is based on that change. A
// later command may have the older file, so its changes are a conflict, too.
func TestWrittenLater(t *testing.T) {
	s := newStage(t, "f: 1", "g: 1", "h: 1")
	host(t, s.project, "echo 2 >f; echo 2 >g")
	s.command(t, "f: 3 origin", "g: 3", "h: 3 origin")
	assert.Equal(t, lines{"M f: conflict: it has changed in the project", "M g: conflict: it has changed in the project", "M h"}, s.list(t, ListOptions{}))
}

func TestRefusals(t *testing.T) {
	const (
		special = "it is neither a file, a directory nor a symbolic link"
		bits    = "set-user-ID, set-group-ID and sticky bits do not land"
		named   = "git on the host would use the repository that it names"
	)
	s := newStage(t, "had: 04755 1", "d/", "link => d", "own/", "own/HEAD: x", "own/refs/", "p/", "p/keys/")
	s.command(t, "FIFO: FIFO", "socket: socket", "setuid: 04755 1", "setgid: 02755 1", "sticky: 01755 1", "had: 04755 2", "d/: 01755", "new/: 01755", "new\nline: 1", "\xff: 1",
		"abs => /etc", "up => ..", "climbs => d/../..", "within => d/e/f", "back => d/../d", "deep/", "deep/ok => ../d", "deep/out => ../../d", "togit => .git", "togit2 => sub/.git",
		".git/", ".git/HEAD: x", "file/", "file/.git: 1", "linked/", "linked/.git => ../x", "upper/", "upper/.GIT/",
		"bare/", "bare/HEAD: x", "bare/objects/", "bare/refs/", "bare/hooks/", "bare/hooks/post-checkout: 1", "wt/", "wt/HEAD: x", "wt/commondir: 1", "own/", "own/objects/", "own/config: x",
		".pk-x.tmp: 1", "p/", "p/keys => ../d", "p/other: 1")
	o := ListOptions{
		Protected: func(rel string, _ bool) string {
			if rel == "p/keys" || strings.HasPrefix(rel, "p/keys/") {
				return "a rule"
			}
			return ""
		},
		ProtectedBelow: func(rel string) string {
			if rel == "p" {
				return "a rule below"
			}
			return ""
		},
	}
	out := func(target string) string {
		return fmt.Sprintf("the link may lead out of the project: %q (--links lands it)", target)
	}
	git := func(target string) string {
		return fmt.Sprintf("the link leads into a git directory: %q (--links lands it)", target)
	}
	want := map[string]string{
		"FIFO": special, "socket": special, "setuid": bits, "setgid": bits, "sticky": bits, "had": bits, "d": bits, "new": bits,
		"abs": `the link is absolute: "/etc" (--links lands it)`, "up": out(".."), "climbs": out("d/../.."), "back": out("d/../d"), "deep/out": out("../../d"), "togit": git(".git"), "togit2": git("sub/.git"),
		"file/.git": named, "linked/.git": named, "p/keys": "a rule",
	}
	for _, name := range []string{"bare", "wt", "own"} {
		want[name] = "git on the host would use it as a repository"
	}
	items, err := s.root.List(o)
	require.NoError(t, err)
	for _, i := range items {
		switch {
		case i.Path == ".pk-x.tmp", i.Path == "upper/.GIT", i.Path == "togit2": // as the rules of names say
			assert.True(t, i.Refused != "" || i.Repository || i.Path == ".pk-x.tmp", i.Path)
		default:
			assert.Equal(t, want[i.Path], i.Refused, "%q", i.Path)
		}
		assert.Equal(t, i.Path == ".git", i.Repository, "%q", i.Path)
		assert.Empty(t, i.Conflict, "%q", i.Path)
		delete(want, i.Path)
	}
	delete(want, "togit2")
	assert.Empty(t, want)

	o.Links = true
	items, err = s.root.List(o)
	require.NoError(t, err)
	for _, i := range items {
		if i.New.Mode&unix.S_IFMT == unix.S_IFLNK && path.Base(i.Path) != ".git" && i.Path != "p/keys" {
			assert.Empty(t, i.Refused, i.Path)
		}
	}
}

func TestLinkOverProtected(t *testing.T) {
	s := newStage(t, "p/", "p/keys/", "p/keys/f: 1")
	s.command(t, "p => q")
	got := s.list(t, ListOptions{ProtectedBelow: func(rel string) string {
		if rel == "p" {
			return "a link there"
		}
		return ""
	}, Links: true})
	assert.Equal(t, "T p: refused: a link there", got[0])
}

// Landed entries are removed from the upper layer, and the trial begins anew if that is
// empty.
func TestPrune(t *testing.T) {
	for _, row := range []struct {
		name           string
		project, upper lines
		land           lines // nil: all
		left, want     lines // in the upper layer; in the project
		over           bool
	}{
		{"files and directories", lines{"f: 1", "d/", "d/g: 1"}, lines{"f: 2", "d/", "d/g: whiteout", "n/", "n/m/", "n/m/f: 1", "l => f"}, nil, lines{}, lines{"d/", "f: 2", "l => f", "n/", "n/m/", "n/m/f: 1"}, true},
		{"some", lines{"f: 1", "g: 1"}, lines{"f: 2", "g: whiteout", "n/", "n/a: 1", "n/b: 1"}, lines{"f", "n", "n/a"}, lines{"g: special", "n/", "n/b: 1"}, lines{"f: 2", "g: 1", "n/", "n/a: 1"}, false},
		{"opaque directory", lines{"d/", "d/f: 1", "d/e/", "d/e/g: 1"}, lines{"d/: opaque", "d/n: 1"}, nil, lines{}, lines{"d/", "d/n: 1"}, true},
		{"opaque directory, which hides something", lines{"d/", "d/f: 1", "d/g: 1"}, lines{"d/: opaque", "d/n: 1"}, lines{"d/n", "d/f"}, lines{"d/", "d/n: 1"}, lines{"d/", "d/g: 1", "d/n: 1"}, false},
		{"opaque in opaque", lines{"d/", "d/e/", "d/e/f: 1", "d/g: 1"}, lines{"d/: opaque", "d/e/: opaque", "d/e/n: 1"}, lines{"d/e/f", "d/e/n"}, lines{"d/", "d/e/", "d/e/n: 1"}, lines{"d/", "d/e/", "d/e/n: 1", "d/g: 1"}, false},
		{"directory to file, and back", lines{"d/", "d/f: 1", "f: 1"}, lines{"d: 2", "f/: opaque", "f/n: 1"}, nil, lines{}, lines{"d: 2", "f/", "f/n: 1"}, true},
		{"closed directory", lines{"d/", "d/f: 1"}, lines{"d/", "d/f: 2", "d/n: 1", "d/: 0500"}, nil, lines{}, lines{"d/", "d/f: 2", "d/n: 1"}, true},
		{"refused ones stay", lines{"f: 1"}, lines{"f: 2", "p: FIFO"}, nil, lines{"p: special"}, lines{"f: 2"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStage(t, row.project...)
			s.command(t, row.upper...)
			refused := s.apply(t, ApplyOptions{}, row.land...)
			if !slices.Contains(row.left, "p: special") {
				assert.Empty(t, refused)
			}
			assert.Equal(t, row.want, names(t, s.project))
			assert.Equal(t, row.left, names(t, s.root.Upper()))
			r := s.again(t)
			assert.Equal(t, row.over, r.over())
			assert.Equal(t, row.over, !strings.Contains(strings.Join(s.list(t, ListOptions{}), "\n"), " "))
			since := r.began.Since
			tick(t)
			s.command(t)
			assert.False(t, s.root.over())
			if row.over {
				assert.Greater(t, s.root.began.Since, since, "the trial begins anew")
				assert.NoFileExists(t, filepath.Join(s.root.Dir, landedFile))
			} else {
				assert.Equal(t, since, s.root.began.Since)
			}
		})
	}
}

// A landed entry is not the user's change; deleting it is a change of the trial.
func TestLanded(t *testing.T) {
	s := newStage(t, "f: 1", "keep: 1")
	s.command(t, "f: 2", "n: 1", "keep: 2")
	assert.Empty(t, s.apply(t, ApplyOptions{}, "f", "n"))
	s.command(t, "f: 3", "n: whiteout")
	assert.Equal(t, lines{"M f", "M keep", "D n"}, s.list(t, ListOptions{}))
	assert.Empty(t, s.apply(t, ApplyOptions{}, "f", "n"))
	s.command(t, "n: 2", "f: 4")
	assert.Equal(t, lines{"M f", "M keep", "A n"}, s.list(t, ListOptions{}))
	host(t, s.project, "echo 3 >f")
	assert.Equal(t, lines{"M f: conflict: it has changed in the project", "M keep", "A n"}, s.list(t, ListOptions{}))

	// A killed landing has noted the changes that it was about to make.
	require.NoError(t, s.root.readLanded())
	require.NoError(t, s.root.noteLanded("keep", workspace.Entry{Kind: workspace.KindFile, Perm: 0o644, Hash: workspace.HashOf([]byte("2"))}))
	assert.Contains(t, s.list(t, ListOptions{}), "M keep")
	text, err := os.ReadFile(filepath.Join(s.root.Dir, landedFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.root.Dir, landedFile), text[:len(text)-5], 0o600))
	assert.Contains(t, s.list(t, ListOptions{}), "M keep", "a line that a crash has cut")
}

func TestOrder(t *testing.T) {
	s := newStage(t, "d/", "d/a: 1", "d/e/", "d/e/f: 1", "x/", "x/y: 1", "f: 1", "closed/: 0500", "z/", "z/g: 1")
	s.command(t, "d: whiteout", "x: 1", "f/", "f/g: 1", "f/: 0500", "n/", "n/m/", "n/m/f: 1", "n/m/: 0500", "closed/: 0700", "z/", "z/g: 2", "z/: 0500")
	items, err := s.root.List(ListOptions{})
	require.NoError(t, err)
	var got lines
	for _, i := range order(items) {
		got = append(got, i.Op.String()+" "+i.Path)
	}
	assert.Equal(t, lines{"M closed", "T f", "A n", "A n/m", "A f/g", "A n/m/f", "M z/g", "D x/y", "D d/e/f", "D d/e", "D d/a", "D d", "T x", "M z", "M n/m", "M f"}, got)
}

func TestDiscard(t *testing.T) {
	s := newStage(t, "f: 1", "g: 1", "d/", "d/a: 1", "d/b: 1", "gone/", "gone/x: 1", "m/")
	s.command(t, "f: 2", "g: whiteout", "d/: opaque", "d/a: 2", "d/n: 1", "gone: whiteout", "m/: 0700", "n/", "n/f: 1")
	drop := func(paths ...string) (failed lines) {
		r := s.again(t)
		items, err := r.List(ListOptions{})
		require.NoError(t, err)
		items = slices.DeleteFunc(items, func(i Item) bool { return !slices.Contains(paths, i.Path) })
		require.NoError(t, r.Discard(items, DiscardOptions{}, func(i Item, err error) {
			if err != nil {
				failed = append(failed, i.Path+": "+err.Error())
			}
		}))
		return failed
	}
	whole := func(dir string) string {
		return ": the trial has removed or replaced " + dir + " as a whole: discard that"
	}
	assert.Equal(t, lines{"d/a" + whole("d"), "d/b" + whole("d"), "gone/x" + whole("gone")}, drop("d/a", "d/b", "gone/x"))
	assert.Equal(t, lines{"M d/a", "D d/b", "A d/n", "M f", "D g", "D gone", "D gone/x", "P m", "A n", "A n/f"}, s.list(t, ListOptions{}))
	assert.Empty(t, drop("f", "g", "d/n", "gone", "gone/x", "m", "n/f"))
	assert.Equal(t, lines{"M d/a", "D d/b", "A n"}, s.list(t, ListOptions{}))
	r := s.again(t)
	items, err := r.List(ListOptions{})
	require.NoError(t, err)
	n := 0
	require.NoError(t, r.Discard(items, DiscardOptions{All: true}, func(Item, error) { n++ }))
	assert.Equal(t, 3, n)
	assert.Empty(t, s.list(t, ListOptions{}))
	assert.True(t, s.again(t).over())
	assert.Equal(t, lines{"d/", "d/a: 1", "d/b: 1", "f: 1", "g: 1", "gone/", "gone/x: 1", "m/"}, names(t, s.project))
}

func TestUndo(t *testing.T) {
	s := newStage(t, "f: 1", "d/", "d/a: 1", "l => f", "x: 1", "mode: 1")
	before := names(t, s.project)
	replay := func(turn func(*Trial, bool, func(*Root, string, error)) error) (failed lines) {
		require.NoError(t, turn(&Trial{Roots: []*Root{s.again(t)}}, false, func(_ *Root, path string, err error) {
			if err != nil {
				failed = append(failed, path+": "+err.Error())
			}
		}))
		return failed
	}
	undo := func() lines { return replay((*Trial).Undo) }
	assert.ErrorIs(t, (&Trial{Roots: []*Root{s.root}}).Undo(false, nil), ErrNothingLanded)
	s.command(t, "f: 2", "d: whiteout", "l => d", "x/", "x/n: 1", "mode: 0700 1", "n/", "n/m/", "n/m/f: 1")
	assert.Empty(t, s.apply(t, ApplyOptions{}))
	after := names(t, s.project)
	for range 3 {
		s.command(t) // a command begins anew, and may forget landed entries
		assert.Empty(t, undo())
		assert.Equal(t, before, names(t, s.project))
		assert.Empty(t, replay((*Trial).Redo))
		assert.Equal(t, after, names(t, s.project))
	}
	assert.ErrorIs(t, (&Trial{Roots: []*Root{s.again(t)}}).Redo(false, nil), ErrNothingUndone)
	host(t, s.project, "echo mine >n/m/f; echo mine >f")
	assert.ElementsMatch(t, lines{"f: it has changed in the project", "n/m/f: it has changed in the project"}, slices.DeleteFunc(undo(), func(l string) bool { return strings.HasPrefix(l, "n: ") || strings.HasPrefix(l, "n/m: ") }))
	assert.Contains(t, names(t, s.project), "f: mine\n")
	assert.Contains(t, names(t, s.project), "n/m/f: mine\n")
	assert.Contains(t, names(t, s.project), "d/a: 1")
	host(t, s.project, "printf 2 >f; printf 1 >n/m/f")
	assert.Empty(t, undo(), "what has failed is tried again")
	assert.Equal(t, before, names(t, s.project))
}

// Two landings are undone one after the other, and land again in their order.
func TestUndoTwice(t *testing.T) {
	s := newStage(t, "f: 1", "g: 1")
	s.command(t, "f: 2")
	assert.Empty(t, s.apply(t, ApplyOptions{}))
	s.command(t, "f: 3", "g: 3")
	assert.Empty(t, s.apply(t, ApplyOptions{}))
	for _, step := range []struct {
		turn func(*Trial, bool, func(*Root, string, error)) error
		want lines
	}{{(*Trial).Undo, lines{"f: 2", "g: 1"}}, {(*Trial).Undo, lines{"f: 1", "g: 1"}}, {(*Trial).Redo, lines{"f: 2", "g: 1"}}, {(*Trial).Redo, lines{"f: 3", "g: 3"}}, {(*Trial).Undo, lines{"f: 2", "g: 1"}}} {
		require.NoError(t, step.turn(&Trial{Roots: []*Root{s.again(t)}}, false, func(_ *Root, path string, err error) { assert.NoError(t, err, path) }))
		got := names(t, s.project)
		for _, line := range step.want {
			assert.Contains(t, got, line)
		}
	}
}

// A landing was killed after the exchange of the last entry that it had to land in a
// directory.
func TestKilledAtTheLastEntry(t *testing.T) {
	for _, whole := range []bool{false, true} {
		s := newStage(t, "d/", "d/x: 1")
		if whole {
			s.command(t, "d: whiteout")
		} else {
			s.command(t, "d/", "d/x: whiteout")
		}
		s.killedAt(t, "d", "x")
		assert.Empty(t, s.apply(t, ApplyOptions{}))
		want := []string{"d/"}
		if whole {
			want = nil
		}
		assert.ElementsMatch(t, want, names(t, s.project))
	}
}

// killedAt leaves a file of a directory as a landing does that is killed after the exchange which removed it.
func (s *stage) killedAt(t *testing.T, dir, name string) {
	t.Helper()
	r := s.again(t)
	_, err := r.List(ListOptions{})
	require.NoError(t, err)
	old, err := r.entryNow(dir + "/" + name)
	require.NoError(t, err)
	require.NoError(t, r.noteLanded(dir+"/"+name, workspace.Entry{}))
	require.NoError(t, r.endNotes())
	require.NoError(t, os.Rename(s.project+"/"+dir+"/"+name, s.project+"/"+dir+"/"+swapName(name, old, workspace.Entry{})))
}

// swapName is the name of an entry that an exchange has displaced.
func swapName(name string, old, next workspace.Entry) string {
	digest := func(e workspace.Entry) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %o %s %q", e.Kind, e.Perm, e.Hash, e.Target))
		return base32.StdEncoding.EncodeToString(sum[:])[:26]
	}
	return ".pk-" + strings.Repeat("A", 26) + digest(old) + digest(next) + "-" + name + ".swap"
}

// The next call tells of a file that a killed call has displaced, also if nothing is left to land, or to
// be undone.
func TestDisplacedByAKilledCall(t *testing.T) {
	for _, undo := range []bool{false, true} {
		s := newStage(t, "f: 1", "g: 1")
		s.command(t, "f: 2", "g: 2")
		require.Empty(t, s.apply(t, ApplyOptions{}))
		r := s.again(t)
		items, err := r.List(ListOptions{})
		require.NoError(t, err)
		assert.Empty(t, items)
		assert.False(t, r.Interrupted())
		now, err := r.entryNow("f")
		require.NoError(t, err)
		require.NoError(t, r.noteLanded("f", now))
		require.NoError(t, r.endNotes())
		host(t, s.project, "echo mine >"+swapName("f", workspace.Entry{}, now))
		r = s.again(t)
		if undo {
			err = (&Trial{Roots: []*Root{r}}).Undo(false, func(*Root, string, error) {})
		} else {
			_, err = r.List(ListOptions{})
			require.NoError(t, err)
			require.True(t, r.Interrupted())
			err = r.Apply(nil, ApplyOptions{Number: Number()}, nil)
		}
		assert.ErrorContains(t, err, "had displaced a file of yours, which is \"f.pk-kept-")
		kept, err := filepath.Glob(s.project + "/f.pk-kept-*")
		require.NoError(t, err)
		require.Len(t, kept, 1)
		text, err := os.ReadFile(kept[0])
		require.NoError(t, err)
		assert.Equal(t, "mine\n", string(text))
	}
}

// Leftovers of a killed call keep no directory from being replaced.
func TestReplacedAfterAKill(t *testing.T) {
	s := newStage(t, "d/", "d/x: 1")
	s.command(t, "d: file")
	s.killedAt(t, "d", "x")
	assert.Empty(t, s.apply(t, ApplyOptions{}))
	assert.Empty(t, s.apply(t, ApplyOptions{}), "the directory of the note is a file now")
	assert.Equal(t, []string{"d: file"}, names(t, s.project))
}

// The user changes the project between the list and the landing.
func TestChangedSinceListed(t *testing.T) {
	for _, script := range []string{"echo mine >f", "rm f", "echo mine >x; mv x f", "chmod 600 f", "rm f; mkdir f", "rm f; ln -s d f"} {
		for _, overwrite := range []bool{false, true} {
			s := newStage(t, "f: 1", "d/", "d/g: 1")
			s.command(t, "f: 2", "d/", "d/g: 2")
			r := s.again(t)
			items, err := r.List(ListOptions{})
			require.NoError(t, err)
			host(t, s.project, script)
			was := names(t, s.project)
			var failed lines
			require.NoError(t, r.Apply(items, ApplyOptions{Overwrite: overwrite, Number: Number()}, func(i Item, err error) {
				if err != nil {
					failed = append(failed, i.Path+": "+err.Error())
				}
			}))
			assert.Equal(t, lines{"f: it has changed in the project"}, failed, script)
			was[slices.Index(was, "d/g: 1")] = "d/g: 2"
			assert.Equal(t, was, names(t, s.project), script)
		}
	}
}

func TestForeignGroup(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write files of any group")
	}
	for gid, want := range map[int]string{os.Getegid(): "", os.Getegid() + 1: "/project/d"} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(dir+"/d", 0o755))
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		n := &noting{began: &began{Path: "/project"}, gid: uint32(gid)}
		assert.NoError(t, n.directory(fd, &unix.Stat_t{Gid: uint32(gid)}, ".", maxDepth))
		unix.Close(fd)
		assert.Equal(t, want, n.began.Foreign)
	}
}

// Nothing happens unless the project is that of the beginning.
func TestAnotherProject(t *testing.T) {
	s := newStage(t, "f: 1")
	s.command(t, "f: 2")
	items, err := s.root.List(ListOptions{})
	require.NoError(t, err)
	require.NoError(t, os.Rename(s.project, s.project+".old"))
	require.NoError(t, os.Mkdir(s.project, 0o755))
	grow(t, s.project, "f: mine")
	_, err = s.again(t).List(ListOptions{})
	assert.ErrorContains(t, err, "another directory has its place since the trial began")
	_, err = Open(s.overlays, s.project, true)
	assert.ErrorContains(t, err, "another directory has its place since the trial began")
	assert.ErrorContains(t, s.root.Apply(items, ApplyOptions{}, nil), "another directory has its place since the trial began")
	assert.Equal(t, lines{"f: mine"}, names(t, s.project))
}

// Several commands of one trial begin at the same time and share no root. The trial records
// the protected paths of each.
func TestProtect(t *testing.T) {
	overlays := t.TempDir()
	var wait sync.WaitGroup
	want := map[string]string{}
	var roots []string
	for n := range 8 {
		root := filepath.Join(t.TempDir(), "no\xffUTF-8")
		require.NoError(t, os.Mkdir(root, 0o755))
		roots = append(roots, root)
		want[filepath.Join(root, "f\xfe")] = strconv.Itoa(n)
	}
	for _, root := range roots {
		for range 4 {
			wait.Go(func() {
				r, err := Open(overlays, root, false)
				if assert.NoError(t, err) {
					assert.NoError(t, r.Protect(want))
					r.Started()
					assert.NoError(t, r.Close())
				}
			})
		}
	}
	wait.Wait()
	list, err := Roots(overlays)
	require.NoError(t, err)
	assert.Equal(t, want, (&Trial{Roots: list}).Protected())
}

// A trial holds the commits of submodules and of linked worktrees, as its only changes too.
func TestHoldsCommitsBelow(t *testing.T) {
	for _, row := range []struct {
		name, script string
		holds        bool
	}{
		{"nothing", `true`, false},
		{"a branch of the repository", `mkdir -p refs/heads; echo $id >refs/heads/topic`, true},
		{"a branch of a submodule", `mkdir -p modules/m/refs/heads; echo $id >modules/m/refs/heads/topic`, true},
		{"the detached HEAD of a linked worktree", `mkdir -p worktrees/wt; echo $id >worktrees/wt/HEAD`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStage(t)
			host(t, s.project, `git init -q; git init -q --bare .git/modules/m; mkdir -p .git/worktrees/wt; cd .git/worktrees/wt; echo ref: refs/heads/w >HEAD; echo ../.. >commondir`)
			l, err := gitland.OpenShared(s.overlays, s.project+"/.git", "s")
			require.NoError(t, err)
			l.GitDirs = []string{l.GitDir, l.GitDir + "/modules/m", l.GitDir + "/worktrees/wt"}
			require.NoError(t, l.Save())
			l.Started()
			host(t, l.Upper(), "id=1111111111111111111111111111111111111111; "+row.script)
			require.NoError(t, l.Close())
			assert.Equal(t, row.holds, Holds(filepath.Dir(s.overlays)))
		})
	}
}

// A landing changes the ctime of a file by each name that it takes from it. That is no conflict
// of the other names; a change of the file by another program is one.
func TestLandsAllNamesOfAFile(t *testing.T) {
	for _, changed := range []bool{false, true} {
		s := newStage(t, "a: 1", "dir/", "gone: 1")
		for _, name := range []string{"/b", "/dir/c", "/kept"} {
			require.NoError(t, os.Link(s.project+"/a", s.project+name))
		}
		require.NoError(t, os.Link(s.project+"/gone", s.project+"/gone2"))
		tick(t)
		require.NoError(t, os.RemoveAll(s.root.Dir)) // the trial begins anew
		s.command(t, "a: 2", "b: 3", "dir/", "dir/c: whiteout", "gone: whiteout", "gone2: whiteout")
		items, err := s.root.List(ListOptions{})
		require.NoError(t, err)
		want := map[string]bool{"a": true, "b": !changed, "dir/c": !changed, "gone": true, "gone2": true}
		got := map[string]bool{}
		require.NoError(t, s.root.Apply(items, ApplyOptions{Number: 1}, func(i Item, err error) {
			got[i.Path] = err == nil
			if changed && i.Path == "a" {
				require.NoError(t, os.WriteFile(s.project+"/kept", []byte("9"), 0o644))
			}
		}))
		assert.Equal(t, want, got)
	}
}
