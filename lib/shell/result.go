package shell

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/blocked"
	network "pikuri/lib/gate"
	"pikuri/lib/quarantine"
	"pikuri/lib/visible"
)

// Outcome is the kind of end of a command.
type Outcome string

// The outcomes.
const (
	Exited        Outcome = "exited"         // it returned a status
	Signaled      Outcome = "signaled"       // a signal ended it
	TimedOut      Outcome = "timed-out"      // it was ended for taking too long
	Declined      Outcome = "declined"       // the user said no
	Refused       Outcome = "refused"        // pk did not run it
	SandboxFailed Outcome = "sandbox-failed" // it could not be started in a sandbox
	Cancelled     Outcome = "cancelled"      // its request was withdrawn, and ended it if it ran
	Running       Outcome = "running"        // it has not ended
)

// Result describes one command after its end.
type Result struct {
	ID       json.RawMessage // of the request, nil for none
	Command  string
	Outcome  Outcome
	Status   int            // the exit status of pk-bash
	Signal   syscall.Signal // that ended it; 0 for none
	Sent     []syscall.Signal
	Asked    syscall.Signal // the last one for pk-bash itself that was to end it; 0 for none
	Limit    string         // the limit that stopped it, as its option is called; "" for none
	Duration time.Duration
	Timeout  time.Duration
	Usage    syscall.Rusage // of all its processes, except in a sandbox those that were ended with it

	Output    []byte // the kept part; visible, unless Raw
	Raw       bool
	Total     int64  // bytes that the command wrote
	Omitted   int64  // bytes that are not in Output
	Folded    int64  // control sequences that are not in it
	Over      int64  // lines that are not in it as they were before they were overwritten
	Log       string // the file with all of it, "" for none
	LogErr    error
	Pipeline  []int    // the stages of a pipeline in which one failed, as the shell says
	Survivors int      // processes that had to be ended after the command
	Ended     []string // the command lines of these, each once
	Fenced    bool     // it ran in a sandbox of pk's
	Staying   int      // processes that run on
	State     *State   // that the command left; nil if that is not known
	NoDir     bool     // the directory to begin in was not there
	Left      int      // processes that could not be ended
	Held      bool     // a process that the command did not start has the output open
	WriteErr  error    // the first failure to write the output on

	Background    []string // the command lines of processes that run on, each once
	BackgroundLog string   // where their output goes, as commands see it; "" for nowhere
	EndedBy       string   // the event or command that ends them

	MovedAside []quarantine.Moved // files that appeared at protected names
	Git        []string           // changes with git that are not as the command may expect
	Trial      string             // session that keeps the changes; "" where they were made in the project
	Network    []network.Record   // connections through the gate, and its refusals
	Fence      []blocked.Fact     // refusals of the fence
	Guarantees []string           // that held while it ran

	Error string // why it did not run, or another error

	Job   string // the job that it is; "" for none
	Event string // this is an event, and no answer
	Next  *int64 // offset of the output that follows on Output
	More  bool   // there is more of it already
	Cwd   string // where the next command begins; "" if that is not kept
}

// Observation is the result for a reader of a conversation: the command, its
// output, its status. It is safe to show on a terminal. The command cannot
// choose its first and its last line.
func (r *Result) Observation() string {
	switch r.Outcome {
	case Declined, Refused, SandboxFailed:
		return fmt.Sprintf("Error: %s\n", oneLine(r.Error))
	}
	first := ""
	if r.Outcome == TimedOut {
		first = fmt.Sprintf("Error: command timed out after %ds (sent %s).\n\n", int(r.Timeout.Seconds()), r.sent())
	}
	return fmt.Sprintf("%s%s\n\n%sexit status: %d\n", first, r.transcript(), r.notes(), r.Status)
}

// transcript is the command and its output, without a newline at the end.
func (r *Result) transcript() string {
	output := string(r.Output)
	if r.Raw {
		output = visible.Text(output)
	}
	if output = strings.TrimSuffix(output, "\n"); output == "" {
		return echo(r.Command)
	}
	return echo(r.Command) + "\n" + output
}

