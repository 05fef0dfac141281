// Package monitor starts a command and stays with it to its end: a planned
// sandbox (Start), or a command without one (StartUnfenced).
//
// The calling process is the monitor. With Start, its child is the set-up program
// (lib/setup), whose child is bwrap; with StartUnfenced it is a guard. The set-up
// program ends when the last process of the sandbox has ended; it ends the sandbox
// when the monitor is killed, and the kernel ends it when the set-up program is
// killed. So nothing outlives any of the three, and several sandboxes may run in
// one process.
package monitor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/wire"
	"pikuri/lib/setup"
)

// Config is a sandbox to start.
type Config struct {
	Plan  *bwrap.Plan
	Bwrap bwrap.Binary
	Argv  []string

	Streams  [3]*os.File // standard input, output and error; nil means /dev/null
	Terminal setup.Terminal
	Suspends bool       // there, the command may stop itself; not if Ahead keeps its program
	Files    []Placed   // further files of the command
	Cgroup   *os.File   // directory of the cgroup to run in; nil: the caller's
	Held     []*os.File // locked files, kept open until the sandbox has ended
	Note     *os.File   // the locked note of the journal, kept open as well; or nil
	Session  *os.File   // directory of the session whose commands share the network; nil: it is not shared
	Told     *os.File   // where the content of Plan.Vanishing goes; or nil
	Failed   *os.File   // where the command's failed system calls go, for a Plan with bwrap.Options.Trace; or nil
	Report   *os.File   // receives the gate's records of connections; or nil
	Keeper   *Keeper    // of the session whose overlays the plan shows; or nil
	Ahead    *Ahead     // where a set-up program may have been started before; or nil

	// Ready is closed when the command may begin; nil: at once.
	Ready <-chan struct{}

	// Started, if it is not nil, is called once the sandbox is made. root is where
	// this process sees the sandbox's root directory, but not in a session.
	Started func(root string)

	// After is the work of this process after the end of the sandbox, or nil.
	After *After

	// Rejoin returns the keeper that took the place of a keeper that has ended. Without
	// it Start fails with ErrKeeperEnded.
	Rejoin func() (*Keeper, error)
}

// Placed is a file, and the number at which the command has it.
type Placed struct {
	At   int
	File *os.File
}

// Keeper is the process that holds the namespaces of a session.
type Keeper struct {
	Pid         int
	User, Mount *os.File
	Lock        *os.File // its locked file
}

// Event tells of a command. Exited comes first, then Done. A channel that is closed
// without Done means that the set-up program or the guard was killed.
type Event struct {
	Kind     Kind
	Status   syscall.WaitStatus // Exited
	Ran      bool               // Exited: the command was started
	Early    bool               // Exited: a signal that came before the command had begun ended the sandbox
	Ended    int                // Done: processes that had to be ended
	Commands []string           // Done: their command lines, as far as they were seen
	Left     int                // Done: processes that could not be ended
	Usage    syscall.Rusage     // Done: of all processes, except those that bwrap ended with itself
}

// Kind is a kind of Event.
type Kind string

// The kinds.
const (
	Exited Kind = "exited" // the command has ended
	Done   Kind = "done"   // all that it started has ended
)

// ErrKeeperEnded says that the session's keeper was killed before the sandbox
// was made. The session can be joined again.
var ErrKeeperEnded = errors.New("the keeper of the session has been killed meanwhile")

// Running is a command that was started.
type Running interface {
	Events() <-chan Event
	Signal(syscall.Signal)
	Stop()    // stops all processes of the command, until SIGCONT
	Abandon() // ends the process between, if the command does not end when killed
	Close()   // ends the command, if it still runs, and waits for its end
}

// Sandbox is a command in its sandbox.
type Sandbox struct {
	*program
	kept    bool     // the program makes other sandboxes, too
	control *os.File // its own socket
	events  chan Event
	mu      sync.Mutex
	over    bool           // the last event has come
	early   syscall.Signal // came before the command, and ended the sandbox; or 0
	bwrap   int            // process IDs
	pidfd   int
	root    string
	master  *os.File // of the sandbox's own terminal
	status  *os.File
}

