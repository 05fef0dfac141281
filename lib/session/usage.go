package session

import (
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// maxMeasured bounds the depth of a dry run: it may not move deep directories, so each
// level costs a descriptor. Real trees end at a few dozen.
const maxMeasured = 512

// overlayWork is the directory that the kernel makes for itself in the work directory of
// an overlay, with no permissions at all.
const overlayWork = "work"

// Usage is the size of a session directory, or of its removed part.
type Usage struct {
	Entries int64 // files and directories
	Bytes   int64 // on disk; a file with a further name elsewhere is not freed and not counted

	// AtLeast says that there is more: a dry run opens no directory that it would have to
	// change first.
	AtLeast bool
}

// measure counts the content of a directory and changes nothing.
func measure(dir int) Usage {
	m := &meter{links: map[inode]uint64{}}
	m.walk(dir, "", 0)
	return m.usage
}

type meter struct {
	usage Usage
	links map[inode]uint64 // names seen of files with several
}

type inode struct{ dev, ino uint64 }

func (m *meter) walk(dir int, in string, depth int) {
	err := fsat.Each(dir, func(entry fsat.Entry) error {
		m.entry(dir, in, entry.Name, depth)
		return nil
	})
	m.usage.AtLeast = m.usage.AtLeast || err != nil
}

func (m *meter) entry(dir int, in, name string, depth int) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	m.usage.Entries++
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		m.file(&st)
		return
	}
	m.usage.Bytes += st.Blocks * 512
	n, err := openBeneath(dir, name)
	if err != nil && name == overlayWork && in == name && st.Mode&0o777 == 0 {
		return // of an overlay; at rest it holds nothing that takes space
	}
	if err != nil || depth >= maxMeasured {
		m.usage.AtLeast = true
	} else {
		m.walk(n, name, depth+1)
	}
	if err == nil {
		unix.Close(n)
	}
}

// file counts a file when its last name is removed.
func (m *meter) file(st *unix.Stat_t) {
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		m.links[key]++
		if m.links[key] < uint64(st.Nlink) { // uint32 on some processors
			return
		}
	}
	m.usage.Bytes += st.Blocks * 512
}
