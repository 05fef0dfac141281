package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"pikuri/lib/keyring"
	"pikuri/lib/landlock"
)

// The first process of the sandbox's PID namespace mounts the /proc of that
// namespace, by which bwrap finds its child, and becomes bwrap. syscall.ForkExec has
// no place for a mount, and a Go program that mounts and execs costs as much as bwrap
// itself. So it is a copy of this process that runs no Go: it makes a list of system
// calls, the last of which is execve.

// call is a system call of the first process.
type call struct {
	number uintptr
	args   [6]uintptr
	fails  bool   // it may fail
	some   bool   // 0 is a failure
	what   string // it does, for people
}

// first is a first process that is being prepared.
type first struct {
	calls   []call
	pins    runtime.Pinner // memory of the arguments of calls
	control *os.File
	said    said // the other end
	ruleset int  // of Landlock, or -1
}

// said is a socket in the first process: its number, and that from a call on.
type said struct{ fd, from, then int }

func (f *first) do(what string, number uintptr, args ...uintptr) *call {
	c := call{number: number, what: what}
	copy(c.args[:], args)
	f.calls = append(f.calls, c)
	return &f.calls[len(f.calls)-1]
}

func (f *first) text(s string) (uintptr, error) {
	p, err := unix.BytePtrFromString(s)
	return pinned(f, p), err
}

// texts is a list of strings that ends in a null pointer.
func (f *first) texts(list []string) (uintptr, error) {
	p, err := syscall.SlicePtrFromStrings(list)
	return pinned(f, unsafe.SliceData(p)), err
}

// pinned is the address of *p, which does not move before close.
func pinned[T any](f *first, p *T) uintptr {
	if p != nil {
		f.pins.Pin(p)
	}
	return uintptr(unsafe.Pointer(p))
}

func (f *first) close() {
	f.pins.Unpin()
	f.control.Close()
	if f.ruleset >= 0 {
		unix.Close(f.ruleset)
	}
}

