// Package session keeps the private directories of sessions: it makes them,
// holds them as in use, and removes them once nobody does.
//
// A session directory is a directory <base>/workspace-NAME of mode 0700. Whoever uses
// it holds a shared flock(2) on the directory itself. The kernel drops that
// lock when the last process that shares it is gone, however it ended, so a
// held lock means "in use" and nothing else does: an age only says what may be
// removed among those that nobody holds.
//
// Locks are seen by the processes of one machine. On a network file system,
// another machine sees the age alone.
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
)

// Prefix begins the name of an session directory's directory.
const Prefix = "workspace-"

// Names inside the base and inside a session directory.
const (
	prefix   = Prefix   // of a session directory
	reaped   = ".reap-" // of one that is being removed
	stamp    = ".stamp" // its mtime says when the session directory was last used
	lockFile = ".lock"  // held by what this process becomes
	tmpDir   = "playground"
)

const (
	// stampEvery is how old the stamp may grow while commands use the session directory.
	// Ages are counted in days, and a write for each command would wear on
	// laptops that sleep their disks.
	stampEvery = time.Hour

	// lockTries and lockPause bound the wait for a sweeper that holds the lock.
	// It holds it from its last check to the rename, a few system calls; five
	// seconds cover one that was swapped out in between.
	lockTries = 1000
	lockPause = 5 * time.Millisecond

	// farewell is how long Remove waits for the last process of a sandbox,
	// which dies some milliseconds after the command it was made for.
	farewell = 5 * time.Second
)

// Dir is a session directory in use. Release it or remove it.
type Dir struct {
	base  *os.File
	name  string // of the directory in the base
	named bool   // a session that outlives the command
	made  bool   // here, by this process
	lock  *os.File
	lent  *os.File // what Lock returned
}

// Create makes a session directory that lives for one command: the caller removes it.
// base, as Base returns it, is made when it is missing.
func Create(base string) (*Dir, error) { return Reserve(base).Create() }

// Reserved is a session directory of one command that has not been made yet, so that
// what is to be done with it can be planned, and refused, before anything is
// there. The name holds 130 random bits and is nobody else's.
type Reserved struct{ base, name string }

// Reserve names a session directory.
func Reserve(base string) Reserved { return Reserved{base, prefix + rand.Text()} }

// Tmp is where the session directory's playground will be.
func (r Reserved) Tmp() string { return filepath.Join(r.base, r.name, tmpDir) }

// Create makes the session directory.
func (r Reserved) Create() (*Dir, error) {
	dir, err := makeBase(r.base)
	if err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(fd(dir), r.name, 0o700); err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot make session directory %q: %w", filepath.Join(r.base, r.name), err)
	}
	return hold(dir, r.name, false)
}

// isSessionName is spelled out: a pattern would cost every start of every command
// a third of a millisecond.
func isSessionName(s string) bool {
	const longest, allowed = 64, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return s != "" && len(s) <= longest && strings.Trim(s, allowed) == ""
}

// Open makes the session called name, or joins it when it exists. It lasts
// until it is swept.
func Open(base, name string) (*Dir, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	dir, err := makeBase(base)
	if err != nil {
		return nil, err
	}
	return hold(dir, prefix+name, true)
}

// CheckName refuses a name that a session cannot have.
func CheckName(name string) error {
	if isSessionName(name) {
		return nil
	}
	return refuse("use 1 to 64 letters, digits, dots, underscores and dashes", "session name %q is not allowed", name)
}

// hold locks the session directory and marks it as used. A named one that is missing,
// or that a sweeper takes before the lock is held, is made. base is closed
// with the session directory, or here on failure.
func hold(base *os.File, name string, named bool) (*Dir, error) {
	d := &Dir{base: base, name: name, named: named}
	var err error
	for range lockTries {
		if d.lock, d.made, err = take(base, name); err == nil {
			err = d.touch()
		}
		if err == nil {
			return d, nil
		}
		d.closeLock()
		if !errors.Is(err, errTaken) {
			break
		}
	}
	base.Close()
	return nil, fmt.Errorf("cannot use session directory %q: %w", d.Path(), err)
}

// errTaken says that a sweeper holds the session directory, or has removed it.
var errTaken = errors.New("it is being removed by another process")

// take makes the session directory unless it exists and takes the shared lock. After
// the lock, the directory must still be the one that the name leads to: a
// sweeper may have renamed and removed it between the two system calls.
//
// It never waits for the lock itself. A sweeper keeps it until the last file is
// gone, but the name is free again after the first rename.
func take(base *os.File, name string) (dir *os.File, made bool, err error) {
	err = unix.Mkdirat(fd(base), name, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, false, err
	}
	made = err == nil
	dir, err = openPrivate(base, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, errTaken
	}
	if err != nil {
		return nil, false, err
	}
	err = flock(dir, unix.LOCK_SH)
	if errors.Is(err, unix.EWOULDBLOCK) {
		time.Sleep(lockPause)
		err = errTaken
	}
	if err == nil && !inPlace(base, name, dir) {
		err = errTaken
	}
	if err != nil {
		dir.Close()
		return nil, false, err
	}
	return dir, made, nil
}

