package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/fence"
	"pikuri/lib/jsonline"
	"pikuri/lib/monitor"
	"pikuri/lib/shell"
)

// maxLine bounds a request: the largest command, in base64 or with JSON
// escapes.
const maxLine = 2 * shell.MaxCommand

// incoming is a line of standard input, or the error of reading one.
type incoming struct {
	line []byte
	err  error
}

// beginLoop makes the session of a loop that joins none. Before the first request it runs a command
// that does nothing: if that is refused, all would be.
func (s *session) beginLoop() error {
	t := s.newTurn(shell.Request{Command: ":", Timeout: &s.timeout})
	t.signals = s.signals
	fenced := !s.noSandbox && s.wrap == ""
	if fenced {
		s.OwnLoop, s.Ahead = true, &monitor.Ahead{Keep: true, Orphaned: fence.Orphaned()}
	}
	j, err := t.prepareUnless()
	if err != nil {
		return err
	}
	defer t.cleanUp()
	t.job, s.root = j, j.workspace.ProjectRoot()
	if _, _, err := t.answerer(j); err != nil || !fenced {
		return err
	}
	j.output = shell.NewOutput(s.head, s.tail, s.raw, nil, nil)
	j.Out = j.output
	super, err := j.Start()
	if err != nil {
		return err
	}
	result := super.Wait()
	if result.Asked != 0 {
		return died(result.Asked)
	}
	return t.conclude(j, result)
}

// endLoop removes the session of the loop.
func (s *session) endLoop() error {
	s.Ahead.Close()
	if s.Loop == nil {
		return nil
	}
	return s.Loop.Remove()
}

// loop answers requests. Requests without an operation run one after another. The loop
// answers operations as soon as it can.
type loop struct {
	*session
	out      sync.Mutex     // one answer is written after another
	busy     sync.WaitGroup // operations and events
	starting sync.WaitGroup // operations that may add a job
	broken   chan error     // the answers have no reader
	pending  atomic.Int32   // operations that are not answered
	answered chan struct{}  // one is, of as many as there may be
	closing  chan struct{}  // closed when the loop ends: nothing is begun any more

	mu      sync.Mutex
	turns   []*turn // requests that are not answered yet
	staying []*turn // requests without an operation that have left processes running
	jobs    []*background
	started int // jobs so far, for their names
	state   shell.State
	seq     int // of the command that was begun last, among those whose state is kept
}

