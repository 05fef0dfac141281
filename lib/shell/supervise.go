package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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
	reapPause     = time.Millisecond       // between two looks at what is dying
)

// Job is one command that is ready to start.
type Job struct {
	Cmd     *exec.Cmd // argv, environment, directory; streams and attributes are set here
	Sandbox bool      // Cmd is bwrap, and Status is what it reports on
	Status  *os.File  // read end of bwrap's --json-status-fd

	// Start starts Cmd in a special way; release is called when it has ended. nil
	// stands for Cmd.Start.
	Start   func(*exec.Cmd) (release func(), err error)
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
// It makes the calling process the one that orphans of the command fall to (PR_SET_CHILD_SUBREAPER) and ends every one of them, so one
// job at a time may run in a process, and no other children.
func (j *Job) Run() (*Result, error) {
	s := &supervisor{job: j, result: &Result{Timeout: j.Timeout}, begun: time.Now()}
	if err := s.start(); err != nil {
		return nil, err
	}
	s.wait()
	s.sweep()
	s.drain()
	s.result.Duration = time.Since(s.begun)
	s.conclude()
	return s.result, nil
}

type supervisor struct {
	job     *Job
	result  *Result
	begun   time.Time
	pipes   []*pipe
	release func()        // to be called when it has
	exited  chan error    // the main process has ended
	first   chan int      // process id of the sandbox's first process, from bwrap
	report  chan struct{} // bwrap has said all

	ran  bool // bwrap reported the command's status: it did start
	init int  // pidfd of the sandbox's first process; 0 for none
	late bool // the time ran out
}

// pipe carries one stream of the command to a writer.
type pipe struct {
	r    *os.File
	last chan struct{} // one value for each read
	done chan struct{}
	err  error // of writing; to be read after done
}

func (s *supervisor) start() error {
	cmd := s.job.Cmd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot watch over the command's children: %w", err)
	}
	ends, err := s.connect()
	if err == nil {
		s.release, err = s.job.start()
	}
	for _, w := range ends {
		w.Close()
	}
	if s.job.Started != nil {
		s.job.Started()
	}
	if err != nil {
		for _, p := range s.pipes {
			p.r.Close()
		}
		return err
	}
	s.exited, s.first, s.report = make(chan error, 1), make(chan int, 1), make(chan struct{})
	go func() {
		err := cmd.Wait()
		s.release()
		s.exited <- err
	}()
	go s.listen()
	return nil
}

// start starts Cmd, by Start if there is one.
func (j *Job) start() (release func(), err error) {
	if j.Start != nil {
		return j.Start(j.Cmd)
	}
	return func() {}, j.Cmd.Start()
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
		ends = append(ends, w)
		*stream.set = w
		p := &pipe{r: r, last: make(chan struct{}, 1), done: make(chan struct{})}
		s.pipes = append(s.pipes, p)
		go p.carry(stream.to)
	}
	return ends, nil
}

