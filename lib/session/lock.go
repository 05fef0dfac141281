package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A session with overlays has a keeper: a process that holds the namespaces in
// which they are mounted, from one command to the next. It is no user of the
// session directory: only commands are, and a keeper that nobody needs can be dismissed.
//
// The keeper holds a lock on a file of its own. It is a lock of fcntl(2), whose
// holder the kernel names: nobody has to believe a number that was written
// down, and a process id that was given away again is not taken for the keeper.
const (
	keeperFile   = ".keeper"   // locked by the keeper; not empty while it may have something mounted
	mountingFile = ".mounting" // locked while a keeper is started or something mounted
	overlays     = "overlay"   // what is written to overlays, a directory for each
)

// mountingWait bounds the wait for others that mount: each needs some
// milliseconds, and dozens may have been started at once on a busy machine.
const mountingWait = 60 * time.Second

// Keeper returns the process id of the session directory's keeper, or 0 when there is
// none. An error that matches ErrElsewhere says that there is one which this
// process cannot see.
func (d *Dir) Keeper() (int, error) { return keeperOf(d.lock) }

// ErrElsewhere says that a keeper runs where it cannot be seen from here: in
// another container, or on another machine.
var ErrElsewhere = errors.New("the keeper of the session runs in another process namespace")

// KeeperLock opens what the keeper has locked, to be asked by IsKeeper.
func (d *Dir) KeeperLock() (*os.File, error) { return openOwn(d.lock, keeperFile, unix.O_RDONLY) }

// IsKeeper reports whether process pid still is the keeper. Who starts another
// one has found the lock free before: whatever a process does in the namespaces
// of its keeper before it gets the answer yes, that one will see.
func IsKeeper(lock *os.File, pid int) bool {
	holder, err := holderOf(lock)
	return err == nil && holder == pid
}

func keeperOf(dir *os.File) (int, error) {
	f, err := openOwn(dir, keeperFile, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return holderOf(f)
}

func holderOf(f *os.File) (int, error) {
	ask := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &ask); err != nil {
		return 0, fmt.Errorf("cannot ask for the keeper: %w", err)
	}
	switch {
	case ask.Type == unix.F_UNLCK:
		return 0, nil
	case ask.Pid <= 0:
		return 0, ErrElsewhere
	}
	return int(ask.Pid), nil
}

// openOwn opens a plain file directly in the session directory. Commands cannot write
// there; the checks are for what somebody restored from a backup.
func openOwn(dir *os.File, name string, flags int) (*os.File, error) {
	n, err := unix.Openat(fd(dir), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(n), name)
	var st unix.Stat_t
	if err = unix.Fstat(n, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid()) {
		err = fmt.Errorf("%q in it is not a file of the user's own", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Touch tells the keeper that the session is in use now: it counts its idle
// time from there.
func (d *Dir) Touch() error {
	return unix.UtimesNanoAt(fd(d.lock), keeperFile, nil, unix.AT_SYMLINK_NOFOLLOW)
}

// Mounting waits until nobody else starts a keeper for the session directory or mounts
// anything for it. Close what it returns when that is done; a child that
// inherits it keeps the others waiting.
func (d *Dir) Mounting() (*os.File, error) {
	f, err := openOwn(d.lock, mountingFile, unix.O_RDWR|unix.O_CREAT)
	for waited := time.Duration(0); err == nil; waited += lockPause {
		if err = flock(f, unix.LOCK_EX); err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || waited > mountingWait {
			f.Close()
			break
		}
		time.Sleep(lockPause)
		err = nil
	}
	return nil, fmt.Errorf("cannot prepare session directory %q: %w", d.Path(), err)
}

// Overlays opens the directory in which the overlays' layers are, made when it
// is missing.
func (d *Dir) Overlays() (*os.File, error) {
	if err := unix.Mkdirat(fd(d.lock), overlays, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("cannot make %q: %w", filepath.Join(d.Path(), overlays), err)
	}
	return openPrivate(d.lock, overlays)
}

// Marker is the name that overlays of the session directory are mounted under. It is
// shown in the mount table of every process that sees one of them, and by it
// those are found: an overlay lives as long as any of them.
func (d *Dir) Marker() string { return markerOf(d.lock) }

// markerOf makes it from what the directory is, and from when it was made: the
// number of an inode is given away again. Whose it is is no part of it: in the
// keeper's user namespace the user is called 0.
func markerOf(dir *os.File) string {
	var st unix.Statx_t
	_ = unix.Statx(fd(dir), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st) // an open directory: it cannot fail
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%d %d %d.%d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec)))
	return "pk-session-" + hex.EncodeToString(sum[:16])
}

