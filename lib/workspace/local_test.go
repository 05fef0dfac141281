package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/workspace"
)

func matches(err, want error) bool { return errors.Is(err, want) }

// ownMounts gives a child namespaces in which it may mount.
func ownMounts() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

func TestRoots(t *testing.T) {
	base := confinetest.Tree(t, "d/", "f", "link => d", "dangling => nowhere")
	w, err := workspace.NewLocalWorkspace(base + "/link")
	require.NoError(t, err)
	assert.Equal(t, base+"/d", w.Root())
	require.NoError(t, w.Close())
	w, err = workspace.NewLocalWorkspace(base + "/new/deep")
	require.NoError(t, err, "it is made")
	require.NoError(t, w.Close())
	for _, root := range []string{"", base + "/f", base + "/f/x", base + "/dangling", base + "/a\x00b"} {
		_, err := workspace.NewLocalWorkspace(root)
		assert.Error(t, err, "%q", root)
		_, ok := errors.AsType[*workspace.Error](err)
		assert.True(t, ok, "%q", root)
	}
	t.Chdir(base)
	w, err = workspace.NewLocalWorkspace("d")
	require.NoError(t, err)
	assert.Equal(t, base+"/d", w.Root())
	require.NoError(t, w.Close())
}

// The whole file system is a workspace like any other.
func TestRootOfAll(t *testing.T) {
	base := confinetest.Tree(t, "d/f", "link => d", "abs => {base}/d/f")
	w, err := workspace.NewLocalWorkspace("/")
	require.NoError(t, err)
	defer w.Close()
	for _, openat2 := range []bool{true, false} {
		if !openat2 {
			workspace.WithoutOpenat2(w)
		}
		for _, path := range []string{"d/f", "link/f", "abs"} {
			data, err := w.Read(ctx, base[1:]+"/"+path)
			require.NoError(t, err, path)
			assert.Equal(t, "text\n", string(data))
		}
		_, err = w.Read(ctx, "proc/self/fd/0/x")
		assert.Error(t, err)
	}
}

// A directory that takes the place of the root does not belong to the workspace.
func TestMovedRootIsFollowed(t *testing.T) {
	w, root := local(t)
	require.NoError(t, w.Write(ctx, "f", []byte("mine")))
	require.NoError(t, os.Rename(root, root+"-moved"))
	require.NoError(t, os.Mkdir(root, 0o755))
	require.NoError(t, os.WriteFile(root+"/f", []byte("other"), 0o644))
	data, err := w.Read(ctx, "f")
	require.NoError(t, err)
	assert.Equal(t, "mine", string(data))
	require.NoError(t, w.Write(ctx, "g", nil))
	assert.FileExists(t, root+"-moved/g")
	require.NoError(t, os.RemoveAll(root+"-moved"))
	assert.ErrorIs(t, w.Write(ctx, "g", nil), workspace.ErrNotFound)
}

func TestClose(t *testing.T) {
	w, root := local(t)
	require.NoError(t, w.Write(ctx, "f", []byte("text")))
	f, err := w.Open(ctx, "f")
	require.NoError(t, err)
	out, err := w.Create(ctx, "g", workspace.WriteOptions{Atomic: true})
	require.NoError(t, err)
	entries, err := w.List(ctx, ".")
	require.NoError(t, err)
	view := w.Guarded(func(workspace.Access) error { return nil })
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	_, err = w.Read(ctx, "f")
	assert.ErrorIs(t, err, workspace.ErrClosed)
	assert.ErrorIs(t, view.Write(ctx, "f", nil), workspace.ErrClosed)
	_, err = entries[0].Info()
	assert.ErrorIs(t, err, workspace.ErrClosed)
	buf := make([]byte, 4)
	_, err = f.Read(buf)
	assert.NoError(t, err, "what is open stays open")
	fmt.Fprint(out, "late")
	assert.NoError(t, out.Close())
	assert.FileExists(t, root+"/g")
	require.NoError(t, f.Close())
}

