// Package probe tests a sandbox by trying to get out of it.
//
// A Scene, made outside, holds the targets: a secret beside the project, a key, a
// socket, a process. The attacks run inside, in a program that needs no tool of
// the machine, and report their outcomes. Where a success leaves a trace outside,
// the scene decides, and the report does not count.
package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// Names of the modes.
const (
	Option       = "--pk-probe"        // TARGETS: try the attacks
	targetOption = "--pk-probe-target" // be a process to get at
	childOption  = "--pk-probe-child"  // do nothing: that it was started is the attack
)

// Attack is one way out.
type Attack struct {
	Name      string // the attack, for people
	Guarantee string // the guarantee that should stop it
	Harm      string // why it must not run outside a sandbox; "" if it may

	// try returns nil if the attack succeeded.
	try func(*Targets) error
	// got tells outside, after all attacks, whether this one succeeded. If it is
	// set, the result of try does not count.
	got func(*Scene) bool
}

// Outcome is the result of an attack.
type Outcome string

// The outcomes.
const (
	In      Outcome = "in"      // it succeeded
	Refused Outcome = "refused" // it failed
	Absent  Outcome = "absent"  // this machine has no target for it
	Untried Outcome = "untried" // the probe ended before it, or it would do harm
)

// Result is the outcome of an attack with the kernel's error.
type Result struct {
	Name      string  `json:"name"`
	Guarantee string  `json:"guarantee"`
	Outcome   Outcome `json:"outcome"`
	Said      string  `json:"said,omitempty"`
}

// errAbsent is the error of an attack without a target.
var errAbsent = errors.New("nothing to try it on")

func absent(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errAbsent, fmt.Sprintf(format, args...))
}

// Attacks lists all attacks.
func Attacks() []Attack { return slices.Concat(files, mounts, processes, calls, neighbours, kept) }

// Modes are the modes of the probe and of the processes that it needs.
func Modes(stdin io.Reader, stdout io.Writer) []hidden.Mode {
	return []hidden.Mode{
		{Name: Option, Run: func(args []string) error { return attack(args, stdout) }},
		{Name: targetOption, Run: func([]string) error { return wait(stdin) }},
		{Name: childOption, Run: func([]string) error { return nil }},
	}
}

// attack is the program that runs inside. args are those behind Option. It
// prints each result as soon as it is there, so that an attack that ends the
// program is known by the lack of its result.
func attack(args []string, stdout io.Writer) error {
	inherited := openDescriptors() // before this program opens any
	t := &Targets{}
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), t) != nil || t.Dir == "" {
		return hidden.ErrOwnUse
	}
	t.inherited = inherited
	for _, a := range Attacks() {
		if err := json.NewEncoder(stdout).Encode(a.run(t)); err != nil {
			return err
		}
	}
	return nil
}

func (a Attack) run(t *Targets) Result {
	r := Result{Name: a.Name, Guarantee: a.Guarantee}
	if t.Unfenced && a.Harm != "" {
		r.Outcome, r.Said = Untried, a.Harm
		return r
	}
	err := a.try(t)
	switch {
	case err == nil:
		r.Outcome = In
	case errors.Is(err, errAbsent):
		r.Outcome, r.Said = Absent, err.Error()
	default:
		r.Outcome, r.Said = Refused, err.Error()
	}
	return r
}

// reached returns nil if the errno of a system call came from the code behind the
// permission checks. A filter or a missing privilege causes one of three others.
func reached(errno syscall.Errno) error {
	switch errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES:
		return errno
	}
	return nil
}
