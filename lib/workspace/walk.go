package workspace

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"pikuri/lib/pattern"
)

// maxWalk bounds the depth of a walk: no path has more names. It ends a walk of a
// workspace whose directories contain themselves.
const maxWalk = maxPath / 2

// WalkFunc is called by Walk for each entry. fs.SkipDir (filepath.SkipDir) skips the
// entries of a directory; for a file it has no effect. fs.SkipAll ends the walk without
// an error, any other error with it.
type WalkFunc func(path string, entry fs.DirEntry) error

// Walk calls fn for each file and directory below dir, but not for dir: each directory
// before its entries, and these by name. It follows no links. Only one directory of a
// depth is in memory. A missing directory counts as empty; one that cannot be listed ends
// the walk.
func Walk(ctx context.Context, ws Workspace, dir string, fn WalkFunc) error {
	err := walk(ctx, ws, dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return fn(path, entry)
	})
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// TreeEntry is an entry with its path.
type TreeEntry struct {
	Path string
	fs.DirEntry
}

// Tree yields the entries that Walk visits. A directory that cannot be listed is an error
// with its path, and does not end it.
func Tree(ctx context.Context, ws Workspace, dir string) iter.Seq2[TreeEntry, error] {
	return func(yield func(TreeEntry, error) bool) {
		_ = walk(ctx, ws, dir, func(path string, entry fs.DirEntry, err error) error {
			if !yield(TreeEntry{path, entry}, err) {
				return fs.SkipAll
			}
			return ctx.Err()
		})
	}
}

// visitor receives an entry, or with err a directory that cannot be listed.
type visitor func(path string, entry fs.DirEntry, err error) error

func walk(ctx context.Context, ws Workspace, dir string, visit visitor) error {
	rel, err := clean(dir)
	if err != nil {
		return visit(dir, nil, failed("list", dir, err))
	}
	return walkDir(ctx, ws, rel, 0, visit)
}

func walkDir(ctx context.Context, ws Workspace, dir string, deep int, visit visitor) error {
	entries, err := ws.List(ctx, dir)
	switch {
	case err == nil && deep > maxWalk:
		err = failed("list", dir, ErrTooMany)
	case deep > 0 && (errors.Is(err, ErrNotDir) || errors.Is(err, ErrNotFound)):
		return nil // it was a directory a moment ago
	}
	if err != nil {
		return visit(dir, nil, err)
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return failed("list", dir, err)
		}
		path := join(dir, entry.Name())
		err := visit(path, entry, nil)
		if err == nil && entry.IsDir() {
			err = walkDir(ctx, ws, path, deep+1, visit)
		}
		if err != nil && !isSkip(err) {
			return err
		}
	}
	return nil
}

// Glob returns the paths of all files that a pattern matches, in the order of Walk;
// directories are not files, links are. The language is that of the package pattern (see
// pk-patterns(7)): "**" between slashes is any number of names. Glob skips directories in
// which nothing can match. An invalid pattern is ErrInvalid, with a *pattern.SyntaxError.
func Glob(ctx context.Context, ws Workspace, text string) ([]string, error) {
	p, err := pattern.Compile(text)
	if err != nil {
		return nil, &Error{Op: "glob", Path: text, Err: ErrInvalid, Detail: err.Error(), Cause: err}
	}
	if !p.MayMatchBelow(".") {
		return nil, failed("glob", text, ctx.Err())
	}
	var found []string
	err = Walk(ctx, ws, ".", func(path string, entry fs.DirEntry) error {
		switch {
		case !entry.IsDir() && p.Match(path):
			found = append(found, path)
		case entry.IsDir() && !p.MayMatchBelow(path):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, failed("glob", text, err)
	}
	return found, nil
}
