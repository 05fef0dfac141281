package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/setup"
	"pikuri/lib/shell"
)

// This file holds the parts that both runners have in common.

// DefaultMaxOutputBytes is the default of WithMaxOutputBytes.
const DefaultMaxOutputBytes = 10 << 20

// Option changes how a runner runs every command.
type Option func(*settings)

type settings struct {
	maxOutput int64
	killAfter time.Duration
}

// WithMaxOutputBytes bounds the part of each stream that is kept, for commands without
// Resources.MaxOutputBytes. There is always a bound: a command can print without end.
func WithMaxOutputBytes(n int64) Option { return func(s *settings) { s.maxOutput = n } }

// WithKillAfter sets the time between SIGTERM and SIGKILL for a command that must stop; 5
// seconds by default.
func WithKillAfter(d time.Duration) Option { return func(s *settings) { s.killAfter = d } }

func configure(opts []Option) (settings, error) {
	s := settings{DefaultMaxOutputBytes, shell.DefaultKillAfter}
	for _, o := range opts {
		o(&s)
	}
	if s.maxOutput <= 0 || s.killAfter < 0 {
		return s, fmt.Errorf("%w: WithMaxOutputBytes is below 1, or WithKillAfter below 0", ErrInvalid)
	}
	return s, nil
}

func (s settings) limit(r Resources) int64 {
	if r.MaxOutputBytes > 0 {
		return r.MaxOutputBytes
	}
	return s.maxOutput
}

// check refuses options that are invalid or not enforced, before anything is opened.
func check(r Enforcer, cmd string, args []string, opts ExecOptions) error {
	if cmd == "" {
		return fmt.Errorf("%w: there is no command", ErrInvalid)
	}
	for _, word := range append([]string{cmd}, args...) {
		if strings.Contains(word, "\x00") {
			return fmt.Errorf("%w: %q holds a NUL byte", ErrInvalid, word)
		}
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	return r.Enforcement().permits(opts)
}

// rlimits are the limits that the kernel applies to each process.
func (r Resources) rlimits() []setup.Rlimit {
	set := []setup.Rlimit{{Resource: unix.RLIMIT_CORE}} // a core file would be litter, with secrets in it
	if n := uint64(r.MaxFileBytes); n > 0 {
		set = append(set, setup.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: n, Hard: n})
	}
	if n := uint64(r.MaxOpenFiles); n > 0 {
		set = append(set, setup.Rlimit{Resource: unix.RLIMIT_NOFILE, Soft: n, Hard: n})
	}
	return set
}

// workDirs are the directories in which commands may start.
type workDirs struct {
	mu        sync.Mutex
	workspace *confine.Workspace // nil: closed
}

// enter opens the directory that name leads to, if it is in the root.
func (p *workDirs) enter(name string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workspace == nil {
		return nil, ErrClosed
	}
	if name == "" {
		name = "."
	}
	dir, err := p.workspace.OpenFile(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, confine.ErrOutside), errors.Is(err, confine.ErrReplaced), errors.Is(err, confine.ErrRaced):
		return nil, fmt.Errorf("%w: %q as the working directory", ErrPathTraversal, name)
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("%w: working directory %q", ErrNotFound, name)
	}
	return nil, fmt.Errorf("%w: working directory %q: %w", ErrInvalid, name, err)
}

// Close closes the root. Commands that run go on.
func (p *workDirs) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workspace != nil {
		p.workspace.Close()
		p.workspace = nil
	}
	return nil
}

// inputFile returns a file with the input of a command, or an empty one.
func inputFile(data []byte) (*os.File, error) {
	if data == nil {
		return os.Open(os.DevNull)
	}
	fd, err := fsat.Memfd("input", data)
	if err != nil {
		return nil, fmt.Errorf("sandbox: cannot keep the input in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "input"), nil
}

// report says how a command ended, or why it was not started.
type report struct {
	Outcome   shell.Outcome // "" if it was not started
	Status    int
	Signal    syscall.Signal
	Stopped   bool // a signal was sent to it
	Duration  time.Duration
	Survivors int
	Usage     Usage

	Kind  failureKind
	Error string
}

// run runs a job to its end.
func run(job *shell.Job) (report, error) {
	if job.Timeout == 0 {
		job.Timeout = math.MaxInt64
	}
	result, err := job.Run()
	if err != nil {
		return report{}, err
	}
	ru := result.Usage
	return report{
		Outcome: result.Outcome, Status: result.Status, Signal: result.Signal, Stopped: len(result.Sent) > 0,
		Duration: result.Duration, Survivors: result.Survivors,
		Usage: Usage{User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()), MaxRSS: ru.Maxrss << 10},
	}, nil
}

// conclude makes the result of a command that ran, and the error if it did not
// end by itself.
func conclude(ctx context.Context, name string, timeout time.Duration, r report, stdout, stderr *stream) (*ExecResult, error) {
	out, said := stdout.kept(), stderr.kept()
	if r.Outcome == shell.SandboxFailed {
		return nil, fmt.Errorf("%w: %w", ErrNotAvailable, bwrap.Diagnose(said.first))
	}
	result := &ExecResult{
		ExitCode: r.Status,
		TimedOut: r.Outcome == shell.TimedOut,
		Stdout:   out.first, StdoutTail: out.tail, StdoutBytes: out.total,
		Stderr: said.first, StderrTail: said.tail, StderrBytes: said.total,
		Duration: r.Duration, Usage: r.Usage, Survivors: r.Survivors,
	}
	if r.Signal != 0 {
		result.Signal = unix.SignalName(r.Signal)
	}
	switch {
	case result.TimedOut:
		return result, fmt.Errorf("%w: %q ran longer than %v", ErrTimeout, name, timeout)
	case ctx.Err() != nil && r.Stopped:
		err := stopped(ctx.Err())
		result.TimedOut = errors.Is(err, ErrTimeout)
		return result, err
	}
	return result, nil
}

// stopped returns the error for the end of a context.
func stopped(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrAborted, err)
}

// failureKind is the reason why a command was not started, as text: errors cannot pass
// between processes.
type failureKind string

const (
	failedMissing     failureKind = "missing"
	failedNotExec     failureKind = "not-executable"
	failedUnavailable failureKind = "unavailable"
	failedOther       failureKind = "other"
)

var kinds = map[failureKind]error{
	failedMissing:     ErrNotFound,
	failedNotExec:     ErrNotExecutable,
	failedUnavailable: ErrNotAvailable,
	failedOther:       errors.New("sandbox: cannot start"),
}

func kindOf(err error) failureKind {
	_, missing := errors.AsType[*bwrap.NotFound](err)
	_, notExec := errors.AsType[*bwrap.NotExecutable](err)
	_, refused := errors.AsType[*bwrap.Refusal](err)
	_, unavailable := errors.AsType[*bwrap.Unavailable](err)
	switch {
	case missing || errors.Is(err, fs.ErrNotExist):
		return failedMissing
	case notExec || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOEXEC):
		return failedNotExec
	case refused || unavailable:
		return failedUnavailable
	}
	return failedOther
}
