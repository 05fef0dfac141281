package objects

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/adler32"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
)

// Speed is git's own level for loose objects, and nearly the same in size.
var deflaters = sync.Pool{New: func() any {
	z, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	return z
}}

// deflate compresses exactly size bytes behind a head.
func deflate(w io.Writer, head []byte, r io.Reader, size uint64) error {
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(w)
	if _, err := z.Write(head); err != nil {
		return err
	}
	if _, err := io.CopyN(z, r, int64(size)); err != nil {
		return err
	}
	return z.Close()
}

// maxStored bounds the files that hold an object uncompressed: compressed, they would
// take a block of the file system too. A compressor takes a millisecond to set up.
const maxStored = 4096

// storing is what the zlib format adds to data of one block, which is not compressed.
const storing = 2 + 5 + adler32.Size

// uncompressed is deflate without compression, for data of one block.
func uncompressed(w io.Writer, head []byte, r io.Reader, size uint64) error {
	n := uint16(uint64(len(head)) + size)
	out := append(make([]byte, 0, maxStored), 0x78, 0x01, 1, byte(n), byte(n>>8), ^byte(n), ^byte(n>>8))
	data := append(out[len(out):], head...)[:n]
	if _, err := io.ReadFull(r, data[len(head):]); err != nil {
		return err
	}
	_, err := w.Write(binary.BigEndian.AppendUint32(out[:len(out)+int(n)], adler32.Checksum(data)))
	return err
}

// target is the host's `objects` directory, open for new objects.
type target struct {
	format Format
	dir    int
	mode   uint32 // of the directory: shared repositories differ in it
}

func newTarget(d *Database, s gitlock.Sharing) (*target, error) {
	t := &target{format: d.format, dir: d.stores[0].dir}
	var st unix.Stat_t
	err := unix.Fstat(t.dir, &st)
	mode := s.Mode(fs.ModeDir | fs.FileMode(st.Mode&0o777))
	if t.mode = st.Mode&0o7000 | uint32(mode.Perm()); mode&fs.ModeSetgid != 0 {
		t.mode |= unix.S_ISGID
	}
	return t, err
}

// enter opens a directory in it, and makes it first if it is missing.
func (t *target) enter(name string) (int, error) {
	fd, err := fsat.Openat(t.dir, name, openDir, 0)
	if err != unix.ENOENT {
		return fd, err
	}
	if err := unix.Mkdirat(t.dir, name, t.mode&0o777); err != nil && err != unix.EEXIST {
		return -1, err
	}
	if fd, err = fsat.Openat(t.dir, name, openDir, 0); err == nil {
		_ = unix.Fchmod(fd, t.mode) // against the umask
	}
	return fd, err
}

// temporary is a file that has no final name yet. git's gc removes one that a
// killed process leaves.
type temporary struct {
	dir  int
	name string
	*os.File
}

func (t *target) temporary(dir int, prefix string) (*temporary, error) {
	name := prefix + rand.Text()
	fd, err := fsat.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &temporary{dir, name, os.NewFile(uintptr(fd), name)}, nil
}