// startFirst starts the first process with the files of the sandbox, in a network
// namespace unless that is -1. It mounts its /proc at a directory, and becomes a bwrap
// that waits for its options.
func (r *run) startFirst(files []uintptr, argv []string, proc string, network int) (*first, error) {
	// The thread's keyring is the child's. The filter of the sandbox refuses the calls
	// that use one; a user may own 200 keyrings.
	if err := keyring.JoinAnonymousSession(); err != nil && r.job.Filter == nil {
		return nil, fmt.Errorf("cannot leave the caller's session keyring: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	defer unix.Close(pair[1])
	f := &first{control: os.NewFile(uintptr(pair[0]), "first"), said: said{fd: pair[1]}, ruleset: -1}
	mask, err := r.prepare(f, files, argv, proc, network, pair)
	if err == nil {
		r.pid, r.pidfd, err = f.fork(mask, r.job.FDs.Cgroup)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("cannot start the first process of the sandbox: %w", err)
	}
	return f, nil
}

// become returns when the first process has become bwrap.
func (f *first) become() error {
	failed, _ := io.ReadAll(f.control) // until exec closes the other end
	if len(failed) > 1 {
		return fmt.Errorf("cannot %s: %w", f.calls[failed[0]].what, syscall.Errno(failed[1]))
	}
	return nil
}

// prepare lists the steps of the first process. mask is the signal mask that it has in
// the end.
func (r *run) prepare(f *first, files []uintptr, argv []string, proc string, network int, pair [2]int) (mask *unix.Sigset_t, err error) {
	f.do("die with its parent", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	f.do("close a socket", unix.SYS_CLOSE, uintptr(pair[0]))
	// A parent that has died before sends no signal. Its end of the socket is closed then.
	alive := f.do("find its parent", unix.SYS_RECVFROM, uintptr(pair[1]), pinned(f, new(byte)), 1, unix.MSG_DONTWAIT)
	alive.some, alive.fails = true, true // EAGAIN
	if network >= 0 {
		f.do("enter the network", unix.SYS_SETNS, uintptr(network), unix.CLONE_NEWNET)
	}
	f.ruleset, err = landlock.Scopes()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, fmt.Errorf("cannot close abstract sockets: %w", err)
	}
	ruleset, bwrap := f.ruleset, r.job.FDs.Program
	f.said.from, f.said.then = len(f.calls)+1, pair[1]
	f.place(files, &f.said.then, &ruleset, &bwrap)
	if streams := r.job.Terminal.Streams; len(streams) > 0 {
		if r.job.Suspends {
			self := int32(1) // in its PID namespace
			f.do("lead a process group", unix.SYS_SETPGID, 0, 0)
			f.do("take the terminal's foreground", unix.SYS_IOCTL, uintptr(streams[0]), unix.TIOCSPGRP, pinned(f, &self))
		} else {
			f.do("start a session", unix.SYS_SETSID)
			f.do("take its terminal", unix.SYS_IOCTL, uintptr(streams[0]), unix.TIOCSCTTY, 1)
		}
	}
	if err := f.mountProc(proc); err != nil {
		return nil, err
	}
	limits := append([]Rlimit{openFiles()}, r.job.Rlimits...)
	for _, l := range limits {
		limit, err := l.lowered()
		if err != nil {
			return nil, err
		}
		f.do("set a limit", unix.SYS_PRLIMIT64, 0, uintptr(l.Resource), pinned(f, limit))
	}
	f.harden(ruleset)
	path := r.job.Program
	if bwrap > 0 {
		path = fdPath(bwrap)
	}
	program, err := f.text(path)
	if err != nil {
		return nil, err
	}
	words, err := f.texts(argv)
	if err != nil {
		return nil, err
	}
	env, err := f.texts(r.job.Env)
	if err != nil {
		return nil, err
	}
	mask = new(unix.Sigset_t)
	f.do("get signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, pinned(f, mask), 0, sigsetSize)
	f.do(fmt.Sprintf("start bwrap %q", r.job.Program), unix.SYS_EXECVE, program, words, env)
	return mask, nil
}

// openFiles is the limit on open files with which this process began. The Go library
// raises it, and gives the old one back in Exec, which fails here.
func openFiles() Rlimit {
	var raised, began unix.Rlimit
	_ = unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &raised)
	_ = syscall.Exec("", nil, nil)
	_ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &raised, &began)
	return Rlimit{Resource: unix.RLIMIT_NOFILE, Soft: began.Cur, Hard: began.Max}
}

// sigsetSize is the size of the kernel's sigset_t.
const sigsetSize = 8

// place puts the files at their numbers, and returns new numbers of those that stay, which
// may be in the way. It copies all of them to free numbers before. The first process alone
// makes the copies: in a process with several threads, such as this, the kernel takes
// milliseconds to enlarge the table of files.
func (f *first) place(files []uintptr, stay ...*int) {
	taken := map[uintptr]bool{}
	for at, fd := range files {
		if fd != closed {
			taken[fd], taken[uintptr(at)] = true, true
		}
	}
	for _, fd := range stay {
		taken[uintptr(*fd)] = true
	}
	free := uintptr(2)
	copied := func(fd uintptr) uintptr { // all above standard error are closed on exec
		for free++; taken[free]; free++ {
		}
		f.do("copy a file", unix.SYS_DUP3, fd, free, unix.O_CLOEXEC)
		return free
	}
	for _, fd := range stay {
		if *fd > 0 {
			*fd = int(copied(uintptr(*fd)))
		}
	}
	copies := slices.Clone(files)
	for at, fd := range files {
		if fd != closed {
			copies[at] = copied(fd)
		}
	}
	for at, fd := range copies {
		if fd != closed {
			f.do("hand on a file", unix.SYS_DUP3, fd, uintptr(at), 0)
		}
	}
}

func (f *first) mountProc(dir string) error {
	kind, err := f.text("proc")
	if err != nil {
		return err
	}
	at, err := f.text(dir)
	if err != nil {
		return err
	}
	f.do("mount proc", unix.SYS_MOUNT, kind, at, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	return nil
}

// harden gives up access that no namespace takes away: abstract sockets made outside,
// signals to processes outside, ambient capabilities (bwrap refuses to start with them).
//
// A kernel before 6.12 cannot close abstract sockets; callers that depend on it say so
// with --require.
func (f *first) harden(ruleset int) {
	if ruleset >= 0 {
		f.do("give up new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
		f.do("close abstract sockets", unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0)
	}
	f.do("", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL).fails = true // it fails if there are none
}

// fork starts the first process, in a PID namespace of its own. Signals are blocked
// meanwhile: their handlers are Go's, which the child cannot run.
func (f *first) fork(mask *unix.Sigset_t, cgroup int) (pid, pidfd int, err error) {
	got := int32(-1)
	a := &cloneArgs{flags: unix.CLONE_NEWPID | unix.CLONE_PIDFD, pidfd: uint64(pinned(f, &got)), exitSignal: uint64(unix.SIGCHLD)}
	if cgroup > 0 {
		a.flags |= unix.CLONE_INTO_CGROUP
		a.cgroup = uint64(cgroup)
	}
	all := ^uint64(0)
	syscall.ForkLock.Lock()
	runtime.LockOSThread()
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(mask)), sigsetSize, 0, 0)
	child, errno := forkAndCall(a, f.calls, f.said)
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), 0, sigsetSize, 0, 0)
	runtime.UnlockOSThread()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return 0, -1, errno
	}
	return int(child), int(got), nil
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// forkAndCall forks. The child makes the calls; it has one thread, and neither grows
// its stack nor allocates. It exits when a call fails.
//
//go:norace
//go:nosplit
func forkAndCall(a *cloneArgs, calls []call, said said) (child uintptr, errno syscall.Errno) {
	if a.cgroup == 0 {
		// Filters of containers refuse clone3, since they cannot see its flags.
		flags, stack := uintptr(a.flags|a.exitSignal), uintptr(0)
		if runtime.GOARCH == "s390x" { // the order of arguments is another
			flags, stack = stack, flags
		}
		child, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, flags, stack, uintptr(a.pidfd), 0, 0, 0)
	} else {
		child, _, errno = syscall.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a), 0, 0, 0, 0)
	}
	if errno != 0 || child != 0 {
		return child, errno
	}
	for i := range calls {
		c := &calls[i]
		n, _, errno := syscall.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		if errno != 0 && !c.fails || n == 0 && c.some {
			failed := [2]byte{byte(i), byte(errno)} // no more than 255 either
			if i >= said.from {
				said.fd = said.then
			}
			_, _, _ = syscall.RawSyscall6(syscall.SYS_WRITE, uintptr(said.fd), uintptr(unsafe.Pointer(&failed)), 2, 0, 0, 0)
			break
		}
	}
	for {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, failedStatus, 0, 0, 0, 0, 0)
	}
}
