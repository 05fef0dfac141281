package gitconfig

import (
	"bytes"
	"fmt"
	"strings"

	"pikuri/lib/internal/gitplace"
)

// Entry is one line of a configuration: a key with its value.
type Entry struct {
	Key     string // section and name in lower case, the subsection as written: "branch.Main.remote"
	Value   string
	NoValue bool   // the key stood alone, without "=", which as a boolean is true
	File    string // where it stands, for messages
	Line    int
}

// SyntaxError is a line that git would not accept either.
type SyntaxError struct {
	File string
	Line int
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("bad config line %d in %q", e.Line, e.File)
}

// Parse reads text as git reads a configuration file called file. Includes are
// entries like others here. With an error come the entries before it, since git
// has acted on those by the time that it stops.
//
// Two things in it look like mistakes and are git's: a NUL byte ends a key or a
// value, since both are C strings there, and a key before the first section has
// no dot. White space inside a value is kept as it is, as git does since 2.45;
// git before that made each of it a blank.
func Parse(file string, text []byte) ([]Entry, error) {
	p, err := parse(file, text)
	return p.entries, err
}

func parse(file string, text []byte) (*parser, error) {
	p := &parser{file: file, size: len(text), rest: bytes.TrimPrefix(text, []byte("\ufeff")), line: 1}
	return p, p.parse()
}

type parser struct {
	file    string
	size    int // of the text
	rest    []byte
	line    int  // of the next byte
	eof     bool // the end was read, as one more newline
	section string
	entries []Entry

	// For edits of the text.
	spans   [][2]int // of each entry: from its name to behind its newline
	headers []header
}

// header is the end of a section's header.
type header struct {
	section string // "remote.origin"
	end     int    // behind the bracket
	entries int    // number of entries before it
}

// offset is the place of the next byte in the text.
func (p *parser) offset() int { return p.size - len(p.rest) }

// next returns the next byte. A CRLF is a newline, and so is the end.
func (p *parser) next() byte {
	if len(p.rest) == 0 {
		p.eof = true
		p.line++
		return '\n'
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	if c == '\r' && len(p.rest) > 0 && p.rest[0] == '\n' {
		c, p.rest = '\n', p.rest[1:]
	}
	if c == '\n' {
		p.line++
	}
	return c
}

func (p *parser) parse() error {
	for {
		switch c := p.next(); {
		case p.eof:
			return nil
		case isSpace(c):
		case c == '#' || c == ';':
			p.skipLine()
		case c == '[':
			name, ok := p.header()
			if !ok {
				return p.bad()
			}
			p.section = name + "."
			p.headers = append(p.headers, header{name, p.offset(), len(p.entries)})
		case isLetter(c):
			if !p.variable(c) {
				return p.bad()
			}
		default:
			return p.bad()
		}
	}
}

func (p *parser) bad() error { return &SyntaxError{File: p.file, Line: p.line} }

// brokenOff refuses text that a newline ended too early: the mistake is on the line
// before it.
func (p *parser) brokenOff() (string, bool) {
	p.line--
	return "", false
}

func (p *parser) skipLine() {
	for p.next() != '\n' {
	}
}

// header reads the rest of [section], [section "subsection"] or, the old form,
// [section.subsection]. A name is never empty.
func (p *parser) header() (string, bool) {
	var name []byte
	for {
		switch c := p.next(); {
		case p.eof:
			return "", false
		case c == ']':
			return string(name), len(name) > 0
		case isSpace(c):
			return p.subsection(name, c)
		case isKey(c) || c == '.':
			name = append(name, lower(c))
		default:
			return "", false
		}
	}
}

// subsection reads from the white space before the quoted name to the bracket.
func (p *parser) subsection(name []byte, c byte) (string, bool) {
	for isSpace(c) {
		if c == '\n' {
			return p.brokenOff()
		}
		c = p.next()
	}
	if c != '"' {
		return "", false
	}
	name = append(name, '.')
	for c = p.next(); c != '"'; c = p.next() {
		if c == '\\' {
			c = p.next()
		}
		if c == '\n' {
			return p.brokenOff()
		}
		name = append(name, c)
	}
	return string(name), p.next() == ']'
}

// variable reads a key that begins with c, and its value.
func (p *parser) variable(c byte) bool {
	name := []byte{}
	start, line := p.offset()-1, p.line
	for ; isKey(c) && !p.eof; c = p.next() {
		name = append(name, lower(c))
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	entry := Entry{Key: gitplace.CString(p.section + string(name)), NoValue: c == '\n', File: p.file, Line: line}
	if !entry.NoValue {
		value, ok := "", false
		if c == '=' {
			value, ok = p.value()
		}
		if !ok {
			return false
		}
		entry.Value = gitplace.CString(value)
	}
	p.entries = append(p.entries, entry)
	p.spans = append(p.spans, [2]int{start, p.offset()})
	return true
}

// value reads to the end of the line, or of the line that a backslash led to.
// White space at both ends goes, unless it is quoted.
func (p *parser) value() (string, bool) {
	var value []byte
	keep := 0 // how much of value stays if nothing but white space follows
	quoted := false
	for {
		c := p.next()
		switch {
		case c == '\n' && quoted:
			return p.brokenOff()
		case c == '\n':
			return string(value[:keep]), true
		case isSpace(c) && !quoted:
			if len(value) > 0 {
				value = append(value, c)
			}
			continue
		case (c == '#' || c == ';') && !quoted:
			p.skipLine()
			return string(value[:keep]), true
		case c == '\\':
			switch c = p.next(); c {
			case '\n':
				keep = len(value)
				continue
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				return "", false
			}
			value = append(value, c)
		case c == '"':
			quoted = !quoted
		default:
			value = append(value, c)
		}
		keep = len(value)
	}
}

// isSpace, isLetter and isKey are those of git, in any locale.
func isSpace(c byte) bool  { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isLetter(c byte) bool { return 'a' <= lower(c) && lower(c) <= 'z' }
func isKey(c byte) bool    { return isLetter(c) || '0' <= c && c <= '9' || c == '-' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Bool returns the value as git reads it where it wants a boolean; known is false for
// a value that git would refuse.
func (e Entry) Bool() (value, known bool) {
	if e.NoValue {
		return true, true
	}
	switch strings.ToLower(e.Value) {
	case "true", "yes", "on":
		return true, true
	case "", "false", "no", "off":
		return false, true
	}
	return number(e.Value)
}

// number reports whether a number, perhaps with one unit, is not zero.
func number(s string) (nonZero, ok bool) {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	if n := len(s) - 1; n > 0 && strings.IndexByte("kmg", lower(s[n])) >= 0 {
		s = s[:n]
	}
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	digits := s != "" && strings.Trim(s, "0123456789") == ""
	return digits && strings.Trim(s, "0") != "", digits
}
