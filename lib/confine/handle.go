package confine

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// For callers that do more with a path than open it: Lookup tells its location,
// OpenRoot returns the directory descriptor to work from, and Permits decides about
// the place that they have reached.

// OpenRoot opens (O_PATH) the directory that root was when the workspace was opened,
// even if another one has its name now; for a single file, the directory that it still
// lies in. With Config.Shown it is the directory that replaces the root, or one in that.
// Its name is the path of the workspace. The caller closes it; it outlives the
// workspace.
func (w *Workspace) OpenRoot(root Root) (*os.File, error) {
	for _, r := range w.roots {
		if r.Path != root.Path {
			continue
		}
		fd, name, err := w.openRoot(r)
		if err != nil {
			return nil, &RootError{Name: root.Path, Err: err, role: roleReadable}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	return nil, &RootError{Name: root.Path, Err: ErrOutside, role: roleReadable}
}

func (w *Workspace) openRoot(r heldRoot) (fd int, name string, err error) {
	name = r.Path
	if !r.Dir {
		name = path.Dir(name)
	}
	dir, below := w.view.at(name)
	switch {
	case dir != unix.AT_FDCWD:
		fd, err = w.view.opener.Open(dir, below, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	case r.Dir:
		fd, err = fsat.Reopen(r.fd, unix.O_PATH)
	default:
		fd, err = r.openAround(name)
	}
	return fd, name, err
}

// openAround opens the directory that a file lies in.
func (r heldRoot) openAround(dir string) (int, error) {
	fd, err := fsat.Openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	st, err := fsat.Lstat(fd, path.Base(r.Path))
	if err != nil || !r.Is(st) {
		unix.Close(fd)
		return -1, errors.Join(err, ErrReplaced)
	}
	return fd, nil
}

// Permits reports whether roots and rules allow a place, which is resolved, to be
// used: nil, ErrOutside, ErrNotAllowed or a *Denial. It looks nothing up, and does
// not know git directories: lib/workspace does.
func (w *Workspace) Permits(where string, mode Mode) error {
	if !w.allowAll && w.holder(where, mode) == nil {
		return ErrOutside
	}
	return w.rules(where, true, mode)
}

// PermitsAll reports whether Permits allows everything below root to be used, so
// that it need not be asked each time; and whether all of it is in the directory of
// OpenRoot, and none in that of another root.
func (w *Workspace) PermitsAll(root Root) bool {
	inside := func(s shownDir) bool { return s.path != root.Path && fsat.Within(s.path, root.Path) }
	return root.Writable && len(w.narrow.Deny)+len(w.narrow.DenyRead)+len(w.narrow.AllowWrite)+len(w.narrow.Protect) == 0 &&
		!slices.ContainsFunc(w.view.shown, inside)
}

// itself has canon follow all links but the last name.
func itself(canon func(string) (string, error)) func(string) (string, error) {
	return func(path string) (string, error) {
		path = strings.TrimRight(path, "/")
		slash := strings.LastIndexByte(path, '/')
		name := path[slash+1:]
		if slash < 0 || name == "." || name == ".." {
			return canon(path + "/")
		}
		dir, err := canon(path[:max(slash, 1)])
		if err != nil {
			return "", err
		}
		return strings.TrimSuffix(dir, "/") + "/" + name, nil
	}
}
