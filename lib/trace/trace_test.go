//go:build amd64 || arm64

package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/seccomp"
)

// The test binary runs itself as a traced program, with the name of a task in its environment.
const taskVariable = "PK_TRACE_TASK"

func TestMain(m *testing.M) {
	if task, ok := tasks[os.Getenv(taskVariable)]; ok {
		if len(os.Args) == 1 {
			fmt.Fprintln(os.Stderr, loadFilter())
			os.Exit(1)
		}
		task()
		os.Exit(7)
	}
	os.Exit(m.Run())
}

// loadFilter waits for the tracer, and begins anew: only this thread is traced.
func loadFilter() error {
	runtime.LockOSThread()
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	filter, err := seccomp.Tracing(false)
	if err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter) / unix.SizeofSockFilter), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", []string{"task", "filtered"}, os.Environ())
}

// open makes a call with a raw pointer.
func open(dir int, path unsafe.Pointer, flags int) {
	_, _, _ = syscall.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(path), uintptr(flags), 0, 0, 0)
}

func named(path string, flags int) {
	p, _ := unix.BytePtrFromString(path)
	open(unix.AT_FDCWD, unsafe.Pointer(p), flags)
}

// connect connects a socket to a raw address.
func connect(address []byte) {
	family := unix.AF_UNIX
	if len(address) > 1 {
		family = int(binary.NativeEndian.Uint16(address))
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	if err != nil {
		return
	}
	_, _, _ = syscall.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(address))), uintptr(len(address)))
	unix.Close(fd)
}

func address(family uint16, rest string) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, family), rest...)
}

var tasks = map[string]func(){
	"names": func() {
		named("/none/\n\x1b[2J\xff{\"Errno\":1}", 0)
		named("/none/made", unix.O_CREAT|unix.O_WRONLY)
		_ = unix.Chdir("/etc")
		named("none/../nothing", 0)
		fd, _ := unix.Open("/usr", unix.O_PATH, 0)
		_ = unix.Unlinkat(fd, "none", 0)
		_ = unix.Renameat(fd, "from", fd, "none/to")
		_ = unix.Symlink("not a path", "/none/link")
		_ = syscall.Exec("/none/program", nil, nil)
		_ = unix.Chroot("/usr")
		named("/inside", 0)
	},
	"addresses": func() {
		connect(address(unix.AF_UNIX, "/none/socket\x00more"))
		connect(address(unix.AF_UNIX, "/none/"+strings.Repeat("s", 102))) // without a NUL
	},
	// No call here leaves a note.
	"nothing to note": func() {
		named("/", 0)
		named("", 0)
		for _, nowhere := range []uintptr{0, 1, ^uintptr(0), ^uintptr(0) >> 1} {
			_, _, _ = syscall.Syscall(unix.SYS_CHDIR, nowhere, 0, 0)
		}
		open(12345, unsafe.Pointer(unsafe.StringData("x\x00")), 0) // EBADF
		named("/"+strings.Repeat("x", 255)+"/"+strings.Repeat("y/", 500), 0)
		named("/"+strings.Repeat("x", 5000), 0)
		named("/"+strings.Repeat("x", 300), 0) // ENAMETOOLONG
		for n := range 120 {
			connect(make([]byte, n))
			connect(address(unix.AF_UNIX, strings.Repeat("\x00", n)))
			connect(address(unix.AF_INET, strings.Repeat("\x00", n%4)))
			connect(address(unix.AF_INET6, strings.Repeat("\x00", n%20)))
		}
	},
	"at the end of a page": func() {
		page := os.Getpagesize()
		two, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			err = unix.Mprotect(two[page:], unix.PROT_NONE)
		}
		if err != nil {
			os.Exit(1)
		}
		copy(two[page-6:], "/none\x00")
		open(unix.AT_FDCWD, unsafe.Pointer(&two[page-6]), 0)
		copy(two[page-6:], "/none!")
		open(unix.AT_FDCWD, unsafe.Pointer(&two[page-6]), 0) // EFAULT
	},
	"many": func() {
		named("/proc/self/mem/first", unix.O_CREAT) // ENOTDIR
		_ = unix.Mkdir("/proc/1/x", 0)
		_ = unix.Rmdir("/proc")
		for i := range 3000 {
			named(fmt.Sprintf("/none/%d", i), 0)
			named("/none/again", 0)
		}
	},
	"threads": func() {
		done := make(chan bool)
		for i := range 4 {
			go func() {
				runtime.LockOSThread()
				for range 50 {
					named(fmt.Sprintf("/none/thread %d", i), 0)
				}
				done <- true
			}()
		}
		for range 4 {
			<-done
		}
	},
	"busy threads": func() {
		begun := make(chan bool)
		for range 150 {
			go func() {
				runtime.LockOSThread()
				named("/none/busy", 0)
				begun <- true
				for {
					named("/none/busy", 0)
				}
			}()
			<-begun
		}
		named("/none/last", 0)
	},
	"killed": func() {
		named("/none", 0)
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	},
}

