package gate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/rtnetlink"
)

// prefixes that are not hosts of the internet (the IANA special-purpose address
// registries). A name that resolves to one of them would lead to services of this machine
// or of its network, which trust every client that reaches them.
var (
	never = parsePrefixes(
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3",
		"2001::/23", "2002::/16", "192.88.99.0/24", // Teredo, 6to4: IPv4 addresses in disguise
	)

	// metadata are services of clouds that give credentials to each client on the machine, at other
	// addresses than link-local ones: most clouds have 169.254.169.254 or fe80::a9fe:a9fe, Tencent
	// 169.254.0.23, Scaleway 169.254.42.42. An address is in the documentation of its cloud, or in
	// the source of its client.
	metadata = parsePrefixes(
		"100.96.0.96/32",         // Volcengine: github.com/volcengine/cello
		"100.80.80.80/32",        // UCloud: docs.ucloud.cn/uhost/guide/metadata/metadata-server
		"100.100.100.200/32",     // Alibaba: cloud-init, DataSourceAliYun.py
		"fd00:100::100:200/128",  // the same
		"168.63.129.16/32",       // Azure: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
		"192.0.0.192/32",         // Oracle Cloud Classic: docs.oracle.com, "Retrieving Instance Metadata"
		"fd00:c1::a9fe:a9fe/128", // Oracle: cloud-init, DataSourceOracle.py
		"fd00:42::42/128",        // Scaleway: cloud-init, datasources/scaleway
		"fd00:a9fe:a9fe::1/128",  // Akamai (Linode): cloud-init, datasources/akamai
		"fd00:ec2::/32",          // AWS: docs.aws.amazon.com/AWSEC2, "Instance metadata"; ::23 is EKS Pod Identity
		"fd20:ce::/32",           // Google: cloud.google.com/compute/docs/metadata, IPv6-only instances
	)

	// hosts6 are the IPv6 addresses that are given to hosts (RFC 4291, RFC 4193). Among
	// the others are loopback, link-local and mapped ones, and those that a translator
	// turns into IPv4 addresses.
	hosts6 = parsePrefixes("2000::/3", "fc00::/7")

	private = parsePrefixes(
		"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "192.0.0.0/24", "198.18.0.0/15",
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "fc00::/7", "2001:db8::/32", "3fff::/20",
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

// judge returns the reason why the gate does not connect to an address, or nil. local
// reports whether it is one of this machine: a server there expects only the machine's
// own users. allowPrivate is the rule's.
func judge(a netip.Addr, local func(netip.Addr) (bool, error), allowPrivate bool) error {
	a = a.Unmap().WithZone("")
	if within(never, a) || within(metadata, a) || a.Is6() && !within(hosts6, a) {
		return fmt.Errorf("it resolves to %s, which is no host of a network", a)
	}
	own, err := local(a)
	switch {
	case err != nil:
		return fmt.Errorf("it resolves to %s, and the kernel does not say where that is: %w", a, err)
	case own:
		return fmt.Errorf("it resolves to %s, an address of this machine: --connect opens single ports of the loopback", a)
	case within(private, a) && !allowPrivate:
		return errPrivate
	}
	return nil
}

// isLocal asks the kernel whether packets to an address stay on this machine. That
// is more than the addresses of its interfaces: a route can make any address local.
func isLocal(a netip.Addr) (bool, error) {
	n, err := rtnetlink.Open()
	if err != nil {
		return false, err
	}
	defer n.Close()
	kind, err := n.RouteType(a)
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil // connecting will fail with the reason
	}
	return kind != unix.RTN_UNICAST, err
}
