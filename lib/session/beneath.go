package session

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// opener opens the directory name in parent, with flags beyond the ones that
// every opening of this package has. It fails with EXDEV where something is
// mounted and with ELOOP or ENOTDIR on a link.
type opener func(parent int, name string, flags int) (int, error)

const directory = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// beneath is the opener of this machine, probed once: a kernel before 5.6 has
// no openat2, and some container engines answer EPERM to it.
var beneath = sync.OnceValue(func() opener {
	n, err := openat2(unix.AT_FDCWD, ".", unix.O_PATH)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return openChecked
	}
	if err == nil {
		unix.Close(n)
	}
	return openat2
})

// openat2 lets the kernel do it all. RESOLVE_NO_XDEV stops at bind mounts too,
// which a comparison of st_dev does not see when they come from the same file
// system.
func openat2(parent int, name string, flags int) (int, error) {
	return again(func() (int, error) {
		return unix.Openat2(parent, name, &unix.OpenHow{
			Flags:   uint64(directory | flags),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
	})
}

// openChecked asks about mounts after opening, which for a directory has no
// effect. A kernel that cannot tell gets no answer: deleting on a guess could
// empty somebody's bind mount.
func openChecked(parent int, name string, flags int) (int, error) {
	n, err := again(func() (int, error) { return unix.Openat(parent, name, directory|flags, 0) })
	if err != nil {
		return -1, err
	}
	var st unix.Statx_t
	err = unix.Statx(n, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &st)
	switch {
	case err != nil:
	case st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0:
		err = errors.New("this kernel does not tell where something is mounted")
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(n)
		return -1, err
	}
	return n, nil
}

// again repeats a call that a signal interrupted. Local file systems never are,
// but a home on FUSE meets the signals that the Go runtime sends itself.
func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// allow gives the owner of a directory all permissions on it. O_PATH needs
// none, and O_DIRECTORY keeps this from ever changing the mode of a file,
// which may have a second name outside.
func allow(open opener, parent int, name string) error {
	n, err := open(parent, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(n)
	return chmodPath(n, 0o700)
}

// rename never replaces anything, except on file systems that cannot promise
// that (NFS); the new names are random or inside a tree that is being removed.
func rename(from int, oldName string, to int, newName string) error {
	err := unix.Renameat2(from, oldName, to, newName, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Renameat(from, oldName, to, newName)
	}
	return err
}
