package session

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// clockSkew is the time by which a timestamp may lie in the future without a remark: file
// servers have clocks of their own.
const clockSkew = time.Minute

// Action is the result of a sweep for one session directory.
type Action string

// The actions.
const (
	Removed     Action = "removed"
	WouldRemove Action = "would-remove" // in a dry run
	Kept        Action = "kept"
	Failed      Action = "failed" // with Err; part of it may be gone
)

// Reason is the reason why a session directory was kept.
type Reason string

// The reasons.
const (
	InUse        Reason = "in use"
	Young        Reason = "young"
	Future       Reason = "used in the future"
	Foreign      Reason = "owned by another user"
	Mounted      Reason = "a mount point"
	NotDirectory Reason = "not a directory"
	Trial        Reason = "a trial with changes that have not landed"
	Gone         Reason = "gone" // another process has removed it meanwhile
)

// SweepOptions select the session directories to sweep. The zero value removes every
// unused one, whatever its age: set OlderThan.
type SweepOptions struct {
	OlderThan time.Duration
	All       bool     // of any age
	Sessions  []string // only these, of any age
	DryRun    bool     // change no file
	Measure   bool     // count files and bytes; a dry run always does
	Now       func() time.Time

	// Holds reports whether a trial has changes that have not landed: it is kept, at any age.
	// nil: each trial is. With Discard it is removed with its changes.
	Holds   func(path string) bool
	Discard bool
}

// Result is the result for one session directory.
type Result struct {
	Path     string
	Action   Action
	Reason   Reason // with Kept
	LastUsed time.Time
	Age      time.Duration
	Usage    Usage
	Err      error // with Failed: the first failure
	Failures int   // their number
}

// Sweep removes the session directories in base that are older than asked and that no
// process holds, and finishes the work of a killed sweep. It calls report for each entry
// that looks like a session directory. A base that does not exist is empty.
//
// Several sweeps may run at once, and session directories may be made and used meanwhile.
// Sweep follows no link, crosses no mount point, and changes the mode of directories
// only. If a process that ignores the locks changes the tree meanwhile, it may lose its
// own files, but no file outside is touched.
func Sweep(base string, o SweepOptions, report func(Result)) error {
	return sweepIn(base, o, nil, report)
}

