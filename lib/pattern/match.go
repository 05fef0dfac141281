package pattern

import (
	"strings"
	"unicode/utf8"
)

// component is the part of a pattern between two slashes.
type component struct {
	globstar bool
	tokens   []token
}

// token takes one character, or with star any number of them.
type token struct {
	star    bool
	one     bool   // any character
	class   *class // one of these characters
	literal string // this character
}

// class is a set of characters.
type class struct {
	negated bool
	ranges  []span
}

// span is the characters from low to high.
type span struct{ low, high rune }

// states are the places in a row of components that the names read so far can
// lead to: states[i] says that the first i components have matched. Each
// component is held against each name at most once, so that no row of globstars
// makes it slow.
type states struct {
	components []component
	at, next   []bool
	wasDone    bool // some leading names of the path have matched
}

func start(components []component) states {
	n := len(components) + 1
	room := make([]bool, 2*n)
	s := states{components: components, at: room[:n], next: room[n:]}
	s.at[0] = true
	s.skipGlobstars()
	return s
}

// read takes one more name of the path.
func (s *states) read(name string) {
	clear(s.next)
	for i, c := range s.components {
		switch {
		case !s.at[i]:
		case c.globstar:
			s.next[i] = true
		case c.matches(name):
			s.next[i+1] = true
		}
	}
	s.at, s.next = s.next, s.at
	s.skipGlobstars()
}

// skipGlobstars: a globstar also matches no name at all.
func (s *states) skipGlobstars() {
	for i, c := range s.components {
		if s.at[i] && c.globstar {
			s.at[i+1] = true
		}
	}
	s.wasDone = s.wasDone || s.done()
}

// done tells whether all components have matched all names.
func (s *states) done() bool { return s.at[len(s.components)] }

// hopeful tells whether more names can lead to a match.
func (s *states) hopeful() bool {
	for i := range s.components {
		if s.at[i] {
			return true
		}
	}
	return false
}

// takesAll tells whether a globstar at the end has been reached, which matches
// any further names.
func (s *states) takesAll() bool {
	last := len(s.components) - 1
	return last >= 0 && s.components[last].globstar && s.at[last]
}

// matches compares the component with a name. Only the last star is ever tried
// again with more: the characters between two stars can be taken where they are
// found first.
func (c component) matches(name string) bool {
	star, resume := -1, ""
	t := 0
	for name != "" || t < len(c.tokens) {
		if t < len(c.tokens) {
			if c.tokens[t].star {
				star, resume = t, name
				t++
				continue
			}
			if n := c.tokens[t].take(name); n > 0 {
				name = name[n:]
				t++
				continue
			}
		}
		if star < 0 || resume == "" {
			return false
		}
		_, n := utf8.DecodeRuneInString(resume)
		resume = resume[n:]
		name, t = resume, star+1
	}
	return true
}

// take returns how many bytes at the beginning of name the token takes, 0 for
// none.
func (t token) take(name string) int {
	if t.literal != "" {
		if strings.HasPrefix(name, t.literal) {
			return len(t.literal)
		}
		return 0
	}
	r, n := utf8.DecodeRuneInString(name)
	if n == 0 || t.one || t.class.holds(r, n) {
		return n
	}
	return 0
}

// holds tells whether the character r, of n bytes, is in the class. A byte that
// is not UTF-8 decodes as U+FFFD, which is a character of its own.
func (c *class) holds(r rune, n int) bool {
	if r == utf8.RuneError && n == 1 {
		return c.negated
	}
	for _, s := range c.ranges {
		if s.low <= r && r <= s.high {
			return !c.negated
		}
	}
	return c.negated
}
