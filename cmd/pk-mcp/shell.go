package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pikuri/lib/capture"
)

// A call of bash returns after maxWait: clients give up on long calls, after a minute at
// the earliest. In milliseconds.
const (
	maxWait        = 45000
	backgroundWait = 500
	outputWait     = 5000
	inputWait      = 500
)

// defaultTimeout, in seconds, ends a command that the model has forgotten. The call has
// returned long before. Background jobs have no limit.
const defaultTimeout = 600

type bashIn struct {
	Command     string `json:"command" jsonschema:"the command, as for bash -c"`
	Description string `json:"description,omitempty" jsonschema:"what it does, in a few words, for the user"`
	Timeout     int    `json:"timeout,omitempty" jsonschema:"seconds after which the command is ended; 600 if left out, none with run_in_background"`
	Cwd         string `json:"cwd,omitempty" jsonschema:"run it in this directory, relative to the project root; later commands do not"`
	Background  bool   `json:"run_in_background,omitempty" jsonschema:"for servers and watchers: come back at once, and let it run until bash_kill"`
	WaitMS      int    `json:"wait_ms,omitempty" jsonschema:"come back after so many milliseconds, with what it has printed by then; it runs on"`
	TTY         bool   `json:"tty,omitempty" jsonschema:"give it a terminal of 24x80, for programs that insist on one; bash_input types"`
}

// result is an answer of pk-bash about a command.
type result struct {
	Job          string   `json:"job"`
	Outcome      string   `json:"outcome"`
	Error        string   `json:"error"`
	ExitStatus   *int     `json:"exit_status"`
	Signal       string   `json:"signal"`
	Limit        string   `json:"limit"`
	DurationMS   *int64   `json:"duration_ms"`
	Output       string   `json:"output"`
	OutputBytes  *int64   `json:"output_bytes"`
	OmittedBytes int64    `json:"omitted_bytes"`
	Folded       int64    `json:"folded"`
	Overwritten  int64    `json:"overwritten"`
	More         bool     `json:"more"`
	Cwd          string   `json:"cwd"`
	Pipeline     []int    `json:"pipeline"`
	Survivors    int      `json:"survivors"`
	Ended        []string `json:"ended"`
	Background   []string `json:"background"`
	Staying      int      `json:"background_count"`
	Log          string   `json:"background_log"`
	MovedAside   []struct {
		From string `json:"from"`
	} `json:"moved_aside"`
	Git     []string     `json:"git"`
	Network []connection `json:"network"`
	Fence   []fact       `json:"fence"`
}

// fact is a path or a host that the fence kept from the command.
type fact struct{ Path, Word, Host, Access, Option string }

// connection is an attempt to connect, with the verdict of the fence's network rules.
type connection struct {
	Verdict, Name, Address, Reason string
	Port                           int
}

const running = "running"

// maxAsked bounds the questions of a call, as the working directory may move each time.
const maxAsked = 3

// bash starts a job, and waits for its end or for a while. The command runs in the
// directory of the question: if another command moves the working directory while the
// question is open, the server asks anew.
func (s *server) bash(ctx context.Context, r *mcp.CallToolRequest, in bashIn) (*mcp.CallToolResult, error) {
	notes := ""
	for range maxAsked {
		dir := ""
		if refusal := s.confirm(ctx, r, in, func() string { dir = s.dir(); return in.question(dir) }); refusal != nil {
			s.shell.owe(notes)
			return refusal, nil
		}
		c, number, note, err := s.shell.get()
		if err != nil {
			return failed("%v", err), nil
		}
		notes += note
		p := progress{request: r, token: r.Params.GetProgressToken()}
		request := in.request(p.token != nil)
		pinned := s.ask && s.keeps && in.Cwd == ""
		if pinned {
			request["in"] = dir
		}
		end, err := s.start(ctx, c, request, in.wait(), &p)
		if errors.Is(err, errEnded) {
			return failed("%s ended while the command ran; the next call starts it anew", s.shell.name), nil
		}
		if err != nil {
			return nil, err
		}
		if !pinned || end.Outcome != "refused" {
			return s.tell(end, number, notes, in.Command+" "+in.Cwd, in.Cwd), nil
		}
		switch now, moved := movedTo(end.Error); {
		case moved && utf8.ValidString(now):
			s.setDir(now)
		case moved, // JSON cannot say its name
			strings.HasPrefix(end.Error, fmt.Sprintf("cannot begin in %q:", dir)): // it was removed
			if err := c.ask(ctx, fields{"op": "reset"}, &struct{}{}); err != nil {
				return failed("%s: %v", s.shell.name, err), nil
			}
			s.setDir(s.root)
			if moved {
				notes += fmt.Sprintf("note: the name of the working directory, %q, is not UTF-8: commands begin in the project root again\n", now)
			}
		default:
			return s.tell(end, number, notes, in.Command, ""), nil
		}
	}
	s.shell.owe(notes)
	return failed("declined: the working directory changes while the user is asked; give cwd"), nil
}

