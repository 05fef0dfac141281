package overlay

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No command can guess the path of an upper directory, and all that use a layer have one.
func TestNameOfTheUpperDirectory(t *testing.T) {
	var uppers []string
	for range 2 {
		l := Layer{Dir: filepath.Join(t.TempDir(), "layer")}
		require.NoError(t, l.Open(0o755))
		require.NoError(t, l.CloseLock())
		again := Layer{Dir: l.Dir}
		assert.Equal(t, l.Upper(), again.Upper())
		assert.DirExists(t, l.Upper())
		uppers = append(uppers, filepath.Base(l.Upper()))
	}
	assert.NotEqual(t, uppers[0], uppers[1])
	assert.Greater(t, len(uppers[0]), 26)

	dir, names := t.TempDir(), make([]string, 20)
	var group sync.WaitGroup
	for i := range names {
		group.Go(func() {
			var err error
			names[i], err = NameUpper(dir)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	for _, name := range names {
		assert.Equal(t, names[0], name)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestUpperDirectoryOfAnOlderPk(t *testing.T) {
	l := Layer{Dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(l.Dir+"/upper/d", 0o755))
	require.NoError(t, l.Open(0o755))
	require.NoError(t, l.CloseLock())
	assert.DirExists(t, l.Upper()+"/d")
	assert.NoDirExists(t, l.Dir+"/upper")
}
