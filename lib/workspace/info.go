package workspace

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// fileInfo describes a file. Sys is a *unix.Stat_t, or nil in memory.
type fileInfo struct {
	name string
	size int64
	mode fs.FileMode
	time time.Time
	sys  any
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.size }
func (i *fileInfo) Mode() fs.FileMode  { return i.mode }
func (i *fileInfo) ModTime() time.Time { return i.time }
func (i *fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (i *fileInfo) Sys() any           { return i.sys }

func newInfo(name string, st *unix.Stat_t) *fileInfo {
	return &fileInfo{name, st.Size, fileMode(st.Mode), time.Unix(st.Mtim.Unix()), st}
}

// Sparse reports whether a file on disk takes less space than its size.
func Sparse(info fs.FileInfo) bool {
	st, ok := info.Sys().(*unix.Stat_t)
	return ok && st.Blocks*512 < st.Size // stat(2): blocks of 512 bytes
}

// kinds maps the kernel's file types to Go's.
var kinds = map[uint32]fs.FileMode{
	unix.S_IFREG:  0,
	unix.S_IFDIR:  fs.ModeDir,
	unix.S_IFLNK:  fs.ModeSymlink,
	unix.S_IFIFO:  fs.ModeNamedPipe,
	unix.S_IFSOCK: fs.ModeSocket,
	unix.S_IFCHR:  fs.ModeDevice | fs.ModeCharDevice,
	unix.S_IFBLK:  fs.ModeDevice,
}

func fileMode(raw uint32) fs.FileMode {
	kind, known := kinds[raw&unix.S_IFMT]
	if !known {
		kind = fs.ModeIrregular
	}
	mode := fs.FileMode(raw&0o777) | kind
	for bit, goBit := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if raw&bit != 0 {
			mode |= goBit
		}
	}
	return mode
}

// isRegular refuses all but regular files.
func isRegular(st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return ErrIsDir
	}
	return ErrNotRegular
}

// links is the number of names of a regular file, 0 for other types.
func links(st *unix.Stat_t) uint64 {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return uint64(st.Nlink)
}
