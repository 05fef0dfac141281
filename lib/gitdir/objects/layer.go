package objects

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// layerPack is a pack of the layer. Its index is only a hint.
type layerPack struct {
	name string // without the ending
	signature
	file     *os.File
	more     bool // a part of it may land later
	rank     int
	byOffset []indexed // sorted; the IDs are claims
}

func (s source) compare(t source) int {
	return cmp.Or(cmp.Compare(s.pack.rank, t.pack.rank), cmp.Compare(s.offset, t.offset))
}

// Bounds of the listing of a layer.
const (
	maxIndex = 256 << 20 // bytes: some eight million objects
	maxPacks = 200       // open at once; others follow in the next landing
	maxLoose = 4 << 20
)

// openDirIn opens a directory in the layer. No link is followed.
func openDirIn(dir int, path string) (int, error) {
	return fsat.Kernel().Open(dir, path, openDir, 0, fsat.Beneath)
}

// openFile opens a regular file in the layer.
func openFile(dir int, path string) (*os.File, *unix.Stat_t, error) {
	seen, err := fsat.Kernel().Open(dir, path, unix.O_PATH, 0, fsat.Beneath)
	if err != nil {
		return nil, nil, err
	}
	return overlay.Open(seen)
}

// list finds all objects that are new to the host. Packs come last, so that an
// object which the command is packing is not missed.
func (r *landing) list() {
	dir, err := fsat.Reopen(r.layer, unix.O_RDONLY)
	if err != nil {
		r.refuse(".", "cannot list it: "+err.Error())
		return
	}
	defer unix.Close(dir)
	names := 0
	err = fsat.Each(dir, func(e fsat.Entry) error {
		if len(e.Name) == 2 && strings.Trim(e.Name, "0123456789abcdef") == "" && e.Type != unix.DT_CHR {
			r.listLoose(e.Name, &names)
		}
		return nil
	})
	if err != nil {
		r.refuse(".", "cannot list it: "+err.Error())
	}
	r.listPacks()
}

