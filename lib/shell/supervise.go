package shell

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/monitor"
	"pikuri/lib/setup"
)

// Limits of waiting. A command has ended when its process has; these bound the work
// after that.
const (
	drainQuiet = 200 * time.Millisecond // a held pipe that is silent this long has said it all
	drainLimit = time.Second            // for a reader that is slow, once the time is over
	stuckTime  = 10 * time.Second       // for the end of a command that was killed
)

// pipeSize is the size to ask for: with the usual 64 KiB a fast writer and its
// reader wait for each other most of the time.
const pipeSize = 1 << 20

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Job is one command that is ready to start: Fence in a sandbox, or else Cmd.
type Job struct {
	Fence   *monitor.Config // its streams are set here
	Cmd     *exec.Cmd       // path, arguments, environment, directory
	Command string          // the command line for the shell
	Gated   bool            // the environment is that of Gated
	In      *os.File        // standard input; nil: empty
	Out     io.Writer
	Err     io.Writer // nil: both streams go to Out through one pipe, in true order

	// Terminal is the size of the sandbox's own terminal, which replaces In and the pipes;
	// nil for no terminal.
	Terminal *Size

	Keep  Keep   // which part of the command's state is reported when it ends
	State State  // that it begins with; Gated jobs only
	Dir   string // begin there, or not at all, instead of in the State's directory; or ""

	// Background keeps the processes that the command leaves running, with a Fence and
	// without a Terminal. It returns the log of their output, nil for none. If Background is
	// nil, these processes end with the command.
	Background func() *Log

	Timeout   time.Duration         // 0: none
	KillAfter time.Duration         // between SIGTERM and SIGKILL
	Signals   <-chan os.Signal      // passed on to the command, to end it
	Asides    <-chan syscall.Signal // passed on, and nothing follows
	Suspends  bool                  // SIGTSTP of this process stops the command too
}

// Size is the size of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Run starts the job, waits for it and leaves no process behind. It fills the
// fields of the result that say how the command ended. The error is that it
// could not be started.
//
// The calling program has to dispatch monitor.GuardMode and setup.Mode. Jobs may run
// beside each other in a process, which is a subreaper while it has jobs without a
// Fence.
func (j *Job) Run() (*Result, error) {
	s, err := j.Start()
	if err != nil {
		return nil, err
	}
	return s.Wait(), nil
}

