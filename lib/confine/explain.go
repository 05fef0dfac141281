package confine

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Explanation tells how a path gets its answer. It is made by the component
// walker, whichever way answers are found, and is for people.
type Explanation struct {
	Path     string
	Start    string // where a path begins that is not absolute, or in /tmp; else ""
	Readings []Reading
	Where    string // the answer, "" if it is refused
	Root     *Root  // the innermost root that allows it; nil where all is allowed
	Err      error  // the refusal
}

// Reading is one of the ways to read "..".
type Reading struct {
	Physical bool // as the kernel does
	Steps    []Step
}

// Step is a name that a reading comes by.
type Step struct {
	Name   string
	Place  string // where that is
	Kind   byte   // as in ls -l; '?' for what is missing or cannot be looked at
	Target string // where a link points
	Depth  int    // how many links the name was found in
	Root   *Root  // the root whose top this is

	// Hidden says that the step tells what is outside the workspace, and was not
	// in what was typed; HiddenTarget says so of the target alone. They are for
	// whoever may not read there.
	Hidden, HiddenTarget bool
}

// Explain answers like Lookup, and tells how.
func (w *Workspace) Explain(typed string, req Request) *Explanation {
	e := &Explanation{Path: typed}
	once := Batch{workspace: w, Request: req}
	e.Where, e.Err = once.Resolve(typed)
	if e.Err == nil {
		e.Root = w.RootOf(e.Where, req.Mode)
	}
	s, err := w.spell(typed)
	if err != nil {
		return e
	}
	e.Start = s.start
	if s.climbs {
		e.Readings = append(e.Readings, Reading{true, w.steps(s.raw)})
	}
	if !s.climbs || !req.Physical {
		e.Readings = append(e.Readings, Reading{false, w.steps(s.lexical)})
	}
	return e
}

// RootOf returns the innermost root that allows where, which is resolved, to be
// used in mode, or nil. Rules are not asked.
func (w *Workspace) RootOf(where string, mode Mode) *Root {
	var found *Root
	for _, r := range w.roots {
		if r.covers(where, mode) && (found == nil || len(r.Path) > len(found.Path)) {
			found = &r.Root
		}
	}
	return found
}

// steps walks absolute and notes what it comes by.
func (w *Workspace) steps(absolute string) []Step {
	t := tracer{workspace: w, steps: []Step{{Name: "/", Place: "/", Kind: 'd', Root: w.rootAt("/")}}}
	walk := walker{rest: absolute, missing: -1, visit: t.visit}
	_, _ = walk.walk() // an error is the answer's, and shows at the last step
	return t.steps
}

// tracer makes steps of what a walker comes by.
type tracer struct {
	workspace *Workspace
	steps     []Step
	links     []openLink // whose targets are being walked
}

// openLink is a link that has been entered: what is found until only rest is
// left of the path belongs to its target.
type openLink struct {
	rest   int
	hidden bool
}

func (t *tracer) visit(s stop) {
	for len(t.links) > 0 && t.links[len(t.links)-1].rest > s.rest {
		t.links = t.links[:len(t.links)-1]
	}
	step := Step{
		Name: s.name, Place: s.place, Target: s.target, Kind: kind(s),
		Depth: len(t.links), Root: t.workspace.rootAt(s.place),
	}
	step.Hidden = t.hides(s.place)
	step.HiddenTarget = s.target != "" && t.hidesTarget(s)
	t.steps = append(t.steps, step)
	if s.target != "" {
		t.links = append(t.links, openLink{s.rest, step.Hidden || step.HiddenTarget})
	}
}

// hides tells whether place is outside. What leads down to a root is known from
// the root's name, unless a link from inside led there.
func (t *tracer) hides(place string) bool {
	if t.workspace.RootOf(place, Read) != nil {
		return false
	}
	for _, link := range t.links {
		if link.hidden {
			return true
		}
	}
	for _, root := range t.workspace.roots {
		if contains(place, root.Path) {
			return false
		}
	}
	return true
}

// hidesTarget tells whether the text of a link speaks of what is outside, read
// either way.
func (t *tracer) hidesTarget(s stop) bool {
	target := s.target
	if target[0] != '/' {
		target = path.Dir(s.place) + "/" + target
	}
	if t.workspace.RootOf(path.Clean(target), Read) == nil {
		return true
	}
	where, err := walk(target)
	return strings.Contains(s.target, "..") && (err != nil || t.workspace.RootOf(where, Read) == nil)
}

func (w *Workspace) rootAt(place string) *Root {
	for _, r := range w.roots {
		if r.Path == place {
			return &r.Root
		}
	}
	return nil
}

// kind is the letter that ls -l has for the type of a file.
func kind(s stop) byte {
	var st unix.Stat_t
	if s.missing || unix.Lstat(s.place, &st) != nil {
		return '?'
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return 'd'
	case unix.S_IFLNK:
		return 'l'
	case unix.S_IFIFO:
		return 'p'
	case unix.S_IFSOCK:
		return 's'
	case unix.S_IFCHR:
		return 'c'
	case unix.S_IFBLK:
		return 'b'
	}
	return '-'
}
