package gate

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"pikuri/lib/gate/clienthello"
	"pikuri/lib/gate/requests"
)

// relay serves a connection of the command to the address of a name.
func (s *server) relay(c *net.TCPConn) {
	to, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return
	}
	rec := Record{Time: time.Now().UTC(), Verdict: Refused, Port: to.Port(), Protocol: "tcp"}
	defer func() { s.add(rec) }()
	name, ok := s.names.find(to.Addr())
	if !ok {
		rec.Address, rec.Reason = to.Addr().Unmap().String(), byName
		reset(c)
		return
	}
	rec.Name = name
	rule, ok := s.Rules.Allows(name, to.Port())
	if !ok {
		rec.Reason = noRule
		reset(c)
		return
	}
	rec.Rule = rule.String()
	switch to.Port() {
	case 443:
		s.relayTLS(c, &rec)
	case 80:
		s.relayHTTP(c, &rec)
	default:
		s.relayRaw(c, &rec)
	}
}

// connect connects to the host of a record, or resets the connection.
func (s *server) connect(c *net.TCPConn, rec *Record) net.Conn {
	_, private, _, _ := s.Rules.Find(rec.Name)
	there, err := s.host.connect(context.Background(), rec.Name, rec.Port, private)
	if err == nil {
		rec.Verdict = Allowed
		return there
	}
	rec.Verdict, rec.Reason = Failed, cause(err)
	if f, ok := errors.AsType[*forbidden](err); ok {
		rec.Verdict, rec.Reason = Refused, f.Error()
	}
	reset(c)
	return nil
}

// relayRaw joins a connection to its host.
func (s *server) relayRaw(c *net.TCPConn, rec *Record) {
	if there := s.connect(c, rec); there != nil {
		rec.Sent, rec.Received = pipe(c, there.(*net.TCPConn))
	}
}

// firstTime bounds the wait for the first data of a client.
const firstTime = 10 * time.Second

const unrecognizedName = 112 // of the alerts of TLS (RFC 6066, 3)

// relayTLS relays a connection whose TLS hello has the name for which it was opened. A server
// with several certificates could be asked for another name.
func (s *server) relayTLS(c *net.TCPConn, rec *Record) {
	_ = c.SetDeadline(time.Now().Add(firstTime))
	name, hello, err := clienthello.Read(c)
	switch {
	case errors.Is(err, io.EOF) && len(hello) == 0:
		rec.Verdict, rec.Reason = Allowed, "nothing was sent"
		return
	case err != nil:
		rec.Reason = err.Error()
		if !errors.Is(err, clienthello.ErrNotTLS) {
			refuseTLS(c)
			return
		}
		reset(c)
		return
	case name != rec.Name:
		rec.Reason = "the TLS server name is " + name[:min(len(name), maxName)]
		refuseTLS(c)
		return
	}
	to := s.connect(c, rec)
	if to == nil {
		return
	}
	there := to.(*net.TCPConn)
	if shake(c, there, rec, hello) {
		_ = c.SetDeadline(time.Time{})
		_ = there.SetDeadline(time.Time{})
		sent, received := pipe(c, there)
		rec.Sent += sent
		rec.Received += received
	}
}

// maxName bounds the bytes of a name in a reason: the client has chosen the name.
const maxName = 80

// shake forwards the hello, and reports whether the rest of the connection can be copied:
// whether the server accepts no other hello in plaintext. Until then, it leaves all later
// data of the client in its socket, early data too: a second hello could be among it.
// With false, it has ended both connections.
func shake(c, there *net.TCPConn, rec *Record, hello []byte) bool {
	sent, received := &counted{w: there}, &counted{w: c}
	defer func() { rec.Sent, rec.Received = sent.n, received.n }()
	server := clienthello.NewServer(there, received)
	answer, err := ask(c, there, server, sent, hello)
	if err == nil && answer == clienthello.Retry {
		if hello = secondHello(c, there, rec, sent); hello == nil {
			return false
		}
		answer, err = ask(c, there, server, sent, hello)
	}
	switch {
	case err == nil && answer == clienthello.Accepted:
		return true
	case err == nil && answer == clienthello.Retry:
		refuseRetry(c, there, rec, "the server asks for a third TLS hello")
		return false
	case err == nil: // an alert: the server ignores all later data of the client
		_ = there.CloseWrite()
		_, err = io.Copy(received, there)
	case errors.Is(err, os.ErrDeadlineExceeded):
		rec.Verdict, rec.Reason = Failed, "it does not answer the TLS hello"
	}
	there.Close()
	if err != nil && err != io.EOF {
		reset(c)
		return false
	}
	linger(c)
	return false
}

// secondHello reads the hello that answers a HelloRetryRequest. It must ask for the
// same server: OpenSSL takes the name of the second. Without one, it returns nil.
func secondHello(c, there *net.TCPConn, rec *Record, early io.Writer) []byte {
	begin(c, there)
	name, hello, err := clienthello.ReadAgain(c, early)
	switch {
	case errors.Is(err, clienthello.ErrAlert), errors.Is(err, io.EOF):
		reset(there) // the client has given up
		return nil
	case err != nil:
		refuseRetry(c, there, rec, err.Error())
		return nil
	case name != rec.Name:
		refuseRetry(c, there, rec, "the second TLS hello does not repeat the server name of the first")
		return nil
	}
	return hello
}

