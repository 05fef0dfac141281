package shell

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Outcome is how a command ended.
type Outcome string

// The outcomes.
const (
	Exited        Outcome = "exited"         // it returned a status
	Signaled      Outcome = "signaled"       // a signal ended it
	TimedOut      Outcome = "timed-out"      // it was ended for taking too long
	Declined      Outcome = "declined"       // the user did not let it run
	Refused       Outcome = "refused"        // pk did not let it run
	SandboxFailed Outcome = "sandbox-failed" // it could not be started in a sandbox
)

// Result is everything there is to say of one command.
type Result struct {
	Command  string
	Outcome  Outcome
	Status   int            // what pk-bash exits with
	Signal   syscall.Signal // that ended it; 0 for none
	Sent     []syscall.Signal
	Duration time.Duration
	Timeout  time.Duration

	Output    []byte // what was kept
	Total     int64  // bytes of output
	Omitted   int64  // of which are not in Output
	Survivors int    // processes that had to be ended after the command
	WriteErr  error  // the first failure to write the output on

	Error string // Declined, Refused, SandboxFailed: why
}

// Observation is the result as a reader of a conversation wants it: the
// command, its output, its status. It is safe to show on a terminal.
func (r *Result) Observation() string {
	switch r.Outcome {
	case Declined, Refused, SandboxFailed:
		return fmt.Sprintf("Error: %s\n", oneLine(r.Error))
	case TimedOut:
		return fmt.Sprintf("Error: command timed out after %ds (sent %s).\n\n%s\n", int(r.Timeout.Seconds()), r.sent(), r.transcript())
	}
	return fmt.Sprintf("%s\n\nexit status: %d\n", r.transcript(), r.Status)
}

// transcript is the command and its output, without a newline at the end.
func (r *Result) transcript() string {
	output := strings.TrimSuffix(Visible(string(r.Output)), "\n")
	if output == "" {
		return echo(r.Command)
	}
	return echo(r.Command) + "\n" + output
}

// sent says which signals were really sent, in words.
func (r *Result) sent() string {
	var names []string
	for _, s := range r.Sent {
		names = append(names, signalName(s))
	}
	return strings.Join(names, ", then ")
}

// record is the JSON form of a Result; what does not apply is left out.
type record struct {
	Command       string   `json:"command,omitempty"`
	CommandBase64 string   `json:"command_base64,omitempty"`
	Outcome       Outcome  `json:"outcome"`
	ExitStatus    int      `json:"exit_status"`
	Signal        string   `json:"signal,omitempty"`
	Sent          []string `json:"sent,omitempty"`
	DurationMS    *int64   `json:"duration_ms,omitempty"`
	Output        *string  `json:"output,omitempty"`
	OutputBase64  string   `json:"output_base64,omitempty"`
	OutputBytes   *int64   `json:"output_bytes,omitempty"`
	OmittedBytes  int64    `json:"omitted_bytes,omitempty"`
	Survivors     int      `json:"survivors,omitempty"`
	Error         string   `json:"error,omitempty"`
}

// JSON returns the record that the manual page of pk-bash documents, and a
// newline. Bytes that are not UTF-8 travel in a twin of the field, in base64.
func (r *Result) JSON() ([]byte, error) {
	rec := record{Outcome: r.Outcome, ExitStatus: r.Status, OmittedBytes: r.Omitted, Survivors: r.Survivors, Error: r.Error}
	rec.Command, rec.CommandBase64 = textOrBase64([]byte(r.Command))
	if r.Signal != 0 {
		rec.Signal = signalName(r.Signal)
	}
	for _, s := range r.Sent {
		rec.Sent = append(rec.Sent, signalName(s))
	}
	if r.ran() {
		ms := r.Duration.Milliseconds()
		text, encoded := textOrBase64(r.Output)
		rec.DurationMS, rec.OutputBytes, rec.Output, rec.OutputBase64 = &ms, &r.Total, &text, encoded
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // shell commands are full of < > &
	err := encoder.Encode(rec)
	return line.Bytes(), err
}

func (r *Result) ran() bool {
	return r.Outcome == Exited || r.Outcome == Signaled || r.Outcome == TimedOut
}

// textOrBase64 returns b as text, with what is not UTF-8 replaced; and then
// also all of it in base64.
func textOrBase64(b []byte) (text, encoded string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError)), base64.StdEncoding.EncodeToString(b)
}
