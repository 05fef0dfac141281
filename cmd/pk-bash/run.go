package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/fence"
	"pikuri/lib/limits"
	"pikuri/lib/monitor"
	sessiondir "pikuri/lib/session"
	"pikuri/lib/shell"
)

// session is what the commands of one call have in common: one command, or
// those of a loop.
type session struct {
	*options
	ctx     *cli.Context
	signals chan os.Signal
	warned  bool // that there is no sandbox
	job     *job // the last one, until it is cleaned up
}

// run checks the call and runs one command, or many.
func (o *options) run(ctx *cli.Context) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	s := &session{options: o, ctx: ctx, signals: make(chan os.Signal, 8)}
	if o.loop {
		if err := s.prepareProcess(); err != nil {
			return err
		}
		if err := s.beginLoop(); err != nil {
			return errors.Join(err, s.endLoop())
		}
		return errors.Join(s.answerAll(), s.endLoop())
	}
	request, err := o.request(ctx)
	if err != nil {
		return err
	}
	if err := s.prepareProcess(); err != nil {
		return err
	}
	result, err := s.one(request)
	// From here on there is nothing to undo, and a reader that stalls must not
	// keep the program. Files that the command left are removed after the report.
	signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if result != nil {
		if rerr := s.report(result); err == nil || rerr != nil && ctx.StatusOf(rerr) != result.Status {
			err = rerr
		}
	}
	s.cleanUp()
	return err
}

// prepareProcess closes what the command must not inherit, and asks for the
// signals.
func (s *session) prepareProcess() error {
	signal.Notify(s.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE) // a reader that has gone ends the command, as in any pipeline
	return monitor.CloseInherited()
}

// request is the one command of a call without a loop.
func (o *options) request(ctx *cli.Context) (r shell.Request, err error) {
	r = shell.Request{Command: o.command, Description: o.description, Timeout: &o.timeout}
	if !o.given {
		if r.Command = ctx.Args[0]; r.Command == "-" {
			r.Command, err = ctx.ReadAll()
		}
	}
	return r, err
}

// one runs one command: refuse, prepare, ask, run, clean up. The result is nil
// if a signal came first; else it is to be reported, and then the error, which
// says why nothing was run.
func (s *session) one(request shell.Request) (*shell.Result, error) {
	result, err := s.result(request)
	if result != nil {
		result.ID, result.Command = request.ID, request.Command
	}
	return result, err
}

func (s *session) result(request shell.Request) (*shell.Result, error) {
	if why := shell.Check(request.Command, *request.Timeout); why != "" {
		return s.failed(errors.New(why))
	}
	j, err := s.prepareUnless(request)
	if err != nil {
		return s.failed(err)
	}
	s.job = j
	result, err := s.askAndRun(j)
	if err != nil {
		return s.failed(err)
	}
	return result, nil
}

// cleanUp gives back what the last command had. Removing a large tree is left to
// the next sweep after a while.
func (s *session) cleanUp() {
	if s.job == nil {
		return
	}
	done := make(chan error, 1)
	go func() {
		err := s.job.cleanUp()
		fence.SweepInPassing()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			s.ctx.Report(fmt.Errorf("cannot clean up: %w", err))
		}
	case <-time.After(cleanUpTime):
	}
	s.job = nil
}

// cleanUpTime is how long the caller waits after the report.
const cleanUpTime = 5 * time.Second

// failed is the result when nothing was run.
func (s *session) failed(err error) (*shell.Result, error) {
	status := s.ctx.StatusOf(err)
	if status > cli.StatusSignal { // a signal came while asking
		return nil, err
	}
	result := &shell.Result{Outcome: shell.Refused, Status: status, Error: err.Error()}
	if _, ok := errors.AsType[*bwrap.Unavailable](err); ok {
		result.Outcome = shell.SandboxFailed
	}
	return result, err
}

