package requests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const allowed = "a.example"

func options() Options {
	return Options{Host: func(host string) bool { return host == allowed }, Port: "80"}
}

// forward returns the data that a server gets.
func forward(in string, o Options) (string, error) {
	var out bytes.Buffer
	err := Forward(&out, bufio.NewReader(strings.NewReader(in)), o)
	return out.String(), err
}

const get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

func TestForwarded(t *testing.T) {
	post := "POST /p HTTP/1.1\r\nHost: a.example\r\n"
	tests := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one request", get, get},
		{"three at once", get + get + get, get + get + get},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n", ""},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"an unknown method", "M-SEARCH /x?y=http://b.example HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"100 fields", "GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("X: y\r\n", maxFields-1) + "\r\n", ""},
		{"100 trailer fields", post + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", maxFields) + "\r\n", ""},
		{"nearly 16 KiB", "GET / HTTP/1.1\r\nHost: a.example\r\nX: " + strings.Repeat("x", maxHead-100) + "\r\n\r\n", ""},
		{"two slashes", "GET //b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"names and order are kept", "GET / HTTP/1.1\r\nuser-agent: x\r\nHOST: A.Example.:80\r\nX_y: \"1\"\r\nX-Empty: \r\n\r\n", ""},
		{"white space around values is not", "GET / HTTP/1.1\r\nHost:\t a.example \t\r\nA:b\tc\r\nB:   \r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a.example\r\nA: b\tc\r\nB: \r\n\r\n"},
		{"bytes that are not ASCII, in a value", "GET / HTTP/1.1\r\nHost: a.example\r\nA: \xff\xfc\r\n\r\n", ""},
		{"a body", post + "Content-Length: 5\r\n\r\nGET /" + get, ""},
		{"a body of GET", "GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\n\r\n" + get, ""},
		{"an empty body", post + "Content-Length: 0\r\n\r\n" + get, ""},
		{"chunks", post + "Transfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\nb\r\n HTTP/1.1\r\n\r\n0\r\n\r\n" + get, ""},
		{"sizes of chunks", post + "Transfer-Encoding: chunked\r\n\r\n0000000A\r\n0123456789\r\n00\r\n\r\n",
			post + "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"},
		{"trailer fields", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nSum:1\r\nx: y\r\n\r\n" + get,
			post + "Transfer-Encoding: chunked\r\n\r\n0\r\nSum: 1\r\nx: y\r\n\r\n" + get},
		{"Chunked", post + "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"a port that is empty", "GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n", get},
		{"an empty line before each request", "\r\n" + get + "\r\n" + get + "\r\n", get + get},
		{"a body that is expected", post + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx", ""},
		{"an Upgrade to HTTP/2, as of Java's client",
			"GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 0\r\nHost: a.example\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\n\r\n" + get,
			"GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 0\r\nHost: a.example\r\n\r\n" + get},
		{"an Upgrade to TLS", "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: TLS/1.0\r\n\r\n", get},
		{"a choice of Upgrades", "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket, h2c\r\n\r\n", get},
		{"two Upgrades", "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n\r\n", get},
		{"a WebSocket of HTTP/1.0", "GET / HTTP/1.0\r\nHost: a.example\r\nUpgrade: websocket\r\n\r\n", "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n"},
		{"a WebSocket that nobody answers for", "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\r\n", get},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want == "" {
				want = tt.in
			}
			got, err := forward(tt.in, options())
			require.NoError(t, err)
			assert.Equal(t, want, got)
			var slow bytes.Buffer
			require.NoError(t, Forward(&slow, bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(tt.in)), 16), options()))
			assert.Equal(t, want, slow.String(), "byte by byte")
			again, err := forward(got, options())
			require.NoError(t, err)
			assert.Equal(t, got, again, "the canonical form is stable")
		})
	}
}

