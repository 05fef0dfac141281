//go:build amd64 || arm64

package seccomp

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process cannot remove a filter. The test binary runs itself, with the task in
// its environment.
const taskVariable = "PK_SECCOMP_TASK"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(taskVariable) {
	case "":
		os.Exit(m.Run())
	case "filter":
		err = taskFilter(os.Args[1:])
	case "try":
		taskTry()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// taskFilter installs the filter and executes argv.
func taskFilter(argv []string) error {
	filter, err := Filter(false)
	if err != nil {
		return err
	}
	if err := os.Setenv(taskVariable, "try"); err != nil {
		return err
	}
	program := unix.SockFprog{
		Len:    uint16(len(filter) / unix.SizeofSockFilter),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0])),
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("cannot set the filter: %w", err)
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

const (
	none    = ^uintptr(0)           // no descriptor, no operation, no path
	badType = unix.SOCK_STREAM | 16 // the kernel knows no such flag, and looks at the family later: no driver is loaded
)

// probes are calls without effect: without the filter the kernel fails each of
// them with another error.
var probes = []struct {
	name   string
	number uintptr
	args   [4]uintptr
	want   unix.Errno
}{
	{"keyctl", unix.SYS_KEYCTL, [4]uintptr{none}, unix.ENOSYS},
	{"add_key", unix.SYS_ADD_KEY, [4]uintptr{}, unix.ENOSYS},
	{"request_key", unix.SYS_REQUEST_KEY, [4]uintptr{}, unix.ENOSYS},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP, [4]uintptr{}, unix.ENOSYS},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER, [4]uintptr{none}, unix.ENOSYS},
	{"io_uring_register", unix.SYS_IO_URING_REGISTER, [4]uintptr{none}, unix.ENOSYS},
	{"bpf", unix.SYS_BPF, [4]uintptr{none}, unix.ENOSYS},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [4]uintptr{}, unix.ENOSYS},
	{"userfaultfd", unix.SYS_USERFAULTFD, [4]uintptr{none}, unix.ENOSYS},
	{"TIOCSTI", unix.SYS_IOCTL, [4]uintptr{none, unix.TIOCSTI}, unix.EPERM},
	{"TIOCSTI and a bit", unix.SYS_IOCTL, [4]uintptr{none, 1<<32 | unix.TIOCSTI}, unix.EPERM},
	{"TIOCLINUX", unix.SYS_IOCTL, [4]uintptr{none, unix.TIOCLINUX}, unix.EPERM},
	{"TIOCSETD", unix.SYS_IOCTL, [4]uintptr{none, unix.TIOCSETD}, unix.EPERM},
	{"AF_VSOCK", unix.SYS_SOCKET, [4]uintptr{unix.AF_VSOCK, badType}, unix.EAFNOSUPPORT},
	{"AF_VSOCK and a bit", unix.SYS_SOCKET, [4]uintptr{1<<32 | unix.AF_VSOCK, badType}, unix.EAFNOSUPPORT},
	{"AF_ALG", unix.SYS_SOCKET, [4]uintptr{unix.AF_ALG, badType}, unix.EAFNOSUPPORT},
	{"a pair of AF_TIPC", unix.SYS_SOCKETPAIR, [4]uintptr{unix.AF_TIPC, badType}, unix.EAFNOSUPPORT},
	{"a packet socket by way of AF_INET", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_PACKET | 16}, unix.EAFNOSUPPORT},
	{"SCTP", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, badType, unix.IPPROTO_SCTP}, unix.EPROTONOSUPPORT},
	{"device events", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, badType, unix.NETLINK_KOBJECT_UEVENT}, unix.EPROTONOSUPPORT},
	{"a pair for audit", unix.SYS_SOCKETPAIR, [4]uintptr{unix.AF_NETLINK, badType, unix.NETLINK_AUDIT}, unix.EPROTONOSUPPORT},
	{"fchmod to set-user-ID", unix.SYS_FCHMOD, [4]uintptr{none, 0o4755}, unix.EPERM},
	{"fchmodat to set-user-ID", unix.SYS_FCHMODAT, [4]uintptr{none, none, 0o4755}, unix.EPERM},
	{"fchmodat2 to set-user-ID", unix.SYS_FCHMODAT2, [4]uintptr{none, none, 0o4755}, unix.EPERM},
	{"mknodat with set-user-ID", unix.SYS_MKNODAT, [4]uintptr{none, none, unix.S_IFREG | 0o4755}, unix.EPERM},
	{"openat, O_CREAT, with set-user-ID", unix.SYS_OPENAT, [4]uintptr{none, none, unix.O_CREAT | unix.O_WRONLY, 0o4755}, unix.EPERM},
	{"openat, O_TMPFILE, with set-user-ID", unix.SYS_OPENAT, [4]uintptr{none, none, unix.O_TMPFILE | unix.O_WRONLY, 0o4755}, unix.EPERM},
	{"openat2", unix.SYS_OPENAT2, [4]uintptr{none, none}, unix.ENOSYS},
	{syslogProbe, unix.SYS_SYSLOG, [4]uintptr{syslogSize}, unix.EPERM},

	{"TIOCGWINSZ", unix.SYS_IOCTL, [4]uintptr{none, unix.TIOCGWINSZ}, unix.EBADF},
	{"AF_UNIX", unix.SYS_SOCKET, [4]uintptr{unix.AF_UNIX, badType}, unix.EINVAL},
	{"AF_INET", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, badType}, unix.EINVAL},
	{"AF_INET6 with MPTCP", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET6, badType, unix.IPPROTO_MPTCP}, unix.EINVAL},
	{"routes", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, badType, unix.NETLINK_ROUTE}, unix.EINVAL},
	{"a pair of AF_UNIX", unix.SYS_SOCKETPAIR, [4]uintptr{unix.AF_UNIX, badType}, unix.EINVAL},
	{"fchmodat to set-group-ID", unix.SYS_FCHMODAT, [4]uintptr{none, none, 0o2755}, unix.EFAULT},
	{"openat without O_CREAT, mode ignored", unix.SYS_OPENAT, [4]uintptr{none, none, unix.O_RDONLY, 0o4755}, unix.EFAULT},
}

