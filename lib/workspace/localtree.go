package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// errStop ends the reading of a directory early.
var errStop = errors.New("internal error: a list was not ended")

// List returns the entries of a directory, sorted by name.
func (w *LocalWorkspace) List(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	entries := []fs.DirEntry{}
	for entry, err := range w.Entries(ctx, dir) {
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(entries) >= w.conf.maxEntries {
			return nil, failed("list", dir, ErrTooMany)
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Entries yields the entries of a directory in the kernel's order, ErrNotFound if
// it is missing.
func (w *LocalWorkspace) Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		var fd int
		var where string
		err := w.do(ctx, dir, func(rel string) (err error) {
			fd, where, err = w.openDir(rel)
			return err
		})
		if err == nil {
			defer unix.Close(fd)
			l := &listing{w: w, ctx: context.WithoutCancel(ctx), dir: where}
			err = eachEntry(fd, func(e dirent) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				entry, err := l.entry(fd, e)
				if err != nil {
					return err
				}
				if entry != nil && !yield(entry, nil) {
					return errStop
				}
				return nil
			})
		}
		if err != nil && err != errStop {
			yield(nil, failed("list", dir, err))
		}
	}
}

// openDir opens a directory to be read.
func (w *LocalWorkspace) openDir(rel string) (fd int, where string, err error) {
	fd, where, err = w.open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, where, err
	}
	if err := w.ask(Access{Path: where}); err != nil {
		unix.Close(fd)
		return -1, where, err
	}
	return fd, where, nil
}

// listing is shared by the entries of a list.
type listing struct {
	w   *LocalWorkspace
	ctx context.Context // for later lookups
	dir string
}

// localEntry looks up its description on demand.
type localEntry struct {
	*listing
	name string
	kind fs.FileMode
}

func (e *localEntry) Name() string      { return e.name }
func (e *localEntry) IsDir() bool       { return e.kind.IsDir() }
func (e *localEntry) Type() fs.FileMode { return e.kind }
func (e *localEntry) String() string    { return fs.FormatDirEntry(e) }

func (e *localEntry) Info() (fs.FileInfo, error) { return e.w.lstat(e.ctx, join(e.dir, e.name)) }

// entry makes an entry for a list, or nil for an entry that the list leaves out.
func (l *listing) entry(dir int, e dirent) (fs.DirEntry, error) {
	if len(l.w.guards) > 0 && l.w.ask(Access{Path: join(l.dir, e.Name)}) != nil {
		return nil, nil
	}
	kind, err := kindOf(dir, e)
	if err == unix.ENOENT || isHidden(e.Name, kind) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &localEntry{l, e.Name, kind}, nil
}

