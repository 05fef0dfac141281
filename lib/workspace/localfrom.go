package workspace

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// NewLocalWorkspaceFrom returns an open directory as a workspace, for a caller that has
// checked it: no other directory can take its place in between. The name of dir is its
// path, absolute, clean and without links. The caller may close dir afterwards, and
// closes the workspace.
func NewLocalWorkspaceFrom(dir *os.File, opts ...Option) (*LocalWorkspace, error) {
	name := dir.Name()
	if !filepath.IsAbs(name) || filepath.Clean(name) != name {
		return nil, failed("open workspace", name, &Error{Err: ErrInvalid, Detail: "its name is not an absolute, clean path"})
	}
	fd, err := fsat.Reopen(int(dir.Fd()), unix.O_PATH)
	if err != nil {
		return nil, failed("open workspace", name, err)
	}
	return &LocalWorkspace{tree: newTree(fd, name, name), conf: newConfig(opts)}, nil
}
