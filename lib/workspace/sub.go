package workspace

import (
	"context"
	"io/fs"
	"iter"

	"pikuri/lib/internal/fsat"
)

// Sub returns the directory dir of a workspace as a workspace of its own: paths
// begin there, and what links lead out of it is outside. The root is no
// directory to make one of, so "" and "." return ws itself.
//
// Of a LocalWorkspace it is one, with a directory that is made if it is missing,
// and that stays the same when it is moved; it is to be closed. Of any other it is
// a view, which has no directory until something is written. A view of a
// ScopedWorkspace is held to the same patterns, from the same root.
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
	view := &sub{forward{Guarded(ws, beneath(rel))}, rel}
	info, err := view.Stat(ctx, ".")
	if err == nil && !info.IsDir() {
		err = ErrNotDir
	}
	if err != nil {
		return nil, failed("open", dir, err)
	}
	return view, nil
}

// classOf is the sentinel that an error matches.
func classOf(err error) error {
	kind, _ := classify(err)
	return kind
}

// beneath is a guard that lets nothing lead out of dir. What leads down to it is
// out as well.
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
	forward
	dir string
}

func (s *sub) Guarded(guard Guard) Workspace {
	return &sub{forward{Guarded(s.inner, func(a Access) error {
		if !fsat.Within(a.Path, s.dir) {
			return errOut
		}
		a.Path = s.inside(a.Path)
		return guard(a)
	})}, s.dir}
}

// inside is what a path of the whole is called in the directory.
func (s *sub) inside(path string) string {
	if path == s.dir {
		return "."
	}
	return path[len(s.dir)+1:]
}

// run runs an operation with the path that the whole has for one.
func (s *sub) run(op, path string, operation func(path string) error) error {
	rel, err := clean(path)
	if err == nil {
		err = operation(join(s.dir, rel))
	}
	return failed(op, path, err)
}

// notRoot is run for what is not done to the root.
func (s *sub) notRoot(op, path string, operation func(path string) error) error {
	return s.run(op, path, func(whole string) error {
		if whole == s.dir {
			return errRoot
		}
		return operation(whole)
	})
}

// file is run for what is done to files only: the root is a directory, even while
// there is none.
func (s *sub) file(op, path string, operation func(path string) error) error {
	return s.run(op, path, func(whole string) error {
		if whole == s.dir {
			return ErrIsDir
		}
		return operation(whole)
	})
}

func (s *sub) Read(ctx context.Context, path string) (data []byte, err error) {
	err = s.file("read", path, func(path string) error {
		data, err = s.inner.Read(ctx, path)
		return err
	})
	return data, err
}

func (s *sub) Open(ctx context.Context, path string) (f File, err error) {
	err = s.file("read", path, func(path string) error {
		f, err = s.forward.Open(ctx, path)
		return err
	})
	return f, err
}

func (s *sub) Write(ctx context.Context, path string, data []byte) error {
	return s.file("write", path, func(path string) error { return s.inner.Write(ctx, path, data) })
}

func (s *sub) Append(ctx context.Context, path string, data []byte) error {
	return s.file("append", path, func(path string) error { return s.inner.Append(ctx, path, data) })
}

func (s *sub) Create(ctx context.Context, path string, opts WriteOptions) (out Writer, err error) {
	err = s.file("write", path, func(path string) error {
		out, err = s.forward.Create(ctx, path, opts)
		return err
	})
	return out, err
}

func (s *sub) Mkdir(ctx context.Context, dir string) error {
	return s.run("mkdir", dir, func(path string) error { return s.forward.Mkdir(ctx, path) })
}

func (s *sub) Delete(ctx context.Context, path string) error {
	return s.file("delete", path, func(path string) error { return s.inner.Delete(ctx, path) })
}

func (s *sub) RemoveAll(ctx context.Context, path string) error {
	return s.notRoot("remove", path, func(path string) error { return s.inner.RemoveAll(ctx, path) })
}

func (s *sub) Rename(ctx context.Context, src, dst string) error {
	err := s.notRoot("rename", src, func(src string) error {
		return s.notRoot("rename", dst, func(dst string) error { return s.inner.Rename(ctx, src, dst) })
	})
	return failedTo("rename", src, dst, err)
}

func (s *sub) List(ctx context.Context, dir string) (entries []fs.DirEntry, err error) {
	err = s.run("list", dir, func(path string) error {
		entries, err = s.inner.List(ctx, path)
		return err
	})
	return entries, err
}

func (s *sub) Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		rel, err := clean(dir)
		if err != nil {
			yield(nil, failed("list", dir, err))
			return
		}
		for entry, err := range s.forward.Entries(ctx, join(s.dir, rel)) {
			if !yield(entry, failed("list", dir, err)) {
				return
			}
		}
	}
}

func (s *sub) Exists(ctx context.Context, path string) (there bool, err error) {
	err = s.run("exists", path, func(whole string) error {
		there, err = s.inner.Exists(ctx, whole)
		there = there || err == nil && whole == s.dir
		return err
	})
	return there, err
}

// Stat: the root of the view has no name there, and is a directory even while
// there is none.
func (s *sub) Stat(ctx context.Context, path string) (info fs.FileInfo, err error) {
	err = s.run("stat", path, func(whole string) error {
		info, err = s.inner.Stat(ctx, whole)
		switch {
		case whole != s.dir:
		case err == nil:
			info = &fileInfo{".", info.Size(), info.Mode(), info.ModTime(), info.Sys()}
		case classOf(err) == ErrNotFound:
			info, err = &fileInfo{name: ".", mode: fs.ModeDir | 0o755}, nil
		}
		return err
	})
	return info, err
}
