package confine

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitplace"
)

// ErrGitDir is the reason to refuse to write a file that git on the host would run
// or follow.
var ErrGitDir = errors.New("it lies in a git directory")

// HostRuns is the reason to refuse to write another file that a program on the host would
// run. Workspaces do not know these files: their callers do.
type HostRuns struct{ Why string }

func (h *HostRuns) Error() string { return h.Why }

// gitNames refuses a path as it was typed: the target of a .git that is a link is a
// git directory under another name.
func (w *Workspace) gitNames(name string, mode Mode) error {
	return w.gitDirs(name, false, mode, func(below string) (bool, error) { return gitplace.Named(below), nil })
}

// gitPlace refuses a place, which is resolved.
func (b *Batch) gitPlace(where string) error {
	if b.Mode == Read {
		return nil
	}
	slash := strings.LastIndexByte(where, '/')
	dir, name := where[:slash], where[slash+1:]
	if b.plain[dir] && !strings.EqualFold(name, "HEAD") && !gitplace.Named(name) {
		return nil
	}
	err := b.workspace.gitDirs(where, true, b.Mode, func(below string) (bool, error) {
		top := where[:len(where)-len(below)]
		return gitplace.Inside(below, func(path string) (bool, error) { return b.workspace.view.has(top + path) })
	})
	if err == nil && b.plain != nil {
		b.learnPlain(dir)
	}
	return err
}

// learnPlain remembers a directory that is in no git directory, if it has no HEAD.
func (b *Batch) learnPlain(dir string) {
	if head, err := b.workspace.view.has(dir + "/HEAD"); head || err != nil {
		return
	}
	if len(b.plain) >= maxParents {
		clear(b.plain)
	}
	b.plain[dir] = true
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

// has reports whether something is at a path.
func (v view) has(path string) (bool, error) {
	var st unix.Stat_t
	switch err := v.lstat(path, &st); err {
	case nil:
		return true, nil
	case unix.ENOENT, unix.ENOTDIR, unix.ENAMETOOLONG:
		return false, nil
	default:
		return false, err
	}
}
