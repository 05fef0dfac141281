package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
)

// Merge returns the text of the host's index with the changes that another one has had since
// base, path by path. Of paths that the host has changed otherwise, the host's entries stay, and both
// lists them, with files where the host has a directory, and the other way round; but an entry that
// known reports, which may be nil, counts as no change. The text is of version 2 or 3, without
// extensions and checksum. It is nil if an index has sparse directories.
func Merge(base, own, host *Index, known func(e Entry) bool) (text []byte, both []string) {
	w := newWriter(host.hashLen)
	b, o, h := base.entries, own.entries, host.entries
	for len(o)+len(h)+len(b) > 0 {
		path := first(first(first(nil, base, b), own, o), host, h)
		var inBase, inOwn, inHost []entry
		inBase, b = base.cut(b, path)
		inOwn, o = own.cut(o, path)
		inHost, h = host.cut(h, path)
		if own.hasContent(inOwn) { // where there is none, an intent to add it is no change
			inBase, inHost = base.withContent(inBase), host.withContent(inHost)
		}
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
		if len(entries) > 0 && len(inHost) == 0 && blocks(base, own, host, known, path) {
			both, entries = append(both, string(path)), nil
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

// add adds an entry without stat data.
func (w *writer) add(e Entry) error {
	id, err := hex.DecodeString(e.ID)
	if err != nil || len(id) != w.hashLen {
		return fmt.Errorf("%q is no object ID", e.ID)
	}
	raw := make([]byte, statSize, statSize+w.hashLen+4)
	binary.BigEndian.PutUint32(raw[modeAt:], e.Mode)
	flags, more := uint16(min(len(e.Path), flagLength)), uint16(0)
	if e.AssumeValid {
		flags |= flagValid
	}
	if e.SkipWorktree {
		more |= extendedSkip
	}
	if raw = append(raw, id...); more != 0 {
		w.version = 3
		raw = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(raw, flags|flagExtended), more)
	} else {
		raw = binary.BigEndian.AppendUint16(raw, flags)
	}
	w.put(raw, []byte(e.Path))
	return nil
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

// hasContent reports whether there are entries, and not only the intent to add a file.
func (x *Index) hasContent(entries []entry) bool { return len(x.withContent(entries)) > 0 }

func (x *Index) withContent(entries []entry) []entry {
	if len(entries) == 1 && x.flags(&entries[0]).IntentToAdd {
		return nil
	}
	return entries
}

// blocks reports whether an entry of the host's stays above or below a path.
func blocks(base, own, host *Index, known func(e Entry) bool, path []byte) bool {
	stays := func(at []byte) bool {
		his := host.at(at)
		goes := host.alike(his, base, base.at(at)) || known != nil && len(his) == 1 && known(host.entry(&his[0]))
		return len(his) > 0 && !(len(own.at(at)) == 0 && goes)
	}
	for i, c := range path {
		if c == '/' && stays(path[:i]) {
			return true
		}
	}
	below := append(bytes.Clone(path), '/')
	for i := host.from(below); i < len(host.entries) && bytes.HasPrefix(host.path(&host.entries[i]), below); i++ {
		if stays(host.path(&host.entries[i])) {
			return true
		}
	}
	return false
}

// from is the place of the first entry that does not come before a path.
func (x *Index) from(path []byte) int {
	return sort.Search(len(x.entries), func(i int) bool { return bytes.Compare(x.path(&x.entries[i]), path) >= 0 })
}

// at returns the entries of a path.
func (x *Index) at(path []byte) []entry {
	of, _ := x.cut(x.entries[x.from(path):], path)
	return of
}

// FlagsOf returns the flags of the entry of a path, without the intent to add it.
func (x *Index) FlagsOf(path string) Flags {
	if of := x.at([]byte(path)); len(of) == 1 {
		flags := x.flags(&of[0])
		flags.IntentToAdd = false
		return flags
	}
	return Flags{}
}

// Expand returns the text of an index whose sparse directories are replaced by the files of their trees,
// with the mark skip-worktree; nil if it has none.
func (x *Index) Expand(files func(tree string, each func(path string, mode uint32, id string) error) error) ([]byte, error) {
	if !slices.ContainsFunc(x.entries, func(e entry) bool { return e.mode == modeDirectory }) {
		return nil, nil
	}
	w := newWriter(x.hashLen)
	for i := range x.entries {
		e := &x.entries[i]
		if e.mode != modeDirectory {
			w.write(x, e, x.path(e))
			continue
		}
		err := files(hex.EncodeToString(x.id(e)), func(path string, mode uint32, id string) error {
			return w.add(Entry{Path: string(x.path(e)) + path, Mode: mode, ID: id, Flags: Flags{SkipWorktree: true}})
		})
		if err != nil {
			return nil, err
		}
	}
	return w.text(), nil
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
