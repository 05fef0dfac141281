package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"pikuri/lib/cli"
	"pikuri/lib/jsonline"
	sessiondir "pikuri/lib/session"
	"pikuri/lib/shell"
)

// maxLine bounds a request: a command as large as can be, in base64 or with its
// odd characters spelt out.
const maxLine = 2 * shell.MaxCommand

// incoming is a line of standard input, or why there is none.
type incoming struct {
	line []byte
	err  error
}

// beginLoop makes the session of a loop that joins none, and finds out before the
// first request whether commands can be fenced.
func (s *session) beginLoop() error {
	if s.noSandbox || s.wrap != "" {
		s.Unfenced = true
		opened, err := s.WorkspaceFlags.Open(s.ctx)
		if err == nil {
			opened.Close()
		}
		return err
	}
	s.Runs = false
	f, err := s.Open(s.ctx)
	s.Runs = true
	if err != nil {
		return err
	}
	if err = f.Ready(shell.Argv("")[0]); err == nil && s.Temp == "" && f.Opened.Session == nil && f.Opened.Reserved == nil {
		s.Loop, err = makeLoop()
	}
	return errors.Join(err, f.Close())
}

func makeLoop() (*sessiondir.Dir, error) {
	base, err := sessiondir.Base(os.Getenv)
	if err != nil {
		return nil, err
	}
	return sessiondir.Create(base)
}

// endLoop removes the session of the loop.
func (s *session) endLoop() error {
	s.cleanUp()
	s.Next.Close()
	if s.Loop == nil {
		return nil
	}
	return s.Loop.Remove()
}

// answerAll answers one request after the other until there are no more. A
// request that is not understood gets its answer, and the next one is read.
func (s *session) answerAll() error {
	input := bufio.NewReader(s.ctx.Stdin)
	for {
		next := make(chan incoming, 1)
		go func() {
			line, err := jsonline.ReadLine(input, maxLine)
			next <- incoming{line, err}
		}()
		select {
		case sig := <-s.signals:
			return died(sig)
		case in := <-next:
			switch {
			case errors.Is(in.err, io.EOF):
				return nil
			case in.err != nil && !tooLong(in.err):
				return fmt.Errorf("cannot read standard input: %w", in.err)
			}
			if err := s.answer(in); err != nil {
				return err
			}
		}
	}
}

func tooLong(err error) bool {
	_, is := errors.AsType[*jsonline.TooLongError](err)
	return is
}

// answer answers one request. The error is that the loop is over.
func (s *session) answer(in incoming) error {
	request, err := shell.Request{}, in.err
	if err == nil {
		request, err = shell.ParseRequest(in.line)
	}
	if err != nil {
		return s.write(&shell.Result{ID: request.ID, Outcome: shell.Refused, Status: cli.StatusFailed, Error: err.Error()})
	}
	if request.Timeout == nil {
		request.Timeout = &s.timeout
	}
	defer s.cleanUp()
	result, err := s.one(request)
	if result == nil { // a signal came
		return err
	}
	if err != nil {
		s.ctx.Report(err)
	}
	if err := s.write(result); err != nil {
		return err
	}
	if result.Interrupt != nil {
		return died(result.Interrupt)
	}
	return nil
}
