package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPathsAreThoseOfWalk: in every workspace, with guards or without.
func TestPathsAreThoseOfWalk(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	local, err := NewLocalWorkspace(root)
	require.NoError(t, err)
	defer local.Close()
	mem := NewMemWorkspace()
	for _, ws := range []Workspace{local, mem} {
		for _, path := range []string{"b/c/d", "b/c.x", "b-x", "a", "z/secret/k", "z/y"} {
			require.NoError(t, ws.Write(ctx, path, nil))
		}
	}
	require.NoError(t, os.Symlink("b", root+"/link"))
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o600))
	require.NoError(t, os.WriteFile(root+"/"+newTemp(), nil, 0o600))
	scoped := local.Guarded(func(a Access) error {
		if filepath.Base(a.Path) == "secret" {
			return ErrAccessDenied
		}
		return nil
	})
	for _, ws := range []Workspace{local, mem, scoped} {
		for _, dir := range []string{".", "b", "missing", "z/"} {
			type entry struct {
				path string
				kind fs.FileMode
			}
			var want, got []entry
			require.NoError(t, Walk(ctx, ws, dir, func(path string, e fs.DirEntry) error {
				want = append(want, entry{path, e.Type()})
				return nil
			}))
			require.NoError(t, Paths(ctx, ws, dir, func(path string, kind fs.FileMode, err error) error {
				got = append(got, entry{path, kind})
				return err
			}))
			assert.Equal(t, want, got)
		}
	}
}

func TestPathsCanBeSkipped(t *testing.T) {
	ctx := context.Background()
	local, err := NewLocalWorkspace(t.TempDir())
	require.NoError(t, err)
	defer local.Close()
	for _, path := range []string{"a/x", "b/x", "c/x"} {
		require.NoError(t, local.Write(ctx, path, nil))
	}
	visit := func(answers map[string]error) (seen []string, err error) {
		err = Paths(ctx, local, ".", func(path string, _ fs.FileMode, err error) error {
			seen = append(seen, path)
			return errors.Join(err, answers[path])
		})
		return seen, err
	}
	seen, err := visit(map[string]error{"a": fs.SkipDir, "b": fs.SkipAll})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, seen)
	_, err = visit(map[string]error{"b/x": assert.AnError})
	assert.ErrorIs(t, err, assert.AnError)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	err = Paths(cancelled, local, ".", func(_ string, _ fs.FileMode, err error) error { return err })
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, Paths(ctx, local, "../x", func(_ string, _ fs.FileMode, err error) error { return err }), ErrPathTraversal)
}

// TestWorkspaceFromADirectory: it is the open directory, even if its name leads
// elsewhere.
func TestWorkspaceFromADirectory(t *testing.T) {
	ctx := context.Background()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(base+"/root/d", 0o755))
	require.NoError(t, os.Mkdir(base+"/evil", 0o755))
	require.NoError(t, os.Symlink(base+"/root/d", base+"/root/abs"))
	dir, err := os.Open(base + "/root")
	require.NoError(t, err)
	ws, err := NewLocalWorkspaceFrom(dir)
	require.NoError(t, err)
	defer ws.Close()
	require.NoError(t, dir.Close())
	require.NoError(t, ws.Write(ctx, "abs/f", []byte("x")), "an absolute link that stays inside")
	require.NoError(t, os.Rename(base+"/root", base+"/moved"))
	require.NoError(t, os.Symlink("evil", base+"/root"))
	require.NoError(t, ws.Write(ctx, "g", []byte("x")))
	assert.FileExists(t, base+"/moved/g")
	assert.NoFileExists(t, base+"/evil/g")
	assert.Equal(t, base+"/root", ws.Root())

	odd, err := os.Open(".")
	require.NoError(t, err)
	defer odd.Close()
	_, err = NewLocalWorkspaceFrom(odd)
	assert.ErrorIs(t, err, ErrInvalid)
}