// traced runs a task, and returns its failures and its end.
func traced(t *testing.T, task string) ([]string, syscall.WaitStatus) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{taskVariable + "=" + task}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	fd, err := fsat.Memfd("failed", nil)
	require.NoError(t, err)
	notes := os.NewFile(uintptr(fd), "failed")
	defer notes.Close()
	tracer, err := Start(cmd.Process.Pid, fd)
	require.NoError(t, err)
	stdin.Close()
	status, _ := tracer.Wait()
	var lines []string
	for _, f := range Read(notes) {
		line := fmt.Sprintf("%s %q", unix.ErrnoName(f.Errno), f.Path)
		if f.Address.IsValid() {
			line = fmt.Sprintf("%s %s", unix.ErrnoName(f.Errno), f.Address)
		}
		if f.Creates {
			line += " creates"
		}
		if strings.Contains(line, "none") || f.Errno != unix.ENOENT { // the Go runtime looks for files, too
			lines = append(lines, line)
		}
	}
	return lines, status
}

func TestFailures(t *testing.T) {
	for task, want := range map[string][]string{
		"names": {
			`ENOENT "/none/program"`, `ENOENT "/none/link" creates`, `ENOENT "/usr/none/to" creates`, `ENOENT "/usr/none"`,
			`ENOENT "/none/made" creates`, `ENOENT "/none/\n\x1b[2J\xff{\"Errno\":1}"`,
		},
		"addresses":            {`ENOENT "/none/` + strings.Repeat("s", 102) + `"`, `ENOENT "/none/socket"`},
		"nothing to note":      nil,
		"at the end of a page": {`ENOENT "/none"`},
		"threads":              nil,
		"busy threads":         {`ENOENT "/none/last"`, `ENOENT "/none/busy"`},
	} {
		t.Run(task, func(t *testing.T) {
			got, status := traced(t, task)
			assert.Equal(t, 7, status.ExitStatus())
			if task == "threads" {
				assert.Len(t, got, 4)
				return
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestManyFailures(t *testing.T) {
	got, status := traced(t, "many")
	assert.Equal(t, 7, status.ExitStatus())
	assert.Equal(t, `ENOENT "/none/2999"`, got[0])
	assert.LessOrEqual(t, len(got), refusals+searches)
	assert.Regexp(t, `^E[A-Z]+ "/proc"$`, got[len(got)-1]) // the oldest, and no name that is missing
}

func TestDeathBySignal(t *testing.T) {
	got, status := traced(t, "killed")
	assert.Equal(t, unix.SIGKILL, status.Signal())
	assert.Equal(t, []string{`ENOENT "/none"`}, got)
}

func TestRead(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/notes")
	require.NoError(t, err)
	defer f.Close()
	assert.Empty(t, Read(f))
	noise := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 10*slotSize-5)
	for i := range text {
		text[i] = byte(noise.Uint32())
	}
	copy(text, bytes.Repeat([]byte("["), 2*slotSize))
	_, err = f.WriteAt(text, 0)
	require.NoError(t, err)
	assert.Empty(t, Read(f))
	tracer := &Tracer{to: int(f.Fd()), noted: map[string]int{}, texts: map[int]string{}}
	tracer.note(Failure{Errno: unix.ENETUNREACH, Address: netip.MustParseAddrPort("192.0.2.1:443")})
	tracer.note(Failure{Errno: unix.EROFS, Path: []byte("/a")})
	got := Read(f)
	require.Len(t, got, 2)
	assert.Equal(t, Failure{Errno: unix.EROFS, Path: []byte("/a"), Number: 2}, got[0])
	assert.Equal(t, "192.0.2.1:443", got[1].Address.String())
}

func TestNoSuchProcess(t *testing.T) {
	_, err := Start(1<<22+1, 1) // above any number
	assert.ErrorIs(t, err, unix.ESRCH)
}
