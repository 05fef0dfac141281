package gitland

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Commands that begin at the same time save one layer each. Saved finds all of them.
func TestSaved(t *testing.T) {
	host, in := t.TempDir(), t.TempDir()
	none, err := Saved(filepath.Join(in, "missing"))
	require.NoError(t, err)
	assert.Empty(t, none)
	var want []string
	for _, name := range []string{"a", "b[", "c", "d"} {
		dir := filepath.Join(host, name, ".git")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		want = append(want, dir)
	}
	require.NoError(t, os.Mkdir(filepath.Join(in, "another"), 0o700))
	var wait sync.WaitGroup
	for _, dir := range slices.Repeat(want, 4) {
		wait.Go(func() {
			l, err := OpenShared(in, dir, "s")
			if assert.NoError(t, err) {
				l.GitDirs = []string{dir}
				assert.NoError(t, l.Save())
				l.Started()
				assert.NoError(t, l.Close())
			}
		})
	}
	wait.Wait()
	list, err := Saved(in)
	require.NoError(t, err)
	var got []string
	for _, l := range list {
		assert.Equal(t, []string{l.GitDir}, l.GitDirs)
		got = append(got, l.GitDir)
	}
	assert.Equal(t, want, got)
}
