package bwrap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// A command that runs now, in another sandbox of the same project or session, can rename
// files in its writable roots at any moment. So a plan identifies roots, and all files
// that it shows or hides in them, by device and inode, and the set-up program checks the
// files that it opens. If a file has been replaced, the start fails.

// hold decides which mounts are held, and identifies the files that they show. Mounts are
// sorted.
//
// Every root is held, and every mount in one, even if this plan may not write there:
// another command may, which has the same root, or one around it. System directories are
// not held: no command in a sandbox can change them.
//
// tmp is not made yet if it is made only for a valid plan.
func (p *Plan) hold(tmp string) error {
	p.tops = make([]int, len(p.Mounts))
	live := make([]bool, len(p.Mounts)) // another command can change the files that it shows
	var around []int                    // the mounts around mount i, outermost first
	for i := range p.Mounts {
		m := &p.Mounts[i]
		for len(around) > 0 && !fsat.Within(m.Dest, p.Mounts[around[len(around)-1]].Dest) {
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
		if err := p.identify(m, above, tmp); err != nil {
			return fmt.Errorf("cannot show %q (%s): %w", m.Dest, m.Rule, err)
		}
	}
	return nil
}

// Masked lists the files of the host in roots that are hidden.
func (p *Plan) Masked() (list []string) {
	for i, m := range p.Mounts {
		if m.Op != OpMask || !m.Held {
			continue
		}
		if above, ok := cover(p.Mounts[:i], m.Dest); ok {
			if host, ok := above.host(m.Dest); ok {
				list = append(list, host)
			}
		}
	}
	return list
}

// kept reports whether m shows the same file that is there without it.
func (m Mount) kept() bool { return m.Op == OpPin || m.Op == OpProtect }

// placed reports whether m can lie in a tree of the host.
func (m Mount) placed() bool {
	return m.showsHost() || m.Op == OpMask || m.Op == OpEmpty
}

// identify notes the inode that m shows, or the one that it covers if it shows no file of
// the host. The inode of a root was noted when it was opened.
func (p *Plan) identify(m *Mount, above int, tmp string) error {
	if m.Ino != 0 || m.Source == tmp && tmp != "" {
		return nil
	}
	path := m.Source
	if !m.showsHost() {
		path, _ = p.Mounts[above].host(m.Dest)
	}
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, path, unix.O_PATH, 0, fsat.NoLinks)
	if errors.Is(err, unix.ENOENT) && !m.showsHost() && p.Mounts[above].Source == tmp {
		return nil // its mount point is made in the session tmp
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	m.Dev, m.Ino = st.Dev, st.Ino
	if above >= 0 && (p.Mounts[above].Op == OpOverlay || p.Mounts[above].trial() || p.Mounts[above].lower != "" && p.Mounts[above].kept()) {
		m.lower = path
	}
	return err
}

// showsHost reports whether m shows a file or directory of the host.
func (m Mount) showsHost() bool {
	switch m.Op {
	case OpReadOnly, OpWritable, OpOverlay, OpProtect, OpPin:
		return true
	}
	return false
}
