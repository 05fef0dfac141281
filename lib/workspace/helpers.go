package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
)

// chunk is the number of bytes copied between two checks of the context.
const chunk = 1 << 20

// Open opens a file for reading. If ws is not an Opener, Open reads the file at once.
func Open(ctx context.Context, ws Workspace, path string) (File, error) {
	if o, ok := ws.(Opener); ok {
		return o.Open(ctx, path)
	}
	data, err := ws.Read(ctx, path)
	if err != nil {
		return nil, failed("read", path, err)
	}
	info, err := ws.Stat(ctx, path)
	if err != nil {
		return nil, failed("read", path, err)
	}
	return newMemFile(ctx, path, data, info), nil
}

// Create opens a file to be written. If ws is not a Creator, the content stays in memory
// until Close, and Exclusive and IfHash are ErrUnsupported.
func Create(ctx context.Context, ws Workspace, path string, opts WriteOptions) (Writer, error) {
	if c, ok := ws.(Creator); ok {
		return c.Create(ctx, path, opts)
	}
	if err := opts.check(); err != nil {
		return nil, failed("write", path, err)
	}
	if opts.Exclusive || opts.IfHash != "" {
		return nil, failed("write", path, &Error{Err: ErrUnsupported, Detail: "this workspace cannot write on a condition"})
	}
	return newBuffer(ctx, path, defaultMaxRead, func(data []byte) error {
		switch {
		case opts.Append:
			return ws.Append(ctx, path, data)
		case opts.Atomic:
			return publish(ctx, ws, path, data)
		}
		return ws.Write(ctx, path, data)
	}), nil
}

// check refuses options that contradict each other.
func (o WriteOptions) check() error {
	if o.Append && (o.Exclusive || o.Atomic || o.IfHash != "") {
		return &Error{Err: ErrInvalid, Detail: "appending goes with no other condition"}
	}
	if o.Exclusive && o.IfHash != "" {
		return &Error{Err: ErrInvalid, Detail: "what must be missing has no content"}
	}
	if o.IfHash != "" && !isHash(o.IfHash) {
		return &Error{Err: ErrInvalid, Detail: "the hash is not 64 hexadecimal digits in lower case"}
	}
	return nil
}

