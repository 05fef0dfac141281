package quarantine

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// elsewhere is a directory on another file system than that of dir.
func elsewhere(t *testing.T, dir string) string {
	t.Helper()
	other, err := os.MkdirTemp("/dev/shm", "pk-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(other) })
	var a, b syscall.Stat_t
	require.NoError(t, syscall.Stat(dir, &a))
	require.NoError(t, syscall.Stat(other, &b))
	if a.Dev == b.Dev {
		t.Skip("/dev/shm and the temporary directory are one file system here")
	}
	return other
}

func TestMove(t *testing.T) {
	project, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	near := filepath.Join(filepath.Dir(project), "near")
	for name, into := range map[string]string{"same file system": near, "another file system": elsewhere(t, project) + "/aside"} {
		t.Run(name, func(t *testing.T) {
			hooks := filepath.Join(project, ".git", "hooks")
			require.NoError(t, os.MkdirAll(filepath.Join(hooks, "deep", "er"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(hooks, "deep", "er", "f"), []byte("deep"), 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(project, "config"), []byte("c"), 0o644))
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(project, "link")))
			require.NoError(t, syscall.Mkfifo(filepath.Join(project, "fifo"), 0o600))
			names := []string{hooks, project + "/config", project + "/link", project + "/fifo", project + "/nonesuch", project + "/no/such"}
			moved, err := Move(names, into, func(Moved) {})
			require.NoError(t, err)
			require.Len(t, moved, 4)
			for i, m := range moved {
				assert.Equal(t, names[i], m.From)
				assert.NoFileExists(t, m.From)
			}
			deep, err := os.ReadFile(filepath.Join(moved[0].To, "deep", "er", "f"))
			assert.NoError(t, err)
			assert.Equal(t, "deep", string(deep))
			target, err := os.Readlink(moved[2].To)
			assert.NoError(t, err)
			assert.Equal(t, "/etc/passwd", target)
			left, err := os.ReadDir(project)
			require.NoError(t, err)
			assert.Len(t, left, 1, "nothing but .git")
		})
	}
}

func TestMoveAsideMakesNothingForNothing(t *testing.T) {
	dir := t.TempDir()
	moved, err := Move([]string{dir + "/nonesuch"}, dir+"/aside", func(Moved) {})
	assert.NoError(t, err)
	assert.Empty(t, moved)
	assert.NoDirExists(t, dir+"/aside")
}

func TestMoveAsideFollowsNoLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir+"/victim/hooks", 0o755))
	require.NoError(t, os.Mkdir(dir+"/project", 0o755))
	require.NoError(t, os.Symlink(dir+"/victim", dir+"/project/.git"))
	require.NoError(t, os.Symlink(dir+"/victim", dir+"/aside"))
	moved, err := Move([]string{dir + "/project/.git/hooks"}, dir+"/other", func(Moved) {})
	assert.Error(t, err, "a link is in the way, and what lies behind it is not ours to move")
	assert.Empty(t, moved)
	_, err = Move([]string{dir + "/project/.git"}, dir+"/aside", func(Moved) {})
	assert.Error(t, err, "the destination is a link")
	assert.DirExists(t, dir+"/victim/hooks")
	for _, name := range []string{"relative", "/a/../b", "/", "/a/"} {
		_, err = Move([]string{name}, dir+"/other", func(Moved) {})
		assert.Error(t, err, name)
	}
}

// An attacker swaps the directory with a link all the time: the files behind the
// link stay where they are.
func TestMoveAsideAgainstSwapping(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir+"/victim", 0o755))
	require.NoError(t, os.WriteFile(dir+"/victim/hook", []byte("v"), 0o644))
	require.NoError(t, os.MkdirAll(dir+"/p/real", 0o755))
	require.NoError(t, os.Symlink(dir+"/victim", dir+"/p/link"))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(dir+"/p/real", dir+"/p/git")
				_ = os.Rename(dir+"/p/git", dir+"/p/real")
				_ = os.Rename(dir+"/p/link", dir+"/p/git")
				_ = os.Rename(dir+"/p/git", dir+"/p/link")
				runtime.Gosched()
			}
		}
	})
	for range 2000 {
		_ = os.WriteFile(dir+"/p/real/hook", []byte("r"), 0o644)
		moved, _ := Move([]string{dir + "/p/git/hook"}, dir+"/aside", func(Moved) {})
		for _, m := range moved {
			content, _ := os.ReadFile(m.To)
			assert.NotEqual(t, "v", string(content))
		}
	}
	close(stop)
	swapper.Wait()
	assert.FileExists(t, dir+"/victim/hook")
}
