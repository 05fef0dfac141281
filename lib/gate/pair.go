package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/rtnetlink"
)

// The addresses of the pair. 198.18.0.0/15 is reserved for such use inside one machine
// (RFC 2544), and the other prefix is a unique local one (RFC 4193).
var (
	gate4    = netip.MustParseAddr("198.19.255.1")
	command4 = netip.MustParseAddr("198.19.255.2")
	gate6    = netip.MustParseAddr("fd70:6b67::1")
	command6 = netip.MustParseAddr("fd70:6b67::2")
)

const (
	loopbackIndex = 1
	pairIndex     = 2 // of both ends, in their namespaces
)

// wires are the gate's open files of the network namespaces.
type wires struct {
	command *os.File     // the command's network namespace
	tcp     []*os.File   // listening, in the gate's namespace; those of Config.Rules and port 53
	udp     *net.UDPConn // port 53
	refused []watcher    // of packets that no socket receives
	six     bool         // the pair has IPv6 addresses
	inside  []*os.File   // listening: of Config.Connect, on the command's loopback
	do      chan func()  // to a thread in the command's namespace
}

// makeWires makes the network namespaces on a thread of its own, which stays in the
// command's: unshare(2) changes the network of one thread. The others, which connect to
// hosts, stay in the caller's.
func makeWires(c Config) (*wires, error) {
	w := &wires{do: make(chan func())}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- w.make(c)
		for f := range w.do {
			f()
		}
		select {} // a thread that has changed its namespace must not serve others
	}()
	return w, <-done
}

func (w *wires) make(c Config) error {
	var gates *rtnetlink.Conn
	if c.Allow {
		if err := newNetwork(); err != nil {
			return err
		}
		var err error
		if gates, err = rtnetlink.Open(); err != nil {
			return err
		}
		defer gates.Close()
		if err := w.listen(c); err != nil {
			return err
		}
	}
	if err := newNetwork(); err != nil {
		return err
	}
	var err error
	if w.command, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	commands, err := rtnetlink.Open()
	if err != nil {
		return err
	}
	defer commands.Close()
	if err := commands.Up(loopbackIndex); err != nil {
		return fmt.Errorf("cannot bring up the loopback: %w", err)
	}
	if c.Allow {
		if err := w.connect(gates, commands); err != nil {
			return err
		}
	}
	for _, port := range sorted(c.Connect) {
		l, err := listen(unix.AF_INET, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
		if err != nil {
			return fmt.Errorf("cannot open port %d inside: %w", port, err)
		}
		w.inside = append(w.inside, l)
		if l, err = listen(unix.AF_INET6, netip.AddrPortFrom(netip.IPv6Loopback(), port)); err == nil { // a kernel may have no IPv6
			w.inside = append(w.inside, l)
		}
	}
	return nil
}

// newNetwork makes a network namespace for the calling thread.
func newNetwork() error {
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("cannot make a network namespace: %w", err)
	if errors.Is(err, unix.ENOSPC) { // namespaces(7)
		return &Failure{err, "no more are allowed; as root: sysctl user.max_net_namespaces=15000"}
	}
	return err
}

// connect joins the two namespaces.
func (w *wires) connect(gates, commands *rtnetlink.Conn) error {
	err := gates.MakePair(pairIndex, "gate0", "eth0", int(w.command.Fd()))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return &Failure{errors.New("the kernel has no veth"), "as root: modprobe veth"}
	}
	if err != nil {
		return fmt.Errorf("cannot make a veth pair: %w", err)
	}
	for _, n := range []*rtnetlink.Conn{gates, commands} {
		if w.six {
			_ = n.NoLinkLocal(pairIndex) // an interface without IPv6 has none
		}
		_ = n.Segments(pairIndex, segments) // an older kernel keeps 64 KiB
		if err := errors.Join(n.Up(loopbackIndex), n.Up(pairIndex)); err != nil {
			return fmt.Errorf("cannot bring up the veth pair: %w", err)
		}
	}
	var none netip.Addr
	err = errors.Join(
		gates.Peer(pairIndex, gate4, command4), gates.Route(false, loopbackIndex, none, ""),
		commands.Peer(pairIndex, command4, gate4), commands.Route(false, pairIndex, gate4, congestion))
	if err != nil {
		return fmt.Errorf("cannot set up the veth pair: %w", err)
	}
	// A kernel or a machine without IPv6 refuses these; names then have only IPv4 addresses.
	w.six = w.six && gates.Peer(pairIndex, gate6, command6) == nil && gates.Route(true, loopbackIndex, none, "") == nil &&
		commands.Peer(pairIndex, command6, gate6) == nil && commands.Route(true, pairIndex, gate6, congestion) == nil
	return nil
}

// segments is the size of the largest packet on the pair. The cost of a packet does not
// depend on its size: the pair passes on pages.
const segments = 256 << 10

// congestion is the congestion control of connections inside the machine, which the kernel
// gives to every user (tcp(7)). The machine's own may be bbr, which sends by timers: it takes
// a third of the throughput of a link that never loses a packet.
const congestion = "reno"

// listen opens the gate's sockets, in the namespace of the calling thread. Each receives
// for all addresses.
func (w *wires) listen(c Config) error {
	fam, any := unix.AF_INET6, netip.IPv6Unspecified()
	probe, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if w.six = err == nil; w.six {
		unix.Close(probe)
	} else {
		fam, any = unix.AF_INET, netip.IPv4Unspecified()
	}
	for _, port := range append([]uint16{53}, c.Rules.Ports()...) {
		l, err := listen(fam, netip.AddrPortFrom(any, port))
		if err != nil {
			return fmt.Errorf("cannot listen for port %d: %w", port, err)
		}
		w.tcp = append(w.tcp, l)
	}
	if w.udp, err = listenUDP(fam, netip.AddrPortFrom(any, 53)); err != nil {
		return fmt.Errorf("cannot listen for names: %w", err)
	}
	return w.watch()
}

