package trial

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/overlay"
)

const (
	// maxSparse bounds the bytes of a trial's files beyond the space that they take: in
	// holes, in compressed files, and in further names of one file. They cost the command
	// nothing, while pk reads them several times, and a person waits. It takes a minute.
	maxSparse = 16 << 30

	// smallFile is the size of a file up to which its name costs more than its content.
	smallFile = 64 << 10
)

var tooSparse = fmt.Sprintf("with it, the trial's files have over %d GiB more than the space that they take", maxSparse>>30)

// space counts the bytes beyond the space that files take.
type space struct {
	left int64
	seen map[[2]uint64]bool // inodes whose space is counted
}

func newSpace() *space { return &space{maxSparse, map[[2]uint64]bool{}} }

// takes counts a file, unless the sum would be over the bound. Then it returns false.
func (s *space) takes(f overlay.File) bool {
	if f.Mode&unix.S_IFMT != unix.S_IFREG || f.Size <= smallFile {
		return true
	}
	used := f.Used
	if inode := [2]uint64{f.Dev, f.Ino}; s.seen[inode] {
		used = 0
	} else {
		s.seen[inode] = true
	}
	beyond := max(f.Size-used, 0)
	if beyond > s.left {
		return false
	}
	s.left -= beyond
	return true
}

// tree counts the files below a directory.
func (s *space) tree(top string) bool {
	all := true
	_ = filepath.WalkDir(top, func(name string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(name, &st) == nil && !s.takes(fileOf(&st)) {
			all = false
			return filepath.SkipAll
		}
		return nil
	})
	return all
}

func fileOf(st *unix.Stat_t) overlay.File {
	return overlay.File{Mode: st.Mode, Size: st.Size, Used: st.Blocks * 512, Dev: st.Dev, Ino: st.Ino}
}