// Mounted reports whether overlays of the session directory may still be mounted though
// it has no keeper: one that was killed left without a word, after this boot.
func (d *Dir) Mounted() bool { return mayBeMounted(d.lock) }

func mayBeMounted(dir *os.File) bool {
	f, err := openOwn(dir, keeperFile, unix.O_RDONLY)
	if err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	defer f.Close()
	said, err := io.ReadAll(io.LimitReader(f, 100))
	return err != nil || bytes.Equal(said, bootID())
}

// bootID tells this boot of the machine from others: no mount survives one.
func bootID() []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return []byte("unknown\n")
	}
	return id
}

// Leaving reports whether a process of this user is on its way out and has not
// given up its mounts yet, for all that can be seen: it shows no mount table any
// more.
func Leaving() bool {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		if name == "" || name[0] < '0' || name[0] > '9' {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+name, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		// One that has ended as a whole has given up all, and answers the same.
		if f, err := os.Open("/proc/" + name + "/mountinfo"); err == nil {
			f.Close()
		} else if errors.Is(err, unix.EINVAL) && !ended(name) {
			return true
		}
	}
	return false
}

// ended reports whether a process waits for nothing but its parent's attention.
func ended(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	at := bytes.LastIndexByte(stat, ')')
	return err != nil || at < 0 || len(stat) < at+3 || stat[at+2] == 'Z' || stat[at+2] == 'X'
}