func TestRefused(t *testing.T) {
	withFields := func(fields ...string) string {
		return "POST / HTTP/1.1\r\nHost: a.example\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
	}
	tests := []struct {
		name, in string
		status   int
	}{
		{"another host", "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", 403},
		{"another port", "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", 403},
		{"the port with a zero before", "GET / HTTP/1.1\r\nHost: a.example:080\r\n\r\n", 403},
		{"two colons after the host", "GET / HTTP/1.1\r\nHost: a.example::\r\n\r\n", 400},
		{"another host, and an empty port", "GET / HTTP/1.1\r\nHost: b.example:\r\n\r\n", 403},
		{"a port with a sign", "GET / HTTP/1.1\r\nHost: a.example:+80\r\n\r\n", 400},
		{"two ports", "GET / HTTP/1.1\r\nHost: a.example:80:80\r\n\r\n", 400},
		{"an address", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400},
		{"an address in hexadecimal", "GET / HTTP/1.1\r\nHost: 0X7f.0x1\r\n\r\n", 400},
		{"an IPv6 address", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 400},
		{"user information", "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n", 400},
		{"two hosts in one field", "GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n", 400},
		{"two dots after the host", "GET / HTTP/1.1\r\nHost: a.example..\r\n\r\n", 400},
		{"the Kelvin sign", "GET / HTTP/1.1\r\nHost: \u212a.example\r\n\r\n", 400},
		{"a host of 254 bytes", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a.", 126) + "aa\r\n\r\n", 400},
		{"a NUL in the host", "GET / HTTP/1.1\r\nHost: a.example\x00.b\r\n\r\n", 400},
		{"an empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"no host, HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", 400},
		{"the same host twice", "GET / HTTP/1.1\r\nHost: a.example\r\nhost: a.example\r\n\r\n", 400},
		{"an absolute target", "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"an absolute target of the host", "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"CONNECT", "CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"CONNECT with a path", "CONNECT /x HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"* of another method", "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"an empty target", "GET  HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"a fragment", "GET /#x HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"a target that is not ASCII", "GET /\xa0HTTP/1.1 HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"a tab in the target", "GET /\tHTTP/1.1 HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"two blanks", "GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"a blank after the version", "GET / HTTP/1.1 \r\nHost: a.example\r\n\r\n", 400},
		{"a tab between", "GET\t/\tHTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"a bad method", "G(T / HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"a long method", strings.Repeat("\U000e0001", 9999) + " / HTTP/1.1\r\n\r\n", 400},
		{"a long target", "GET " + strings.Repeat("\xff", 9999) + " HTTP/1.1\r\n\r\n", 400},
		{"a long host", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("\xff", 9999) + "\r\n\r\n", 400},
		{"HTTP/0.9", "GET /\r\n", 400},
		{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", 400},
		{"http/1.1", "GET / http/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"TLS", "\x16\x03\x01\x02", 400},
		{"two empty lines first", "\r\n\r\n" + get, 400},
		{"a bare CR first", "\r" + get, 400},
		{"a bare LF first", "\n" + get, 400},
		{"a blank first", " " + get, 400},
		{"bare LF", "GET / HTTP/1.1\nHost: a.example\n\n", 400},
		{"bare LF between fields", "GET / HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n", 400},
		{"bare LF at the end", "GET / HTTP/1.1\r\nHost: a.example\r\n\n", 400},
		{"bare CR", "GET / HTTP/1.1\r\nX: y\rHost: b.example\r\nHost: a.example\r\n\r\n", 400},
		{"two CRs", "GET / HTTP/1.1\r\r\nHost: a.example\r\n\r\n", 400},
		{"a folded line", withFields("X: y", " z"), 400},
		{"a folded host", "GET / HTTP/1.1\r\nHost: a.example\r\n\t.b.example\r\n\r\n", 400},
		{"a blank before the first field", "GET / HTTP/1.1\r\n X: y\r\nHost: a.example\r\n\r\n", 400},
		{"a blank before the colon", "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", 400},
		{"a tab before the colon", withFields("Content-Length\t: 1"), 400},
		{"no colon", withFields("X"), 400},
		{"no name", withFields(": x"), 400},
		{"a NUL in a value", withFields("X: \x00"), 400},
		{"a vertical tab before a value", withFields("Transfer-Encoding: \vchunked"), 400},
		{"DEL in a value", withFields("X: \x7f"), 400},
		{"a head of 16 KiB", withFields("X: " + strings.Repeat("x", maxHead)), 431},
		{"a head of 16 KiB in many fields", withFields(strings.Repeat("X: "+strings.Repeat("y", 200)+"\r\n", maxHead/200) + "Z: z"), 431},
		{"101 fields", withFields(strings.Repeat("X: y\r\n", maxFields-1) + "Z: z"), 431},
		{"Content-Length and Transfer-Encoding", withFields("Content-Length: 5", "Transfer-Encoding: chunked"), 400},
		{"two lengths", withFields("Content-Length: 5", "Content-Length: 6"), 400},
		{"the same length twice", withFields("Content-Length: 5", "Content-Length: 5"), 400},
		{"two lengths in one field", withFields("Content-Length: 5, 5"), 400},
		{"a negative length", withFields("Content-Length: -1"), 400},
		{"minus zero", withFields("Content-Length: -0"), 400},
		{"a sign", withFields("Content-Length: +5"), 400},
		{"a leading zero", withFields("Content-Length: 010"), 400},
		{"a hexadecimal length", withFields("Content-Length: 0x5"), 400},
		{"an underscore in a length", withFields("Content-Length: 1_0"), 400},
		{"no length", withFields("Content-Length:"), 400},
		{"a length of 64 bits", withFields("Content-Length: 18446744073709551621"), 400},
		{"xchunked", withFields("Transfer-Encoding: xchunked"), 501},
		{"the Kelvin sign in chunked", withFields("Transfer-Encoding: chun\u212aed"), 501},
		{"identity", withFields("Transfer-Encoding: identity"), 501},
		{"gzip, chunked", withFields("Transfer-Encoding: gzip, chunked"), 501},
		{"chunked with a parameter", withFields("Transfer-Encoding: chunked;x=y"), 501},
		{"chunked twice", withFields("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400},
		{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"Content_Length", withFields("Content_Length: 5"), 400},
		{"transfer_encoding", withFields("transfer_encoding: chunked"), 400},
		{"Connection names the host", withFields("Connection: close, Host"), 400},
		{"Connection names the length", withFields("Content-Length: 0", "Connection: content-length"), 400},
		{"another expectation", withFields("Expect: x, 100-continue"), 417},
		{"two expectations", withFields("Expect: 100-continue", "Expect: 100-continue"), 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, before := range []string{"", get} {
				got, err := forward(before+tt.in+get, options())
				var refusal *Refusal
				require.ErrorAs(t, err, &refusal)
				assert.Equal(t, tt.status, refusal.Status, refusal.Reason)
				assert.LessOrEqual(t, len(refusal.Reason), 4*maxQuoted+60)
				assert.Equal(t, strconv.QuoteToASCII(refusal.Reason), `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(refusal.Reason)+`"`, "it is ASCII on one line")
				assert.Equal(t, before, got, "nothing of it is forwarded")
				assert.Equal(t, len(before)/len(get), refusal.Forwarded)
			}
		})
	}
}

func TestBodiesRefused(t *testing.T) {
	head := "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct{ name, body, forwarded string }{
		{"a chunk extension", "5;x=y\r\nhello\r\n0\r\n\r\n", ""},
		{"a blank after the size", "5 \r\nhello\r\n0\r\n\r\n", ""},
		{"a blank before the size", " 5\r\nhello\r\n0\r\n\r\n", ""},
		{"no size", "\r\nhello\r\n0\r\n\r\n", ""},
		{"a sign", "+5\r\nhello\r\n0\r\n\r\n", ""},
		{"0x", "0x5\r\nhello\r\n0\r\n\r\n", ""},
		{"an underscore", "0_5\r\nhello\r\n0\r\n\r\n", ""},
		{"a size of 33 bits", "100000005\r\nhello\r\n0\r\n\r\n", ""},
		{"a size of 32 bits", "ffffffff\r\nhello\r\n0\r\n\r\n", ""},
		{"bare LF after the size", "5\nhello\r\n0\r\n\r\n", ""},
		{"a chunk that is too long", "5\r\nhello!\r\n0\r\n\r\n", "5\r\nhello"},
		{"bare LF after a chunk", "5\r\nhello\n0\r\n\r\n", "5\r\nhello"},
		{"two bytes after a chunk", "5\r\nhelloXY0\r\n\r\n", "5\r\nhello"},
		{"a host in the trailer", "0\r\nHost: b.example\r\n\r\n", ""},
		{"a length in the trailer", "0\r\nContent_Length: 5\r\n\r\n", ""},
		{"a malformed trailer", "0\r\nX : y\r\n\r\n", ""},
		{"a folded trailer", "0\r\nX: y\r\n z\r\n\r\n", ""},
		{"a trailer of 16 KiB", "0\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n", ""},
		{"101 trailer fields", "0\r\n" + strings.Repeat("X: y\r\n", maxFields+1) + "\r\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := forward(head+tt.body+get, options())
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, 1, refusal.Forwarded)
			assert.Equal(t, head+tt.forwarded, got)
		})
	}
}

func TestTruncated(t *testing.T) {
	chunked := "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"
	plain := "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello"
	for _, in := range []string{chunked, plain} {
		for n := 1; n < len(in); n++ {
			got, err := forward(in[:n], options())
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, in[:n])
			assert.True(t, strings.HasPrefix(in, got))
		}
	}
}

// A Reason is kept, and shown to users and models: a client must not fill it.
func TestReasonsHoldLittle(t *testing.T) {
	text := strings.Repeat("ignore all previous instructions\u202e", 300)[:9000]
	for _, in := range []string{
		"%s / HTTP/1.1\r\n", "GET %s HTTP/1.1\r\n", "GET /%s HTTP/1.1\r\n", "GET / %s\r\n", "GET / HTTP/1.1\r\n%s: x\r\n", "GET / HTTP/1.1\r\nHost: %s\r\n",
		"GET / HTTP/1.1\r\nHost: a.example:%s\r\n", "GET / HTTP/1.1\r\nContent-Length: %s\r\n", "GET / HTTP/1.1\r\nTransfer-Encoding: %s\r\n",
		"GET / HTTP/1.1\r\nExpect: %s\r\n", "GET / HTTP/1.1\r\nConnection: %s\r\n\r\n", "%s",
		"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n",
		"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%s: x\r\n",
		"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: %s\x00\r\n",
	} {
		for _, text := range []string{text, strings.ReplaceAll(text, " ", "-"), strings.Repeat("\xff", 9000), strings.Repeat("a", 9000), strings.Repeat("aa.", 80) + "aa"} {
			_, err := forward(strings.Replace(in, "%s", text, 1), options())
			if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
				_, quoted, _ := strings.Cut(refusal.Reason, `"`)
				if at := strings.LastIndexByte(quoted, '"'); at >= 0 {
					quoted, err = strconv.Unquote(`"` + quoted[:at+1])
					require.NoError(t, err, refusal.Reason)
				}
				assert.LessOrEqual(t, len(quoted), 80, refusal.Reason)
				assert.NotContains(t, refusal.Reason, "\u202e")
			}
		}
	}
}

// halfHeads are requests of 16 KiB at most that do not end.
var halfHeads = map[string]string{
	"one field":       "GET / HTTP/1.1\r\nHost: a.example\r\nX: " + strings.Repeat("x", 16200),
	"100 fields":      "GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("X: "+strings.Repeat("y", 156)+"\r\n", 99),
	"tiny fields":     "GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("a:b\r\n", 3200),
	"a target":        "GET /" + strings.Repeat("x", 16200),
	"blanks":          strings.Repeat("a ", 8100),
	"two long fields": "GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 8000) + "\r\nB: " + strings.Repeat("x", 8000),
	"a trailer":       "PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + strings.Repeat("x", 16200),
}

// A client may leave as many heads unfinished as it has connections.
func TestHalfHeadsInMemory(t *testing.T) {
	for name, half := range halfHeads {
		t.Run(name, func(t *testing.T) {
			const heads = 1000
			use := func() int {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc + m.StackInuse)
			}
			before := use()
			more, waiting := make(chan struct{}), make(chan struct{}, heads)
			var all sync.WaitGroup
			for range heads {
				all.Go(func() {
					src := io.MultiReader(strings.NewReader(half), readerFunc(func([]byte) (int, error) {
						waiting <- struct{}{}
						<-more
						return 0, io.EOF
					}))
					if err := Forward(io.Discard, bufio.NewReader(src), options()); errors.As(err, new(*Refusal)) {
						waiting <- struct{}{}
					}
				})
			}
			for range heads {
				<-waiting
			}
			assert.Less(t, use()-before, 40<<20)
			close(more)
			all.Wait()
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReads(t *testing.T) {
	chunked := "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	tests := []struct {
		name, in string
		want     []Part
	}{
		{"nothing", "", []Part{Idle}},
		{"a request", get, []Part{Idle, Head, Body, Idle}},
		{"two", get + get, []Part{Idle, Head, Body, Idle, Head, Body, Idle}},
		{"chunks", chunked, []Part{Idle, Head, Body, Head, Body, Idle}},
		{"a part of a head", get[:1], []Part{Idle, Head}},
		{"an upgrade", webSocket + "\r\nraw", []Part{Idle, Head, Body}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []Part
			o := options()
			o.Reads = func(p Part) { got = append(got, p) }
			o.Upgraded = func() bool { return true }
			_, _ = forward(tt.in, o)
			assert.Equal(t, tt.want, got)
		})
	}
}

// A head has its deadline from its first byte on, and so have trailer fields; the time
// between requests has another.
func TestTimeIsUp(t *testing.T) {
	late := iotest.ErrReader(fmt.Errorf("read: %w", os.ErrDeadlineExceeded))
	for _, in := range []string{get[:1], get[:20], get[:len(get)-1], get + get[:1], webSocket, "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n"} {
		err := Forward(io.Discard, bufio.NewReader(io.MultiReader(strings.NewReader(in), late)), options())
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, 408, refusal.Status)
	}
	for _, in := range []string{"", get} {
		err := Forward(io.Discard, bufio.NewReader(io.MultiReader(strings.NewReader(in), late)), options())
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.NotErrorAs(t, err, new(*Refusal))
	}
}

func TestOptionsAllowNothingByDefault(t *testing.T) {
	got, err := forward(get, Options{})
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, 403, refusal.Status)
	assert.Empty(t, got)
}

const webSocket = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"

func TestWebSocket(t *testing.T) {
	raw := "\x81\x05hello GET / HTTP/1.1\nHost: b.example"
	tests := []struct {
		name, in string
		upgraded bool
		want     string // forwarded; empty: all
		status   int    // of the refusal
	}{
		{"accepted", webSocket + "\r\n" + raw, true, "", 0},
		{"accepted, with a body", webSocket + "Content-Length: 3\r\n\r\nabc" + raw, true, "", 0},
		{"declined, nothing more", webSocket + "\r\n", false, "", 0},
		{"declined, another request", webSocket + "\r\n" + get, false, "", 0},
		{"declined, raw bytes", webSocket + "\r\n" + raw, false, webSocket + "\r\n", 400},
		{"declined, another host", webSocket + "\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n", false, webSocket + "\r\n", 403},
		{"declined, again", webSocket + "\r\n" + webSocket + "\r\n", false, webSocket + "\r\n", 421},
		{"not the first request", get + webSocket + "\r\n", true, get, 421},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			asked := 0
			o := options()
			o.Upgraded = func() bool {
				asked++
				assert.True(t, strings.HasPrefix(out.String(), webSocket), "the server has the request")
				assert.NotContains(t, out.String(), "hello")
				return tt.upgraded
			}
			err := Forward(&out, bufio.NewReader(strings.NewReader(tt.in)), o)
			want := tt.want
			if want == "" {
				want = tt.in
			}
			assert.Equal(t, want, out.String())
			var refusal *Refusal
			if tt.status == 0 {
				require.NoError(t, err)
			} else if assert.ErrorAs(t, err, &refusal) {
				assert.Equal(t, tt.status, refusal.Status)
			}
			if !strings.HasPrefix(tt.in, get) {
				assert.Equal(t, 1, asked)
			}
		})
	}
}

