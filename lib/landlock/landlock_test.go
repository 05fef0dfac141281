package landlock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A thread cannot lift its restriction. The test binary runs itself, with the task
// in its environment.
const taskVariable = "PK_LANDLOCK_TASK"

var tasks = map[string]func(args []string) error{
	"become":  taskBecome,
	"start":   taskStart,
	"threads": taskThreads,
	"without": taskWithout,
	"try":     taskTry,
}

func TestMain(m *testing.M) {
	task, ok := tasks[os.Getenv(taskVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := task(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child prepares the test binary for a task.
func child(t *testing.T, task string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(self(t), args...)
	cmd.Env = append(os.Environ(), taskVariable+"="+task)
	return cmd
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// taskBecome becomes a command from a scoped thread, as pk-bwrap becomes bwrap.
func taskBecome(argv []string) error {
	runtime.LockOSThread()
	if err := ScopeThread(); err != nil {
		return err
	}
	if err := os.Setenv(taskVariable, "try"); err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

// taskStart starts a command from a scoped thread, as pk-bash starts bwrap.
func taskStart(argv []string) error {
	runtime.LockOSThread()
	if err := ScopeThread(); err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), taskVariable+"=try")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// taskTry tries to reach an abstract socket, a TCP address, a socket that is a
// file, and a process, and prints the errors.
func taskTry(args []string) error {
	own, err := net.Listen("unix", "@pk-landlock-own-"+rand.Text())
	if err != nil {
		return err
	}
	defer own.Close()
	pid, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	report("abstract", connect("unix", args[0]))
	report("tcp", connect("tcp", args[1]))
	report("file", connect("unix", args[2]))
	report("own abstract", connect("unix", own.Addr().String()))
	report("own signal", unix.Kill(os.Getpid(), 0))
	report("signal", unix.Kill(pid, 0))
	_, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	report("namespace", err)
	return nil
}

func report(name string, err error) {
	errno := syscall.Errno(0)
	if err != nil && !errors.As(err, &errno) {
		errno = unix.ENOTRECOVERABLE
	}
	fmt.Printf("%s: %v\n", name, errno)
}

func connect(network, address string) error {
	conn, err := net.Dial(network, address)
	if err == nil {
		conn.Close()
	}
	return err
}

// outside listens on three sockets, and returns taskTry's arguments.
func outside(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pk") // short: the paths of sockets end at 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var addresses []string
	for _, at := range [][2]string{
		{"unix", "@pk-landlock-" + strconv.Itoa(os.Getpid())}, {"tcp", "127.0.0.1:0"}, {"unix", filepath.Join(dir, "s")},
	} {
		l, err := net.Listen(at[0], at[1])
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		addresses = append(addresses, l.Addr().String())
	}
	return append(addresses, strconv.Itoa(os.Getpid()))
}

// supported needs a kernel with scopes.
func supported(t *testing.T) {
	t.Helper()
	if err := Supported(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

func TestScope(t *testing.T) {
	supported(t)
	const (
		free = "abstract: errno 0\ntcp: errno 0\nfile: errno 0\nown abstract: errno 0\nown signal: errno 0\nsignal: errno 0\nnamespace: errno 0\n"
		kept = "abstract: operation not permitted\ntcp: errno 0\nfile: errno 0\nown abstract: errno 0\nown signal: errno 0\n" +
			"signal: operation not permitted\nnamespace: permission denied\n"
	)
	args := outside(t)
	out, err := child(t, "try", args...).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, free, string(out), "without a scope")
	for _, how := range []string{"become", "start"} {
		t.Run(how, func(t *testing.T) {
			out, err := child(t, how, append([]string{self(t)}, args...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, kept, string(out))
		})
	}
}

// TestBwrap starts bwrap from a scoped thread: the restriction reaches its command.
func TestBwrap(t *testing.T) {
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	supported(t)
	const first = "abstract: operation not permitted\ntcp: errno 0\nfile: errno 0\nown abstract: errno 0\nown signal: errno 0\n"
	line := []string{
		bwrap, "--unshare-user", "--unshare-all", "--share-net", "--disable-userns", "--die-with-parent",
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", self(t),
	}
	args := append(line, outside(t)...)
	for _, how := range []string{"become", "start"} {
		t.Run(how, func(t *testing.T) {
			out, err := child(t, how, args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.True(t, strings.HasPrefix(string(out), first), "%s", out)
		})
	}
}

// taskThreads scopes one thread and connects from others.
func taskThreads(args []string) error {
	runtime.LockOSThread()
	if err := ScopeThread(); err != nil {
		return err
	}
	if err := connect("unix", args[0]); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("from the scoped thread: %v", err)
	}
	const threads = 8
	var wg sync.WaitGroup
	failures := make([]error, threads)
	for i := range threads {
		wg.Go(func() {
			runtime.LockOSThread()
			failures[i] = connect("unix", args[0])
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}

func TestOtherThreads(t *testing.T) {
	supported(t)
	out, err := child(t, "threads", outside(t)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// taskWithout runs without Landlock: the call that asks for its version fails with
// the error number in the argument.
func taskWithout(args []string) error {
	errno, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := answerWith(syscall.Errno(errno)); err != nil {
		return err
	}
	err = ScopeThread()
	noNewPrivileges, e := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	fmt.Printf("%v; %v; %d %v", err, errors.Is(err, errors.ErrUnsupported), noNewPrivileges, e)
	return nil
}

// answerWith makes landlock_create_ruleset fail, or with 0 return 0, for the calling
// thread. The test looks whether no_new_privs is set, so the filter is installed
// without it, as root of a user namespace.
func answerWith(errno syscall.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func TestWithout(t *testing.T) {
	rows := []struct {
		name  string
		errno unix.Errno
		want  string
	}{
		{"kernel without it", unix.ENOSYS, "this kernel has no Landlock; true; 0 <nil>"},
		{"switched off at boot", unix.EOPNOTSUPP, "Landlock is switched off, it is not in the kernel's list lsm=; true; 0 <nil>"},
		{"filter of a container", unix.EPERM, "a system call filter keeps Landlock away; true; 0 <nil>"},
		{"older than scopes", 0, "Landlock has no scopes, its version is 0 and has to be 6 (Linux 6.12); true; 0 <nil>"},
		{"an unexpected error", unix.EIO, "cannot ask for Landlock's version: input/output error; false; 0 <nil>"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			cmd := child(t, "without", strconv.Itoa(int(row.errno)))
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, row.want, string(out))
		})
	}
}
