package workspace_test

import (
	"context"
	"io/fs"

	"pikuri/lib/workspace"
)

// Programs call the package by these types. A change of one breaks them, and belongs in
// CHANGELOG.
var (
	_ func(context.Context, workspace.Workspace, string, []byte) error             = workspace.AtomicWrite
	_ func(context.Context, workspace.Workspace, string, string) error             = workspace.Copy
	_ func(context.Context, workspace.Workspace, string) ([]string, error)         = workspace.Glob
	_ func(context.Context, workspace.Workspace, string, workspace.WalkFunc) error = workspace.Walk
	_ func(context.Context, workspace.Workspace) context.Context                   = workspace.WithWorkspace
	_ func(context.Context) (workspace.Workspace, bool)                            = workspace.WorkspaceFrom
	_ func(context.Context) workspace.Workspace                                    = workspace.MustWorkspaceFrom
	_ func(workspace.Workspace) workspace.Capabilities                             = workspace.CapabilitiesOf
	_ func(...string) workspace.ScopedOption                                       = workspace.WithAllowWrite
	_ func(...string) workspace.ScopedOption                                       = workspace.WithDenyRead
	_ func(...string) workspace.ScopedOption                                       = workspace.WithMandatoryDeny
	_ func(workspace.ViolationLogger) workspace.ScopedOption                       = workspace.WithViolationLogger
)

var (
	_ api                          = workspace.Workspace(nil)
	_ api                          = (*workspace.LocalWorkspace)(nil)
	_ api                          = (*workspace.MemWorkspace)(nil)
	_ api                          = (*workspace.ScopedWorkspace)(nil)
	_ workspace.CapabilityReporter = (*workspace.LocalWorkspace)(nil)
	_ workspace.CapabilityReporter = (*workspace.MemWorkspace)(nil)
	_ workspace.CapabilityReporter = (*workspace.ScopedWorkspace)(nil)
	_ interface{ Root() string }   = (*workspace.LocalWorkspace)(nil)
	_ interface {
		Contains(path, substr string) bool
		MustWrite(path string, data []byte)
	} = (*workspace.MemWorkspace)(nil)
	_ = []error{workspace.ErrPathTraversal, workspace.ErrAccessDenied, workspace.ErrNotFound}
	_ = workspace.Capabilities{AtomicRename: true, ReadAfterWrite: true, DurableOnWrite: true, Distributed: true}
)

// The nine operations, and no more: an implementation elsewhere has these.
type api interface {
	Read(ctx context.Context, path string) ([]byte, error)
	Write(ctx context.Context, path string, data []byte) error
	Append(ctx context.Context, path string, data []byte) error
	Rename(ctx context.Context, src, dst string) error
	Delete(ctx context.Context, path string) error
	RemoveAll(ctx context.Context, path string) error
	List(ctx context.Context, dir string) ([]fs.DirEntry, error)
	Exists(ctx context.Context, path string) (bool, error)
	Stat(ctx context.Context, path string) (fs.FileInfo, error)
}

var _ workspace.Workspace = api(nil)

// The constructors, called as programs call them.
var _ = func(root string) (files workspace.Workspace, err error) {
	if files, err = workspace.NewLocalWorkspace(root); err != nil {
		files = workspace.NewMemWorkspace()
	}
	return workspace.NewScopedWorkspace(files, workspace.WithAllowWrite("**"))
}
