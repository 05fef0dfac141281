// Package shellword writes words of command lines that messages name. A command in the sandbox may
// have chosen a file's name, and the user pastes the line.
package shellword

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Word returns text as bash reads it back: as it is if that is safe, or else in quotes. It does not help
// against a word that begins with "-".
func Word(text string) string {
	safe := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("/._-+:,@%", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !safe(r) }) {
		return text
	}
	return Quote(text)
}

// Quote returns text in single quotes, with bytes that cannot be printed as octal numbers in $'...'.
func Quote(text string) string {
	quoted, octal := "'", false
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		print := unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
		switch {
		case !print && !octal:
			quoted += "'$'"
		case print && octal:
			quoted += "''"
		}
		octal = !print
		switch {
		case !print:
			for _, b := range []byte(text[:size]) {
				quoted += fmt.Sprintf(`\%03o`, b)
			}
		case r == '\'':
			quoted += `'\''`
		default:
			quoted += text[:size]
		}
		text = text[size:]
	}
	return quoted + "'"
}