func newLoop(s *session) *loop {
	return &loop{session: s, broken: make(chan error, 1), answered: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Bounds on requests that wait: the loop stops reading from a client that reads no answers.
const (
	maxQueued  = 64 << 20 // bytes of requests that wait for their turn
	maxPending = 1024     // operations that are not answered; further ones are refused
	maxRefused = 2048     // the same with those; then nothing is read any more
)

// queued is a request that waits for the requests before it. Its turn is nil for a line
// that is not a request.
type queued struct {
	turn    *turn
	refusal *shell.Result
	size    int
}

// run answers requests until the input ends or a signal comes.
//
// When the input ends, run still answers the requests without an operation that it has
// read, as long as the answers have a reader. Then it ends the jobs. A client that has
// ended leaves no process behind, and a client that writes to a pipe gets all its answers.
func (l *loop) run() error {
	lines, done := l.readLines(), make(chan error)
	var queue []queued
	var current *turn
	var over error // why the loop ends, other than the end of input
	size, answering := 0, false
	var looks <-chan time.Time // at whether the last answer is stuck
	var stuck time.Time        // since when, if it is
	end := func(err error, sig syscall.Signal) {
		if over == nil {
			over, lines, queue = err, nil, nil
			close(l.closing)
			looks = time.Tick(lastAnswers / 10)
		}
		l.interrupt(sig)
	}
	for lines != nil || answering || len(queue) > 0 {
		if !answering && len(queue) > 0 {
			q := queue[0]
			queue, size = queue[1:], size-q.size
			if q.turn != nil && !q.turn.claimed.CompareAndSwap(false, true) {
				continue // it was cancelled
			}
			current, answering = q.turn, true
			go func() { done <- l.answer(q) }()
		}
		from := lines
		if size > maxQueued || l.pending.Load() >= maxRefused {
			from = nil
		}
		select {
		case in, ok := <-from:
			switch {
			case !ok:
				lines = nil
				go l.watchReader()
			case in.err != nil && !jsonline.IsTooLong(in.err):
				end(fmt.Errorf("cannot read standard input: %w", in.err), syscall.SIGTERM)
			default:
				if q, plain := l.take(in); plain {
					queue, size = append(queue, q), size+q.size
				}
			}
		case err := <-done:
			current, answering = nil, false
			if err != nil {
				end(err, syscall.SIGTERM)
			}
		case <-looks:
			if current == nil || current.ended.Load() {
				if stuck.IsZero() {
					stuck = time.Now()
				} else if time.Since(stuck) > lastAnswers { // it has no reader
					if current != nil {
						current.cleanUp()
					}
					answering = false
				}
			}
		case <-l.answered:
		case err := <-l.broken:
			end(err, syscall.SIGTERM)
		case sig := <-l.signals:
			switch {
			case sig == syscall.SIGPIPE: // the write has failed, and says so
			case sig == syscall.SIGINT && current != nil && !current.ended.Load() && over == nil:
				current.end(syscall.SIGINT)
			default:
				end(died(sig), sig.(syscall.Signal))
			}
		}
	}
	if over == nil {
		close(l.closing)
		l.interrupt(syscall.SIGTERM)
	}
	l.wait(over != nil)
	return over
}

// wait waits for the ends of jobs and for the last answers. If hurried is set, it waits at
// most lastAnswers for a slow reader once the jobs have ended.
func (l *loop) wait(hurried bool) {
	ended, answered := make(chan struct{}), make(chan struct{})
	go func() {
		l.starting.Wait()
		for _, b := range l.listed() {
			<-b.gone
		}
		for _, t := range l.stayers() {
			<-t.gone
		}
		close(ended)
		l.busy.Wait()
		close(answered)
	}()
	var late <-chan time.Time
	for {
		if hurried && ended == nil && late == nil {
			late = time.After(lastAnswers)
		}
		select {
		case <-answered:
			return
		case <-late:
			return
		case <-ended:
			ended = nil
		case <-l.broken:
			hurried = true
		case sig := <-l.signals:
			if sig != syscall.SIGPIPE {
				hurried = true
				l.interrupt(sig.(syscall.Signal))
			}
		}
	}
}

// lastAnswers bounds the wait for a slow reader after the loop was ended.
const lastAnswers = time.Second

// interrupt ends all commands and jobs, including commands in preparation.
func (l *loop) interrupt(sig syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range slices.Concat(l.turns, l.staying) {
		t.end(sig)
	}
	for _, b := range l.jobs {
		b.turn.end(sig)
	}
}

// end sends a signal to a command. It drops the signal if the channel is full.
func (t *turn) end(sig syscall.Signal) {
	select {
	case t.signals <- sig:
	default:
	}
}

// readLines reads standard input, and closes the channel at its end.
func (l *loop) readLines() <-chan incoming {
	lines := make(chan incoming)
	go func() {
		defer close(lines)
		for input := bufio.NewReader(l.ctx.Stdin); ; {
			line, err := jsonline.ReadLine(input, maxLine)
			if errors.Is(err, io.EOF) {
				return
			}
			lines <- incoming{line, err}
			if err != nil && !jsonline.IsTooLong(err) {
				return
			}
		}
	}()
	return lines
}

// watchReader ends the loop when the reader of its answers has closed the pipe.
func (l *loop) watchReader() {
	file, ok := l.ctx.Stdout.(*os.File)
	if !ok {
		return
	}
	for {
		fds := []unix.PollFd{{Fd: int32(file.Fd())}}
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		}
		if fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			l.fail(cli.Exit(cli.StatusSignal + int(syscall.SIGPIPE)))
		}
		return
	}
}

func (l *loop) fail(err error) {
	select {
	case l.broken <- err:
	default:
	}
}

