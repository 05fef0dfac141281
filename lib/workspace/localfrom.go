package workspace

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// NewLocalWorkspaceFrom returns a directory that is open already as a workspace,
// for who has checked which one it is: nobody can put another in its place in
// between. The name of dir is to be its path, absolute, clean and without links.
// It may be closed afterwards; the workspace is to be closed, too.
func NewLocalWorkspaceFrom(dir *os.File, opts ...Option) (*LocalWorkspace, error) {
	name := dir.Name()
	if !filepath.IsAbs(name) || filepath.Clean(name) != name {
		return nil, failed("open workspace", name, &Error{Err: ErrInvalid, Detail: "its name is not an absolute, clean path"})
	}
	// Opened by its descriptor, for O_PATH and a life of its own.
	fd, err := fsat.Reopen(int(dir.Fd()), unix.O_PATH)
	if err != nil {
		return nil, failed("open workspace", name, err)
	}
	return &LocalWorkspace{tree: newTree(fd, name, name), conf: newConfig(opts)}, nil
}
