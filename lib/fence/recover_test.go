package fence

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/gitdir"
	"pikuri/lib/session"
)

// What the end of a command has reported already is no warning.
func TestRecoverWarnsOfOtherErrors(t *testing.T) {
	base, root := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(base, 0o700))
	state := filepath.Join(base, session.GitDir)
	require.NoError(t, os.Mkdir(state, 0o700))
	looked, err := gitdir.Look(state, root, nil)
	require.NoError(t, err)
	run, err := gitdir.Begin(state, looked)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(root+"/a/.git", 0o700))
	require.NoError(t, os.WriteFile(state+"/inert", []byte("none\n"), 0o600))
	_, err = run.End()
	require.Error(t, err)
	var warned []string
	f := &Fence{Config: Config{Warn: func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }}}
	f.recover(base, err)
	assert.Empty(t, warned)
	f.recover(base, nil)
	require.Len(t, warned, 1)
	assert.Contains(t, warned[0], "cannot read the list of inert repositories")
}