// carry always reads on, also when nobody wants the bytes any more: a full
// pipe would stop the command.
func (p *pipe) carry(to io.Writer) {
	defer close(p.done)
	buf := make([]byte, 64<<10)
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

// listen reads what bwrap reports: the first process of the sandbox, and the
// command's status if it was started.
func (s *supervisor) listen() {
	defer close(s.report)
	if s.job.Status == nil {
		return
	}
	decoder := json.NewDecoder(s.job.Status)
	for {
		var line struct {
			Child *int `json:"child-pid"`
			Exit  *int `json:"exit-code"`
		}
		if decoder.Decode(&line) != nil {
			return
		}
		if line.Child != nil {
			s.first <- *line.Child
		}
		s.ran = s.ran || line.Exit != nil
	}
}

// wait returns when the main process has ended, by itself or not.
func (s *supervisor) wait() {
	clock := time.NewTimer(s.job.Timeout)
	defer clock.Stop()
	var kill <-chan time.Time
	for {
		select {
		case err := <-s.exited:
			s.status(err)
			return
		case pid := <-s.first:
			s.init, _ = unix.PidfdOpen(pid, 0) // gone already: nothing to wait for
		case <-clock.C:
			s.late = true
			s.signal(syscall.SIGTERM)
			kill = time.After(s.job.KillAfter)
		case sig := <-s.job.Signals:
			switch {
			case kill == nil:
				s.signal(sig.(syscall.Signal))
				kill = time.After(s.job.KillAfter)
			case sig != syscall.SIGPIPE: // that one comes once for each write
				s.signal(syscall.SIGKILL) // asked twice
			}
		case <-kill:
			s.signal(syscall.SIGKILL)
		}
	}
}

// signal reaches everything that the command started.
//
// In a sandbox bwrap must not get a SIGTERM: it would die of it, and take the
// command along before it could clean up. The signal goes to the processes
// inside, but for the first of them, the namespace's init. While there is
// nobody else the command has not begun, and there is nothing to clean up.
func (s *supervisor) signal(sig syscall.Signal) {
	s.result.Sent = append(s.result.Sent, sig)
	top := s.job.Cmd.Process.Pid
	all := descendants(top)
	if !s.job.Sandbox {
		all = append([]int{top}, all...)
	}
	first := children(top)
	inside := slices.DeleteFunc(slices.Clone(all), func(pid int) bool {
		return s.job.Sandbox && slices.Contains(first, pid)
	})
	if len(inside) == 0 || sig == syscall.SIGKILL {
		sig, inside = syscall.SIGKILL, append(all, top)
	}
	for _, pid := range inside {
		_ = syscall.Kill(pid, sig) // it may have ended meanwhile
	}
}

// status notes how the main process ended.
func (s *supervisor) status(err error) {
	exit, _ := errors.AsType[*exec.ExitError](err)
	state := s.job.Cmd.ProcessState
	if exit != nil {
		state = exit.ProcessState
	}
	ws := state.Sys().(syscall.WaitStatus)
	s.result.Status = ws.ExitStatus()
	if ws.Signaled() {
		s.result.Signal = ws.Signal()
		s.result.Status = 128 + int(ws.Signal())
	}
}

// sweep ends what the command left behind.
func (s *supervisor) sweep() {
	if s.job.Sandbox && len(s.result.Sent) == 0 {
		s.awaitTeardown()
		return
	}
	// A bwrap that was killed while it started may have left a child that had
	// not yet asked to die with it.
	if s.job.Sandbox {
		defer s.awaitTeardown()
	}
	for limit := time.Now().Add(teardownLimit); time.Now().Before(limit); {
		for _, pid := range descendants(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if s.reap() {
			return
		}
		time.Sleep(reapPause)
	}
}

// reap collects the orphans that have ended and reports whether none is left.
// What ended by itself is not called a survivor.
func (s *supervisor) reap() bool {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return true
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid == 0:
			return false
		case !s.job.Sandbox && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
			s.result.Survivors++
		}
	}
}

// awaitTeardown waits until the last process of the sandbox is gone: bwrap
// returns before that, while its mounts still live.
func (s *supervisor) awaitTeardown() {
	select {
	case <-s.report:
	case <-time.After(teardownLimit):
		s.job.Status.Close() // somebody holds its other end
		<-s.report
	}
	select {
	case pid := <-s.first:
		s.init, _ = unix.PidfdOpen(pid, 0)
	default:
	}
	if s.init <= 0 {
		return
	}
	defer unix.Close(s.init)
	fds := []unix.PollFd{{Fd: int32(s.init), Events: unix.POLLIN}}
	for limit := time.Now().Add(teardownLimit); ; {
		left := time.Until(limit)
		if left <= 0 {
			_ = unix.PidfdSendSignal(s.init, unix.SIGKILL, nil, 0)
			return
		}
		if n, err := unix.Poll(fds, int(left.Milliseconds())+1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
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
			_ = p.r.SetReadDeadline(time.Now())
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
	switch {
	case s.late:
		r.Outcome, r.Status = TimedOut, 124
	case s.job.Sandbox && !s.ran && len(r.Sent) == 0:
		r.Outcome, r.Status = SandboxFailed, 125
	case s.job.Sandbox && !s.ran: // ended from outside, before it could report
		r.Outcome, r.Signal = Signaled, r.Sent[len(r.Sent)-1]
		r.Status = 128 + int(r.Signal)
	case r.Signal != 0:
		r.Outcome = Signaled
	case s.job.Sandbox && r.Status > 128 && signalName(syscall.Signal(r.Status - 128))[:3] == "SIG":
		// bwrap reports the death by a signal as a status, like a shell.
		r.Outcome, r.Signal = Signaled, syscall.Signal(r.Status-128)
	default:
		r.Outcome = Exited
	}
	r.Sent = slices.Compact(r.Sent)
}
