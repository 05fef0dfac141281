package quarantine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Linked is a protected file with several hard links: a command can write it by another
// one, which no mount on this one prevents.
type Linked struct {
	Path     string `json:"path"`
	Mode     uint32 `json:"mode"`
	Dev, Ino uint64
	Ctime    int64  // in nanoseconds
	Content  []byte `json:"content,omitempty"`
	Whole    bool   `json:"whole,omitempty"` // Content is the file's
}

// Limits of the search and of each copy.
const (
	maxLinked  = 1 << 20 // bytes of a file that are kept
	maxEntries = 4096    // below one protected directory
)

// LinkedBelow returns the files with several hard links at path, which is a file or
// a directory.
func LinkedBelow(path string) ([]Linked, error) {
	var list []Linked
	entries := 0
	err := filepath.WalkDir(path, func(name string, entry os.DirEntry, err error) error {
		if entries++; entries > maxEntries {
			return fmt.Errorf("there are more than %d entries in %q: hard links among the others are not watched", maxEntries, path)
		}
		if err != nil || entry.IsDir() || !entry.Type().IsRegular() {
			return nil // git and other tools cannot read it now either
		}
		var st unix.Stat_t
		if unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 {
			l := Linked{Path: name, Mode: st.Mode & 0o777, Dev: st.Dev, Ino: st.Ino, Ctime: st.Ctim.Nano()}
			l.Content, l.Whole = read(name, &st)
			list = append(list, l)
		}
		return nil
	})
	return list, err
}

// read returns the content of a file of that inode, if it is small and can be read:
// the holder of a lease can prevent that.
func read(name string, st *unix.Stat_t) ([]byte, bool) {
	seen, err := fsat.Kernel().Open(unix.AT_FDCWD, name, unix.O_PATH, 0, fsat.NoLinks)
	if err != nil {
		return nil, false
	}
	content, now, err := overlay.Read(seen, maxLinked)
	return content, err == nil && fsat.SameInode(now, st)
}

// changed reports whether the file was written. Another inode at its name was put there on
// the host: the command can replace it only after that, when the kernel has taken away the
// mount that covered it.
func (l Linked) changed() bool {
	var st unix.Stat_t
	if unix.Lstat(l.Path, &st) != nil || st.Dev != l.Dev || st.Ino != l.Ino {
		return false
	}
	if !l.Whole {
		return st.Ctim.Nano() != l.Ctime
	}
	content, whole := read(l.Path, &st)
	return !whole || !bytes.Equal(content, l.Content)
}

// restore makes a file of the kept content at the name, which is free now.
func (l Linked) restore() error {
	if !l.Whole {
		return fmt.Errorf("cannot put %q back as it was: its content was not kept, as it is larger than %d bytes or could not be read", l.Path, maxLinked)
	}
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, filepath.Dir(l.Path), unix.O_PATH|directory, 0, fsat.NoLinks)
	if err != nil {
		return fmt.Errorf("cannot put %q back as it was: %w", l.Path, err)
	}
	defer unix.Close(dir)
	undo := allow(dir)
	defer undo()
	fd, err := fsat.Openat(dir, filepath.Base(l.Path), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, l.Mode)
	if err != nil {
		return fmt.Errorf("cannot put %q back as it was: %w", l.Path, err)
	}
	file := os.NewFile(uintptr(fd), l.Path)
	_, err = file.Write(l.Content)
	if err = errors.Join(err, file.Chmod(os.FileMode(l.Mode)), file.Close()); err != nil {
		return fmt.Errorf("cannot put %q back as it was: %w", l.Path, err)
	}
	return nil
}
