package gitignore

import "strings"

// rule is a line of a list.
type rule struct {
	negated bool // a match is not ignored
	dirOnly bool
	byName  bool // it is compared with the last name of a path, at any depth

	literal string // of a byName rule without special characters
	suffix  string // of one that is a star and then none
	globs   []glob // one of them matches
}

// glob is a pattern, split at its slashes.
type glob []component

// component matches one name. A globstar matches any number of names.
type component struct {
	globstar bool
	tokens   []token
}

type kind byte

const (
	one   kind = iota // a byte of a set
	star              // any number of bytes
	stars             // two stars or more: a globstar, if it stands alone
	slash
)

type token struct {
	kind kind
	set  *[256]bool // nil: the byte, or with any each one
	byte byte
	any  bool

	escaped bool // a slash behind a backslash: then a globstar before it takes a name at least
}

func (t token) takes(b byte) bool {
	switch {
	case t.any:
		return true
	case t.set != nil:
		return t.set[b]
	}
	return t.byte == b
}

// parse reads a line. ok is false for a line without a rule, and for a rule that matches
// nothing.
func parse(line string) (r rule, ok bool) {
	if line == "" || line[0] == '#' {
		return r, false
	}
	line = trimBlanks(line)
	if line, r.negated = strings.CutPrefix(line, "!"); line == "" {
		return r, false
	}
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.byName = !strings.Contains(line, "/")
	literal := strings.IndexAny(line, `*?[\`)
	switch {
	case line == "":
		return r, false
	case r.byName && literal < 0:
		r.literal = line
		return r, true
	case r.byName && line[0] == '*' && !strings.ContainsAny(line[1:], `*?[\`):
		r.suffix = line[1:]
		return r, true
	}
	line, anchored := strings.CutPrefix(line, "/")
	if anchored {
		literal--
	}
	tokens, ok := tokenize(line)
	if !ok {
		return r, false
	}
	if r.byName {
		for i := range tokens {
			if tokens[i].kind == stars {
				tokens[i].kind = star
			}
		}
		r.globs = []glob{{component{tokens: tokens}}}
		return r, true
	}
	r.globs = split(tokens, literal)
	return r, true
}

// trimBlanks removes blanks at the end, except an escaped blank.
func trimBlanks(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			if i++; i == len(line) {
				return line
			}
		}
		end = i + 1
	}
	return line[:end]
}

// tokenize fails for a pattern with which git matches nothing: an open or unknown class, or
// a backslash at the end.
func tokenize(text string) (tokens []token, ok bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '/':
			tokens = append(tokens, token{kind: slash})
		case '?':
			tokens = append(tokens, token{any: true})
		case '*':
			t := token{kind: star}
			for ; i+1 < len(text) && text[i+1] == '*'; i++ {
				t.kind = stars
			}
			tokens = append(tokens, t)
		case '[':
			set, n := class(text[i+1:])
			if n < 0 {
				return nil, false
			}
			tokens = append(tokens, token{set: set})
			i += n
		case '\\':
			if i++; i == len(text) {
				return nil, false
			}
			c = text[i]
			if c == '/' {
				tokens = append(tokens, token{kind: slash, escaped: true})
				continue
			}
			fallthrough
		default:
			tokens = append(tokens, token{byte: text[i]})
		}
	}
	return tokens, true
}

// split makes components of a pattern with slashes. Its first literal bytes are not
// special. Two stars are a globstar if they stand alone between slashes. Git compares the
// bytes before the first special byte separately and drops them, so two stars directly
// after these are a globstar as well.
func split(tokens []token, literal int) []glob {
	if literal > 0 && literal < len(tokens) && tokens[literal].kind == stars && tokens[literal-1].kind != slash &&
		(literal+1 == len(tokens) || tokens[literal+1].kind == slash) {
		head, rest := tokens[:literal:literal], tokens[literal+1:]
		if len(rest) == 0 { // x** is x* and all below
			return []glob{components(append(head, token{kind: star})),
				components(append(head, token{kind: star}, token{kind: slash}, token{kind: stars}))}
		}
		below := components(append(append(head, token{kind: star}, token{kind: slash}, token{kind: stars}, token{kind: slash}), rest[1:]...))
		if rest[0].escaped {
			return []glob{below}
		}
		return []glob{components(append(head, rest[1:]...)), below} // x**/y is xy, and y anywhere below x*
	}
	return []glob{components(tokens)}
}

func components(tokens []token) glob {
	var g glob
	for len(tokens) > 0 || len(g) == 0 {
		end := 0
		for end < len(tokens) && tokens[end].kind != slash {
			end++
		}
		name := tokens[:end]
		switch last := end == len(tokens); {
		case len(name) == 1 && name[0].kind == stars && (last || tokens[end].escaped):
			g = append(g, component{globstar: true}, component{tokens: []token{{kind: star}}})
		case len(name) == 1 && name[0].kind == stars:
			g = append(g, component{globstar: true})
		default:
			g = append(g, component{tokens: name})
		}
		if end == len(tokens) {
			break
		}
		if tokens = tokens[end+1:]; len(tokens) == 0 {
			g = append(g, component{})
		}
	}
	return g
}

// class reads a class after its "[". n is its length in bytes, -1 if it is not a class.
func class(text string) (set *[256]bool, n int) {
	set = new([256]bool)
	i := 0
	negated := i < len(text) && (text[i] == '!' || text[i] == '^')
	if negated {
		i++
	}
	before := -1 // the byte that a range may begin with
	for first := true; ; first = false {
		if i >= len(text) {
			return nil, -1
		}
		c := text[i]
		switch {
		case c == ']' && !first:
			if negated {
				for b := range set {
					set[b] = !set[b]
				}
			}
			return set, i + 1
		case c == '-' && before >= 0 && i+1 < len(text) && text[i+1] != ']':
			if i++; text[i] == '\\' {
				if i++; i >= len(text) {
					return nil, -1
				}
			}
			for b := before; b <= int(text[i]); b++ {
				set[b] = true
			}
			before = -1
			i++
			continue
		case c == '[' && i+1 < len(text) && text[i+1] == ':':
			end := strings.IndexByte(text[i+2:], ']')
			if end < 0 {
				return nil, -1
			}
			if name := text[i+2 : i+2+end]; strings.HasSuffix(name, ":") {
				in, known := classes[strings.TrimSuffix(name, ":")]
				if !known {
					return nil, -1
				}
				for b := range set {
					set[b] = set[b] || in(byte(b))
				}
				before = -1
				i += 2 + end + 1
				continue
			}
		case c == '\\':
			if i++; i >= len(text) {
				return nil, -1
			}
			c = text[i]
		}
		set[c] = true
		before = int(c)
		i++
	}
}

func between(low, high byte) func(byte) bool {
	return func(b byte) bool { return low <= b && b <= high }
}

func either(tests ...func(byte) bool) func(byte) bool {
	return func(b byte) bool {
		for _, test := range tests {
			if test(b) {
				return true
			}
		}
		return false
	}
}

func among(bytes string) func(byte) bool {
	return func(b byte) bool { return strings.IndexByte(bytes, b) >= 0 }
}

var (
	upper, lower, digit = between('A', 'Z'), between('a', 'z'), between('0', '9')
	alnum               = either(upper, lower, digit)
	graph               = between('!', '~')

	classes = map[string]func(byte) bool{
		"alnum": alnum, "alpha": either(upper, lower), "digit": digit, "lower": lower, "upper": upper,
		"blank": among(" \t"), "space": among(" \t\n\v\f\r"), "cntrl": either(between(0, 31), among("\x7f")),
		"graph": graph, "print": either(graph, among(" ")), "xdigit": either(digit, between('a', 'f'), between('A', 'F')),
		"punct": func(b byte) bool { return graph(b) && !alnum(b) },
	}
)

// matches compares a rule with a path below the directory of its list. name is the last
// name of the path.
func (r *rule) matches(path func() string, name string) bool {
	switch {
	case r.literal != "":
		return r.literal == name
	case r.byName && r.globs == nil:
		return strings.HasSuffix(name, r.suffix)
	case r.byName:
		return r.globs[0][0].matches(name)
	}
	for _, g := range r.globs {
		if g.matches(path()) {
			return true
		}
	}
	return false
}

// matches takes time proportional to the length of the pattern times the length of the
// path. Only the last globstar is tried again with more names.
func (g glob) matches(path string) bool {
	at, resume, rest := 0, -1, ""
	for {
		if at < len(g) && g[at].globstar {
			resume, rest = at, path
			at++
			continue
		}
		if path == "" && at == len(g) {
			return true
		}
		name, after, _ := strings.Cut(path, "/")
		if path != "" && at < len(g) && g[at].matches(name) {
			path = after
			at++
			continue
		}
		if resume < 0 || rest == "" {
			return false
		}
		_, rest, _ = strings.Cut(rest, "/")
		path, at = rest, resume+1
	}
}

func (c component) matches(name string) bool {
	t, resume, rest := 0, -1, 0
	for i := 0; ; {
		switch {
		case t < len(c.tokens) && c.tokens[t].kind != one:
			resume, rest = t, i
			t++
			continue
		case i == len(name) && t == len(c.tokens):
			return true
		case i < len(name) && t < len(c.tokens) && c.tokens[t].takes(name[i]):
			i++
			t++
			continue
		}
		if resume < 0 || rest == len(name) {
			return false
		}
		rest++
		i, t = rest, resume+1
	}
}
