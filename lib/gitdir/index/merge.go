package index

import (
	"bytes"
	"encoding/binary"
)

// Merge returns the text of the host's index with the changes that another one has had since
// base, path by path. Of paths that the host has changed otherwise, the host's entries stay, and both
// lists them; but an entry that known reports, which may be nil, counts as no change. The text is of
// version 2 or 3, without extensions and checksum. It is nil if an index has sparse directories.
func Merge(base, own, host *Index, known func(e Entry) bool) (text []byte, both []string) {
	w := newWriter(host.hashLen)
	b, o, h := base.entries, own.entries, host.entries
	for len(o)+len(h)+len(b) > 0 {
		path := first(first(first(nil, base, b), own, o), host, h)
		var inBase, inOwn, inHost []entry
		inBase, b = base.cut(b, path)
		inOwn, o = own.cut(o, path)
		inHost, h = host.cut(h, path)
		from, entries := host, inHost
		switch {
		case own.alike(inOwn, base, inBase):
		case host.alike(inHost, base, inBase), host.alike(inHost, own, inOwn):
			from, entries = own, inOwn
		case known != nil && len(inHost) == 1 && known(host.entry(&inHost[0])):
			from, entries = own, inOwn
		default:
			both = append(both, string(path))
		}
		for i := range entries {
			e := &entries[i]
			if e.mode == modeDirectory {
				return nil, nil
			}
			w.write(from, e, path)
		}
	}
	return w.text(), both
}

// writer makes the text of an index of version 2 or 3.
type writer struct {
	out            []byte
	hashLen        int
	version, count uint32
}

func newWriter(hashLen int) *writer {
	return &writer{append(make([]byte, 0, 1<<16), "DIRC\x00\x00\x00\x00\x00\x00\x00\x00"...), hashLen, 2, 0}
}

// write adds an entry of another index, with a path.
func (w *writer) write(from *Index, e *entry, path []byte) {
	size := statSize + from.hashLen + 2
	raw := from.data[e.at:][:size:size]
	flags := binary.BigEndian.Uint16(raw[size-2:])
	if flags&flagExtended != 0 {
		w.version = 3
		raw = from.data[e.at:][:size+2]
	}
	at := len(w.out)
	w.put(raw, path)
	binary.BigEndian.PutUint16(w.out[at+size-2:], flags&^flagLength|uint16(min(len(path), flagLength)))
}

// put adds the bytes of an entry, and those of its path.
func (w *writer) put(raw, path []byte) {
	at := len(w.out)
	w.out = append(append(w.out, raw...), path...)
	w.out = append(w.out, padding[:8-(len(w.out)-at)%8]...)
	w.count++
}

// text ends the index.
func (w *writer) text() []byte {
	binary.BigEndian.PutUint32(w.out[4:], w.version)
	binary.BigEndian.PutUint32(w.out[8:], w.count)
	return append(w.out, make([]byte, w.hashLen)...)
}

// first returns the path of the first entry, if it comes before path or that is nil.
func first(path []byte, x *Index, entries []entry) []byte {
	if len(entries) > 0 && (path == nil || bytes.Compare(x.path(&entries[0]), path) < 0) {
		return x.path(&entries[0])
	}
	return path
}

// cut returns the entries of a path at the beginning, and the others.
func (x *Index) cut(entries []entry, path []byte) (of, rest []entry) {
	n := 0
	for n < len(entries) && bytes.Equal(x.path(&entries[n]), path) {
		n++
	}
	return entries[:n], entries[n:]
}
