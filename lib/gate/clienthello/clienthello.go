// Package clienthello reads the first message of a TLS connection, to learn which server
// the client asks for. The client is hostile: it wants the gate to read an allowed name,
// and the server another one. So the package refuses a hello in which TLS implementations
// may read different names, and never changes a hello.
//
// After a HelloRetryRequest a client sends a second hello. The server should compare
// it with the first (RFC 8446, section 4.1.2), but OpenSSL takes the name of the second.
// So Server tells whether one will come, and ReadAgain reads it.
//
// The name is only the server that the client asked for. With Encrypted Client Hello it
// is the outer name. It does not bind the requests inside the connection, nor the hellos
// of a renegotiation, which are encrypted.
package clienthello

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

var (
	// ErrNotTLS means that the first bytes are not those of a TLS handshake.
	ErrNotTLS = errors.New("not a TLS handshake")

	// ErrNoName means that the hello is well-formed and has no server name.
	ErrNoName = errors.New("the TLS client names no server")
)

const (
	// maxRead bounds all bytes that are read, record headers included. The largest
	// hellos of real clients, with post-quantum key shares, stay below 4 KiB. A client
	// may leave many hellos unfinished.
	maxRead = 16 << 10

	// maxRecord is the largest plaintext of a record (RFC 8446, section 5.1).
	maxRecord = 1 << 14

	// maxQuoted bounds the bytes of the client in an error.
	maxQuoted = 80

	recordHeader    = 5  // type, version, length
	messageHeader   = 4  // type, length
	typeChange      = 20 // change_cipher_spec
	typeAlert       = 21
	typeHandshake   = 22
	typeData        = 23
	levelWarning    = 1 // of an alert
	typeClientHello = 1
	typeServerHello = 2
	majorVersion    = 3 // of SSL 3.0 and all versions of TLS

	extensionServerName = 0
	nameTypeHost        = 0
)

// Read reads a ClientHello, over any number of records and reads, and returns the
// server name in it, in lower case and without a trailing dot. The name is a valid
// host name and no IP address.
//
// read holds all bytes that were read, with an error too: send them to the server
// before anything else. Read takes no byte after the record in which the hello
// ends, and at most 16 KiB. It sets no deadline: a client that sends nothing
// blocks it as long as r blocks.
//
// The error is ErrNotTLS, ErrNoName, wraps an error of r, or describes the fault in the
// hello. If the connection ends inside the hello, it wraps io.ErrUnexpectedEOF; if the
// client sent nothing at all, io.EOF.
func Read(r io.Reader) (name string, read []byte, err error) {
	s := stream{from: r}
	hello, err := s.message()
	if err == nil {
		name, err = serverName(hello)
	}
	return name, s.read, err
}

// Alert returns a record with a fatal alert, such as 112, unrecognized_name. A
// client that gets it instead of a ServerHello reports it and closes.
func Alert(description byte) []byte {
	return []byte{typeAlert, majorVersion, 3, 0, 2, 2, description}
}

// stream collects the handshake message out of its records.
type stream struct {
	from io.Reader
	read []byte // from the connection
	body []byte // of the records
}

// message returns the body of the first handshake message.
//
// No byte may follow it in its last record. Before the answer no client knows its next
// message, and TLS 1.3 requires a record boundary before new keys (RFC 8446, section
// 5.1). With a second hello there, the server could choose between the two.
func (s *stream) message() ([]byte, error) {
	want := messageHeader
	for len(s.body) < want {
		if err := s.record(); err != nil {
			return nil, err
		}
		if s.body[0] != typeClientHello {
			return nil, fmt.Errorf("the first handshake message has type %d, not ClientHello", s.body[0])
		}
		if len(s.body) >= messageHeader {
			want = messageHeader + int(binary.BigEndian.Uint32(s.body)&0xffffff)
		}
		if want > maxRead {
			return nil, tooLarge()
		}
	}
	if len(s.body) > want {
		return nil, errors.New("bytes follow the ClientHello in its record")
	}
	return s.body[messageHeader:], nil
}

// record reads one record. Nothing may come between the records of a message (RFC
// 8446, section 5.1). A record must not be empty (the same section): a hello of
// empty records would never end.
func (s *stream) record() error {
	header, err := s.header()
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint16(header[3:]))
	if size == 0 || size > maxRecord {
		return fmt.Errorf("a TLS record of %d bytes", size)
	}
	body, err := s.take(size, func([]byte) error { return nil })
	s.body = append(s.body, body...)
	return err
}

// header reads the header of a record, and checks the received part after each read: a
// client of another protocol may send two bytes and wait.
func (s *stream) header() ([]byte, error) {
	first := len(s.read) == 0
	return s.take(recordHeader, func(b []byte) error {
		switch {
		case bytes.HasPrefix([]byte{typeHandshake, majorVersion}, b[:min(len(b), 2)]):
			return nil
		case first:
			return ErrNotTLS
		}
		return fmt.Errorf("a record that begins with % x inside the ClientHello", b)
	})
}

