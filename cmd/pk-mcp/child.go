package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// child is a program that answers requests, one JSON object per line: pk-bash --loop or
// pk-fs --loop. It ends when its standard input is closed. The kernel closes the input when
// this process ends, even by SIGKILL. Pdeathsig does not work here: the kernel sends it
// when the thread that started the child ends, and Go ends threads at any time.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when its output has ended

	writing sync.Mutex
	mu      sync.Mutex
	last    int                 // the last id
	waiting map[string]*waiting // by id
	jobs    map[string]*events  // by job: the receivers of its events
}

// waiting is a request without an answer.
type waiting struct {
	answer chan<- line
	events *events // of the job that it starts; or nil
}

// events are the channels for the events of a job. deliver drops an event when its channel
// is full: the output is only for progress messages.
type events struct{ output, exit chan line }

func newEvents() *events { return &events{make(chan line, 16), make(chan line, 1)} }

// line is an answer or an event.
type line []byte

// Bounds of the wait for a child.
const (
	helloTime = 30 * time.Second // it looks whether a fence can be had here
	endTime   = 20 * time.Second // it ends its commands: SIGTERM, 5 s, SIGKILL
)

// findProgram finds another program of pk: in the directory of this one, or else in PATH.
func findProgram(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("cannot find %s beside this program, nor in PATH", name)
	}
	return path, nil
}

// startChild starts a program and takes its answer to a first request.
func startChild(path string, args []string, stderr io.Writer, hello any) (*child, error) {
	c := &child{
		cmd: exec.Command(path, args...), ended: make(chan struct{}),
		waiting: map[string]*waiting{}, jobs: map[string]*events{},
	}
	c.cmd.Stderr = stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", path, err)
	}
	go c.read(stdout)
	ctx, stop := context.WithTimeout(context.Background(), helloTime)
	defer stop()
	if err := c.ask(ctx, fields{"op": "hello"}, hello); err != nil {
		c.close(endTime)
		return nil, fmt.Errorf("%s does not answer: it ended with %v", filepath.Base(path), c.cmd.ProcessState)
	}
	return c, nil
}

// close ends the child, and waits until it has. It is killed if it takes longer.
func (c *child) close(longest time.Duration) {
	c.stdin.Close()
	late := time.AfterFunc(longest, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	<-c.ended
	_ = c.cmd.Wait() // it printed the error on standard error
}

// alive reports whether the child can still answer.
func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// fields are the fields of a request.
type fields map[string]any

// errEnded is the answer of a child that has ended.
var errEnded = errors.New("it has ended")

// ask sends a request, and decodes its answer. If ctx ends first, it drops the answer.
func (c *child) ask(ctx context.Context, request fields, answer any) error {
	_, answered, err := c.send(request, nil)
	if err != nil {
		return err
	}
	return c.await(ctx, answered, answer)
}

// send sends a request, and returns its id and the channel of its answer. e receives the
// events of the job that the request starts.
func (c *child) send(request fields, e *events) (id string, answered <-chan line, err error) {
	answer := make(chan line, 1)
	c.mu.Lock()
	c.last++
	id = strconv.Itoa(c.last)
	c.waiting[id] = &waiting{answer, e}
	c.mu.Unlock()
	request["id"] = id
	text, err := json.Marshal(request)
	if err != nil {
		return id, nil, err
	}
	// c.mu is not locked here: a child reads no request while it writes an answer.
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.stdin.Write(append(text, '\n')); err != nil {
		return id, nil, errEnded
	}
	return id, answer, nil
}

// await waits for an answer of send.
func (c *child) await(ctx context.Context, answered <-chan line, answer any) error {
	select {
	case text := <-answered:
		return json.Unmarshal(text, answer)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
	}
	select { // it may have been its last one
	case text := <-answered:
		return json.Unmarshal(text, answer)
	default:
		return errEnded
	}
}

// abandon ends the job of a start whose caller waits no more for the answer. The answer may
// be on its way, and then a withdrawal comes too late: the job has to be ended by the name
// that the answer gives it.
func (c *child) abandon(id string, answered <-chan line) {
	_, _, _ = c.send(fields{"op": "cancel", "request": id}, nil)
	first := &result{}
	if c.await(context.Background(), answered, first) != nil {
		return
	}
	c.forget(first.Job)
	if first.Outcome == running {
		c.kill(first.Job)
	}
}

// kill ends a job whose call is cancelled.
func (c *child) kill(job string) { _, _, _ = c.send(fields{"op": "kill", "job": job}, nil) }

// forget ends the wait for the events of a job.
func (c *child) forget(job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, job)
}

// read delivers each line of the child to its receiver.
func (c *child) read(stdout io.Reader) {
	defer close(c.ended)
	in := bufio.NewReader(stdout)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		c.deliver(text)
	}
}

func (c *child) deliver(text line) {
	var head struct{ ID, Event, Job string }
	if json.Unmarshal(text, &head) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.jobs[head.Job]; e != nil && head.Event != "" {
		to := e.output
		if head.Event == "exit" {
			to = e.exit
		}
		select {
		case to <- text:
		default:
		}
		return
	}
	w := c.waiting[head.ID]
	if w == nil {
		return
	}
	delete(c.waiting, head.ID)
	if w.events != nil && head.Job != "" {
		c.jobs[head.Job] = w.events
	}
	w.answer <- text
}