// notes are lines beside the status.
func (r *Result) notes() string {
	var b strings.Builder
	note := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if r.Limit != "" {
		note("stopped by the limit: %s", oneLine(r.Limit))
	}
	if r.Error != "" {
		note("%s", oneLine(r.Error))
	}
	for _, m := range r.MovedAside {
		note("moved aside: %s, which a program outside would run, is now %s", oneLine(m.From), oneLine(m.To))
	}
	for _, line := range r.Git {
		note("git: %s", oneLine(line))
	}
	for _, line := range network.Lines(r.Network) {
		note("network: %s", oneLine(line))
	}
	for _, line := range r.FenceLines() {
		note("fence: %s", line)
	}
	if r.Pipeline != nil {
		note("pipeline: %s", strings.Trim(fmt.Sprint(r.Pipeline), "[]"))
	}
	if r.Outcome == TimedOut && r.Total == 0 {
		note("no output; standard input is /dev/null")
	}
	for _, line := range []string{r.ended(), r.staying()} {
		if line != "" {
			note("%s", line)
		}
	}
	if r.Left > 0 {
		note("could not end %s", count(r.Left, "process", "processes"))
	}
	if r.Held {
		note("something else holds the output open; what it writes is lost")
	}
	var left []string
	if r.Over > 0 {
		left = append(left, count(int(r.Over), "line", "lines")+" overwritten")
	}
	if r.Folded > 0 {
		left = append(left, count(int(r.Folded), "control sequence", "control sequences")+" removed")
	}
	if left != nil {
		note("(%s)", strings.Join(left, ", "))
	}
	return b.String()
}

// FenceLines returns the refusals of the fence in words.
func (r *Result) FenceLines() []string {
	var lines []string
	for _, f := range r.Fence {
		lines = append(lines, oneLine(f.Line(os.Getenv("HOME"))))
	}
	return lines
}

// maxEnded bounds the command lines in a result.
const maxEnded = 3

// note adds the command lines of processes to a list.
func note(list, lines []string) []string {
	for _, line := range lines {
		if line = oneLine(line); !slices.Contains(list, line) && len(list) < maxEnded {
			list = append(list, line)
		}
	}
	return list
}

// ended names the processes that ended with the command, "" if there were none.
func (r *Result) ended() string {
	if r.Survivors == 0 {
		return ""
	}
	instead := ""
	if r.Fenced {
		instead = ", or --keep-background"
	}
	return fmt.Sprintf("ended with the command%s (%s); use a job of --loop%s", named(r.Ended), count(r.Survivors, "process", "processes"), instead)
}

// staying names the processes that run on, "" if there are none.
func (r *Result) staying() string {
	if r.Staying == 0 {
		return ""
	}
	line := fmt.Sprintf("left running%s (%s); %s", named(r.Background), count(r.Staying, "process", "processes"), r.EndedBy)
	if r.BackgroundLog != "" {
		line += "; further output: " + r.BackgroundLog
	}
	return line
}

// named lists command lines after a colon.
func named(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return ": \"" + strings.Join(lines, "\", \"") + "\""
}

func count(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return strconv.Itoa(n) + " " + many
}

// sent says which signals were really sent, in words.
func (r *Result) sent() string {
	var names []string
	for _, s := range r.Sent {
		names = append(names, signalName(s))
	}
	return strings.Join(names, ", then ")
}

// record is the JSON form of a Result, without fields that do not apply.
type record struct {
	ID            json.RawMessage  `json:"id,omitempty"`
	Event         string           `json:"event,omitempty"`
	Job           string           `json:"job,omitempty"`
	Command       string           `json:"command,omitempty"`
	CommandBase64 string           `json:"command_base64,omitempty"`
	Outcome       Outcome          `json:"outcome,omitempty"`
	ExitStatus    *int             `json:"exit_status,omitempty"`
	Signal        string           `json:"signal,omitempty"`
	Sent          []string         `json:"sent,omitempty"`
	Limit         string           `json:"limit,omitempty"`
	DurationMS    *int64           `json:"duration_ms,omitempty"`
	Output        *string          `json:"output,omitempty"`
	OutputBase64  string           `json:"output_base64,omitempty"`
	OutputBytes   *int64           `json:"output_bytes,omitempty"`
	OmittedBytes  int64            `json:"omitted_bytes,omitempty"`
	SkippedBytes  int64            `json:"skipped_bytes,omitempty"`
	Next          *int64           `json:"next,omitempty"`
	More          bool             `json:"more,omitempty"`
	Folded        int64            `json:"folded,omitempty"`
	Over          int64            `json:"overwritten,omitempty"`
	Log           string           `json:"log,omitempty"`
	LogBase64     string           `json:"log_base64,omitempty"`
	Pipeline      []int            `json:"pipeline,omitempty"`
	Survivors     int              `json:"survivors,omitempty"`
	Ended         []string         `json:"ended,omitempty"`
	Background    []string         `json:"background,omitempty"`
	Staying       int              `json:"background_count,omitempty"`
	BackgroundLog string           `json:"background_log,omitempty"`
	Left          int              `json:"left,omitempty"`
	Held          bool             `json:"held,omitempty"`
	MovedAside    []movedRecord    `json:"moved_aside,omitempty"`
	Git           []string         `json:"git,omitempty"`
	Trial         string           `json:"trial,omitempty"`
	Network       []network.Record `json:"network,omitempty"`
	Fence         []blocked.Fact   `json:"fence,omitempty"`
	Guarantees    []string         `json:"guarantees,omitempty"`
	Cwd           string           `json:"cwd,omitempty"`
	Error         string           `json:"error,omitempty"`
}

