package clienthello

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrAlert means that the client sends an alert in place of its second hello: it ends the
// handshake.
var ErrAlert = errors.New("the TLS client ends the handshake")

// maxEarly bounds the records before a second hello. Servers allow 14 to 16 KiB of
// early data.
const maxEarly = 64 << 10

// ReadAgain reads the ClientHello that a client sends after a HelloRetryRequest, as Read
// does. Early data, which the server has rejected by then, may come before it, and one
// change_cipher_spec (RFC 8446, sections 4.2.10 and D.4). No server reads a hello in
// those records. ReadAgain writes them to early as they come, and not to read.
//
// The error may also be ErrAlert, wrap one of early, or wrap io.EOF if the client ends
// the connection between two records.
func ReadAgain(r io.Reader, early io.Writer) (name string, read []byte, err error) {
	changed := false
	for left := maxEarly; ; {
		header := make([]byte, recordHeader)
		if _, err := io.ReadFull(r, header); err != nil {
			return "", nil, fmt.Errorf("cannot read the second TLS ClientHello: %w", err)
		}
		record := io.MultiReader(bytes.NewReader(header), r)
		size := int(binary.BigEndian.Uint16(header[3:]))
		switch kind := header[0]; {
		case kind == typeHandshake:
			return Read(record)
		case kind == typeAlert:
			return "", nil, ErrAlert
		case kind == typeChange && header[1] == majorVersion && size == 1 && !changed:
			changed = true
			err = passChange(early, record)
		case kind == typeData && header[1] == majorVersion && size > 0 && size <= left:
			left -= recordHeader + size
			_, err = io.CopyN(early, record, int64(recordHeader+size))
		default:
			err = fmt.Errorf("a record that begins with % x before the second ClientHello", header)
		}
		if err != nil {
			return "", nil, err
		}
	}
}

func passChange(to io.Writer, from io.Reader) error {
	record := make([]byte, recordHeader+1)
	if _, err := io.ReadFull(from, record); err != nil {
		return err
	}
	if record[recordHeader] != 1 {
		return errors.New("a change_cipher_spec that is not 1")
	}
	_, err := to.Write(record)
	return err
}

// Answer is the answer of a server to a ClientHello.
type Answer int

const (
	// Ended is an alert, or any other answer after which there is no handshake.
	Ended Answer = iota

	// Accepted is a ServerHello. A plaintext hello after it is an error to the server.
	Accepted

	// Retry is a HelloRetryRequest: the client sends a second hello, in plaintext.
	Retry
)

// retryRandom is the random of a ServerHello that is a HelloRetryRequest: the SHA-256
// of that word (RFC 8446, section 4.1.3).
const retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"

// Server copies the data of a server, to learn whether its client sends another hello.
type Server struct{ records records }

// NewServer copies from from, the server, to to, the client. It changes nothing and holds
// nothing back: all bytes read are written.
func NewServer(from io.Reader, to io.Writer) *Server {
	return &Server{records{in: bufio.NewReader(io.TeeReader(from, to))}}
}

// Answer copies data up to the next answer of the server, and the data that came with it.
// After Accepted or Ended go on with io.Copy. After Retry, Answer may be called again
// when the server has the second hello.
//
// The error is that of one of the two connections, io.EOF if the server ends its own
// before it answers.
func (s *Server) Answer() (Answer, error) {
	s.records.seen = 0
	switch answer, err := s.answer(); err {
	case errNoRecord:
		return Ended, nil
	case io.ErrUnexpectedEOF:
		return Ended, io.EOF
	default:
		return answer, err
	}
}

func (s *Server) answer() (Answer, error) {
	begin := make([]byte, messageHeader+2+len(retryRandom))
	if _, err := io.ReadFull(&s.records, begin[:messageHeader]); err != nil {
		return Ended, err
	}
	size := int(binary.BigEndian.Uint32(begin) & 0xffffff)
	if begin[0] != typeServerHello || messageHeader+size < len(begin) {
		return Ended, nil
	}
	if _, err := io.ReadFull(&s.records, begin[messageHeader:]); err != nil {
		return Ended, err
	}
	if string(begin[messageHeader+2:]) != retryRandom {
		return Accepted, nil
	}
	// The client needs all of it before it sends its second hello.
	if _, err := io.CopyN(io.Discard, &s.records, int64(messageHeader+size-len(begin))); err != nil {
		return Ended, err
	}
	if s.records.left > 0 { // no other message follows it in its record, as in Read
		return Ended, nil
	}
	return Retry, nil
}

// records is the content of a server's handshake records.
type records struct {
	in   *bufio.Reader
	left int // bytes of the present record
	seen int // bytes of all records
}

// errNoRecord means that the server sends other than handshake records.
var errNoRecord = errors.New("internal error: no handshake record")

func (r *records) Read(p []byte) (int, error) {
	for r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// next begins the next record. It skips two kinds: a change_cipher_spec, which servers
// send after a HelloRetryRequest, and a warning. A server of TLS 1.2 may warn that it
// does not know the name (RFC 6066, section 3), and then go on.
func (r *records) next() error {
	header := make([]byte, recordHeader)
	if _, err := io.ReadFull(r.in, header); err != nil {
		return err
	}
	kind, size := header[0], int(binary.BigEndian.Uint16(header[3:]))
	r.seen += recordHeader + size
	switch {
	case header[1] != majorVersion || size == 0 || size > maxRecord || r.seen > 2*maxRecord:
		return errNoRecord
	case kind == typeHandshake:
		r.left = size
		return nil
	case kind == typeChange && size == 1:
		_, err := r.in.Discard(size)
		return err
	case kind == typeAlert && size == 2:
		alert := make([]byte, size)
		if _, err := io.ReadFull(r.in, alert); err != nil {
			return err
		}
		if alert[0] == levelWarning {
			return nil
		}
	}
	return errNoRecord
}