// Start starts a sandbox. It closes the mount namespace of the Keeper. The other
// files of c stay the caller's, and can be closed when it returns. The error matches
// *bwrap.Unavailable if this machine does not allow a sandbox.
func Start(c Config) (*Sandbox, error) {
	for limit := time.Now().Add(rejoinTime); ; {
		s, err := start(c)
		if !errors.Is(err, ErrKeeperEnded) || c.Rejoin == nil || time.Now().After(limit) {
			return s, err
		}
		if c.Keeper, err = c.Rejoin(); err != nil {
			return nil, err
		}
	}
}

// rejoinTime bounds the attempts to start a sandbox while keepers are killed.
const rejoinTime = 30 * time.Second

func start(c Config) (*Sandbox, error) {
	l := &launch{Config: c}
	defer l.close()
	if err := l.prepare(); err != nil {
		return nil, err
	}
	ahead := c.Ahead
	if ahead == nil {
		ahead = new(Ahead)
	}
	p, kept, err := ahead.take(c.Keeper, c.Plan.Gate != nil && c.Session == nil)
	if err != nil {
		return nil, err
	}
	if c.Ready != nil {
		<-c.Ready
	}
	if fewProcesses() {
		spareThreads()
	}
	s := &Sandbox{program: p, kept: kept, status: l.status}
	if err := s.handOver(l); err != nil {
		if !kept {
			p.dismiss()
		}
		if err = s.explain(err); !errors.Is(err, ErrKeeperEnded) {
			err = cmp.Or(bwrap.CheckHost(c.Bwrap, c.Plan.Net), err)
		}
		return nil, err
	}
	l.status = nil
	if k := c.Keeper; k != nil {
		// A descriptor of a mount namespace keeps it, and the overlays in it, alive.
		k.Mount.Close()
	}
	s.events = make(chan Event, 2)
	go s.watch(c.After.add(s))
	time.AfterFunc(spareAfter, spareThreads)
	if c.Started != nil {
		c.Started(fmt.Sprintf("/proc/%d/root%s", p.pid, s.root))
	}
	return s, nil
}

// fewProcesses reports whether a command could take all processes that RLIMIT_NPROC allows at once.
func fewProcesses() bool {
	const few = 4096
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil && limit.Cur < few
}

// spareAfter is when a command may have taken those that a cgroup allows, at the soonest.
const spareAfter = 20 * time.Millisecond

// spareThreads has the runtime make threads, which it keeps: more than this process needs to land and to report. The
// runtime ends a program that can get none.
var spareThreads = sync.OnceFunc(func() {
	const threads = 16
	var made sync.WaitGroup
	made.Add(threads)
	for range threads {
		go func() {
			runtime.LockOSThread() // each on one of its own
			defer runtime.UnlockOSThread()
			made.Done()
			made.Wait()
		}()
	}
	made.Wait()
})

// launch is the state of Start.
type launch struct {
	Config
	job     *setup.Job
	files   []*os.File // that go with the job
	closing []*os.File // once they have gone
	status  *os.File
}

func (l *launch) close() {
	for _, f := range l.closing {
		f.Close()
	}
	if l.status != nil {
		l.status.Close()
	}
}

// give sends a file with the job and returns its place there, from 1 on.
func (l *launch) give(f *os.File) int {
	l.files = append(l.files, f)
	return len(l.files)
}

func (l *launch) own(f *os.File) *os.File {
	l.closing = append(l.closing, f)
	return f
}

func (l *launch) prepare() (err error) {
	l.Plan.Terminal = len(l.Terminal.Streams) > 0
	if l.job, err = l.Plan.Job(l.Bwrap, l.Argv); err != nil {
		return err
	}
	l.job.Terminal, l.job.Suspends = l.Terminal, l.Suspends && l.Plan.Terminal
	if err := l.passFiles(); err != nil {
		return err
	}
	fd, err := fsat.Memfd("pk-status", nil)
	if err != nil {
		return fmt.Errorf("cannot make a file: %w", err)
	}
	l.status = os.NewFile(uintptr(fd), "status")
	d := &l.job.FDs
	d.Status = l.give(l.status)
	program, err := l.Bwrap.Copy()
	if err != nil {
		return err
	}
	if program != nil {
		d.Program = l.give(l.own(program))
	}
	if l.Cgroup != nil {
		d.Cgroup = l.give(l.Cgroup)
	}
	for _, f := range l.Held {
		d.Held = append(d.Held, l.give(f))
	}
	if l.Told != nil {
		d.Told, l.job.Told = l.give(l.Told), l.Plan.Vanishing()
	}
	if l.Failed != nil {
		d.Failed = l.give(l.Failed)
	}
	if l.Note != nil {
		d.Note = l.give(l.Note)
	}
	if l.job.Net != nil {
		if l.Session != nil {
			d.Session = l.give(l.Session)
		}
		if l.Report != nil {
			d.Report = l.give(l.Report)
		}
	}
	if k := l.Keeper; k != nil {
		d.Mounts, d.KeeperLock, l.job.Keeper = l.give(k.Mount), l.give(k.Lock), k.Pid
	}
	return nil
}

