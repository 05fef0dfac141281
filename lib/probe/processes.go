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

// processes: those outside are not seen, not signalled and not traced, and
// those inside hold nothing that was not passed.
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

// seeTarget: a number says nothing, as every process namespace counts from 1.
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

// trace attaches to a process and lets it go.
func trace(pid int) error {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return call("ptrace", err)
	}
	if unix.PtraceInterrupt(pid) == nil {
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil) // it can be let go only when it has stopped
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

// signalTarget sends the signal blindly, as an attacker would, but not to
// itself: inside, the number may be that of one of its own threads.
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

// makeUserNamespace starts a child in one: a program with many threads cannot
// enter one itself.
func makeUserNamespace(*Targets) error {
	cmd := exec.Command("/proc/self/exe", childOption)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait() // it was made, whatever became of the child in it
	return nil
}

func openTerminal(*Targets) error {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open", err)
	}
	return unix.Close(fd)
}

// typeInto asks the terminal on standard input to take a character as typed, or
// a selection as pasted. Only a virtual console knows the second, so there it
// counts if the terminal's driver was asked at all.
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
