package monitor

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"pikuri/lib/setup"
)

// passedOn are the signals that the monitor passes on from its caller to the command.
// SIGINT and SIGHUP stay ignored if the caller ignores them, as with nohup(1); of others Go does not tell.
var passedOn = []syscall.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGABRT, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
	unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH,
}

// Foreground runs a sandbox in the place of the calling process: signals and the
// terminal's keys reach the command, and the streams have their flags and modes
// back in the end.
type Foreground struct {
	streams  [3]*os.File
	saved    []savedStream
	signals  chan os.Signal
	listens  chan struct{} // closed when it does
	screen   *screen       // the command has a terminal of its own; or nil
	terminal setup.Terminal
	free     bool // no session has the caller's terminal: a program holds its other side
	sent     syscall.Signal

	stopping sync.Mutex // held while this process and the command are stopped
}

// NewForeground notes the state of the streams, and begins to ask for the signals. That
// takes as long as it takes to start a sandbox (Ready): the Go runtime hands each one to another
// thread. But SIGTSTP before that would stop this process and not the command.
func NewForeground(streams [3]*os.File) *Foreground {
	f := &Foreground{streams: streams, signals: make(chan os.Signal, 16), listens: make(chan struct{})}
	for _, s := range streams {
		f.saved = append(f.saved, saveStream(s))
	}
	f.listen(unix.SIGTSTP)
	go func() {
		defer close(f.listens)
		for _, sig := range passedOn {
			f.listen(sig)
		}
	}()
	return f
}

// Ready is closed when all signals are asked for, for Config. Until then they end this process.
func (f *Foreground) Ready() <-chan struct{} { return f.listens }

func (f *Foreground) listen(sig syscall.Signal) {
	if !signal.Ignored(sig) {
		Listen(f.signals, sig)
	}
}

// The runtime drops some signals without a listener, and ends the program with a trace at others.
var (
	traced  = []syscall.Signal{unix.SIGQUIT, unix.SIGABRT, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
	actions sync.Map // of the runtime, by signal: struct sigaction of the kernel
)

// DefaultSignals has signals end this process, as they would end any, until Listen. It is for the beginning of a program.
func DefaultSignals() {
	for _, sig := range traced {
		old := new([4]uint64)
		setAction(sig, &[4]uint64{byDefault}, old)
		actions.Store(sig, old)
	}
}

// Listen is signal.Notify, also after DefaultSignals.
func Listen(c chan<- os.Signal, list ...os.Signal) {
	signal.Notify(c, list...)
	for _, sig := range list {
		if action, is := actions.LoadAndDelete(sig); is {
			setAction(sig.(syscall.Signal), action.(*[4]uint64), nil)
		}
	}
}

// Terminal lists the streams that are terminals, for which the command gets a terminal of its own. In the
// foreground it gets the caller's instead if not both standard input and output are there, as in "pk-bwrap -- CMD | less":
// programs read it or not, as without pk-bwrap. In the background it must not, and from another session
// nothing would prevent that; nor may a command of another user (apart) hold it.
func (f *Foreground) Terminal(apart bool) setup.Terminal {
	var list []int
	background := false
	for fd, s := range f.streams {
		if s != nil && isTerminal(s) {
			list = append(list, fd)
			background = background || !mayChange(numberOf(s))
		}
	}
	if apart || background || len(list) > 1 && list[0] == 0 && list[1] == 1 {
		f.terminal.Streams = list
	}
	if list = f.terminal.Streams; len(list) > 0 {
		caller := numberOf(f.streams[list[0]])
		f.free = list[0] == 0 && isFree(caller)
		if size, err := unix.IoctlGetWinsize(caller, unix.TIOCGWINSZ); err == nil {
			f.terminal.Size = size
		}
		modes, err := unix.IoctlGetTermios(caller, unix.TCGETS)
		if err != nil { // it has gone
			return f.terminal
		}
		f.terminal.Modes = modes
		if ours := !background && f.saved[list[0]].modes != nil; !ours {
			takeLines(modes)
		}
	}
	return f.terminal
}

// takeLines undoes the modes that a shell, or a screen, sets to read keys.
func takeLines(m *unix.Termios) {
	m.Iflag |= unix.ICRNL
	m.Oflag |= unix.OPOST | unix.ONLCR
	m.Lflag |= unix.ICANON | unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ISIG | unix.IEXTEN
}

func isTerminal(f *os.File) bool { return isTerminalFD(numberOf(f)) }

func isTerminalFD(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// Run stays with the sandbox to its end. It returns the command's exit status,
// and the signal that ended it if the caller sent that to this process, or typed its key; 0
// stands for none. ran says whether the command was started.
func (f *Foreground) Run(s *Sandbox) (status int, death syscall.Signal, ran bool) {
	<-f.listens // then no change of the terminal is missed
	if s.master != nil {
		f.screen = newScreen(s, f, func() { f.suspend(s, true) }, func() { f.follow(s) })
		defer func() { f.screen.close(f.signals, f.sent) }() // here, while the sandbox's terminal is open
	}
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				return 128 + int(unix.SIGKILL), 0, true
			}
			if e.Kind == Exited {
				if status, ran = e.Status.ExitStatus(), e.Ran; e.Status.Signaled() {
					status = 128 + int(e.Status.Signal())
				}
				continue
			}
			for _, sig := range []syscall.Signal{f.sent, f.typed()} {
				if sig != 0 && status == 128+int(sig) {
					death = sig
				}
			}
			return status, death, ran || f.sent != 0
		case sig := <-f.signals:
			f.pass(s, sig.(syscall.Signal))
		}
	}
}

