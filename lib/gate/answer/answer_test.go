package answer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

var (
	v4 = netip.MustParseAddr("198.18.0.5")
	v6 = netip.MustParseAddr("fd67::5")
)

func lookup(name string, _ bool) Found {
	switch name {
	case "a.example", "_http._tcp.a.example":
		return Found{V4: v4, V6: v6, Exists: true}
	case "only4.example":
		return Found{V4: v4, Exists: true}
	case "mapped.example":
		return Found{V4: netip.MustParseAddr("::ffff:1.2.3.4"), V6: netip.MustParseAddr("fe80::1%eth0"), Exists: true}
	case "example":
		return Found{Empty: true}
	}
	return Found{}
}

// ask is a query. A name is labels, each with its length: "\x01a\x07example".
func ask(labels string, kind dnsmessage.Type, class dnsmessage.Class) []byte {
	q := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + "\x00")
	q = binary.BigEndian.AppendUint16(q, uint16(kind))
	return binary.BigEndian.AppendUint16(q, uint16(class))
}

// wire writes a name as labels.
func wire(name string) string {
	if name == "" {
		return ""
	}
	labels := ""
	for label := range strings.SplitSeq(name, ".") {
		labels += string(byte(len(label))) + label
	}
	return labels
}

func parse(t testing.TB, reply []byte) dnsmessage.Message {
	var m dnsmessage.Message
	require.NoError(t, m.Unpack(reply))
	assert.LessOrEqual(t, len(reply), 512)
	return m
}

// words describes a reply: its code and its records.
func words(m dnsmessage.Message) string {
	s := m.RCode.String()
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			s += " " + netip.AddrFrom4(body.A).String()
		case *dnsmessage.AAAAResource:
			s += " " + netip.AddrFrom16(body.AAAA).String()
		}
	}
	if len(m.Authorities) > 0 {
		s += " SOA"
	}
	return s
}

const (
	a    = dnsmessage.TypeA
	aaaa = dnsmessage.TypeAAAA
	in   = dnsmessage.ClassINET

	noData  = "RCodeSuccess SOA"
	unknown = "RCodeNameError SOA"
)

