package fsat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openers are the ways to open a path: each test of one runs on both.
var openers = map[string]Opener{"openat2": {Openat2: true}, "name by name": {}}

// A child of TestEraseWithFewDescriptors has this variable.
const limitVariable = "PK_TEST_DESCRIPTORS"

func TestMain(m *testing.M) {
	if n, err := strconv.ParseUint(os.Getenv(limitVariable), 10, 64); err == nil {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func open(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func grow(t *testing.T, base string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		name, target, isLink := strings.Cut(line, " => ")
		path := base + "/" + name
		require.NoError(t, os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755))
		switch {
		case isLink:
			require.NoError(t, os.Symlink(target, path))
		case strings.HasSuffix(name, "/"):
			require.NoError(t, os.MkdirAll(path, 0o755))
		default:
			require.NoError(t, os.WriteFile(path, []byte("text"), 0o644))
		}
	}
}

func TestOpen(t *testing.T) {
	base := t.TempDir()
	grow(t, base, "d/e/f", "link => d", "d/up => ..", "d/file => e/f", "loop => loop")
	for name, o := range openers {
		t.Run(name, func(t *testing.T) {
			dir := open(t, base)
			for _, row := range []struct {
				name, path string
				flags      int
				rules      Resolve
				want       []error // one of them; none: it opens
			}{
				{"file", "d/e/f", unix.O_RDONLY, Beneath, nil},
				{"directory itself", ".", unix.O_RDONLY, Beneath, nil},
				{"absolute", base + "/d/e/f", unix.O_PATH, NoLinks, nil},
				{"absolute, the root", "/", unix.O_PATH, NoLinks, nil},
				{"absolute, beneath", base + "/d", unix.O_PATH, Beneath, []error{unix.EXDEV}},
				{"parent", "..", unix.O_PATH, Beneath, []error{unix.EXDEV}},
				{"link on the way", "link/e", unix.O_PATH, Beneath, []error{unix.ELOOP, unix.ENOTDIR}},
				{"link at the end", "link", unix.O_RDONLY, Beneath, []error{unix.ELOOP}},
				{"link at the end, only its path", "link", unix.O_PATH, Beneath, []error{unix.ELOOP}},
				{"link at the end, O_NOFOLLOW", "link", unix.O_PATH | unix.O_NOFOLLOW, Beneath, []error{unix.ELOOP}},
				{"link at the end, for a directory", "link", unix.O_PATH | unix.O_DIRECTORY, Beneath, []error{unix.ELOOP, unix.ENOTDIR}},
				{"link in an absolute path", base + "/link", unix.O_PATH, NoLinks, []error{unix.ELOOP}},
				{"loop", "loop", unix.O_PATH, Beneath, []error{unix.ELOOP}},
				{"missing", "none", unix.O_PATH, Beneath, []error{unix.ENOENT}},
				{"below a file", "d/e/f/x", unix.O_PATH, Beneath, []error{unix.ENOTDIR}},
				{"same mount", "d/e/f", unix.O_RDONLY, SameMount, nil},
			} {
				fd, err := o.Open(dir, row.path, row.flags, 0, row.rules)
				if row.want == nil {
					assert.NoError(t, err, row.name)
					unix.Close(fd)
					continue
				}
				assert.Contains(t, row.want, err, row.name)
				assert.Equal(t, -1, fd, row.name)
			}
			fd, err := o.Open(dir, "d/"+name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600, Beneath)
			require.NoError(t, err)
			unix.Close(fd)
		})
	}
}

func TestList(t *testing.T) {
	base := t.TempDir()
	want := map[string]byte{"d": unix.DT_DIR, "l": unix.DT_LNK}
	grow(t, base, "d/x", "l => d")
	for i := range 3000 {
		name := fmt.Sprintf("%d-%s", i, strings.Repeat("x", i%200))
		grow(t, base, name)
		want[name] = unix.DT_REG
	}
	got := map[string]byte{}
	require.NoError(t, Each(open(t, base), func(e Entry) error {
		got[e.Name] = e.Type
		return nil
	}))
	assert.Equal(t, want, got)
	assert.ErrorIs(t, Each(open(t, base), func(Entry) error { return unix.EIO }), unix.EIO)
}

func TestRenames(t *testing.T) {
	base := t.TempDir()
	grow(t, base, "a/x", "b/y")
	dir := open(t, base)
	assert.Equal(t, unix.EEXIST, RenameNoReplace(dir, "a", dir, "b"))
	assert.Equal(t, unix.EEXIST, RenameFresh(dir, "a", dir, "b"))
	require.NoError(t, Exchange(dir, "a", dir, "b"))
	assert.FileExists(t, base+"/a/y")
	require.NoError(t, RenameFresh(dir, "a", dir, "c"))
	assert.FileExists(t, base+"/c/y")
}

func TestChmodOfPathDescriptor(t *testing.T) {
	base := t.TempDir()
	grow(t, base, "f")
	fd, err := unix.Open(base+"/f", unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, Chmod(fd, 0o640))
	_, err = Lstat(fd, "../f")
	assert.Equal(t, unix.ENOTDIR, err)
	st, err := Lstat(unix.AT_FDCWD, base+"/f")
	require.NoError(t, err)
	assert.EqualValues(t, 0o640, st.Mode&0o777)
}

func TestMemfd(t *testing.T) {
	fd, err := Memfd("pk-test", []byte("content"))
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "memfd")
	defer file.Close()
	text, err := os.ReadFile(Path(fd))
	require.NoError(t, err)
	assert.Equal(t, "content", string(text))
}

