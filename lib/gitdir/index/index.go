// Package index reads git's index and checks it. Git does not check the paths of an index
// that it reads: an entry ".git/hooks/x" or "../x" makes `git checkout -- .` write there.
// So an index from a sandbox must pass Parse and Check before the host's git sees it.
// Versions 2, 3 and 4 are known, with SHA-1 and SHA-256.
package index

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// MaxSize bounds the size of an index, in bytes.
const MaxSize = 1 << 30

const (
	headerSize = 12 // signature, version, number of entries
	statSize   = 40 // of an entry, before its ID
	mtimeAt    = 8  // in these bytes
	modeAt     = 24
	sizeAt     = 36

	flagValid    = 0x8000
	flagExtended = 0x4000
	flagStage    = 0x3000
	flagLength   = 0x0fff

	extendedSkip   = 0x4000
	extendedIntent = 0x2000

	// maxPath is PATH_MAX: git cannot check out a longer path.
	maxPath = 4096

	// maxGrowth bounds the size of the paths of version 4 with their common prefixes written
	// out, as a multiple of the file's, and maxPaths in bytes. Real ones stay below 4.
	maxGrowth = 8
	maxPaths  = 256 << 20
)

// File types and modes that git stores.
const (
	ModeFile       = 0o100644
	ModeExecutable = 0o100755
	ModeLink       = 0o120000
	ModeGitlink    = 0o160000
	modeDirectory  = 0o040000 // of a sparse index
)

// SplitError is an index that only changes another one, the file Shared in the same
// directory.
type SplitError struct{ Shared string }

func (e *SplitError) Error() string { return "it is a split index" }

// Entry is a path in the index, at one of the stages 0 to 3.
type Entry struct {
	Path  string
	ID    string // lower-case hexadecimal
	Mode  uint32 // file type and permissions, such as ModeFile
	Stage int    // 0, or 1 to 3 in a conflict
	Flags
}

// Flags are those that a user can set.
type Flags struct{ AssumeValid, SkipWorktree, IntentToAdd bool }

// Index is a parsed index.
type Index struct {
	Version int // 2, 3 or 4

	data    []byte
	paths   []byte // data; of version 4: the whole paths, one after the other
	hashLen int
	entries []entry
	end     int // of the entries in data
	trees   []byte
	ids     []string // of trees
	tree    string   // of all entries, or ""
	kept    bool     // data is what Encode returns

	// Of an index that Parse has compared with the host's:
	host     *Index // the host's, with those of its entries alone that differ
	hostRoot *cacheTree
	gaps     []gap
}

// gap is a run of entries that the host's index does not have byte for byte, and the host's
// in their place. One of the two may be empty.
type gap struct{ own, host []entry }

// entry has no pointers: there may be a million of them.
type entry struct {
	at         uint32 // in data
	mode       uint32
	path       uint32 // in paths
	pathLength uint16
	stage      uint8
	known      bool // the host's index has it too, byte for byte
	seen       bool // look has found its stat data
}

// Parse reads an index whose object IDs have hexLen digits: 40 or 64. It keeps data, which
// Reveal and Encode change. An index that git itself would not write is an error, as is a
// split index: SplitError.
//
// host is the text of the host's index, which this one may replace, or nil. It is trusted:
// an error in it is a HostError, and its checksum and trees are not verified, nor does the
// host's git do that. Of entries that it has too, Check checks only their relation to the
// others.
func Parse(data []byte, hexLen int, host []byte) (*Index, error) {
	checked := make(chan checksum, 1)
	go func() { checked <- checksumOf(data, hexLen/2) }() // it takes as long as the rest
	x, err := parse(data, hexLen, host)
	sum := <-checked
	if err == nil && sum == wrong {
		err = errors.New("the checksum is wrong")
	}
	if err == nil {
		err = x.checkExtensions()
	}
	if err != nil {
		return nil, err
	}
	x.kept = x.kept && sum == right
	return x, nil
}

// ParseHost reads a trusted index. It does not verify its checksum and its trees.
func ParseHost(data []byte, hexLen int) (*Index, error) {
	x, err := parse(data, hexLen, nil)
	if err != nil {
		return nil, err
	}
	return x, extensions(x.extensions(), func(name string, body []byte) error {
		if name == "link" {
			return splitError(body, x.hashLen)
		}
		return nil
	})
}

// HostError is an error in the host's index.
type HostError struct{ Err error }