// movedTo parses pk-bash's refusal of a request for another working directory.
func movedTo(refusal string) (dir string, ok bool) {
	rest, ok := strings.CutPrefix(refusal, "the working directory is ")
	quoted, err := strconv.QuotedPrefix(rest)
	if !ok || err != nil {
		return "", false
	}
	dir, err = strconv.Unquote(quoted)
	return dir, err == nil
}

// request returns the request for pk-bash.
func (in bashIn) request(progress bool) fields {
	f := fields{"op": "start", "command": in.Command, "wait_ms": 0, "events": []string{"exit"}}
	if progress {
		f["events"] = []string{"exit", "output"}
	}
	if limit := in.limit(); limit > 0 {
		f["timeout"] = limit
	}
	if in.Description != "" {
		f["description"] = in.Description
	}
	if in.Cwd != "" {
		f["cwd"] = in.Cwd
	}
	if in.TTY {
		f["tty"] = fields{"rows": 24, "cols": 80}
	} else if in.Background { // many watchers end with their standard input
		f["stdin"] = true
	}
	return f
}

// limit is the time limit in seconds, 0 for none.
func (in bashIn) limit() int {
	if in.Background {
		return in.Timeout
	}
	return cmp.Or(in.Timeout, defaultTimeout)
}

func (in bashIn) wait() time.Duration {
	ms := maxWait
	if in.Background {
		ms = backgroundWait
	}
	if in.WaitMS > 0 {
		ms = in.WaitMS
	}
	return time.Duration(ms) * time.Millisecond
}

// start starts the job and follows it for a while. When ctx ends, so does the job.
func (s *server) start(ctx context.Context, c *child, f fields, wait time.Duration, p *progress) (*result, error) {
	e := newEvents()
	id, answered, err := c.send(f, e)
	if err != nil {
		return nil, err
	}
	first := &result{}
	if err := c.await(ctx, answered, first); err != nil {
		if ctx.Err() != nil {
			go c.abandon(id, answered)
		}
		return nil, err
	}
	defer c.forget(first.Job)
	if first.Outcome != running {
		return first, nil
	}
	r, err := s.follow(ctx, c, first, e, wait, p)
	if ctx.Err() != nil { // the client takes no answer, and would not know of the job
		c.kill(first.Job)
		return nil, ctx.Err()
	}
	return r, err
}

// follow waits for the end of a job, or for a while, and reads its output.
func (s *server) follow(ctx context.Context, c *child, first *result, e *events, wait time.Duration, p *progress) (*result, error) {
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		select {
		case <-e.exit:
			return s.readOn(ctx, c, fields{"op": "read", "job": first.Job}, first.Output)
		case text := <-e.output:
			p.tell(ctx, text)
		case <-late.C:
			return s.readOn(ctx, c, fields{"op": "read", "job": first.Job}, first.Output)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ended:
			return nil, errEnded
		}
	}
}

// maxRead bounds one answer with output, and maxReads the answers in a call: a command can
// print faster than the server reads.
const (
	maxRead  = 256 << 10
	maxReads = 64
)

