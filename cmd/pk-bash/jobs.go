package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"pikuri/lib/cli"
	"pikuri/lib/gitconfig"
	"pikuri/lib/shell"
)

const (
	maxJobs  = 64 // that run at once
	maxEnded = 64 // that have ended and can still be read

	// inputTime bounds the wait for a job that does not read its input.
	inputTime = 10 * time.Second
)

// background is a job of a loop: a command that runs beside others.
type background struct {
	id     string
	turn   *turn
	job    *job
	text   *shell.Text
	super  *shell.Supervisor // nil until it is started
	pipe   *os.File          // of its standard input; nil for none
	begun  time.Time
	result *shell.Result // to be read after done
	resume int64         // where a reader of the result goes on; after done
	done   chan struct{} // it has ended
	gone   chan struct{} // and all that it had is given back

	mu     sync.Mutex
	cursor int64 // of a read without since

	last <-chan struct{} // closed when the write that came last is done; under loop.mu
}

// queue gives a write its place behind those to the same job.
func (l *loop) queue(t *turn) {
	done := make(chan struct{})
	t.written = sync.OnceFunc(func() { close(done) })
	nothing := make(chan struct{})
	close(nothing)
	t.before = nothing
	if b := l.find(t.request.Job); b != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if b.last != nil {
			t.before = b.last
		}
		b.last = done
	}
}

// operate performs an operation, and sends its answer.
func (l *loop) operate(t *turn) {
	started := sync.OnceFunc(l.starting.Done)
	defer started()
	if t.written != nil {
		defer t.written()
	}
	r, b, err := t.request, (*background)(nil), error(nil)
	if r.Job != "" {
		if b = l.find(r.Job); b == nil {
			l.refuse(t, fmt.Errorf("there is no job %q", r.Job))
			return
		}
	}
	var answer *shell.Result
	switch r.Op {
	case shell.OpHello:
		l.hello(t)
	case shell.OpList:
		l.answerList(t)
	case shell.OpStart:
		answer, err = l.start(t, started)
	case shell.OpRead:
		answer = l.read(t, b)
	case shell.OpWrite:
		err = l.input(t, b)
		if t.written(); err == nil {
			answer = l.read(t, b)
		}
	case shell.OpResize:
		if err = b.resize(*r.TTY); err == nil {
			l.object(t, map[string]any{"job": b.id})
		}
	case shell.OpKill:
		answer = l.kill(t, b)
	case shell.OpCancel:
		if err = l.cancel(r.Target); err == nil {
			l.object(t, map[string]any{"request": r.Target})
		}
	case shell.OpReset:
		l.reset(r.Jobs)
		l.object(t, map[string]any{})
	}
	if err != nil {
		l.refuse(t, err)
	} else if answer != nil {
		answer.ID = r.ID
		l.send(answer)
	}
	if r.Op == shell.OpStart && answer != nil && answer.Outcome == shell.Running && len(r.Events) > 0 {
		l.tell(l.find(answer.Job), *answer.Next)
	}
}

// refuse sends the refusal of an operation.
func (l *loop) refuse(t *turn, err error) {
	l.send(&shell.Result{ID: t.request.ID, Outcome: shell.Refused, Status: cli.StatusFailed, Error: err.Error()})
}

// object sends an answer that is not a result of a command.
func (l *loop) object(t *turn, fields map[string]any) {
	if t.request.ID != nil {
		fields["id"] = t.request.ID
	}
	line, err := shell.Object(fields)
	if err == nil {
		l.out.Lock()
		_, err = l.ctx.Stdout.Write(line)
		l.out.Unlock()
	}
	if err != nil {
		l.fail(l.writeError(err))
	}
}

func (l *loop) hello(t *turn) {
	fields := map[string]any{
		"version": cli.VersionOf(version), "ops": shell.Ops(), "jobs": maxJobs,
		"max_timeout": int(shell.MaxTimeout.Seconds()), "state": l.keep,
	}
	add := func(name, path string) {
		text, encoded := shell.TextOrBase64([]byte(path))
		if fields[name] = text; encoded != "" {
			fields[name+"_base64"] = encoded
		}
	}
	add("root", l.root)
	if name := l.sessionName(); name != "" {
		fields["session"] = name
	}
	if l.Log != nil {
		add("audit", l.Log.Place())
	}
	if repo, ok := gitconfig.Around(l.root); ok && repo.WorkTree != l.root && !l.Unfenced {
		add("repository", repo.WorkTree)
	}
	l.object(t, fields)
}

