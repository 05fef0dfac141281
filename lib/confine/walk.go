package confine

import (
	"bytes"
	"iter"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links a path may lead through. It is the kernel's own
// number: with more patience than the kernel's, an answer could be given for a
// path that nobody can open; and it ends every loop.
const maxLinks = 40

// walk returns where path, absolute and as it was typed, would be found or
// created by the kernel. It needs nothing but readlink, and is what canonical
// is held to.
//
// What is missing is kept as it is written. Whatever else keeps a component
// from being looked at (permission, a loop, a device error) ends the walk: a
// component that cannot be seen may be a link to anywhere.
func walk(path string) (string, error) {
	w := walker{rest: path, missing: -1}
	return w.walk()
}

// walker is a walk under way. place is where it has come to, canonical, and
// empty for the root directory; rest is what is left to do.
type walker struct {
	place   []byte
	rest    string
	links   int
	missing int // nothing exists beyond place[:missing]; -1: all of it does
	buf     []byte

	visit func(stop) // is told each name that the walk comes by, or nil
}

// stop is a name that a walk has come by.
type stop struct {
	name    string
	place   string
	target  string // where a link points, "" for what is none
	missing bool   // or cannot be looked at
	rest    int    // how much there is left to walk
}

func (w *walker) walk() (string, error) {
	for w.rest != "" {
		var name string
		name, w.rest, _ = strings.Cut(w.rest, "/")
		if err := w.enter(name); err != nil {
			return "", err
		}
	}
	if len(w.place) == 0 {
		return "/", nil
	}
	return string(w.place), nil
}

// pass tells whoever looks on about name, which has led to place.
func (w *walker) pass(name, target string, missing bool) {
	if w.visit != nil {
		w.visit(stop{name, "/" + strings.TrimPrefix(string(w.place), "/"), target, missing, len(w.rest)})
	}
}

// enter takes one component.
func (w *walker) enter(name string) error {
	switch name {
	case "", ".":
		return nil
	case "..":
		w.leave()
		w.pass(name, "", w.missing >= 0)
		return nil
	}
	above := len(w.place)
	w.place = append(append(w.place, '/'), name...)
	if len(w.place) >= unix.PathMax {
		return unix.ENAMETOOLONG
	}
	if w.missing >= 0 {
		w.pass(name, "", true)
		return nil
	}
	return w.look(name, above)
}

// leave goes up. place is canonical, so its parent is the parent directory.
// Having left what is missing, the walk has to look again: in missing/../link,
// link may well exist.
func (w *walker) leave() {
	w.place = w.place[:max(bytes.LastIndexByte(w.place, '/'), 0)]
	if len(w.place) <= w.missing {
		w.missing = -1
	}
}

// look finds out what place is.
func (w *walker) look(name string, above int) error {
	target, err := w.readlink(string(w.place))
	switch err {
	case nil:
		w.pass(name, target, false)
		return w.follow(above, target)
	case unix.EINVAL: // not a link
		w.pass(name, "", false)
		return nil
	case unix.ENOENT, unix.ENOTDIR:
		w.missing = above
		w.pass(name, "", true)
		return nil
	}
	w.pass(name, "", true)
	return err
}

// follow replaces the link at the end of place by its target.
func (w *walker) follow(above int, target string) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	if err := checkProcLink(string(w.place[:above]) + "/"); err != nil {
		return err
	}
	w.place = w.place[:above]
	if target[0] == '/' {
		w.place = w.place[:0]
	}
	w.rest = target + "/" + w.rest
	return nil
}

// checkProcLink refuses links on a procfs. Below /proc/PID, a link leads straight
// to an open file, another root or another namespace, and its text ("pipe:[1]",
// "/x (deleted)") is for people. The honest ones, /proc/self and those through
// it, mean another process to everyone who follows them: the answer would be
// about the process that resolves, not about the one that asks.
func checkProcLink(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC {
		return ErrProcLink
	}
	return nil
}

// readlink returns the target of a link. A target is never empty.
func (w *walker) readlink(path string) (string, error) {
	if w.buf == nil {
		w.buf = make([]byte, unix.PathMax)
	}
	n, err := readlinkat(unix.AT_FDCWD, path, w.buf)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", unix.ENOENT
	case n == len(w.buf):
		return "", unix.ENAMETOOLONG
	}
	return string(w.buf[:n]), nil
}

// linkTest finds out whether name is a link: nil, it is; EINVAL, it is
// something else; ENOENT or ENOTDIR, it is missing.
func linkTest(dir int, name string) error {
	var first [1]byte
	_, err := readlinkat(dir, name, first[:])
	return err
}

func readlinkat(dir int, name string, buf []byte) (int, error) {
	for {
		n, err := unix.Readlinkat(dir, name, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// names yields the components of a clean absolute path.
func names(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(path, "/") {
			if name != "" && !yield(name) {
				return
			}
		}
	}
}