func (e *HostError) Error() string { return fmt.Sprintf("the host's index: %v", e.Err) }

func (e *HostError) Unwrap() error { return e.Err }

func parse(data []byte, hexLen int, host []byte) (*Index, error) {
	x, count, err := begin(data, hexLen)
	if err != nil {
		return nil, err
	}
	h, err := readHost(host, hexLen)
	if err != nil {
		return nil, err
	}
	if err := x.parseEntries(count, h); err != nil {
		var split *SplitError // its entries have empty paths
		if _, cause := GitlinksOf(data, hexLen); errors.As(cause, &split) {
			return nil, split
		}
		return nil, err
	}
	x.host = h.index
	x.hostRoot, err = h.trees()
	if split := new(SplitError); errors.As(err, &split) {
		return parse(data, hexLen, nil) // each entry is a new one then
	}
	return x, err
}

// begin reads the header.
func begin(data []byte, hexLen int) (x *Index, count int, err error) {
	x = &Index{data: data, paths: data, hashLen: hexLen / 2, kept: true}
	if count, err = header(data, hexLen); err != nil {
		return nil, 0, err
	}
	if x.Version = versionOf(data); x.Version == 4 {
		x.paths = nil
	}
	return x, count, nil
}

// Begins reports whether a file that begins with these bytes may be an index.
func Begins(start []byte) bool { return bytes.HasPrefix(start, []byte("DIRC")) }

// header checks signature, version and size, and returns the number of entries.
func header(data []byte, hexLen int) (int, error) {
	if hexLen != 2*sha1.Size && hexLen != 2*sha256.Size {
		return 0, fmt.Errorf("internal error: object IDs of %d digits", hexLen)
	}
	if !Begins(data) {
		return 0, fmt.Errorf("bad signature %q", data[:min(4, len(data))])
	}
	if len(data) < headerSize+hexLen/2 || uint64(len(data)) > math.MaxUint32 {
		return 0, fmt.Errorf("an index has no %d bytes", len(data))
	}
	if !knownVersion(data) {
		return 0, fmt.Errorf("unknown version %d", versionOf(data))
	}
	count := binary.BigEndian.Uint32(data[8:])
	if uint64(count) > uint64(len(data)/(statSize+hexLen/2+2)) {
		return 0, fmt.Errorf("%d entries in %d bytes", count, len(data))
	}
	return int(count), nil
}

func versionOf(data []byte) int { return int(binary.BigEndian.Uint32(data[4:])) }

func knownVersion(data []byte) bool { return versionOf(data) >= 2 && versionOf(data) <= 4 }

type checksum int

const (
	wrong checksum = iota
	right
	none // with git's option index.skipHash, which git before 2.40 does not read
)

// checksumOf verifies the hash at the end of the file.
func checksumOf(data []byte, hashLen int) checksum {
	if len(data) < hashLen {
		return wrong
	}
	body, sum := data[:len(data)-hashLen], data[len(data)-hashLen:]
	switch {
	case bytes.Count(sum, []byte{0}) == hashLen:
		return none
	case bytes.Equal(hash(hashLen, body), sum):
		return right
	}
	return wrong
}

// Version tells two indexes apart, if their checksums are right: by these, or without by a
// digest of all.
func Version(data []byte) string {
	sum := data[max(0, len(data)-sha1.Size):]
	if bytes.Count(sum, []byte{0}) == len(sum) {
		all := sha256.Sum256(data)
		sum = all[:]
	}
	return hex.EncodeToString(sum)
}

func (x *Index) hash(data ...[]byte) []byte { return hash(x.hashLen, data...) }

func hash(size int, data ...[]byte) []byte {
	h := sha1.New()
	if size == sha256.Size {
		h = sha256.New()
	}
	for _, d := range data {
		h.Write(d)
	}
	return h.Sum(nil)
}

