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

// CheckHost tries bwrap, with the host's network or with one of its own, and reports the
// setting that keeps this machine from making a sandbox, if there is one. It looks for the
// other programs of a start, too. The error is an *Unavailable.
func CheckHost(bwrap Binary, hostNet bool) error {
	for _, name := range []string{"unshare", "nsenter"} {
		if FindTrusted(name) == "" {
			return &Unavailable{Reason: "cannot make a sandbox: " + name + " is missing", Advice: "install util-linux"}
		}
	}
	message, ok := tryBwrap(bwrap, hostNet)
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
func tryBwrap(bwrap Binary, hostNet bool) (message string, ok bool) {
	net := "--unshare-net"
	if hostNet {
		net = "--share-net"
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, bwrap.Path, "--unshare-user", "--unshare-all", net, "--die-with-parent",
		"--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true")
	cmd.Env = []string{"LC_ALL=C"}
	// Root may run this for another user, who can trace it: it must not have the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A bwrap that fails half way may leave a process, which holds standard error open.
	cmd.WaitDelay = time.Second
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if cmd.Process != nil {
		_ = end()
	}
	return strings.TrimSpace(stderr.String()), err == nil
}

func knob(name string) string {
	value, _ := fsat.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(value))
}
