package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
	"pikuri/lib/workspace"
)

// repository lands a git directory that the trial has made, under a name that git does
// not look for, as commands without a trial leave them. "pk-fs git-adopt" makes it one
// that git uses.
func (a *applying) repository(i Item) error {
	fenced := i.Path + gitdir.FencedSuffix
	ctx := context.Background()
	there, err := workspace.EntryOf(ctx, a.ws, fenced)
	if err != nil {
		return err
	}
	if there.Kind != workspace.KindMissing && a.landed[i.Path].entries == nil {
		return &Refused{fmt.Sprintf("the project has %q already", fenced), true}
	}
	if dir := a.failedAbove(i.Path); dir != "" {
		return &Refused{Reason: fmt.Sprintf("its directory %q has not landed", dir)}
	}
	if a.DryRun {
		return nil
	}
	if err := a.noteLanded(i.Path, workspace.Entry{Kind: workspace.KindDir}); err != nil {
		return err
	}
	if err := a.copyTree(ctx, i.Path, fenced); err != nil {
		return err
	}
	ignore := workspace.Entry{Kind: workspace.KindFile, Perm: 0o644}
	err = workspace.Swap(ctx, a.ws, path.Join(fenced, ".gitignore"), workspace.Entry{}, ignore, strings.NewReader("*\n"))
	if err != nil && !errors.Is(err, workspace.ErrChanged) {
		return err
	}
	return gitdir.NoteInert(a.GitState, filepath.Join(a.Path, path.Dir(i.Path)), path.Base(i.Path), path.Base(fenced))
}

// inertName is the path that a file of a git directory gets in the project. Git would
// take a directory with a HEAD, the directory itself and each below, for a repository.
func inertName(upper int, from, rel string) string {
	dir := path.Dir(rel)
	if path.Base(rel) != "HEAD" {
		return rel
	}
	has := func(name string) bool {
		in, err := fsat.Kernel().Open(upper, dir, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
		if err != nil {
			return false
		}
		defer unix.Close(in)
		_, err = fsat.Lstat(in, name)
		return err == nil
	}
	if dir == from || has("objects") && has("refs") || has("commondir") {
		return rel + gitdir.FencedSuffix
	}
	return rel
}

// copyTree copies the files and directories below a path of the upper layer that the
// project does not have. Links and special files are left out: git makes none.
func (a *applying) copyTree(ctx context.Context, from, to string) error {
	upper, err := fsat.Openat(unix.AT_FDCWD, a.Upper(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	project, err := a.openProject()
	if err != nil {
		return err
	}
	defer unix.Close(project)
	return overlay.Changes(upper, project, overlay.Options{Paths: []string{from}}, func(c overlay.Change) error {
		next := workspace.Entry{Perm: workspacePerm(c.New.Mode)}
		var content io.Reader
		switch {
		case c.Err != nil:
			return c.Err
		case c.Op != overlay.Added:
			return nil
		case c.New.IsDir():
			next.Kind = workspace.KindDir
			next.Perm |= 0o700
		case c.New.Mode&unix.S_IFMT == unix.S_IFREG:
			f, err := openContent(upper, c.Path)
			if err != nil {
				return err
			}
			defer f.Close()
			next.Kind, content = workspace.KindFile, f
		default:
			return nil
		}
		err := workspace.Swap(ctx, a.ws, to+strings.TrimPrefix(inertName(upper, from, c.Path), from), workspace.Entry{}, next, content)
		if errors.Is(err, workspace.ErrChanged) {
			return nil // a landing that was killed has put it there
		}
		return err
	})
}
