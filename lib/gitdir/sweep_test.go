package gitdir

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sweep removes the lists that the next command can make again, those of links whose git directory
// is gone, and no others.
func TestSweepLists(t *testing.T) {
	state := t.TempDir()
	for name, common := range map[string]string{"links-d": state, "links-e": state + "/gone"} {
		require.NoError(t, SaveList(filepath.Join(state, listDir, name), fmt.Appendf(nil, `{"common":%q}`+"\nx", common)))
	}
	strange := filepath.Join(t.TempDir(), "no\xffUTF-8")
	require.NoError(t, os.Mkdir(strange, 0o700))
	require.NoError(t, NoteSubmodules(state, strange, []string{"m\xff", "m\xfe"}))
	noted := notedFile(state, strange)
	assert.Equal(t, []string{"m\xfe", "m\xff"}, readNoted(noted).Paths)
	for _, name := range []string{"links-a", "other", "lists/links-b", "lists/linked-b", "lists/list-c"} {
		require.NoError(t, SaveList(filepath.Join(state, name), nil))
	}
	require.NoError(t, SweepLists(state, func(path string) bool { return true }))
	var left []string
	assert.FileExists(t, noted)
	require.NoError(t, os.Remove(noted))
	for _, dir := range []string{state, state + "/lists"} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			left = append(left, e.Name())
		}
	}
	assert.Equal(t, []string{"lists", "lock", "other", "links-d"}, left)
}
