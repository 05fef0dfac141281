// Package pattern is the one language in which pk names sets of paths below a
// root: rules that deny, rules that allow, and globs. pk-patterns(7) is its
// description, and its truth table.
//
// Compile refuses a pattern that it does not understand: a rule that denies and
// matches nothing looks like one that works. Matching takes time in proportion to
// the pattern times the path, for any pattern and path.
//
// Paths are relative to a root, with "/" between names and no "." or ".." among
// them; the root itself is ".". Names are compared byte by byte: there is no
// case folding and no Unicode normalization, as there is none in the kernel. A
// character, where "?" or a class takes one, is a UTF-8 sequence, or one byte
// that is not part of any.
//
// A pattern knows names, not objects. Hard links, bind mounts and file systems
// that ignore case give one object many names; the caller must handle those.
package pattern

import "strings"

// Pattern is a compiled pattern. The zero value matches nothing. It can be used
// by several goroutines at once.
type Pattern struct {
	text         string
	alternatives [][]component // one matches: the pattern does
}

// String returns the pattern as it was given.
func (p *Pattern) String() string { return p.text }

// Match tells whether path matches. Rules that allow use it: a path below a
// match does not match.
func (p *Pattern) Match(path string) bool {
	return p.any(path, func(s *states) bool { return s.done() })
}

// Covers tells whether path, or a directory above it, matches. Rules that deny
// use it: denying a directory denies its contents.
func (p *Pattern) Covers(path string) bool {
	return p.any(path, func(s *states) bool { return s.wasDone })
}

// MayMatchBelow tells whether some path below dir, existing or not, could match.
// Operations on a whole tree use it, and walks that skip directories without
// matches.
func (p *Pattern) MayMatchBelow(dir string) bool {
	return p.any(dir, func(s *states) bool { return s.hopeful() })
}

// CoversBelow tells whether every path below dir, existing or not, matches. Rules
// that allow use it for a directory as a whole.
func (p *Pattern) CoversBelow(dir string) bool {
	return p.any(dir, func(s *states) bool { return s.takesAll() })
}

// Literal returns the one path that the pattern matches, if there is only one.
func (p *Pattern) Literal() (path string, ok bool) {
	if len(p.alternatives) != 1 {
		return "", false
	}
	var names []string
	for _, c := range p.alternatives[0] {
		name := ""
		for _, t := range c.tokens {
			if t.literal == "" {
				return "", false
			}
			name += t.literal
		}
		if c.globstar {
			return "", false
		}
		names = append(names, name)
	}
	return strings.Join(names, "/"), true
}

// any tells whether one of the alternatives, having read all of path, is in a
// state that fits.
func (p *Pattern) any(path string, fits func(*states) bool) bool {
	for _, components := range p.alternatives {
		s := start(components)
		for name := range strings.SplitSeq(path, "/") {
			if name != "" && name != "." {
				s.read(name)
			}
		}
		if fits(&s) {
			return true
		}
	}
	return false
}

// special are the bytes that may mean something else than themselves.
const special = `\*?[]{}()!+@`

// Quote returns the pattern that matches path and nothing else.
func Quote(path string) string {
	var quoted strings.Builder
	for i := range len(path) {
		if strings.IndexByte(special, path[i]) >= 0 {
			quoted.WriteByte('\\')
		}
		quoted.WriteByte(path[i])
	}
	return quoted.String()
}
