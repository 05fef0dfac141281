package main

import (
	"pikuri/lib/audit"
	"pikuri/lib/cli"
	"pikuri/lib/confine"
)

// operation names the call in its records.
func (w *work) operation() string {
	switch {
	case w.discard:
		return "discard"
	case w.undo:
		return "undo"
	case w.redo:
		return "redo"
	}
	return "apply"
}

func (w *work) record(event audit.Event) audit.Record {
	r := audit.Record{Event: event, Begin: w.begin, Operation: w.operation(), Session: w.Name()}
	r.SetProject(w.trial.Project())
	return r
}

// recordBegin records the operands. Without the record nothing lands.
func (w *work) recordBegin() (err error) {
	if w.machine.Audit == "" || w.dryRun {
		return nil
	}
	var roots []confine.Root
	var paths []string
	for _, r := range w.trial.Roots {
		roots, paths = append(roots, confine.Root{Path: r.Path, Dir: true}), append(paths, r.Path)
	}
	if w.log, err = audit.Open("pk-apply", w.machine.Audit, paths); err == nil {
		err = w.log.CheckOutside(roots)
	}
	if err != nil {
		return cli.Invalid(err)
	}
	r := w.record(audit.Begin)
	named := w.ctx.Args
	for _, l := range w.list {
		named = append(named, either(l.Path, []byte(l.GitDir)))
	}
	for _, path := range named {
		var f audit.File
		f.Path, f.PathBytes = cli.TextOrBytes(path)
		r.Files = append(r.Files, f)
	}
	w.begin, err = w.log.Append(r)
	return err
}

// recordLanding records a change that has landed, was dropped or put back; or why not.
func (w *work) recordLanding(letter, name string, err error) {
	if w.log == nil {
		return
	}
	r := w.record(audit.Landing)
	if err != nil {
		r.Event, r.Error = audit.Refused, err.Error()
	}
	f := audit.File{Change: letter}
	f.Path, f.PathBytes = cli.TextOrBytes(name)
	r.Files = []audit.File{f}
	w.append(r)
}

// recordEnd records that the call has ended.
func (w *work) recordEnd(err error) {
	if w.log == nil {
		return
	}
	defer w.log.Close()
	r := w.record(audit.End)
	status := w.status
	if err != nil {
		r.Error, status = err.Error(), w.ctx.StatusOf(err)
	}
	r.Result = map[string]int{"exit_status": status}
	w.append(r)
}

// append records a change that is made. A failure does not undo it.
func (w *work) append(r audit.Record) {
	if _, err := w.log.Append(r); err != nil {
		w.ctx.Report(err)
	}
}
