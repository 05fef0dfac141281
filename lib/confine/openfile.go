package confine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// maxRaces is how often a path is resolved again because it changed before it was
// opened. A caller that loses so many races is under attack.
const maxRaces = 8

// Reasons to refuse to open a file, beside those to refuse its path.
var (
	ErrRaced   = errors.New("it changed each time it was looked at")
	ErrSpecial = errors.New("it is neither a file nor a directory")
)

// writingFlags are the flags of open(2) that need a place to be writable.
const writingFlags = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND

// OpenFile resolves path and opens it from the descriptor of its root, through no
// link, so that no race leads it outside. flag and perm are those of
// os.OpenFile; O_RDWR needs both modes. It opens only regular files and
// directories, and only below a root, even with AllowAll. It does not block on a
// FIFO. Errors are of type *Refusal.
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
	if raced(err) && err != unix.ENOTDIR { // a path below a file is no race
		err = ErrRaced
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return nil, refusal
	}
	return nil, &Refusal{Path: path, Mode: modes[0], Err: err}
}

// modesOf returns the modes that the flags of open(2) need.
func modesOf(flag int) []Mode {
	switch {
	case flag&unix.O_ACCMODE == unix.O_RDWR:
		return []Mode{Write, Read}
	case flag&writingFlags != 0:
		return []Mode{Write}
	}
	return []Mode{Read}
}

// raced reports whether an error means that a resolved path now leads through a
// link or a file: neither was there when it was resolved.
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

// holder returns the innermost root that allows where, which is resolved.
func (w *Workspace) holder(where string, mode Mode) *heldRoot {
	var found *heldRoot
	for i, r := range w.roots {
		if r.covers(where, mode) && (found == nil || len(r.Path) > len(found.Path)) {
			found = &w.roots[i]
		}
	}
	return found
}

// openBelow opens a canonical path from its root's descriptor, or that of the
// directory that replaces it. O_NONBLOCK keeps a FIFO from waiting for its other
// end.
func (w *Workspace) openBelow(root heldRoot, where string, flag int, perm os.FileMode) (int, error) {
	flag |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	dir, name := w.view.at(where)
	if dir == unix.AT_FDCWD {
		if where == root.Path && !root.Dir {
			return root.reopen(flag)
		}
		dir = root.fd
		name, _ = root.relative(where, true)
	}
	mode := uint32(0)
	if flag&unix.O_CREAT != 0 {
		mode = uint32(perm.Perm())
	}
	return w.view.opener.Open(dir, name, flag, mode, fsat.Beneath)
}

// reopen opens a root that is a file by its name, and checks that it is the same
// file.
func (r heldRoot) reopen(flag int) (int, error) {
	fd, err := unix.Open(r.Path, flag&^unix.O_CREAT, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !r.Is(&st) {
		unix.Close(fd)
		return -1, errors.Join(err, ErrReplaced)
	}
	return fd, nil
}

// accept checks an open file before it is returned, and before it is truncated.
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
