package shell

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of waiting. A command has ended when its process has; these bound
// what comes after.
const (
	drainQuiet    = 200 * time.Millisecond // a held pipe that is silent this long has said it all
	drainLimit    = time.Second            // for a reader that is slow, once the time is over
	teardownLimit = 5 * time.Second        // for the last processes to go
	askedLimit    = 100 * time.Millisecond // for those that got a signal, once the command has ended
	reapPause     = time.Millisecond       // between two looks at what is dying
)

// pipeSize is what is asked for: with the usual 64 KiB a fast writer and its
// reader wait for each other most of the time.
const pipeSize = 1 << 20

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Job is one command that is ready to start.
type Job struct {
	Cmd     *exec.Cmd // argv, environment, directory; streams and attributes are set here
	Command string    // what the shell in Cmd runs
	Gated   bool      // the shell has GateEnv in its environment
	Sandbox bool      // Cmd is bwrap, and Status is what it reports on
	Status  *os.File  // read end of bwrap's --json-status-fd

	// Start starts the guard, and with it Cmd, in a special way; release is called
	// when it has ended. nil stands for cmd.Start.
	Start   func(cmd *exec.Cmd) (release func(), err error)
	Started func() // called once Cmd runs: the files handed to it may be closed
	Out     io.Writer
	Err     io.Writer // nil: both streams go to Out through one pipe, in true order

	Timeout   time.Duration
	KillAfter time.Duration    // between SIGTERM and SIGKILL
	Signals   <-chan os.Signal // passed on to the command
}

// Run starts the job, waits for it and leaves no process behind. It fills the
// fields of the result that say how the command ended. The error is that it
// could not be started.
//
// The calling program has to dispatch GuardMode. While a job runs the calling process is a subreaper, for the case that the
// guard is killed; so one job at a time may run in a process.
func (j *Job) Run() (*Result, error) {
	s := &supervisor{job: j, result: &Result{Timeout: j.Timeout}, begun: time.Now()}
	defer s.close()
	if err := s.start(); err != nil {
		return nil, err
	}
	s.wait()
	s.hear()
	s.drain()
	s.result.Duration = time.Since(s.begun)
	s.conclude()
	return s.result, nil
}

type supervisor struct {
	job    *Job
	result *Result
	begun  time.Time
	pipes  []*pipe
	guard  *guarded
	gate   *gate         // nil for none
	report chan struct{} // bwrap has said all

	ran   bool // bwrap reported the command's status: it did start
	ended bool // the main process has
	late  bool // the time ran out
}

// pipe carries one stream of the command to a writer.
type pipe struct {
	r    *os.File
	last chan struct{} // one value for each read
	done chan struct{}
	err  error // of writing; to be read after done
}

func (s *supervisor) start() error {
	if s.job.Started != nil {
		defer s.job.Started()
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot watch over the command's children: %w", err)
	}
	files, err := s.files()
	defer func() {
		for _, f := range files {
			f.file.Close()
		}
	}()
	if err != nil {
		return err
	}
	ends, err := s.connect()
	if err == nil {
		s.guard, err = startGuard(s.job, files)
	}
	for _, w := range ends {
		w.Close()
	}
	if err != nil {
		return err
	}
	s.report = make(chan struct{})
	go s.listen()
	return s.started()
}

