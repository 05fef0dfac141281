package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"pikuri/lib/cli"
	"pikuri/lib/gate"
	"pikuri/lib/shell"
	"pikuri/lib/toolchain"
)

// report writes the result and turns it into the exit status.
func (s *session) report(r *shell.Result) error {
	if err := s.write(r); err != nil {
		return err
	}
	return cli.Exit(r.Status)
}

// write writes the result in the form that was asked for. The sandbox is gone by
// then: a reader that has stopped reading cannot keep it alive.
func (s *session) write(r *shell.Result) error {
	record, err := r.JSON()
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if s.status != nil {
		if _, err := s.status.Write(record); err != nil {
			s.ctx.Report(fmt.Errorf("cannot write to the descriptor of --status-fd: %w", errors.Unwrap(err)))
		}
	}
	switch {
	case s.object():
		_, err = s.ctx.Stdout.Write(record)
	case s.raw:
		err = s.rawReport(r)
	default:
		_, err = io.WriteString(s.ctx.Stdout, r.Observation())
	}
	return s.writeError(err)
}

// writeError turns a failed write of a result into the error that the command exits with.
func (*session) writeError(err error) error {
	switch {
	case errors.Is(err, syscall.EPIPE):
		return cli.Exit(cli.StatusSignal + int(syscall.SIGPIPE))
	case err != nil:
		return fmt.Errorf("cannot write the result: %w", errors.Unwrap(err))
	}
	return nil
}

// rawReport reports an end that the command's own bytes do not show.
func (s *session) rawReport(r *shell.Result) error {
	switch r.Outcome {
	case shell.TimedOut:
		s.ctx.Report(fmt.Errorf("command timed out after %d s", int(r.Timeout.Seconds())))
	case shell.Declined: // any other refusal is an error, and is reported as one
		s.ctx.Report(errors.New(r.Error))
	}
	for _, line := range r.Git {
		s.ctx.Warn("git: %s", line)
	}
	for _, line := range gate.Lines(r.Network) {
		s.ctx.Warn("network: %s", line)
	}
	for _, line := range r.FenceLines() {
		s.ctx.Warn("fence: %s", line)
	}
	for _, m := range r.MovedAside {
		s.ctx.Warn("%q appeared or changed while the command ran, where it is protected; it is now %q", m.From, m.To)
	}
	return nil
}

// warnUnfenced warns that a command without a sandbox can reach everything.
func (s *session) warnUnfenced() {
	risk := ""
	places := toolchain.Exposed(toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv}, 2)
	for i, place := range places {
		risk += []string{", such as ", " and "}[i] + strconv.Quote(place)
	}
	s.ctx.Warn("no sandbox: the command can read and change all that you can%s", risk)
	s.ctx.Say("hint: leave --no-sandbox out; if no sandbox can be made, pk-bwrap --check says what to type")
}