// passFiles passes the streams and the files of the command on.
func (l *launch) passFiles() error {
	d := &l.job.FDs
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.own(null)
	for at, f := range l.Streams {
		if f == nil || slices.Contains(l.Terminal.Streams, at) {
			f = null // the caller's terminal stays with this process
		}
		d.Passed = append(d.Passed, setup.Placed{FD: l.give(f), At: at})
	}
	for _, p := range l.Files {
		d.Passed = append(d.Passed, setup.Placed{FD: l.give(p.File), At: p.At})
	}
	for _, fd := range l.Plan.PassFDs {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fmt.Errorf("cannot hand on descriptor %d: %w", fd, err)
		}
		d.Passed = append(d.Passed, setup.Placed{FD: l.give(l.own(os.NewFile(uintptr(copied), "passed"))), At: fd})
	}
	return nil
}

// handOver sends the job and takes the answer.
func (s *Sandbox) handOver(l *launch) (err error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	defer func() {
		if err != nil {
			ours.Close()
		}
	}()
	l.job.FDs.Control = l.give(theirs)
	text, err := wire.Message(l.job)
	if err != nil {
		return err
	}
	var rights []int
	for _, f := range l.files {
		rights = append(rights, int(f.Fd()))
	}
	// The answer says more about a set-up program that has ended meanwhile.
	s.sending.Lock()
	err = send(s.program.control, text, unix.UnixRights(rights...))
	s.sending.Unlock()
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("cannot hand over the sandbox with its %d files: %w", len(l.files), err)
	}
	theirs.Close()
	s.control = ours
	answer, master, err := receive(s.control)
	if err != nil {
		return err
	}
	s.master = master
	switch {
	case answer.Again:
		return ErrKeeperEnded
	case answer.Error != "":
		return &bwrap.Refusal{Reason: "cannot make a sandbox: " + answer.Error, Advice: cmp.Or(answer.Hint, bwrap.DeniedCall(answer.Error))}
	}
	s.bwrap, s.root = answer.Pid, answer.Root
	s.pidfd, _ = unix.PidfdOpen(s.bwrap, 0) // -1: it has ended, or Linux is older than 5.3
	return nil
}

// explain replaces the loss of the set-up program by the message that it, or
// unshare(1), wrote to standard error.
func (s *Sandbox) explain(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	sound := s.kept && s.alive()
	if !sound {
		e, err := s.wait()
		if err == nil && e.status.Signaled() {
			return &bwrap.Unavailable{
				Reason: fmt.Sprintf("cannot make a sandbox: the set-up program was killed by signal %d (%s)", e.status.Signal(), unix.SignalName(e.status.Signal())),
				Advice: "try again; if memory is short, the kernel kills, and dmesg tells",
			}
		}
		sound = err == nil && e.status == 0
	}
	if sound { // it could not take all files
		return &bwrap.Refusal{Reason: "cannot make a sandbox: the set-up program has too many open files", Advice: fsat.MoreFiles()}
	}
	return bwrap.Diagnose(s.said.text())
}

// Events tells of the command.
func (s *Sandbox) Events() <-chan Event { return s.events }

