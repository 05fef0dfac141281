package setup

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// The content of /dev is that of bwrap's --dev.
var (
	deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}
	deviceLinks = [][2]string{
		{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
		{"core", "/proc/kcore"}, {"ptmx", "pts/ptmx"},
	}
)

// devices makes a directory of devices, in which only shm and pts can be
// written.
func (t *tree) devices(m Mount) error {
	if err := t.put(m.At, func() (int, error) { return t.empty("0755", 4096) }); err != nil {
		return err
	}
	for _, name := range deviceNames {
		if err := t.device(m.At+"/"+name, "/dev/"+name); err != nil {
			return fmt.Errorf("/dev/%s: %w", name, err)
		}
	}
	if tty, ok := terminal(t.console); ok { // for ttyname(3)
		err := t.show(m.At+"/console", tty)
		unix.Close(tty)
		if err != nil {
			return err
		}
	}
	if err := t.put(m.At+"/shm", func() (int, error) { return newTmpfs("1777", m.Size, 0) }); err != nil {
		return err
	}
	if err := t.put(m.At+"/pts", t.newTerminals); err != nil {
		return err
	}
	at, err := t.walk(m.At)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	for _, link := range deviceLinks {
		if err := unix.Symlinkat(link[1], at, link[0]); err != nil {
			return err
		}
	}
	if m.Access != ReadOnly {
		return nil
	}
	set := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(at, "", unix.AT_EMPTY_PATH, &set))
}

// put attaches a new mount at a directory.
func (t *tree) put(place string, made func() (int, error)) error {
	mount, err := made()
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return t.attach(place, mount)
}

// device shows a device of the host.
func (t *tree) device(place, source string) error {
	from, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	return t.show(place, from)
}

// show attaches an open device. Its mount alone lets devices be opened.
func (t *tree) show(place string, device int) error {
	var st unix.Stat_t
	if err := unix.Fstat(device, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return errors.New("it is not a character device")
	}
	mount, err := cloneWith(device, unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return t.attach(place, mount)
}

func (t *tree) newTerminals() (int, error) {
	if t.terminals >= 0 {
		return dup(t.terminals), nil
	}
	return newTerminals()
}

// newTerminals returns a detached mount of a devpts of the sandbox's own.
func newTerminals() (int, error) {
	return fsat.NewMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, [][2]string{{"ptmxmode", "0666"}, {"mode", "620"}})
}

// terminal opens the device of an open file if that is a terminal with a name
// here. Inside another sandbox that is the console.
func terminal(stream int) (device int, ok bool) {
	var want, got unix.Stat_t
	if _, err := unix.IoctlGetTermios(stream, unix.TCGETS); err != nil || unix.Fstat(stream, &want) != nil {
		return -1, false
	}
	name, _ := os.Readlink(fdPath(stream))
	for _, name := range []string{name, "/dev/console"} {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		// Device numbers do not identify a terminal: each devpts counts from zero.
		if unix.Fstat(fd, &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino && strings.HasPrefix(name, "/dev/") {
			return fd, true
		}
		unix.Close(fd)
	}
	return -1, false
}
