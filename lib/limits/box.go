package limits

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Box enforces the limits of one command.
//
// Its cgroup is two nested directories:
//
//	pk-PID-NAME     has the limits
//	pk-PID-NAME/in  has the processes
//
// A command that mounts the cgroup file system in a cgroup namespace of its own
// (--allow-nested) sees "in" as its root, and so no file that sets the limits.
type Box struct {
	limits Limits
	dir    string // "": no cgroup is needed
	in     *os.File
}

// leaf is where the command's processes are.
const leaf = "in"

// ownPrefix begins the names of all cgroups made here. The process ID of the
// maker follows.
const ownPrefix = "pk-"

// attempts bounds the retries of making a cgroup. A process in another PID
// namespace may sweep it away while it is still empty.
const attempts = 5

// Prepare makes the cgroup that enforces the limits, or refuses with a Refusal.
// It may move this process, into a scope that systemd makes for it.
func Prepare(l Limits) (*Box, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	b := &Box{limits: l}
	if !l.cgroup() {
		return b, nil
	}
	h := thisHost()
	r, err := h.room(l.controllers())
	if err != nil {
		return nil, cannot(l, err)
	}
	sweep(r.dir)
	if err := r.open(l.controllers()); err != nil {
		return nil, cannot(l, err)
	}
	for range attempts {
		if err = b.make(r.dir, h.swap); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, cannot(l, err)
	}
	return b, nil
}

// cannot names the limits that an error keeps from being enforced.
func cannot(l Limits, err error) error {
	what := "cannot enforce --" + strings.Join(l.controllers(), " and --") + ": "
	if no, ok := errors.AsType[*Refusal](err); ok {
		return &Refusal{Reason: what + no.Reason, Advice: no.Advice}
	}
	return &Refusal{Reason: what + err.Error(), Advice: "leave the option out to run without the limit"}
}

// open lets the children of the room use the controllers.
func (r room) open(controllers []string) error {
	if !r.enable {
		return nil
	}
	if r.leave {
		main := filepath.Join(r.dir, fmt.Sprintf("%s%d-main", ownPrefix, os.Getpid()))
		if err := os.Mkdir(main, 0o755); err != nil {
			return err
		}
		if err := set(main, "cgroup.procs", "0"); err != nil { // 0: the process that writes
			return err
		}
	}
	return set(r.dir, "cgroup.subtree_control", plus(controllers))
}

// make makes the cgroup and limits it.
func (b *Box) make(room string, swap bool) error {
	dir := filepath.Join(room, fmt.Sprintf("%s%d-%s", ownPrefix, os.Getpid(), rand.Text()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	err := b.limits.impose(dir, swap)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, leaf), 0o755)
	}
	if err == nil {
		b.in, err = os.Open(filepath.Join(dir, leaf))
	}
	if err != nil {
		_ = remove(dir) // the first error says more
		return err
	}
	b.dir = dir
	return nil
}

