package bwrap

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A command that runs now, in another sandbox of the same project or session, or
// of a directory around it, may rename what lies in its writable roots at any
// moment. Roots, and what a plan shows or hides in them, are therefore held: they
// are identified by device and inode, and mounted by descriptor. A place that has
// become something else makes the start fail; nothing is ever mounted through a
// link, and nothing is made.

var errChanged = errors.New("it has changed since it was checked")

// What stands for an identity where there is none.
const (
	unmade = "0:0" // of a directory of pk's own, which may be made after the plan
	unseen = "-"   // of what no command can change; there may be links on the way
)

// identity is how a held inode is written down.
func identity(dev, ino uint64) string { return fmt.Sprintf("%d:%d", dev, ino) }

// openHeld opens what path names if that is still the same inode, reached
// without a link.
func openHeld(path, identity string) (int, error) {
	if identity == unseen {
		return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
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

// openNoLinks opens a path in which no name is a link, in one call: a plan has
// dozens. Kernels without openat2 (before 5.6) lack what the stage needs anyway.
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
	if seen != unmade && seen != unseen && identity(st.Dev, st.Ino) != seen {
		return errChanged
	}
	return nil
}

// hold decides which mounts are held, and identifies what they show. Mounts are
// sorted.
//
// Whether this plan may write in a root says nothing: another command may, which
// has the same root, or one around it. So every root is held, and all that is
// mounted in one. System directories are not: nobody who runs commands in a
// sandbox can change them.
//
// The playground may be one that is not made before the plan is known to be good.
func (p *Plan) hold(playground string) error {
	p.tops = make([]int, len(p.Mounts))
	live := make([]bool, len(p.Mounts)) // what it shows is another command's to change
	var around []int                    // the mounts around the one looked at, outermost first
	for i := range p.Mounts {
		m := &p.Mounts[i]
		for len(around) > 0 && !within(m.Dest, p.Mounts[around[len(around)-1]].Dest) {
			around = around[:len(around)-1]
		}
		above := -1
		if len(around) > 0 {
			above = around[len(around)-1]
		}
		around = append(around, i)
		inside := above >= 0 && live[above] && m.placed()
		m.Held, p.tops[i] = inside || m.Root, i
		if inside {
			p.tops[i] = p.tops[above]
		}
		live[i] = m.showsHost() && m.Held
		if !m.Held {
			continue
		}
		if err := p.identify(m, above, playground); err != nil {
			return fmt.Errorf("cannot show %q (%s): %w", m.Dest, m.Rule, err)
		}
	}
	return nil
}

// kept reports whether m shows what is there without it.
func (m Mount) kept() bool { return m.Op == OpPin || m.Op == OpProtect }

// placed reports whether m is of a kind that the stage can mount in a tree.
func (m Mount) placed() bool {
	return m.showsHost() || m.Op == OpMask || m.Op == OpEmpty
}

// identify notes the inode that m shows, or for what shows nothing of the host,
// the one that it covers. A root's was noted when it was opened.
func (p *Plan) identify(m *Mount, above int, playground string) error {
	if m.Ino != 0 || m.Source == playground && playground != "" {
		return nil
	}
	path := m.Source
	if !m.showsHost() {
		path, _ = p.Mounts[above].host(m.Dest)
	}
	fd, err := openNoLinks(path)
	if errors.Is(err, unix.ENOENT) && !m.showsHost() && p.Mounts[above].Source == playground {
		return nil // its mount point is made in the playground
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	m.Dev, m.Ino = st.Dev, st.Ino
	if above >= 0 && (p.Mounts[above].Op == OpOverlay || p.Mounts[above].lower != "" && p.Mounts[above].kept()) {
		m.lower = path
	}
	return err
}

// showsHost reports whether m shows something of the host at all.
func (m Mount) showsHost() bool {
	switch m.Op {
	case OpReadOnly, OpWritable, OpOverlay, OpProtect, OpPin:
		return true
	}
	return false
}

// below is the place of m relative to the top of its tree.
func (m Mount) below(top Mount) string {
	return strings.TrimPrefix(strings.TrimPrefix(m.Dest, top.Dest), "/")
}

// job is what the stage has to do for the tree of mount i: the tree itself, and
// what is held in it.
func (p *Plan) job(i int) []string {
	top := p.Mounts[i]
	return append([]string{jobTree, top.Source, identity(top.Dev, top.Ino), top.mode()}, p.heldIn(i, top)...)
}

// heldIn is the part of a job for what is held in mount i, which is or lies in the
// tree top.
func (p *Plan) heldIn(i int, top Mount) []string {
	var words []string
	around := p.Mounts[i]
	for j := i + 1; j < len(p.Mounts); j++ {
		if m := p.Mounts[j]; m.Held && p.tops[j] == i {
			if at := p.shownAt(m); m.Op == OpOverlay && at != "" {
				words = append(words, jobBind, m.below(top), at, unmade, "as")
				continue
			}
			words = append(words, m.words(m.below(top), filepath.Join(around.Source, m.below(around)))...)
		}
	}
	return words
}

// rootfs tells which mounts the stage makes as one: those that show the host, and
// empty directories, as far as only empty directories are around them, and what is
// hidden in them; and /dev. What bwrap alone can make, /proc, links and files, it
// makes in them, and on them.
func (p *Plan) rootfs() []bool {
	in := make([]bool, len(p.Mounts))
	for i, m := range p.Mounts {
		above := coveredBy(p.Mounts[:i], m.Dest)
		switch m.Op {
		case OpMask:
			in[i] = p.tops[i] == i && above >= 0 && in[above] && p.Mounts[above].showsHost()
		case OpReadOnly, OpWritable, OpOverlay, OpEmpty, OpDev:
			in[i] = m.Dest != "/" && p.tops[i] == i && (above < 0 || in[above] && p.Mounts[above].Op == OpEmpty)
		}
	}
	return in
}

// rootfsJob is the job for all that. staging is where the stage works: a tree that
// is shown may hold it, with what has been mounted there by then.
func (p *Plan) rootfsJob(in []bool, staging string) []string {
	root := Mount{Dest: "/"}
	words := []string{jobFresh, "0755", strconv.Itoa(tmpSize)}
	for i, m := range p.Mounts {
		if !in[i] {
			continue
		}
		place, at := m.below(root), p.shownAt(m)
		switch {
		case m.Op == OpMask && m.Blank && !m.Dir:
			words = append(words, jobBlank, place, unseen)
		case m.Op == OpMask:
			words = append(words, jobHide, place, unseen)
		case m.Op == OpDev:
			words = append(words, jobDev, place, strconv.FormatInt(m.Size, 10), "ro")
		case m.Op == OpEmpty:
			words = append(words, jobEmpty, place, unseen, m.Perms, strconv.FormatInt(m.Size, 10))
		case m.Held:
			words = append(words, jobBind, place, m.Source, identity(m.Dev, m.Ino), m.mode())
			words = append(words, p.heldIn(i, root)...)
		case m.Op != OpOverlay:
			words = append(words, jobBind, place, m.Source, unseen, m.mode())
		case at != "":
			words = append(words, jobBind, place, at, unmade, "as") // the keeper has seen to the rest
		default:
			words = append(words, jobOver, place, m.Source)
		}
		if m.showsHost() && within(staging, m.Source) {
			words = append(words, jobHide, filepath.Join(place, strings.TrimPrefix(staging, m.Source)), unseen)
		}
	}
	return words
}

// mode is the last word of a tree's or a place's part of a job.
func (m Mount) mode() string {
	if m.Own {
		return "own"
	}
	if m.Op == OpReadOnly || m.Op == OpProtect {
		return "ro"
	}
	return "rw"
}

// words is m as a part of a job. itself is the host's path of its place.
func (m Mount) words(place, itself string) []string {
	is, same := identity(m.Dev, m.Ino), []string(nil)
	// A part of a read-only root that is written is taken from the host: the tree
	// that it is put into cannot be written.
	if m.showsHost() && m.Op != OpOverlay && (m.Source != itself || m.Op == OpWritable) {
		return []string{jobBind, place, m.Source, is, m.mode()}
	}
	// What is there is not what was seen, if an overlay is around it: the host is
	// asked for that.
	if m.lower != "" {
		is, same = unmade, []string{jobSame, m.lower, is}
	}
	words := []string{jobKeep, place, is, m.mode()}
	switch m.Op {
	case OpMask:
		words = []string{jobHide, place, is}
	case OpEmpty:
		words = []string{jobEmpty, place, is, m.Perms, fmt.Sprint(m.Size)}
	case OpOverlay:
		words = []string{jobLay, place, is}
	}
	return append(words, same...)
}
