package workspace

import (
	"context"
	"io"
	"sync"
)

// perEntry is the size of an entry in addition to its content, so that empty files and
// directories are not free.
const perEntry = 512

// QuotaWorkspace bounds the size of a workspace. A write that would exceed it is
// ErrNoSpace, and has no effect.
//
// It counts the content of files, and 512 bytes for each file, directory and link.
// Removed files count until the quota would be exceeded: then it counts the workspace
// again. Only then does it see files that were not written through it.
type QuotaWorkspace struct {
	forward
	count *count
}

// count is shared by the views of one quota.
type count struct {
	mu    sync.Mutex
	whole Workspace
	max   int64
	used  int64 // at least the size of all that came through here
	open  int64 // of used, the part of unfinished files and their names
	loose bool  // used may be too large
}

// NewQuotaWorkspace returns a view of inner that bounds its size to max bytes. It counts
// inner first.
func NewQuotaWorkspace(ctx context.Context, inner Workspace, max int64) (*QuotaWorkspace, error) {
	q := &QuotaWorkspace{forward{inner}, &count{whole: inner, max: max, loose: true}}
	if err := q.count.again(ctx); err != nil {
		return nil, failed("count", "", err)
	}
	return q, nil
}

// Used returns the size of the workspace, or an earlier larger one since the last count.
func (q *QuotaWorkspace) Used() int64 {
	q.count.mu.Lock()
	defer q.count.mu.Unlock()
	return q.count.used
}

// Guarded returns a view that asks guard, on the same quota.
func (q *QuotaWorkspace) Guarded(guard Guard) Workspace {
	return &QuotaWorkspace{forward{Guarded(q.inner, guard)}, q.count}
}

