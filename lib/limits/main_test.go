package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits cannot be undone, so other processes take them: the test binary runs
// itself, with a task as its first argument.
//
//	guard LIMITS COMMAND...   runs COMMAND and reports
//	close LIMITS COMMAND...   starts COMMAND and ends it by closing its box
//
// The others are commands that use up a resource.
var tasks = map[string]func(args []string) error{
	"guard": taskGuard, "close": taskClose,
	"hold": taskHold, "fork": taskFork, "spin": taskSpin, "write": taskWrite, "raise": taskRaise, "escape": taskEscape,
	"nothing": func([]string) error { return nil },
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") { // an unknown task must not run the tests again
		fail(tasks[os.Args[1]](os.Args[2:]))
	}
	os.Exit(m.Run())
}

func fail(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, err)
	if no, ok := errors.AsType[*Refusal](err); ok {
		fmt.Fprintln(os.Stderr, "hint:", no.Hint())
	}
	os.Exit(125)
}

// parse reads limits from "memory=512M,pids=3".
func parse(s string) (l Limits, err error) {
	for word := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(word, "=")
		var e error
		switch Name(name) {
		case Memory:
			l.Memory, e = ParseSize(value)
		case Pids:
			l.Pids, e = ParseCount(value)
		case CPUTime:
			l.CPUTime, e = ParseSeconds(value)
		case FileSize:
			l.FileSize, e = ParseSize(value)
		default:
			e = fmt.Errorf("no limit %q", name)
		}
		err = errors.Join(err, e)
	}
	return l, err
}

// limited is the command in the box, with the rlimits that the set-up program
// of a sandbox sets.
func limited(b *Box, l Limits, args []string) *exec.Cmd {
	var line []string
	if seconds := int64(l.CPUTime / time.Second); seconds > 0 {
		line = append(line, fmt.Sprintf("--cpu=%d:%d", seconds, seconds+1))
	}
	if l.FileSize > 0 {
		line = append(line, fmt.Sprintf("--fsize=%d", l.FileSize))
	}
	if len(line) > 0 {
		args = slices.Concat([]string{"prlimit"}, line, []string{"--"}, args)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if in := b.Cgroup(); in != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(in.Fd())
	}
	return cmd
}

// report is the output of taskGuard.
type report struct {
	Status  int    // as a shell would report it
	Stopped Name   // the limit
	Crowded bool   // a fork failed
	Dir     string // path of the cgroup
	Left    bool   // the cgroup still exists
	Output  string
}

func taskGuard(args []string) error {
	l, err := parse(args[0])
	if err != nil {
		return err
	}
	b, err := Prepare(l)
	if err != nil {
		return err
	}
	cmd := limited(b, l, args[1:])
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return err
	}
	for { // bwrap returns before its sandbox is gone
		if _, err := syscall.Wait4(-1, nil, 0, nil); errors.Is(err, syscall.ECHILD) {
			break
		}
	}
	r := report{Dir: b.dir, Output: output.String(), Crowded: b.Crowded()}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	var death syscall.Signal
	if r.Status = ws.ExitStatus(); ws.Signaled() {
		r.Status = 128 + int(ws.Signal())
	}
	if r.Status > 128 {
		death = syscall.Signal(r.Status - 128)
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		return err
	}
	r.Stopped, _ = b.Stopped(death, time.Duration(usage.Utime.Nano()+usage.Stime.Nano()))
	if err := b.Close(); err != nil {
		return err
	}
	if r.Dir != "" {
		_, err := os.Stat(r.Dir)
		r.Left = err == nil
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func taskClose(args []string) error {
	l, err := parse(args[0])
	if err != nil {
		return err
	}
	b, err := Prepare(l)
	if err != nil {
		return err
	}
	cmd := limited(b, l, args[1:])
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // all of it is running
		return err
	}
	dir := b.dir
	if err := b.Close(); err != nil {
		return err
	}
	fmt.Println(cmd.Wait())
	_, err = os.Stat(dir)
	fmt.Println(errors.Is(err, os.ErrNotExist), b.Close())
	return nil
}

// taskHold holds so many bytes; with "child" a child does, and this process
// goes on without it.
func taskHold(args []string) error {
	if len(args) > 1 {
		err := exec.Command("/proc/self/exe", "hold", args[0]).Run()
		fmt.Println("went on:", err)
		return nil
	}
	n, err := ParseSize(args[0])
	if err != nil {
		return err
	}
	held := make([]byte, n)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	fmt.Println("held", len(held))
	return nil
}

// taskFork holds so many processes at once: single-threaded ones, which one
// thread makes and waits for.
func taskFork(args []string) error {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	n := 0
	var failed syscall.Errno
	pids := make([]uintptr, 0, want)
	for n = 0; n < want; n++ {
		pid, _, e := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
		if e != 0 {
			failed = e
			break
		}
		if pid == 0 {
			for {
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		_ = syscall.Kill(int(pid), syscall.SIGKILL)
		_, _ = syscall.Wait4(int(pid), nil, 0, nil)
	}
	fmt.Println("forked", n)
	if failed != 0 {
		return failed
	}
	return nil
}

// taskSpin keeps a processor busy; with "deaf" it ignores SIGXCPU.
func taskSpin(args []string) error {
	if len(args) == 0 {
		signal.Reset(syscall.SIGXCPU) // Go ignores it
		var action [4]uint64          // SIG_DFL
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGXCPU), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
	}
	return errors.New("not stopped")
}

// taskWrite writes so many bytes to a file; with "deaf" it ignores SIGXFSZ.
func taskWrite(args []string) error {
	n, err := ParseSize(args[1])
	if err != nil {
		return err
	}
	if len(args) == 2 {
		var action [4]uint64
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGXFSZ), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, n))
	return errors.Join(err, f.Close())
}

// taskRaise tries to raise its rlimits.
func taskRaise([]string) error {
	for _, resource := range []int{syscall.RLIMIT_CPU, syscall.RLIMIT_FSIZE} {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(resource, &now); err != nil {
			return err
		}
		now.Max++
		fmt.Println(now.Cur, now.Max-1, syscall.Setrlimit(resource, &now))
	}
	return nil
}

// taskEscape tries to reach the cgroup file system and to change the limits,
// with all rights that it has.
func taskEscape([]string) error {
	dir := "/tmp/cgroup"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		fmt.Println("mount:", err)
		return nil
	}
	for _, name := range []string{"memory.max", "pids.max"} {
		fmt.Println(name+":", set(dir, name, "max"))
	}
	fmt.Println("out:", set(dir+"/..", "cgroup.procs", "0"), words(dir, "cgroup.procs"))
	return nil
}
