package gitsync

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/lazy"
	"pikuri/lib/workspace"
)

// gitHash is the full name of a commit, in either of git's two hashes.
var gitHash = lazy.Regexp(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// gitRef is the name of a branch or a tag. Git allows more names than these.
var gitRef = lazy.Regexp(`^refs/([A-Za-z0-9_+@][A-Za-z0-9._+@=,#%-]*/)*[A-Za-z0-9_+@][A-Za-z0-9._+@=,#%-]*$`)

func isRef(name string) bool {
	return gitRef().MatchString(name) && !strings.Contains(name, "..") && !strings.Contains(name, "@{") &&
		!strings.HasSuffix(name, ".lock") && !strings.Contains(name, ".lock/") && !strings.HasSuffix(name, ".")
}

// repository is a repository of the workspace, as data.
type repository struct{ *tree }

// openRepository opens the repository in dir. It looks at no directory above dir,
// and refuses a .git that leads elsewhere.
func openRepository(ctx context.Context, ws *workspace.LocalWorkspace, dir string) (*repository, error) {
	t, err := openTree(ctx, ws, dir)
	if err != nil {
		return nil, err
	}
	r := &repository{t}
	err = t.ask(workspace.Access{Path: "."})
	if err == nil {
		err = r.check()
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *repository) check() error {
	st, err := r.lstat(".git")
	switch {
	case err == unix.ENOENT:
		return &workspace.Error{Err: workspace.ErrNotFound, Detail: "it is not a repository: there is no .git in it"}
	case err != nil:
		return err
	case !isDir(st):
		return gitError("its .git is not a directory, and leads elsewhere")
	}
	for _, name := range []string{"commondir", "gitdir"} {
		if _, err := r.lstat(".git/" + name); err != unix.ENOENT {
			return gitError("its .git belongs to another repository")
		}
	}
	return nil
}

const (
	maxSymref     = 5         // symbolic refs in a row, as in git
	maxRefFile    = 4 << 10   // no name of a commit or of a branch is longer
	maxPackedRefs = 64 << 20  // a million refs
	maxGitConfig  = 1 << 20   // written by hand, or by git
	maxGitIndex   = 256 << 20 // two million files
)

// read returns a file below .git, up to limit bytes.
func (r *repository) read(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, err := r.files.Open(ctx, ".git/"+name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(content)) > limit {
		err = workspace.ErrTooLarge
	}
	return content, err
}

// head returns the commit that is checked out, and the branch that it is on, or "".
func (r *repository) head(ctx context.Context) (commit, branch string, err error) {
	name := "HEAD"
	for range maxSymref {
		content, err := r.read(ctx, name, maxRefFile)
		switch {
		case errors.Is(err, workspace.ErrNotFound) && name != "HEAD":
			commit, err := r.packed(ctx, name)
			return commit, name, err
		case err != nil:
			return "", "", err
		}
		text := string(bytes.TrimSpace(content))
		if next, ok := strings.CutPrefix(text, "ref:"); ok {
			name = strings.TrimSpace(next)
			if !isRef(name) {
				return "", "", gitError("its HEAD names no branch")
			}
			continue
		}
		if !gitHash().MatchString(text) {
			return "", "", gitError("its HEAD names no commit")
		}
		if name == "HEAD" {
			return text, "", nil
		}
		return text, name, nil
	}
	return "", "", gitError("its HEAD leads in a circle")
}

// packed looks a branch up in packed-refs.
func (r *repository) packed(ctx context.Context, name string) (string, error) {
	content, err := r.read(ctx, "packed-refs", maxPackedRefs)
	if err != nil && !errors.Is(err, workspace.ErrNotFound) {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		commit, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ref == name && gitHash().MatchString(commit) {
			return commit, nil
		}
	}
	return "", &workspace.Error{Err: workspace.ErrNotFound, Detail: "its branch has no commit yet"}
}