// impose writes the limits to an empty cgroup and reads them back.
func (l Limits) impose(dir string, swap bool) error {
	if l.Memory > 0 {
		// memory.max does not count pages that are swapped out.
		err := set(dir, "memory.swap.max", "0")
		switch {
		case errors.Is(err, fs.ErrNotExist) && swap:
			return &Refusal{Reason: "the kernel does not count swap, and there is some", Advice: "boot with swapaccount=1 on the kernel's command line, or swapoff -a"}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		// Otherwise the kernel kills one process, and its shell goes on.
		if err := set(dir, "memory.oom.group", "1"); err != nil {
			return err
		}
		if err := bound(dir, "memory.max", l.Memory); err != nil {
			return err
		}
	}
	if l.Pids > 0 {
		return bound(dir, "pids.max", l.Pids+OwnPids)
	}
	return nil
}

// OwnPids is how many processes of the cgroup are not the command's: bwrap, and
// the first process of its pid namespace.
const OwnPids = 2

// set writes to an existing file of a cgroup; it never creates one.
func set(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// bound sets a limit. The kernel rounds memory down to whole pages.
func bound(dir, name string, value int64) error {
	if err := set(dir, name, strconv.FormatInt(value, 10)); err != nil {
		return err
	}
	now := words(dir, name)
	if len(now) == 1 {
		if n, err := strconv.ParseInt(now[0], 10, 64); err == nil && n <= value {
			return nil
		}
	}
	return fmt.Errorf("the kernel did not take %d as %s", value, name)
}

// Cgroup is the directory of the cgroup to start the command in, or nil.
func (b *Box) Cgroup() *os.File { return b.in }

// Stopped returns the limit that ended the command, if one did. death is the signal that
// its main process died of, 0 for none; the caller passes no SIGKILL that it sent itself.
// used is the processor time of all processes of the command, once the caller has waited
// for the last of them. The time of bwrap itself does not include it: bwrap does not wait
// for the command's init.
//
// Memory is certain: the kernel counts it. So is SIGXCPU or SIGXFSZ, unless the command
// sent it to itself. A process that ignores SIGXCPU (Go and Java do) gets a SIGKILL; it
// is recognised by the processor time used. That time may be a tenth below the limit on a
// busy machine: the kernel counts ticks for the limit, and reports real time.
func (b *Box) Stopped(death syscall.Signal, used time.Duration) (Name, bool) {
	switch {
	case b.limits.Memory > 0 && b.count("memory.events", "oom") > 0 && b.count("memory.events", "oom_kill") > 0:
		return Memory, true // oom alone: no process was killed; oom_kill alone: the machine ran out
	case b.limits.CPUTime > 0 && (death == syscall.SIGXCPU || death == syscall.SIGKILL && used >= b.limits.CPUTime/4*3):
		return CPUTime, true
	case b.limits.FileSize > 0 && death == syscall.SIGXFSZ:
		return FileSize, true
	}
	return "", false
}

// Crowded reports whether the limit kept the command from starting a process or
// a thread. The kernel ends no process for that.
func (b *Box) Crowded() bool { return b.limits.Pids > 0 && b.count("pids.events", "max") > 0 }

// count reads a counter from a file of lines "name value".
func (b *Box) count(file, name string) int64 {
	list := words(b.dir, file)
	if i := slices.Index(list, name); i >= 0 && i+1 < len(list) {
		n, _ := strconv.ParseInt(list[i+1], 10, 64) // the kernel writes numbers
		return n
	}
	return 0
}

// Bounds of Close. Killed processes end within milliseconds as a rule.
const (
	closeLimit = 5 * time.Second
	closePause = time.Millisecond
)

// Close kills the processes that are left in the cgroup and removes it.
func (b *Box) Close() error {
	if b.dir == "" {
		return nil
	}
	b.in.Close()
	err := errors.New("the processes do not end")
	for limit := time.Now().Add(closeLimit); err != nil && time.Now().Before(limit); {
		if err = kill(b.dir); err == nil {
			err = remove(b.dir)
		}
		if errors.Is(err, unix.EBUSY) {
			time.Sleep(closePause) // killed, but not gone yet
		} else if err != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("cannot remove the cgroup %q: %w", b.dir, err)
	}
	b.dir = ""
	return nil
}

// kill ends every process in and below dir.
func kill(dir string) error {
	err := set(dir, "cgroup.kill", "1")
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Before Linux 5.14. Close repeats this, and so finds children forked
	// meanwhile.
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		for _, word := range words(path, "cgroup.procs") {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
			}
		}
		return nil
	})
}

// remove removes an empty cgroup and those below it, which an unfenced command
// may have made.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// sweep removes cgroups of monitors that were killed. The kernel does not remove a
// cgroup with a process in it, so at worst one stays.
func sweep(room string) {
	entries, _ := os.ReadDir(room)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), ownPrefix)
		maker, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(maker)
		if !ok || err != nil || !e.IsDir() || pid <= 0 || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		_ = remove(filepath.Join(room, e.Name()))
	}
}
