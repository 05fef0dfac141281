package workspace

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	// maxTemps bounds the names tried for an unfinished file. The names are random; a new one
	// is needed only if a sweep removes the file while it is made.
	maxTemps = 8

	// lockPatience is the time for which a conditional write waits for another one. Every
	// process that can read the directory can hold the lock; then the write fails.
	lockPatience = 10 * time.Second

	// sweepAgain is the time between two sweeps of a directory, and maxSwept the number of
	// directories that are remembered.
	sweepAgain = time.Minute
	maxSwept   = 1024

	// maxSweep is the number of entries that a sweep reads, in some 50 ms. In a larger
	// directory, leftovers of a crash may stay.
	maxSweep = 200_000
)

// atomicFile is an unfinished file in the directory of its place. It has a name from the
// beginning only if the file system, or a missing /proc, gives no choice. It is locked: a
// crash left each unfinished name without a lock, and the next write removes it.
type atomicFile struct {
	inPlace
	w    *LocalWorkspace
	p    *place // kept open until the end
	temp string // "": none so far
	opts WriteOptions
}

// newAtomic begins an atomic write. It owns p.
func (w *LocalWorkspace) newAtomic(ctx context.Context, path string, p *place, opts WriteOptions) (_ Writer, err error) {
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := p.own(w.tree.fd); err != nil {
		return nil, err
	}
	// A replacement leaves other names of a file alone, so the guards do not see them.
	err = w.ask(Access{Path: p.path, Write: true})
	if err == nil && opts.IfHash != "" {
		err = w.ask(Access{Path: p.path}) // the answer tells about the content
	}
	if err != nil {
		return nil, err
	}
	if p.name == "." {
		return nil, ErrIsDir
	}
	old, err := p.regular()
	switch {
	case old != nil && opts.Exclusive:
		return nil, ErrExist
	case err != nil:
		return nil, err
	case old == nil && opts.IfHash != "":
		return nil, ErrNotFound
	}
	if err := w.makeParents(p, opts.Sync); err != nil {
		return nil, err
	}
	w.sweep(ctx, p.dir, parent(p.path))
	perm := opts.Perm
	if old != nil {
		perm = 0o600 // until it is finished, with any final mode
	}
	f := &atomicFile{w: w, p: p, opts: opts}
	f.inPlace = inPlace{ctx: ctx, path: path, limit: w.conf.maxFileSize, sync: opts.Sync}
	if f.file = w.makeUnnamed(p.dir, uint32(perm)); f.file == nil {
		f.temp, f.file, err = makeTemp(p.dir, tempFile(p.dir, uint32(perm)))
	}
	if err != nil {
		return nil, err
	}
	if opts.Sparse {
		f.sparse = &fsat.Sparse{File: f.file}
	}
	return f, nil
}

// own gives a place a descriptor of its own, in case the workspace is closed before
// the file.
func (p *place) own(borrowed int) error {
	if p.dir != borrowed {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(borrowed), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		p.dir, p.close = fd, func() { unix.Close(p.dir) }
	}
	return err
}

// regular describes the file at a place, nil if it is missing. If it is not a
// regular one, it returns an error too.
func (p *place) regular() (*unix.Stat_t, error) {
	if p.missing != nil {
		return nil, nil
	}
	st := new(unix.Stat_t)
	err := unix.Fstatat(p.dir, p.name, st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return st, isRegular(st)
}

// makeUnnamed makes an empty file without a name, and locks it for the time when it has
// one. It returns nil if that is not possible.
func (w *LocalWorkspace) makeUnnamed(dir int, perm uint32) *os.File {
	if w.tree.noUnnamed {
		return nil
	}
	fd, err := fsat.OpenUnnamed(dir, perm)
	if err != nil {
		return nil
	}
	_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	return os.NewFile(uintptr(fd), "")
}

// makeTemp makes an empty file, or a directory, that is locked.
func makeTemp(dir int, create func(name string) (int, error)) (name string, file *os.File, err error) {
	for range maxTemps {
		name = newTemp()
		fd, err := create(name)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		// Before it was locked, a sweep may have removed it.
		lock := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && fsat.Names(dir, name, &st) && lock != unix.EWOULDBLOCK {
			return name, os.NewFile(uintptr(fd), name), nil
		}
		unix.Close(fd)
	}
	return "", nil, ErrRaced
}

func tempFile(dir int, perm uint32) func(name string) (int, error) {
	return func(name string) (int, error) {
		return fsat.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm)
	}
}

