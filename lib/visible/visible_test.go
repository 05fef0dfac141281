package visible

import (
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

func TestVisible(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"plain text", "ls -la *.go | wc -l", "ls -la *.go | wc -l"},
		{"other scripts", "echo grüße 日本 привет नमस्ते", "echo grüße 日本 привет नमस्ते"},
		{"lines and tabs", "a\n\tb\n", "a\n\tb\n"},
		{"backslash as it is", `printf 'a\x1b'`, `printf 'a\x1b'`},
		{"escape sequence", "a\x1b[2K rm", `a\x1b[2K rm`},
		{"carriage return", "rm -rf ~\rls", `rm -rf ~\x0dls`},
		{"delete and bell", "\x7f\a", `\x7f\x07`},
		{"C1 control as UTF-8", "a\u009b2K", `a\u{9B}2K`},
		{"C1 control as a byte", "a\x9b2K", `a\x9b2K`},
		{"invalid UTF-8", "\xff\xc0\xaf", `\xff\xc0\xaf`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"right-to-left override", "a\u202eb", `a\u{202E}b`},
		{"isolates", "\u2066x\u2069", `\u{2066}x\u{2069}`},
		{"zero width", "r\u200bm", `r\u{200B}m`},
		{"soft hyphen and byte order mark", "\u00ad\ufeff", `\u{AD}\u{FEFF}`},
		{"tags", "a\U000E0041", `a\u{E0041}`},
		{"variation selector", "a\ufe0f", `a\u{FE0F}`},
		{"combining grapheme joiner", "a\u034fb", `a\u{34F}b`},
		{"Hangul filler", "\u3164", `\u{3164}`},
		{"blanks that are no space", "a\u00a0b\u3000c\u2028", `a\u{A0}b\u{3000}c\u{2028}`},
		{"braille blank", "\u2800", `\u{2800}`},
		{"private use", "\ue0a0", `\u{E0A0}`},
		{"replacement character of the input", "\ufffd", `\u{FFFD}`},
		{"mark on a letter", "e\u0301", "e\u0301"},
		{"mark on nothing", "\u0301a", `\u{301}a`},
		{"mark on a blank", " \u0301", ` \u{301}`},
		{"too many marks", "e\u0301\u0302\u0303\u0304\u0305", "e\u0301\u0302\u0303\u0304" + `\u{305}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, Text(test.in))
		})
	}
}

// FuzzVisible: the result holds no invisible character.
func FuzzVisible(f *testing.F) {
	f.Add("a\x1b[2K\u202e\xff\n")
	f.Fuzz(func(t *testing.T, in string) {
		for _, r := range Text(in) {
			if r != '\n' && r != '\t' && (!unicode.IsPrint(r) || ignorable(r)) {
				t.Fatalf("%U is left of %q", r, in)
			}
		}
	})
}
