package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Marker is the source of the session's mounts. It stands in the mount table of
// each process that sees one of them: an overlay is in use as long as there is
// such a process.
func (d *Dir) Marker() string { return markerOf(d.dir) }

// markerOf is a digest of the identity of the directory and of its birth: the
// number of an inode is used again. The owner is no part of it, who is called 0
// in the keeper's user namespace.
func markerOf(dir *os.File) string {
	var st unix.Statx_t
	_ = unix.Statx(fd(dir), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st) // an open directory: it cannot fail
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%d %d %d.%d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec)))
	return "pk-session-" + hex.EncodeToString(sum[:16])
}

// Seen lists the processes that see something mounted under marker.
func Seen(marker string) []int {
	var pids []int
	for _, p := range processes(marker) {
		if p.sees {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// process is one that sees mounts of a session, or that is on its way out and
// may have seen some: it shows no mount table any more.
type process struct {
	pid  int
	sees bool
}

// processes lists them. Without this process: in a keeper they are its own mounts.
func processes(marker string) []process {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	own, _ := os.Readlink("/proc/self/ns/mnt")
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if ns, err := os.Readlink("/proc/" + name + "/ns/mnt"); err == nil && ns == own {
			continue // most processes: their mounts are this one's
		}
		sees, leaving := sees(pid, marker)
		if sees || leaving {
			list = append(list, process{pid, sees})
		}
	}
	return list
}

// sees reports whether a process sees something mounted under marker, and whether
// it is a process of this user that does not tell any more and has not ended.
func sees(pid int, marker string) (sees, leaving bool) {
	dir := fmt.Sprintf("/proc/%d", pid)
	table, err := os.ReadFile(dir + "/mountinfo")
	if errors.Is(err, unix.EINVAL) {
		var st unix.Stat_t
		return false, unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && !ended(dir)
	}
	return err == nil && bytes.Contains(table, []byte(" "+marker+" ")), false
}

// ended reports whether a process waits for nothing but its parent's attention.
func ended(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	at := bytes.LastIndexByte(stat, ')')
	return err != nil || at < 0 || len(stat) < at+3 || stat[at+2] == 'Z' || stat[at+2] == 'X'
}

// endAll kills the processes that see something mounted under marker, and waits
// until they and those that are on their way out have ended. It reports whether
// they have. Nobody uses the session: its lock says so.
func endAll(marker string) bool {
	for limit := time.Now().Add(endWait); ; {
		list := processes(marker)
		if len(list) == 0 || time.Now().After(limit) {
			return len(list) == 0
		}
		for _, p := range list {
			p.end(marker, time.Until(limit))
		}
	}
}

// end kills the process and waits for its end, unless its number has been given
// to another one.
func (p process) end(marker string, wait time.Duration) {
	n, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(n)
	sees, leaving := sees(p.pid, marker)
	if sees {
		_ = unix.PidfdSendSignal(n, unix.SIGKILL, nil, 0)
	}
	if sees || leaving {
		AwaitEnd(n, wait)
	}
}

// goes reports whether the process ends by itself within a time. Every process of the
// user that is on its way out is listed, also one that never saw the session.
func (p process) goes(wait time.Duration) bool {
	if p.sees {
		return false
	}
	n, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(n)
	return AwaitEnd(n, wait)
}

// AwaitEnd waits until the process of a pidfd has ended, and reports whether it
// has. The kernel has taken its namespaces down by then.
func AwaitEnd(pidfd int, wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for limit := time.Now().Add(wait); ; {
		left := time.Until(limit)
		if left <= 0 {
			return false
		}
		if n, err := unix.Poll(fds, int(left.Milliseconds())+1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}
