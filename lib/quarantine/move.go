package quarantine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/session"
)

// Moved is a file that was moved to the quarantine.
type Moved struct{ From, To string }

// Limits of copying, which replaces a rename that fails.
const (
	maxDepth = 64
	maxBytes = 64 << 20
)

// Move moves those of names that exist into the directory into, which it makes
// if missing, and returns their old and new paths. names are absolute and
// lead through no symbolic link; another process may go on changing the
// directories around them.
//
// Every step goes by directory file descriptor and name, no link is followed, and
// nothing in into is replaced. A directory of the user's own that cannot be
// written is made writable for the moment. A file that cannot be renamed, because
// into is another file system, is first renamed in its directory, to a random
// name, and then copied; sockets, FIFOs and devices are removed only.
//
// A file that cannot be moved gets a random name in its directory, where that can be
// written. An error names every such file, and every file that may still be in its
// place; the rest has been moved.
//
// before is called with each move, before it is made.
func Move(names []string, into string, before func(Moved)) ([]Moved, error) {
	var moved []Moved
	var errs []error
	dir := -1
	for _, name := range names {
		to, err := moveOne(name, into, &dir, func(to string) { before(Moved{From: name, To: filepath.Join(into, to)}) })
		if to != "" {
			moved = append(moved, Moved{From: name, To: filepath.Join(into, to)})
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("cannot move %q to the quarantine: %w", name, err))
		}
	}
	if dir >= 0 {
		unix.Close(dir)
	}
	return moved, errors.Join(errs...)
}

func moveOne(name, into string, dir *int, before func(to string)) (to string, err error) {
	parent, restore, err := openParent(name)
	if err != nil {
		return "", err
	}
	defer unix.Close(parent)
	defer restore()
	base := filepath.Base(name)
	if into == "" {
		return "", hide(parent, base, errors.New("there is no cache directory for it"))
	}
	if *dir < 0 {
		if *dir, err = makeDir(into); err != nil {
			return "", hide(parent, base, err)
		}
	}
	to, err = moveTo(parent, base, *dir, before)
	if err != nil && to == "" && !errors.Is(err, unix.ENOENT) { // it may come back
		err = hide(parent, base, err)
	}
	return to, err
}

// hide renames a file that cannot be moved in its directory, to a name that no tool
// looks at. It returns err, with that name if there is one.
func hide(parent int, name string, err error) error {
	hidden := hiddenName()
	if fsat.RenameFresh(parent, name, parent, hidden) != nil {
		return err
	}
	return fmt.Errorf("it is now %q in the same directory: %w", hidden, err)
}

func hiddenName() string { return ".pk-moved-" + rand.Text() }

const directory = unix.O_DIRECTORY | unix.O_NOFOLLOW

// openParent opens the directory that holds name, and stops at a link. restore
// undoes the permissions that it gave.
func openParent(name string) (dir int, restore func(), err error) {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name || name == "/" {
		return -1, nil, errors.New("internal error: it is not an absolute, clean path")
	}
	var undo []func()
	restore = func() {
		for _, f := range undo {
			f()
		}
	}
	dir, err = fsat.Openat(unix.AT_FDCWD, "/", unix.O_PATH|directory, 0)
	for _, part := range strings.Split(filepath.Dir(name), "/") {
		if part == "" || err != nil {
			continue
		}
		var next int
		if next, err = fsat.Openat(dir, part, unix.O_PATH|directory, 0); err == nil {
			undo = append(undo, allow(next))
		}
		unix.Close(dir)
		dir = next
	}
	if err == nil { // nothing is made if there is nothing to move
		if _, err = fsat.Lstat(dir, filepath.Base(name)); err == nil {
			return dir, restore, nil
		}
		unix.Close(dir)
	}
	restore()
	return -1, nil, err
}