// parseEntries compares the bytes of the entries with those of the host's next ones. In
// version 4 the same bytes after another path mean another path.
func (x *Index) parseEntries(count int, host *hostReader) error {
	s := x.scanner()
	x.entries = make([]entry, 0, count)
	alike := x.Version == host.index.Version && x.Version != 4
	from, hostFrom := 0, 0 // of the gap
	endGap := func() {
		if g := (gap{x.entries[from:], host.index.entries[hostFrom:]}); len(g.own)+len(g.host) > 0 {
			x.gaps = append(x.gaps, g)
		}
	}
	for i := range count {
		raw, err := s.next()
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		e, err := x.keep(raw)
		if err != nil {
			return err
		}
		if e.known = alike && host.skip(s.data[raw.at:s.at]); e.known {
			endGap()
			from, hostFrom = i+1, len(host.index.entries)
		} else if err := host.upTo(x, &e); err != nil {
			return err
		}
		x.entries = append(x.entries, e)
		if i > 0 && !x.before(&x.entries[i-1], &x.entries[i]) {
			return fmt.Errorf("entry %d: %q is not in order", i, x.path(&x.entries[i]))
		}
	}
	x.end = s.at
	if err := host.upTo(nil, nil); err != nil {
		return err
	}
	endGap()
	return nil
}

func (x *Index) scanner() scanner {
	return scanner{data: x.data[:len(x.data)-x.hashLen], hashLen: x.hashLen, version: x.Version, at: headerSize}
}

// keep converts an entry as it was read.
func (x *Index) keep(raw rawEntry) (entry, error) {
	e := entry{at: uint32(raw.at), mode: raw.mode, path: uint32(raw.pathAt), pathLength: uint16(len(raw.path)), stage: uint8(raw.flags & flagStage >> 12)}
	if x.Version == 4 {
		if e.path = uint32(len(x.paths)); len(x.paths)+len(raw.path) > min(maxGrowth*len(x.data), maxPaths) {
			return e, errors.New("its paths are too long")
		}
		x.paths = append(x.paths, raw.path...)
	}
	return e, nil
}

// hostReader reads the entries of the host's index beside those of another one.
type hostReader struct {
	index   *Index // with the entries that the other one does not have, byte for byte
	scanner scanner
	left    int
	next    entry // if ahead is set: the scanner has passed it
	ahead   bool
}

func readHost(data []byte, hexLen int) (*hostReader, error) {
	if len(data) == 0 { // git treats an empty index as none
		return &hostReader{index: new(Index)}, nil
	}
	x, count, err := begin(data, hexLen)
	if err != nil {
		return nil, &HostError{err}
	}
	return &hostReader{index: x, scanner: x.scanner(), left: count}, nil
}

// skip passes over the next entry if it has these bytes.
func (h *hostReader) skip(text []byte) bool {
	at := h.scanner.at
	if h.ahead {
		at = int(h.next.at)
	}
	if h.left == 0 || !bytes.HasPrefix(h.scanner.data[at:], text) {
		return false
	}
	h.scanner.at, h.ahead, h.left = at+len(text), false, h.left-1
	return true
}

// upTo keeps the entries up to one of another index, or all if e is nil.
func (h *hostReader) upTo(x *Index, e *entry) error {
	for ; h.left > 0; h.left-- {
		if !h.ahead {
			raw, err := h.scanner.next()
			if err == nil {
				h.next, err = h.index.keep(raw)
			}
			if err != nil {
				return &HostError{err}
			}
			h.ahead = true
		}
		if e != nil && compare(h.index, &h.next, x, e) > 0 {
			return nil
		}
		h.index.entries, h.ahead = append(h.index.entries, h.next), false
	}
	return nil
}

// trees reads the extensions behind the entries.
func (h *hostReader) trees() (root *cacheTree, err error) {
	x := h.index
	if x.data == nil {
		return nil, nil
	}
	x.end = h.scanner.at
	err = extensions(x.extensions(), func(name string, body []byte) error {
		switch {
		case name == "link":
			return splitError(body, x.hashLen)
		case name == "TREE":
			root = x.parseTrees(body)
		}
		return nil
	})
	if err != nil {
		return nil, &HostError{err}
	}
	return root, nil
}

// before reports whether git accepts b directly after a. A merged path (stage 0)
// has no other stage.
func (x *Index) before(a, b *entry) bool {
	if c := bytes.Compare(x.path(a), x.path(b)); c != 0 {
		return c < 0
	}
	return a.stage != 0 && a.stage < b.stage
}

// Has reports whether there is an entry at a path, or below it.
func (x *Index) Has(path string) bool {
	at := func(path string) int {
		i, _ := slices.BinarySearchFunc(x.entries, path, func(e entry, path string) int { return strings.Compare(string(x.path(&e)), path) })
		return i
	}
	starts := func(i int, path string) bool {
		return i < len(x.entries) && strings.HasPrefix(string(x.path(&x.entries[i])), path)
	}
	i := at(path)
	return starts(i, path) && len(x.path(&x.entries[i])) == len(path) || starts(at(path+"/"), path+"/")
}

