// Package overlay reads an overlay's upper layer, and other files that a command may
// have made and may be changing: it tells whiteouts and opaque directories, and reads
// a regular file once.
package overlay

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Reasons not to read a file.
var (
	ErrNotRegular = errors.New("it is not a regular file")
	ErrTooLarge   = errors.New("it is too large")
)

// linkError is a symbolic link where none is followed. It is unix.ELOOP.
type linkError struct{}

func (linkError) Error() string        { return "it is a symbolic link" }
func (linkError) Is(target error) bool { return target == unix.ELOOP }

// IsWhiteout reports whether a file stands for one of the lower layer that the command
// has removed.
func IsWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// IsOpaque reports whether an open directory hides the lower layer's of the same path,
// and all below it. The attribute is in the namespace user, as pk mounts with userxattr.
// The command cannot set it: the kernel stores its own attributes of this name under
// another.
func IsOpaque(dir int) bool {
	var value [2]byte
	n, err := unix.Fgetxattr(dir, "user.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

// Open opens for reading the regular file that seen, an O_PATH descriptor, refers to,
// and closes seen. The type is checked first: open(2) alone rewinds a tape, arms a
// watchdog or waits for the other end of a FIFO. A write lease makes it fail with EAGAIN.
func Open(seen int) (*os.File, *unix.Stat_t, error) {
	fd, st, err := open(seen)
	if err != nil {
		return nil, st, err
	}
	return os.NewFile(uintptr(fd), ""), st, nil
}

// open is Open. A descriptor costs half as many system calls as an os.File.
func open(seen int) (int, *unix.Stat_t, error) {
	defer unix.Close(seen)
	st := new(unix.Stat_t)
	if err := unix.Fstat(seen, st); err != nil {
		return -1, nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return -1, st, linkError{}
	default:
		return -1, st, ErrNotRegular
	}
	fd, err := fsat.Openat(unix.AT_FDCWD, fsat.Path(seen), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	return fd, st, err
}

// Read reads the file that Open opens, if it has at most limit bytes. It reads no more
// than the size that the file has at first, so a file of /proc is empty. The content is
// nil only with an error.
func Read(seen int, limit int64) ([]byte, *unix.Stat_t, error) {
	f, st, err := Open(seen)
	if err != nil {
		return nil, st, err
	}
	defer f.Close()
	if st.Size > limit {
		return nil, st, ErrTooLarge
	}
	data := make([]byte, st.Size)
	n, err := io.ReadFull(f, data)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, st, err
	}
	return data[:n], st, nil
}

// ReadFile is Read of a name in a directory. flags are O_NOFOLLOW or none.
func ReadFile(dir int, name string, flags int, limit int64) ([]byte, *unix.Stat_t, error) {
	seen, err := fsat.Openat(dir, name, unix.O_PATH|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	return Read(seen, limit)
}
