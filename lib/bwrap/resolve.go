package bwrap

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// resolver resolves symbolic links, and caches each name. It lives for the making of one
// plan: hundreds of paths lead through a dozen directories. Its results serve
// comparisons, and names that the set-up program opens again.
type resolver map[string]resolved

type resolved struct {
	place string
	err   error
}

// real is filepath.EvalSymlinks of an absolute path.
func (r resolver) real(path string) (string, error) {
	links := 0
	return r.walk("/", path, &links)
}

// canonical resolves the links of path as far as it exists. It serves comparisons
// with lists of known paths; it is not a check of containment.
func (r resolver) canonical(path string) string {
	rest := ""
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if real, err := r.real(dir); err == nil || dir == "/" || dir == "." {
			return filepath.Join(real, rest)
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// walk follows a path from a directory that holds no link.
func (r resolver) walk(from, path string, links *int) (string, error) {
	if strings.HasPrefix(path, "/") {
		from = "/"
	}
	for name := range strings.SplitSeq(path, "/") {
		var err error
		switch name {
		case "", ".":
		case "..":
			from = filepath.Dir(from)
		default:
			if from, err = r.step(from, name, links); err != nil {
				return "", err
			}
		}
	}
	return from, nil
}

// step resolves one name in a directory that holds no link.
func (r resolver) step(dir, name string, links *int) (string, error) {
	at := filepath.Join(dir, name)
	if known, ok := r[at]; ok {
		return known.place, known.err
	}
	var short [256]byte // with PATH_MAX, the stack would have to grow
	buf := short[:]
	place := at
	n, err := unix.Readlink(at, buf)
	if n == len(buf) {
		buf = make([]byte, unix.PathMax)
		n, err = unix.Readlink(at, buf)
	}
	switch {
	case err == unix.EINVAL: // no link
		err = nil
	case err == nil:
		if *links++; *links > maxLinks {
			return "", unix.ELOOP // another path may still lead to it
		}
		place, err = r.walk(dir, string(buf[:n]), links)
	}
	if err != unix.ELOOP {
		r[at] = resolved{place, err}
	}
	return place, err
}

// Canonical is resolver.canonical of one path.
func Canonical(path string) string { return resolver{}.canonical(path) }
