package gate

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"pikuri/lib/hostrule"
)

// names gives each host name an address of its own, by which a connection is known
// again. Names of exact rules have theirs from the start: a command that asks for
// names of a wildcard without end cannot use up their places.
type names struct {
	mu     sync.Mutex
	six    bool
	places map[string]int
	list   []string // by place
}

// maxNames bounds the table: half of it is left to names of wildcards.
const maxNames = 2 * hostrule.MaxRules

// firstAddress leaves the first ones to the Resolver.
const firstAddress = 256

var (
	names4 = binary.BigEndian.Uint32([]byte{198, 18, 0, 0})
	names6 = netip.MustParseAddr("fd70:6b67:0:1::").As16()
)

func newNames(six bool) *names { return &names{six: six, places: map[string]int{}} }

// add returns the addresses of a name; the IPv6 one may be invalid. ok is false when
// the table is full.
func (n *names) add(name string) (v4, v6 netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	place, known := n.places[name]
	if !known {
		if len(n.list) >= maxNames {
			return v4, v6, false
		}
		place = len(n.list)
		n.list = append(n.list, name)
		n.places[name] = place
	}
	var four [4]byte
	binary.BigEndian.PutUint32(four[:], names4+uint32(firstAddress+place))
	v4 = netip.AddrFrom4(four)
	if n.six {
		v6 = six(place)
	}
	return v4, v6, true
}

func six(place int) netip.Addr {
	a := names6
	binary.BigEndian.PutUint32(a[12:], uint32(firstAddress+place))
	return netip.AddrFrom16(a)
}

// find returns the name of an address that add has given out.
func (n *names) find(a netip.Addr) (name string, ok bool) {
	a = a.Unmap()
	bytes := a.AsSlice()
	place := int64(binary.BigEndian.Uint32(bytes[len(bytes)-4:])) - firstAddress
	if a.Is4() {
		place -= int64(names4)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if place < 0 || place >= int64(len(n.list)) || a.Is6() && a != six(int(place)) {
		return "", false
	}
	return n.list[place], true
}
