package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts: only a capability could change the mounts, and the command cannot gain
// one.
var mounts = []Attack{
	{Name: "remount /usr writable", Guarantee: "capabilities", Harm: "it changes the system",
		try: func(*Targets) error {
			return call("mount", unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		}},
	{Name: "unmount the home", Guarantee: "capabilities", Harm: "it changes the system",
		try: func(t *Targets) error { return call("umount", unix.Unmount(t.Home, unix.MNT_DETACH)) }},
	{Name: "mount a file system", Guarantee: "capabilities", Harm: "it changes the system",
		try: func(t *Targets) error {
			at := t.Project() + "/.git/objects"
			if err := unix.Mount("pk", at, "tmpfs", 0, ""); err != nil {
				return call("mount", err)
			}
			return call("umount", unix.Unmount(at, unix.MNT_DETACH))
		}},
	{Name: "change the root directory", Guarantee: "capabilities",
		try: func(*Targets) error { return call("chroot", unix.Chroot("/")) }},
	{Name: "make a device", Guarantee: "capabilities", try: makeDevice},
	{Name: "hold a capability", Guarantee: "capabilities",
		try: func(*Targets) error { return holdsCapability("self") }},
	{Name: "hold one in the sandbox's init, and trace it", Guarantee: "capabilities", Harm: "it stops the machine's init",
		try: func(*Targets) error { return traceForCapabilities(1) }},
	{Name: "gain privileges by a set-user-ID program", Guarantee: "capabilities", try: privilegesCanBeGained},
}

func call(name string, err error) error { return os.NewSyscallError(name, err) }

func makeDevice(t *Targets) error {
	path := filepath.Join(t.Project(), "null")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		return call("mknod", err)
	}
	return os.Remove(path)
}

// holdsCapability checks the capabilities of a process and those that it could
// raise.
func holdsCapability(pid string) error {
	status, err := statusOf(pid)
	if err != nil {
		return err
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapAmb"} {
		if strings.Trim(status[set], "0") != "" {
			return nil
		}
	}
	return fmt.Errorf("CapEff is %s", status["CapEff"])
}

func traceForCapabilities(pid int) error {
	if err := trace(pid); err != nil {
		return err
	}
	return holdsCapability(fmt.Sprint(pid))
}

func privilegesCanBeGained(*Targets) error {
	status, err := statusOf("self")
	if err != nil {
		return err
	}
	if status["NoNewPrivs"] == "1" {
		return fmt.Errorf("NoNewPrivs is 1")
	}
	return nil
}

// statusOf reads /proc/PID/status.
func statusOf(pid string) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}
