package fsat

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds the directories that are open at once, and the recursion. A
	// deeper directory is first moved to the top.
	maxDepth = 64

	// maxPasses bounds how often a directory is read again because it was not
	// empty after all. Some file systems skip entries while others are removed,
	// and a process that keeps making files must not keep an eraser busy for ever.
	maxPasses = 16
)

// maxNamed bounds a path in a message, in bytes. A tree may be thousands of levels deep.
const maxNamed = 200

// ErrMounted is a mount point in a tree that Eraser removes.
var ErrMounted = errors.New("something is mounted there")

// Eraser removes directory trees. It works from descriptors alone, so that a link
// put in its way does not lead it out. It enters no mount point. It gives
// itself permissions on directories that it owns: overlays leave some of mode
// 000, and module caches some of mode 0555.
type Eraser struct {
	Opener Opener

	// Ask, if not nil, is called with the path below the top before each removal.
	// Its error ends the work and is returned as it is.
	Ask func(path string) error

	Measure        bool  // count Bytes
	Entries, Bytes int64 // removed so far
	Failures       int   // entries that could not be removed

	top   int
	depth int // maxDepth, or less
	deep  []moved
	first error // the first failure: the work goes on after it
	ended error // of Ask
}

// EraseError is the first entry that could not be removed.
type EraseError struct {
	Path string // below the top; "" for the top itself
	Err  error
}

func (e *EraseError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	if len(e.Path) > maxNamed {
		return fmt.Sprintf("%q... (%d bytes) in it: %v", e.Path[:maxNamed], len(e.Path), e.Err)
	}
	return fmt.Sprintf("%q in it: %v", e.Path, e.Err)
}

func (e *EraseError) Unwrap() error { return e.Err }

// moved is a directory that was moved to the top, and the place it had.
type moved struct {
	name string
	was  *step
}

// step is a position in the tree, for messages; nil is the top.
type step struct {
	up   *step
	name string
}

