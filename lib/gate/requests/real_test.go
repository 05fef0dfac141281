package requests

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gate forwards connections to a server as a caller should.
type gate struct {
	addr        string
	connections atomic.Int32
}

func newGate(t *testing.T, server string) *gate {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	g := &gate{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.connections.Add(1)
			go serve(c.(*net.TCPConn), server)
		}
	}()
	return g
}

func serve(client *net.TCPConn, addr string) {
	defer client.Close()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	status, done := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(done)
		first, err := FirstStatus(client, server)
		status <- first
		if err == nil {
			io.Copy(client, server)
		}
		client.CloseRead() // the server has finished: wake Forward up
	}()
	o := options()
	o.Upgraded = func() bool { return <-status == 101 }
	err = Forward(server, bufio.NewReader(client), o)
	server.CloseWrite()
	<-done
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		client.Write(refusal.Response())
	}
	client.CloseWrite()
}

// client is a net/http client that reaches any host through the gate.
func (g *gate) client(t *testing.T) *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", g.addr)
		},
		ExpectContinueTimeout: time.Minute,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func (g *gate) dial(t *testing.T) *net.TCPConn {
	c, err := net.Dial("tcp", g.addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

func newServer(t *testing.T) *gate {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		buf := make([]byte, 1000)
		for {
			n, err := r.Body.Read(buf)
			w.Write(buf[:n])
			http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v %s %v", n, h.Sum(nil), err, r.Trailer.Get("X-Sum"), r.TransferEncoding)
	})
	mux.HandleFunc("/decline", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); w.WriteHeader(204) })
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "websocket only", http.StatusUpgradeRequired)
			return
		}
		c, rw, _ := http.NewResponseController(w).Hijack()
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, rw)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Host, r.URL.Path) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return newGate(t, s.Listener.Addr().String())
}

func body(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(b)
}

func TestKeepAlive(t *testing.T) {
	g := newServer(t)
	client := g.client(t)
	for range 5 {
		r, err := client.Get("http://a.example/x")
		assert.Equal(t, "a.example /x", body(t, r, err))
	}
	r, err := client.Head("http://a.example/x")
	assert.Empty(t, body(t, r, err))
	assert.Equal(t, int64(12), r.ContentLength)
	assert.EqualValues(t, 1, g.connections.Load())
	r, err = client.Get("http://b.example/x")
	assert.Equal(t, "host \"b.example\" is not allowed on this connection\n", body(t, r, err))
	assert.Equal(t, 403, r.StatusCode)
	r, err = client.Head("http://b.example/x")
	assert.Empty(t, body(t, r, err))
	assert.Equal(t, 403, r.StatusCode)
}

func TestPipeliningAndThenAnotherHost(t *testing.T) {
	c := newServer(t).dial(t)
	for i := range 3 {
		fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: a.example\r\n\r\n", i)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")
	in := bufio.NewReader(c)
	for i := range 3 {
		r, err := http.ReadResponse(in, nil)
		assert.Equal(t, fmt.Sprintf("a.example /%d", i), body(t, r, err))
	}
	r, err := http.ReadResponse(in, nil)
	body(t, r, err)
	assert.Equal(t, 403, r.StatusCode)
	assert.True(t, r.Close)
	_, err = in.ReadByte()
	assert.Equal(t, io.EOF, err)
}

