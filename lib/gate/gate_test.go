package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/hostrule"
)

func TestAddresses(t *testing.T) {
	own := func(a netip.Addr) (bool, error) {
		return a == netip.MustParseAddr("93.184.215.99") || a == netip.MustParseAddr("2606:2800::99"), nil
	}
	rows := []struct{ address, plain, private string }{ // the reason, without and with the word
		{"93.184.215.14", "", ""},
		{"2606:2800:21f::1", "", ""},
		{"::ffff:93.184.215.14", "", ""},
		{"10.0.0.5", isPrivate, ""},
		{"172.31.255.255", isPrivate, ""},
		{"192.168.1.1", isPrivate, ""},
		{"100.64.0.1", isPrivate, ""},
		{"192.0.2.1", isPrivate, ""},
		{"198.18.0.1", isPrivate, ""},
		{"fd00::1", isPrivate, ""},
		{"::ffff:10.0.0.5", isPrivate, ""},
		{"127.0.0.1", "no host", "no host"},
		{"127.255.0.1", "no host", "no host"},
		{"::1", "no host", "no host"},
		{"::ffff:127.0.0.1", "no host", "no host"},
		{"::127.0.0.1", "no host", "no host"},
		{"64:ff9b::7f00:1", "no host", "no host"},
		{"64:ff9b:1::1", "no host", "no host"},
		{"2002:7f00:1::", "no host", "no host"},
		{"192.88.99.1", "no host", "no host"},
		{"::ffff:0:7f00:1", "no host", "no host"},
		{"200::5efe:7f00:1", "no host", "no host"},
		{"100:0:0:1::1", "no host", "no host"},
		{"1::1", "no host", "no host"},
		{"4000::1", "no host", "no host"},
		{"fd20:ce::254", "no host", "no host"},
		{"2001:0:1::", "no host", "no host"},
		{"0.0.0.0", "no host", "no host"},
		{"0.1.2.3", "no host", "no host"},
		{"::", "no host", "no host"},
		{"169.254.169.254", "no host", "no host"},
		{"fe80::1", "no host", "no host"},
		{"fe80::1%eth0", "no host", "no host"},
		{"fec0::1", "no host", "no host"},
		{"224.0.0.251", "no host", "no host"},
		{"255.255.255.255", "no host", "no host"},
		{"240.0.0.1", "no host", "no host"},
		{"ff02::1", "no host", "no host"},
		{"100.100.100.200", "no host", "no host"},
		{"fd00:ec2::254", "no host", "no host"},
		{"168.63.129.16", "no host", "no host"},
		{"192.0.0.192", "no host", "no host"},
		{"100.96.0.96", "no host", "no host"},
		{"100.96.0.97", isPrivate, ""},
		{"100.80.80.80", "no host", "no host"},
		{"169.254.0.23", "no host", "no host"},
		{"169.254.42.42", "no host", "no host"},
		{"fd00:42::42", "no host", "no host"},
		{"fd00:42::43", isPrivate, ""},
		{"fd00:c1::a9fe:a9fe", "no host", "no host"},
		{"fd00:a9fe:a9fe::1", "no host", "no host"},
		{"fd00:100::100:200", "no host", "no host"},
		{"fe80::a9fe:a9fe", "no host", "no host"},
		{"93.184.215.99", "of this machine", "of this machine"},
		{"::ffff:93.184.215.99", "of this machine", "of this machine"},
		{"2606:2800::99", "of this machine", "of this machine"},
	}
	for _, row := range rows {
		t.Run(row.address, func(t *testing.T) {
			for allowed, want := range map[bool]string{false: row.plain, true: row.private} {
				err := judge(netip.MustParseAddr(row.address), own, allowed)
				if want == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, want)
				}
			}
		})
	}
}

// resolver answers from a table, each name once with each of its lists in turn.
type resolver map[string][][]netip.Addr

func (r resolver) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	lists := r[name]
	if len(lists) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	if len(lists) > 1 {
		r[name] = lists[1:]
	}
	return lists[0], nil
}

