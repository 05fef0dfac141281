// Package session keeps the directories of sessions and the overlays that the commands of
// a session share.
//
// A session directory is <base>/workspace-NAME, mode 0700. A session with
// overlays has a keeper: a small process that holds the user and the mount
// namespace in which each overlay is mounted once, from one command to the next.
// Two mounts of one upper layer corrupt it without an error.
//
// # Locks
//
// A session directory with a lock is in use and stays. There are five locks, the first
// four taken in this order:
//
//	file                lock      held by                        how long
//	base                shared    a command that opens a          some system calls
//	                              session directory
//	                    exclusive a sweeper that takes one away   some system calls
//	session directory   shared    a command that uses it, and     until both have closed it
//	                              its set-up program
//	                    exclusive its keeper or a command, to     a moment
//	                              see whether any command uses it
//	                    exclusive a sweeper, once it is renamed   until it is erased
//	.mounting           exclusive a command that starts the       until that is done
//	                              keeper or mounts an overlay
//	.keeper             exclusive the keeper                      as long as it lives
//	.background         exclusive a process that stays with the   as long as it lives
//	                    (a byte)  background of a command
//
// The first three are locks of flock(2). The one on the session directory belongs to an open
// file description, which the command hands to its set-up program (Locked). That outlives all
// processes of the sandbox. The locks on .keeper and .background are those of fcntl(2), whose
// holder the kernel names: no file holds a process ID.
//
// No process waits for a lock while holding a later one, except the keeper: it holds .keeper,
// for which no holder of the others waits without bound. Each wait ends when the kernel
// grants the lock or after a constant time.
//
// The kernel drops a lock when its last holder has ended, so SIGKILL leaves:
//
//	of a command    no lock: its session directory is unused
//	of a sweeper    a directory .reap-*, which the next sweep erases
//	of the keeper   overlays that are mounted as long as a sandbox shows them, and
//	                a note in .keeper. The next command enters the namespaces of such
//	                a sandbox and starts the keeper there, or waits for its end.
//
// Locks hold on one machine. On a network file system another machine sees only the age.
package session

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Prefix begins the name of a session directory.
const Prefix = "workspace-"

// Names inside the base and inside a session directory.
const (
	reaped = ".reap-"     // begins the name of a directory that is being removed
	stamp  = ".stamp"     // its mtime is the time of the last use; not empty in a trial
	TmpDir = "playground" // the session tmp
)

const (
	// stampEvery is the age at which commands renew the stamp. Ages are counted in days, and
	// a write for each command would wear on laptops that sleep their disks.
	stampEvery = time.Hour

	// lockWait bounds the wait for a lock that its holder keeps for some system calls. It
	// covers a holder that was swapped out in between.
	lockWait = 5 * time.Second

	// endWait bounds the wait for processes that are about to end: the last ones of a
	// sandbox, or a keeper that was dismissed.
	endWait = 5 * time.Second

	// openTries bounds the retries of making a session directory, if a process removes it
	// without the lock on the base.
	openTries = 10
)

// Dir is a session directory in use. Release or remove it.
type Dir struct {
	base  *os.File
	name  string // in the base
	named bool   // a session that outlives the command
	trial bool
	dir   *os.File
}

// Reserved is a session directory that need not exist yet: its use can be planned, and
// refused, before it is made.
type Reserved struct {
	// Trial makes the session a trial; an existing session that is none fails to open.
	// Without it, the session stays as it is.
	Trial bool

	base, name string
	named      bool
}

// Named reports whether the session outlives its commands.
func (r Reserved) Named() bool { return r.named }

// Reserve names a session directory that lives as long as one process. The name holds 130
// random bits, so no other process has it.
func Reserve(base string) Reserved { return Reserved{base: base, name: Prefix + rand.Text()} }

// ReserveNamed names the directory of the session called name.
func ReserveNamed(base, name string) (Reserved, error) {
	if !isSessionName(name) {
		return Reserved{}, refuse("use 1 to 64 letters, digits, dots, underscores and dashes", "session name %q is not allowed", name)
	}
	return Reserved{base: base, name: Prefix + name, named: true}, nil
}

// CheckName refuses a name that a session cannot have.
func CheckName(name string) error {
	_, err := ReserveNamed("", name)
	return err
}

