package fsat

import (
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Resolve is a set of rules for a lookup, the flags of openat2(2).
type Resolve uint64

const (
	// NoLinks follows no symbolic link. The path may be absolute.
	NoLinks Resolve = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

	// Beneath follows no link and stays below the directory.
	Beneath = NoLinks | unix.RESOLVE_BENEATH

	// SameMount also enters no mount point, bind mounts included.
	SameMount = Beneath | unix.RESOLVE_NO_XDEV
)

// Opener opens paths under the rules of a Resolve. The zero value goes name by
// name and works on every kernel.
type Opener struct{ Openat2 bool }

// Kernel is the Opener of this machine. It is probed once: openat2 came with
// Linux 5.6, and a seccomp filter that does not know it answers EPERM. A later
// failure never selects the other way, since an attacker could cause it.
var Kernel = sync.OnceValue(func() Opener {
	fd, err := openat2(unix.AT_FDCWD, "/", unix.O_PATH, 0, NoLinks)
	if err == nil {
		unix.Close(fd)
	}
	return Opener{Openat2: err == nil}
})

// Open opens a path. It fails with ELOOP or ENOTDIR at a link, and with EXDEV at a
// mount point (SameMount) or at ".." (Beneath).
func (o Opener) Open(dir int, path string, flags int, mode uint32, rules Resolve) (int, error) {
	if o.Openat2 {
		return openat2(dir, path, flags, mode, rules)
	}
	return byName(dir, path, flags, mode, rules)
}

// openat2 drops O_NOFOLLOW: rules forbid links, and with O_PATH the flag would
// open the link itself.
func openat2(dir int, path string, flags int, mode uint32, rules Resolve) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags&^unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Resolve: uint64(rules),
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	if flags&unix.O_PATH == 0 {
		how.Flags |= unix.O_LARGEFILE
	}
	return Again(func() (int, error) { return unix.Openat2(dir, path, &how) })
}

// byName opens one name after the other.
func byName(dir int, path string, flags int, mode uint32, rules Resolve) (int, error) {
	at := dir
	if strings.HasPrefix(path, "/") {
		root, err := openRoot(rules)
		if err != nil {
			return -1, err
		}
		at, path = root, strings.Trim(path, "/")
		if path == "" {
			path = "."
		}
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		next, nextMode := flags|unix.O_NOFOLLOW, mode
		if more {
			next, nextMode = unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0
		}
		fd, err := -1, error(unix.EXDEV)
		if name != ".." {
			fd, err = Openat(at, name, next, nextMode)
		}
		if err == nil {
			err = admit(at, fd, next, rules)
		}
		if at != dir {
			unix.Close(at)
		}
		if err != nil {
			if fd >= 0 {
				unix.Close(fd)
			}
			return -1, err
		}
		if !more {
			return fd, nil
		}
		at, path = fd, rest
	}
}

func openRoot(rules Resolve) (int, error) {
	if rules&unix.RESOLVE_BENEATH != 0 {
		return -1, unix.EXDEV
	}
	return Openat(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
}

var errNoMountInfo = errors.New("this kernel does not tell where something is mounted")

// admit checks a file that byName has opened: O_PATH opens links themselves, and mount
// points are known only afterwards. A kernel before 5.8 does not know them, and
// a comparison of st_dev misses bind mounts, so there SameMount fails.
func admit(dir, fd, flags int, rules Resolve) error {
	if flags&unix.O_PATH != 0 && flags&unix.O_DIRECTORY == 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unix.ELOOP
		}
	}
	if rules&unix.RESOLVE_NO_XDEV == 0 {
		return nil
	}
	var st unix.Statx_t
	switch err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &st); {
	case err != nil:
		return err
	case st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0:
		return errNoMountInfo
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return unix.EXDEV
	}
	return nil
}
