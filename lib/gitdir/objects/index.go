package objects

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sort"
)

var errIndex = errors.New("not a pack index")

// index is a pack index, version 1 or 2. Its methods stay inside the data even if the
// data is wrong; then lookups only find nothing.
type index struct {
	size    int // of an ID
	n       int
	data    []byte
	version int
}

const (
	indexMagic  = "\xfftOc\x00\x00\x00\x02"
	fanoutBytes = 256 * 4
)

// parseIndex checks the frame of an index: fanout table and length.
func parseIndex(data []byte, f Format) (index, error) {
	x := index{size: f.Size(), data: data, version: 1}
	least := uint64(fanoutBytes + 2*x.size)
	if bytes.HasPrefix(data, []byte(indexMagic)) {
		x.version = 2
		least += 8
	}
	if uint64(len(data)) < least {
		return index{}, errIndex
	}
	last := uint32(0)
	for i := range 256 {
		next := x.fanout(i)
		if next < last {
			return index{}, errIndex
		}
		last = next
	}
	x.n = int(last)
	if x.version == 1 {
		least += uint64(x.n) * uint64(4+x.size)
	} else {
		least += uint64(x.n) * uint64(8+x.size)
	}
	if uint64(len(data)) < least || x.version == 1 && uint64(len(data)) != least {
		return index{}, errIndex
	}
	return x, nil
}

func (x *index) start() int {
	if x.version == 2 {
		return 8
	}
	return 0
}

func (x *index) fanout(i int) uint32 { return binary.BigEndian.Uint32(x.data[x.start()+4*i:]) }

// id returns the i-th ID.
func (x *index) id(i int) []byte {
	at := x.start() + fanoutBytes + i*x.size
	if x.version == 1 {
		at += (i + 1) * 4
	}
	return x.data[at : at+x.size]
}

// offset returns the position of the i-th object in the pack.
func (x *index) offset(i int) (uint64, bool) {
	if x.version == 1 {
		return uint64(binary.BigEndian.Uint32(x.data[fanoutBytes+i*(4+x.size):])), true
	}
	short := x.start() + fanoutBytes + x.n*(x.size+4)
	off := binary.BigEndian.Uint32(x.data[short+4*i:])
	if off&(1<<31) == 0 {
		return uint64(off), true
	}
	at := short + 4*x.n + 8*int(off&^(1<<31))
	if at+8 > len(x.data)-2*x.size {
		return 0, false
	}
	long := binary.BigEndian.Uint64(x.data[at:])
	return long, long < 1<<62
}

// find returns the offset of an object.
func (x *index) find(id []byte) (uint64, bool) {
	i := x.search(id)
	if i == x.n || !bytes.Equal(x.id(i), id) {
		return 0, false
	}
	return x.offset(i)
}

// search returns the first object whose ID is not less than id.
func (x *index) search(id []byte) int {
	lo := 0
	if id[0] > 0 {
		lo = int(x.fanout(int(id[0]) - 1))
	}
	n := int(x.fanout(int(id[0]))) - lo
	return lo + sort.Search(n, func(i int) bool { return bytes.Compare(x.id(lo+i), id) >= 0 })
}

// indexed is an object of a pack.
type indexed struct {
	id     oid
	offset uint64
	crc    uint32
}

// writeIndex returns an index of version 2, without its own checksum at the end.
func writeIndex(f Format, list []indexed, packSum []byte) []byte {
	slices.SortFunc(list, func(a, b indexed) int { return bytes.Compare(a.id[:], b.id[:]) })
	out := make([]byte, 0, 8+fanoutBytes+len(list)*(f.Size()+8)+2*f.Size())
	out = append(out, indexMagic...)
	n := 0
	for i := range 256 {
		for n < len(list) && int(list[n].id[0]) <= i {
			n++
		}
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	for _, e := range list {
		out = append(out, e.id[:f.Size()]...)
	}
	for _, e := range list {
		out = binary.BigEndian.AppendUint32(out, e.crc)
	}
	var long []byte
	for _, e := range list {
		off := uint32(e.offset)
		if e.offset >= 1<<31 {
			off = 1<<31 | uint32(len(long)/8)
			long = binary.BigEndian.AppendUint64(long, e.offset)
		}
		out = binary.BigEndian.AppendUint32(out, off)
	}
	out = append(out, long...)
	return append(out, packSum...)
}