// Start starts the job. Wait has to be called.
func (j *Job) Start() (*Supervisor, error) {
	s := &Supervisor{job: j, result: &Result{Timeout: j.Timeout}, begun: time.Now()}
	if err := s.start(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Wait waits for the job and leaves no process behind, unless Stays reports that: then Rest
// has to be called.
func (s *Supervisor) Wait() *Result {
	if s.wait(s.job.Timeout); !s.stays {
		defer s.close()
	}
	s.hear()
	s.drain()
	s.result.Duration = time.Since(s.begun)
	s.conclude()
	r := s.result
	if s.stays {
		s.result = new(Result) // of Rest, which has no reader
	}
	return r
}

// Stays reports whether processes of the command run on after Wait.
func (s *Supervisor) Stays() bool { return s.stays }

// Rest waits for the end of these processes. The job's Signals and Asides go to them.
func (s *Supervisor) Rest() {
	defer s.close()
	s.wait(0)
	s.stays = false
	s.drain()
}

// Terminal returns the user's side of the command's terminal, nil if it has none. It is
// open until Wait returns.
func (s *Supervisor) Terminal() *os.File { return s.terminal }

// Supervisor supervises a job to its end.
type Supervisor struct {
	job      *Job
	result   *Result
	begun    time.Time
	pipes    []*pipe
	command  monitor.Running
	gate     *gate // nil for none
	terminal *os.File

	ran   bool           // bwrap reported the command's status: it did start
	early bool           // a signal ended the sandbox before the command had begun
	ended bool           // the main process has
	late  bool           // the time ran out
	stays bool           // the main process has ended, and others of the command run on
	cut   bool           // a slow reader did not get the end of the output
	asked syscall.Signal // the last one that is to end the command; 0 for none
}

// pipe carries one stream of the command to a writer.
type pipe struct {
	r    *os.File
	to   io.Writer
	last chan struct{} // one value for each read
	busy atomic.Bool   // it is being written: a reader of our output may be slow
	done chan struct{}
	err  error // of writing; to be read after done
}

func (s *Supervisor) start() error {
	files, err := s.files()
	defer func() {
		for _, f := range files {
			f.File.Close()
		}
	}()
	if err != nil {
		return err
	}
	streams, err := s.connect()
	if err == nil {
		err = s.begin(streams, files)
	}
	if err == nil && s.job.Terminal != nil {
		err = s.openTerminal()
	}
	if s.gate != nil {
		s.gate.begun(s.command)
	}
	for _, w := range streams[1:] {
		if w != nil {
			w.Close()
		}
	}
	return err
}

// begin starts the command. A nil *monitor.Sandbox is not to become a Running.
func (s *Supervisor) begin(streams [3]*os.File, files []monitor.Placed) error {
	if s.job.Fence == nil {
		u, err := monitor.StartUnfenced(s.job.Cmd, streams, files)
		if err == nil {
			s.command = u
		}
		return err
	}
	c := *s.job.Fence
	c.Streams, c.Files = streams, append(slices.Clone(c.Files), files...)
	if s.job.Terminal != nil {
		c.Terminal = setup.Terminal{Streams: []int{0, 1, 2}, Size: &unix.Winsize{Row: s.job.Terminal.Rows, Col: s.job.Terminal.Cols}}
	}
	sandbox, err := monitor.Start(c)
	if err == nil {
		s.command = sandbox
	}
	return err
}

// openTerminal begins to read the terminal's output.
func (s *Supervisor) openTerminal() (err error) {
	sandbox, ok := s.command.(*monitor.Sandbox)
	if !ok {
		return errors.New("a command without a sandbox can have no terminal of its own")
	}
	if s.terminal, err = sandbox.Terminal(); err == nil {
		s.read(s.terminal, s.job.Out)
	}
	return err
}

// Set sets the size of a terminal. The kernel sends SIGWINCH to the programs there.
func (size Size) Set(terminal *os.File) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return errors.Join(err, cerr)
}

// files are the command's files besides its streams.
func (s *Supervisor) files() (files []monitor.Placed, err error) {
	if s.job.Gated {
		if s.gate, err = newGate(s.job); err != nil {
			return nil, err
		}
	}
	if s.gate != nil {
		files = s.gate.placed()
	}
	if len(s.job.Command) > maxArgument {
		long, err := memFile("command", s.job.Command)
		if err != nil {
			return files, err
		}
		files = append(files, monitor.Placed{At: longFD, File: long})
	}
	return files, nil
}

// close ends the processes that are left, above all after a failure.
func (s *Supervisor) close() {
	if s.gate != nil {
		s.gate.begun(nil) // if it was not started
	}
	if s.command != nil {
		s.command.Close()
	}
	if s.gate != nil {
		s.gate.close()
	}
	for _, p := range s.pipes {
		p.r.Close()
	}
}

// connect makes the command's pipes and returns its streams.
func (s *Supervisor) connect() (streams [3]*os.File, err error) {
	if s.job.Terminal != nil {
		return streams, nil
	}
	streams[0] = s.job.In
	for at, to := range []io.Writer{1: s.job.Out, 2: s.job.Err} {
		if at == 0 {
			continue
		}
		if to == nil {
			streams[at], err = dup(streams[1])
			return streams, err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return streams, fmt.Errorf("cannot make a pipe: %w", err)
		}
		widen(r)
		streams[at] = w
		s.read(r, to)
	}
	return streams, nil
}

func (s *Supervisor) read(r *os.File, to io.Writer) {
	p := &pipe{r: r, last: make(chan struct{}, 1)}
	s.pipes = append(s.pipes, p)
	p.begin(to)
}

func (p *pipe) begin(to io.Writer) {
	p.to, p.done = to, make(chan struct{})
	go p.carry()
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// widen makes a pipe larger. The kernel refuses that to a user with many pipes; the
// size then stays.
func widen(pipe *os.File) {
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// readSize is the size of one read. While the kernel copies, the command cannot
// write; and the bytes are looked at four times, out of a near cache.
const readSize = 128 << 10

// carry always reads on, also when the bytes have no reader any more: a full
// pipe would stop the command.
func (p *pipe) carry() {
	defer close(p.done)
	to, buf := p.to, make([]byte, readSize)
	for {
		n, err := p.r.Read(buf)
		if n > 0 && to != nil {
			p.busy.Store(true)
			if _, p.err = to.Write(buf[:n]); p.err != nil {
				to = nil
			}
			p.busy.Store(false)
		}
		select {
		case p.last <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// wait returns when no process of the command is left, or none that can be
// ended.
func (s *Supervisor) wait(timeout time.Duration) {
	var clock, kill, stuck <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		clock = timer.C
	}
	var kept chan keptCommand
	if s.gate != nil {
		kept = s.gate.kept
	}
	suspends := make(chan os.Signal, 1)
	if s.job.Suspends && !s.stays && !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(suspends, syscall.SIGTSTP)
		defer signal.Stop(suspends)
	}
	for {
		select {
		case <-suspends:
			monitor.Suspend(s.command)
		case k := <-kept:
			if len(s.result.Sent) == 0 { // else a signal came meanwhile, which ends them
				s.stays, s.ran = true, true
				s.status(k.status)
				s.result.Background = note(nil, k.left)
				s.result.Staying = len(k.left)
				return
			}
		case e, ok := <-s.command.Events():
			if !ok {
				s.lost()
			}
			if !ok || s.note(e) {
				return
			}
		case <-clock:
			if !s.ended {
				s.late = true
				s.signal(syscall.SIGTERM)
				kill = time.After(s.job.KillAfter)
			}
		case sig := <-s.job.Signals:
			s.heard(sig)
			switch {
			case s.ended:
			case kill == nil:
				s.signal(sig.(syscall.Signal))
				kill = time.After(s.job.KillAfter)
			case sig != syscall.SIGPIPE: // that one comes once for each write
				s.signal(syscall.SIGKILL) // asked twice
			}
		case sig := <-s.job.Asides:
			if !s.ended {
				s.signal(sig)
			}
			if sig == syscall.SIGKILL {
				stuck = time.After(stuckTime)
			}
		case <-kill:
			if !s.ended {
				s.signal(syscall.SIGKILL)
				stuck = time.After(stuckTime)
			}
		case <-stuck: // a command without a sandbox can stop its guard
			s.command.Abandon()
		}
	}
}

// note takes an event, and reports whether it was the last.
func (s *Supervisor) note(e monitor.Event) (last bool) {
	if e.Kind == monitor.Done {
		s.result.Survivors, s.result.Left, s.result.Usage = e.Ended, e.Left, e.Usage
		s.result.Ended = note(s.result.Ended, e.Commands)
		return true
	}
	s.ended, s.ran, s.early = true, e.Ran, e.Early
	s.status(e.Status)
	return false
}

// lost ends all processes after the guard was killed, most likely by a command without a
// sandbox.
func (s *Supervisor) lost() {
	orphans := 0
	if u, ok := s.command.(*monitor.Unfenced); ok {
		orphans = u.EndOrphans()
	}
	if s.ended {
		s.result.Survivors = orphans
		return
	}
	s.result.Sent = append(s.result.Sent, syscall.SIGKILL)
	s.result.Signal, s.result.Status = syscall.SIGKILL, 128+int(syscall.SIGKILL)
	s.result.Error = "the process that watched over the command was killed."
}

func (s *Supervisor) signal(sig syscall.Signal) {
	s.result.Sent = append(s.result.Sent, sig)
	if s.gate != nil {
		s.gate.asked.Store(true)
	}
	s.command.Signal(sig)
}

// status notes how the main process ended.
func (s *Supervisor) status(ws syscall.WaitStatus) {
	s.result.Status, s.result.Signal = ws.ExitStatus(), 0
	if ws.Signaled() {
		s.result.Signal = ws.Signal()
		s.result.Status = 128 + int(ws.Signal())
	}
}

// hear waits for the messages of the gate. All processes that inherited its other end
// have ended; but a descriptor can be passed on.
func (s *Supervisor) hear() {
	if s.gate == nil {
		return
	}
	if s.stays {
		s.gate.shut()
	}
	select {
	case <-s.gate.done:
	case <-time.After(drainQuiet):
		_ = s.gate.ours.SetReadDeadline(past)
		<-s.gate.done
	}
}

// heard takes a signal that the caller sent. SIGPIPE is no wish of the caller.
func (s *Supervisor) heard(sig os.Signal) {
	if sig != syscall.SIGPIPE {
		s.asked = sig.(syscall.Signal)
	}
}

// drain reads the rest from the pipes. All processes of the command have ended. A
// process from elsewhere that was handed a descriptor may hold a pipe open, and is
// not waited for.
//
// A reader of our output may be slow, and gets it all; unless the command ran
// out of time or a signal came, then now or before.
func (s *Supervisor) drain() {
	var patience <-chan time.Time
	if s.late || s.asked != 0 || len(s.result.Sent) > 0 {
		patience = time.After(drainLimit)
	}
	if s.stays {
		s.divert(patience)
		return
	}
	for _, p := range s.pipes {
		if s.await(p, &patience) && s.result.WriteErr == nil {
			s.result.WriteErr = p.err
		}
		p.r.Close()
	}
}

// divert sends the output of processes that stay to their log, and the content of the pipes so
// far to the command's output.
func (s *Supervisor) divert(patience <-chan time.Time) {
	log := s.job.Background()
	var to io.Writer
	if log != nil {
		s.result.BackgroundLog = filepath.Join("/tmp", filepath.Base(log.file.Name()))
		to = &sharedLog{log: log}
	}
	for _, p := range s.pipes {
		_ = p.r.SetReadDeadline(past)
		select {
		case <-p.done:
		case sig := <-s.job.Signals: // the reader of our output is slow
			s.heard(sig)
			patience = time.After(0)
			s.cut = true
			continue
		case <-patience:
			patience = time.After(0)
			s.cut = true
			continue
		}
		p.empty()
		s.result.WriteErr = cmp.Or(s.result.WriteErr, p.err)
		_ = p.r.SetReadDeadline(time.Time{})
		p.begin(to)
	}
}

// empty carries the content of the pipe, and does not wait for more.
func (p *pipe) empty() {
	raw, err := p.r.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		buf := make([]byte, pipeSize) // as much as was there when the command ended
		for room := buf; len(room) > 0; {
			n, err := unix.Read(int(fd), room)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				buf = buf[:len(buf)-len(room)]
				break
			}
			room = room[n:]
		}
		if len(buf) > 0 && p.err == nil {
			_, p.err = p.to.Write(buf)
		}
	})
}

// sharedLog is a Log that several pipes write to.
type sharedLog struct {
	mu  sync.Mutex
	log *Log
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.write(p)
	return len(p), nil
}

// await reports whether the pipe was carried to its end.
func (s *Supervisor) await(p *pipe, patience *<-chan time.Time) bool {
	quiet := time.NewTimer(drainQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-p.done:
			return true
		case <-p.last:
			quiet.Reset(drainQuiet)
		case <-quiet.C:
			if p.busy.Load() {
				quiet.Reset(drainQuiet)
				continue
			}
			s.result.Held = true
			_ = p.r.SetReadDeadline(past)
		case sig := <-s.job.Signals:
			s.heard(sig)
			*patience = time.After(0)
		case <-*patience:
			*patience = time.After(0)
			s.cut = true
			return false
		}
	}
}

