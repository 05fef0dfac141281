package gate

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gate/answer"
)

// server answers the command.
type server struct {
	Config
	*wires
	names *names
	host  *host

	draining sync.Mutex

	mu        sync.Mutex
	reports   map[*report]bool       // of the users
	active    map[*net.TCPConn]*kind // connections that are served
	coming    int                    // accepted, and not in active yet
	published []net.Listener         // on the host's loopback
}

// kind is one kind of connections. Those of one kind cannot take the places of another.
type kind struct {
	serve func(*net.TCPConn)
	most  int // at a time
	now   int
}

func newServer(c Config, w *wires) *server {
	s := &server{
		Config: c, wires: w, names: newNames(w.six), host: newHost(c.Proxy),
		reports: map[*report]bool{}, active: map[*net.TCPConn]*kind{},
	}
	for _, r := range c.Rules {
		if !r.Wildcard {
			s.names.add(r.Name, true)
		}
	}
	return s
}

// start serves until the process ends.
func (s *server) start() error {
	queries, hosts := &kind{serve: s.answerStream, most: 64}, &kind{serve: s.relay, most: 512}
	for i, l := range s.tcp {
		if i == 0 {
			go s.accept(l, queries)
		} else {
			go s.accept(l, hosts)
		}
	}
	if s.udp != nil {
		go s.answerPackets()
		for _, r := range s.refused {
			go s.watchRefused(r)
		}
	}
	loopback := &kind{serve: s.toHost, most: 256}
	for _, l := range s.inside {
		go s.accept(l, loopback)
	}
	for _, port := range sorted(s.Publish) {
		if err := s.publish(port); err != nil {
			return err
		}
	}
	return nil
}

// tell adds a report to those of users, or removes it.
func (s *server) tell(r *report, begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.reports, r); begin {
		s.reports[r] = true
	}
}

// add adds a record to the report of each user.
func (s *server) add(rec Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.reports {
		r.add(rec)
	}
}

// accept serves the connections that the command opens.
func (s *server) accept(listening *os.File, k *kind) {
	raw, err := listening.SyscallConn()
	for err == nil {
		var fd int
		if fd, err = s.next(raw); err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: one will be closed
			err = nil
			continue
		}
		if c, err := connectionOf(fd); err == nil {
			s.take(c, k)
		}
		s.forget()
	}
}

// take serves a connection, or resets it if there are too many of its kind.
func (s *server) take(c *net.TCPConn, k *kind) {
	if !s.enter(c, k) {
		s.add(Record{Verdict: Refused, Protocol: "tcp", Name: "a connection", Reason: "there are too many at a time"})
		reset(c)
		return
	}
	go func() {
		defer func() {
			_ = recover() // a fault in one connection ends that one
			c.Close()
			s.leave(c, k)
		}()
		k.serve(c)
	}()
}

// next accepts a connection, and counts it before any thread can see that it has left the
// kernel's queue: a net.Listener could be interrupted between.
func (s *server) next(raw syscall.RawConn) (fd int, err error) {
	rerr := raw.Read(func(listening uintptr) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		fd, _, err = unix.Accept4(int(listening), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == nil {
			s.coming++
		}
		return err != unix.EAGAIN && err != unix.EINTR
	})
	return fd, cmp.Or(rerr, err)
}

// forget is called once a connection that next has counted is active, or was refused.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming--
}

func connectionOf(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close() // the connection has a copy
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (s *server) enter(c *net.TCPConn, k *kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.now >= k.most {
		return false
	}
	k.now++
	s.active[c] = k
	return true
}

func (s *server) leave(c *net.TCPConn, k *kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.now--
	delete(s.active, c)
}

// closing counts the connections that the command has closed, or that have not been
// accepted: they will be reported soon.
func (s *server) closing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.coming
	for _, l := range append(slices.Clone(s.tcp), s.inside...) {
		if info := tcpInfo(l); info != nil {
			n += int(info.Unacked) // of a listener: connections that wait
		}
	}
	for c := range s.active {
		if info := tcpInfo(c); info == nil || info.State != unix.BPF_TCP_ESTABLISHED {
			n++
		}
	}
	return n
}

// tcpInfo returns the kernel's state of a socket, or nil if it is closed.
func tcpInfo(c syscall.Conn) (info *unix.TCPInfo) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info
}