// touch bumps the stamp when it is older than an hour, or lies in the future
// after the clock was set. Nothing is opened: a name in a directory is never a
// reason to follow it.
func (d *Dir) touch() error {
	var st unix.Stat_t
	err := unix.Fstatat(fd(d.lock), stamp, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return createEmpty(d.lock, stamp)
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	if err == nil && (age > stampEvery || age < 0) {
		err = unix.UtimesNanoAt(fd(d.lock), stamp, nil, unix.AT_SYMLINK_NOFOLLOW)
	}
	return err
}

// Name is the name of the session directory's directory in the base.
func (d *Dir) Name() string { return d.name }

// Named reports whether the session directory is a session that outlives its commands.
func (d *Dir) Named() bool { return d.named }

// Path is the session directory's directory, absolute when the base was.
func (d *Dir) Path() string { return filepath.Join(d.base.Name(), d.name) }

// Tmp returns the session's scratch directory, made when it is missing.
// What is seen as /tmp belongs to the sandboxed command, which may well have
// changed its mode; it is made 0700 again. Anything but a directory of the
// user's own is refused.
func (d *Dir) Tmp() (string, error) {
	path := filepath.Join(d.Path(), tmpDir)
	err := unix.Mkdirat(fd(d.lock), tmpDir, 0o700)
	if err == nil || errors.Is(err, unix.EEXIST) {
		err = d.checkTmp()
	}
	if err != nil {
		return "", fmt.Errorf("cannot use session tmp %q: %w", path, err)
	}
	return path, nil
}

func (d *Dir) checkTmp() error {
	n, err := unix.Openat(fd(d.lock), tmpDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return explain(d.lock, tmpDir, err)
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
	return chmodPath(n, 0o700)
}

// Lock returns a file that holds the session directory as in use, to be handed to a
// process that takes this one's place: it keeps the session directory in use until it
// ends. What is written to the file is lost. It is closed on exec unless passed
// on explicitly, and with the session directory here.
//
// It is not the directory that this process locks itself: from an open
// directory there is a way to its parent, so no process near a sandbox should
// hold one.
func (d *Dir) Lock() (*os.File, error) {
	if d.lent != nil {
		return d.lent, nil
	}
	n, err := unix.Openat(fd(d.lock), lockFile, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock session directory %q: %w", d.Path(), err)
	}
	f := os.NewFile(uintptr(n), lockFile)
	var st unix.Stat_t
	if err = unix.Fstat(n, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("its lock is not a file")
	}
	if err == nil && st.Size > maxLock {
		err = f.Truncate(0)
	}
	if err == nil {
		err = lend(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock session directory %q: %w", d.Path(), err)
	}
	d.lent = f
	return f, nil
}

// maxLock is how large the file may become by what each command writes to it.
// Emptying it every time would cost more than all else: ext4 writes to the disk
// what is written to a file that was emptied.
const maxLock = 64 << 10

// lend takes the lock that is handed on. A keeper that has waited for the last
// command to end holds it for a moment.
func lend(f *os.File) error {
	for range lockTries {
		err := flock(f, unix.LOCK_SH)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		time.Sleep(lockPause)
	}
	return unix.EWOULDBLOCK
}

// Locked is the locked directory. A process that inherits it keeps the session in
// use until it ends. It leads to its parent directory, so no process in a sandbox
// may have it.
func (d *Dir) Locked() *os.File { return d.lock }

// Release gives the lock back and keeps the directory. Processes that
// inherited the lock still hold it.
func (d *Dir) Release() error {
	err := d.closeLock()
	if closing := d.base.Close(); err == nil && !errors.Is(closing, fs.ErrClosed) {
		err = closing
	}
	return err
}

func (d *Dir) closeLock() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	if d.lent != nil {
		err = errors.Join(err, d.lent.Close())
	}
	d.lock, d.lent = nil, nil
	return err
}

// Remove releases the session directory and, unless it is a named session, which
// outlives its commands, removes it. A process that inherited the lock gets
// some seconds to end; after that the directory is left to the next sweep, and
// Remove says so.
func (d *Dir) Remove() error {
	defer d.Release()
	if d.lock == nil || d.named {
		return nil
	}
	return d.remove()
}

// Undo releases the session directory, and removes it if it was made here for nothing:
// for a command that was refused after all.
func (d *Dir) Undo() error {
	defer d.Release()
	if d.lock == nil || !d.made {
		return nil
	}
	return d.remove()
}

func (d *Dir) remove() error {
	if err := d.closeLock(); err != nil {
		return err
	}
	s := &sweep{base: d.base}
	for waited := time.Duration(0); ; waited += lockPause {
		r := s.one(d.name)
		switch {
		case r.Action == Failed:
			return fmt.Errorf("cannot remove session directory %q: %w", d.Path(), r.Err)
		case r.Reason == InUse && waited < farewell:
			time.Sleep(lockPause)
		case r.Action == Kept && r.Reason != Gone:
			return fmt.Errorf("cannot remove session directory %q: %s", d.Path(), r.Reason)
		default:
			return nil
		}
	}
}

// refusal is an error with advice on what to do about it.
type refusal struct{ reason, advice string }

func (r *refusal) Error() string { return r.reason }

// Hint is what to do next.
func (r *refusal) Hint() string { return r.advice }

func refuse(advice, format string, args ...any) error {
	return &refusal{reason: fmt.Sprintf(format, args...), advice: advice}
}

func foreign(uid uint32) error {
	return refuse("remove it, or have its owner do so", "it belongs to user %d", uid)
}

// isSessionDir reports whether a directory entry has the name of a session directory, or
// of one that a sweeper was removing.
func isSessionDir(name string) bool {
	session, ok := strings.CutPrefix(name, prefix)
	return strings.HasPrefix(name, reaped) || ok && isSessionName(session)
}
