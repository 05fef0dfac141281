// Package lines reads a range of the lines of a text, and reads no more of the text than it
// needs.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// block is the size of one read.
const block = 64 << 10

// sniffed is the size of the beginning of a text that is checked for a NUL byte before any
// output, as in git.
const sniffed = 8000

// maxPassed bounds a line that is read and not given out. A file that takes no room on
// the disk can be of exabytes without a newline.
const maxPassed = 64 << 20

// ErrBinary is a NUL byte in the first 8000 bytes of a text, or in a line that is given
// out.
var ErrBinary = errors.New("it is binary")

// ErrLongLine is a line of over 64 MiB before the requested lines, or one whose
// beginning Tail would have to find.
var ErrLongLine = fmt.Errorf("a line on the way is longer than %d bytes", maxPassed)

// Range says which lines.
type Range struct {
	First, Last int64 // from 1; Last 0: to the end
	Numbers     bool  // each line follows its number and a tab, as with cat -n
	Before      int64 // lines before the text, which is the end of a file then
}

func (r Range) has(line int64) bool { return line >= r.First && (r.Last == 0 || line <= r.Last) }

// Copy writes the lines of a range, of any length. It reads nothing after the block with
// the last line.
func Copy(out io.Writer, in io.Reader, r Range) error {
	to := bufio.NewWriterSize(out, block)
	err := scan(in, r, func(p piece) (bool, error) {
		if r.Last > 0 && p.line > r.Last {
			return false, nil
		}
		if !r.has(p.line) {
			return true, nil
		}
		if r.Numbers && p.begins {
			fmt.Fprintf(to, "%6d\t", p.line)
		}
		_, err := to.Write(p.text)
		return err == nil && (!p.ends || p.line != r.Last), err
	})
	if last := to.Flush(); last != nil {
		return last
	}
	if err == io.EOF {
		err = nil
	}
	return err
}

// Limits bound the result of Read.
type Limits struct {
	Bytes   int  // whole lines only, unless the first one is longer
	Line    int  // bytes of a line, which a note about the missing ones follows; 0: none
	Counted bool // the text is read to its end, for Part.Lines
}

// Part is a part of a text.
type Part struct {
	Text        []byte
	First, Last int64 // its lines; without any, Last is First-1
	Lines       int64 // of the whole text; -1 if its end was not reached
	Cut         bool  // lines of the range, or parts of some, are missing
}

// Read returns the lines of a range, within limits.
func Read(in io.Reader, r Range, l Limits) (Part, error) {
	p := Part{First: max(r.First, 1), Last: max(r.First, 1) - 1}
	begin, hidden, lines, full := 0, 0, r.Before, false
	err := scan(in, r, func(next piece) (bool, error) {
		if next.begins {
			lines, begin, hidden = next.line, len(p.Text), 0
		}
		if full || !r.has(next.line) {
			behind := full || next.line > r.Last && r.Last > 0
			return !behind || l.Counted, nil
		}
		if r.Numbers && next.begins {
			p.Text = fmt.Appendf(p.Text, "%6d\t", next.line)
		}
		text := next.text
		if room := l.Line - (len(p.Text) - begin); l.Line > 0 && len(bytes.TrimSuffix(text, newline)) > room {
			text = text[:cutAt(text, max(room, 0))]
			hidden += len(bytes.TrimSuffix(next.text, newline)) - len(text)
		}
		p.Text = append(p.Text, text...)
		if hidden > 0 && next.ends {
			p.mark(hidden)
			hidden = 0
		}
		p.Last = next.line
		if len(p.Text) > l.Bytes {
			full, p.Cut = true, true
			if next.line == p.First {
				p.Text = p.Text[:cutAt(p.Text, l.Bytes)]
			} else {
				p.Text = p.Text[:begin]
				p.Last--
			}
		}
		return l.Counted || !full && !(next.ends && next.line == r.Last), nil
	})
	if hidden > 0 {
		p.mark(hidden)
	}
	p.Lines = -1
	if err == io.EOF {
		p.Lines, err = lines, nil
	}
	return p, err
}

