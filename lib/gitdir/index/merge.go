package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// Heads are the versions of a path in four commits: of a version that is missing, Mode is 0. Modes are
// as in an index. Flags count in Now alone, for a path that no index has.
type Heads struct{ Base, Own, Host, Now Entry }

// Merge returns the text of the host's index with the changes that the command has staged in its own
// index since base. Each of the three belongs to a HEAD, and the result to the HEAD Now. heads has all
// paths at which these four trees are not alike. There an index stages its difference from its HEAD.
// Where it has none, and its state is the one to take, the result has the version of Now.
//
// If both have staged different changes of a path, the user's stays, and both lists the path. It also
// lists paths that the host's index does not have, and which cannot be added: the result has a file above
// them, or files below.
//
// A flag that the command has changed is taken from its index, any other from the host's. The text is of
// version 2 or 3, without extensions and checksum. It is nil if the result would have a sparse directory,
// or if heads has an ID of another format.
func Merge(base, own, host *Index, heads map[string]Heads) (text []byte, both []string) {
	var versions []Entry
	for path, h := range heads {
		if h.Now.Mode != 0 {
			versions = append(versions, Entry{Path: path, Mode: h.Now.Mode, ID: h.Now.ID, Flags: h.Now.Flags})
		}
	}
	now, err := Of(versions, 2*host.hashLen)
	if err != nil {
		return nil, nil
	}
	all := merged(base, own, host, now, heads)
	w := newWriter(host.hashLen)
	for i := range all {
		r := &all[i]
		if r.fresh && blocked(all, i) {
			r.entries, r.both = nil, true
		}
		if r.both {
			both = append(both, string(r.path))
		}
		for i := range r.entries {
			e := &r.entries[i]
			if e.mode == modeDirectory {
				return nil, nil
			}
			flags := r.index.flags(e)
			if e.stage == 0 {
				flags.AssumeValid, flags.SkipWorktree = r.flags.AssumeValid, r.flags.SkipWorktree
			}
			w.put(r.index.data[e.at:][:statSize+w.hashLen], int(e.stage), flags, r.path)
		}
	}
	return w.text(), both
}

// result is a path of the merged index. It may have no entries.
type result struct {
	path []byte
	side
	flags Flags // of an entry at stage 0, but for the intent to add it
	fresh bool  // the host's index does not have the path
	both  bool
}

// side is the entries of a path in an index.
type side struct {
	index   *Index
	entries []entry
	nothing bool // the path is in heads, and nothing is staged
}

// sides are those of one path.
type sides struct{ base, own, host, now side }