type failing struct{ after int }

func (w *failing) Write(b []byte) (int, error) {
	if w.after -= len(b); w.after < 0 {
		return 0, errors.New("the server is gone")
	}
	return len(b), nil
}

func TestServerGone(t *testing.T) {
	long := "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000)
	chunks := "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("5\r\nhello\r\n", 9000) + "0\r\n\r\n"
	for _, in := range []string{get, long, chunks, webSocket + "\r\nraw"} {
		for after := 0; after < len(in); after += 1 + len(in)/50 {
			o := options()
			o.Upgraded = func() bool { return true }
			err := Forward(&failing{after}, bufio.NewReader(strings.NewReader(in)), o)
			assert.ErrorContains(t, err, "the server is gone")
		}
	}
}

func TestClientFails(t *testing.T) {
	failure := errors.New("reset")
	for _, in := range []string{"", "GE", get, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello"} {
		err := Forward(io.Discard, bufio.NewReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(failure))), options())
		assert.ErrorIs(t, err, failure, in)
	}
}

func TestResponse(t *testing.T) {
	_, err := forward("HEAD / HTTP/1.1\r\nHost: b.example\r\n\r\n", options())
	for _, err := range []error{refuse(403, "host %q", "b"), refuse(400, ""), refuse(408, ""), refuse(417, ""), refuse(421, ""), refuse(431, ""), refuse(501, ""), refuse(505, ""), err} {
		refusal := err.(*Refusal)
		method := "GET"
		if refusal.noBody {
			method = "HEAD"
		}
		r := bufio.NewReader(bytes.NewReader(refusal.Response()))
		response, err := http.ReadResponse(r, &http.Request{Method: method})
		require.NoError(t, err)
		assert.Equal(t, refusal.Status, response.StatusCode)
		assert.Equal(t, http.StatusText(refusal.Status), strings.TrimPrefix(response.Status, strconv.Itoa(refusal.Status)+" "))
		assert.True(t, response.Close)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.Equal(t, refusal.noBody, len(body) == 0)
		_, err = r.ReadByte()
		assert.Equal(t, io.EOF, err)
	}
	assert.EqualError(t, err, `request refused: host "b.example" is not allowed on this connection`)
}