// permitted counts the probes at the end that the filter allows.
const permitted = 8

// syslogProbe asks for the size of the kernel's log, which needs a privilege on
// some machines.
const (
	syslogProbe = "syslog"
	syslogSize  = 10
)

func taskTry() {
	for _, p := range probes {
		_, _, errno := syscall.Syscall6(p.number, p.args[0], p.args[1], p.args[2], p.args[3], 0, 0)
		fmt.Printf("%s: %v\n", p.name, errno)
	}
}

// wrappers run a command under the filter.
var wrappers = map[string]func(t *testing.T, argv ...string) *exec.Cmd{
	"by itself": func(t *testing.T, argv ...string) *exec.Cmd {
		cmd := exec.Command(self(t), argv...)
		cmd.Env = append(os.Environ(), taskVariable+"=filter")
		return cmd
	},
	"bwrap": func(t *testing.T, argv ...string) *exec.Cmd {
		bwrap := os.Getenv("PK_TEST_BWRAP")
		if bwrap == "" {
			t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
		}
		options := []string{"--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--seccomp", "3", "--"}
		cmd := exec.Command(bwrap, append(options, argv...)...)
		cmd.Env = append(os.Environ(), taskVariable+"=try")
		cmd.ExtraFiles = []*os.File{filterFile(t)}
		return cmd
	},
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func filterFile(t *testing.T) *os.File {
	t.Helper()
	filter, err := Filter(false)
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(t.TempDir(), "filter"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.Write(filter)
	require.NoError(t, err)
	_, err = f.Seek(0, 0)
	require.NoError(t, err)
	return f
}

func TestKernel(t *testing.T) {
	for name, wrap := range wrappers {
		t.Run(name, func(t *testing.T) {
			var want strings.Builder
			for _, p := range probes {
				fmt.Fprintf(&want, "%s: %v\n", p.name, p.want)
			}
			got, err := wrap(t, self(t)).CombinedOutput()
			require.NoError(t, err, "%s", got)
			assert.Equal(t, want.String(), string(got))
		})
	}
}

// TestWithoutFilter shows that the answers in TestKernel come from the filter.
func TestWithoutFilter(t *testing.T) {
	cmd := exec.Command(self(t))
	cmd.Env = append(os.Environ(), taskVariable+"=try")
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(probes))
	for i, p := range probes[:len(probes)-permitted] {
		if p.name != syslogProbe {
			assert.NotEqual(t, fmt.Sprintf("%s: %v", p.name, p.want), lines[i])
		}
	}
}

// TestThirtyTwoBits runs 32-bit programs under the same filter. Each makes one call
// and exits with its errno.
func TestThirtyTwoBits(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the programs are for i386; TestEveryCall covers the calls of all ABIs")
	}
	rows := []struct {
		name string
		call [4]uint32
		want unix.Errno
	}{
		{"keyctl", [4]uint32{288, 0xffffffff}, unix.ENOSYS},
		{"add_key", [4]uint32{286}, unix.ENOSYS},
		{"request_key", [4]uint32{287}, unix.ENOSYS},
		{"io_uring_setup", [4]uint32{425}, unix.ENOSYS},
		{"bpf", [4]uint32{357, 0xffffffff}, unix.ENOSYS},
		{"perf_event_open", [4]uint32{336}, unix.ENOSYS},
		{"userfaultfd", [4]uint32{374, 0xffffffff}, unix.ENOSYS},
		{"TIOCSTI", [4]uint32{54, 0xffffffff, unix.TIOCSTI}, unix.EPERM},
		{"AF_VSOCK", [4]uint32{359, unix.AF_VSOCK, badType}, unix.EAFNOSUPPORT},
		{"socket by socketcall", [4]uint32{102, 1, 0}, unix.ENOSYS},
		{"socketpair by socketcall", [4]uint32{102, 8, 0}, unix.ENOSYS},
		{"chmod to set-user-ID", [4]uint32{15, 0xffffffff, 0o4755}, unix.EPERM},
		{"open with set-user-ID", [4]uint32{5, 0xffffffff, unix.O_CREAT, 0o4755}, unix.EPERM},
		{"openat2", [4]uint32{437, 0xffffffff, 0xffffffff}, unix.ENOSYS},
	}
	unfenced := func(path string) unix.Errno { return status(t, exec.Command(path)) }
	runs32(t)
	for name, wrap := range wrappers {
		t.Run(name, func(t *testing.T) {
			bad := program32(t, [4]uint32{54, 0xffffffff, unix.TIOCGWINSZ})
			assert.Equal(t, unix.EBADF, status(t, wrap(t, bad)), "a permitted call")
			for _, row := range rows {
				path := program32(t, row.call)
				assert.NotEqual(t, row.want, unfenced(path), "%s without the filter", row.name)
				assert.Equal(t, row.want, status(t, wrap(t, path)), row.name)
			}
		})
	}
}