// readOn sends a request that pk-bash answers with output, and reads the rest of the
// output. It puts before in front of the output.
func (s *server) readOn(ctx context.Context, c *child, first fields, before string) (*result, error) {
	all := capture.New(capture.DefaultHead, capture.DefaultTail)
	_, _ = io.WriteString(all, before)
	next := first
	for range maxReads {
		if next["op"] == "read" {
			next["max_bytes"] = maxRead
		}
		r := &result{}
		if err := c.ask(ctx, next, r); err != nil {
			return nil, err
		}
		all.Skip(r.OmittedBytes)
		_, _ = io.WriteString(all, r.Output)
		if !r.More {
			return r.with(all), nil
		}
		next = fields{"op": "read", "job": first["job"]}
	}
	return (&result{Outcome: running}).with(all), nil
}

// with gives a result the output that was read.
func (r *result) with(all *capture.Capture) *result {
	kept := all.Kept()
	r.Output, r.OmittedBytes = string(kept.Join("")), kept.Omitted
	return r
}

// progress sends progress messages, if the client has asked for them.
type progress struct {
	request *mcp.CallToolRequest
	token   any
	last    time.Time
}

// Bounds of progress messages.
const (
	progressEvery = 100 * time.Millisecond
	maxMessage    = 200
)

// tell sends the last line of an event.
func (p *progress) tell(ctx context.Context, text line) {
	var event struct {
		Output string
		Next   int64
	}
	if json.Unmarshal(text, &event) != nil || time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	message := strings.TrimRight(event.Output, "\n")
	message = message[strings.LastIndexByte(message, '\n')+1:]
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	_ = p.request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: p.token, Progress: float64(event.Next), Message: message,
	})
}

type outputIn struct {
	ID     string `json:"shell_id" jsonschema:"from bash"`
	WaitMS int    `json:"wait_ms,omitempty" jsonschema:"wait at most so many milliseconds for output, or the end; 5000 if left out"`
}

// bashOutput reads on.
func (s *server) bashOutput(ctx context.Context, _ *mcp.CallToolRequest, in outputIn) (*mcp.CallToolResult, error) {
	return s.withJob(in.ID, func(c *child, job string) (*result, error) {
		return s.readOn(ctx, c, fields{"op": "read", "job": job, "wait_ms": cmp.Or(in.WaitMS, outputWait)}, "")
	})
}

type inputIn struct {
	ID     string `json:"shell_id" jsonschema:"from bash with run_in_background or tty"`
	Input  string `json:"input,omitempty" jsonschema:"what to type; end a line with \\n; \\u0003 is Ctrl-C on a terminal"`
	EOF    bool   `json:"eof,omitempty" jsonschema:"close its standard input after that"`
	WaitMS int    `json:"wait_ms,omitempty" jsonschema:"when the input is taken, which may last 10 s, wait at most so many milliseconds for output, or the end; 500 if left out"`
}

// bashInput writes to a job, and reads on. A job can be a shell, which runs its input, so
// the server asks about input as about a command.
func (s *server) bashInput(ctx context.Context, r *mcp.CallToolRequest, in inputIn) (*mcp.CallToolResult, error) {
	if refusal := s.confirm(ctx, r, in, in.question); refusal != nil {
		return refusal, nil
	}
	return s.withJob(in.ID, func(c *child, job string) (*result, error) {
		f := fields{"op": "write", "job": job, "wait_ms": cmp.Or(in.WaitMS, inputWait)}
		if in.Input != "" {
			f["input"] = in.Input
		}
		if in.EOF {
			f["eof"] = true
		}
		return s.readOn(ctx, c, f, "")
	})
}

type killIn struct {
	ID     string `json:"shell_id" jsonschema:"from bash"`
	Signal string `json:"signal,omitempty" jsonschema:"such as SIGINT; if left out, SIGTERM, and SIGKILL if that does not end it"`
}

// bashKill ends a job, or sends it a signal.
func (s *server) bashKill(ctx context.Context, _ *mcp.CallToolRequest, in killIn) (*mcp.CallToolResult, error) {
	return s.withJob(in.ID, func(c *child, job string) (*result, error) {
		f := fields{"op": "kill", "job": job}
		if in.Signal != "" {
			f["signal"] = in.Signal
		}
		return s.readOn(ctx, c, f, "")
	})
}

