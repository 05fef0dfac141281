package gitconfig

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
)

// root is a directory that is open. Names below it are relative and clean, and
// "" is the root itself.
type root struct {
	name string // absolute, without links
	fd   int
	id   ID
}

// ID identifies the file that a name had when it was looked up.
type ID struct{ Dev, Ino uint64 }

func identify(st unix.Stat_t) ID { return ID{uint64(st.Dev), st.Ino} }

func openRoot(name string) (root, error) {
	fd, err := fsat.Openat(unix.AT_FDCWD, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return root{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		name, err = os.Readlink(fsat.Path(fd))
	}
	if err != nil {
		unix.Close(fd)
		return root{}, err
	}
	return root{name: name, fd: fd, id: identify(st)}, nil
}

// seen describes the file at a name.
type seen struct {
	mode uint32 // its type; 0 if it is missing
	id   ID
	link string // the first link on the way, which may be the name itself
	pins []Pin  // the directories on the way
}

func (s seen) exists() bool { return s.mode != 0 }

// Pin is a directory between a root and an exec file. A command that can rename it can
// put another file at the exec file's name.
type Pin struct {
	Path string
	ID
}

// look walks to a name. It ends early at a link or a missing name.
func (r root) look(rel string) seen {
	var s seen
	dir, below := r.fd, ""
	parts := split(rel)
	for i, part := range parts {
		below = path.Join(below, part)
		fd, err := fsat.Openat(dir, part, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if dir != r.fd {
			unix.Close(dir)
		}
		if err != nil {
			return s
		}
		dir = fd
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			break
		}
		kind := st.Mode & unix.S_IFMT
		if kind == unix.S_IFLNK {
			s.link = below
		}
		if kind == unix.S_IFLNK || i == len(parts)-1 {
			s.mode, s.id = kind, identify(st)
			break
		}
		s.pins = append(s.pins, Pin{below, identify(st)})
	}
	if dir != r.fd {
		unix.Close(dir)
	}
	return s
}

// openDir opens a directory through no link.
func (r root) openDir(rel string) (int, error) {
	return fsat.Kernel().Open(r.fd, path.Join(".", rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
}

// read reads a regular file, through no link.
func (r root) read(rel string, limit int64) ([]byte, error) {
	dir, err := r.openDir(path.Dir(rel))
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readAt(dir, path.Base(rel), unix.O_NOFOLLOW, limit)
}

// inside returns an absolute path without links relative to the root.
func (r root) inside(name string) (rel string, ok bool) {
	if name == r.name {
		return "", true
	}
	rel, ok = strings.CutPrefix(name, strings.TrimSuffix(r.name, "/")+"/")
	if !ok {
		return "", false
	}
	return rel, true
}

// follow returns where an absolute name leads. The root is recognized by its
// inode, whatever name leads there. A name that cannot be followed to its end
// keeps the rest as it is written.
func (r root) follow(name string) string {
	trail, _ := confine.Follow(name)
	place := trail.Place
	if _, inside := r.inside(place); inside {
		return place
	}
	for dir := place; dir != "/"; dir = path.Dir(dir) {
		if st, err := fsat.Lstat(unix.AT_FDCWD, dir); err == nil && identify(*st) == r.id {
			return path.Join(r.name, place[len(dir):])
		}
	}
	return place
}

// split returns the names in a path. It keeps "..", which may follow a link.
func split(name string) []string {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return parts
}
