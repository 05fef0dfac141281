package edit

import (
	"bytes"
	"fmt"
	"strings"
)

// HunkError reports a hunk that does not fit.
type HunkError struct {
	Hunk  int   // from 1
	Lines []int // where it would fit, if that is several places; 20 at most
	Why   string
}

func (e *HunkError) Error() string {
	if len(e.Lines) > 0 {
		return fmt.Sprintf("hunk %d fits in several places: %s", e.Hunk, told(e.Lines))
	}
	return fmt.Sprintf("hunk %d: %s", e.Hunk, e.Why)
}

// applied applies hunks to a text.
func applied(text []byte, hunks []hunk, lenient bool) ([]byte, error) {
	t := &target{end: "\n"}
	if bytes.Count(text, []byte("\n")) >= maxLines {
		return nil, &HunkError{Hunk: 1, Why: fmt.Sprintf("the file has more than %d lines", maxLines)}
	}
	for l := range strings.Lines(string(text)) {
		t.lines = append(t.lines, l)
	}
	if endsInCRLF(text) && lostCR(hunks, lenient) {
		t.end = "\r\n"
	}
	for i, h := range hunks {
		at, e := t.locate(h, lenient)
		if e != nil {
			e.Hunk = i + 1
			return nil, e
		}
		t.put(at, h)
	}
	t.copy(len(t.lines))
	return t.out.Bytes(), nil
}

// lostCR reports whether hunks for a text with CR LF have lost the CR: they contain lines
// of the text, and none has a CR. A format without line ends has always lost it.
func lostCR(hunks []hunk, lenient bool) bool {
	lost := lenient
	for _, h := range hunks {
		for _, l := range h.lines {
			if strings.HasSuffix(l.text, "\r\n") {
				return false
			}
			lost = lost || l.op != '+'
		}
	}
	return lost
}

// maxLines bounds the lines of a file that is patched: in memory each takes some hundred
// bytes beside its text.
const maxLines = 2 << 20

// target is a text that hunks are applied to, from its beginning to its end.
type target struct {
	lines []string
	at    int // of the first line that no hunk has passed
	moved int // how many lines further down than its header said the last hunk was
	out   bytes.Buffer
	end   string // of lines that are added

	indexes [fits]*index // those that were needed
	tries   int          // of an index, for all hunks
}

// fit is how strictly a line is compared. Only the first depends on the end of a line, on its CR: the last line
// may have none.
type fit int

const (
	withCR fit = iota
	exact
	blanks
	dashes
	words
	fits
)

// of returns the text that lines which are the same have in common.
func (f fit) of(line string) string {
	switch f {
	case withCR:
		return strings.TrimSuffix(line, "\n")
	case blanks:
		return strings.TrimRight(line, " \t\r\n")
	case dashes:
		return typography.Replace(blanks.of(line))
	case words:
		return strings.TrimSpace(line)
	}
	return trimEnd(line)
}

// typography replaces characters that models write in place of ASCII.
var typography = strings.NewReplacer("\u2010", "-", "\u2011", "-", "\u2012", "-", "\u2013", "-", "\u2014", "-", "\u2212", "-",
	"\u2018", "'", "\u2019", "'", "\u201c", `"`, "\u201d", `"`, "\u00a0", " ", "\u202f", " ")

// locate returns the line at which a hunk belongs.
func (t *target) locate(h hunk, lenient bool) (int, *HunkError) {
	from := t.at
	for _, context := range h.context {
		at := t.find(from, []string{context}, exact, 1)
		if len(at) == 0 {
			at = t.find(from, []string{context}, words, 1)
		}
		if len(at) == 0 {
			return 0, &HunkError{Why: fmt.Sprintf("its line %q is not there", "@@ "+context)}
		}
		from = at[0] + 1
	}
	var old []string
	for _, l := range h.lines {
		if l.op != '+' {
			old = append(old, l.text)
		}
	}
	if len(old) == 0 {
		return t.insertion(h, from)
	}
	strictest := []fit{withCR}
	switch {
	case lenient:
		strictest = []fit{exact, blanks, dashes}
	case t.end == "\r\n":
		strictest = []fit{exact}
	}
	if h.at > 0 && t.fits(max(h.at-1+t.moved, t.at), old, strictest[0]) && !h.atEnd {
		return max(h.at-1+t.moved, t.at), nil
	}
	for _, f := range strictest {
		var places []int
		if at := len(t.lines) - len(old); !h.atEnd {
			places = t.find(from, old, f, maxPlaces)
		} else if at >= from && t.fits(at, old, f) {
			places = []int{at}
		}
		switch {
		case t.tries > maxTries:
			return 0, &HunkError{Why: "its lines, and those of the hunks before it, are in too many places to compare them all"}
		case len(places) == 1, len(places) > 1 && len(h.context) > 0:
			return places[0], nil
		case len(places) > 1:
			for i := range places {
				places[i]++
			}
			return 0, &HunkError{Lines: places}
		}
	}
	if strictest[0] == withCR && len(t.find(from, old, exact, 1)) > 0 {
		return 0, &HunkError{Why: "its lines are there with other ends: CR LF in place of LF, or the reverse"}
	}
	return 0, &HunkError{Why: fmt.Sprintf("its lines are not there, the first of which is %q", trimEnd(old[0]))}
}

// insertion returns the place of a hunk that only adds lines.
func (t *target) insertion(h hunk, from int) (int, *HunkError) {
	at := len(t.lines)
	switch {
	case h.at > 0:
		at = h.at - 1 + t.moved
	case len(h.context) > 0 && !h.atEnd:
		at = from
	}
	if at < t.at || at > len(t.lines) {
		return 0, &HunkError{Why: "it adds lines behind the end of the file"}
	}
	return at, nil
}

func (t *target) fits(at int, lines []string, f fit) bool {
	if at < 0 || at+len(lines) > len(t.lines) {
		return false
	}
	for i, l := range lines {
		if f.of(t.lines[at+i]) != f.of(l) {
			return false
		}
	}
	return true
}

// put writes the lines before a hunk, and then the hunk.
func (t *target) put(at int, h hunk) {
	if h.at > 0 {
		t.moved = at - (h.at - 1)
	}
	t.copy(at)
	for _, l := range h.lines {
		switch {
		case l.op == ' ':
			t.copy(t.at + 1)
		case l.op == '-':
			t.at++
		default:
			t.close()
			text := trimEnd(l.text)
			t.out.WriteString(text)
			if hasEnd(l.text) && t.end == "\n" {
				t.out.WriteString(l.text[len(text):])
			} else if hasEnd(l.text) {
				t.out.WriteString(t.end)
			}
		}
	}
}

// copy writes the lines before line to unchanged.
func (t *target) copy(to int) {
	for ; t.at < to; t.at++ {
		t.close()
		t.out.WriteString(t.lines[t.at])
	}
}

// close ends the last line before another one follows.
func (t *target) close() {
	if text := t.out.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
		t.out.WriteString(t.end)
	}
}