// allow gives the owner of an open directory all permissions on it, and returns a
// function that takes back the permissions that were missing.
func allow(dir int) (undo func()) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o700 == 0o700 || fsat.Chmod(dir, st.Mode&0o7777|0o700) != nil {
		return func() {}
	}
	kept := dup(dir)
	return func() {
		_ = fsat.Chmod(kept, st.Mode&0o7777)
		unix.Close(kept)
	}
}

func dup(fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1
	}
	return n
}

// makeDir opens a directory of the user's own, made when it is missing.
func makeDir(path string) (int, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return -1, err
	}
	if err := session.MakeDir(unix.AT_FDCWD, path); err != nil {
		return -1, err
	}
	return fsat.Openat(unix.AT_FDCWD, path, unix.O_RDONLY|directory, 0)
}

// moveTo returns the name that the file has in dir now, "" if it is not there.
func moveTo(parent int, name string, dir int, before func(to string)) (string, error) {
	to := strings.ToLower(rand.Text()[:8]) + "-" + name
	before(to)
	err := fsat.RenameFresh(parent, name, dir, to)
	if err == nil {
		return to, nil
	}
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EACCES) { // EACCES: a directory that cannot be written has a new ".."
		return "", err
	}
	if sub, oerr := fsat.Openat(parent, name, unix.O_PATH|directory, 0); oerr == nil {
		allow(sub) // permanently: in the quarantine no program needs its mode
		unix.Close(sub)
		if err = fsat.RenameFresh(parent, name, dir, to); err == nil {
			return to, nil
		}
	}
	hidden := hiddenName()
	if err := fsat.RenameFresh(parent, name, parent, hidden); err != nil {
		return "", err
	}
	c := copier{left: maxBytes}
	if err := c.copy(parent, hidden, dir, to, maxDepth); err != nil {
		return "", fmt.Errorf("it is now %q in the same directory: %w", hidden, err)
	}
	return to, c.remove(parent, hidden, maxDepth)
}

// copier copies a tree to another file system.
type copier struct{ left int64 }

func (c *copier) copy(from int, name string, dir int, to string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.directory(from, name, dir, to, depth)
	case unix.S_IFREG:
		return c.file(from, name, dir, to)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, target)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(target[:n]), dir, to)
	}
	return nil // a socket, a FIFO or a device is nothing to keep
}

func (c *copier) directory(from int, name string, dir int, to string, depth int) error {
	if depth == 0 {
		return errors.New("it is too deep")
	}
	source, names, err := list(from, name)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := unix.Mkdirat(dir, to, 0o700); err != nil {
		return err
	}
	dest, err := fsat.Openat(dir, to, unix.O_RDONLY|directory, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dest)
	for _, n := range names {
		if err := c.copy(int(source.Fd()), n, dest, n, depth-1); err != nil {
			return err
		}
	}
	return nil
}

func list(from int, name string) (*os.File, []string, error) {
	fd, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	dir := os.NewFile(uintptr(fd), name)
	names, err := dir.Readdirnames(-1)
	return dir, names, err
}

func (c *copier) file(from int, name string, dir int, to string) error {
	fd, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(fd), name)
	defer source.Close()
	if fd, err = unix.Openat(dir, to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600); err != nil {
		return err
	}
	dest := os.NewFile(uintptr(fd), to)
	n, err := io.Copy(dest, io.LimitReader(source, c.left+1))
	if c.left -= n; err == nil && c.left < 0 {
		err = fmt.Errorf("it holds more than %d bytes", maxBytes)
	}
	return errors.Join(err, dest.Close())
}

func (c *copier) remove(from int, name string, depth int) error {
	err := unix.Unlinkat(from, name, 0)
	if !errors.Is(err, unix.EISDIR) || depth == 0 {
		return err
	}
	dir, names, err := list(from, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, n := range names {
		if err := c.remove(int(dir.Fd()), n, depth-1); err != nil {
			return err
		}
	}
	return unix.Unlinkat(from, name, unix.AT_REMOVEDIR)
}
