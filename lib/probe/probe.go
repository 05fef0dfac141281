// Package probe finds out what a sandbox keeps in by trying to get out of it.
//
// A Scene, made outside, holds what there is to get at: a secret beside the
// project, a key, a socket, a process. The attacks run inside, in a program that
// needs no tool of the machine, and say what came of them; where a success would
// show outside, the scene is looked at instead of believing them.
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
	Name      string // what it tries, for people
	Guarantee string // what is to keep it from that
	Harm      string // why it must not be tried outside a sandbox; "" if it may

	// try returns nil when it got what it wanted.
	try func(*Targets) error
	// got asks outside, when all is over, whether the attack got what it wanted.
	// Where it is set, nothing that try says counts.
	got func(*Scene) bool
}

// Outcome is what came of an attack.
type Outcome string

// The outcomes.
const (
	In      Outcome = "in"      // it got what it wanted
	Refused Outcome = "refused" // it did not
	Absent  Outcome = "absent"  // there is nothing here that it could be tried on
	Untried Outcome = "untried" // the probe did not get that far, or it would do harm
)

// Result is the outcome of an attack with what the kernel said.
type Result struct {
	Name      string  `json:"name"`
	Guarantee string  `json:"guarantee"`
	Outcome   Outcome `json:"outcome"`
	Said      string  `json:"said,omitempty"`
}

// errAbsent is what an attack answers when there is nothing to try it on.
var errAbsent = errors.New("nothing to try it on")

func absent(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errAbsent, fmt.Sprintf(format, args...))
}

// Attacks lists them all.
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

// reached says of a system call that failed whether the kernel has looked at it.
// What a filter or a missing privilege stops fails in one of three ways.
func reached(errno syscall.Errno) error {
	switch errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES:
		return errno
	}
	return nil
}