// lookup answers a query for the parser of DNS messages. An exact name exists if it does
// on the host. A name of a wildcard exists without a query: by queries, a command could
// send data that it has read to an outside server, one name at a time.
//
// A name above an allowed one exists, since resolvers walk the tree. They may do so by
// questions for NS, DS or SOA; one for an address comes from a client that wants to connect.
func (s *server) lookup(name string, address bool) answer.Found {
	_, _, exact, ok := s.Rules.Find(name)
	if !ok {
		leads := s.leads(name)
		if address || !leads {
			s.refuseName(name)
		}
		return answer.Found{Empty: leads}
	}
	if exact && !s.Proxy.serves(name, 443) {
		if _, err := s.host.resolve(context.Background(), name); err != nil {
			s.add(Record{Verdict: Failed, Name: name, Protocol: "dns", Reason: cause(err)})
			return answer.Found{}
		}
	}
	v4, v6, ok := s.names.add(name, exact)
	if !ok {
		s.add(Record{Verdict: Refused, Name: name, Protocol: "dns", Reason: "too many names of wildcards"})
		return answer.Found{}
	}
	return answer.Found{V4: v4, V6: v6, Exists: true}
}

// leads reports whether a rule covers a name below this one.
func (s *server) leads(name string) bool {
	for _, r := range s.Rules {
		if strings.HasSuffix(r.Name, "."+name) || r.Wildcard && r.Name == name {
			return true
		}
	}
	return false
}

func (s *server) refuseName(name string) {
	if strings.HasPrefix(name, "_") { // a service of a name: clients ask and go on
		return
	}
	s.add(Record{Verdict: Refused, Name: name, Protocol: "dns", Reason: noRule})
}

const noRule = "no rule allows it"

const noQuery = "port 53 takes queries for names alone"

// answer answers a query of the command, and reports a message that is none. Queries are
// answered at every address: some programs bring their own server's.
func (s *server) answer(message []byte, protocol string, to netip.Addr) (reply []byte) {
	reply, query := answer.Answer(message, s.lookup)
	if !query {
		s.refuseMessage(protocol, to)
	}
	return reply
}

func (s *server) refuseMessage(protocol string, to netip.Addr) {
	s.add(Record{Verdict: Refused, Address: to.Unmap().String(), Port: 53, Protocol: protocol, Reason: noQuery})
}

// maxQueries bounds the queries that wait for the host's resolver.
const maxQueries = 128

// answerPackets answers queries over UDP.
func (s *server) answerPackets() {
	waiting := make(chan struct{}, maxQueries)
	for {
		query, oob := make([]byte, maxQuery), make([]byte, 128)
		n, control, _, from, err := s.udp.ReadMsgUDPAddrPort(query, oob)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		waiting <- struct{}{}
		go func() {
			defer func() { _ = recover(); <-waiting }()
			to := sentTo(oob[:control])
			if reply := s.answer(query[:n], "udp", to); reply != nil {
				_, _, _ = s.udp.WriteMsgUDPAddrPort(reply, source(to), from)
			}
		}()
	}
}

// sentTo returns the destination address of a query.
func sentTo(oob []byte) (to netip.Addr) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return to
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20:
			return netip.AddrFrom16([16]byte(m.Data))
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			return netip.AddrFrom4([4]byte(m.Data[8:12]))
		}
	}
	return to
}

// source makes an address the source of an answer. The route selects the interface.
func source(a netip.Addr) []byte {
	switch {
	case a.Is4():
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	case a.Is6():
		return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
	}
	return nil
}

// queryTime bounds the wait for the next query of a connection.
const queryTime = 10 * time.Second

// maxQuery bounds a query, in bytes. The length that other protocols seem to give, such as
// the first letters of a request, is above it.
const maxQuery = 4096

