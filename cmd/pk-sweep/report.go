package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"pikuri/lib/cli"
	"pikuri/lib/gitland"
	"pikuri/lib/quarantine"
	"pikuri/lib/session"
)

// reporter reports on each session directory, as the options ask.
type reporter struct {
	*options
	ctx    *cli.Context
	out    io.Writer
	total  total
	status int
}

// total counts the session directories of one base.
type total struct {
	removed, kept, failed int
	usage                 session.Usage
}

// recover finishes the work that killed commands have left undone.
func (r *reporter) recover(base string) {
	done, err := quarantine.Recover(base)
	defer done.Told()
	for _, m := range done.Moved {
		r.ctx.Warn("%q was left by a command that was killed, and is now %q", m.From, m.To)
	}
	for _, line := range done.Git {
		r.ctx.Warn("git: %s", line)
	}
	if err != nil {
		r.ctx.Report(err)
		r.status = cli.StatusRefused
	}
}

// base sweeps one base. A failure there does not keep the others from being
// swept.
func (r *reporter) base(path string) {
	r.total = total{}
	if err := session.Sweep(path, r.sweep, r.result); err != nil {
		r.status = cli.StatusRefused
		r.ctx.Report(err)
		return
	}
	if !r.sweep.DryRun && len(r.sessions) == 0 {
		age := r.sweep.OlderThan
		if r.sweep.All {
			age = 0
		}
		kept, err := gitland.Sweep(filepath.Join(path, session.GitDir), age, r.sweep.Discard)
		for _, line := range kept {
			r.ctx.Warn("git: %s", line)
		}
		if err := errors.Join(session.Trim(path), err); err != nil {
			r.status = cli.StatusRefused
			r.ctx.Report(err)
		}
	}
	switch {
	case r.json:
		r.encode(r.total.record(path, r.sweep.DryRun))
	case r.verbose || r.sweep.DryRun:
		fmt.Fprintf(r.out, "total: %s, in %q\n", r.total.text(r.sweep.DryRun), path)
	}
}

// endBackground ends the background of the sessions. A monitor that was killed there leaves
// its work to recover.
func (r *reporter) endBackground(base string) {
	for _, name := range r.sessions {
		ended, err := session.EndBackground(base, name)
		if err != nil {
			r.status = cli.StatusRefused
			r.ctx.Report(err)
		}
		if r.verbose {
			fmt.Fprintf(r.out, "ended what %s of session %q had left running\n", cli.Count(ended, "command", "commands"), name)
		}
	}
	r.recover(base)
}

func (r *reporter) result(u session.Result) {
	r.total.add(u)
	switch {
	case u.Action == session.Failed:
		r.status = cli.StatusRefused
		r.ctx.Report(failure(u))
	case u.Action == session.Kept && len(r.sessions) > 0:
		r.status = cli.StatusRefused
		err := fmt.Errorf("cannot remove %q: it is %s", u.Path, u.Reason)
		name := strings.TrimPrefix(filepath.Base(u.Path), session.Prefix)
		switch {
		case u.Reason == session.Trial:
			err = cli.WithHint(err, "pk-diff --session %s shows them, --discard drops them", name)
		case u.Reason == session.InUse && session.HasBackground(filepath.Dir(u.Path), name):
			err = cli.WithHint(err, "with --background, pk-sweep ends what commands have left running there")
		}
		r.ctx.Report(err)
	case u.Reason == session.Future:
		r.ctx.Warn("%q is kept: its times lie in the future", u.Path)
	}
	switch {
	case r.json:
		r.encode(resultRecord(u))
	case u.Action == session.Failed:
	case r.verbose, u.Action == session.WouldRemove:
		fmt.Fprintln(r.out, line(u))
	}
}

func failure(u session.Result) error {
	if u.Failures > 1 {
		return fmt.Errorf("cannot remove %q: %w (and %d more)", u.Path, u.Err, u.Failures-1)
	}
	return fmt.Errorf("cannot remove %q: %w", u.Path, u.Err)
}