// typed is the last signal whose key was typed at the command's own terminal, or 0.
func (f *Foreground) typed() syscall.Signal {
	if f.screen == nil {
		return 0
	}
	return syscall.Signal(f.screen.typed.Load())
}

func (f *Foreground) pass(s *Sandbox, sig syscall.Signal) {
	switch sig {
	case unix.SIGWINCH:
		if f.screen != nil {
			f.screen.resize()
		}
	case unix.SIGTSTP:
		f.suspend(s, false)
	case unix.SIGCONT:
		if f.screen != nil {
			f.screen.resume()
		}
		s.Signal(sig)
	default:
		f.sent = sig
		s.Signal(sig)
	}
}

// suspend stops the command, and then this process; for a key with those around it, as the terminal
// would have done. SIGTSTP would not stop a process group that is orphaned.
func (f *Foreground) suspend(s *Sandbox, typed bool) {
	f.stopping.Lock()
	defer f.stopping.Unlock()
	f.stop(s, typed)
}

// follow stops this process if the command has stopped itself.
func (f *Foreground) follow(s *Sandbox) {
	f.stopping.Lock()
	defer f.stopping.Unlock()
	if s.stopped() {
		f.stop(s, false)
	}
}

func (f *Foreground) stop(s *Sandbox, typed bool) {
	stopAfter(func() {
		s.Stop()
		if f.screen != nil {
			f.screen.suspend()
		}
		if typed { // also the script or make around, as the terminal does for a key
			_ = unix.Kill(0, unix.SIGTSTP)
		}
	})
	if f.screen != nil {
		f.screen.resume()
	}
	s.Signal(unix.SIGCONT)
}

// raise has a signal's default effect on this process. signal.Reset does not: the
// runtime keeps its handler, which ignores SIGTSTP and SIGUSR1.
func raise(sig syscall.Signal) {
	// A signal to this thread takes effect before the call returns.
	withAction(sig, byDefault, func() { _ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig) })
}

// stopAfter stops this process as SIGTSTP does, once prepare has run. A SIGCONT that comes meanwhile takes that back, as
// the kernel takes back a signal that waits: a shell continues the whole group when the first of it has stopped.
func stopAfter(prepare func()) {
	withAction(unix.SIGTSTP, byDefault, func() {
		stop, old := unix.Sigset_t{}, unix.Sigset_t{}
		stop.Val[0] = 1 << (unix.SIGTSTP - 1)
		_ = unix.PthreadSigmask(unix.SIG_BLOCK, &stop, &old)
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
		prepare()
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	})
}

// signalOthers sends a signal to the other processes of this process's group: to the script or make around it, as
// the terminal does for a key.
func signalOthers(sig syscall.Signal) {
	withAction(sig, ignore, func() { _ = unix.Kill(0, sig) })
}

// Values of SIG_DFL and SIG_IGN.
const byDefault, ignore = 0, 1

// withAction calls fn while a signal has an action.
func withAction(sig syscall.Signal, action uint64, fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now, old := [4]uint64{action}, [4]uint64{}
	setAction(sig, &now, &old)
	fn()
	setAction(sig, &old, nil)
}

