package overlay

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// While a command swaps directories and files for links to places outside, and moves
// them, nothing outside is listed, described or read.
func TestSwaps(t *testing.T) {
	upper, lower := layers(t)
	outside := t.TempDir()
	grow(t, outside, "d/", "d/outside: 1", "f: outside", "d/e/", "d/e/outside: 1")
	require.NoError(t, unix.Mkfifo(outside+"/d/f", 0o644)) // a process that opens it waits
	for _, root := range []string{upper, lower} {
		grow(t, root, "d/", "d/e/", "d/e/f: inside", "d/f: inside", "f: inside")
	}
	grow(t, upper, "d/new: 1", "d/e/new: 1", "other/")
	require.NoError(t, os.Symlink(outside+"/d", upper+"/link"))
	require.NoError(t, os.Symlink(outside+"/f", upper+"/file"))
	witnesses := []string{outside + "/f", outside + "/d", outside + "/d/outside", outside + "/d/e", outside + "/d/e/outside"}
	long := time.Unix(1, 0)
	for _, path := range witnesses { // read, each would have a later access time, also with relatime
		require.NoError(t, os.Chtimes(path, long, time.Now()))
	}
	var dirs []int // by descriptor: the swaps do not lead outside themselves
	for _, path := range []string{"", "/d"} {
		fd, err := unix.Open(upper+path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		dirs = append(dirs, fd)
	}
	swap := func(in int, a, b string) func() {
		return func() { _ = unix.Renameat2(dirs[in], a, dirs[0], b, unix.RENAME_EXCHANGE) }
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, one := range []func(){swap(0, "d", "link"), swap(0, "f", "file"), swap(1, "e", "other"), swap(1, "f", "file"), swap(1, "e", "link")} {
		wg.Go(func() {
			for !stop.Load() {
				one()
			}
		})
	}
	seen := map[string]int{}
	links, directories := 0, 0 // of d, which is exchanged
	enough, most := time.Now().Add(time.Second), time.Now().Add(time.Minute)
	for now := time.Now(); now.Before(enough) || (links == 0 || directories == 0) && now.Before(most); now = time.Now() {
		changes, err := collect(upper, lower, Options{})
		if !assert.NoError(t, err) {
			break
		}
		for _, c := range changes {
			seen[fmt.Sprintf("%s %s %v", c.Op, c.Path, c.Err != nil)]++
			switch {
			case c.Path == "d" && c.Op == 'T':
				links++
			case c.Path == "d/new" && c.Op == 'A':
				directories++
			}
			assert.NotEqual(t, "outside", filepath.Base(c.Path))
			for _, witness := range witnesses {
				st, err := stat(unix.AT_FDCWD, witness)
				require.NoError(t, err)
				assert.NotEqual(t, st.Ino, c.New.Ino, c.Path)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	for _, path := range witnesses {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(path, &st))
		assert.Equal(t, long.Unix(), st.Atim.Sec, path)
	}
	assert.Positive(t, links, "%v", seen)
	assert.Positive(t, directories, "%v", seen)
}

// BenchmarkChanges has layers whose differences are 100 000 changes, and others with
// 20 000 files that were copied up and not changed.
func BenchmarkChanges(b *testing.B) {
	fill := func(b *testing.B, root, kind string, mode os.FileMode, files int) {
		for n := range files {
			dir := fmt.Sprintf("%s/%s/%d", root, kind, n/100)
			if n%100 == 0 {
				require.NoError(b, os.MkdirAll(dir, 0o755))
			}
			require.NoError(b, os.WriteFile(fmt.Sprintf("%s/%d", dir, n%100), []byte(kind), mode))
		}
	}
	run := func(b *testing.B, upper, lower string, want int) {
		for b.Loop() {
			changes, err := collect(upper, lower, Options{})
			require.NoError(b, err)
			require.Len(b, changes, want)
		}
	}
	b.Run("changes", func(b *testing.B) {
		upper, lower := layers(b)
		fill(b, upper, "added", 0o644, 50_000)
		fill(b, lower, "removed", 0o644, 50_000)
		require.NoError(b, unix.Mknod(upper+"/removed", unix.S_IFCHR, 0))
		run(b, upper, lower, 100_000+2*(500+1))
	})
	b.Run("unchanged", func(b *testing.B) {
		upper, lower := layers(b)
		fill(b, upper, "same", 0o644, 20_000)
		fill(b, lower, "same", 0o644, 20_000)
		run(b, upper, lower, 0)
	})
}
