package index

import (
	"bytes"
	"encoding/binary"
	"time"
)

// Reveal makes git on the host look at each file that a command may have changed. Git does
// not open a file that has the times, size and inode in its entry, or whose entry is marked
// as unchanged or skipped, and a command can write all of these.
//
// So an entry gets the stat data of the host's entry of the same path, mode and ID: no
// process can give another file its ctime. If the command's has another size, the content
// passes a filter or has other line ends: git opens the file at size 0, and at another wrong
// size takes it for changed. Without such an entry it gets none, as after git read-tree. It
// keeps a mark that the host's entry has too, or that the host's sparse
// checkout gives to its path.
//
// written is the time of the host's index. Git opens a file that is not older than its
// index, even if all times match: it may have changed since. In an index of another time
// such an entry gets the size 0, with which git opens the file too.
//
// unmarked are the paths that have lost a mark. same reports that the host's index, with
// which this one was parsed, has nothing else.
func (x *Index) Reveal(written time.Time, sparse func(path string) bool) (same bool, unmarked []string) {
	same = true
	host := x.host
	for _, g := range x.gaps {
		theirs := g.host
		same = same && len(g.own) == len(theirs)
		for i := range g.own {
			e := &g.own[i]
			for len(theirs) > 0 && compare(host, &theirs[0], x, e) < 0 {
				theirs = theirs[1:]
			}
			var old *entry
			if len(theirs) > 0 && compare(host, &theirs[0], x, e) == 0 {
				old = &theirs[0]
			}
			if x.reveal(e, old, sparse) {
				unmarked = append(unmarked, string(x.path(e)))
			}
			same = same && old != nil && x.isSame(e, host, old) && x.flags(e) == host.flags(old) && x.size(e) == host.size(old)
		}
	}
	for i := range x.entries {
		stat := x.data[x.entries[i].at:][:statSize]
		if int64(binary.BigEndian.Uint32(stat[mtimeAt:])) >= written.Unix() && binary.BigEndian.Uint32(stat[sizeAt:]) > 0 {
			clear(x.edit(&x.entries[i])[sizeAt:statSize])
		}
	}
	return same, unmarked
}

// reveal changes one entry. old is that of the host, or nil. It reports whether a mark is
// gone.
func (x *Index) reveal(e, old *entry, sparse func(path string) bool) bool {
	var stat [statSize]byte
	binary.BigEndian.PutUint32(stat[modeAt:], e.mode)
	var marks Flags
	if old != nil {
		marks = x.host.flags(old)
		if x.isSame(e, x.host, old) {
			copy(stat[:], x.host.data[old.at:])
			if x.size(e) != x.host.size(old) {
				clear(stat[sizeAt:])
			}
		}
	}
	f := x.flags(e)
	noValid := f.AssumeValid && !marks.AssumeValid
	noSkip := f.SkipWorktree && !marks.SkipWorktree && !sparse(string(x.path(e)))
	if !noValid && !noSkip && bytes.Equal(x.data[e.at:][:statSize], stat[:]) {
		return false
	}
	raw := x.edit(e)
	copy(raw, stat[:])
	flags := raw[statSize+x.hashLen:]
	if noValid {
		flags[0] &^= flagValid >> 8
	}
	if noSkip {
		flags[2] &^= extendedSkip >> 8
	}
	return noValid || noSkip
}

func (x *Index) size(e *entry) uint32 { return binary.BigEndian.Uint32(x.data[e.at+sizeAt:]) }

// edit returns the bytes from an entry on, to be changed.
func (x *Index) edit(e *entry) []byte {
	x.kept = false
	return x.data[e.at:]
}
