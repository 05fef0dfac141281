package workspace_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

// While an attacker exchanges a file with another entry, and back, each operation meets
// one of the two, does not block, and reaches nothing else.
func TestSwappedFiles(t *testing.T) {
	for name, plant := range map[string]func(place, outside string) error{
		"link out":      func(place, outside string) error { return os.Symlink(outside+"/f", place) },
		"dangling link": func(place, outside string) error { return os.Symlink(outside+"/new", place) },
		"hard link":     func(place, outside string) error { return os.Link(outside+"/f", place) },
		"fifo":          func(place, _ string) error { return unix.Mkfifo(place, 0o666) },
		"directory":     func(place, _ string) error { return os.Mkdir(place, 0o755) },
		"denied":        func(place, _ string) error { return os.Symlink("denied/f", place) },
	} {
		t.Run(name, func(t *testing.T) {
			w, root := local(t)
			outside := filepath.Dir(root) + "/out"
			before := forbidden(t, outside)
			inside := forbidden(t, root+"/denied")
			var view workspace.Workspace = scope(t, w, all, workspace.WithMandatoryDeny("denied"), workspace.WithoutHardLinks())
			stop, swaps := exchange(t, root, func() {
				_ = plant(root+"/evil", outside)
				if fd, err := unix.Open(root+"/leaf", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644); err == nil {
					unix.Close(fd)
				}
			})
			for end := time.Now().Add(4 * attackTime(t)); time.Now().Before(end) || swaps.Load() < enoughSwaps; {
				data, err := view.Read(ctx, "leaf")
				require.NoError(t, leaks(string(data), nil), "%v", err)
				_ = view.Write(ctx, "leaf", []byte("x"))
				_ = view.Append(ctx, "leaf", []byte("x"))
				_ = workspace.AtomicWrite(ctx, view, "leaf", []byte("x"))
				_ = workspace.Copy(ctx, view, "leaf", "copied")
				data, _ = w.Read(ctx, "copied")
				require.NoError(t, leaks(string(data), nil))
				_ = workspace.WriteIfUnchanged(ctx, view, "leaf", []byte("x"), workspace.HashOf([]byte("x")))
				_ = workspace.WriteExclusive(ctx, view, "leaf", []byte("x"))
				if info, err := view.Stat(ctx, "leaf"); err == nil && info.Mode().IsRegular() {
					require.NotEqual(t, int64(len("SECRET")), info.Size())
				}
				_ = view.Rename(ctx, "leaf", "leaf2")
				_ = view.Delete(ctx, "leaf")
			}
			stop()
			assert.Equal(t, before, picture(t, outside))
			assert.Equal(t, inside, picture(t, root+"/denied"))
		})
	}
}

// exchange exchanges leaf and evil until it is stopped, and calls restore if one is
// missing.
func exchange(t *testing.T, root string, restore func()) (stop func(), swaps *atomic.Int64) {
	t.Helper()
	var done atomic.Bool
	var ended sync.WaitGroup
	swaps = new(atomic.Int64)
	restore()
	ended.Go(func() {
		for !done.Load() {
			if unix.Renameat2(unix.AT_FDCWD, root+"/leaf", unix.AT_FDCWD, root+"/evil", unix.RENAME_EXCHANGE) != nil {
				restore()
			} else {
				swaps.Add(1)
			}
		}
	})
	return func() {
		done.Store(true)
		ended.Wait()
	}, swaps
}
