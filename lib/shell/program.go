package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"pikuri/lib/capture"
	"pikuri/lib/visible"
)

const (
	// answerLimit is how long a program may take to answer. The user whom it asks
	// may be away, and an agent must not wait for ever.
	answerLimit = 5 * time.Minute

	// maxReason bounds the output of the program that is read.
	maxReason = 1024
)

// programVersion is that of the object a program gets. It grows when a field
// changes its meaning, not when one is added.
const programVersion = 1

// asked is the question that a program gets on its standard input.
type asked struct {
	Tool          string `json:"tool"`
	Version       int    `json:"version"`
	Command       string `json:"command"`
	CommandBase64 string `json:"command_base64,omitempty"`
	Display       string `json:"display"`
	Description   string `json:"description,omitempty"`
	Cwd           string `json:"cwd"`
	Fence         string `json:"fence"`
	Timeout       int    `json:"timeout"`
	InputFor      string `json:"input_for,omitempty"`
	SHA256        string `json:"sha256"`
}

// AskProgram has a program answer. It gets the question as its argument, so that
// any program in the manner of ssh-askpass(1) will do, and as a JSON object on
// standard input. Status 0 is a yes; 1 a no, for which the first line of standard
// output is the reason; everything else, and no answer within five minutes, is a
// no as well. Closing stop ends it.
//
// The program stays in this session, where it has the terminal, unless apart says
// otherwise: processes of a user that root became could write into root's terminal.
func AskProgram(program string, q Question, apart bool, stop <-chan struct{}) (yes bool, reason string, err error) {
	input, err := q.object()
	if err != nil {
		return false, "", err
	}
	// A file, not a pipe: a program that does not read it does no harm.
	stdin, err := memFile("question", string(input))
	if err == nil {
		_, err = stdin.Seek(0, io.SeekStart)
	}
	if err != nil {
		return false, "", err
	}
	defer stdin.Close()
	said := &limited{most: maxReason}
	cmd := exec.Command(program, q.argument())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, said, os.Stderr
	if apart {
		cmd.SysProcAttr, cmd.Stderr = &syscall.SysProcAttr{Setsid: true}, struct{ io.Writer }{os.Stderr} // through a pipe
	}
	cmd.Env = append(os.Environ(), "SSH_ASKPASS_PROMPT=confirm")
	cmd.WaitDelay = drainQuiet // processes that it left may hold the pipe open
	if err := cmd.Start(); err != nil {
		return false, fmt.Sprintf("cannot start %q: %v", program, causeOf(err)), nil
	}
	ended := make(chan struct{})
	why := make(chan error, 1)
	go func() {
		select {
		case <-stop:
			why <- ErrInterrupted
		case <-time.After(answerLimit):
			why <- fmt.Errorf("no answer within %s", answerLimit)
		case <-ended:
			why <- nil
			return
		}
		_ = cmd.Process.Kill()
	}()
	_ = cmd.Wait()
	close(ended)
	switch err := <-why; {
	case errors.Is(err, ErrInterrupted):
		return false, "", err
	case err != nil:
		return false, err.Error(), nil
	}
	return verdict(program, cmd.ProcessState, said.buf)
}

// argument is the question, cut to the length of an argument. The object has all of
// it.
func (q Question) argument() string {
	text := strings.TrimPrefix(q.Text(), "\n")
	if len(text) <= maxArgument {
		return text
	}
	c := capture.New(maxArgument/2-capture.MaxSlack, maxArgument/2-capture.MaxSlack)
	_, _ = c.Write([]byte(text))
	return string(c.Kept().Join("all of it is on standard input"))
}

func verdict(program string, state *os.ProcessState, said []byte) (yes bool, reason string, err error) {
	if state == nil { // a command without a sandbox has killed its guard, and the program was taken for one of its orphans
		return false, fmt.Sprintf("%q has been killed", program), nil
	}
	ws := state.Sys().(syscall.WaitStatus)
	switch {
	case ws.Signaled():
		return false, fmt.Sprintf("%q died of %s", program, signalName(ws.Signal())), nil
	case ws.ExitStatus() == 0:
		return true, "", nil
	case ws.ExitStatus() == 1:
		return false, trimReason(said), nil
	}
	return false, fmt.Sprintf("%q exited with %d", program, ws.ExitStatus()), nil
}

func (q Question) object() ([]byte, error) {
	a := asked{
		Tool: "pk-bash", Version: programVersion, Display: strings.TrimPrefix(q.Text(), "\n"), Description: oneLine(q.Description),
		Cwd: visible.Text(q.Where), Fence: q.Fence, Timeout: q.Timeout, SHA256: q.Sum(),
	}
	a.InputFor, _ = TextOrBase64([]byte(q.Input))
	a.Command, a.CommandBase64 = TextOrBase64([]byte(q.Command))
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(a)
	return b.Bytes(), err
}

func causeOf(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return err
}

// limited takes any number of bytes, and keeps the first.
type limited struct {
	buf  []byte
	most int
}

var _ io.Writer = (*limited)(nil)

func (l *limited) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p[:min(len(p), l.most-len(l.buf))]...)
	return len(p), nil
}
