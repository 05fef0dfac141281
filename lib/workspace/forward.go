package workspace

import (
	"context"
	"io"
	"io/fs"
	"iter"
)

// forward passes all calls on to another workspace.
type forward struct{ inner Workspace }

func (f forward) Read(ctx context.Context, path string) ([]byte, error) {
	return f.inner.Read(ctx, path)
}

func (f forward) Write(ctx context.Context, path string, data []byte) error {
	return f.inner.Write(ctx, path, data)
}

func (f forward) Append(ctx context.Context, path string, data []byte) error {
	return f.inner.Append(ctx, path, data)
}

func (f forward) Rename(ctx context.Context, src, dst string) error {
	return f.inner.Rename(ctx, src, dst)
}

func (f forward) Delete(ctx context.Context, path string) error {
	return f.inner.Delete(ctx, path)
}

func (f forward) RemoveAll(ctx context.Context, path string) error {
	return f.inner.RemoveAll(ctx, path)
}

func (f forward) List(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	return f.inner.List(ctx, dir)
}

func (f forward) Exists(ctx context.Context, path string) (bool, error) {
	return f.inner.Exists(ctx, path)
}

func (f forward) Stat(ctx context.Context, path string) (fs.FileInfo, error) {
	return f.inner.Stat(ctx, path)
}

func (f forward) Open(ctx context.Context, path string) (File, error) {
	return Open(ctx, f.inner, path)
}

func (f forward) Create(ctx context.Context, path string, opts WriteOptions) (Writer, error) {
	return Create(ctx, f.inner, path, opts)
}

func (f forward) Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error] {
	return Entries(ctx, f.inner, dir)
}

func (f forward) Mkdir(ctx context.Context, dir string) error {
	return Mkdir(ctx, f.inner, dir)
}

func (f forward) Entry(ctx context.Context, path string) (Entry, error) {
	return EntryOf(ctx, f.inner, path)
}

func (f forward) Swap(ctx context.Context, path string, old, next Entry, content io.Reader) error {
	return Swap(ctx, f.inner, path, old, next, content)
}

func (f forward) Recover(ctx context.Context, dir string) ([]string, error) {
	return Recover(ctx, f.inner, dir)
}

// Capabilities are those of the workspace behind: a view has the same medium.
func (f forward) Capabilities() Capabilities { return CapabilitiesOf(f.inner) }
