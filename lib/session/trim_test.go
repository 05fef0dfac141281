package session

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lay makes files of 64 KiB below a session directory, one after the other: Trim sorts by
// ctime, which no process can set back.
func lay(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, make([]byte, 64<<10), 0o400))
		time.Sleep(5 * time.Millisecond) // a tick of the file system's clock
	}
}

func TestTrimRemovesTheOldestOfTheFullestSession(t *testing.T) {
	base := newBase(t)
	one, two := abandoned(t, base, "one"), abandoned(t, base, "two")
	outside := t.TempDir()
	lay(t, outside, "precious")
	lay(t, one, LogDir+"/1", AsideDir+"/tree/sub/2")
	require.NoError(t, os.Chmod(one+"/"+AsideDir+"/tree", 0o555))
	lay(t, two, TmpDir+"/large") // and a tick
	lay(t, two, LogDir+"/3", LogDir+"/4")
	require.NoError(t, os.Symlink(outside, two+"/"+AsideDir))
	require.NoError(t, os.Symlink(outside+"/precious", one+"/"+LogDir+"/link"))

	require.NoError(t, Trim(base))
	assert.FileExists(t, one+"/log/1", "1 GiB is not reached")
	require.NoError(t, trim(base, 150<<10, nil))
	assert.NoFileExists(t, one+"/log/1")
	assert.DirExists(t, one+"/moved-aside/tree", "the other session keeps more now")
	assert.NoFileExists(t, two+"/log/3")
	require.NoError(t, trim(base, 70<<10, nil))
	assert.NoDirExists(t, one+"/moved-aside/tree")
	assert.FileExists(t, two+"/log/4")
	assert.FileExists(t, two+"/playground/large", "the session's own")
	d, err := Open(base, "two")
	require.NoError(t, err)
	require.NoError(t, trim(base, 0, nil))
	assert.FileExists(t, two+"/log/4", "the session is in use")
	require.NoError(t, d.Release())
	require.NoError(t, trim(base, 0, nil))
	assert.NoFileExists(t, two+"/log/4")
	assert.FileExists(t, outside+"/precious")
	assert.NoError(t, Trim(base+".missing"))
}

func TestSweepInPassing(t *testing.T) {
	base := newBase(t)
	SweepInPassing(base, nil, func(time.Duration) {}) // an empty base
	assert.NoDirExists(t, base)
	abandoned(t, base, "young")
	assert.False(t, due(base), "an hour has not passed")
	for _, age := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		when := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(base+"/"+cacheTag, when, when))
		assert.True(t, due(base), age)
		assert.False(t, due(base), "one process is enough")
	}
	long := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(base+"/"+cacheTag, long, long))
	grow(t, base, reaped+"workspace-s-1/", reaped+"workspace-s-1/f") // of a killed sweep: removed at any age
	SweepInPassing(base, nil, func(time.Duration) {})
	assert.False(t, due(base), "it has just been done")
	assert.Equal(t, []string{"workspace-young"}, leftIn(t, base))
}

// A sweep in passing that runs out of time leaves a tree that the next sweep removes, at
// any age.
func TestSweepThatRunsOutOfTime(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	for i := range 100 {
		grow(t, dir, fmt.Sprint(i))
	}
	asked := 0
	late := func(string) error {
		if asked++; asked > 50 {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
	require.NoError(t, sweepIn(base, SweepOptions{All: true}, late, func(r Result) {
		assert.ErrorIs(t, r.Err, os.ErrDeadlineExceeded)
	}))
	assert.NoDirExists(t, dir, "its name is free")
	assert.Len(t, leftIn(t, base), 1)
	sweepAll(t, base, SweepOptions{OlderThan: time.Hour})
	assert.Empty(t, leftIn(t, base))
}
