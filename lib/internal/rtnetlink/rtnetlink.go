// Package rtnetlink makes the interfaces, addresses and routes of a network namespace
// that this program has made. Each request is one message of rtnetlink(7). A library
// would mostly be code to read the tables of a host.
package rtnetlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Conn speaks to the kernel about the network namespace in which it was opened.
type Conn struct {
	fd       int
	sequence uint32
}

// Open opens a connection in the network namespace of the calling thread.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket(AF_NETLINK)", err)
	}
	return &Conn{fd: fd}, nil
}

// Close closes it.
func (n *Conn) Close() error { return unix.Close(n.fd) }

// attribute is an attribute of rtnetlink, with its nested attributes.
func attribute(kind uint16, parts ...[]byte) []byte {
	out := make([]byte, unix.SizeofRtAttr)
	for _, p := range parts {
		out = append(out, p...)
	}
	binary.NativeEndian.PutUint16(out, uint16(len(out)))
	binary.NativeEndian.PutUint16(out[2:], kind)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// request sends one request, and waits until the kernel has carried it out.
func (n *Conn) request(kind, flags uint16, parts ...[]byte) error {
	kind, answer, err := n.ask(kind, unix.NLM_F_ACK|flags, parts...)
	if err == nil && answer != nil {
		err = fmt.Errorf("internal error: netlink answered with a message of type %d", kind)
	}
	return err
}

// ask sends one request, and returns the answer: a message of some type, or nil when
// the kernel says no more than that it has carried the request out.
func (n *Conn) ask(kind, flags uint16, parts ...[]byte) (uint16, []byte, error) {
	n.sequence++
	message := make([]byte, unix.SizeofNlMsghdr)
	for _, p := range parts {
		message = append(message, p...)
	}
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], kind)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(message[8:], n.sequence)
	if err := unix.Sendto(n.fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, nil, err
	}
	answer := make([]byte, 4096)
	for {
		got, _, err := unix.Recvfrom(n.fd, answer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if got < unix.SizeofNlMsghdr+4 {
			return 0, nil, fmt.Errorf("internal error: netlink answered %d bytes", got)
		}
		kind, body := binary.NativeEndian.Uint16(answer[4:]), answer[unix.SizeofNlMsghdr:got]
		if kind != unix.NLMSG_ERROR {
			return kind, body, nil
		}
		if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
			return 0, nil, unix.Errno(-code)
		}
		return 0, nil, nil
	}
}

// RouteType returns the type of the route to an address, such as RTN_UNICAST for that
// of a host elsewhere, or RTN_LOCAL.
func (n *Conn) RouteType(to netip.Addr) (byte, error) {
	m := make([]byte, unix.SizeofRtMsg)
	m[0], m[1] = family(to), byte(to.BitLen())
	kind, answer, err := n.ask(unix.RTM_GETROUTE, 0, m, attribute(unix.RTA_DST, to.AsSlice()))
	if err != nil {
		return 0, err
	}
	if kind != unix.RTM_NEWROUTE || len(answer) < unix.SizeofRtMsg {
		return 0, fmt.Errorf("internal error: netlink answered with a message of type %d", kind)
	}
	return answer[7], nil
}

const vethPeer = 1 // VETH_INFO_PEER of linux/veth.h

// link is an ifinfomsg.
func link(index int, flags uint32) []byte {
	m := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(m[4:], uint32(index))
	binary.NativeEndian.PutUint32(m[8:], flags)
	binary.NativeEndian.PutUint32(m[12:], flags) // change: these flags alone
	return m
}

