package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// eachOpener runs a test with the kernel's own checks and with those for kernels and
// containers without openat2.
func eachOpener(t *testing.T, test func(t *testing.T)) {
	for name, open := range map[string]fsat.Opener{"openat2": {Openat2: true}, "openat and statx": {}} {
		t.Run(name, func(t *testing.T) {
			probe := opener
			opener = func() fsat.Opener { return open }
			defer func() { opener = probe }()
			test(t)
		})
	}
}

func TestAge(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, test := range []struct {
		name       string
		dir, stamp time.Duration // ages
		want       Reason        // "" for removed
	}{
		{"directory and stamp are old", 8 * 24 * time.Hour, 8 * 24 * time.Hour, ""},
		{"just old enough", week, week, ""},
		{"a second too young", week - time.Second, week - time.Second, Young},
		{"young stamp in an old directory", 30 * 24 * time.Hour, time.Hour, Young},
		{"old stamp in a young directory", time.Hour, 30 * 24 * time.Hour, Young},
		{"a few seconds in the future, as of another clock", week, -10 * time.Second, Young},
		{"a day in the future", week, -24 * time.Hour, Future},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := newBase(t)
			dir := abandoned(t, base, "s")
			// The birth of a directory cannot be set, so all times lie in the future, as does the
			// clock of the sweep.
			now := time.Now().Add(100 * 24 * time.Hour).Truncate(time.Second)
			require.NoError(t, os.Chtimes(filepath.Join(dir, stamp), now, now.Add(-test.stamp)))
			require.NoError(t, os.Chtimes(dir, now, now.Add(-test.dir)))
			r := sweepAll(t, base, SweepOptions{OlderThan: week, Now: func() time.Time { return now }})["workspace-s"]
			assert.Equal(t, test.want, r.Reason)
			assert.Equal(t, test.want != "", r.Action == Kept)
			assert.Equal(t, min(test.dir, test.stamp), r.Age)
		})
	}
}

func TestBirthCounts(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	past := time.Now().Add(-1000 * time.Hour)
	setTimes(t, dir, past)
	var st unix.Statx_t
	require.NoError(t, unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_BTIME, &st))
	if st.Mask&unix.STATX_BTIME == 0 {
		t.Skip("this file system keeps no time of birth")
	}
	assert.Equal(t, Young, sweepAll(t, base, SweepOptions{OlderThan: time.Hour})["workspace-s"].Reason, "an unpacked archive has old times")
}

func TestOnlySessionsAreSwept(t *testing.T) {
	base := newBase(t)
	abandoned(t, base, "s")
	outside := t.TempDir()
	grow(t, base, "other/", "other/f", "workspace/", "workspace-/", "workspace-a b/", "workspace-file", "workspace-link => "+outside, ".reap-link => "+outside, "reap-x/")
	results := sweepAll(t, base, SweepOptions{All: true})
	assert.Equal(t, Removed, results["workspace-s"].Action)
	assert.Equal(t, NotDirectory, results["workspace-file"].Reason)
	assert.Equal(t, NotDirectory, results["workspace-link"].Reason)
	assert.Len(t, results, 4)
	assert.Equal(t, []string{".reap-link", "other", "reap-x", "workspace", "workspace-", "workspace-a b", "workspace-file", "workspace-link"}, leftIn(t, base))
}

func TestForeignSessionIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	base := newBase(t)
	require.NoError(t, os.Chown(abandoned(t, base, "s"), 4321, 4321))
	assert.Equal(t, Foreign, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Reason)
}

func TestSweepRefusesBase(t *testing.T) {
	base := newBase(t)
	dir := filepath.Dir(base)
	grow(t, dir, "real/", "real/ 0700", "real/workspace-s/f/", "link => real", "open/workspace-s/", "open/ 0777", "file")
	for name, want := range map[string]string{"link": "symbolic link", "open": "others can write", "file": "not a directory"} {
		err := Sweep(filepath.Join(dir, name), SweepOptions{All: true}, func(r Result) { t.Error("reported", r.Path) })
		assert.ErrorContains(t, err, want)
	}
	assert.DirExists(t, filepath.Join(dir, "real/workspace-s/f"))
	assert.NoError(t, Sweep(filepath.Join(dir, "missing"), SweepOptions{All: true}, nil))
}

