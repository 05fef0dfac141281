package workspace

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Write gives a file new content: in place, or in one step WithAtomicWrites.
func (w *LocalWorkspace) Write(ctx context.Context, path string, data []byte) error {
	return w.writeAll(ctx, "write", path, data, WriteOptions{})
}

// Append adds to the end of a file. Concurrent appends do not mix, unless the medium
// fills up.
func (w *LocalWorkspace) Append(ctx context.Context, path string, data []byte) error {
	return w.writeAll(ctx, "append", path, data, WriteOptions{Append: true})
}

func (w *LocalWorkspace) writeAll(ctx context.Context, op, path string, data []byte, opts WriteOptions) error {
	if limit := w.conf.maxFileSize; limit > 0 && int64(len(data)) > limit {
		return failed(op, path, ErrTooLarge) // before it truncates the file
	}
	out, err := w.Create(ctx, path, opts)
	if err != nil {
		return failed(op, path, err)
	}
	defer out.Abort()
	if _, err := out.Write(data); err != nil {
		return failed(op, path, err)
	}
	return failed(op, path, out.Close())
}

// Create opens a file to be written. With Atomic, the content is written to an
// unfinished file beside it, which Close renames.
func (w *LocalWorkspace) Create(ctx context.Context, path string, opts WriteOptions) (Writer, error) {
	if err := opts.check(); err != nil {
		return nil, failed("write", path, err)
	}
	opts.Sync = opts.Sync || w.conf.sync
	opts.Atomic = opts.Atomic || opts.IfHash != "" || w.conf.atomicWrites && !opts.Append
	if opts.Perm = opts.Perm.Perm(); opts.Perm == 0 {
		opts.Perm = w.conf.filePerm
	}
	var out Writer
	err := w.do(ctx, path, func(rel string) error {
		p, err := w.locate(rel, true, !opts.Exclusive)
		if err != nil {
			return err
		}
		if isReserved(p.name) {
			p.close()
			return errReserved
		}
		if opts.Atomic {
			out, err = w.newAtomic(ctx, path, p, opts)
		} else {
			out, err = w.openToWrite(ctx, path, p, opts)
		}
		return err
	})
	if err != nil {
		return nil, failed("write", path, err)
	}
	return out, nil
}

// openToWrite opens a file in its place, or makes it there. It asks the guards
// before it makes anything, and truncates only a file that may be written.
func (w *LocalWorkspace) openToWrite(ctx context.Context, path string, p *place, opts WriteOptions) (Writer, error) {
	defer func() { p.close() }()
	if p.name == "." {
		return nil, cmpErr(w.ask(Access{Path: p.path, Write: true}), ErrIsDir)
	}
	out := &inPlace{ctx: ctx, path: path, limit: w.conf.maxFileSize, sync: opts.Sync}
	flags := unix.O_WRONLY
	if opts.Append {
		flags |= unix.O_APPEND
		out.whole = true
	}
	fd, err := -1, error(unix.ENOENT)
	if !opts.Exclusive {
		fd, err = w.openFileToWrite(p, flags)
	}
	if err == unix.ENOENT {
		fd, err = w.makeFile(p, flags, opts)
	} else if err == nil {
		err = w.takeOver(fd, p, opts)
	} else {
		err = cmpErr(w.ask(Access{Path: p.path, Write: true}), err)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		if err == unix.ENXIO {
			err = ErrNotRegular // a FIFO without a reader, or a socket
		}
		return nil, err
	}
	out.file = os.NewFile(uintptr(fd), p.name)
	if err := out.measure(opts.Append); err != nil {
		out.file.Close()
		return nil, err
	}
	return out, nil
}

// openFileToWrite opens an existing file, but no special one: opening some devices has an
// effect.
func (w *LocalWorkspace) openFileToWrite(p *place, flags int) (int, error) {
	if _, err := p.regular(); err != nil {
		if err == ErrNotRegular && isLink(p.dir, p.name) {
			err = errRaced
		}
		return -1, err
	}
	return w.openPlace(p, flags)
}

// cmpErr returns the first of two errors that is not nil.
func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// makeFile makes a missing file, and its missing parent directories.
func (w *LocalWorkspace) makeFile(p *place, flags int, opts WriteOptions) (int, error) {
	if err := w.ask(Access{Path: p.path, Write: true}); err != nil {
		return -1, err
	}
	if err := w.makeParents(p, opts.Sync); err != nil {
		return -1, err
	}
	fd, err := w.createBelow(p.dir, p.name, flags|unix.O_CREAT|unix.O_EXCL, uint32(opts.Perm))
	if err == unix.EEXIST && !opts.Exclusive {
		err = errRaced // another process was faster
	}
	if err != nil {
		return fd, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fd, err
	}
	if err := w.confirm(p.dir, p.name, &st); err != nil {
		return fd, err
	}
	if opts.Sync {
		err = syncDir(p.dir)
	}
	return fd, err
}