// take reads n bytes, and calls check after each read. An end before the first byte of
// the connection is io.EOF.
func (s *stream) take(n int, check func([]byte) error) ([]byte, error) {
	start := len(s.read)
	if start+n > maxRead {
		return nil, tooLarge()
	}
	s.read = slices.Grow(s.read, n)
	for len(s.read) < start+n {
		got, err := s.from.Read(s.read[len(s.read) : start+n])
		s.read = s.read[:len(s.read)+got]
		if got > 0 {
			if err := check(s.read[start:]); err != nil {
				return nil, err
			}
		}
		if err != nil && len(s.read) < start+n {
			return nil, s.cut(err)
		}
	}
	return s.read[start:], nil
}

func (s *stream) cut(err error) error {
	if err == io.EOF && len(s.read) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("cannot read the TLS ClientHello: %w", err)
}

func tooLarge() error { return fmt.Errorf("the TLS ClientHello is larger than %d bytes", maxRead) }

// serverName reads the body of a ClientHello (RFC 8446, section 4.1.2; RFC 5246,
// section 7.4.1.2, where extensions may be absent).
func serverName(hello []byte) (string, error) {
	p := parser{rest: hello}
	version := p.bytes(2)
	p.bytes(32) // random
	session, suites, compression := p.vector(1), p.vector(2), p.vector(1)
	if p.failed || version[0] != majorVersion || len(session) > 32 || len(suites) == 0 || len(suites)%2 != 0 || len(compression) == 0 {
		return "", malformed("its fixed part")
	}
	if len(p.rest) == 0 {
		return "", ErrNoName
	}
	list := p.vector(2)
	if p.failed || len(p.rest) > 0 {
		return "", malformed("its end")
	}
	return nameIn(list)
}

// nameIn finds the server name in the list of extensions. Two extensions of one type are
// forbidden (RFC 8446, section 4.2): of two names, one implementation takes the first and
// another one the last.
func nameIn(extensions []byte) (string, error) {
	p := parser{rest: extensions}
	seen := map[uint16]bool{}
	name, err := "", ErrNoName
	for len(p.rest) > 0 {
		kind, body := p.uint16(), p.vector(2)
		if p.failed {
			return "", malformed("an extension")
		}
		if seen[kind] {
			return "", malformed(fmt.Sprintf("two extensions of type %d", kind))
		}
		seen[kind] = true
		if kind != extensionServerName {
			continue
		}
		if name, err = hostName(body); err != nil {
			return "", err
		}
	}
	return name, err
}

// hostName reads the extension server_name (RFC 6066, section 3). It is a list, and may
// have names of other types. OpenSSL and BoringSSL accept exactly one name of type
// host_name and Go skips other types, so hostName accepts only that one.
func hostName(extension []byte) (string, error) {
	p := parser{rest: extension}
	list := parser{rest: p.vector(2)}
	kind, name := list.bytes(1), string(list.vector(2))
	if p.failed || list.failed || len(p.rest) > 0 || len(list.rest) > 0 || kind[0] != nameTypeHost {
		return "", malformed("a server_name that is not exactly one host name")
	}
	name = strings.TrimSuffix(name, ".")
	if !isHostName(name) {
		return "", fmt.Errorf("the TLS client asks for %+q, which is no host name", name[:min(len(name), maxQuoted)])
	}
	return strings.ToLower(name), nil
}

// hostBytes are those of host names. They are checked before case is changed:
// strings.ToLower turns the Kelvin sign, U+212A, into the letter k.
const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// isHostName reports whether a name is valid in DNS. The last label of a host name is not
// a number (RFC 1123, section 2.1): the URL standard reads all such names as IPv4
// addresses, 127.1 and 0x7f000001 too. RFC 6066 forbids addresses.
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	last := ""
	for last = range strings.SplitSeq(name, ".") {
		if len(last) == 0 || len(last) > 63 || strings.Trim(last, hostBytes) != "" {
			return false
		}
	}
	return !isNumber(last)
}

func isNumber(label string) bool {
	if label[0] == '0' && len(label) > 1 && label[1]|0x20 == 'x' {
		return strings.Trim(label[2:], "0123456789abcdefABCDEF") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func malformed(what string) error { return fmt.Errorf("malformed TLS ClientHello: %s", what) }

// parser takes values from the front of rest. After failed, they are empty.
type parser struct {
	rest   []byte
	failed bool
}

func (p *parser) bytes(n int) []byte {
	if p.failed || n > len(p.rest) {
		p.failed = true
		return nil
	}
	b := p.rest[:n]
	p.rest = p.rest[n:]
	return b
}

func (p *parser) uint16() uint16 {
	if b := p.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// vector takes a vector that follows its length, which has sizeLen bytes.
func (p *parser) vector(sizeLen int) []byte {
	size := 0
	for _, b := range p.bytes(sizeLen) {
		size = size<<8 | int(b)
	}
	return p.bytes(size)
}
