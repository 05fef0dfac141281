// Package index reads git's index and judges it. Git does not check the paths of
// an index that it reads: an entry ".git/hooks/x" or "../x" makes `git checkout -- .`
// write there. So an index from a sandbox must pass Parse and Check before the
// host's git sees it. Versions 2, 3 and 4 are known, with SHA-1 and SHA-256.
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
)

const (
	headerSize = 12 // signature, version, number of entries
	statSize   = 40 // of an entry, before its ID; the mode is at modeAt
	modeAt     = 24

	flagValid    = 0x8000
	flagExtended = 0x4000
	flagStage    = 0x3000
	flagLength   = 0x0fff

	extendedSkip   = 0x4000
	extendedIntent = 0x2000

	// maxPath is PATH_MAX: git cannot check out a longer path.
	maxPath = 4096

	// maxGrowth bounds what the paths of version 4 may grow to when their common
	// prefixes are written out, as a multiple of the file. Real ones stay below 4.
	maxGrowth = 16
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
	hashLen int
	entries []entry
	end     int // of the entries in data
	trees   []byte
	ids     []string // of trees
	kept    bool     // data holds nothing that Encode leaves out
}

type entry struct {
	path  string
	at    int // in data
	mode  uint32
	stage int
}

// Parse reads an index whose object IDs have hexLen digits: 40 or 64. It keeps
// data. An index that git itself would not write is an error, as is a split index:
// SplitError.
func Parse(data []byte, hexLen int) (*Index, error) {
	x := &Index{data: data, hashLen: hexLen / 2, kept: true}
	count, err := header(data, hexLen)
	if err != nil {
		return nil, err
	}
	x.Version = int(binary.BigEndian.Uint32(data[4:]))
	if err := x.checksum(); err != nil {
		return nil, err
	}
	if err := x.parseEntries(count); err != nil {
		var split *SplitError // its entries have empty paths
		if _, cause := GitlinksOf(data, hexLen); errors.As(cause, &split) {
			return nil, split
		}
		return nil, err
	}
	if err := x.parseExtensions(); err != nil {
		return nil, err
	}
	return x, nil
}

// header checks signature, version and size, and returns the number of entries.
func header(data []byte, hexLen int) (int, error) {
	if hexLen != 2*sha1.Size && hexLen != 2*sha256.Size {
		return 0, fmt.Errorf("internal error: object IDs of %d digits", hexLen)
	}
	if len(data) < headerSize+hexLen/2 || uint64(len(data)) > math.MaxUint32 {
		return 0, fmt.Errorf("an index has no %d bytes", len(data))
	}
	if string(data[:4]) != "DIRC" {
		return 0, fmt.Errorf("bad signature %q", data[:4])
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return 0, fmt.Errorf("unknown version %d", version)
	}
	if uint64(count) > uint64(len(data)/(statSize+hexLen/2+2)) {
		return 0, fmt.Errorf("%d entries in %d bytes", count, len(data))
	}
	return int(count), nil
}

// checksum verifies the hash at the end of the file. It is null with git's option
// index.skipHash, which git before 2.40 does not read: Encode writes a real one.
func (x *Index) checksum() error {
	body, sum := x.data[:len(x.data)-x.hashLen], x.data[len(x.data)-x.hashLen:]
	if bytes.Count(sum, []byte{0}) == x.hashLen {
		x.kept = false
		return nil
	}
	if !bytes.Equal(x.hash(body), sum) {
		return errors.New("the checksum is wrong")
	}
	return nil
}

func (x *Index) hash(data ...[]byte) []byte {
	h := sha1.New()
	if x.hashLen == sha256.Size {
		h = sha256.New()
	}
	for _, d := range data {
		h.Write(d)
	}
	return h.Sum(nil)
}

func (x *Index) parseEntries(count int) error {
	s := scanner{data: x.data[:len(x.data)-x.hashLen], hashLen: x.hashLen, version: x.Version, at: headerSize}
	x.entries = make([]entry, 0, count)
	arena, grown := string(s.data), 0 // paths of versions 2 and 3 are parts of it
	for i := range count {
		raw, err := s.next()
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		e := entry{at: raw.at, mode: raw.mode, stage: int(raw.flags&flagStage) >> 12}
		if x.Version == 4 {
			if grown += len(raw.path); grown > maxGrowth*len(x.data) {
				return errors.New("its paths are too long")
			}
			e.path = string(raw.path)
		} else {
			e.path = arena[raw.pathAt:][:len(raw.path)]
		}
		if i > 0 && !before(&x.entries[i-1], &e) {
			return fmt.Errorf("entry %d: %q is not in order", i, e.path)
		}
		x.entries = append(x.entries, e)
	}
	x.end = s.at
	return nil
}

// before reports whether git accepts b directly after a. A merged path (stage 0)
// has no other stage.
func before(a, b *entry) bool {
	if a.path != b.path {
		return a.path < b.path
	}
	return a.stage != 0 && a.stage < b.stage
}

func (x *Index) entry(e *entry) Entry {
	return Entry{Path: e.path, ID: hex.EncodeToString(x.id(e)), Mode: e.mode, Stage: e.stage, Flags: x.flags(e)}
}

func (x *Index) id(e *entry) []byte { return x.data[e.at+statSize:][:x.hashLen] }

func (x *Index) flags(e *entry) Flags {
	at := x.data[e.at+statSize+x.hashLen:]
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
func SameContent(a, b *Index) bool {
	if len(a.entries) != len(b.entries) {
		return false
	}
	for i := range a.entries {
		e, f := &a.entries[i], &b.entries[i]
		if compare(e, f) != 0 || e.mode != f.mode || !bytes.Equal(a.id(e), b.id(f)) || a.flags(e) != b.flags(f) {
			return false
		}
	}
	return true
}

// Changed returns the entries that base does not have with the same path, stage,
// mode and ID.
func (x *Index) Changed(base *Index) []Entry {
	var changed []Entry
	old := base.entries
	for i := range x.entries {
		e := &x.entries[i]
		for len(old) > 0 && compare(&old[0], e) < 0 {
			old = old[1:]
		}
		if len(old) > 0 && compare(&old[0], e) == 0 && old[0].mode == e.mode && bytes.Equal(base.id(&old[0]), x.id(e)) {
			continue
		}
		changed = append(changed, x.entry(e))
	}
	return changed
}

func compare(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.stage, b.stage))
}

// Encode returns the index for the host: data itself if all of it may stay. Of the
// extensions only a verified TREE is kept. Others are caches that git makes again,
// or tell git where to look in the file and so what to see: EOIE and IEOT, in
// which two programs can read different entries.
func (x *Index) Encode() []byte {
	if x.kept {
		return x.data
	}
	out := make([]byte, 0, x.end+8+len(x.trees)+x.hashLen)
	out = append(out, x.data[:x.end]...)
	if len(x.trees) > 0 {
		out = append(out, "TREE"...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(x.trees)))
		out = append(out, x.trees...)
	}
	return append(out, x.hash(out)...)
}
