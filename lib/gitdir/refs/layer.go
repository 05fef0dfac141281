package refs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	// Bounds of files of a layer. git's own stay far below them.
	maxRef    = 4 << 10
	maxPacked = 128 << 20
	maxLog    = 32 << 20

	// maxDepth bounds the parts of a ref's name: each directory on the way is open.
	maxDepth = 64

	// maxEntries bounds the files that are read below refs, and the refs that may
	// have changed.
	maxEntries = 1 << 18
)

// layer is an overlay's upper directory, without the lower one. All of it was
// made by a command.
type layer struct{ fd int }

// file is what a layer has at a path.
type file struct {
	data   string
	exists bool
	hidden bool // the host's file of this path is not seen
}

// read returns a regular file of at most limit bytes. Its error is about what the
// layer has there, and no reason to stop.
func (l layer) read(name string, limit int64) (file, error) {
	dir, hidden, err := l.open(path.Dir(name))
	if err != nil || dir < 0 {
		return file{hidden: hidden}, err
	}
	defer unix.Close(dir)
	st, err := fsat.Lstat(dir, path.Base(name))
	switch {
	case errors.Is(err, unix.ENOENT):
		return file{hidden: hidden}, nil
	case err != nil:
		return file{}, err
	case whiteout(st):
		return file{hidden: true}, nil
	}
	data, err := readFile(dir, path.Base(name), st, limit)
	return file{data, err == nil, true}, err
}

// open opens a directory, or returns -1 if there is none. hidden: the host's
// files below it are not seen.
func (l layer) open(name string) (fd int, hidden bool, err error) {
	fd, err = fsat.Reopen(l.fd, unix.O_RDONLY)
	if err != nil {
		return -1, false, err
	}
	for part := range strings.SplitSeq(name, "/") {
		hidden = hidden || opaque(fd)
		if part == "." {
			continue
		}
		next, err := openDir(fd, part)
		if errors.Is(err, unix.ENOTDIR) {
			if st, err := fsat.Lstat(fd, part); err == nil && whiteout(st) {
				unix.Close(fd)
				return -1, true, nil
			}
		}
		unix.Close(fd)
		if errors.Is(err, unix.ENOENT) {
			return -1, hidden, nil
		}
		if err != nil {
			return -1, true, fmt.Errorf("cannot open the directory %q: %w", part, err)
		}
		fd = next
	}
	return fd, hidden || opaque(fd), nil
}

// openDir opens a directory for reading, and fails with ENOTDIR at a link.
func openDir(dir int, name string) (int, error) {
	return fsat.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// whiteout reports whether a file stands for one that the command has removed.
func whiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// opaque reports whether a directory hides the host's of the same path. The
// attribute is in the namespace user, as pk mounts with userxattr. The command
// cannot set it: the kernel stores its own attributes of this name under another.
func opaque(fd int) bool {
	buf := make([]byte, 2)
	n, err := unix.Fgetxattr(fd, "user.overlay.opaque", buf)
	return err == nil && n == 1 && buf[0] == 'y'
}

// readFile reads a file once. O_NONBLOCK is for a FIFO that a command puts there
// after st was taken, and for a file with a lease on it.
func readFile(dir int, name string, st *unix.Stat_t, limit int64) (string, error) {
	if err := regular(st, limit); err != nil {
		return "", err
	}
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", fmt.Errorf("cannot open it: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return "", err
	}
	if err := regular(&now, limit); err != nil {
		return "", err
	}
	var out strings.Builder
	out.Grow(int(now.Size))
	n, err := io.Copy(&out, io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = errTooBig
	}
	return out.String(), err
}

var errTooBig = errors.New("it is too big")

func regular(st *unix.Stat_t, limit int64) error {
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return errors.New("it is a symbolic link")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is no regular file")
	case st.Size > limit:
		return errTooBig
	}
	return nil
}
