package bwrap

import (
	"fmt"
	"os"
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
