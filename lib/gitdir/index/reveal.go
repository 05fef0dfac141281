package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"time"

	"golang.org/x/sys/unix"
)

// Reveal makes git on the host look at each file that a command may have changed. Git does
// not open a file that has the times, size and inode in its entry, or whose entry is marked
// as unchanged or skipped, and a command can write all of these.
//
// So an entry gets the stat data that look finds for its file, if the command's git has seen
// another one than the host's. Without such data it gets those of the host's entry of the same
// path, mode and ID: no process can give another file its ctime. If the command's has another
// size, the content passes a filter or has other line ends: git opens the file at size 0, and at
// another wrong size takes it for changed. Without such an entry it gets none, as after git
// read-tree. It keeps a mark that the host's entry has too, or that the host's sparse
// checkout gives to its path.
//
// before is the time of the host's index, and written that of this one, which look may make
// earlier. Git opens a file that is not older than its index, even if all times match: it may
// have changed since. An entry for which that held in the host's index and does not in this one
// gets the size 0, with which git opens the file too, or what look finds.
//
// unmarked are the paths that have lost a mark. same reports that the host's index, with
// which this one was parsed, has nothing else.
func (x *Index) Reveal(before time.Time, written *time.Time, sparse func(path string) bool, look Look) (same bool, unmarked []string) {
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
			if x.reveal(e, old, sparse, look) {
				unmarked = append(unmarked, string(x.path(e)))
			}
			same = same && old != nil && x.isSame(e, host, old) && x.flags(e) == host.flags(old) && x.size(e) == host.size(old) &&
				(!e.seen || bytes.Equal(x.stat(e), host.stat(old)))
		}
	}
	var racy []*entry
	for i := range x.entries {
		e := &x.entries[i]
		if changed := x.changedAt(e); !e.seen && changed >= before.Unix() && changed < written.Unix() && x.size(e) > 0 {
			if stat := x.look(e, look); stat != nil {
				copy(x.edit(e), stat)
			} else {
				racy = append(racy, e)
			}
		}
	}
	for _, e := range racy {
		if x.changedAt(e) < written.Unix() {
			clear(x.edit(e)[sizeAt:statSize])
		}
	}
	return same, unmarked
}

// Look returns the stat data with which git does not open the file at a path of the work tree,
// if that has the content with an ID and cannot change unseen. Else it returns nil.
type Look func(path string, mode uint32, id string) *unix.Stat_t

// look returns the stat data of an entry's file, or nil.
func (x *Index) look(e *entry, look Look) []byte {
	if look == nil || e.stage != 0 || e.mode == ModeGitlink || x.flags(e) != (Flags{}) {
		return nil
	}
	st := look(string(x.path(e)), e.mode, hex.EncodeToString(x.id(e)))
	if st == nil {
		return nil
	}
	e.seen = true
	var stat []byte
	for _, v := range []uint32{
		uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec),
		uint32(st.Dev), uint32(st.Ino), e.mode, st.Uid, st.Gid, uint32(st.Size),
	} {
		stat = binary.BigEndian.AppendUint32(stat, v)
	}
	return stat
}

// reveal changes one entry. old is that of the host, or nil. It reports whether a mark is
// gone.
func (x *Index) reveal(e, old *entry, sparse func(path string) bool, look Look) bool {
	stat := make([]byte, statSize)
	binary.BigEndian.PutUint32(stat[modeAt:], e.mode)
	var marks Flags
	if old != nil {
		marks = x.host.flags(old)
		if x.isSame(e, x.host, old) {
			copy(stat, x.host.stat(old))
			if x.size(e) != x.host.size(old) {
				clear(stat[sizeAt:])
			}
		}
	}
	f := x.flags(e)
	noValid := f.AssumeValid && !marks.AssumeValid
	noSkip := f.SkipWorktree && !marks.SkipWorktree && !sparse(string(x.path(e)))
	if !noValid && !noSkip && bytes.Equal(x.stat(e), stat) {
		return false
	}
	if seen := x.look(e, look); seen != nil {
		stat = seen
	}
	raw := x.edit(e)
	copy(raw, stat)
	flags := raw[statSize+x.hashLen:]
	if noValid {
		flags[0] &^= flagValid >> 8
	}
	if noSkip {
		flags[2] &^= extendedSkip >> 8
	}
	return noValid || noSkip
}

func (x *Index) stat(e *entry) []byte { return x.data[e.at:][:statSize] }

// changedAt is the time of the last change of an entry's file.
func (x *Index) changedAt(e *entry) int64 {
	return int64(binary.BigEndian.Uint32(x.data[e.at+mtimeAt:]))
}

func (x *Index) size(e *entry) uint32 { return binary.BigEndian.Uint32(x.data[e.at+sizeAt:]) }

// edit returns the bytes from an entry on, to be changed.
func (x *Index) edit(e *entry) []byte {
	x.kept = false
	return x.data[e.at:]
}
