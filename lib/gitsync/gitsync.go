// Package gitsync clones Git repositories into a workspace, pulls in them, and
// reads which commit is checked out.
//
// A process that can write to a repository decides which programs git runs in it
// (hooks, filters, a file system monitor, a transport) and, by links and by a .git
// that is a file, where git writes. No list of those settings is complete. So git
// never runs in a repository of the workspace: it runs in a directory of its own,
// on data from the network, and the result is moved or copied into the workspace
// like any other file. The branch, the commit and the address of a repository are
// read as data.
//
// A program that uses this package has to begin its main function with
// sandbox.Main.
package gitsync

import (
	"context"
	"errors"
	"time"

	"pikuri/lib/workspace"
)

// ErrGit is the error of a git that failed or is missing, and of a repository
// that this package cannot work with.
var ErrGit = errors.New("git failed")

// Config says how Clone and Pull reach the outside. The zero value uses https
// only, without credentials.
type Config struct {
	// Protocols of the URLs that may be used: "https", "http", "ssh", "git",
	// "file". Nil is "https". With "file", repositories of the host can be read;
	// with "ssh", the user's keys are used.
	Protocols []string

	// Env names variables of this program that git gets, such as "https_proxy",
	// "SSL_CERT_FILE" or "SSH_AUTH_SOCK". It gets no others.
	Env []string

	// Timeout bounds each call of git; 0 is ten minutes.
	Timeout time.Duration

	// MaxFileBytes bounds each file that git writes, packs included; 0 is four
	// GiB.
	MaxFileBytes int64

	// Scratch is a directory outside the workspace in which git works; "" is
	// os.TempDir. On the file system of the workspace, a clone need not be copied.
	Scratch string
}

// Client transfers the repositories of one workspace. Its methods can be used by
// several goroutines at once.
type Client struct {
	ws   workspace.Workspace
	conf Config
}

// New returns a client for ws: a LocalWorkspace, a view of one that Guarded
// returned, or a ScopedWorkspace of such a workspace. With any other, all methods
// fail with workspace.ErrUnsupported.
//
// The policy of ws decides about every file outside .git. It does not decide about
// files in .git: allowing a clone or a pull allows them.
func New(ws workspace.Workspace, conf Config) *Client { return &Client{ws, conf} }

// Clone clones the repository at url into dest, which must be missing or an empty
// directory, and not a link; missing directories on the way to it are made. dest is
// there as a whole or not at all. No submodule is cloned, and no hook comes along.
//
// The policy has to allow dest, and everything in it, to be written.
func (c *Client) Clone(ctx context.Context, url, dest string) error {
	return on(ctx, c.ws, "clone into", dest, true, func(ws *workspace.LocalWorkspace) error {
		return c.clone(ctx, ws, url, dest)
	})
}

// Pull brings the repository in dir up to date with the branch that its own branch
// follows. It goes forward only. If that needs a merge, or would overwrite changes
// that are not committed, Pull fails and has changed nothing. Files are replaced
// one by one; after an interruption, another Pull completes the work.
//
// The history is fetched into a directory outside the workspace, and compared with
// the commit that the repository says it is at. Then the files that differ, and the
// new history, are copied. Git reads no file of the workspace but the index, and
// that with a configuration of its own.
//
// The policy has to allow dir, and every file that changes, to be written.
func (c *Client) Pull(ctx context.Context, dir string) error {
	return on(ctx, c.ws, "pull in", dir, true, func(ws *workspace.LocalWorkspace) error {
		return c.pull(ctx, ws, dir)
	})
}

// Head returns the full name of the commit that is checked out in dir. It starts
// no program and looks at no directory above dir. The policy has to allow dir to be
// read.
func (c *Client) Head(ctx context.Context, dir string) (commit string, err error) {
	err = on(ctx, c.ws, "read the commit of", dir, false, func(ws *workspace.LocalWorkspace) error {
		r, err := openRepository(ctx, ws, dir)
		if err != nil {
			return err
		}
		defer r.close()
		commit, _, err = r.head(ctx)
		return err
	})
	return commit, err
}

// on runs an operation on the LocalWorkspace behind ws.
func on(ctx context.Context, ws workspace.Workspace, op, path string, write bool, operation func(*workspace.LocalWorkspace) error) error {
	var err error
	switch ws := ws.(type) {
	case *workspace.LocalWorkspace:
		err = operation(ws)
	case *workspace.ScopedWorkspace:
		return ws.Do(ctx, op, path, write, func(inner workspace.Workspace) error {
			return on(ctx, inner, op, path, write, operation)
		})
	default:
		err = workspace.ErrUnsupported
	}
	return workspace.NewError(op, path, err)
}

// gitError is an ErrGit with its reason.
func gitError(reason string) error { return &workspace.Error{Err: ErrGit, Detail: reason} }
