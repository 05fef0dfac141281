// Package hidden holds the protocol by which a program starts itself again, as a
// helper process with another job: the guard of a command, the keeper of a
// session, the set-up of a sandbox.
//
// A helper is the same executable with the name of a mode as its first argument.
// A program passes its arguments to Dispatch before it does anything else, with
// the modes that it knows. Check refuses to start a helper in a process that has
// not done so: the helper would run the program's own main, which would start the
// next helper, and so on without end.
package hidden

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Mode is one job of a helper process.
type Mode struct {
	Name  string                    // the first argument, such as "--pk-guard"
	Run   func(args []string) error // args follow the name
	Title string                    // the beginning of argument zero, for ps(1); "" for a path
}

// Status is the error of a mode that ends with an exit status, and has nothing to
// report.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Self is the path by which a program starts itself, and argument zero of the
// helper. It leads to the running executable, even if its file was replaced.
const Self = "/proc/self/exe"

// ErrOwnUse is the error of a mode that another program than this one has called.
// Dispatch puts the name of the mode in front of it.
var ErrOwnUse = errors.New("is for pk's own use")

var (
	mutex sync.Mutex
	known = map[string]bool{}
)

// Dispatch returns the job that args ask for, or nil. args are those of the
// program, without its name. From then on this process may start itself in any of
// the modes.
func Dispatch(args []string, modes ...Mode) func() error {
	mutex.Lock()
	defer mutex.Unlock()
	var job func() error
	for _, mode := range modes {
		known[mode.Name] = true
		if len(args) > 0 && args[0] == mode.Name {
			job = func() error { return mode.run(args[1:]) }
		}
	}
	return job
}

func (m Mode) run(args []string) error {
	err := m.Run(args)
	if errors.Is(err, ErrOwnUse) {
		return fmt.Errorf("%s %w", m.Name, ErrOwnUse)
	}
	return err
}

// DispatchSelf is Dispatch for programs whose options are not pk's. argv includes
// argument zero. A mode counts only if that is a path below /proc/self or begins with the
// title of a mode: so a program starts itself, and ordinary callers do not. So the
// program can have an option with the name of a mode.
func DispatchSelf(argv []string, modes ...Mode) func() error {
	titled := func(m Mode) bool { return m.Title != "" && strings.HasPrefix(argv[0], m.Title) }
	if len(argv) == 0 || !strings.HasPrefix(argv[0], "/proc/self/") && !slices.ContainsFunc(modes, titled) {
		argv = []string{""}
	}
	return Dispatch(argv[1:], modes...)
}

// ErrNoDispatch is the error of Check.
var ErrNoDispatch = errors.New("this program cannot start itself as a helper")

// Check returns an error unless this process has called Dispatch with the mode.
func Check(mode string) error {
	mutex.Lock()
	defer mutex.Unlock()
	if !known[mode] {
		return fmt.Errorf("internal error: %w: it does not know %s", ErrNoDispatch, mode)
	}
	return nil
}
