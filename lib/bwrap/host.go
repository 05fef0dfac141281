package bwrap

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// probeTimeout bounds the trial run of bwrap. It takes five milliseconds where
// it works; a machine under heavy load gets a thousand times that.
const probeTimeout = 10 * time.Second

// CheckHost reports whether this machine can fence at all, or which setting
// keeps it from it. Where no setting looks unusual it costs a tenth of a
// millisecond; otherwise bwrap itself is tried.
func CheckHost(bwrap Binary) error {
	if !unusual() {
		return nil
	}
	message, ok := tryBwrap(bwrap)
	if ok {
		return nil
	}
	return Diagnose(message)
}

// binfmt is mounted below /proc on most machines, and keeps nobody from
// mounting a proc of his own, as it covers an empty directory.
const binfmt = "/proc/sys/fs/binfmt_misc"

// unusual finds what can make bwrap fail: the kernel's switches, AppArmor, a
// container's mounts over /proc, its seccomp filter, a user namespace around
// this process (a sandbox, or a container without root).
func unusual() bool {
	for _, kind := range []string{"user", "mnt", "pid", "ipc", "uts", "net"} {
		if knob("user/max_"+kind+"_namespaces") == "0" {
			return true
		}
	}
	if knob("kernel/unprivileged_userns_clone") == "0" || knob("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return true
	}
	ids, _ := os.ReadFile("/proc/self/uid_map")
	if strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295" {
		return true
	}
	status, _ := os.ReadFile("/proc/self/status")
	return !bytes.Contains(status, []byte("\nSeccomp:\t0")) || mountBelow("/proc", binfmt) != ""
}

// tryBwrap runs the smallest sandbox that needs all that a real one needs.
func tryBwrap(bwrap Binary) (message string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, bwrap.Path, "--unshare-user", "--unshare-all", "--share-net", "--die-with-parent",
		"--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true")
	cmd.Env = []string{"LC_ALL=C"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	return strings.TrimSpace(stderr.String()), err == nil
}

func knob(name string) string {
	value, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(value))
}

// Diagnose turns what bwrap said on failing into the setting to change. The
// message of bwrap is kept: it is what people search for.
func Diagnose(message string) error {
	said := strings.TrimPrefix(firstLine(message), "bwrap: ")
	no := &Unavailable{Reason: "cannot make a sandbox: " + said, Advice: "run bwrap by hand to see more"}
	if said == "" {
		no.Reason = "cannot make a sandbox: bwrap failed and said nothing"
	}
	switch {
	case knob("user/max_user_namespaces") == "0":
		no.Advice = "user namespaces are off: sysctl user.max_user_namespaces=15000"
	case knob("kernel/unprivileged_userns_clone") == "0" && os.Geteuid() != 0:
		no.Advice = "user namespaces are off: sysctl kernel.unprivileged_userns_clone=1"
	case knob("kernel/apparmor_restrict_unprivileged_userns") == "1" && strings.Contains(said, "ermi"):
		no.Advice = "AppArmor denies user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap a profile with userns"
	case strings.Contains(said, "mount proc"):
		no.Advice = "the container hides parts of /proc: start it with --security-opt systempaths=unconfined"
	case strings.Contains(said, "uid map"):
		no.Advice = "this user cannot be mapped from here, which may be inside a sandbox: run it outside, or as an ordinary user"
	case strings.Contains(said, "ENOSPC"):
		no.Advice = "no more namespaces are allowed here: see user.max_user_namespaces, or whether this is a sandbox already"
	case strings.Contains(said, "No permissions to create"), strings.Contains(said, "Operation not permitted"):
		no.Advice = "the container's seccomp profile denies namespaces: start it with --security-opt seccomp=unconfined"
	}
	return no
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
