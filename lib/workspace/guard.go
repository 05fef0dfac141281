package workspace

import (
	"context"
	"io/fs"
	"iter"
	"slices"
)

// Access is what an operation is about to do, and where it really does it.
type Access struct {
	// Path is the place that the operation has come to, every link followed,
	// relative to the root of the workspace; "." for the root.
	Path  string
	Write bool   // it is to be written or removed; otherwise to be read
	Links uint64 // how many names the file has; 0 if it is missing or no file
}

// Guard decides about an access. An error of it ends the operation, before it
// has told or changed anything, and matches what the operation returns.
type Guard func(Access) error

// Guarder is a Workspace that knows where its paths really lead, and can ask.
// A workspace without links needs none: its paths lead where they say.
type Guarder interface {
	// Guarded returns a view of the workspace that asks guard about each place
	// before it touches it, in addition to whom it asks already. Entries of a
	// directory that guard does not let be read are left out of lists. An
	// operation on a whole tree asks about all of the tree first.
	Guarded(guard Guard) Workspace
}

// Guarded returns a view of any workspace that asks guard. One that is no
// Guarder has no links, as far as can be known: there, paths are what they say.
func Guarded(ws Workspace, guard Guard) Workspace {
	if g, ok := ws.(Guarder); ok {
		return g.Guarded(guard)
	}
	return &guarded{forward{ws}, guard}
}

// guarded asks about paths as they are given.
type guarded struct {
	forward
	guard Guard
}

func (g *guarded) Guarded(guard Guard) Workspace {
	return &guarded{g.forward, func(a Access) error {
		if err := g.guard(a); err != nil {
			return err
		}
		return guard(a)
	}}
}

// may asks about one path.
func (g *guarded) may(op, path string, write bool) error {
	rel, err := clean(path)
	if err == nil {
		err = g.guard(Access{Path: rel, Write: write})
	}
	return failed(op, path, err)
}

func (g *guarded) Read(ctx context.Context, path string) ([]byte, error) {
	if err := g.may("read", path, false); err != nil {
		return nil, err
	}
	return g.inner.Read(ctx, path)
}

func (g *guarded) Open(ctx context.Context, path string) (File, error) {
	if err := g.may("read", path, false); err != nil {
		return nil, err
	}
	return g.forward.Open(ctx, path)
}

func (g *guarded) Write(ctx context.Context, path string, data []byte) error {
	if err := g.may("write", path, true); err != nil {
		return err
	}
	return g.inner.Write(ctx, path, data)
}

func (g *guarded) Append(ctx context.Context, path string, data []byte) error {
	if err := g.may("append", path, true); err != nil {
		return err
	}
	return g.inner.Append(ctx, path, data)
}

func (g *guarded) Create(ctx context.Context, path string, opts WriteOptions) (Writer, error) {
	if err := g.may("write", path, true); err != nil {
		return nil, err
	}
	return g.forward.Create(ctx, path, opts)
}

func (g *guarded) Mkdir(ctx context.Context, dir string) error {
	if err := g.may("mkdir", dir, true); err != nil {
		return err
	}
	return g.forward.Mkdir(ctx, dir)
}

func (g *guarded) Delete(ctx context.Context, path string) error {
	if err := g.may("delete", path, true); err != nil {
		return err
	}
	return g.inner.Delete(ctx, path)
}

func (g *guarded) RemoveAll(ctx context.Context, path string) error {
	err := g.may("remove", path, true)
	if err == nil {
		err = g.mayTree(ctx, path, func(rel string) []Access { return []Access{{Path: rel, Write: true}} })
	}
	if err != nil {
		return failed("remove", path, err)
	}
	return g.inner.RemoveAll(ctx, path)
}

func (g *guarded) Rename(ctx context.Context, src, dst string) error {
	to, err := clean(dst)
	if err == nil {
		err = g.may("rename", src, false)
	}
	if err == nil {
		err = g.may("rename", src, true)
	}
	if err == nil {
		err = g.may("rename", dst, true)
	}
	if err == nil {
		from, _ := clean(src)
		err = g.mayTree(ctx, src, func(rel string) []Access {
			return []Access{{Path: rel}, {Path: rel, Write: true}, {Path: join(to, rel[len(from)+1:]), Write: true}}
		})
	}
	if err != nil {
		return failedTo("rename", src, dst, err)
	}
	return g.inner.Rename(ctx, src, dst)
}

// mayTree asks about all that is below a directory.
func (g *guarded) mayTree(ctx context.Context, dir string, accesses func(rel string) []Access) error {
	rel, err := clean(dir)
	if err != nil || rel == "." {
		return err // the root is not removed or moved
	}
	info, err := g.inner.Stat(ctx, rel)
	if err != nil || !info.IsDir() {
		return nil // the operation itself will say
	}
	return Walk(ctx, g.inner, rel, func(path string, _ fs.DirEntry) error {
		for _, a := range accesses(path) {
			if err := g.guard(a); err != nil {
				return err
			}
		}
		return nil
	})
}

func (g *guarded) Exists(ctx context.Context, path string) (bool, error) {
	if err := g.may("exists", path, false); err != nil {
		return false, err
	}
	return g.inner.Exists(ctx, path)
}

func (g *guarded) Stat(ctx context.Context, path string) (fs.FileInfo, error) {
	if err := g.may("stat", path, false); err != nil {
		return nil, err
	}
	return g.inner.Stat(ctx, path)
}

func (g *guarded) List(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	if err := g.may("list", dir, false); err != nil {
		return nil, err
	}
	entries, err := g.inner.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	rel, _ := clean(dir)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return g.hides(rel, e) }), nil
}

func (g *guarded) Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		if err := g.may("list", dir, false); err != nil {
			yield(nil, err)
			return
		}
		rel, _ := clean(dir)
		for entry, err := range g.forward.Entries(ctx, dir) {
			if (err != nil || !g.hides(rel, entry)) && !yield(entry, err) {
				return
			}
		}
	}
}

// hides tells whether an entry of a directory is to be left out of lists.
func (g *guarded) hides(dir string, entry fs.DirEntry) bool {
	return g.guard(Access{Path: join(dir, entry.Name())}) != nil
}
