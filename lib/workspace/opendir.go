package workspace

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. It opens many files without a new lookup of its path. Several
// goroutines can use it at once. The caller closes it.
type Dir struct {
	ws    Workspace
	path  string
	local *LocalWorkspace // nil: by path
	fd    int
	where string
}

// Name is the name of an entry, and its type.
type Name struct {
	Name string
	Kind fs.FileMode
}

// OpenDir opens a directory and returns the entries of List, sorted by name. It fails with
// ErrNotFound or ErrNotDir. On a LocalWorkspace, Open reads from the directory that OpenDir
// has opened, even if another file has its path by then.
func OpenDir(ctx context.Context, ws Workspace, dir string) (d *Dir, names []Name, err error) {
	if local, ok := ws.(*LocalWorkspace); ok {
		d, names, err = local.openDirNames(ctx, dir)
		if err != nil {
			return nil, nil, failed("list", dir, err)
		}
		d.path = dir
		return d, names, nil
	}
	info, err := ws.Stat(ctx, dir)
	if err == nil && !info.IsDir() {
		err = ErrNotDir
	}
	if err != nil {
		return nil, nil, failed("list", dir, err)
	}
	entries, err := ws.List(ctx, dir)
	if err != nil {
		return nil, nil, failed("list", dir, err)
	}
	for _, entry := range entries {
		names = append(names, Name{entry.Name(), entry.Type()})
	}
	return &Dir{ws: ws, path: dir, fd: -1}, names, nil
}

// Open opens a file of the directory for reading. For a symbolic link it returns
// ErrNotRegular.
func (d *Dir) Open(ctx context.Context, name string) (File, error) {
	if d.local == nil {
		return Open(ctx, d.ws, join(d.path, name))
	}
	path := join(d.path, name)
	fd, err := d.local.openBelow(d.fd, name, unix.O_RDONLY)
	if err != nil {
		return nil, failed("read", path, d.refused(name, err))
	}
	f, err := d.local.regularFile(ctx, fd, join(d.where, name), path)
	if err != nil {
		return nil, failed("read", path, err)
	}
	return f, nil
}

func (d *Dir) refused(name string, err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		err = ErrNotRegular
	}
	return d.local.afterGuard(join(d.where, name), err)
}

// Close closes the directory.
func (d *Dir) Close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

func (w *LocalWorkspace) openDirNames(ctx context.Context, dir string) (d *Dir, names []Name, err error) {
	err = w.do(ctx, dir, func(rel string) error {
		fd, where, err := w.openDir(rel)
		if err != nil {
			return err
		}
		d = &Dir{ws: w, local: w, fd: fd, where: where}
		if names, err = w.names(fd, where); err != nil {
			d.Close()
		}
		return err
	})
	return d, names, err
}

// names returns the names and types of the entries that List returns.
func (w *LocalWorkspace) names(dir int, where string) (names []Name, err error) {
	err = eachEntry(dir, func(e dirent) error {
		if len(names) >= w.conf.maxEntries {
			return ErrTooMany
		}
		if len(w.guards) > 0 && w.ask(Access{Path: join(where, e.Name)}) != nil {
			return nil
		}
		kind, err := kindOf(dir, e)
		if err == nil && !isHidden(e.Name, kind) {
			names = append(names, Name{e.Name, kind})
		}
		return ignoreMissing(err)
	})
	slices.SortFunc(names, func(a, b Name) int { return strings.Compare(a.Name, b.Name) })
	return names, err
}
