package session

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A bwrap that is killed within a millisecond of starting its sandbox may not
// have told the sandbox yet to die with it. What runs there then belongs to
// nobody: no lock speaks for it, and no caller waits. It would keep the overlays
// mounted for good.

// orphanPause is how often a keeper looks for such processes while others use
// the session.
const orphanPause = 10 * time.Second

// endOrphans ends, for as long as this process lives, what belongs to nobody.
func endOrphans(marker string) {
	for {
		time.Sleep(orphanPause)
		for _, pid := range orphans(marker) {
			End(pid, marker)
		}
	}
}

// orphans lists the processes in sandboxes of the session whose bwrap is gone.
// It runs in the keeper: a bwrap is in the keeper's user namespace, and what is
// in a sandbox is in one further inside.
func orphans(marker string) []int {
	var found []int
	for _, pid := range Seen(marker) {
		if !outside(pid) && !watched(pid, marker) {
			found = append(found, pid)
		}
	}
	return found
}

// outside reports whether a process is in this one's user namespace. One that
// is just entering it cannot be asked, and counts as in it.
func outside(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return true
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	return err != nil || its == own
}

// maxAncestors bounds the way up from a process: no tree is that deep.
const maxAncestors = 10_000

// watched reports whether a process above pid is outside of the sandbox, in the
// session's namespaces.
func watched(pid int, marker string) bool {
	for range maxAncestors {
		if pid = parent(pid); pid <= 1 {
			return false
		}
		if len(mountsOf(fmt.Sprintf("/proc/%d/mountinfo", pid), marker)) == 0 {
			return false // nobody of the session
		}
		if outside(pid) {
			return true
		}
	}
	return true
}

// parent returns the parent of a process, or 0.
func parent(pid int) int {
	fields := stat(pid)
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// stat returns what the kernel tells of a process, from its state on; nothing of
// one that has gone. What stands before, between parentheses, is the process's own
// choice.
func stat(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
