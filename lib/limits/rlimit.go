package limits

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// rlimits are the limits that a process has of itself, and that its children
// inherit. The hard limit comes down too: only CAP_SYS_RESOURCE in the
// machine's own user namespace could raise it again, which nothing in a sandbox
// has.
func (l Limits) rlimits() map[int]unix.Rlimit {
	set := map[int]unix.Rlimit{}
	if l.CPUTime > 0 {
		// At the hard limit the kernel sends SIGKILL, which tells nobody why:
		// it comes a second after the soft one.
		seconds := uint64(l.CPUTime / time.Second)
		set[unix.RLIMIT_CPU] = unix.Rlimit{Cur: seconds, Max: seconds + 1}
	}
	if l.FileSize > 0 {
		set[unix.RLIMIT_FSIZE] = unix.Rlimit{Cur: uint64(l.FileSize), Max: uint64(l.FileSize)}
	}
	return set
}

// lower gives this process the rlimits. A limit that was lower already stays.
func (l Limits) lower() error {
	for resource, limit := range l.rlimits() {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return fmt.Errorf("cannot read an rlimit: %w", err)
		}
		limit.Cur, limit.Max = min(limit.Cur, now.Cur), min(limit.Max, now.Max)
		if err := unix.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("cannot set an rlimit: %w", err)
		}
	}
	return nil
}

// Mode is the mode in which a program limits itself and becomes another one.
//
// A program written in Go cannot set the rlimits of a child before that runs:
// setting its own is for good, and setting the child's comes too late. So the
// child is this program again, which limits itself and execs.
var Mode = hidden.Mode{Name: stageOption, Run: stage}

const stageOption = "--pk-limits"

// stageArgs are the arguments behind the name of the program with which stage
// becomes path. death is the signal that the child is to get when its parent
// dies, 0 for none.
func (l Limits) stageArgs(death syscall.Signal, path string, argv []string) []string {
	args := []string{stageOption, fmt.Sprintf("%d:%d:%d:%d", l.CPUTime/time.Second, l.FileSize, death, os.Getpid()), path}
	return append(args, argv...)
}

// stage takes the limits and becomes the program. args are those behind
// stageOption. It returns only when that fails.
func stage(args []string) error {
	// Both what follows and the parent's death signal belong to a thread; the
	// one that execs becomes the process.
	runtime.LockOSThread()
	if len(args) < 3 {
		return hidden.ErrOwnUse
	}
	var n [4]int64
	fields := strings.Split(args[0], ":")
	for i := range n {
		var err error
		if len(fields) != len(n) {
			err = strconv.ErrSyntax
		} else {
			n[i], err = strconv.ParseInt(fields[i], 10, 64)
		}
		if err != nil || n[i] < 0 || n[0] > mostSeconds {
			return hidden.ErrOwnUse
		}
	}
	l := Limits{CPUTime: time.Duration(n[0]) * time.Second, FileSize: n[1]}
	if err := l.lower(); err != nil {
		return err
	}
	if err := dieWithParent(syscall.Signal(n[2]), int(n[3])); err != nil {
		return err
	}
	if number, ok := strings.CutPrefix(args[1], selfFD); ok {
		if fd, err := strconv.Atoi(number); err == nil {
			unix.CloseOnExec(fd) // it has done its duty, and leads to a file of the host
		}
	}
	return fmt.Errorf("cannot start %q: %w", args[1], syscall.Exec(args[1], args[2:], os.Environ()))
}

// dieWithParent asks again for what Pdeathsig asked for: Go may run on a thread
// that does not have it.
func dieWithParent(death syscall.Signal, parent int) error {
	if death == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(death), 0, 0, 0); err != nil {
		return fmt.Errorf("cannot ask to die with the parent: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the parent has died")
	}
	return nil
}