// watch waits for the end of the sandbox, and then for that of the set-up program.
func (s *Sandbox) watch(gone func()) {
	var e setup.Ended
	killed := wire.Read(s.control, &e) != nil
	status, usage := syscall.WaitStatus(e.Status<<8), e.Usage
	var err error
	if killed {
		var end exit
		end, err = s.wait()
		status, usage = end.status, end.usage
		s.awaitBwrap()
	}
	s.mu.Lock()
	early := s.early != 0 && (status.Signal() == unix.SIGKILL || status.ExitStatus() == 128+int(unix.SIGKILL))
	if early {
		status = syscall.WaitStatus(s.early)
	}
	s.mu.Unlock()
	if err == nil {
		// A bwrap that was killed reports nothing. One that fails exits with 1.
		ran := reported(s.status) || status.Signaled() || status.ExitStatus() > 128
		s.events <- Event{Kind: Exited, Status: status, Ran: ran, Early: early}
		s.events <- Event{Kind: Done, Usage: usage}
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	close(s.events)
	s.status.Close()
	_, _ = s.control.Read(make([]byte, 1)) // until its end
	if s.pidfd >= 0 {
		unix.Close(s.pidfd)
	}
	s.control.Close()
	gone()
}

const (
	// reportTime bounds the wait for the status of a command that has ended.
	reportTime = time.Second

	// killedTime bounds the wait for a sandbox whose set-up program was killed.
	killedTime = 5 * time.Second
)

// awaitBwrap waits for the first process of the sandbox. It has ended before the
// set-up program, unless that was killed. Then the kernel kills it, but for a moment
// in which a bwrap that is a wrapper with threads has become the real one.
func (s *Sandbox) awaitBwrap() {
	if s.pidfd < 0 {
		return
	}
	_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
	fds := []unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}
	for limit := time.Now().Add(killedTime); time.Now().Before(limit); {
		if n, err := unix.Poll(fds, int(killedTime.Milliseconds())); n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// reported tells from bwrap's report, in lines of JSON, whether bwrap started the command.
func reported(status *os.File) bool {
	text := make([]byte, maxReport)
	n, _ := status.ReadAt(text, 0)
	return bytes.Contains(text[:n], []byte(`"exit-code"`))
}

// maxReport bounds the report of bwrap: process IDs, namespaces, an exit status.
const maxReport = 4096

// Hold stops the first process of a PID namespace, a bwrap, until LetGo. Without that, this
// bwrap would end the remaining processes when the command ends. Nothing in the sandbox
// depends on it: the sandbox's own init waits for its processes.
func (s *Sandbox) Hold() { process{s.bwrap, s.pid}.send(unix.SIGSTOP) }

// LetGo continues that bwrap, so the sandbox ends with its command.
func (s *Sandbox) LetGo() { process{s.bwrap, s.pid}.send(unix.SIGCONT) }

// HeldStatus waits for the exit status of a command that has ended in a sandbox on hold. It
// reports false if the status cannot be determined.
//
// bwrap's init writes the status plus one to an eventfd(2), and the stopped bwrap does not
// read it. An eventfd of the caller's, which --pass-fd handed on, is not close-on-exec.
func (s *Sandbox) HeldStatus() (status syscall.WaitStatus, ok bool) {
	for limit := time.Now().Add(reportTime); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", s.bwrap))
		if err != nil || len(files) == 0 {
			return 0, false
		}
		for _, name := range files {
			text, _ := os.ReadFile(name)
			var pos, flags, mount, inode, count int
			n, _ := fmt.Sscanf(string(text), "pos: %d\nflags: %o\nmnt_id: %d\nino: %d\neventfd-count: %x", &pos, &flags, &mount, &inode, &count)
			if n == 5 && flags&unix.O_CLOEXEC != 0 && count > 0 {
				return syscall.WaitStatus((count - 1) << 8), true
			}
		}
	}
	return 0, false
}

// AwaitProcesses returns when the last process in a sandbox on hold has ended, and bwrap's
// init with it.
func (s *Sandbox) AwaitProcesses() { s.awaitInit(-1) }

// AwaitInit is AwaitProcesses for a sandbox without processes of the command. It gives up
// after a second: nothing but the processor times depends on it.
func (s *Sandbox) AwaitInit() { s.awaitInit(int(reportTime.Milliseconds())) }

func (s *Sandbox) awaitInit(milliseconds int) {
	for _, p := range descendants(s.bwrap) {
		if p.parent != s.bwrap {
			continue
		}
		if init, err := unix.PidfdOpen(p.pid, 0); err == nil {
			fds := []unix.PollFd{{Fd: int32(init), Events: unix.POLLIN}}
			for _, err = unix.Poll(fds, milliseconds); err == unix.EINTR; _, err = unix.Poll(fds, milliseconds) {
			}
			unix.Close(init)
		}
	}
}

// Left lists the command lines of the command's running processes.
func (s *Sandbox) Left() []string { return commandLines(s.inside()) }

// Terminal returns the user's side of the sandbox's own terminal, for a caller that copies
// the data itself. The caller closes it.
func (s *Sandbox) Terminal() (*os.File, error) {
	if s.master == nil {
		return nil, errors.New("internal error: the sandbox has no terminal")
	}
	fd, err := unix.FcntlInt(s.master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.SetNonblock(fd, true) // reads and writes can be given up
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the sandbox's terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

// Signal sends a signal to all processes of the command. bwrap and its init are
// spared, but for SIGKILL, which ends the sandbox. If there is no process yet,
// the command has not begun, and has nothing to clean up.
func (s *Sandbox) Signal(sig syscall.Signal) {
	inside := s.inside()
	if sig == syscall.SIGKILL || len(inside) == 0 && sig != syscall.SIGCONT {
		s.mu.Lock()
		if s.early == 0 && len(inside) == 0 {
			s.early = sig
		}
		s.mu.Unlock()
		process{s.bwrap, s.pid}.send(syscall.SIGKILL)
		return
	}
	for _, p := range inside {
		p.send(sig)
	}
}

// inside lists the processes of the command.
func (s *Sandbox) inside() []process {
	var list []process
	for _, p := range descendants(s.bwrap) {
		if p.parent != s.bwrap {
			list = append(list, p)
		}
	}
	return list
}

// Abandon kills the set-up program. The kernel kills the sandbox then.
func (s *Sandbox) Abandon() { _ = unix.Kill(s.pid, unix.SIGKILL) }

// Close ends the sandbox, if it still runs, and waits for its end.
func (s *Sandbox) Close() {
	s.mu.Lock()
	if !s.over { // the end of the socket tells of the mounts then
		shut(s.control)
	}
	s.mu.Unlock()
	for range s.events {
	}
	if s.master != nil {
		s.master.Close()
	}
}

// shut ends a connection, for a reader that is blocked on it too.
func shut(socket *os.File) {
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
}

// socketPair returns two ends of a connection.
func socketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control"), nil
}

// send writes to a socket whose other end may have been closed, without a
// SIGPIPE for this process.
func send(socket *os.File, text, rights []byte) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		for len(text) > 0 && err == nil {
			var n int
			if n, err = unix.SendmsgN(int(fd), text, rights, nil, unix.MSG_NOSIGNAL); err == unix.EINTR {
				n, err = 0, nil
			}
			if n > 0 {
				text, rights = text[n:], nil
			}
		}
	})
	return errors.Join(err, cerr)
}