// Seen lists the processes that see something mounted under marker. A process
// that went away meanwhile sees nothing.
func Seen(marker string) []int {
	var pids []int
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	own, _ := os.Readlink("/proc/self/ns/mnt")
	word := []byte(" " + marker + " ")
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if ns, err := os.Readlink("/proc/" + name + "/ns/mnt"); err == nil && ns == own {
			continue // most processes: their mounts are this one's
		}
		if table, err := os.ReadFile("/proc/" + name + "/mountinfo"); err == nil && bytes.Contains(table, word) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// dismiss ends the keeper of a session directory that is locked against commands, and
// waits until nothing of it is mounted any more. It reports whether that came
// to pass.
func dismiss(dir *os.File) bool {
	if !endKeeper(dir) {
		return false
	}
	if !mayBeMounted(dir) {
		return true
	}
	marker := markerOf(dir)
	for began := time.Now(); ; time.Sleep(lockPause) {
		pids := Seen(marker)
		waited := time.Since(began)
		if len(pids) == 0 || waited > farewell {
			return len(pids) == 0
		}
		if waited > forgotten {
			for _, pid := range pids {
				End(pid, marker)
			}
		}
	}
}

// forgotten is how long what still sees the overlays of a session directory that nobody
// holds is taken to be on its way out.
const forgotten = 200 * time.Millisecond

// End kills a process if it sees something mounted under marker: its number may
// have been given to another.
func End(pid int, marker string) {
	n, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(n)
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err == nil && bytes.Contains(table, []byte(" "+marker+" ")) {
		_ = unix.PidfdSendSignal(n, unix.SIGKILL, nil, 0)
	}
}

// endKeeper sends the keeper away. Its mounts go with it: the descriptor of a
// process becomes readable after the kernel has taken its namespaces down,
// while its locks are free a moment earlier.
func endKeeper(dir *os.File) bool {
	pid, err := keeperOf(dir)
	if err != nil || pid == 0 {
		return err == nil
	}
	n, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil {
		return false
	}
	defer unix.Close(n)
	if again, err := keeperOf(dir); err != nil || again != pid {
		return err == nil && again == 0 // it has just ended
	}
	if err := unix.PidfdSendSignal(n, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false
	}
	return AwaitEnd(n, farewell)
}

// AwaitEnd waits until the process of a pidfd has ended, and reports whether
// it has.
func AwaitEnd(pidfd int, patience time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for limit := time.Now().Add(patience); ; {
		left := time.Until(limit)
		if left <= 0 {
			return false
		}
		if n, err := unix.Poll(fds, int(left.Milliseconds())+1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// keeping is a session directory in the hands of its keeper, which does not hold it as
// in use.
type keeping struct {
	base, dir, own *os.File
	name           string
}

// killedTime bounds the wait for a keeper that was killed, and has not let go of
// its lock yet.
const killedTime = 5 * time.Second

// lockAfter locks the keeper's file when nobody else does any more. No two start a
// keeper at one time, so who still has it is leaving.
func lockAfter(own *os.File) error {
	for limit := time.Now().Add(killedTime); ; time.Sleep(time.Millisecond) {
		err := unix.FcntlFlock(own.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if err != unix.EAGAIN && err != unix.EACCES || time.Now().After(limit) {
			return err
		}
	}
}

// beKeeper makes the calling process the keeper of a session directory that exists. It
// remains so until it ends.
func beKeeper(base, name string) (*keeping, error) {
	k := &keeping{name: name}
	var err error
	if k.base, err = openBase(base); err == nil {
		k.dir, err = openPrivate(k.base, name)
	}
	if err == nil {
		// Opened once: closing any descriptor of it would drop the lock.
		k.own, err = openOwn(k.dir, keeperFile, unix.O_RDWR|unix.O_CREAT)
	}
	if err == nil {
		err = lockAfter(k.own)
	}
	if err == nil {
		err = k.own.Truncate(0)
	}
	if err == nil {
		_, err = k.own.WriteAt(bootID(), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep session directory %q: %w", filepath.Join(base, name), err)
	}
	return k, nil
}

// Path is the session directory's directory.
func (k *keeping) Path() string { return filepath.Join(k.base.Name(), k.name) }

// Marker is that of the session directory.
func (k *keeping) Marker() string { return markerOf(k.dir) }

// Idle returns when no command has used the session directory for as long as asked. No
// command can begin to use it from then on: the keeper is to leave. A session directory
// that was removed or replaced is used by nobody.
func (k *keeping) Idle(patience time.Duration) error {
	busy := time.Now()
	for {
		waited, err := k.lockUnused()
		if err != nil {
			return err
		}
		if waited {
			busy = time.Now()
		}
		if !inPlace(k.base, k.name, k.dir) {
			return nil
		}
		left := patience - time.Since(later(busy, k.touched()))
		if left <= 0 {
			return nil
		}
		if err := k.Resume(); err != nil {
			return err
		}
		time.Sleep(min(left, patience))
	}
}

// Resume lets commands in again, after Idle.
func (k *keeping) Resume() error { return flock(k.dir, unix.LOCK_UN) }

// touched is when a command said that it uses the session directory; a time in the
// future is none.
func (k *keeping) touched() time.Time {
	var st unix.Stat_t
	if unix.Fstat(fd(k.own), &st) != nil {
		return time.Time{}
	}
	if when := time.Unix(st.Mtim.Unix()); when.Before(time.Now()) {
		return when
	}
	return time.Time{}
}

// lockUnused waits until no command uses the session directory and locks it then. It
// reports whether it had to wait. It never waits while it holds the directory:
// new commands would be kept out by one that runs for hours.
func (k *keeping) lockUnused() (waited bool, err error) {
	for {
		if err := flock(k.dir, unix.LOCK_EX); errors.Is(err, unix.EWOULDBLOCK) {
			waited = true
			if err := uninterrupted(func() error { return unix.Flock(fd(k.dir), unix.LOCK_EX) }); err != nil {
				return waited, err
			}
		} else if err != nil {
			return waited, err
		}
		if !lentOut(k.dir) {
			return waited, nil
		}
		waited = true
		if err := k.Resume(); err != nil {
			return waited, err
		}
		if err := k.awaitLent(); err != nil {
			return waited, err
		}
	}
}

// awaitLent waits until nobody holds what Lock handed on.
func (k *keeping) awaitLent() error {
	f, err := openOwn(k.dir, lockFile, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() // with it the lock goes at once: commands take it too
	return uninterrupted(func() error { return unix.Flock(fd(f), unix.LOCK_EX) })
}

func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Leave notes that nothing of the session directory is mounted any more. With remove,
// the session directory goes as well. The keeper holds it locked, from Idle.
func (k *keeping) Leave(remove bool) error {
	if err := k.own.Truncate(0); err != nil {
		return err
	}
	if !remove || !inPlace(k.base, k.name, k.dir) {
		return nil
	}
	s := &sweep{base: k.base}
	trash, err := s.putAside(k.dir, k.name)
	if err != nil {
		return err
	}
	return s.erase(k.dir, trash, Result{}).Err
}