func TestQuestions(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5)
	tests := []struct {
		name, labels string
		kind         dnsmessage.Type
		class        dnsmessage.Class
		want         string
		asked        string // the argument of lookup
	}{
		{"A", wire("a.example"), a, in, "RCodeSuccess 198.18.0.5", "a.example"},
		{"AAAA", wire("a.example"), aaaa, in, "RCodeSuccess fd67::5", "a.example"},
		{"upper case", wire("A.eXample"), a, in, "RCodeSuccess 198.18.0.5", "a.example"},
		{"AAAA without an IPv6 address", wire("only4.example"), aaaa, in, noData, "only4.example"},
		{"an IPv4 address in IPv6", wire("mapped.example"), a, in, noData, "mapped.example"},
		{"an address with a zone", wire("mapped.example"), aaaa, in, noData, "mapped.example"},
		{"HTTPS", wire("a.example"), 65, in, noData, "a.example"},
		{"SVCB", wire("a.example"), 64, in, noData, "a.example"},
		{"TXT", wire("a.example"), dnsmessage.TypeTXT, in, noData, "a.example"},
		{"SOA", wire("a.example"), dnsmessage.TypeSOA, in, noData, "a.example"},
		{"CNAME", wire("a.example"), dnsmessage.TypeCNAME, in, noData, "a.example"},
		{"ANY", wire("a.example"), dnsmessage.TypeALL, in, noData, "a.example"},
		{"AXFR", wire("a.example"), dnsmessage.TypeAXFR, in, noData, "a.example"},
		{"SRV", wire("_http._tcp.a.example"), dnsmessage.TypeSRV, in, noData, "_http._tcp.a.example"},
		{"class CHAOS", wire("a.example"), a, dnsmessage.ClassCHAOS, noData, "a.example"},
		{"class ANY", wire("a.example"), a, dnsmessage.ClassANY, noData, "a.example"},
		{"only names below", wire("example"), a, in, noData, "example"},
		{"unknown", wire("b.example"), a, in, unknown, "b.example"},
		{"unknown, TXT", wire("b.example"), dnsmessage.TypeTXT, in, unknown, "b.example"},
		{"the root", "", dnsmessage.TypeNS, in, noData, ""},
		{"253 bytes", wire(long + "aaa"), a, in, unknown, long + "aaa"},
		{"a label of 63", wire(strings.Repeat("a", 63)), a, in, unknown, strings.Repeat("a", 63)},
		{"a wildcard", wire("*.example"), a, in, unknown, ""},
		{"a blank", wire("a .example"), a, in, unknown, ""},
		{"a NUL", wire("a.example\x00.example"), a, in, unknown, ""},
		{"not ASCII", wire("ü.example"), a, in, unknown, ""},
		{"the Kelvin sign", wire("\u212a.example"), a, in, unknown, ""},
		{"a backslash", wire(`a\046example`), a, in, unknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			query, asked := ask(tt.labels, tt.kind, tt.class), ""
			reply, ok := Answer(query, func(name string, address bool) Found {
				assert.Empty(t, asked, "lookup is asked once")
				assert.Equal(t, (tt.kind == a || tt.kind == aaaa) && tt.class == in, address)
				asked = name
				return lookup(name, address)
			})
			require.True(t, ok)
			m := parse(t, reply)
			assert.Equal(t, tt.want, words(m))
			assert.Equal(t, tt.asked, asked)
			assert.Equal(t, dnsmessage.Header{ID: 0x1234, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: m.RCode}, m.Header)
			assert.Equal(t, query[12:], reply[12:len(query)], "the question is repeated as it was")
			assert.Empty(t, m.Additionals)
			for _, r := range append(m.Answers, m.Authorities...) {
				assert.Equal(t, uint32(5), r.Header.TTL)
			}
			for _, r := range m.Answers {
				assert.Equal(t, m.Questions[0].Name, r.Header.Name)
			}
			for _, r := range m.Authorities {
				assert.Equal(t, uint32(5), r.Body.(*dnsmessage.SOAResource).MinTTL)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	good := string(ask(wire("a.example"), a, in))
	flags := func(high, low string) string { return good[:2] + high + low + good[4:] }
	opt := "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
	additional := func(n string, records string) string { return good[:11] + n + good[12:] + records }
	tests := []struct {
		name, query, want string // empty: no reply
	}{
		{"nothing", "", ""},
		{"half a header", good[:11], ""},
		{"garbage", "GET / HTTP/", ""},
		{"a reply", flags("\x81", "\x00"), ""},
		{"a reply to NOTIFY", flags("\xa0", "\x00"), ""},
		{"IQUERY", flags("\x08", "\x00"), "RCodeNotImplemented"},
		{"NOTIFY", flags("\x20", "\x00"), "RCodeNotImplemented"},
		{"UPDATE", flags("\x28", "\x00"), "RCodeNotImplemented"},
		{"UPDATE of garbage", flags("\x28", "\x00")[:12], "RCodeNotImplemented"},
		{"no question", good[:5] + "\x00" + good[6:12], "RCodeFormatError"},
		{"two questions", good[:5] + "\x02" + good[6:] + good[12:], "RCodeFormatError"},
		{"a question that is missing", good[:12], "RCodeFormatError"},
		{"half a question", good[:len(good)-1], "RCodeFormatError"},
		{"a dot inside a label", string(ask("\x09a.example", a, in)), "RCodeFormatError"},
		{"a dot as a label", string(ask("\x01.\x07example", a, in)), "RCodeFormatError"},
		{"a name that points to itself", string(ask("\xc0\x0c", a, in)), "RCodeFormatError"},
		{"a name of 254 bytes", string(ask(wire(strings.Repeat("a.", 126)+"aa"), a, in)), "RCodeFormatError"},
		{"an answer that is missing", good[:7] + "\x01" + good[8:], "RCodeFormatError"},
		{"an authority that is missing", good[:9] + "\x01" + good[10:], "RCodeFormatError"},
		{"an additional record that is missing", additional("\x01", ""), "RCodeFormatError"},
		{"half an OPT", additional("\x01", opt[:9]), "RCodeFormatError"},
		{"OPT with too little data", additional("\x01", opt[:10]+"\x04"), "RCodeFormatError"},
		{"two OPTs", additional("\x02", opt+opt), "RCodeFormatError"},
		{"OPT of a name", additional("\x01", "\x01x"+opt), "RCodeFormatError"},
		{"bytes behind the query", good + "x", "RCodeSuccess 198.18.0.5"},
		{"a record that is no OPT", additional("\x01", "\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x01x"), "RCodeSuccess 198.18.0.5"},
		{"all flags", flags("\x07", "\x70"), "RCodeSuccess 198.18.0.5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, query := Answer([]byte(tt.query), lookup)
			assert.Equal(t, strings.HasPrefix(tt.want, "RCodeSuccess"), query)
			if tt.want == "" {
				assert.Empty(t, reply)
				return
			}
			m := parse(t, reply)
			assert.Equal(t, tt.want, words(m))
			assert.Equal(t, tt.query[:2], string(reply[:2]))
			assert.True(t, m.Response)
			assert.False(t, m.Authoritative || m.Truncated || m.AuthenticData)
		})
	}
}

func TestEDNS(t *testing.T) {
	tests := []struct {
		name, ttl string
		want      dnsmessage.RCode
		replyTTL  uint32
	}{
		{"plain", "\x00\x00\x00\x00", 0, 0},
		{"DO is repeated", "\x00\x00\x80\x00", 0, 0x8000},
		{"another version", "\x00\x01\x00\x00", 0, 0x01000000}, // BADVERS is 16: 1 in OPT, 0 in the header
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// A client subnet, which is not repeated.
			query := append(ask(wire(strings.Repeat("a", 63)+strings.Repeat("."+strings.Repeat("a", 62), 3)), a, in), "\x00\x00\x29\x04\xd0"+tt.ttl+"\x00\x08\x00\x08\x00\x04\x00\x01\x00\x00"...)
			query[11] = 1
			reply, ok := Answer(query, func(string, bool) Found { return Found{Empty: true} })
			require.True(t, ok)
			m := parse(t, reply)
			assert.Equal(t, tt.want, m.RCode)
			require.Len(t, m.Additionals, 1)
			opt := m.Additionals[0]
			assert.Equal(t, dnsmessage.TypeOPT, opt.Header.Type)
			assert.Equal(t, tt.replyTTL, opt.Header.TTL)
			assert.Equal(t, dnsmessage.Class(1232), opt.Header.Class)
			assert.Equal(t, tt.name == "another version", len(m.Authorities) == 0)
			assert.Empty(t, opt.Body.(*dnsmessage.OPTResource).Options)
		})
	}
}

