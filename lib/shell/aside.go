package shell

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Moved is something that was moved aside.
type Moved struct{ From, To string }

// Limits of what is copied when it cannot be renamed.
const (
	maxAsideDepth = 64
	maxAsideBytes = 64 << 20
)

// MoveAside moves those of names that exist into the directory into, which is
// made when it is missing, and returns what was moved where. names are absolute
// and lead through no link: what they name has appeared where nothing was
// before, and whoever put it there may go on changing what is around it.
//
// Every step goes by descriptor and name, no link is followed, and nothing in
// into is replaced. What cannot be renamed there, because it is another file
// system, is first renamed where it is, to a name that nobody knows, and then
// copied; what is neither file, directory nor link is removed only.
//
// An error names everything that may still be in its place; the rest has been
// moved.
func MoveAside(names []string, into string) ([]Moved, error) {
	var moved []Moved
	var errs []error
	dir := -1
	for _, name := range names {
		parent, err := openParent(name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil && dir < 0 {
			dir, err = makeAside(into)
		}
		if err == nil {
			var to string
			if to, err = moveAside(parent, filepath.Base(name), dir); to != "" {
				moved = append(moved, Moved{From: name, To: filepath.Join(into, to)})
			}
		}
		if parent >= 0 {
			unix.Close(parent)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("cannot move %q aside: %w", name, err))
		}
	}
	if dir >= 0 {
		unix.Close(dir)
	}
	return moved, errors.Join(errs...)
}

// openParent opens the directory that holds name, and stops at a link.
func openParent(name string) (int, error) {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name || name == "/" {
		return -1, errors.New("internal error: it is not an absolute, clean path")
	}
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for _, part := range strings.Split(filepath.Dir(name), "/") {
		if part == "" || err != nil {
			continue
		}
		var next int
		next, err = unix.Openat(dir, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(dir)
		dir = next
	}
	if err != nil {
		return -1, err
	}
	// Whether there is anything at all is asked before anything is made.
	var st unix.Stat_t
	if err := unix.Fstatat(dir, filepath.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		unix.Close(dir)
		return -1, err
	}
	return dir, nil
}

func makeAside(into string) (int, error) {
	if err := unix.Mkdir(into, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return openDirAt(unix.AT_FDCWD, into)
}

// moveAside returns the name that it has in dir now, "" if it is not there.
func moveAside(parent int, name string, dir int) (string, error) {
	to := strings.ToLower(rand.Text()[:8]) + "-" + name
	err := renameTo(parent, name, dir, to)
	if err == nil {
		return to, nil
	}
	if !errors.Is(err, unix.EXDEV) {
		return "", err
	}
	hidden := ".pk-aside-" + rand.Text()
	if err := renameTo(parent, name, parent, hidden); err != nil {
		return "", err
	}
	c := copier{left: maxAsideBytes}
	if err := c.copy(parent, hidden, dir, to, maxAsideDepth); err != nil {
		return "", fmt.Errorf("it is now %q, where it was: %w", hidden, err)
	}
	return to, c.remove(parent, hidden, maxAsideDepth)
}

// renameTo never replaces anything, except on file systems that cannot promise
// that; the new names are random.
func renameTo(from int, name string, dir int, to string) error {
	err := unix.Renameat2(from, name, dir, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Renameat(from, name, dir, to)
	}
	return err
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
	dest, err := openDirAt(dir, to)
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
		err = fmt.Errorf("it holds more than %d bytes", maxAsideBytes)
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