func isHash(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

// publish is AtomicWrite by the nine operations alone.
func publish(ctx context.Context, ws Workspace, path string, data []byte) (err error) {
	rel, err := clean(path)
	if err != nil {
		return err
	}
	if rel == "." {
		return ErrIsDir
	}
	temp := join(parent(rel), newForeignTemp())
	defer func() {
		if err != nil { // also when ctx is done
			_ = ws.Delete(context.WithoutCancel(ctx), temp)
		}
	}()
	if err = ws.Write(ctx, temp, data); err != nil {
		return err
	}
	return ws.Rename(ctx, temp, path)
}

// AtomicWrite replaces a file in one step: a reader meanwhile, or after a crash, finds
// all of the old content or all of the new. The content is on stable storage first, if ws
// has one. The mode of the file is kept; a link at path is followed.
//
// On a workspace that is not a Creator it writes a file with a random name beside path and
// renames it; CapabilitiesOf tells the guarantees of that.
func AtomicWrite(ctx context.Context, ws Workspace, path string, data []byte) error {
	return writeAll(ctx, ws, "write", path, data, WriteOptions{Atomic: true, Sync: true})
}

// WriteExclusive makes a file that must not exist yet, in one step: otherwise
// ErrExist. Of several at once, one succeeds.
func WriteExclusive(ctx context.Context, ws Workspace, path string, data []byte) error {
	return writeAll(ctx, ws, "write", path, data, WriteOptions{Exclusive: true, Atomic: true})
}

// WriteIfUnchanged replaces a file, in one step, if the HashOf its content is
// hash: otherwise ErrChanged. WriteOptions.IfHash has the details.
func WriteIfUnchanged(ctx context.Context, ws Workspace, path string, data []byte, hash string) error {
	if hash == "" {
		return failed("write", path, &Error{Err: ErrInvalid, Detail: "there is no hash to compare with"})
	}
	return writeAll(ctx, ws, "write", path, data, WriteOptions{IfHash: hash})
}

// writeAll writes data through Create.
func writeAll(ctx context.Context, ws Workspace, op, path string, data []byte, opts WriteOptions) error {
	w, err := Create(ctx, ws, path, opts)
	if err != nil {
		return failed(op, path, err)
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return failed(op, path, err)
	}
	return failed(op, path, w.Close())
}

// HashOf is the SHA-256 of data in hexadecimal digits.
func HashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Hash is the HashOf a file's content.
func Hash(ctx context.Context, ws Workspace, path string) (string, error) {
	f, err := Open(ctx, ws, path)
	if err != nil {
		return "", failed("hash", path, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", failed("hash", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Copy copies a file and its permissions, and keeps holes. dst is replaced in one step,
// like AtomicWrite does, and may be src itself. Both are to be files in ws, so a
// ScopedWorkspace asks for reading src and for writing dst.
func Copy(ctx context.Context, ws Workspace, src, dst string) error {
	from, err := Open(ctx, ws, src)
	if err != nil {
		return failedTo("copy", src, dst, err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return failedTo("copy", src, dst, err)
	}
	to, err := Create(ctx, ws, dst, WriteOptions{Atomic: true, Sparse: Sparse(info), Perm: info.Mode().Perm()})
	if err != nil {
		return failedTo("copy", src, dst, err)
	}
	defer to.Abort()
	if _, err := io.Copy(to, from); err != nil {
		return failedTo("copy", src, dst, err)
	}
	return failedTo("copy", src, dst, to.Close())
}

// Mkdir makes a directory and its missing parents. An existing directory is not an error. It
// is ErrUnsupported if ws is not a DirMaker.
func Mkdir(ctx context.Context, ws Workspace, dir string) error {
	if m, ok := ws.(DirMaker); ok {
		return m.Mkdir(ctx, dir)
	}
	return failed("mkdir", dir, ErrUnsupported)
}

// Entries yields the entries of a directory, in no order. If ws is not a Lister, it calls
// List.
func Entries(ctx context.Context, ws Workspace, dir string) iter.Seq2[fs.DirEntry, error] {
	if l, ok := ws.(Lister); ok {
		return l.Entries(ctx, dir)
	}
	return func(yield func(fs.DirEntry, error) bool) {
		entries, err := ws.List(ctx, dir)
		if err != nil {
			yield(nil, failed("list", dir, err))
			return
		}
		for _, entry := range entries {
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// newBuffer returns a Writer that keeps all in memory, at most limit bytes, and passes it
// to commit when it is closed.
func newBuffer(ctx context.Context, path string, limit int64, commit func([]byte) error) *buffer {
	return &buffer{ctx: ctx, path: path, limit: limit, commit: commit}
}

type buffer struct {
	ctx    context.Context
	path   string
	limit  int64
	data   []byte
	commit func([]byte) error // nil: it is over
}

func (b *buffer) Write(data []byte) (int, error) {
	err := b.ctx.Err()
	switch {
	case err != nil:
	case b.commit == nil:
		err = ErrClosed
	case int64(len(b.data)+len(data)) > b.limit:
		err = ErrTooLarge
	}
	if err != nil {
		return 0, failed("write", b.path, err)
	}
	b.data = append(b.data, data...)
	return len(data), nil
}

func (b *buffer) Close() error {
	if b.commit == nil {
		return nil
	}
	commit := b.commit
	b.commit = nil
	if err := b.ctx.Err(); err != nil {
		return failed("write", b.path, err)
	}
	return failed("write", b.path, commit(b.data))
}

func (b *buffer) Abort() error {
	b.commit, b.data = nil, nil
	return nil
}

// isSkip reports whether a callback skips the rest of a directory.
func isSkip(err error) bool { return errors.Is(err, fs.SkipDir) }