// prepareUnless prepares, unless a signal comes: a list may be a pipe that nobody
// writes to. Once all has been read, things are made, and to be removed again: that
// is waited for.
func (s *session) prepareUnless(request shell.Request) (*job, error) {
	type prepared struct {
		job *job
		err error
	}
	done, decided := make(chan prepared, 1), new(atomic.Bool)
	s.Making = func() error {
		if !decided.CompareAndSwap(false, true) {
			return errors.New("a signal came")
		}
		return nil
	}
	go func() {
		j, err := s.prepare(request)
		done <- prepared{j, err}
	}()
	select {
	case p := <-done:
		return p.job, p.err
	case sig := <-s.signals:
		if decided.CompareAndSwap(false, true) {
			return nil, died(sig)
		}
		select {
		case p := <-done:
			if p.err == nil {
				s.job = p.job
				s.cleanUp()
			}
		case <-time.After(makingTime):
		}
		return nil, died(sig)
	}
}

// makingTime bounds the wait for what is made, on a machine that hangs.
const makingTime = 30 * time.Second

// died is how a program ends that a signal ends.
func died(sig os.Signal) error { return cli.Exit(cli.StatusSignal + int(sig.(syscall.Signal))) }

// askAndRun returns a result also when the user declined.
func (s *session) askAndRun(j *job) (*shell.Result, error) {
	yes, reason, err := s.confirm(j)
	if err != nil {
		return nil, err
	}
	if !yes {
		why := "user declined the bash command."
		if reason != "" {
			why = "user declined the bash command: " + reason
		}
		return &shell.Result{Outcome: shell.Declined, Status: cli.StatusNotExec, Error: why}, nil
	}
	if err := j.begin(s); err != nil {
		return nil, err
	}
	before := limits.ChildTime()
	result, err := j.Run()
	if err == nil && j.box != nil {
		nameLimit(result, j.box, limits.ChildTime()-before)
	}
	if err == nil && j.output != nil {
		j.output.Finish(result)
		j.logKept = result.Log != ""
	}
	if j.live != nil {
		_ = j.live.Close()
	}
	if err != nil {
		return nil, err
	}
	if result.WriteErr != nil && !errors.Is(result.WriteErr, syscall.EPIPE) {
		s.ctx.Report(fmt.Errorf("cannot write the command's output: %w", errors.Unwrap(result.WriteErr)))
		result.Status = max(result.Status, cli.StatusRefused)
	}
	if result.LogErr != nil {
		s.ctx.Warn("cannot keep the whole output: %v", result.LogErr)
	}
	if result.Outcome == shell.SandboxFailed {
		return nil, bwrap.Diagnose(string(result.Output))
	}
	if j.fence != nil {
		s.undo(j, result)
	}
	return result, nil
}

// undo moves planted files out of the project. Where that fails, the result says
// so, whatever the command's own status was.
func (s *session) undo(j *job, result *shell.Result) {
	result.Guarantees = j.fence.Plan.Holding()
	if j.fence.Trial {
		result.Trial = strings.TrimPrefix(j.fence.Fence.Session.Name(), sessiondir.Prefix)
	}
	done, err := j.fence.End()
	result.MovedAside, result.Git, result.Network = done.Moved, done.Git, j.fence.Connections()
	if err == nil {
		return
	}
	s.ctx.Report(err)
	result.Error = cmp.Or(result.Error, err.Error())
	result.Status = cli.StatusFailed
	result.Guarantees = slices.DeleteFunc(result.Guarantees, func(name string) bool { return name == "protect" })
}

// nameLimit says which limit stopped the command, if one did. A SIGKILL of ours
// is none.
func nameLimit(r *shell.Result, box *limits.Box, used time.Duration) {
	death := r.Signal
	if slices.Contains(r.Sent, syscall.SIGKILL) {
		death = 0
	}
	if name, stopped := box.Stopped(death, used); stopped {
		r.Limit = string(name)
	}
}
