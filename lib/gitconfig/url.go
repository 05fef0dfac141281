package gitconfig

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxURL is more than any server takes.
const maxURL = 2048

// remoteURL is a URL of another machine, taken apart.
type remoteURL struct {
	scheme string // "" for the form user@host:path
	user   string
	path   string // empty, or the text after the host
}

// parseURL accepts https, http, ssh and git URLs, and [user@]host:path. It refuses
// passwords, local paths and helpers ("ext::"), and text that a program which gets a
// part of the URL could misread: options, control characters, also as %0a.
func parseURL(s string) (remoteURL, bool) {
	if len(s) > maxURL || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) {
		return remoteURL{}, false
	}
	var u remoteURL
	var host string
	scheme, rest, ok := strings.Cut(s, "://")
	if ok {
		if !listed("https http ssh git", scheme) {
			return u, false
		}
		u.scheme = scheme
		host = rest
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			host, u.path = rest[:i], rest[i:]
		}
		if !goodEscapes(u.path) {
			return u, false
		}
	} else {
		host, u.path, ok = strings.Cut(s, ":")
		if !ok || strings.Contains(host, "/") || strings.HasPrefix(u.path, ":") || strings.HasPrefix(u.path, "-") {
			return u, false
		}
	}
	if user, rest, ok := strings.Cut(host, "@"); ok {
		if !isName(user) {
			return u, false
		}
		u.user, host = user, rest
	}
	if u.scheme == "" && u.user == "" && strings.Contains(u.path, "@") {
		return u, false // user:password@host
	}
	if u.scheme != "" {
		name, port, hasPort := cutPort(host)
		if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) {
			return u, false
		}
		host = name
	}
	return u, isHost(host)
}

// cutPort is a strings.Cut that knows [::1]:22.
func cutPort(host string) (name, port string, ok bool) {
	bracket := strings.LastIndexByte(host, ']')
	name, port, ok = strings.Cut(host[bracket+1:], ":")
	return host[:bracket+1] + name, port, ok
}

func isHost(s string) bool {
	if v6, ok := strings.CutPrefix(s, "["); ok {
		v6, ok = strings.CutSuffix(v6, "]")
		return ok && v6 != "" && strings.Trim(v6, "0123456789abcdefABCDEF:.") == ""
	}
	return isName(s)
}

// isName is for users and hosts. None begins with a dash, as ssh would take it for an
// option.
func isName(s string) bool {
	for i := range len(s) {
		if !isKey(s[i]) && (i == 0 || s[i] != '.' && s[i] != '_') {
			return false
		}
	}
	return s != "" && s[0] != '-'
}

// goodEscapes refuses malformed escapes and those that hide "." or "/". It refuses control
// characters too: git passes the decoded text on to helpers that read lines.
func goodEscapes(s string) bool {
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			return true
		}
		if s = s[i+1:]; len(s) < 2 {
			return false
		}
		c, err := strconv.ParseUint(s[:2], 16, 8)
		if err != nil || c < ' ' || c == 0x7f || c == '.' || c == '/' {
			return false
		}
	}
}

// secret reports whether text holds a URL with a password, or with the user of an http
// URL, which is often a token.
func secret(text string) bool {
	for {
		before, rest, ok := strings.Cut(text, "://")
		if !ok {
			return false
		}
		host := rest
		if end := strings.IndexAny(rest, "/ \t\"'"); end >= 0 {
			host = rest[:end]
		}
		if user, _, ok := strings.Cut(host, "@"); ok && (!strings.HasSuffix(before, "ssh") || strings.Contains(user, ":")) {
			return true
		}
		text = rest
	}
}