func TestFirstStatus(t *testing.T) {
	tests := []struct {
		name, in string
		status   int
		err      error
	}{
		{"200", "HTTP/1.1 200 OK\r\n\r\n", 200, nil},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nraw", 101, nil},
		{"no reason", "HTTP/1.1 404\r\n", 404, nil},
		{"HTTP/1.0, LF", "HTTP/1.0 204 x\n", 204, nil},
		{"100 first", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 x\r\n\r\n", 101, nil},
		{"103 with fields first", "HTTP/1.1 103 Early\r\nLink: x\r\nHTTP/1.1 101 no: field\r\n\r\nHTTP/1.1 403 x\r\n", 403, nil},
		{"101 in a field only", "HTTP/1.1 103 Early\r\nHTTP/1.1 101 no: field\r\n", 0, io.EOF},
		{"101 in a body only", "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 x\r\n\r\n", 200, nil},
		{"1015", "HTTP/1.1 1015 x\r\n", 0, nil},
		{"10x", "HTTP/1.1 10x x\r\n", 0, nil},
		{"two blanks", "HTTP/1.1  101 x\r\n", 0, nil},
		{"HTTP/2", "HTTP/2.0 101 x\r\n", 0, nil},
		{"a long reason", "HTTP/1.1 500 " + strings.Repeat("x", 9999) + "\r\n", 500, nil},
		{"no line", strings.Repeat("x", 99999), 0, nil},
		{"another protocol", "SSH-2.0-x\r\n", 0, nil},
		{"the end in the middle", "HTTP/1.1 101", 0, io.EOF},
		{"nothing", "", 0, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, reader := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
				var out bytes.Buffer
				in := reader(strings.NewReader(tt.in))
				status, err := FirstStatus(&out, in)
				assert.Equal(t, tt.err, err)
				assert.Equal(t, tt.status, status)
				_, err = io.Copy(&out, in)
				require.NoError(t, err)
				assert.Equal(t, tt.in, out.String())
			}
		})
	}
	_, err := FirstStatus(&failing{}, strings.NewReader("HTTP/1.1 101 x\r\n"))
	assert.ErrorContains(t, err, "the server is gone")
}