// take begins an operation, or returns a request that waits for its turn.
func (l *loop) take(in incoming) (q queued, plain bool) {
	request, err := shell.Request{}, in.err
	if err == nil {
		request, err = shell.ParseRequest(in.line)
	}
	q.size = len(in.line)
	if err != nil {
		q.refusal = &shell.Result{ID: request.ID, Outcome: shell.Refused, Status: cli.StatusFailed, Error: err.Error()}
	} else {
		if request.Timeout == nil && request.Op == "" {
			request.Timeout = &l.timeout
		}
		q.turn = l.newTurn(request)
		q.turn.claimed.Store(request.Op != "")
		l.add(q.turn)
	}
	if request.Op == "" {
		return q, true
	}
	if l.pending.Add(1) > maxPending && q.refusal == nil && slices.Contains([]shell.Op{shell.OpStart, shell.OpRead, shell.OpWrite}, request.Op) {
		q.refusal = &shell.Result{
			ID: request.ID, Outcome: shell.Refused, Status: cli.StatusFailed,
			Error: fmt.Sprintf("%d operations wait for their answers, and that is the most", maxPending),
		}
		l.drop(q.turn)
	} else if request.Op == shell.OpWrite && q.refusal == nil {
		l.queue(q.turn)
	}
	l.busy.Add(1)
	l.starting.Add(1)
	go func() {
		defer l.busy.Done()
		defer func() {
			if l.pending.Add(-1) == maxRefused-1 {
				select {
				case l.answered <- struct{}{}:
				default:
				}
			}
		}()
		if q.refusal != nil {
			l.starting.Done()
			l.send(q.refusal)
			return
		}
		l.operate(q.turn)
		l.drop(q.turn)
	}()
	return q, false
}

func (l *loop) add(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns = append(l.turns, t)
}

// drop forgets a request that is answered.
func (l *loop) drop(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns = slices.DeleteFunc(l.turns, func(other *turn) bool { return other == t })
}

// send writes an answer or an event. A failure ends the loop.
func (l *loop) send(r *shell.Result) {
	if err := l.sendResult(r); err != nil {
		l.fail(err)
	}
}

func (l *loop) sendResult(r *shell.Result) error {
	l.out.Lock()
	defer l.out.Unlock()
	return l.write(r)
}

// answer answers one request without an operation. It returns an error if it cannot write
// the answer.
func (l *loop) answer(q queued) error {
	if q.turn == nil {
		return l.sendResult(q.refusal)
	}
	t := q.turn
	defer l.drop(t)
	defer l.cleanUp(t)
	l.begin(t)
	result, err := t.one()
	if result == nil { // a signal came
		result = cancelled()
		result.ID, result.Command = t.request.ID, t.request.Command
		select {
		case <-l.closing:
			return nil
		default:
		}
	} else if err != nil {
		l.ctx.Report(err)
	}
	l.keepState(t, result)
	t.ended.Store(true)
	return l.sendResult(result)
}

// cleanUp cleans up after a request without an operation. It does not wait for processes
// that stay.
func (l *loop) cleanUp(t *turn) {
	if t.super == nil {
		t.cleanUp()
		return
	}
	t.gone = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.staying = append(l.staying, t)
	go func() {
		t.cleanUp()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.staying = slices.DeleteFunc(l.staying, func(other *turn) bool { return other == t })
		close(t.gone)
	}()
}

func (l *loop) stayers() []*turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.staying)
}

// cancelled returns the result of a request that was cancelled before it ran.
func cancelled() *shell.Result {
	return &shell.Result{Outcome: shell.Cancelled, Status: cli.StatusFailed, Error: "the request was cancelled"}
}

// begin gives a command the state of the last one.
func (l *loop) begin(t *turn) {
	if l.keep == shell.KeepNothing {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.began = l.state
	if t.request.Dir == "" {
		l.seq++
		t.keep, t.seq = l.keep, l.seq
	}
}

// keepState keeps the state of a command, unless another command has begun since. It adds
// the working directory of the next command to the result.
func (l *loop) keepState(t *turn, r *shell.Result) {
	if l.keep == shell.KeepNothing {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	why := ""
	if r.NoDir {
		why = fmt.Sprintf("the working directory %q was not there: the command began in the project root", t.began.Dir)
	}
	if r.State != nil && t.seq == l.seq {
		if l.state = *r.State; l.state.Dir == "" {
			why = "the working directory was removed: the next command begins in the project root"
		}
	}
	r.Error = cmp.Or(r.Error, why)
	r.Cwd = l.nextDir()
}

// nextDir returns the working directory of the next command, "" without a state. The caller
// holds l.mu.
func (l *loop) nextDir() string {
	if l.keep == shell.KeepNothing {
		return ""
	}
	return cmp.Or(l.state.Dir, l.root)
}
