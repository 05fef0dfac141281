package confine

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Root is a directory tree, or a single file, that may be read.
type Root struct {
	Path     string // resolved
	Writable bool
	Dir      bool
	Dev, Ino uint64 // of the file that Path named when the workspace was opened
	Name     string // as it was given, for messages
}

// Contains reports whether path, which is resolved, is the root or below it.
func (r Root) Contains(path string) bool {
	return path == r.Path || r.Dir && fsat.Within(path, r.Path)
}

// heldRoot is a root with its descriptor. The descriptor keeps the kernel from
// giving the inode number to another file, so a root that was removed and made
// again has another number.
type heldRoot struct {
	Root
	fd      int
	given   string // the name it was given by, "" if that is not to be trusted
	scratch bool   // the scratch directory, which --allow-write leaves writable
}

// role is the use that a root is named for.
type role int

const (
	roleProject role = iota
	roleReadable
	roleWritable
	roleTemp
	roleShown
)

func (r role) String() string {
	return [...]string{"the project root", "a readable root", "a writable root", "the scratch directory", "a root that is shown elsewhere"}[r]
}

// claim is a root as the caller names it.
type claim struct {
	role role
	name string
}

// RootError is a root that cannot be used.
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

// Hint suggests the next step.
func (e *RootError) Hint() string { return e.hint }

// Reasons to refuse a root, beside those of the system.
var (
	ErrDenied = errors.New("it is a system directory or a home")
	ErrNoName = errors.New("it has no name")
	ErrNoCWD  = errors.New("the current directory has been removed")
	ErrNoRoot = errors.New("it is not the path of a root")
)

// open resolves the claim, checks it, and opens the root.
func (c claim) open(cfg Config) (heldRoot, Trail, error) {
	trail, err := Follow(c.name)
	if err != nil {
		return heldRoot{}, trail, c.failed(err)
	}
	if c.role != roleReadable && !cfg.AllowAll && DeniedRoot(trail.Place, cfg.Home) {
		return heldRoot{}, trail, c.failed(ErrDenied)
	}
	held, err := hold(trail.Place)
	if err != nil {
		return heldRoot{}, trail, c.failed(err)
	}
	if c.role != roleReadable && !held.Dir {
		unix.Close(held.fd)
		return heldRoot{}, trail, c.failed(unix.ENOTDIR)
	}
	held.Name, held.Writable, held.scratch = c.name, c.role != roleReadable, c.role == roleTemp
	held.given = c.given()
	return held, trail, nil
}

// given is the name as a user might type it, cleaned. A name with ".." has none,
// since it may mean another place when it is cleaned.
func (c claim) given() string {
	name, err := absolute(c.name)
	if err != nil || hasDotDot(name) {
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
	case errors.Is(err, unix.ENOENT) && strings.HasPrefix(c.name, "~"):
		e.hint = "a shell replaces ~ only without quotes, and at the beginning of a word"
	case errors.Is(err, ErrNoCWD):
		e.hint = "cd to a directory that is there, or name the project with -C"
	case errors.Is(err, unix.ENOENT):
		e.hint = "make it first, or name an existing directory"
	}
	return e
}

// absolute makes name absolute without cleaning it, since the kernel is to take
// "..". It does not use $PWD, which may be wrong.
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
	if errors.Is(err, unix.ENOENT) {
		return "", ErrNoCWD
	}
	if err != nil {
		return "", err
	}
	return cwd + "/" + name, nil
}

// hold opens a canonical path and follows no link: a link that has appeared since
// the path was resolved is an error.
func hold(path string) (heldRoot, error) {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, path, unix.O_PATH, 0, fsat.NoLinks)
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

// Is reports whether the root is the file that st describes.
func (r Root) Is(st *unix.Stat_t) bool { return st.Dev == r.Dev && st.Ino == r.Ino }

// present reports whether the root's path still names the root.
func (r heldRoot) present() bool {
	st, err := fsat.Lstat(unix.AT_FDCWD, r.Path)
	return err == nil && r.Is(st)
}

// covers reports whether the root allows path to be used in mode. A root that is
// a file allows only itself, even if a directory replaces it.
func (r heldRoot) covers(path string, mode Mode) bool {
	if mode == Write && !r.Writable {
		return false
	}
	return r.Contains(path)
}
