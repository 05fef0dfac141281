package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pikuri/lib/audit"
	"pikuri/lib/blocked"
	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/fence"
	"pikuri/lib/limits"
	"pikuri/lib/monitor"
	sessiondir "pikuri/lib/session"
	"pikuri/lib/shell"
)

// session is the common state of the commands of one call: one command, or
// those of a loop.
type session struct {
	*options
	ctx     *cli.Context
	signals chan os.Signal // to this process
	root    string         // project root, as commands see it
	warned  bool           // that there is no sandbox

	pin       shell.Pin  // of root, before it may have become the owner of the project
	preparing sync.Mutex // plans are made one after another
	asking    sync.Mutex // and questions are asked so
}

// turn is one command, from its request to its end.
type turn struct {
	*session
	request shell.Request
	signals chan os.Signal      // that end it
	asides  chan syscall.Signal // that need not
	job     *job                // until it is cleaned up

	cleaning sync.Mutex

	// Writes to a job follow each other as they came: this one begins when before is
	// closed, and then closes written. Both are nil for other requests.
	before  <-chan struct{}
	written func()

	withdrawn  chan struct{} // closed when an operation is cancelled
	ended      atomic.Bool   // the command has
	claimed    atomic.Bool   // by the goroutine that runs it, or that cancels it
	cancelled  atomic.Bool
	seq        int               // its place among the commands whose state is kept; 0 for none
	asked      string            // the person or program that has allowed or declined it
	entry      uint64            // number of the record that it begins; 0 before, and without --audit
	unrecorded bool              // a record could not be written
	super      *shell.Supervisor // of processes that run on after the command; nil for none
	gone       chan struct{}     // closed when these have ended
	began      shell.State
	keep       shell.Keep
}

func (s *session) newTurn(request shell.Request) *turn {
	return &turn{session: s, request: request, signals: make(chan os.Signal, 8), asides: make(chan syscall.Signal, 8), withdrawn: make(chan struct{}), keep: shell.KeepNothing}
}

// run checks the call and runs one command, or many.
func (o *options) run(ctx *cli.Context) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	if o.auditCheck != "" {
		return o.checkAudit(ctx)
	}
	s := &session{options: o, ctx: ctx, signals: make(chan os.Signal, 8)}
	if os.Geteuid() == 0 { // root may become the owner of the project, and forget its own
		var err error
		if s.pin, err = shell.ReadPin(shell.PinFiles(os.Getenv)); err != nil {
			return cli.Invalid(err)
		}
	}
	if o.tell {
		return s.describe()
	}
	if o.loop {
		if err := s.prepareProcess(); err != nil {
			return err
		}
		if err := s.beginLoop(); err != nil {
			return errors.Join(err, s.endLoop())
		}
		return errors.Join(newLoop(s).run(), s.endLoop())
	}
	if o.background && o.stay == nil {
		return runInSecond()
	}
	request, err := o.request(ctx)
	if err != nil {
		return err
	}
	t := s.newTurn(request)
	t.signals = s.signals
	var result *shell.Result
	if err = s.prepareProcess(); err == nil {
		result, err = t.one()
	} else if result, err = s.failed(err); result != nil {
		result.Command = request.Command
	}
	// From here on there is nothing to undo, and a reader that stalls must not
	// keep the program. Files that the command left are removed after the report.
	signal.Reset(endSignals()...)
	if result != nil {
		if rerr := t.finish(result); err == nil || rerr != nil && ctx.StatusOf(rerr) != result.Status {
			err = rerr
		}
	}
	t.cleanUp()
	asked := result == nil || result.Signal == syscall.SIGINT && result.Asked == syscall.SIGINT
	if asked && ctx.StatusOf(err) == cli.StatusSignal+int(syscall.SIGINT) { // nothing else is to be told
		monitor.Die(syscall.SIGINT) // or a loop of a shell goes on
	}
	return err
}

