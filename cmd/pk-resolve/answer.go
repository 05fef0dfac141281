package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
)

// answerer writes one answer for each path and remembers whether one was
// refused.
type answerer struct {
	*options
	ctx       *cli.Context
	workspace *confine.Workspace
	batch     *confine.Batch
	out       *bufio.Writer
	terminal  bool // out is one
	refused   bool

	host  map[string]*fence.HostRun                             // by writable root
	looks map[string]func(place string) (why string, err error) // of these, until forget
}

// outcome is the answer to one path.
type outcome struct {
	path    string
	where   string
	refusal error
	how     *confine.Explanation // nil without --explain
}

// answerAll answers operands. A refused operand leaves no record.
func (a *answerer) answerAll(paths []string) error {
	for _, path := range paths {
		if _, err := a.answer(path); err != nil {
			return err
		}
	}
	return a.finish()
}

// answer answers one path. The error is one of writing.
func (a *answerer) answer(path string) (refused bool, err error) {
	o := a.resolve(path)
	if o.refusal == nil && !a.json {
		o.refusal = cli.WriteRecord(a.out, o.where, a.zero, a.terminal)
	}
	if a.json {
		err = a.writeJSON(o)
	}
	if _, failed := a.out.Write(nil); failed != nil { // a bufio.Writer repeats its first error
		return false, failedWrite(failed)
	}
	a.say(o)
	a.refused = a.refused || o.refusal != nil
	return o.refusal != nil, err
}

// resolve finds the answer, and the explanation that goes with it.
func (a *answerer) resolve(path string) outcome {
	o := outcome{path: path}
	if a.explain {
		o.how = a.workspace.Explain(path, a.batch.Request)
		o.where, o.refusal = o.how.Where, o.how.Err
	} else {
		o.where, o.refusal = a.batch.Resolve(path)
	}
	if o.refusal == nil && a.write && !a.NoProtect && !a.AllowAll {
		o.refusal = a.refuseHostRun(path, o.where)
	}
	if refusal, ok := errors.AsType[*confine.Refusal](o.refusal); ok && a.verbose {
		o.refusal = refusal.Disclose()
	}
	if a.existing && errors.Is(o.refusal, unix.ENOENT) {
		o.refusal = cli.WithHint(o.refusal, "without -e it may be missing")
	}
	return o
}

// refuseHostRun refuses to write a file that a program on the host would run, as pk-fs does.
func (a *answerer) refuseHostRun(path, where string) error {
	for _, root := range a.workspace.Roots() {
		if !root.Writable || !root.Dir || root.Path == a.workspace.Temp() || !root.Contains(where) {
			continue
		}
		if a.host[root.Path] == nil {
			a.host[root.Path] = fence.NewHostRun(root.Path)
		}
		look := a.looks[root.Path]
		if look == nil {
			look = a.host[root.Path].Look()
			a.looks[root.Path] = look
		}
		why, err := look(strings.TrimPrefix(strings.TrimPrefix(where, root.Path), "/"))
		if err == nil && why != "" {
			err = &confine.HostRuns{Why: why}
		}
		if err != nil {
			return &confine.Refusal{Path: path, Mode: confine.Write, Err: err}
		}
	}
	return nil
}

// forget drops all that is remembered about the tree.
func (a *answerer) forget() {
	a.batch.Forget()
	clear(a.looks)
}

// say reports a refusal in one line, or with --explain the whole way.
func (a *answerer) say(o outcome) {
	switch {
	case o.how != nil:
		a.tell(o)
	case o.refusal != nil && !a.quiet:
		a.ctx.ReportLine(o.refusal)
	}
}

// finish writes the buffered answers and makes the exit status.
func (a *answerer) finish() error {
	if err := a.flush(); err != nil {
		return err
	}
	if a.refused {
		return cli.Exit(cli.StatusRefused)
	}
	return nil
}

func (a *answerer) flush() error {
	if err := a.out.Flush(); err != nil {
		return failedWrite(err)
	}
	return nil
}

func failedWrite(err error) error {
	return fmt.Errorf("cannot write to standard output: %w", err)
}