func TestLargeBodies(t *testing.T) {
	client := newServer(t).client(t)
	data := make([]byte, 5<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	for _, size := range []int{0, 1, 4095, 4096, 4097, 70000, len(data)} {
		want := fmt.Sprintf("%d %x <nil>", size, sha256.Sum256(data[:size]))
		r, err := client.Post("http://a.example/sum", "", bytes.NewReader(data[:size]))
		assert.Equal(t, want+"  []", body(t, r, err))

		request, err := http.NewRequest("PUT", "http://a.example:80/sum", io.MultiReader(bytes.NewReader(data[:size])))
		require.NoError(t, err)
		request.TransferEncoding = []string{"chunked"}
		request.Trailer = http.Header{"X-Sum": {"sum"}}
		r, err = client.Do(request)
		assert.Equal(t, want+" sum [chunked]", body(t, r, err))
	}
}

// Data of the client arrives before it sends more.
func TestStreamedUpload(t *testing.T) {
	client := newServer(t).client(t)
	in, out := io.Pipe()
	r, err := client.Post("http://a.example/echo", "", in)
	require.NoError(t, err)
	for i := range 20 {
		word := strings.Repeat(fmt.Sprint(i), 1+i*100)
		go io.WriteString(out, word)
		got := make([]byte, len(word))
		_, err = io.ReadFull(r.Body, got)
		require.NoError(t, err)
		assert.Equal(t, word, string(got))
	}
	out.Close()
	assert.Empty(t, body(t, r, nil))
}

type spy struct {
	io.Reader
	read bool
}

func (s *spy) Read(b []byte) (int, error) { s.read = true; return s.Reader.Read(b) }

func TestExpectContinue(t *testing.T) {
	client := newServer(t).client(t)
	send := func(path string) (*spy, *http.Response) {
		content := &spy{Reader: strings.NewReader("hello")}
		request, err := http.NewRequest("POST", "http://a.example"+path, content)
		require.NoError(t, err)
		request.ContentLength = 5
		request.Header.Set("Expect", "100-continue")
		r, err := client.Do(request)
		require.NoError(t, err)
		return content, r
	}
	content, r := send("/sum")
	assert.Equal(t, 200, r.StatusCode)
	assert.True(t, strings.HasPrefix(body(t, r, nil), "5 "))
	assert.True(t, content.read)
	content, r = send("/decline")
	assert.Equal(t, 401, r.StatusCode)
	body(t, r, nil)
	assert.False(t, content.read)
}

func TestUpgrade(t *testing.T) {
	g := newServer(t)
	client := g.client(t)
	upgrade := func(path, protocol string) *http.Response {
		request, err := http.NewRequest("GET", "http://a.example"+path, nil)
		require.NoError(t, err)
		request.Header.Set("Connection", "Upgrade")
		request.Header.Set("Upgrade", protocol)
		r, err := client.Transport.RoundTrip(request)
		require.NoError(t, err)
		return r
	}
	r := upgrade("/upgrade", "websocket")
	require.Equal(t, 101, r.StatusCode)
	c := r.Body.(io.ReadWriteCloser)
	for i := range 5 {
		word := fmt.Sprintf("\x00GET / HTTP/1.1\nHost: b.example\n%d", i)
		io.WriteString(c, word)
		got := make([]byte, len(word))
		_, err := io.ReadFull(c, got)
		require.NoError(t, err)
		assert.Equal(t, word, string(got))
	}
	c.Close()

	r = upgrade("/upgrade", "h2c")
	assert.Equal(t, 426, r.StatusCode)
	body(t, r, nil)

	// net/http uses separate connections for a WebSocket, so both use the same one.
	before := g.connections.Load()
	r = upgrade("/decline", "websocket")
	assert.Equal(t, 401, r.StatusCode)
	body(t, r, nil)
	r = upgrade("/upgrade", "websocket")
	assert.Equal(t, 421, r.StatusCode)
	body(t, r, nil)
	assert.Equal(t, before+1, g.connections.Load())
}

func TestConnectionGoesOnAfterDeclinedUpgrade(t *testing.T) {
	c := newServer(t).dial(t)
	in := bufio.NewReader(c)
	io.WriteString(c, "GET /decline HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r, err := http.ReadResponse(in, nil)
	body(t, r, err)
	assert.Equal(t, 401, r.StatusCode)
	io.WriteString(c, get)
	r, err = http.ReadResponse(in, nil)
	assert.Equal(t, "a.example /", body(t, r, err))
}

func TestInterimResponse(t *testing.T) {
	r, err := newServer(t).client(t).Get("http://a.example/early")
	assert.Empty(t, body(t, r, err))
	assert.Equal(t, 204, r.StatusCode)
}

func TestHalfClose(t *testing.T) {
	c := newServer(t).dial(t)
	io.WriteString(c, "POST /sum HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi")
	c.CloseWrite()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	assert.True(t, strings.HasPrefix(body(t, r, err), "2 "))
}
