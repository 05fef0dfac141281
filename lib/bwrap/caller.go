package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckSystem reports the lack of /proc or /dev/null: pk starts no command without them, with a
// sandbox or without.
func CheckSystem() error { return checkSystem("") }

func checkSystem(root string) error {
	if _, err := os.Stat(root + "/proc/self/fd"); err != nil {
		return &Unavailable{Reason: "cannot start a command: /proc is not mounted", Advice: "as root: mount -t proc proc /proc"}
	}
	var st unix.Stat_t
	if unix.Stat(root+os.DevNull, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return &Unavailable{Reason: "cannot start a command: there is no /dev/null", Advice: "as root: rm -f /dev/null; mknod -m 666 /dev/null c 1 3"}
	}
	return nil
}

// minProcesses is the number of further processes and threads that a start needs: most are of Go's
// runtime, which ends a program that can get none with a trace.
const minProcesses = 40

// CheckProcesses reports a limit on processes that is too low to start a sandbox. It counts
// them only where few are allowed, and those that /proc shows. Root has no limit.
func CheckProcesses() error {
	const few = 4096
	var limit unix.Rlimit
	if os.Geteuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur >= few {
		return nil
	}
	used := threadsOf(os.Geteuid())
	if used+minProcesses <= int(limit.Cur) {
		return nil
	}
	return &Unavailable{
		Reason: fmt.Sprintf("cannot make a sandbox: too few processes: the limit is %d, %d are there, a start needs %d", limit.Cur, used, minProcesses),
		Advice: fmt.Sprintf("raise the limit on processes: ulimit -u %d; if the shell may not, start it with a higher one", used+few),
	}
}

// threadsOf counts the threads of a user.
func threadsOf(uid int) (n int) {
	names, _ := filepath.Glob("/proc/[0-9]*/task")
	for _, name := range names {
		var st unix.Stat_t
		if unix.Stat(name, &st) == nil && int(st.Uid) == uid {
			n += int(st.Nlink) - 2 // a directory for each
		}
	}
	return n
}

// CheckUmask refuses a umask with which pk cannot open the directories that it makes.
func CheckUmask() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	return checkUmask(string(status))
}

// checkUmask is CheckUmask; status is the kernel's account of the process.
func checkUmask(status string) error {
	_, rest, _ := strings.Cut(status, "\nUmask:")
	var mask uint32
	if _, err := fmt.Sscanf(rest, "%o", &mask); err != nil || mask&0o700 == 0 {
		return nil
	}
	return &Refusal{Reason: fmt.Sprintf("cannot make files: the umask %04o takes permissions from their owner", mask), Advice: "umask 022"}
}
