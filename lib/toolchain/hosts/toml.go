package hosts

import (
	"errors"
	"fmt"
	"strings"
)

// maxNested bounds tables and arrays in each other.
const maxNested = 32

// parseTOML returns the strings of a TOML file by their keys, joined with dots. It
// skips other types, and strings in arrays. With an error it returns the strings
// before the error. TOML v1.0.0.
func parseTOML(text string) (map[string][]string, error) {
	t := &tomlReader{rest: text, line: 1, values: map[string][]string{}}
	if err := t.file(); err != nil {
		return t.values, fmt.Errorf("line %d: %w", t.line, err)
	}
	return t.values, nil
}

type tomlReader struct {
	rest   string
	line   int
	values map[string][]string
}

func (t *tomlReader) file() error {
	table := ""
	for t.blank(true); t.rest != ""; t.blank(true) {
		if !strings.HasPrefix(t.rest, "[") {
			if err := t.pair(table, 0); err != nil {
				return err
			}
			continue
		}
		t.take("[")
		double := t.take("[")
		key, err := t.key()
		if err != nil {
			return err
		}
		if !t.take("]") || double && !t.take("]") {
			return errors.New("a table's name does not end")
		}
		table = key + "."
	}
	return nil
}

// blank skips blanks, and with lines also newlines and comments.
func (t *tomlReader) blank(lines bool) {
	for t.rest != "" {
		switch c := t.rest[0]; {
		case c == ' ' || c == '\t':
		case !lines:
			return
		case c == '\n':
			t.line++
		case c == '\r':
		case c == '#':
			_, t.rest, _ = strings.Cut(t.rest, "\n")
			t.line++
			continue
		default:
			return
		}
		t.rest = t.rest[1:]
	}
}

// take skips a token if it is next.
func (t *tomlReader) take(token string) (ok bool) {
	t.rest, ok = strings.CutPrefix(t.rest, token)
	return ok
}

func (t *tomlReader) pair(table string, depth int) error {
	key, err := t.key()
	if err != nil {
		return err
	}
	if !t.take("=") {
		return errors.New("a key has no value")
	}
	return t.value(table+key, depth)
}

// key reads a key with its dots.
func (t *tomlReader) key() (string, error) {
	var parts []string
	for {
		t.blank(false)
		part := ""
		if strings.HasPrefix(t.rest, `"`) || strings.HasPrefix(t.rest, "'") {
			var err error
			if part, err = t.text(); err != nil {
				return "", err
			}
		} else {
			end := strings.IndexFunc(t.rest, func(r rune) bool {
				return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
			})
			if end < 0 {
				end = len(t.rest)
			}
			if end == 0 {
				return "", errors.New("here should be a key")
			}
			part, t.rest = t.rest[:end], t.rest[end:]
		}
		parts = append(parts, part)
		t.blank(false)
		if !t.take(".") {
			return strings.Join(parts, "."), nil
		}
	}
}

// text reads a string of one line.
func (t *tomlReader) text() (string, error) {
	quote := t.rest[0]
	var b strings.Builder
	for i := 1; i < len(t.rest) && t.rest[i] != '\n'; i++ {
		c := t.rest[i]
		if c == quote {
			t.rest = t.rest[i+1:]
			return b.String(), nil
		}
		if c == '\\' && quote == '"' {
			i++
			if i == len(t.rest) || t.rest[i] != '\\' && t.rest[i] != '"' {
				return "", errors.New("a string has an escape that is not understood")
			}
			c = t.rest[i]
		}
		b.WriteByte(c)
	}
	return "", errors.New("a string does not end")
}

// value reads a value, and keeps it under a key that is not empty.
func (t *tomlReader) value(key string, depth int) error {
	t.blank(false)
	for _, quotes := range []string{`"""`, `'''`} {
		if t.take(quotes) {
			return t.skipTo(quotes)
		}
	}
	switch {
	case depth > maxNested:
		return errors.New("it is nested too deep")
	case t.take("{"):
		return t.list("}", depth, func() error { return t.pair(key+".", depth+1) })
	case t.take("["):
		return t.list("]", depth, func() error { return t.value("", depth+1) })
	case strings.HasPrefix(t.rest, `"`) || strings.HasPrefix(t.rest, "'"):
		text, err := t.text()
		if err == nil && key != "" && !strings.HasPrefix(key, ".") {
			t.values[key] = append(t.values[key], text)
		}
		return err
	}
	end := strings.IndexAny(t.rest, ",]}#\n")
	if end < 0 {
		end = len(t.rest)
	}
	if strings.TrimSpace(t.rest[:end]) == "" {
		return errors.New("a key has no value")
	}
	t.rest = t.rest[end:]
	return nil
}

// list reads items separated by commas up to an end.
func (t *tomlReader) list(end string, depth int, item func() error) error {
	for {
		t.blank(true)
		if t.take(end) {
			return nil
		}
		if t.rest == "" {
			return errors.New("a list does not end")
		}
		if err := item(); err != nil {
			return err
		}
		t.blank(true)
		if !t.take(",") && !strings.HasPrefix(t.rest, end) {
			return errors.New("a list has no comma between its items")
		}
	}
}

// skipTo skips a string of several lines.
func (t *tomlReader) skipTo(quotes string) error {
	before, rest, ok := strings.Cut(t.rest, quotes)
	if !ok {
		return errors.New("a string does not end")
	}
	t.line += strings.Count(before, "\n")
	t.rest = strings.TrimLeft(rest, quotes[:1])
	return nil
}
