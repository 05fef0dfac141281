package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/internal/rlimit"
	"pikuri/lib/mountinfo"
)

// The keeper holds the namespaces of a session until no command has used the session for
// a while. Then it unmounts the overlays and ends; the keeper of a session without a name
// also removes its directory. A command mounts missing overlays itself, in the keeper's
// namespaces. So the keeper answers no requests, and no command can influence it.
//
// A command in a sandbox cannot reach the keeper. The keeper is outside of its PID
// namespace, so it can neither signal nor trace it; the keeper's user namespace is the
// parent of its own; and of the session directory the command sees only the session tmp.

const (
	keeperFile   = ".keeper"   // locked by the keeper; holds the boot ID while something may be mounted
	mountingFile = ".mounting" // locked while a keeper is started or something mounted
)

// OverlayDir, in a session directory, holds the layers of overlays, a directory for each.
const OverlayDir = "overlay"

// Names of the modes.
const (
	startOption = "--pk-keeper-start"
	keepOption  = "--pk-keeper"
	mountOption = "--pk-keeper-mount"
)

// Idle is the time for which the keeper of a named session waits for the next command.
// The layers of its overlays stay in the session directory; the next command takes a few
// milliseconds more.
const Idle = 15 * time.Minute

// Descriptors of a keeper that starts.
const (
	readyFD = 3 // it writes "ready" there, or its error
	selfFD  = 4 // this program, which it starts again
	busyFD  = 5 // the lock on .mounting, until it is ready
	userFD  = 6 // the namespaces of a killed one, to replace it
	mntFD   = 7
)

// ready is the message of a keeper once its namespaces can be joined.
const ready = "ready"

// title begins the name of a keeper in the list of processes.
const title = "pk-keeper: "

// Modes are the modes in which a program that calls Join starts itself again.
func Modes() []hidden.Mode {
	mount := func(args []string) error { return mountAll(args, os.Stdout) }
	return []hidden.Mode{
		{Name: startOption, Run: launch, Title: title}, {Name: keepOption, Run: keep, Title: title}, {Name: mountOption, Run: mount},
	}
}

// launch starts the keeper and ends, so that the keeper is not the caller's child: a
// caller that waits for its children, or ends them, does not affect it. args are those of
// the keeper. The first is a line that starts the keeper in existing namespaces, as JSON,
// or empty.
func launch(args []string) error {
	if len(args) != 4 {
		return hidden.ErrOwnUse
	}
	// A process that stays must not hold the files that the caller of pk has open.
	if err := unix.CloseRange(readyFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot close inherited descriptors: %w", err)
	}
	rlimit.Raise()
	name := title + "session " + strings.TrimPrefix(args[2], Prefix)
	cmd := &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", selfFD),
		Args:        append([]string{name, keepOption}, args[1:]...),
		Dir:         "/",
		ExtraFiles:  []*os.File{os.NewFile(readyFD, "ready"), os.NewFile(selfFD, "self"), os.NewFile(busyFD, "busy")},
		Env:         []string{},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if args[0] == "" {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	} else {
		var line []string
		if err := json.Unmarshal([]byte(args[0]), &line); err != nil || len(line) == 0 {
			return hidden.ErrOwnUse
		}
		cmd.Path, cmd.Args = line[0], append(line, cmd.Args[1:]...)
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(userFD, "user"), os.NewFile(mntFD, "mnt"))
	}
	return cmd.Start()
}

// keeper is a keeper with its session directory. It does not count as a user of the directory.
type keeper struct {
	base, dir, own *os.File
	name           string
	idle           time.Duration // the wait for the next command; 0: the directory is removed after its last user
}

// keep is the main function of the keeper. args: the base, the name of the session
// directory in it, and the wait for the next command.
func keep(args []string) error {
	for _, fd := range []int{selfFD, userFD, mntFD} {
		unix.Close(fd)
	}
	unix.CloseOnExec(busyFD)
	starter := os.NewFile(readyFD, "ready")
	k, err := takeOver(args)
	if err != nil {
		fmt.Fprint(starter, err)
		return err
	}
	fmt.Fprint(starter, ready)
	starter.Close()
	unix.Close(busyFD)
	if err := k.awaitIdle(); err != nil {
		return err
	}
	return k.leave()
}

// takeOver makes this process the keeper, in namespaces that must be its own: elsewhere
// all processes would see the mounts.
func takeOver(args []string) (*keeper, error) {
	if len(args) != 3 || !mapped() {
		return nil, hidden.ErrOwnUse
	}
	idle, err := time.ParseDuration(args[2])
	if err != nil {
		return nil, hidden.ErrOwnUse
	}
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	if err := AssumeGroup(); err != nil {
		return nil, err
	}
	unix.Umask(0o077)
	_ = os.WriteFile("/proc/self/comm", []byte("pk-keeper"), 0) // for the output of ps
	// The host's later mounts and unmounts must propagate here: otherwise the keeper would
	// keep a disk from being unmounted.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("cannot follow the host's mounts: %w", err)
	}
	debug.FreeOSMemory() // memory that start-up has used
	return becomeKeeper(args[0], args[1], idle)
}

