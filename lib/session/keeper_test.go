package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// taskJoin joins the session s in a process of its own. The lower directories are
// the base's neighbours: their names hold blanks.
func taskJoin(args []string) error {
	joined, err := joinAt(args[0], lowersOf(args[0]), time.Minute)
	if err != nil {
		return err
	}
	fmt.Println(joined.Pid, len(joined.Shown))
	return nil
}

// lowersOf names the directories that ground makes beside a base.
func lowersOf(base string) []string {
	dir := filepath.Dir(base)
	return []string{dir + "/one", dir + "/with,comma:and\\back slash"}
}

func nsenter(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("nsenter")
	require.NoError(t, err)
	return path
}

func joinAt(base string, lowers []string, idle time.Duration) (*Joined, error) {
	u, err := Open(base, "s")
	if err != nil {
		return nil, err
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return nil, err
	}
	return Join(u, lowers, JoinOptions{Nsenter: path, Idle: idle})
}

// ground is a base for sessions and two directories to overlay. A sweep removes the
// remaining sessions at the end.
func ground(t *testing.T) (base string, lowers []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	base = filepath.Join(dir, "pikuri")
	lowers = lowersOf(base)
	for _, lower := range lowers {
		require.NoError(t, os.Mkdir(lower, 0o755))
		require.NoError(t, os.WriteFile(lower+"/old", []byte("old"), 0o644))
	}
	t.Cleanup(func() {
		assert.NoError(t, Sweep(base, SweepOptions{All: true}, func(r Result) {
			assert.Equal(t, Removed, r.Action, "%s %s %v", r.Path, r.Reason, r.Err)
		}))
	})
	return base, lowers
}

func join1(t *testing.T, base string, lowers []string, idle time.Duration) (*Dir, *Joined) {
	t.Helper()
	u, err := Open(base, "s")
	require.NoError(t, err)
	s, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: idle})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return u, s
}

// in runs a shell script in the session's namespaces.
func in(t *testing.T, s *Joined, script string, args ...string) string {
	t.Helper()
	line := append(Line(nsenter(t), 3, 4), "sh", "-c", script, "sh")
	cmd := exec.Command(line[0], append(line[1:], args...)...)
	cmd.ExtraFiles = []*os.File{s.User, s.Mount}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// awaitEnd waits for a process to end, and so its mounts.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	require.NoError(t, err)
	defer unix.Close(fd)
	require.True(t, AwaitEnd(fd, time.Minute), "process %d is still there", pid)
}

func TestOverlaysLastFromOneCommandToTheNext(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers, time.Minute)
	require.Len(t, s.Shown, 2)
	assert.Empty(t, s.Refused)
	assert.Empty(t, s.Memory)
	for _, lower := range lowers {
		in(t, s, `cd "$1" && cat old && rm old && echo new > new`, s.Shown[lower])
	}
	require.NoError(t, u.Release())

	u, again := join1(t, base, lowers, time.Minute)
	defer u.Release()
	assert.Equal(t, s.Pid, again.Pid, "one keeper")
	for _, lower := range lowers {
		assert.Equal(t, "new\n", in(t, again, `cd "$1" && ls`, again.Shown[lower]))
		left, err := os.ReadDir(lower)
		require.NoError(t, err)
		assert.Len(t, left, 1, "the host's side")
		assert.FileExists(t, lower+"/old")
		assert.FileExists(t, again.Root()+again.Shown[lower]+"/new", "seen from outside")
	}
}

// A keeper is not its starter's child, runs in a session of its own, holds none of its
// starter's files, and has a telling name.
func TestKeeperHoldsNothing(t *testing.T) {
	base, lowers := ground(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = unix.FcntlInt(w.Fd(), unix.F_SETFD, 0) // a caller may leave one open
	require.NoError(t, err)
	u, s := join1(t, base, lowers, time.Minute)
	defer u.Release()
	w.Close()
	_, err = r.Read(make([]byte, 1))
	assert.EqualError(t, err, "EOF", "the keeper has the caller's descriptor")

	proc := fmt.Sprintf("/proc/%d/", s.Pid)
	environ, err := os.ReadFile(proc + "environ")
	require.NoError(t, err)
	assert.Empty(t, environ)
	comm, err := os.ReadFile(proc + "comm")
	require.NoError(t, err)
	assert.Equal(t, "pk-keeper\n", string(comm))
	line, err := os.ReadFile(proc + "cmdline")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(line), "pk-keeper: session s\x00"), "%q", line)
	cwd, err := os.Readlink(proc + "cwd")
	require.NoError(t, err)
	assert.Equal(t, "/", cwd)
	stat, err := os.ReadFile(proc + "stat")
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	assert.NotEqual(t, fmt.Sprint(os.Getpid()), fields[1], "parent")
	assert.Equal(t, fmt.Sprint(s.Pid), fields[3], "session")
	assert.Equal(t, "0", fields[4], "terminal")
	files, err := os.ReadDir(proc + "fd")
	require.NoError(t, err)
	for _, f := range files {
		to, err := os.Readlink(proc + "fd/" + f.Name())
		require.NoError(t, err)
		own := to == "/dev/null" || strings.HasPrefix(to, base) || strings.HasPrefix(to, "anon_inode:")
		assert.True(t, own, "descriptor %s: %s", f.Name(), to)
	}
}