// find returns the job with that name, nil for none.
func (l *loop) find(id string) *background {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.jobs {
		if b.id == id && b.super != nil {
			return b
		}
	}
	return nil
}

func (l *loop) listed() []*background {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.jobs)
}

// ending returns a channel that is closed when no known process of the job runs any
// more.
func (b *background) ending() <-chan struct{} {
	if b.hasEnded() && b.turn.super != nil {
		return b.gone
	}
	return b.done
}

// isOver reports whether the job has ended and all that it left has, too.
func (b *background) isOver() bool {
	select {
	case <-b.ending():
		return true
	default:
		return false
	}
}

func (b *background) hasEnded() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// register gives a new job its ID, and forgets the oldest ended jobs.
func (l *loop) register(b *background) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closing:
		return errors.New("the loop is ending")
	default:
	}
	ended := 0
	for _, other := range l.jobs {
		if other.isOver() {
			ended++
		}
	}
	if len(l.jobs)-ended >= maxJobs {
		return fmt.Errorf("%d jobs are running, and that is the most: end one first", maxJobs)
	}
	l.jobs = slices.DeleteFunc(l.jobs, func(other *background) bool {
		forget := ended >= maxEnded && other.isOver()
		if forget {
			ended--
			other.text.Discard()
		}
		return forget
	})
	l.started++
	b.id = fmt.Sprintf("j%d", l.started)
	l.jobs = append(l.jobs, b)
	return nil
}

