package main

import (
	"fmt"
	"strings"
)

// half bounds each end of an output, as in pk-bash.
const half = 15 << 10

// ends keeps the beginning and the end of a long text.
type ends struct {
	head, tail string
	cut        int64 // bytes between them
}

func (e *ends) write(text string) {
	if room := half - len(e.head); room > 0 && e.cut == 0 && e.tail == "" {
		n := min(room, len(text))
		e.head, text = e.head+text[:n], text[n:]
	}
	e.tail += text
	if more := len(e.tail) - half; more > 0 {
		e.cut += int64(more)
		e.tail = e.tail[more:]
	}
}

// skip counts bytes that pk-bash no longer has.
func (e *ends) skip(n int64) {
	if n > 0 {
		e.cut += n + int64(len(e.tail))
		e.tail = ""
	}
}

func (e *ends) text() string {
	if e.cut == 0 {
		return e.head + e.tail
	}
	marker := fmt.Sprintf("... [%d bytes left out] ...\n", e.cut)
	return lines(strings.ToValidUTF8(e.head, "")) + marker + strings.ToValidUTF8(e.tail, "")
}
