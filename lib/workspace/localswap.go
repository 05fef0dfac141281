package workspace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// This file relies on renameat2(2): RENAME_EXCHANGE puts the new entry at the path and
// gives the old one a temporary name, in one step. After it, no process can replace the
// old entry while Swap checks it. If it is not the expected one, a second exchange puts
// it back.
//
// # SIGKILL
//
// Between the exchange and the end of the check, the temporary name may hold the only
// copy of an edit made a moment before. So it is not the name of an unfinished file,
// which the next write removes. It is a swap name, which holds digests of the old and of
// the new entry (swapName). An entry of such a name, in a directory that no process has
// locked, was left by a crash and is one of three:
//
//   - the new entry: not exchanged yet, or put back;
//   - the old entry: checked or not, the caller wanted it replaced;
//   - anything else: displaced by an exchange that was not undone.
//
// settle removes the first two. It gives the third a visible name beside the path and
// does not put it back at the path. Otherwise a command that can write to the directory,
// but not to a protected name in it, could have that name replaced by means of a forged
// leftover. A leftover larger than maxSettle is not read, and gets a visible name too.
//
// # Without RENAME_EXCHANGE
//
// NFS, FUSE and exFAT refuse it (EINVAL, ENOSYS). There Swap checks the old entry and
// replaces it with rename(2): an edit between the two is lost. A directory and another
// entry cannot change places: ErrUnsupported.

// withoutLinks is a view that follows no link.
func (w *LocalWorkspace) withoutLinks() *LocalWorkspace {
	view := *w
	view.conf.noLinks = true
	return &view
}

// Entry describes a path itself.
func (w *LocalWorkspace) Entry(ctx context.Context, path string) (e Entry, err error) {
	err = w.do(ctx, path, func(rel string) error {
		p, err := w.withoutLinks().locate(rel, false, false)
		if err == unix.ENOTDIR {
			return nil
		}
		if err != nil {
			return err
		}
		defer p.close()
		s := &sight{}
		if p.missing == nil {
			if s, err = w.see(p.dir, p.name); err != nil {
				return w.afterGuard(p.path, err)
			}
		}
		defer s.close()
		if err := w.ask(Access{Path: p.path, Links: links(&s.st)}); err != nil {
			return err
		}
		e, err = s.entry(ctx, w.conf.maxFileSize)
		return err
	})
	if err != nil {
		return Entry{}, failed("stat", path, err)
	}
	return e, nil
}

// swap is a Swap under way.
type swap struct {
	w         *LocalWorkspace
	ctx       context.Context
	p         *place
	old, next Entry
	weak      bool // without RENAME_EXCHANGE

	temp string      // the name of the new entry until it is at its place
	file *os.File    // the new entry, open and locked; nil for a link
	made unix.Stat_t // the new entry
}

// Swap puts next at path if old is there.
func (w *LocalWorkspace) Swap(ctx context.Context, path string, old, next Entry, content io.Reader) error {
	if err := checkSwap(old, next, content); err != nil {
		return failed("swap", path, err)
	}
	s := &swap{w: w, ctx: ctx, old: old, next: next, weak: w.tree != nil && w.tree.noExchange}
	err := w.do(ctx, path, s.locate)
	if err == nil && s.p.missing == nil {
		err = s.run(content)
	}
	s.end()
	if err == errRaced {
		err = ErrChanged // content is read only once
	}
	return failed("swap", path, err)
}