// Close puts the file in its place. The order is content, attributes, stable storage,
// name.
func (f *atomicFile) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.ctx.Err()
	if err == nil {
		err = f.publish()
	}
	if err != nil {
		_ = f.Abort()
		return failed("write", f.path, err)
	}
	err = f.file.Close()
	if err == nil && f.sync {
		err = syncDir(f.p.dir)
	}
	f.file = nil
	f.p.close()
	return failed("write", f.path, err)
}

func (f *atomicFile) publish() error {
	if f.opts.IfHash != "" {
		unlock, err := lockPlace(f.ctx, f.p)
		if err != nil {
			return err
		}
		defer unlock()
	}
	old, err := f.p.regular()
	if old != nil && f.opts.Exclusive {
		return ErrExist
	}
	if err != nil {
		return err
	}
	if old != nil {
		if err := resemble(f.file, old, fsat.Path(f.p.dir)+"/"+f.p.name, old.Mode&0o777); err != nil {
			return err
		}
	}
	if f.sparse != nil {
		if err := f.sparse.End(); err != nil {
			return err
		}
	}
	if f.sync {
		if err := f.file.Sync(); err != nil {
			return err
		}
	}
	if f.opts.IfHash != "" {
		if err := f.unchanged(); err != nil {
			return err
		}
	}
	if err := f.rename(); err != nil || old != nil {
		return err
	}
	f.temp = ""
	st, err := statFile(f.file)
	if err != nil {
		return err
	}
	return f.w.confirm(f.p.dir, f.p.name, st)
}

// resemble gives a new file or directory a mode, and the owner, the ACL and the user's attributes
// (xattr(7)) of the file that it replaces if that is possible; old may be nil, and from is the path of it.
// If the group or the ACL differs, the group gets no permissions: they were meant for another
// one, or are the mask of the ACL. A directory keeps the set-group-ID bit of its parent.
func resemble(file *os.File, old *unix.Stat_t, from string, mode uint32) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var change error
	err = raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		if change = unix.Fstat(int(fd), &st); change != nil {
			return
		}
		if old != nil && (st.Uid != old.Uid || st.Gid != old.Gid) {
			if unix.Fchown(int(fd), int(old.Uid), int(old.Gid)) != nil && unix.Fchown(int(fd), -1, int(old.Gid)) != nil {
				mode &^= 0o070
			}
		}
		if old != nil && old.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&unix.S_IFMT == unix.S_IFREG && !fsat.CopyAttributes(from, int(fd)) {
			mode &^= 0o070
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			mode |= st.Mode & unix.S_ISGID
		}
		change = unix.Fchmod(int(fd), mode)
	})
	return errors.Join(err, change)
}

// rename gives the file its name.
func (f *atomicFile) rename() error {
	if f.temp == "" {
		name := newTemp()
		if f.opts.Exclusive {
			name = f.p.name
		}
		if err := f.link(name); err != nil || f.opts.Exclusive {
			return err
		}
		f.temp = name
	}
	if !f.opts.Exclusive {
		return unix.Renameat(f.p.dir, f.temp, f.p.dir, f.p.name)
	}
	return renameNew(f.p.dir, f.temp, f.p.name)
}

func (f *atomicFile) link(name string) error {
	raw, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var linked error
	err = raw.Control(func(fd uintptr) { linked = fsat.Link(int(fd), f.p.dir, name) })
	return errors.Join(err, linked)
}

// renameNew renames an entry to a name that must be free: otherwise EEXIST.
func renameNew(dir int, from, to string) error {
	err := fsat.RenameNoReplace(dir, from, dir, to)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	// Without it, a file system can still refuse a second link. A directory has none, and
	// replaces at most an empty directory.
	switch err := unix.Linkat(dir, from, dir, to, 0); err {
	case nil:
		return unix.Unlinkat(dir, from, 0)
	case unix.EPERM:
		if st, err := fsat.Lstat(dir, from); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return unix.Renameat(dir, from, dir, to)
		}
		return err
	default:
		return err
	}
}

// Abort removes the unfinished file, as long as its name is still its own.
func (f *atomicFile) Abort() error {
	if f.file == nil {
		return nil
	}
	var err error
	if f.temp != "" {
		var st *unix.Stat_t
		if st, err = statFile(f.file); err == nil && fsat.Names(f.p.dir, f.temp, st) {
			err = unix.Unlinkat(f.p.dir, f.temp, 0)
		}
	}
	err = errors.Join(err, f.file.Close())
	f.file = nil
	f.p.close()
	return failed("write", f.path, err)
}