// start starts a job, and waits for its end as long as the request says. It calls started
// once the job is in the loop's list, or has failed to start.
func (l *loop) start(t *turn, started func()) (*shell.Result, error) {
	limit := 0
	if t.request.Timeout != nil {
		limit = *t.request.Timeout
	}
	t.request.Timeout = &limit
	why := shell.Check(t.request.Command, limit)
	if limit == 0 {
		why = shell.Check(t.request.Command, 1)
	}
	if why != "" {
		return nil, errors.New(why)
	}
	l.begin(t)
	b, result, err := l.launch(t)
	started()
	if err != nil {
		result, err = t.failed(err)
		if result == nil { // a signal came
			result = cancelled()
		} else if err != nil {
			l.ctx.Report(err)
		}
	}
	if result != nil {
		t.recordEnd(result)
		t.cleanUp()
		result.Command = t.request.Command
		return result, nil
	}
	late := time.NewTimer(t.request.Wait)
	defer late.Stop()
	if t.request.Wait > 0 {
		select {
		case <-b.done:
		case <-late.C:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.hasEnded() {
		answer := b.output(0, l.most(t))
		b.cursor = *answer.Next
		l.mu.Lock()
		defer l.mu.Unlock()
		answer.Cwd = l.nextDir()
		return answer, nil
	}
	b.cursor = b.resume
	answer := *b.result
	answer.Command, answer.Next = t.request.Command, &b.resume
	return &answer, nil
}

// launch prepares the command, asks the user and starts the job. If the job does not start
// and there is no error, it returns the result.
func (l *loop) launch(t *turn) (*background, *shell.Result, error) {
	j, declined, err := t.approved()
	if err != nil || declined != nil {
		return nil, declined, err
	}
	b := &background{turn: t, job: j, begun: time.Now(), done: make(chan struct{}), gone: make(chan struct{})}
	b.text = shell.NewText(l.raw, l.scratch(j))
	j.Out = b.text
	if t.request.Input {
		if j.In, b.pipe, err = os.Pipe(); err != nil {
			return nil, nil, fmt.Errorf("cannot make a pipe: %w", err)
		}
		defer j.In.Close()
	}
	if err := l.register(b); err != nil {
		b.pipe.Close() // nil can be closed
		return nil, nil, err
	}
	super, err := j.Start()
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.super = super; err != nil {
		b.pipe.Close()
		b.text.Discard()
		l.jobs = slices.DeleteFunc(l.jobs, func(other *background) bool { return other == b })
		close(b.gone)
		return nil, nil, err
	}
	go l.follow(b, j)
	return b, nil, nil
}

// scratch returns a function that creates the file for a long output, or nil for no file.
func (l *loop) scratch(j *job) func() (*os.File, error) {
	dir := l.Loop
	if dir == nil {
		dir = j.workspace.Session
	}
	if l.noLog || dir == nil {
		return nil
	}
	return func() (*os.File, error) { return shell.OpenScratch(dir.Path()) }
}

// follow waits for the end of a job, and completes its result.
func (l *loop) follow(b *background, j *job) {
	defer close(b.gone)
	if j.ahead != nil {
		j.ahead()
	}
	result := b.super.Wait()
	if b.super.Stays() {
		b.turn.staysOn(b.super, j)
	}
	b.pipe.Close()
	b.text.Close()
	b.resume = b.text.Finish(result, l.head, l.tail)
	if err := b.turn.conclude(j, result); err != nil {
		l.ctx.Report(err)
		result, _ = b.turn.failed(err)
	}
	l.keepState(b.turn, result)
	b.turn.recordEnd(result)
	result.Job = b.id
	b.result = result
	close(b.done)
	b.turn.cleanUp()
}

// most bounds the output in an answer.
func (l *loop) most(t *turn) int {
	if t.request.Most > 0 {
		return t.request.Most
	}
	return shell.DefaultMost
}

// output returns the text from offset since on, and the result of the job if it has ended.
func (b *background) output(since int64, most int) *shell.Result {
	ended := b.hasEnded() // before the text is read, which does not grow any more then
	answer := &shell.Result{Outcome: shell.Running, Job: b.id}
	if ended {
		copied := *b.result
		if answer = &copied; b.isOver() {
			answer.Background, answer.Staying, answer.BackgroundLog = nil, 0, ""
		}
	}
	text, first, next := b.text.Read(since, most)
	answer.Output, answer.Next, answer.Omitted = text, &next, max(first-since, 0)
	answer.More = next < b.text.Size()
	b.text.Folded(answer)
	return answer
}

// read waits for output, and returns it.
func (l *loop) read(t *turn, b *background) *shell.Result {
	since := func() int64 {
		if t.request.Since != nil {
			return *t.request.Since
		}
		return b.cursor
	}
	b.mu.Lock()
	from := since()
	b.mu.Unlock()
	if t.request.Wait > 0 {
		late := time.NewTimer(t.request.Wait)
		defer late.Stop()
		if b.text.Await(from, late.C, t.withdrawn); b.text.Closed() { // the result follows at once
			select {
			case <-b.done:
			case <-late.C:
			case <-t.withdrawn:
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := b.output(since(), l.most(t))
	if t.request.Since == nil {
		b.cursor = *answer.Next
	}
	return answer
}

// input writes to the job after the user has agreed.
func (l *loop) input(t *turn, b *background) error {
	select {
	case <-t.before:
	case <-t.withdrawn:
		return errors.New("the request was cancelled")
	}
	to := b.pipe
	if b.turn.request.TTY != nil {
		to = b.super.Terminal()
	}
	if to == nil {
		return fmt.Errorf("job %q has no standard input: start it with stdin or tty", b.id)
	}
	if b.hasEnded() {
		return fmt.Errorf("job %q has ended", b.id)
	}
	t.entry = b.turn.entry
	if err := l.confirmInput(t, b); err != nil {
		return err
	}
	if err := t.recordInput(b); err != nil {
		return err
	}
	b.job.typed.Store(true)
	data := []byte(t.request.Bytes)
	if t.request.EOF && b.turn.request.TTY != nil {
		data = append(data, 4) // a terminal's default character for the end of input
	}
	_ = to.SetWriteDeadline(time.Now().Add(inputTime))
	n, err := to.Write(data)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("job %q has taken %d of %d bytes: it does not read", b.id, n, len(data))
	case err != nil:
		return fmt.Errorf("job %q takes no input any more, and has got %d of %d bytes", b.id, n, len(data))
	}
	if t.request.EOF && b.pipe != nil {
		return b.pipe.Close()
	}
	return nil
}

// confirmInput asks about input. The user has approved the command of the job, but a shell
// or an interpreter executes its input.
func (l *loop) confirmInput(t *turn, b *background) error {
	q := b.job.question
	q.Command, q.Description, q.Input = t.request.Bytes, "", b.turn.request.Command
	if t.request.EOF {
		q.Description = "the end of input follows"
	}
	yes, reason, err := t.confirm(q, b.job)
	switch {
	case err != nil:
		return err
	case !yes:
		return errors.New(declined(reason).Error)
	}
	return nil
}

func (b *background) resize(size shell.Size) error {
	if b.turn.request.TTY == nil {
		return fmt.Errorf("job %q has no terminal: start it with tty", b.id)
	}
	if b.hasEnded() {
		return fmt.Errorf("job %q has ended", b.id)
	}
	return size.Set(b.super.Terminal())
}

// kill sends a signal. After SIGTERM it sends SIGKILL. After both, it waits for the end.
func (l *loop) kill(t *turn, b *background) *shell.Result {
	ending := b.ending()
	switch t.request.Signal {
	case 0, syscall.SIGTERM:
		b.turn.end(syscall.SIGTERM)
	default:
		select {
		case b.turn.asides <- t.request.Signal:
		case <-ending:
		}
	}
	switch t.request.Signal {
	case 0, syscall.SIGTERM, syscall.SIGKILL:
		<-ending
	}
	return l.read(t, b)
}

// cancel cancels the requests with an ID.
func (l *loop) cancel(id []byte) error {
	l.mu.Lock()
	var found []*turn
	for _, t := range l.turns {
		if t.request.ID != nil && shell.SameID(t.request.ID, id) {
			found = append(found, t)
		}
	}
	l.mu.Unlock()
	for _, t := range found {
		if t.claimed.CompareAndSwap(false, true) { // it has not begun
			r := cancelled()
			r.ID, r.Command = t.request.ID, t.request.Command
			l.send(r)
			l.drop(t)
			continue
		}
		if t.cancelled.CompareAndSwap(false, true) {
			close(t.withdrawn)
		}
		t.end(syscall.SIGTERM)
	}
	if len(found) == 0 {
		return fmt.Errorf("no request %s waits for its answer", bytes.TrimSpace(id))
	}
	return nil
}

// reset forgets the state, also the state of running commands, and ends the jobs if jobs is
// set.
func (l *loop) reset(jobs bool) {
	l.mu.Lock()
	l.state = shell.State{}
	l.seq++
	l.mu.Unlock()
	if !jobs {
		return
	}
	all := l.listed()
	for _, b := range all {
		b.turn.end(syscall.SIGTERM)
	}
	stayers := l.stayers()
	for _, t := range stayers {
		t.end(syscall.SIGTERM)
	}
	for _, b := range all {
		<-b.gone
	}
	for _, t := range stayers {
		<-t.gone
	}
}

// mostListed bounds a command in the list, in bytes.
const mostListed = 1000

// listedJob is one job of the answer to OpList.
type listedJob struct {
	Job         string        `json:"job"`
	Command     string        `json:"command"`
	Description string        `json:"description,omitempty"`
	Outcome     shell.Outcome `json:"outcome"`
	ExitStatus  *int          `json:"exit_status,omitempty"`
	Background  []string      `json:"background,omitempty"`
	DurationMS  int64         `json:"duration_ms"`
	OutputBytes int64         `json:"output_bytes"`
}

func (l *loop) answerList(t *turn) {
	list := []listedJob{}
	for _, b := range l.listed() {
		one := listedJob{
			Job: b.id, Command: b.turn.request.Command, Description: b.turn.request.Description,
			Outcome: shell.Running, DurationMS: time.Since(b.begun).Milliseconds(), OutputBytes: b.text.Written(),
		}
		if b.hasEnded() {
			one.Outcome, one.ExitStatus, one.DurationMS = b.result.Outcome, &b.result.Status, b.result.Duration.Milliseconds()
			if !b.isOver() {
				one.Background = b.result.Background
			}
		}
		if len(one.Command) > mostListed {
			one.Command = strings.ToValidUTF8(one.Command[:mostListed], "") + "..."
		}
		list = append(list, one)
	}
	l.object(t, map[string]any{"jobs": list})
}

// tell sends the events of a job, with the output from offset since. A slow reader gets
// them later, and misses output that the job no longer keeps by then.
func (l *loop) tell(b *background, since int64) {
	if b == nil {
		return
	}
	l.busy.Add(1)
	go func() {
		defer l.busy.Done()
		wants := func(event string) bool { return slices.Contains(b.turn.request.Events, event) }
		for wants(shell.EventOutput) && b.text.Await(since, nil, l.closing) {
			text, first, next := b.text.Read(since, shell.DefaultMost)
			l.send(&shell.Result{Event: shell.EventOutput, Outcome: shell.Running, Job: b.id, Output: text, Next: &next, Omitted: first - since})
			since = next
		}
		<-b.done
		if wants(shell.EventExit) {
			end := *b.result
			end.Event, end.Next, end.Output, end.Omitted = shell.EventExit, nil, nil, 0
			l.send(&end)
		}
	}()
}
