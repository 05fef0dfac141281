package trial

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// before is the names that a root had when its trial began, and its directories. The
// ctime of a file tells whether it has changed since, but neither which files there were
// nor which entries of a directory have changed.
//
// The file has records that end in NUL: for each directory "/DEV INO MODE PATH", and then
// "-NAME" for each of its entries. It has none for git directories: nothing lands there
// by name.
type before struct {
	dirs map[string]*dirBefore // by path relative to the root, which is "."
}

// dirBefore is a directory as it was.
type dirBefore struct {
	dev, ino uint64
	mode     uint32
	names    map[string]bool
}

// maxDepth bounds the directories that are open at once. Deeper ones are not noted: a
// change there is a conflict if the ctime is later.
const maxDepth = 200

// noteNames returns the names in an open directory and below, and a directory with attributes by which the
// trial may see fewer. It notes in b a directory whose group is not the user's.
func noteNames(dir int, st *unix.Stat_t, b *began) (names []byte, hidden string, err error) {
	n := &noting{began: b, gid: uint32(os.Getegid())}
	err = n.directory(dir, st, ".", maxDepth)
	return n.out.Bytes(), n.hidden, err
}

type noting struct {
	out   bytes.Buffer
	began *began
	gid   uint32

	// hidden is a directory that has the attribute user.overlay.opaque, or "". With it the kernel takes
	// files that have user.overlay.whiteout for removed, since Linux 6.7.
	hidden string
}

// directory notes a directory, which is open for reading, and those below it.
func (n *noting) directory(dir int, st *unix.Stat_t, rel string, depth int) error {
	if st.Gid != n.gid && n.began.Foreign == "" && os.Geteuid() != 0 {
		n.began.Foreign = filepath.Join(n.began.Path, rel)
	}
	if size, err := unix.Fgetxattr(dir, opaqueName, make([]byte, 1)); n.hidden == "" && (size == 1 || err == unix.ERANGE) {
		n.hidden = filepath.Join(n.began.Path, rel)
	}
	fmt.Fprintf(&n.out, "/%d %d %o %s\x00", st.Dev, st.Ino, st.Mode, rel)
	var below []string
	err := fsat.Each(dir, func(e fsat.Entry) error {
		n.out.WriteByte('-')
		n.out.WriteString(e.Name)
		n.out.WriteByte(0)
		if (e.Type == unix.DT_DIR || e.Type == unix.DT_UNKNOWN) && e.Name != ".git" {
			below = append(below, e.Name)
		}
		return nil
	})
	if err != nil || depth == 0 {
		return err
	}
	for _, name := range below {
		sub, err := fsat.Kernel().Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.SameMount)
		if err != nil {
			continue // it is gone, no directory, or closed to the user and so to the commands
		}
		var st unix.Stat_t
		if err = unix.Fstat(sub, &st); err == nil {
			err = n.directory(sub, &st, path.Join(rel, name), depth-1)
		}
		unix.Close(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

// beginning reads the names, once.
func (r *Root) beginning() error {
	if r.before != nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(r.Dir, namesFile))
	if errors.Is(err, os.ErrNotExist) {
		r.before = &before{}
		return nil
	} else if err != nil {
		return err
	}
	b := &before{dirs: map[string]*dirBefore{}}
	var dir *dirBefore
	for record := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		if name, ok := strings.CutPrefix(record, "-"); ok && dir != nil {
			dir.names[name] = true
			continue
		}
		dir = &dirBefore{names: map[string]bool{}}
		var at string
		fields := strings.SplitN(record, " ", 4)
		if len(fields) == 4 {
			at = fields[3]
		}
		if _, err := fmt.Sscanf(record, "/%d %d %o ", &dir.dev, &dir.ino, &dir.mode); err != nil || at == "" {
			return fmt.Errorf("cannot read the names of the trial's beginning in %q", r.Dir)
		}
		b.dirs[at] = dir
	}
	r.before = b
	return nil
}

// had reports whether the root had a path.
func (b *before) had(rel string) bool {
	if rel == "." {
		return true
	}
	dir := b.dirs[path.Dir(rel)]
	return dir != nil && dir.names[path.Base(rel)]
}

// same reports whether a directory of the root is still the one noted at the beginning.
func (b *before) same(rel string, dev, ino uint64) bool {
	dir := b.dirs[rel]
	return dir != nil && dir.dev == dev && dir.ino == ino
}