// again counts the workspace anew. The lock is held.
func (c *count) again(ctx context.Context) error {
	if !c.loose {
		return nil
	}
	used := c.open
	for entry, err := range Tree(ctx, c.whole, ".") {
		if err != nil {
			return err
		}
		used += perEntry
		if !entry.Type().IsRegular() {
			continue
		}
		if info, err := entry.Info(); err == nil {
			used += info.Size()
		} else if classOf(err) != ErrNotFound {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.used, c.loose = used, false
	return nil
}

// take takes bytes of the quota. The lock is held.
func (c *count) take(ctx context.Context, bytes int64) error {
	if bytes > 0 && c.used > c.max-bytes {
		if err := c.again(ctx); err != nil {
			return err
		}
		if c.used > c.max-bytes {
			return &Error{Err: ErrNoSpace, Detail: "the quota of the workspace is used up"}
		}
	}
	c.used += bytes
	return nil
}

// held is the size of the file to be written, and, if it is missing, the size of its
// entry and those of its path. The number of missing directories is counted later.
func (q *QuotaWorkspace) held(ctx context.Context, path string) (content, entries int64) {
	info, err := q.inner.Stat(ctx, path)
	if err == nil {
		return info.Size(), 0
	}
	rel, err := clean(path)
	if err != nil {
		return 0, 0
	}
	return 0, int64(depth(rel)) * perEntry
}

// change runs an operation that takes bytes, and counts the new size of the file.
func (q *QuotaWorkspace) change(ctx context.Context, path string, size func(old int64) int64, operation func() error) error {
	q.count.mu.Lock()
	defer q.count.mu.Unlock()
	old, entries := q.held(ctx, path)
	want := size(old) - old + entries
	if err := q.count.take(ctx, want); err != nil {
		return err
	}
	err := operation()
	if err != nil || entries > perEntry {
		q.count.loose = true
	}
	return err
}

// Write gives a file new content, within the quota.
func (q *QuotaWorkspace) Write(ctx context.Context, path string, data []byte) error {
	size := func(int64) int64 { return int64(len(data)) }
	return failed("write", path, q.change(ctx, path, size, func() error { return q.inner.Write(ctx, path, data) }))
}

// Append adds to a file, within the quota.
func (q *QuotaWorkspace) Append(ctx context.Context, path string, data []byte) error {
	size := func(old int64) int64 { return old + int64(len(data)) }
	return failed("append", path, q.change(ctx, path, size, func() error { return q.inner.Append(ctx, path, data) }))
}

// Mkdir makes a directory, within the quota.
func (q *QuotaWorkspace) Mkdir(ctx context.Context, dir string) error {
	size := func(old int64) int64 { return old }
	return failed("mkdir", dir, q.change(ctx, dir, size, func() error { return q.forward.Mkdir(ctx, dir) }))
}

// Rename moves a file. The directories that it makes are counted.
func (q *QuotaWorkspace) Rename(ctx context.Context, src, dst string) error {
	q.count.mu.Lock()
	defer q.count.mu.Unlock()
	rel, err := clean(dst)
	if err == nil {
		err = q.count.take(ctx, int64(depth(rel)-1)*perEntry)
	}
	if err == nil {
		err = q.inner.Rename(ctx, src, dst)
	}
	q.count.loose = true
	return failedTo("rename", src, dst, err)
}

// Delete removes a file.
func (q *QuotaWorkspace) Delete(ctx context.Context, path string) error {
	return q.remove(func() error { return q.inner.Delete(ctx, path) })
}

// RemoveAll removes a file or a directory.
func (q *QuotaWorkspace) RemoveAll(ctx context.Context, path string) error {
	return q.remove(func() error { return q.inner.RemoveAll(ctx, path) })
}

// remove holds the lock too: a writer relies on the size that it has read.
func (q *QuotaWorkspace) remove(operation func() error) error {
	q.count.mu.Lock()
	defer q.count.mu.Unlock()
	q.count.loose = true
	return operation()
}

// Swap replaces old at path by next. It needs space for both. Until it ends, all writes
// through the quota wait, also while content is read.
func (q *QuotaWorkspace) Swap(ctx context.Context, path string, old, next Entry, content io.Reader) error {
	c := q.count
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loose = true
	taken := &quotaReader{Reader: content, ctx: ctx, count: c}
	defer func() { c.open, c.loose = c.open-taken.bytes, true }()
	if next.Kind != KindMissing {
		_, entries := q.held(ctx, path)
		if err := taken.take(max(entries, perEntry)); err != nil {
			return failed("swap", path, err)
		}
	}
	if content != nil {
		content = taken
	}
	return q.forward.Swap(ctx, path, old, next, content)
}

// quotaReader counts its bytes as part of an unfinished file. The lock is held.
type quotaReader struct {
	io.Reader
	ctx   context.Context
	count *count
	bytes int64
}

func (r *quotaReader) take(bytes int64) error {
	err := r.count.take(r.ctx, bytes)
	if err == nil {
		r.count.open += bytes
		r.bytes += bytes
	}
	return err
}

func (r *quotaReader) Read(buf []byte) (int, error) {
	n, err := r.Reader.Read(buf)
	if takeErr := r.take(int64(n)); takeErr != nil {
		return 0, takeErr
	}
	return n, err
}

// Recover cleans up after a killed Swap in a directory.
func (q *QuotaWorkspace) Recover(ctx context.Context, dir string) (kept []string, err error) {
	err = q.remove(func() error {
		kept, err = q.forward.Recover(ctx, dir)
		return err
	})
	return kept, err
}

// Create opens a file to be written, which takes space as it grows. A replacement needs
// space for both files.
func (q *QuotaWorkspace) Create(ctx context.Context, path string, opts WriteOptions) (Writer, error) {
	q.count.mu.Lock()
	defer q.count.mu.Unlock()
	_, entries := q.held(ctx, path)
	entries = max(entries, perEntry) // the file that it replaces may be removed before this one is closed
	err := q.count.take(ctx, entries)
	if err != nil {
		return nil, failed("write", path, err)
	}
	q.count.loose = true
	out, err := q.forward.Create(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	q.count.open += entries
	return &quotaWriter{Writer: out, q: q, ctx: ctx, path: path, taken: entries}, nil
}

// quotaWriter counts the bytes written. Until it is closed they count as unfinished, also
// if they are in memory.
type quotaWriter struct {
	Writer
	q     *QuotaWorkspace
	ctx   context.Context
	path  string
	taken int64
	over  bool
}

func (w *quotaWriter) Write(data []byte) (int, error) {
	c := w.q.count
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.over {
		return 0, failed("write", w.path, ErrClosed)
	}
	if err := c.take(w.ctx, int64(len(data))); err != nil {
		return 0, failed("write", w.path, err)
	}
	c.open += int64(len(data))
	w.taken += int64(len(data))
	return w.Writer.Write(data)
}

func (w *quotaWriter) Close() error { return w.end(w.Writer.Close) }
func (w *quotaWriter) Abort() error { return w.end(w.Writer.Abort) }

// end closes the file: its bytes are in the workspace now, or nowhere.
func (w *quotaWriter) end(finish func() error) error {
	c := w.q.count
	c.mu.Lock()
	defer c.mu.Unlock()
	err := finish()
	if !w.over {
		w.over = true
		c.open -= w.taken
		c.loose = true
	}
	return err
}