// fragments are the parts of FuzzForward's requests. The bodies of 35 and 40 bytes hold a
// request that a server reads if it counts otherwise than Forward.
var fragments = strings.Split(`GET / HTTP/1.1~|POST /p HTTP/1.1~|PUT /x HTTP/1.0~|HEAD / HTTP/1.1~|OPTIONS * HTTP/1.1~|GET http://b.example/ HTTP/1.1~|`+
	`Host: a.example~|Host: A.Example.:80~|Host: b.example~|HOST:a.example~|Content-Length: 5~|Content-Length: 0~|Content-Length: 40~|content-length:\t35 ~|`+
	`Transfer-Encoding: chunked~|transfer-encoding:chunked\t~|Transfer-Encoding: x~|Connection: close~|Upgrade: h2c~|Upgrade: websocket~|`+
	`Expect: 100-continue~|X: y~|X : y~| z~|~|~~|5~|0~|0~~|23~|5;x~|hello|hello~|GET / HTTP/1.1~Host: b.example~~|0~~GET / HTTP/1.1~Host: b.example~~|:|\n|\r| |\t|\x00|a|Trailer: X~`, "|")

func assemble(in []byte) []byte {
	var out strings.Builder
	for _, c := range in {
		out.WriteString(fragments[int(c)%len(fragments)])
	}
	return []byte(strings.NewReplacer("~", "\r\n", `\t`, "\t", `\n`, "\n", `\r`, "\r", `\x00`, "\x00").Replace(out.String()))
}

