// Package gitlock locks files of a git directory as git does, by a file with the name
// of the locked one and ".lock", and replaces them.
//
// Unlike git's own, a lock of a process that was killed lasts no longer than the next
// Acquire or Sweep of this package.
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

// marker begins each lock file of pk. git never reads lock files. The process that
// holds the lock has an flock(2) on it as well, which ends with the process.
const marker = "locked by pk\n"

// Lock is a lock that git respects.
type Lock struct {
	Sharing Sharing // of a new version
	file    string  // the locked one
	held    *os.File
}

// Step is called before each change. Tests end the process there.
var Step = func(name string) {}

// heldError is a lock that another process has. It is fs.ErrExist.
type heldError string

func (e heldError) Error() string {
	return fmt.Sprintf("%q exists: another git process is at work, or one ended early; in that case remove the file", string(e))
}

func (heldError) Is(target error) bool { return target == fs.ErrExist }

// Acquire locks a file, whose directory exists. It waits for other processes until the
// deadline; the error is then fs.ErrExist.
func Acquire(file string, deadline time.Time) (*Lock, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f, err := create(file + ".lock")
		if errors.Is(err, fs.ErrExist) {
			if f, err = takeOver(file+".lock"), nil; f == nil {
				err = heldError(file + ".lock")
			}
		}
		if err == nil {
			return &Lock{file: file, held: f}, nil
		}
		if !errors.Is(err, fs.ErrExist) || !time.Now().Before(deadline) {
			return nil, err
		}
		time.Sleep(pause/2 + rand.N(pause))
	}
}

// Sweep removes the lock of a killed process of pk, and its temporary file.
func Sweep(file string) {
	if f := takeOver(file + ".lock"); f != nil {
		os.Remove(temporary(file))
		_ = (&Lock{file: file, held: f}).Release()
	}
}

// create makes a lock file. Where the file system can, it appears with its marker and
// its flock.
func create(name string) (*os.File, error) {
	Step("lock")
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
	// Some network file systems have no flock: then no process takes the file over.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	_, err := f.WriteString(marker)
	return err
}

// takeOver opens a lock file that a killed process of pk left. It returns nil for any
// other file.
func takeOver(name string) *os.File {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	buf := make([]byte, len(marker)+1)
	if n, _ := f.Read(buf); string(buf[:n]) == marker && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		mine, err := f.Stat()
		now, err2 := os.Lstat(name)
		if err == nil && err2 == nil && os.SameFile(mine, now) {
			return f
		}
	}
	f.Close()
	return nil
}

// Release ends the lock.
func (l *Lock) Release() error {
	Step("unlock")
	return errors.Join(os.Remove(l.file+".lock"), l.held.Close())
}

// Replace gives the locked file a new content.
func (l *Lock) Replace(content []byte, changed time.Time) error {
	return Replace(l.file, content, changed, l.Sharing)
}

// Replace gives a file a new content in one step, and a time of its last change unless
// that is zero. The caller has its lock, or that of the ref whose log it is. The mode of
// a regular file stays, as far as the sharing leaves it. A temporary file that a
// killed process left is overwritten: git reads no file below refs whose name begins
// with a dot.
func Replace(file string, content []byte, changed time.Time, s Sharing) error {
	mode := os.FileMode(0o666)
	old, err := os.Lstat(file)
	keep := err == nil && old.Mode().IsRegular()
	if keep {
		mode = old.Mode().Perm()
	}
	temp := temporary(file)
	Step("write")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	if keep {
		err = f.Chmod(mode)
	}
	if err == nil && !(keep && s == (Sharing{})) {
		err = s.Share(f)
	}
	if err == nil {
		_, err = f.Write(content)
	}
	if err = errors.Join(err, f.Close()); err == nil && !changed.IsZero() {
		err = os.Chtimes(temp, changed, changed)
	}
	if err == nil {
		Step("rename")
		err = os.Rename(temp, file)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

func temporary(file string) string {
	dir, base := filepath.Split(file)
	return dir + "." + base + ".pk"
}
