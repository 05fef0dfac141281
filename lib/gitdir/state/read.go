package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	maxFile  = 16 << 20 // a patch that stopped a rebase is the largest
	maxDir   = 64 << 20
	maxFiles = 10_000 // mails of git am
)

// readLayer reads a name of the upper layer, once.
func (l *lander) readLayer(it item) (content, error) {
	st, err := fsat.Lstat(l.upper, it.name)
	switch {
	case err == unix.ENOENT:
		return content{}, nil
	case err != nil:
		return content{}, refusal{fmt.Errorf("cannot look at it: %w", err)}
	case isWhiteout(st):
		return content{kind: absent}, nil
	case it.files == nil:
		data, _, err := readFile(l.upper, it.name)
		if err != nil {
			return content{}, refusal{err}
		}
		return content{kind: file, data: data}, nil
	}
	fd, err := fsat.Openat(l.upper, it.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return content{}, refusal{fmt.Errorf("cannot open the directory: %w", err)}
	}
	defer unix.Close(fd)
	c := content{kind: directory, opaque: isOpaque(fd)}
	if c.files, _, err = readDir(fd); err != nil {
		return content{}, refusal{err}
	}
	return c, nil
}

// readHost reads a name of the host's git directory, and when it was changed last.
func (l *lander) readHost(it item) (content, time.Time, error) {
	st, err := fsat.Lstat(l.host, it.name)
	if err == unix.ENOENT {
		return content{kind: absent}, time.Time{}, nil
	}
	if err != nil {
		return content{}, time.Time{}, err
	}
	changed := time.Unix(st.Ctim.Unix())
	switch {
	case it.files == nil && st.Mode&unix.S_IFMT == unix.S_IFREG:
		data, changed, err := readFile(l.host, it.name)
		if err != nil {
			return content{}, changed, refusal{fmt.Errorf("on the host: %w", err)}
		}
		return content{kind: file, data: data}, changed, nil
	case it.files == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return content{kind: foreign}, changed, nil // a rename replaces it
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || it.files == nil:
		return content{}, changed, refusal{errors.New("the host has another kind of file there")}
	}
	fd, err := fsat.Openat(l.host, it.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return content{}, changed, err
	}
	defer unix.Close(fd)
	files, last, err := readDir(fd)
	if err != nil {
		return content{}, changed, refusal{fmt.Errorf("on the host: %w", err)}
	}
	if last.After(changed) {
		changed = last
	}
	return content{kind: directory, files: files}, changed, nil
}

// readDir reads the files of a directory, and when the last of them was changed. A
// whiteout is a nil.
func readDir(dir int) (files map[string][]byte, last time.Time, err error) {
	files = map[string][]byte{}
	total := 0
	err = fsat.Each(dir, func(entry fsat.Entry) error {
		st, err := fsat.Lstat(dir, entry.Name)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%q: %w", entry.Name, err)
		}
		if isWhiteout(st) {
			files[entry.Name] = nil
			return nil
		}
		data, changed, err := readFile(dir, entry.Name)
		if err != nil {
			return fmt.Errorf("%q: %w", entry.Name, err)
		}
		if changed.After(last) {
			last = changed
		}
		files[entry.Name] = data
		if total += len(data); total > maxDir || len(files) > maxFiles {
			return errors.New("it is too large")
		}
		return nil
	})
	return files, last, err
}

// readFile reads a regular file and when it was changed. The content is never nil.
func readFile(dir int, name string) ([]byte, time.Time, error) {
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err == unix.ELOOP {
		return nil, time.Time{}, errors.New("it is a link")
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("cannot open it: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, time.Time{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, time.Time{}, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("it is too large")
	}
	return data, time.Unix(st.Ctim.Unix()), err
}

// isWhiteout reports whether an overlay made the file to hide a name.
func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func isOpaque(dir int) bool {
	var value [2]byte
	n, err := unix.Fgetxattr(dir, "user.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}
