package workspace

import (
	"context"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// MemWorkspace is a workspace in memory, without links. A write makes the missing
// directories of its path, and they stay when the file is removed. The zero value is
// closed.
type MemWorkspace struct {
	conf config

	mu   sync.RWMutex
	root *node
}

// node is a file or a directory. The bytes of data are never changed, only added to or
// replaced, so that an open file keeps its content.
type node struct {
	below map[string]*node // nil for a file
	data  []byte
	mode  fs.FileMode
	time  time.Time
}

// NewMemWorkspace returns an empty workspace.
func NewMemWorkspace(opts ...Option) *MemWorkspace {
	m := &MemWorkspace{conf: newConfig(opts)}
	m.root = m.newDir()
	return m
}

func (m *MemWorkspace) newDir() *node {
	return &node{below: map[string]*node{}, mode: fs.ModeDir | m.conf.dirPerm, time: time.Now()}
}

// Capabilities: nothing is durable, and only one process has it.
func (m *MemWorkspace) Capabilities() Capabilities {
	return Capabilities{AtomicRename: true, ReadAfterWrite: true, AtomicWrite: true}
}

// look runs an operation that changes nothing.
func (m *MemWorkspace) look(ctx context.Context, path string, operation func(rel string) error) error {
	rel, err := m.clean(ctx, path)
	if err != nil {
		return err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return operation(rel)
}

// change runs any operation.
func (m *MemWorkspace) change(ctx context.Context, path string, operation func(rel string) error) error {
	rel, err := m.clean(ctx, path)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return operation(rel)
}

func (m *MemWorkspace) clean(ctx context.Context, path string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	rel, err := clean(path)
	if err == nil && m.root == nil {
		err = ErrClosed
	}
	if err == nil && m.conf.maxDepth > 0 && depth(rel) > m.conf.maxDepth {
		err = ErrTooMany
	}
	return rel, err
}

// find returns the node at a path.
func (m *MemWorkspace) find(rel string) (*node, error) {
	n := m.root
	if rel == "." {
		return n, nil
	}
	for name := range strings.SplitSeq(rel, "/") {
		if n.below == nil {
			return nil, ErrNotDir
		}
		if n = n.below[name]; n == nil {
			return nil, ErrNotFound
		}
	}
	return n, nil
}

// file returns the file at a path.
func (m *MemWorkspace) file(rel string) (*node, error) {
	n, err := m.find(rel)
	if err == nil && n.below != nil {
		return nil, ErrIsDir
	}
	return n, err
}

// dir returns the directory at a path and makes its missing parts.
func (m *MemWorkspace) dir(rel string) (*node, error) {
	if n, err := m.find(rel); err != ErrNotFound {
		if err == nil && n.below == nil {
			err = ErrNotDir
		}
		return n, err
	}
	in, err := m.dir(parent(rel))
	if err != nil {
		return nil, err
	}
	n := m.newDir()
	in.put(path.Base(rel), n)
	return n, nil
}

func (n *node) put(name string, child *node) {
	n.below[name] = child
	n.time = time.Now()
}

func (n *node) remove(name string) {
	delete(n.below, name)
	n.time = time.Now()
}

func (n *node) info(name string) fs.FileInfo {
	return &fileInfo{name: name, size: int64(len(n.data)), mode: n.mode, time: n.time}
}

// Read returns the content of a file.
func (m *MemWorkspace) Read(ctx context.Context, path string) (data []byte, err error) {
	err = m.look(ctx, path, func(rel string) error {
		n, err := m.file(rel)
		if err == nil && int64(len(n.data)) > m.conf.maxRead {
			err = ErrTooLarge
		}
		if err == nil {
			data = append([]byte{}, n.data...)
		}
		return err
	})
	return data, failed("read", path, err)
}

// Open opens a file in its present state: later writes do not change it.
func (m *MemWorkspace) Open(ctx context.Context, typed string) (f File, err error) {
	err = m.look(ctx, typed, func(rel string) error {
		n, err := m.file(rel)
		if err == nil {
			f = newMemFile(ctx, typed, n.data, n.info(path.Base(rel)))
		}
		return err
	})
	return f, failed("read", typed, err)
}

// Write gives a file new content, in one step.
func (m *MemWorkspace) Write(ctx context.Context, path string, data []byte) error {
	return writeAll(ctx, m, "write", path, data, WriteOptions{})
}

// Append adds to the end of a file.
func (m *MemWorkspace) Append(ctx context.Context, path string, data []byte) error {
	return writeAll(ctx, m, "append", path, data, WriteOptions{Append: true})
}

// Create opens a file to be written.
func (m *MemWorkspace) Create(ctx context.Context, path string, opts WriteOptions) (out Writer, err error) {
	if err := opts.check(); err != nil {
		return nil, failed("write", path, err)
	}
	if opts.Perm = opts.Perm.Perm(); opts.Perm == 0 {
		opts.Perm = m.conf.filePerm
	}
	opts.Atomic = opts.Atomic || !opts.Append // not atomic would have no advantage
	err = m.change(ctx, path, func(rel string) error {
		n, err := m.toWrite(rel, opts)
		if err != nil {
			return err
		}
		if opts.Atomic {
			limit := m.conf.maxFileSize
			if limit == 0 {
				limit = 1<<63 - 1
			}
			out = newBuffer(ctx, path, limit, func(data []byte) error { return m.publish(ctx, path, data, opts) })
			return nil
		}
		if n == nil {
			if n, err = m.make(rel, opts); err != nil {
				return err
			}
		}
		n.time = time.Now()
		out = &memWriter{ctx: ctx, path: path, m: m, n: n}
		return nil
	})
	return out, failed("write", path, err)
}

// toWrite returns the file at a path, nil if it is missing, as the options want it.
func (m *MemWorkspace) toWrite(rel string, opts WriteOptions) (*node, error) {
	if isReserved(path.Base(rel)) {
		return nil, errReserved
	}
	if err := m.mayWrite(rel); err != nil {
		return nil, err
	}
	n, err := m.file(rel)
	switch {
	case err == ErrIsDir && opts.Exclusive && rel != ".":
		return nil, ErrExist
	case err != nil && err != ErrNotFound:
		return nil, err
	case err == nil && opts.Exclusive:
		return nil, ErrExist
	case opts.IfHash == "":
		return n, nil
	case err != nil:
		return nil, err
	}
	return n, nil
}

// make makes an empty file.
func (m *MemWorkspace) make(rel string, opts WriteOptions) (*node, error) {
	in, err := m.dir(parent(rel))
	if err != nil {
		return nil, err
	}
	n := &node{mode: opts.Perm, time: time.Now()}
	in.put(path.Base(rel), n)
	return n, nil
}

// publish puts a file in its place.
func (m *MemWorkspace) publish(ctx context.Context, path string, data []byte, opts WriteOptions) error {
	return m.change(ctx, path, func(rel string) error {
		n, err := m.toWrite(rel, opts)
		if err != nil {
			return err
		}
		if opts.IfHash != "" && HashOf(n.data) != opts.IfHash {
			return ErrChanged
		}
		if n == nil {
			if n, err = m.make(rel, opts); err != nil {
				return err
			}
		}
		n.data, n.time = data, time.Now()
		return nil
	})
}

// memWriter adds to a file, even if its name is gone.
type memWriter struct {
	ctx  context.Context
	path string
	m    *MemWorkspace
	n    *node // nil: closed
}

func (w *memWriter) Write(data []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, failed("write", w.path, err)
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	switch limit := w.m.conf.maxFileSize; {
	case w.n == nil:
		return 0, failed("write", w.path, ErrClosed)
	case limit > 0 && int64(len(w.n.data)+len(data)) > limit:
		return 0, failed("write", w.path, ErrTooLarge)
	}
	w.n.data = append(w.n.data, data...)
	w.n.time = time.Now()
	return len(data), nil
}

func (w *memWriter) Close() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.n = nil
	return nil
}

func (w *memWriter) Abort() error { return w.Close() }

// Mkdir makes a directory and its missing parents.
func (m *MemWorkspace) Mkdir(ctx context.Context, dir string) error {
	err := m.change(ctx, dir, func(rel string) error {
		if err := m.mayWrite(rel); err != nil {
			return err
		}
		if n, err := m.find(rel); err == nil && n.below == nil {
			return ErrExist
		}
		_, err := m.dir(rel)
		return err
	})
	return failed("mkdir", dir, err)
}

// Rename moves a file. A directory is ErrIsDir.
func (m *MemWorkspace) Rename(ctx context.Context, src, dst string) error {
	to, err := m.clean(ctx, dst)
	if err == nil {
		err = m.change(ctx, src, func(from string) error { return m.rename(from, to) })
	}
	return failedTo("rename", src, dst, err)
}

func (m *MemWorkspace) rename(from, to string) error {
	if from == "." || to == "." {
		return errRoot
	}
	if err := cmpErr(m.mayWrite(from), m.mayWrite(to)); err != nil {
		return err
	}
	n, err := m.file(from)
	if err != nil {
		return err
	}
	if isReserved(path.Base(to)) {
		return errReserved
	}
	if there, err := m.find(to); err == nil && there.below != nil {
		return ErrIsDir
	}
	in, err := m.dir(parent(to))
	if err != nil {
		return err
	}
	out, err := m.find(parent(from))
	if err != nil {
		return err
	}
	out.remove(path.Base(from))
	in.put(path.Base(to), n)
	return nil
}

// Delete removes a file.
func (m *MemWorkspace) Delete(ctx context.Context, path string) error {
	err := m.change(ctx, path, func(rel string) error {
		if err := m.mayWrite(rel); err != nil {
			return err
		}
		if n, err := m.find(rel); err == nil && n.below != nil {
			return ErrIsDir
		}
		return m.remove(rel)
	})
	return failed("delete", path, err)
}

// RemoveAll removes a file, or a directory with all that is in it.
func (m *MemWorkspace) RemoveAll(ctx context.Context, path string) error {
	err := m.change(ctx, path, func(rel string) error {
		if rel == "." {
			return errRoot
		}
		if err := m.mayWrite(rel); err != nil {
			return err
		}
		return m.remove(rel)
	})
	return failed("remove", path, err)
}

// remove removes the node at a path, if there is one.
func (m *MemWorkspace) remove(rel string) error {
	in, err := m.find(parent(rel))
	if err == nil && in.below[path.Base(rel)] != nil {
		in.remove(path.Base(rel))
	}
	return nil
}

// List returns the entries of a directory, sorted by name.
func (m *MemWorkspace) List(ctx context.Context, dir string) (entries []fs.DirEntry, err error) {
	err = m.look(ctx, dir, func(rel string) error {
		entries = []fs.DirEntry{}
		n, err := m.find(rel)
		switch {
		case err == ErrNotFound:
			return nil
		case err != nil:
			return err
		case n.below == nil:
			return ErrNotDir
		case len(n.below) > m.conf.maxEntries:
			return ErrTooMany
		}
		for _, name := range slices.Sorted(maps.Keys(n.below)) {
			entries = append(entries, fs.FileInfoToDirEntry(n.below[name].info(name)))
		}
		return nil
	})
	if err != nil {
		return nil, failed("list", dir, err)
	}
	return entries, nil
}

// Entries yields the present entries of a directory, ErrNotFound if it is missing.
func (m *MemWorkspace) Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		entries, err := m.List(ctx, dir)
		if err == nil && len(entries) == 0 {
			_, err = m.Stat(ctx, dir)
		}
		if err != nil {
			yield(nil, failed("list", dir, err))
			return
		}
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				yield(nil, failed("list", dir, err))
				return
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// Exists reports whether a file or directory is at path.
func (m *MemWorkspace) Exists(ctx context.Context, path string) (there bool, err error) {
	err = m.look(ctx, path, func(rel string) error {
		_, err := m.find(rel)
		there = err == nil
		return nil
	})
	return there, failed("exists", path, err)
}

// Stat describes the file or directory at path.
func (m *MemWorkspace) Stat(ctx context.Context, typed string) (info fs.FileInfo, err error) {
	err = m.look(ctx, typed, func(rel string) error {
		n, err := m.find(rel)
		if err == nil {
			info = n.info(path.Base(rel))
		}
		return err
	})
	return info, failed("stat", typed, err)
}

// Contains reports whether there is a file at path that holds substr. It is for
// tests.
func (m *MemWorkspace) Contains(path, substr string) bool {
	data, err := m.Read(context.Background(), path)
	return err == nil && strings.Contains(string(data), substr)
}

// MustWrite is Write that panics on an error. It is for tests.
func (m *MemWorkspace) MustWrite(path string, data []byte) {
	if err := m.Write(context.Background(), path, data); err != nil {
		panic(err)
	}
}