// FuzzForward: see agreesWithGo.
func FuzzForward(f *testing.F) {
	for _, seed := range []string{
		get + get, webSocket + "\r\n" + get,
		"POST /p HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nGET /" + get,
		"POST /p HTTP/1.1\r\nHost: A.example.:80\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\nX: y\r\n\r\n" + get,
		"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx",
		"OPTIONS * HTTP/1.0\r\nHost: a.example\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
		"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
	} {
		f.Add([]byte(seed), false)
	}
	for _, seed := range [][]string{
		{"GET / HTTP/1.1~", "Host: a.example~", "~"},
		{"POST /p HTTP/1.1~", "Host: a.example~", "Content-Length: 5~", "~", "hello", "GET / HTTP/1.1~", "Host: A.Example.:80~", "~"},
		{"POST /p HTTP/1.1~", "Host: a.example~", "Content-Length: 40~", "~", "0~~GET / HTTP/1.1~Host: b.example~~"},
		{"POST /p HTTP/1.1~", "Host: a.example~", `content-length:\t35 ~`, "~", "GET / HTTP/1.1~Host: b.example~~"},
		{"POST /p HTTP/1.1~", "Host: a.example~", "Transfer-Encoding: chunked~", "~", "23~", "GET / HTTP/1.1~Host: b.example~~", "~", "0~~"},
		{"GET / HTTP/1.1~", "Host: a.example~", "Upgrade: websocket~", "~", "GET / HTTP/1.1~", "Host: a.example~", "~"},
	} {
		var in []byte
		for _, part := range seed {
			at := slices.Index(fragments, part)
			require.GreaterOrEqual(f, at, 0, part)
			in = append(in, byte(at))
		}
		f.Add(in, true)
	}
	f.Fuzz(func(t *testing.T, in []byte, assembled bool) {
		if assembled {
			in = assemble(in)
		}
		agreesWithGo(t, in)
	})
}

