package monitor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
)

// CheckStreams refuses a standard stream that is a directory: an open directory
// leads to its parent, out of any sandbox.
func CheckStreams(streams [3]*os.File) error {
	for fd, name := range []string{"standard input", "standard output", "standard error"} {
		var st unix.Stat_t
		if f := streams[fd]; f != nil && unix.Fstat(numberOf(f), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return &bwrap.Refusal{Reason: "cannot hand on " + name + ": it is a directory", Advice: "redirect it from a file or /dev/null"}
		}
	}
	return nil
}

// numberOf is the descriptor of a file. File.Fd would make it blocking, for all
// processes that share it, before its flags are noted.
func numberOf(f *os.File) int {
	number := -1
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { number = int(fd) })
	}
	return number
}

// maxPassed bounds the numbers of descriptors that a caller can pass on: pk's own
// for the command lie above.
const maxPassed = 200

// CheckPassed refuses to pass on a descriptor that the caller does not have, or
// that is a directory. Call it before this process opens files of its own, which
// would look like the caller's.
func CheckPassed(fd int) error {
	if fd < 3 || fd >= maxPassed {
		return fmt.Errorf("%d is not between 3 and %d", fd, maxPassed-1)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 { // Go sets the flag on files that it opens
		return fmt.Errorf("descriptor %d is not open", fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Errorf("descriptor %d is a directory, which leads out of every sandbox", fd)
	}
	return nil
}

// CloseInherited marks every descriptor above standard error to be closed in
// programs that this process starts. A sandbox gets no other than those of its
// Config in any case.
func CloseInherited() error {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot close inherited descriptors: %w", err)
	}
	return nil
}
