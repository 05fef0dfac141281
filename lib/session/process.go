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

// Marker is the source of the session's mounts. It appears in the mount table of each
// process that sees one of them: an overlay is in use as long as there is such a process.
func (d *Dir) Marker() string { return markerOf(d.dir) }

// markerOf is a digest of the identity of the directory and of its time of birth: a file
// system reuses inode numbers. It omits the owner, whose ID is 0 in the keeper's user
// namespace.
func markerOf(dir *os.File) string {
	var st unix.Statx_t
	_ = unix.Statx(fd(dir), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st) // it cannot fail with an open directory
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%d %d %d.%d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec)))
	return "pk-session-" + hex.EncodeToString(sum[:16])
}

// Seen lists the processes that see a mount of marker.
func Seen(marker string) []int {
	var pids []int
	for _, p := range processes(marker) {
		if p.sees {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// process is one that sees mounts of a session, or one that is about to end and may have
// seen some: its mount table can no longer be read.
type process struct {
	pid  int
	sees bool
}

// processes lists them, without this process: a keeper sees its own mounts.
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
			continue // most processes are in this one's mount namespace
		}
		sees, leaving := sees(pid, marker)
		if sees || leaving {
			list = append(list, process{pid, sees})
		}
	}
	return list
}

// sees reports whether a process sees a mount of marker, and whether it is a process of
// this user that has not ended but whose mount table cannot be read.
func sees(pid int, marker string) (sees, leaving bool) {
	dir := fmt.Sprintf("/proc/%d", pid)
	table, err := os.ReadFile(dir + "/mountinfo")
	if errors.Is(err, unix.EINVAL) {
		var st unix.Stat_t
		return false, unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && !ended(dir)
	}
	return err == nil && bytes.Contains(table, []byte(" "+marker+" ")), false
}

// ended reports whether a process is a zombie or gone.
func ended(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	at := bytes.LastIndexByte(stat, ')')
	return err != nil || at < 0 || len(stat) < at+3 || stat[at+2] == 'Z' || stat[at+2] == 'X'
}

// endAll kills the processes that see a mount of marker, and waits until they, and those
// that are about to end, have ended. It reports whether they have. The lock on the
// session shows that no command uses it.
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

// end kills the process and waits for its end, unless its number now belongs to another
// one.
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

// goes reports whether the process ends by itself within a time. The list has every
// process of the user that is about to end, also those that never saw the session.
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

// AwaitEnd waits until the process of a pidfd has ended, and reports whether it has. The
// kernel has released its namespaces by then.
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
