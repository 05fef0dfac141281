package gatetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Client runs the commands in its words and prints one line for each. It is for a test
// binary that runs inside the sandbox.
//
//	get URL                 the answer's status and first line
//	tcp HOST:PORT [TEXT]    what comes back, up to the end
//	tls HOST:PORT NAME      a TLS handshake with another server name
//	unix PATH               a connection to a socket
//	udp HOST:PORT [TEXT]    a packet, and what becomes of it
//	bulk HOST:PORT          the time for 4 GiB to arrive, in us
//	upload HOST:PORT        the time for 4 GiB to be sent, in us
//	pull, push HOST:PORT    the MB/s that arrive, or are sent, in a second
//	short HOST:PORT N       N connections of a line each, several at a time
//	stalled HOST:PORT URL   a page, while a connection brings more than is read of it
//	reset HOST:PORT         a connection that is reset
//	link HOST:PORT          the congestion control of a connection, and whether eth0 sends large segments
//	greetings HOST:PORT     the median time from connecting to its address to the first byte, in us
//	serve HOST:PORT         an HTTP server, until standard input ends
//	lookup NAME             its addresses' families
func Client(words []string, roots string, out io.Writer) {
	for _, line := range words {
		word := strings.SplitN(line, " ", 3)
		if len(word) < 3 {
			word = append(word, "")
		}
		said, err := act(word[0], word[1], word[2], roots)
		if err != nil {
			said = "error: " + kind(err)
		}
		fmt.Fprintln(out, strings.TrimSpace(said))
	}
}

const patience = 5 * time.Second

func act(what, to, text, roots string) (string, error) {
	switch what {
	case "get":
		return get(to, roots)
	case "tcp":
		return talk(to, strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(text))
	case "tls":
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", to, &tls.Config{ServerName: text, InsecureSkipVerify: true})
		if err != nil {
			return "", err
		}
		return "connected", c.Close()
	case "udp":
		c, err := net.Dial("udp", to)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err = c.Write([]byte(text + "x")); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		return "answered", err
	case "unix":
		c, err := net.Dial("unix", to)
		if err != nil {
			return "", err
		}
		return "connected", c.Close()
	case "bulk":
		_, took, err := pull(to, isBulk)
		return fmt.Sprint(took.Microseconds()), err
	case "pull":
		n, took, err := pull(to, second())
		return fmt.Sprint(n / took.Microseconds()), err
	case "push":
		n, took, err := push(to, second())
		return fmt.Sprint(n / took.Microseconds()), err
	case "short":
		return short(to, text)
	case "stalled":
		return stalled(to, text, roots)
	case "reset":
		c, err := net.DialTimeout("tcp", to, patience)
		if err != nil {
			return "", err
		}
		if _, err = c.Read(make([]byte, 1)); err == nil { // the server has it
			err = c.(*net.TCPConn).SetLinger(0)
		}
		return "reset", errors.Join(err, c.Close())
	case "link":
		return aboutLink(to)
	case "upload":
		_, took, err := push(to, isBulk)
		return fmt.Sprint(took.Microseconds()), err
	case "greetings":
		return greetings(to)
	case "serve":
		return "", serve(to)
	case "lookup":
		addrs, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", to)
		four, six := 0, 0
		for _, a := range addrs {
			if a.Unmap().Is4() {
				four++
			} else {
				six++
			}
		}
		return fmt.Sprintf("%d and %d", four, six), err
	}
	return "", errors.New("no such word: " + what)
}

// serve answers requests until its standard input ends.
func serve(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	go http.Serve(l, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) { fmt.Fprint(out, "inside") })) //nolint:errcheck // it ends with the process
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// short compares each answer: a descriptor that is used after its number belongs to
// another connection takes bytes of that one.
func short(to, count string) (string, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	var next atomic.Int64
	errs := make(chan error)
	const atATime = 32
	for range atATime {
		go func() {
			var err error
			for i := next.Add(1); err == nil && i <= int64(n); i = next.Add(1) {
				line := fmt.Sprintf("%d %d", i, i*i)
				got := ""
				if got, err = talk(to, line); err == nil && !strings.HasSuffix(got, `\n`+line) {
					err = fmt.Errorf("connection %d: %q", i, got)
				}
			}
			errs <- err
		}()
	}
	for range atATime {
		err = errors.Join(err, <-errs)
	}
	return count + " are right", err
}

