// Package gitlock locks files of a git directory as git does, by a file with the name
// of the locked one and ".lock", and replaces them.
//
// Unlike git's own, a lock of a process that was killed lasts no longer than the next
// Acquire of this package.
package gitlock

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// marker begins each lock file of ours. git never reads lock files. The process that
// holds the lock has an flock(2) on it as well, which ends with the process.
const marker = "locked by pk\n"

// Lock is a lock that git respects.
type Lock struct {
	file string // the locked one
	held *os.File
}

// Acquire locks a file, whose directory exists. It waits for other processes until the
// deadline; the error is then fs.ErrExist.
func Acquire(file string, deadline time.Time) (*Lock, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f, err := create(file + ".lock")
		if errors.Is(err, fs.ErrExist) {
			f, err = takeOver(file + ".lock")
		}
		if err == nil {
			return &Lock{file, f}, nil
		}
		if !errors.Is(err, fs.ErrExist) || !time.Now().Before(deadline) {
			return nil, err
		}
		time.Sleep(pause/2 + rand.N(pause))
	}
}

// create makes a lock file. Where the file system can, it appears with its marker and
// its flock.
func create(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Dir(name), os.O_WRONLY|unix.O_TMPFILE, 0o666)
	if err == nil {
		if err = mark(f); err == nil {
			err = unix.Linkat(unix.AT_FDCWD, fsat.Path(int(f.Fd())), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
		}
		if err == nil {
			return f, nil
		}
		f.Close()
		if errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	if err := mark(f); err != nil {
		os.Remove(name)
		f.Close()
		return nil, err
	}
	return f, nil
}

func mark(f *os.File) error {
	// Some network file systems have no flock: then nobody takes the file over.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	_, err := f.WriteString(marker)
	return err
}

// takeOver opens a lock file that a process of ours left when it was killed.
func takeOver(name string) (*os.File, error) {
	other := fmt.Errorf("another git process is at work, or one ended early and left %q: %w", name, fs.ErrExist)
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, other
	}
	buf := make([]byte, len(marker)+1)
	if n, _ := f.Read(buf); string(buf[:n]) == marker && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		mine, err := f.Stat()
		now, err2 := os.Lstat(name)
		if err == nil && err2 == nil && os.SameFile(mine, now) {
			return f, nil
		}
	}
	f.Close()
	return nil, other
}

// Release ends the lock.
func (l *Lock) Release() error {
	return errors.Join(os.Remove(l.file+".lock"), l.held.Close())
}

// Replace gives the locked file a new content in one step, and a time of its last
// change unless that is zero. Its mode stays. A temporary file that a killed process
// left is overwritten.
func (l *Lock) Replace(content []byte, changed time.Time) error {
	mode := os.FileMode(0o644)
	info, err := os.Stat(l.file)
	if err == nil {
		mode = info.Mode().Perm()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, base := filepath.Split(l.file)
	temp := dir + "." + base + ".pk"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err == nil && !changed.IsZero() {
		err = os.Chtimes(temp, changed, changed)
	}
	if err == nil {
		err = os.Rename(temp, l.file)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}
