package gitconfig

import (
	"errors"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Reasons to refuse a file.
var (
	ErrNotRegular = errors.New("it is not a regular file")
	ErrTooLarge   = errors.New("it is too large")
)

// readAt reads a regular file of at most limit bytes. A command may have made it,
// so its type is checked before it is opened: open(2) alone rewinds a tape, arms a
// watchdog or waits for the other end of a FIFO. flags are O_NOFOLLOW or none.
// /dev/null reads as empty, since users name it to turn a file off.
//
// It reads no more than the file's size. A file without one, as in /proc, is empty
// here.
func readAt(dir int, name string, flags int, limit int64) ([]byte, error) {
	seen, err := fsat.Openat(dir, name, unix.O_PATH|flags, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(seen)
	var st unix.Stat_t
	if err := unix.Fstat(seen, &st); err != nil {
		return nil, err
	}
	switch {
	case isNull(st):
		return nil, nil
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, ErrNotRegular
	case st.Size > limit:
		return nil, ErrTooLarge
	case st.Size == 0:
		return nil, nil
	}
	fd, err := fsat.Openat(unix.AT_FDCWD, fsat.Path(seen), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readFull(fd, st.Size)
}

func isNull(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// readFull reads up to size bytes; a file that shrinks has fewer.
func readFull(fd int, size int64) ([]byte, error) {
	text := make([]byte, size)
	n := 0
	for n < len(text) {
		m, err := fsat.Again(func() (int, error) { return unix.Read(fd, text[n:]) })
		if err != nil {
			return nil, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return text[:n], nil
}
