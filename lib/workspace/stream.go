package workspace

import (
	"context"
	"io"
	"io/fs"
	"iter"
)

// File is a file opened for reading. It stays what it is when its name is given
// to another file. Read and WriteTo fail once the context is done that it was
// opened with. A File is for one goroutine.
type File interface {
	io.ReadSeekCloser
	Stat() (fs.FileInfo, error)
}

// Writer is a file being written. Exactly one of Close and Abort decides;
// later calls of either do nothing and return nil, so that
//
//	defer w.Abort()
//
// is the way to be sure. Write fails once the context is done that it was
// created with. A Writer is for one goroutine.
type Writer interface {
	io.Writer

	// Close finishes the file. Without an error from here, nothing is certain.
	Close() error

	// Abort gives up. With WriteOptions.Atomic nothing has happened; otherwise
	// the file may hold what was written so far.
	Abort() error
}

// WriteOptions say how Create writes. The zero value writes like
// Workspace.Write.
type WriteOptions struct {
	// Append adds to what is there. It goes with none of the next three.
	Append bool

	// Exclusive fails with ErrExist, from Create or from Close, if anything has
	// the name, be it a link.
	Exclusive bool

	// IfHash, unless it is "", is the HashOf what the file must hold until it is
	// replaced: otherwise ErrChanged, from Create or from Close. A file that is
	// missing is ErrNotFound. It implies Atomic.
	//
	// Of several conditional writes of one file, in any process of this host,
	// one succeeds. An ordinary write at the very moment of Close can be lost.
	IfHash string

	// Atomic has Close put the whole file in place in one step: nobody sees half
	// of it, nor does a crash leave half of it. The mode of a file that is
	// replaced is kept; its other hard links, ACLs and extended attributes are
	// not. Where Create itself cannot do it in one step, it does what it can;
	// Capabilities.AtomicRename tells.
	Atomic bool

	// Sync has Close return only when the file, and its name, are on stable
	// storage, where there is any.
	Sync bool

	// Sparse, which goes with Atomic, leaves pieces of 4096 zero bytes out of a file on
	// disk. The copy of a sparse file then takes no more space than the file does.
	Sparse bool

	// Perm are the permissions of a new file, less the umask; 0 for the usual
	// ones. Other bits are ignored.
	Perm fs.FileMode
}

// Opener is a Workspace that opens files without reading all of them.
type Opener interface {
	// Open opens a file for reading. It fails like Read. No option on the size
	// of what is read applies, except WithMaxFileSize.
	Open(ctx context.Context, path string) (File, error)
}

// Creator is a Workspace that can write as WriteOptions say.
type Creator interface {
	// Create opens a file to be written. It fails like Write.
	Create(ctx context.Context, path string, opts WriteOptions) (Writer, error)
}

// Lister is a Workspace that lists directories of any size.
type Lister interface {
	// Entries yields what List returns, in no order, without having all of it in
	// memory. An error ends it.
	Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error]
}

// DirMaker is a Workspace that makes directories.
type DirMaker interface {
	// Mkdir makes a directory, and those on the way to it. An existing directory is
	// no error; a file in its place is ErrExist.
	Mkdir(ctx context.Context, dir string) error
}
