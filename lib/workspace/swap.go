package workspace

import (
	"context"
	"io"
	"io/fs"
	"strings"
)

// Kind is the type of an entry.
type Kind int

const (
	KindMissing Kind = iota
	KindFile         // a regular file
	KindDir
	KindLink  // a symbolic link
	KindOther // a device, a FIFO or a socket
)

// Entry describes a path itself: a symbolic link is not followed. The zero value is a
// missing path.
type Entry struct {
	Kind   Kind
	Perm   fs.FileMode // permission bits of a file or a directory, 0777 at most
	Size   int64       // of a file
	Hash   string      // HashOf the content of a file
	Target string      // of a symbolic link
}

// same compares all but Size, which follows from Hash.
func (e Entry) same(other Entry) bool {
	e.Size, other.Size = 0, 0
	return e == other
}

// Swapper is a Workspace that replaces entries of any kind on a condition. Neither
// operation follows a symbolic link: a path with one before its last name is
// ErrPathTraversal.
type Swapper interface {
	// Entry describes path itself, and reads a file for its hash. A missing path is
	// no error, and neither is one below a file.
	Entry(ctx context.Context, path string) (Entry, error)

	// Swap replaces old at path by next. If the entry is not old, it fails with ErrChanged
	// and changes nothing. It creates if old is missing, deletes if next is, and changes the
	// type if the two differ. The size of neither matters. A directory to be replaced or
	// deleted must be empty: otherwise ErrChanged.
	//
	// content is the content of a new file, checked against next.Hash unless that is "". It
	// is not read if old and next are files with the same hash: then the mode changes, in
	// place, unless the file has several hard links and the workspace writes to none such. A
	// directory changes its mode in place too.
	//
	// The mode of a file or a directory becomes next.Perm, with any umask. Swap sets no
	// set-user-ID, set-group-ID or sticky bit, but a directory keeps its own. A replacement
	// has the owner and the group of the old entry; if it cannot have the group, it has no
	// group permissions. A link gets any target: a caller that does not trust the target
	// checks it first. Missing parent directories of a new entry are made.
	//
	// A caller that wants to keep old reads it before: the hash ensures that Swap replaces
	// the same content, and no crash comes between.
	Swap(ctx context.Context, path string, old, next Entry, content io.Reader) error

	// Recover cleans up after a killed Swap in the directory dir, unless a Swap is in
	// progress there. Other writes do the same from time to time. It returns the paths of
	// entries that a killed Swap had displaced although they were not the old ones: they have
	// a new name, with ".pk-kept-" in it.
	Recover(ctx context.Context, dir string) (kept []string, err error)
}

// EntryOf describes path itself, as Swapper.Entry does. It is ErrUnsupported if ws is no
// Swapper.
func EntryOf(ctx context.Context, ws Workspace, path string) (Entry, error) {
	if s, ok := ws.(Swapper); ok {
		return s.Entry(ctx, path)
	}
	return Entry{}, failed("stat", path, ErrUnsupported)
}

// Swap replaces old at path by next, as Swapper.Swap does. It is ErrUnsupported if ws is
// no Swapper.
func Swap(ctx context.Context, ws Workspace, path string, old, next Entry, content io.Reader) error {
	if s, ok := ws.(Swapper); ok {
		return s.Swap(ctx, path, old, next, content)
	}
	return failed("swap", path, ErrUnsupported)
}

// Recover cleans up after a killed Swap in a directory, as Swapper.Recover does. If ws is
// no Swapper, there is nothing to do.
func Recover(ctx context.Context, ws Workspace, dir string) (kept []string, err error) {
	if s, ok := ws.(Swapper); ok {
		return s.Recover(ctx, dir)
	}
	return nil, nil
}

// checkSwap refuses invalid entries.
func checkSwap(old, next Entry, content io.Reader) error {
	invalid := func(detail string) error { return &Error{Err: ErrInvalid, Detail: detail} }
	for _, e := range []Entry{old, next} {
		isFile, isLink := e.Kind == KindFile, e.Kind == KindLink
		switch {
		case e.Kind < KindMissing || e.Kind > KindOther:
			return invalid("an entry is of no kind")
		case e.Perm&^fs.ModePerm != 0 || e.Perm != 0 && !isFile && e.Kind != KindDir:
			return invalid("an entry has a mode that it cannot have")
		case e.Hash != "" && !(isFile && isHash(e.Hash)):
			return invalid("an entry has a hash that it cannot have")
		case isLink != (e.Target != "") || len(e.Target) > maxPath || strings.IndexByte(e.Target, 0) >= 0:
			return invalid("an entry has a target that it cannot have")
		}
	}
	switch {
	case old.Kind == KindFile && old.Hash == "":
		return invalid("there is no hash to compare with")
	case next.Kind == KindOther && old.Kind != KindOther:
		return invalid("only files, directories and links can be made")
	case next.Kind == KindFile && content == nil && !old.keepsInode(next):
		return invalid("there is no content")
	}
	return nil
}

// keepsInode reports whether a swap changes at most the mode.
func (e Entry) keepsInode(next Entry) bool {
	next.Perm = e.Perm
	return e.same(next)
}