// The gate dials the address that it has judged, even if the resolver then gives another.
func TestDialledAsJudged(t *testing.T) {
	list := func(addrs ...string) (all []netip.Addr) {
		for _, a := range addrs {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	names := resolver{
		"rebinds.test.": {list("93.184.215.14"), list("127.0.0.1")},
		"mixed.test.":   {list("127.0.0.1", "10.0.0.1", "93.184.215.14")},
		"bad.test.":     {list("127.0.0.1", "10.0.0.1")},
		"empty.test.":   {nil},
	}
	var dialled []string
	h := newHost(Proxy{})
	h.resolver = names
	h.local = func(netip.Addr) (bool, error) { return false, nil }
	h.dial = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, errors.New("it is a test")
	}
	for _, row := range []struct {
		name string
		want []string
		said string
	}{
		{"rebinds.test", []string{"93.184.215.14:443"}, "it is a test"},
		{"mixed.test", []string{"93.184.215.14:443"}, "it is a test"},
		{"bad.test", nil, isPrivate},
		{"empty.test", nil, "it has no address"},
		{"none.test", nil, "no such host"},
	} {
		dialled = nil
		_, err := h.connect(context.Background(), row.name, 443, false)
		assert.ErrorContains(t, err, row.said, row.name)
		assert.Equal(t, row.want, dialled, row.name)
	}
}

func TestNamesAndAddresses(t *testing.T) {
	for _, withSix := range []bool{false, true} {
		n := newNames(withSix)
		seen := map[netip.Addr]bool{}
		for i := range maxNames {
			name := fmt.Sprintf("n%d.test", i)
			four, six, ok := n.add(name, i%2 == 0)
			require.True(t, ok)
			require.False(t, seen[four], "%s has %s twice", name, four)
			seen[four] = true
			got, ok := n.find(four)
			require.True(t, ok)
			require.Equal(t, name, got)
			require.Equal(t, withSix, six.IsValid())
			if withSix {
				got, ok = n.find(six)
				require.True(t, ok)
				require.Equal(t, name, got)
			}
			again, _, _ := n.add(name, i%2 == 0)
			require.Equal(t, four, again)
		}
		_, _, ok := n.add("one-more.test", true)
		assert.False(t, ok, "the table is bounded")
		_, _, ok = n.add("n0.test", true)
		assert.True(t, ok, "a name that it has stays")
		n.used[7] = n.used[7].Add(-nameKept)
		four, _, ok := n.add("later.test", false)
		assert.True(t, ok, "a name of a wildcard that was not used for long goes")
		got, _ := n.find(four)
		assert.Equal(t, "later.test", got)
		_, known := n.places["n7.test"]
		assert.False(t, known)
	}
	n := newNames(true)
	n.add("a.test", true)
	for _, a := range []string{"198.18.0.1", "198.18.0.255", "198.18.1.1", "198.19.255.1", "93.184.215.14", "0.0.0.0", "255.255.255.255", "::", "::1", "fd70:6b67::1", "fd70:6b67:0:1::", "fd70:6b67:0:1::101", "fd70:6b67:0:2::100", "::ffff:198.18.1.1"} {
		_, ok := n.find(netip.MustParseAddr(a))
		assert.False(t, ok, a)
	}
	name, ok := n.find(netip.MustParseAddr("::ffff:198.18.1.0"))
	assert.True(t, ok)
	assert.Equal(t, "a.test", name)
}

func TestProxies(t *testing.T) {
	p := Proxy{URL: "http://p", NoProxy: "direct.test, .below.test,*.star.test,port.test:22,,"}
	for name, want := range map[string]bool{
		"a.test:443": true, "direct.test:443": false, "x.direct.test:443": false, "xdirect.test:443": true,
		"below.test:443": true, "x.below.test:443": false, "x.star.test:443": false,
		"port.test:22": false, "port.test:443": true,
	} {
		host, port, _ := strings.Cut(name, ":")
		number := map[string]uint16{"22": 22, "443": 443}[port]
		assert.Equal(t, want, p.serves(host, number), name)
	}
	assert.False(t, Proxy{URL: "http://p", NoProxy: "*"}.serves("a.test", 443))
	assert.False(t, Proxy{}.serves("a.test", 443), "there is none")

	for value, want := range map[string]string{
		"http://h:3128": "http://h:3128", "h:3128": "http://h:3128", "": "",
		"socks5://h": `only http proxies can be used`, "https://h": `only http proxies can be used`, "http://": "it names no host", "http://me:secret@h:x": "it is no URL",
	} {
		p, err := FindProxy(func(name string) string { return map[string]string{"https_proxy": value}[name] })
		if err != nil {
			assert.ErrorContains(t, err, want, value)
			assert.NotContains(t, err.Error(), "secret")
			continue
		}
		assert.Equal(t, want, p.URL)
	}
}

func TestOneGateForEqualNetworks(t *testing.T) {
	rules := func(texts ...string) (all hostrule.Rules) {
		for _, text := range texts {
			r, err := hostrule.Parse(text)
			require.NoError(t, err)
			all = append(all, r)
		}
		return all
	}
	a := Config{Allow: true, Rules: rules("a.test", "b.test:22"), Publish: []uint16{2, 1}}
	assert.True(t, a.Equal(Config{Allow: true, Rules: rules("b.test:22", "a.test:443,80", "a.test"), Publish: []uint16{1, 2}}))
	for _, other := range []Config{
		{}, {Allow: true}, {Allow: true, Rules: rules("a.test", "b.test"), Publish: []uint16{1, 2}},
		{Allow: true, Rules: rules("a.test", "b.test:22")}, {Allow: true, Rules: rules("a.test private", "b.test:22"), Publish: []uint16{1, 2}},
		{Allow: true, Rules: a.Rules, Publish: a.Publish, Connect: []uint16{3}}, {Allow: true, Rules: a.Rules, Publish: a.Publish, Proxy: Proxy{URL: "http://p"}},
	} {
		assert.False(t, a.Equal(other), other.String())
	}
	assert.Equal(t, "allow a.test:80,443; b.test:22 publish 1 publish 2", a.String())
	assert.Equal(t, "none", Config{}.String())
}

// The gate's own sends are not paced either.
func TestCongestion(t *testing.T) {
	l, err := listen(unix.AF_INET, netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	defer l.Close()
	at, err := unix.Getsockname(int(l.Fd()))
	require.NoError(t, err)
	c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", at.(*unix.SockaddrInet4).Port))
	require.NoError(t, err)
	defer c.Close()
	fd, _, err := unix.Accept(int(l.Fd()))
	require.NoError(t, err)
	defer unix.Close(fd)
	got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	require.NoError(t, err)
	assert.Equal(t, congestion, strings.TrimRight(got, "\x00"))
}

func TestLines(t *testing.T) {
	refused := func(name string) Record {
		return Record{Verdict: Refused, Name: name, Protocol: "dns", Reason: noRule}
	}
	list := []Record{{Verdict: Allowed, Name: "good.test", Port: 443}, refused("a.test"), refused("a.test")}
	assert.Equal(t, []string{"a.test was refused: no rule allows it (--allow-host a.test would)"}, Lines(list))
	for i := range 7 {
		list = append(list, refused(fmt.Sprintf("n%d.test", i)))
	}
	lines := Lines(list)
	assert.Len(t, lines, maxLines+1)
	assert.Equal(t, "and 3 more", lines[maxLines])
	assert.Equal(t, []string{"-x.test was refused: no rule allows it"}, Lines([]Record{refused("-x.test")}), "no rule can be made of it")
	assert.Empty(t, Lines(nil))
}

// A client that asks for the address of a name above an allowed one wants to connect to it. A
// resolver that asks for other records only looks for the allowed one.
func TestNamesAboveAllowedOnes(t *testing.T) {
	var rules hostrule.Rules
	for _, text := range []string{"*.wild.test", "a.b.c.test:22"} {
		rule, err := hostrule.Parse(text)
		require.NoError(t, err)
		rules = append(rules, rule)
	}
	s := newServer(Config{Allow: true, Rules: rules}, &wires{})
	for _, row := range []struct {
		name             string
		address          bool
		exists, reported bool
	}{
		{"wild.test", true, true, true},
		{"wild.test", false, true, false},
		{"b.c.test", true, true, true},
		{"c.test", false, true, false},
		{"test", true, true, true},
		{"_.c.test", true, false, false}, // of a resolver (RFC 9156)
		{"other.test", true, false, true},
		{"other.test", false, false, true},
		{"www.wild.test", true, true, false},
	} {
		r := newReport()
		s.tell(r, true)
		found := s.lookup(row.name, row.address)
		s.tell(r, false)
		assert.Equal(t, row.exists, found.Exists || found.Empty, row)
		want := []string(nil)
		if row.reported {
			want = []string{fmt.Sprintf("%s was refused: no rule allows it (--allow-host %[1]s would)", row.name)}
		}
		assert.Equal(t, want, Lines(r.all()), row)
	}
}

// At port 53 the gate takes queries alone, at each address. It reports the rest at once, and a
// connection to a server's address that brings nothing.
func TestNoQueries(t *testing.T) {
	rule, err := hostrule.Parse("a.test")
	require.NoError(t, err)
	s := newServer(Config{Allow: true, Rules: hostrule.Rules{rule}, Proxy: Proxy{URL: "http://p"}}, &wires{})
	const query = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01"
	const framed = "\x00\x18" + query
	const reply = 2 + len(query) + 16
	for _, row := range []struct {
		name, sent string
		answered   int // bytes
		reported   bool
	}{
		{"a query", framed, reply, false},
		{"two queries", framed + framed, 2 * reply, false},
		{"half a query after one", framed + framed[:9], reply, false},
		{"SSH", "SSH-2.0-x\r\n", 0, true},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", 0, true},
		{"TLS", "\x16\x03\x01\x02\x00", 0, true},
		{"half a query", framed[:9], 0, true},
		{"no query", "\x00\x0cexfil-not-dn", 2 + 12, true},
		{"nothing", "", 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			there, err := l.Accept()
			require.NoError(t, err)
			r := newReport()
			s.tell(r, true)
			defer s.tell(r, false)
			_, err = c.Write([]byte(row.sent))
			require.NoError(t, err)
			if row.name != "SSH" { // its client waits for an answer
				require.NoError(t, c.(*net.TCPConn).CloseWrite())
			}
			begun := time.Now()
			s.answerStream(there.(*net.TCPConn))
			there.Close()
			assert.Less(t, time.Since(begun), queryTime/2)
			got, _ := io.ReadAll(c)
			if row.answered > 0 {
				assert.Len(t, got, row.answered)
			}
			want := []string(nil)
			if row.reported {
				want = []string{"127.0.0.1:53 over tcp was refused: " + noQuery}
			}
			assert.Equal(t, want, Lines(r.all()))
		})
	}
	r := newReport()
	s.tell(r, true)
	assert.NotNil(t, s.answer([]byte(query), "udp", netip.MustParseAddr("192.0.2.53")))
	assert.Empty(t, r.all())
	s.answer([]byte("x"), "udp", netip.MustParseAddr("::ffff:192.0.2.53"))
	assert.Equal(t, []string{"192.0.2.53:53 over udp was refused: " + noQuery}, Lines(r.all()))
}

// A command cannot hide a record among many, nor make one large.
func TestReportsAreBounded(t *testing.T) {
	r := newReport()
	for i := range 3 * maxKinds {
		r.add(Record{Verdict: Allowed, Name: "good.test", Port: 443, Sent: 1, Received: 2})
		r.add(Record{Verdict: Refused, Name: fmt.Sprintf("n%d.test", i), Reason: noRule})
	}
	r.add(Record{Verdict: Failed, Name: "last.test", Reason: strings.Repeat("x", 100000)})
	list := r.all()
	require.Len(t, list, 1+maxKinds+1+1)
	assert.Equal(t, 3*maxKinds, list[0].Count)
	assert.EqualValues(t, 3*maxKinds, list[0].Sent)
	assert.EqualValues(t, 6*maxKinds, list[0].Received)
	assert.Equal(t, "last.test", list[maxKinds+1].Name)
	assert.Len(t, list[maxKinds+1].Reason, maxReason)
	assert.Equal(t, 2*maxKinds, list[maxKinds+2].Count)
	assert.Contains(t, Lines(list[maxKinds+2:])[0], "more than a report has a place for: 2000")
}

// Packets of the command are hostile bytes too.
func FuzzDestination(f *testing.F) {
	f.Add([]byte("E\x00\x00\x28\x00\x00\x00\x00\x40\x06\x00\x00\xc6\x13\xff\x02\x0a\x01\x01\x01\x00\x01\x01\xbb"))
	f.Add([]byte("\x00\x01\x01\xbb"))
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, six := range []bool{false, true} {
			if to, ok := destination(p, unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte{1}}), six); ok {
				assert.True(t, to.IsValid())
			}
		}
	})
}
