// Package requests forwards HTTP/1 requests from a hostile client to a server and
// checks the host of each one. Checking only the first is not enough: the next
// request on the connection may name another host.
//
// The attack is request smuggling: the gate and the server disagree where a request ends,
// and the server reads a part of a body as a request, which the gate has not checked. So
// a head is refused if servers could read it in two ways. Others are forwarded in one
// canonical form: white space around a value becomes one blank before it, "chunked" and the size of
// a chunk are in lower case, the size without leading zeros, a Host has no empty port, and no empty
// line comes before a request. All else is forwarded unchanged:
// servers may depend on the order and the case of names, and signatures cover values.
//
// Some attacks remain, with a request that is unambiguous and a server that is wrong:
// one that ignores Content-Length for GET, or answers before it has read a body and
// then takes it for the next request. A server may also choose a site by other fields
// than Host, such as X-Forwarded-Host.
package requests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Options select the requests to forward. Without Host there are none.
type Options struct {
	// Host reports whether requests for a host may be forwarded. host is a valid host
	// name and no address, in lower case, without port and trailing dot.
	Host func(host string) bool

	// Port is the only port that a Host field may name, in decimal. It may name none.
	Port string

	// Upgraded waits until the status of the first response is known, as FirstStatus returns
	// it, and reports whether it is 101. It must return false if the connection to the server
	// ends before. Without Upgraded, no connection is upgraded.
	Upgraded func() bool

	// Reads is called with the part of src that Forward reads next, for a caller that sets a
	// deadline. It may be nil.
	Reads func(Part)
}

// Part is a part of a connection, by the time that a client may take for it.
type Part int

const (
	// Idle is the time before a request: no byte of it has come.
	Idle Part = iota

	// Head is a head from its first byte to its end, or trailer fields. Forward keeps the
	// part received in memory, so its deadline should be short. If src returns
	// os.ErrDeadlineExceeded in it, the request is refused.
	Head

	// Body is a body, or an upgraded connection.
	Body
)

// Forward forwards requests until src ends. It returns nil if that is between two
// requests, and wraps io.ErrUnexpectedEOF if it is inside one. It returns a *Refusal for
// a request that must not be forwarded, and wraps other errors of src and dst. Forward
// writes no part of a refused head, so it writes nothing to dst before it accepts the
// first request. The server gets the part of a malformed body before the fault.
//
// Bodies are streamed: Forward writes received data before it waits for more, so that a
// client which wants "100 Continue" first gets it.
//
// A request for a WebSocket is taken only as the first of its connection, since the
// status of a later one is not known. If Upgraded returns true, the rest of src is
// copied as it is. If it returns false, the next requests are treated like others.
// An Upgrade to anything else is not forwarded, and the server answers as if it did
// not know that protocol, which it is free to do (RFC 9110, section 7.8). In HTTP/2,
// "h2c", the next requests could name other hosts; Java's client offers it always.
//
// Forward sets no deadlines, but see Options.Reads. A caller that closes the writing side of dst when Forward
// returns may lose responses: servers take that for the end of their client.
func Forward(dst io.Writer, src *bufio.Reader, o Options) error {
	f := forwarder{in: src, to: dst, out: bufio.NewWriter(dst), options: o}
	err := f.run()
	_ = f.out.Flush() // requests accepted before an error; without one, the buffer is empty
	return err
}

type forwarder struct {
	in      *bufio.Reader
	to      io.Writer
	out     *bufio.Writer // for to; flushed before each wait
	options Options
	count   int // of accepted heads
}

// reads tells the caller which part comes next.
func (f *forwarder) reads(p Part) {
	if f.options.Reads != nil {
		f.options.Reads(p)
	}
}

func (f *forwarder) run() error {
	for {
		err := f.request()
		if err == io.EOF {
			return nil
		}
		if refusal, ok := err.(*Refusal); ok {
			refusal.Forwarded = f.count
		}
		if err != nil {
			return err
		}
	}
}

// request forwards one request. The error is io.EOF if src ends before it.
func (f *forwarder) request() error {
	h, err := f.head()
	if err != nil {
		return err
	}
	if refusal := f.judge(h); refusal != nil {
		refusal.noBody = h.method == "HEAD"
		return refusal
	}
	f.count++
	if _, err := f.out.Write(h.canonical()); err != nil {
		return writeError(err)
	}
	if err := f.body(h); err != nil || !h.webSocket {
		return err
	}
	return f.upgrade()
}

// judge decides whether a well-formed request may be forwarded.
func (f *forwarder) judge(h *head) *Refusal {
	h.webSocket = h.webSocket && f.options.Upgraded != nil
	switch {
	case h.port != "" && h.port != f.options.Port:
		return refuse(403, "port %s of %+q is not allowed on this connection", h.port, cut(h.host))
	case f.options.Host == nil || !f.options.Host(h.host):
		return refuse(403, "host %+q is not allowed on this connection", cut(h.host))
	case h.webSocket && f.count > 0:
		return refuse(421, "a WebSocket needs a connection of its own")
	}
	return nil
}

// upgrade copies the rest if the server has changed to another protocol.
func (f *forwarder) upgrade() error {
	if err := f.out.Flush(); err != nil {
		return writeError(err)
	}
	if !f.options.Upgraded() {
		return nil
	}
	if _, err := io.Copy(f.to, f.in); err != nil {
		return fmt.Errorf("cannot forward an upgraded connection: %w", err)
	}
	return io.EOF
}

// line reads a line without its CRLF, of at most limit bytes; otherwise the error is
// errTooLong. It is io.EOF if src ends before the line. A bare CR or LF is refused: some
// servers end a line there and others do not (RFC 9112, section 2.2, allows both).
func (f *forwarder) line(limit int) ([]byte, error) {
	buffered, _ := f.in.Peek(f.in.Buffered())
	if bytes.IndexByte(buffered, '\n') < 0 {
		if err := f.out.Flush(); err != nil {
			return nil, writeError(err)
		}
	}
	var line []byte
	err := bufio.ErrBufferFull
	for err == bufio.ErrBufferFull && len(line) <= limit+len("\r\n") {
		var part []byte
		part, err = f.in.ReadSlice('\n')
		line = append(line, part...)
	}
	switch {
	case len(line) > limit+len("\r\n"):
		return nil, errTooLong
	case err == io.EOF && len(line) == 0:
		return nil, err
	case err != nil:
		return nil, readError(err)
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(text, '\r') >= 0 {
		return nil, refuse(400, "a line with a bare CR or LF")
	}
	return text, nil
}

var errTooLong = errors.New("internal error: a line is too long")

// readError wraps an error inside a request.
func readError(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("cannot read a request: %w", err)
}

func writeError(err error) error { return fmt.Errorf("cannot forward a request: %w", err) }
