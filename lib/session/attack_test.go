package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// victim is a directory outside of any base that no sweep may change.
type victim struct{ dir string }

func newVictim(t *testing.T) victim {
	t.Helper()
	v := victim{filepath.Join(filepath.Dir(newBase(t)), "victim")}
	grow(t, filepath.Dir(v.dir), "victim/", "victim/sub/", "victim/file", "victim/sub/file", "victim/sub/ 0555", "victim/file 0444", "victim/ 0555")
	return v
}

func (v victim) state(t *testing.T) string {
	t.Helper()
	state := ""
	for _, name := range []string{".", "file", "sub", "sub/file"} {
		state += fmt.Sprintln(name, fingerprint(t, filepath.Join(v.dir, name)))
	}
	content, err := os.ReadFile(filepath.Join(v.dir, "file"))
	require.NoError(t, err)
	return state + string(content)
}

func TestLinksAreNotFollowed(t *testing.T) {
	eachOpener(t, func(t *testing.T) {
		base, v := newBase(t), newVictim(t)
		dir := abandoned(t, base, "s")
		grow(t, dir, "d/", "d/link => "+v.dir, "d/sub => "+v.dir+"/sub", "link => "+v.dir, "d/file => "+v.dir+"/file", "root => /proc/self/root", "d/ 0000")
		before := v.state(t)
		assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true, Measure: true})["workspace-s"].Action)
		assert.Equal(t, before, v.state(t))
	})
}

// A hard link shares its mode with the file outside: one chmod too many makes a private
// file readable.
func TestHardLinksKeepTheirOtherName(t *testing.T) {
	eachOpener(t, func(t *testing.T) {
		base := newBase(t)
		dir := abandoned(t, base, "s")
		outside := filepath.Join(filepath.Dir(base), "outside")
		require.NoError(t, os.WriteFile(outside, []byte("precious"), 0o400))
		grow(t, dir, "d/")
		require.NoError(t, os.Link(outside, filepath.Join(dir, "d/hard")))
		require.NoError(t, os.Chmod(filepath.Join(dir, "d"), 0))
		assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true, Measure: true})["workspace-s"].Action)
		content, err := os.ReadFile(outside)
		require.NoError(t, err)
		assert.Equal(t, "precious", string(content))
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(outside, &st))
		assert.Equal(t, uint32(unix.S_IFREG|0o400), st.Mode)
		assert.Equal(t, uint64(1), uint64(st.Nlink))
	})
}

// TestDirectoriesSwappedForLinks races the sweep: while it runs, each directory of the
// tree is swapped with a link to the victim, over and over.
func TestDirectoriesSwappedForLinks(t *testing.T) {
	rounds := 15
	if testing.Short() {
		rounds = 5
	}
	eachOpener(t, func(t *testing.T) {
		v := newVictim(t)
		before := v.state(t)
		base := newBase(t)
		for range rounds {
			dir := abandoned(t, base, "s")
			const pairs = 20
			for i := range pairs {
				grow(t, dir, fmt.Sprintf("d%d/", i), fmt.Sprintf("d%d/f", i), fmt.Sprintf("d%d/sub/", i), fmt.Sprintf("d%d/ 0%o", i, []int{0, 0o555, 0o700}[i%3]), fmt.Sprintf("l%d => %s", i, v.dir))
			}
			attack := newSwapper(t, dir, pairs)
			sweepAll(t, base, SweepOptions{All: true, Measure: true})
			attack.stop()
			sweepAll(t, base, SweepOptions{All: true})
			require.Equal(t, before, v.state(t))
		}
		require.Empty(t, leftIn(t, base))
	})
}

type swapper struct{ quit, done chan struct{} }

// newSwapper swaps d0 with l0, d1 with l1 and so on. It uses a descriptor, which stays
// valid when a sweep renames the directory.
func newSwapper(t *testing.T, dir string, pairs int) *swapper {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	s := &swapper{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(s.done)
		defer unix.Close(at)
		for i := 0; ; i++ {
			select {
			case <-s.quit:
				return
			default:
				_ = unix.Renameat2(at, fmt.Sprint("d", i%pairs), at, fmt.Sprint("l", i%pairs), unix.RENAME_EXCHANGE)
			}
		}
	}()
	return s
}

func (s *swapper) stop() {
	close(s.quit)
	<-s.done
}