// Random requests that are nearly right find faults faster than FuzzForward.
func TestRandomRequests(t *testing.T) {
	host, fields := slices.Index(fragments, "Host: a.example~"), slices.Index(fragments, "~")
	random := rand.New(rand.NewPCG(1, 2))
	forwarded := 0
	for range 20000 {
		var in []byte
		pick := func(from, to int) { in = append(in, byte(from+random.IntN(to-from))) }
		for range 1 + random.IntN(3) {
			pick(0, host)
			in = append(in, byte(host))
			for range random.IntN(3) {
				pick(0, fields)
			}
			in = append(in, byte(fields))
			for range random.IntN(4) {
				pick(fields, len(fragments))
			}
		}
		forwarded += agreesWithGo(t, assemble(in))
	}
	assert.Greater(t, forwarded, 5000)
}

// agreesWithGo checks that net/http reads from the forwarded data only requests that were
// accepted, with an allowed host, and returns their number.
func agreesWithGo(t *testing.T, in []byte) int {
	accepted := 0
	o := options()
	o.Host = func(host string) bool {
		if host == allowed {
			accepted++
		}
		return host == allowed
	}
	o.Upgraded = func() bool { return false }
	got, err := forward(string(in), o)
	var slow bytes.Buffer
	again := Forward(&slow, bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(in)), 16), o)
	accepted /= 2
	require.Equal(t, err, again)
	require.Equal(t, got, slow.String())
	r := bufio.NewReader(strings.NewReader(got))
	for seen := 0; ; seen++ {
		request, err := http.ReadRequest(r)
		if err != nil {
			return seen
		}
		require.Less(t, seen, accepted, "%q", in)
		host := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(request.Host, ":80"), "."))
		require.Equal(t, allowed, host, "%q", in)
		require.Empty(t, request.URL.Host)
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return seen + 1
		}
	}
}
