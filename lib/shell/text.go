package shell

import (
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/capture"
	"pikuri/lib/visible"
)

// Sizes of a Text.
const (
	textHead = 64 << 10  // bytes of its beginning, which are kept
	textFile = 8 << 20   // bytes of its end, in a file
	textMem  = 256 << 10 // the same where there is no file
)

// Text is the output of a command. A client can read it while the command runs, from any
// offset. Text keeps the beginning and the end. Offsets count bytes of the text as Read
// returns it. Read returns a line even if the command may still draw over it; the next form
// of the line is then a separate line.
type Text struct {
	mu      sync.Mutex
	fold    *Fold  // nil: Read returns the bytes as they came
	partial []byte // of a character
	head    []byte
	tail    store
	room    int64 // of tail, in which the byte at offset n lies at n modulo room
	begin   int64 // offset from which tail has been used
	open    func() (*os.File, error)
	size    int64
	written int64
	closed  bool
	changed chan struct{} // closed with the next change; nil without a waiting reader
}

// store keeps bytes at offsets.
type store interface {
	io.ReaderAt
	io.WriterAt
}

// NewText makes a Text. open creates the file that keeps the end of a long text. If open is
// nil, the Text keeps less.
func NewText(raw bool, open func() (*os.File, error)) *Text {
	t := &Text{open: open}
	if !raw {
		t.fold = NewFold(writer(t.show))
	}
	return t
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// Write never fails.
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written += int64(len(p))
	if t.fold == nil {
		t.keep(p)
	} else {
		_, _ = t.fold.Write(p)
	}
	t.tell()
	return len(p), nil
}

// Close marks the end of the text. Read still returns the kept text.
func (t *Text) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fold != nil && !t.closed {
		_ = t.fold.Close()
		t.keep([]byte(visible.Text(string(t.partial))))
		t.partial = nil
	}
	t.closed = true
	t.tell()
}

// Discard frees the memory and the file of the text. Read returns nothing afterwards.
func (t *Text) Discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, ok := t.tail.(*os.File); ok {
		f.Close()
	}
	t.head, t.tail, t.room = nil, nil, 0
}

func (t *Text) tell() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// show escapes the output of the Fold, and keeps it.
func (t *Text) show(p []byte) {
	if len(t.partial) > 0 {
		p = append(t.partial, p...)
	}
	end := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if utf8.RuneStart(p[len(p)-i]) {
			if !utf8.FullRune(p[len(p)-i:]) {
				end -= i
			}
			break
		}
	}
	shown := visible.Text(string(p[:end]))
	t.partial = append([]byte(nil), p[end:]...)
	t.keep([]byte(shown))
}

// keep adds text.
func (t *Text) keep(p []byte) {
	n := min(len(p), textHead-len(t.head))
	t.head = append(t.head, p[:n]...)
	t.size += int64(n)
	if p = p[n:]; len(p) == 0 {
		return
	}
	if t.tail == nil {
		t.makeTail()
	}
	if over := int64(len(p)) - t.room; over > 0 {
		t.size += over
		p = p[over:]
	}
	for len(p) > 0 {
		at := t.size % t.room
		n := min(int64(len(p)), t.room-at)
		if _, err := t.tail.WriteAt(p[:n], at); err != nil { // the disk is full
			t.useMemory()
			continue
		}
		t.size += n
		p = p[n:]
	}
}

// makeTail begins to keep the end.
func (t *Text) makeTail() {
	t.useMemory()
	if t.open == nil {
		return
	}
	if f, err := t.open(); err == nil {
		t.tail, t.room = f, textFile
	}
}

// useMemory keeps the end in memory from here on.
func (t *Text) useMemory() {
	if f, ok := t.tail.(*os.File); ok {
		f.Close()
	}
	t.tail, t.room, t.begin = make(inMemory, textMem), textMem, t.size
}

// inMemory is a store in memory.
type inMemory []byte

func (m inMemory) ReadAt(p []byte, at int64) (int, error)  { return copy(p, m[at:]), nil }
func (m inMemory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }

