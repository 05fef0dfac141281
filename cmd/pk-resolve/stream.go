package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
)

// bufferSize is the size of one read of the input. A directory is looked up once
// for each buffer, so a large one pays for lists in a file; a pipe fills 64 KiB
// of it at most.
const bufferSize = 1 << 20

// answerStream answers record by record, in order, until the input ends. A
// refused path is answered by an empty record, which no path is, or by an object
// with the reason: the answers line up with the input.
//
// The other side may be a program that waits for an answer, changes the tree
// and asks again. So before the input may block, answerStream writes all answers and
// drops everything remembered about the tree.
func (a *answerer) answerStream(in io.Reader) error {
	if file, ok := in.(*os.File); ok {
		in = &eager{file: file}
	}
	input := bufio.NewReaderSize(in, bufferSize)
	for {
		if !buffered(input, a.end()) {
			if err := a.flush(); err != nil {
				return err
			}
			a.forget()
		}
		record, err := readRecord(input, a.end())
		switch {
		case err == io.EOF:
			return a.finish()
		case errors.Is(err, errLongRecord):
			err = a.refuse(err)
		case err != nil:
			return errors.Join(fmt.Errorf("cannot read standard input: %w", err), a.flush())
		default:
			err = a.answerRecord(record)
		}
		if err != nil {
			return err
		}
	}
}

// answerRecord answers one record, by an empty one if it is refused.
//
// A line that holds a NUL byte ends the stream: it is a list of the other kind,
// and many of its paths would get one line.
func (a *answerer) answerRecord(record string) error {
	if !a.zero && strings.IndexByte(record, 0) >= 0 {
		err := cli.Usage("cannot read standard input: line %q holds a NUL byte", record)
		return errors.Join(cli.WithHint(err, "add -z: records then end in NUL"), a.flush())
	}
	refused, err := a.answer(record)
	if err != nil || !refused || a.json {
		return err
	}
	return a.writeEmpty()
}

// refuse answers a record that is not even a path.
func (a *answerer) refuse(reason error) error {
	a.refused = true
	if !a.quiet {
		a.ctx.Report(reason)
	}
	if a.json {
		return a.writeJSON(outcome{refusal: reason})
	}
	return a.writeEmpty()
}

func (a *answerer) writeEmpty() error {
	if err := a.out.WriteByte(a.end()); err != nil {
		return failedWrite(err)
	}
	return nil
}

func (a *answerer) end() byte {
	if a.zero {
		return 0
	}
	return '\n'
}

// buffered reports whether a whole record can be read without waiting.
func buffered(input *bufio.Reader, end byte) bool {
	ahead, _ := input.Peek(input.Buffered())
	return bytes.IndexByte(ahead, end) >= 0
}

var errLongRecord = fmt.Errorf("cannot read a record longer than %d bytes", bufferSize)

// readRecord reads one record and drops its end, which the last one may lack.
// A record that is longer than the buffer is read to its end and dropped.
func readRecord(input *bufio.Reader, end byte) (string, error) {
	record, err := input.ReadSlice(end)
	if err == io.EOF && len(record) > 0 {
		return string(record), nil
	}
	if err != bufio.ErrBufferFull {
		return string(bytes.TrimSuffix(record, []byte{end})), err
	}
	for err == bufio.ErrBufferFull {
		_, err = input.ReadSlice(end)
	}
	if err != nil && err != io.EOF {
		return "", err
	}
	return "", errLongRecord
}

// eager reads all input that has arrived, not only that of one read(2): a pipe holds
// 64 KiB, and a directory is looked up once for each buffer.
type eager struct {
	file *os.File
	err  error // met after something was read, for the next time
}

func (e *eager) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	n, err := e.file.Read(p)
	for err == nil && n < len(p) && e.ready() {
		var more int
		more, err = e.file.Read(p[n:])
		n += more
	}
	if n > 0 {
		e.err, err = err, nil
	}
	return n, err
}

// ready reports whether a read would return at once. If the kernel cannot tell, it
// does not wait.
func (e *eager) ready() bool {
	fds := []unix.PollFd{{Fd: int32(e.file.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