// becomeKeeper makes the calling process the keeper of an existing session directory, to
// the end of the process.
func becomeKeeper(base, name string, idle time.Duration) (*keeper, error) {
	k := &keeper{name: name, idle: idle}
	var err error
	if k.base, err = openBase(base); err == nil {
		k.dir, err = openPrivate(k.base, name)
	}
	if err == nil {
		// Opened once: closing any descriptor of it drops the lock.
		k.own, err = openOwn(k.dir, keeperFile, unix.O_RDWR|unix.O_CREAT)
	}
	if err == nil {
		err = k.lockOwn()
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

// lockOwn takes the keeper's lock. Keepers are started one at a time, so one that still
// has the lock is ending.
func (k *keeper) lockOwn() error {
	locked := make(chan error, 1)
	go func() {
		locked <- uninterrupted(func() error {
			return unix.FcntlFlock(k.own.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
		})
	}()
	select {
	case err := <-locked:
		return err
	case <-time.After(endWait):
		return errors.New("another process is its keeper")
	}
}

// AssumeGroup gives this process, in the user namespace of a keeper, the one group that
// is mapped there: that of the command that started the keeper. A file cannot be made
// with a group that is not mapped.
func AssumeGroup() error {
	if os.Getegid() == 0 {
		return nil
	}
	err := rlimit.Signals()
	if err == nil {
		err = syscall.Setresgid(0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("cannot take the group of the session: %w", err)
	}
	return nil
}

// mapped distinguishes a user namespace made for one user from the machine's own.
func mapped() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(ids))
	return err == nil && len(fields) == 3 && fields[0] == "0" && fields[2] == "1"
}

// awaitIdle returns with the exclusive lock when no command has used the session
// directory for the keeper's idle time, or when it was removed. Any command may use it
// until then.
func (k *keeper) awaitIdle() error {
	for {
		waited, err := k.lockUnused()
		if err != nil {
			return err
		}
		used := k.touched()
		if waited {
			used = time.Now()
		}
		left := k.idle - time.Since(used)
		if left <= 0 || !inPlace(k.base, k.name, k.dir) {
			return nil
		}
		unlock(k.dir)
		time.Sleep(left)
	}
}

// lockUnused waits until no command uses the session directory and then locks it. It
// reports whether it had to wait.
func (k *keeper) lockUnused() (waited bool, err error) {
	err = flock(k.dir, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		waited = true
		err = uninterrupted(func() error { return unix.Flock(fd(k.dir), unix.LOCK_EX) })
	}
	return waited, err
}

// touched is the time of the last join by a command; a time in the future is ignored.
func (k *keeper) touched() time.Time {
	var st unix.Stat_t
	if unix.Fstat(fd(k.own), &st) != nil {
		return time.Time{}
	}
	if when := time.Unix(st.Mtim.Unix()); when.Before(time.Now()) {
		return when
	}
	return time.Time{}
}

// leave unmounts the overlays. It removes the note about them unless a process still sees
// one: the set-up program of a command may have been killed, with its sandbox about to
// end. Then it gives up its own lock before the lock on the directory, so that no command
// finds a keeper that ends.
func (k *keeper) leave() error {
	marker := markerOf(k.dir)
	for _, m := range slices.Backward(mountsOf("/proc/self/mountinfo", marker)) {
		_ = unix.Unmount(m.Point, unix.MNT_DETACH)
	}
	limit := time.Now().Add(endWait)
	stays := func(p process) bool { return !p.goes(time.Until(limit)) }
	if !slices.ContainsFunc(processes(marker), stays) {
		if err := k.own.Truncate(0); err != nil {
			return err
		}
	}
	if err := k.own.Close(); err != nil || k.idle > 0 {
		return err
	}
	unlock(k.dir)
	return removeUnused(k.base, k.name)
}

// mountsOf lists the mounts of marker in a mount table, in order.
func mountsOf(table, marker string) []mountinfo.Mount {
	mounts, _ := mountinfo.Read(table) // none of a process that has ended
	return slices.DeleteFunc(mounts, func(m mountinfo.Mount) bool { return m.Source != marker })
}

// Keeper returns the process ID of the session's keeper, or 0 without one. With an error
// that matches ErrElsewhere there is a keeper that this process cannot see.
func (d *Dir) Keeper() (int, error) { return keeperOf(d.dir) }

// ErrElsewhere reports a keeper in another container, or on another machine.
var ErrElsewhere = errors.New("the keeper of the session runs in another process namespace")

// KeeperLock opens the file that the keeper has locked, for IsKeeper.
func (d *Dir) KeeperLock() (*os.File, error) { return openOwn(d.dir, keeperFile, unix.O_RDONLY) }

// IsKeeper reports whether process pid still is the keeper. The next keeper starts after
// it has found the lock free. So it sees everything that a process did in its
// predecessor's namespaces before IsKeeper returned true.
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

// mayBeMounted reports whether overlays of a session directory without a keeper may still
// be mounted: a keeper that was killed, after this boot, left its note.
func mayBeMounted(dir *os.File) bool {
	f, err := openOwn(dir, keeperFile, unix.O_RDONLY)
	if err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	defer f.Close()
	said, err := io.ReadAll(io.LimitReader(f, 100))
	return err != nil || bytes.Equal(said, bootID())
}

// bootID identifies this boot of the machine: no mount survives one.
func bootID() []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return []byte("unknown\n")
	}
	return id
}

// dismiss ends the keeper of a session directory that is locked exclusively, and all processes
// that still see its mounts. It reports whether all are unmounted.
func dismiss(dir *os.File) bool {
	pid, err := keeperOf(dir)
	if err != nil {
		return false
	}
	if pid != 0 && !endKeeper(dir, pid) {
		return false
	}
	return !mayBeMounted(dir) || endAll(markerOf(dir))
}

// endKeeper ends the keeper, and so its mounts.
func endKeeper(dir *os.File, pid int) bool {
	n, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(n)
	if again, err := keeperOf(dir); err != nil || again != pid {
		return err == nil && again == 0 // it has just ended
	}
	if err := unix.PidfdSendSignal(n, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false
	}
	return AwaitEnd(n, endWait)
}
