package confine

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is a directory tree, or a single file, that may be read.
type Root struct {
	Path     string // resolved
	Writable bool
	Dir      bool
	Dev, Ino uint64 // what Path named when the workspace was opened
	Name     string // as it was given, for messages
}

// Contains tells whether path, which is resolved, is the root or below it.
func (r Root) Contains(path string) bool {
	return path == r.Path || r.Dir && contains(r.Path, path)
}

// heldRoot is a root with the descriptor that holds it. The descriptor keeps
// the inode number from being given to another file, so that a root which was
// removed and made again is seen to be another one.
type heldRoot struct {
	Root
	fd      int
	given   string // the name it was given by, "" if that is not to be trusted
	scratch bool   // the scratch directory, which --allow-write leaves writable
}

// role is what a root is named for.
type role int

const (
	roleProject role = iota
	roleReadable
	roleWritable
	roleTemp
)

func (r role) String() string {
	return [...]string{"the project root", "a readable root", "a writable root", "the scratch directory"}[r]
}

// claim is one root as it was asked for.
type claim struct {
	role role
	name string
}

// RootError says which root cannot be used, and why.
type RootError struct {
	Name string // as it was given
	Err  error

	role role
	hint string
}

func (e *RootError) Error() string {
	return fmt.Sprintf("cannot use %q as %s: %v", e.Name, e.role, e.Err)
}

func (e *RootError) Unwrap() error { return e.Err }

// Hint is what to do next.
func (e *RootError) Hint() string { return e.hint }

// What a root can be wrong with, beyond what the system says.
var (
	ErrDenied = errors.New("it is a system directory or a home")
	ErrNoName = errors.New("it has no name")
)

// open resolves the claim, checks it, and holds what it found.
func (c claim) open(cfg Config) (heldRoot, error) {
	where, err := absolute(c.name)
	if err == nil {
		where, err = walk(where)
	}
	if err != nil {
		return heldRoot{}, c.failed(err)
	}
	if c.role != roleReadable && !cfg.AllowAll && DeniedRoot(where, cfg.Home) {
		return heldRoot{}, c.failed(ErrDenied)
	}
	held, err := hold(where)
	if err != nil {
		return heldRoot{}, c.failed(err)
	}
	if c.role != roleReadable && !held.Dir {
		unix.Close(held.fd)
		return heldRoot{}, c.failed(unix.ENOTDIR)
	}
	held.Name, held.Writable, held.scratch = c.name, c.role != roleReadable, c.role == roleTemp
	held.given = c.given()
	return held, nil
}

// given is the name as somebody might type it, cleaned. With ".." behind a name
// there is none: cleaned, it may be another place.
func (c claim) given() string {
	name, err := absolute(c.name)
	if err != nil || climbs(name) {
		return ""
	}
	return path.Clean(name)
}

func (c claim) failed(err error) error {
	e := &RootError{Name: c.name, Err: err, role: c.role}
	switch {
	case errors.Is(err, ErrDenied):
		e.hint = "name a directory below it"
	case errors.Is(err, ErrNoName), errors.Is(err, unix.ENOTDIR):
		e.hint = "name an existing directory"
	case errors.Is(err, unix.ENOENT):
		e.hint = "make it first, or name an existing directory"
	}
	return e
}

// absolute makes name absolute without cleaning it: ".." is the kernel's to
// read. $PWD is not asked, as it may be wrong.
func absolute(name string) (string, error) {
	if name == "" {
		return "", ErrNoName
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", ErrNUL
	}
	if name[0] == '/' {
		return name, nil
	}
	cwd, err := unix.Getwd()
	if err != nil {
		return "", err
	}
	return cwd + "/" + name, nil
}

// hold opens what the canonical path names, following no link on the way: one
// that has appeared since the path was resolved is an error.
func hold(path string) (heldRoot, error) {
	fd, err := openNoLinks(path)
	if err != nil {
		return heldRoot{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return heldRoot{}, err
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	return heldRoot{Root: Root{Path: path, Dir: dir, Dev: st.Dev, Ino: st.Ino}, fd: fd}, nil
}

// openNoLinks opens a canonical path component by component. It does not need
// openat2, so there is one way to hold a root on every kernel.
func openNoLinks(path string) (int, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	for name := range names(path) {
		if err != nil {
			break
		}
		var next int
		next, err = unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		unix.Close(fd)
		return -1, errors.Join(err, unix.ELOOP)
	}
	return fd, nil
}

// present tells whether the root's path still names what was opened.
func (r heldRoot) present() bool {
	var st unix.Stat_t
	err := unix.Fstatat(unix.AT_FDCWD, r.Path, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Dev == r.Dev && st.Ino == r.Ino
}

// covers tells whether the root allows path to be used in mode. A file that is
// a root allows itself and nothing below, whatever it may become.
func (r heldRoot) covers(path string, mode Mode) bool {
	if mode == Write && !r.Writable {
		return false
	}
	return r.Contains(path)
}
