package setup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// FirstMode is the first process of the sandbox's PID namespace. The set-up program
// starts it while the tree is built. It mounts the /proc of that namespace, by
// which bwrap finds its child, and becomes bwrap.
var FirstMode = hidden.Mode{Name: "--pk-first", Run: first}

// orders is what the first process is told when the tree is ready.
type orders struct {
	Path    string // of bwrap
	FD      int    // of bwrap, instead of Path; 0: none
	Argv    []string
	Env     []string
	Rlimits []Rlimit
	Filter  bool // bwrap gets a system call filter
	Network bool // a network namespace comes with the orders
}

// startFirst starts the first process with the files of the sandbox. go_ is the
// set-up program's end of the connection to it.
func (r *run) startFirst(files []uintptr) (go_ *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	defer unix.Close(pair[1])
	number := place(&files, pair[1])
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, PidFD: &r.pidfd}
	if cgroup := r.job.FDs.Cgroup; cgroup > 0 {
		a.UseCgroupFD, a.CgroupFD = true, cgroup
	}
	if streams := r.job.FDs.Terminal; len(streams) > 0 { // it leads the session of its terminal
		a.Setsid, a.Setctty, a.Ctty = true, true, streams[0]
	}
	r.pid, err = syscall.ForkExec(hidden.Self, []string{hidden.Self, FirstMode.Name, number}, &syscall.ProcAttr{Env: []string{"GOMAXPROCS=1"}, Files: files, Dir: "/", Sys: a})
	if err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("cannot start the first process of the sandbox: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "first"), nil
}

// tell gives the first process its orders, and the network namespace that it enters
// unless that is -1, and returns when it has become bwrap.
func tell(first *os.File, o orders, network int) error {
	var rights []byte
	if o.Network = network >= 0; o.Network {
		rights = unix.UnixRights(network)
	}
	line, err := Encode(&o)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if err := unix.Sendmsg(int(first.Fd()), append(line, '\n'), rights, nil, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("the first process of the sandbox has ended: %w", err)
	}
	said, _ := bufio.NewReader(first).ReadString('\n') // the connection is closed on exec
	if said != "" {
		return errors.New(strings.TrimSpace(said))
	}
	return nil
}

// first is the first process. It returns only if it does not become bwrap.
func first(args []string) error {
	runtime.LockOSThread() // the death signal and the hardening are those of the thread that execs
	number, err := strconv.Atoi(args[0])
	if len(args) != 1 || err != nil || os.Getpid() != 1 {
		return hidden.ErrOwnUse
	}
	// From here on it dies with the set-up program. One that has died before sends
	// no orders.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	unix.CloseOnExec(number)
	setup := os.NewFile(uintptr(number), "setup")
	line, files, err := receiveLine(number)
	var o orders
	if err != nil || Decode(line, &o) != nil {
		return hidden.Status(failedStatus)
	}
	if o.Network {
		if len(files) != 1 || unix.Setns(files[0], unix.CLONE_NEWNET) != nil { // this thread is the one that execs
			_, _ = fmt.Fprintln(setup, "cannot enter the network of the sandbox")
			return hidden.Status(failedStatus)
		}
	}
	_, _ = fmt.Fprintln(setup, o.become())
	return hidden.Status(failedStatus)
}

func (o orders) become() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount proc: %w", err)
	}
	for _, l := range o.Rlimits {
		if err := l.Lower(); err != nil {
			return err
		}
	}
	if err := harden(o.Filter); err != nil {
		return err
	}
	path := o.Path
	if o.FD > 0 {
		unix.CloseOnExec(o.FD)
		path = fdPath(o.FD)
	}
	return fmt.Errorf("cannot start bwrap %q: %w", o.Path, syscall.Exec(path, o.Argv, o.Env))
}
