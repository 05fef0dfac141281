package trial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
	"pikuri/lib/workspace"
)

// repository lands a git directory that the trial has made under a name that git ignores,
// as commands without a trial leave them. "pk-fs git-adopt" gives it its real name.
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
	if err := a.reviewed(i, workspace.Entry{}, a.repositoryEntry(i.Path)); err != nil {
		return err
	}
	if a.DryRun {
		return nil
	}
	names, err := a.copyTree(ctx, i.Path, fenced)
	if err != nil {
		return err
	}
	ignore := workspace.Entry{Kind: workspace.KindFile, Perm: 0o644}
	err = workspace.Swap(ctx, a.ws, path.Join(fenced, ".gitignore"), workspace.Entry{}, ignore, strings.NewReader("*\n"))
	if err != nil && !errors.Is(err, workspace.ErrChanged) {
		return err
	}
	top := gitdir.Fenced{Dir: filepath.Join(a.Path, path.Dir(i.Path)), Name: path.Base(i.Path), At: filepath.Join(a.Path, fenced)}
	if err := gitdir.NoteInert(a.GitState, append(names, top)); err != nil {
		return err
	}
	if err := a.noteLanded(i.Path, a.repositoryEntry(i.Path)); err != nil {
		return err
	}
	return a.confirmLanded(i.Path, a.repositoryEntry(i.Path))
}

// repositoryEntry stands for a git directory that the trial has made. Its hash covers the
// names, modes, sizes, inodes and ctimes of all its entries, and changes with each commit.
func (r *Root) repositoryEntry(rel string) workspace.Entry {
	sum := sha256.New()
	_ = filepath.WalkDir(filepath.Join(r.Upper(), rel), func(name string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(name, &st) == nil {
			fmt.Fprintf(sum, "%q %o %d %d %d\n", name, st.Mode, st.Ino, st.Size, st.Ctim.Nano())
		}
		return nil
	})
	return workspace.Entry{Kind: workspace.KindOther, Hash: hex.EncodeToString(sum.Sum(nil))}
}

// copyTree copies the files and directories below a path of the upper layer that the
// project does not have. It skips links and special files: git makes none. It gives each
// HEAD that makes its directory a repository another name, and returns them, inner ones
// first.
func (a *applying) copyTree(ctx context.Context, from, to string) (names []gitdir.Fenced, err error) {
	upper, err := a.openUpper()
	if err != nil {
		return nil, err
	}
	defer unix.Close(upper)
	project, err := a.openProject()
	if err != nil {
		return nil, err
	}
	defer unix.Close(project)
	err = overlay.Changes(upper, project, overlay.Options{Paths: []string{from}, Skip: func(rel string, _ bool) bool {
		return rel != from && gitplace.Named(path.Base(rel)) // git makes none there
	}}, func(c overlay.Change) error {
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
		at := to + strings.TrimPrefix(c.Path, from)
		if path.Base(c.Path) == "HEAD" && next.Kind == workspace.KindFile && isGitDir(upper, path.Dir(c.Path)) {
			at += gitdir.FencedSuffix
			names = append(names, gitdir.Fenced{Dir: filepath.Join(a.Path, path.Dir(c.Path)), Name: "HEAD", At: filepath.Join(a.Path, at)})
		}
		old, err := workspace.EntryOf(ctx, a.ws, at)
		switch {
		case err != nil:
			return err
		case next.Kind == workspace.KindDir && old.Kind == workspace.KindDir:
			return nil
		case old.Kind == workspace.KindFile && old.Size == c.New.Size && strings.HasPrefix(c.Path, from+"/objects/"):
			return nil // landed before: git never changes an object
		}
		return workspace.Swap(ctx, a.ws, at, old, next, content)
	})
	slices.Reverse(names)
	return names, err
}

// isGitDir reports whether git treats a directory of the upper layer that has a HEAD as a
// repository.
func isGitDir(upper int, dir string) bool {
	fd, err := fsat.Kernel().Open(upper, dir, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	for _, name := range []string{"objects", "commondir"} {
		if _, err := fsat.Lstat(fd, name); err == nil {
			return true
		}
	}
	return false
}
