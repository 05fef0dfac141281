package confine

import (
	"errors"
	"path"
	"slices"

	"pikuri/lib/internal/fsat"
)

// ErrEscapes is a root whose name leads through a link in a writable root, and
// out of that root. A command that writes there chooses the target, so the same
// command line could show tomorrow a directory that it does not show today.
var ErrEscapes = errors.New("it leads out of a writable root, through a link in it")

// Link is a symbolic link that a path leads through.
type Link struct{ Place, Target string }

// Trail is the way of a path from link to link. It comes from one walk, so its
// parts agree even if files are renamed meanwhile.
type Trail struct {
	Place string // where the path leads, without links
	Links []Link // in the order in which they are followed

	dirs []string // the directories in which names were looked up, if there were links or ".."
}

// Follow walks name, relative to the working directory, as the kernel does. The
// end of name may be missing. On an error, Place is as far as the walk came, with
// the rest of name behind it.
func Follow(name string) (Trail, error) {
	start, err := absolute(name)
	if err != nil {
		return Trail{}, err
	}
	host := view{opener: fsat.Kernel()}
	if host.opener.Openat2 && path.Clean(start) == start {
		if place, err := host.canonical(start); err == nil && place == start {
			return Trail{Place: start}, nil // no link
		}
	}
	var t Trail
	w := walker{view: host, rest: start, missing: -1, visit: func(s stop) {
		if s.name != ".." {
			t.dirs = append(t.dirs, path.Dir(s.place))
		}
		if s.target != "" {
			t.Links = append(t.Links, Link{s.place, s.target})
		}
	}}
	t.Place, err = w.walk()
	if err != nil {
		t.Place = path.Join("/", string(w.place), w.rest)
	}
	return t, err
}

// Links returns all links on the way along an absolute path.
func Links(path string) []Link {
	t, _ := Follow(path) // an error ends the way
	return t.Links
}

// EscapesThroughLink returns ErrEscapes if a link that lies in one of the
// directories leads to a place outside that directory.
func (t Trail) EscapesThroughLink(writable []string) error {
	for _, root := range writable {
		lies := func(l Link) bool { return fsat.Within(path.Dir(l.Place), root) }
		if !fsat.Within(t.Place, root) && slices.ContainsFunc(t.Links, lies) {
			return ErrEscapes
		}
	}
	return nil
}

// LiesIn returns the first of the directories whose users can change where the
// trail leads: the place or a name on the way is in it.
func (t Trail) LiesIn(writable []string) (dir string, ok bool) {
	for _, root := range writable {
		in := func(dir string) bool { return fsat.Within(dir, root) }
		if in(t.Place) || slices.ContainsFunc(t.dirs, in) {
			return root, true
		}
	}
	return "", false
}

// LiesIn is Trail.LiesIn for a name, which also counts as it is typed. pk keeps
// its own files where no command can replace them.
func LiesIn(name string, writable []string) (root string, ok bool) {
	typed, err := absolute(name)
	if err != nil {
		return "", false
	}
	for _, root := range writable {
		if fsat.Within(path.Clean(typed), root) {
			return root, true
		}
	}
	t, err := Follow(typed)
	if errors.Is(err, ErrProcLink) && len(writable) > 0 {
		return writable[0], true // it leads to another place for each process
	}
	return t.LiesIn(writable) // as far as it can be followed
}
