package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// layers makes the two layers of an overlay that is not mounted.
func layers(t testing.TB) (upper, lower string) {
	base := t.TempDir()
	t.Cleanup(func() { makeWritable(base) })
	upper, lower = base+"/upper", base+"/lower"
	require.NoError(t, os.Mkdir(upper, 0o755))
	require.NoError(t, os.Mkdir(lower, 0o755))
	return upper, lower
}

// makeWritable gives the owner all permissions on directories, for their removal.
func makeWritable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

// grow makes entries from lines: "d/" a directory, "l => target" a link, "f: text" a
// file. Words before the text: a mode, set when all is made; a type; an attribute.
func grow(t testing.TB, root string, lines ...string) {
	t.Helper()
	type mode struct {
		path string
		mode uint32
	}
	var modes []mode
	for _, line := range lines {
		if name, target, ok := strings.Cut(line, " => "); ok {
			require.NoError(t, os.Symlink(target, root+"/"+name))
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		path := filepath.Join(root, name)
		kind, text, attributes := "file", "", []string(nil)
		bits := uint32(0o644)
		if strings.HasSuffix(name, "/") {
			kind, bits = "dir", 0o755
		}
		for _, word := range strings.Fields(rest) {
			if n, err := strconv.ParseUint(word, 8, 32); err == nil && word[0] == '0' {
				bits = uint32(n)
				continue
			}
			switch word {
			case "whiteout", "FIFO", "socket":
				kind = word
			case "opaque", "marked", "origin", "xwhiteout":
				attributes = append(attributes, word)
			default:
				text = word
			}
		}
		switch kind {
		case "dir":
			require.NoError(t, os.MkdirAll(path, 0o755))
		case "whiteout":
			require.NoError(t, unix.Mknod(path, unix.S_IFCHR, 0))
			continue
		case "FIFO":
			require.NoError(t, unix.Mkfifo(path, 0o644))
		case "socket":
			require.NoError(t, unix.Mknod(path, unix.S_IFSOCK|0o644, 0))
		default:
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		for _, attribute := range attributes {
			set := map[string][2]string{"opaque": {"opaque", "y"}, "marked": {"opaque", "x"}, "origin": {"origin", ""}, "xwhiteout": {"whiteout", ""}}[attribute]
			require.NoError(t, unix.Lsetxattr(path, "user.overlay."+set[0], []byte(set[1]), 0))
		}
		modes = append(modes, mode{path, bits})
	}
	for _, m := range slices.Backward(modes) {
		require.NoError(t, unix.Chmod(m.path, m.mode))
	}
}

// list is the changes, each as a line.
func list(t testing.TB, upper, lower string, o Options) []string {
	t.Helper()
	lines := []string{}
	changes, err := collect(upper, lower, o)
	require.NoError(t, err)
	for _, c := range changes {
		lines = append(lines, line(c))
	}
	return lines
}

func line(c Change) string {
	text := c.Op.String() + " " + c.Path
	if c.Content {
		text += " content"
	}
	if c.Op == Modified && c.Old.Mode != c.New.Mode {
		text += fmt.Sprintf(" %o>%o", c.Old.Mode&0o7777, c.New.Mode&0o7777)
	}
	if c.CopiedUp {
		text += " copied"
	}
	if c.Op == Added && c.Old.Mode != 0 {
		text += " over a device"
	}
	if c.Err != nil {
		text += " unread"
	}
	return text
}

func collect(upper, lower string, o Options) (changes []Change, err error) {
	up, err := unix.Open(upper, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(up)
	low, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(low)
	err = Changes(up, low, o, func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	return changes, err
}

type lines []string

func TestChanges(t *testing.T) {
	// Root reads everything: so does a process in a user namespace of its own.
	unread := func(as string) string {
		if os.Geteuid() == 0 {
			return as
		}
		return as + " unread"
	}
	whenUnread := func(line string) lines {
		if os.Geteuid() == 0 {
			return nil
		}
		return lines{line + " unread"}
	}
	large := strings.Repeat("x", 3*bufferSize)
	for _, row := range []struct {
		name         string
		lower, upper lines
		want         lines
	}{
		{"nothing", lines{"f: 1", "d/", "d/f: 1"}, nil, nil},
		{"whiteout of a file", lines{"f: 1", "g: 1"}, lines{"f: whiteout"}, lines{"D f"}},
		{"whiteout of a directory", lines{"d/", "d/e/", "d/e/f: 1", "d/l => e", "d/p: FIFO", "d0: 1"}, lines{"d: whiteout"},
			lines{"D d", "D d/e", "D d/e/f", "D d/l", "D d/p"}},
		{"whiteout of nothing", nil, lines{"f: whiteout"}, nil},
		{"whiteout in a new directory", nil, lines{"d/", "d/f: whiteout"}, lines{"A d"}},
		{"whiteout of a device 0:0", lines{"f: whiteout"}, lines{"f: whiteout"}, nil},
		{"whiteout as a marked file", lines{"d/", "d/f: 1", "d/g/", "d/g/f: 1"}, lines{"d/: marked", "d/f: xwhiteout", "d/g: xwhiteout"},
			lines{"D d/f", "D d/g", "D d/g/f"}},
		{"whiteout as a marked file, at the top", lines{"f: 1"}, lines{"/: marked", "f: xwhiteout"}, lines{"D f"}},
		{"no whiteout: unmarked directory", lines{"d/", "d/f: 1"}, lines{"d/", "d/f: xwhiteout"}, lines{"M d/f content"}},
		{"no whiteout: marked directory above", lines{"d/e/", "d/e/f: 1"}, lines{"d/e/", "d/: marked", "d/e/f: xwhiteout"}, lines{"M d/e/f content"}},
		{"no whiteout: file with content", lines{"d/", "d/f: 1"}, lines{"d/: marked", "d/f: xwhiteout 22"}, lines{"M d/f content"}},
		{"marked is not opaque", lines{"d/", "d/f: 1"}, lines{"d/: marked"}, nil},

		{"opaque directory", lines{"d/", "d/e/", "d/e/f: 1", "d/f: 1", "d/same: 1"}, lines{"d/: opaque", "d/new: 1", "d/same: 1"},
			lines{"D d/e", "D d/e/f", "D d/f", "A d/new"}},
		{"opaque is inherited", lines{"d/e/f/", "d/e/f/g: 1", "d/e/f/same: 1", "d/e/g: 1"}, lines{"d/: opaque", "d/e/f/", "d/e/f/same: 1"},
			lines{"D d/e/f/g", "D d/e/g"}},
		{"opaque in opaque", lines{"d/e/", "d/e/f: 1"}, lines{"d/: opaque", "d/e/: opaque"}, lines{"D d/e/f"}},
		{"opaque over nothing", nil, lines{"d/: opaque", "d/f: 1"}, lines{"A d", "A d/f"}},
		{"opaque over a file", lines{"d: 1"}, lines{"d/: opaque", "d/f: 1"}, lines{"T d", "A d/f"}},
		{"opaque root", lines{"f: 1"}, lines{"/: opaque", "g: 1"}, lines{"A g"}},
		{"whiteout in an opaque directory", lines{"d/", "d/f: 1"}, lines{"d/: opaque", "d/f: whiteout"}, lines{"D d/f"}},
		{"device 0:0 below an opaque directory", lines{"d/", "d/f: whiteout"}, lines{"d/: opaque"}, nil},

		{"copied up", lines{"d/", "d/f: 1", "d/e/", "l => f"}, lines{"d/: origin", "d/f: 1 origin", "d/e/: origin", "l => f"}, nil},
		{"copied up, gone from the lower layer", nil, lines{"d/: origin", "d/f: origin 1"}, lines{"A d", "A d/f"}},
		{"written", lines{"f: 1", "g: 1"}, lines{"f: 22 origin", "g: 22"}, lines{"M f content copied", "M g content"}},
		{"written, same size", lines{"f: 1"}, lines{"f: 2 origin"}, lines{"M f content copied"}},
		{"written at the end", lines{"f: " + large + "1"}, lines{"f: " + large + "2"}, lines{"M f content"}},
		{"as long as the buffer", lines{"f: " + large}, lines{"f: " + large}, nil},
		{"emptied", lines{"f: 1"}, lines{"f:"}, lines{"M f content"}},
		{"mode", lines{"f: 1", "g: 1", "d/", "e/"}, lines{"f: 1 0755 origin", "g: 2 0600", "d/: 01755", "e/: 02755 origin"},
			lines{"M d 755>1755", "M e 755>2755 copied", "M f 644>755 copied", "M g content 644>600"}},
		{"mode of the root", nil, lines{"/: 0750"}, lines{"M . 755>750"}},
		{"mode of a directory and a file in it", lines{"d/", "d/f: 1"}, lines{"d/: 0700", "d/f: 2"}, lines{"M d 755>700", "M d/f content"}},
		{"link", lines{"l => a", "m => a", "n => a"}, lines{"l => b", "m => a", "n => ab"}, lines{"M l content", "M n content"}},
		{"hard links", lines{"f: 1"}, lines{"f: 1", "g: 1"}, lines{"A g"}},

		{"file to directory", lines{"x: 1"}, lines{"x/", "x/f: 1"}, lines{"T x", "A x/f"}},
		{"directory to file", lines{"x/", "x/d/", "x/d/f: 1", "y: 1"}, lines{"x: 1"}, lines{"T x", "D x/d", "D x/d/f"}},
		{"directory to link", lines{"x/", "x/f: 1"}, lines{"x => y"}, lines{"T x", "D x/f"}},
		{"link to directory", lines{"x => y", "y/", "y/f: 1"}, lines{"x/", "x/f: 2"}, lines{"T x", "A x/f"}},
		{"link to file", lines{"x => y"}, lines{"x: y"}, lines{"T x"}},
		{"file to link", lines{"x: y"}, lines{"x => y"}, lines{"T x"}},
		{"file to FIFO, and back", lines{"x: y", "y: FIFO"}, lines{"x: FIFO", "y: 1"}, lines{"T x", "T y"}},

		{"device 0:0 in the lower layer", lines{"f: whiteout", "d: whiteout", "x/", "x/w: whiteout"}, lines{"f: 1", "d/", "d/f: 1", "x: whiteout"},
			lines{"A d over a device", "A d/f", "A f over a device", "D x"}},
		{"special files", lines{"p: FIFO", "s: socket"}, lines{"p: FIFO", "q: FIFO", "r: socket", "s: socket 0600"}, lines{"A q", "A r", "M s 644>600"}},
		{"names", lines{"b: 1", "\xff\xfe: 1"}, lines{"\xff\xfe: whiteout", "a b: 1", "-rf: 1", "new\nline: 1", ".pk-1.tmp: 1", "b/", "b/z: 1", "b-: 1", "é: 1"},
			lines{"A -rf", "A .pk-1.tmp", "A a b", "T b", "A b/z", "A b-", "A new\nline", "A é", "D \xff\xfe"}},

		{"unreadable file, other mode", lines{"f: 1"}, lines{"f: 1 0"}, lines{unreadMode("M f", "644>0")}},
		{"unreadable file, same mode", lines{"f: 1 0"}, lines{"f: 1 0"}, whenUnread("M f content")},
		{"unreadable file in the lower layer", lines{"f: 1 0200"}, lines{"f: 1"}, lines{unreadMode("M f", "200>644")}},
		{"unreadable file, other size", lines{"f: 1"}, lines{"f: 22 0"}, lines{unread("M f content 644>0")}},
		{"unreadable new file", nil, lines{"f: 1 0"}, lines{unread("A f")}},
		{"unreadable file over a directory", lines{"x/", "x/f: 1"}, lines{"x: 1 0"}, lines{unread("T x"), "D x/f"}},
		{"unreadable file removed", lines{"f: 1 0"}, lines{"f: whiteout"}, lines{"D f"}},
		{"unreadable FIFO", nil, lines{"p: FIFO 0"}, lines{"A p"}},
		{"unreadable directory", lines{"d/: 0"}, lines{"d/: 0"}, whenUnread("M d")},
		{"unreadable directory, other mode", lines{"d/", "e/"}, lines{"d/: 0", "e/: 0600"}, lines{unread("M d 755>0"), unread("M e 755>600")}},
		{"unreadable new directory", nil, lines{"d/: 0", "e/: 0300"}, lines{unread("A d"), unread("A e")}},
		{"unreadable directory removed", lines{"d/: 0", "e/: 0300"}, lines{"d: whiteout", "e: whiteout"}, lines{unread("D d"), unread("D e")}},
		{"unreadable directory of the lower layer", lines{"d/: 0", "e/: 0300"}, lines{"d/", "e/"}, lines{unread("M d 0>755"), "M e 300>755"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			upper, lower := layers(t)
			grow(t, lower, row.lower...)
			grow(t, upper, row.upper...)
			if row.name == "hard links" {
				require.NoError(t, os.Remove(upper+"/g"))
				require.NoError(t, os.Link(upper+"/f", upper+"/g"))
			}
			assert.Equal(t, append(lines{}, row.want...), lines(list(t, upper, lower, Options{})))
		})
	}
}

// unreadMode is a line about a file whose mode changed. Its content is not known to be
// the same unless it could be read.
func unreadMode(change, modes string) string {
	if os.Geteuid() == 0 {
		return change + " " + modes
	}
	return change + " content " + modes + " unread"
}

func TestOptions(t *testing.T) {
	upper, lower := layers(t)
	grow(t, lower, "gone/", "gone/a/", "gone/a/f: 1", "gone/b: 1", "mode/", "mode/f: 1", "opaque/", "opaque/e/", "opaque/e/f: 1", "opaque/g: 1", "t: 1")
	grow(t, upper, "gone: whiteout", "mode/: 0700", "mode/f: 2", "new/", "new/e/", "new/e/f: 1", "new/g: 1", "opaque/: opaque", "opaque/e/", "t/", "t/f: 1")
	keep := func(paths ...string) func(string, File) bool {
		return func(path string, old File) bool {
			st, err := stat(unix.AT_FDCWD, lower+"/"+path)
			assert.NoError(t, err)
			assert.Equal(t, st, old)
			return slices.Contains(paths, path)
		}
	}
	skip := func(paths ...string) func(string, bool) bool {
		return func(path string, isDir bool) bool {
			assert.Equal(t, !strings.HasSuffix(path, "f") && !strings.HasSuffix(path, "g") && !strings.HasSuffix(path, "/b"), isDir, path)
			return slices.Contains(paths, path)
		}
	}
	all := lines{"D gone", "D gone/a", "D gone/a/f", "D gone/b", "M mode 755>700", "M mode/f content", "A new", "A new/e", "A new/e/f", "A new/g",
		"D opaque/e/f", "D opaque/g", "T t", "A t/f"}
	without := func(gone ...string) lines {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(gone, strings.Fields(s)[1]) })
	}
	for _, row := range []struct {
		name string
		o    Options
		want lines
	}{
		{"none", Options{}, all},
		{"root", Options{Paths: lines{".", "gone/a"}}, all},
		{"a file", Options{Paths: lines{"mode/f"}}, lines{"M mode/f content"}},
		{"a directory", Options{Paths: lines{"new/e"}}, lines{"A new/e", "A new/e/f"}},
		{"several, one in another", Options{Paths: lines{"t", "gone/a/f", "gone/a", "new/e/f", "new/e/f"}}, lines{"D gone/a", "D gone/a/f", "A new/e/f", "T t", "A t/f"}},
		{"in an opaque directory", Options{Paths: lines{"opaque/e/f"}}, lines{"D opaque/e/f"}},
		{"parents", Options{Paths: lines{"new/e/f", "gone/b", "mode/f", "t/f", "opaque/g"}, Parents: true},
			lines{"D gone", "D gone/b", "M mode 755>700", "M mode/f content", "A new", "A new/e", "A new/e/f", "D opaque/g", "T t", "A t/f"}},
		{"no changes there", Options{Paths: lines{"nonesuch", "mode/nonesuch", "mode/f/below", "t/nonesuch/below"}}, lines{}},
		{"keep", Options{Keep: keep("gone", "gone/a", "opaque/e/f", "new", "opaque/e")}, without("gone/a", "gone/a/f", "opaque/e/f")},
		{"skip", Options{Skip: skip("gone/a", "new", "mode/f", "opaque/e", "t")}, without("gone/a", "gone/a/f", "new", "new/e", "new/e/f", "new/g", "mode/f", "opaque/e/f", "t", "t/f")},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, lines(list(t, upper, lower, row.o)))
		})
	}
	for _, path := range []string{"", "/a", "..", "../a", "a/", "a//b", "./a", "a/../b"} {
		_, err := collect(upper, lower, Options{Paths: lines{path}})
		assert.Error(t, err, "%q", path)
	}
	stop := errors.New("stop")
	up, err := os.Open(upper)
	require.NoError(t, err)
	defer up.Close()
	low, err := os.Open(lower)
	require.NoError(t, err)
	defer low.Close()
	n := 0
	assert.Equal(t, stop, Changes(int(up.Fd()), int(low.Fd()), Options{}, func(Change) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	}))
	assert.Equal(t, 3, n)
}