func statFile(file *os.File) (*unix.Stat_t, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	st := new(unix.Stat_t)
	var inner error
	err = raw.Control(func(fd uintptr) { inner = unix.Fstat(int(fd), st) })
	return st, errors.Join(err, inner)
}

// unchanged compares the content of the place with IfHash. The directory is locked.
func (f *atomicFile) unchanged() error {
	seen, err := f.w.see(f.p.dir, f.p.name)
	if err != nil {
		return err
	}
	defer seen.close()
	if seen.file == nil {
		return ErrNotFound
	}
	if err := isRegular(&seen.st); err != nil {
		return err
	}
	now, err := seen.entry(f.ctx, 0)
	if err == errRaced || err == nil && (now.Hash != f.opts.IfHash || !fsat.Names(f.p.dir, f.p.name, &seen.st)) {
		return ErrChanged
	}
	return err
}

// lockDir excludes other conditional writes in a directory.
func lockDir(ctx context.Context, dir int) (unlock func(), err error) {
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return lock(ctx, fd)
}

// lockPlace excludes other conditional writes of an entry. A directory that may not be read
// cannot be locked: then the entry is. Nor can others who may not read it find the names of a
// swap under way there.
func lockPlace(ctx context.Context, p *place) (unlock func(), err error) {
	unlock, err = lockDir(ctx, p.dir)
	if err != unix.EACCES {
		return unlock, err
	}
	fd, err := fsat.Openat(p.dir, p.name, unix.O_RDONLY|safeFlags, 0)
	if err == unix.ENOENT || err == unix.ELOOP {
		return func() {}, nil // the caller finds out; a link is replaced by its name
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	unlock, err = lock(ctx, fd)
	if err == nil && !fsat.Names(p.dir, p.name, &st) {
		unlock()
		return nil, ErrChanged
	}
	return unlock, err
}

// lock takes the lock of an open file, and closes it with unlock.
func lock(ctx context.Context, fd int) (unlock func(), err error) {
	patience := time.After(lockPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if err == unix.EWOULDBLOCK || err == unix.EINTR {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-patience:
				err = errLocked
			case <-time.After(wait):
				continue
			}
		}
		unix.Close(fd)
		if err == unix.EBADF {
			err = unix.EOPNOTSUPP // NFS locks no directory
		}
		return nil, err
	}
}

var errLocked = &Error{Err: ErrAccessDenied, Detail: "another process keeps its directory locked"}

// sweeps remembers the directories that were swept.
type sweeps struct {
	mu   sync.Mutex
	when map[[2]uint64]time.Time
}

func (s *sweeps) due(st *unix.Stat_t) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, now := [2]uint64{st.Dev, st.Ino}, time.Now()
	if last, known := s.when[dir]; known && now.Sub(last) < sweepAgain {
		return false
	}
	if s.when == nil || len(s.when) >= maxSwept {
		s.when = map[[2]uint64]time.Time{}
	}
	s.when[dir] = now
	return true
}

// sweep removes unfinished files that no process works on, and ends swaps that
// were killed. It ignores failures: they do not concern the write that triggers it.
// where is the path of the directory.
func (w *LocalWorkspace) sweep(ctx context.Context, dir int, where string) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || !w.tree.swept.due(&st) {
		return
	}
	swaps, err := w.sweepFiles(ctx, dir)
	if err != nil || len(swaps) == 0 {
		return
	}
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_, _ = w.settle(ctx, dir, where, swaps)
	}
}

// sweepFiles removes unfinished files and returns the swap names of a directory.
func (w *LocalWorkspace) sweepFiles(ctx context.Context, dir int) (swaps []string, err error) {
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	left := maxSweep
	err = eachEntry(fd, func(entry dirent) error {
		if left--; left < 0 || ctx.Err() != nil {
			return errStop
		}
		if isTemp(entry.Name) {
			removeStale(dir, entry.Name)
		}
		if isSwapName(entry.Name) {
			swaps = append(swaps, entry.Name)
		}
		return nil
	})
	if err == errStop {
		err = ctx.Err()
	}
	return swaps, err
}

// removeStale removes an unfinished file or directory unless it is locked, and any
// other file of that name except a directory that is not empty.
func removeStale(dir int, name string) {
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|safeFlags, 0)
	if err != nil {
		if err == unix.ELOOP || err == unix.ENXIO {
			_ = unix.Unlinkat(dir, name, 0)
		}
		return
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && fsat.Names(dir, name, &st) && unix.Unlinkat(dir, name, 0) == unix.EISDIR {
		_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
}
