package workspace

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// PathFunc is called by Paths for each entry, with its path and type, and for each
// directory that cannot be listed, with the reason. fs.SkipDir and fs.SkipAll mean the
// same as for a WalkFunc.
type PathFunc func(path string, kind fs.FileMode, err error) error

// Paths visits the entries that Walk visits, in the same order. It goes on after a
// directory that cannot be listed, if fn lets it. It passes only the type of an entry: on
// a LocalWorkspace it takes less than half of the time.
func Paths(ctx context.Context, ws Workspace, dir string, fn PathFunc) error {
	var err error
	if local, ok := ws.(*LocalWorkspace); ok {
		err = local.paths(ctx, dir, fn)
	} else {
		err = walk(ctx, ws, dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return fn(path, fs.ModeDir, err)
			}
			return fn(path, entry.Type(), nil)
		})
	}
	if errors.Is(err, fs.SkipAll) || errors.Is(err, fs.SkipDir) {
		return nil
	}
	return err
}

func (w *LocalWorkspace) paths(ctx context.Context, dir string, fn PathFunc) error {
	rel, err := clean(dir)
	if err != nil {
		return fn(dir, fs.ModeDir, failed("list", dir, err))
	}
	return w.pathsBelow(ctx, rel, 0, fn)
}

func (w *LocalWorkspace) pathsBelow(ctx context.Context, dir string, deep int, fn PathFunc) error {
	d, entries, err := w.openDirNames(ctx, dir)
	if err == nil {
		d.Close()
	}
	switch {
	case err == nil && deep > maxWalk:
		err = ErrTooMany
	case errors.Is(err, unix.ENOENT), deep > 0 && errors.Is(err, unix.ENOTDIR):
		return nil // it is missing, or is not a directory any more
	}
	if err != nil {
		return fn(dir, fs.ModeDir, failed("list", dir, err))
	}
	for i := range entries {
		if err := ctx.Err(); err != nil {
			return failed("list", dir, err)
		}
		path, kind := join(dir, entries[i].Name), entries[i].Kind
		err := fn(path, kind, nil)
		if err == nil && kind.IsDir() {
			err = w.pathsBelow(ctx, path, deep+1, fn)
		}
		if err != nil && !isSkip(err) {
			return err
		}
	}
	return nil
}