// line describes one session directory to a person.
func line(u session.Result) string {
	switch u.Action {
	case session.Kept:
		text := fmt.Sprintf("kept %q: %s", u.Path, u.Reason)
		if u.Reason == session.Young {
			text = fmt.Sprintf("kept %q: used %s ago", u.Path, cli.Age(u.Age))
		} else if !u.LastUsed.IsZero() {
			text += fmt.Sprintf(", used %s ago", cli.Age(u.Age))
		}
		if u.Usage.Entries > 0 || u.Usage.AtLeast {
			text += ", " + size(u.Usage)
		}
		return text
	case session.WouldRemove:
		return fmt.Sprintf("would remove %q: used %s ago, %s", u.Path, cli.Age(u.Age), size(u.Usage))
	}
	return fmt.Sprintf("removed %q: used %s ago, %s", u.Path, cli.Age(u.Age), size(u.Usage))
}

func (t *total) add(u session.Result) {
	switch u.Action {
	case session.Kept:
		t.kept++
		return // the total counts removed directories
	case session.Failed:
		t.failed++
	default:
		t.removed++
	}
	t.usage.Entries += u.Usage.Entries
	t.usage.Bytes += u.Usage.Bytes
	t.usage.AtLeast = t.usage.AtLeast || u.Usage.AtLeast
}

func (t *total) text(dryRun bool) string {
	verb := "removed"
	if dryRun {
		verb = "to remove"
	}
	text := fmt.Sprintf("%d %s, %d kept", t.removed, verb, t.kept)
	if t.failed > 0 {
		text += fmt.Sprintf(", %d failed", t.failed)
	}
	return text + ", " + size(t.usage)
}

// size formats the disk space of a session directory.
func size(u session.Usage) string {
	text := fmt.Sprintf("%d B", u.Bytes)
	scaled := float64(u.Bytes)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if scaled /= 1024; scaled < 1 {
			break
		}
		text = fmt.Sprintf("%.1f %s", scaled, unit)
	}
	if u.AtLeast {
		text = "at least " + text
	}
	return text + " in " + cli.Count(u.Entries, "entry", "entries")
}

// record is one line of --json.
type record struct {
	Path      string         `json:"path,omitempty"`
	PathBytes []byte         `json:"path_base64,omitempty"`
	Action    session.Action `json:"action"`
	Reason    session.Reason `json:"reason,omitempty"`
	LastUsed  *time.Time     `json:"last_used,omitempty"`
	Age       *int64         `json:"age_s,omitempty"`
	Bytes     *int64         `json:"bytes,omitempty"`
	Entries   *int64         `json:"entries,omitempty"`
	AtLeast   bool           `json:"at_least,omitempty"`
	Error     string         `json:"error,omitempty"`
	Failures  int            `json:"failures,omitempty"`
}

// summary is the last line of --json for one base.
type summary struct {
	Base      string `json:"base,omitempty"`
	BaseBytes []byte `json:"base_base64,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
	Removed   int    `json:"removed"`
	Kept      int    `json:"kept"`
	Failed    int    `json:"failed"`
	Bytes     int64  `json:"bytes"`
	Entries   int64  `json:"entries"`
}

func resultRecord(u session.Result) record {
	r := record{Action: u.Action, Reason: u.Reason, Failures: u.Failures, AtLeast: u.Usage.AtLeast}
	r.Path, r.PathBytes = cli.TextOrBytes(u.Path)
	if !u.LastUsed.IsZero() {
		last, age := u.LastUsed.UTC().Truncate(time.Second), int64(u.Age.Seconds())
		r.LastUsed, r.Age = &last, &age
	}
	if u.Action != session.Kept || u.Usage.Entries > 0 {
		r.Bytes, r.Entries = &u.Usage.Bytes, &u.Usage.Entries
	}
	if u.Err != nil {
		r.Error = u.Err.Error()
	}
	return r
}

func (t *total) record(path string, dryRun bool) map[string]summary {
	s := summary{DryRun: dryRun, Removed: t.removed, Kept: t.kept, Failed: t.failed, Bytes: t.usage.Bytes, Entries: t.usage.Entries}
	s.Base, s.BaseBytes = cli.TextOrBytes(path)
	return map[string]summary{"summary": s}
}

func (r *reporter) encode(v any) {
	_ = cli.JSON(r.out).Encode(v) // a failed write comes back from Flush
}