// takeOver prepares an existing file for writing.
func (w *LocalWorkspace) takeOver(fd int, p *place, opts WriteOptions) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := w.ask(Access{Path: p.path, Write: true, Links: links(&st)}); err != nil {
		return err
	}
	if err := isRegular(&st); err != nil {
		return err
	}
	if st.Nlink > 1 && !w.conf.hardLinks {
		return &Error{Err: ErrAccessDenied, Detail: "it has several hard links, and another may lie outside"}
	}
	if opts.Append || st.Size == 0 {
		return nil
	}
	_, err := fsat.Again(func() (int, error) { return 0, unix.Ftruncate(fd, 0) })
	return err
}

// makeParents makes the missing directories of a place, and moves the place into
// the last of them. It accepts a directory that another process has made meanwhile;
// a link in its place is a race.
func (w *LocalWorkspace) makeParents(p *place, sync bool) error {
	for len(p.missing) > 0 {
		name := p.missing[0]
		err := unix.Mkdirat(p.dir, name, uint32(w.conf.dirPerm))
		if err != nil && err != unix.EEXIST {
			return err
		}
		isNew := err == nil
		if isNew && sync {
			if err := syncDir(p.dir); err != nil {
				return err
			}
		}
		fd, err := w.openBelow(p.dir, name, unix.O_PATH|unix.O_DIRECTORY)
		if err == unix.ELOOP || err == unix.ENOENT || err == unix.ENOTDIR {
			return errRaced
		}
		if err == nil && isNew {
			var st unix.Stat_t
			if err = unix.Fstat(fd, &st); err == nil {
				err = w.confirm(p.dir, name, &st)
			}
			if err != nil {
				unix.Close(fd)
			}
		}
		if err != nil {
			return err
		}
		p.close()
		p.dir, p.close = fd, func() { unix.Close(p.dir) }
		p.missing = p.missing[1:]
	}
	p.missing = nil
	return nil
}

// syncDir puts the names in a directory on stable storage. A directory that may be
// written and not read cannot be opened for fsync(2), so syncDir calls sync(2), for all
// file systems.
func syncDir(dir int) error {
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err == unix.EACCES {
		unix.Sync()
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Fsync(fd)
	if err == unix.EINVAL {
		return nil // this file system does not need it
	}
	return err
}

// Mkdir makes a directory and its missing parents.
func (w *LocalWorkspace) Mkdir(ctx context.Context, dir string) error {
	err := w.do(ctx, dir, func(rel string) error { return w.mkdir(rel) })
	return failed("mkdir", dir, err)
}

func (w *LocalWorkspace) mkdir(rel string) error {
	p, err := w.locate(rel, true, true)
	if err != nil {
		return err
	}
	defer func() { p.close() }()
	if err := w.ask(Access{Path: p.path, Write: true}); err != nil {
		return err
	}
	if p.name == "." {
		return nil
	}
	if p.missing == nil {
		if fd, err := w.openPlace(p, unix.O_PATH|unix.O_DIRECTORY); err == nil {
			unix.Close(fd)
			return nil
		} else if err == unix.ENOTDIR {
			return ErrExist
		} else if err != unix.ENOENT {
			return err
		}
	}
	p.missing = append(p.missing, p.name)
	return w.makeParents(p, w.conf.sync)
}

// inPlace is a file being written at its place.
type inPlace struct {
	ctx   context.Context
	path  string
	file  *os.File // nil: closed
	size  int64    // of the file, as far as a limit needs it
	limit int64    // 0: none
	whole bool     // each Write is one write(2)
	sync  bool

	sparse *fsat.Sparse // of a new file; nil: zeros are written
}

// to is the writer for the bytes.
func (f *inPlace) to() io.Writer {
	if f.sparse != nil {
		return f.sparse
	}
	return f.file
}

// measure finds the size of a file before an append, if there is a limit.
func (f *inPlace) measure(appending bool) error {
	if !appending || f.limit == 0 {
		return nil
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	return nil
}

func (f *inPlace) Write(data []byte) (written int, err error) {
	if f.file == nil {
		return 0, failed("write", f.path, ErrClosed)
	}
	if f.limit > 0 && f.size+int64(len(data)) > f.limit {
		return 0, failed("write", f.path, ErrTooLarge)
	}
	for first := true; first || len(data) > 0; first = false {
		if err := f.ctx.Err(); err != nil {
			return written, failed("write", f.path, err)
		}
		piece := data
		if !f.whole {
			piece = data[:min(len(data), chunk)]
		}
		n, err := f.to().Write(piece)
		written += n
		f.size += int64(n)
		if err != nil {
			return written, failed("write", f.path, err)
		}
		data = data[n:]
	}
	return written, nil
}

// hole leaves n bytes of a sparse file out.
func (f *inPlace) hole(n int64) error {
	switch err := f.ctx.Err(); {
	case f.file == nil:
		return failed("write", f.path, ErrClosed)
	case err != nil:
		return failed("write", f.path, err)
	case f.limit > 0 && n > f.limit-f.size:
		return failed("write", f.path, ErrTooLarge)
	}
	f.size += n
	f.sparse.Skip(n)
	return nil
}

func (f *inPlace) Close() error {
	if f.file == nil {
		return nil
	}
	var err error
	if f.sync {
		err = f.file.Sync()
	}
	err = errors.Join(err, f.file.Close())
	f.file = nil
	return failed("write", f.path, err)
}

func (f *inPlace) Abort() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return failed("write", f.path, err)
}
