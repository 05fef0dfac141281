package workspace

import "context"

// ScopedGitWorkspace is a ScopedWorkspace of a workspace with Git repositories.
// Cloning and pulling need to write the directory and all that changes in it, but
// for what is below .git, which is git's; the head needs to read the directory.
// Where a repository may come from is not the scope's to say: GitConfig is.
type ScopedGitWorkspace struct {
	*ScopedWorkspace
	git GitWorkspace
}

// NewScopedGitWorkspace returns a view of inner; see NewScopedWorkspace.
func NewScopedGitWorkspace(inner GitWorkspace, opts ...ScopedOption) (*ScopedGitWorkspace, error) {
	scoped, err := NewScopedWorkspace(inner, opts...)
	if err != nil {
		return nil, err
	}
	g := &ScopedGitWorkspace{scoped, inner}
	if guarded, ok := scoped.inner.(GitWorkspace); ok {
		g.git = guarded // it asks about each file, and where paths lead
	}
	return g, nil
}

// GitClone needs to write dest.
func (s *ScopedGitWorkspace) GitClone(ctx context.Context, url, dest string) error {
	return s.run(ctx, "clone into", dest, toWrite, func() error { return s.git.GitClone(ctx, url, dest) })
}

// GitPull needs to write dir.
func (s *ScopedGitWorkspace) GitPull(ctx context.Context, dir string) error {
	return s.run(ctx, "pull in", dir, toWrite, func() error { return s.git.GitPull(ctx, dir) })
}

// GitHead needs to read dir.
func (s *ScopedGitWorkspace) GitHead(ctx context.Context, dir string) (commit string, err error) {
	err = s.run(ctx, "read the commit of", dir, toRead, func() error {
		commit, err = s.git.GitHead(ctx, dir)
		return err
	})
	return commit, err
}
