package shell

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/visible"
)

// maxPending bounds the text that a Live keeps for a reader slower than the command.
// The command does not wait for it.
const maxPending = 64 << 10

// Live shows the output of a command while it runs. Writing to it never blocks.
type Live struct {
	to      io.Writer
	columns func() int // nil if it is not a terminal
	lines   bool       // show all output, not its last line only
	begun   time.Time
	timeout time.Duration

	mu      sync.Mutex
	pending []byte
	missed  int
	closed  bool
	wake    chan struct{}
	done    chan struct{}

	last   string // the last line of output, for the status
	status bool   // it is on the screen
}

// NewLive shows the output on to. For a terminal columns tells its width, and a
// last line shows how long the command has been running and how much time is
// left; with lines unset that line is all.
func NewLive(to io.Writer, columns func() int, lines bool, timeout time.Duration) *Live {
	l := &Live{
		to: to, columns: columns, lines: lines, begun: time.Now(), timeout: timeout,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go l.run()
	return l
}

// Write never fails and never blocks.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	take := min(len(p), maxPending-len(l.pending))
	l.pending = append(l.pending, p[:take]...)
	l.missed += len(p) - take
	l.poke()
	return len(p), nil
}

// Close shows the rest. A terminal that has been stopped is not waited for.
func (l *Live) Close() error {
	l.mu.Lock()
	l.closed = true
	l.poke()
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(drainLimit):
	}
	return nil
}

func (l *Live) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Live) run() {
	defer close(l.done)
	var tick <-chan time.Time
	if l.columns != nil {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		ticked := false
		select {
		case <-l.wake:
		case <-tick:
			ticked = true
		}
		l.mu.Lock()
		text, missed, closed := l.pending, l.missed, l.closed
		l.pending, l.missed = nil, 0
		l.mu.Unlock()
		if _, err := io.WriteString(l.to, l.frame(text, missed, ticked, closed)); err != nil || closed {
			return
		}
	}
}

// frame is the text to write next.
func (l *Live) frame(text []byte, missed int, ticked, closed bool) string {
	var b strings.Builder
	if i := bytes.LastIndexByte(bytes.TrimRight(text, "\n"), '\n'); len(text) > 0 {
		l.last = strings.TrimSpace(oneLine(string(bytes.TrimRight(text[i+1:], "\n"))))
	}
	if l.lines && (len(text) > 0 || missed > 0) {
		l.erase(&b)
		b.WriteString(visible.Text(string(text)))
		if missed > 0 {
			fmt.Fprintf(&b, "... [%d bytes not shown] ...\n", missed)
		}
	}
	if closed {
		l.erase(&b)
	} else if ticked || l.status && b.Len() > 0 {
		l.erase(&b)
		l.draw(&b)
	}
	return b.String()
}

func (l *Live) erase(b *strings.Builder) {
	if l.status {
		b.WriteString("\r\x1b[K")
	}
	l.status = false
}

// draw shows the time, and where nothing else does the last line of output.
func (l *Live) draw(b *strings.Builder) {
	elapsed := time.Since(l.begun).Round(time.Second)
	line := fmt.Sprintf("[%s, %s left]", elapsed, max(0, l.timeout-elapsed))
	if !l.lines && l.last != "" {
		line += " " + l.last
	}
	b.WriteString(cutTo(line, l.columns()))
	l.status = true
}

// cutTo shortens a visible text to a number of columns.
func cutTo(text string, columns int) string {
	width := 0
	for i, r := range text {
		if width += columnsOf(string(r)); width > columns {
			return text[:i]
		}
	}
	return text
}

// Columns returns a function for the width of a terminal, nil if file is none. The width
// is one less than the real one: a row that fills it makes some terminals wrap.
func Columns(file *os.File) func() int {
	if file == nil {
		return nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	var size *unix.Winsize
	look := func() {
		_ = raw.Control(func(fd uintptr) { size, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ) })
	}
	if look(); err != nil {
		return nil
	}
	return func() int {
		if look(); err != nil || size.Col == 0 {
			return 79
		}
		return max(20, int(size.Col)-1)
	}
}