// setAction sets a struct sigaction of the kernel.
func setAction(sig syscall.Signal, action, old *[4]uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// Suspend stops a command and this process, as the suspend key does, and continues the command when this process
// is continued.
func Suspend(r Running) {
	stopAfter(r.Stop)
	r.Signal(unix.SIGCONT)
}

// Stop stops every process of the command, those too that are forked meanwhile, until SIGCONT.
func (s *Sandbox) Stop() {
	stopped := map[int]bool{}
	for again := true; again; {
		again = false
		for _, p := range s.inside() {
			if !stopped[p.pid] {
				p.send(unix.SIGSTOP)
				stopped[p.pid], again = true, true
			}
		}
	}
}

// stopped reports whether the process that was started as the command is stopped. A shell
// asks for no more of a job: init's first child.
func (s *Sandbox) stopped() bool {
	kids := family()
	for _, init := range kids(s.bwrap) {
		if inside := kids(init); len(inside) > 0 {
			stat := statOf(inside[0])
			return len(stat) > 0 && stat[0] == "T"
		}
	}
	return false
}

// Close gives the streams their flags and modes back, and stops listening to
// signals, soon: the caller goes on meanwhile.
func (f *Foreground) Close() {
	go func() {
		<-f.listens
		signal.Stop(f.signals)
	}()
	for _, s := range f.saved {
		s.restore()
	}
}

// Die ends this process by a signal, as the command was ended. It returns if the
// signal does not end it.
func Die(sig syscall.Signal) {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // the core would be this process's
	raise(sig)
}

// savedStream is the state of a stream that a command can change: it belongs to
// the open file, which the caller shares.
type savedStream struct {
	fd     int
	flags  int
	modes  *unix.Termios // nil: it is not a terminal, or not ours
	alone  int           // no process may open it (TIOCEXCL)
	perm   uint32        // of the device
	broken bool
}

func saveStream(f *os.File) savedStream {
	s := savedStream{broken: f == nil}
	if s.broken {
		return s
	}
	s.fd = numberOf(f)
	var err error
	s.flags, err = unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0)
	s.broken = err != nil
	if !isTerminal(f) {
		return s
	}
	var st unix.Stat_t
	if unix.Fstat(s.fd, &st) == nil {
		s.perm = st.Mode
	}
	lock, ours := claim(s.fd)
	defer unix.Close(lock)
	if modes, err := unix.IoctlGetTermios(s.fd, unix.TCGETS); ours && err == nil {
		s.modes = modes
		s.alone, _ = unix.IoctlGetInt(s.fd, unix.TIOCGEXCL)
	}
	return s
}

// claim takes a terminal for as long as lock is open. It is not ours if another monitor has it in raw mode: its modes
// are not the caller's then. A terminal that cannot be opened again has no lock (-1).
func claim(terminal int) (lock int, ours bool) {
	const ptys = 136 // the first major number of pseudo-terminals (devices.txt of the kernel)
	path := fmt.Sprintf("/proc/self/fd/%d", terminal)
	if dev, err := unix.IoctlGetUint32(terminal, unix.TIOCGDEV); err == nil && unix.Major(uint64(dev)) == ptys {
		path = fmt.Sprintf("/dev/pts/%d", unix.Minor(uint64(dev))) // terminal may be /dev/tty
	}
	lock, err := unix.Open(path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil || !isTerminalFD(lock) {
		unix.Close(lock)
		return -1, true
	}
	if unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		unix.Close(lock)
		return -1, false
	}
	return lock, true
}

// restore changes nothing that is as it was: a process in the background would be
// stopped for setting the modes of a terminal. The size stays: the user may have changed it
// meanwhile.
func (s savedStream) restore() {
	if s.broken {
		return
	}
	if flags, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0); err == nil && flags != s.flags {
		_, _ = unix.FcntlInt(uintptr(s.fd), unix.F_SETFL, s.flags)
	}
	var st unix.Stat_t
	if s.perm != 0 && unix.Fstat(s.fd, &st) == nil && st.Mode != s.perm {
		_ = unix.Fchmod(s.fd, s.perm&0o7777) // else other users may read and write it
	}
	if s.modes == nil {
		return
	}
	if now, err := unix.IoctlGetInt(s.fd, unix.TIOCGEXCL); err == nil && now != 0 && s.alone == 0 {
		_ = unix.IoctlSetInt(s.fd, unix.TIOCNXCL, 0)
	}
	if mayChange(s.fd) {
		_ = unix.IoctlSetInt(s.fd, unix.TCXONC, tcoon) // the command may have stopped its output
	}
	lock, ours := claim(s.fd)
	defer unix.Close(lock)
	if now, err := unix.IoctlGetTermios(s.fd, unix.TCGETS); err == nil && *now != *s.modes && mayChange(s.fd) && ours {
		_ = unix.IoctlSetTermios(s.fd, unix.TCSETSW, s.modes)
	}
}

// tcoon continues the output of a terminal (TCOON of termbits.h).
const tcoon = 1

// inForeground reports whether this process may read from its terminal.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// isFree reports whether a terminal is the controlling one of no process. setsid(1) leaves it to
// the processes of the caller's session.
func isFree(fd int) bool {
	if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != unix.ENOTTY {
		return false // it is this process's own
	}
	device, err := unix.IoctlGetUint32(fd, unix.TIOCGDEV)
	here := mountsOf("self")
	return err == nil && !slices.ContainsFunc(everyone(), func(pid int) bool {
		const terminal = 4 // tty_nr of proc_pid_stat(5)
		stat := statOf(pid)
		if len(stat) <= terminal {
			return false
		}
		number, err := strconv.Atoi(stat[terminal])
		return err == nil && uint32(number) == device && mountsOf(strconv.Itoa(pid)) == here // elsewhere, one of that number is another
	})
}

// mountsOf names the mount namespace of a process.
func mountsOf(pid string) string {
	name, _ := os.Readlink("/proc/" + pid + "/ns/mnt")
	return name
}

// mayChange reports whether this process may set the modes of a terminal: it is in the
// foreground, or another session has the terminal.
func mayChange(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == unix.ENOTTY || inForeground(fd)
}