// conclude decides the outcome. Only the supervisor knows that the time ran
// out; a command may well exit with 124 by itself.
func (s *Supervisor) conclude() {
	r := s.result
	s.fromGate()
	switch {
	case s.late:
		r.Outcome, r.Status = TimedOut, 124
	case s.job.Fence != nil && !s.ran && len(r.Sent) == 0 && r.Signal == 0:
		r.Outcome, r.Status = SandboxFailed, 125
	case s.job.Fence != nil && !s.ran && len(r.Sent) > 0: // ended from outside, before it could report
		r.Outcome, r.Signal = Signaled, r.Sent[len(r.Sent)-1]
		r.Status = 128 + int(r.Signal)
	case r.Signal != 0:
		r.Outcome = Signaled
	case s.cut && s.asked != 0:
		r.Outcome, r.Signal, r.Status = Signaled, s.asked, 128+int(s.asked)
	default:
		r.Outcome = Exited
	}
	r.Sent, r.Asked = slices.Compact(r.Sent), s.asked
}

// fromGate corrects bwrap's report by those of the kernel and bash. bwrap
// reports death by a signal as a status, like a shell; on a kernel that
// does not tell the two apart, such a status is taken for a signal.
func (s *Supervisor) fromGate() {
	r, fenced, told := s.result, s.job.Fence != nil, false
	if s.gate != nil {
		if fenced && !s.early { // bash may have begun since, and have ended with its sandbox
			var ws syscall.WaitStatus
			if ws, told = s.gate.exit(); told {
				s.status(ws)
				s.ran = true
			}
		}
		r.Pipeline = failedStages(s.gate.stages, r.Status)
		r.State, r.NoDir = s.gate.state, s.gate.noDir
		if s.stays {
			return
		}
		if left := s.gate.left(); len(left) > 0 {
			r.Survivors = len(left)
			r.Ended = note(r.Ended, left)
		}
	}
	if fenced && !told && r.Signal == 0 && r.Status > 128 && strings.HasPrefix(signalName(syscall.Signal(r.Status-128)), "SIG") {
		r.Signal = syscall.Signal(r.Status - 128)
	}
}

// failedStages returns stages if one failed and the whole did not. A stage that
// died of SIGPIPE has not failed.
func failedStages(stages []int, status int) []int {
	const brokenPipe = 128 + int(syscall.SIGPIPE)
	failed := slices.ContainsFunc(stages, func(n int) bool { return n != 0 && n != brokenPipe })
	if len(stages) < 2 || status != 0 || !failed {
		return nil
	}
	return stages
}