// bound returns a socket with an address. It does not use the net package, which learns
// the available address families at its first socket, for good: in a namespace without
// addresses there are none.
func bound(fam, kind int, at netip.AddrPort, options ...[2]int) (*os.File, error) {
	fd, err := unix.Socket(fam, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket")
	for _, o := range options {
		if err == nil {
			err = unix.SetsockoptInt(fd, o[0], o[1], 1)
		}
	}
	if err == nil && fam == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if fam == unix.AF_INET {
		to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// backlog is the number of connections that may wait for accept.
const backlog = 512

func listen(fam int, at netip.AddrPort) (*os.File, error) {
	f, err := bound(fam, unix.SOCK_STREAM, at, [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR})
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	var failed error
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			failed = errors.Join(unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion), unix.Listen(int(fd), backlog))
		})
	}
	if err = errors.Join(err, failed); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// listenUDP opens a socket that reports the destination address of each query: a client
// drops an answer from another one. IPV6_FREEBIND lets it answer from an address that is
// local only by its route.
func listenUDP(fam int, at netip.AddrPort) (*net.UDPConn, error) {
	options := [][2]int{{unix.SOL_IP, unix.IP_PKTINFO}, {unix.SOL_IP, unix.IP_FREEBIND}}
	if fam == unix.AF_INET6 {
		options = [][2]int{{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}, {unix.IPPROTO_IPV6, unix.IPV6_FREEBIND}}
	}
	f, err := bound(fam, unix.SOCK_DGRAM, at, options...)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// inNetwork runs f on the thread that is in the command's network namespace.
func (w *wires) inNetwork(f func()) {
	done := make(chan struct{})
	w.do <- func() { f(); close(done) }
	<-done
}

// watcher is a raw socket (raw(7)) that gets a copy of each packet of one protocol. A
// packet socket would get all protocols, but the kernel takes 8 ms to close one.
type watcher struct {
	fd       int
	six      bool
	protocol string
}

// Offsets in the headers of IPv4, TCP and UDP.
const (
	v4Fragment = 6
	portTo     = 2
	tcpFlags   = 13
	synAndAck  = 0x12
	syn        = 0x02
)

// snapshot is the size of the part of a packet that is read: its addresses and ports.
const snapshot = 80

// watch opens raw sockets for packets from the command that no socket of the gate
// receives: first packets of TCP connections, and all of UDP but queries.
func (w *wires) watch() error {
	for _, six := range []bool{false, true} {
		if six && !w.six {
			continue
		}
		for protocol, number := range map[string]int{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP} {
			fam := unix.AF_INET
			if six {
				fam = unix.AF_INET6
			}
			fd, err := unix.Socket(fam, unix.SOCK_RAW|unix.SOCK_CLOEXEC, number)
			if err != nil {
				return fmt.Errorf("cannot make a raw socket: %w", err)
			}
			if six {
				err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			}
			if err == nil {
				err = filter(fd, six, protocol)
			}
			if err != nil {
				return fmt.Errorf("cannot filter a raw socket: %w", err)
			}
			w.refused = append(w.refused, watcher{fd, six, protocol})
		}
	}
	return nil
}

// filter passes only packets to be reported. The kernel shows a packet of IPv4 with its
// header, and one of IPv6 without.
func filter(fd int, six bool, protocol string) error {
	var program []bpf.Instruction
	at := func(off uint32, size int) bpf.Instruction { return bpf.LoadAbsolute{Off: off, Size: size} }
	if !six {
		program = append(program,
			bpf.LoadAbsolute{Off: v4Fragment, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x1fff, SkipTrue: 1}, // a later fragment has no ports
			bpf.RetConstant{Val: 0},
			bpf.LoadMemShift{Off: 0})
		at = func(off uint32, size int) bpf.Instruction { return bpf.LoadIndirect{Off: off, Size: size} }
	}
	if protocol == "tcp" {
		program = append(program, at(tcpFlags, 1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: synAndAck}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: syn, SkipTrue: 1})
	} else {
		program = append(program, at(portTo, 2), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 53, SkipTrue: 1})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: snapshot}))
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	words := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		words[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(words)), Filter: &words[0]})
}

// next reads one packet, and returns its destination.
func (w watcher) next(flags int) (to netip.AddrPort, ok bool, err error) {
	packet, oob := make([]byte, snapshot), make([]byte, 64)
	n, space, _, _, err := unix.Recvmsg(w.fd, packet, oob, flags)
	if err != nil {
		return to, false, err
	}
	to, ok = destination(packet[:n], oob[:space], w.six)
	return to, ok, nil
}

// destination reads the header of an IPv4 packet, or that of a packet in IPv6 and its
// control message.
func destination(p, oob []byte, six bool) (to netip.AddrPort, ok bool) {
	var addr netip.Addr
	if six {
		messages, err := unix.ParseSocketControlMessage(oob)
		if err != nil || len(messages) == 0 || len(messages[0].Data) < 16 {
			return to, false
		}
		addr = netip.AddrFrom16([16]byte(messages[0].Data[:16]))
	} else {
		if len(p) < 20 || len(p) < int(p[0]&0xf)*4 {
			return to, false
		}
		addr = netip.AddrFrom4([4]byte(p[16:20]))
		p = p[int(p[0]&0xf)*4:]
	}
	if len(p) < portTo+2 {
		return to, false
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(p[portTo:])), true
}