// withJob calls do with the job of a shell_id, and formats the result.
func (s *server) withJob(id string, do func(c *child, job string) (*result, error)) (*mcp.CallToolResult, error) {
	job, number, ok := jobOf(id)
	if !ok {
		return failed("%v", errNoSuchJob), nil
	}
	c, current, note, err := s.shell.get()
	switch {
	case err != nil:
		return failed("%v", err), nil
	case number != current:
		return failed("%sthere is no such shell_id any more", note), nil
	}
	r, err := do(c, job)
	if errors.Is(err, errEnded) {
		return failed("%s ended; the next call starts it anew, and this job is gone", s.shell.name), nil
	}
	if err != nil {
		return nil, err
	}
	r.Job = job
	return s.tell(r, current, note, id, ""), nil
}

// bashList lists the running jobs, and the ended jobs whose IDs the model has seen.
func (s *server) bashList(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, error) {
	c, number, note, err := s.shell.get()
	if err != nil {
		return failed("%v", err), nil
	}
	var answer struct{ Jobs []jobLine }
	if err := c.ask(ctx, fields{"op": "list"}, &answer); err != nil {
		return failed("%s: %v", s.shell.name, err), nil
	}
	text := note
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range answer.Jobs {
		id := idOf(j.Job, number)
		if j.Outcome == running || len(j.Background) > 0 || s.known[id] {
			text += j.line(id)
		}
	}
	if text == note {
		text += "no jobs\n"
	}
	return said(text, nil), nil
}

// jobLine is an element of the list of pk-bash.
type jobLine struct {
	Job, Command, Description, Outcome string
	ExitStatus                         *int     `json:"exit_status"`
	DurationMS                         int64    `json:"duration_ms"`
	Background                         []string // that run on after it
}

func (j jobLine) line(id string) string {
	state := j.Outcome
	if j.Outcome == "exited" && j.ExitStatus != nil {
		state = fmt.Sprintf("exited %d", *j.ExitStatus)
	}
	if len(j.Background) > 0 {
		state += ", its background runs"
	}
	what, _, more := strings.Cut(cmp.Or(j.Description, j.Command), "\n")
	if more {
		what += " ..."
	}
	return fmt.Sprintf("%s: %s, %d s: %s\n", id, state, j.DurationMS/1000, what)
}

// idOf makes a shell_id: the name of a job and the number of its pk-bash.
func idOf(job string, number int) string { return job + "." + strconv.Itoa(number) }

func jobOf(id string) (job string, number int, ok bool) {
	job, text, ok := strings.Cut(id, ".")
	number, err := strconv.Atoi(text)
	return job, number, ok && err == nil
}

// tell makes the text and the fields of a result.
func (s *server) tell(r *result, number int, note, typed, cwd string) *mcp.CallToolResult {
	r = s.forModel(r, typed, cwd)
	id := idOf(r.Job, number)
	switch r.Outcome {
	case "refused", "declined", "sandbox-failed", "cancelled":
		return failed("%s%s: %s", note, r.Outcome, r.Error)
	case running:
		s.mu.Lock()
		s.known[id] = true
		s.mu.Unlock()
	}
	text := note + lines(r.Output)
	if r.Output != "" {
		text += "\n"
	}
	for _, n := range r.notes() {
		text += n + "\n"
	}
	if r.Staying > 0 && r.Outcome != running {
		text += r.left(id) + "\n"
	}
	if r.Outcome == running {
		text += fmt.Sprintf("still running: shell_id %s; bash_output reads on, bash_kill ends it\n", id)
	} else {
		text += s.moved(r.Cwd) + r.status() + "\n"
	}
	return said(text, r.meta(id))
}

// moved names the working directory of later commands, if it has changed.
func (s *server) moved(cwd string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cwd != "" {
		s.at = cwd
	}
	if cwd == "" || cwd == s.cwd {
		return ""
	}
	s.cwd = cwd
	return "working directory: " + cwd + "\n"
}

// dir returns the working directory of the next command, as of the last result.
func (s *server) dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *server) setDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = dir
}

