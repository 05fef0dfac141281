package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/shell"
)

// answerer answers the question: the call itself, a program, or the terminal.
type answerer struct {
	given   bool // yes or no is the answer
	yes     bool
	program string // "" for the terminal
	source  string // the option or variable that names it, "" for none
}

// programVariable names the program that answers.
const programVariable = "PK_CONFIRM_COMMAND"

// named returns the answerer that the call names: options win over variables.
func (o *options) named(getenv func(string) string) (answerer, error) {
	env := getenv("PK_CONFIRM")
	switch {
	case o.yes:
		return answerer{given: true, yes: true, source: "--yes"}, nil
	case o.no:
		return answerer{given: true, source: "--no"}, nil
	case o.confirmer != "":
		return answerer{program: o.confirmer, source: "--confirm-command"}, nil
	case env == "yes" || env == "no":
		return answerer{given: true, yes: env == "yes", source: "PK_CONFIRM"}, nil
	case env != "":
		return answerer{}, cli.Usage("variable PK_CONFIRM: %q is neither \"yes\" nor \"no\"", env)
	case getenv(programVariable) != "":
		return answerer{program: getenv(programVariable), source: programVariable}, nil
	}
	return answerer{}, nil
}

// pinned applies the user's file, which may allow one answerer only. A no
// is always allowed.
func pinned(a answerer, pin shell.Pin) (answerer, error) {
	switch {
	case !pin.Set() || a.given && !a.yes:
		return a, nil
	case a.source == "" || a.program == pin.Program && a.program != "":
		return answerer{program: pin.Program}, nil
	}
	err := fmt.Errorf("%s cannot be used: only %s may answer, says %q", a.source, pin, pin.Source)
	return a, cli.WithHint(err, "leave it out, or change that file")
}

// answerer returns the answerer of the call, and the file that allows no other. It refuses one
// that may not answer, or cannot.
func (t *turn) answerer(j *job) (answerer, shell.Pin, error) {
	a, err := t.named(os.Getenv)
	if err != nil {
		return a, shell.Pin{}, err
	}
	pin, err := t.readPin(j.workspace)
	if err == nil {
		a, err = pinned(a, pin)
	}
	if err == nil && t.Pinned() {
		err = refuseVariable(a, pin)
	}
	if err == nil && a.program != "" {
		a.program, err = findProgram(a.program, j.workspace)
	}
	return a, pin, err
}

// confirm gets the answer, or gives up on a signal.
func (t *turn) confirm(q shell.Question, j *job) (yes bool, reason string, err error) {
	a, pin, err := t.answerer(j)
	if err != nil {
		return false, "", err
	}
	if a.given {
		t.asked = a.source
		return a.yes, "", nil
	}
	if j.fence != nil && !t.loop { // a loop has looked
		if err := j.fence.CheckHost(); err != nil {
			return false, "", err
		}
	}
	t.asked = cmp.Or(a.program, "terminal")
	if a.program == "" && t.loop && cli.Terminal(t.ctx.Stdin) {
		err = fmt.Errorf("%w: the loop reads its requests from it", shell.ErrNoTerminal)
	} else {
		yes, reason, err = t.ask(q, j, a.program)
	}
	if err == nil {
		err = t.recordAnswer(q, j, yes, reason)
	}
	switch {
	case !errors.Is(err, shell.ErrNoTerminal):
		return yes, reason, err
	case pin.Set():
		err = fmt.Errorf("%w, and %q lets nothing else answer", err, pin.Source)
	default:
		err = fmt.Errorf("%w: use --yes, or --confirm-command", err)
	}
	return false, "", cli.WithStatus(cli.StatusNotExec, err)
}

// refuseVariable refuses a program that a variable names, itself or by its file: the program
// runs on the host, and the machine's policy is mandatory.
func refuseVariable(a answerer, pin shell.Pin) error {
	from := pin.Source
	switch {
	case a.program == "":
		return nil
	case !pin.Set() && a.source == programVariable:
		from = programVariable
	case !pin.Set() || slices.Contains(shell.PinFiles(func(string) string { return "" }), pin.Source):
		return nil
	}
	return fmt.Errorf("the program %q of %s cannot be used: the machine's policy is mandatory", a.program, from)
}

// readPin reads the user's file that allows one answerer only, and root's, if root has become
// that user. A file that a command could have written is an error.
func (s *session) readPin(opened *cli.Opened) (shell.Pin, error) {
	pin, err := shell.ReadPin(shell.PinFiles(os.Getenv))
	switch {
	case err != nil || !pin.Set() && !s.pin.Set():
		return pin, err
	case !pin.Set():
		pin = s.pin
	case s.pin.Set() && (pin.Terminal != s.pin.Terminal || pin.Program != s.pin.Program):
		return shell.Pin{}, fmt.Errorf("%q and %q do not agree on who may answer", s.pin.Source, pin.Source)
	}
	if root, ok := confine.LiesIn(pin.Source, confine.WritablePaths(opened.Roots())); ok {
		return pin, fmt.Errorf("cannot use %q: it lies in the writable root %q", pin.Source, root)
	}
	return pin, nil
}

// findProgram finds the program that answers, once, and refuses a program that a command
// could replace.
func findProgram(name string, opened *cli.Opened) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the program %q that is to answer", name)
	}
	return path, refuseReplaceable("confirm-command", path, opened)
}

// ask asks a program, or the terminal if it is "".
func (t *turn) ask(q shell.Question, j *job, program string) (yes bool, reason string, err error) {
	type answer struct {
		yes    bool
		reason string
		err    error
	}
	stop, answered := make(chan struct{}), make(chan answer, 1)
	go func() {
		t.asking.Lock()
		defer t.asking.Unlock()
		var a answer
		select {
		case <-stop: // while another question was asked
			answered <- answer{err: shell.ErrInterrupted}
			return
		default:
		}
		if program != "" {
			a.yes, a.reason, a.err = shell.AskProgram(program, q, j.fence != nil && j.fence.RunAs != 0, stop)
		} else {
			a.yes, a.err = shell.Ask(q, stop)
		}
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.yes, a.reason, a.err
	case sig := <-t.signals:
		close(stop)
		<-answered // the terminal is as it was
		return false, "", died(sig)
	}
}