func TestOneKeeperForManyStarters(t *testing.T) {
	base, lowers := ground(t)
	const starters = 12
	said := make([]string, starters)
	var all sync.WaitGroup
	for i := range starters {
		all.Go(func() {
			out, err := child(t, "join", base).CombinedOutput()
			assert.NoError(t, err, string(out))
			said[i] = string(out)
		})
	}
	all.Wait()
	for _, s := range said {
		assert.Equal(t, said[0], s)
	}
	assert.True(t, strings.HasSuffix(said[0], " 2\n"), said[0])
	u, s := join1(t, base, lowers, time.Minute)
	defer u.Release()
	assert.Len(t, mountsOf(fmt.Sprintf("/proc/%d/mountinfo", s.Pid), u.Marker()), 2, "each is mounted once")
}

func TestIdleKeeperUnmountsAndLeaves(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers, time.Millisecond)
	in(t, s, `echo kept > "$1/kept"`, s.Shown[lowers[0]])
	running, err := u.Keeper()
	require.NoError(t, err)
	assert.Equal(t, s.Pid, running, "it stays as long as the session directory is held")
	require.NoError(t, u.Release())
	awaitEnd(t, s.Pid)

	u, err = Open(base, "s")
	require.NoError(t, err)
	defer u.Release()
	assert.False(t, mayBeMounted(u.dir), "it said that it unmounted")
	again, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute})
	require.NoError(t, err)
	defer again.Close()
	assert.NotEqual(t, s.Pid, again.Pid)
	assert.Equal(t, "kept\n", in(t, again, `cat "$1/kept"`, again.Shown[lowers[0]]))
}

// A process that still sees the overlay when no command uses the session has lost its
// set-up program. The keeper leaves a note, and the next one mounts nothing before that
// process has ended.
func TestKeeperLeavesANoteOfStragglers(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers, time.Millisecond)
	line := append(Line(nsenter(t), 3, 4), "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "echo here; read x")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.ExtraFiles = []*os.File{s.User, s.Mount}
	_, err := cmd.StdinPipe() // the process waits for input
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = stdout.Read(make([]byte, 8))
	require.NoError(t, err)
	require.NoError(t, u.Release())
	awaitEnd(t, s.Pid)

	u, err = Open(base, "s")
	require.NoError(t, err)
	defer u.Release()
	assert.True(t, mayBeMounted(u.dir))
	again, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute})
	require.NoError(t, err)
	defer again.Close()
	var ws unix.WaitStatus
	ended, err := unix.Wait4(cmd.Process.Pid, &ws, unix.WNOHANG, nil)
	require.NoError(t, err)
	assert.Equal(t, cmd.Process.Pid, ended, "the straggler is there, and so is the next keeper")
	assert.Equal(t, unix.SIGKILL, ws.Signal())
}

func TestAnonymousSessionGoesWithItsLastUser(t *testing.T) {
	base, lowers := ground(t)
	u, err := Create(base)
	require.NoError(t, err)
	s, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Hour})
	require.NoError(t, err)
	defer s.Close()
	in(t, s, `rm "$1/old" && mkdir "$1/d" && chmod 0555 "$1/d"`, s.Shown[lowers[0]])
	require.NoError(t, u.Release())
	awaitEnd(t, s.Pid)
	assert.NoDirExists(t, u.Path())
}

func TestFurtherOverlayInARunningSession(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers[:1], time.Minute)
	defer u.Release()
	in(t, s, `echo first > "$1/f"`, s.Shown[lowers[0]])
	other, both := join1(t, base, lowers, time.Minute)
	defer other.Release()
	assert.Equal(t, s.Pid, both.Pid)
	assert.Equal(t, "first\nold", in(t, both, `cat "$1/f" "$2/old"`, both.Shown[lowers[0]], both.Shown[lowers[1]]))
}

// The namespaces outlive a killed keeper as long as a command is in them, and so do its
// mounts: they must not be mounted a second time.
func TestKilledKeeperIsReplacedInItsNamespaces(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers, time.Minute)
	line := append(Line(nsenter(t), 3, 4), "sh", "-c", "echo here; read x")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.ExtraFiles = []*os.File{s.User, s.Mount}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = stdout.Read(make([]byte, 8))
	require.NoError(t, err)
	before, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", s.Pid))
	require.NoError(t, err)
	s.Close() // an open descriptor would keep them alive too

	require.NoError(t, unix.Kill(s.Pid, unix.SIGKILL))
	awaitEnd(t, s.Pid)
	again, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute})
	require.NoError(t, err)
	defer again.Close()
	after, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", again.Pid))
	require.NoError(t, err)
	assert.NotEqual(t, s.Pid, again.Pid)
	assert.Equal(t, before, after)
	assert.Len(t, mountsOf(fmt.Sprintf("/proc/%d/mountinfo", again.Pid), u.Marker()), 2)
	stdin.Close()
	_ = cmd.Wait() // its input has ended
	require.NoError(t, u.Release())
}

