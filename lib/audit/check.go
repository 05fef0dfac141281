package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Finding is something that is wrong with a file.
type Finding struct {
	Line int    `json:"line"`
	Text string `json:"finding"`
}

// Check reads the file called name and reports each place where it is not as pk has written
// it. Records that are appended meanwhile are not looked at.
func Check(name string, report func(Finding)) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a FIFO
	if err != nil {
		return cannotCheck(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return cannotCheck(name, err)
	}
	c := checker{end: origin, report: report}
	head, err := os.Open(name + headSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return cannotCheck(name, err)
	}
	defer head.Close() // nil can be closed
	if head != nil {
		if err := flock(head, unix.LOCK_SH); err != nil {
			return cannotCheck(name, err)
		}
		c.known, c.hasHead = readHead(head)
	}
	info, err = f.Stat()
	if head != nil {
		_ = flock(head, unix.LOCK_UN) // the writers go on
	}
	if err == nil {
		err = c.lines(io.LimitReader(f, info.Size()))
	}
	if err != nil {
		return cannotCheck(name, err)
	}
	c.conclude()
	return nil
}

func cannotCheck(name string, err error) error {
	return fmt.Errorf("cannot check audit file %q: %w", name, err)
}

// checker follows the chain from line to line.
type checker struct {
	end     // of the lines so far
	line    int
	torn    bool // the line before is no record
	known   end  // by the head
	hasHead bool
	report  func(Finding)
}

func (c *checker) find(format string, args ...any) {
	c.report(Finding{c.line, fmt.Sprintf(format, args...)})
}

func (c *checker) lines(from io.Reader) error {
	in := bufio.NewReaderSize(from, maxLine+1)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case err == bufio.ErrBufferFull:
			return fmt.Errorf("line %d is longer than any record", c.line+1)
		case err != nil && err != io.EOF:
			return err
		case len(line) > 0:
			c.line++
			c.size += int64(len(line))
			c.next(bytes.TrimSuffix(line, []byte("\n")))
		}
		if err == io.EOF {
			c.torn = c.torn || len(line) > 0
			return nil
		}
	}
}

// next checks one line. A line that is no record is the trace of a killed writer if the
// next record says so; the hash in that record is that of the line.
func (c *checker) next(line []byte) {
	l, ok := parse(line)
	switch {
	case c.torn && !(ok && l.Event == Torn):
		c.report(Finding{c.line - 1, "it is not a record"})
	case !ok:
	case l.Seq <= c.seq:
		c.find("record %d comes after record %d: lines were moved or copied", l.Seq, c.seq)
	case l.Seq > c.seq+1:
		c.find("records %d to %d are missing before it", c.seq+1, l.Seq-1)
	case l.Prev != c.hash:
		c.find("it does not follow on the line before, record %d: one of both was changed", c.seq)
	case l.Event == Gap:
		c.find("records may be missing before it: pk found the file cut, or without its %s file", headSuffix)
	}
	c.hash, c.torn = hash(line), !ok
	if !ok {
		return
	}
	c.seq = l.Seq
	if c.hasHead && l.Seq == c.known.seq && c.hash != c.known.hash {
		c.find("it is not record %d as it was written", l.Seq)
	}
}

// conclude compares the end of the file with the head. The head can be one record behind,
// if a writer was killed.
func (c *checker) conclude() {
	switch {
	case c.torn:
		c.find("it is not a whole record: its writer was killed, or the disk was full")
	case !c.hasHead && c.size > 0:
		c.find("there is no valid %s file: records after it may be missing", headSuffix)
	case c.seq < c.known.seq:
		c.find("records %d to %d are missing after it", c.seq+1, c.known.seq)
	}
}
