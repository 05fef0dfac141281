package workspace

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// LocalWorkspace is a directory with its whole tree. It keeps the directory open and
// works from its descriptor. If the directory is moved, the workspace moves along, and a
// new directory in its old place does not belong to it. An operation looks up no name
// twice, so no rename leads it outside.
//
// Other processes that may write there can still change the files.
//
// The zero value is closed.
type LocalWorkspace struct {
	tree   *tree
	conf   config
	guards []Guard
}

// tree is the root, held open, which all views of a workspace share.
type tree struct {
	fd     int      // O_PATH: it serves only to look up names below
	path   string   // canonical, when it was opened
	names  []string // of path
	given  string   // as the caller named it, absolute and clean; links may use that
	opener fsat.Opener

	mu     sync.Mutex
	users  int // operations in progress
	closed bool

	swept sweeps

	// Tests set these: to work as on a file system without RENAME_EXCHANGE, or without
	// O_TMPFILE, and to stop a swap between two steps.
	noExchange bool
	noUnnamed  bool
	step       func(string)
}

// NewLocalWorkspace returns the directory root as a workspace, and makes it if it
// is missing. Links in root are followed now and never again. The caller closes
// the workspace; files opened in it stay open.
func NewLocalWorkspace(root string, opts ...Option) (*LocalWorkspace, error) {
	if root == "" {
		return nil, failed("open workspace", root, &Error{Err: ErrInvalid, Detail: "it has no name"})
	}
	conf := newConfig(opts)
	given, err := filepath.Abs(root)
	if err != nil {
		return nil, failed("open workspace", root, err)
	}
	if err := os.MkdirAll(given, conf.dirPerm); err != nil {
		return nil, failed("open workspace", root, err)
	}
	path, err := filepath.EvalSymlinks(given)
	if err != nil {
		return nil, failed("open workspace", root, err)
	}
	// If the path has become a link meanwhile, following it now is equivalent.
	fd, err := fsat.Openat(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, failed("open workspace", root, err)
	}
	return &LocalWorkspace{tree: newTree(fd, path, given), conf: conf}, nil
}

func newTree(fd int, path, given string) *tree {
	return &tree{
		fd: fd, path: path, given: given, opener: fsat.Kernel(),
		names: strings.FieldsFunc(path, func(r rune) bool { return r == '/' }),
	}
}

// Root returns the path that the directory had when it was opened, absolute and
// without links. It may have moved since.
func (w *LocalWorkspace) Root() string {
	if w.tree == nil {
		return ""
	}
	return w.tree.path
}

// Close closes the directory. Operations in progress finish, later ones fail with
// ErrClosed. It closes views of the workspace too.
func (w *LocalWorkspace) Close() error {
	t := w.tree
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.letGo()
	}
	return nil
}

// use keeps the root open until release.
func (t *tree) use() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.users++
	return nil
}

func (t *tree) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users--
	t.letGo()
}

func (t *tree) letGo() {
	if t.closed && t.users == 0 {
		unix.Close(t.fd)
	}
}

// Capabilities depend on the options: writes are durable with WithSync, atomic with
// WithAtomicWrites.
func (w *LocalWorkspace) Capabilities() Capabilities {
	return Capabilities{
		AtomicRename: true, ReadAfterWrite: true, RenameDir: true,
		DurableOnWrite: w.conf.sync, AtomicWrite: w.conf.atomicWrites,
	}
}

// Guarded returns a view of the workspace that asks guard, which must not use
// the workspace itself.
func (w *LocalWorkspace) Guarded(guard Guard) Workspace {
	view := *w
	view.guards = append(slices.Clone(w.guards), guard)
	return &view
}

// Sub returns the directory dir of the workspace as a workspace of its own, and makes it
// if it is missing. Links that leave dir lead outside, even if they stay in w. Sub
// refuses a directory that may not be written, such as a .git. The result has the options
// of w, and the caller closes it.
func (w *LocalWorkspace) Sub(ctx context.Context, dir string) (*LocalWorkspace, error) {
	var sub *LocalWorkspace
	err := w.do(ctx, dir, func(rel string) error {
		if err := w.mkdir(rel); err != nil {
			return err
		}
		fd, where, err := w.open(rel, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		sub = w.below(fd, where)
		return nil
	})
	return sub, failed("open", dir, err)
}

// below returns an open directory of the workspace as a workspace. It owns fd.
func (w *LocalWorkspace) below(fd int, where string) *LocalWorkspace {
	sub := &LocalWorkspace{
		tree: newTree(fd, filepath.Join(w.tree.path, where), filepath.Join(w.tree.given, where)), conf: w.conf,
	}
	sub.tree.opener, sub.tree.noExchange, sub.tree.noUnnamed, sub.tree.step = w.tree.opener, w.tree.noExchange, w.tree.noUnnamed, w.tree.step
	for _, guard := range w.guards {
		sub.guards = append(sub.guards, func(a Access) error {
			a.Path = join(where, a.Path)
			return guard(a)
		})
	}
	return sub
}

// do runs one operation on one path.
func (w *LocalWorkspace) do(ctx context.Context, path string, operation func(rel string) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rel, err := clean(path)
	if err != nil {
		return err
	}
	if w.tree == nil {
		return ErrClosed // the zero value
	}
	if w.conf.maxDepth > 0 && depth(rel) > w.conf.maxDepth {
		return &Error{Err: ErrTooMany, Detail: "it has more names than a path here may have"}
	}
	if err := w.tree.use(); err != nil {
		return err
	}
	defer w.tree.release()
	for range maxRaces {
		if err = operation(rel); err != errRaced {
			return err
		}
	}
	return ErrRaced
}

// ask asks the guards about an access.
func (w *LocalWorkspace) ask(a Access) error {
	for _, guard := range w.guards {
		if err := guard(a); err != nil {
			return err
		}
	}
	return nil
}
