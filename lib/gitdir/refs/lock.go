package refs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long all changes of one Apply together wait for locks of other
// processes. git itself waits 0.1 s for a ref and 1 s for packed-refs.
const patience = 2 * time.Second

// marker begins each lock file of ours. git never reads lock files. The process
// that holds the lock has an flock(2) on it as well, which SIGKILL releases: then
// the next process takes the file over.
const marker = "locked by pk\n"

// lock is a lock on a file that git respects: the file's name with ".lock".
type lock struct {
	file string // the locked one
	held *os.File
}

// step is called before each change of the host's files. Tests end the process
// there.
var step = func(name string) {}

// acquire locks a file, whose directory is made if necessary.
func (t *transaction) acquire(file string) (*lock, error) {
	if t.journal != nil {
		if _, err := t.journal.WriteString(file + "\n"); err != nil {
			return nil, err
		}
	}
	return acquire(file, t.deadline)
}

func acquire(file string, deadline time.Time) (*lock, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := makeParents(file)
		if err == nil {
			var f *os.File
			if f, err = create(file + ".lock"); err == nil {
				return &lock{file, f}, nil
			}
			if errors.Is(err, fs.ErrExist) {
				if f = takeOver(file + ".lock"); f != nil {
					return &lock{file, f}, nil
				}
				err = fmt.Errorf("%q exists: another git process is at work, or one ended early; in that case remove the file", file+".lock")
			} else if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if !time.Now().Before(deadline) {
			return nil, err
		}
		time.Sleep(pause/2 + rand.N(pause))
	}
}

// create makes a lock file. Where the file system can, it appears with its
// marker and its flock.
func create(name string) (*os.File, error) {
	step("lock")
	f, err := os.OpenFile(filepath.Dir(name), os.O_WRONLY|unix.O_TMPFILE, 0o666)
	if err == nil {
		if err = mark(f); err == nil {
			err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
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

// takeOver opens a lock file that a process of ours left when it was killed. nil:
// the file is none.
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

// release ends the lock.
func (l *lock) release() {
	step("unlock")
	os.Remove(l.file + ".lock")
	l.held.Close()
}

// replace gives the locked file a new content, in one step for all who read it.
func (l *lock) replace(content string) error { return replaceFile(l.file, content) }

// replaceFile writes a file that nobody else writes, as the caller has its lock.
// git reads no file below refs whose name begins with a dot, so one that a killed
// process left does no harm, and the next one overwrites it.
func replaceFile(file, content string) error {
	temp := temporary(file)
	step("write")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err == nil {
		err = share(f)
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		step("rename")
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

// share gives a file the permissions of a repository that several users share:
// git marks its directories with the set-group-ID bit.
func share(f *os.File) error {
	dir, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil || dir.Mode()&fs.ModeSetgid == 0 {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	want := info.Mode().Perm() | dir.Mode().Perm()&0o066
	if want == info.Mode().Perm() {
		return nil
	}
	return f.Chmod(want)
}

// makeParents makes the directories above a file. It may have to be called again:
// git removes empty ones.
func makeParents(file string) error {
	dir := filepath.Dir(file)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%q is no directory", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(dir); err != nil {
		return err
	}
	step("mkdir")
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil || parent.Mode()&fs.ModeSetgid == 0 {
		return err
	}
	info, err = os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode()|fs.ModeSetgid|parent.Mode().Perm()&0o077)
}

// removeParents removes the empty directories above a file that was removed. Like
// git it leaves the first ones, such as refs/heads.
func removeParents(top, name string) {
	for dir := filepath.Dir(name); strings.Count(dir, "/") >= 2; dir = filepath.Dir(dir) {
		if syscall.Rmdir(filepath.Join(top, dir)) != nil {
			return
		}
	}
}

// removeEmpty removes a tree of empty directories, as git does where a ref was
// deleted and one with the name of its directory is made.
func removeEmpty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir)
}
