package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fd is the number of an open file. f stays open and reachable: whoever calls
// this holds it in a struct or closes it later.
func fd(f *os.File) int { return int(f.Fd()) }

// openDir opens a directory, never through a link as the last element.
func openDir(parent int, name, path string) (*os.File, error) {
	n, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, explainAt(parent, name, err)
	}
	return os.NewFile(uintptr(n), path), nil
}

// openPrivate opens a directory that is nobody's but the user's.
func openPrivate(base *os.File, name string) (*os.File, error) {
	dir, err := openDir(fd(base), name, filepath.Join(base.Name(), name))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd(dir), &st)
	switch {
	case err != nil:
	case int(st.Uid) != os.Geteuid():
		err = foreign(st.Uid)
	case st.Mode&0o077 != 0:
		err = refuse("chmod 700 it after a look inside", "others can look into it (mode %04o)", st.Mode&0o7777)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// explain tells a link or a file where a directory should be from other
// failures: the kernel answers ENOTDIR to both.
func explain(parent *os.File, name string, err error) error {
	return explainAt(fd(parent), name, err)
}

func explainAt(parent int, name string, err error) error {
	if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return err
	}
	var st unix.Stat_t
	if unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return refuse("remove the link", "it is a symbolic link")
	}
	return refuse("", "it is not a directory")
}

// flock takes a lock or fails at once.
func flock(dir *os.File, how int) error { return unix.Flock(fd(dir), how|unix.LOCK_NB) }

// inPlace reports whether name in parent still leads to the open directory.
func inPlace(parent *os.File, name string, dir *os.File) bool {
	var open, named unix.Stat_t
	return unix.Fstat(fd(dir), &open) == nil && open.Nlink > 0 &&
		unix.Fstatat(fd(parent), name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		open.Dev == named.Dev && open.Ino == named.Ino
}

// createEmpty makes an empty file. One that is there already is as good.
func createEmpty(dir *os.File, name string) error {
	n, err := unix.Openat(fd(dir), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot make %q: %w", name, err)
	}
	return unix.Close(n)
}

// chmodPath sets the mode of what an O_PATH descriptor stands for, which
// fchmod(2) refuses. The kernel follows the entry in /proc to the open file
// itself, whatever its name leads to by now.
func chmodPath(n int, mode uint32) error {
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", n), mode)
}
