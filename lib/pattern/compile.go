package pattern

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxLength is how long a pattern may be: no path is longer.
const maxLength = 4096

// maxAlternatives is how many patterns the braces of one may stand for. Each
// further pair multiplies them.
const maxAlternatives = 256

// SyntaxError says which pattern is not understood, and why.
type SyntaxError struct {
	Pattern string
	Reason  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("cannot understand pattern %q: %s", e.Pattern, e.Reason)
}

// Compile reads a pattern. Errors are of type *SyntaxError.
func Compile(text string) (*Pattern, error) {
	reason := unfit(text)
	if reason != "" {
		return nil, &SyntaxError{text, reason}
	}
	texts, reason := expand(text)
	p := &Pattern{text: text}
	for _, t := range texts {
		var components []component
		if components, reason = parse(t); reason != "" {
			break
		}
		p.alternatives = append(p.alternatives, components)
	}
	if reason != "" {
		return nil, &SyntaxError{text, reason}
	}
	return p, nil
}

// unfit returns the fault of the whole text, "" for none.
func unfit(text string) string {
	switch {
	case text == "":
		return "it is empty"
	case len(text) > maxLength:
		return fmt.Sprintf("it is longer than %d bytes", maxLength)
	case strings.IndexByte(text, 0) >= 0:
		return "it holds a NUL byte"
	}
	return ""
}

// expand replaces braces by the patterns they stand for.
func expand(text string) (texts []string, reason string) {
	texts = []string{""}
	for text != "" {
		plain := plainLength(text)
		alternatives := []string{text[:plain]}
		text = text[plain:]
		if plain == 0 {
			if alternatives, text, reason = braces(text); reason != "" {
				return nil, reason
			}
		}
		if len(texts)*len(alternatives) > maxAlternatives {
			return nil, fmt.Sprintf("its braces stand for more than %d patterns", maxAlternatives)
		}
		texts = product(texts, alternatives)
	}
	return texts, ""
}

// plainLength is how much of text comes before a brace.
func plainLength(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{', '}':
			return i
		}
	}
	return len(text)
}

// braces reads {a,b} at the beginning of text.
func braces(text string) (alternatives []string, rest, reason string) {
	if text[0] == '}' {
		return nil, "", `a "}" closes nothing; \} is a brace`
	}
	begin := 1
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			return nil, "", "there are braces within braces"
		case ',':
			alternatives, begin = append(alternatives, text[begin:i]), i+1
		case '}':
			if alternatives == nil {
				return nil, "", `there is no comma between "{" and "}"; \{ is a brace`
			}
			return append(alternatives, text[begin:i]), text[i+1:], ""
		}
	}
	return nil, "", `a "{" is not closed; \{ is a brace`
}

func product(heads, tails []string) []string {
	var all []string
	for _, head := range heads {
		for _, tail := range tails {
			all = append(all, head+tail)
		}
	}
	return all
}

// parse reads a pattern without braces. "." and double slashes mean nothing, as
// in a path; a slash at the end stands for all that is in the directory.
func parse(text string) (components []component, reason string) {
	switch {
	case text == "":
		return nil, "one of the patterns that its braces stand for is empty"
	case text[0] == '/':
		return nil, "it begins with a slash, and patterns begin at a root"
	case text[0] == '!':
		return nil, `no pattern takes back another; \! is an exclamation mark`
	}
	for name := range strings.SplitSeq(text, "/") {
		if name == "" || name == "." {
			continue
		}
		c, reason := parseName(name)
		if reason != "" {
			return nil, reason
		}
		components = append(components, c)
	}
	if strings.HasSuffix(text, "/") {
		components = append(components, component{globstar: true})
	}
	return components, ""
}

// parseName reads the text between two slashes.
func parseName(name string) (c component, reason string) {
	switch {
	case name == "**":
		return component{globstar: true}, ""
	case name == "..":
		return c, `".." leads out of the root`
	}
	for name != "" {
		var t token
		if t, name, reason = parseToken(name); reason != "" {
			return c, reason
		}
		if t.star && strings.HasPrefix(name, "*") {
			return c, `"**" has to stand alone between slashes`
		}
		c.tokens = append(c.tokens, t)
	}
	return c, ""
}

// parseToken reads one token from the beginning of a name that is not empty.
func parseToken(name string) (t token, rest, reason string) {
	if len(name) > 1 && name[1] == '(' && strings.IndexByte("?*+@!", name[0]) >= 0 {
		return t, "", fmt.Sprintf("%q is not known here; \\( is a parenthesis", name[:2])
	}
	switch name[0] {
	case '*':
		return token{star: true}, name[1:], ""
	case '?':
		return token{one: true}, name[1:], ""
	case '[':
		return parseClass(name[1:])
	case ']':
		return t, "", `a "]" closes nothing; \] is a bracket`
	case '\\':
		if name = name[1:]; name == "" {
			return t, "", `there is nothing to escape after a "\"`
		}
	}
	_, n := utf8.DecodeRuneInString(name)
	return token{literal: name[:n]}, name[n:], ""
}

// parseClass reads a class after its "[".
func parseClass(text string) (t token, rest, reason string) {
	c := &class{}
	if strings.HasPrefix(text, "!") || strings.HasPrefix(text, "^") {
		c.negated, text = true, text[1:]
	}
	for !strings.HasPrefix(text, "]") {
		var s span
		if s, text, reason = parseSpan(text); reason != "" {
			return t, "", reason
		}
		c.ranges = append(c.ranges, s)
	}
	if c.ranges == nil {
		return t, "", `a class is empty; \] is a bracket`
	}
	return token{class: c}, text[1:], ""
}

// parseSpan reads x or x-y.
func parseSpan(text string) (s span, rest, reason string) {
	if s.low, text, reason = parseMember(text); reason != "" {
		return s, "", reason
	}
	s.high = s.low
	if after, ok := strings.CutPrefix(text, "-"); ok {
		if s.high, text, reason = parseMember(after); reason != "" {
			return s, "", reason
		}
	}
	if s.high < s.low {
		return s, "", fmt.Sprintf("the range %q is upside down", string(s.low)+"-"+string(s.high))
	}
	return s, text, ""
}

// parseMember reads one character of a class. A character that has a meaning
// there in other languages must be escaped.
func parseMember(text string) (r rune, rest, reason string) {
	escaped := strings.HasPrefix(text, `\`)
	if escaped {
		text = text[1:]
	}
	r, n := utf8.DecodeRuneInString(text)
	switch {
	case n == 0:
		return 0, "", `a "[" is not closed before the next slash; \[ is a bracket`
	case r == utf8.RuneError && n == 1:
		return 0, "", "a class holds a byte that is not UTF-8"
	case !escaped && strings.IndexByte("-[]", text[0]) >= 0:
		return 0, "", fmt.Sprintf("in a class, %q has to be escaped", text[0])
	}
	return r, text[n:], ""
}
