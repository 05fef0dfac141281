package shell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of a question that got no answer.
var (
	ErrNoTerminal  = errors.New("no terminal to ask on")
	ErrInterrupted = errors.New("interrupted while asking")
)

// cue ends the question.
const cue = "Run it (y/N)? "

// Input that was typed or pasted before the question is discarded until none has
// come for settleQuiet: a paste arrives in pieces. After settleLimit the question
// comes in any case.
const (
	settleQuiet = 100 * time.Millisecond
	settleLimit = 2 * time.Second
)

// maxAnswer bounds an answer. A longer one counts as not understood.
const maxAnswer = 1024

// Ask asks on the controlling terminal, never on standard input, and returns
// true for a yes. Input from before the question does not count. The answers y,
// yes, n, no and an empty line are understood; after any other the question is
// repeated. An empty line and the end of input mean no. Closing stop ends the
// question.
func Ask(q Question, stop <-chan struct{}) (bool, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false, ErrNoTerminal
	}
	t := &terminal{file: tty}
	defer t.close()
	if t.raw, err = tty.SyscallConn(); err != nil {
		return false, err
	}
	if err := tty.SetDeadline(time.Time{}); err != nil { // it cannot be waited for
		return false, fmt.Errorf("%w: %w", ErrNoTerminal, err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-stop:
			_ = tty.SetReadDeadline(past)
		case <-done:
		}
	}()
	yes, err := t.ask(q, stop)
	select {
	case <-stop:
		return false, ErrInterrupted
	default:
		return yes, err
	}
}

// terminal is the terminal of a question.
type terminal struct {
	file  *os.File
	raw   interface{ Control(func(uintptr)) error }
	saved *unix.Termios // how it was before; nil if it was as it should be
}

func (t *terminal) close() {
	if t.saved != nil {
		t.control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, t.saved) })
	}
	t.file.Close()
}

func (t *terminal) control(f func(fd int) error) (err error) {
	if cerr := t.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

func (t *terminal) ask(q Question, stop <-chan struct{}) (bool, error) {
	if err := t.cook(); err != nil {
		return false, fmt.Errorf("%w: %w", ErrNoTerminal, err)
	}
	width := 0
	if columns := Columns(t.file); columns != nil {
		width = columns()
	}
	if _, err := t.file.WriteString(q.render(width, reversed)); err != nil {
		return false, fmt.Errorf("cannot write to the terminal: %w", err)
	}
	// After the question is shown: an earlier answer belongs to another question.
	t.settle(stop)
	for {
		if _, err := t.file.WriteString(cue); err != nil {
			return false, fmt.Errorf("cannot write to the terminal: %w", err)
		}
		answer, err := t.line()
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return err == nil, nil // the end of input is no end of a line
		case "", "n", "no":
			if answer == "" {
				fmt.Fprintln(t.file)
			}
			return false, nil
		}
		if err != nil {
			return false, nil
		}
	}
}

// reversed shows an escape in reverse video: a command can hold the characters,
// but not that.
func reversed(escape string) string { return "\x1b[7m" + escape + "\x1b[27m" }

// cook switches the terminal to lines and echo. The caller may be a program that
// draws its own screen and has switched them off.
func (t *terminal) cook() error {
	return t.control(func(fd int) error {
		state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		cooked := *state
		cooked.Lflag |= unix.ICANON | unix.ECHO | unix.ECHOE | unix.ISIG
		cooked.Iflag |= unix.ICRNL
		cooked.Oflag |= unix.OPOST | unix.ONLCR
		if cooked == *state {
			return nil
		}
		t.saved = state
		return unix.IoctlSetTermios(fd, unix.TCSETS, &cooked)
	})
}

// settle discards pending input until there is no more.
func (t *terminal) settle(stop <-chan struct{}) {
	for limit := time.Now().Add(settleLimit); time.Now().Before(limit); {
		_ = t.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) })
		fds := []unix.PollFd{{Events: unix.POLLIN}}
		quiet := false
		_ = t.control(func(fd int) error {
			fds[0].Fd = int32(fd)
			n, err := unix.Poll(fds, int(settleQuiet.Milliseconds()))
			quiet = n == 0 && err == nil
			return nil
		})
		select {
		case <-stop:
			return
		default:
		}
		if quiet {
			return
		}
	}
}

// line reads one line. A line that is too long is read to its end and counts as not
// understood.
func (t *terminal) line() (string, error) {
	var line []byte
	var char [1]byte
	for {
		n, err := t.file.Read(char[:])
		switch {
		case n == 0 && err == nil:
			err = io.EOF
			fallthrough
		case err != nil:
			return string(line), err
		case char[0] == '\n' && len(line) > maxAnswer:
			return "?", nil
		case char[0] == '\n':
			return string(line) + "\n", nil
		case len(line) <= maxAnswer:
			line = append(line, char[0])
		}
	}
}

// trimReason returns the first line of a program's output, made visible.
func trimReason(said []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(said), []byte("\n"))
	return oneLine(string(bytes.TrimSpace(line)))
}
