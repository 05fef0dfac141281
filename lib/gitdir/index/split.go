package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strings"
)

// Join returns the text of an index of version 2 or 3, without extensions and checksum, that has the
// entries of a split index and of the shared one. A command may have made both.
//
// The format is in gitformat-index(5), "Split index", and git's Documentation/technical/bitmap-format.
func Join(split, shared []byte, hexLen int) ([]byte, error) {
	base, err := ParseHost(shared, hexLen)
	if err != nil {
		return nil, err
	}
	own, count, err := begin(split, hexLen)
	if err != nil {
		return nil, err
	}
	s := own.scanner()
	for range count {
		raw, err := s.next()
		if err != nil {
			return nil, err
		}
		e, err := own.keep(raw)
		if err != nil {
			return nil, err
		}
		own.entries = append(own.entries, e)
	}
	own.end = s.at
	var gone, replaced []int // entries of base
	err = extensions(own.extensions(), func(name string, body []byte) (err error) {
		if name != "link" || len(body) <= own.hashLen {
			return nil
		}
		if gone, body, err = bitmap(body[own.hashLen:], len(base.entries)); err == nil {
			replaced, _, err = bitmap(body, len(base.entries))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(replaced) > len(own.entries) {
		return nil, errShort
	}
	w := newWriter(own.hashLen)
	fresh := own.entries[len(replaced):]
	for i := range base.entries {
		e := &base.entries[i]
		for len(fresh) > 0 && compare(own, &fresh[0], base, e) < 0 {
			w.write(own, &fresh[0], own.path(&fresh[0]))
			fresh = fresh[1:]
		}
		n, is := slices.BinarySearch(replaced, i)
		_, without := slices.BinarySearch(gone, i)
		switch {
		case len(fresh) > 0 && compare(own, &fresh[0], base, e) == 0: // it takes its place
		case without:
		case is && own.entries[n].pathLength > 0:
			return nil, errors.New("a replacing entry has a path")
		case is:
			w.write(own, &own.entries[n], base.path(e))
		default:
			w.write(base, e, base.path(e))
		}
	}
	for i := range fresh {
		w.write(own, &fresh[i], own.path(&fresh[i]))
	}
	return w.text(), nil
}

// MayBeSplit reports whether an index may be a split one, without reading its entries.
func MayBeSplit(text []byte, hexLen int) bool {
	for {
		_, rest, is := bytes.Cut(text, []byte("link"))
		if !is || len(rest) < 4 {
			return false
		}
		if size := int64(binary.BigEndian.Uint32(rest)); size >= int64(hexLen/2) && size <= int64(len(rest)-4) {
			return true // else it is a part of a path
		}
		text = rest
	}
}

// bitmap returns the numbers below limit that a compressed bitmap has, and the text behind it.
func bitmap(text []byte, limit int) (set []int, rest []byte, err error) {
	if len(text) < 8 {
		return nil, nil, errShort
	}
	words := int64(binary.BigEndian.Uint32(text[4:]))
	text = text[8:]
	if words*8+4 > int64(len(text)) {
		return nil, nil, errShort
	}
	rest = text[words*8+4:] // behind the place of the last marker
	text = text[:words*8]
	next := func() uint64 {
		word := binary.BigEndian.Uint64(text)
		text = text[8:]
		return word
	}
	for at := 0; len(text) > 0; {
		marker := next()
		run, literals := int64(marker>>1&0xffffffff), marker>>33
		for i := 0; marker&1 != 0 && int64(i) < run*64 && at+i < limit; i++ {
			set = append(set, at+i)
		}
		at = int(min(int64(at)+run*64, int64(limit)))
		for ; literals > 0 && len(text) > 0; literals-- {
			for word := next(); word != 0; word &= word - 1 {
				if n := at + bits.TrailingZeros64(word); n < limit {
					set = append(set, n)
				}
			}
			at = min(at+64, limit)
		}
	}
	return set, rest, nil
}

// Of returns an index with these entries, which are at stage 0, without stat data.
func Of(entries []Entry, hexLen int) (*Index, error) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	w := newWriter(hexLen / 2)
	for _, e := range entries {
		if err := w.add(e); err != nil {
			return nil, err
		}
	}
	return ParseHost(w.text(), hexLen)
}
