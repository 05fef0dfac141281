package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestSkip(t *testing.T) {
	c := New(4, 4)
	_, _ = c.Write([]byte("a\n"))
	c.Skip(0)
	_, _ = c.Write([]byte("b\nlost"))
	c.Skip(7)
	_, _ = c.Write([]byte("c\n"))
	assert.Equal(t, "a\nb\n... [11 bytes omitted of 17 total] ...\nc\n", string(c.Kept().Join("")))
}

func TestCapture(t *testing.T) {
	for _, test := range []struct {
		name       string
		head, tail int
		in, want   string
		omitted    int64
	}{
		{"nothing", 4, 4, "", "", 0},
		{"less than kept", 4, 4, "abc", "abc", 0},
		{"exactly what is kept", 4, 4, "abcdefgh", "abcdefgh", 0},
		{"one byte more", 4, 4, "abcdXefgh", "abcd\n... [1 bytes omitted of 9 total] ...\nefgh", 1},
		{"head that ends a line", 4, 4, "abc\nXefgh", "abc\n... [1 bytes omitted of 9 total] ...\nefgh", 1},
		{"no head", 0, 3, "abcdef", "... [3 bytes omitted of 6 total] ...\ndef", 3},
		{"no tail", 3, 0, "abcdef", "abc\n... [3 bytes omitted of 6 total] ...\n", 3},
		{"nothing kept", 0, 0, "abcdef", "... [6 bytes omitted of 6 total] ...\n", 6},
		{"characters cut in two", 4, 4, "abc→XX→xy", "abc\n... [8 bytes omitted of 13 total] ...\nxy", 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New(test.head, test.tail)
			n, err := c.Write([]byte(test.in))
			assert.NoError(t, err)
			assert.Equal(t, len(test.in), n)
			assert.Equal(t, test.want, string(c.Kept().Join("")))
			assert.Equal(t, test.omitted, c.Kept().Omitted)
			assert.Equal(t, int64(len(test.in)), c.Kept().Total)
		})
	}
}

// The kept bytes do not depend on the size of writes.
func TestCaptureDoesNotDependOnTheSizeOfWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		in := make([]byte, random.IntN(60))
		for i := range in {
			in[i] = "ab\n\xe2\x86\x92"[random.IntN(6)]
		}
		head, tail := random.IntN(20), random.IntN(20)
		whole, pieces := New(head, tail), New(head, tail)
		whole.Write(in)
		for rest := in; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			pieces.Write(rest[:n])
			rest = rest[n:]
		}
		assert.Equal(t, string(whole.Kept().Join("")), string(pieces.Kept().Join("")), "%q, %d and %d", in, head, tail)
		assert.Equal(t, string(in[:min(head, len(in))]), string(pieces.head))
	}
}

func TestCaptureKeepsWholeCharacters(t *testing.T) {
	text := strings.Repeat("→", 100)
	for size := range 12 {
		c := New(size, size)
		c.Write([]byte(text))
		assert.True(t, utf8.Valid(c.Kept().Join("")), size)
		kept := bytes.Count(c.Kept().Join(""), []byte("→"))
		assert.Contains(t, string(c.Kept().Join("")), fmt.Sprintf("[%d bytes omitted of 300 total]", 300-3*kept))
	}
}
