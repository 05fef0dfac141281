package workspace

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxEraseDepth bounds the directories that are open at once. What lies deeper
	// is moved up first.
	maxEraseDepth = 64

	// maxErasePasses bounds how often a directory is read again because it was
	// not empty after all.
	maxErasePasses = 16
)

// eraser removes a directory by descriptors: nothing is looked up twice, so
// nothing put in the way leads it out.
type eraser struct {
	w    *LocalWorkspace
	ctx  context.Context
	root *place

	top  int     // the directory itself
	deep []moved // subtrees that were moved to the top
}

// moved is a subtree with the path that it had.
type moved struct{ name, path string }

// removeAll asks about all of it before it removes any of it.
func (e *eraser) removeAll() error {
	if len(e.w.guards) > 0 {
		err := e.w.survey(e.ctx, e.root, func(below string) error {
			return e.w.ask(Access{Path: join(e.root.path, below), Write: true})
		})
		if err != nil {
			return err
		}
	}
	var err error
	if e.top, err = e.enter(e.root.dir, e.root.name); err != nil {
		return err
	}
	defer unix.Close(e.top)
	for range maxErasePasses {
		if err := e.empty(e.top, e.root.path, 1); err != nil {
			return err
		}
		if err := e.removeDeep(); err != nil {
			return err
		}
		err = unix.Unlinkat(e.root.dir, e.root.name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			return err
		}
		if _, err := unix.Seek(e.top, 0, 0); err != nil {
			return err
		}
	}
	return err
}

func (e *eraser) removeDeep() error {
	for len(e.deep) > 0 {
		next := e.deep[0]
		e.deep = e.deep[1:]
		if err := e.directory(e.top, next.name, next.path, 1); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the entries of a directory.
func (e *eraser) empty(dir int, at string, deep int) error {
	return eachEntry(dir, func(entry dirent) error {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		path := join(at, entry.name)
		if err := e.w.ask(Access{Path: path, Write: true}); err != nil {
			return err // it was not there when all was asked about
		}
		return e.remove(dir, entry.name, path, deep, entry.kind == unix.DT_DIR)
	})
}

// remove removes one entry. What its directory says of its type is a hint.
func (e *eraser) remove(dir int, name, path string, deep int, isDir bool) error {
	if isDir {
		return e.directory(dir, name, path, deep)
	}
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR {
		return e.directory(dir, name, path, deep)
	}
	return e.at(path, ignoreMissing(err))
}

// directory removes a directory and all in it.
func (e *eraser) directory(dir int, name, path string, deep int) error {
	fd, err := e.enter(dir, name)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return e.at(path, ignoreMissing(unix.Unlinkat(dir, name, 0)))
	}
	if err != nil {
		return e.at(path, ignoreMissing(err))
	}
	defer unix.Close(fd)
	if deep > maxEraseDepth {
		return e.lift(dir, name, path)
	}
	for range maxErasePasses {
		if err := e.empty(fd, path, deep+1); err != nil {
			return err
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			break
		}
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return err
		}
	}
	return e.at(path, ignoreMissing(err))
}

// lift moves a subtree that lies too deep to the top.
func (e *eraser) lift(dir int, name, path string) error {
	to := newTemp()
	err := unix.Renameat(dir, name, e.top, to)
	if err == nil {
		e.deep = append(e.deep, moved{to, path})
	}
	return e.at(path, ignoreMissing(err))
}

// enter opens a directory in which entries can be listed and removed. One that
// its owner may not even read is as good as removed, so its mode is changed.
func (e *eraser) enter(dir int, name string) (int, error) {
	fd, err := e.open(dir, name, unix.O_RDONLY)
	if err == unix.EACCES && e.permit(dir, name) == nil {
		fd, err = e.open(dir, name, unix.O_RDONLY)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(fd, 0o700) // where it fails, it is somebody else's
	}
	return fd, nil
}

// open never crosses into a mount.
func (e *eraser) open(dir int, name string, flags int) (int, error) {
	w := *e.w
	w.conf.oneDevice = true
	return w.openBelow(dir, name, flags|unix.O_DIRECTORY)
}

// permit gives the owner of a directory all permissions on it. O_DIRECTORY keeps
// this from ever changing the mode of a file, which may have a name outside.
func (e *eraser) permit(dir int, name string) error {
	fd, err := e.open(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
}

// at adds to an error where it has happened, below what was to be removed.
func (e *eraser) at(path string, err error) error {
	if err == nil || err == errRaced {
		return err
	}
	told := failed("", "", err).(*Error)
	detail := fmt.Sprintf("%q in it", strings.TrimPrefix(path, e.root.path+"/"))
	if told.Detail != "" {
		detail += ": " + told.Detail
	}
	told.Detail = detail
	return told
}
