package cli

import (
	"errors"
	"fmt"
	"syscall"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/session"
)

// Exit statuses. Plain commands use the first three; commands that run
// another command pass its status on and keep 125 to 127 for themselves, as
// env(1), nohup(1) and timeout(1) do.
const (
	StatusOK      = 0   // done
	StatusRefused = 1   // something was refused or could not be done
	StatusUsage   = 2   // called wrongly, or the workspace is invalid
	StatusTimeout = 124 // pk-bash: the command ran out of time
	StatusFailed  = 125 // pk itself could not start the command
	StatusNotExec = 126 // the command is not executable; pk-bash: the user declined, or could not be asked
	StatusMissing = 127 // the command was not found
	StatusSignal  = 128 // plus n: the command died of signal n
)

// kind sorts failures into the columns of the status table.
type kind int

const (
	kindFailed kind = iota // 1, or 125 for commands that run another
	kindUsage              // 2, or 125
	kindStatus             // the status says it all
)

// failure is an error that knows its place in the status table.
type failure struct {
	kind   kind
	status int
	err    error // nil: there is nothing to print
	hint   string
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// Hint is the line to type next.
func (f *failure) Hint() string { return f.hint }

// Usage reports a wrong call: an unknown option, a value out of range, two
// options that exclude each other. It ends in status 2, or 125 in a command
// that runs another.
func Usage(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &failure{kind: kindUsage, err: err, hint: HintOf(err)}
}

// Invalid marks err as the caller's mistake: a root is missing, a policy cannot be
// read. The statuses are those of Usage.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return &failure{kind: kindUsage, err: err, hint: HintOf(err)}
}

// WithStatus makes err end the command with exactly that status.
func WithStatus(status int, err error) error {
	return &failure{kind: kindStatus, status: status, err: err, hint: HintOf(err)}
}

// Exit ends the command with a status and prints nothing: the command has printed
// its message already.
func Exit(status int) error {
	if status == StatusOK {
		return nil
	}
	return &failure{kind: kindStatus, status: status}
}

// WithHint adds a line to type next. It is shown on a line of its own.
func WithHint(err error, format string, args ...any) error {
	hint := fmt.Sprintf(format, args...)
	if f, ok := errors.AsType[*failure](err); ok {
		copied := *f
		copied.hint = hint
		return &copied
	}
	return &failure{kind: kindFailed, err: err, hint: hint}
}

// HintOf returns the hint that err carries, or "". Any error with a method
// Hint() string can carry one, so lib packages need not know this one.
func HintOf(err error) string {
	if h, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return h.Hint()
	}
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fsat.MoreFiles()
	case errors.Is(err, syscall.ENOSYS):
		return "the kernel is older than 5.12, or a system call filter denies what pk needs"
	}
	return session.Full(err)
}

// statusOf is the one place where a failure becomes an exit status.
func (c *Command) statusOf(err error) int {
	if err == nil {
		return StatusOK
	}
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok && f.kind == kindStatus:
		return f.status
	case c.Wraps:
		return StatusFailed
	case ok && f.kind == kindUsage:
		return StatusUsage
	default:
		return StatusRefused
	}
}
