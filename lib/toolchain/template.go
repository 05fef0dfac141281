package toolchain

import (
	"path/filepath"
	"strings"
)

// meta are the characters that mean something in a pattern.
const meta = `*?[\`

// escape makes a pattern that matches path and nothing else.
func escape(path string) string {
	if !strings.ContainsAny(path, meta) {
		return path
	}
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(meta, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// unescape returns the text that a pattern made by escape matches.
func unescape(pattern string) string {
	if !strings.Contains(pattern, `\`) {
		return pattern
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// expand puts values into a template and reports whether all were there. The
// result is a pattern: wildcards in the template's text keep their meaning, the
// value of a variable is literal. A value in the middle of a path must be one
// element of it.
func expand(template string, getenv func(string) string) (string, bool) {
	var b strings.Builder
	for rest := template; ; {
		text, after, found := strings.Cut(rest, "$")
		b.WriteString(text)
		if !found {
			return filepath.Clean(b.String()), true
		}
		value, tail := variable(after, getenv)
		leading := len(rest) == len(template) && text == ""
		if value == "" || !leading && (value == ".." || strings.Contains(value, "/")) {
			return "", false
		}
		if leading {
			value = filepath.Clean(value)
		}
		b.WriteString(escape(value))
		rest = tail
	}
}

// variable reads the value of a reference, NAME or NAME[0], and returns the text
// after the reference.
func variable(ref string, getenv func(string) string) (value, tail string) {
	end := strings.IndexFunc(ref, notInName)
	if end < 0 {
		end = len(ref)
	}
	value, tail = getenv(ref[:end]), ref[end:]
	if first, ok := strings.CutPrefix(tail, "[0]"); ok {
		value, _, _ = strings.Cut(value, ":")
		tail = first
	}
	return value, tail
}

func notInName(c rune) bool {
	return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}