func TestNamedSessions(t *testing.T) {
	base := newBase(t)
	for _, name := range []string{"a", "a-b", "b", "c"} {
		abandoned(t, base, name)
	}
	grow(t, base, ".reap-workspace-a-XYZ/f/", ".reap-workspace-a-b-XYZ/f/")
	held, err := Open(base, "b")
	require.NoError(t, err)
	defer held.Release()
	results := sweepAll(t, base, SweepOptions{Sessions: []string{"a", "b", "missing"}})
	assert.Equal(t, Removed, results["workspace-a"].Action)
	assert.Equal(t, InUse, results["workspace-b"].Reason)
	assert.Len(t, results, 3)
	assert.Equal(t, []string{".reap-workspace-a-b-XYZ", "workspace-a-b", "workspace-b", "workspace-c"}, leftIn(t, base))
}

// hostile is a tree as sandboxed commands, overlays and package managers leave it.
var hostile = []string{
	"d/e/f", "empty/", "plain",
	"work/work/#2e9f", "work/work/ 0000",
	"mod/x@v1/sub/f", "mod/x@v1/sub/ 0555", "mod/x@v1/ 0555",
	"unlistable/f", "unlistable/ 0300",
	"unsearchable/f", "unsearchable/ 0600",
	"readonly 0400", "setuid 06755", "sticky/f", "sticky/ 01777",
	"-rf", "--no-preserve-root/f", "a\nb/c\nd", "esc\x1b[2J", "bytes\xff\xfe/\xff", " ", "*", "~",
	"dangling => nowhere", "loop => loop", "up => ..", "dir => /",
}

func growHostile(t *testing.T, dir string) {
	t.Helper()
	var parents []string
	for _, line := range hostile {
		if name, _, isLink := strings.Cut(line, " => "); !isLink {
			parents = append(parents, filepath.Dir(strings.TrimSuffix(name, "/"))+"/")
		}
	}
	grow(t, dir, parents...)
	grow(t, dir, hostile...)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, unix.Mknod(filepath.Join(dir, "whiteout"), unix.S_IFCHR, 0))
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(socket)
	here, err := os.Getwd()
	require.NoError(t, err)
	require.NoError(t, os.Chdir(dir)) // a socket's path is short
	require.NoError(t, unix.Bind(socket, &unix.SockaddrUnix{Name: "socket"}))
	require.NoError(t, os.Chdir(here))
	for i := range 1500 { // more than one read of the directory returns
		require.NoError(t, os.WriteFile(filepath.Join(dir, "d", fmt.Sprint(i)), nil, 0o600))
	}
}

func TestHostileTree(t *testing.T) {
	eachOpener(t, func(t *testing.T) {
		base := newBase(t)
		growHostile(t, filepath.Join(abandoned(t, base, "s"), TmpDir))
		r := sweepAll(t, base, SweepOptions{All: true})["workspace-s"]
		assert.NoError(t, r.Err)
		assert.Equal(t, Removed, r.Action)
		assert.Empty(t, leftIn(t, base))
	})
}

func TestSessionWithoutPermissions(t *testing.T) {
	for _, name := range []string{"workspace-s", ".reap-workspace-s-X"} {
		base := newBase(t)
		abandoned(t, base, "other")
		grow(t, base, name+"/f/", name+"/ 0000")
		assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true})[name].Action)
	}
}

