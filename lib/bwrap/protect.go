package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/overlay"
)

// Protected is a path in a writable root that the command must not change.
type Protected struct {
	Path    string // absolute
	Rule    string // the reason, for messages
	Default bool   // not given by name: a symbolic link is watched, not refused

	Link bool // a symbolic link that is watched, and the place that it leads to is not protected by it
	File bool // if it is missing, a directory that appears there does no harm
	Way  bool // only a link there does harm, or a file that says where a repository is

	Tracked bool // of a Way: also one of a commit
}

// protect mounts each protected path read-only on itself. It also makes every directory
// above it a mount point: otherwise a command could rename the directory and make another
// with the same name. A missing path cannot be mounted on; it is watched.
func (b *builder) protect() error {
	for _, p := range b.Protect {
		if err := b.refuseInLayer(p); err != nil {
			return err
		}
		shown := false
		for _, w := range b.writableAbove(p.Path) {
			shown = true
			if err := b.protectIn(w, p); err != nil {
				return err
			}
		}
		if !shown && !p.Default && b.hidden(p.Path) {
			return &Refusal{
				Reason: fmt.Sprintf("cannot protect %q: no root shows it", p.Path),
				Advice: "name something in a writable root",
			}
		}
	}
	return nil
}

// hidden reports whether no part of the plan shows the host's path.
func (b *builder) hidden(path string) bool {
	_, shown := b.plan.Shows(path)
	return !shown
}

// Shows returns the rule of a mount that holds the host's path. A mask may lie over it there.
func (p *Plan) Shows(path string) (rule string, shown bool) {
	for _, m := range p.Mounts {
		if m.showsHost() && fsat.Within(path, m.Source) {
			return m.Rule, true
		}
	}
	return "", false
}

// writableAbove lists the mounts through which the host's path can be written: it may be
// shown at two places.
func (b *builder) writableAbove(path string) []Mount {
	var above []Mount
	for _, m := range b.plan.Mounts {
		if m.Op != OpWritable || !fsat.Within(path, m.Source) {
			continue
		}
		dest := m.Dest + strings.TrimPrefix(path, m.Source)
		if b.plan.seen(path, dest) {
			above = append(above, m)
		}
	}
	return above
}

// protectIn protects p in the tree of w.
func (b *builder) protectIn(w Mount, p Protected) error {
	if p.Way && !p.Link {
		if p.Path != w.Source {
			b.watch(Watch{Path: p.Path, Rule: p.Rule, File: true, Way: true})
		}
		return nil
	}
	if p.Path == w.Source {
		return &Refusal{
			Reason: fmt.Sprintf("cannot protect %q: it is a writable root itself", p.Path),
			Advice: "show it with --readable instead",
		}
	}
	missing, link, err := b.pinned(w, Mount{Op: OpProtect, Source: p.Path, Rule: p.Rule})
	switch {
	case err != nil:
		return &Refusal{Reason: fmt.Sprintf("cannot protect %q: %v", p.Path, cause(err)), Advice: "see whether it can be entered"}
	case missing:
		b.watch(Watch{Path: p.Path, Rule: p.Rule, File: p.File})
	case link != "":
		return b.protectLink(link, p)
	}
	return nil
}

// pinned adds a mount of m.Source in the tree of w, and makes every directory above it a
// mount point. It stops at a missing name, at a link, and at a mount that is not
// writable, or not of the host.
func (b *builder) pinned(w, m Mount) (missing bool, link string, err error) {
	names := strings.Split(strings.TrimPrefix(strings.TrimPrefix(m.Source, w.Source), "/"), "/")
	at := Mount{Op: OpPin, Source: w.Source, Dest: w.Dest, Rule: "pinned: " + m.Rule}
	for i, name := range names {
		at.Source, at.Dest = filepath.Join(at.Source, name), filepath.Join(at.Dest, name)
		if b.missing[at.Source] || i < len(names)-1 && b.missing[at.Source+"/"] {
			return true, "", nil
		}
		info, err := os.Lstat(at.Source)
		switch {
		case os.IsNotExist(err):
			b.missing[at.Source] = true
			return true, "", nil
		case err != nil:
			return false, "", err
		case info.Mode()&os.ModeSymlink != 0:
			return false, at.Source, nil
		case i < len(names)-1 && !info.IsDir():
			b.missing[at.Source+"/"] = true
			return true, "", nil
		case i == len(names)-1:
			m.Dest = at.Dest
			at = m
		}
		if top, _ := cover(b.plan.Mounts, at.Dest); top.Op != OpWritable && top.Op != OpPin {
			return false, "", nil
		}
		b.place(at)
	}
	return false, "", nil
}

