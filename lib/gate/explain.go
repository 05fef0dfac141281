package gate

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Explain reports in one line whether a Config allows a connection, by which rule, and
// the addresses of the name now. host is NAME or NAME:PORT, by default port 443.
func Explain(c Config, host string) string {
	name, port := host, uint64(443)
	if at, number, err := net.SplitHostPort(host); err == nil {
		if port, err = strconv.ParseUint(number, 10, 16); err != nil {
			return fmt.Sprintf("%q: %q is no port", host, number)
		}
		name = at
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	to := net.JoinHostPort(name, strconv.FormatUint(port, 10))
	rule, ok := c.Rules.Allows(name, uint16(port))
	if !ok {
		return to + "\trefused\t" + noRule
	}
	by := "allowed\t" + rule.String() + " (" + rule.Origin + ")\t"
	h := newHost(c.Proxy)
	addrs, err := h.resolve(context.Background(), name)
	if err != nil {
		return to + "\t" + by + "does not resolve: " + cause(err)
	}
	_, allowPrivate, _, _ := c.Rules.Find(name)
	var good, bad []string
	for _, a := range addrs {
		if err := judge(a, h.local, allowPrivate); err != nil {
			bad = append(bad, err.Error())
		} else {
			good = append(good, a.Unmap().String())
		}
	}
	if len(good) == 0 {
		return to + "\trefused\t" + rule.String() + " (" + rule.Origin + ")\t" + strings.Join(bad, "; ")
	}
	if c.Proxy.serves(name, uint16(port)) {
		good = append(good, "through the proxy of HTTPS_PROXY")
	}
	return to + "\t" + by + strings.Join(good, " ")
}
