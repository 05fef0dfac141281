package shell

import (
	"io"

	"pikuri/lib/capture"
)

// Output takes a command's output: it keeps both ends in memory, writes all of it
// to a log, and shows it live. It takes pieces of any size and never fails.
type Output struct {
	head, tail int
	raw        bool
	capture    *capture.Capture
	fold       *Fold
	log        *Log
	total      int64
}

// NewOutput keeps head and tail bytes, of the raw output if raw is set, else of the
// text that a Fold passes on. log and live may be nil; live gets the text that the
// Fold passes on.
func NewOutput(head, tail int, raw bool, log *Log, live io.Writer) *Output {
	o := &Output{head: head, tail: tail, raw: raw, log: log, capture: capture.New(head, tail)}
	switch {
	case raw && live == nil: // then no reader wants it folded
	case raw:
		o.fold = NewFold(live)
	case live == nil:
		o.fold = NewFold(o.capture)
	default:
		o.fold = NewFold(io.MultiWriter(o.capture, live))
	}
	return o
}

// Write never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.total += int64(len(p))
	if o.log != nil {
		o.log.write(p)
	}
	if o.raw {
		_, _ = o.capture.Write(p)
	}
	if o.fold != nil {
		_, _ = o.fold.Write(p)
	}
	return len(p), nil
}

// Finish ends the log and puts the kept text into a result.
func (o *Output) Finish(r *Result) {
	if o.fold != nil {
		_ = o.fold.Close()
	}
	kept := o.capture.Kept()
	if !o.raw {
		r.Folded, r.Over = o.fold.Removed(), o.fold.Overwritten()
		kept = kept.Visible(o.head, o.tail)
	}
	if o.log != nil {
		r.Log, r.LogErr = o.log.close(kept.Omitted > 0)
	}
	note := ""
	switch {
	case r.Log == "":
	case o.log.capped():
		note = "the first " + size(o.log.most) + " are in " + oneLine(r.Log)
	default:
		note = "full output: " + oneLine(r.Log)
	}
	r.Total, r.Omitted, r.Raw = o.total, kept.Omitted, o.raw
	r.Output = kept.Join(note)
}
