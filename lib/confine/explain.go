package confine

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Explanation shows people how a path gets its answer. It comes from walk, however
// the answer was found.
type Explanation struct {
	Path     string
	Start    string // where a path begins that is not absolute, or in /tmp; else ""
	Readings []Reading
	Where    string // the answer, "" if it is refused
	Root     *Root  // the innermost root that allows it; nil where all is allowed
	Err      error  // the refusal
}

// Reading is the way of a path with ".." taken by the kernel, or lexically.
type Reading struct {
	Physical bool // as the kernel does
	Steps    []Step
}

// Step is a name on the way.
type Step struct {
	Name   string
	Place  string
	Kind   byte   // as in ls -l; '?' if it is missing or cannot be looked at
	Target string // of a link
	Depth  int    // the number of links that the name was found in
	Root   *Root  // the root whose top this is

	// Hidden steps show files outside the workspace that were not in the typed
	// path, HiddenTarget a target there. Callers must not show them to a user that may
	// not read there.
	Hidden, HiddenTarget bool
}

// Explain answers like Lookup, and shows how.
func (w *Workspace) Explain(typed string, req Request) *Explanation {
	e := &Explanation{Path: typed}
	once := Batch{workspace: w, Request: req}
	e.Where, e.Err = once.Resolve(typed)
	if e.Err == nil {
		e.Root = w.RootOf(e.Where, req.Mode)
	}
	p, err := w.parse(typed)
	if err != nil {
		return e
	}
	e.Start = p.start
	if p.hasDotDot {
		e.Readings = append(e.Readings, Reading{true, w.steps(p.raw)})
	}
	if !p.hasDotDot || !req.Physical {
		e.Readings = append(e.Readings, Reading{false, w.steps(p.lexical)})
	}
	return e
}

// RootOf returns the innermost root that allows where, which is resolved, to be
// used in mode, or nil. It does not apply rules.
func (w *Workspace) RootOf(where string, mode Mode) *Root {
	held := w.holder(where, mode)
	if held == nil {
		return nil
	}
	return &held.Root
}

// steps walks an absolute path and notes each name.
func (w *Workspace) steps(absolute string) []Step {
	t := tracer{workspace: w, steps: []Step{{Name: "/", Place: "/", Kind: 'd', Root: w.rootAt("/")}}}
	walk := walker{view: w.view, rest: absolute, missing: -1, visit: t.visit}
	_, _ = walk.walk() // an error is the answer's, and shows at the last step
	return t.steps
}

// tracer makes the steps of a walk.
type tracer struct {
	workspace *Workspace
	steps     []Step
	links     []openLink // whose targets are being walked
}

// openLink is a link that is being followed: the names that come before only rest
// is left of the path belong to its target.
type openLink struct {
	rest   int
	hidden bool
}

func (t *tracer) visit(s stop) {
	for len(t.links) > 0 && t.links[len(t.links)-1].rest > s.rest {
		t.links = t.links[:len(t.links)-1]
	}
	step := Step{
		Name: s.name, Place: s.place, Target: s.target, Kind: t.workspace.view.kind(s),
		Depth: len(t.links), Root: t.workspace.rootAt(s.place),
	}
	step.Hidden = t.hides(s.place)
	step.HiddenTarget = s.target != "" && t.hidesTarget(s)
	t.steps = append(t.steps, step)
	if s.target != "" {
		t.links = append(t.links, openLink{s.rest, step.Hidden || step.HiddenTarget})
	}
}

// hides reports whether place is outside. The directories above a root are known
// from the root's name, unless a link from inside led there.
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
		if fsat.Within(root.Path, place) {
			return false
		}
	}
	return true
}

// hidesTarget reports whether a link points outside, with ".." taken by the kernel
// or lexically.
func (t *tracer) hidesTarget(s stop) bool {
	target := s.target
	if target[0] != '/' {
		target = path.Dir(s.place) + "/" + target
	}
	if t.workspace.RootOf(path.Clean(target), Read) == nil {
		return true
	}
	where, err := t.workspace.view.walk(target)
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
func (v view) kind(s stop) byte {
	var st unix.Stat_t
	if s.missing || v.lstat(s.place, &st) != nil {
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
