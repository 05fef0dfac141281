package gitsync

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"pikuri/lib/internal/lazy"
	"pikuri/lib/workspace"
)

var urls = lazy.Regexp(`[a-z+.-]+://[^\s'"]+`)

// scpLike is the short form of an ssh URL.
var scpLike = lazy.Regexp(`^([A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:[^:/-][^:]*$`)

// maxURL is more than any address has, and less than fills a screen.
const maxURL = 2048

// checkURL refuses anything but the address of a repository by one of the
// protocols.
func checkURL(address string, protocols []string) error {
	invalid := func(detail string) error {
		return &workspace.Error{Err: workspace.ErrInvalid, Detail: detail}
	}
	switch {
	case strings.TrimSpace(address) == "":
		return invalid("there is no address to clone from")
	case strings.TrimSpace(address) != address || strings.ContainsFunc(address, func(r rune) bool {
		return !unicode.IsPrint(r) || r == utf8.RuneError || r == ' '
	}):
		return invalid("the address holds a blank or an unprintable character")
	case strings.HasPrefix(address, "-"):
		return invalid("the address begins with a dash")
	case len(address) > maxURL:
		return invalid("the address is too long")
	}
	protocol := "ssh"
	if !scpLike().MatchString(address) {
		parsed, err := url.Parse(address)
		switch {
		case err != nil || parsed.Scheme == "" || !strings.HasPrefix(address, parsed.Scheme+"://"):
			return invalid("it is not an address with a protocol, such as https://")
		case parsed.Host == "" && parsed.Scheme != "file", strings.HasPrefix(parsed.Host, "-"), strings.HasPrefix(parsed.User.String(), "-"):
			return invalid("the address has no host")
		case parsed.User != nil && parsed.Scheme != "ssh":
			return invalid("the address holds a name or a password")
		}
		if _, hasPassword := parsed.User.Password(); hasPassword {
			return invalid("the address holds a password")
		}
		protocol = parsed.Scheme
	}
	if !slices.Contains(protocols, protocol) {
		return &workspace.Error{Err: workspace.ErrAccessDenied, Detail: fmt.Sprintf("the protocol %q is not allowed", protocol)}
	}
	return nil
}

// RedactURL returns the parts of an address that may be shown, its protocol and its
// host: "" if it has neither.
func RedactURL(address string) string {
	address = strings.TrimSpace(address)
	if !strings.Contains(address, "://") && !scpLike().MatchString(address) {
		host, _, _ := strings.Cut(address, "/")
		return host
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme == "" || parsed.Host == "" {
		return ""
	}
	return parsed.Scheme + "://" + parsed.Host
}
