package workspace

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
)

var errGitDir = &Error{Err: ErrAccessDenied, Detail: "it lies in a git directory"}

// refuseGitDir refuses to write a place in a git directory, by the given path or the
// resolved one.
func (w *LocalWorkspace) refuseGitDir(given, where string) error {
	if w.conf.gitDirs {
		return nil
	}
	if gitplace.Named(given) {
		return errGitDir
	}
	return refuseInside(where, w.has)
}

// refuseInside refuses a place that gitplace finds in a git directory.
func refuseInside(where string, has func(string) (bool, error)) error {
	is, err := gitplace.Inside(where, has)
	if is {
		return errGitDir
	}
	return err
}

// confirm asks again about an entry that has just been made in an open directory, and removes it if it is
// refused: another process may have moved the directory meanwhile, or made it a git directory but for
// this entry. The last of several processes sees all that they have made. Without /proc it does nothing.
func (w *LocalWorkspace) confirm(dir int, name string, st *unix.Stat_t) error {
	err := w.refusesNow(dir, name, st.Mode&unix.S_IFMT != unix.S_IFDIR)
	if err == nil || !fsat.Names(dir, name, st) {
		return err
	}
	if unix.Unlinkat(dir, name, 0) == unix.EISDIR {
		_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}

// refusesNow refuses a name in an open directory, at the path that the directory has now. It asks the guards if
// asks is set: directories are made for a file whose rule does not name them.
func (w *LocalWorkspace) refusesNow(dir int, name string, asks bool) error {
	if len(w.guards) == 0 && w.conf.gitDirs {
		return nil
	}
	top, err := os.Readlink(fsat.Path(w.tree.fd))
	if err != nil {
		return nil
	}
	now, err := os.Readlink(fsat.Path(dir))
	if err != nil {
		return nil
	}
	if !fsat.Within(now, top) {
		return ErrRaced
	}
	where, err := filepath.Rel(top, filepath.Join(now, name))
	if err != nil {
		return err
	}
	if err := w.refuseGitDir(where, where); err != nil || !asks {
		return err
	}
	return w.ask(Access{Path: where, Write: true})
}

// has reports whether a file or a link is at a path without links.
func (w *LocalWorkspace) has(path string) (bool, error) {
	fd, err := w.openBelow(w.tree.fd, path, unix.O_PATH)
	switch err {
	case nil:
		unix.Close(fd)
		return true, nil
	case unix.ELOOP:
		return true, nil
	case unix.ENOENT, unix.ENOTDIR, unix.ENAMETOOLONG:
		return false, nil
	}
	return false, err
}

// has reports whether a file is at a path.
func (m *MemWorkspace) has(path string) (bool, error) {
	_, err := m.find(path)
	return err == nil, nil
}

// mayWrite refuses a path in a git directory.
func (m *MemWorkspace) mayWrite(rel string) error {
	if m.conf.gitDirs {
		return nil
	}
	return refuseInside(rel, m.has)
}
