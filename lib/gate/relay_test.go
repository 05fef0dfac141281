package gate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/gate/clienthello"
	"pikuri/lib/gate/requests"
)

const secondName = "the second TLS hello does not repeat the server name of the first"

// relayed is a connection to a.example through a gate; serve has its other end. record
// waits for the end of both.
func relayed(t *testing.T, relay func(*server, *net.TCPConn, *Record), serve func(*net.TCPConn)) (client *net.TCPConn, record func() Record) {
	listen := func() *net.TCPListener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		return l.(*net.TCPListener)
	}
	near, far := listen(), listen()
	h := newHost(Proxy{})
	h.resolver = resolver{"a.example.": {{netip.MustParseAddr("93.184.215.14")}}}
	h.local = func(netip.Addr) (bool, error) { return false, nil }
	h.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", far.Addr().String())
	}
	records, served := make(chan Record, 1), make(chan struct{})
	go func() {
		defer close(served)
		if c, err := far.AcceptTCP(); err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			serve(c)
		}
	}()
	go func() {
		c, err := near.AcceptTCP()
		if err != nil {
			return
		}
		defer c.Close()
		rec := Record{Verdict: Refused, Name: "a.example", Port: 443}
		relay(&server{host: h}, c, &rec)
		records <- rec
	}()
	c, err := net.Dial("tcp", near.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn), func() Record {
		rec := <-records
		far.Close()
		<-served
		return rec
	}
}

// hello is a ClientHello for a name.
func hello(t *testing.T, name string) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go tls.Client(client, &tls.Config{ServerName: name}).Handshake() //nolint:errcheck // without an answer
	_, sent, err := clienthello.Read(server)
	require.NoError(t, err)
	return sent
}

func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// slow sends each byte alone.
type slow struct{ *net.TCPConn }

