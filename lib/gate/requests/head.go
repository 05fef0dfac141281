package requests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxHead bounds a head, and the trailer fields, and maxFields their number. Servers accept 8
	// to 64 KiB, and 100 fields or more. A client may leave many unfinished.
	maxHead   = 16 << 10
	maxFields = 100

	alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	tokenBytes   = alphanumeric + "!#$%&'*+-.^_`|~" // RFC 9110, section 5.6.2
	hostBytes    = alphanumeric + "-_"
)

// head is a request's head.
type head struct {
	method, target, version string
	fields                  []field

	host, port string // from the field Host
	hosts      int
	lengths    int
	length     int64 // of the body
	encodings  int   // Transfer-Encoding fields; the one value is "chunked"
	expects    int
	upgrades   int
	webSocket  bool // the client wants to change to a WebSocket
}

type field struct{ name, value string }

// head reads a head. The error is io.EOF if src ends before it.
func (f *forwarder) head() (*head, error) {
	if err := f.looksLikeHTTP(); err != nil {
		return nil, err
	}
	f.reads(Head)
	h, lines := new(head), headLines{f: f, left: maxHead}
	line, err := lines.next()
	if err != nil {
		return nil, err
	}
	if err := h.requestLine(line); err != nil {
		return nil, err
	}
	for {
		if line, err = lines.next(); err != nil {
			return nil, err
		}
		if line == "" {
			f.reads(Body)
			return h, h.check()
		}
		if err := h.addLine(line); err != nil {
			return nil, err
		}
	}
}

// looksLikeHTTP refuses a first byte that begins no method: a client of another protocol
// may send no line. One empty line before a request is not forwarded (RFC 9112, section 2.2): some
// clients send it after a body.
func (f *forwarder) looksLikeHTTP() error {
	first, err := f.first()
	if err == nil && first[0] == '\r' {
		if first, err = f.in.Peek(len("\r\n")); err == nil && string(first) == "\r\n" {
			_, _ = f.in.Discard(len(first))
			first, err = f.first()
		}
	}
	switch {
	case err == io.EOF:
		return err
	case err != nil:
		return readError(err)
	case !consistsOf(string(first), tokenBytes):
		return refuse(400, "not an HTTP request")
	}
	return nil
}

// first waits for the first byte of a request.
func (f *forwarder) first() ([]byte, error) {
	if f.in.Buffered() == 0 {
		if err := f.out.Flush(); err != nil {
			return nil, writeError(err)
		}
	}
	f.reads(Idle)
	return f.in.Peek(1)
}

// headLines are the lines of a head, or of trailer fields.
type headLines struct {
	f     *forwarder
	left  int // bytes
	count int // of lines, the first of which is not a field
}

func (l *headLines) next() (string, error) {
	line, err := l.f.line(l.left)
	switch {
	case err == errTooLong:
		return "", refuse(431, "the header fields are larger than %d bytes", maxHead)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "", refuse(408, "the header fields did not come in time")
	case err == io.EOF:
		return "", readError(err)
	case err != nil:
		return "", err
	}
	if l.count++; l.count > 1+maxFields && len(line) > 0 {
		return "", refuse(431, "there are more than %d header fields", maxFields)
	}
	l.left = max(0, l.left-len(line)-len("\r\n"))
	return string(line), nil
}

// requestLine parses the first line. It accepts only origin-form and "*" as targets (RFC
// 9112, section 3.2): an absolute target has a host of its own, which servers must prefer
// to the field Host. It refuses blanks other than the two, a fragment, and bytes that are
// not ASCII: servers split the line at different ones.
func (h *head) requestLine(line string) error {
	parts := strings.SplitN(line, " ", 4)
	if len(parts) != 3 {
		return refuse(400, "a request line that is not METHOD TARGET VERSION")
	}
	h.method, h.target, h.version = parts[0], parts[1], parts[2]
	switch {
	case !isToken(h.method):
		return refuse(400, "the method %+q", cut(h.method))
	case h.version == "HTTP/2.0":
		return refuse(505, "HTTP/2 without TLS is not supported")
	case h.version != "HTTP/1.1" && h.version != "HTTP/1.0":
		return refuse(400, "the version %+q", cut(h.version))
	case h.method == "CONNECT":
		return refuse(400, "CONNECT: this is not a proxy")
	case h.target == "*" && h.method == "OPTIONS":
		return nil
	case !strings.HasPrefix(h.target, "/"):
		return refuse(400, "the target %+q is not a path", cut(h.target))
	case strings.ContainsFunc(h.target, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }):
		return refuse(400, "the target %+q has bytes that must be percent-encoded", cut(h.target))
	}
	return nil
}

// addLine parses a header line and keeps the field, unless it must not be forwarded.
func (h *head) addLine(line string) error {
	f, err := parseField(line)
	if err != nil {
		return err
	}
	drop, err := h.add(strings.ToLower(f.name), &f.value)
	if err == nil && !drop {
		h.fields = append(h.fields, f)
	}
	return err
}

// parseField parses a line NAME:VALUE. It refuses white space before the colon, which
// some servers read as a part of the name, and a folded line (RFC 9112, sections 5.1 and
// 5.2), and control characters (RFC 9110, section 5.5).
func parseField(line string) (field, error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return field{}, refuse(400, "a header line that is not NAME: VALUE")
	}
	value = strings.Trim(value, " \t")
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return field{}, refuse(400, "a control character in the field %+q", cut(name))
	}
	return field{name, value}, nil
}

// special are the fields that determine the host of a request and its end.
var special = []string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "http2-settings", "expect"}

