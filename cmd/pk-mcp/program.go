package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// program is a child that pk-mcp starts again when it has ended.
type program struct {
	name  string
	lost  string // the state that is lost when it has ended, for the model; "" for none
	start func() (*child, error)

	endTime time.Duration // it has so long to end when its input has

	mu     sync.Mutex
	child  *child
	starts int
	over   bool   // it is not started any more
	owed   string // a note that the model has not seen yet
}

// get returns a running child and its number. If it is not the child of the last call, note
// tells the model so.
func (p *program) get() (c *child, number int, note string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil && p.child.alive() {
		note, p.owed = p.owed, ""
		return p.child, p.starts, note, nil
	}
	if p.child != nil {
		p.child.close(p.endTime)
		p.child = nil
	}
	if p.over {
		return nil, 0, "", fmt.Errorf("%s has been ended, as the server ends", p.name)
	}
	if p.starts > 0 {
		note = fmt.Sprintf("note: %s had ended and was started anew%s\n", p.name, p.lost)
	}
	if c, err = p.start(); err != nil {
		return nil, 0, "", fmt.Errorf("%s cannot be started; its messages are on the server's standard error", p.name)
	}
	p.child = c
	p.starts++
	note, p.owed = p.owed+note, ""
	return c, p.starts, note, nil
}

// owe keeps a note of get for the next call, as this one has no result to put it in.
func (p *program) owe(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed += note
}

// close ends the program; permanently, if over is set.
func (p *program) close(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = p.over || over
	if p.child != nil {
		p.child.close(p.endTime)
		p.child = nil
	}
}

// shellHello is the answer of pk-bash --loop to hello.
type shellHello struct {
	Session string `json:"session"`
	Root    string `json:"root"`
	Audit   string `json:"audit"`
}

// filesHello is the answer of pk-fs --loop to hello.
type filesHello struct {
	Roots []root `json:"roots"`
}

type root struct {
	Path     string `json:"path"`
	Writable bool   `json:"writable"`
}

// children starts pk-bash and pk-fs with the same /tmp.
type children struct {
	shell, files *program
	stderr       io.Writer

	mu      sync.Mutex
	session string // that pk-bash is in
	root    string
	audit   string // file of records, "" for none
	roots   []root
}

func newChildren(shell, files []string, stderr io.Writer) *children {
	s := &children{stderr: stderr}
	s.shell = &program{name: "the shell", endTime: endTime, lost: "; its jobs are gone, /tmp may be empty, and it is back in the project root"}
	s.files = &program{name: "the program for files", endTime: fileTime}
	s.shell.start = func() (*child, error) {
		var hello shellHello
		c, err := startChild(shell[0], shell[1:], stderr, &hello)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		moved := s.session != hello.Session && s.root != ""
		s.session, s.root, s.audit = hello.Session, hello.Root, hello.Audit
		s.mu.Unlock()
		if moved { // the session of a loop is gone with it
			s.files.close(false)
		}
		return c, nil
	}
	s.files.start = func() (*child, error) {
		args := files[1:]
		s.mu.Lock()
		if s.session != "" {
			args = append(args[:len(args):len(args)], "--session="+s.session)
		}
		s.mu.Unlock()
		var hello filesHello
		c, err := startChild(files[0], args, stderr, &hello)
		if err == nil {
			s.mu.Lock()
			s.roots = hello.Roots
			s.mu.Unlock()
		}
		return c, err
	}
	return s
}

// close ends both at once. pk-fs is killed if it still searches when pk-bash has ended its
// commands: pk-bash waits for it to leave the session, and not for long.
func (s *children) close() {
	var ends sync.WaitGroup
	ends.Go(func() { s.files.close(true) })
	ends.Go(func() { s.shell.close(true) })
	ends.Wait()
}