func TestKilledKeeperWithoutCommandsIsReplaced(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers, time.Minute)
	defer u.Release()
	in(t, s, `echo kept > "$1/kept"`, s.Shown[lowers[0]])
	s.Close()
	require.NoError(t, unix.Kill(s.Pid, unix.SIGKILL))
	again, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute}) // at once
	require.NoError(t, err)
	defer again.Close()
	assert.Equal(t, "kept\n", in(t, again, `cat "$1/kept"`, again.Shown[lowers[0]]))
}

// TestFakeKeeper: a process with the keeper's lock is joined only in namespaces that this
// user has made from the current one. A test process holds the lock in the machine's own
// namespaces, and one further inside, where a command could have made it.
func TestFakeKeeper(t *testing.T) {
	base, lowers := ground(t)
	u, s := join1(t, base, lowers[:1], time.Minute)
	defer u.Release()
	nested := append(Line(nsenter(t), 3, 4), "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "echo here; read x")
	cmd := exec.Command(nested[0], nested[1:]...)
	cmd.ExtraFiles = []*os.File{s.User, s.Mount}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = stdout.Read(make([]byte, 8))
	require.NoError(t, err)
	_, err = open(cmd.Process.Pid)
	assert.ErrorContains(t, err, "no keeper's")
	_, err = open(os.Getpid())
	assert.ErrorContains(t, err, "no keeper's")
	stdin.Close()
	_ = cmd.Wait()

	s.Close()
	require.NoError(t, unix.Kill(s.Pid, unix.SIGKILL))
	awaitEnd(t, s.Pid)
	// A struct flock, as on amd64 and arm64.
	holder := exec.Command("perl", "-e", `use Fcntl; $| = 1; open(my $f, "+<", $ARGV[0]) or die;
		my $lock = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
		fcntl($f, F_SETLK, $lock) or die; print "here"; read(STDIN, my $end, 1)`, u.Path()+"/.keeper")
	stdin, err = holder.StdinPipe()
	require.NoError(t, err)
	stdout, err = holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	_, err = stdout.Read(make([]byte, 8))
	require.NoError(t, err)
	_, err = Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute})
	assert.ErrorContains(t, err, "cannot start the keeper of session directory")
	stdin.Close()
	_ = holder.Wait()
}

func TestKeeperOptionsAreForOwnUseOnly(t *testing.T) {
	for _, args := range [][]string{{keepOption}, {keepOption, t.TempDir(), "s", "1s"}, {mountOption, "/", "m", "/usr"}, {startOption}} {
		job := hidden.Dispatch(args, Modes()...)
		require.NotNil(t, job)
		if args[0] == keepOption {
			continue // that would close the test's own files; see the commands' tests
		}
		assert.ErrorIs(t, job(), hidden.ErrOwnUse, args)
	}
}

// A directory that the host does not have is overlaid as an empty one, and not made on
// the host.
func TestOverlayOfAMissingDirectory(t *testing.T) {
	base, lowers := ground(t)
	missing := filepath.Dir(lowers[0]) + "/no/such"
	u, s := join1(t, base, []string{lowers[0], missing}, time.Millisecond)
	require.Empty(t, s.Refused)
	in(t, s, `mkdir "$1/d" && echo new > "$1/d/f"`, s.Shown[missing])
	assert.NoDirExists(t, filepath.Dir(missing))
	require.NoError(t, u.Release())
	awaitEnd(t, s.Pid)

	require.NoError(t, os.MkdirAll(missing+"/host", 0o755)) // the host has made it meanwhile
	u, s = join1(t, base, []string{missing}, time.Minute)
	defer u.Release()
	assert.Equal(t, "new\nd\nhost\n", in(t, s, `cat "$1/d/f"; ls "$1"`, s.Shown[missing]))
}

// A user may have changed the primary group since the session began, with newgrp(1). The
// keeper's namespace maps one group, which all commands get.
func TestAnotherPrimaryGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has another group to change to")
	}
	base, lowers := ground(t)
	u, s := join1(t, base, lowers[:1], time.Minute)
	defer u.Release()
	other := func() {
		cmd := child(t, "join", base)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 0, Gid: 60000, NoSetGroups: true}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Regexp(t, ` 2\n$`, string(out), "both are shown")
	}
	other() // mounts the second one

	s.Close()
	require.NoError(t, unix.Kill(s.Pid, unix.SIGKILL))
	awaitEnd(t, s.Pid)
	other() // starts the next keeper, and mounts both
	last, err := Join(u, lowers, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute})
	require.NoError(t, err)
	defer last.Close()
	assert.Len(t, last.Shown, 2)
}
