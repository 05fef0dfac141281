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
	out := append([]byte(nil), host.data[:headerSize]...)
	version, count := uint32(2), uint32(0)
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
			at, size := len(out), statSize+from.hashLen+2
			if binary.BigEndian.Uint16(from.data[int(e.at)+size-2:])&flagExtended != 0 {
				version, size = 3, size+2
			}
			out = append(append(out, from.data[e.at:][:size]...), path...)
			out = append(out, padding[:8-(len(out)-at)%8]...)
			count++
		}
	}
	binary.BigEndian.PutUint32(out[4:], version)
	binary.BigEndian.PutUint32(out[8:], count)
	return append(out, make([]byte, host.hashLen)...), both
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
