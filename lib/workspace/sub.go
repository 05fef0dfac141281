package workspace

import (
	"context"
	"io/fs"
	"slices"

	"pikuri/lib/internal/fsat"
)

// Sub returns the directory dir of a workspace as a workspace of its own: paths
// begin there, and links that leave it lead outside. For "" and "." it returns ws
// itself.
//
// For a LocalWorkspace, Sub makes the directory if it is missing; the result is a
// LocalWorkspace that follows it when it is moved, and the caller closes it. For
// any other workspace, it is a view, which has no directory until a file is
// written. In a view of a ScopedWorkspace the same patterns apply, from the same
// root.
func Sub(ctx context.Context, ws Workspace, dir string) (Workspace, error) {
	rel, err := clean(dir)
	switch {
	case err != nil:
		return nil, failed("open", dir, err)
	case rel == ".":
		return ws, nil
	}
	if local, ok := ws.(*LocalWorkspace); ok {
		sub, err := local.Sub(ctx, dir)
		if err != nil {
			return nil, err
		}
		return sub, nil
	}
	if outer, ok := ws.(*sub); ok {
		ws, rel = outer.inner, join(outer.dir, rel)
	}
	view := newSub(Guarded(ws, beneath(rel)), rel)
	info, err := view.Stat(ctx, ".")
	if err == nil && !info.IsDir() {
		err = ErrNotDir
	}
	if err != nil {
		return nil, failed("open", dir, err)
	}
	return view, nil
}

// classOf returns the sentinel of an error.
func classOf(err error) error {
	kind, _ := classify(err)
	return kind
}

// beneath is a guard that allows only dir and its tree.
func beneath(dir string) Guard {
	return func(a Access) error {
		if !fsat.Within(a.Path, dir) {
			return errOut
		}
		return nil
	}
}

// sub is a view of a directory.
type sub struct {
	view
	dir string
}

func newSub(inner Workspace, dir string) *sub {
	s := &sub{dir: dir}
	s.view = view{inner: inner, run: s.run}
	return s
}

func (s *sub) Guarded(guard Guard) Workspace {
	return newSub(Guarded(s.inner, func(a Access) error {
		if !fsat.Within(a.Path, s.dir) {
			return errOut
		}
		a.Path = s.inside(a.Path)
		return guard(a)
	}), s.dir)
}

// inside converts a path of the whole workspace to one of the directory.
func (s *sub) inside(path string) string {
	if path == s.dir {
		return "."
	}
	return path[len(s.dir)+1:]
}

// run prefixes the paths. The root of the view is a directory, even while it is missing
// in the whole, and is neither moved nor removed.
func (s *sub) run(_ context.Context, op operation, do func(path, to string) error) error {
	path, to, err := op.clean()
	switch {
	case err != nil:
	case op.name == "rename" && to == ".", path == "." && (op.name == "rename" || op.name == "remove" || op.name == "swap"):
		err = errRoot
	case path == "." && slices.Contains([]string{"read", "write", "append", "delete"}, op.name):
		err = ErrIsDir
	default:
		err = do(join(s.dir, path), join(s.dir, to))
	}
	return op.failed(err)
}

func isRoot(path string) bool {
	rel, err := clean(path)
	return err == nil && rel == "."
}

func (s *sub) Exists(ctx context.Context, path string) (bool, error) {
	there, err := s.view.Exists(ctx, path)
	return there || err == nil && isRoot(path), err
}

func (s *sub) Entry(ctx context.Context, path string) (Entry, error) {
	e, err := s.view.Entry(ctx, path)
	if err == nil && e.Kind == KindMissing && isRoot(path) {
		e = Entry{Kind: KindDir, Perm: 0o755}
	}
	return e, err
}

// Recover returns paths relative to the directory.
func (s *sub) Recover(ctx context.Context, dir string) ([]string, error) {
	kept, err := s.view.Recover(ctx, dir)
	for i := range kept {
		kept[i] = s.inside(kept[i])
	}
	return kept, err
}

func (s *sub) Stat(ctx context.Context, path string) (fs.FileInfo, error) {
	info, err := s.view.Stat(ctx, path)
	switch {
	case !isRoot(path):
	case err == nil:
		info = &fileInfo{".", info.Size(), info.Mode(), info.ModTime(), info.Sys()}
	case classOf(err) == ErrNotFound:
		info, err = &fileInfo{name: ".", mode: fs.ModeDir | 0o755}, nil
	}
	return info, err
}
