// Package workspace gives an agent files to work on: a tree that it can read and
// write, and that no path leads out of.
//
// LocalWorkspace is a directory, MemWorkspace is memory. ScopedWorkspace, ReadOnly and
// Sub restrict another workspace. The package workspacetest has a suite for all
// implementations.
//
// A Workspace has nine operations. Some implement further ones, as small
// interfaces (Opener, Creator, Lister, DirMaker, Swapper), each with a function
// (Open, Create, Entries, Mkdir, Swap) that falls back on the nine where it can. So
// every function here takes any Workspace.
//
// # Paths
//
// Paths are relative to the root of the workspace, with "/" between names; "" and "." are
// the root. They are cleaned lexically first: "d/../f" is "f", even if d is a link, and a
// slash at the end means nothing. An absolute path, and one that leads above the root, is
// refused with ErrPathTraversal.
//
// Names are bytes. A name holds no NUL and is at most 255 bytes long, a path at
// most 4095; others are refused with ErrInvalid.
//
// Unfinished files are called ".pk-", 26 capital letters and digits, ".tmp", and entries
// that a Swap exchanges ".pk-", 78 of them, "-", a name, ".swap". Lists leave such files
// out, and no caller can make one. If a crash left one, the next atomic write beside it
// removes it.
//
// # Symbolic links
//
// An operation on a path follows the links in it, as long as they stay inside, the last one included;
// Rename, Delete and RemoveAll act on the last one itself, and Swap follows none at all. A link that leads
// out, or into a loop, makes the operation fail with ErrPathTraversal; nothing outside is touched.
//
// # Errors
//
// Errors are of type *Error. They match (errors.Is) one of the sentinels of this package,
// or context.Canceled or context.DeadlineExceeded. Their text holds paths as the caller
// gave them, never the real path of the workspace, nor the target of a link.
//
// # Programs written for another Workspace
//
// Other packages have a Workspace of the same nine operations. A program for one may have
// to be changed in three places. NewScopedWorkspace returns an error too: a malformed
// pattern would deny nothing. No workspace has GitClone, GitPull and GitHead: git never
// runs in a repository of a workspace, and Client of package gitsync has Clone, Pull and
// Head. Nothing here runs commands: package sandbox does, and its NewLocalRunner returns
// an error too, as for a root that is not there.
package workspace

import (
	"context"
	"io/fs"
)

// Workspace is a tree of files. Its methods can be used by several goroutines at once.
// Each checks the context before it begins, between the pieces of a large file and
// between the entries of a directory.
type Workspace interface {
	// Read returns the content of a file. It fails with ErrNotFound, ErrIsDir, or
	// ErrNotRegular for any other type, such as a FIFO, on which it does not block.
	Read(ctx context.Context, path string) ([]byte, error)

	// Write gives a file new content. Missing directories on the way are made. A
	// reader, or a crash, may find it half done, except where Capabilities say
	// otherwise: AtomicWrite is never half done.
	Write(ctx context.Context, path string, data []byte) error

	// Append adds to the end of a file, and makes it like Write if it is missing.
	Append(ctx context.Context, path string, data []byte) error

	// Rename moves a file. It replaces dst, in one step if Capabilities say AtomicRename;
	// missing directories on the way to dst are made. It fails with ErrNotFound and without
	// effect if src is missing, and with ErrIsDir if dst is a directory. A directory can be
	// moved if Capabilities say RenameDir, to a free name; otherwise that is ErrIsDir. The
	// root cannot be moved: ErrAccessDenied. If src and dst are hard links of one file, or src
	// is a symbolic link that leads to dst, that is ErrInvalid, and nothing is changed.
	Rename(ctx context.Context, src, dst string) error

	// Delete removes a file. A missing file is not an error. It removes no
	// directory, not even an empty one: ErrIsDir.
	Delete(ctx context.Context, path string) error

	// RemoveAll removes a file, or a directory with everything in it. A missing
	// file is not an error. It does not remove the root: ErrAccessDenied.
	RemoveAll(ctx context.Context, path string) error

	// List returns the entries of a directory, sorted by name. A missing directory counts as
	// empty; the result is never nil without an error. A file is ErrNotDir.
	List(ctx context.Context, dir string) ([]fs.DirEntry, error)

	// Exists reports whether there is a file. A missing file is not an error, and
	// neither is a path below a file.
	Exists(ctx context.Context, path string) (bool, error)

	// Stat describes a file. The name of the root is ".".
	Stat(ctx context.Context, path string) (fs.FileInfo, error)
}