func TestWithin(t *testing.T) {
	for _, row := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a", "/", true}, {"/", "/", true},
		{"a/b", "a", true}, {"a", "a/b", false}, {"ab", "a", false}, {"a", ".", true}, {".", ".", true}, {".", "a", false},
	} {
		assert.Equal(t, row.want, Within(row.path, row.dir), "%q in %q", row.path, row.dir)
	}
}

func TestErase(t *testing.T) {
	for name, o := range openers {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			grow(t, base, "out/f", "top/f", "top/d/e/f", "top/out => ../out", "top/d/none => nowhere", "top/closed/d/f", "top/readable/f")
			require.NoError(t, unix.Mkfifo(base+"/top/fifo", 0o600))
			require.NoError(t, os.Link(base+"/out/f", base+"/top/hard"))
			require.NoError(t, os.Chmod(base+"/top/closed/d", 0))
			require.NoError(t, os.Chmod(base+"/top/closed", 0))
			require.NoError(t, os.Chmod(base+"/top/readable", 0o555))
			require.NoError(t, os.Chmod(base+"/top", 0))
			e := Eraser{Opener: o, Measure: true}
			require.NoError(t, e.Remove(open(t, base), "top"))
			assert.NoDirExists(t, base+"/top")
			assert.FileExists(t, base+"/out/f")
			assert.EqualValues(t, 13, e.Entries)
			assert.Positive(t, e.Bytes)
			assert.Equal(t, unix.ENOENT, e.Remove(open(t, base), "top"))
		})
	}
}

func TestEraseAsks(t *testing.T) {
	base := t.TempDir()
	grow(t, base, "top/d/no", "top/d/yes", "top/deep/"+strings.Repeat("d/", 3*maxDepth)+"f")
	var asked []string
	e := Eraser{Opener: Kernel(), Ask: func(path string) error {
		asked = append(asked, path)
		if path == "d/no" {
			return unix.EPERM
		}
		return nil
	}}
	err := e.Remove(open(t, base), "top")
	assert.Equal(t, unix.EPERM, err, "as it is")
	assert.FileExists(t, base+"/top/d/no")
	require.NoError(t, os.Remove(base+"/top/d/no"))
	require.NoError(t, e.Remove(open(t, base), "top"))
	assert.Contains(t, asked, "deep/"+strings.Repeat("d/", 3*maxDepth)+"f", "by the name that it had")
	for _, path := range asked {
		assert.NotContains(t, path, "pk-deep")
	}
}

// A directory that is moved to the top has to be writable, and so its owner makes it so.
func TestEraseDeepAndReadOnly(t *testing.T) {
	base := t.TempDir()
	grow(t, base, "top/"+strings.Repeat("d/", 3*maxDepth)+"f")
	for at := base + "/top" + strings.Repeat("/d", 3*maxDepth); at != base; at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o555))
	}
	require.NoError(t, (&Eraser{Opener: Kernel()}).Remove(open(t, base), "top"))
	assert.NoDirExists(t, base+"/top")
}

func TestEraseErrorIsBounded(t *testing.T) {
	err := &EraseError{strings.Repeat("d/", 3000), unix.EPERM}
	assert.Equal(t, `"`+strings.Repeat("d/", maxNamed/2)+`"... (6000 bytes) in it: operation not permitted`, err.Error())
}

func TestEraseStopsAtMounts(t *testing.T) {
	const variable = "PK_TEST_MOUNT"
	if base := os.Getenv(variable); base != "" {
		require.NoError(t, unix.Mount(base+"/out", base+"/top/d/mnt", "", unix.MS_BIND, ""))
		for name, o := range openers {
			e := Eraser{Opener: o}
			err := e.Remove(open(t, base), "top")
			assert.ErrorIs(t, err, ErrMounted, name)
			assert.EqualError(t, err, `"d/mnt" in it: something is mounted there`)
		}
		assert.FileExists(t, base+"/out/f")
		assert.NoFileExists(t, base+"/top/d/f")
		return
	}
	base := t.TempDir()
	grow(t, base, "out/f", "top/d/mnt/", "top/d/f")
	child := exec.Command(os.Args[0], "-test.run=^TestEraseStopsAtMounts$", "-test.v")
	child.Env = append(os.Environ(), variable+"="+base)
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS")
}

func TestEraseWithFewDescriptors(t *testing.T) {
	const levels = 2000
	if os.Getenv(limitVariable) == "" {
		for _, limit := range []string{"40", "16"} {
			child := exec.Command(os.Args[0], "-test.run=^TestEraseWithFewDescriptors$", "-test.v")
			child.Env = append(os.Environ(), limitVariable+"="+limit)
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "--- PASS")
		}
		return
	}
	timer := time.NewTimer(time.Hour) // the runtime opens its descriptors for timers
	defer timer.Stop()
	for name, o := range openers {
		for _, left := range map[string][]int{"40": {0, 5}, "16": {0}}[os.Getenv(limitVariable)] {
			base := t.TempDir()
			dir, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			for range levels {
				require.NoError(t, unix.Mkdirat(dir, "d", 0o700))
				next, err := unix.Openat(dir, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				require.NoError(t, err)
				unix.Close(dir)
				dir = next
			}
			unix.Close(dir)
			top := open(t, base)
			release := hoard(left)
			e := Eraser{Opener: o}
			err = e.Remove(top, "d")
			release()
			require.NoError(t, err, "%s, %d left", name, left)
			assert.EqualValues(t, levels, e.Entries+1)
			entries, err := os.ReadDir(base)
			require.NoError(t, err)
			assert.Empty(t, entries)
		}
	}
}

// hoard takes all descriptors but some, unless that is 0.
func hoard(left int) (release func()) {
	var taken []int
	for left > 0 {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			for range left {
				unix.Close(taken[len(taken)-1])
				taken = taken[:len(taken)-1]
			}
			break
		}
		taken = append(taken, fd)
	}
	return func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
	}
}
