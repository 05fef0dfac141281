package fsat

import (
	"bytes"
	"io"
	"os"
)

// hole is the size of a block, or a multiple of it, on the usual file systems.
const hole = 4096

var zeros [hole]byte

// Sparse writes to a new file from its beginning, and leaves pieces of 4096 zero bytes
// out. A command can make a file of a terabyte that takes no space; its copy on the host
// then takes none either. End is called once after the last Write.
type Sparse struct {
	File *os.File
	skip int64 // since the last byte that was written
}

// Write writes data. It returns a short count only with an error.
func (s *Sparse) Write(data []byte) (written int, err error) {
	for len(data) > written {
		rest := data[written:]
		if n := zeroBytes(rest); n > 0 {
			s.skip += int64(n)
			written += n
			continue
		}
		if err := s.seek(); err != nil {
			return written, err
		}
		n, err := s.File.Write(rest[:untilZero(rest)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Skip leaves n bytes out, as Write does with zeros.
func (s *Sparse) Skip(n int64) { s.skip += n }

// End gives the file its length if it ends in a hole.
func (s *Sparse) End() error {
	if s.skip == 0 {
		return nil
	}
	at, err := s.File.Seek(s.skip, io.SeekCurrent)
	if err != nil {
		return err
	}
	s.skip = 0
	return s.File.Truncate(at)
}

func (s *Sparse) seek() error {
	if s.skip == 0 {
		return nil
	}
	_, err := s.File.Seek(s.skip, io.SeekCurrent)
	s.skip = 0
	return err
}

// zeroBytes is the length of the whole zero pieces that data begins with.
func zeroBytes(data []byte) int {
	n := 0
	for len(data)-n >= hole && bytes.Equal(data[n:n+hole], zeros[:]) {
		n += hole
	}
	return n
}

// untilZero is the length of data before the first zero piece that follows another one.
func untilZero(data []byte) int {
	for n := hole; len(data)-n >= hole; n += hole {
		if bytes.Equal(data[n:n+hole], zeros[:]) {
			return n
		}
	}
	return len(data)
}
