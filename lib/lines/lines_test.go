package lines

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// texts returns short and long texts, with and without a newline at the end.
func texts() []string {
	long := strings.Repeat("é", block)
	list := []string{"", "\n", "a", "a\n", "a\nb", "a\nb\n", "\n\n\n", "a\r\nb\r\n", long, long + "\n", "x\n" + long + "\ny\n", long + "\n" + long, "\xff\xfe\n"}
	for n := range 40 {
		var text strings.Builder
		for range n {
			text.WriteString(strings.Repeat("y", rand.IntN(3*n+1)) + "\n")
		}
		list = append(list, text.String(), text.String()+"end")
	}
	return append(list, strings.Repeat("line\n", 3*block/5+7))
}

// model returns the lines of a range.
func model(text string, first, last int64, numbers bool) string {
	var want strings.Builder
	n := int64(0)
	for line := range strings.Lines(text) {
		if n++; n >= first && (last == 0 || n <= last) {
			if numbers {
				fmt.Fprintf(&want, "%6d\t", n)
			}
			want.WriteString(line)
		}
	}
	return want.String()
}

func TestCopyAgainstAModel(t *testing.T) {
	for _, text := range texts() {
		for range 8 {
			r := Range{First: rand.Int64N(6), Last: rand.Int64N(20), Numbers: rand.IntN(2) == 0}
			want := model(text, r.First, r.Last, r.Numbers)
			var got bytes.Buffer
			require.NoError(t, Copy(&got, strings.NewReader(text), r))
			require.True(t, want == got.String(), "%+v of %.60q", r, text)
			p, err := Read(strings.NewReader(text), r, Limits{Bytes: 1 << 30, Counted: true})
			require.NoError(t, err)
			require.True(t, want == string(p.Text), "%+v of %.60q: %.60q", r, text, p.Text)
			require.False(t, p.Cut)
			require.EqualValues(t, strings.Count(model(text, 0, 0, false)+"\n", "\n")-strings.Count(text[max(0, len(text)-1):], "\n")-zero(text), p.Lines, "%.60q", text)
			require.EqualValues(t, len(strings.SplitAfter(strings.TrimSuffix(want, "\n"), "\n"))-zero(want), p.Last-p.First+1, "%+v of %.60q", r, text)
		}
	}
}

// zero returns 1 for an empty text, else 0.
func zero(text string) int {
	if text == "" {
		return 1
	}
	return 0
}