type movedRecord struct {
	From       string `json:"from"`
	FromBase64 string `json:"from_base64,omitempty"`
	To         string `json:"to"`
	ToBase64   string `json:"to_base64,omitempty"`
}

// JSON returns the record that the manual page of pk-bash documents, and a
// newline. Bytes that are not UTF-8 travel in a twin of the field, in base64.
func (r *Result) JSON() ([]byte, error) {
	rec := record{
		ID: r.ID, Event: r.Event, Job: r.Job, Outcome: r.Outcome, Limit: r.Limit, Next: r.Next, More: r.More, Cwd: strings.ToValidUTF8(r.Cwd, string(utf8.RuneError)),
		Survivors: r.Survivors, Ended: r.Ended, Background: r.Background, Staying: r.Staying, BackgroundLog: r.BackgroundLog, Left: r.Left, Held: r.Held, Guarantees: r.Guarantees, Git: r.Git, Trial: r.Trial, Network: r.Network,
		Error: strings.ToValidUTF8(r.Error, string(utf8.RuneError)),
	}
	if r.Outcome != Running {
		rec.ExitStatus = &r.Status
	}
	rec.Command, rec.CommandBase64 = TextOrBase64([]byte(r.Command))
	if r.Signal != 0 {
		rec.Signal = signalName(r.Signal)
	}
	for _, s := range r.Sent {
		rec.Sent = append(rec.Sent, signalName(s))
	}
	for _, m := range r.MovedAside {
		var moved movedRecord
		moved.From, moved.FromBase64 = TextOrBase64([]byte(m.From))
		moved.To, moved.ToBase64 = TextOrBase64([]byte(m.To))
		rec.MovedAside = append(rec.MovedAside, moved)
	}
	for _, f := range r.Fence {
		f.Path, f.PathBase64 = TextOrBase64([]byte(f.Path))
		f.Word, f.WordBase64 = TextOrBase64([]byte(f.Word))
		rec.Fence = append(rec.Fence, f)
	}
	if r.ran() || r.Outcome == Running {
		text, encoded := TextOrBase64(r.Output)
		rec.Output, rec.OutputBase64, rec.OmittedBytes = &text, encoded, r.Omitted
		rec.Folded, rec.Over = r.Folded, r.Over
	}
	if r.ran() {
		ms := r.Duration.Milliseconds()
		rec.DurationMS, rec.OutputBytes, rec.Pipeline = &ms, &r.Total, r.Pipeline
		rec.Log, rec.LogBase64 = TextOrBase64([]byte(r.Log))
	}
	if r.Event == EventOutput {
		rec.Outcome, rec.OmittedBytes, rec.SkippedBytes = "", 0, r.Omitted
	}
	return Object(rec)
}

// Summary returns the fields of JSON, but for the command, its output and the request.
func (r *Result) Summary() (map[string]json.RawMessage, error) {
	line, err := r.JSON()
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	err = json.Unmarshal(line, &fields)
	for _, name := range []string{"id", "event", "job", "command", "command_base64", "output", "output_base64", "output_bytes", "next", "more", "cwd"} {
		delete(fields, name)
	}
	return fields, err
}

// Object encodes v as JSON, with a newline.
func Object(v any) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // shell commands are full of < > &
	err := encoder.Encode(v)
	return line.Bytes(), err
}

func (r *Result) ran() bool {
	return r.Outcome == Exited || r.Outcome == Signaled || r.Outcome == TimedOut || r.Outcome == Cancelled && r.Duration > 0
}

// TextOrBase64 returns b as text, with bytes that are not UTF-8 replaced; and then
// also all of it in base64.
func TextOrBase64(b []byte) (text, encoded string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError)), base64.StdEncoding.EncodeToString(b)
}

// signalName is the name that kill -l prints, with SIG.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}
