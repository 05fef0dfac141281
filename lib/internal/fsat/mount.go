package fsat

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewMount returns a detached mount of a new file system. An option without a
// value is a flag.
func NewMount(kind string, attr int, options [][2]string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, option := range options {
		if option[1] == "" {
			err = unix.FsconfigSetFlag(fs, option[0])
		} else {
			err = unix.FsconfigSetString(fs, option[0], option[1])
		}
		if err != nil {
			return -1, fmt.Errorf("fsconfig %s %s: %w", kind, option[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("fsconfig %s: %w", kind, err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	return mount, os.NewSyscallError("fsmount", err)
}

// Attach attaches a detached mount to a path of pk's own and closes it.
func Attach(mount int, path string) error {
	err := unix.MoveMount(mount, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	unix.Close(mount)
	return os.NewSyscallError("move_mount", err)
}