func TestTailAgainstAModel(t *testing.T) {
	for _, text := range texts() {
		for _, n := range []int64{1, 2, 3, 30, 1 << 40} {
			in := strings.NewReader(text)
			require.NoError(t, Tail(in, n))
			before, err := Count(in)
			require.NoError(t, err)
			var got bytes.Buffer
			require.NoError(t, Copy(&got, in, Range{Numbers: true, Before: before}))
			lines := int64(len(strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")))
			require.True(t, model(text, lines-n+1, 0, true) == got.String(), "%d of %.60q", n, text)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, row := range []struct {
		name, text string
		r          Range
		l          Limits
		want       Part
	}{
		{"whole lines", "one\ntwo\nthree\n", Range{}, Limits{Bytes: 9}, Part{[]byte("one\ntwo\n"), 1, 2, -1, true}},
		{"whole lines, counted", "one\ntwo\nthree\n", Range{}, Limits{Bytes: 9, Counted: true}, Part{[]byte("one\ntwo\n"), 1, 2, 3, true}},
		{"exactly all", "one\ntwo\n", Range{}, Limits{Bytes: 8}, Part{[]byte("one\ntwo\n"), 1, 2, 2, false}},
		{"one byte too many", "one\ntwo\n", Range{}, Limits{Bytes: 7}, Part{[]byte("one\n"), 1, 1, -1, true}},
		{"the first line is too long", "éééé\nb\n", Range{}, Limits{Bytes: 5}, Part{[]byte("éé"), 1, 1, -1, true}},
		{"a long line of a range", "a\néééé\nb\n", Range{First: 2}, Limits{Bytes: 3, Counted: true}, Part{[]byte("é"), 2, 2, 3, true}},
		{"a long line is cut", "a\néééé\nb\n", Range{}, Limits{Bytes: 99, Line: 5}, Part{[]byte("a\néé [4 more bytes]\nb\n"), 1, 3, 3, true}},
		{"a long last line without an end", "ééééé", Range{}, Limits{Bytes: 99, Line: 4}, Part{[]byte("éé [6 more bytes]\n"), 1, 1, 1, true}},
		{"a line that just fits", "abcd\n", Range{}, Limits{Bytes: 99, Line: 4}, Part{[]byte("abcd\n"), 1, 1, 1, false}},
		{"behind the end", "a\n", Range{First: 5}, Limits{Bytes: 9}, Part{nil, 5, 4, 1, false}},
		{"nothing", "", Range{}, Limits{Bytes: 9}, Part{nil, 1, 0, 0, false}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := Read(strings.NewReader(row.text), row.r, row.l)
			require.NoError(t, err)
			assert.Equal(t, string(row.want.Text), string(p.Text))
			row.want.Text, p.Text = nil, nil
			assert.Equal(t, row.want, p)
		})
	}
}

// Read takes little memory for an endless line, and does not read it to its end.
func TestEndlessLine(t *testing.T) {
	in := io.MultiReader(strings.NewReader("a\n"), &endless{})
	p, err := Read(in, Range{}, Limits{Bytes: 1000})
	require.NoError(t, err)
	assert.Equal(t, "a\n", string(p.Text))
	require.NoError(t, Copy(io.Discard, io.MultiReader(strings.NewReader("a\nb\n"), &endless{}), Range{Last: 2}))
}

type endless struct{}

func (*endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestBinary(t *testing.T) {
	late := strings.Repeat("x\n", 5000)
	for text, ranges := range map[string]map[Range]error{
		"\x00":             {{}: ErrBinary, {First: 5}: ErrBinary},
		late + "\x00\ny\n": {{}: ErrBinary, {Last: 9}: nil, {First: 5001}: ErrBinary, {First: 5002}: nil},
	} {
		for r, want := range ranges {
			assert.Equal(t, want, Copy(io.Discard, strings.NewReader(text), r), "%+v", r)
			_, err := Read(strings.NewReader(text), r, Limits{Bytes: 1 << 20})
			assert.Equal(t, want, err, "%+v", r)
		}
	}
}

// sparse is a file of a TiB with a text at its beginning and at its end. It counts the
// bytes that are read.
type sparse struct {
	head, tail string
	hole       byte
	at, read   int64
}

const sparseSize = 1 << 40

func (s *sparse) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		s.at = offset
	case io.SeekCurrent:
		s.at += offset
	default:
		s.at = sparseSize + offset
	}
	return s.at, nil
}

func (s *sparse) Read(p []byte) (int, error) {
	if s.at == sparseSize {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), sparseSize-s.at)]
	for i := range p {
		p[i] = s.hole
	}
	if s.at < int64(len(s.head)) {
		copy(p, s.head[s.at:])
	}
	if from := sparseSize - int64(len(s.tail)) - s.at; from < int64(len(p)) {
		copy(p[max(from, 0):], s.tail[max(-from, 0):])
	}
	s.at += int64(len(p))
	if s.read += int64(len(p)); s.read > 4*maxPassed {
		return 0, fmt.Errorf("more than %d bytes are read", 4*maxPassed)
	}
	return len(p), nil
}

// A huge file is not read as far as its beginning, or its end, in search of a newline.
func TestHoles(t *testing.T) {
	text := strings.Repeat("x\n", sniffed)
	for _, row := range []struct {
		name string
		in   sparse
		n    int64
		want error
	}{
		{"nothing but NUL", sparse{}, 3, ErrBinary},
		{"NUL behind a text", sparse{head: text}, 3, ErrBinary},
		{"NUL before a text", sparse{tail: text}, 3, ErrBinary},
		{"NUL between texts", sparse{head: text, tail: text}, sniffed, ErrBinary},
		{"NUL in a block of the lines, before them", sparse{head: text, tail: text}, sniffed - 1, nil},
		{"a line without an end", sparse{hole: 'x'}, 1, ErrLongLine},
		{"a long line between texts", sparse{head: text, tail: text, hole: 'x'}, sniffed, ErrLongLine},
		{"behind a long line", sparse{head: text, tail: text, hole: 'x'}, sniffed - 1, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, Tail(&row.in, row.n))
			assert.Less(t, row.in.read, int64(2*maxPassed))
		})
	}
	in := &sparse{head: text, tail: text, hole: 'x'}
	_, err := in.Seek(-100, io.SeekEnd)
	require.NoError(t, err)
	_, err = Count(in)
	assert.Equal(t, ErrLongLine, err)
	for _, hole := range []byte{0, 'x'} {
		assert.Equal(t, ErrLongLine, Copy(io.Discard, &sparse{head: text, hole: hole}, Range{First: 1 << 20}))
	}
}

// A long line that is given out is given out whole.
func TestLongLineThatIsWanted(t *testing.T) {
	in := io.LimitReader(&endless{}, maxPassed+2*block)
	var n counter
	require.NoError(t, Copy(&n, in, Range{}))
	assert.EqualValues(t, maxPassed+2*block, n)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