// MakePair makes a veth pair: name here, peer in the network namespace ns. Both
// interfaces get the same index, which is free in a new namespace.
func (n *Conn) MakePair(index int, name, peer string, ns int) error {
	there := attribute(vethPeer|unix.NLA_F_NESTED, link(index, 0),
		attribute(unix.IFLA_IFNAME, []byte(peer), []byte{0}),
		attribute(unix.IFLA_NET_NS_FD, number(uint32(ns))))
	return n.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, link(index, 0),
		attribute(unix.IFLA_IFNAME, []byte(name), []byte{0}),
		attribute(unix.IFLA_LINKINFO|unix.NLA_F_NESTED,
			attribute(unix.IFLA_INFO_KIND, []byte("veth")),
			attribute(unix.IFLA_INFO_DATA|unix.NLA_F_NESTED, there)))
}

// Up brings an interface up.
func (n *Conn) Up(index int) error {
	return n.request(unix.RTM_NEWLINK, 0, link(index, unix.IFF_UP))
}

// Segments lets an interface send TCP segments of up to a size, in bytes, as one packet.
// Sizes above 64 KiB take Linux 5.19, and 6.3 for IPv4.
func (n *Conn) Segments(index int, size uint32) error {
	return n.request(unix.RTM_NEWLINK, 0, link(index, 0),
		attribute(unix.IFLA_GSO_MAX_SIZE, number(size)), attribute(unix.IFLA_GSO_IPV4_MAX_SIZE, number(size)))
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// NoLinkLocal keeps an interface from getting a link-local address of IPv6. The
// interface must be down.
func (n *Conn) NoLinkLocal(index int) error {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	mode := attribute(unix.AF_INET6|unix.NLA_F_NESTED, attribute(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{none}))
	return n.request(unix.RTM_NEWLINK, 0, link(index, 0), attribute(unix.IFLA_AF_SPEC|unix.NLA_F_NESTED, mode))
}

// Peer gives an interface an address, and makes one other address a neighbour.
func (n *Conn) Peer(index int, own, peer netip.Addr) error {
	return n.addAddress(index, own, peer, own.BitLen())
}

// Address gives an interface an address. Without IFA_F_NODAD an IPv6 address could
// not be used for a second or two.
func (n *Conn) Address(index int, p netip.Prefix) error {
	return n.addAddress(index, p.Addr(), p.Addr(), p.Bits())
}

func (n *Conn) addAddress(index int, own, peer netip.Addr, bits int) error {
	m := make([]byte, unix.SizeofIfAddrmsg)
	m[0], m[1] = family(own), byte(bits)
	if own.Is6() {
		m[2] = unix.IFA_F_NODAD
	}
	binary.NativeEndian.PutUint32(m[4:], uint32(index))
	return n.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m,
		attribute(unix.IFA_LOCAL, own.AsSlice()), attribute(unix.IFA_ADDRESS, peer.AsSlice()))
}

// Route adds a default route: through a gateway or, with none, to this machine
// itself. The latter is in the main table. In the local table it would precede the
// connected route, and the kernel would drop packets of the other end as coming from an
// address of its own. TCP connections along the route have a congestion control, or with
// "" that of the namespace.
func (n *Conn) Route(six bool, index int, gateway netip.Addr, congestion string) error {
	fam := byte(unix.AF_INET)
	if six {
		fam = unix.AF_INET6
	}
	m := make([]byte, unix.SizeofRtMsg)
	m[0], m[4], m[5], m[6], m[7] = fam, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST
	parts := [][]byte{m, attribute(unix.RTA_OIF, number(uint32(index)))}
	if gateway.IsValid() {
		parts = append(parts, attribute(unix.RTA_GATEWAY, gateway.AsSlice()))
		// The gateway is a neighbour, though the kernel may not know that yet: the route
		// to an address of IPv6 counts once the link is up, which takes a moment.
		binary.NativeEndian.PutUint32(m[8:], unix.RTNH_F_ONLINK)
	} else {
		m[6], m[7] = unix.RT_SCOPE_HOST, unix.RTN_LOCAL
	}
	if congestion != "" {
		parts = append(parts, attribute(unix.RTA_METRICS|unix.NLA_F_NESTED, attribute(unix.RTAX_CC_ALGO, []byte(congestion), []byte{0})))
	}
	return n.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, parts...)
}