// sweepIn is Sweep; it calls ask before each removal.
func sweepIn(base string, o SweepOptions, ask func(path string) error, report func(Result)) error {
	dir, err := openBase(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &sweep{base: dir, SweepOptions: o, byAge: !o.All && len(o.Sessions) == 0, ask: ask}
	names, err := s.candidates()
	if err != nil {
		return fmt.Errorf("cannot list cache directory %q: %w", base, err)
	}
	for _, name := range names {
		if ask != nil && ask(name) != nil {
			break
		}
		if r := s.one(name); r.Reason != Gone {
			report(r)
		}
	}
	return nil
}

type sweep struct {
	SweepOptions
	base  *os.File
	byAge bool
	ask   func(path string) error // of the Eraser, or nil
}

func (s *sweep) candidates() ([]string, error) {
	entries, err := s.base.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(entries)
	return slices.DeleteFunc(entries, func(name string) bool {
		return !isSessionDir(name) || !s.wanted(name)
	}), nil
}

// wanted reports whether the entry is one of the named sessions, or the rest of one after
// a killed sweep: there the last dash ends the session's name.
func (s *sweep) wanted(name string) bool {
	if len(s.Sessions) == 0 {
		return true
	}
	if left, ok := strings.CutPrefix(name, reaped); ok {
		name = left[:max(0, strings.LastIndexByte(left, '-'))]
	}
	return slices.ContainsFunc(s.Sessions, func(n string) bool { return Prefix+n == name })
}

// one decides about one entry of the base and acts on it. No command can begin to use it
// between the decision and the rename, which needs the lock on the base.
func (s *sweep) one(name string) Result {
	r := Result{Path: filepath.Join(s.base.Name(), name)}
	dir, trash := s.claim(name, &r)
	if dir == nil {
		return r
	}
	defer dir.Close()
	if s.DryRun {
		unlock(dir) // a dry run does not need it any more
		if r.Action == "" {
			r.Action = WouldRemove
		}
		r.LastUsed = lastUse(dir)
		r.Age = s.Now().Sub(r.LastUsed)
		r.Usage = measure(fd(dir))
		return r
	}
	if !dismiss(dir) { // the next sweep removes it
		return r.fail(errors.New("its keeper, or a process that sees its overlays, does not end"))
	}
	endGate(dir)
	return s.erase(dir, trash, r)
}

// claim returns a session directory that may be removed, locked and under a name that no
// command joins, or nil with the reason in r. A dry run renames none, and also returns
// those that are kept, to describe them.
func (s *sweep) claim(name string, r *Result) (dir *os.File, trash string) {
	if err := lockWithin(s.base, unix.LOCK_EX, lockWait); err != nil {
		*r = r.fail(fmt.Errorf("cannot lock the cache directory: %w", err))
		return nil, ""
	}
	defer unlock(s.base)
	if reason := s.lookAt(name); reason != "" {
		r.keep(reason)
		return nil, ""
	}
	n, err := s.openClaimed(name)
	if err != nil {
		s.explainOpen(err, r)
		return nil, ""
	}
	dir = os.NewFile(uintptr(n), r.Path)
	trash = name
	switch free, err := s.lockOut(dir, name); {
	case err != nil:
		*r = r.fail(fmt.Errorf("cannot lock it: %w", err))
	case !free:
		r.keep(InUse)
	case !inPlace(s.base, name, dir):
		r.keep(Gone)
	default:
		s.judgeAge(dir, name, r)
		if r.Action == "" && s.holds(dir, name) {
			r.keep(Trial)
		}
	}
	if r.Action == "" && !s.DryRun && !strings.HasPrefix(name, reaped) {
		if trash, err = s.putAside(dir, name); err != nil {
			*r = r.fail(fmt.Errorf("cannot put it aside: %w", err))
		}
	}
	if r.Action == "" || s.DryRun && r.Action == Kept && r.Reason != Gone {
		return dir, trash
	}
	dir.Close()
	return nil, ""
}

// lockOutTries bounds the tries to lock a session directory. After the last command has
// ended, its keeper holds the lock for a moment, and a shared lock waits for that. While
// commands hold the lock, a shared lock is granted at once. The lock on the base keeps
// other sweepers out.
const lockOutTries = 3

// lockOut takes the exclusive lock, if no command uses the directory. A sweeper that
// erases one has the lock for long; lockOut does not wait for it.
func (s *sweep) lockOut(dir *os.File, name string) (free bool, err error) {
	for range lockOutTries {
		err := flock(dir, unix.LOCK_EX)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return false, err
		}
		if strings.HasPrefix(name, reaped) || lockWithin(dir, unix.LOCK_SH, lockWait) != nil {
			break
		}
	}
	unlock(dir)
	return false, nil
}

// lookAt finds entries that are not session directories of this user, without opening them.
func (s *sweep) lookAt(name string) Reason {
	var st unix.Stat_t
	switch err := unix.Fstatat(fd(s.base), name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err != nil:
		return Gone
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return NotDirectory
	case int(st.Uid) != os.Geteuid():
		return Foreign
	}
	return ""
}

// opener is a variable for tests.
var opener = fsat.Kernel

// openClaimed opens a session directory that lookAt accepted. It gives the owner's
// permissions back to one without any: no command can use it, and it would stay for ever.
func (s *sweep) openClaimed(name string) (int, error) {
	n, err := openBeneath(fd(s.base), name)
	if errors.Is(err, unix.EACCES) && !s.DryRun {
		if err := fsat.AllowOwner(opener(), fd(s.base), name); err != nil {
			return -1, err
		}
		n, err = openBeneath(fd(s.base), name)
	}
	return n, err
}

// openBeneath opens a directory to read it, and enters neither a link nor a mount point.
func openBeneath(parent int, name string) (int, error) {
	return opener().Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, fsat.SameMount)
}

func (s *sweep) explainOpen(err error, r *Result) {
	switch {
	case errors.Is(err, unix.ENOENT):
		r.keep(Gone)
	case errors.Is(err, unix.EXDEV):
		r.keep(Mounted)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		r.keep(NotDirectory)
	default:
		*r = r.fail(fmt.Errorf("cannot open it: %w", err))
	}
}

