package bwrap

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// descriptors are the files that another program is to have when it starts.
type descriptors struct {
	list   []*os.File // of a child: at the place that its number has, less three
	passed []int      // numbers that are taken by what the caller passes on
}

// own takes a file for the program that this process becomes.
func (d *descriptors) own(f *os.File) int {
	d.list = append(d.list, f)
	return int(f.Fd())
}

// keep leaves open, when this process becomes another program, what was taken
// and what the caller passes on.
func (d *descriptors) keep(passed []int) error {
	for _, f := range d.list {
		passed = append(passed, int(f.Fd()))
	}
	for _, fd := range passed {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("cannot hand on descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// child takes a file for a child, at the next number that is free.
func (d *descriptors) child(f *os.File) int {
	for slices.Contains(d.passed, 3+len(d.list)) {
		d.list = append(d.list, nil)
	}
	d.list = append(d.list, f)
	return 2 + len(d.list)
}

// pass puts what the caller passes on where a child is to find it.
func (d *descriptors) pass() error {
	for _, fd := range d.passed {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, highFD)
		if err != nil {
			return fmt.Errorf("cannot hand on descriptor %d: %w", fd, err)
		}
		for len(d.list) <= fd-3 {
			d.list = append(d.list, nil)
		}
		d.list[fd-3] = os.NewFile(uintptr(copied), fmt.Sprint(fd))
	}
	return nil
}

// CheckPassed refuses to pass on a descriptor that the caller does not have, or
// that would be a way out: a directory leads to its parent. It has to be asked
// before this process opens files of its own, which would look like the
// caller's.
func CheckPassed(fd int) error {
	if fd < 3 || fd >= highFD {
		return fmt.Errorf("%d is not between 3 and %d", fd, highFD-1)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 { // what Go opened has the flag
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