// An operand below a directory that cannot be read is not taken for unchanged.
func TestOperandBelowUnreadable(t *testing.T) {
	upper, lower := layers(t)
	grow(t, lower, "d/", "d/f: 1")
	grow(t, upper, "d/: 0", "e/: 0300")
	want := lines{"M d 755>0 unread", "A e unread"}
	if os.Geteuid() == 0 {
		want = lines{}
	}
	assert.Equal(t, want, lines(list(t, upper, lower, Options{Paths: lines{"d/f", "e/f"}})))
}

func TestFiles(t *testing.T) {
	upper, lower := layers(t)
	grow(t, lower, "f: 1", "gone: 1")
	grow(t, upper, "f: 22 0600", "gone: whiteout", "new: 333")
	changes, err := collect(upper, lower, Options{})
	require.NoError(t, err)
	require.Len(t, changes, 3)
	same := func(path string, f File) {
		t.Helper()
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(path, &st))
		assert.Equal(t, File{st.Mode, st.Size, st.Blocks * 512, st.Dev, st.Ino, f.Ctime, f.Btime, st.Rdev}, f)
		assert.Equal(t, unix.TimespecToNsec(st.Ctim), f.Ctime.UnixNano())
		if !f.Btime.IsZero() {
			assert.LessOrEqual(t, f.Btime, f.Ctime)
		}
	}
	same(lower+"/f", changes[0].Old)
	same(upper+"/f", changes[0].New)
	same(lower+"/gone", changes[1].Old)
	assert.Zero(t, changes[1].New)
	assert.Zero(t, changes[2].Old)
	same(upper+"/new", changes[2].New)
}

