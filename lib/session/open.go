package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// fd is the number of an open file. f must stay open and reachable: the caller holds it
// in a struct or closes it later.
func fd(f *os.File) int { return int(f.Fd()) }

// openDir opens a directory. Its last element must not be a link.
func openDir(parent int, name, path string) (*os.File, error) {
	n, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) && giveOwner(parent, name) == nil {
		n, err = unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, explainAt(parent, name, err)
	}
	return os.NewFile(uintptr(n), path), nil
}

// openPrivate opens a directory that only the user can access.
func openPrivate(parent *os.File, name string) (*os.File, error) {
	dir, err := openDir(fd(parent), name, filepath.Join(parent.Name(), name))
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
	case st.Mode&0o700 != 0o700:
		err = unix.Fchmod(fd(dir), 0o700)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// MakeDir makes a directory of mode 0700, with any umask, unless there is one of that
// name.
func MakeDir(parent int, name string) error {
	err := unix.Mkdirat(parent, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	return giveOwner(parent, name)
}

// giveOwner gives the owner of a directory the permissions that a umask removed, and
// other users none.
func giveOwner(parent int, name string) error {
	n, err := unix.Openat(parent, name, pathOnly, 0)
	if err != nil {
		return err
	}
	defer unix.Close(n)
	var st unix.Stat_t
	if err := unix.Fstat(n, &st); err != nil || st.Mode&0o700 == 0o700 {
		return err
	}
	return fsat.Chmod(n, st.Mode&0o7777|0o700)
}

// explain distinguishes a link or a file in place of a directory from other failures: the
// kernel returns ENOTDIR for both.
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

// flock takes a lock or fails at once, with EWOULDBLOCK if it is held.
func flock(f *os.File, how int) error { return unix.Flock(fd(f), how|unix.LOCK_NB) }

// unlock gives a lock back for all processes that share the open file description.
func unlock(f *os.File) { _ = unix.Flock(fd(f), unix.LOCK_UN) }

// lockWithin takes a lock, and waits for it at most as long as limit. The waiting
// thread has a descriptor of its own: f may be closed, and its number given away,
// before the kernel answers. A lock that is granted too late goes with it.
func lockWithin(f *os.File, how int, limit time.Duration) error {
	if err := flock(f, how); !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	locked := make(chan error, 1)
	go func() {
		err := uninterrupted(func() error { return unix.Flock(n, how) })
		unix.Close(n)
		locked <- err
	}()
	select {
	case err := <-locked:
		return err
	case <-time.After(limit):
		return errors.New("another process has it locked")
	}
}

func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// inPlace reports whether name in parent still is the open directory.
func inPlace(parent *os.File, name string, dir *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(fd(dir), &st) == nil && st.Nlink > 0 && fsat.Names(fd(parent), name, &st)
}

// createEmpty makes an empty file. It accepts an existing one.
func createEmpty(dir *os.File, name string) error {
	n, err := unix.Openat(fd(dir), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot make %q: %w", name, err)
	}
	defer unix.Close(n)
	return unix.Fchmod(n, 0o600) // with any umask
}

// openOwn opens a plain file directly in dir, and makes it if flags say so. Commands
// cannot write there; the checks are for a directory that was restored from a backup.
func openOwn(dir *os.File, name string, flags int) (*os.File, error) {
	if flags&unix.O_CREAT != 0 {
		if err := createEmpty(dir, name); err != nil {
			return nil, err
		}
	}
	n, err := unix.Openat(fd(dir), name, flags&^unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(n), name)
	var st unix.Stat_t
	if err = unix.Fstat(n, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid()) {
		err = fmt.Errorf("%q in it is not a file of the user's own", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
