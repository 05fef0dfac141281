package keyring

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A thread cannot go back to its old keyring. The test binary runs itself, with the
// task in its environment.
const taskVariable = "PK_KEYRING_TASK"

var tasks = map[string]func() error{
	"join":    taskJoin,
	"find":    taskFind,
	"many":    taskMany,
	"without": taskWithout,
}

func TestMain(m *testing.M) {
	task, ok := tasks[os.Getenv(taskVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	if err := task(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child prepares the test binary for a task.
func child(task string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), taskVariable+"="+task)
	return cmd
}

func runTask(t *testing.T, task string, args ...string) string {
	t.Helper()
	cmd := child(task, args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

const keyName = "pk-keyring-test"

// taskJoin adds a key to a session of its own, and looks for it in programs that
// it starts, before and after it joins another.
func taskJoin() error {
	if err := JoinAnonymousSession(); err != nil { // the caller's own stays clean
		return err
	}
	key, err := unix.AddKey("user", keyName, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	for began := time.Now(); err == unix.EDQUOT && time.Since(began) < patience; time.Sleep(pause) { // as in JoinAnonymousSession
		key, err = unix.AddKey("user", keyName, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	}
	if err != nil {
		return err
	}
	for range 2 {
		// Started from this thread, without the help of another.
		cmd := child("find", strconv.Itoa(key))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
		if err := JoinAnonymousSession(); err != nil {
			return err
		}
	}
	return nil
}

// taskFind looks for the key by its name and by its number.
func taskFind() error {
	key, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	_, err = unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", keyName, 0)
	fmt.Println("search:", err)
	_, err = unix.KeyctlBuffer(unix.KEYCTL_READ, key, make([]byte, 16), 0)
	fmt.Println("read:", err)
	return nil
}

func TestJoin(t *testing.T) {
	want := "search: <nil>\nread: <nil>\n" +
		"search: required key not available\nread: permission denied\n"
	assert.Equal(t, want, runTask(t, "join"))
}

// taskMany joins more keyrings than a user may have, one after the other.
func taskMany() error {
	for range 500 {
		if err := JoinAnonymousSession(); err != nil {
			return err
		}
	}
	return nil
}

func TestMany(t *testing.T) {
	cmd := child("many")
	if os.Geteuid() == 0 { // root may have a million
		const somebody = 54321
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	}
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

// taskWithout does without keyrings: keyctl fails with the number in its
// argument.
func taskWithout() error {
	errno, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_KEYCTL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	err = JoinAnonymousSession()
	fmt.Print(err, "; ", errors.Is(err, syscall.Errno(errno)))
	return nil
}

func TestWithout(t *testing.T) {
	assert.Equal(t, "<nil>; false", runTask(t, "without", strconv.Itoa(int(unix.ENOSYS))))
	assert.Equal(t, "cannot join a new session keyring: disk quota exceeded; true",
		runTask(t, "without", strconv.Itoa(int(unix.EDQUOT))))
}
