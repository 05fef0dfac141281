package bwrap

import (
	"fmt"
	"path/filepath"
	"slices"

	"pikuri/lib/overlay"
)

// Session is where a session has mounted the overlays of a plan.
type Session struct {
	Shown map[string]string // Source of an overlay -> where the session's mount namespace has it
	Root  string            // where this process sees the files of that namespace
}

// Overlays lists the directories that the plan shows as overlays, but for git
// directories.
func (p *Plan) Overlays() []string {
	var dirs []string
	for _, m := range p.Mounts {
		if m.Op == OpOverlay && m.Layer == nil {
			dirs = append(dirs, m.Source)
		}
	}
	return dirs
}

// Join makes the plan one of a session. An overlay that the session does not
// show is shown read-only, and named with the reason, unless the caller asked
// for it by name and counts on it.
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

// LookIn says where the session has what was written in a root of its trial, for the
// search for the command.
func (p *Plan) LookIn(root, upper string) {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.trial() && m.Source == root {
			m.upper = upper
		}
	}
}

// Lay says where the layers of a git directory or of a trial's root are, and where the session's mount
// namespace has its overlay; "" without a session.
func (p *Plan) Lay(dir string, layer overlay.Layers, session string) {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.Layer != nil && m.Source == dir {
			*m.Layer = layer
			m.session = session
		}
	}
}

// ShownAt returns where the sandbox has a git directory.
func (p *Plan) ShownAt(gitDir string) (dest string, ok bool) {
	for _, m := range p.Mounts {
		if m.Layer != nil && m.Source == gitDir {
			return m.Dest, true
		}
	}
	return "", false
}

// overlayRule is the rule of an overlay that was asked for by name.
const overlayRule = "option --overlay"

// shownAt is where an overlay is to be bound from; "" means that it is to be made.
func (p *Plan) shownAt(m Mount) string {
	if p.Session == nil || m.Layer != nil {
		return m.session
	}
	return p.Session.Shown[m.Source]
}
