package workspace

import (
	"context"
	"io"
	"io/fs"
	"iter"
)

// File is a file opened for reading. It does not change when its name is given to another
// file. Read and WriteTo fail once the context of Open is done. A File is for one
// goroutine.
type File interface {
	io.ReadSeekCloser
	Stat() (fs.FileInfo, error)
}

// Writer is a file being written. Exactly one of Close and Abort decides;
// later calls of either do nothing and return nil, so that
//
//	defer w.Abort()
//
// is always safe. Write fails once the context of Create is done. A Writer is for one
// goroutine.
type Writer interface {
	io.Writer

	// Close finishes the file. Without an error from here, nothing is certain.
	Close() error

	// Abort gives up. With WriteOptions.Atomic nothing has happened; otherwise the file may
	// hold a part of the content.
	Abort() error
}

// WriteOptions are the options of Create. The zero value writes like Workspace.Write.
type WriteOptions struct {
	// Append adds to the content. It excludes the next three.
	Append bool

	// Exclusive fails with ErrExist, from Create or from Close, if the name exists, even as a
	// link.
	Exclusive bool

	// IfHash, unless it is "", is the HashOf the content that the file must have until it is
	// replaced: otherwise ErrChanged, from Create or from Close. A missing file is
	// ErrNotFound. It implies Atomic.
	//
	// Of several conditional writes of one file, in any process of this host,
	// one succeeds. An ordinary write at the very moment of Close can be lost.
	IfHash string

	// Atomic makes Close put the whole file in place in one step: neither a reader nor a
	// crash finds half of it. The mode of a replaced file is kept; its other hard links, ACLs
	// and extended attributes are not. If Create cannot do it in one step, it makes a best
	// effort; Capabilities.AtomicRename tells.
	Atomic bool

	// Sync makes Close return only when the file, and its name, are on stable storage, if
	// there is any.
	Sync bool

	// Sparse, which goes with Atomic, leaves pieces of 4096 zero bytes out of a file on
	// disk. The copy of a sparse file then takes no more space than the file does.
	Sparse bool

	// Perm are the permissions of a new file, less the umask; 0 for the default. Other bits
	// are ignored.
	Perm fs.FileMode
}

// Opener is a Workspace that opens files without reading all of them.
type Opener interface {
	// Open opens a file for reading. It fails like Read. Of the limits on size only
	// WithMaxFileSize applies.
	Open(ctx context.Context, path string) (File, error)
}

// Creator is a Workspace that supports WriteOptions.
type Creator interface {
	// Create opens a file to be written. It fails like Write.
	Create(ctx context.Context, path string, opts WriteOptions) (Writer, error)
}

// Lister is a Workspace that lists directories of any size.
type Lister interface {
	// Entries yields the entries of List, in no order, without having all of them in memory.
	// An error ends it.
	Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error]
}

// DirMaker is a Workspace that makes directories.
type DirMaker interface {
	// Mkdir makes a directory and its missing parents. An existing directory is not an error; a
	// file in its place is ErrExist.
	Mkdir(ctx context.Context, dir string) error
}