// files are what the command gets besides its streams.
func (s *supervisor) files() (files []placed, err error) {
	if s.job.Gated {
		if s.gate, err = newGate(s.job.Sandbox, hasPipeline(s.job.Command)); err != nil {
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
		files = append(files, placed{longFD, long})
	}
	return files, nil
}

// started waits for the guard to say that the command runs, or why it does not.
func (s *supervisor) started() error {
	switch r := <-s.guard.said; r.what {
	case "started":
		return nil
	case "failed":
		return fmt.Errorf("cannot start %q: %w", s.job.Cmd.Path, syscall.Errno(r.n[0]))
	}
	return fmt.Errorf("cannot start %q: its guard has ended", s.job.Cmd.Path)
}

// close ends what is left, above all after a failure.
func (s *supervisor) close() {
	if s.guard != nil {
		s.guard.close()
	}
	if s.gate != nil {
		s.gate.close()
	}
	for _, p := range s.pipes {
		p.r.Close()
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
}

// connect gives the command its pipes and returns the ends to close once it
// has them.
func (s *supervisor) connect() ([]*os.File, error) {
	var ends []*os.File
	for _, stream := range []struct {
		to  io.Writer
		set *io.Writer
	}{{s.job.Out, &s.job.Cmd.Stdout}, {s.job.Err, &s.job.Cmd.Stderr}} {
		if stream.to == nil {
			s.job.Cmd.Stderr = s.job.Cmd.Stdout
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return ends, fmt.Errorf("cannot make a pipe: %w", err)
		}
		widen(r)
		ends = append(ends, w)
		*stream.set = w
		p := &pipe{r: r, last: make(chan struct{}, 1), done: make(chan struct{})}
		s.pipes = append(s.pipes, p)
		go p.carry(stream.to)
	}
	return ends, nil
}

// widen makes a pipe larger. A user who has many of them is refused, and does
// with less.
func widen(pipe *os.File) {
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// readSize is what is read at once. While the kernel copies it, the command
// cannot write; and what is read is looked at four times, out of a near cache.
const readSize = 128 << 10

// carry always reads on, also when nobody wants the bytes any more: a full
// pipe would stop the command.
func (p *pipe) carry(to io.Writer) {
	defer close(p.done)
	buf := make([]byte, readSize)
	for {
		n, err := p.r.Read(buf)
		if n > 0 && to != nil {
			if _, p.err = to.Write(buf[:n]); p.err != nil {
				to = nil
			}
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

// listen reads what bwrap reports: the command's status, if it was started.
func (s *supervisor) listen() {
	defer close(s.report)
	if s.job.Status == nil {
		return
	}
	decoder := json.NewDecoder(s.job.Status)
	for {
		var line struct {
			Exit *int `json:"exit-code"`
		}
		if decoder.Decode(&line) != nil {
			return
		}
		s.ran = s.ran || line.Exit != nil
	}
}

// wait returns when nothing of the command is left, or nothing that can be
// ended.
func (s *supervisor) wait() {
	clock := time.NewTimer(s.job.Timeout)
	defer clock.Stop()
	var kill <-chan time.Time
	for {
		select {
		case r, ok := <-s.guard.said:
			if !ok {
				s.guardKilled()
			}
			if !ok || s.note(r) {
				return
			}
		case <-clock.C:
			if !s.ended {
				s.late = true
				s.signal(syscall.SIGTERM)
				kill = time.After(s.job.KillAfter)
			}
		case sig := <-s.job.Signals:
			if sig != syscall.SIGPIPE {
				s.result.Interrupt = sig
			}
			switch {
			case s.ended:
			case kill == nil:
				s.signal(sig.(syscall.Signal))
				kill = time.After(s.job.KillAfter)
			case sig != syscall.SIGPIPE: // that one comes once for each write
				s.signal(syscall.SIGKILL) // asked twice
			}
		case <-kill:
			if !s.ended {
				s.signal(syscall.SIGKILL)
			}
		}
	}
}

// note takes what the guard says, and reports whether that was all.
func (s *supervisor) note(r report) (last bool) {
	switch r.what {
	case "exited":
		s.ended = true
		s.status(syscall.WaitStatus(r.n[0]))
	case "done":
		s.result.Survivors, s.result.Left = r.n[0], r.n[1]
		return true
	}
	return false
}

// guardKilled ends everything when the guard did not do so: somebody killed it,
// most likely the command itself.
func (s *supervisor) guardKilled() {
	_ = s.guard.cmd.Wait()
	ended := s.guard.endOrphans()
	if s.ended {
		s.result.Survivors = ended
		return
	}
	s.result.Sent = append(s.result.Sent, syscall.SIGKILL)
	s.result.Signal, s.result.Status = syscall.SIGKILL, 128+int(syscall.SIGKILL)
	s.result.Error = "the process that watched over the command was killed."
}

func (s *supervisor) signal(sig syscall.Signal) {
	s.result.Sent = append(s.result.Sent, sig)
	s.guard.send(sig)
}

// status notes how the main process ended.
func (s *supervisor) status(ws syscall.WaitStatus) {
	s.result.Status, s.result.Signal = ws.ExitStatus(), 0
	if ws.Signaled() {
		s.result.Signal = ws.Signal()
		s.result.Status = 128 + int(ws.Signal())
	}
}

// hear waits for what bwrap and the gate have to say. Everybody who could hold
// their other ends has ended; but a descriptor can be handed on.
func (s *supervisor) hear() {
	select {
	case <-s.report:
	case <-time.After(drainLimit):
		s.job.Status.Close()
		<-s.report
	}
	if s.gate == nil {
		return
	}
	select {
	case <-s.gate.done:
	case <-time.After(drainQuiet):
		_ = s.gate.ours.SetReadDeadline(past)
		<-s.gate.done
	}
}

// drain reads what is left in the pipes. Nobody can hold them open who was
// started by the command, for nobody is left; but a process from elsewhere
// that was handed a descriptor can, and is not waited for.
//
// Whoever reads our output may be slow, and gets it all; unless the command ran
// out of time or a signal came, then now or before.
func (s *supervisor) drain() {
	var patience <-chan time.Time
	if s.late || len(s.result.Sent) > 0 {
		patience = time.After(drainLimit)
	}
	for _, p := range s.pipes {
		if s.await(p, &patience) && s.result.WriteErr == nil {
			s.result.WriteErr = p.err
		}
		p.r.Close()
	}
}

// await reports whether the pipe was carried to its end.
func (s *supervisor) await(p *pipe, patience *<-chan time.Time) bool {
	quiet := time.NewTimer(drainQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-p.done:
			return true
		case <-p.last:
			quiet.Reset(drainQuiet)
		case <-quiet.C:
			s.result.Held = true
			_ = p.r.SetReadDeadline(past)
		case <-s.job.Signals:
			*patience = time.After(0)
		case <-*patience:
			*patience = time.After(0)
			return false
		}
	}
}

// conclude decides the outcome. Only the supervisor knows that the time ran
// out; a command may well exit with 124 by itself.
func (s *supervisor) conclude() {
	r := s.result
	s.fromGate()
	switch {
	case s.late:
		r.Outcome, r.Status = TimedOut, 124
	case s.job.Sandbox && !s.ran && len(r.Sent) == 0 && r.Signal == 0:
		r.Outcome, r.Status = SandboxFailed, 125
	case s.job.Sandbox && !s.ran && len(r.Sent) > 0: // ended from outside, before it could report
		r.Outcome, r.Signal = Signaled, r.Sent[len(r.Sent)-1]
		r.Status = 128 + int(r.Signal)
	case r.Signal != 0:
		r.Outcome = Signaled
	default:
		r.Outcome = Exited
	}
	r.Sent = slices.Compact(r.Sent)
}

// fromGate corrects what bwrap says by what the kernel and bash say. A bwrap
// reports the death by a signal as a status, like a shell; on a kernel that
// does not tell the two apart, such a status is taken for a signal.
func (s *supervisor) fromGate() {
	r := s.result
	told := false
	if s.gate != nil {
		if s.job.Sandbox {
			var ws syscall.WaitStatus
			if ws, told = s.gate.exit(); told {
				s.status(ws)
				s.ran = true
			}
		}
		r.Pipeline = failedStages(s.gate.stages, r.Status)
	}
	if s.job.Sandbox && !told && r.Signal == 0 && r.Status > 128 && strings.HasPrefix(signalName(syscall.Signal(r.Status-128)), "SIG") {
		r.Signal = syscall.Signal(r.Status - 128)
	}
}

// failedStages returns stages if one failed and the whole did not. A stage that
// died because nobody read its output has done what it could.
func failedStages(stages []int, status int) []int {
	const brokenPipe = 128 + int(syscall.SIGPIPE)
	failed := slices.ContainsFunc(stages, func(n int) bool { return n != 0 && n != brokenPipe })
	if len(stages) < 2 || status != 0 || !failed {
		return nil
	}
	return stages
}