// gitRule is the rule of a git directory that is shown through a layer.
const gitRule = "default: git: commits and branches land when the command has ended"

// protectedByName reports whether the caller protects all of a directory.
func (b *builder) protectedByName(dir string) bool {
	return slices.ContainsFunc(b.Protect, func(p Protected) bool { return !p.Default && fsat.Within(dir, p.Path) })
}

// openedIn refuses writable roots within a git directory, since they have no layer. It
// removes from the plan the places there that a pattern of --allow-write has opened.
func (b *builder) openedIn(dir string) error {
	within := func(path string) bool { return path != dir && fsat.Within(path, dir) }
	for _, r := range b.Roots {
		if r.Writable && within(r.Path) {
			return &Refusal{Reason: fmt.Sprintf("cannot make %q writable: it is in the git directory %q", r.Path, dir), Advice: "leave it out: git works, and its commits land"}
		}
	}
	b.plan.Mounts = slices.DeleteFunc(b.plan.Mounts, func(m Mount) bool {
		opened := m.Op == OpWritable && within(m.Source)
		if opened {
			b.warn("%s does not open %q, in a git directory", m.Rule, m.Source)
		}
		return opened
	})
	return nil
}

// neverLands are names in a git directory whose changes stay in its layer.
var neverLands = []string{"hooks", "info", "description"}

// refuseInLayer refuses to protect a file by name in a git directory with a layer, if the
// command's changes there land.
func (b *builder) refuseInLayer(p Protected) error {
	if p.Default || !exists(p.Path) {
		return nil
	}
	for _, m := range b.plan.Mounts {
		below, ok := strings.CutPrefix(p.Path, m.Source+"/")
		name, _, _ := strings.Cut(below, "/")
		if m.Op == OpOverlay && m.Layer != nil && ok && !slices.Contains(neverLands, name) {
			return &Refusal{
				Reason: fmt.Sprintf("cannot protect %q: commits and branches land in the git directory", p.Path),
				Advice: "protect all of it: --protect " + shellword.Word(m.Source),
			}
		}
	}
	return nil
}

// gitDirs shows each writable git directory of the host through a layer. One outside of
// all roots, such as the main repository of a linked worktree, is shown at its own path.
// A git directory that is protected by name, or that --allow-write leaves out, has no
// layer: changes in a layer may land.
func (b *builder) gitDirs() error {
	for _, dir := range b.GitDirs {
		if b.protectedByName(dir) {
			continue
		}
		if err := b.openedIn(dir); err != nil {
			return err
		}
		if below := mountBelow(b.plan.Table(), dir); below != "" {
			return &Refusal{Reason: fmt.Sprintf("cannot lay a layer over the git directory %q: %q is mounted below it", dir, below), Advice: "umount " + shellword.Word(below)}
		}
		m := Mount{Op: OpOverlay, Source: dir, Dest: dir, Rule: gitRule, Layer: new(overlay.Layers)}
		above := b.writableAbove(dir)
		for _, w := range above {
			if w.Source == dir { // a bare repository
				at := slices.IndexFunc(b.plan.Mounts, func(o Mount) bool { return o.Dest == w.Dest })
				m.Dest, m.Root, m.Dev, m.Ino = w.Dest, w.Root, w.Dev, w.Ino
				b.plan.Mounts[at] = m
			} else if _, _, err := b.pinned(w, m); err != nil {
				return &Refusal{Reason: fmt.Sprintf("cannot lay a layer over the git directory %q: %v", dir, cause(err)), Advice: "see whether it can be entered"}
			}
		}
		top, covered := cover(b.plan.Mounts, dir)
		hides := covered && (top.Op == OpMask || top.Op == OpOverlay || top.Op == OpProtect)
		if len(above) > 0 || hides || len(b.Rules.AllowWrite) > 0 {
			continue
		}
		if err := b.guard.refuse(dir); err != nil {
			return err
		}
		b.add(m)
	}
	return nil
}

