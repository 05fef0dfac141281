package main

import (
	"cmp"
	"syscall"
	"time"

	"pikuri/lib/audit"
	"pikuri/lib/blocked"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/quarantine"
	"pikuri/lib/shell"
)

// recordBegin records that the command will run. Without the record it must not.
func (o *options) recordBegin(ctx *cli.Context, f *sandboxflags.Fence) (begin uint64, err error) {
	if o.Log == nil {
		return 0, nil
	}
	r := o.Record(audit.Begin, f)
	r.SetCommand(shell.JoinWords(ctx.Args))
	return o.Log.Append(r)
}

// refused records that the command does not run, and returns err.
func (o *options) refused(ctx *cli.Context, f *sandboxflags.Fence, err error) error {
	if o.Log == nil {
		return err
	}
	r := o.Record(audit.Refused, f)
	r.SetCommand(shell.JoinWords(ctx.Args))
	r.Guarantees, r.Error = nil, err.Error()
	o.append(ctx, r)
	return err
}

// ended is how a command has ended.
type ended struct {
	status   int
	death    syscall.Signal
	duration time.Duration
	failed   error // it did not run
	left     error // its files could not be moved to the quarantine, or its work not land
	blocked  []blocked.Fact
}

// recordEnd records how the command has ended.
func (o *options) recordEnd(ctx *cli.Context, f *sandboxflags.Fence, begin uint64, e ended, done quarantine.Report) {
	if o.Log == nil {
		return
	}
	told := shell.Result{
		Outcome: shell.Exited, Status: e.status, Signal: e.death, Duration: e.duration,
		MovedAside: done.Moved, Git: done.Git, Network: f.Connections(), Guarantees: f.Plan.Holding(), Fence: e.blocked,
	}
	if e.death != 0 {
		told.Outcome, told.Status = shell.Signaled, cli.StatusSignal+int(e.death)
	}
	if e.failed != nil {
		told.Outcome, told.Status = shell.SandboxFailed, cli.StatusFailed
	}
	if err := cmp.Or(e.failed, e.left); err != nil {
		told.Error = err.Error()
	}
	r := o.Record(audit.End, f)
	r.Begin, r.Guarantees = begin, nil
	var err error
	if r.Result, err = told.Summary(); err != nil {
		ctx.Report(err)
	}
	o.append(ctx, r)
}

// append records an end, which cannot be refused.
func (o *options) append(ctx *cli.Context, r audit.Record) {
	if _, err := o.Log.Append(r); err != nil {
		ctx.Report(err)
	}
}
