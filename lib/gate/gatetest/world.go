// Package gatetest is a small internet for tests of the gate: a user, a mount and a
// network namespace in which the names of Hosts lead to servers in another network
// namespace. Nothing in it leaves the machine.
package gatetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gate/answer"
	"pikuri/lib/internal/rtnetlink"
)

// Addresses of the servers. Two are public; the tests never reach their owners.
const (
	Public  = "93.184.215.14"
	Public6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
	Private = "10.77.0.2"
	Own     = "10.77.0.1" // of the machine that runs pk
)

// Hosts is /etc/hosts of the world.
const Hosts = `127.0.0.1 localhost
` + Public + ` good.test other.test www.wild.test a.b.wild.test wild.test four.test mixed.test
` + Public6 + ` good.test six.test
` + Private + ` private.test dead.test
` + Own + ` own.test
127.0.0.1 loop.test mixed.test
::1 loop6.test
::ffff:127.0.0.1 mapped.test
64:ff9b::7f00:1 nat64.test
2002:7f00:1:: sixtofour.test
169.254.169.254 meta.test
0.0.0.0 zero.test
`

// World is the tests' access to the world.
type World struct {
	Roots string // a PEM file with the certificate authority of the servers
	Files string // a directory that the servers publish below /files/
	Place Place  // of the programs that Run was given
	log   string // a file with the requests that the servers got
	mu    sync.Mutex
	read  int64 // the part of it that Seen has returned

	release chan struct{} // of requests that are held
}

// Seen returns the requests to the servers since the last call: "HOST METHOD PATH" of
// requests, "tcp PORT" of other connections.
func (w *World) Seen() []string {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return []string{err.Error()}
	}
	lines := strings.Split(string(text[w.read:]), "\n")
	w.read = int64(len(text))
	return lines[:len(lines)-1]
}

func (w *World) see(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, err := os.OpenFile(w.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", args...)
}

// Variables by which a test knows which of its processes it is.
const (
	inside = "PK_GATETEST" // "world", then the directory of the world
	world  = "world"
)

// Program starts a server that is no part of this package.
type Program func(*Place) error

// Place is where Programs run: a directory of their own in the network of the servers.
// They are an ordinary user's, since some refuse to run as root.
type Place struct {
	Dir  string
	User string // who has it in /etc/passwd
	id   int
}

const placeID = 54321 // where root starts the test

// Command prepares a process of a Place. It ends with the world.
func (p *Place) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "USER=" + p.User, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != p.id {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.id), Gid: uint32(p.id)}
	}
	return cmd
}

// Await waits until a server in a Place listens.
func (p *Place) Await(port int) error {
	limit := time.Now().Add(30 * time.Second)
	for {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			return c.Close()
		}
		if time.Now().After(limit) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Run runs the rest of a test in a world. The test starts itself again, in namespaces
// that it may change. That process has the servers, and starts the test once more,
// without rights over the namespaces.
func Run(t *testing.T, f func(t *testing.T, w *World), programs ...Program) {
	switch dir := os.Getenv(inside); dir {
	case "":
		cmd := again(t, world)
		id := func(n int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: n, HostID: n, Size: 1}}
		}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = id(os.Getuid()), id(os.Getgid())
		if len(programs) > 0 && os.Getuid() == 0 {
			cmd.SysProcAttr.UidMappings = append(cmd.SysProcAttr.UidMappings, id(placeID)...)
			cmd.SysProcAttr.GidMappings = append(cmd.SysProcAttr.GidMappings, id(placeID)...)
			cmd.SysProcAttr.GidMappingsEnableSetgroups = true
		}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		t.Log(string(out))
	case world:
		dir := t.TempDir()
		w := &World{Files: filepath.Join(dir, "files"), log: filepath.Join(dir, "seen"), release: make(chan struct{}, 10)}
		require.NoError(t, os.Mkdir(w.Files, 0o755))
		w.see("started")
		if len(programs) > 0 {
			require.NoError(t, w.Place.make(dir))
			t.Cleanup(func() { os.RemoveAll(w.Place.Dir) })
		}
		require.NoError(t, w.make(dir, programs))
		runtime.LockOSThread() // the capabilities of a child are those of this thread
		defer runtime.UnlockOSThread()
		require.NoError(t, unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		cmd := again(t, dir)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		require.NoError(t, cmd.Run())
	default:
		w := &World{Roots: filepath.Join(dir, "roots.pem"), Files: filepath.Join(dir, "files"), log: filepath.Join(dir, "seen")}
		if len(programs) > 0 {
			text, err := os.ReadFile(filepath.Join(dir, placeFile))
			require.NoError(t, err)
			w.Place.User, w.Place.Dir, _ = strings.Cut(string(text), " ")
		}
		w.Seen()
		f(t, w)
	}
}