// chain makes directories in each other and calls in for the last one.
func chain(t testing.TB, root, name string, levels int, in func(fd int)) {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	for range levels {
		if err := unix.Mkdirat(fd, name, 0o755); err != unix.EEXIST {
			require.NoError(t, err)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	in(fd)
	unix.Close(fd)
}

func write(t testing.TB, dir int, name, text string) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	require.NoError(t, err)
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	require.NoError(t, err)
}

func TestDeep(t *testing.T) {
	const levels = 300 // of 15 bytes: longer than PATH_MAX, and more than there are descriptors
	a, d, m := strings.Repeat("a", 14), strings.Repeat("d", 14), strings.Repeat("m", 14)
	upper, lower := layers(t)
	for root, text := range map[string]string{upper: "1", lower: "2"} {
		chain(t, root, m, levels, func(fd int) { write(t, fd, "f", text) })
		write(t, unix.AT_FDCWD, root+"/"+m+"/z", text)
		write(t, unix.AT_FDCWD, root+strings.Repeat("/"+m, 200)+"/z", text)
	}
	chain(t, upper, a, levels, func(fd int) { write(t, fd, "f", "") })
	chain(t, lower, d, levels, func(fd int) { write(t, fd, "f", "") })
	grow(t, upper, d+": whiteout")
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 2*maxHeld + 40, Max: old.Max}))
	changes, err := collect(upper, lower, Options{})
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, err)
	want := lines{}
	below := func(op, name string) {
		for n := range levels {
			want = append(want, op+" "+strings.Repeat(name+"/", n)+name)
		}
		want = append(want, op+" "+strings.Repeat(name+"/", levels)+"f")
	}
	below("A", a)
	below("D", d)
	want = append(want, "M "+strings.Repeat(m+"/", levels)+"f content", "M "+strings.Repeat(m+"/", 200)+"z content", "M "+m+"/z content")
	got := lines{}
	for _, c := range changes {
		got = append(got, line(c))
	}
	assert.True(t, slices.Equal(want, got), "%d, not %d lines", len(got), len(want))
}