func (s *step) String() string {
	var names []string
	for ; s != nil; s = s.up {
		names = append(names, s.name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// Remove removes a file, or a directory with everything in it. An error about
// the file itself is an Errno, another one an EraseError.
func (e *Eraser) Remove(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR {
		return err
	}
	top, err := e.enter(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	for range maxPasses {
		if err := e.Empty(top); err != nil {
			return err
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			break
		}
		rewind(top)
	}
	return err
}

// Empty removes everything in a directory that is open for reading.
func (e *Eraser) Empty(top int) error {
	e.top, e.depth, e.first, e.ended = top, DepthLimit(), nil, nil
	own(top)
	for range maxPasses {
		before := e.Entries
		e.empty(top, 1, nil)
		for len(e.deep) > 0 && e.ended == nil {
			next := e.deep[0]
			e.deep = e.deep[1:]
			e.directory(top, next.name, 1, next.was)
		}
		if e.ended != nil || e.first != nil || e.Entries == before {
			break // the rest cannot be removed, or there is none
		}
		rewind(top)
	}
	if e.ended != nil {
		return e.ended
	}
	return e.first
}

// DepthLimit is the number of directories that a walk of a tree may have open at once. It
// leaves most descriptors to the rest of the process: the Go runtime
// ends a program that has none left when it starts its first timer.
func DepthLimit() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1
	}
	return int(max(min(limit.Cur/4, maxDepth), 1))
}

// empty removes the entries of a directory and reports whether all went.
func (e *Eraser) empty(dir, depth int, at *step) bool {
	all := true
	for e.ended == nil {
		entries, err := Next(dir)
		if err == unix.ENOENT { // another process has removed the directory
			return all
		}
		if err != nil {
			return e.failed(at, fmt.Errorf("cannot list it: %w", err))
		}
		if len(entries) == 0 {
			return all
		}
		for _, entry := range entries {
			all = e.entry(dir, entry, depth, at) && all
		}
	}
	return false
}

// entry removes one entry. Its type is a hint: the system calls decide.
func (e *Eraser) entry(dir int, entry Entry, depth int, at *step) bool {
	switch {
	case e.ended != nil:
		return false
	case at == nil && slices.ContainsFunc(e.deep, func(m moved) bool { return m.name == entry.Name }):
		return true // its turn comes
	case e.Ask != nil:
		if e.ended = e.Ask((&step{at, entry.Name}).String()); e.ended != nil {
			return false
		}
	}
	if entry.Type != unix.DT_DIR {
		size := e.size(dir, entry.Name)
		err := unix.Unlinkat(dir, entry.Name, 0)
		if err == nil {
			return e.removed(size)
		}
		if err != unix.EISDIR {
			return e.gone(&step{at, entry.Name}, 0, err)
		}
	}
	return e.directory(dir, entry.Name, depth, &step{at, entry.Name})
}

// directory removes a directory and everything in it.
func (e *Eraser) directory(parent int, name string, depth int, at *step) bool {
	if depth > e.depth {
		return e.lift(parent, name, at)
	}
	fd, err := e.enter(parent, name)
	switch {
	case err == unix.ENOTDIR || err == unix.ELOOP:
		return e.gone(at, 0, unix.Unlinkat(parent, name, 0))
	case (err == unix.EMFILE || err == unix.ENFILE) && depth > 1:
		return e.lift(parent, name, at)
	case err != nil:
		return e.gone(at, 0, err)
	}
	defer unix.Close(fd)
	size := e.size(parent, name)
	for range maxPasses {
		if !e.empty(fd, depth+1, at) {
			return false // reported already
		}
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			break
		}
		rewind(fd)
	}
	return e.gone(at, size, err)
}

// enter opens a directory so that its entries can be listed and removed.
func (e *Eraser) enter(parent int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	fd, err := e.Opener.Open(parent, name, flags, 0, SameMount)
	if err == unix.EACCES && AllowOwner(e.Opener, parent, name) == nil {
		fd, err = e.Opener.Open(parent, name, flags, 0, SameMount)
	}
	if err == unix.EXDEV {
		return -1, ErrMounted
	}
	if err == nil {
		own(fd)
	}
	return fd, err
}

// AllowOwner gives the owner of a directory all permissions on it. O_DIRECTORY
// keeps it from changing a file, which may have another name outside.
func AllowOwner(o Opener, parent int, name string) error {
	fd, err := o.Open(parent, name, unix.O_PATH|unix.O_DIRECTORY, 0, SameMount)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return Chmod(fd, 0o700)
}

// own makes an open directory writable. If that fails, the directory belongs to another
// user, and its removable entries are removed all the same.
func own(dir int) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(dir, 0o700)
	}
}

// lift moves a directory to the top, to be removed from there.
func (e *Eraser) lift(parent int, name string, at *step) bool {
	to := ".pk-deep-" + rand.Text()
	err := RenameFresh(parent, name, e.top, to)
	// A directory that moves to another one has to be writable itself.
	if err == unix.EACCES && AllowOwner(e.Opener, parent, name) == nil {
		err = RenameFresh(parent, name, e.top, to)
	}
	if err != nil {
		return e.gone(at, 0, err)
	}
	e.deep = append(e.deep, moved{to, at})
	return true
}

// size is the space that the removal of an entry frees. A file frees its blocks
// with its last name.
func (e *Eraser) size(dir int, name string) int64 {
	if !e.Measure {
		return 0
	}
	st, err := Lstat(dir, name)
	if err != nil || st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0
	}
	return st.Blocks * 512
}

func (e *Eraser) removed(size int64) bool {
	e.Entries++
	e.Bytes += size
	return true
}

// gone notes the end of one removal. An entry that another process removed is
// as good as removed.
func (e *Eraser) gone(at *step, size int64, err error) bool {
	switch err {
	case nil:
		return e.removed(size)
	case unix.ENOENT:
		return true
	}
	return e.failed(at, err)
}

func (e *Eraser) failed(at *step, err error) bool {
	if e.Failures++; e.first == nil {
		e.first = &EraseError{at.String(), err}
	}
	return false
}

func rewind(dir int) { _, _ = unix.Seek(dir, 0, 0) }
