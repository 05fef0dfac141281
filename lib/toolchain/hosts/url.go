package hosts

import (
	"slices"
	"strings"

	"pikuri/lib/hostrule"
)

// ports are the ports of the schemes that go over the network.
var ports = map[string]string{"https": "443", "http": "80", "ssh": "22", "git": "9418"}

// url adds the host of a URL. Local paths and file: give none.
func (s *survey) url(v setting) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(v.value), "://")
	if !ok {
		return
	}
	port := portOf(scheme)
	if port == "" {
		return
	}
	host := authority(rest)
	if !hasPort(host) {
		host = strings.TrimSuffix(host, ":") + ":" + port
	}
	// These mean something in a rule, and nothing in a URL: several ports, "private",
	// a wildcard.
	if strings.ContainsAny(host, ", \t*") {
		s.note("%q: %q is no host; left out", v.from.Place, host)
		return
	}
	s.add(v.with(host))
}

// portOf returns the port of a scheme, or "". In Cargo's "sparse+https" and in
// "git+ssh" the other part names the protocol; "tor+http" uses a Tor proxy.
func portOf(scheme string) string {
	if strings.HasPrefix(scheme, "tor+") {
		return ""
	}
	for _, part := range slices.Backward(strings.Split(strings.ToLower(scheme), "+")) {
		if part != "git" || scheme == "git" {
			return ports[part]
		}
	}
	return ""
}

// authority is the host and port of a URL behind its scheme, without user and
// password.
func authority(rest string) string {
	if i := strings.IndexAny(rest, `/?#\`); i >= 0 {
		rest = rest[:i]
	}
	return rest[strings.LastIndexByte(rest, '@')+1:]
}

func hasPort(host string) bool {
	i := strings.LastIndexByte(host, ':')
	return i > strings.LastIndexByte(host, ']') && i+1 < len(host)
}

// add adds a rule with its port, or notes why there is none.
func (s *survey) add(v setting) {
	rule, err := hostrule.Parse(v.value)
	if err != nil {
		s.note("%q: %v; left out", v.from.Place, err)
		return
	}
	key := rule.String()
	e := s.found[key]
	if e == nil {
		if len(s.found) >= hostrule.MaxRules {
			s.note("%q: more than %d hosts; left out", v.from.Place, hostrule.MaxRules)
			return
		}
		e = &Entry{Rule: rule}
		s.found[key] = e
	}
	if !slices.Contains(e.Sources, v.from) {
		e.Sources = append(e.Sources, v.from)
	}
}

// urls adds the hosts of several settings.
func (s *survey) urls(settings []setting) {
	for _, v := range settings {
		s.url(v)
	}
}

// words adds the hosts of URLs with blanks between them.
func (s *survey) words(settings []setting) {
	for _, v := range settings {
		for word := range strings.FieldsSeq(v.value) {
			s.url(v.with(word))
		}
	}
}

// expand replaces ${NAME} by variables of the environment. Unset variables stay: they make
// no host. In a file of the project nothing is replaced: it could have the value of a
// secret printed as part of a name.
func (s *survey) expand(f *file, value string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(value, "${")
		name, after, closed := strings.Cut(rest, "}")
		b.WriteString(before)
		if !ok || !closed {
			b.WriteString(value[len(before):])
			return b.String()
		}
		known, set := s.env[name]
		if !set || f.from.Level == Project {
			known = "${" + name + "}"
		}
		b.WriteString(known)
		value = after
	}
}

// pairs reads lines "KEY = VALUE" of ini files, in any section; comments begin
// with "#" or ";". With folded, a line that begins with a blank is one more value of
// the key before it.
func pairs(text string, folded bool) map[string][]string {
	values := map[string][]string{}
	last := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(trimmed, "="); {
		case trimmed == "" || strings.ContainsRune("#;[", rune(trimmed[0])):
		case folded && last != "" && (line[0] == ' ' || line[0] == '\t'):
			values[last] = append(values[last], trimmed)
		case ok:
			last = strings.TrimSpace(key)
			values[last] = append(values[last], unquoted(strings.TrimSpace(value)))
		}
	}
	return values
}

// unquoted takes one pair of quotes off.
func unquoted(s string) string {
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}