// submoduleRule is the rule of an unpopulated submodule that is shown through a layer.
const submoduleRule = "default: git: the host's git would use a repository that appears here"

// submodules shows each writable unpopulated submodule through a layer. A missing one
// cannot be a mount point.
func (b *builder) submodules() error {
	for _, dir := range b.Submodules {
		if b.protectedByName(dir) {
			continue
		}
		for _, w := range b.writableAbove(dir) {
			m := Mount{Op: OpOverlay, Source: dir, Rule: submoduleRule, Layer: new(overlay.Layers)}
			missing, link, err := false, "", error(nil)
			if w.Source == dir { // --allow-write has opened it
				at := slices.IndexFunc(b.plan.Mounts, func(o Mount) bool { return o.Dest == w.Dest })
				m.Dest, m.Root, m.Dev, m.Ino = w.Dest, w.Root, w.Dev, w.Ino
				b.plan.Mounts[at] = m
			} else {
				missing, link, err = b.pinned(w, m)
			}
			if missing || link != "" {
				err = unix.ENOTDIR
			}
			if err != nil {
				return &Refusal{Reason: fmt.Sprintf("cannot lay a layer over the submodule %q, which is not populated: %v", dir, cause(err)), Advice: "git submodule update --init"}
			}
		}
	}
	return nil
}

// place adds m, or lets it replace a pin that is there.
func (b *builder) place(m Mount) {
	at := slices.IndexFunc(b.plan.Mounts, func(o Mount) bool { return o.Dest == m.Dest })
	switch {
	case at < 0:
		b.add(m)
	case b.plan.Mounts[at].Op == OpPin:
		b.plan.Mounts[at] = m
	}
}

// protectLink: a link cannot be a mount point, so a command can always replace it. Its
// target is protected, if that lies in a writable root, and every writable link on the
// way is watched.
func (b *builder) protectLink(link string, p Protected) error {
	if !p.Default {
		at := Canonical(p.Path)
		if trail, _ := confine.Follow(p.Path); at == p.Path { // its target is missing
			at = trail.Place
		}
		return &Refusal{
			Reason: fmt.Sprintf("cannot protect %q: %q is a link, and can be replaced", p.Path, link),
			Advice: fmt.Sprintf("name %q itself", at),
		}
	}
	trail, _ := confine.Follow(p.Path) // an error ends the way
	for _, l := range trail.Links {
		if len(b.writableAbove(l.Place)) > 0 {
			b.watch(Watch{Path: l.Place, Link: l.Target, Rule: p.Rule, Way: p.Way})
		}
	}
	real := trail.Place // which may be missing
	if p.Link || real == p.Path {
		return nil
	}
	p.Path = real
	for _, w := range b.writableAbove(real) {
		if real == w.Source {
			continue // a root that may be written, whichever links lead to it
		}
		if err := b.protectIn(w, p); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) watch(w Watch) {
	at := slices.IndexFunc(b.plan.Watched, func(o Watch) bool { return o.Path == w.Path && o.Link == w.Link })
	if at >= 0 {
		b.plan.Watched[at].File = b.plan.Watched[at].File && w.File
		b.plan.Watched[at].Way = b.plan.Watched[at].Way && w.Way
		return
	}
	b.plan.Watched = append(b.plan.Watched, w)
}
