package shell

import (
	"fmt"
	"unicode/utf8"
)

// Default sizes of what is kept of a command's output.
const (
	DefaultHead = 15 * 1024
	DefaultTail = 15 * 1024
)

// Capture keeps the beginning and the end of what is written to it, in
// constant memory. The zero value keeps nothing but the count.
type Capture struct {
	head, tail []byte
	headSize   int
	tailSize   int
	start      int // of the oldest byte in tail, once tail is full
	total      int64
}

// NewCapture keeps the first head and the last tail bytes.
func NewCapture(head, tail int) *Capture {
	return &Capture{headSize: head, tailSize: tail}
}

// Write never fails.
func (c *Capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	if room := c.headSize - len(c.head); room > 0 {
		take := min(room, len(p))
		c.head = append(c.head, p[:take]...)
		p = p[take:]
	}
	if len(p) >= c.tailSize {
		c.tail = append(c.tail[:0], p[len(p)-c.tailSize:]...)
		c.start = 0
		return n, nil
	}
	if room := c.tailSize - len(c.tail); room > 0 {
		take := min(room, len(p))
		c.tail = append(c.tail, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		k := copy(c.tail[c.start:], p)
		c.start = (c.start + k) % len(c.tail)
		p = p[k:]
	}
	return n, nil
}

// Total is how many bytes were written.
func (c *Capture) Total() int64 { return c.total }

// Omitted is how many of them are not in Bytes: those between head and tail,
// and what is left of a character that a cut went through.
func (c *Capture) Omitted() int64 {
	if c.total <= int64(len(c.head)+len(c.tail)) {
		return 0
	}
	head, tail := c.cut()
	return c.total - int64(len(head)+len(tail))
}

// Bytes returns what was kept, with a line between head and tail that says how
// much is missing.
func (c *Capture) Bytes() []byte {
	if c.Omitted() == 0 {
		return append(append([]byte(nil), c.head...), c.tail...)
	}
	head, tail := c.cut()
	marker := fmt.Sprintf("... [%d bytes omitted of %d total] ...\n", c.Omitted(), c.total)
	out := append([]byte(nil), head...)
	if len(head) > 0 && head[len(head)-1] != '\n' {
		marker = "\n" + marker
	}
	return append(append(out, marker...), tail...)
}

// cut returns head and tail without the halves of characters at the gap.
func (c *Capture) cut() (head, tail []byte) {
	head = c.head
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ {
		last := head[len(head)-i:]
		if utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	tail = append(append([]byte(nil), c.tail[c.start:]...), c.tail[:c.start]...)
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return head, tail
}