func TestDryRunChangesNothingAndPredicts(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	outside := filepath.Join(t.TempDir(), "outside")
	grow(t, dir, "d/e/", "d/f", "d/ 0555", "twice", "link => d")
	require.NoError(t, os.WriteFile(outside, make([]byte, 1<<20), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 100<<10), 0o600))
	require.NoError(t, os.Link(filepath.Join(dir, "big"), filepath.Join(dir, "big too")))
	if err := os.Link(outside, filepath.Join(dir, "elsewhere")); err != nil {
		require.ErrorIs(t, err, syscall.EXDEV)
	}
	before := fingerprint(t, dir) + fingerprint(t, filepath.Join(dir, "d"))

	would := sweepAll(t, base, SweepOptions{All: true, DryRun: true})["workspace-s"]
	assert.Equal(t, WouldRemove, would.Action)
	assert.Equal(t, before, fingerprint(t, dir)+fingerprint(t, filepath.Join(dir, "d")))
	did := sweepAll(t, base, SweepOptions{All: true, Measure: true})["workspace-s"]
	assert.Equal(t, Removed, did.Action)
	assert.Equal(t, would.Usage, did.Usage)
	assert.GreaterOrEqual(t, did.Usage.Bytes, int64(100<<10))
	assert.Less(t, did.Usage.Bytes, int64(900<<10), "what has a name elsewhere is not freed")
}

func TestDryRunSaysWhatItCannotSee(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root sees everything")
	}
	base := newBase(t)
	dir := abandoned(t, base, "s")
	grow(t, dir, "work/", "work/f", "work/ 0000")
	before := fingerprint(t, filepath.Join(dir, "work"))
	assert.True(t, sweepAll(t, base, SweepOptions{All: true, DryRun: true})["workspace-s"].Usage.AtLeast)
	assert.Equal(t, before, fingerprint(t, filepath.Join(dir, "work")))
}

// deep makes a chain of directories with a file at each level.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range levels {
		require.NoError(t, unix.Mkdirat(at, "d", 0o700))
		file, err := unix.Openat(at, "f", unix.O_CREAT|unix.O_WRONLY, 0o600)
		require.NoError(t, err)
		unix.Close(file)
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

// fewFiles is the limit of descriptors for a sweep of a deep tree.
const fewFiles = 40

func taskFewFiles(args []string) error {
	limit := unix.Rlimit{Cur: fewFiles, Max: fewFiles}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	return Sweep(args[0], SweepOptions{All: true, Measure: true}, func(r Result) {
		fmt.Println(r.Action, r.Usage.Entries, r.Err)
	})
}

func TestDeepTree(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	deep(t, filepath.Join(dir, TmpDir), 3000)
	grow(t, dir, ".deep-1/f/", ".deep-2", ".deep-3 => /") // names that the sweep would like to use
	out, err := child(t, "fewFiles", base).Output()
	require.NoError(t, err)
	// 3000 directories and files, the session tmp, stamp, .deep-1, f, .deep-2 and -3
	assert.Equal(t, "removed 6006 <nil>\n", string(out))
	assert.Empty(t, leftIn(t, base))
}

func TestTwoSweepersAtOnce(t *testing.T) {
	base := newBase(t)
	const abandonedOnes = 200
	for i := range abandonedOnes {
		grow(t, abandoned(t, base, fmt.Sprint(i)), "d/", "d/f", "g")
	}
	var removed [2]int
	var sweepers sync.WaitGroup
	for i := range removed {
		sweepers.Go(func() {
			err := Sweep(base, SweepOptions{All: true}, func(r Result) {
				if r.Action == Removed {
					removed[i]++
				}
				if r.Action == Failed {
					t.Error(r.Path, r.Err)
				}
			})
			assert.NoError(t, err)
		})
	}
	sweepers.Wait()
	assert.Equal(t, abandonedOnes, removed[0]+removed[1], "each went once: %v", removed)
	assert.Empty(t, leftIn(t, base))
}

