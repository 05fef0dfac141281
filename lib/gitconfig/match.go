package gitconfig

import "strings"

// matches reports whether text matches a pattern of a condition, as git's own
// matcher would: "*" and "?" stop at a slash, "**" between slashes does not.
// Time is bounded by the product of the lengths, since a command may have
// written both.
func matches(pattern, text string, fold bool) bool {
	if len(pattern) > maxPattern || len(text) > maxPattern {
		return false
	}
	if fold {
		folded := []byte(text)
		for i, c := range folded {
			folded[i] = lower(c)
		}
		text = string(folded)
	}
	m := matcher{pattern: pattern, text: text, fold: fold}
	return m.match(0, 0)
}

// maxPattern is a path's greatest length. A pattern that is longer matches none.
const maxPattern = 4096

type matcher struct {
	pattern, text string
	fold          bool
	failed        map[[2]int]bool // behind a star: the pairs that were tried there
}

// match reports whether the pattern from p on matches the text from t on.
func (m *matcher) match(p, t int) bool {
	for ; p < len(m.pattern); t++ {
		if m.pattern[p] == '*' {
			return m.star(p, t)
		}
		if t == len(m.text) {
			return false
		}
		ok := true
		switch c := m.pattern[p]; c {
		case '?':
			ok, p = m.text[t] != '/', p+1
		case '[':
			p, ok = m.class(p+1, m.text[t])
		case '\\':
			p++
			if p == len(m.pattern) {
				return false
			}
			fallthrough
		default:
			ok, p = m.folded(m.pattern[p]) == m.text[t], p+1
		}
		if !ok {
			return false
		}
	}
	return t == len(m.text)
}

// star matches from the stars at p on. Two or more, alone between slashes, take
// slashes as well, and with the slash behind them may take nothing at all.
func (m *matcher) star(p, t int) bool {
	end := p
	for end < len(m.pattern) && m.pattern[end] == '*' {
		end++
	}
	rest := m.pattern[end:]
	deep := end-p > 1 && (p == 0 || m.pattern[p-1] == '/') &&
		(rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	if deep && strings.HasPrefix(rest, "/") && m.remembered(end+1, t) {
		return true
	}
	for ; ; t++ {
		if m.remembered(end, t) {
			return true
		}
		if t == len(m.text) || !deep && m.text[t] == '/' {
			return false
		}
	}
}

// remembered is match, which for a pair of places fails once only.
func (m *matcher) remembered(p, t int) bool {
	key := [2]int{p, t}
	if m.failed[key] {
		return false
	}
	if m.match(p, t) {
		return true
	}
	if m.failed == nil {
		m.failed = map[[2]int]bool{}
	}
	m.failed[key] = true
	return false
}

// class matches one character against the class after a bracket, and returns where
// the pattern goes on. A class that does not end matches nothing.
func (m *matcher) class(p int, c byte) (int, bool) {
	s := m.pattern
	at := func(i int) byte {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	negated := at(p) == '!' || at(p) == '^'
	if negated {
		p++
	}
	found := false
	var from byte // the start of a possible range
	for first := true; first || at(p) != ']'; first = false {
		low := at(p)
		switch {
		case low == 0:
			return p, false
		case low == '\\':
			p++
			low = at(p)
			if low == 0 {
				return p, false
			}
			found = found || c == low
		case low == '-' && from != 0 && at(p+1) != 0 && at(p+1) != ']':
			p++
			if at(p) == '\\' {
				p++
			}
			high := at(p)
			if high == 0 {
				return p, false
			}
			found = found || m.inRange(c, from, high)
			low = 0
		case low == '[' && at(p+1) == ':':
			end := strings.IndexByte(s[p+2:], ']')
			if end < 0 {
				return p, false
			}
			if name, ok := strings.CutSuffix(s[p+2:p+2+end], ":"); ok {
				in, known := m.named(name, c)
				if !known {
					return p, false
				}
				found = found || in
				p += 2 + end
				low = 0
			} else {
				found = found || c == '['
			}
		default:
			found = found || c == low
		}
		from = low
		p++
	}
	return p + 1, found != negated && c != '/'
}

func (m *matcher) inRange(c, from, to byte) bool {
	upper := c
	if m.fold && 'a' <= c && c <= 'z' {
		upper = c - 'a' + 'A'
	}
	return from <= c && c <= to || from <= upper && upper <= to
}

// named reports whether c is in a class like [:alpha:].
func (m *matcher) named(name string, c byte) (in, known bool) {
	digit, letter, low := '0' <= c && c <= '9', isLetter(c), 'a' <= c && c <= 'z'
	graph := '!' <= c && c <= '~'
	switch name {
	case "alnum":
		return digit || letter, true
	case "alpha":
		return letter, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "cntrl":
		return c < ' ' || c == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return low, true
	case "print":
		return graph || c == ' ', true
	case "punct":
		return graph && !digit && !letter, true
	case "space":
		return isSpace(c), true
	case "upper":
		return letter && !low || m.fold && low, true
	case "xdigit":
		return digit || 'a' <= lower(c) && lower(c) <= 'f', true
	}
	return false, false
}

func (m *matcher) folded(c byte) byte {
	if m.fold {
		return lower(c)
	}
	return c
}