// taskMounts runs as root of a user namespace of its own: it mounts things into a session
// directory and over one, and sweeps.
func taskMounts(args []string) error {
	base, victim, how := args[0], args[1], args[2]
	if how == "statx" {
		opener = func() fsat.Opener { return fsat.Opener{} }
	}
	inside := filepath.Join(base, "workspace-inside", TmpDir)
	for _, m := range [][2]string{
		{victim, filepath.Join(inside, "dir")},
		{filepath.Join(victim, "file"), filepath.Join(inside, "file")},
		{victim, filepath.Join(base, "workspace-over")},
	} {
		if err := unix.Mount(m[0], m[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %q: %w", m[1], err)
		}
	}
	var all error
	err := Sweep(base, SweepOptions{All: true}, func(r Result) {
		switch {
		case filepath.Base(r.Path) == "workspace-over" && r.Reason == Mounted:
		case filepath.Base(r.Path) == "workspace-inside" && r.Failures == 2:
			fmt.Println(r.Err)
		default:
			all = errors.Join(all, fmt.Errorf("%s: %s %s %w", r.Path, r.Action, r.Reason, r.Err))
		}
	})
	return errors.Join(all, err)
}

// A bind mount of the same file system has the same device number, so that
// rm --one-file-system empties it.
func TestMountsAreNotCrossed(t *testing.T) {
	for _, how := range []string{"openat2", "statx"} {
		t.Run(how, func(t *testing.T) {
			base := newBase(t)
			v := victim{filepath.Join(filepath.Dir(base), "victim")}
			grow(t, filepath.Dir(base), "victim/", "victim/sub/", "victim/file", "victim/sub/file")
			inside := filepath.Join(abandoned(t, base, "inside"), TmpDir)
			grow(t, inside, "dir/", "file", "gone")
			abandoned(t, base, "over")
			before := v.state(t)

			out, err := asRoot(t, child(t, "mounts", base, v.dir, how)).Output()
			require.NoError(t, err)
			assert.Regexp(t, `playground/(dir|file)" in it`, string(out))
			assert.Equal(t, before, v.state(t))
			assert.DirExists(t, filepath.Join(base, "workspace-over"))
			left, err := filepath.Glob(filepath.Join(base, ".reap-*", TmpDir, "*"))
			require.NoError(t, err)
			assert.Len(t, left, 2, "what was not mounted has gone: %v", left)

			sweepAll(t, base, SweepOptions{All: true}) // this namespace has no mounts there
			assert.Empty(t, leftIn(t, base))
			assert.Equal(t, before, v.state(t))
		})
	}
}

// TestReplacedSession replaces a session directory by a directory without a lock, after
// the sweep has checked it and before its rename.
func TestReplacedSession(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	openedBase, err := openBase(base)
	require.NoError(t, err)
	defer openedBase.Close()
	s := &sweep{base: openedBase, SweepOptions: SweepOptions{All: true}}
	claimed, err := openPrivate(openedBase, "workspace-s")
	require.NoError(t, err)
	defer claimed.Close()

	require.NoError(t, os.Rename(dir, dir+".moved"))
	grow(t, base, "workspace-s/", "workspace-s/precious")
	_, err = s.putAside(claimed, "workspace-s")
	assert.ErrorContains(t, err, "replaced meanwhile")
	assert.FileExists(t, filepath.Join(dir, "precious"))
}

// taskOverlay works in an overlay whose layers are in a session directory.
func taskOverlay(args []string) error {
	lower, dir := args[0], args[1]
	at := func(name string) string { return filepath.Join(dir, name) }
	options := "userxattr,lowerdir=" + lower + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	err := unix.Mount("overlay", at("merged"), "overlay", 0, options)
	if err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	return errors.Join(
		os.Remove(at("merged/mod/deleted")),
		os.RemoveAll(at("merged/replaced")),
		os.Mkdir(at("merged/replaced"), 0o755),
		os.WriteFile(at("merged/mod/changed"), []byte("changed"), 0o644),
		os.Rename(at("merged/mod/changed"), at("merged/mod/renamed")),
		os.Chmod(at("merged/mod"), 0o555),
	)
}

// A real overlay leaves a work directory of mode 000 with a whiteout in it, and copied-up
// 0555 directories. They defeat rm -rf of an ordinary user.
func TestRemainsOfAnOverlay(t *testing.T) {
	base := newBase(t)
	lower := filepath.Join(filepath.Dir(base), "lower")
	grow(t, filepath.Dir(base), "lower/", "lower/mod/", "lower/replaced/", "lower/mod/changed", "lower/mod/deleted", "lower/replaced/f")
	dir := abandoned(t, base, "s")
	grow(t, dir, "upper/", "work/", "merged/")
	out, err := asRoot(t, child(t, "overlay", lower, dir)).CombinedOutput()
	require.NoError(t, err, string(out))
	before := fingerprint(t, filepath.Join(lower, "mod")) + fingerprint(t, filepath.Join(lower, "mod/changed"))

	r := sweepAll(t, base, SweepOptions{All: true})["workspace-s"]
	assert.NoError(t, r.Err)
	assert.Empty(t, leftIn(t, base))
	assert.Equal(t, before, fingerprint(t, filepath.Join(lower, "mod"))+fingerprint(t, filepath.Join(lower, "mod/changed")))
	assert.FileExists(t, filepath.Join(lower, "mod/deleted"))
}