func stalled(to, url, roots string) (string, error) {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	said, err := get(url, roots)
	if err != nil {
		return "", err
	}
	n, err := io.CopyN(io.Discard, c, 64<<20)
	return fmt.Sprint(said, ", and ", n), err
}

func aboutLink(to string) (string, error) {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", err
	}
	control := ""
	_ = raw.Control(func(fd uintptr) { control, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	eth0, failed := net.InterfaceByName("eth0")
	if err = errors.Join(err, failed); err != nil {
		return "", err
	}
	table, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return "", err
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	size, most := uint32(0), uint32(64<<10) // a kernel that does not say most has this one
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWLINK || binary.NativeEndian.Uint32(m.Data[4:]) != uint32(eth0.Index) {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return "", err
		}
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.IFLA_GSO_MAX_SIZE:
				size = binary.NativeEndian.Uint32(a.Value)
			case unix.IFLA_TSO_MAX_SIZE:
				most = binary.NativeEndian.Uint32(a.Value)
			}
		}
	}
	return fmt.Sprint(strings.TrimRight(control, "\x00"), " ", size >= min(most, 256<<10)), err
}

func isBulk(n int64) bool { return n >= 4<<30 }

func second() func(int64) bool {
	begin := time.Now()
	return func(int64) bool { return time.Since(begin) > time.Second }
}

func pull(to string, isEnough func(int64) bool) (n int64, took time.Duration, err error) {
	c, err := dial(to)
	if err != nil {
		return 0, time.Second, err
	}
	defer c.Close()
	begin := time.Now()
	buf := make([]byte, 1<<20)
	for err == nil && !isEnough(n) {
		var got int
		got, err = c.Read(buf)
		n += int64(got)
	}
	return n, time.Since(begin), err
}

func push(to string, isEnough func(int64) bool) (n int64, took time.Duration, err error) {
	c, err := dial(to)
	if err != nil {
		return 0, time.Second, err
	}
	defer c.Close()
	begin := time.Now()
	block := make([]byte, 1<<20)
	for err == nil && !isEnough(n) {
		_, err = c.Write(block)
		n += int64(len(block))
	}
	if err == nil {
		_, err = c.Write(lastByte)
		n++
	}
	if err != nil {
		return 0, time.Second, err
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprint(n) {
		return 0, time.Second, fmt.Errorf("%q of %d arrived: %w", got, n, err)
	}
	return n, time.Since(begin), nil
}

// dial connects through the proxy that other sandboxes have, if the variable is there.
func dial(to string) (net.Conn, error) {
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return net.DialTimeout("tcp", to, patience)
	}
	c, err := net.DialTimeout("tcp", proxy.Host, patience)
	if err != nil {
		return nil, err
	}
	password, _ := proxy.User.Password()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %s\r\n\r\n", to,
		base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)))
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
		if _, err := c.Read(one); err != nil {
			return nil, err
		}
	}
	if !bytes.Contains(head, []byte(" 200 ")) {
		return nil, fmt.Errorf("the proxy says %q", head)
	}
	return c, nil
}

func greetings(to string) (string, error) {
	if os.Getenv("HTTPS_PROXY") == "" { // a proxy resolves names
		at, err := net.ResolveTCPAddr("tcp", to)
		if err != nil {
			return "", err
		}
		to = at.String()
	}
	var all []int64
	for range 401 {
		begin := time.Now()
		c, err := dial(to)
		if err != nil {
			return "", err
		}
		_, err = c.Read(make([]byte, 1))
		all = append(all, time.Since(begin).Microseconds())
		c.Close()
		if err != nil {
			return "", err
		}
	}
	slices.Sort(all)
	return fmt.Sprint(all[len(all)/2]), nil
}

func get(url, roots string) (string, error) {
	pool := x509.NewCertPool()
	if text, err := os.ReadFile(roots); err == nil {
		pool.AppendCertsFromPEM(text)
	}
	c := &http.Client{Timeout: 4 * patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	r, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if len(body) > 1000 {
		return fmt.Sprintf("%d %d bytes", r.StatusCode, len(body)), err
	}
	first, _, _ := bytes.Cut(body, []byte("\n"))
	return fmt.Sprintf("%d %s", r.StatusCode, first), err
}

func talk(to, text string) (string, error) {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(string(answer)), err
}

// kind is an error without its variable parts.
func kind(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "dns: " + dns.Err
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ENOTCONN), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "reset"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case strings.Contains(err.Error(), "unrecognized name"):
		return "unrecognized name"
	}
	return err.Error()
}
