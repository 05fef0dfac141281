package bwrap

import (
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
			return err
		}
	}
	if tty := terminal(); tty != "" { // by which ttyname(3) finds a name for it
		if err := s.device(place+"/console", tty); err != nil {
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

// device mounts a device of the host, and it alone may be opened as one.
func (s *stage) device(place, source string) error {
	if err := s.mountPoint(place, false); err != nil {
		return err
	}
	return s.mountAt(place, func(int) (int, error) {
		from, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(from)
		return cloneWith(from, unix.MOUNT_ATTR_NOSUID)
	})
}

// newTerminals returns a mount of pseudo-terminals of the sandbox's own.
func newTerminals() (int, error) {
	return newMountWith("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, [][2]string{{"ptmxmode", "0666"}, {"mode", "620"}})
}

// terminal is the device that standard output is, if it is a terminal.
func terminal() string {
	var here, there unix.Stat_t
	if _, err := unix.IoctlGetTermios(1, unix.TCGETS); err != nil || unix.Fstat(1, &here) != nil {
		return ""
	}
	name, err := os.Readlink(selfFD + "1")
	if err != nil || !strings.HasPrefix(name, "/dev/") || unix.Stat(name, &there) != nil || here.Rdev != there.Rdev {
		return ""
	}
	return name
}
