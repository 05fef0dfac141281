package objects

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// MaxAlternates is the depth to which git follows alternates.
const MaxAlternates = 5

// Database is an object database of the host, with its alternates. It may be used
// by several goroutines, and notices packs that come and go.
type Database struct {
	format Format
	mu     sync.Mutex
	stores []*store // the database itself, then its alternates
}

// store is one `objects` directory.
type store struct {
	dir    int
	packs  []*pack
	listed unix.Timespec // the time of the directory of packs when it was listed
}

// pack is a pack with its index. Both are mapped: git never changes a pack, and a
// mapping outlives the removal of the file.
type pack struct {
	index
	name  string // without the ending
	data  []byte // mapped on first use
	fresh bool

	trees map[uint64][]byte // that were read last, by their offset: each is a delta of one of a commit nearby
	size  int               // of these, in bytes
}

// maxTrees bounds the bytes of the trees that a pack has at hand.
const maxTrees = 4 << 20

const openDir = unix.O_RDONLY | unix.O_DIRECTORY

// Open opens an `objects` directory of the host and those that its
// info/alternates names.
func Open(dir string, f Format) (*Database, error) {
	d := &Database{format: f}
	if err := d.open(dir, 0); err != nil {
		d.Close()
		return nil, fmt.Errorf("cannot open the object database %q: %w", dir, err)
	}
	return d, nil
}

func (d *Database) open(dir string, depth int) error {
	fd, err := fsat.Openat(unix.AT_FDCWD, dir, openDir, 0)
	if err != nil {
		return err
	}
	s := &store{dir: fd}
	if d.known(fd) {
		return unix.Close(fd)
	}
	d.stores = append(d.stores, s)
	if err := s.list(d.format); err != nil || depth == MaxAlternates {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "info/alternates"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, other := range Alternates(dir, text) {
		// git goes on without a database that is gone, too.
		_ = d.open(other, depth+1)
	}
	return err
}

// Alternates returns the directories that text, the file info/alternates in the directory
// dir, names.
func Alternates(dir string, text []byte) (list []string) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if plain, err := strconv.Unquote(line); err == nil {
			line = plain
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if !filepath.IsAbs(line) {
			line = dir + "/" + line // a link before ".." counts
		}
		list = append(list, line)
	}
	return list
}

func (d *Database) known(fd int) bool {
	var a, b unix.Stat_t
	if unix.Fstat(fd, &a) != nil {
		return false
	}
	for _, s := range d.stores {
		if unix.Fstat(s.dir, &b) == nil && fsat.SameInode(&a, &b) {
			return true
		}
	}
	return false
}

// Close releases everything. The database must not be used after it.
func (d *Database) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.stores {
		for _, p := range s.packs {
			p.close()
		}
		unix.Close(s.dir)
	}
	d.stores = nil
}

func (p *pack) close() {
	unmap(p.index.data)
	unmap(p.data)
}