// An operation leaves no descriptor open, whether it succeeds or fails.
func TestNoDescriptorIsLost(t *testing.T) {
	w, root := local(t)
	confinetest.Grow(t, root, "d/e/f", "ld => d/e", "labs => {base}/d", "out => {base}-outside", "loop => loop", "up => d/../d/e/../../d")
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o644))
	s := scope(t, w, workspace.WithAllowWrite("d/**", "new/**"), workspace.WithMandatoryDeny("d/e/no"))
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	everything := func() {
		for _, view := range []workspace.Workspace{w, s} {
			for _, path := range []string{"d/e/f", "ld/f", "labs/e/f", "out/passwd", "loop", "up/e/f", "fifo", "missing", "d/e/f/x", "new/deep/f", "d", "", "d/e/no/x"} {
				for _, do := range attacked {
					_ = do(ctx, prefixed{view, path})
				}
				_ = reads(view, path)
				_ = writes(view, path)
				require.NoError(t, os.RemoveAll(root+"/d"))
				require.NoError(t, os.RemoveAll(root+"/new"))
				confinetest.Grow(t, root, "d/e/f")
			}
		}
	}
	everything()
	runtime.GC()
	before := count()
	everything()
	runtime.GC()
	assert.Equal(t, before, count())
	workspace.WithoutOpenat2(w)
	everything()
	assert.Equal(t, before, count())
}

// prefixed runs all operations on one path.
type prefixed struct {
	workspace.Workspace
	path string
}

func (p prefixed) Read(ctx context.Context, _ string) ([]byte, error) {
	return p.Workspace.Read(ctx, p.path)
}
func (p prefixed) Open(ctx context.Context, _ string) (workspace.File, error) {
	return workspace.Open(ctx, p.Workspace, p.path)
}
func (p prefixed) Create(ctx context.Context, _ string, opts workspace.WriteOptions) (workspace.Writer, error) {
	return workspace.Create(ctx, p.Workspace, p.path, opts)
}

func TestLimits(t *testing.T) {
	for name, w := range map[string]workspace.Workspace{
		"local": must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(t.TempDir(), workspace.WithMaxFileSize(10), workspace.WithMaxEntries(3), workspace.WithMaxDepth(2))),
		"mem":   workspace.NewMemWorkspace(workspace.WithMaxFileSize(10), workspace.WithMaxEntries(3), workspace.WithMaxDepth(2)),
	} {
		require.NoError(t, w.Write(ctx, "f", make([]byte, 10)), name)
		assert.ErrorIs(t, w.Write(ctx, "f", make([]byte, 11)), workspace.ErrTooLarge, name)
		assert.ErrorIs(t, w.Append(ctx, "f", make([]byte, 1)), workspace.ErrTooLarge, name)
		data, err := w.Read(ctx, "f")
		assert.NoError(t, err)
		assert.Len(t, data, 10, "%s: the old content is still there", name)
		for _, opts := range []workspace.WriteOptions{{}, {Atomic: true}, {Append: true}} {
			out, err := workspace.Create(ctx, w, "g", opts)
			require.NoError(t, err)
			_, err = out.Write(make([]byte, 8))
			assert.NoError(t, err)
			_, err = out.Write(make([]byte, 8))
			assert.ErrorIs(t, err, workspace.ErrTooLarge, "%s: %v", name, opts)
			require.NoError(t, out.Abort())
			require.NoError(t, w.Delete(ctx, "g"))
		}
		assert.ErrorIs(t, w.Write(ctx, "a/b/c", nil), workspace.ErrTooMany, name)
		assert.ErrorIs(t, w.Rename(ctx, "f", "a/b/c"), workspace.ErrTooMany, name)
		for i := range 3 {
			require.NoError(t, w.Write(ctx, fmt.Sprint("d/", i), nil))
		}
		_, err = w.List(ctx, "d")
		assert.NoError(t, err)
		require.NoError(t, w.Write(ctx, "d/4", nil))
		_, err = w.List(ctx, "d")
		assert.ErrorIs(t, err, workspace.ErrTooMany, name)
		count := 0
		for _, err := range workspace.Entries(ctx, w, "d") {
			if err == nil {
				count++
			}
		}
		if name == "local" {
			assert.Equal(t, 4, count, "Entries has no limit")
		}
	}
}

// A large file is not read by accident; a sparse one costs an agent nothing.
func TestReadHasLimitByDefault(t *testing.T) {
	w, root := local(t)
	require.NoError(t, os.WriteFile(root+"/f", nil, 0o644))
	require.NoError(t, os.Truncate(root+"/f", 1<<40))
	_, err := w.Read(ctx, "f")
	assert.ErrorIs(t, err, workspace.ErrTooLarge)
	f, err := w.Open(ctx, "f")
	require.NoError(t, err)
	assert.NoError(t, f.Close())
}

