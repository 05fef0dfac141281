package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Read returns the content of a file.
func (w *LocalWorkspace) Read(ctx context.Context, path string) ([]byte, error) {
	f, err := w.openFile(ctx, path)
	if err != nil {
		return nil, failed("read", path, err)
	}
	defer f.Close()
	data, err := f.all(w.conf.maxRead)
	return data, failed("read", path, err)
}

// Open opens a file for reading.
func (w *LocalWorkspace) Open(ctx context.Context, path string) (File, error) {
	f, err := w.openFile(ctx, path)
	if err != nil {
		return nil, failed("read", path, err)
	}
	return f, nil
}

func (w *LocalWorkspace) openFile(ctx context.Context, path string) (f *localFile, err error) {
	err = w.do(ctx, path, func(rel string) error {
		f, err = w.openRegular(ctx, rel, path)
		return err
	})
	return f, err
}

// openRegular opens a file and checks that it is a regular one.
func (w *LocalWorkspace) openRegular(ctx context.Context, rel, typed string) (*localFile, error) {
	fd, where, err := w.open(rel, unix.O_RDONLY)
	if err == unix.ENXIO {
		err = ErrNotRegular // a socket, or a device without a driver
	}
	if err != nil {
		return nil, err
	}
	return w.regularFile(ctx, fd, where, typed)
}

// regularFile takes an open file, calls the guards, and checks that it is a regular file.
func (w *LocalWorkspace) regularFile(ctx context.Context, fd int, where, typed string) (*localFile, error) {
	f := &localFile{ctx: ctx, path: typed, file: os.NewFile(uintptr(fd), typed)}
	err := unix.Fstat(fd, &f.st)
	if err == nil {
		err = w.ask(Access{Path: where, Links: links(&f.st)})
	}
	if err == nil {
		err = isRegular(&f.st)
	}
	if err == nil && w.conf.maxFileSize > 0 && f.st.Size > w.conf.maxFileSize {
		err = ErrTooLarge
	}
	if err != nil {
		f.file.Close()
		return nil, err
	}
	return f, nil
}

// localFile is an open file.
type localFile struct {
	ctx  context.Context
	path string
	file *os.File
	st   unix.Stat_t // when it was opened
}

// all reads the whole file, which may grow meanwhile.
func (f *localFile) all(limit int64) ([]byte, error) {
	if f.st.Size > limit {
		return nil, &Error{Err: ErrTooLarge, Detail: "open it to read it piece by piece"}
	}
	data := make([]byte, 0, f.st.Size+1)
	for {
		if err := f.ctx.Err(); err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := f.file.Read(data[len(data):min(cap(data), len(data)+chunk)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > limit:
			return nil, ErrTooLarge
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

func (f *localFile) Read(buf []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, failed("read", f.path, err)
	}
	n, err := f.file.Read(buf)
	if err == io.EOF {
		return n, err
	}
	return n, f.failed(err)
}

func (f *localFile) Seek(offset int64, whence int) (int64, error) {
	at, err := f.file.Seek(offset, whence)
	return at, f.failed(err)
}

// WriteTo lets the kernel copy the bytes if it can, and passes over holes where they stay holes.
func (f *localFile) WriteTo(w io.Writer) (total int64, err error) {
	if to, ok := w.(*atomicFile); ok && to.sparse != nil {
		if total, err = f.writeData(to); err != unix.EINVAL {
			return total, err
		}
	}
	for {
		if err := f.ctx.Err(); err != nil {
			return total, failed("read", f.path, err)
		}
		// A *os.File reads from another one without a copy in user space; if it cannot, this is
		// io.Copy.
		n, err := io.CopyN(w, f.file, 16*chunk)
		total += n
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err // of w, or of the file: io.Copy does not tell which
		}
	}
}

// writeData copies the data between holes, as lseek(2) tells. The error is EINVAL where the file system
// does not know them: the rest is to be copied.
func (f *localFile) writeData(to *atomicFile) (total int64, err error) {
	at, err := f.file.Seek(0, io.SeekCurrent)
	for err == nil {
		begin, dataErr := f.file.Seek(at, unix.SEEK_DATA)
		last := errors.Is(dataErr, unix.ENXIO) // a hole up to the end
		switch {
		case errors.Is(dataErr, unix.EINVAL):
			_, err = f.file.Seek(at, io.SeekStart)
			return total, cmpErr(err, unix.EINVAL)
		case last:
			begin, err = f.file.Seek(0, io.SeekEnd)
		default:
			err = dataErr
		}
		if err == nil && begin > at {
			err = to.hole(begin - at)
			total += begin - at
		}
		if err != nil || last {
			return total, err
		}
		end, holeErr := f.file.Seek(begin, unix.SEEK_HOLE)
		_, err = f.file.Seek(begin, io.SeekStart)
		if err = cmpErr(holeErr, err); err != nil {
			break
		}
		n, copyErr := io.CopyN(struct{ io.Writer }{to}, f, end-begin)
		total += n
		at = begin + n
		if err = copyErr; err == io.EOF { // it was cut meanwhile
			return total, nil
		}
	}
	return total, err
}

func (f *localFile) Stat() (fs.FileInfo, error) {
	st, err := statFile(f.file)
	if err != nil {
		return nil, failed("stat", f.path, err)
	}
	return newInfo(path.Base(path.Clean(f.path)), st), nil
}

func (f *localFile) Close() error { return f.failed(f.file.Close()) }

func (f *localFile) failed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		err = ErrClosed
	}
	return failed("read", f.path, err)
}

// Stat describes the file at a path.
func (w *LocalWorkspace) Stat(ctx context.Context, typed string) (info fs.FileInfo, err error) {
	err = w.do(ctx, typed, func(rel string) error {
		info, err = w.stat(rel)
		return err
	})
	return info, failed("stat", typed, err)
}

func (w *LocalWorkspace) stat(rel string) (fs.FileInfo, error) {
	fd, where, err := w.open(rel, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	st := new(unix.Stat_t)
	if err := unix.Fstat(fd, st); err != nil {
		return nil, err
	}
	if err := w.ask(Access{Path: where, Links: links(st)}); err != nil {
		return nil, err
	}
	return newInfo(path.Base(rel), st), nil
}

// Exists reports whether there is a file at a path.
func (w *LocalWorkspace) Exists(ctx context.Context, path string) (bool, error) {
	_, err := w.Stat(ctx, path)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotDir) {
		return false, nil
	}
	if err != nil {
		return false, failed("exists", path, err)
	}
	return true, nil
}
