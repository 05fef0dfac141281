package bwrap

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What is in /dev, as bwrap's --dev makes it, too.
var (
	deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}
	deviceLinks = [][2]string{
		{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
		{"core", "/proc/kcore"}, {"ptmx", "pts/ptmx"},
	}
)

// devices makes place a directory of devices, in which only shm can be written, up
// to size.
func (s *stage) devices(place, size string, readOnly bool) error {
	if err := s.put(place, func() (int, error) { return s.empty("0755", "4096") }); err != nil {
		return err
	}
	for _, name := range deviceNames {
		if err := s.device(place+"/"+name, "/dev/"+name); err != nil {
			return fmt.Errorf("/dev/%s: %w", name, err)
		}
	}
	if tty, ok := terminal(); ok { // by which ttyname(3) finds a name for it
		defer unix.Close(tty)
		if err := s.show(place+"/console", tty); err != nil {
			return err
		}
	}
	if err := s.put(place+"/shm", func() (int, error) { return newTmpfs("1777", size, 0) }); err != nil {
		return err
	}
	if err := s.put(place+"/pts", newTerminals); err != nil {
		return err
	}
	at, err := s.walk(place)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	for _, link := range deviceLinks {
		if err := unix.Symlinkat(link[1], at, link[0]); err != nil {
			return err
		}
	}
	if !readOnly {
		return nil
	}
	set := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(at, "", unix.AT_EMPTY_PATH, &set))
}

// put mounts what made returns on a directory that is made where it is missing.
func (s *stage) put(place string, made func() (int, error)) error {
	if err := s.mountPoint(place, true); err != nil {
		return err
	}
	return s.mountAt(place, func(int) (int, error) { return made() })
}

// device mounts a device of the host.
func (s *stage) device(place, source string) error {
	from, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	return s.show(place, from)
}

// show mounts an open device, and it alone may be opened as one.
func (s *stage) show(place string, device int) error {
	var st unix.Stat_t
	if err := unix.Fstat(device, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return errors.New("it is no device")
	}
	if err := s.mountPoint(place, false); err != nil {
		return err
	}
	return s.mountAt(place, func(int) (int, error) { return cloneWith(device, unix.MOUNT_ATTR_NOSUID) })
}

// newTerminals returns a mount of pseudo-terminals of the sandbox's own.
func newTerminals() (int, error) {
	return newMountWith("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, [][2]string{{"ptmxmode", "0666"}, {"mode", "620"}})
}

// terminal opens the device that standard output is, if that is a terminal which
// has a name here. Where this runs in a sandbox, it is the console.
func terminal() (device int, ok bool) {
	var want, got unix.Stat_t
	if _, err := unix.IoctlGetTermios(1, unix.TCGETS); err != nil || unix.Fstat(1, &want) != nil {
		return -1, false
	}
	name, _ := os.Readlink(selfFD + "1")
	for _, name := range []string{name, "/dev/console"} {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		// Numbers alone say nothing: each /dev/pts counts from zero.
		if unix.Fstat(fd, &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino && strings.HasPrefix(name, "/dev/") {
			return fd, true
		}
		unix.Close(fd)
	}
	return -1, false
}
