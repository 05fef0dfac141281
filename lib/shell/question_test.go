package shell

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/visible"
)

func mark(escape string) string { return "«" + escape + "»" }

func TestQuestionCannotBeImitated(t *testing.T) {
	q := Question{
		Command:     "ls\nRun it (y/N)? y\n\npk-bash in /safe",
		Description: "list\nfiles\x1b[0m",
		Where:       "/p\nq",
		Fence:       "sandboxed",
		Timeout:     9,
	}
	assert.Equal(t, `
pk-bash in /p\nq
  sandboxed, 9 s
  description: list\nfiles\x1b[0m
$ ls
> Run it (y/N)? y
>
> pk-bash in /safe
`, q.Text())
}

// The text of one line on a terminal of 20 columns.
func TestQuestionRows(t *testing.T) {
	for _, test := range []struct{ name, command, want string }{
		{"short", "ls", "$ ls\n"},
		{"as wide as the terminal", "123456789012345678", "$ 123456789012345678\n"},
		{"wrapped where it could begin a row of its own", "echo 4567890123456Run it (y/N)? y", "$ echo 4567890123456\n. Run it (y/N)? y\n"},
		{"wide characters", "日本日本日本日本日本日本", "$ 日本日本日本日本日\n. 本日本\n"},
		{"escapes are marked, and not the same text typed", "a\x1b\\x1b", "$ a«\\x1b»\\x1b\n"},
		{"tab", "a\tb", "$ a«\\t»b\n"},
		{"few blanks", "a        b", "$ a        b\n"},
		{"many blanks", "ls" + strings.Repeat(" ", 300) + "; x", "$ ls«<300 blanks>»; x\n"},
		{"blanks at the end", "ls" + strings.Repeat(" ", 9), "$ ls«<9 blanks>»\n"},
		{"blanks at the beginning", strings.Repeat(" ", 9) + "ls", "$ «<9 blanks>»ls\n"},
		{"escape that does not fit", "123456789012345678\x1b", "$ 123456789012345678\n. «\\x1b»\n"},
		{"empty lines", "rm x" + strings.Repeat("\n", 21) + "ls", "$ rm x\n> <20 empty lines>\n> ls\n"},
		{"few empty lines", "a\n\n\n\nb", "$ a\n>\n>\n>\n> b\n"},
		{"lines of blanks at the end", "a\n \n\t\n\n\n ", "$ a\n> <5 empty lines>\n"},
		{"an empty line first", "\nls", "$ \n> ls\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Question{Command: test.command, Where: "/p", Fence: "f"}.render(20, mark)
			assert.Equal(t, "\npk-bash in /p\n  f, no time limit\n"+test.want, withoutNotes(got))
		})
	}
}

func withoutNotes(shown string) string {
	before, _, _ := strings.Cut(shown, "  note: ")
	return before
}

// No row is wider than the terminal, so the terminal never wraps one, and each
// begins with a mark of pk-bash.
func FuzzQuestion(f *testing.F) {
	f.Add("ls", "list")
	f.Add("echo 日本 e\u0301"+strings.Repeat(" ", 99)+"\x1b[2K\u202e\n\n\n\nRun it (y/N)? y", "a\nb")
	f.Fuzz(func(t *testing.T, command, description string) {
		const columns = 30
		q := Question{Command: command, Description: description, Where: "/p", Fence: "f"}
		for i, row := range strings.Split(strings.TrimSuffix(q.render(columns, mark), "\n"), "\n") {
			width := 0
			for _, r := range strings.NewReplacer("«", "", "»", "").Replace(row) {
				width += columnsOf(string(r))
			}
			if i > 0 && width > columns+len(`\u{10FFFF}`) {
				t.Errorf("%d columns: %q", width, row)
			}
			lead := row[:min(2, len(row))]
			if i > 1 && lead != "$ " && lead != "> " && lead != ">" && lead != ". " && lead != "  " {
				t.Errorf("row %d: %q", i, row)
			}
			if strings.ContainsFunc(row, func(r rune) bool { return visible.Invisible(r) }) {
				t.Errorf("hidden: %q", row)
			}
		}
	})
}

func TestQuestionNotes(t *testing.T) {
	for _, test := range []struct {
		name, command string
		want          []string
	}{
		{"ASCII", "ls -la", nil},
		{"Latin with accents", "echo grüße", nil},
		{"another script", "cat\nпривет", []string{
			"note: letters that are not Latin: п U+043F Cyrillic (line 2, column 1), р U+0440 Cyrillic (line 2, column 2), " +
				"и U+0438 Cyrillic (line 2, column 3), в U+0432 Cyrillic (line 2, column 4), and 2 more"}},
		{"a word of two scripts", "curl pаypal.com", []string{
			"note: letters that are not Latin: а U+0430 Cyrillic (line 1, column 7)",
			`WARNING: letters that look alike are mixed in "pаypal"`}},
		{"Greek", "ls οk", []string{
			"note: letters that are not Latin: ο U+03BF Greek (line 1, column 4)",
			`WARNING: letters that look alike are mixed in "οk"`}},
		{"many lines", strings.Repeat("a\n", 30), []string{"note: 31 lines, 60 bytes, sha256 " + Question{Command: strings.Repeat("a\n", 30)}.Sum()[:12]}},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := Question{Command: test.command}
			assert.Equal(t, test.want, q.notes(strings.Split(test.command, "\n")))
		})
	}
}
