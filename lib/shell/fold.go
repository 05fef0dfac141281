package shell

import (
	"bytes"
	"io"
	"unicode/utf8"
)

const (
	// maxLine is how much of a line can still be overwritten. No terminal is a
	// hundredth as wide.
	maxLine = 64 << 10

	// maxSequence bounds an escape sequence. A longer one is text that begins
	// with an escape, and so nothing can make the rest of an output disappear.
	maxSequence = 4096
)

// Fold passes on the text that would be left on a terminal: of a line that was drawn
// again and again, as progress bars are, the last form, and no sequences that
// move, colour or name things. The pieces written to it may be cut anywhere. The caller
// must close it.
type Fold struct {
	to       io.Writer
	line     []byte // the current line, as far as it can still be overwritten
	torn     bool   // the beginning of the line has been passed on
	returned bool   // to the beginning of the line: the next character overwrites it
	back     int    // characters to be overwritten from its end
	sequence []byte // that has begun and not ended
	out      []byte // text to pass on, in pieces that are too small alone
	removed  int64
}

// NewFold writes to to, which must not fail.
func NewFold(to io.Writer) *Fold { return &Fold{to: to} }

// Removed is how many sequences, and lines that were drawn over, were left out.
func (f *Fold) Removed() int64 { return f.removed }

// Pending reports whether the Fold holds a line that it has not passed on.
func (f *Fold) Pending() bool { return len(f.line) > 0 }

// Tear passes on the current line, such as a prompt. If the command draws over it, the next
// form becomes a separate line.
func (f *Fold) Tear() {
	if f.Pending() {
		f.emit(f.line)
		f.line, f.torn = f.line[:0], true
		f.flush()
	}
}

// Write never fails.
func (f *Fold) Write(p []byte) (int, error) {
	n := len(p)
	marks := newMarks(p)
	for at := 0; at < len(p); {
		if len(f.sequence) > 0 {
			at = f.continueSequence(p, at)
			continue
		}
		next := marks.next(at)
		if next > at {
			f.text(p[at:next])
		}
		if next < len(p) {
			f.control(p[next])
			next++
		}
		at = next
	}
	f.flush()
	return n, nil
}

// Close passes on the rest.
func (f *Fold) Close() error {
	f.text(f.sequence)
	f.sequence = nil
	f.emit(f.line)
	f.line = nil
	f.flush()
	return nil
}

// marks finds the bytes that Fold does something about, each with one look at
// the whole: most outputs have none of them.
type marks struct {
	p     []byte
	where [len(special)]int
}

const special = "\r\b\x1b"

func newMarks(p []byte) *marks {
	m := &marks{p: p}
	for i := range special {
		m.where[i] = m.find(i, 0)
	}
	return m
}

func (m *marks) find(i, from int) int {
	if k := bytes.IndexByte(m.p[from:], special[i]); k >= 0 {
		return from + k
	}
	return len(m.p)
}

// next returns the place of the first mark at or behind at.
func (m *marks) next(at int) int {
	first := len(m.p)
	for i := range special {
		if m.where[i] < at {
			m.where[i] = m.find(i, at)
		}
		first = min(first, m.where[i])
	}
	return first
}

func (f *Fold) emit(p []byte) {
	if len(f.out)+len(p) > maxSequence {
		f.flush()
	}
	if len(p) > maxSequence {
		_, _ = f.to.Write(p)
		return
	}
	f.out = append(f.out, p...)
}

func (f *Fold) flush() {
	if len(f.out) > 0 {
		_, _ = f.to.Write(f.out)
		f.out = f.out[:0]
	}
}

// text takes characters and ends of lines.
func (f *Fold) text(p []byte) {
	if len(p) == 0 {
		return
	}
	if p[0] != '\n' {
		f.overwrite()
	}
	f.returned, f.back = false, 0
	// Where no line ends, the rest is too long to wait for its end. Searching back
	// through it each time would take long.
	from := max(0, len(p)-maxLine-1)
	if first := bytes.IndexByte(p[from:], '\n'); first >= 0 {
		first += from
		end := first + 1 + bytes.LastIndexByte(p[first+1:], '\n') + 1
		f.emit(f.line)
		f.emit(p[:end])
		f.line, f.torn = f.line[:0], false
		p = p[end:]
	}
	if len(f.line)+len(p) > maxLine {
		f.emit(f.line)
		f.emit(p)
		f.line, f.torn = f.line[:0], true
		return
	}
	f.line = append(f.line, p...)
}

// overwrite makes room for the next characters. If the beginning of the line has been
// passed on, it ends the line instead.
func (f *Fold) overwrite() {
	switch {
	case f.returned && f.torn:
		f.emit(append(f.line, '\n'))
		f.line, f.torn = f.line[:0], false
	case f.returned && len(f.line) > 0:
		f.removed++
		f.line = f.line[:0]
	}
	for ; f.back > 0 && len(f.line) > 0; f.back-- {
		_, size := utf8.DecodeLastRune(f.line)
		f.line = f.line[:len(f.line)-size]
	}
}

func (f *Fold) control(b byte) {
	switch b {
	case '\r':
		f.returned, f.back = true, 0
	case '\b':
		if !f.returned {
			f.back++
		}
	case '\x1b':
		f.sequence = append(f.sequence[:0], b)
	}
}

// continueSequence takes bytes into the sequence until it ends, or turns out to
// be none and therefore text.
func (f *Fold) continueSequence(p []byte, at int) int {
	for ; at < len(p); at++ {
		switch state := f.accept(p[at]); {
		case state == ended:
			f.sequence = append(f.sequence, p[at])
			f.perform()
			return at + 1
		case state == broken || len(f.sequence) >= maxSequence:
			text := f.sequence
			f.sequence = nil
			f.text(text)
			return at
		}
		f.sequence = append(f.sequence, p[at])
	}
	return at
}

type state int

const (
	going state = iota
	ended
	broken
)

// accept tells whether b continues, ends or breaks the sequence (ECMA-48, section 5).
func (f *Fold) accept(b byte) state {
	if len(f.sequence) == 1 {
		switch {
		case bytes.IndexByte([]byte("[]PX^_"), b) >= 0, b >= ' ' && b <= '/':
			return going
		case b >= '0' && b <= '~':
			return ended
		}
		return broken
	}
	kind, last := f.sequence[1], f.sequence[len(f.sequence)-1]
	switch {
	case kind == '[':
		return between(b, ' ', '?', '@', '~')
	case kind >= ' ' && kind <= '/':
		return between(b, ' ', '/', '0', '~')
	case b == '\a', last == '\x1b' && b == '\\':
		return ended
	case last == '\x1b', b == '\n' && kind == ']':
		return broken
	}
	return going
}

func between(b, low, high, first, last byte) state {
	switch {
	case b >= low && b <= high:
		return going
	case b >= first && b <= last:
		return ended
	}
	return broken
}

// perform applies a sequence to the line: it may erase.
func (f *Fold) perform() {
	f.removed++
	switch string(f.sequence) {
	case "\x1b[2K":
		f.line = f.line[:0]
	case "\x1b[K", "\x1b[0K":
		if f.returned {
			f.line, f.returned = f.line[:0], false
		}
	}
	f.sequence = f.sequence[:0]
}
