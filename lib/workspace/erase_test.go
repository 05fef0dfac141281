package workspace_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

// A deep tree is removed with few descriptors, also if guards are asked about
// all of it first.
func TestRemoveAllWithFewDescriptors(t *testing.T) {
	const variable, levels = "PK_TEST_FEW", 1900
	if os.Getenv(variable) == "" {
		child := exec.Command("sh", "-c", `ulimit -n 64; exec "$0" -test.run='^TestRemoveAllWithFewDescriptors$' -test.v`, os.Args[0])
		child.Env = append(os.Environ(), variable+"=1")
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS")
		return
	}
	for _, guarded := range []bool{false, true} {
		w, root := local(t)
		var view workspace.Workspace = w
		asked := map[string]bool{}
		if guarded {
			view = w.Guarded(func(a workspace.Access) error {
				asked[a.Path] = true
				return nil
			})
		}
		dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		for range levels {
			require.NoError(t, unix.Mkdirat(dir, "d", 0o755))
			next, err := unix.Openat(dir, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			unix.Close(dir)
			dir = next
		}
		unix.Close(dir)
		require.NoError(t, view.RemoveAll(ctx, "d"))
		assert.NoDirExists(t, root+"/d")
		assert.Equal(t, guarded, asked[strings.Repeat("d/", levels-1)+"d"])
	}
}

// A directory that can be written and not read takes durable files.
func TestSyncInUnreadableDirectory(t *testing.T) {
	w, root := local(t, workspace.WithSync())
	require.NoError(t, os.Mkdir(root+"/d", 0o755))
	require.NoError(t, os.WriteFile(root+"/d/f", []byte("old"), 0o644))
	require.NoError(t, os.Chmod(root+"/d", 0o311))
	defer func() { require.NoError(t, os.Chmod(root+"/d", 0o755)) }()
	if os.Geteuid() == 0 {
		t.Log("root may read it")
	}
	require.NoError(t, workspace.AtomicWrite(ctx, w, "d/f", []byte("new")))
	require.NoError(t, w.Write(ctx, "d/g", []byte("new")))
	require.NoError(t, w.Rename(ctx, "d/g", "d/h"))
	data, err := w.Read(ctx, "d/f")
	require.NoError(t, err)
	assert.Equal(t, "new", string(data))
}
