package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

var errShort = errors.New("it ends too early")

// scanner reads entries one after the other.
type scanner struct {
	data    []byte // without the checksum
	hashLen int
	version int
	at      int
	path    []byte // of version 4, which stores how a path differs from the last
}

type rawEntry struct {
	at, pathAt int
	mode       uint32
	flags      uint16
	path       []byte // valid until the next entry is read
}

// next reads an entry. Git trusts a wrong length of a path and then reads past its end,
// so the length must be right.
func (s *scanner) next() (rawEntry, error) {
	e := rawEntry{at: s.at, pathAt: s.at + statSize + s.hashLen + 2}
	if e.pathAt > len(s.data) {
		return e, errShort
	}
	e.mode = binary.BigEndian.Uint32(s.data[s.at+modeAt:])
	e.flags = binary.BigEndian.Uint16(s.data[e.pathAt-2:])
	if e.flags&flagExtended != 0 {
		if e.pathAt += 2; e.pathAt > len(s.data) {
			return e, errShort
		}
		more := binary.BigEndian.Uint16(s.data[e.pathAt-2:])
		if s.version < 3 || more&^(extendedSkip|extendedIntent) != 0 {
			return e, errors.New("unknown flags")
		}
	}
	if s.version == 4 {
		return s.difference(e)
	}
	return s.whole(e)
}

// padding follows a path of version 2 or 3.
var padding [8]byte

// whole reads a path of version 2 or 3, with NUL up to a multiple of eight bytes.
func (s *scanner) whole(e rawEntry) (rawEntry, error) {
	length := int(e.flags & flagLength)
	if length == flagLength {
		length = bytes.IndexByte(s.data[e.pathAt:], 0)
	}
	if length < 0 || length > len(s.data)-e.pathAt {
		return e, errShort
	}
	e.path = s.data[e.pathAt:][:length]
	s.at = e.at + (e.pathAt-e.at+length+8)&^7
	if s.at > len(s.data) {
		return e, errShort
	}
	if bytes.IndexByte(e.path, 0) >= 0 || !bytes.Equal(s.data[e.pathAt+length:s.at], padding[:s.at-e.pathAt-length]) {
		return e, errors.New("wrong length of the path")
	}
	return e, checkLength(e)
}

// difference reads a path of version 4: the number of bytes that the last path loses at
// its end, and the new end.
func (s *scanner) difference(e rawEntry) (rawEntry, error) {
	strip, n := varint(s.data[e.pathAt:])
	if n == 0 || strip > len(s.path) {
		return e, errors.New("wrong prefix of the path")
	}
	rest := s.data[e.pathAt+n:]
	length := bytes.IndexByte(rest, 0)
	if length < 0 {
		return e, errShort
	}
	s.path = append(s.path[:len(s.path)-strip], rest[:length]...)
	s.at = e.pathAt + n + length + 1
	e.path = s.path
	return e, checkLength(e)
}

func checkLength(e rawEntry) error {
	switch {
	case len(e.path) > maxPath:
		return errors.New("the path is too long")
	case min(len(e.path), flagLength) != int(e.flags&flagLength):
		return errors.New("wrong length of the path")
	}
	return nil
}

// varint reads git's variable-width number, and returns its size: 0 if it is wrong.
func varint(data []byte) (value, size int) {
	for i, b := range data {
		value = value<<7 | int(b&0x7f)
		if b&0x80 == 0 {
			return value, i + 1
		}
		if value++; value > maxPath {
			break
		}
	}
	return 0, 0
}

// MayHaveGitlinks reports whether a trusted index may have gitlinks, or be a split one. It
// looks for their bytes wherever they are: in an index of 20 000 entries, GitlinksOf takes
// ten times as long. An index of an unknown version may have them too.
func MayHaveGitlinks(r io.Reader) (bool, error) {
	block, kept := make([]byte, 1<<16), 0
	n, err := io.ReadAtLeast(r, block, headerSize)
	if n < headerSize || !Begins(block) || !knownVersion(block) {
		return true, nil // GitlinksOf has the error
	}
	for ; ; n, err = r.Read(block[kept:]) {
		data := block[:kept+n]
		if hasGitlink(data) || bytes.Contains(data, []byte("link\x00")) { // the extension has less than 16 MiB
			return true, nil
		}
		kept = copy(block, data[max(0, len(data)-4):])
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// hasGitlink looks for the mode of a gitlink by its byte that is the rarest.
func hasGitlink(data []byte) bool {
	for at := 2; at < len(data); at++ {
		next := bytes.IndexByte(data[at:], ModeGitlink>>8)
		if next < 0 {
			break
		}
		at += next
		if data[at-2] == 0 && data[at-1] == 0 && at+1 < len(data) && data[at+1] == 0 {
			return true
		}
	}
	return false
}

// GitlinksOf returns the paths of the gitlinks of a trusted index, in order, and checks
// nothing else of it. With a SplitError it returns only those of this file.
func GitlinksOf(data []byte, hexLen int) ([]string, error) {
	count, err := header(data, hexLen)
	if err != nil {
		return nil, err
	}
	s := scanner{
		data:    data[:len(data)-hexLen/2],
		hashLen: hexLen / 2,
		version: versionOf(data),
		at:      headerSize,
	}
	var links []string
	for range count {
		e, err := s.next()
		if err != nil {
			return nil, err
		}
		if e.mode == ModeGitlink {
			links = append(links, string(e.path))
		}
	}
	return links, extensions(s.data[s.at:], func(name string, body []byte) error {
		if null := make([]byte, hexLen/2); name == "link" && !bytes.HasPrefix(body, null) { // to git that is no file
			return splitError(body, hexLen/2)
		}
		return nil
	})
}