func (s slow) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := s.TCPConn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestTLSHandshakes(t *testing.T) {
	p256, x25519 := []tls.CurveID{tls.CurveP256}, []tls.CurveID{tls.X25519, tls.CurveP256}
	rows := []struct {
		name           string
		client, server *tls.Config
		retry          bool
		said           string
	}{
		{"TLS 1.3", &tls.Config{}, &tls.Config{}, false, ""},
		{"a second hello", &tls.Config{CurvePreferences: x25519}, &tls.Config{CurvePreferences: p256}, true, ""},
		{"a second hello after a large one", &tls.Config{NextProtos: []string{strings.Repeat("p", 250)}}, &tls.Config{CurvePreferences: p256}, true, ""},
		{"a server of TLS 1.2", &tls.Config{}, &tls.Config{MaxVersion: tls.VersionTLS12}, false, ""},
		{"a client of TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, &tls.Config{CurvePreferences: p256}, false, ""},
		{"no common version", &tls.Config{MaxVersion: tls.VersionTLS12}, &tls.Config{MinVersion: tls.VersionTLS13}, false, "protocol version not supported"},
		{"no common curve", &tls.Config{CurvePreferences: x25519[:1]}, &tls.Config{CurvePreferences: p256}, false, "handshake failure"},
	}
	own := certificate(t)
	for _, row := range rows {
		for _, bytewise := range []bool{false, true} {
			t.Run(fmt.Sprint(row.name, ", byte by byte ", bytewise), func(t *testing.T) {
				asked := ""
				wrap := func(c *net.TCPConn) net.Conn {
					if bytewise {
						return slow{c}
					}
					return c
				}
				c, record := relayed(t, (*server).relayTLS, func(c *net.TCPConn) {
					config := row.server.Clone()
					config.Certificates = []tls.Certificate{own}
					s := tls.Server(wrap(c), config)
					_, _ = io.Copy(s, s)
					asked = s.ConnectionState().ServerName
					s.Close()
				})
				config := row.client.Clone()
				config.ServerName, config.InsecureSkipVerify = "a.example", true
				client := tls.Client(wrap(c), config)
				err := client.Handshake()
				if row.said != "" {
					require.ErrorContains(t, err, row.said)
					c.Close()
					assert.Equal(t, Allowed, record().Verdict)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, row.retry, client.ConnectionState().HelloRetryRequest)
				_, err = io.WriteString(client, "echo")
				require.NoError(t, err)
				got := make([]byte, 4)
				_, err = io.ReadFull(client, got)
				require.NoError(t, err)
				assert.Equal(t, "echo", string(got))
				client.Close()
				rec := record()
				assert.Equal(t, "a.example", asked)
				assert.Equal(t, Allowed, rec.Verdict)
				assert.Empty(t, rec.Reason)
				assert.Greater(t, rec.Sent, int64(200))
				assert.Greater(t, rec.Received, int64(200))
			})
		}
	}
}

// Records of a server.
var (
	retryRandom, _ = new(big.Int).SetString("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c", 16)
	retry          = serverHello(retryRandom.Bytes())
	accepted       = serverHello(bytes.Repeat([]byte{7}, 32))
	change         = []byte{20, 3, 3, 0, 1, 1}
	warning        = []byte{21, 3, 3, 0, 2, 1, 112}
	early          = append([]byte{23, 3, 3, 0, 20}, "twenty bytes of early"[:20]...)
)

func serverHello(random []byte) []byte {
	body := slices.Concat([]byte{3, 3}, random, []byte{0, 0x13, 1, 0, 0, 0})
	message := append([]byte{2, 0, 0, byte(len(body))}, body...)
	return append([]byte{22, 3, 3, 0, byte(len(message))}, message...)
}

// noCompare is a server that reads one hello more than it should, and does not compare
// names. It returns the names.
func noCompare(c *net.TCPConn, answers ...[]byte) (seen []string) {
	for _, answer := range answers {
		name, _, err := clienthello.ReadAgain(c, io.Discard)
		if err != nil {
			return append(seen, "no hello")
		}
		seen = append(seen, name)
		_, _ = c.Write(answer)
	}
	rest, err := io.ReadAll(c)
	return append(seen, string(rest), fmt.Sprint(err == nil))
}

// A server of several names, which does not compare the second hello with the first, does
// not receive a second one with another name.
func TestSecondHello(t *testing.T) {
	a, b := hello(t, "a.example"), hello(t, "b.example")
	get := []byte("GET /")
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	rows := []struct {
		name          string
		first, second []byte // from the client: at once, and after the first answer
		answers       [][]byte
		seen          []string // by the server
		reason        string
	}{
		{"the same name", a, join(a, get), [][]byte{retry, accepted}, []string{"a.example", "a.example", "GET /", "true"}, ""},
		{"after a change_cipher_spec", a, join(change, a, get), [][]byte{join(retry, change), accepted}, []string{"a.example", "a.example", "GET /", "true"}, ""},
		{"after early data", join(a, change, early), join(early, a, get), [][]byte{retry, join(change, accepted)}, []string{"a.example", "a.example", "GET /", "true"}, ""},
		{"after a warning of the server", a, join(a, get), [][]byte{join(warning, retry), accepted}, []string{"a.example", "a.example", "GET /", "true"}, ""},
		{"no second hello", join(a, get), nil, [][]byte{accepted}, []string{"a.example", "GET /", "true"}, ""},

		{"another name", a, b, [][]byte{retry, accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name, not waiting for the answer", join(a, b), nil, [][]byte{retry, accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name after a change_cipher_spec", a, join(change, b), [][]byte{join(retry, change), accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name after early data", join(a, early), join(early, b), [][]byte{retry, accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name after a warning of the server", a, b, [][]byte{join(warning, retry), accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name in fragments", a, fragments(b), [][]byte{retry, accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name, the answer in fragments", a, b, [][]byte{fragments(retry), accepted}, []string{"a.example", "no hello"}, secondName},
		{"another name after a third time", a, join(a, b), [][]byte{retry, retry, accepted}, []string{"a.example", "a.example", "no hello"}, "the server asks for a third TLS hello"},
		{"no hello", a, get, [][]byte{retry, accepted}, []string{"a.example", "no hello"}, "a record that begins with 47 45 54 20 2f before the second ClientHello"},
		{"two change_cipher_specs", a, join(change, change, a), [][]byte{retry, accepted}, []string{"a.example", "no hello"}, "a record that begins with 14 03 03 00 01 before the second ClientHello"},
		{"an alert of the client", a, warning, [][]byte{retry, accepted}, []string{"a.example", "no hello"}, ""},
		{"nothing after an alert", join(a, b), nil, [][]byte{{21, 3, 3, 0, 2, 2, 40}, accepted}, []string{"a.example", "no hello"}, ""},
		{"nothing after no TLS", join(a, b), nil, [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), accepted}, []string{"a.example", "no hello"}, ""},
	}
	for _, row := range rows {
		for _, bytewise := range []bool{false, true} {
			t.Run(fmt.Sprint(row.name, ", byte by byte ", bytewise), func(t *testing.T) {
				var seen []string
				c, record := relayed(t, (*server).relayTLS, func(c *net.TCPConn) { seen = noCompare(c, row.answers...) })
				var to io.Writer = c
				if bytewise {
					to = slow{c}
				}
				_, err := to.Write(row.first)
				require.NoError(t, err)
				first := make([]byte, len(row.answers[0]))
				_, err = io.ReadFull(c, first)
				require.NoError(t, err)
				assert.Equal(t, row.answers[0], first)
				_, _ = to.Write(row.second)
				_ = c.CloseWrite()
				rest, _ := io.ReadAll(c)
				rec := record()
				assert.Equal(t, row.seen, seen)
				assert.Equal(t, row.reason, rec.Reason)
				if row.reason == "" {
					assert.Equal(t, Allowed, rec.Verdict)
					return
				}
				assert.Equal(t, Refused, rec.Verdict)
				if !bytewise {
					assert.True(t, bytes.HasSuffix(rest, clienthello.Alert(112)), "%x", rest)
				}
			})
		}
	}
}

// fragments puts each byte of a record in a record of its own.
func fragments(record []byte) (out []byte) {
	for _, b := range record[5:] {
		out = append(out, 22, 3, 3, 0, 1, b)
	}
	return out
}

// Data after the hello reaches the server only after its answer has been read, and then
// all of it does.
func TestHeldUntilServerHello(t *testing.T) {
	data := bytes.Repeat([]byte{23, 3, 3, 0, 1, 9}, 1<<18)
	var early error
	var got []byte
	c, record := relayed(t, (*server).relayTLS, func(c *net.TCPConn) {
		_, _, _ = clienthello.Read(c)
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, early = c.Read(make([]byte, 1))
		_ = c.SetReadDeadline(time.Time{})
		_, _ = c.Write(accepted)
		got, _ = io.ReadAll(c)
	})
	go func() {
		_, _ = c.Write(append(hello(t, "a.example"), data...))
		_ = c.CloseWrite()
	}()
	_, err := io.ReadAll(c)
	require.NoError(t, err)
	rec := record()
	assert.ErrorIs(t, early, os.ErrDeadlineExceeded)
	assert.Equal(t, len(data), len(got))
	assert.True(t, bytes.Equal(data, got))
	assert.Equal(t, int64(len(data)+len(hello(t, "a.example"))), rec.Sent)
}

// Each phase of a handshake has its deadline.
func TestSilentTLS(t *testing.T) {
	t.Parallel()
	a := hello(t, "a.example")
	rows := []struct {
		name   string
		answer []byte
		want   Verdict
		reason string
	}{
		{"a server that does not answer", nil, Failed, "it does not answer the TLS hello"},
		{"a server that begins to answer", retry[:20], Failed, "it does not answer the TLS hello"},
		{"a client without a second hello", retry, Refused, "cannot read the second TLS ClientHello"},
	}
	var checks []func() // once all have begun: they wait at the same time
	for _, row := range rows {
		begin := time.Now()
		c, record := relayed(t, (*server).relayTLS, func(c *net.TCPConn) { noCompare(c, row.answer) })
		_, err := c.Write(a)
		require.NoError(t, err)
		checks = append(checks, func() {
			_, _ = io.ReadAll(c)
			c.Close()
			rec := record()
			assert.Equal(t, row.want, rec.Verdict, row.name)
			assert.Contains(t, rec.Reason, row.reason, row.name)
			assert.Greater(t, time.Since(begin), firstTime*9/10, row.name)
		})
	}
	for _, check := range checks {
		check()
	}
}

// The client chooses the name in a reason.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("please.", 30) + "example"
	c, record := relayed(t, (*server).relayTLS, func(*net.TCPConn) {})
	_, err := c.Write(hello(t, long))
	require.NoError(t, err)
	_, _ = io.ReadAll(c)
	c.Close()
	assert.Equal(t, "the TLS server name is "+long[:80], record().Reason)
}

// A head that is not complete in time is refused, and the request before it is answered.
func TestSlowHead(t *testing.T) {
	t.Parallel()
	request := "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
	var checks []func() // once all have begun: they wait at the same time
	for _, before := range []string{"", request} {
		c, record := relayed(t, (*server).relayHTTP, func(c *net.TCPConn) {
			if before != "" {
				_, _ = io.ReadFull(c, make([]byte, len(before)))
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			}
			_, _ = io.Copy(io.Discard, c)
		})
		_, err := io.WriteString(c, before)
		require.NoError(t, err)
		begin := time.Now()
		go func() {
			for i := range request[1:] { // slowly, and never all of it
				_, _ = io.WriteString(c, request[i:i+1])
				time.Sleep(firstTime / 20)
			}
		}()
		checks = append(checks, func() {
			text, _ := io.ReadAll(c)
			c.Close()
			assert.Contains(t, string(text), "HTTP/1.1 408 ")
			assert.Equal(t, before != "", strings.Contains(string(text), "204"))
			assert.Equal(t, "the header fields did not come in time", record().Reason)
			assert.Greater(t, time.Since(begin), firstTime*9/10)
		})
	}
	for _, check := range checks {
		check()
	}
}

// An idle connection ends, but not while the server is still answering.
func TestIdle(t *testing.T) {
	const idle, answers = 2 * time.Second, 3
	var err error
	var waited time.Duration
	_, record := relayed(t, func(s *server, c *net.TCPConn, rec *Record) {
		from := &client{c: c, there: s.connect(c, rec).(*net.TCPConn), idle: idle}
		begin := time.Now()
		from.reads(requests.Idle)
		_, err = from.Read(make([]byte, 1))
		waited = time.Since(begin)
		from.there.Close()
	}, func(c *net.TCPConn) {
		for range answers {
			time.Sleep(idle / 2)
			_, _ = c.Write([]byte("x"))
		}
		_, _ = c.Read(make([]byte, 1))
	})
	record()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Greater(t, waited, answers*idle/2+idle/2)
}