// locate finds the place, asks the guards and makes missing directories.
func (s *swap) locate(rel string) error {
	w := s.w.withoutLinks()
	p, err := w.locate(rel, true, false)
	if err == unix.ENOTDIR && s.old.Kind != KindMissing {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	s.end()
	s.p = p
	if err := p.own(w.tree.fd); err != nil {
		return err
	}
	err = w.ask(Access{Path: p.path, Write: true})
	if err == nil && s.old.Kind != KindMissing {
		err = w.ask(Access{Path: p.path}) // a refusal would reveal the content
	}
	switch {
	case err != nil:
		return err
	case p.name == ".":
		return errRoot
	case isReserved(p.name):
		return errReserved
	case p.missing != nil && s.old.Kind != KindMissing:
		return ErrChanged
	case s.next.Kind == KindMissing:
		return nil
	}
	return w.makeParents(p, w.conf.sync)
}

// end removes the new entry unless it is at its place.
func (s *swap) end() {
	if s.temp != "" && fsat.Names(s.p.dir, s.temp, &s.made) {
		_ = s.remove(s.temp, s.next)
	}
	if s.file != nil {
		s.file.Close()
	}
	if s.p != nil {
		s.p.close()
	}
	s.temp, s.file, s.p = "", nil, nil
}

// at lets a test act between two steps.
func (s *swap) at(step string) {
	if s.w.tree.step != nil {
		s.w.tree.step(step)
	}
}

func (s *swap) run(content io.Reader) error {
	inPlace := s.old.keepsInode(s.next)
	s.w.sweep(s.ctx, s.p.dir, parent(s.p.path))
	if !inPlace {
		if err := s.prepare(content); err != nil {
			return err
		}
	}
	if s.old.Kind != KindMissing {
		unlock, err := lockPlace(s.ctx, s.p)
		switch {
		case err == unix.EOPNOTSUPP:
			s.weak = true // NFS, which has no RENAME_EXCHANGE either
		case err != nil:
			return err
		default:
			defer unlock()
		}
	}
	before, err := s.expect(s.p.name)
	if err != nil {
		return err
	}
	defer before.close()
	if s.old.Kind == KindDir && !inPlace {
		if err := s.isEmpty(); err != nil {
			return err
		}
	}
	if inPlace && content != nil && before.st.Nlink > 1 && s.next.Perm != s.old.Perm && !s.w.conf.hardLinks && s.old.Kind == KindFile {
		inPlace = false // its other names keep their mode
		if err := s.prepare(content); err != nil {
			return err
		}
	}
	s.at("looked")
	switch {
	case inPlace:
		err = s.chmod(before)
	case s.next.Kind == KindMissing:
		err = s.delete()
	case s.old.Kind == KindMissing:
		err = s.create()
	default:
		err = s.replace(&before.st)
	}
	if err == nil && s.w.conf.sync {
		err = syncDir(s.p.dir)
	}
	return err
}

// prepare makes a new file or directory under a temporary name.
func (s *swap) prepare(content io.Reader) (err error) {
	switch s.next.Kind {
	case KindDir:
		s.temp, s.file, err = makeTemp(s.p.dir, func(name string) (int, error) {
			if err := unix.Mkdirat(s.p.dir, name, 0o700); err != nil {
				return -1, err
			}
			return fsat.Openat(s.p.dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		})
	case KindFile:
		s.temp, s.file, err = makeTemp(s.p.dir, tempFile(s.p.dir, 0o600))
	}
	if s.file == nil || err != nil {
		return err
	}
	st, err := statFile(s.file)
	if err != nil {
		return err
	}
	s.made = *st
	s.at("made")
	if s.next.Kind == KindDir {
		return nil
	}
	out := &inPlace{ctx: s.ctx, file: s.file, limit: s.w.conf.maxFileSize, sparse: &fsat.Sparse{File: s.file}}
	sum := sha256.New()
	if s.next.Size, err = io.Copy(io.MultiWriter(out, sum), content); err != nil {
		return err
	}
	if err := out.sparse.End(); err != nil {
		return err
	}
	s.at("filled")
	hash := hex.EncodeToString(sum.Sum(nil))
	if s.next.Hash != "" && s.next.Hash != hash {
		return errWrongHash
	}
	s.next.Hash = hash
	return nil
}

// finish gives the new entry its attributes and puts it on stable storage.
func (s *swap) finish(old *unix.Stat_t) error {
	if s.file == nil {
		return nil
	}
	if err := resemble(s.file, old, fsat.Path(s.p.dir)+"/"+s.p.name, uint32(s.next.Perm)); err != nil {
		return err
	}
	st, err := statFile(s.file)
	if err != nil {
		return err
	}
	s.made, s.next.Perm = *st, fs.FileMode(st.Mode&0o777)
	if s.w.conf.sync {
		return s.file.Sync()
	}
	return nil
}

// expect opens a name if it is the entry old.
func (s *swap) expect(name string) (*sight, error) {
	seen, err := s.w.see(s.p.dir, name)
	if err != nil {
		return nil, err
	}
	if s.old.Kind != KindMissing {
		err = s.w.ask(Access{Path: s.p.path, Links: links(&seen.st)})
	}
	if err == nil {
		err = s.is(seen, s.old)
	}
	if err != nil {
		seen.close()
		return nil, err
	}
	return seen, nil
}

func (s *swap) is(seen *sight, want Entry) error {
	if want.Kind != KindFile && seen.file != nil && isRegular(&seen.st) == nil {
		return ErrChanged // without reading it
	}
	now, err := seen.entry(s.ctx, s.w.conf.maxFileSize)
	if err == errRaced || err == nil && !now.same(want) {
		err = ErrChanged
	}
	return err
}

// chmod changes the mode of old, in place, and changes it back if old was replaced
// or written meanwhile.
func (s *swap) chmod(before *sight) error {
	if s.next.Perm == s.old.Perm {
		return nil
	}
	raw := before.st.Mode & 0o7777
	mode := uint32(s.next.Perm)
	if s.old.Kind == KindDir {
		mode |= raw &^ 0o777
	} else if err := s.w.ask(Access{Path: s.p.path, Write: true, Links: links(&before.st)}); err != nil {
		return err
	} else if before.st.Nlink > 1 && !s.w.conf.hardLinks {
		return errHardLinks
	}
	fd := int(before.file.Fd())
	if err := fsat.Chmod(fd, mode); err != nil {
		return err
	}
	s.at("changed")
	if s.old.Kind == KindFile && before.unchanged() != nil || !fsat.Names(s.p.dir, s.p.name, &before.st) {
		return cmpErr(fsat.Chmod(fd, raw), ErrChanged)
	}
	switch {
	case !s.w.conf.sync:
		return nil
	case s.old.Kind == KindDir:
		return syncDir(fd)
	}
	return before.file.Sync()
}

// create gives a new entry the name, if that is free.
func (s *swap) create() error {
	err := s.finish(nil)
	switch {
	case err != nil:
		return err
	case s.next.Kind == KindLink:
		err = unix.Symlinkat(s.next.Target, s.p.dir, s.p.name)
	default:
		s.at("finished")
		err = renameNew(s.p.dir, s.temp, s.p.name)
	}
	if err == unix.EEXIST {
		err = ErrChanged
	}
	if err != nil {
		return err
	}
	if s.next.Kind == KindLink {
		if err := unix.Fstatat(s.p.dir, s.p.name, &s.made, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	s.temp = ""
	return s.w.confirm(s.p.dir, s.p.name, &s.made)
}

// replace exchanges old for the new entry.
func (s *swap) replace(old *unix.Stat_t) error {
	if err := s.finish(old); err != nil {
		return err
	}
	dir, name := s.p.dir, s.p.name
	aside := swapName(name, s.old, s.next)
	var err error
	if s.next.Kind == KindLink {
		err = unix.Symlinkat(s.next.Target, dir, aside)
	} else {
		err = fsat.RenameFresh(dir, s.temp, dir, aside)
	}
	if err != nil {
		return err
	}
	s.temp = aside
	if s.file != nil {
		s.file.Close() // a file open for writing gets no lease, and cannot be executed
		s.file = nil
	}
	if s.next.Kind == KindLink {
		if err := unix.Fstatat(dir, aside, &s.made, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	s.at("named")
	err = unix.EINVAL
	if !s.weak {
		err = fsat.Exchange(dir, aside, dir, name)
	}
	switch err {
	case nil:
	case unix.EINVAL, unix.ENOSYS:
		if s.old.Kind == KindDir || s.next.Kind == KindDir {
			return errNoExchange
		}
		return unix.Renameat(dir, aside, dir, name)
	case unix.EXDEV:
		return errNoExchange // as in delete
	case unix.ENOENT:
		return ErrChanged
	default:
		return err
	}
	s.at("exchanged")
	s.temp = ""
	if err := s.drop(aside, s.old); err != nil {
		return s.undo(aside, err)
	}
	return nil
}

var (
	errNotEmpty   = &Error{Err: ErrChanged, Detail: "the directory is not empty"}
	errHardLinks  = &Error{Err: ErrAccessDenied, Detail: "it has several hard links, and another may lie outside"}
	errWrongHash  = &Error{Err: ErrInvalid, Detail: "the content does not have the hash"}
	errBusy       = &Error{Err: ErrChanged, Detail: "a program has it open for writing"}
	errNoExchange = &Error{Err: ErrUnsupported, Detail: "this file system does not exchange a directory for another entry"}
)

// delete moves old aside and removes it there.
func (s *swap) delete() error {
	aside := swapName(s.p.name, s.old, s.next)
	err := fsat.RenameFresh(s.p.dir, s.p.name, s.p.dir, aside)
	switch {
	case err == unix.ENOENT:
		return ErrChanged
	case err == unix.EXDEV && s.old.Kind == KindDir:
		return s.remove(s.p.name, s.old) // an overlay moves no directory of a lower layer
	case err != nil:
		return err
	}
	s.at("moved")
	if err = s.drop(aside, s.old); err == nil {
		return nil
	}
	s.at("wrong")
	if renameNew(s.p.dir, aside, s.p.name) == nil {
		return err
	}
	return s.keep(aside, err)
}

// drop removes a displaced entry if it is want. A program may still write to a file that
// it had opened before. A read lease detects that: the kernel refuses it while the file
// is open for writing, and F_GETLEASE shows whether another process has begun to open it.
// Only the owner of a file gets leases, on local file systems; elsewhere drop does not
// detect such a program. Nor does it detect one whose open(2) has looked the path up
// before the exchange, and goes on after the removal.
func (s *swap) drop(aside string, want Entry) error {
	seen, err := s.w.see(s.p.dir, aside)
	if err == errRaced {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	defer seen.close()
	leased := false
	if want.Kind == KindFile && isRegular(&seen.st) == nil {
		_, err := unix.FcntlInt(seen.file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		if err == unix.EAGAIN {
			return errBusy
		}
		leased = err == nil
	}
	if err := s.is(seen, want); err != nil {
		return err
	}
	s.at("checked")
	if leased {
		if kind, err := unix.FcntlInt(seen.file.Fd(), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
			return errBusy
		}
	}
	return s.remove(aside, want)
}

// remove removes an entry, a directory only if it is empty.
func (s *swap) remove(name string, e Entry) error {
	if e.Kind != KindDir {
		return unix.Unlinkat(s.p.dir, name, 0)
	}
	err := unix.Unlinkat(s.p.dir, name, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY || err == unix.EEXIST {
		err = errNotEmpty
	}
	return err
}

// isEmpty refuses a directory with entries before a swap displaces it, if it may be read.
// Leftovers of a crash, which no list shows, do not count.
func (s *swap) isEmpty() error {
	fd, err := s.w.openBelow(s.p.dir, s.p.name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.w.sweep(s.ctx, fd, s.p.path)
	entries, err := fsat.Next(fd)
	if len(entries) > 0 {
		err = errNotEmpty
	}
	return err
}

// undo puts a displaced entry back after a failure. If another process has meanwhile
// replaced, changed or removed the new entry, the newest entry stays at the path and the
// other one is kept.
func (s *swap) undo(aside string, failure error) error {
	s.at("wrong")
	s.ctx = context.WithoutCancel(s.ctx)
	dir, name := s.p.dir, s.p.name
	switch err := fsat.Exchange(dir, aside, dir, name); {
	case err == unix.ENOENT && renameNew(dir, aside, name) == nil:
		return failure
	case err != nil:
		return s.keep(aside, failure)
	}
	s.at("undone")
	if s.drop(aside, s.next) == nil {
		return failure
	}
	_ = fsat.Exchange(dir, aside, dir, name)
	return s.keep(aside, failure)
}

// keep gives a displaced entry a visible name, and reports the name.
func (s *swap) keep(aside string, failure error) error {
	name, err := s.w.keep(s.p.dir, aside)
	if err != nil {
		name = aside
	}
	e := failed("", "", failure).(*Error)
	e.Detail = fmt.Sprintf("what was there is kept as %q", join(parent(s.p.path), name))
	return e
}

// maxSettle bounds the bytes read to classify the leftovers in a directory, in about a
// second. Forged ones can be of any size; the rest is kept.
const maxSettle = 1 << 30

// settle finishes swaps that were killed; the directory is locked. It returns the paths
// of the entries that it kept.
func (w *LocalWorkspace) settle(ctx context.Context, dir int, where string, swaps []string) (kept []string, err error) {
	left := int64(maxSettle)
	for _, aside := range swaps {
		old, next, target, _ := parseSwapName(aside)
		at := join(where, target)
		if cmpErr(w.ask(Access{Path: at}), w.ask(Access{Path: at, Write: true})) != nil {
			continue // a visible name would show it to a view that may not see it
		}
		seen, seeErr := w.see(dir, aside)
		if seeErr != nil {
			err = cmpErr(err, seeErr)
			continue
		}
		now, readErr := seen.entry(ctx, max(left, 1))
		left -= now.Size
		seen.close()
		if ctx.Err() != nil {
			return kept, ctx.Err()
		}
		digest := now.digest()
		s := &swap{w: w, ctx: ctx, p: &place{dir: dir, path: at}}
		if seen.file == nil || readErr == nil && (digest == old || digest == next) && s.remove(aside, now) == nil {
			continue
		}
		if name, keepErr := w.keep(dir, aside); keepErr == nil {
			kept = append(kept, join(where, name))
		} else {
			err = cmpErr(err, keepErr)
		}
	}
	return kept, err
}

// keep gives a displaced entry a visible name. It asks no guard: the name is new, and
// otherwise the entry would be lost.
func (w *LocalWorkspace) keep(dir int, aside string) (string, error) {
	_, _, target, _ := parseSwapName(aside)
	name := keptName(target)
	return name, fsat.RenameFresh(dir, aside, dir, name)
}

// keptName is a visible name beside another one.
func keptName(name string) string { return name + ".pk-kept-" + rand.Text()[:8] }

// Recover cleans up after a killed Swap in a directory.
func (w *LocalWorkspace) Recover(ctx context.Context, path string) (kept []string, err error) {
	err = w.do(ctx, path, func(rel string) error {
		p, err := w.withoutLinks().locate(rel, true, true)
		if err != nil {
			return err
		}
		defer p.close()
		if err := w.ask(Access{Path: p.path, Write: true}); err != nil {
			return err
		}
		dir, err := w.openPlace(p, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return ignoreMissing(err)
		}
		defer unix.Close(dir)
		unlock, err := lockDir(ctx, dir)
		if err != nil {
			return err
		}
		defer unlock()
		swaps, err := w.sweepFiles(ctx, dir)
		if err == nil {
			kept, err = w.settle(ctx, dir, p.path, swaps)
		}
		return err
	})
	return kept, failed("recover", path, err)
}
