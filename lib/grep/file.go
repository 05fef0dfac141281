package grep

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

const (
	// firstRead is the size of the first read of a file. Most files are smaller.
	firstRead = 64 << 10

	// maxLine bounds the part of a line that is searched, and so the buffer.
	maxLine = 1 << 20

	// maxShown bounds the part of a line that is printed.
	maxShown = 2000

	// maxContext bounds the context before a line that may match.
	maxContext = 256 << 10
)

// Line is a line that matches, or a line of context.
type Line struct {
	Path    string
	Number  int64
	Text    []byte // without its end; valid during the call
	Context bool
}

// searcher searches files one after the other, and keeps its buffers.
type searcher struct {
	*Query
	lines
	buf []byte

	path    func() string // of the file
	named   string
	done    int                                         // the part of buf before it was printed, or will not be
	counted int                                         // where in buf the line with number begins
	number  int64                                       // of that line
	owed    int                                         // lines after a match, not yet printed
	begun   bool                                        // a line of the file was printed
	emit    func(l Line, group, match bool) (more bool) // match: the first line of one
}

// search searches a file up to a NUL byte. binary is true if the NUL byte comes before the
// first match.
func (s *searcher) search(f io.Reader, path func() string) (binary bool, err error) {
	s.path, s.named, s.done, s.counted, s.number, s.owed, s.begun, s.long = path, "", 0, 0, 1, 0, false, false
	begin, end, skipping := 0, 0, false // of text that was not searched
	for {
		if s.stopped != nil && s.stopped() {
			return false, nil
		}
		n, err := s.read(f, end)
		if bytes.IndexByte(s.buf[end:end+n], 0) >= 0 {
			return !s.begun, nil
		}
		last := err == io.EOF
		if err != nil && !last {
			return false, err
		}
		end += n
		if skipping {
			if begin = bytes.IndexByte(s.buf[:end], '\n') + 1; begin == 0 {
				end = 0
				if last {
					return false, nil
				}
				continue
			}
			skipping = false
			s.done, s.counted, s.number = begin, begin, s.number+1
		}
		stop := end
		if !last {
			stop = begin + bytes.LastIndexByte(s.buf[begin:end], '\n') + 1
			if stop == begin && end-begin >= maxLine {
				stop, skipping = begin+maxLine, true
			}
		}
		if stop > begin && !s.region(begin, stop) || last {
			return false, nil
		}
		if skipping {
			begin, end = 0, 0
			continue
		}
		keep := s.keep(stop)
		s.count(keep)
		end = copy(s.buf, s.buf[keep:end])
		begin, s.done, s.counted = stop-keep, max(s.done-keep, -1), 0
	}
}

// read fills the buffer behind end, and makes room there.
func (s *searcher) read(f io.Reader, end int) (int, error) {
	if len(s.buf)-end < firstRead {
		larger := make([]byte, max(2*len(s.buf), firstRead))
		copy(larger, s.buf[:end])
		s.buf = larger
	}
	return f.Read(s.buf[end:])
}

// keep returns the start of the lines that a later read may need.
func (s *searcher) keep(stop int) int {
	from := stop
	for range s.Before {
		if from <= s.done || stop-from > maxContext {
			break
		}
		from = bytes.LastIndexByte(s.buf[:from-1], '\n') + 1
	}
	return max(from, min(s.done, stop))
}

// region searches whole lines. more is false when the limit is reached.
func (s *searcher) region(begin, stop int) (more bool) {
	s.look(s.buf[begin:stop])
	for at := 0; ; {
		from, to, match := s.find(at)
		if match == nil {
			return s.after(stop)
		}
		from, to = from+begin, to+begin
		if !s.after(from) || !s.matched(from, to, match) {
			return false
		}
		at = min(to+1-begin, stop-begin)
	}
}

// matched passes on a line that matches, and the context before it.
func (s *searcher) matched(begin, end int, match []int) bool {
	if s.FilesOnly {
		s.begun = true
		s.emit(Line{Path: s.name()}, true, true)
		return false
	}
	first := begin
	for range s.Before {
		if first <= s.done {
			break
		}
		first = bytes.LastIndexByte(s.buf[:first-1], '\n') + 1
	}
	first = max(first, min(s.done, begin))
	group := !s.begun || first > s.done
	starts := true
	for first < begin {
		to := first + bytes.IndexByte(s.buf[first:], '\n')
		if !s.give(first, to, nil, group, starts) {
			return false
		}
		first, group, starts = to+1, false, false
	}
	s.owed = s.After
	return s.give(begin, end, match, group, starts)
}

// after passes on the lines of trailing context that begin before stop.
func (s *searcher) after(stop int) bool {
	for s.owed > 0 && s.done < stop {
		end := stop
		if n := bytes.IndexByte(s.buf[s.done:stop], '\n'); n >= 0 {
			end = s.done + n
		}
		s.owed--
		if !s.give(s.done, end, nil, false, false) {
			return false
		}
	}
	return true
}

// count advances the line number to the line that begins at at.
func (s *searcher) count(at int) {
	if at > s.counted {
		s.number += int64(bytes.Count(s.buf[s.counted:at], newline))
		s.counted = at
	}
}

var newline = []byte("\n")

func (s *searcher) give(begin, end int, match []int, group, starts bool) bool {
	s.count(begin)
	s.begun, s.done = true, end+1
	return s.emit(Line{Path: s.name(), Number: s.number, Text: shown(s.buf[begin:end], match), Context: match == nil}, group, starts)
}

func (s *searcher) name() string {
	if s.named == "" {
		s.named = s.path()
	}
	return s.named
}

// shown returns a line, or the part around the match if the line is long.
func shown(line []byte, match []int) []byte {
	if len(line) <= maxShown {
		return line
	}
	from := 0
	if match != nil && match[1] > maxShown {
		from = boundary(line, max(match[0]-maxShown/4, 0))
	}
	to := boundary(line, min(from+maxShown, len(line)))
	var text []byte
	if from > 0 {
		text = fmt.Appendf(text, "[%d bytes] ", from)
	}
	text = append(text, line[from:to]...)
	if to < len(line) {
		text = fmt.Appendf(text, " [%d more bytes]", len(line)-to)
	}
	return text
}

// boundary moves a place back to the start of a UTF-8 sequence.
func boundary(text []byte, at int) int {
	for back := 0; back < utf8.UTFMax && at > back && at < len(text); back++ {
		if utf8.RuneStart(text[at-back]) {
			return at - back
		}
	}
	return at
}
