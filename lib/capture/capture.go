// Package capture keeps the beginning and the end of an output, and cuts between lines.
package capture

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"pikuri/lib/visible"
)

// Default sizes of the two ends of a command's output that are kept.
const (
	DefaultHead = 15 * 1024
	DefaultTail = 15 * 1024
)

// MaxSlack is how much less is kept so that a cut falls between two lines.
const MaxSlack = 1024

// Capture keeps the beginning and the end of the bytes written to it, in
// constant memory. The zero value keeps nothing but the count.
type Capture struct {
	head, tail []byte
	headSize   int
	tailSize   int
	start      int // of the oldest byte in tail, once tail is full
	total      int64
}

// New returns a Capture that keeps the first head and the last tail bytes.
func New(head, tail int) *Capture {
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

// Skip counts n bytes that are missing. What follows them is kept in the end.
func (c *Capture) Skip(n int64) {
	if n > 0 {
		c.total += n
		c.headSize, c.tail, c.start = len(c.head), c.tail[:0], 0
	}
}

// Kept is the kept part of a text: all of it, in Head, or its two ends.
type Kept struct {
	Head, Tail []byte
	Omitted    int64 // bytes between the two
	Total      int64 // bytes that the text had
}

// Kept returns the kept part. Where bytes are missing the cuts are between
// lines, if there is an end of a line nearby, and between characters in any
// case.
func (c *Capture) Kept() Kept {
	tail := append(append([]byte(nil), c.tail[c.start:]...), c.tail[:c.start]...)
	if c.total <= int64(len(c.head)+len(tail)) {
		return Kept{Head: append(append([]byte(nil), c.head...), tail...), Total: c.total}
	}
	head := TrimEnd(c.head, Slack(c.headSize))
	tail = TrimStart(tail, Slack(c.tailSize))
	return Kept{Head: head, Tail: tail, Omitted: c.total - int64(len(head)+len(tail)), Total: c.total}
}

// Slack is how much shorter an end of that size may become, so that the cut falls between lines.
func Slack(size int) int { return min(MaxSlack, size/8) }

// TrimEnd shortens head to the end of a line, or else of a character.
func TrimEnd(head []byte, slack int) []byte {
	from := max(0, len(head)-slack)
	if i := bytes.LastIndexByte(head[from:], '\n'); i >= 0 {
		return head[:from+i+1]
	}
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ {
		last := head[len(head)-i:]
		if utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	return head
}

// TrimStart shortens tail to the beginning of a line, or else of a character.
func TrimStart(tail []byte, slack int) []byte {
	if i := bytes.IndexByte(tail[:min(slack, len(tail))], '\n'); i >= 0 {
		return tail[i+1:]
	}
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return tail
}

// Join returns head and tail as they are, with a line between them that says how
// much is missing, and note if there is one.
func (k Kept) Join(note string) []byte {
	head := slices.Clip(k.Head)
	if k.Omitted == 0 {
		return append(head, k.Tail...)
	}
	if note != "" {
		note = "; " + note
	}
	marker := fmt.Sprintf("... [%d bytes omitted of %d total%s] ...\n", k.Omitted, k.Total, note)
	if len(head) > 0 && head[len(head)-1] != '\n' {
		marker = "\n" + marker
	}
	return append(append(head, marker...), k.Tail...)
}

// Visible is Kept with both parts made visible. That makes some texts longer, such as
// binary data; it shows at most head and tail bytes all the same.
func (k Kept) Visible(head, tail int) Kept {
	if k.Omitted == 0 {
		whole := visible.Text(string(k.Head))
		if len(whole) <= max(head+tail, len(k.Head)) {
			return Kept{Head: []byte(whole), Total: k.Total}
		}
		k.Head, k.Tail = halve(k.Head, head)
	}
	var lost [2]int
	k.Head, lost[0] = visibleStart(string(k.Head), head)
	k.Tail, lost[1] = visibleEnd(string(k.Tail), tail)
	k.Omitted += int64(lost[0] + lost[1])
	return k
}

// halve cuts b at a character, not behind its size-th byte.
func halve(b []byte, size int) (head, tail []byte) {
	at := min(size, len(b))
	for at > 0 && at < len(b) && !utf8.RuneStart(b[at]) {
		at--
	}
	return b[:at], b[at:]
}

// visibleStart makes as much of text visible as fits into size bytes, and returns
// how many bytes of it are left out.
func visibleStart(text string, size int) (shown []byte, lost int) {
	lost = len(text)
	for piece, n := range visible.Pieces(text) {
		if len(shown)+len(piece) > size {
			break
		}
		shown = append(shown, piece...)
		lost -= n
	}
	return shown, lost
}

// visibleEnd is visibleStart for the end of text.
func visibleEnd(text string, size int) (shown []byte, lost int) {
	over := len(visible.Text(text)) - size
	for piece, n := range visible.Pieces(text) {
		if over > 0 {
			over -= len(piece)
			lost += n
			continue
		}
		shown = append(shown, piece...)
	}
	return shown, lost
}