// again prepares this test to run in another process, which ends with this one.
func again(t *testing.T, role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=200s")
	cmd.Env = append(os.Environ(), inside+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// placeFile in the directory of a world has the user and the directory of its Place.
const placeFile = "place"

// make makes a Place whose path all users may walk.
func (p *Place) make(dir string) (err error) {
	if p.id = os.Getuid(); p.id == 0 {
		p.id = placeID
	}
	if p.Dir, err = os.MkdirTemp("/var/tmp", "pk-place-"); err != nil {
		return err
	}
	p.User = "pk-place"
	accounts, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(accounts)) {
		if f := strings.Split(line, ":"); len(f) > 2 && f[2] == fmt.Sprint(p.id) {
			p.User = f[0]
		}
	}
	if err := os.WriteFile(filepath.Join(dir, placeFile), []byte(p.User+" "+p.Dir), 0o644); err != nil {
		return err
	}
	return os.Chown(p.Dir, p.id, p.id)
}

func (w *World) make(dir string, programs []Program) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	do, done := make(chan func() error), make(chan error)
	go func() { // its thread stays in the network namespace of the servers
		runtime.LockOSThread()
		for f := range do {
			done <- f()
		}
	}()
	there := func(f func() error) error { do <- f; return <-done }
	var ns *os.File
	err := there(func() (err error) { ns, err = otherNetwork(); return err })
	if err == nil {
		err = join(ns)
	}
	if err == nil {
		err = there(func() error { return w.serve(dir) })
	}
	if err == nil {
		err = w.files(dir)
	}
	for _, p := range programs {
		if err == nil {
			err = there(func() error { return p(&w.Place) })
		}
	}
	return err
}

func otherNetwork() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	n, err := rtnetlink.Open()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	for _, a := range []string{Public + "/32", Public6 + "/128"} {
		if err := n.Address(1, netip.MustParsePrefix(a)); err != nil {
			return nil, err
		}
	}
	if err := n.Up(1); err != nil {
		return nil, err
	}
	return os.Open("/proc/thread-self/ns/net")
}

// join connects this network namespace with that of the servers.
func join(there *os.File) error {
	n, err := rtnetlink.Open()
	if err != nil {
		return err
	}
	defer n.Close()
	return errors.Join(
		n.Up(1), n.MakePair(2, "out0", "in0", int(there.Fd())),
		n.Address(2, netip.MustParsePrefix(Own+"/24")), n.Address(2, netip.MustParsePrefix("fd77::1/64")), n.Up(2),
		inNetwork(there, func() error {
			m, err := rtnetlink.Open()
			if err != nil {
				return err
			}
			defer m.Close()
			return errors.Join(m.Address(2, netip.MustParsePrefix(Private+"/24")), m.Address(2, netip.MustParsePrefix("fd77::2/64")), m.Up(2))
		}),
		n.Route(false, 2, netip.MustParseAddr(Private), ""), n.Route(true, 2, netip.MustParseAddr("fd77::2"), ""))
}

// inNetwork runs f on a thread in a network namespace.
func inNetwork(ns *os.File, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// systemRoots are the certificates that Debian's programs trust.
const systemRoots = "/etc/ssl/certs/ca-certificates.crt"

// files puts the names and the certificate authority in their places.
func (w *World) files(dir string) error {
	places := map[string]string{"/etc/hosts": Hosts, "/etc/resolv.conf": "nameserver " + Private + "\noptions timeout:1 attempts:1\n"}
	if w.Place.Dir != "" {
		accounts, err := os.ReadFile("/etc/passwd")
		if err != nil {
			return err
		}
		if !strings.Contains("\n"+string(accounts), "\n"+w.Place.User+":") {
			accounts = fmt.Appendf(accounts, "%s:x:%d:%d::%s:/bin/sh\n", w.Place.User, w.Place.id, w.Place.id, w.Place.Dir)
		}
		places["/etc/passwd"] = string(accounts)
	}
	if trusted, err := os.ReadFile(systemRoots); err == nil {
		own, err := os.ReadFile(filepath.Join(dir, "roots.pem"))
		if err != nil {
			return err
		}
		places[systemRoots] = string(trusted) + string(own)
	}
	for place, text := range places {
		file := filepath.Join(dir, filepath.Base(place))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		real, err := filepath.EvalSymlinks(place)
		if err != nil {
			return err
		}
		if err := unix.Mount(file, real, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// serve starts the servers, in the network namespace of the calling thread.
func (w *World) serve(dir string) error {
	certificate, authority, err := certificates()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "roots.pem"), authority, 0o644); err != nil {
		return err
	}
	queries, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return err
	}
	go answerNames(queries)
	handler := http.HandlerFunc(w.handle)
	for _, port := range []int{80, 443, 22, 7000, source, drain} {
		l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			return err
		}
		switch port {
		case 80:
			go http.Serve(l, handler) //nolint:errcheck // it ends with the test
		case 443:
			s := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}}
			go s.ServeTLS(l, "", "") //nolint:errcheck // it ends with the test
		case source:
			go pour(l)
		case drain:
			go swallow(l)
		default:
			go w.echo(l, port)
		}
	}
	return nil
}

