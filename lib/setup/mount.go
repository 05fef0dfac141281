package setup

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// quiet are the attributes of every mount but those of devices.
const quiet = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// clone returns a detached mount of an open file or directory, with everything mounted
// below it. Without an access the mount keeps its attributes.
func clone(fd int, access Access) (int, error) {
	switch access {
	case "":
		return cloneWith(fd, 0)
	case ReadOnly:
		return cloneWith(fd, quiet|unix.MOUNT_ATTR_RDONLY)
	}
	return cloneWith(fd, quiet)
}

// cloneWith sets attributes on a clone. It is private: a mount that the host
// makes below it later would come into the sandbox writable.
func cloneWith(fd int, attr uint64) (int, error) {
	mount, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	set := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &set); err != nil {
		unix.Close(mount)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return mount, nil
}

// moveTo attaches a detached mount to the open place.
func moveTo(mount, at int) error {
	err := unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return os.NewSyscallError("move_mount", err)
}

// newTmpfs returns a detached mount of an empty directory in memory.
func newTmpfs(perms string, size int64, attr int) (int, error) {
	return fsat.NewMount("tmpfs", attr|quiet, [][2]string{{"source", "pk"}, {"mode", perms}, {"size", strconv.FormatInt(size, 10)}})
}

// dup copies a descriptor, for an os.File that will close it.
func dup(fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1
	}
	return n
}
