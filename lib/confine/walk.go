package confine

import (
	"bytes"
	"iter"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// maxLinks is how many links a path may lead through. It is the kernel's limit,
// which ends every loop: a longer walk would resolve a path that cannot be opened.
const maxLinks = 40

// walk returns the place at which the kernel would find or create path, which is
// absolute and as it was typed. It needs only readlink(2). The tests compare
// canonical with it.
//
// The missing end of a path is kept as it is written. Any other failure
// (permission, a loop, a device error) ends the walk, since an unreadable name may be
// a link to anywhere.
func (v view) walk(path string) (string, error) {
	w := walker{view: v, rest: path, missing: -1}
	return w.walk()
}

// walker is a walk in progress. place is canonical, and empty for the root
// directory; rest is still to be walked.
type walker struct {
	view    view
	place   []byte
	rest    string
	links   int
	missing int  // nothing exists beyond place[:missing]; -1: all of it exists
	strict  bool // fail as stat(2) does at names that are missing or are no directories

	visit func(stop) // called for each name, if not nil
}

// stop is a name that a walk has passed.
type stop struct {
	name    string
	place   string
	target  string // of a link, otherwise ""
	missing bool   // or it cannot be looked at
	rest    int    // the length of the rest of the path
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

// pass calls visit.
func (w *walker) pass(name, target string, missing bool) {
	if w.visit != nil {
		w.visit(stop{name, "/" + strings.TrimPrefix(string(w.place), "/"), target, missing, len(w.rest)})
	}
}

// enter takes one name.
func (w *walker) enter(name string) error {
	switch name {
	case "", ".":
		return w.checkDir(name)
	case "..":
		if err := w.checkDir(name); err != nil {
			return err
		}
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

// checkDir fails if a strict walk is not in a directory. The kernel needs permission
// to search it for "." and "..", but not for a slash.
func (w *walker) checkDir(name string) error {
	if !w.strict {
		return nil
	}
	dir := string(w.place) + "/"
	if name != "" {
		dir += "."
	}
	return w.view.lstat(dir, new(unix.Stat_t))
}

// leave goes up. place is canonical, so it ends in the name to drop. Above a
// missing name the walk looks at names again: in missing/../link, link may exist.
func (w *walker) leave() {
	w.place = w.place[:max(bytes.LastIndexByte(w.place, '/'), 0)]
	if len(w.place) <= w.missing {
		w.missing = -1
	}
}

// look finds out whether place is a link, another file, or missing.
func (w *walker) look(name string, above int) error {
	target, err := fsat.ReadLink(w.view.at(string(w.place)))
	switch err {
	case nil:
		w.pass(name, target, false)
		return w.follow(above, target)
	case unix.EINVAL: // not a link
		w.pass(name, "", false)
		return nil
	case unix.ENOENT, unix.ENOTDIR:
		if w.strict {
			return err
		}
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
	if err := w.view.checkProcLink(string(w.place[:above])); err != nil {
		return err
	}
	w.place = w.place[:above]
	if target[0] == '/' {
		w.place = w.place[:0]
	}
	w.rest = target + "/" + w.rest
	return nil
}

// linkTest finds out whether name is a link: nil if it is, EINVAL if it is another
// file, ENOENT or ENOTDIR if it is missing.
func linkTest(dir int, name string) error {
	var first [1]byte
	_, err := fsat.Again(func() (int, error) { return unix.Readlinkat(dir, name, first[:]) })
	return err
}

// names yields the names in a clean absolute path.
func names(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(path, "/") {
			if name != "" && !yield(name) {
				return
			}
		}
	}
}