// list reads the directory of packs again.
func (s *store) list(f Format) error {
	dir, err := fsat.Openat(s.dir, "pack", openDir, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	have := map[string]*pack{}
	for _, p := range s.packs {
		have[p.name] = p
	}
	var packs []*pack
	err = fsat.Each(dir, func(e fsat.Entry) error {
		name, ok := strings.CutSuffix(e.Name, ".idx")
		if !ok {
			return nil
		}
		p := have[name]
		if p == nil {
			data, err := mapFile(dir, e.Name)
			if err != nil {
				return nil // gone already, or empty
			}
			p = &pack{name: name}
			if p.index, err = parseIndex(data, f); err != nil {
				unmap(data)
				return nil
			}
		}
		delete(have, name)
		packs = append(packs, p)
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range have {
		p.close()
	}
	s.packs, s.listed = packs, st.Mtim
	return nil
}

// stale reports whether packs may have come or gone. A directory that changes again in
// the tick in which it was listed keeps its time.
func (s *store) stale(certain bool) bool {
	st, err := fsat.Lstat(s.dir, "pack")
	if err != nil {
		return len(s.packs) > 0
	}
	return st.Mtim != s.listed || certain && time.Since(time.Unix(st.Mtim.Unix())) < time.Second
}

// refresh finds packs that came or went.
func (d *Database) refresh() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.stores {
		if s.stale(true) {
			if err := s.list(d.format); err != nil {
				return fmt.Errorf("cannot list the host's packs: %w", err)
			}
		}
	}
	return nil
}

// changed returns a text that is another one after an object was added or removed: the times of the
// directories.
func (d *Database) changed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var text []byte
	for _, s := range d.stores {
		for i := range 257 {
			name := "pack"
			if i < 256 {
				name = fmt.Sprintf("%02x", i)
			}
			if st, err := fsat.Lstat(s.dir, name); err == nil {
				text = binary.BigEndian.AppendUint64(append(text, byte(i)), uint64(st.Mtim.Nano()))
			}
		}
	}
	return string(text)
}

// place locates an object: in a pack or, if that is nil, in a file of its own.
type place struct {
	store  *store
	pack   *pack
	offset uint64
}

func (d *Database) find(id oid) (place, bool) {
	for again := range 2 {
		for _, s := range d.stores {
			if again > 0 && (!s.stale(false) || s.list(d.format) != nil) {
				continue
			}
			if at, ok := s.find(d.format, id); ok {
				return at, true
			}
		}
	}
	return place{}, false
}

func (s *store) find(f Format, id oid) (place, bool) {
	for i, p := range s.packs {
		if off, ok := p.find(id[:f.Size()]); ok {
			copy(s.packs[1:i+1], s.packs[:i]) // the next object is likely to be there too
			s.packs[0] = p
			return place{s, p, off}, true
		}
	}
	st, err := fsat.Lstat(s.dir, loosePath(f.hex(id)))
	return place{store: s}, err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

func loosePath(id string) string { return id[:2] + "/" + id[2:] }

// Has reports whether the database has an object.
func (d *Database) Has(id string) bool {
	o, ok := d.format.parseID(id)
	return ok && d.has(o)
}

func (d *Database) has(id oid) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.find(id)
	return ok
}

// Whole returns the only ID that begins with these digits, or "".
func (d *Database) Whole(short string) string {
	if ids := d.Begin(short); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// Begin returns IDs that begin with these digits: all, if that is one or none.
func (d *Database) Begin(short string) []string {
	o, ok := d.format.parseID(short + strings.Repeat("0", max(0, 2*d.format.Size()-len(short))))
	if !ok || len(short) < 2 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[string]bool{}
	for _, s := range d.stores {
		for _, p := range s.packs {
			for i := p.search(o[:d.format.Size()]); i < p.n && strings.HasPrefix(hex.EncodeToString(p.id(i)), short) && len(found) < 2; i++ {
				found[hex.EncodeToString(p.id(i))] = true
			}
		}
		if dir, err := fsat.Openat(s.dir, short[:2], openDir, 0); err == nil {
			_ = fsat.Each(dir, func(e fsat.Entry) error {
				if strings.HasPrefix(short[:2]+e.Name, short) {
					found[short[:2]+e.Name] = true
				}
				return nil
			})
			unix.Close(dir)
		}
	}
	return slices.Collect(maps.Keys(found))
}

// Kind returns "commit", "tree", "blob" or "tag". The error is ErrNotFound if
// there is no such object.
func (d *Database) Kind(id string) (string, error) {
	o, ok := d.format.parseID(id)
	if !ok {
		return "", fmt.Errorf("%q is not an object ID", id)
	}
	k, err := d.kind(o)
	if err != nil {
		return "", err
	}
	return k.String(), nil
}

func (d *Database) kind(id oid) (kind, error) {
	k, _, err := d.read(id, 0)
	return k, err
}

// maxRead bounds the size of the objects that Read returns.
const maxRead = 64 << 20

// Read returns an object of at most 64 MiB: ErrTooLarge if it is larger,
// ErrNotFound if there is no such object.
func (d *Database) Read(id string) (string, []byte, error) {
	o, ok := d.format.parseID(id)
	if !ok {
		return "", nil, fmt.Errorf("%q is not an object ID", id)
	}
	k, data, err := d.read(o, maxRead)
	if err != nil {
		return "", nil, err
	}
	return k.String(), data, nil
}

// Header holds the headers of a commit, or of a tag, that git reads.
type Header struct {
	Tree    string   // of a tree, its own ID
	Parents []string // of a tag, its object
	Time    int64    // of the committer, in seconds since 1970; of another object MaxInt64
	Name    string   // in a tag: git-describe(1) prints it
}

// Header returns the headers of a commit or a tag by their places, as git reads them: it
// ignores later lines that look like headers.
func (d *Database) Header(id string) (h Header, err error) {
	kind, data, err := d.Read(id)
	if err != nil {
		return h, err
	}
	rest := &headers{d.format, data}
	switch kind {
	case "commit":
		tree, found, err := rest.id("tree")
		for h.Tree = d.format.hex(tree); found && err == nil; {
			var parent oid
			if parent, found, err = rest.id("parent"); found {
				h.Parents = append(h.Parents, d.format.hex(parent))
			}
		}
		if err != nil || tree == (oid{}) {
			return Header{}, errors.New("it is malformed")
		}
		if _, ok := rest.line("author"); ok {
			committer, _ := rest.line("committer")
			_, when, _ := strings.Cut(committer, "> ")
			seconds, _, _ := strings.Cut(when, " ")
			h.Time, _ = strconv.ParseInt(seconds, 10, 64)
		}
	case "tag":
		object, found, err := rest.id("object")
		if !found || err != nil {
			return h, errors.New("it is malformed")
		}
		_, _ = rest.line("type")
		name, _ := rest.line("tag")
		h = Header{Parents: []string{d.format.hex(object)}, Time: math.MaxInt64, Name: name}
	case "tree":
		h = Header{Tree: id, Time: math.MaxInt64}
	default:
		h.Time = math.MaxInt64
	}
	return h, nil
}

// Entry is one of a tree.
type Entry struct {
	Name string
	Mode uint32 // as git writes it: 0o100644, 0o100755, 0o120000, 0o160000, or 0o040000 of a directory
	ID   string
}

// Tree returns the entries of a tree of at most 64 MiB.
func (d *Database) Tree(id string) (list []Entry, err error) {
	kind, data, err := d.Read(id)
	if err == nil && kind != "tree" {
		return nil, fmt.Errorf("%s is no tree", id)
	}
	for len(data) > 0 && err == nil {
		var mode uint64
		var name string
		var id oid
		if mode, name, id, data, err = treeEntry(d.format, data); err != nil {
			return nil, err
		}
		list = append(list, Entry{name, uint32(mode), d.format.hex(id)})
	}
	return list, err
}

// Name returns the ID of a blob.
func (d *Database) Name(blobText []byte) string {
	return d.format.hex(d.format.name(blob, blobText))
}

// emptyTree is the ID of the tree without entries. It is built into git, which does not
// write it.
func (f Format) emptyTree() oid { return emptyTrees[f] }

var emptyTrees = map[Format]oid{SHA1: SHA1.name(tree, nil), SHA256: SHA256.name(tree, nil)}

// read returns an object, or with the limit 0 only its kind.
func (d *Database) read(id oid, limit uint64) (kind, []byte, error) {
	if id == d.format.emptyTree() {
		return tree, nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var failed error
	for range 2 { // a repack moves an object between lookup and reading
		at, ok := d.find(id)
		if !ok {
			break
		}
		k, data, err := d.readAt(at, id, limit)
		if err == nil || errors.Is(err, ErrTooLarge) {
			return k, data, err
		}
		failed = fmt.Errorf("cannot read object %s of the host: %w", d.format.hex(id), err)
		for _, s := range d.stores {
			_ = s.list(d.format)
		}
	}
	if failed == nil {
		failed = fmt.Errorf("%s: %w", d.format.hex(id), ErrNotFound)
	}
	return noKind, nil, failed
}

func (d *Database) readAt(at place, id oid, limit uint64) (kind, []byte, error) {
	if at.pack == nil {
		return readLoose(at.store.dir, d.format.hex(id), limit)
	}
	if err := at.pack.load(at.store.dir); err != nil {
		return noKind, nil, err
	}
	return at.pack.read(d.format, at.offset, limit)
}

func (p *pack) load(dir int) (err error) {
	if p.data == nil {
		p.data, err = mapFile(dir, "pack/"+p.name+".pack")
	}
	return err
}

// read returns the object at an offset, or with the limit 0 only its kind.
func (p *pack) read(f Format, at, limit uint64) (kind, []byte, error) {
	var deltas []entry
	first := at
	e, err := p.entry(f, at)
	for ; err == nil && !e.kind.valid() && p.trees[at] == nil; e, err = p.entry(f, at) {
		if deltas = append(deltas, e); len(deltas) > maxDepth+1 {
			return noKind, nil, errors.New("chain of deltas too long")
		}
		at = e.offset
		if e.kind == refDelta {
			var ok bool
			if at, ok = p.find(e.base[:f.Size()]); !ok {
				return noKind, nil, errors.New("base of a delta missing")
			}
		}
	}
	data := p.trees[at]
	if data != nil {
		e.kind, e.size = tree, uint64(len(data))
	}
	if err != nil || limit == 0 {
		return e.kind, nil, err
	}
	if e.size > limit {
		return noKind, nil, ErrTooLarge
	}
	if data == nil {
		data, err = p.inflate(e)
	}
	for i := len(deltas) - 1; i >= 0 && err == nil; i-- {
		var delta []byte
		if deltas[i].size > limit {
			return noKind, nil, ErrTooLarge
		}
		if delta, err = p.inflate(deltas[i]); err == nil {
			data, err = applyDelta(data, delta, limit)
		}
	}
	if e.kind == tree && err == nil {
		p.remember(first, data)
	}
	return e.kind, data, err
}

func (p *pack) remember(at uint64, data []byte) {
	if p.size += len(data); p.size > maxTrees || p.trees == nil {
		p.trees, p.size = map[uint64][]byte{}, len(data)
	}
	if len(data) <= maxTrees/16 {
		p.trees[at] = data
	}
}

func (p *pack) entry(f Format, at uint64) (entry, error) {
	if at >= uint64(len(p.data)) {
		return entry{}, errEntry
	}
	return parseEntry(p.data[at:min(at+maxEntryHeader, uint64(len(p.data)))], at, f)
}

func (p *pack) inflate(e entry) ([]byte, error) {
	return inflate(bytes.NewReader(p.data[e.data:]), e.size)
}

var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// readLoose reads an object from its own file.
func readLoose(dir int, id string, limit uint64) (kind, []byte, error) {
	fd, err := fsat.Openat(dir, loosePath(id), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return noKind, nil, err
	}
	defer unix.Close(fd)
	in := readers.Get().(*bufio.Reader)
	defer readers.Put(in)
	in.Reset(descriptor(fd))
	z, k, size, err := openLoose(in)
	if z != nil {
		defer inflaters.Put(z)
	}
	switch {
	case err != nil || limit == 0:
		return k, nil, err
	case size > limit:
		return noKind, nil, ErrTooLarge
	}
	data := make([]byte, size)
	_, err = io.ReadFull(z, data)
	return k, data, err
}

// descriptor reads a regular file, with half the system calls of an os.File.
type descriptor int

func (d descriptor) Read(b []byte) (int, error) {
	n, err := fsat.Again(func() (int, error) { return unix.Read(int(d), b) })
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

var errLoose = errors.New("malformed loose object")

// maxLooseHeader is the longest header of a loose object: "commit ", 20 digits and
// a NUL byte.
const maxLooseHeader = 28

// openLoose reads the header of a loose object. The content follows in the reader
// that it returns, and that the caller gives back to inflaters.
func openLoose(r io.Reader) (io.ReadCloser, kind, uint64, error) {
	z, err := inflater(r)
	if err != nil {
		return nil, noKind, 0, err
	}
	var head []byte
	var one [1]byte
	for len(head) <= maxLooseHeader {
		if _, err := io.ReadFull(z, one[:]); err != nil {
			return nil, noKind, 0, err
		}
		if one[0] != 0 {
			head = append(head, one[0])
			continue
		}
		name, digits, _ := strings.Cut(string(head), " ")
		k := kindOf(name)
		size, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || k == noKind || strconv.FormatUint(size, 10) != digits {
			break
		}
		return z, k, size, nil
	}
	return nil, noKind, 0, errLoose
}

// freshen gives an object the present time, as git does when it is written anew, so that
// gc keeps it for its usual two weeks.
func (d *Database) freshen(id oid) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.find(id)
	switch {
	case !ok:
	case at.pack == nil:
		_ = unix.UtimesNanoAt(at.store.dir, loosePath(d.format.hex(id)), nil, unix.AT_SYMLINK_NOFOLLOW)
	case !at.pack.fresh:
		at.pack.fresh = true
		_ = unix.UtimesNanoAt(at.store.dir, "pack/"+at.pack.name+".pack", nil, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// mapFile maps a file of the host for reading.
func mapFile(dir int, name string) ([]byte, error) {
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size == 0 {
		return nil, errors.New("not a file with content")
	}
	return unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmap(data []byte) {
	if data != nil {
		_ = unix.Munmap(data)
	}
}