func (r *landing) listLoose(sub string, names *int) {
	dir, err := openDirIn(r.layer, sub)
	if err != nil {
		r.refuse(sub, err.Error())
		return
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstat(dir, &st) == nil {
		if r.Lander.dirs[sub] == signatureOf(&st) {
			return
		}
		r.dirs[sub] = signatureOf(&st)
	}
	err = fsat.Each(dir, func(e fsat.Entry) error {
		if *names++; *names > maxLoose {
			return errors.New("too many entries")
		}
		if id, ok := r.format.parseID(sub + e.Name); ok {
			r.offerLoose(dir, id, e)
		}
		return nil
	})
	if err != nil {
		r.refuse(sub, "cannot list it: "+err.Error())
		delete(r.dirs, sub)
	}
}

func (r *landing) offerLoose(dir int, id oid, e fsat.Entry) {
	if _, ok := r.landed[id]; ok || e.Type == unix.DT_CHR { // a whiteout
		return
	}
	st, err := fsat.Lstat(dir, e.Name)
	if err != nil {
		return
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		r.refuse(loosePath(r.format.hex(id)), overlay.ErrNotRegular.Error())
		return
	}
	file := signatureOf(st)
	r.offer(id, source{file: &file})
}

func (r *landing) listPacks() {
	dir, err := openDirIn(r.layer, "pack")
	if err == unix.ENOENT {
		return
	}
	if err != nil {
		if st, bad := fsat.Lstat(r.layer, "pack"); bad != nil || !overlay.IsWhiteout(st) {
			r.refuse("pack", err.Error())
		}
		return
	}
	defer unix.Close(dir)
	err = fsat.Each(dir, func(e fsat.Entry) error {
		name, ok := strings.CutSuffix(e.Name, ".idx")
		if !ok || !strings.HasPrefix(name, "pack-") || e.Type == unix.DT_CHR {
			return nil
		}
		if len(r.packs) == maxPacks {
			r.full = true
			return nil
		}
		if err := r.listPack(dir, name); err != nil {
			r.refuse("pack/"+e.Name, err.Error())
		}
		return nil
	})
	if err != nil {
		r.refuse("pack", "cannot list it: "+err.Error())
	}
}

func (r *landing) listPack(dir int, name string) error {
	file, st, err := openFile(dir, name+".pack")
	if err != nil {
		return fmt.Errorf("cannot open its pack: %w", err)
	}
	p := &layerPack{name: name, signature: signatureOf(st), file: file, rank: len(r.packs)}
	if r.Lander.packs[name] == p.signature {
		return file.Close()
	}
	if err := r.readIndex(dir, p); err != nil {
		file.Close()
		return err
	}
	if p.byOffset == nil { // nothing new in it
		r.Lander.packs[name] = p.signature
		return file.Close()
	}
	r.options.Budget.Grant(st)
	r.packs = append(r.packs, p)
	return nil
}

// readIndex offers the objects of a pack.
func (r *landing) readIndex(dir int, p *layerPack) error {
	file, st, err := openFile(dir, p.name+".idx")
	if err != nil {
		return err
	}
	defer file.Close()
	if st.Size > maxIndex || !r.options.Budget.Spend(uint64(st.Size)) {
		return ErrTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(file, st.Size))
	if err != nil {
		return err
	}
	x, err := parseIndex(data, r.format)
	if err != nil {
		return err
	}
	news := false
	for i := range x.n {
		off, ok := x.offset(i)
		if ok && off < uint64(p.size) {
			news = r.offer(r.format.oid(x.id(i)), source{p, off, &p.signature}) || news
		}
	}
	if !news {
		return nil
	}
	p.byOffset = make([]indexed, 0, x.n)
	for i := range x.n {
		if off, ok := x.offset(i); ok {
			p.byOffset = append(p.byOffset, indexed{id: r.format.oid(x.id(i)), offset: off})
		}
	}
	slices.SortFunc(p.byOffset, func(a, b indexed) int { return cmp.Compare(a.offset, b.offset) })
	return nil
}

// at returns the ID that the index claims for an offset.
func (p *layerPack) at(offset uint64) (oid, bool) {
	i, ok := slices.BinarySearchFunc(p.byOffset, offset, func(e indexed, o uint64) int { return cmp.Compare(e.offset, o) })
	if !ok {
		return oid{}, false
	}
	return p.byOffset[i].id, true
}

// entry reads the header at an offset, and returns a reader of the data after it.
func (p *layerPack) entry(f Format, at uint64) (entry, io.Reader, error) {
	var b [maxEntryHeader]byte
	n, err := p.file.ReadAt(b[:], int64(at))
	if n == 0 && err != nil {
		return entry{}, nil, err
	}
	e, err := parseEntry(b[:n], at, f)
	if err != nil {
		return e, nil, err
	}
	return e, bufio.NewReader(io.NewSectionReader(p.file, int64(e.data), 1<<62)), nil
}

// resolve verifies an object of a pack, and its bases before it. They are on a stack of
// their own: a chain may have any length.
func (r *landing) resolve(i uint32) error {
	stack := []uint32{i}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		n := &r.nodes[i]
		if n.state != unread && n.state != reading || n.sources[0].pack == nil {
			stack = stack[:len(stack)-1]
			continue
		}
		n.state = reading
		before := r.options.Budget.done
		base, err := r.readPacked(i)
		var bad mismatch
		switch {
		case errors.As(err, &bad):
			r.options.Budget.waste(before)
			r.fail(i, bad.Error(), !errors.Is(err, errLater))
		case err != nil:
			return err
		case base != nil:
			stack = append(stack, *base)
		}
	}
	return nil
}

// errLater is for a failure that may not occur in the next landing.
var errLater = errors.New("waits for the next time")

func wrong(format string, args ...any) error { return mismatch{fmt.Errorf(format, args...)} }

// readPacked verifies one object of a pack, or returns the number of the base that has to
// be verified first. A mismatch is the layer's fault.
func (r *landing) readPacked(i uint32) (*uint32, error) {
	n := &r.nodes[i]
	s := n.sources[0]
	e, data, err := s.pack.entry(r.format, s.offset)
	if err != nil {
		return nil, wrong("cannot read it in the pack %q: %w", s.pack.name, err)
	}
	if e.size > MaxObject || e.size > maxHeld && e.kind != blob {
		return nil, wrong("%w", ErrTooLarge)
	}
	if !r.options.Budget.Spend(e.size) {
		return nil, wrong("%w", errLater)
	}
	if e.kind.valid() {
		n.kind, n.size = e.kind, e.size
		if e.size > maxWhole && e.kind == blob && !r.suspect(e.size) {
			z, err := inflater(data)
			if err != nil {
				return nil, wrong("damaged in the pack %q: %w", s.pack.name, err)
			}
			return nil, r.storeLarge(i, z)
		}
		content, err := inflate(data, e.size)
		if err != nil {
			return nil, wrong("damaged in the pack %q: %w", s.pack.name, err)
		}
		return nil, r.admit(i, content, nil, 0)
	}
	return r.readDelta(i, e, data)
}

