package gate

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"pikuri/lib/hostrule"
)

// names gives each host name an address of its own, by which the gate recognises a
// connection. Names of exact rules get theirs at the start: a command that queries names
// of a wildcard without end cannot use up their places.
type names struct {
	mu     sync.Mutex
	six    bool
	places map[string]int
	list   []string    // by place
	used   []time.Time // by place; zero for a name that stays
}

// nameKept is the minimum time for which a name of a wildcard keeps its address after a
// query. The answers are valid for some seconds.
const nameKept = 5 * time.Minute

// maxNames bounds the table: half of it is left to names of wildcards.
const maxNames = 2 * hostrule.MaxRules

// firstAddress reserves the first ones for the Resolver.
const firstAddress = 256

var (
	names4 = binary.BigEndian.Uint32([]byte{198, 18, 0, 0})
	names6 = netip.MustParseAddr("fd70:6b67:0:1::").As16()
)

func newNames(six bool) *names { return &names{six: six, places: map[string]int{}} }

// add returns the addresses of a name; the IPv6 one may be invalid. ok is false if the
// table is full. A name that does not stay may lose its place to another.
func (n *names) add(name string, stays bool) (v4, v6 netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	place, known := n.places[name]
	if !known {
		if place, ok = n.free(); !ok {
			return v4, v6, false
		}
		n.list[place], n.places[name] = name, place
	}
	if n.used[place] = time.Now(); stays {
		n.used[place] = time.Time{}
	}
	var four [4]byte
	binary.BigEndian.PutUint32(four[:], names4+uint32(firstAddress+place))
	v4 = netip.AddrFrom4(four)
	if n.six {
		v6 = six(place)
	}
	return v4, v6, true
}

// free finds a place: a new one, or the least recently used.
func (n *names) free() (place int, ok bool) {
	if len(n.list) < maxNames {
		n.list, n.used = append(n.list, ""), append(n.used, time.Time{})
		return len(n.list) - 1, true
	}
	place = -1
	for i, used := range n.used {
		if !used.IsZero() && (place < 0 || used.Before(n.used[place])) {
			place = i
		}
	}
	if place < 0 || time.Since(n.used[place]) < nameKept {
		return 0, false
	}
	delete(n.places, n.list[place])
	return place, true
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
	if !n.used[place].IsZero() {
		n.used[place] = time.Now()
	}
	return n.list[place], true
}
