package grep

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// matcher finds the lines that match.
type matcher struct {
	re    *regexp.Regexp // nil: a needle decides
	steps int            // at most, that re takes for a byte

	// needles are texts: each line that matches contains one of them. So the search skips
	// most lines of a file. Without needles, it runs the expression on each line.
	needles [][]byte
	fold    bool // needles are in lower case, to be found in either
}

// maxNeedles bounds the needles. The search looks for each one separately.
const maxNeedles = 8

const (
	// maxPattern and maxProgram bound an expression, as its author wrote it and as it is
	// compiled: x{1000} is a thousand instructions. A byte takes a step for each instruction
	// at the worst, of about 20 ns.
	maxPattern = 64 << 10
	maxProgram = 10_000

	// maxSteps bounds the steps of one line, so that none takes longer than some seconds. An
	// expression of 127 instructions searches a line of a MiB.
	maxSteps = 1 << 27

	// uninterrupted is the number of steps between two checks whether the search is over.
	uninterrupted = 1 << 22
)

// ErrLongLine is a line that is too long for an expression. It was not searched.
var ErrLongLine = errors.New("a line is too long to be searched for an expression of this size")

var errNewline = errors.New("it holds a newline, and lines are matched one at a time")

func compile(q Query) (*matcher, error) {
	if strings.Contains(q.Pattern, "\n") {
		return nil, errNewline
	}
	if q.Fixed && !q.IgnoreCase && q.Pattern != "" {
		return &matcher{needles: [][]byte{[]byte(q.Pattern)}}, nil
	}
	text := q.Pattern
	if q.Fixed {
		text = regexp.QuoteMeta(text)
	}
	if q.IgnoreCase {
		text = "(?i)" + text
	}
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPattern)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok {
			err = fmt.Errorf("%s: %s", e.Code, brief(e.Expr))
		}
		return nil, err
	}
	if hasNewline(tree) {
		return nil, errNewline
	}
	steps, err := programSize(tree)
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	m := &matcher{re: re, steps: steps}
	literals := required(tree)
	for _, l := range literals {
		m.fold = m.fold || l.fold
	}
	for _, l := range literals {
		needle := l.text
		if m.fold {
			needle = foldable(needle)
		}
		if needle == "" || strings.ContainsRune(needle, utf8.RuneError) { // which a byte that is no text matches too
			return &matcher{re: re, steps: steps}, nil
		}
		m.needles = append(m.needles, []byte(needle))
	}
	if len(literals) == 1 && tree.Op == syntax.OpLiteral && !m.fold {
		m.re = nil
	}
	return m, nil
}

// programSize is how many instructions an expression compiles to.
func programSize(tree *syntax.Regexp) (int, error) {
	errLarge := fmt.Errorf("it is too large: compiled, it has over %d instructions; repeat less in it", maxProgram)
	if leastSize(tree) > maxProgram { // else it would take a GiB to find out
		return 0, errLarge
	}
	program, err := syntax.Compile(tree.Simplify())
	if err == nil && len(program.Inst) > maxProgram {
		err = errLarge
	}
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}

// leastSize is the number of characters and classes once repeats are written out.
func leastSize(re *syntax.Regexp) int {
	size := 0
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		size = 1
	}
	for _, sub := range re.Sub {
		size = min(size+leastSize(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max)
	}
	return size
}

func hasNewline(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') || slices.ContainsFunc(re.Sub, hasNewline)
}

// literal is a text that matches; with fold, also in another case.
type literal struct {
	text string
	fold bool
}

// required returns texts so that each match contains one of them, nil if it finds none.
func required(re *syntax.Regexp) []literal {
	switch re.Op {
	case syntax.OpLiteral:
		return []literal{{string(re.Rune), re.Flags&syntax.FoldCase != 0}}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []literal
		for _, sub := range re.Sub {
			if found := required(sub); shortest(found) > shortest(best) {
				best = found
			}
		}
		return best
	case syntax.OpAlternate:
		var all []literal
		for _, sub := range re.Sub {
			found := required(sub)
			if all = append(all, found...); found == nil || len(all) > maxNeedles {
				return nil
			}
		}
		return all
	}
	return nil
}

func shortest(list []literal) int {
	if len(list) == 0 {
		return 0
	}
	return len(slices.MinFunc(list, func(a, b literal) int { return len(a.text) - len(b.text) }).text)
}

// foldable returns the longest part, in lower case, whose letters have exactly two cases. k
// is also the Kelvin sign, s also the long s.
func foldable(text string) string {
	longest := ""
	for _, part := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r >= utf8.RuneSelf || r == 'k' || r == 's' }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// lines is a part of a file, of whole lines.
type lines struct {
	*matcher
	text   []byte // ends with a newline, but at the end of the file
	folded []byte // the same in lower case
	next   []int  // where each needle is found next

	stopped func() bool // the search is over; nil: never
	taken   int         // steps since it was asked
	long    bool        // a line was not searched, being too long
}

// look takes the next part of a file. It reuses the buffers of the last part.
func (l *lines) look(text []byte) {
	l.text, l.folded = text, text
	if l.fold {
		l.folded = lower(l.folded[:0:0], text)
	}
	l.next = append(l.next[:0], make([]int, len(l.needles))...)
	for i := range l.next {
		l.next[i] = -1
	}
}

func lower(to, text []byte) []byte {
	to = append(to, text...)
	for i, b := range to {
		if 'A' <= b && b <= 'Z' {
			to[i] = b + ('a' - 'A')
		}
	}
	return to
}

// find returns the first line that matches at or after from, which begins a line.
// match is where in it. It finds no more once the search is over.
func (l *lines) find(from int) (begin, end int, match []int) {
	for from < len(l.text) {
		begin = from
		if len(l.needles) > 0 {
			hit := l.needle(from)
			if hit < 0 {
				break
			}
			begin = from + bytes.LastIndexByte(l.text[from:hit], '\n') + 1
		}
		end = len(l.text)
		if n := bytes.IndexByte(l.text[begin:], '\n'); n >= 0 {
			end = begin + n
		}
		if match = l.inLine(l.text[begin:end]); match != nil {
			return begin, end, match
		}
		if l.taken > uninterrupted {
			if l.taken = 0; l.stopped != nil && l.stopped() {
				break
			}
		}
		from = end + 1
	}
	return 0, 0, nil
}

func (l *lines) inLine(line []byte) []int {
	if l.re != nil {
		steps := (len(line) + 1) * l.steps
		if steps > maxSteps {
			l.long = true
			return nil
		}
		l.taken += steps
		return l.re.FindIndex(line)
	}
	at := bytes.Index(line, l.needles[0])
	return []int{at, at + len(l.needles[0])}
}

// needle returns the place of the first needle at or after from, -1 for none.
func (l *lines) needle(from int) int {
	first := -1
	for i, needle := range l.needles {
		if l.next[i] < from {
			l.next[i] = len(l.folded)
			if at := bytes.Index(l.folded[from:], needle); at >= 0 {
				l.next[i] = from + at
			}
		}
		if at := l.next[i]; at < len(l.folded) && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}
