package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
	"pikuri/lib/edit"
	"pikuri/lib/workspace"
)

// maxAudited bounds the files that are read for their hash in the records of --audit.
const maxAudited = 64 << 20

// outcome is how an operation has ended, in its record.
type outcome struct {
	Outcome string `json:"outcome"` // done or failed
	Kind    string `json:"kind,omitempty"`
}

// openRecords opens the file of --audit; nil without the option.
func (o *options) openRecords() (*audit.Log, error) {
	log, err := audit.Open("pk-fs", o.Audit, o.NamedRoots())
	return log, cli.Invalid(err)
}

// refusedBy refuses an operation that a sandbox with the same policy would not do.
func (w *work) refusedBy(operation string) error {
	remote := operation == "git-clone" || operation == "git-pull"
	switch {
	case w.TrialBy != "" && !w.view.Active():
		err := fmt.Errorf("cannot %s: policy %s says trial, and the session is none", operation, w.TrialBy)
		return cli.WithHint(err, "--session NAME, as pk-bash names it")
	case w.OfflineBy != "" && remote:
		err := fmt.Errorf("cannot %s with the network of the host: policy %s says another", operation, w.OfflineBy)
		return cli.WithHint(err, "run git in the sandbox: pk-bash")
	}
	return nil
}

// change changes the files at paths, and records the begin and the end.
// Without the first record nothing is changed. about is the operand that is no path, or "".
func (w *work) change(operation, about string, paths []string, do func() error) error {
	if err := w.refusedBy(operation); err != nil {
		return err
	}
	if w.records == nil {
		return do()
	}
	r := audit.Record{Event: audit.Begin, Operation: operation, Session: w.SessionName()}
	r.SetProject(w.confined.ProjectRoot())
	r.SetCommand(about)
	for _, typed := range paths {
		f := audit.File{Before: w.hash(typed)}
		f.Path, f.PathBytes = cli.TextOrBytes(typed)
		r.Files = append(r.Files, f)
	}
	var err error
	if r.Begin, err = w.records.Append(r); err != nil {
		return err
	}
	w.failures = nil
	err = do()
	r.Event, r.Result = audit.End, outcome{Outcome: "done"}
	if failed := errors.Join(err, w.failures); failed != nil {
		r.Error, r.Result = failed.Error(), outcome{"failed", kindOf(failed)}
	}
	for i, typed := range paths {
		r.Files[i].After = w.hash(typed)
	}
	if _, lost := w.records.Append(r); lost != nil {
		w.ctx.Report(lost)
	}
	return err
}

// changed returns the paths of a patch.
func changed(plan *edit.Plan) (paths []string) {
	for _, c := range plan.Files() {
		paths = append(paths, c.Path)
		if c.To != "" {
			paths = append(paths, c.To)
		}
	}
	return paths
}

// hash returns the SHA-256 of a file: "" if it is missing, unreadable or too long.
func (w *work) hash(typed string) string {
	p := w.reached(typed)
	if p == nil {
		return ""
	}
	f, err := workspace.Open(context.Background(), p.Workspace, p.path)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if n, err := io.Copy(sum, io.LimitReader(f, maxAudited+1)); err != nil || n > maxAudited {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
