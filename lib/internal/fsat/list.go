package fsat

import (
	"bytes"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// Entry is a name in a directory, neither "." nor "..".
type Entry struct {
	Name string
	Type byte // DT_DIR and so on; a hint, and DT_UNKNOWN on some file systems
	Ino  uint64
}

// bufferSize is how much getdents64(2) returns at once.
const bufferSize = 32 << 10

// buffers are for names, targets of links and content. Each page of a new one costs a page
// fault when it is used first, so one buffer is used again and again.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Each calls fn for each entry of an open directory, until an error. The package
// os looks entries up by the name that the directory once had.
func Each(dir int, fn func(Entry) error) error {
	for {
		entries, err := Next(dir)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, entry := range entries {
			if err := fn(entry); err != nil {
				return err
			}
		}
	}
}

// Next returns some of the entries of an open directory: none at its end.
func Next(dir int) ([]Entry, error) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := Again(func() (int, error) { return unix.ReadDirent(dir, buf[:]) })
		if err != nil || n <= 0 {
			return nil, err
		}
		entries := make([]Entry, 0, n/32)
		for rest := buf[:n]; len(rest) > 0; {
			var entry Entry
			entry, rest = parse(rest)
			if entry.Name != "" && entry.Name != "." && entry.Name != ".." {
				entries = append(entries, entry)
			}
		}
		if len(entries) > 0 {
			return entries, nil
		}
	}
}

// parse takes the first entry off a buffer that getdents64(2) filled.
func parse(buf []byte) (Entry, []byte) {
	const (
		lenAt  = 16 // after d_ino and d_off
		typeAt = 18
		nameAt = 19
	)
	if len(buf) <= nameAt {
		return Entry{}, nil
	}
	size := int(binary.NativeEndian.Uint16(buf[lenAt:]))
	if size <= nameAt || size > len(buf) {
		return Entry{}, nil // never seen: the kernel fills whole entries
	}
	name, _, _ := bytes.Cut(buf[nameAt:size], []byte{0})
	return Entry{string(name), buf[typeAt], binary.NativeEndian.Uint64(buf)}, buf[size:]
}