// serve answers on UDP and TCP.
func serve(t *testing.T) (udp, tcp string) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { packets.Close(); streams.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply, _ := Answer(buf[:n], lookup); reply != nil {
				packets.WriteTo(reply, from)
			}
		}
	}()
	go func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			go serveStream(c)
		}
	}()
	return packets.LocalAddr().String(), streams.Addr().String()
}

func serveStream(c net.Conn) {
	defer c.Close()
	var size [2]byte
	for {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		if reply, _ := Answer(query, lookup); reply != nil {
			c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
		}
	}
}

func TestGoResolver(t *testing.T) {
	udp, tcp := serve(t)
	for network, addr := range map[string]string{"udp": udp, "tcp": tcp} {
		t.Run(network, func(t *testing.T) {
			r := &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}
			got, err := r.LookupNetIP(t.Context(), "ip", "A.Example.")
			require.NoError(t, err)
			assert.ElementsMatch(t, []netip.Addr{v4, v6}, got)
			got, err = r.LookupNetIP(t.Context(), "ip", "only4.example.")
			require.NoError(t, err)
			assert.Equal(t, []netip.Addr{v4}, got)
			for _, name := range []string{"b.example.", "example.", "*.example."} {
				_, err = r.LookupNetIP(t.Context(), "ip", name)
				var notFound *net.DNSError
				require.True(t, errors.As(err, &notFound), name)
				assert.True(t, notFound.IsNotFound, err)
			}
			_, err = r.LookupTXT(t.Context(), "a.example.")
			assert.ErrorContains(t, err, "no such host")
		})
	}
}

// FuzzAnswer: a reply parses, has the query's ID, and the query's question or none. It
// has an address only for a name that lookup knows.
func FuzzAnswer(f *testing.F) {
	f.Add(ask(wire("a.example"), a, in))
	f.Add(ask(wire("A.EXAMPLE"), aaaa, in))
	f.Add(ask(wire("_http._tcp.a.example"), dnsmessage.TypeSRV, in))
	f.Add(ask("\x09a.example", a, in))
	f.Add(ask("", dnsmessage.TypeNS, in))
	f.Add(ask(wire("a.example"), a, dnsmessage.ClassANY))
	f.Add(append(ask(wire("a.example"), a, in), "\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00"...))
	f.Fuzz(func(t *testing.T, query []byte) {
		asked := 0
		reply, ok := Answer(query, func(name string, address bool) Found {
			asked++
			require.Equal(t, strings.ToLower(name), name)
			require.Empty(t, strings.Trim(name, hostBytes+"."))
			require.False(t, strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."))
			return lookup(name, address)
		})
		require.LessOrEqual(t, asked, 1)
		require.False(t, asked > 0 && !ok)
		if reply == nil {
			require.False(t, ok)
			return
		}
		m := parse(t, reply)
		require.True(t, m.Response)
		require.Equal(t, binary.BigEndian.Uint16(query), m.ID)
		var p dnsmessage.Parser
		_, err := p.Start(query)
		require.NoError(t, err)
		if len(m.Questions) == 0 {
			require.NotEqual(t, dnsmessage.RCodeSuccess, m.RCode)
			require.Zero(t, len(m.Answers)+len(m.Authorities)+asked)
			return
		}
		questions, err := p.AllQuestions()
		require.NoError(t, err)
		require.Equal(t, questions, m.Questions)
		if len(m.Answers) > 0 {
			name := strings.ToLower(strings.TrimSuffix(questions[0].Name.String(), "."))
			require.True(t, lookup(name, true).Exists)
			require.Equal(t, 1, asked)
		}
	})
}
