package monitor

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a process when it was found: its number, and its parent.
type process struct{ pid, parent int }

// descendants lists the processes below pid, parents first. It is a snapshot: a
// further call finds later forks.
func descendants(pid int) []process {
	var found []process
	kids := family()
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, kid := range kids(queue[0]) {
			found = append(found, process{kid, queue[0]})
			queue = append(queue, kid)
		}
	}
	return found
}

// family returns a function that lists the children of a process. On a kernel built
// without /proc/PID/task/TID/children it reads the parent of every process.
func family() func(pid int) []int {
	if _, err := os.Stat("/proc/thread-self/children"); err == nil {
		return children
	}
	byParent := map[int][]int{}
	for _, pid := range everyone() {
		parent := parentOf(pid)
		byParent[parent] = append(byParent[parent], pid)
	}
	return func(pid int) []int { return byParent[pid] }
}

// everyone lists all processes.
func everyone() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childless reports whether this process has no child, not even one that has
// ended. It does not look into /proc: entries of threads there make each thread's
// end cost the kernel up to a millisecond.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

func ownChildren() []int {
	if childless() {
		return nil
	}
	self := os.Getpid()
	return family()(self)
}

// children lists the children of every thread of pid.
func children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has ended
	}
	var pids []int
	for _, t := range threads {
		list, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// statOf returns the fields of a process's stat from its state on, none when it has ended.
// The process itself chooses the text between the parentheses.
func statOf(pid int) []string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}

// parentOf returns the parent of a process, 0 when it has ended.
func parentOf(pid int) int {
	fields := statOf(pid)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// longestLine bounds a command line in a result.
const longestLine = 80

// commandLines returns the command lines of the running processes in list.
func commandLines(list []process) (lines []string) {
	for _, p := range list {
		dir := "/proc/" + strconv.Itoa(p.pid)
		line, _ := os.ReadFile(dir + "/cmdline")
		text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		if text == "" { // it has ended, or has made its command line empty
			stat, _ := os.ReadFile(dir + "/stat")
			end := strings.LastIndexByte(string(stat), ')')
			if end < 0 || hasEnded(strings.Fields(string(stat[end+1:]))) {
				continue
			}
			_, text, _ = strings.Cut(string(stat[:end]), "(")
		}
		if len(text) > longestLine {
			text = text[:longestLine] + "..."
		}
		lines = append(lines, text)
	}
	return lines
}

// hasEnded reports whether a process has ended, by the fields of its stat from its state on.
// A process whose first thread has ended runs on with the others, as a zombie.
func hasEnded(fields []string) bool {
	const state, threads = 0, 17
	return len(fields) <= threads || fields[state] == "X" || fields[state] == "Z" && fields[threads] <= "1"
}

// send signals a process if it is still the one that was found: the kernel may have
// given its number to another process. A process whose parent has ended is by now
// a child of this process.
func (p process) send(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		_ = unix.Kill(p.pid, sig)
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if parent := parentOf(p.pid); parent == p.parent || parent == os.Getpid() {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may have ended meanwhile
	}
}
