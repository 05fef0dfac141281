package workspace

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
)

// This file is for packages that add operations to a workspace, as gitsync does.

// Clean returns path as all operations use it: cleaned, relative to the root, which is
// ".". It fails with ErrPathTraversal or ErrInvalid.
func Clean(path string) (string, error) { return clean(path) }

// IsReserved reports whether a name is reserved for unfinished files: no operation makes
// a file of such a name.
func IsReserved(name string) bool { return isReserved(name) }

// NewError makes err the error of an operation on path. An *Error keeps its reason. An
// error of a system call loses its path. The text of any other error becomes part of the
// new one: it must name no place outside the workspace.
func NewError(op, path string, err error) error { return failed(op, path, err) }

// Unguarded returns the directory dir, which must exist, as a workspace that asks no
// guard, and a guard that asks those of w, about paths relative to dir. The workspace has
// the options of w and opts, and the caller closes it.
//
// The guard has not been asked about dir itself. It refuses to write a .git, or a path
// below one; the workspace writes there.
func (w *LocalWorkspace) Unguarded(ctx context.Context, dir string, opts ...Option) (*LocalWorkspace, Guard, error) {
	var view *LocalWorkspace
	err := w.do(ctx, dir, func(rel string) error {
		fd, where, err := w.open(rel, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			view = w.below(fd, where)
		}
		return err
	})
	if err != nil {
		return nil, nil, failed("open", dir, err)
	}
	guarded := *view
	view.guards, view.conf.gitDirs = nil, true
	for _, opt := range opts {
		opt(&view.conf)
	}
	ask := func(a Access) error {
		if err := guarded.ask(a); err != nil {
			return err
		}
		if a.Write && !w.conf.gitDirs && gitplace.Named(join(dir, a.Path)) {
			return errGitDir
		}
		return nil
	}
	return view, ask, nil
}

// OpenRoot opens the directory itself, with O_PATH, for system calls that work
// from a descriptor. Its name is that of Root.
func (w *LocalWorkspace) OpenRoot() (*os.File, error) {
	if w.tree == nil {
		return nil, failed("open", ".", ErrClosed)
	}
	err := w.tree.use()
	if err != nil {
		return nil, failed("open", ".", err)
	}
	defer w.tree.release()
	fd, err := fsat.Reopen(w.tree.fd, unix.O_PATH)
	if err != nil {
		return nil, failed("open", ".", err)
	}
	return os.NewFile(uintptr(fd), w.tree.path), nil
}

// Do runs an operation of another package on path. It asks the policy about the given
// path, passes on a workspace that asks it about every place, and logs a violation.
func (s *ScopedWorkspace) Do(ctx context.Context, op, path string, write bool, do func(inner Workspace) error) error {
	return s.do(ctx, operation{name: op, path: path, read: !write, write: write}, func(_, _ string) error { return do(s.inner) })
}