func TestTooDeep(t *testing.T) {
	upper, lower := layers(t)
	name := strings.Repeat("n", 250)
	chain(t, upper, name, 80, func(fd int) { write(t, fd, "f", "") })
	changes, err := collect(upper, lower, Options{})
	require.NoError(t, err)
	require.Len(t, changes, maxPath/251+1)
	last := len(changes) - 1
	for i, c := range changes {
		assert.Equal(t, Added, c.Op)
		assert.Equal(t, strings.Repeat("/"+name, i+1)[1:], c.Path)
		if i < last {
			assert.NoError(t, c.Err)
		}
	}
	assert.ErrorIs(t, changes[last].Err, ErrTooDeep)
}

// A directory that a command moves while the walk is below it may have had
// entries that are not seen any more.
func TestMovedMeanwhile(t *testing.T) {
	const levels, moved = 100, 80
	upper, lower := layers(t)
	chain(t, upper, "d", levels, func(fd int) { write(t, fd, "f", "") })
	at := func(n int) string { return strings.Repeat("d/", n-1) + "d" }
	for _, n := range []int{10, moved - 1, moved, levels} {
		grow(t, upper, at(n)+"/z: 1")
	}
	dir, err := os.Open(upper)
	require.NoError(t, err)
	defer dir.Close()
	low, err := os.Open(lower)
	require.NoError(t, err)
	defer low.Close()
	var got lines
	require.NoError(t, Changes(int(dir.Fd()), int(low.Fd()), Options{}, func(c Change) error {
		if c.Path == at(levels)+"/f" {
			require.NoError(t, os.Rename(upper+"/"+at(moved), upper+"/elsewhere"))
		}
		if strings.HasSuffix(c.Path, "z") || c.Err != nil {
			got = append(got, fmt.Sprint(c.Op, " ", strings.Count(c.Path, "d"), " ", c.Path[len(c.Path)-1:], " ", c.Err))
			assert.True(t, c.Err == nil || errors.Is(c.Err, ErrMoved))
		}
		return nil
	}))
	want := lines{fmt.Sprintf("A %d z <nil>", levels), fmt.Sprintf("A %d z <nil>", moved)}
	for n := moved - 1; n >= maxHeld; n-- {
		want = append(want, fmt.Sprintf("A %d d %v", n, ErrMoved))
	}
	assert.Equal(t, append(want, "A 10 z <nil>"), got)
}

