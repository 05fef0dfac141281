package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes: those outside are not visible, not signalled and not traced; those
// inside hold only variables and terminals that were passed.
var processes = []Attack{
	{Name: "see a process of the host", Guarantee: "processes", try: seeTarget},
	{Name: "trace a process of the host", Guarantee: "processes", try: traceTarget},
	{Name: "read the memory of a process of the host", Guarantee: "processes", try: readTarget},
	{Name: "signal a process of the host", Guarantee: "processes", try: signalTarget,
		got: (*Scene).killed},
	{Name: "find a secret in the environment of a process", Guarantee: "environment", try: findVariable},
	{Name: "make a user namespace", Guarantee: "nested", try: makeUserNamespace},
	{Name: "open the caller's terminal", Guarantee: "terminal", try: openTerminal},
	{Name: "type into the caller's terminal", Guarantee: "terminal",
		try: func(*Targets) error { return typeInto(unix.TIOCSTI) }},
	{Name: "paste into a virtual console", Guarantee: "terminal",
		try: func(*Targets) error { return typeInto(unix.TIOCLINUX) }},
}

// seeTarget compares the start time: every PID namespace counts from 1, so the
// number may be another process's.
func seeTarget(t *Targets) error {
	start, err := startOf(t.PID)
	if err == nil && start != t.Start {
		return errors.New("the process of that number is another")
	}
	return err
}

func traceTarget(t *Targets) error {
	if err := seeTarget(t); err != nil {
		return err
	}
	return trace(t.PID)
}

// trace attaches to a process and detaches.
func trace(pid int) error {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return call("ptrace", err)
	}
	if unix.PtraceInterrupt(pid) == nil {
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil) // only a stopped process can be detached
	}
	return call("ptrace", unix.PtraceDetach(pid))
}

func readTarget(t *Targets) error {
	if err := seeTarget(t); err != nil {
		return err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", t.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open", err)
	}
	return unix.Close(fd)
}

// signalTarget sends the signal without a look at the process, as an attacker
// would. Inside, the number may be that of one of its own threads: not to those.
func signalTarget(t *Targets) error {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", t.PID)); err == nil {
		return errors.New("the process of that number is this one")
	}
	return call("kill", unix.Kill(t.PID, unix.SIGTERM))
}

func findVariable(t *Targets) error {
	if t.Variable == "" {
		return absent("every variable was passed")
	}
	for _, pid := range processIDs() {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(environ, []byte(t.Variable+"=")) {
			return nil
		}
	}
	return errors.New("no process has it")
}

// makeUserNamespace starts a child in one: a process with several threads cannot
// enter one itself.
func makeUserNamespace(*Targets) error {
	cmd := exec.Command("/proc/self/exe", childOption)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait() // the namespace exists, even if the child in it failed
	return nil
}

// openTerminal counts as refused on a terminal of the sandbox's own.
func openTerminal(t *Targets) error {
	var st unix.Stat_t
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil && unix.Fstat(0, &st) == nil && t.TTY != [2]uint64{st.Dev, st.Ino} {
		return errors.New("the terminal is the sandbox's own")
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open", err)
	}
	return unix.Close(fd)
}

// typeInto asks the terminal on standard input to take a character as typed, or a
// selection as pasted. Only a virtual console can paste; on another terminal, an
// answer of its driver counts as a success.
func typeInto(request uintptr) error {
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err != nil {
		return absent("standard input is no terminal")
	}
	character := byte('#')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, request, pointer(&character))
	if errno == 0 || request == unix.TIOCLINUX {
		return reached(errno)
	}
	return call("ioctl", errno)
}
