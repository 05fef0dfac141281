package shell

import (
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Reads of any size return the text, after writes of any size.
func TestTextIsReadFromAnyOffset(t *testing.T) {
	for _, test := range []struct {
		name string
		open func() (*os.File, error)
		size int
	}{
		{"little", nil, 1000},
		{"in memory", nil, textHead + textMem},
		{"more than memory holds", nil, 3*textMem + 123},
		{"in a file", func() (*os.File, error) { return OpenScratch(t.TempDir()) }, 2 << 20},
		{"more than the file holds", func() (*os.File, error) { return OpenScratch(t.TempDir()) }, textFile + 2<<20},
		{"a file that cannot be", func() (*os.File, error) { return nil, os.ErrPermission }, textHead + 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			random := rand.New(rand.NewSource(1))
			text := NewText(false, test.open)
			var want strings.Builder
			for want.Len() < test.size {
				piece := strings.Repeat("zeile ä€😀\n", 1+random.Intn(3000))
				want.WriteString(piece)
				for len(piece) > 0 {
					n := min(len(piece), 1+random.Intn(50000))
					_, _ = text.Write([]byte(piece[:n]))
					piece = piece[n:]
				}
			}
			text.Close()
			got, since, omitted := "", int64(0), int64(0)
			for since < text.Size() {
				piece, first, next := text.Read(since, 1+random.Intn(100000))
				assert.Positive(t, next-since)
				if first > since {
					omitted += first - since
					got = ""
				}
				got, since = got+string(piece), next
			}
			whole := want.String()
			assert.Equal(t, int64(len(whole)), text.Size())
			assert.True(t, strings.HasSuffix(whole, got))
			kept := map[bool]int{true: textMem, false: textFile}[text.open == nil]
			assert.Equal(t, max(0, len(whole)-kept-textHead), int(omitted))
			text.Discard()
			piece, _, _ := text.Read(0, 10)
			assert.Empty(t, piece)
		})
	}
}

// Read returns a prompt whose line has not ended. Text drawn over it becomes a separate
// line, and no offset moves.
func TestTextGivesOutPrompts(t *testing.T) {
	text := NewText(false, nil)
	write := func(s string) { _, _ = text.Write([]byte(s)) }
	read := func(since int64) string { piece, _, _ := text.Read(since, 100); return string(piece) }
	write("10%\r20%\r30%")
	assert.Equal(t, "30%", read(0))
	write("\r40%\r50%\r\ndone \x1b[1m\xe2")
	assert.Equal(t, "\n50%\ndone ", read(3))
	write("\x82\xac\xff")
	assert.Equal(t, "€\\xff", read(13))
	text.Close()
	assert.Equal(t, "30%\n50%\ndone €\\xff", read(0))

	var r Result
	assert.Equal(t, int64(3), text.Finish(&r, 3, 4))
	assert.Equal(t, "30%\n... [13 bytes omitted of 20 total] ...\n\\xff", string(r.Output))
	assert.Equal(t, []int64{13, 34}, []int64{r.Omitted, r.Total})
}

// Await returns at the first output, at the end of the text, and after the given time. The
// test's hours take no real time.
func TestTextIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := NewText(false, nil)
		begun := time.Now()
		assert.False(t, text.Await(0, time.After(time.Hour), nil))
		assert.Equal(t, time.Hour, time.Since(begun))
		go func() {
			time.Sleep(time.Hour)
			_, _ = text.Write([]byte("a"))
			time.Sleep(burst / 2)
			_, _ = text.Write([]byte("b\n"))
		}()
		assert.True(t, text.Await(0, nil, nil))
		piece, _, next := text.Read(0, 9)
		assert.Equal(t, "ab\n", string(piece))
		stop := make(chan struct{})
		go func() { time.Sleep(time.Hour); close(stop) }()
		assert.False(t, text.Await(next, nil, stop))
		go func() { time.Sleep(time.Hour); text.Close() }()
		assert.False(t, text.Await(next, nil, nil))
		assert.Equal(t, "ab\n", fmt.Sprint(string(piece)))
	})
}
