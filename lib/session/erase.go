package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds the directories that are open at once, and the recursion.
	// What lies deeper is moved up to the top first.
	maxDepth = 64

	// maxPasses bounds how often a directory is read again because it was not
	// empty after all. Some file systems skip entries while others go; a
	// process that keeps making files must not keep a sweep busy for ever.
	maxPasses = 16

	// spillTries bounds the search for a free name at the top.
	spillTries = 1000
)

// eraser removes everything in a directory by descriptors: no path is ever
// looked up twice, so no link put in the way leads it out.
type eraser struct {
	open    opener
	top     int
	measure bool

	usage    Usage
	first    error
	failures int

	spilled []string // subtrees moved to the top, to be removed from there
	spills  int      // how many names were used for that
	buf     [32 << 10]byte
}

// trail is where in the tree the eraser is, for messages.
type trail struct {
	up   *trail
	name string
}

func (t *trail) String() string {
	if t.up == nil {
		return t.name
	}
	return t.up.String() + "/" + t.name
}

// removeAll empties the top directory.
func (e *eraser) removeAll() {
	e.own(e.top)
	for range maxPasses {
		before := e.usage.Entries
		e.empty(e.top, 1, nil)
		for len(e.spilled) > 0 {
			next := e.spilled[0]
			e.spilled = e.spilled[1:]
			e.directory(e.top, next, 1, nil)
		}
		if e.failures > 0 || e.usage.Entries == before {
			return // what is left cannot be removed, or nothing is
		}
		e.rewind(e.top)
	}
}

// empty removes the entries of a directory and reports whether all went.
func (e *eraser) empty(dir, depth int, at *trail) bool {
	all := true
	for {
		n, err := unix.ReadDirent(dir, e.buf[:])
		if err != nil {
			return e.fail(at, "", fmt.Errorf("cannot list it: %w", err))
		}
		if n == 0 {
			return all
		}
		for _, entry := range dirents(e.buf[:n]) {
			all = e.entry(dir, entry, depth, at) && all
		}
	}
}

// entry removes one entry. The type that the directory told is a hint: what
// lies there is what the system calls say.
func (e *eraser) entry(dir int, entry dirent, depth int, at *trail) bool {
	if entry.kind == unix.DT_DIR {
		return e.directory(dir, entry.name, depth, at)
	}
	size := e.size(dir, entry.name)
	err := unix.Unlinkat(dir, entry.name, 0)
	if errors.Is(err, unix.EISDIR) {
		return e.directory(dir, entry.name, depth, at)
	}
	return e.gone(at, entry.name, size, err)
}

// directory removes a directory and all in it.
func (e *eraser) directory(parent int, name string, depth int, at *trail) bool {
	n, err := e.enter(parent, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return e.gone(at, name, 0, unix.Unlinkat(parent, name, 0))
	}
	if err != nil {
		return e.gone(at, name, 0, inMount(err))
	}
	defer unix.Close(n)
	if depth > maxDepth {
		return e.spill(parent, name, at)
	}
	size := e.size(parent, name)
	for range maxPasses {
		if !e.empty(n, depth+1, &trail{at, name}) {
			return false // said already, and rmdir would only say it again
		}
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		e.rewind(n)
	}
	return e.gone(at, name, size, err)
}

// enter opens a directory in a state in which its entries can be listed and
// removed. Overlays leave directories of mode 000, module caches such of 0555.
func (e *eraser) enter(parent int, name string) (int, error) {
	n, err := e.open(parent, name, unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) && allow(e.open, parent, name) == nil {
		n, err = e.open(parent, name, unix.O_RDONLY)
	}
	if err == nil {
		e.own(n)
	}
	return n, err
}

// own makes an open directory writable. Where that fails, the directory is
// somebody else's; what can be removed from it still will be.
func (e *eraser) own(dir int) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(dir, 0o700)
	}
}

// spill moves a subtree that lies too deep to the top, to be removed later.
func (e *eraser) spill(parent int, name string, at *trail) bool {
	for range spillTries {
		e.spills++
		to := ".deep-" + strconv.Itoa(e.spills)
		err := rename(parent, name, e.top, to)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			e.spilled = append(e.spilled, to)
		}
		return err == nil || e.gone(at, name, 0, err)
	}
	return e.fail(at, name, errors.New("internal error: no unused name found at the top"))
}

// size is what the disk gets back with one entry. A file gives its blocks back
// with its last name.
func (e *eraser) size(dir int, name string) int64 {
	var st unix.Stat_t
	if !e.measure || unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0
	}
	return st.Blocks * 512
}

// gone books the end of one removal. An entry that somebody else removed is as
// good as removed.
func (e *eraser) gone(at *trail, name string, size int64, err error) bool {
	if err == nil {
		e.usage.Entries++
		e.usage.Bytes += size
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return true
	}
	return e.fail(at, name, err)
}

func (e *eraser) fail(at *trail, name string, err error) bool {
	if e.failures++; e.first == nil {
		where := &trail{at, name}
		if name == "" {
			where = at
		}
		if where != nil {
			err = fmt.Errorf("%q in it: %w", where.String(), err)
		}
		e.first = err
	}
	return false
}

func (e *eraser) rewind(dir int) {
	_, _ = unix.Seek(dir, 0, 0)
}

func inMount(err error) error {
	if errors.Is(err, unix.EXDEV) {
		return errors.New("something is mounted there")
	}
	return err
}

// dirent is an entry of a directory. kind may be DT_UNKNOWN.
type dirent struct {
	name string
	kind byte
}

// dirents reads a buffer that getdents64(2) filled. The package os would look
// up each entry whose type it does not know and keeps a buffer per directory;
// here one buffer serves a whole tree.
func dirents(buf []byte) []dirent {
	const (
		lenAt  = 16 // after d_ino and d_off
		kindAt = 18
		nameAt = 19
	)
	entries := make([]dirent, 0, len(buf)/32)
	for len(buf) > nameAt {
		size := int(binary.NativeEndian.Uint16(buf[lenAt:]))
		if size <= nameAt || size > len(buf) {
			break // never seen: the kernel fills whole entries
		}
		name, _, _ := bytes.Cut(buf[nameAt:size], []byte{0})
		if s := string(name); s != "." && s != ".." {
			entries = append(entries, dirent{s, buf[kindAt]})
		}
		buf = buf[size:]
	}
	return entries
}
