package confine

import (
	"errors"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitplace"
)

// ErrGitDir is the reason to refuse to write what git on the host would run or
// follow.
var ErrGitDir = errors.New("it lies in a git directory")

// gitNames refuses a path as it was typed: what a .git that is a link leads to is a
// git directory under another name.
func (w *Workspace) gitNames(name string, mode Mode) error {
	return w.gitDirs(name, false, mode, func(below string) (bool, error) { return gitplace.Named(below), nil })
}

// gitPlace refuses a place, which is resolved.
func (b *Batch) gitPlace(where string) error {
	return b.workspace.gitDirs(where, true, b.Mode, func(below string) (bool, error) {
		top := where[:len(where)-len(below)]
		return gitplace.Inside(below, func(path string) (bool, error) { return b.there(top + path) })
	})
}

// gitDirs asks refused about a name relative to each writable root above it. With
// AllowAll, no root decides about anything.
func (w *Workspace) gitDirs(name string, resolved bool, mode Mode, refused func(below string) (bool, error)) error {
	if mode == Read || w.gitToo || w.allowAll {
		return nil
	}
	for _, r := range w.roots {
		below, inside := r.relative(name, resolved)
		if !inside || !r.Writable || below == "." {
			continue
		}
		is, err := refused(below)
		if is {
			err = ErrGitDir
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// there reports whether something is at a path. It remembers that nothing is.
func (b *Batch) there(path string) (bool, error) {
	if b.absent[path] {
		return false, nil
	}
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); err {
	case nil:
		return true, nil
	case unix.ENOENT, unix.ENOTDIR, unix.ENAMETOOLONG:
	default:
		return false, err
	}
	if b.absent != nil {
		if len(b.absent) >= maxParents {
			clear(b.absent)
		}
		b.absent[path] = true
	}
	return false, nil
}
