package workspace

import (
	"golang.org/x/sys/unix"

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