func TestCapabilitiesAreWhatOptionsSay(t *testing.T) {
	base := workspace.Capabilities{AtomicRename: true, ReadAfterWrite: true, RenameDir: true}
	w, _ := local(t)
	assert.Equal(t, base, w.Capabilities())
	w, _ = local(t, workspace.WithSync())
	durable := base
	durable.DurableOnWrite = true
	assert.Equal(t, durable, w.Capabilities())
	w, _ = local(t, workspace.WithAtomicWrites())
	whole := base
	whole.AtomicWrite = true
	assert.Equal(t, whole, w.Capabilities())
	s := scope(t, w)
	assert.Equal(t, whole, s.Capabilities())
	assert.Equal(t, whole, workspace.CapabilitiesOf(workspace.ReadOnly(s)))
	assert.Equal(t, workspace.Capabilities{AtomicRename: true, ReadAfterWrite: true, AtomicWrite: true}, workspace.NewMemWorkspace().Capabilities())
	assert.Equal(t, workspace.Capabilities{}, workspace.CapabilitiesOf(nil))
	assert.Equal(t, workspace.Capabilities{}, workspace.CapabilitiesOf((*workspace.LocalWorkspace)(nil)))
	assert.Equal(t, workspace.Capabilities{}, workspace.CapabilitiesOf(naive{}))
	assert.Equal(t, workspace.Capabilities{}, scope(t, naive{}).Capabilities())
}

// With WithAtomicWrites, Write replaces; without, it writes in place.
func TestAtomicWritesOption(t *testing.T) {
	for _, whole := range []bool{false, true} {
		var opts []workspace.Option
		if whole {
			opts = append(opts, workspace.WithAtomicWrites())
		}
		w, root := local(t, opts...)
		require.NoError(t, w.Write(ctx, "f", []byte("old")))
		before, err := os.Stat(root + "/f")
		require.NoError(t, err)
		require.NoError(t, w.Write(ctx, "f", []byte("new")))
		after, err := os.Stat(root + "/f")
		require.NoError(t, err)
		assert.Equal(t, whole, !os.SameFile(before, after))
	}
}

func TestPermissions(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	w, root := local(t, workspace.WithPerm(0o666, 0o777))
	require.NoError(t, w.Write(ctx, "d/f", nil))
	require.NoError(t, workspace.AtomicWrite(ctx, w, "d/g", nil))
	out, err := w.Create(ctx, "d/h", workspace.WriteOptions{Perm: 0o4755})
	require.NoError(t, err)
	require.NoError(t, out.Close())
	for name, want := range map[string]os.FileMode{"d": 0o750 | os.ModeDir, "d/f": 0o640, "d/g": 0o640, "d/h": 0o750} {
		info, err := os.Lstat(filepath.Join(root, name))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode(), name)
	}
}

