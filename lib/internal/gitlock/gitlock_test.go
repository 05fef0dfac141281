package gitlock

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	file := t.TempDir() + "/config"
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o644))
	require.NoError(t, os.Chmod(file, 0o604))
	l, err := Acquire(file, time.Now())
	require.NoError(t, err)
	_, err = Acquire(file, time.Now())
	assert.ErrorIs(t, err, fs.ErrExist, "it is held")
	require.NoError(t, l.Replace([]byte("new"), time.Time{}))
	require.NoError(t, l.Release())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "new", string(text))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o604), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestLockOfAnotherProcess(t *testing.T) {
	file := t.TempDir() + "/config"
	for _, test := range []struct {
		name, content string
		taken         bool
	}{
		{"git's", "", false},
		{"git's, half written", "[core]\n", false},
		{"one of a killed process of ours", marker, true},
		{"ours, with more in it", marker + "x", false},
	} {
		require.NoError(t, os.WriteFile(file+".lock", []byte(test.content), 0o644))
		l, err := Acquire(file, time.Now())
		assert.Equal(t, test.taken, err == nil, test.name)
		if err != nil {
			assert.ErrorIs(t, err, fs.ErrExist)
			assert.FileExists(t, file+".lock")
			continue
		}
		require.NoError(t, l.Release())
		assert.NoFileExists(t, file+".lock")
	}
}
