package session

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// The process that runs the tests cannot be killed, live in namespaces, have few
// descriptors or be another user. The test binary runs itself for those tasks, with the
// task in its environment.
const taskVariable = "PK_SESSION_TASK"

var tasks = map[string]func(args []string) error{
	"sweep":    taskSweep,
	"hold":     taskHold,
	"mounts":   taskMounts,
	"fewFiles": taskFewFiles,
	"overlay":  taskOverlay,
	"umask":    taskUmask,
	"join":     taskJoin,
}

func TestMain(m *testing.M) {
	if mode := hidden.Dispatch(os.Args[1:], Modes()...); mode != nil { // the test binary is its own keeper, as the commands are
		if err := mode(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	task := strings.Fields(os.Getenv(taskVariable))
	if len(task) == 0 {
		os.Exit(m.Run())
	}
	if err := tasks[task[0]](task[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child prepares this test binary for a task.
func child(t *testing.T, task ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), taskVariable+"="+strings.Join(task, " "))

	return cmd
}

// asRoot makes the child root of user and mount namespaces of its own: no other process
// sees its mounts, and they end with it.
func asRoot(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	probe := exec.Command("/proc/self/exe", "-test.run=^$")
	probe.SysProcAttr = cmd.SysProcAttr
	if err := probe.Run(); err != nil && os.Getenv("CI") != "true" {
		t.Skip("this machine has no user namespaces:", err)
	}
	return cmd
}

// taskSweep removes all sessions of a base.
func taskSweep(args []string) error {
	return Sweep(args[0], SweepOptions{All: true}, func(Result) {})
}

// taskHold joins a session, reports that, and waits for the end of its input.
func taskHold(args []string) error {
	u, err := Open(args[0], args[1])
	if err != nil {
		return err
	}
	fmt.Println("holding", u.Path())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// newBase returns a base that is removed at the end, unreadable parts included.
func newBase(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "session")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
		os.RemoveAll(dir)
	})
	return filepath.Join(dir, "pikuri")
}

// abandoned makes a session directory that no process holds.
func abandoned(t *testing.T, base, name string) string {
	t.Helper()
	u, err := Open(base, name)
	require.NoError(t, err)
	_, err = u.Tmp()
	require.NoError(t, err)
	require.NoError(t, u.Release())
	return u.Path()
}

// grow builds a tree from lines: "d/" a directory, "f" a file, "a => b" a link, "d/ 0555"
// a mode, set at the end.
func grow(t *testing.T, dir string, lines ...string) {
	t.Helper()
	modes := map[string]os.FileMode{}
	for _, line := range lines {
		if name, target, ok := strings.Cut(line, " => "); ok {
			require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
			continue
		}
		name, mode, hasMode := strings.Cut(line, " 0")
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o700))
		} else {
			require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		}
		if hasMode {
			var m os.FileMode
			_, err := fmt.Sscanf(mode, "%o", &m)
			require.NoError(t, err)
			modes[path] = m
		}
	}
	for path, mode := range modes {
		require.NoError(t, os.Chmod(path, mode))
	}
}

// sweepAll sweeps and returns the results by the name of the session directory.
func sweepAll(t *testing.T, base string, o SweepOptions) map[string]Result {
	t.Helper()
	results := map[string]Result{}
	require.NoError(t, Sweep(base, o, func(r Result) { results[filepath.Base(r.Path)] = r }))
	return results
}

// leftIn lists a base without its tag.
func leftIn(t *testing.T, base string) []string {
	t.Helper()
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		if e.Name() != cacheTag {
			names = append(names, e.Name())
		}
	}
	return names
}

// fingerprint is every property of a file or directory that a sweep must not change.
func fingerprint(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%d mode %o links %d owner %d ctime %v", st.Ino, st.Mode, st.Nlink, st.Uid, st.Ctim)
}

func setTimes(t *testing.T, dir string, when time.Time) {
	t.Helper()
	require.NoError(t, os.Chtimes(filepath.Join(dir, stamp), when, when))
	require.NoError(t, os.Chtimes(dir, when, when))
}
