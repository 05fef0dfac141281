package sandbox

import (
	"errors"
	"fmt"
	"os"

	"pikuri/lib/gate"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/monitor"
	"pikuri/lib/quarantine"
	"pikuri/lib/session"
	"pikuri/lib/setup"
)

// Modes are the modes in which a program that uses a runner starts itself again. They are
// for the commands of this module; other programs call Main.
func Modes() []hidden.Mode {
	return append(session.Modes(), setup.Mode, gate.Mode, monitor.GuardMode, quarantine.DisarmMode, hidden.Mode{Name: supervisorOption, Run: supervise})
}

// Main must be the first call in the main function of a program that makes a LocalRunner
// or a BwrapRunner, and in TestMain of its tests. The runners start this program again,
// as helper processes; in such a process Main does the helper's work and exits. In any
// other process it does nothing, whichever options the program has.
//
// In a program that has not called Main no runner can be made.
func Main() {
	job := hidden.DispatchSelf(os.Args, Modes()...)
	if job == nil {
		return
	}
	err := job()
	if status, ok := errors.AsType[hidden.Status](err); ok {
		os.Exit(int(status))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sandbox: %v\n", err)
		os.Exit(statusHelperFailed)
	}
	os.Exit(0)
}

// statusHelperFailed is the exit status of a helper process that failed.
const statusHelperFailed = 125

// ready refuses to make a runner in a program that does not call Main: each
// helper process would run that program's own main.
func ready() error {
	if hidden.Check(supervisorOption) != nil {
		return fmt.Errorf("%w: the program has to call sandbox.Main first in its main function", ErrNotAvailable)
	}
	return nil
}