// No other user can read an unfinished file until it has its mode.
func TestUnfinishedFileIsPrivate(t *testing.T) {
	w, root := local(t)
	workspace.WithoutUnnamed(w)
	require.NoError(t, os.WriteFile(root+"/f", nil, 0o600))
	out, err := w.Create(ctx, "f", workspace.WriteOptions{Atomic: true})
	require.NoError(t, err)
	defer out.Abort()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	info, err := entries[0].Info()
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestHardLinksOption(t *testing.T) {
	w, root := local(t, workspace.WithHardLinks())
	require.NoError(t, os.WriteFile(root+"/f", []byte("old"), 0o644))
	require.NoError(t, os.Link(root+"/f", root+"/g"))
	require.NoError(t, w.Write(ctx, "f", []byte("new")))
	data, err := w.Read(ctx, "g")
	require.NoError(t, err)
	assert.Equal(t, "new", string(data))
}

func TestWithoutSymlinks(t *testing.T) {
	w, root := local(t, workspace.WithoutSymlinks())
	confinetest.Grow(t, root, "d/f", "ld => d", "lf => d/f")
	for _, openat2 := range []bool{true, false} {
		if !openat2 {
			workspace.WithoutOpenat2(w)
		}
		for _, path := range []string{"ld/f", "lf"} {
			_, err := w.Read(ctx, path)
			assert.ErrorIs(t, err, workspace.ErrPathTraversal, path)
			assert.ErrorIs(t, w.Write(ctx, path, nil), workspace.ErrPathTraversal, path)
		}
		_, err := w.Read(ctx, "d/f")
		assert.NoError(t, err)
	}
	assert.NoError(t, w.Delete(ctx, "ld"))
}

// A device cannot be read.
func TestDevices(t *testing.T) {
	w, err := workspace.NewLocalWorkspace("/dev")
	require.NoError(t, err)
	defer w.Close()
	_, err = w.Read(ctx, "zero")
	assert.ErrorIs(t, err, workspace.ErrNotRegular)
}

// open(2) breaks a lease, which takes as long as the holder of the lease likes.
func TestLeasesDoNotBlock(t *testing.T) {
	w, root := onDisk(t)
	f, err := os.Create(root + "/f")
	require.NoError(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.Read(ctx, "f")
		done <- err
	}()
	select {
	case err := <-done:
		assert.ErrorIs(t, err, workspace.ErrRaced)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the holder of the lease")
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	require.NoError(t, err)
}

// A process that keeps a directory locked makes a conditional write fail in time, and
// affects no other write.
func TestLockedDirectory(t *testing.T) {
	w, root := local(t)
	require.NoError(t, w.Write(ctx, "f", []byte("old")))
	dir, err := os.Open(root)
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX))
	require.NoError(t, workspace.AtomicWrite(ctx, w, "f", []byte("new")))
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err = workspace.WriteIfUnchanged(soon, w, "f", nil, workspace.HashOf([]byte("new")))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// No error contains the path of the workspace.
func TestErrorsKeepTheRootToThemselves(t *testing.T) {
	w, root := local(t)
	confinetest.Grow(t, root, "d/f", "out => {base}-outside/hostname", "loop => loop")
	require.NoError(t, os.Chmod(root+"/d", 0o755))
	views := map[string]workspace.Workspace{"local": w, "scoped": scope(t, w, all), "read-only": workspace.ReadOnly(w)}
	for name, view := range views {
		for _, path := range []string{"d", "missing", "d/f/x", "out", "loop", "../x", filepath.Dir(root) + "/no/passwd", strings.Repeat("n", 300), "a\x00"} {
			for what, errs := range map[string]map[string]error{"reads": reads(view, path), "writes": writes(view, path)} {
				for op, err := range errs {
					if err != nil {
						assert.NotContains(t, err.Error(), root, "%s %s %s", name, what, op)
						assert.NotContains(t, err.Error(), "hostname")
					}
				}
			}
			require.NoError(t, os.RemoveAll(root+"/d"))
			confinetest.Grow(t, root, "d/f")
		}
	}
}

func TestErrorText(t *testing.T) {
	w, _ := local(t)
	_, err := w.Read(ctx, "a\nb")
	assert.EqualError(t, err, `cannot read "a\nb": not found`)
	assert.EqualError(t, w.Rename(ctx, "x", "y"), `cannot rename "x" to "y": not found`)
	_, err = w.Read(ctx, "../x")
	assert.EqualError(t, err, `cannot read "../x": path traversal denied: it leaves the root through ".."`)
	assert.EqualError(t, workspace.Mkdir(ctx, w, "/x"), `cannot make directory "/x": path traversal denied: it is absolute`)
	assert.EqualError(t, workspace.ErrNotFound, "workspace: not found")
	assert.EqualError(t, workspace.ErrPathTraversal, "workspace: path traversal denied")
	assert.EqualError(t, workspace.ErrAccessDenied, "workspace: access denied")
	_, err = workspace.Glob(ctx, w, "a[")
	assert.EqualError(t, err, `cannot look for files that match "a[": invalid argument: cannot understand pattern "a[": a "[" is not closed before the next slash; \[ is a bracket`)
}

// The owner of a tree can remove directories that the owner may not enter.
func TestRemoveAllOfUnreadableDirectories(t *testing.T) {
	w, root := local(t)
	confinetest.Grow(t, root, "d/ro/f", "d/none/f", "d/file")
	require.NoError(t, os.Chmod(root+"/d/ro", 0o555))
	require.NoError(t, os.Chmod(root+"/d/none", 0))
	require.NoError(t, w.RemoveAll(ctx, "d"))
	assert.NoDirExists(t, root+"/d")
}

// A tree that was made directory by directory can be deeper than any path, and than the
// limit of descriptors.
func TestRemoveAllOfDeepTree(t *testing.T) {
	w, root := local(t)
	deep := func() {
		at, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		for range 5000 {
			require.NoError(t, unix.Mkdirat(at, "d", 0o755))
			next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			unix.Close(at)
			at = next
		}
		unix.Close(at)
	}
	deep()
	s := scope(t, w, all)
	assert.ErrorIs(t, s.RemoveAll(ctx, "d"), workspace.ErrTooMany, "what cannot be looked through is not removed under rules")
	err := workspace.Walk(ctx, w, ".", nothing)
	assert.Error(t, err, "a walk ends where paths do")
	require.NoError(t, w.RemoveAll(ctx, "d"))
	assert.NoDirExists(t, root+"/d")
}

func TestContext(t *testing.T) {
	w, _ := local(t)
	_, ok := workspace.WorkspaceFrom(ctx)
	assert.False(t, ok)
	assert.PanicsWithValue(t, "workspace: not found in context", func() { workspace.MustWorkspaceFrom(ctx) })
	with := workspace.WithWorkspace(ctx, w)
	got, ok := workspace.WorkspaceFrom(with)
	assert.True(t, ok)
	assert.Same(t, w, got)
	assert.Same(t, w, workspace.MustWorkspaceFrom(with))
	for _, none := range []workspace.Workspace{nil, (*workspace.MemWorkspace)(nil)} {
		_, ok = workspace.WorkspaceFrom(workspace.WithWorkspace(ctx, none))
		assert.False(t, ok, "W26")
	}
}

func TestMemForTests(t *testing.T) {
	m := workspace.NewMemWorkspace()
	m.MustWrite("d/f", []byte("some text"))
	assert.True(t, m.Contains("d/f", "text"))
	assert.False(t, m.Contains("d/f", "test"))
	assert.False(t, m.Contains("d", ""))
	assert.False(t, m.Contains("missing", ""))
	assert.Panics(t, func() { m.MustWrite("../x", nil) })
}

// Nine methods are enough for the functions of this package.
func TestForeignWorkspaces(t *testing.T) {
	w := naive{t.TempDir()}
	require.NoError(t, workspace.AtomicWrite(ctx, w, "f", []byte("text")))
	require.NoError(t, workspace.Copy(ctx, w, "f", "g"))
	entries, err := w.List(ctx, ".")
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	assert.ErrorIs(t, workspace.WriteExclusive(ctx, w, "h", nil), workspace.ErrUnsupported)
	assert.ErrorIs(t, workspace.Mkdir(ctx, w, "d"), errors.ErrUnsupported)
	assert.Error(t, workspace.AtomicWrite(ctx, w, "../x", nil))
	require.NoError(t, os.Mkdir(w.root+"/d", 0o755))
	assert.Error(t, workspace.AtomicWrite(ctx, w, "d", nil))
	entries, err = w.List(ctx, ".")
	require.NoError(t, err)
	assert.Len(t, entries, 3, "nothing is left of a failure")
}

// The holes of a terabyte are not read: reading them would take many minutes.
func TestCopyPassesOverHoles(t *testing.T) {
	const size = 1 << 40
	w, root := local(t)
	f, err := os.Create(root + "/f")
	require.NoError(t, err)
	defer f.Close()
	places := []int64{5, 1 << 20, size/2 + 3, size - 9000}
	for _, at := range places {
		_, err = f.WriteAt([]byte("data"), at)
		require.NoError(t, err)
	}
	for _, end := range []int64{size - 9000 + 4, size} { // with and without a hole at the end
		require.NoError(t, f.Truncate(end))
		require.NoError(t, workspace.Copy(ctx, w, "f", "g"))
		g, err := os.Open(root + "/g")
		require.NoError(t, err)
		info, err := g.Stat()
		require.NoError(t, err)
		assert.Equal(t, end, info.Size())
		assert.Less(t, info.Sys().(*syscall.Stat_t).Blocks*512, int64(1<<20))
		for _, at := range places {
			got := make([]byte, 6)
			n, _ := g.ReadAt(got, at-1)
			assert.Equal(t, "\x00data\x00"[:n], string(got[:n]), at)
		}
		require.NoError(t, g.Close())
	}
}
