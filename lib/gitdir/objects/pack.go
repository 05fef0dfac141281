package objects

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// entry is the header of an object in a pack.
type entry struct {
	kind   kind
	size   uint64 // inflated; of a delta: that of the delta itself
	base   oid    // refDelta
	offset uint64 // offsetDelta: position of the base
	data   uint64 // position of the compressed data
}

// maxEntryHeader is the longest header: a size, and an ID or an offset.
const maxEntryHeader = 10 + 32

var errEntry = errors.New("malformed pack entry")

// parseEntry reads the header of the entry at an offset.
func parseEntry(b []byte, at uint64, f Format) (entry, error) {
	if len(b) == 0 {
		return entry{}, errEntry
	}
	c := b[0]
	e := entry{kind: kind(c >> 4 & 7), size: uint64(c & 15)}
	n := 1
	for shift := 4; c&0x80 != 0; shift += 7 {
		if n == len(b) || shift > 53 {
			return entry{}, errEntry
		}
		c = b[n]
		e.size |= uint64(c&0x7f) << shift
		n++
	}
	switch {
	case e.kind.valid():
	case e.kind == refDelta && len(b) >= n+f.Size():
		e.base = f.oid(b[n:])
		n += f.Size()
	case e.kind == offsetDelta:
		back, used := parseBack(b[n:])
		if used == 0 || back == 0 || back > at {
			return entry{}, errEntry
		}
		e.offset = at - back
		n += used
	default:
		return entry{}, errEntry
	}
	e.data = at + uint64(n)
	return e, nil
}

// parseBack reads the distance to a base. It uses no bytes if it is malformed.
func parseBack(b []byte) (back uint64, used int) {
	for i, c := range b {
		if i == 8 {
			return 0, 0
		}
		if i > 0 {
			back++
		}
		back = back<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return back, i + 1
		}
	}
	return 0, 0
}

// appendHeader writes the header of an entry. back is the distance to the base of
// an offsetDelta.
func appendHeader(b []byte, k kind, size, back uint64) []byte {
	c := byte(k)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
	}
	b = append(b, c)
	if k != offsetDelta {
		return b
	}
	var rev []byte
	rev = append(rev, byte(back&0x7f))
	for back >>= 7; back > 0; back >>= 7 {
		back--
		rev = append(rev, byte(back&0x7f)|0x80)
	}
	for i := len(rev) - 1; i >= 0; i-- {
		b = append(b, rev[i])
	}
	return b
}

var errDelta = errors.New("malformed delta")

// deltaSizes reads the sizes that a delta begins with.
func deltaSizes(delta []byte) (base, result uint64, ops []byte, err error) {
	base, n := binary.Uvarint(delta)
	if n <= 0 || len(delta) < 4 { // git takes none that is shorter
		return 0, 0, nil, errDelta
	}
	result, m := binary.Uvarint(delta[n:])
	if m <= 0 {
		return 0, 0, nil, errDelta
	}
	return base, result, delta[n+m:], nil
}

// applyDelta makes an object out of its base.
func applyDelta(base, delta []byte, limit uint64) ([]byte, error) {
	baseSize, size, ops, err := deltaSizes(delta)
	switch {
	case err != nil:
		return nil, err
	case baseSize != uint64(len(base)):
		return nil, errDelta
	case size > limit:
		return nil, ErrTooLarge
	}
	// The size is only a claim: memory grows with the real result of the delta.
	out := make([]byte, 0, min(size, 1<<20+uint64(len(base))))
	for len(ops) > 0 {
		op := ops[0]
		ops = ops[1:]
		part := ops
		switch {
		case op&0x80 != 0:
			var from, n uint64
			if from, n, ops, err = copyOp(op, ops); err != nil || from > uint64(len(base)) || n > uint64(len(base))-from {
				return nil, errDelta
			}
			part = base[from : from+n]
		case op == 0 || int(op) > len(ops):
			return nil, errDelta
		default:
			part, ops = ops[:op], ops[op:]
		}
		if uint64(len(part)) > size-uint64(len(out)) {
			return nil, errDelta
		}
		out = append(out, part...)
	}
	if uint64(len(out)) != size {
		return nil, errDelta
	}
	return out, nil
}

func copyOp(op byte, ops []byte) (from, n uint64, rest []byte, err error) {
	for i := range 7 {
		if op>>i&1 == 0 {
			continue
		}
		if len(ops) == 0 {
			return 0, 0, nil, errDelta
		}
		if i < 4 {
			from |= uint64(ops[0]) << (8 * i)
		} else {
			n |= uint64(ops[0]) << (8 * (i - 4))
		}
		ops = ops[1:]
	}
	if n == 0 {
		n = 0x10000
	}
	return from, n, ops, nil
}

var inflaters = sync.Pool{}

// inflater returns a reader of a zlib stream. It reads no byte after the stream if r is
// an io.ByteReader.
func inflater(r io.Reader) (io.ReadCloser, error) {
	if z, ok := inflaters.Get().(io.ReadCloser); ok {
		return z, z.(zlib.Resetter).Reset(r, nil)
	}
	return zlib.NewReader(r)
}

// inflate returns the content of a zlib stream, whose size is known.
func inflate(r io.Reader, size uint64) ([]byte, error) {
	z, err := inflater(r)
	if err != nil {
		return nil, err
	}
	if size < 1<<16 { // for larger ones the size is only a claim
		out := make([]byte, size+1)
		n, err := io.ReadFull(z, out)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = nil
		}
		if err == nil && uint64(n) != size {
			err = fmt.Errorf("holds %s than its header says", more(uint64(n) > size))
		}
		if err != nil {
			return nil, err
		}
		inflaters.Put(z)
		return out[:n], nil
	}
	var out bytes.Buffer
	out.Grow(int(min(size, 1<<20)) + bytes.MinRead)
	n, err := io.Copy(&out, io.LimitReader(z, int64(size)+1))
	if err != nil {
		return nil, err
	}
	if uint64(n) != size {
		return nil, fmt.Errorf("holds %s than its header says", more(uint64(n) > size))
	}
	inflaters.Put(z)
	return out.Bytes(), nil
}

func more(than bool) string {
	if than {
		return "more"
	}
	return "less"
}