// TestJoinersAgainstSweepers lets sessions start and end while two sweepers remove all
// sessions that no process holds. The holder of one must find its files.
func TestJoinersAgainstSweepers(t *testing.T) {
	base := newBase(t)
	abandoned(t, base, "first")
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	stop := make(chan struct{})
	var sweepers, sessions sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := Sweep(base, SweepOptions{All: true}, func(r Result) {
					if r.Action == Failed {
						t.Error(r.Path, r.Err)
					}
				})
				assert.NoError(t, err)
			}
		})
	}
	for i := range 4 {
		sessions.Go(func() {
			for round := range rounds {
				if err := useOnce(base, i, round); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	sessions.Wait()
	close(stop)
	sweepers.Wait()
	sweepAll(t, base, SweepOptions{All: true})
	assert.Empty(t, leftIn(t, base))
}

// useOnce joins or makes a session, writes a file, and reads it back by its path.
func useOnce(base string, i, round int) error {
	open := func() (*Dir, error) { return Open(base, fmt.Sprint("shared", round%2)) }
	if i == 0 {
		open = func() (*Dir, error) { return Create(base) }
	}
	u, err := open()
	if err != nil {
		return err
	}
	dir, err := u.Tmp()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, fmt.Sprint(i))
	if err := os.WriteFile(file, []byte(fmt.Sprint(round)), 0o600); err != nil {
		return err
	}
	for range 20 {
		got, err := os.ReadFile(file)
		if err != nil || string(got) != fmt.Sprint(round) {
			return fmt.Errorf("a live session lost a file: %q, %w", got, err)
		}
	}
	return u.Remove()
}

func TestKilledSweepIsTakenUp(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	grow(t, dir, "mod/", "mod/sub/", "mod/sub/f", "mod/sub/ 0555", "mod/ 0555")
	for i := range 10000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, TmpDir, fmt.Sprint(i)), nil, 0o600))
	}
	cmd := child(t, "sweep", base)
	require.NoError(t, cmd.Start())
	for dirExists(dir) { // until it has been renamed
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	left := leftIn(t, base)
	require.Len(t, left, 1)
	require.True(t, strings.HasPrefix(left[0], reaped), left[0])

	session, err := Open(base, "s")
	require.NoError(t, err, "the name is free meanwhile")
	defer session.Release()
	results := sweepAll(t, base, SweepOptions{OlderThan: 7 * 24 * time.Hour})
	assert.Equal(t, Removed, results[left[0]].Action, "whatever its age")
	assert.Equal(t, []string{"workspace-s"}, leftIn(t, base))
}

func dirExists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestUnremovableFileIsReported(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files immutable, or give them away")
	}
	base := newBase(t)
	dir := abandoned(t, base, "s")
	grow(t, dir, "d/", "d/a", "d/b", "d/c")
	for _, name := range []string{"a", "b"} {
		f, err := os.Open(filepath.Join(dir, "d", name))
		require.NoError(t, err)
		defer f.Close()
		const immutable = 0x10 // FS_IMMUTABLE_FL
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
			t.Skip("this file system has no immutable files")
		}
		defer unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)
	}
	for _, r := range sweepAll(t, base, SweepOptions{All: true}) {
		assert.Equal(t, Failed, r.Action)
		assert.ErrorContains(t, r.Err, `in it: operation not permitted`)
		assert.Equal(t, 2, r.Failures)
		assert.NoFileExists(t, filepath.Join(r.Path, "d/c"), "the rest goes")
	}
}

// The session tmp of a killed command goes, whatever its mode, and the rest of the directory stays.
func TestAbandon(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, MakeBase(base))
	name := Reserve("").Name()
	require.NoError(t, Abandon(base, name), "it is not there")
	require.NoError(t, os.MkdirAll(filepath.Join(base, name, TmpDir, "r", ".git"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(base, name, LogDir, "log"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(base, name, TmpDir), 0))
	require.NoError(t, Abandon(base, name))
	require.NoError(t, Abandon(base, name))
	assert.NoDirExists(t, filepath.Join(base, name, TmpDir))
	assert.DirExists(t, filepath.Join(base, name, LogDir, "log"))
	left, err := filepath.Glob(base + "/" + reaped + "*")
	require.NoError(t, err)
	assert.Len(t, left, 1)
	require.NoError(t, Sweep(base, SweepOptions{OlderThan: DefaultAge}, func(Result) {}))
	assert.NoDirExists(t, left[0])
	assert.DirExists(t, filepath.Join(base, name))
}