// Name is the name of the directory in the base.
func (r Reserved) Name() string { return r.name }

// Path is the path of the session directory, which need not exist yet.
func (r Reserved) Path() string { return filepath.Join(r.base, r.name) }

// Tmp is the path of the session tmp, which need not exist yet.
func (r Reserved) Tmp() string { return filepath.Join(r.Path(), TmpDir) }

// Exists reports whether a file has the name of the session. Opening the session may
// fail.
func (r Reserved) Exists() bool {
	var st unix.Stat_t
	return unix.Lstat(r.Path(), &st) == nil
}

// Create makes a session directory that lives as long as one process. The caller removes
// it. It makes a missing base; base is as Base returns it.
func Create(base string) (*Dir, error) { return Reserve(base).Open() }

// Open opens the directory of the session called name, which lasts until it is swept.
func Open(base, name string) (*Dir, error) {
	r, err := ReserveNamed(base, name)
	if err != nil {
		return nil, err
	}
	return r.Open()
}

// Open opens the session directory and locks it as in use. It makes a missing one.
func (r Reserved) Open() (*Dir, error) {
	base, err := makeBase(r.base)
	if err != nil {
		return nil, err
	}
	d := &Dir{base: base, name: r.name, named: r.named}
	if err = d.lock(); err == nil {
		err = d.touch(r.Trial)
	}
	if err != nil {
		if !d.named { // no other process knows its name, and it is empty
			_ = unix.Unlinkat(fd(d.base), d.name, unix.AT_REMOVEDIR)
		}
		d.Release()
		return nil, fmt.Errorf("cannot use session directory %q: %w", r.Path(), err)
	}
	return d, nil
}

// isSessionName uses no regular expression: compiling one would cost every start of every
// command a third of a millisecond.
func isSessionName(s string) bool {
	const longest, allowed = 64, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return s != "" && len(s) <= longest && strings.Trim(s, allowed) == ""
}

// isSessionDir reports whether an entry of the base has the name of a session
// directory, or of a directory that a sweeper was removing.
func isSessionDir(name string) bool {
	session, ok := strings.CutPrefix(name, Prefix)
	return strings.HasPrefix(name, reaped) || ok && isSessionName(session)
}

