package shell

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"pikuri/lib/visible"
)

// Question describes a command to the user, for a yes or a no.
type Question struct {
	Command     string
	Description string   // "" for none
	Where       string   // project root
	Fence       string   // one line: how it will run
	Timeout     int      // in seconds; 0 for none
	Input       string   // the running command that will read Command; "" if Command will run
	Carried     []string // variables that earlier commands have changed
}

// Sum identifies the bytes that will run.
func (q Question) Sum() string {
	sum := sha256.Sum256([]byte(q.Command))
	return hex.EncodeToString(sum[:])
}

// Text is the question as it is shown, without the cue. Every part of it may come
// from an agent, so every part is made visible, and only the command has more than
// one line.
func (q Question) Text() string { return q.render(0, func(escape string) string { return escape }) }

// From manyLines or manyBytes on, the question gives the size of the command: its
// beginning may be off the screen.
const (
	manyLines = 20
	manyBytes = 4096
)

// render draws the question for a terminal of that many columns, 0 if it is not
// for one. mark is applied to each escape, to tell it from a command that holds the
// same letters.
func (q Question) render(columns int, mark func(string) string) string {
	var b strings.Builder
	b.WriteString("\n")
	row := func(lead, text string) { writeRows(&b, lead, text, columns, mark) }
	row("pk-bash in ", q.Where)
	limit := "no time limit"
	if q.Timeout > 0 {
		limit = fmt.Sprintf("%d s", q.Timeout)
	}
	row("  ", q.Fence+", "+limit)
	if q.Input != "" {
		row("  INPUT for the running command: ", q.Input)
	}
	if len(q.Carried) > 0 {
		row("  variables of earlier commands: ", strings.Join(q.Carried, " "))
	}
	if q.Description != "" {
		row("  description: ", q.Description)
	}
	lines := strings.Split(q.Command, "\n")
	gap := 0
	for i, line := range lines {
		if strings.Trim(line, " \t") == "" && i > 0 {
			gap++
			continue
		}
		writeGap(&b, gap)
		gap = 0
		lead := "> "
		if i == 0 {
			lead = "$ "
		}
		row(lead, line)
	}
	writeGap(&b, gap)
	for _, note := range q.notes(lines) {
		row("  ", note)
	}
	return b.String()
}

// maxEmpty is how many empty lines are shown. More could push the lines before
// them off the screen.
const maxEmpty = 3

func writeGap(b *strings.Builder, lines int) {
	if lines > maxEmpty {
		fmt.Fprintf(b, "> <%d empty lines>\n", lines)
		return
	}
	b.WriteString(strings.Repeat(">\n", lines))
}

// maxBlanks is the longest run of blanks shown as it is. Longer ones could push
// the rest of a command off the screen.
const maxBlanks = 8

// writeRows writes one line in rows that fit the terminal, so that none of them
// begins with something of the text's own.
func writeRows(b *strings.Builder, lead, line string, columns int, mark func(string) string) {
	b.WriteString(lead)
	width := len(lead)
	put := func(shown string, wide int) {
		if columns > 0 && width+wide > columns && width > len(lead) {
			b.WriteString("\n. ")
			width = len(". ")
		}
		b.WriteString(shown)
		width += wide
	}
	for len(line) > 0 {
		if blanks := len(line) - len(strings.TrimLeft(line, " ")); blanks > maxBlanks {
			count := fmt.Sprintf("<%d blanks>", blanks)
			put(mark(count), len(count))
			line = line[blanks:]
			continue
		}
		for piece, n := range visible.Pieces(line) {
			original := line[:n]
			switch piece {
			case "\t":
				piece = `\t`
			case "\n":
				piece = `\n`
			}
			if piece != original {
				put(mark(piece), len(piece))
			} else {
				put(piece, columnsOf(piece))
			}
			line = line[n:]
			if strings.HasPrefix(line, " ") && piece != " " {
				break // a run of blanks begins
			}
		}
	}
	b.WriteString("\n")
}

// columnsOf is the largest width at which a character may be drawn. All characters
// outside ASCII count as wide: a row breaks too early, never too late.
func columnsOf(char string) int {
	r, _ := utf8.DecodeRuneInString(char)
	switch {
	case unicode.IsMark(r):
		return 0
	case r >= utf8.RuneSelf:
		return 2
	}
	return 1
}

// notes name parts of the command that are easily overlooked.
func (q Question) notes(lines []string) []string {
	var notes []string
	if n := foreignLetters(lines); len(n) > 0 {
		notes = append(notes, "note: letters that are not Latin: "+strings.Join(n, ", "))
	}
	if words := mixedWords(q.Command); len(words) > 0 {
		notes = append(notes, "WARNING: letters that look alike are mixed in "+strings.Join(words, ", "))
	}
	if len(lines) > manyLines || len(q.Command) > manyBytes {
		notes = append(notes, fmt.Sprintf("note: %d lines, %d bytes, sha256 %s", len(lines), len(q.Command), q.Sum()[:12]))
	}
	return notes
}

// maxNamed is how many letters or words are named; the others are counted.
const maxNamed = 4

// foreignLetters names the letters of other scripts, the first of each.
func foreignLetters(lines []string) []string {
	var named []string
	seen := map[rune]bool{}
	more := 0
	for i, line := range lines {
		column := 0
		for _, r := range line {
			column++
			if r < utf8.RuneSelf || !unicode.IsLetter(r) || unicode.Is(unicode.Latin, r) || visible.Invisible(r) || seen[r] {
				continue
			}
			seen[r] = true
			if len(named) == maxNamed {
				more++
				continue
			}
			named = append(named, fmt.Sprintf("%c U+%04X %s (line %d, column %d)", r, r, scriptOf(r), i+1, column))
		}
	}
	if more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return named
}

func scriptOf(r rune) string {
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return "unknown"
}

// lookalikes are the scripts with letters that cannot be told from Latin ones.
var lookalikes = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic}

// mixedWords lists words that hold letters of Latin and of a script like it.
func mixedWords(command string) []string {
	var words []string
	letters := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }
	for _, word := range strings.FieldsFunc(command, letters) {
		latin := strings.ContainsFunc(word, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
		other := strings.ContainsFunc(word, func(r rune) bool { return unicode.In(r, lookalikes...) })
		quoted := `"` + visible.Text(word) + `"`
		if latin && other && !slices.Contains(words, quoted) {
			words = append(words, quoted)
		}
	}
	if len(words) > maxNamed {
		words = append(words[:maxNamed], fmt.Sprintf("and %d more", len(words)-maxNamed))
	}
	return words
}

// oneLine is text made visible in one line.
func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", " ").Replace(visible.Text(s))
}