// Read returns at most most bytes of the text from offset since on, their offset, and the
// offset after them. Text no longer keeps the bytes between since and first. Read cuts
// between characters if it can.
func (t *Text) Read(since int64, most int) (text []byte, first, next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fold != nil && !t.closed && since+int64(most) > t.size {
		t.fold.Tear()
	}
	text, first = t.from(since, most)
	next = first + int64(len(text))
	if next < t.size && t.fold != nil {
		if cut := capture.TrimEnd(text, 0); len(cut) > 0 {
			text, next = cut, first+int64(len(cut))
		}
	}
	return text, first, next
}

// from returns the kept text from since on.
func (t *Text) from(since int64, most int) (text []byte, first int64) {
	since = min(max(since, 0), t.size)
	for len(text) < most {
		at := since + int64(len(text))
		if at < int64(len(t.head)) {
			text = append(text, t.head[at:min(len(t.head), int(at)+most-len(text))]...)
			continue
		}
		kept := max(t.begin, t.size-t.room)
		if at < kept {
			if len(text) > 0 {
				break // and the next one says how much is missing
			}
			since, at = kept, kept
		}
		if at >= t.size {
			break
		}
		place := at % t.room
		piece := make([]byte, min(int64(most-len(text)), t.size-at, t.room-place))
		_, _ = t.tail.ReadAt(piece, place) // bytes that a broken disk does not give read as zeros
		text = append(text, piece...)
	}
	return text, since
}

// Size returns the current length of the text, without a line that the command may draw
// over.
func (t *Text) Size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size
}

// Closed reports whether the text is complete.
func (t *Text) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Written returns the number of bytes that the command has written.
func (t *Text) Written() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written
}

// burst is the delay between the first byte and the return of Await, so that one Read
// returns text that was written together.
const burst = 50 * time.Millisecond

// Await waits for text after since, for the end of the text, until stop is closed, or until
// a value comes from late. It reports whether there is text.
func (t *Text) Await(since int64, late <-chan time.Time, stop <-chan struct{}) bool {
	for {
		t.mu.Lock()
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed, closed := t.changed, t.closed
		some := t.size > since || t.fold != nil && t.fold.Pending()
		t.mu.Unlock()
		if closed {
			return some
		}
		if some {
			select {
			case <-time.After(burst):
			case <-late:
			case <-stop:
			}
			return true
		}
		select {
		case <-changed:
		case <-late:
			return false
		case <-stop:
			return false
		}
	}
}

// Folded puts into a result how much of the text so far was left out.
func (t *Text) Folded(r *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.countFolded(r)
}

func (t *Text) countFolded(r *Result) {
	if t.fold != nil {
		r.Folded, r.Over = t.fold.Removed(), t.fold.Overwritten()
	}
}

// Finish puts the beginning and the end of a closed text into a result. It returns the
// offset of the first byte that is not in the result's beginning.
func (t *Text) Finish(r *Result, head, tail int) (next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Total, r.Raw = t.written, t.fold == nil
	t.countFolded(r)
	whole, first := t.from(0, head+tail+1)
	if first == 0 && t.size <= int64(head+tail) && int64(len(whole)) == t.size {
		r.Output = whole
		return t.size
	}
	begin, _ := t.from(0, head)
	end, at := t.from(max(t.size-int64(tail), int64(len(begin))), tail)
	begin = capture.TrimEnd(begin, capture.Slack(head))
	cut := capture.TrimStart(end, capture.Slack(tail))
	at += int64(len(end) - len(cut))
	r.Omitted = at - int64(len(begin))
	r.Output = capture.Kept{Head: begin, Tail: cut, Omitted: r.Omitted, Total: t.size}.Join("")
	return int64(len(begin))
}

// OpenScratch makes a file without a name in a session directory.
func OpenScratch(session string) (*os.File, error) {
	dir, err := openDirAt(unix.AT_FDCWD, session)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "output"), nil
}