// answerStream answers queries over a TCP connection (RFC 7766).
func (s *server) answerStream(c *net.TCPConn) {
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return
	}
	to, asked := at.Addr().Unmap(), false
	for {
		_ = c.SetDeadline(time.Now().Add(queryTime))
		query, err := readQuery(c)
		switch {
		case err != nil && (asked || err == io.EOF && to == Resolver):
			return
		case err != nil:
			s.refuseMessage("tcp", to)
			reset(c)
			return
		}
		asked = true
		reply := s.answer(query, "tcp", to)
		if reply == nil {
			reset(c)
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// readQuery reads a query and its length. At the end of a connection it returns io.EOF.
func readQuery(c io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	if len(query) > maxQuery {
		return nil, errors.New(noQuery)
	}
	_, err := io.ReadFull(c, query)
	return query, err
}

// publish opens a port of the host's loopback that leads to the same one inside.
func (s *server) publish(port uint16) error {
	opened := 0
	var failed error
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(int(port))))
		if err != nil {
			if loopback == "::1" && opened > 0 && !errors.Is(err, unix.EADDRINUSE) {
				continue // a machine without IPv6
			}
			failed = err
			continue
		}
		opened++
		s.mu.Lock()
		s.published = append(s.published, l)
		s.mu.Unlock()
		go s.acceptPublished(l, &kind{serve: func(c *net.TCPConn) { s.toCommand(c, port) }, most: 256})
	}
	if failed != nil {
		hint := "name another port, or end the program that uses it"
		if errors.Is(failed, unix.EACCES) {
			hint = "name a port from 1024 on: those below take root"
		}
		return &Failure{fmt.Errorf("cannot publish port %d: %w", port, failed), hint}
	}
	return nil
}

// acceptPublished serves the connections that come from the host.
func (s *server) acceptPublished(l net.Listener, k *kind) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: one will be closed
			continue
		}
		s.take(c.(*net.TCPConn), k)
	}
}

// unpublish closes the ports of the host, which the next command may need.
func (s *server) unpublish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.published {
		l.Close()
	}
	s.published = nil
}

// toCommand joins a connection from the host to a server of the command.
func (s *server) toCommand(c *net.TCPConn, port uint16) {
	for _, loopback := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		there, err := s.dialInside(netip.AddrPortFrom(loopback, port))
		if err == nil {
			pipe(c, there)
			return
		}
	}
	reset(c)
}

// insideTime bounds the wait for a server of the command.
const insideTime = 5 * time.Second

// dialInside connects to an address in the command's network. Only the socket is made on
// the thread there: a server that does not answer delays no other connection.
func (s *server) dialInside(to netip.AddrPort) (*net.TCPConn, error) {
	fam, address := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(to.Port()), Addr: [4]byte{127, 0, 0, 1}})
	if to.Addr().Is6() {
		fam, address = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	var fd int
	var err error
	s.inNetwork(func() { fd, err = unix.Socket(fam, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	wait := unix.NsecToTimeval(insideTime.Nanoseconds())
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err == nil { // for connect too
		err = unix.Connect(fd, address)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return connectionOf(fd)
}

// toHost joins a connection of the command to a server on the host's loopback.
func (s *server) toHost(c *net.TCPConn) {
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	number, _ := strconv.ParseUint(port, 10, 16)
	record := Record{Verdict: Allowed, Name: "localhost", Port: uint16(number), Protocol: "tcp", Rule: "option --connect"}
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	there, err := s.host.dial(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if there, err = s.host.dial(ctx, "tcp", net.JoinHostPort("::1", port)); err != nil {
			record.Verdict, record.Reason = Failed, cause(err)
			s.add(record)
			reset(c)
			return
		}
	}
	record.Sent, record.Received = pipe(c, there.(*net.TCPConn))
	s.add(record)
}

// watchRefused reports packets that no socket of the gate gets.
func (s *server) watchRefused(w watcher) {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		s.drain()
	}
}

// drain reports the packets that have arrived. The kernel queues them while the command
// sends them.
func (s *server) drain() {
	s.draining.Lock() // the next holder of the lock finds no unreported packet
	defer s.draining.Unlock()
	for _, w := range s.refused {
		for {
			to, ok, err := w.next(unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			if ok {
				s.refusePacket(w.protocol, to)
			}
		}
	}
}

func (s *server) refusePacket(protocol string, to netip.AddrPort) {
	if to.Addr().IsMulticast() || protocol == "tcp" && s.listensFor(to.Port()) { // accepted, and reported then
		return
	}
	rec := Record{Verdict: Refused, Port: to.Port(), Protocol: protocol, Reason: noRule}
	if name, ok := s.names.find(to.Addr()); ok {
		rec.Name = name
	} else {
		rec.Address, rec.Reason = to.Addr().String(), byName
	}
	s.add(rec)
}

const byName = "hosts are reached by name, not by address"

func (s *server) listensFor(port uint16) bool {
	if port == 53 {
		return true
	}
	for _, p := range s.Rules.Ports() {
		if p == port {
			return true
		}
	}
	return false
}

// cause is an error without the context that the net package adds.
func cause(err error) string {
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return d.Err
	}
	if o, ok := errors.AsType[*net.OpError](err); ok && o.Err != nil {
		return o.Err.Error()
	}
	return err.Error()
}
