package state

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
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
	case overlay.IsWhiteout(st):
		return content{kind: absent}, nil
	case it.files == nil:
		data, _, err := overlay.ReadFile(l.upper, it.name, unix.O_NOFOLLOW, maxFile)
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
	c := content{kind: directory, opaque: overlay.IsOpaque(fd)}
	if c.files, _, err = readDir(fd); err != nil {
		return content{}, refusal{err}
	}
	return c, nil
}

// readHost reads a name of the host's git directory, and the time of its last change.
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
		data, _, err := overlay.ReadFile(l.host, it.name, unix.O_NOFOLLOW, maxFile)
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

// readDir reads the files of a directory, and the time of the last change of any. A
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
		if overlay.IsWhiteout(st) {
			files[entry.Name] = nil
			return nil
		}
		data, now, err := overlay.ReadFile(dir, entry.Name, unix.O_NOFOLLOW, maxFile)
		if err != nil {
			return fmt.Errorf("%q: %w", entry.Name, err)
		}
		if changed := time.Unix(now.Ctim.Unix()); changed.After(last) {
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