// mark ends a shortened line with the number of missing bytes.
func (p *Part) mark(hidden int) {
	p.Text = fmt.Appendf(p.Text, " [%d more bytes]\n", hidden)
	p.Cut = true
}

var newline = []byte("\n")

// cutAt returns the largest length up to n that splits no UTF-8 sequence.
func cutAt(text []byte, n int) int {
	for back := 0; back < utf8.UTFMax && n > back && n < len(text); back++ {
		if utf8.RuneStart(text[n-back]) {
			return n - back
		}
	}
	return n
}

// piece is a line or, if that is long, a part of it.
type piece struct {
	line         int64
	text         []byte
	begins, ends bool // the line
}

// scan calls fn for each piece of a text until fn returns false. It returns io.EOF at the
// end of the text.
func scan(in io.Reader, r Range, fn func(piece) (more bool, err error)) error {
	from := bufio.NewReaderSize(in, block)
	head, err := from.Peek(sniffed)
	if err != nil && err != io.EOF {
		return err
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return ErrBinary
	}
	p := piece{line: r.Before + 1, begins: true}
	length := 0 // of the line so far
	for {
		text, err := from.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			err = nil
		}
		if len(text) > 0 {
			p.text, p.ends = text, text[len(text)-1] == '\n'
			wanted := r.has(p.line)
			if wanted && bytes.IndexByte(text, 0) >= 0 {
				return ErrBinary
			}
			if length += len(text); length > maxPassed && !wanted {
				return ErrLongLine
			}
			if more, failed := fn(p); failed != nil || !more {
				return failed
			}
			if p.begins = p.ends; p.ends {
				p.line++
				length = 0
			}
		}
		if err != nil {
			return err
		}
	}
}

// Tail moves to the beginning of the last n lines. It reads these, and the first bytes of
// the text. A NUL byte there is ErrBinary, a line of over 64 MiB ErrLongLine.
func Tail(in io.ReadSeeker, n int64) error {
	at, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, block)
	if err := readAt(in, buf[:min(at, sniffed)], 0); err != nil {
		return err
	}
	if bytes.IndexByte(buf[:min(at, sniffed)], 0) >= 0 {
		return ErrBinary
	}
	length := int64(0) // of the line whose beginning is looked for
	for last := true; at > 0; last = false {
		part := buf[:min(at, block)]
		at -= int64(len(part))
		if err := readAt(in, part, at); err != nil {
			return err
		}
		begins := int64(-1) // the place of the lines, if this block has it
		end := len(part)
		if last {
			end = len(bytes.TrimSuffix(part, newline))
		}
		for begins < 0 {
			before := bytes.LastIndexByte(part[:end], '\n')
			length += int64(end - before - 1)
			if before < 0 {
				break
			}
			if n--; n <= 0 {
				begins = int64(before) + 1
			}
			end, length = before, 0
		}
		if bytes.IndexByte(part[max(begins, 0):], 0) >= 0 {
			return ErrBinary
		}
		if begins >= 0 {
			_, err := in.Seek(at+begins, io.SeekStart)
			return err
		}
		if length > maxPassed {
			return ErrLongLine
		}
	}
	_, err = in.Seek(0, io.SeekStart)
	return err
}

func readAt(in io.ReadSeeker, buf []byte, at int64) error {
	if _, err := in.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(in, buf)
	return err
}

// Count returns how many lines end before the place at which in is, and moves back
// there. A line of over 64 MiB is ErrLongLine.
func Count(in io.ReadSeeker) (int64, error) {
	to, err := in.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}
	var lines, length int64
	buf := make([]byte, block)
	for left := to; err == nil && left > 0; {
		var n int
		n, err = in.Read(buf[:min(left, block)])
		lines += int64(bytes.Count(buf[:n], newline))
		left -= int64(n)
		if end := bytes.LastIndexByte(buf[:n], '\n'); end >= 0 {
			length = int64(n - end - 1)
		} else if length += int64(n); length > maxPassed {
			return 0, ErrLongLine
		}
	}
	if err == nil {
		_, err = in.Seek(to, io.SeekStart)
	}
	return lines, err
}
