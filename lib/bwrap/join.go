package bwrap

import (
	"fmt"
	"path/filepath"
	"slices"

	"pikuri/lib/overlay"
)

// Session locates the overlays of a plan that a session has mounted.
type Session struct {
	Shown map[string]string // Source of an overlay -> its path in the session's mount namespace
	Root  string            // path at which this process sees the files of that namespace
}

// Overlays lists the directories that the plan shows as overlays, except git directories.
func (p *Plan) Overlays() []string {
	var dirs []string
	for _, m := range p.Mounts {
		if m.Op == OpOverlay && m.Layer == nil {
			dirs = append(dirs, m.Source)
		}
	}
	return dirs
}

// Join makes the plan one of a session. It shows an overlay that the session does not
// have read-only, with a warning that gives the reason. It refuses if the caller gave the
// overlay by name and counts on it.
func (p *Plan) Join(s Session, refused map[string]string) error {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Op != OpOverlay || m.Layer != nil {
			continue
		}
		if at, ok := s.Shown[m.Source]; ok {
			m.seenAt = filepath.Join(s.Root, at)
			continue
		}
		if m.Rule == overlayRule {
			return &Refusal{Reason: fmt.Sprintf("cannot overlay %q: %s", m.Source, refused[m.Source]), Advice: "show it with --readable or --writable"}
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("%q is read-only inside: %s", m.Source, refused[m.Source]))
		p.Degraded = append(p.Degraded, m.Source)
		m.Op = OpReadOnly
	}
	p.Session = &s
	return nil
}

// Trials lists the roots of the plan that are overlays of a trial.
func (p *Plan) Trials() []string {
	var dirs []string
	for _, m := range p.Mounts {
		if m.trial() && !slices.Contains(dirs, m.Source) {
			dirs = append(dirs, m.Source)
		}
	}
	return dirs
}

// LookIn sets the session's upper directory of a root of its trial, for the search for
// the command.
func (p *Plan) LookIn(root, upper string) {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.trial() && m.Source == root {
			m.upper = upper
		}
	}
}

// Lay sets the layers of a git directory or of a trial's root, and the path of its overlay in the
// session's mount namespace; "" without a session.
func (p *Plan) Lay(dir string, layer overlay.Layers, session string) {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.Layer != nil && m.Source == dir {
			*m.Layer = layer
			m.session = session
		}
	}
}

// ShownAt returns the path of a git directory in the sandbox.
func (p *Plan) ShownAt(gitDir string) (dest string, ok bool) {
	for _, m := range p.Mounts {
		if m.Layer != nil && m.Source == gitDir {
			return m.Dest, true
		}
	}
	return "", false
}

// overlayRule is the rule of an overlay given by name.
const overlayRule = "option --overlay"

// shownAt is the source for binding an overlay; "" means that it has to be made.
func (p *Plan) shownAt(m Mount) string {
	if p.Session == nil || m.Layer != nil {
		return m.session
	}
	return p.Session.Shown[m.Source]
}
