package gate

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// host resolves names and connects, as the caller of pk would without a sandbox.
type host struct {
	resolver interface {
		LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	}
	local func(netip.Addr) (bool, error)
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	proxy Proxy

	mu    sync.Mutex
	known map[string]lookup
}

// lookup is the result of resolving a name, or the error.
type lookup struct {
	done  chan struct{}
	at    time.Time
	addrs []netip.Addr
	err   error
}

const (
	// lookupTime bounds the wait for the host's resolver, and dialTime that for a
	// host that does not answer.
	lookupTime = 10 * time.Second
	dialTime   = 20 * time.Second

	// addressTime bounds the wait for one address of several.
	addressTime = 6 * time.Second

	// lookupKept is the time for which an answer is valid: a client connects right after its
	// query for the name.
	lookupKept = 5 * time.Second
)

func newHost(p Proxy) *host {
	return &host{
		// The C library's resolver would use other processes' answers, and must not be
		// exposed to the command either. This one reads /etc/hosts, and asks the servers of
		// /etc/resolv.conf.
		resolver: &net.Resolver{PreferGo: true},
		local:    isLocal,
		dial:     (&net.Dialer{}).DialContext,
		known:    map[string]lookup{},
		proxy:    p,
	}
}

// resolve returns the addresses of a name, with one query for it at a time.
func (h *host) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	h.mu.Lock()
	l, ok := h.known[name]
	fresh := ok && (l.at.IsZero() || time.Since(l.at) < lookupKept)
	if fresh {
		h.mu.Unlock()
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		l = h.known[name]
		return l.addrs, l.err
	}
	l = lookup{done: make(chan struct{})}
	h.known[name] = l
	h.mu.Unlock()
	// A context of its own: others wait for the answer too.
	limited, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	// With a dot at the end the resolver skips the search domains of resolv.conf.
	l.addrs, l.err = h.resolver.LookupNetIP(limited, "ip", name+".")
	l.at = time.Now()
	h.mu.Lock()
	h.known[name] = l
	h.mu.Unlock()
	close(l.done)
	return l.addrs, l.err
}

// connect connects to a host: to an address that it has judged, never by name, as a
// resolver could give another address the second time. It gives a proxy that address too:
// the proxy may be a machine that can reach more than this one should.
func (h *host) connect(ctx context.Context, name string, port uint16, allowPrivate bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	through := h.proxy.serves(name, port)
	addrs, err := h.resolve(ctx, name)
	switch {
	case err != nil && through && allowPrivate:
		return h.connectThrough(ctx, name, port)
	case err != nil && through:
		return nil, &forbidden{errUnknown}
	case err != nil:
		return nil, err
	}
	failed, refused := errors.New("it has no address"), error(nil)
	for _, a := range addrs {
		if err := judge(a, h.local, allowPrivate); err != nil {
			refused = &forbidden{err}
			continue
		}
		c, err := h.connectTo(ctx, a.Unmap(), port, through)
		if err == nil {
			return c, nil
		}
		failed, addrs = err, nil
	}
	if addrs != nil && refused != nil { // there is no address left
		failed = refused
	}
	return nil, failed
}

func (h *host) connectTo(ctx context.Context, a netip.Addr, port uint16, through bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, addressTime)
	defer cancel()
	if through {
		return h.connectThrough(ctx, a.String(), port)
	}
	return h.dial(ctx, "tcp", netip.AddrPortFrom(a, port).String())
}

// errUnknown refuses a name that only the caller's proxy can resolve: it may lead to
// services of the proxy's own network, or of this machine.
var errUnknown = errors.New(isUnknown)

const isUnknown = "it does not resolve here, the proxy may know any address for it, and the rule does not say private"

// forbidden is an address that the gate does not connect to.
type forbidden struct{ error }

func (f *forbidden) Unwrap() error { return f.error }

// connectThrough asks an HTTP proxy for a connection to a name or an address (RFC 9110,
// 9.3.6).
func (h *host) connectThrough(ctx context.Context, name string, port uint16) (net.Conn, error) {
	proxy, err := url.Parse(h.proxy.URL)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err) // CheckProxy has parsed it
	}
	at := proxy.Host
	if proxy.Port() == "" {
		at = net.JoinHostPort(proxy.Hostname(), "80")
	}
	c, err := h.dial(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the proxy: %w", err)
	}
	limit, _ := ctx.Deadline()
	_ = c.SetDeadline(limit)
	to := net.JoinHostPort(name, strconv.Itoa(int(port)))
	request := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n"
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
		request += "Proxy-Authorization: Basic " + credentials + "\r\n"
	}
	_, err = c.Write([]byte(request + "\r\n"))
	if err == nil {
		err = readConnected(c)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("the proxy does not connect: %w", err)
	}
	return c, c.SetDeadline(time.Time{})
}

// maxHead bounds the answer of a proxy.
const maxHead = 64 << 10

// readConnected reads the answer of a proxy, and no byte after it.
func readConnected(c net.Conn) error {
	var head []byte
	one := make([]byte, 1)
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		if _, err := c.Read(one); err != nil {
			return err
		}
		if head = append(head, one[0]); len(head) > maxHead {
			return errors.New("its answer is too long")
		}
	}
	line, _, _ := bufio.ScanLines(head, true)
	fields := strings.Fields(string(head[:line]))
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") || fields[1] != "200" {
		return fmt.Errorf("it answers %.60q", strings.TrimSpace(string(head[:line])))
	}
	return nil
}
