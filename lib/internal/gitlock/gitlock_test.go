package gitlock

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
		held, taken   bool
	}{
		{"git's", "", false, false},
		{"git's, half written", "[core]\n", false, false},
		{"one of a killed process of ours", marker, false, true},
		{"one of a process of ours that runs", marker, true, false},
		{"ours, with more in it", marker + "x", false, false},
	} {
		require.NoError(t, os.WriteFile(file+".lock", []byte(test.content), 0o644))
		holder, err := os.Open(file + ".lock")
		require.NoError(t, err)
		if test.held {
			require.NoError(t, unix.Flock(int(holder.Fd()), unix.LOCK_EX))
		}
		l, err := Acquire(file, time.Now())
		holder.Close()
		assert.Equal(t, test.taken, err == nil, test.name)
		if err != nil {
			assert.ErrorIs(t, err, fs.ErrExist)
			assert.ErrorContains(t, err, strconv.Quote(file+".lock")+" exists: another git process is at work")
			assert.FileExists(t, file+".lock")
			continue
		}
		require.NoError(t, l.Release())
		assert.NoFileExists(t, file+".lock")
	}
}
