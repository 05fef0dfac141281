package bwrap

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A command that runs now, in another sandbox of the same project or session,
// may rename what lies in its writable roots at any moment. What a plan shows
// there, or shows from there, is therefore held: it is identified by device and
// inode when the plan is made, and mounted by descriptor. A place that has
// become something else makes the start fail; nothing is ever mounted through a
// link, and nothing is made.

var errChanged = errors.New("it has changed since it was checked")

// unmade is the identity of a directory of pk's own that is made after the plan.
const unmade = "0:0"

// identity is how a held inode is written down.
func identity(dev, ino uint64) string { return fmt.Sprintf("%d:%d", dev, ino) }

// openHeld opens what path names if that is still the same inode, reached
// without a link.
func openHeld(path, identity string) (int, error) {
	fd, err := openNoLinks(path)
	if err != nil {
		return -1, err
	}
	if err := isStill(fd, identity); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openNoLinks opens a path in which no name is a link. Kernels without openat2
// (before 5.6) lack what the stage needs anyway.
func openNoLinks(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// isStill compares the open file with what was seen when the plan was made.
func isStill(fd int, seen string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if seen != unmade && identity(st.Dev, st.Ino) != seen {
		return errChanged
	}
	return nil
}

// hold marks the mounts that have to be made by descriptor, and identifies what
// they show. Mounts are sorted.
//
// The playground may be one that is not made before the plan is known to be good.
func (p *Plan) hold(playground string) error {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if !p.exposed(p.Mounts[:i], *m) {
			continue
		}
		m.Held = true
		if m.Op == OpMask || m.Op == OpEmpty {
			continue // it shows nothing of the host
		}
		if err := p.identify(m); err != nil {
			return fmt.Errorf("cannot show %q (%s): %w", m.Dest, m.Rule, err)
		}
	}
	return p.holdTops(playground)
}

// holdTops identifies the trees in which something is held: older versions of
// bwrap get them from the stage.
func (p *Plan) holdTops(playground string) error {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; !m.Held && p.isTop(i) {
			err := p.identify(m)
			if err != nil && !(m.Source == playground && errors.Is(err, unix.ENOENT)) {
				return fmt.Errorf("cannot show %q (%s): %w", m.Dest, m.Rule, err)
			}
		}
	}
	return nil
}

func (p *Plan) identify(m *Mount) error {
	fd, err := openNoLinks(m.Source)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	m.Dev, m.Ino = st.Dev, st.Ino
	return err
}

// exposed reports whether a command could change the place of m, or what m
// shows, while the sandbox is made. before are the mounts that come first.
func (p *Plan) exposed(before []Mount, m Mount) bool {
	if above, ok := cover(before, m.Dest); ok && above.alive() && m.Op != OpLink {
		return true
	}
	for _, w := range p.Mounts {
		if w.Op == OpWritable && m.Source != w.Source && within(m.Source, w.Source) && m.showsHost() {
			return true
		}
	}
	return false
}

// alive reports whether the tree that m shows is one that a command in another
// sandbox can change.
func (m Mount) alive() bool { return m.Op == OpWritable || m.Op == OpPin }

// showsHost reports whether m shows something of the host at all.
func (m Mount) showsHost() bool {
	switch m.Op {
	case OpReadOnly, OpWritable, OpOverlay, OpProtect, OpPin:
		return true
	}
	return false
}

// isTop reports whether mount i is the tree in which other mounts are held.
func (p *Plan) isTop(i int) bool {
	for j := i + 1; j < len(p.Mounts); j++ {
		if p.Mounts[j].Held && p.topOf(j) == i {
			return true
		}
	}
	return false
}

// topOf returns the index of the mount in whose tree mount j is held: the first
// above it that is not itself held in another tree; or j itself.
func (p *Plan) topOf(j int) int {
	above := -1
	for i := range p.Mounts[:j] {
		if within(p.Mounts[j].Dest, p.Mounts[i].Dest) && (above < 0 || len(p.Mounts[i].Dest) >= len(p.Mounts[above].Dest)) {
			above = i
		}
	}
	if above < 0 || !p.Mounts[above].alive() {
		return j
	}
	return p.topOf(above)
}

// below is the place of m relative to the top of its tree.
func (m Mount) below(top Mount) string {
	return strings.TrimPrefix(strings.TrimPrefix(m.Dest, top.Dest), "/")
}

// job is what the stage has to do for the tree of mount i: the tree itself, and
// what is held in it.
func (p *Plan) job(i int) []string {
	top := p.Mounts[i]
	words := []string{jobTree, top.Source, identity(top.Dev, top.Ino)}
	for j := i + 1; j < len(p.Mounts); j++ {
		if m := p.Mounts[j]; m.Held && p.topOf(j) == i {
			words = append(words, m.words(m.below(top), filepath.Join(top.Source, m.below(top)))...)
		}
	}
	return words
}

// words is m as a part of a job. itself is the host's path of its place.
func (m Mount) words(place, itself string) []string {
	access := "rw"
	if m.Op == OpReadOnly || m.Op == OpProtect {
		access = "ro"
	}
	switch m.Op {
	case OpMask:
		return []string{jobHide, place}
	case OpEmpty:
		return []string{jobEmpty, place, m.Perms, fmt.Sprint(m.Size)}
	case OpOverlay:
		return []string{jobLay, place, identity(m.Dev, m.Ino)}
	}
	if m.Source == itself {
		return []string{jobKeep, place, identity(m.Dev, m.Ino), access}
	}
	return []string{jobBind, place, m.Source, identity(m.Dev, m.Ino), access}
}