// Get returns the first entry of a path, the zero Entry if there is none.
func (x *Index) Get(path string) Entry {
	if of := x.at([]byte(path)); len(of) > 0 {
		return x.entry(&of[0])
	}
	return Entry{}
}

func (x *Index) entry(e *entry) Entry {
	return Entry{Path: string(x.path(e)), ID: hex.EncodeToString(x.id(e)), Mode: e.mode, Stage: int(e.stage), Flags: x.flags(e)}
}

func (x *Index) path(e *entry) []byte { return x.paths[e.path:][:e.pathLength] }

func (x *Index) id(e *entry) []byte { return x.data[e.at+statSize:][:x.hashLen] }

func (x *Index) extensions() []byte { return x.data[x.end : len(x.data)-x.hashLen] }

func (x *Index) flags(e *entry) Flags {
	at := x.data[int(e.at)+statSize+x.hashLen:]
	first := binary.BigEndian.Uint16(at)
	f := Flags{AssumeValid: first&flagValid != 0}
	if first&flagExtended != 0 {
		more := binary.BigEndian.Uint16(at[2:])
		f.SkipWorktree, f.IntentToAdd = more&extendedSkip != 0, more&extendedIntent != 0
	}
	return f
}

// SameContent reports whether two indexes differ at most in version, stat data and
// extensions.
func SameContent(a, b *Index) bool { return a.alike(a.entries, b, b.entries) }

// alike is SameContent of some entries.
func (x *Index) alike(entries []entry, other *Index, others []entry) bool {
	if len(entries) != len(others) {
		return false
	}
	for i := range entries {
		e, f := &entries[i], &others[i]
		if compare(x, e, other, f) != 0 || !x.isSame(e, other, f) || x.flags(e) != other.flags(f) {
			return false
		}
	}
	return true
}

// Differences returns the entries that the host's index does not have with the same path,
// stage, mode and ID; and the other way round.
func (x *Index) Differences() (changed, old []Entry) {
	for _, g := range x.gaps {
		changed = append(changed, x.changed(g.own, x.host, g.host)...)
		old = append(old, x.host.changed(g.host, x, g.own)...)
	}
	return changed, old
}

// Paths lists the paths of a whole index, several times in a conflict.
func (x *Index) Paths(yield func(path string) bool) {
	for i := range x.entries {
		if !yield(string(x.path(&x.entries[i]))) {
			return
		}
	}
}

// Changed returns the entries that base does not have with the same path, stage,
// mode and ID.
func (x *Index) Changed(base *Index) []Entry { return x.changed(x.entries, base, base.entries) }

func (x *Index) changed(entries []entry, base *Index, old []entry) []Entry {
	var changed []Entry
	for i := range entries {
		e := &entries[i]
		order := -1
		for len(old) > 0 {
			if order = compare(base, &old[0], x, e); order >= 0 {
				break
			}
			old = old[1:]
		}
		if len(old) == 0 || order != 0 || !x.isSame(e, base, &old[0]) {
			changed = append(changed, x.entry(e))
		}
	}
	return changed
}

// isSame reports whether an entry has the mode and ID of one of base.
func (x *Index) isSame(e *entry, base *Index, old *entry) bool {
	return e.mode == old.mode && bytes.Equal(x.id(e), base.id(old))
}

// compare compares an entry of a with one of b.
func compare(a *Index, e *entry, b *Index, f *entry) int {
	return cmp.Or(bytes.Compare(a.path(e), b.path(f)), cmp.Compare(e.stage, f.stage))
}

// Encode returns the index for the host, in place of the data: all of it if it may stay. Of
// the extensions it keeps only a verified TREE. Others are caches that git makes again, or,
// as EOIE and IEOT, offsets into the file, by which two programs can read different
// entries. The Index ends with that.
func (x *Index) Encode() []byte {
	if x.kept {
		return x.data
	}
	out := x.data[:x.end]
	if trees := x.trees; len(trees) > 0 { // they lie behind
		size := len(trees)
		copy(x.data[x.end+8:], trees)
		out = append(out, "TREE"...)
		out = binary.BigEndian.AppendUint32(out, uint32(size))
		out = out[:len(out)+size]
	}
	return append(out, x.hash(out)...)
}
