package main

import (
	"errors"
	"fmt"
	"strings"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
	sessiondir "pikuri/lib/session"
	"pikuri/lib/shell"
)

// checkAudit is --audit-check.
func (o *options) checkAudit(ctx *cli.Context) error {
	lines, found := cli.JSON(ctx.Stdout), false
	var werr error
	err := audit.Check(o.auditCheck, func(f audit.Finding) {
		found = true
		if o.json {
			werr = errors.Join(werr, lines.Encode(f))
			return
		}
		_, err := fmt.Fprintf(ctx.Stdout, "line %d: %s\n", f.Line, f.Text)
		werr = errors.Join(werr, err)
	})
	if err = errors.Join(err, werr); err == nil && found {
		err = cli.Exit(cli.StatusRefused)
	}
	return err
}

// sessionName names the session that commands share, "" for none. A loop has one of its own,
// which another program may join as long.
func (s *session) sessionName() string {
	if name := s.SessionName(); name != "" || s.Loop == nil {
		return name
	}
	return strings.TrimPrefix(s.Loop.Name(), sessiondir.Prefix)
}

// record returns a record of the command. j is nil if it could not be prepared.
func (t *turn) record(event audit.Event, j *job) audit.Record {
	var r audit.Record
	if j == nil {
		r = t.Record(event, nil)
	} else {
		r = t.Record(event, j.fence)
		r.SetProject(j.workspace.ProjectRoot())
		r.Cwd = j.question.Where
	}
	if event != audit.Begin {
		r.Guarantees = nil // the result has them
	}
	r.Begin, r.Asked, r.Session, r.Unfenced = t.entry, t.asked, t.sessionName(), t.noSandbox || t.wrap != ""
	return r
}

// append writes a record, unless one of this command has failed: that was reported.
func (t *turn) append(r audit.Record) (seq uint64, err error) {
	if !t.unrecorded {
		seq, err = t.Log.Append(r)
		t.unrecorded = err != nil
	}
	return seq, err
}

// recordBegin records that the command will run. Without the record it must not.
func (t *turn) recordBegin(j *job) (err error) {
	if t.Log == nil {
		return nil
	}
	r := t.record(audit.Begin, j)
	r.Description = t.request.Description
	r.SetCommand(t.request.Command)
	t.entry, err = t.append(r)
	return err
}

// recordEnd records how the command has ended, or that it was not begun. result is nil if a
// signal came first.
func (t *turn) recordEnd(result *shell.Result) {
	if t.Log == nil {
		return
	}
	event := audit.End
	switch {
	case t.entry != 0:
	case result != nil && result.Outcome == shell.Declined:
		event = audit.Declined
	default:
		event = audit.Refused
	}
	r := t.record(event, t.job)
	if event != audit.End {
		r.Description = t.request.Description
		r.SetCommand(t.request.Command)
	}
	var err error
	if result == nil {
		r.Error = "a signal came"
	} else {
		r.Result, err = result.Summary()
	}
	if err == nil {
		_, err = t.append(r)
	}
	if err != nil {
		t.ctx.Report(err)
	}
}

// recordRest records the end of what a command has left running, and of its work.
func (t *turn) recordRest(j *job, result *shell.Result) {
	if t.Log == nil {
		return
	}
	r := t.record(audit.Rest, j)
	result.Guarantees, result.Outcome = nil, shell.Running // no status of its own
	fields, err := result.Summary()
	delete(fields, "outcome")
	if r.Result = fields; err == nil {
		_, err = t.append(r)
	}
	if err != nil {
		t.ctx.Report(err)
	}
}

// recordAnswer records the answer of a person or a program about a command, or about
// input.
func (t *turn) recordAnswer(q shell.Question, j *job, yes bool, reason string) error {
	if t.Log == nil {
		return nil
	}
	r := t.record(audit.Question, j)
	r.Description, r.Answer, r.Reason = q.Description, "no", reason
	if yes {
		r.Answer = "yes"
	}
	r.SetCommand(q.Command)
	_, err := t.append(r)
	return err
}

// recordInput records text for a job, which a shell or an interpreter executes.
func (t *turn) recordInput(b *background) error {
	if t.Log == nil {
		return nil
	}
	r := t.record(audit.Input, b.job)
	r.SetCommand(t.request.Bytes)
	_, err := t.append(r)
	return err
}
