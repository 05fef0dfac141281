package confine

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// For callers that do more with a path than to open it: where it is, they learn
// from Lookup; what they do, they do from the descriptor of a root; and whether
// they may do it there, they ask again about the place that they have come to.

// OpenRoot returns the directory that root was when the workspace was opened,
// whatever has its name now, for looking up what is below (O_PATH). It is to be
// closed, and outlives the workspace.
func (w *Workspace) OpenRoot(root Root) (*os.File, error) {
	for _, r := range w.roots {
		if r.Path != root.Path {
			continue
		}
		fd, err := unix.Openat(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &RootError{Name: root.Path, Err: err, role: roleReadable}
		}
		return os.NewFile(uintptr(fd), r.Path), nil
	}
	return nil, &RootError{Name: root.Path, Err: ErrOutside, role: roleReadable}
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
// that it need not be asked each time.
func (w *Workspace) PermitsAll(root Root) bool {
	return root.Writable && len(w.narrow.Deny)+len(w.narrow.DenyRead)+len(w.narrow.AllowWrite) == 0
}

// itself has canon follow all links but the one that the last name may be.
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
