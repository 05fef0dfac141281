package gitrepo

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// root is a directory that is open. Names below it are relative and clean, and
// "" is the root itself.
type root struct {
	name string // absolute, without links
	fd   int
	id   ID
}

// ID is what a name meant when it was looked at.
type ID struct{ Dev, Ino uint64 }

func identify(st unix.Stat_t) ID { return ID{uint64(st.Dev), st.Ino} }

func openRoot(name string) (root, error) {
	fd, err := openat(unix.AT_FDCWD, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return root{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		name, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	}
	if err != nil {
		unix.Close(fd)
		return root{}, err
	}
	return root{name: name, fd: fd, id: identify(st)}, nil
}

// seen is what stands at a name.
type seen struct {
	mode uint32 // the kind of file; 0 if there is none
	id   ID
	link string // the first link on the way, the name itself included
	pins []Pin  // the directories on the way
}

func (s seen) exists() bool { return s.mode != 0 }

// Pin is a directory between a root and a sink. While it can be renamed, whatever
// is done to the sink's name does not last.
type Pin struct {
	Path string
	ID
}

// look walks to a name through no link. It ends early at one, or where there is
// nothing.
func (r root) look(rel string) seen {
	var s seen
	dir, below := r.fd, ""
	parts := split(rel)
	for i, part := range parts {
		below = path.Join(below, part)
		fd, err := openat(dir, part, unix.O_PATH|unix.O_NOFOLLOW)
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

// openDir opens a directory through no link, as a place to start from.
func (r root) openDir(rel string) (int, error) {
	dir, err := openat(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY)
	for _, part := range split(rel) {
		if err != nil {
			break
		}
		var next int
		next, err = openat(dir, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		unix.Close(dir)
		dir = next
	}
	return dir, err
}

// read reads a regular file, itself no link either.
func (r root) read(rel string, limit int64) ([]byte, error) {
	dir, err := r.openDir(path.Dir(rel))
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readAt(dir, path.Base(rel), unix.O_NOFOLLOW, limit)
}

// inside is the name of an absolute path that holds no link, seen from the root.
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

// maxSteps bounds how many names and links one name can lead over: a path's
// length in names, a few times.
const maxSteps = 4096

// follow tells where an absolute name leads, link by link, each opened from the
// directory before it. The root is recognized by what it is, whatever name leads
// there. Where there is nothing more to follow, the rest is taken as it is.
func (r root) follow(name string) string {
	where, start, rest := "/", unix.AT_FDCWD, name
	if rel, ok := r.inside(name); ok {
		where, start, rest = r.name, r.fd, rel
	}
	dir, err := openat(start, map[bool]string{true: "/", false: "."}[start == unix.AT_FDCWD], unix.O_PATH|unix.O_DIRECTORY)
	todo := split(rest)
	for steps := 0; err == nil && len(todo) > 0 && steps < maxSteps; steps++ {
		part := todo[0]
		var fd int
		fd, err = openat(dir, part, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			break
		}
		todo = todo[1:]
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			var target string
			target, err = readLink(fd)
			unix.Close(fd)
			todo = append(split(target), todo...)
			if strings.HasPrefix(target, "/") {
				unix.Close(dir)
				where = "/"
				dir, err = openat(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY)
			}
			continue
		}
		unix.Close(dir)
		dir, where = fd, path.Join(where, part)
		if identify(st) == r.id {
			where = r.name
		}
	}
	if dir >= 0 {
		unix.Close(dir)
	}
	return path.Join(append([]string{where}, todo...)...)
}

func readLink(fd int) (string, error) {
	text := make([]byte, maxPointer)
	n, err := unix.Readlinkat(fd, "", text)
	return string(text[:max(n, 0)]), err
}

// split takes a path apart. ".." stays, since behind a link it is not what it
// looks like.
func split(name string) []string {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return parts
}