// maxAnswer bounds an answer: an error message.
const maxAnswer = 64 << 10

// receive reads one answer, and the terminal that may come with it.
func receive(socket *os.File) (answer setup.Answer, master *os.File, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return answer, nil, err
	}
	var text []byte
	oob := make([]byte, unix.CmsgSpace(4))
	cerr := raw.Control(func(fd uintptr) {
		for rest := wire.Rest(nil); rest > 0 && err == nil && len(text) < maxAnswer; rest = wire.Rest(text) {
			buf := make([]byte, min(rest, maxAnswer))
			var n, space int
			n, space, _, _, err = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			switch {
			case err == unix.EINTR:
				err = nil
				continue
			case err == nil && n <= 0, err == unix.ECONNRESET:
				err = io.EOF
			case err == nil && space > 0:
				master = terminalIn(oob[:space])
			}
			text = append(text, buf[:max(n, 0)]...)
		}
	})
	if err = errors.Join(err, cerr); err != nil {
		return answer, nil, err
	}
	err = wire.Decode(text, &answer)
	return answer, master, err
}

func terminalIn(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "terminal")
}

// said is the standard error of a set-up program.
type said struct {
	mu   sync.Mutex
	buf  []byte
	done chan struct{}
}

// maxSaid is how much of it is kept: a stack trace begins with its cause.
const maxSaid = 4096

func listen(r *os.File) *said {
	s := &said{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer r.Close()
		buf := make([]byte, maxSaid)
		for {
			n, err := r.Read(buf)
			s.mu.Lock()
			s.buf = append(s.buf, buf[:min(n, maxSaid-len(s.buf))]...)
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// text returns the output when it has ended.
func (s *said) text() string {
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(string(s.buf))
}