// Neither a descriptor nor a change is left behind, however the walk ends.
func TestDescriptors(t *testing.T) {
	upper, lower := layers(t)
	grow(t, lower, "d/", "d/f: 1", "e/: 0", "g/", "g/h/", "g/f: 1", "x: 1")
	grow(t, upper, "d/: opaque", "d/f: 2", "e/: 0", "g/", "g/h: whiteout", "g/f: 0 1", "x: 1")
	count := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(open)
	}
	before := count()
	for _, o := range []Options{{}, {Paths: lines{"g/h"}}, {Paths: lines{""}}, {Skip: func(path string, _ bool) bool { return path == "g" }}} {
		_, _ = collect(upper, lower, o)
	}
	assert.Equal(t, before, count())
}

// compare orders paths as Changes visits them.
func compare(a, b string) int {
	if a == "." || b == "." { // the root is first
		return cmp.Compare(strings.TrimPrefix(a, "."), strings.TrimPrefix(b, "."))
	}
	return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

// A comparison reads no hole that both files have: it would not end.
func TestHoles(t *testing.T) {
	const size = 8 << 40
	upper, lower := layers(t)
	sparse := func(layer, name, text string, at int64) {
		f, err := os.Create(layer + "/" + name)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte(text), at)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(size))
		require.NoError(t, f.Close())
	}
	for _, row := range []struct {
		name, up, low string
		at            int64
	}{{"same", "1", "1", size / 2}, {"other", "1", "2", size / 2}, {"end", "1", "2", size - 1}, {"zero", "\x00", "2", 0}, {"none", "", "", 0}} {
		sparse(upper, row.name, row.up, row.at)
		sparse(lower, row.name, row.low, row.at)
	}
	changes, err := collect(upper, lower, Options{})
	require.NoError(t, err)
	var found []string
	for _, c := range changes {
		assert.NoError(t, c.Err)
		assert.Less(t, c.New.Used, int64(1<<20))
		found = append(found, c.Path)
	}
	assert.Equal(t, []string{"end", "other", "zero"}, found)
}
