// Package fsat holds file system calls that work from a directory file descriptor, so that
// no path is looked up twice. Paths are relative and clean, without "..", unless a function
// says otherwise. Every descriptor it returns is close-on-exec. Only WriteFile takes the
// path of a file that pk owns.
package fsat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Again repeats a call that a signal interrupted. Local file systems never are,
// but FUSE and NFS meet the signals that the Go runtime sends to itself.
func Again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// Openat is openat(2) with O_CLOEXEC. It follows links unless flags say otherwise.
func Openat(dir int, name string, flags int, mode uint32) (int, error) {
	return Again(func() (int, error) { return unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode) })
}

// Reopen opens a directory that is open already again, for other flags such as
// O_RDONLY in place of O_PATH.
func Reopen(dir, flags int) (int, error) {
	return Openat(dir, ".", flags|unix.O_DIRECTORY, 0)
}

// ReadLink returns the target of a symbolic link: EINVAL for another kind of
// file. With the name "", dir is the link itself, opened with O_PATH.
func ReadLink(dir int, name string) (string, error) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	n, err := Again(func() (int, error) { return unix.Readlinkat(dir, name, buf[:unix.PathMax]) })
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", unix.ENOENT
	case n == unix.PathMax:
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// IsLink reports whether name is a symbolic link.
func IsLink(dir int, name string) bool {
	st, err := Lstat(dir, name)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// Lstat is fstatat(2) of name itself, even if it is a link.
func Lstat(dir int, name string) (*unix.Stat_t, error) {
	st := new(unix.Stat_t)
	return st, unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// Absent reports whether there is no file by an error: a part of the path is missing, or is no directory.
func Absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// SameInode reports whether two files are one.
func SameInode(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// Names reports whether name in dir is the file that st describes.
func Names(dir int, name string, st *unix.Stat_t) bool {
	now, err := Lstat(dir, name)
	return err == nil && SameInode(now, st)
}

// Path is a name for an open file that the kernel resolves to that file itself,
// even if another file has its name by now. It needs /proc.
func Path(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Chmod changes the mode of an open file. Unlike fchmod(2), it takes an O_PATH
// descriptor.
func Chmod(fd int, mode uint32) error { return unix.Chmod(Path(fd), mode) }

// OpenUp gives the owner of an open directory all permissions on it, until shut is called. fd may be
// closed before that.
func OpenUp(fd int) (shut func(), err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&0o700 == 0o700 {
		return func() {}, nil
	}
	if err := Chmod(fd, st.Mode&0o7777|0o700); err != nil {
		return nil, err
	}
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = Chmod(kept, st.Mode&0o7777)
		unix.Close(kept)
	}, nil
}

// RenameNoReplace renames a file and fails with EEXIST if the new name is taken.
// A file system that cannot promise that, such as NFS, fails with EINVAL.
func RenameNoReplace(from int, oldName string, to int, newName string) error {
	return unix.Renameat2(from, oldName, to, newName, unix.RENAME_NOREPLACE)
}

// RenameFresh is RenameNoReplace for a new name that no other process uses: a file
// system that cannot keep that promise may replace it.
func RenameFresh(from int, oldName string, to int, newName string) error {
	err := RenameNoReplace(from, oldName, to, newName)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return unix.Renameat(from, oldName, to, newName)
	}
	return err
}

// OpenUnnamed makes a file without a name (O_TMPFILE) in a directory, for writing. It is
// gone when the process ends, however it ends, unless Link has given it a name. Without
// /proc, and on NFS and some other file systems, it fails.
func OpenUnnamed(dir int, mode uint32) (int, error) {
	fd, err := Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE, mode)
	if err != nil {
		return -1, err
	}
	var st, again unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &st), unix.Stat(Path(fd), &again))
	if err == nil && !SameInode(&st, &again) {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Link gives a file of OpenUnnamed a name: EEXIST if it is taken.
func Link(fd, dir int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, Path(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
}

// Exchange swaps two names.
func Exchange(from int, oldName string, to int, newName string) error {
	return unix.Renameat2(from, oldName, to, newName, unix.RENAME_EXCHANGE)
}

// Memfd makes an anonymous file with the given content, to be read from its
// beginning.
func Memfd(name string, content []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := Fill(fd, content); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Fill writes content to the beginning of a file, and leaves its offset there.
func Fill(fd int, content []byte) error {
	for at := 0; at < len(content); {
		n, err := Again(func() (int, error) { return unix.Pwrite(fd, content[at:], int64(at)) })
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// Within reports whether path is dir or below it. Both are clean, and both are
// absolute, or relative to the same directory, which is ".".
func Within(path, dir string) bool {
	if path == dir || dir == "." || dir == "/" {
		return true
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && strings.HasPrefix(path, dir)
}

// ReadFile is os.ReadFile for the many small files that each start reads. That asks for
// the size, and tries to wait for the file with epoll(7): twice as many system calls.
func ReadFile(file string) ([]byte, error) {
	fd, err := Openat(unix.AT_FDCWD, file, unix.O_RDONLY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	var text []byte
	for {
		n, err := Again(func() (int, error) { return unix.Read(fd, buf[:]) })
		switch {
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: file, Err: err}
		case n == 0:
			return text, nil
		}
		text = append(text, buf[:n]...)
	}
}

// WriteFile replaces a file in one step: a reader finds the old content or the new. Only
// the owner can read and write the file. It is for directories that pk owns.
func WriteFile(file string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// MoreFiles is the hint of an error by the limit on open files.
func MoreFiles() string {
	const usual = 1024
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Max < usual {
		return fmt.Sprintf("raise the limit on open files: ulimit -n %d", usual)
	}
	return fmt.Sprintf("raise the limit on open files: ulimit -n %d", 4*limit.Max) // Go programs raise the soft one
}
