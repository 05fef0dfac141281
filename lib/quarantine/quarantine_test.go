package quarantine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ground(t *testing.T) (base, project string) {
	dir := t.TempDir()
	base, project = dir+"/base", dir+"/project"
	require.NoError(t, os.MkdirAll(base, 0o700))
	require.NoError(t, os.MkdirAll(project+"/.git", 0o755))
	return base, project
}

func TestEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		plant func(t *testing.T, git string)
		gone  string // below .git; "" if nothing is moved
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"a file", func(t *testing.T, git string) { require.NoError(t, os.WriteFile(git+"/commondir", nil, 0o600)) }, "commondir"},
		{"a directory", func(t *testing.T, git string) { require.NoError(t, os.MkdirAll(git+"/hooks/x", 0o700)) }, "hooks"},
		{"a directory that cannot be written", func(t *testing.T, git string) {
			require.NoError(t, os.MkdirAll(git+"/hooks/x", 0o700))
			require.NoError(t, os.Chmod(git+"/hooks", 0o500))
		}, "hooks"},
		{"a file in a directory that cannot be written", func(t *testing.T, git string) {
			require.NoError(t, os.WriteFile(git+"/commondir", nil, 0o600))
			require.NoError(t, os.Chmod(git, 0o555))
		}, "commondir"},
		{"a file in a directory that cannot be entered", func(t *testing.T, git string) {
			require.NoError(t, os.WriteFile(git+"/commondir", nil, 0o600))
			require.NoError(t, os.Chmod(git, 0))
		}, "commondir"},
		{"a link in the place of a missing directory", func(t *testing.T, git string) { require.NoError(t, os.Symlink("..", git+"/a")) }, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base, project := ground(t)
			git := project + "/.git"
			t.Cleanup(func() { os.Chmod(git, 0o700) })
			n, err := Begin(base, Note{Names: []string{git + "/commondir", git + "/hooks", git + "/a/b/hooks"}, Into: base + "/workspace-x/moved-aside"})
			require.NoError(t, err)
			test.plant(t, git)
			before, err := os.Stat(git)
			require.NoError(t, err)
			moved, err := n.End()
			require.NoError(t, err)
			after, err := os.Stat(git)
			require.NoError(t, err)
			assert.Equal(t, before.Mode(), after.Mode(), "the mode is given back")
			notes, err := os.ReadDir(base + "/journal")
			require.NoError(t, err)
			assert.Empty(t, notes)
			if test.gone == "" {
				assert.Empty(t, moved)
				return
			}
			require.Len(t, moved, 1)
			assert.Equal(t, filepath.Join(git, test.gone), moved[0].From)
			require.NoError(t, os.Chmod(git, 0o700))
			_, err = os.Lstat(moved[0].From)
			assert.ErrorIs(t, err, os.ErrNotExist)
			_, err = os.Lstat(moved[0].To)
			assert.NoError(t, err)
		})
	}
}

func TestModesThatLetOthersIn(t *testing.T) {
	base, project := ground(t)
	mode, err := ModeOf(project + "/.git")
	require.NoError(t, err)
	n, err := Begin(base, Note{Modes: []Mode{mode}, Into: base + "/x"})
	require.NoError(t, err)
	require.NoError(t, os.Chmod(project+"/.git", 0o777))
	_, err = n.End()
	require.NoError(t, err)
	info, err := os.Stat(project + "/.git")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
}

// A command that was killed leaves its note unlocked.
func TestRecover(t *testing.T) {
	base, project := ground(t)
	hooks := project + "/.git/hooks"
	n, err := Begin(base, Note{Names: []string{hooks}, Into: base + "/workspace-x/moved-aside"})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(hooks, 0o700))

	moved, err := Recover(base)
	require.NoError(t, err)
	assert.Empty(t, moved, "its command runs")
	assert.DirExists(t, hooks)

	require.NoError(t, n.file.Close())
	moved, err = Recover(base)
	require.NoError(t, err)
	require.Len(t, moved, 1)
	assert.NoDirExists(t, hooks)
	moved, err = Recover(base)
	require.NoError(t, err)
	assert.Empty(t, moved)
}

func TestANoteThatNamesADirectoryElsewhere(t *testing.T) {
	base, project := ground(t)
	n, err := Begin(base, Note{Names: []string{project + "/.git"}, Into: project + "/x"})
	require.NoError(t, err)
	require.NoError(t, n.file.Close())
	_, err = Recover(base)
	assert.ErrorContains(t, err, "names a directory elsewhere")
	assert.DirExists(t, project+"/.git")
}
