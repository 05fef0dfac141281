// Package answer answers DNS queries from a table of names. It asks no other server: a
// name in a query may carry data out. The client is hostile, but the answers only give it
// addresses; the gate decides about each connection when it is made.
package answer

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// ttl in seconds is short: a name may be allowed later, and each sandbox gets new
	// addresses. Zero makes some resolvers ask once per connection.
	ttl = 5

	// payload is the UDP size in replies (RFC 6891, section 6.2.5), that of the DNS flag day
	// 2020. No query needs as much.
	payload = 1232

	opcodeQuery = 0
	badVersion  = 16 // extended RCODE BADVERS (RFC 6891, section 9)
	questionsAt = 4  // the number of questions in a message (RFC 1035, section 4.1.1)

	hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
)

// Found is the result of a lookup. The zero value is a name that does not exist.
type Found struct {
	V4, V6 netip.Addr // of a name that exists; the zero Addr for none
	Exists bool
	Empty  bool // it has no addresses itself, but there are names below it
}

// Answer returns the reply to a DNS message, or nil if none must be sent: to garbage and to
// replies, so that two servers cannot be made to answer each other forever. query is false if
// the message is no query; the reply, if there is one, says that. The reply is at most 512
// bytes long, fits every UDP client and is never truncated. For TCP the caller reads and
// writes the length before each message.
//
// lookup is called once for the name in a question, of any type and class. It gets the
// name in lower case, without a trailing dot, and whether the question is for an address.
// Names that are not host names, that is labels of letters, digits, "-" and "_", do not
// exist, and lookup is not called.
//
// The only records are A and AAAA, of class IN. Other questions about a name that
// exists have an empty answer: the records HTTPS and SVCB would bring keys for
// Encrypted Client Hello and addresses that the gate does not know.
func Answer(message []byte, lookup func(name string, address bool) Found) (reply []byte, query bool) {
	var p dnsmessage.Parser
	asked, err := p.Start(message)
	if err != nil || asked.Response {
		return nil, false
	}
	r := response{header: replyHeader(asked)}
	if asked.OpCode != opcodeQuery {
		return r.pack(dnsmessage.RCodeNotImplemented), false
	}
	// Of several questions, a server may answer one and a cache note it for another
	// (RFC 9619: a query has exactly one).
	if binary.BigEndian.Uint16(message[questionsAt:]) != 1 || r.parse(&p) != nil {
		return r.pack(dnsmessage.RCodeFormatError), false
	}
	if r.version != 0 {
		return r.pack(badVersion), true
	}
	return r.pack(r.find(lookup)), true
}

// replyHeader is the header of a reply, without RCode.
func replyHeader(asked dnsmessage.Header) dnsmessage.Header {
	return dnsmessage.Header{
		ID:                 asked.ID,
		Response:           true,
		OpCode:             asked.OpCode,
		RecursionDesired:   asked.RecursionDesired,
		RecursionAvailable: true,                   // otherwise Go's resolver treats an empty answer as a failure
		CheckingDisabled:   asked.CheckingDisabled, // RFC 4035, section 3.2.2
	}
}

// response is a reply in the making.
type response struct {
	header   dnsmessage.Header
	question *dnsmessage.Question // nil: not repeated
	edns     bool                 // the query had an OPT record
	version  uint8                // of EDNS
	dnssec   bool                 // the bit DO, which is repeated (RFC 3225, section 3)
	answer   netip.Addr
}

// parse reads the question, and the OPT record among the additional ones. dnsmessage
// refuses a dot inside a label, which would be read as the end of a label.
func (r *response) parse(p *dnsmessage.Parser) error {
	question, err := p.Question()
	if err != nil {
		return err
	}
	for _, skip := range []func() error{p.SkipAllQuestions, p.SkipAllAnswers, p.SkipAllAuthorities} {
		if err := skip(); err != nil {
			return err
		}
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			r.question = &question
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.noteOption(h); err != nil {
			return err
		}
		if err := p.SkipAdditional(); err != nil {
			return err
		}
	}
}

// noteOption records an OPT record. There is at most one, of the root (RFC 6891, section
// 6.1.1). Other additional records, such as signatures, are ignored.
func (r *response) noteOption(h dnsmessage.ResourceHeader) error {
	if h.Type != dnsmessage.TypeOPT {
		return nil
	}
	if r.edns || h.Name.String() != "." {
		return fmt.Errorf("an OPT record of %q", h.Name.String())
	}
	r.edns, r.version, r.dnssec = true, uint8(h.TTL>>16), h.DNSSECAllowed()
	return nil
}

// find looks up the name, and returns the code of the reply. The root exists without a
// lookup: its non-existence would be that of all names (RFC 8020).
func (r *response) find(lookup func(string, bool) Found) dnsmessage.RCode {
	name, kind := r.question.Name.String(), r.question.Type
	if name == "." {
		return dnsmessage.RCodeSuccess
	}
	internet := r.question.Class == dnsmessage.ClassINET
	var found Found
	if name, ok := hostName(name); ok {
		found = lookup(name, internet && (kind == dnsmessage.TypeA || kind == dnsmessage.TypeAAAA))
	}
	switch {
	case !found.Exists && !found.Empty:
		return dnsmessage.RCodeNameError
	case !found.Exists || !internet:
	case kind == dnsmessage.TypeA && found.V4.Is4():
		r.answer = found.V4
	case kind == dnsmessage.TypeAAAA && found.V6.Is6() && found.V6.Zone() == "":
		r.answer = found.V6
	}
	return dnsmessage.RCodeSuccess
}

// hostName returns a name in lower case and without the dot at its end. It accepts only
// ASCII, so that strings.ToLower is safe: that turns the Kelvin sign into the letter k.
// dnsmessage accepts no name over 253 bytes, and a message can hold no label over 63.
func hostName(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, hostBytes) != "" {
			return "", false
		}
	}
	return strings.ToLower(name), true
}

// pack builds the reply. The code has the bits of OPT too. The names are compressed: the
// longest reply has a question of 255 bytes, an SOA and an OPT record, which is less than
// 512 bytes.
func (r *response) pack(code dnsmessage.RCode) []byte {
	m := dnsmessage.Message{Header: r.header}
	m.RCode = code & 0xf
	if r.question != nil {
		m.Questions = []dnsmessage.Question{*r.question}
	}
	switch {
	case r.answer.IsValid():
		m.Answers = []dnsmessage.Resource{address(r.question.Name, r.answer)}
	case code == dnsmessage.RCodeSuccess || code == dnsmessage.RCodeNameError:
		m.Authorities = []dnsmessage.Resource{authority}
	}
	if r.edns {
		m.Additionals = []dnsmessage.Resource{option(code, r.dnssec)}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

func address(name dnsmessage.Name, a netip.Addr) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl}
	if a.Is4() {
		return dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}}
	}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}
}

func option(code dnsmessage.RCode, dnssec bool) dnsmessage.Resource {
	var h dnsmessage.ResourceHeader
	_ = h.SetEDNS0(payload, code, dnssec) // has no error to return
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{}}
}

// authority is the SOA of an answer without records. Caches keep the answer for its TTL
// (RFC 2308, section 5); the other times are for secondary servers, and there are none.
var authority = dnsmessage.Resource{
	Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.ClassINET, TTL: ttl},
	Body: &dnsmessage.SOAResource{
		NS: dnsmessage.MustNewName("gate.invalid."), MBox: dnsmessage.MustNewName("nobody.invalid."),
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, MinTTL: ttl,
	},
}