// lstat describes the file at a place that has been looked up before.
func (w *LocalWorkspace) lstat(ctx context.Context, where string) (info fs.FileInfo, err error) {
	err = w.do(ctx, where, func(rel string) error {
		p, err := w.locate(rel, false, false)
		if err != nil {
			return err
		}
		defer p.close()
		if err := w.ask(Access{Path: p.path}); err != nil {
			return err
		}
		if p.missing != nil {
			return unix.ENOENT
		}
		st := new(unix.Stat_t)
		if err := unix.Fstatat(p.dir, p.name, st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		info = newInfo(p.name, st)
		return nil
	})
	return info, failed("stat", where, err)
}

// Delete removes a file, or a link itself.
func (w *LocalWorkspace) Delete(ctx context.Context, path string) error {
	err := w.do(ctx, path, func(rel string) error {
		p, err := w.toRemove(rel)
		if p == nil || err != nil {
			return err
		}
		defer p.close()
		if p.name == "." {
			return ErrIsDir
		}
		err = unix.Unlinkat(p.dir, p.name, 0)
		if err == unix.ENOENT {
			return nil
		}
		if err == nil && w.conf.sync {
			err = syncDir(p.dir)
		}
		return err
	})
	return failed("delete", path, err)
}

// toRemove locates a file to be removed; nil if it is missing already.
func (w *LocalWorkspace) toRemove(rel string) (*place, error) {
	p, err := w.locate(rel, true, false)
	if err == unix.ENOTDIR || err == unix.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = w.ask(Access{Path: p.path, Write: true})
	if err != nil || p.missing != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// RemoveAll removes a file, or a directory with its whole tree. It goes on after an entry
// that cannot be removed, and returns the first failure. A process that keeps making
// files there makes it fail, but not go on for ever.
func (w *LocalWorkspace) RemoveAll(ctx context.Context, path string) error {
	err := w.do(ctx, path, func(rel string) error {
		if rel == "." {
			return errRoot
		}
		p, err := w.toRemove(rel)
		if p == nil || err != nil {
			return err
		}
		defer p.close()
		err = unix.Unlinkat(p.dir, p.name, 0)
		if err == unix.EISDIR {
			err = (&eraser{w, ctx, p}).removeAll()
		}
		if err == unix.ENOENT {
			return nil
		}
		if err == nil && w.conf.sync {
			err = syncDir(p.dir)
		}
		return err
	})
	return failed("remove", path, err)
}

var errRoot = &Error{Err: ErrAccessDenied, Detail: "it is the root of the workspace"}

// Rename moves a file or a directory.
func (w *LocalWorkspace) Rename(ctx context.Context, src, dst string) error {
	to, err := clean(dst)
	if err == nil {
		err = w.do(ctx, src, func(from string) error { return w.rename(ctx, from, to) })
	}
	return failedTo("rename", src, dst, err)
}

func (w *LocalWorkspace) rename(ctx context.Context, from, to string) error {
	if from == "." || to == "." {
		return errRoot
	}
	if w.conf.maxDepth > 0 && depth(to) > w.conf.maxDepth {
		return ErrTooMany
	}
	src, st, err := w.toMove(from)
	if err != nil {
		return err
	}
	defer src.close()
	dst, err := w.locate(to, true, false)
	if err != nil {
		return err
	}
	defer func() { dst.close() }()
	if err := w.ask(Access{Path: dst.path, Write: true}); err != nil {
		return err
	}
	if isReserved(dst.name) {
		return errReserved
	}
	if sameFile(src, dst) {
		return errSame
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir {
		if err := w.mayMoveTree(ctx, src, dst); err != nil {
			return err
		}
	}
	if err := w.makeParents(dst, w.conf.sync); err != nil {
		return err
	}
	if err := moveTo(src, dst, isDir); err != nil {
		return err
	}
	err = w.refusesNow(dst.dir, dst.name, true)
	if err == nil && isDir && len(w.guards) > 0 { // something may have come into it meanwhile
		err = ignoreMissing(w.survey(ctx, dst, func(below string) error { return w.ask(Access{Path: join(dst.path, below), Write: true}) }))
	}
	if err != nil {
		return w.moveBack(src, dst, err)
	}
	if w.conf.sync {
		return errors.Join(syncDir(dst.dir), syncDir(src.dir))
	}
	return nil
}

var errSame = &Error{Err: ErrInvalid, Detail: "they are the same file"}

// sameFile reports whether two places are hard links of one file, or src is a symbolic link
// that leads to dst: a rename would replace the file with a link to itself. One place is not
// meant, nor a name in another case where the file system ignores it.
func sameFile(src, dst *place) bool {
	var from, led, to unix.Stat_t
	if dst.missing != nil || unix.Fstatat(src.dir, src.name, &from, unix.AT_SYMLINK_NOFOLLOW) != nil ||
		unix.Fstatat(dst.dir, dst.name, &to, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if fsat.SameInode(&from, &to) {
		return src.path != dst.path && links(&to) > 1
	}
	return from.Mode&unix.S_IFMT == unix.S_IFLNK && unix.Fstatat(src.dir, src.name, &led, unix.AT_NO_AUTOMOUNT) == nil && fsat.SameInode(&led, &to)
}

// moveBack undoes a rename after a failure. If its old name has been taken meanwhile, it gets another one.
func (w *LocalWorkspace) moveBack(src, dst *place, failure error) error {
	if fsat.RenameFresh(dst.dir, dst.name, src.dir, src.name) == nil {
		return failure
	}
	name := keptName(src.name)
	if err := fsat.RenameFresh(dst.dir, dst.name, src.dir, name); err != nil {
		return errors.Join(failure, err)
	}
	if failure == errRaced {
		failure = ErrRaced // it is not where another try would look
	}
	e := failed("", "", failure).(*Error)
	e.Detail = fmt.Sprintf("it is kept as %q", join(parent(src.path), name))
	return e
}

// toMove locates a file to be moved. The file must be readable where it is, since it may
// be readable at its new place.
func (w *LocalWorkspace) toMove(from string) (*place, *unix.Stat_t, error) {
	p, err := w.locate(from, true, false)
	if err != nil {
		return nil, nil, err
	}
	st := new(unix.Stat_t)
	missing := error(unix.ENOENT)
	if p.missing == nil {
		missing = unix.Fstatat(p.dir, p.name, st, unix.AT_SYMLINK_NOFOLLOW)
	}
	err = w.ask(Access{Path: p.path, Links: links(st)})
	if err == nil {
		err = w.ask(Access{Path: p.path, Write: true})
	}
	if err == nil {
		err = missing
	}
	if err != nil {
		p.close()
		return nil, nil, err
	}
	return p, st, nil
}

// moveTo renames. A directory replaces no entry, and no entry replaces one.
func moveTo(src, dst *place, isDir bool) error {
	if isDir && fsat.Within(dst.path, src.path) && src.path != dst.path {
		return &Error{Err: ErrInvalid, Detail: "a directory cannot be moved into itself"}
	}
	var err error
	if isDir && src.path != dst.path {
		// A file system without RENAME_NOREPLACE replaces an empty directory.
		err = fsat.RenameFresh(src.dir, src.name, dst.dir, dst.name)
	} else {
		err = unix.Renameat(src.dir, src.name, dst.dir, dst.name)
	}
	switch err {
	case unix.EEXIST, unix.EISDIR, unix.ENOTEMPTY, unix.ENOTDIR:
		return whatIsThere(dst)
	case unix.EXDEV:
		detail := "something is mounted between the two"
		if isDir { // without redirect_dir, overlayfs renames no directory of the lower layer
			detail += ", or the directory is one that an overlay shows; copy it"
		}
		return &Error{Err: ErrUnsupported, Detail: detail}
	}
	return err
}

// whatIsThere is the error of a rename that would have replaced another file.
func whatIsThere(dst *place) error {
	var st unix.Stat_t
	err := unix.Fstatat(dst.dir, dst.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return ErrIsDir
	}
	return ErrExist
}

// mayMoveTree asks about every entry in a directory to be moved, under its old and its
// new name.
func (w *LocalWorkspace) mayMoveTree(ctx context.Context, src, dst *place) error {
	if len(w.guards) == 0 {
		return nil
	}
	return w.survey(ctx, src, func(below string) error {
		for _, a := range []Access{
			{Path: join(src.path, below)},
			{Path: join(src.path, below), Write: true},
			{Path: join(dst.path, below), Write: true},
		} {
			if err := w.ask(a); err != nil {
				return err
			}
		}
		return nil
	})
}

// survey calls ask for every entry below a directory, with the path from there. It opens
// one directory at a time.
func (w *LocalWorkspace) survey(ctx context.Context, p *place, ask func(below string) error) error {
	for dirs := []string{"."}; len(dirs) > 0; {
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		below, err := w.surveyDir(ctx, p, at, ask)
		if err != nil && (at == "." || err != unix.ENOENT) {
			return err
		}
		dirs = append(dirs, below...)
	}
	return nil
}

// surveyDir asks about the entries of one directory and returns the directories
// among them.
func (w *LocalWorkspace) surveyDir(ctx context.Context, p *place, at string, ask func(below string) error) (dirs []string, err error) {
	dir, err := w.openBelow(p.dir, join(p.name, at), unix.O_RDONLY|unix.O_DIRECTORY)
	switch err {
	case nil:
	case unix.ENAMETOOLONG:
		return nil, &Error{Err: ErrTooMany, Detail: "its directories are too deep to be looked through"}
	default:
		return nil, surveyError(err)
	}
	defer unix.Close(dir)
	err = eachEntry(dir, func(e dirent) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		below := join(at, e.Name)
		if err := ask(below); err != nil {
			return err
		}
		kind, err := kindOf(dir, e)
		if err == nil && kind.IsDir() {
			dirs = append(dirs, below)
		}
		return ignoreMissing(err)
	})
	return dirs, err
}

func ignoreMissing(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// surveyError: a directory that has become a link meanwhile is a race.
func surveyError(err error) error {
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return errRaced
	}
	return err
}
