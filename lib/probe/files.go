package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// files: a path that is not shown does not exist, under any name.
var files = []Attack{
	{Name: "read a file beside the project", Guarantee: "files",
		try: func(t *Targets) error { return read(t.secret()) }},
	{Name: "read through a link in the project", Guarantee: "files",
		try: func(t *Targets) error { return read(t.Project() + "/door") }},
	{Name: "read a key in the home", Guarantee: "files",
		try: func(t *Targets) error { return read(t.sshKey()) }},
	{Name: "read the shadow file", Guarantee: "files",
		try: func(*Targets) error { return read("/etc/shadow") }},
	{Name: "read through the root of a process", Guarantee: "files",
		try: func(t *Targets) error { return throughProc("root", t.secret()) }},
	{Name: "read through the working directory of a process", Guarantee: "files",
		try: func(t *Targets) error { return throughProc("cwd", "../beside/secret", "beside/secret", t.secret()[1:]) }},
	{Name: "write beside the project", Guarantee: "files",
		try: func(t *Targets) error { return write(filepath.Dir(t.secret()) + "/new") },
		got: func(s *Scene) bool { return exists(filepath.Dir(s.secret()) + "/new") }},
	{Name: "write to /usr", Guarantee: "files", Harm: "it changes the system",
		try: func(*Targets) error { return writeAndRemove("/usr/pk-check-" + strconv.Itoa(os.Getpid())) }},
	{Name: "write to /", Guarantee: "files", Harm: "it changes the system",
		try: func(*Targets) error { return writeAndRemove("/pk-check-" + strconv.Itoa(os.Getpid())) }},
	{Name: "set the kernel's core_pattern", Guarantee: "files",
		try: func(*Targets) error { return openToWrite("/proc/sys/kernel/core_pattern") }},
	{Name: "connect to a socket beside the project", Guarantee: "files",
		try: connectBeside},
	{Name: "find a descriptor that was left open", Guarantee: "descriptors",
		try: leftOpen},
	{Name: "find a directory that another process holds open", Guarantee: "descriptors",
		try: heldOpen},
}

func read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 1))
	return err
}

func write(path string) error {
	return os.WriteFile(path, nil, 0o600)
}

func connectBeside(t *Targets) error {
	dir, err := os.Open(filepath.Dir(t.socket()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return connect("unix", socketIn(dir))
}

func writeAndRemove(path string) error {
	if err := write(path); err != nil {
		return err
	}
	return os.Remove(path)
}

// openToWrite opens and does not write: the permission to open is enough.
func openToWrite(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return nil
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// throughProc looks for the secret through a link of every visible process.
func throughProc(link string, names ...string) error {
	pids := processIDs()
	if len(pids) == 0 {
		return absent("no process is visible")
	}
	err := errors.New("no process leads there")
	for _, pid := range pids {
		for _, name := range names {
			if read(fmt.Sprintf("/proc/%d/%s/%s", pid, link, name)) == nil {
				return nil
			}
		}
	}
	return err
}

// processIDs lists the visible processes.
func processIDs() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// maxDescriptor bounds the search for descriptors: the scene's is 300.
const maxDescriptor = 1024

// openDescriptors lists the open descriptors above standard error. It asks for
// each number, since reading /proc/self/fd opens one more.
func openDescriptors() []int {
	var open []int
	for fd := 3; fd < maxDescriptor; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, fd)
		}
	}
	return open
}

// leftOpen finds an inherited descriptor. Those that Go itself has opened are
// close-on-exec.
func leftOpen(t *Targets) error {
	for _, fd := range t.inherited {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 && !slices.Contains(t.Passed, fd) {
			return nil
		}
	}
	return errors.New("none is open")
}

// heldOpen looks for the scene through the descriptors of other processes. One of
// them made the sandbox.
func heldOpen(*Targets) error {
	for _, pid := range processIDs() {
		if pid == os.Getpid() {
			continue
		}
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, e := range entries {
			if read(fmt.Sprintf("/proc/%d/fd/%s/beside/secret", pid, e.Name())) == nil {
				return nil
			}
		}
	}
	return errors.New("no process has one")
}
