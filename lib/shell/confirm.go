package shell

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoTerminal means that there is nobody to ask.
var ErrNoTerminal = errors.New("cannot ask: no terminal")

// Question is what the user is asked about.
type Question struct {
	Command     string
	Description string // "" for none
	Where       string // project root
	Fence       string // one line: how it will run
}

// Ask asks on the controlling terminal, never on standard input, and returns
// true for a yes. What was typed before the question counts for nothing. Any
// answer but y, yes, n, no and nothing is asked again; nothing, and the end of
// input, mean no.
func Ask(q Question) (bool, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false, ErrNoTerminal
	}
	defer tty.Close()
	if _, err := tty.WriteString(q.text()); err != nil {
		return false, fmt.Errorf("cannot write to the terminal: %w", err)
	}
	// After the question, so that nobody can have answered what he has not read.
	if err := unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return false, fmt.Errorf("cannot flush the terminal: %w", err)
	}
	for answers := bufio.NewScanner(tty); ; {
		fmt.Fprint(tty, "Run it (y/N)? ")
		if !answers.Scan() {
			fmt.Fprintln(tty)
			return false, answers.Err()
		}
		switch strings.ToLower(strings.TrimSpace(answers.Text())) {
		case "y", "yes":
			return true, nil
		case "", "n", "no":
			return false, nil
		}
	}
}

// text is the question as shown. Every part of it may come from an agent, so
// every part is made visible, and only the command has more than one line.
func (q Question) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\npk-bash in %s (%s)\n", oneLine(q.Where), q.Fence)
	if q.Description != "" {
		fmt.Fprintf(&b, "  %s\n", oneLine(q.Description))
	}
	b.WriteString(unpadded(withoutGaps(echo(q.Command))) + "\n")
	return b.String()
}

func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", " ").Replace(Visible(s))
}

// maxBlanks is the longest run of blanks shown as it is. Longer ones could push
// the rest of a command off the screen.
const maxBlanks = 8

// maxEmpty is how many empty lines are shown. More could push the lines before
// them off the screen.
const maxEmpty = 3

// withoutGaps says how many empty lines there are instead of showing them. A
// line of blanks is as empty as any.
func withoutGaps(s string) string {
	var out []string
	var gap []string
	flush := func() {
		if len(gap) > maxEmpty {
			gap = []string{fmt.Sprintf("> <%d empty lines>", len(gap))}
		}
		out, gap = append(out, gap...), nil
	}
	for _, line := range strings.Split(s, "\n") {
		if strings.TrimSpace(strings.TrimPrefix(line, ">")) == "" {
			gap = append(gap, line)
			continue
		}
		flush()
		out = append(out, line)
	}
	flush()
	return strings.Join(out, "\n")
}

// unpadded says how long a run of blanks is instead of showing it.
func unpadded(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		blanks := len(s) - len(strings.TrimLeft(s, " \t"))
		if blanks > maxBlanks {
			fmt.Fprintf(&b, "<%d blanks>", blanks)
			s = s[blanks:]
			continue
		}
		next := strings.IndexAny(s[blanks:], " \t")
		if next < 0 {
			next = len(s) - blanks
		}
		b.WriteString(s[:blanks+next])
		s = s[blanks+next:]
	}
	return b.String()
}
