// Package visible makes hidden characters in text visible.
package visible

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns text without hidden characters. If a terminal or a reader would not show a
// character as it is, Text shows it as \xNN (bytes and ASCII controls) or \u{HEX}. Newlines
// and tabs stay. The result is for display; the command that runs is the original text.
func Text(text string) string {
	if plain(text) {
		return text
	}
	var out strings.Builder
	for piece := range Pieces(text) {
		out.WriteString(piece)
	}
	return out.String()
}

// plain reports text of which every byte is shown as it is.
func plain(text string) bool {
	for i := range len(text) {
		if b := text[i]; b >= 0x7f || b < ' ' && b != '\n' && b != '\t' {
			return false
		}
	}
	return true
}

// maxMarks is how many combining marks may stand on one letter. Written
// languages need three; more is a way to draw over neighbouring lines.
const maxMarks = 4

// Pieces yields the displayed form of each character of text, and its length in text in
// bytes. A piece that is not the character itself is an escape.
//
// A combining mark is shown on its letter, and escaped when it has no letter to
// stand on (it would change the character before it on the screen) or stands on
// too many others.
func Pieces(text string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		marks := -1 // since the last letter; -1: nothing to combine with
		for len(text) > 0 {
			r, size := utf8.DecodeRuneInString(text)
			shown := text[:size]
			switch {
			case r == utf8.RuneError && size == 1:
				shown, marks = fmt.Sprintf(`\x%02x`, text[0]), -1
			case r == '\n' || r == '\t' || r == ' ':
				marks = -1
			case unicode.IsMark(r) && !ignorable(r):
				if marks < 0 || marks == maxMarks {
					shown = escaped(r)
				} else {
					marks++
				}
			case Invisible(r):
				shown, marks = escaped(r), -1
			default:
				marks = 0
			}
			if !yield(shown, size) {
				return
			}
			text = text[size:]
		}
	}
}

func escaped(r rune) string {
	if r < 0x80 {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return fmt.Sprintf(`\u{%X}`, r)
}

// Invisible reports whether a reader would not see r as a character of its own: controls,
// directions, zero widths, blanks that are not a space, unassigned and private characters,
// and empty glyphs.
func Invisible(r rune) bool {
	return !unicode.IsPrint(r) || ignorable(r) || unicode.Is(blankGlyphs, r)
}

func ignorable(r rune) bool {
	return unicode.Is(printableIgnorables, r)
}

// printableIgnorables are Default_Ignorable though unicode.IsPrint accepts
// them: joiners, fillers and variation selectors.
var printableIgnorables = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034F, Hi: 0x034F, Stride: 1}, {Lo: 0x115F, Hi: 0x1160, Stride: 1},
		{Lo: 0x17B4, Hi: 0x17B5, Stride: 1}, {Lo: 0x180B, Hi: 0x180F, Stride: 1},
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, {Lo: 0xFE00, Hi: 0xFE0F, Stride: 1},
		{Lo: 0xFFA0, Hi: 0xFFA0, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0xE0100, Hi: 0xE01EF, Stride: 1}},
}

// blankGlyphs print as nothing, or as the sign for "could not be shown".
var blankGlyphs = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0xFFFC, Hi: 0xFFFD, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1}, {Lo: 0x1D159, Hi: 0x1D159, Stride: 1}},
}
