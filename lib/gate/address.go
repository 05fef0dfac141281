package gate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// prefixes that are no hosts of the internet (the IANA special-purpose address
// registries). A name that resolves to one of them would lead to services of this
// machine or of its network, which trust whoever reaches them.
var (
	never = parsePrefixes(
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/96",
		"::1/128", "fe80::/10", "fec0::/10", "ff00::/8", "100::/64",
		"64:ff9b::/32",           // translated to IPv4 addresses of the operator's choice (RFC 6052, RFC 8215)
		"2001::/23", "2002::/16", // Teredo, 6to4: IPv4 addresses in disguise
		"168.63.129.16/32", "192.0.0.192/32", "100.100.100.200/32", "fd00:ec2::/32", // metadata services of clouds
	)
	private = parsePrefixes(
		"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "192.0.0.0/24", "198.18.0.0/15",
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "fc00::/7", "2001:db8::/32", "3fff::/20", "5f00::/16",
	)
)

func parsePrefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

var errPrivate = errors.New(isPrivate)

const isPrivate = "it resolves to a private address, and the rule does not say private"

// judge says why the gate does not connect to an address. own are the addresses of
// this machine: whatever listens there expects the machine's own users. allowPrivate
// is the rule's.
func judge(a netip.Addr, own []netip.Addr, allowPrivate bool) error {
	a = a.Unmap().WithZone("")
	switch {
	case within(never, a):
		return fmt.Errorf("it resolves to %s, which is no host of a network", a)
	case slices.Contains(own, a):
		return fmt.Errorf("it resolves to %s, an address of this machine: --connect opens single ports of the loopback", a)
	case within(private, a) && !allowPrivate:
		return errPrivate
	}
	return nil
}

// ownAddresses are those of this machine.
func ownAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cannot read the addresses of this machine: %w", err)
	}
	var own []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap().WithZone(""))
		}
	}
	return own, nil
}