// publish gives the file its name. It keeps an object that appeared meanwhile.
func (f *temporary) publish(name string, mode uint32) error {
	if err := f.Chmod(os.FileMode(0o444 & (mode | 0o400))); err != nil {
		return err
	}
	err := fsat.RenameNoReplace(f.dir, f.name, f.dir, name)
	switch err {
	case nil:
		f.name = ""
	case unix.EINVAL, unix.ENOSYS: // NFS
		err = unix.Linkat(f.dir, f.name, f.dir, name, 0)
	}
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// discard closes the file, and removes it unless it was published.
func (f *temporary) discard() {
	f.Close()
	if f.name != "" {
		_ = unix.Unlinkat(f.dir, f.name, 0)
	}
}

// mismatch is an object whose content is not that of its name.
type mismatch struct{ error }

func (m mismatch) Unwrap() error { return m.error }

// loose writes an object that has a file of its own. It publishes the object only if the
// written content has this ID. It does not sync it, as git does not sync loose objects by
// default either.
func (t *target) loose(id oid, k kind, size uint64, r io.Reader) error {
	name := t.format.hex(id)
	dir, err := t.enter(name[:2])
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	f, err := t.temporary(dir, "tmp_obj_")
	if err != nil {
		return err
	}
	defer f.discard()
	w := bufio.NewWriter(f)
	h := &hashReader{t.format.New(), r, nil}
	head := header(k, size)
	h.hash.Write(head)
	write := deflate
	if size <= maxStored-storing-maxLooseHeader {
		write = uncompressed
	}
	if err := write(w, head, h, size); err != nil {
		return h.blame(err)
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return mismatch{errors.New("content is longer than its header says, or damaged")}
	}
	if t.format.oid(h.hash.Sum(nil)) != id {
		return mismatch{errors.New("content does not match its name")}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.publish(name[2:], t.mode)
}

// hashReader hashes its input, and remembers errors of the reader.
type hashReader struct {
	hash hash.Hash
	r    io.Reader
	err  error
}

func (h *hashReader) Read(b []byte) (int, error) {
	n, err := h.r.Read(b)
	h.hash.Write(b[:n])
	if err != nil {
		h.err = err
	}
	return n, err
}

// blame distinguishes an error of the reader from one of the writer.
func (h *hashReader) blame(err error) error {
	if h.err != nil {
		return mismatch{err}
	}
	return err
}

// packWriter writes a pack under a temporary name.
type packWriter struct {
	target *target
	dir    int
	file   *temporary
	buf    *bufio.Writer
	size   uint64
	crc    uint32
}

const packHeader = 12

func (t *target) newPack() (*packWriter, error) {
	dir, err := t.enter("pack")
	if err != nil {
		return nil, err
	}
	f, err := t.temporary(dir, "tmp_pack_")
	if err != nil {
		unix.Close(dir)
		return nil, err
	}
	w := &packWriter{target: t, dir: dir, file: f, buf: bufio.NewWriterSize(f, 64<<10)}
	_, err = w.Write(make([]byte, packHeader))
	return w, err
}

func (w *packWriter) close() {
	w.file.discard()
	unix.Close(w.dir)
}

// Write appends to the pack.
func (w *packWriter) Write(b []byte) (int, error) {
	n, err := w.buf.Write(b)
	w.size += uint64(n)
	w.crc = crc32.Update(w.crc, crc32.IEEETable, b[:n])
	return n, err
}

// stored is an entry of a packWriter.
type stored struct {
	at, data, end uint64 // the entry, its compressed data, and its end
	crc           uint32
	kind          kind // offsetDelta or the object's own
	size          uint64
	base          uint32 // of an offsetDelta: its node
	depth         uint16 // number of bases below
}

// entry begins an entry. back is the offset of the base.
func (w *packWriter) entry(k kind, size, base uint64) (stored, error) {
	s := stored{at: w.size, kind: k, size: size}
	w.crc = 0
	_, err := w.Write(appendHeader(nil, k, size, s.at-base))
	s.data = w.size
	return s, err
}

func (w *packWriter) end(s *stored) { s.end, s.crc = w.size, w.crc }

// append adds an object, or a delta.
func (w *packWriter) append(k kind, size, base uint64, r io.Reader) (stored, error) {
	s, err := w.entry(k, size, base)
	if err == nil {
		err = deflate(w, nil, r, size)
	}
	w.end(&s)
	return s, err
}

// copy adds an entry of another packWriter, with its base elsewhere.
func (w *packWriter) copy(from *packWriter, old stored, base uint64) (stored, error) {
	s, err := w.entry(old.kind, old.size, base)
	if err == nil {
		_, err = io.Copy(w, io.NewSectionReader(from.file, int64(old.data), int64(old.end-old.data)))
	}
	w.end(&s)
	s.base, s.depth = old.base, old.depth
	return s, err
}

// undo removes the last entry.
func (w *packWriter) undo(at uint64) error {
	if err := w.buf.Flush(); err != nil {
		return err
	}
	w.size = at
	if err := w.file.Truncate(int64(at)); err != nil {
		return err
	}
	_, err := w.file.Seek(int64(at), io.SeekStart)
	return err
}

// reader returns the inflated data of an entry.
func (w *packWriter) reader(s stored) (io.Reader, error) {
	if err := w.buf.Flush(); err != nil {
		return nil, err
	}
	return inflater(bufio.NewReader(io.NewSectionReader(w.file, int64(s.data), int64(s.end-s.data))))
}

// publish completes the pack and publishes it, then its index: for git there is no pack
// before that. Both are then on stable storage.
func (w *packWriter) publish(list []indexed, promisor bool) error {
	head := append([]byte("PACK\x00\x00\x00\x02"), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(head[8:], uint32(len(list)))
	if err := w.buf.Flush(); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(head, 0); err != nil {
		return err
	}
	h := w.target.format.New()
	if _, err := io.Copy(h, io.NewSectionReader(w.file, 0, int64(w.size))); err != nil {
		return err
	}
	sum := h.Sum(nil)
	if _, err := w.file.WriteAt(sum, int64(w.size)); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	name := fmt.Sprintf("pack-%x", sum)
	if promisor {
		if err := w.beside(name+".promisor", nil); err != nil {
			return err
		}
	}
	if err := w.file.publish(name+".pack", w.target.mode); err != nil {
		return err
	}
	index := writeIndex(w.target.format, list, sum)
	h.Reset()
	h.Write(index)
	if err := w.beside(name+".idx", h.Sum(index)); err != nil {
		return err
	}
	return unix.Fsync(w.dir)
}

// beside publishes a small file that belongs to the pack.
func (w *packWriter) beside(name string, data []byte) error {
	f, err := w.target.temporary(w.dir, "tmp_idx_")
	if err != nil {
		return err
	}
	defer f.discard()
	if _, err := io.Copy(f, bytes.NewReader(data)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.publish(name, w.target.mode)
}