func (r *landing) readDelta(i uint32, e entry, data io.Reader) (*uint32, error) {
	n := &r.nodes[i]
	pack := n.sources[0].pack
	id, ok := e.base, true
	if e.kind == offsetDelta {
		id, ok = pack.at(e.offset)
	}
	if !ok {
		return nil, wrong("its base is not in the index of the pack %q", pack.name)
	}
	var base []byte
	var err error
	b, ours := r.byID[id]
	switch {
	case ours && (r.nodes[b].state == unread && r.nodes[b].sources[0].pack != nil):
		return &b, nil
	case ours && r.nodes[b].state == waiting && r.nodes[b].entry.at == 0:
		return nil, wrong("its base: %w", errLater)
	case ours && r.nodes[b].entry.at == 0:
		return nil, wrong("its base %s is missing, damaged, or made from it", r.format.hex(id))
	case ours:
		n.kind = r.nodes[b].kind
		if r.nodes[b].size > maxHeld {
			return nil, wrong("its base: %w", ErrTooLarge)
		}
		base, err = r.content(b)
	default:
		n.kind, base, err = r.host.read(id, maxHeld)
		if errors.Is(err, ErrNotFound) && r.full {
			return nil, wrong("its base: %w", errLater) // it may be beyond the bound
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrTooLarge) {
			return nil, wrong("its base: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	delta, err := inflate(data, e.size)
	if err != nil {
		return nil, wrong("damaged in the pack %q: %w", pack.name, err)
	}
	if _, size, _, err := deltaSizes(delta); err == nil && size <= maxHeld && !r.options.Budget.Spend(size) {
		return nil, wrong("%w", errLater)
	}
	content, err := applyDelta(base, delta, maxHeld)
	if err != nil {
		return nil, wrong("%w", err)
	}
	n.size = uint64(len(content))
	if !ours {
		delta = nil // a pack on the disk holds its bases
	}
	return nil, r.admit(i, content, delta, b)
}

// admit accepts an object of a pack whose content is known. delta makes it from the node
// base; it may be nil.
func (r *landing) admit(i uint32, content, delta []byte, base uint32) error {
	n := &r.nodes[i]
	if r.format.name(n.kind, content) != n.id {
		return wrong("content does not match its name")
	}
	if err := r.store(i, content, delta, base); err != nil {
		return err
	}
	return r.accept(i, n.kind, content)
}

// store adds a verified object to the private pack, as a delta if that is smaller.
func (r *landing) store(i uint32, content, delta []byte, base uint32) (err error) {
	n := &r.nodes[i]
	if err := r.needPack(); err != nil {
		return err
	}
	r.cache.add(i, content)
	if delta == nil || len(delta) >= len(content) || r.nodes[base].entry.depth >= maxDepth {
		n.entry, err = r.pack.append(n.kind, n.size, 0, bytes.NewReader(content))
		return err
	}
	b := r.nodes[base].entry
	n.entry, err = r.pack.append(offsetDelta, uint64(len(delta)), b.at, bytes.NewReader(delta))
	n.entry.base, n.entry.depth = base, b.depth+1
	return err
}

func (r *landing) needPack() (err error) {
	if r.pack == nil {
		r.pack, err = r.target.newPack()
	}
	return err
}

// storeLarge adds a blob to the private pack while it is read.
func (r *landing) storeLarge(i uint32, z io.Reader) error {
	n := &r.nodes[i]
	if err := r.needPack(); err != nil {
		return err
	}
	h := &hashReader{r.format.New(), z, nil}
	h.hash.Write(header(blob, n.size))
	at := r.pack.size
	s, err := r.pack.append(blob, n.size, 0, h)
	if err != nil {
		err = h.blame(err)
	} else if extra, end := z.Read(make([]byte, 1)); extra > 0 || end != io.EOF || r.format.oid(h.hash.Sum(nil)) != n.id {
		err = wrong("content does not match its name")
	}
	if err != nil {
		if undone := r.pack.undo(at); undone != nil {
			return undone
		}
		return err
	}
	n.entry = s
	return r.accept(i, blob, nil)
}

// content returns the content of a verified object. It does not read the layer again.
func (r *landing) content(i uint32) ([]byte, error) {
	n := &r.nodes[i]
	if n.entry.at == 0 {
		return n.data, nil
	}
	var chain []uint32
	at := i
	data, ok := r.cache.get(at)
	for ; !ok && r.nodes[at].entry.kind == offsetDelta; data, ok = r.cache.get(at) {
		chain = append(chain, at)
		at = r.nodes[at].entry.base
	}
	var err error
	if !ok {
		data, err = r.inflateOwn(at)
	}
	for j := len(chain) - 1; j >= 0 && err == nil; j-- {
		var delta []byte
		if delta, err = r.inflateOwn(chain[j]); err == nil {
			data, err = applyDelta(data, delta, maxHeld)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("internal error: cannot read the private pack: %w", err)
	}
	r.cache.add(i, data)
	return data, nil
}

// inflateOwn returns the data of an entry of the private pack.
func (r *landing) inflateOwn(i uint32) ([]byte, error) {
	s := r.nodes[i].entry
	z, err := r.pack.reader(s)
	if err != nil {
		return nil, err
	}
	data := make([]byte, s.size)
	_, err = io.ReadFull(z, data)
	return data, err
}

// readLoose verifies an object that has its own file. A blob is published at once,
// since it refers to nothing, unless there are so many objects that all go into a
// pack.
func (r *landing) readLoose(i uint32) error {
	before := r.options.Budget.done
	err := r.tryLoose(i)
	var bad mismatch
	if errors.As(err, &bad) {
		r.options.Budget.waste(before)
		r.fail(i, bad.Error(), !errors.Is(err, errLater))
		return nil
	}
	return err
}

func (r *landing) tryLoose(i uint32) error {
	n := &r.nodes[i]
	file, st, err := openFile(r.layer, loosePath(r.format.hex(n.id)))
	if err != nil {
		return wrong("cannot open it: %w: %w", err, errLater)
	}
	defer file.Close()
	r.options.Budget.Grant(st)
	in := readers.Get().(*bufio.Reader)
	defer readers.Put(in)
	in.Reset(file)
	z, k, size, err := openLoose(in)
	if z != nil {
		defer inflaters.Put(z)
	}
	switch {
	case err != nil:
		return wrong("damaged: %w", err)
	case size > MaxObject || size > maxHeld && k != blob:
		return wrong("%w", ErrTooLarge)
	case !r.options.Budget.Spend(size):
		return wrong("%w", errLater)
	}
	n.kind, n.size = k, size
	many := len(r.nodes) > maxLooseObjects
	piecemeal := k == blob && !r.suspect(size)
	switch {
	case piecemeal && many:
		return r.storeLarge(i, z)
	case piecemeal:
		if err := r.target.loose(n.id, k, size, z); err != nil {
			return err
		}
		r.done(i)
		return nil
	case !many && r.kept > 0 && r.kept+size > maxKept:
		r.full = true
		return wrong("%w", errLater)
	}
	data, err := io.ReadAll(io.LimitReader(z, int64(size)+1))
	switch {
	case err != nil:
		return wrong("damaged: %w", err)
	case uint64(len(data)) != size:
		return wrong("content is not as long as its header says")
	case many:
		return r.admit(i, data, nil, 0)
	case r.format.name(k, data) != n.id:
		return wrong("content does not match its name")
	}
	n.data = data
	r.kept += size
	return r.accept(i, k, data)
}

// cache holds contents that are likely to be bases soon.
type cache struct {
	data  map[uint32][]byte
	order []uint32
	size  int
}

func (c *cache) get(i uint32) ([]byte, bool) {
	data, ok := c.data[i]
	return data, ok
}

func (c *cache) add(i uint32, data []byte) {
	if c.data == nil {
		c.data = map[uint32][]byte{}
	}
	if _, ok := c.data[i]; ok || len(data) > maxKept {
		return
	}
	c.data[i] = data
	c.order = append(c.order, i)
	for c.size += len(data); c.size > maxKept; c.order = c.order[1:] {
		c.size -= len(c.data[c.order[0]])
		delete(c.data, c.order[0])
	}
}