// prepareProcess closes the descriptors that the command must not inherit, opens the audit
// file, and asks for the signals.
func (s *session) prepareProcess() error {
	monitor.Listen(s.signals, syscall.SIGPIPE) // a reader that has gone ends the command, as in any pipeline
	if s.stay != nil {
		s.stay.listen(s.signals)
	} else {
		monitor.Listen(s.signals, endSignals()...)
	}
	err := monitor.CloseInherited()
	if err == nil {
		s.Log, err = audit.Open("pk-bash", s.Audit, s.NamedRoots())
	}
	return cli.Invalid(err)
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
// if a signal came first; else the caller reports it, and then the error, which
// says why nothing was run.
func (t *turn) one() (*shell.Result, error) {
	result, err := t.result()
	if result != nil {
		result.ID, result.Command = t.request.ID, t.request.Command
	}
	t.recordEnd(result)
	return result, err
}

func (t *turn) result() (*shell.Result, error) {
	if why := shell.Check(t.request.Command, *t.request.Timeout); why != "" {
		return t.failed(errors.New(why))
	}
	j, declined, err := t.approved()
	if err != nil || declined != nil {
		return t.failedOr(declined, err)
	}
	if err := j.begin(t.session); err != nil {
		return t.failed(err)
	}
	super, err := j.Start()
	var result *shell.Result
	if err == nil {
		result = super.Wait()
	}
	if j.live != nil {
		_ = j.live.Close()
	}
	if err != nil {
		return t.failed(err)
	}
	if super.Stays() {
		t.staysOn(super, j)
	}
	return t.failedOr(result, t.conclude(j, result))
}

// approved prepares the command, asks the user and records that it begins. It returns a result
// if the command may not run.
func (t *turn) approved() (*job, *shell.Result, error) {
	j, err := t.prepareUnless()
	if err != nil {
		return nil, nil, err
	}
	t.job = j
	yes, reason, err := t.confirm(j.question, j)
	switch {
	case err != nil:
		return j, nil, err
	case !yes:
		return j, declined(reason), nil
	}
	return j, nil, t.recordBegin(j)
}

// declined returns the result after a no.
func declined(reason string) *shell.Result {
	why := "user declined the bash command."
	if reason != "" {
		why = "user declined the bash command: " + reason
	}
	return &shell.Result{Outcome: shell.Declined, Status: cli.StatusNotExec, Error: why}
}

// cleanUp releases the resources of the command. It waits for processes that stay, else at
// most cleanUpTime, and leaves the rest of a large tree to the next sweep.
func (t *turn) cleanUp() {
	t.cleaning.Lock()
	defer t.cleaning.Unlock()
	if t.job == nil {
		return
	}
	done := make(chan error, 1)
	go func() {
		if t.loop && t.job.ahead != nil { // before the keeper's files are closed
			t.job.ahead()
		}
		err := t.job.cleanUp()
		fence.SweepInPassing()
		done <- err
	}()
	late := time.After(cleanUpTime)
	if t.super != nil {
		late = nil
	}
	select {
	case err := <-done:
		if err != nil {
			t.ctx.Report(fmt.Errorf("cannot clean up: %w", err))
		}
	case <-late:
	}
	t.job = nil
}

// cleanUpTime is how long the caller waits after the report.
const cleanUpTime = 5 * time.Second

// failedOr returns the result, or the result for an error.
func (t *turn) failedOr(result *shell.Result, err error) (*shell.Result, error) {
	if err != nil {
		return t.failed(err)
	}
	return result, nil
}

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

// prepareUnless prepares, unless a signal comes: a list may be a pipe without a
// writer. Once all lists have been read, prepare makes files, and a signal waits
// until these are made and removed again.
func (t *turn) prepareUnless() (*job, error) {
	type prepared struct {
		job *job
		err error
	}
	done, decided := make(chan prepared, 1), new(atomic.Bool)
	go func() {
		t.preparing.Lock()
		defer t.preparing.Unlock()
		if decided.Load() {
			done <- prepared{}
			return
		}
		t.Making = func() error {
			if !decided.CompareAndSwap(false, true) {
				return errors.New("a signal came")
			}
			return nil
		}
		j, err := t.prepare()
		done <- prepared{j, err}
	}()
	select {
	case p := <-done:
		return p.job, p.err
	case sig := <-t.signals:
		if decided.CompareAndSwap(false, true) {
			return nil, died(sig)
		}
		select {
		case p := <-done:
			if p.err == nil {
				t.job = p.job
				t.cleanUp()
			}
		case <-time.After(makingTime):
		}
		return nil, died(sig)
	}
}

// makingTime bounds the wait for prepare, on a machine that hangs.
const makingTime = 30 * time.Second

// died is how a program ends that a signal ends.
func died(sig os.Signal) error { return cli.Exit(cli.StatusSignal + int(sig.(syscall.Signal))) }

// conclude completes the result after a command has ended. It returns an error if there was
// no sandbox, or no directory to begin in.
func (t *turn) conclude(j *job, result *shell.Result) error {
	if j.box != nil {
		nameLimit(result, j.box, time.Duration(result.Usage.Utime.Nano()+result.Usage.Stime.Nano()))
	}
	if j.output != nil {
		j.output.Finish(result)
		j.logKept = result.Log != ""
	}
	if result.WriteErr != nil && !errors.Is(result.WriteErr, syscall.EPIPE) {
		t.ctx.Report(fmt.Errorf("cannot write the command's output: %w", errors.Unwrap(result.WriteErr)))
		result.Status = max(result.Status, cli.StatusRefused)
	}
	if result.LogErr != nil {
		t.ctx.Warn("cannot keep the whole output: %v", result.LogErr)
	}
	if result.Outcome == shell.SandboxFailed {
		return j.fence.NotMade(string(result.Output))
	}
	if j.fence != nil {
		t.undo(j, result)
	}
	if t.cancelled.Load() {
		result.Outcome = shell.Cancelled
	}
	if result.NoDir && j.Dir != "" {
		return fmt.Errorf("cannot begin in %q: no such directory", cmp.Or(t.request.Dir, j.Dir))
	}
	return nil
}

// undo moves planted files out of the project. Where that fails, the result says
// so, even if the command succeeded.
func (t *turn) undo(j *job, result *shell.Result) {
	result.Guarantees = j.fence.Plan.Holding()
	if j.fence.Trial {
		result.Trial = strings.TrimPrefix(j.fence.Fence.Session.Name(), sessiondir.Prefix)
	}
	result.Fenced = true
	end := j.fence.End
	if result.Staying > 0 {
		end, result.EndedBy = j.fence.Keep, t.endedBy(strings.TrimPrefix(j.fence.Fence.Session.Name(), sessiondir.Prefix))
	}
	done, err := end()
	result.MovedAside, result.Git, result.Network = done.Moved, done.Git, j.fence.Connections()
	result.Fence = j.blocked(result, t.Closed)
	if err == nil {
		return
	}
	t.ctx.Report(err)
	result.Error = cmp.Or(result.Error, err.Error())
	result.Status = cli.StatusFailed
	result.Guarantees = slices.DeleteFunc(result.Guarantees, func(name string) bool { return name == "protect" })
}

// blocked looks for the cause of a failure, and for files that are lost with the command. A gate
// has told of hosts already.
func (j *job) blocked(r *shell.Result, closed func(string) bool) []blocked.Fact {
	c := blocked.Command{
		Plan: j.fence.Plan, Dir: cmp.Or(j.Dir, j.State.Dir, j.fence.Plan.Chdir), Text: j.Command,
		Getenv: os.Getenv, Closed: closed, Traced: j.fence.Trace, Failed: j.fence.Failed(),
	}
	if j.typed.Load() {
		c.Dir = "" // a shell may have executed the input
	}
	output := ""
	if r.Status != 0 || r.Pipeline != nil {
		output = string(r.Output)
	}
	facts := c.Find(output)
	if left := j.fence.Left(); len(left) > 0 {
		facts = append(facts, c.Lost(left)...)
	}
	return facts[:min(len(facts), blocked.Most)]
}

// nameLimit says which limit stopped the command, if one did. pk-bash's own SIGKILL
// does not count.
func nameLimit(r *shell.Result, box *limits.Box, used time.Duration) {
	death := r.Signal
	if end := syscall.Signal(r.Status - 128); end == syscall.SIGXCPU || end == syscall.SIGXFSZ {
		death = end // of its last process, as a shell tells it
	}
	if slices.Contains(r.Sent, syscall.SIGKILL) {
		death = 0
	}
	if name, stopped := box.Stopped(death, used); stopped {
		r.Limit = string(name)
	}
}