// runs32 skips the test where the kernel was built without 32-bit programs:
// it has none of the calls that are to be refused.
func runs32(t *testing.T) {
	t.Helper()
	const getpid = 20
	err := exec.Command(program32(t, [4]uint32{getpid})).Run()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("this kernel runs no 32-bit programs")
	}
	if err != nil { // of 256 process IDs, one is the exit status 0
		_, exited := errors.AsType[*exec.ExitError](err)
		require.True(t, exited, "%v", err)
	}
}

// status is the exit status of the program, an errno.
func status(t *testing.T, cmd *exec.Cmd) unix.Errno {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.Empty(t, string(out))
	if err != nil {
		_, exited := errors.AsType[*exec.ExitError](err)
		require.True(t, exited, "%v", err)
	}
	return unix.Errno(cmd.ProcessState.ExitCode())
}

// program32 writes a program for i386 that makes one system call, given as its
// number and up to three arguments.
func program32(t *testing.T, call [4]uint32) string {
	t.Helper()
	const base, header = 0x10000, 52 + 32
	var code bytes.Buffer
	for i, load := range []byte{0xb8, 0xbb, 0xb9, 0xba} { // mov eax, ebx, ecx, edx
		code.WriteByte(load)
		require.NoError(t, binary.Write(&code, binary.LittleEndian, call[i]))
	}
	code.Write([]byte{
		0xcd, 0x80, // int 0x80
		0xf7, 0xd8, // neg eax
		0x89, 0xc3, // mov ebx, eax
		0xb8, 1, 0, 0, 0, // mov eax, exit
		0xcd, 0x80,
	})
	size := uint32(header + code.Len())
	var file bytes.Buffer
	for _, part := range []any{
		elf.Header32{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT),
			Entry: base + header, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1,
		},
		elf.Prog32{
			Type: uint32(elf.PT_LOAD), Vaddr: base, Filesz: size, Memsz: size,
			Flags: uint32(elf.PF_R | elf.PF_X), Align: 0x1000,
		},
		code.Bytes(),
	} {
		require.NoError(t, binary.Write(&file, binary.LittleEndian, part))
	}
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o755))
	return path
}
