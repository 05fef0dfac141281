package workspace

import (
	"bytes"
	"context"
	"io"
	"io/fs"
)

// newMemFile returns a File of data in memory.
func newMemFile(ctx context.Context, path string, data []byte, info fs.FileInfo) *memFile {
	return &memFile{ctx: ctx, path: path, r: bytes.NewReader(data), info: info}
}

type memFile struct {
	ctx  context.Context
	path string
	r    *bytes.Reader // nil: closed
	info fs.FileInfo
}

// usable is the error of an operation on a file that is closed, or whose context is done.
func (f *memFile) usable(op string) error {
	if f.r == nil {
		return failed(op, f.path, ErrClosed)
	}
	return failed(op, f.path, f.ctx.Err())
}

func (f *memFile) Read(buf []byte) (int, error) {
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	return f.r.Read(buf)
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	at, err := f.r.Seek(offset, whence)
	if err != nil {
		return 0, failed("read", f.path, &Error{Err: ErrInvalid, Detail: "there is no such place in it"})
	}
	return at, nil
}

func (f *memFile) WriteTo(w io.Writer) (int64, error) {
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	return f.r.WriteTo(w)
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	if f.r == nil {
		return nil, failed("stat", f.path, ErrClosed)
	}
	return f.info, nil
}

func (f *memFile) Close() error {
	f.r = nil
	return nil
}
