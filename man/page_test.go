// Package man tests the examples of the manual pages and the README: each is
// read from the page and run against the real binaries.
package man

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// example is one block of lines as its reader sees them.
type example struct {
	page  string // the file, from the top of the tree
	lines []string
}

// name is the name of an example in lists: its page and its first line.
func (e example) name() string { return e.page + ": " + e.lines[0] }

func (e example) text() string { return strings.Join(e.lines, "\n") + "\n" }

// need skips an example that takes a program which not every machine has.
func (e example) need(t *testing.T) {
	t.Helper()
	words := strings.FieldsFunc(e.text(), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, program := range []string{"jq", "node", "python3"} {
		if slices.Contains(words, program) {
			clitest.Need(t, program)
		}
	}
}

// pages are the files that have examples.
func pages(t *testing.T) []string {
	t.Helper()
	root := clitest.Root(t)
	found, err := filepath.Glob(root + "/man/*.[1-8]")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	list := []string{"README.md"}
	for _, page := range found {
		list = append(list, "man/"+filepath.Base(page))
	}
	return list
}

// examples finds those of a page: the text between .EX and .EE, between .nf
// and .fi, or in a README between fences.
func examples(t *testing.T, page string) []example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(clitest.Root(t), page))
	require.NoError(t, err)
	begins, ends, read := roffBegins, roffEnds, unroff
	if page == "README.md" {
		begins, ends, read = fences, fences, strings.NewReplacer().Replace
	}
	var list []example
	var block *example
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case block == nil && begins.MatchString(line):
			block = &example{page: page}
		case block == nil:
		case ends.MatchString(line):
			require.NotEmpty(t, block.lines, page)
			list, block = append(list, *block), nil
		case page == "README.md" || !strings.HasPrefix(line, ".R"): // .RS and .RE only indent
			block.lines = append(block.lines, read(line))
		}
	}
	require.Nil(t, block, "%s: an example that does not end", page)
	return list
}

var (
	roffBegins = regexp.MustCompile(`^\.(EX|nf)$`)
	roffEnds   = regexp.MustCompile(`^\.(EE|fi)$`)
	fences     = regexp.MustCompile("^```")
)

// unroff renders a line of a page as plain text.
var unroff = strings.NewReplacer(`\fB`, "", `\fI`, "", `\fR`, "", `\&`, "", `\e`, `\`, `\-`, "-", `\(aq`, "'", `\(ti`, "~", `\(ha`, "^").Replace
