package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	// maxTemps is how many names are tried for an unfinished file. The names are
	// random; only a file that is swept while it is made needs another.
	maxTemps = 8

	// lockPatience is how long a conditional write waits for another one. Every
	// process that can read the directory can hold the lock; then this write fails.
	lockPatience = 10 * time.Second

	// sweepAgain is the time between two sweeps of a directory, and maxSwept the
	// number of directories that are remembered.
	sweepAgain = time.Minute
	maxSwept   = 1024

	// maxSweep is how many entries a sweep looks at, in some 50 ms. In a larger
	// directory, leftovers of a crash may stay.
	maxSweep = 200_000
)

// atomicFile is an unfinished file beside its place. It is locked: one that is not
// was left by a crash, and the next write there removes it.
type atomicFile struct {
	inPlace
	w    *LocalWorkspace
	p    *place // kept open until the end
	temp string
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
	// Replacing leaves other names of a file alone: they are not asked about.
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
	w.sweep(ctx, p.dir)
	perm := opts.Perm
	if old != nil {
		perm = 0o600 // until it is finished, whatever it will be then
	}
	f := &atomicFile{w: w, p: p, opts: opts}
	f.inPlace = inPlace{ctx: ctx, path: path, limit: w.conf.maxFileSize, sync: opts.Sync}
	f.temp, f.file, err = makeTemp(p.dir, uint32(perm))
	if err != nil {
		return nil, err
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

// makeTemp makes a file that is locked, has one name, and is empty.
func makeTemp(dir int, perm uint32) (name string, file *os.File, err error) {
	for range maxTemps {
		name = newTemp()
		fd, err := fsat.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm)
		if err != nil {
			return "", nil, err
		}
		// Before it was locked, a sweep may have removed it.
		lock := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Nlink == 1 && lock != unix.EWOULDBLOCK {
			return name, os.NewFile(uintptr(fd), name), nil
		}
		unix.Close(fd)
	}
	return "", nil, ErrRaced
}

// Close puts the file in its place. The order is content, attributes, stable
// storage, name.
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
		unlock, err := lockDir(f.ctx, f.p.dir)
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
		if err := f.resemble(old); err != nil {
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
	return f.rename()
}

// resemble gives the file the mode of the file that it replaces, and its owner where
// that is possible. If the group differs, it gets no permissions: they were meant
// for another group.
func (f *atomicFile) resemble(old *unix.Stat_t) error {
	raw, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var change error
	err = raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		if change = unix.Fstat(int(fd), &st); change != nil {
			return
		}
		mode := old.Mode & 0o777
		if st.Uid != old.Uid || st.Gid != old.Gid {
			if unix.Fchown(int(fd), int(old.Uid), int(old.Gid)) != nil && unix.Fchown(int(fd), -1, int(old.Gid)) != nil {
				mode &^= 0o070
			}
		}
		change = unix.Fchmod(int(fd), mode)
	})
	return errors.Join(err, change)
}

// rename gives the file its name.
func (f *atomicFile) rename() error {
	dir := f.p.dir
	if !f.opts.Exclusive {
		return unix.Renameat(dir, f.temp, dir, f.p.name)
	}
	err := fsat.RenameNoReplace(dir, f.temp, dir, f.p.name)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	// A file system without it can still refuse a second link.
	if err := unix.Linkat(dir, f.temp, dir, f.p.name, 0); err != nil {
		return err
	}
	return unix.Unlinkat(dir, f.temp, 0)
}

// Abort removes the unfinished file, as long as its name is still its own.
func (f *atomicFile) Abort() error {
	if f.file == nil {
		return nil
	}
	st, err := statFile(f.file)
	if err == nil && fsat.Names(f.p.dir, f.temp, st) {
		err = unix.Unlinkat(f.p.dir, f.temp, 0)
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
	fd, err := f.w.openPlace(f.p, unix.O_RDONLY)
	if err == unix.ENOENT {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), f.p.name)
	defer file.Close()
	before, err := statFile(file)
	if err != nil {
		return err
	}
	if err := isRegular(before); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, &localFile{ctx: f.ctx, path: f.path, file: file}); err != nil {
		return err
	}
	after, err := statFile(file)
	if err != nil {
		return err
	}
	want, _ := hex.DecodeString(f.opts.IfHash)
	still := before.Size == after.Size && before.Mtim == after.Mtim && fsat.Names(f.p.dir, f.p.name, after)
	if !still || !bytes.Equal(sum.Sum(nil), want) {
		return ErrChanged
	}
	return nil
}

// lockDir makes other conditional writes in a directory wait.
func lockDir(ctx context.Context, dir int) (unlock func(), err error) {
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
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
		return nil, err
	}
}

var errLocked = &Error{Err: ErrAccessDenied, Detail: "somebody keeps its directory locked"}

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

// sweep removes unfinished files that no process works on. It ignores failures: they
// do not concern the write that triggers it.
func (w *LocalWorkspace) sweep(ctx context.Context, dir int) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || !w.tree.swept.due(&st) {
		return
	}
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	left := maxSweep
	_ = eachEntry(fd, func(entry dirent) error {
		if left--; left < 0 || ctx.Err() != nil {
			return errStop
		}
		if isTemp(entry.Name) {
			removeStale(dir, entry.Name)
		}
		return nil
	})
}

// removeStale removes an unfinished file unless it is locked, and any other file of
// that name except a directory.
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
	if unix.Fstat(fd, &st) == nil && fsat.Names(dir, name, &st) {
		_ = unix.Unlinkat(dir, name, 0)
	}
}