// lock makes the directory unless it exists and takes the shared lock. No sweeper removes
// it meanwhile: that needs the exclusive lock on the base.
func (d *Dir) lock() error {
	if err := lockWithin(d.base, unix.LOCK_SH, lockWait); err != nil {
		return err
	}
	defer unlock(d.base)
	for range openTries {
		err := MakeDir(fd(d.base), d.name)
		if err == nil {
			d.dir, err = openPrivate(d.base, d.name)
		}
		if err == nil {
			err = lockWithin(d.dir, unix.LOCK_SH, lockWait)
		}
		if err == nil && inPlace(d.base, d.name, d.dir) {
			return nil
		}
		if d.dir != nil {
			d.dir.Close()
			d.dir = nil
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return errors.New("another process removes it again and again")
}

// touch renews the stamp if it is older than an hour, or lies in the future after the
// clock was set. It opens no file: the name could be a link.
//
// The first command of a session makes the stamp, which records whether the session is a
// trial.
func (d *Dir) touch(trial bool) error {
	var st unix.Stat_t
	err := unix.Fstatat(fd(d.dir), stamp, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		make := createEmpty
		if trial {
			make = createTrial
		}
		if err := make(d.dir, stamp); err != nil {
			return err
		}
		err = unix.Fstatat(fd(d.dir), stamp, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return err
	}
	d.trial = st.Size > 0
	if trial && !d.trial {
		return refuse("name a new session", "it was begun without --trial")
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	if age > stampEvery || age < 0 {
		err = unix.UtimesNanoAt(fd(d.dir), stamp, nil, unix.AT_SYMLINK_NOFOLLOW)
	}
	return err
}

// createTrial makes the stamp of a trial in one step, so that no process sees it empty.
// It accepts an existing one.
func createTrial(dir *os.File, name string) error {
	n, err := unix.Openat(fd(dir), ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make %q: %w", name, err)
	}
	defer unix.Close(n)
	if err := fsat.Fill(n, []byte("trial\n")); err != nil {
		return err
	}
	if err := unix.Fchmod(n, 0o600); err != nil { // with any umask
		return err
	}
	err = unix.Linkat(unix.AT_FDCWD, fsat.Path(n), fd(dir), name, unix.AT_SYMLINK_FOLLOW)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// Trial reports whether the writable roots of the session's commands are overlays, whose
// changes land only by pk-apply.
func (d *Dir) Trial() bool { return d.trial }

// IsTrial reports whether there is a session of this name that is a trial.
func (r Reserved) IsTrial() bool {
	var st unix.Stat_t
	return unix.Lstat(filepath.Join(r.Path(), stamp), &st) == nil && st.Size > 0
}

// Name is the name of the directory in the base.
func (d *Dir) Name() string { return d.name }

// Named reports whether the session outlives its commands.
func (d *Dir) Named() bool { return d.named }

// Path is the directory's path, absolute if the base was.
func (d *Dir) Path() string { return filepath.Join(d.base.Name(), d.name) }

// Locked is the directory, open and locked. A process that inherits it keeps the session
// directory in use until it ends. No sandboxed process may have it: an open directory
// gives access to its parent.
func (d *Dir) Locked() *os.File { return d.dir }

// Tmp returns the session tmp, and makes a missing one. The sandbox shows it as /tmp, and
// its command may change the mode, so Tmp sets it to 0700 again. It refuses anything but
// a directory of the user's own.
func (d *Dir) Tmp() (string, error) {
	path := filepath.Join(d.Path(), TmpDir)
	err := MakeDir(fd(d.dir), TmpDir)
	if err == nil {
		err = d.checkTmp()
	}
	if err != nil {
		return "", fmt.Errorf("cannot use session tmp %q: %w", path, err)
	}
	return path, nil
}

func (d *Dir) checkTmp() error {
	n, err := unix.Openat(fd(d.dir), TmpDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return explain(d.dir, TmpDir, err)
	}
	defer unix.Close(n)
	var st unix.Stat_t
	if err := unix.Fstat(n, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return foreign(st.Uid)
	}
	if st.Mode&0o7777 == 0o700 {
		return nil
	}
	return fsat.Chmod(n, 0o700)
}

// Release gives the lock back and keeps the directory. Processes that inherited the lock
// still hold it: Release closes it and does not unlock it.
func (d *Dir) Release() error {
	err := d.closeLock()
	if closing := d.base.Close(); err == nil && !errors.Is(closing, fs.ErrClosed) {
		err = closing
	}
	return err
}

func (d *Dir) closeLock() error {
	if d.dir == nil {
		return nil
	}
	err := d.dir.Close()
	d.dir = nil
	return err
}

// Remove releases the directory and, unless the session is named, removes it. It waits
// some seconds for a process that inherited the lock; then it leaves the directory to the
// next sweep, and returns an error.
func (d *Dir) Remove() error {
	defer d.Release()
	if d.dir == nil || d.named {
		return nil
	}
	if err := d.closeLock(); err != nil {
		return err
	}
	if err := removeUnused(d.base, d.name); err != nil {
		return fmt.Errorf("cannot remove session directory %q: %w", d.Path(), err)
	}
	return nil
}

// removeUnused removes a session directory when no process uses it any more. It waits for
// that without the lock on the base, and then competes with all others.
func removeUnused(base *os.File, name string) error {
	s := &sweep{base: base}
	for limit := time.Now().Add(endWait); ; {
		switch r := s.one(name); {
		case r.Action == Failed:
			return r.Err
		case r.Action == Removed || r.Reason == Gone:
			return nil
		case r.Reason != InUse || time.Now().After(limit):
			return errors.New(string(r.Reason))
		}
		dir, err := openPrivate(base, name)
		if err == nil {
			_ = lockWithin(dir, unix.LOCK_EX, time.Until(limit))
			dir.Close()
		}
	}
}

// refusal is an error with advice for the user.
type refusal struct{ reason, advice string }

func (r *refusal) Error() string { return r.reason }

// Hint is the advice.
func (r *refusal) Hint() string { return r.advice }

func refuse(advice, format string, args ...any) error {
	return &refusal{reason: fmt.Sprintf(format, args...), advice: advice}
}

func foreign(uid uint32) error {
	return refuse("remove it, or have its owner do so", "it belongs to user %d", uid)
}