func refuseRetry(c, there *net.TCPConn, rec *Record, reason string) {
	rec.Verdict, rec.Reason = Refused, reason
	reset(there)
	refuseTLS(c)
}

// ask forwards a hello, and then the answer of the server.
func ask(c, there *net.TCPConn, server *clienthello.Server, to io.Writer, hello []byte) (clienthello.Answer, error) {
	begin(c, there)
	if _, err := to.Write(hello); err != nil {
		return clienthello.Ended, err
	}
	return server.Answer()
}

// begin sets the deadline of the next part of a handshake.
func begin(c, there *net.TCPConn) {
	limit := time.Now().Add(firstTime)
	_ = c.SetDeadline(limit)
	_ = there.SetDeadline(limit)
}

func refuseTLS(c *net.TCPConn) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(clienthello.Alert(unrecognizedName))
	linger(c)
}

// linger ends a connection whose client may still be sending: unread bytes would cause a
// reset, which can overtake the last bytes written.
func linger(c *net.TCPConn) {
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c)
}

// relayHTTP forwards requests. Each must name the host for which the connection was
// opened.
func (s *server) relayHTTP(c *net.TCPConn, rec *Record) {
	from := &client{c: c, idle: idleTime}
	from.reads(requests.Head)
	in := bufio.NewReader(from)
	if _, err := in.Peek(1); err != nil {
		rec.Verdict, rec.Reason = Allowed, "nothing was sent"
		return
	}
	there := s.connect(c, rec)
	if there == nil {
		return
	}
	defer there.Close()
	from.there = there.(*net.TCPConn)
	status := make(chan int, 1)
	back := make(chan int64, 1)
	var answered atomic.Bool // by the gate
	go func() {
		first := &counted{w: c}
		code, err := requests.FirstStatus(first, there)
		status <- code
		var n int64
		if err == nil {
			n, err = io.Copy(c, there)
		}
		switch {
		case answered.Load():
		case err != nil && !errors.Is(err, io.EOF):
			reset(c)
		default:
			_ = c.CloseWrite()
			_ = c.CloseRead() // no request can be forwarded any more
		}
		back <- first.n + n
	}()
	out := &counted{w: there}
	err := requests.Forward(out, in, requests.Options{
		Host: func(h string) bool { return h == rec.Name }, Port: "80", Upgraded: func() bool { return <-status == 101 },
		Reads: from.reads,
	})
	rec.Sent = out.n
	refusal, refused := errors.AsType[*requests.Refusal](err)
	switch {
	case refused:
		rec.Verdict, rec.Reason = Refused, refusal.Reason
		if answered.Store(true); refusal.Forwarded == 0 {
			there.Close()
		}
	case err != nil: // the client has gone
		there.Close()
	}
	_ = there.(*net.TCPConn).CloseWrite()
	rec.Received = <-back
	if refused {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(refusal.Response())
		linger(c)
	}
}

// idleTime bounds the time without a request or a byte of an answer.
const idleTime = 5 * time.Minute

// client reads requests. It has a deadline for a head, since the gate holds the part
// received, and one between requests, but none for a body.
type client struct {
	c, there *net.TCPConn
	part     requests.Part
	idle     time.Duration
}

func (r *client) reads(p requests.Part) {
	var limit time.Time
	switch r.part = p; p {
	case requests.Idle:
		limit = time.Now().Add(r.idle)
	case requests.Head:
		limit = time.Now().Add(firstTime)
	}
	_ = r.c.SetReadDeadline(limit)
}

// Read goes on waiting for a request while the server still answers the last one.
func (r *client) Read(p []byte) (int, error) {
	for {
		n, err := r.c.Read(p)
		if r.part != requests.Idle || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		info := tcpInfo(r.there)
		if info == nil {
			return n, err
		}
		left := r.idle - time.Duration(info.Last_data_recv)*time.Millisecond
		if left <= 0 {
			return n, err
		}
		_ = r.c.SetReadDeadline(time.Now().Add(left))
	}
}

// counted counts the bytes written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// pipe copies both ways until both are at their end, each of which reaches the other
// side: half-closed connections and resets are preserved. The connections are not
// wrapped, so that the kernel copies (splice(2)).
func pipe(c, there *net.TCPConn) (sent, received int64) {
	defer there.Close()
	back := make(chan int64, 1)
	go func() {
		n, err := io.Copy(c, there)
		finish(c, err)
		back <- n
	}()
	sent, err := io.Copy(there, c)
	finish(there, err)
	return sent, <-back
}

// finish passes on the end of a stream: orderly, or a reset.
func finish(to *net.TCPConn, err error) {
	if err != nil {
		reset(to)
		return
	}
	_ = to.CloseWrite()
}

// reset closes a connection so that its other end gets a reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
