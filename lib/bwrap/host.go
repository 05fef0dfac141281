package bwrap

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"pikuri/lib/internal/fsat"
)

// probeTimeout bounds the trial run of bwrap, which takes five milliseconds if it works;
// a machine under heavy load gets a thousand times that.
const probeTimeout = 10 * time.Second

// CheckHost tries bwrap, and reports the setting that keeps this machine from making a
// sandbox, if there is one. The error is an *Unavailable.
func CheckHost(bwrap Binary) error {
	message, ok := tryBwrap(bwrap)
	if ok {
		return nil
	}
	return readHost(bwrap.Path).diagnose(message)
}

// binfmt is mounted below /proc on most machines. It covers an empty directory, so
// the kernel lets a sandbox mount its own proc all the same.
const binfmt = "/proc/sys/fs/binfmt_misc"

// namespaceKinds are those that bwrap makes and that can be switched off.
var namespaceKinds = []string{"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"}

// nested reports whether this process is in a user namespace.
func nested() bool {
	ids, _ := fsat.ReadFile("/proc/self/uid_map")
	return strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"
}

// filtered reports whether this process has a system call filter.
func filtered() bool {
	status, _ := fsat.ReadFile("/proc/self/status")
	return !bytes.Contains(status, []byte("\nSeccomp:\t0"))
}

// tryBwrap runs the smallest sandbox that needs the same from the machine as a real one.
func tryBwrap(bwrap Binary) (message string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, bwrap.Path, "--unshare-user", "--unshare-all", "--share-net", "--die-with-parent",
		"--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true")
	cmd.Env = []string{"LC_ALL=C"}
	// Root may run this for another user, who can trace it: it must not have the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	return strings.TrimSpace(stderr.String()), err == nil
}

func knob(name string) string {
	value, _ := fsat.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(value))
}