func (r *result) status() string {
	switch {
	case r.Outcome == "timed-out":
		return "exit status: 124 (it ran out of time and was ended)"
	case r.Signal != "":
		return "ended by " + r.Signal
	case r.ExitStatus == nil:
		return r.Outcome
	}
	return "exit status: " + strconv.Itoa(*r.ExitStatus)
}

// notes are the messages of pk-bash beside the output.
func (r *result) notes() []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.OmittedBytes > 0 {
		note("%d bytes of output are left out; to see all, send it to a file in /tmp and read that", r.OmittedBytes)
	}
	if r.Overwritten > 0 {
		note("lines overwritten, as by a progress bar: %d; they are shown as they were last, and | tr '\\r' '\\n' shows all", r.Overwritten)
	}
	if r.Folded > 0 {
		note("control sequences left out: %d", r.Folded)
	}
	if r.Limit != "" {
		note("stopped by the limit: %s", r.Limit)
	}
	if r.Error != "" {
		note("%s", r.Error)
	}
	for _, m := range r.MovedAside {
		note("moved out of the project, as a program outside would run it: %s", m.From)
	}
	for _, line := range r.Git {
		note("git: %s", line)
	}
	for i, c := range r.Network {
		if i == maxConnections {
			break
		}
		if text := c.line(); text != "" {
			note("%s", text)
		}
	}
	for _, f := range r.Fence {
		note("%s", f.line())
	}
	if r.Pipeline != nil {
		note("statuses of the pipeline: %s", strings.Trim(fmt.Sprint(r.Pipeline), "[]"))
	}
	if r.Survivors > 0 {
		note("ended with the command: %s (%d); run_in_background is for what is to stay", cmp.Or(strings.Join(r.Ended, ", "), "processes"), r.Survivors)
	}
	return notes
}

// left names the processes that run on after their command.
func (r *result) left(id string) string {
	text := fmt.Sprintf("left running: %s (%d); bash_kill with shell_id %s ends it", strings.Join(r.Background, ", "), r.Staying, id)
	if r.Log != "" {
		text += "; its further output is in " + r.Log
	}
	return text
}

// maxConnections bounds the connections in a result.
const maxConnections = 10

func (c connection) line() string {
	if c.Verdict == "allowed" {
		return ""
	}
	return fmt.Sprintf("network: %s: %s port %d: %s", c.Verdict, cmp.Or(c.Name, c.Address), c.Port, c.Reason)
}

// line formats a fact in the words of the command's output: the path of a word may come from the
// host. A path without a word is that of a system call. The model cannot give the option.
func (f fact) line() string {
	text := fmt.Sprintf("fence: %q is %s in the sandbox", cmp.Or(f.Word, f.Path), f.Access)
	switch {
	case f.Access == "lost":
		return fmt.Sprintf("fence: %q was written in the sandbox, and is lost with the command", f.Path)
	case f.Access == "no network" && f.Host != "":
		text = fmt.Sprintf("fence: no network in the sandbox: %q", f.Host)
	case f.Access == "no network":
		text = "fence: no network in the sandbox"
	}
	if f.Option != "" {
		text += "; the user can allow it"
	}
	return text
}

// meta is for programs: some clients show it to their users.
func (r *result) meta(id string) fields {
	m := fields{"outcome": r.Outcome}
	if r.Job != "" {
		m["shell_id"] = id
	}
	if r.ExitStatus != nil {
		m["exit_status"] = *r.ExitStatus
	}
	if r.Signal != "" {
		m["signal"] = r.Signal
	}
	if r.DurationMS != nil {
		m["duration_ms"] = *r.DurationMS
	}
	if r.OutputBytes != nil {
		m["output_bytes"] = *r.OutputBytes
	}
	if r.OmittedBytes > 0 {
		m["omitted_bytes"] = r.OmittedBytes
	}
	if r.Folded > 0 {
		m["folded"] = r.Folded
	}
	if r.Overwritten > 0 {
		m["overwritten"] = r.Overwritten
	}
	if r.Cwd != "" {
		m["cwd"] = r.Cwd
	}
	return m
}
