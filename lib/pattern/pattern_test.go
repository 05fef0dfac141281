package pattern

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func compile(t testing.TB, text string) *Pattern {
	t.Helper()
	p, err := Compile(text)
	require.NoError(t, err)
	return p
}

func TestZeroPatternMatchesNothing(t *testing.T) {
	var p Pattern
	for _, path := range []string{"", ".", "a", "a/b"} {
		assert.False(t, p.Match(path) || p.Covers(path) || p.MayMatchBelow(path), "%q", path)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `cannot understand pattern "": it is empty`,
		"a\x00":                    `cannot understand pattern "a\x00": it holds a NUL byte`,
		"[\xff]":                   `cannot understand pattern "[\xff]": a class holds a byte that is not UTF-8`,
		"[a--]":                    `cannot understand pattern "[a--]": in a class, '-' has to be escaped`,
		strings.Repeat("{a,b}", 9): "its braces stand for more than 256 patterns",
		strings.Repeat("a", 4097):  "it is longer than 4096 bytes",
	} {
		_, err := Compile(text)
		assert.ErrorContains(t, err, want)
		_, ok := errors.AsType[*SyntaxError](err)
		assert.True(t, ok)
	}
	assert.Equal(t, "a/[b]", compile(t, "a/[b]").String())
}

// Bytes that are not UTF-8 are characters, each one.
func TestBytes(t *testing.T) {
	for _, row := range []struct {
		name, pattern, path string
		want                bool
	}{
		{"the byte itself", "a\xff", "a\xff", true},
		{"another byte", "a\xff", "a\xfe", false},
		{"one byte is one character", "?", "\xff", true},
		{"two bytes are two", "?", "\xff\xfe", false},
		{"a class that negates", "[!a]", "\xff", true},
		{"a class never holds it", "[\x01-\U0010ffff]", "\xff", false},
		{"nor by its replacement", "[\ufffd]", "\xff", false},
		{"the replacement is a character", "[\ufffd]", "\ufffd", true},
		{"half a character does not match", "*\xa9", "é", false},
		{"newline", "a?b*", "a\nb\n", true},
	} {
		assert.Equal(t, row.want, compile(t, row.pattern).Match(row.path), row.name)
	}
}

func TestEveryByteMeansItselfWhenQuoted(t *testing.T) {
	for b := 1; b < 256; b++ {
		if b == '/' {
			continue
		}
		name := "d/x" + string([]byte{byte(b)}) + "(y"
		p := compile(t, Quote(name))
		assert.True(t, p.Match(name), "%q", name)
		assert.False(t, p.Match("d/xx(y"+string([]byte{byte(b)})), "%q", name)
	}
	assert.True(t, compile(t, Quote(".")).Match("."))
}

func TestMayMatchBelow(t *testing.T) {
	for _, row := range []struct {
		pattern, dir string
		want         bool
	}{
		{"a/b/c", ".", true}, {"a/b/c", "a", true}, {"a/b/c", "a/b", true}, {"a/b/c", "a/b/c", false}, {"a/b/c", "b", false},
		{"**/x", "a/b", true}, {"a/**", "a/b", true}, {"a/**", "b", false}, {"*", ".", true}, {"*", "a", false},
		{".", ".", false}, {"{a,b/c}", "b", true}, {"{a,b/c}", "a", false},
	} {
		assert.Equal(t, row.want, compile(t, row.pattern).MayMatchBelow(row.dir), "%q below %q", row.pattern, row.dir)
	}
}

// Other matchers take longer for these than a test may.
func TestNoPatternIsSlow(t *testing.T) {
	name := strings.Repeat("a", 255)
	for _, row := range []struct{ pattern, path string }{
		{strings.Repeat("**/", 1000) + "b", strings.Repeat("a/", 2000) + "c"},
		{strings.Repeat("**/a/", 700) + "b", strings.Repeat("a/", 2000) + "c"},
		{strings.Repeat("*a", 127) + "b", name},
		{"**/" + strings.Repeat("*a", 127) + "b", strings.Repeat(name+"/", 15) + name},
		{strings.Repeat("{a,b}", 8), strings.Repeat("a", 9)},
	} {
		p := compile(t, row.pattern)
		assert.False(t, p.Match(row.path))
	}
}

// FuzzMatch holds the matcher to a regular expression that says the same.
func FuzzMatch(f *testing.F) {
	for _, text := range []string{"a/**/b", "**/*.{c,h}", "[!a-c]?*", `\*/x/`, "./a//b", "**", "a*b*c/**/**/d", ".", "x{,.bak}"} {
		for _, path := range []string{".", "a", "a/b", "a/x/b", "d.c", "*/x/y", "x.bak", "aXbYc/d", "é\n"} {
			f.Add(text, path)
		}
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := Compile(text)
		if err != nil || len(text) > 100 || len(path) > 1000 || !utf8.ValidString(text) || !utf8.ValidString(path) || strings.Contains(path+"/", "./") {
			return
		}
		path = strings.Trim(path, "/")
		for strings.Contains(path, "//") {
			path = strings.ReplaceAll(path, "//", "/")
		}
		subject := "/" + path
		if path == "" || path == "." {
			subject = "" // the root
		}
		oracle := regexp.MustCompile(asRegexp(p))
		assert.Equal(t, oracle.MatchString(subject), p.Match(path), "%q, %q, %s", text, path, oracle)
		covers := false
		for dir := path; ; {
			covers = covers || p.Match(dir)
			slash := strings.LastIndexByte(dir, '/')
			if slash < 0 {
				covers = covers || p.Match(".")
				break
			}
			dir = dir[:slash]
		}
		assert.Equal(t, covers, p.Covers(path), "%q covers %q", text, path)
		if p.Match(path) && path != "" {
			assert.True(t, p.MayMatchBelow("."), "%q below the root", text)
		}
	})
}

// asRegexp writes a compiled pattern down as an expression for "/a/b", or for ""
// where the path is the root.
func asRegexp(p *Pattern) string {
	var all []string
	for _, components := range p.alternatives {
		expr := ""
		for _, c := range components {
			if c.globstar {
				expr += "(?:/[^/]+)*"
				continue
			}
			expr += "/"
			for _, t := range c.tokens {
				expr += t.asRegexp()
			}
		}
		all = append(all, "(?s:^"+expr+"$)")
	}
	return strings.Join(all, "|")
}

func (t token) asRegexp() string {
	switch {
	case t.star:
		return "[^/]*"
	case t.one:
		return "[^/]"
	case t.class == nil:
		return regexp.QuoteMeta(t.literal)
	}
	expr := "["
	if t.class.negated {
		expr += "^/"
	}
	for _, s := range t.class.ranges {
		expr += regexp.QuoteMeta(string(s.low)) + "-" + regexp.QuoteMeta(string(s.high))
	}
	return expr + "]"
}

func BenchmarkCovers(b *testing.B) {
	p := compile(b, "**/node_modules/**/*.{js,ts}")
	for b.Loop() {
		p.Covers("packages/app/node_modules/left-pad/lib/index.d.ts")
	}
}