// judgeAge keeps young directories, but not the remains of a killed sweep.
func (s *sweep) judgeAge(dir *os.File, name string, r *Result) {
	if s.Now == nil {
		return // Dir.Remove: its own, of any age
	}
	r.LastUsed = lastUse(dir)
	r.Age = s.Now().Sub(r.LastUsed)
	switch {
	case !s.byAge || strings.HasPrefix(name, reaped):
	case r.Age < -clockSkew:
		r.keep(Future)
	case r.Age < s.OlderThan:
		r.keep(Young)
	}
}

// holds reports whether a session directory is a trial that must be kept.
func (s *sweep) holds(dir *os.File, name string) bool {
	var st unix.Stat_t
	trial := unix.Fstatat(fd(dir), stamp, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Size > 0
	if !trial || s.Discard || s.Now == nil || strings.HasPrefix(name, reaped) {
		return false
	}
	return s.Holds == nil || s.Holds(dir.Name())
}

// lastUse is the latest of three times: of the directory, of the stamp, and of the
// directory's birth, which no touch(1) of a copied tree sets back.
func lastUse(dir *os.File) time.Time {
	var own unix.Statx_t
	if unix.Statx(fd(dir), "", unix.AT_EMPTY_PATH, unix.STATX_MTIME|unix.STATX_BTIME, &own) != nil {
		return time.Now()
	}
	last := time.Unix(own.Mtime.Sec, int64(own.Mtime.Nsec))
	if own.Mask&unix.STATX_BTIME != 0 {
		last = later(last, time.Unix(own.Btime.Sec, int64(own.Btime.Nsec)))
	}
	var st unix.Stat_t
	if unix.Fstatat(fd(dir), stamp, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		last = later(last, time.Unix(st.Mtim.Unix()))
	}
	return last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// putAside gives the session directory a name that no command joins. From here on the
// session's name is free, while the lock still tells other sweepers that one is at work.
func (s *sweep) putAside(dir *os.File, name string) (string, error) {
	trash := reaped + name + "-" + rand.Text()
	err := fsat.RenameFresh(fd(s.base), name, fd(s.base), trash)
	if err != nil {
		return "", err
	}
	if inPlace(s.base, trash, dir) {
		return trash, nil
	}
	// A process without the lock put another directory in its place.
	_ = fsat.RenameFresh(fd(s.base), trash, fd(s.base), name)
	return "", errors.New("it was replaced meanwhile")
}

// Abandon takes the session tmp from a session directory without a name whose command was killed: links on
// the host may lead there. The next sweep removes it.
func Abandon(base, name string) error {
	dir, err := openBase(base)
	if err != nil {
		return err
	}
	defer dir.Close()
	n, err := openBeneath(fd(dir), name)
	if err != nil {
		return unlessGone(err)
	}
	defer unix.Close(n)
	if _, err = fsat.Lstat(n, TmpDir); err == nil {
		err = fsat.AllowOwner(opener(), n, TmpDir) // else it cannot be renamed to another directory
	}
	if err != nil {
		return unlessGone(err)
	}
	trash := reaped + name + "-" + rand.Text() // of pk's own: a sweep trusts what is directly in it
	if err := MakeDir(fd(dir), trash); err != nil {
		return err
	}
	to, err := openBeneath(fd(dir), trash)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	return unlessGone(fsat.RenameFresh(n, TmpDir, to, TmpDir))
}

func unlessGone(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// erase removes the tree and then the directory itself.
func (s *sweep) erase(dir *os.File, trash string, r Result) Result {
	e := &fsat.Eraser{Opener: opener(), Measure: s.Measure, Ask: s.ask}
	err := e.Empty(fd(dir))
	r.Usage, r.Failures = Usage{Entries: e.Entries, Bytes: e.Bytes}, e.Failures
	if err == nil {
		err = unix.Unlinkat(fd(s.base), trash, unix.AT_REMOVEDIR)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return r.fail(err)
	}
	r.Action = Removed
	return r
}

func (r *Result) keep(why Reason) { r.Action, r.Reason = Kept, why }

func (r Result) fail(err error) Result {
	r.Action, r.Err = Failed, err
	r.Failures = max(r.Failures, 1)
	return r
}