// merged returns the result of each path, in order.
func merged(base, own, host, now *Index, heads map[string]Heads) []result {
	s := sides{side{index: base}, side{index: own}, side{index: host}, side{index: now}}
	b, o, h, n := base.entries, own.entries, host.entries, now.entries
	names := slices.Sorted(maps.Keys(heads))
	all := make([]result, 0, max(len(o), len(h))+len(names))
	for len(b)+len(o)+len(h)+len(names) > 0 {
		path := first(first(first(nil, base, b), own, o), host, h)
		var of *Heads
		if len(names) > 0 && (path == nil || names[0] <= string(path)) {
			head := heads[names[0]]
			of, path, names = &head, []byte(names[0]), names[1:]
		}
		s.base.entries, b = base.cut(b, path)
		s.own.entries, o = own.cut(o, path)
		s.host.entries, h = host.cut(h, path)
		s.now.entries, n = now.cut(n, path)
		r := s.merge(of)
		if r.path = path; r.both || len(r.entries) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// merge merges a path, which is in heads unless that is nil.
func (s *sides) merge(heads *Heads) result {
	b, o, h := s.base, s.own, s.host
	switch {
	case heads != nil:
		b, o, h = b.staged(heads.Base), o.staged(heads.Own), h.staged(heads.Host)
	case len(o.content().entries) > 0: // where there is none, an intent to add it is no change
		b, h = b.content(), h.content()
	}
	ofNow, moved := false, false
	if heads != nil { // own is a change of Now; the user has committed another version since base
		ofNow, moved = heads.Own.same(heads.Now), !heads.Host.same(heads.Base)
	}
	taken, whole, both := h, s.host, false
	switch {
	case o.alike(b):
		both = heads != nil && !h.nothing && !s.host.intends() && !heads.Host.same(heads.Now) && !s.host.alike(s.now) // HEAD has moved on
	case h.nothing && len(s.own.entries) > 0 && s.own.alike(s.now): // the user has committed it
	case h.alike(b) && (ofNow || !moved), h.alike(o), ofNow && s.host.content().alike(s.now), !b.nothing && !o.nothing && h.nothing && s.base.alike(s.host):
		taken, whole = o, s.own
	default:
		both = true
	}
	if taken.nothing {
		whole = s.follow()
	}
	return result{side: whole, flags: s.flags(whole, both), fresh: len(s.host.entries) == 0, both: both}
}

func (e Entry) same(other Entry) bool { return e.Mode == other.Mode && e.ID == other.ID }

// follow returns the version of Now, with stat data if an index has them. Of a file that Now does not
// have, the intent to add it stays.
func (s *sides) follow() side {
	switch {
	case len(s.now.entries) > 0:
		for _, from := range []side{s.host, s.own, s.base} {
			if from.alike(s.now) {
				return from
			}
		}
		return s.now
	case s.host.intends():
		return s.host
	case s.own.intends() && !s.base.intends():
		return s.own
	}
	return side{}
}

// flags returns the flags for an entry that is taken.
func (s *sides) flags(taken side, both bool) Flags {
	flags := taken.flags()
	if len(s.host.entries) > 0 {
		flags = s.host.flags()
	}
	if base, own := s.base.flags(), s.own.flags(); !both && len(s.own.entries) > 0 {
		if own.AssumeValid != base.AssumeValid {
			flags.AssumeValid = own.AssumeValid
		}
		if own.SkipWorktree != base.SkipWorktree {
			flags.SkipWorktree = own.SkipWorktree
		}
	}
	return flags
}

// flags are those of the first entry.
func (s side) flags() Flags {
	if len(s.entries) == 0 {
		return Flags{}
	}
	return s.index.flags(&s.entries[0])
}

// intends reports whether there is only the intent to add a file.
func (s side) intends() bool { return s.flags().IntentToAdd }

// content leaves out the intent to add a file.
func (s side) content() side {
	if s.intends() {
		s.entries = nil
	}
	return s
}

// staged compares the content with the version of HEAD.
func (s side) staged(head Entry) side {
	s = s.content()
	if len(s.entries) == 0 || head.Mode == 0 {
		s.nothing = len(s.entries) == 0 && head.Mode == 0
		return s
	}
	e := &s.entries[0]
	s.nothing = e.stage == 0 && e.mode == head.Mode && hex.EncodeToString(s.index.id(e)) == head.ID
	return s
}

// alike reports whether two sides have staged the same. Other flags than the intent to add do not count.
func (s side) alike(other side) bool {
	if s.nothing || other.nothing {
		return s.nothing == other.nothing
	}
	return s.intends() == other.intends() && slices.EqualFunc(s.entries, other.entries, func(e, f entry) bool {
		return e.stage == f.stage && s.index.isSame(&e, other.index, &f)
	})
}

// blocked reports whether a new entry cannot be in an index with the others: those above it, and those
// of the host's below it. Of two new ones the first stays.
func blocked(all []result, i int) bool {
	find := func(path []byte) int {
		n, _ := slices.BinarySearchFunc(all, path, func(r result, path []byte) int { return bytes.Compare(r.path, path) })
		return n
	}
	r := &all[i]
	for n, c := range r.path {
		if c != '/' {
			continue
		}
		if above := &all[find(r.path[:n])]; bytes.Equal(above.path, r.path[:n]) && above.collides(r.side) {
			return true
		}
	}
	below := append(bytes.Clone(r.path), '/')
	for n := find(below); n < len(all) && bytes.HasPrefix(all[n].path, below); n++ {
		if !all[n].fresh && r.collides(all[n].side) {
			return true
		}
	}
	return false
}

// collides reports whether entries may not be above others.
func (s side) collides(below side) bool {
	for i := range s.entries {
		for j := range below.entries {
			if collide(&s.entries[i], &below.entries[j]) {
				return true
			}
		}
	}
	return false
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
	w.put(from.data[e.at:][:statSize+w.hashLen], int(e.stage), from.flags(e), path)
}

// add adds an entry without stat data.
func (w *writer) add(e Entry) error {
	id, err := hex.DecodeString(e.ID)
	if err != nil || len(id) != w.hashLen {
		return fmt.Errorf("%q is no object ID", e.ID)
	}
	raw := make([]byte, statSize, statSize+w.hashLen)
	binary.BigEndian.PutUint32(raw[modeAt:], e.Mode)
	w.put(append(raw, id...), e.Stage, e.Flags, []byte(e.Path))
	return nil
}

// put adds an entry that begins with stat data and ID.
func (w *writer) put(raw []byte, stage int, f Flags, path []byte) {
	at := len(w.out)
	flags, more := uint16(stage<<12|min(len(path), flagLength)), uint16(0)
	if f.AssumeValid {
		flags |= flagValid
	}
	if f.SkipWorktree {
		more |= extendedSkip
	}
	if f.IntentToAdd {
		more |= extendedIntent
	}
	if w.out = append(w.out, raw...); more != 0 {
		w.version = 3
		w.out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(w.out, flags|flagExtended), more)
	} else {
		w.out = binary.BigEndian.AppendUint16(w.out, flags)
	}
	w.out = append(w.out, path...)
	w.out = append(w.out, padding[:8-(len(w.out)-at)%8]...)
	w.count++
}

// text ends the index.
func (w *writer) text() []byte {
	binary.BigEndian.PutUint32(w.out[4:], w.version)
	binary.BigEndian.PutUint32(w.out[8:], w.count)
	return append(w.out, make([]byte, w.hashLen)...)
}

// Restored returns the text of an index with the entries that another one has at some paths, which are sorted. It is
// as that of Merge: nil if it would have a sparse directory.
func (x *Index) Restored(from *Index, paths []string) []byte {
	w := newWriter(x.hashLen)
	for own, others := x.entries, from.entries; len(own)+len(others) > 0; {
		path := first(first(nil, x, own), from, others)
		var mine, theirs []entry
		mine, own = x.cut(own, path)
		theirs, others = from.cut(others, path)
		in := x
		if _, is := slices.BinarySearch(paths, string(path)); is {
			in, mine = from, theirs
		}
		for i := range mine {
			if mine[i].mode == modeDirectory {
				return nil
			}
			w.write(in, &mine[i], path)
		}
	}
	return w.text()
}

// at returns the entries of a path.
func (x *Index) at(path []byte) []entry {
	from := sort.Search(len(x.entries), func(i int) bool { return bytes.Compare(x.path(&x.entries[i]), path) >= 0 })
	of, _ := x.cut(x.entries[from:], path)
	return of
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