// inDNS is a name that /etc/hosts does not have.
const inDNS = "dns.test"

// answerNames is the server of /etc/resolv.conf.
func answerNames(c net.PacketConn) {
	query := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(query)
		if err != nil {
			return
		}
		reply, _ := answer.Answer(query[:n], func(name string, _ bool) answer.Found {
			return answer.Found{V4: netip.MustParseAddr(Public), Exists: name == inDNS}
		})
		if reply != nil {
			_, _ = c.WriteTo(reply, from)
		}
	}
}

// handle answers requests: its host and path, a body of so many bytes, or an upgrade.
func (w *World) handle(out http.ResponseWriter, r *http.Request) {
	w.see("%s %s %s", r.Host, r.Method, r.URL.Path)
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, buf, err := out.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n", r.Header.Get("Upgrade"))
		if key := r.Header.Get("Sec-WebSocket-Key"); key != "" { // RFC 6455, 4.2.2
			sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(conn, "Sec-WebSocket-Accept: %s\r\n", base64.StdEncoding.EncodeToString(sum[:]))
		}
		fmt.Fprint(conn, "\r\n")
		_, _ = io.Copy(conn, buf)
	case strings.HasPrefix(r.URL.Path, "/files/"):
		http.StripPrefix("/files/", http.FileServer(http.Dir(w.Files))).ServeHTTP(out, r)
	case r.URL.Path == "/large":
		_, _ = io.Copy(out, io.LimitReader(zeros{}, 64<<20))
	case r.URL.Path == "/held": // until somebody asks for /release
		select {
		case <-w.release:
		case <-r.Context().Done():
		}
	case r.URL.Path == "/release":
		w.release <- struct{}{}
	case r.URL.Path == "/close":
		out.Header().Set("Connection", "close")
	case r.URL.Path == "/slow":
		for range 5 {
			fmt.Fprintln(out, "tick")
			out.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	default:
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(out, "%s %s %s %d\n", r.Host, r.Proto, r.URL.Path, n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// source is a port whose server sends without end.
const source = 7001

func pour(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			block := make([]byte, 1<<20)
			for err == nil {
				_, err = c.Write(block)
			}
		}()
	}
}

// drain is a port whose server takes zeros up to another byte, and then sends their
// number. Some programs do not carry half-closed connections.
const drain = 7002

var lastByte = []byte{1}

func swallow(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 1<<20)
			total, n := 0, 0
			for err == nil && (n == 0 || buf[n-1] == 0) {
				n, err = c.Read(buf)
				total += n
			}
			fmt.Fprint(c, total)
		}()
	}
}

// echo sends its input back, after a greeting. It resets a connection on which "reset"
// comes first.
func (w *World) echo(l net.Listener, port int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.see("tcp %d", port)
		go func() {
			defer c.Close()
			fmt.Fprintf(c, "hello from %d\n", port)
			first := make([]byte, 5)
			n, err := io.ReadFull(c, first)
			if string(first) == "reset" {
				_ = c.(*net.TCPConn).SetLinger(0)
				return
			}
			if _, _ = c.Write(first[:n]); err == nil {
				_, err = io.Copy(c, c)
			}
			if errors.Is(err, syscall.ECONNRESET) {
				w.see("reset %d", port)
			}
		}()
	}
}

// certificates makes a certificate authority, and a certificate for all names.
func certificates() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test of pk"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: append(names(), "*.wild.test", inDNS),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func names() []string {
	var list []string
	for line := range strings.Lines(Hosts) {
		list = append(list, strings.Fields(line)[1:]...)
	}
	return list
}
