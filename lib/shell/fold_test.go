package shell

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/capture"
)

func TestFold(t *testing.T) {
	for _, test := range []struct {
		name, in, want string
		removed, over  int64
	}{
		{"plain text", "a\nb\tc\n", "a\nb\tc\n", 0, 0},
		{"no newline at the end", "a\nb", "a\nb", 0, 0},
		{"text of other scripts", "grüße 日本\n", "grüße 日本\n", 0, 0},
		{"lines that end as on DOS", "a\r\nb\r\n", "a\nb\n", 0, 0},
		{"progress bar", "1%\r2%\r100%\ndone\n", "100%\ndone\n", 0, 2},
		{"progress bar that is not finished", "1%\r2%\r", "2%", 0, 1},
		{"progress bar that ends its line as DOS does", "1%\r2%\r\n", "2%\n", 0, 1},
		{"shorter text over longer", "ERROR: 3 tests failed\rok\n", "okROR: 3 tests failed\n", 0, 1},
		{"shorter text over longer, wide characters", "日本語 x\rée\n", "ée語 x\n", 0, 1},
		{"erased behind shorter text", "ERROR: 3 tests failed\rok\x1b[K\n", "ok\n", 1, 1},
		{"returns alone, as on an old Mac", "line 1\rline 2\rline 3\r", "line 3", 0, 2},
		{"same text again", "50%\r50%\r50% done\n", "50% done\n", 0, 0},
		{"blanks over text, and text over these", "50%\r   \rok\n", "ok \n", 0, 1},
		{"returned twice", "a\r\r\n", "a\n", 0, 0},
		{"progress bar that erases", "1%\r\x1b[K2%\r\x1b[K3%\n", "3%\n", 2, 2},
		{"erased whole", "abc\x1b[2Kd\n", "d\n", 1, 1},
		{"erased to the end, at the end", "abc\x1b[K\n", "abc\n", 1, 0},
		{"spinner", "|\b/\b-\b\\\bok\n", "ok\n", 0, 1},
		{"overstruck as in manual pages", "N\bNA\bAM\bME\bE\n", "NAME\n", 0, 0},
		{"backspace with nothing after it", "abc\b\n", "abc\n", 0, 0},
		{"backspace over a wide character", "日\bx\n", "x\n", 0, 1},
		{"more backspaces than text", "a\b\b\bxy\n", "xy\n", 0, 1},
		{"colours", "\x1b[1;31mred\x1b[0m\n", "red\n", 2, 0},
		{"title", "\x1b]0;evil\atext\n", "text\n", 1, 0},
		{"title that ends with a backslash", "\x1b]0;evil\x1b\\text\n", "text\n", 1, 0},
		{"link", "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\\n", "here\n", 2, 0},
		{"device control string of several lines", "\x1bPq\n#0\n\x1b\\text\n", "text\n", 1, 0},
		{"character set", "\x1b(Btext\n", "text\n", 1, 0},
		{"cursor saved", "\x1b7text\x1b8\n", "text\n", 2, 0},
		{"escape alone", "a\x1b\n", "a\x1b\n", 0, 0},
		{"escape at the end", "a\x1b", "a\x1b", 0, 0},
		{"sequence that never ends", "a\x1b[12", "a\x1b[12", 0, 0},
		{"sequence that breaks off", "a\x1b[12\nb\n", "a\x1b[12\nb\n", 0, 0},
		{"title that breaks off", "\x1b]0;x\nb\n", "\x1b]0;x\nb\n", 0, 0},
		{"string that never ends", "\x1bP" + strings.Repeat("x", 2*maxSequence) + "\n", "\x1bP" + strings.Repeat("x", 2*maxSequence) + "\n", 0, 0},
		{"other controls stay", "\x00\x07\x9b\u009b\n", "\x00\x07\x9b\u009b\n", 0, 0},
		{"line that is too long to be overwritten", strings.Repeat("x", maxLine+1) + "\rab\n", strings.Repeat("x", maxLine+1) + "\nab\n", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			f := NewFold(&out)
			_, _ = f.Write([]byte(test.in))
			assert.NoError(t, f.Close())
			assert.Equal(t, test.want, out.String())
			assert.Equal(t, test.removed, f.Removed())
			assert.Equal(t, test.over, f.Overwritten())
		})
	}
}

// The folded text does not depend on the size of writes.
func TestFoldDoesNotDependOnTheSizeOfWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		in := make([]byte, random.IntN(80))
		for i := range in {
			in[i] = "ab\n\r\b\x1b[]K2;m\a\\é"[random.IntN(16)]
		}
		var whole, parts bytes.Buffer
		f, g := NewFold(&whole), NewFold(&parts)
		_, _ = f.Write(in)
		for rest := in; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			_, _ = g.Write(rest[:n])
			rest = rest[n:]
		}
		_, _ = f.Close(), g.Close()
		assert.Equal(t, whole.String(), parts.String(), "%q", in)
		assert.Equal(t, f.Removed(), g.Removed(), "%q", in)
		assert.Equal(t, f.Overwritten(), g.Overwritten(), "%q", in)
	}
}

// A bar that was drawn a thousand times takes the room of one.
func TestFoldKeepsWhatComesAfterABar(t *testing.T) {
	o := NewOutput(100, 100, false, nil, nil)
	for i := range 5000 {
		_, _ = fmt.Fprintf(o, "\rReceiving objects: 50%% (1/2), %d MiB", i%4)
	}
	_, _ = o.Write([]byte("\ndone\n"))
	var r Result
	o.Finish(&r)
	assert.Equal(t, "Receiving objects: 50% (1/2), 3 MiB\ndone\n", string(r.Output))
	assert.Zero(t, r.Omitted)
	assert.Zero(t, r.Folded)
	assert.Equal(t, int64(4999), r.Over)
}

func BenchmarkFold(b *testing.B) {
	for _, test := range []struct{ name, line string }{
		{"lines", "y\n"}, {"NUL", "\x00"}, {"bar", "\r50%"}, {"bar of other bytes", "\r50%\ré"}, {"spinner", "\b|"}, {"colours", "\x1b[1mx\x1b[0m\n"},
	} {
		b.Run(test.name, func(b *testing.B) {
			chunk := []byte(strings.Repeat(test.line, (256<<10)/len(test.line)))
			o := NewOutput(capture.DefaultHead, capture.DefaultTail, false, nil, nil)
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				_, _ = o.Write(chunk)
			}
		})
	}
}