// add records a field, and makes its value canonical. drop means that it is not forwarded.
func (h *head) add(name string, value *string) (drop bool, err error) {
	switch name {
	case "host":
		h.hosts++
		*value = strings.TrimSuffix(*value, ":") // an empty port (RFC 3986, section 6.2.3)
		h.host, h.port, err = splitHost(*value)
	case "content-length":
		h.lengths++
		h.length, err = contentLength(*value)
	case "transfer-encoding":
		h.encodings++
		*value, err = transferEncoding(*value)
	case "connection":
		err = connection(*value)
	case "expect":
		h.expects++
		err = expect(*value)
	case "upgrade":
		h.upgrades++
		h.webSocket = strings.EqualFold(*value, "websocket")
	case "http2-settings": // belongs to an Upgrade to h2c (RFC 7540, section 3.2.1)
		return true, nil
	default:
		err = lookalike(name)
	}
	return false, err
}

// lookalike refuses Content_Length and similar names: in CGI and its successors, both
// names are CONTENT_LENGTH (RFC 3875, section 4.1.18).
func lookalike(name string) error {
	if slices.Contains(special, strings.ReplaceAll(name, "_", "-")) {
		return refuse(400, "the field name %+q", cut(name))
	}
	return nil
}

// splitHost parses the value of Host.
func splitHost(value string) (host, port string, err error) {
	host, port, hasPort := strings.Cut(value, ":")
	host = strings.TrimSuffix(host, ".")
	if !isHostName(host) || hasPort && (len(port) == 0 || len(port) > 5 || !consistsOf(port, "0123456789")) {
		return "", "", refuse(400, "Host: %+q is not a host name", cut(value))
	}
	return strings.ToLower(host), port, nil
}

// isHostName reports whether a name is valid in DNS, in ASCII, so that strings.ToLower is
// safe: that turns the Kelvin sign into the letter k. The last label of a host name is
// not a number (RFC 1123, section 2.1): the URL standard reads all such names as IPv4
// addresses, 127.1 and 0x7f000001 too.
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	last := ""
	for last = range strings.SplitSeq(name, ".") {
		if len(last) == 0 || len(last) > 63 || !consistsOf(last, hostBytes) {
			return false
		}
	}
	hex, isHex := strings.CutPrefix(strings.ToLower(last), "0x")
	return !consistsOf(last, "0123456789") && !(isHex && consistsOf(hex, "0123456789abcdef"))
}

// contentLength accepts digits only. Servers read signs, lists, and leading zeros, which
// are octal in C, differently (RFC 9112, section 6.3).
func contentLength(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != value || n < 0 {
		return 0, refuse(400, "Content-Length: %+q", cut(value))
	}
	return n, nil
}

// transferEncoding accepts only "chunked", in any case, and returns it in lower case. A server that does
// not understand a variant falls back to another framing: "Transfer-Encoding: xchunked" and
// similar values are the oldest way to smuggle (RFC 9112, sections 6.1 and 11.2).
func transferEncoding(value string) (string, error) {
	const chunked = "chunked"
	if len(value) != len(chunked) || !strings.EqualFold(value, chunked) { // to EqualFold the Kelvin sign is a k
		return "", refuse(501, "Transfer-Encoding: %+q", cut(value))
	}
	return chunked, nil
}

// connection refuses to let a checked field be removed: a reverse proxy drops the fields
// that Connection names (RFC 9110, section 7.6.1).
func connection(value string) error {
	for option := range strings.SplitSeq(strings.ToLower(value), ",") {
		switch option = strings.Trim(option, " \t"); option {
		case "host", "content-length", "transfer-encoding", "expect":
			return refuse(400, "Connection: %+q", cut(option))
		}
	}
	return nil
}

// expect accepts the one expectation that exists. For others, servers disagree whether
// the body comes at once (RFC 9110, section 10.1.1).
func expect(value string) error {
	if value != "100-continue" {
		return refuse(417, "Expect: %+q", cut(value))
	}
	return nil
}

// check judges the head as a whole. Servers choose differently among several Hosts
// (RFC 9112, section 3.2) and between Content-Length and Transfer-Encoding (section
// 6.3). Those of HTTP/1.0 do not know the latter (section 6.1).
func (h *head) check() error {
	switch {
	case h.hosts != 1:
		return refuse(400, "%d Host fields", h.hosts)
	case h.lengths > 1 || h.encodings > 1 || h.lengths+h.encodings > 1:
		return refuse(400, "several Content-Length or Transfer-Encoding fields")
	case h.encodings > 0 && h.version == "HTTP/1.0":
		return refuse(400, "Transfer-Encoding in HTTP/1.0")
	case h.expects > 1:
		return refuse(400, "several Expect fields")
	}
	h.webSocket = h.webSocket && h.upgrades == 1 && h.version == "HTTP/1.1"
	return nil
}

// canonical is the head that is forwarded.
func (h *head) canonical() []byte {
	out := fmt.Appendf(nil, "%s %s %s\r\n", h.method, h.target, h.version)
	for _, f := range h.fields {
		if strings.EqualFold(f.name, "upgrade") && !h.webSocket {
			continue
		}
		out = appendField(out, f)
	}
	return append(out, "\r\n"...)
}

func appendField(out []byte, f field) []byte { return fmt.Appendf(out, "%s: %s\r\n", f.name, f.value) }

func isToken(s string) bool { return s != "" && consistsOf(s, tokenBytes) }

func consistsOf(s, set string) bool { return strings.Trim(s, set) == "" }
