package shell

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns text in which nothing can hide: what a terminal or a reader
// would not show as it is, is shown as \xNN (bytes and ASCII controls) or
// \u{HEX}. Newlines and tabs stay. It is for looking at; what runs is the
// original.
func Visible(text string) string {
	var out strings.Builder
	marks := -1 // combining marks since the last base; -1: nothing to combine with
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
			marks = -1
		case r == '\n' || r == '\t':
			out.WriteRune(r)
			marks = -1
		case unicode.IsMark(r) && !ignorable(r):
			marks = writeMark(&out, r, marks)
		case hidden(r):
			writeEscape(&out, r)
			marks = -1
		default:
			out.WriteRune(r)
			marks = 0
			if r == ' ' {
				marks = -1
			}
		}
		text = text[size:]
	}
	return out.String()
}

// maxMarks is how many combining marks may stand on one letter. Written
// languages need three; more is a way to draw over neighbouring lines.
const maxMarks = 4

// writeMark shows a combining mark on its letter, and escapes one that has no
// letter to stand on (it would change the character before it on the screen)
// or stands on too many others.
func writeMark(out *strings.Builder, r rune, marks int) int {
	if marks < 0 || marks == maxMarks {
		writeEscape(out, r)
		return marks
	}
	out.WriteRune(r)
	return marks + 1
}

func writeEscape(out *strings.Builder, r rune) {
	if r < 0x80 {
		fmt.Fprintf(out, `\x%02x`, r)
		return
	}
	fmt.Fprintf(out, `\u{%X}`, r)
}

// hidden reports what a reader would not see as a character of its own:
// controls, directions, zero widths, blanks that are not a space, what is
// unassigned or private, and glyphs that are drawn empty.
func hidden(r rune) bool {
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

// echo shows a command as a shell would have: "$ " before its first line and
// "> " before the others, so that no line of it can pass for something else.
func echo(command string) string {
	return "$ " + strings.ReplaceAll(Visible(command), "\n", "\n> ")
}
