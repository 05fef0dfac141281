package shell

import (
	"bytes"
	"io"
	"slices"
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

// Fold passes on the text that would be left on a terminal: a carriage return and a
// backspace move, and the characters that follow overwrite as many; sequences that move,
// colour or name things are left out. Each character counts as one column. The pieces
// written to it may be cut anywhere. The caller must close it.
type Fold struct {
	to       io.Writer
	line     []byte // the current line, as far as it can still be overwritten
	at       int    // where the next character goes
	torn     bool   // the beginning of the line has been passed on
	returned bool   // a torn line: the next character begins a new one
	start    int    // since the last move the characters from here to at were written
	under    []byte // over these
	lost     bool   // since the last return, text of the line was overwritten
	sequence []byte // that has begun and not ended
	out      []byte // text to pass on, in pieces that are too small alone

	removed, overwritten int64
}

// NewFold writes to to, which must not fail.
func NewFold(to io.Writer) *Fold { return &Fold{to: to} }

// Removed is how many sequences were left out.
func (f *Fold) Removed() int64 { return f.removed }

// Overwritten is how many times a line lost text that was written over, each line once
// between two returns to its beginning.
func (f *Fold) Overwritten() int64 { return f.overwritten }

// Pending reports whether the Fold holds a line that it has not passed on.
func (f *Fold) Pending() bool { return len(f.line) > 0 }

// Tear passes on the current line, such as a prompt. If the command draws over it, the next
// form becomes a separate line.
func (f *Fold) Tear() {
	if f.Pending() {
		f.returned = f.returned || f.at < len(f.line)
		f.tear()
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
	f.tear()
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
	if f.returned && p[0] != '\n' {
		f.tear()
		f.emit([]byte{'\n'})
		f.torn = false
	}
	f.returned = false
	if end := bytes.IndexByte(p, '\n'); end >= 0 {
		f.put(p[:end])
		f.tear()
		// Where no line ends, the rest is too long to wait for its end. Searching back
		// through it each time would take long.
		from := max(end, len(p)-maxLine-1)
		last := bytes.LastIndexByte(p[from:], '\n')
		if last < 0 {
			f.emit(p[end:])
			return
		}
		f.emit(p[end : from+last+1])
		f.torn = false
		p = p[from+last+1:]
	}
	f.put(p)
}

// put writes characters at the cursor.
func (f *Fold) put(p []byte) {
	if f.at == len(f.line) {
		if len(f.line)+len(p) > maxLine {
			f.tear()
			f.emit(p)
			return
		}
		f.line = append(f.line, p...)
		f.at = len(f.line)
		return
	}
	end := f.at // of the characters that these overwrite
	for _, b := range p {
		if end < len(f.line) && utf8.RuneStart(b) {
			for end++; end < len(f.line) && !utf8.RuneStart(f.line[end]); end++ {
			}
		}
	}
	f.under = append(f.under, f.line[f.at:end]...)
	if end-f.at == len(p) {
		copy(f.line[f.at:], p)
	} else {
		f.line = slices.Replace(f.line, f.at, end, p...)
	}
	if f.at += len(p); len(f.line) > maxLine {
		f.returned = f.at < len(f.line)
		f.tear()
	}
}

// settle finds out whether text was lost since the last move.
func (f *Fold) settle() {
	if !bytes.HasPrefix(f.line[f.start:f.at], f.under) {
		f.lose(f.under)
	}
	f.under = f.under[:0]
}

// lose notes that text is overwritten. Blanks are none.
func (f *Fold) lose(text []byte) { f.lost = f.lost || len(bytes.TrimSpace(text)) > 0 }

// count counts a loss of text since the last return.
func (f *Fold) count() {
	if f.settle(); f.lost {
		f.overwritten, f.lost = f.overwritten+1, false
	}
}

// tear passes the line on.
func (f *Fold) tear() {
	f.count()
	f.emit(f.line)
	f.line, f.at, f.start, f.torn = f.line[:0], 0, 0, true
}

func (f *Fold) control(b byte) {
	switch b {
	case '\r':
		f.count()
		f.at, f.start, f.returned = 0, 0, f.torn
	case '\b':
		f.settle()
		for f.at > 0 {
			if f.at--; utf8.RuneStart(f.line[f.at]) {
				break
			}
		}
		f.start = f.at
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
	from := len(f.line)
	switch string(f.sequence) {
	case "\x1b[2K":
		from = 0
	case "\x1b[K", "\x1b[0K":
		from = f.at
	}
	if !f.returned {
		f.settle()
		f.lose(f.line[from:])
		f.line = f.line[:from]
		f.at = min(f.at, from)
		f.start = f.at
	}
	f.sequence = f.sequence[:0]
}
