package workspace

import (
	"context"
	"io/fs"
)

// Access is the next step of an operation.
type Access struct {
	// Path is the place of the step, with all links resolved, relative to the root of the
	// workspace; "." for the root.
	Path  string
	Write bool   // it writes or removes; otherwise it reads
	Links uint64 // the number of hard links; 0 for a missing file, or another kind
}

// Guard decides about an access. Its error ends the operation before that has revealed or
// changed anything. The operation returns an error that matches it.
type Guard func(Access) error

// Guarder is a Workspace that knows where its paths lead. A workspace without links need
// not be one.
type Guarder interface {
	// Guarded returns a view of the workspace that asks guard about each place before it
	// touches it, after the guards that it asks already. Lists leave out entries that may not
	// be read. An operation on a whole tree first asks about every entry in it.
	Guarded(guard Guard) Workspace
}

// Guarded returns a view of any workspace that asks guard. It assumes that a workspace
// that is not a Guarder has no links.
func Guarded(ws Workspace, guard Guard) Workspace {
	if g, ok := ws.(Guarder); ok {
		return g.Guarded(guard)
	}
	g := &guarded{guard: guard}
	g.view = view{inner: ws, run: g.run, shows: func(dir string, entry fs.DirEntry) bool {
		rel, _ := clean(dir)
		return guard(Access{Path: join(rel, entry.Name())}) == nil
	}}
	return g
}

// guarded asks about paths as they are given.
type guarded struct {
	view
	guard Guard
}

func (g *guarded) Guarded(guard Guard) Workspace {
	return Guarded(g.inner, func(a Access) error {
		if err := g.guard(a); err != nil {
			return err
		}
		return guard(a)
	})
}

func (g *guarded) run(ctx context.Context, op operation, do func(path, to string) error) error {
	path, to, err := op.clean()
	if err == nil {
		err = g.ask(op, path, to)
	}
	if err == nil && (op.name == "remove" || op.name == "rename") {
		err = g.askTree(ctx, op, path, to)
	}
	if err != nil {
		return op.failed(err)
	}
	return do(op.path, op.to)
}

// ask asks about one path of the operation, or below it.
func (g *guarded) ask(op operation, path, to string) error {
	var accesses []Access
	if op.read {
		accesses = append(accesses, Access{Path: path})
	}
	if op.write {
		accesses = append(accesses, Access{Path: path, Write: true})
	}
	if op.name == "rename" {
		accesses = append(accesses, Access{Path: to, Write: true})
	}
	for _, a := range accesses {
		if err := g.guard(a); err != nil {
			return err
		}
	}
	return nil
}

// askTree asks about every entry below a directory that the operation removes or moves.
func (g *guarded) askTree(ctx context.Context, op operation, dir, to string) error {
	if dir == "." {
		return nil // the operation refuses to remove or move the root
	}
	info, err := g.inner.Stat(ctx, dir)
	if err != nil || !info.IsDir() {
		return nil // the operation itself reports it
	}
	return Walk(ctx, g.inner, dir, func(path string, _ fs.DirEntry) error {
		return g.ask(op, path, join(to, path[len(dir)+1:]))
	})
}
