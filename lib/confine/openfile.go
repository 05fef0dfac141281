package confine

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxRaces is how often a path is resolved again because it was not what it had
// been when it came to opening it. Whoever loses that often is being played
// with.
const maxRaces = 8

// What opening can fail with, beyond what resolving does.
var (
	ErrRaced   = errors.New("it changed each time it was looked at")
	ErrSpecial = errors.New("it is neither a file nor a directory")
)

// writingFlags are the flags of open(2) that need a place to be writable.
const writingFlags = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND

// OpenFile resolves path and opens what it names, so that nothing can come in
// between: from the descriptor of its root, through no link. flag and perm are
// those of os.OpenFile. Who opens for writing has to be allowed to write, and
// for both, both. Only files and directories are opened, and only below a root,
// even with AllowAll; a FIFO does not block. Errors are of type *Refusal.
func (w *Workspace) OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	modes := modesOf(flag)
	var err error
	for range maxRaces {
		var file *os.File
		if file, err = w.openOnce(path, modes, flag, perm); err == nil {
			return file, nil
		}
		if !raced(err) {
			break
		}
	}
	if raced(err) && err != unix.ENOTDIR { // what is below a file stays there
		err = ErrRaced
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return nil, refusal
	}
	return nil, &Refusal{Path: path, Mode: modes[0], Err: err}
}

// modesOf tells what the flags of open(2) need.
func modesOf(flag int) []Mode {
	switch {
	case flag&unix.O_ACCMODE == unix.O_RDWR:
		return []Mode{Write, Read}
	case flag&writingFlags != 0:
		return []Mode{Write}
	}
	return []Mode{Read}
}

// raced tells whether an error means that a resolved path holds a link, or a
// file on the way, by now: neither was there when it was resolved.
func raced(err error) bool {
	return err == unix.ELOOP || err == unix.EXDEV || err == unix.EAGAIN || err == unix.ENOTDIR
}

// openOnce resolves once and opens once.
func (w *Workspace) openOnce(path string, modes []Mode, flag int, perm os.FileMode) (*os.File, error) {
	var where string
	for _, mode := range modes {
		var err error
		if where, err = w.Resolve(path, mode); err != nil {
			return nil, err
		}
	}
	root := w.holder(where, modes[0])
	if root == nil {
		return nil, ErrOutside // AllowAll: there is no descriptor to open it from
	}
	fd, err := w.openBelow(*root, where, flag&^unix.O_TRUNC, perm)
	if err != nil {
		return nil, err
	}
	if err := w.accept(fd, modes[0], flag); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), where), nil
}

// holder returns the innermost root that allows where to be used.
func (w *Workspace) holder(where string, mode Mode) *heldRoot {
	var found *heldRoot
	for i, r := range w.roots {
		if r.covers(where, mode) && (found == nil || len(r.Path) > len(found.Path)) {
			found = &w.roots[i]
		}
	}
	return found
}

// openBelow opens a canonical path from its root's descriptor. O_NONBLOCK keeps
// a FIFO from waiting for its other end.
func (w *Workspace) openBelow(root heldRoot, where string, flag int, perm os.FileMode) (int, error) {
	flag |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	mode := uint64(0)
	if flag&unix.O_CREAT != 0 {
		mode = uint64(perm.Perm())
	}
	if where == root.Path && !root.Dir {
		return root.reopen(flag)
	}
	below, _ := root.relative(where, true)
	if !w.openat2 {
		return openByName(root.fd, below, flag, uint32(mode))
	}
	return unix.Openat2(root.fd, below, &unix.OpenHow{
		Flags:   uint64(flag) | unix.O_LARGEFILE,
		Mode:    mode,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// openByName does it component by component, on a kernel without openat2.
func openByName(dir int, below string, flag int, mode uint32) (int, error) {
	dir, err := unix.Openat(dir, ".", unix.O_PATH|unix.O_CLOEXEC, 0)
	for err == nil {
		name, rest, more := strings.Cut(below, "/")
		if !more {
			break
		}
		var next int
		next, err = unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(dir)
		dir, below = next, rest
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, below, flag, mode)
}

// reopen opens a root that is a file, by its name; it has to be the same file.
func (r heldRoot) reopen(flag int) (int, error) {
	fd, err := unix.Open(r.Path, flag&^unix.O_CREAT, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != r.Dev || st.Ino != r.Ino {
		unix.Close(fd)
		return -1, errors.Join(err, ErrReplaced)
	}
	return fd, nil
}

// accept looks at what has been opened before it is given out, and before
// anything of it is lost.
func (w *Workspace) accept(fd int, mode Mode, flag int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return ErrSpecial
	case kind == unix.S_IFREG && st.Nlink > 1 && mode == Write && w.rulesOnWriting():
		return ErrManyNames
	}
	if flag&unix.O_TRUNC != 0 {
		if err := unix.Ftruncate(fd, 0); err != nil {
			return err
		}
	}
	return unix.SetNonblock(fd, false)
}
