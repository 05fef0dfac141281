package gate

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Proxy is the caller's own way to hosts: an HTTP proxy for CONNECT requests.
type Proxy struct {
	URL     string `json:"url,omitempty"`      // "": connect directly
	NoProxy string `json:"no_proxy,omitempty"` // names to connect to directly, as in NO_PROXY
}

// FindProxy returns the proxy of an environment: HTTPS_PROXY and NO_PROXY, in either
// case.
func FindProxy(getenv func(string) string) (Proxy, error) {
	either := func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return getenv(strings.ToLower(name))
	}
	p := Proxy{either("HTTPS_PROXY"), either("NO_PROXY")}
	if p.URL == "" {
		return Proxy{}, nil
	}
	if !strings.Contains(p.URL, "://") {
		p.URL = "http://" + p.URL
	}
	u, err := url.Parse(p.URL)
	switch {
	case err != nil:
		err = errors.New("it is no URL")
	case u.Scheme != "http":
		err = fmt.Errorf("its scheme is %q: only http proxies can be used", u.Scheme)
	case u.Hostname() == "":
		err = errors.New("it names no host")
	}
	if err != nil { // the URL may hold a password
		return Proxy{}, &Failure{fmt.Errorf("cannot use the proxy of HTTPS_PROXY: %w", err), "HTTPS_PROXY=http://HOST:PORT, or unset it"}
	}
	return p, nil
}

// serves reports whether a host is reached through the proxy. A name in NO_PROXY covers
// itself and all names below it; with a leading dot, only those below. An HTTP library
// would do the same, but brings the tables of international names into programs that
// start for each command.
func (p Proxy) serves(name string, port uint16) bool {
	if p.URL == "" {
		return false
	}
	for entry := range strings.SplitSeq(strings.ToLower(p.NoProxy), ",") {
		entry = strings.TrimSpace(entry)
		if at, n, ok := strings.Cut(entry, ":"); ok {
			if n != strconv.Itoa(int(port)) {
				continue
			}
			entry = at
		}
		switch entry = strings.TrimPrefix(entry, "*."); {
		case entry == "*":
			return false
		case entry == "":
		case strings.HasPrefix(entry, "."):
			if strings.HasSuffix(name, entry) {
				return false
			}
		case name == entry || strings.HasSuffix(name, "."+entry):
			return false
		}
	}
	return true
}
