package pattern

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unroff turns the source of the manual page into the rendered text.
var unroff = strings.NewReplacer(`\&`, "", `\e`, `\`, `\-`, "-", `\(ti`, "~", `\(ha`, "^",
	`\[u00E9]`, "é", `\[u00E0]`, "à", `\[u00FC]`, "ü")

// table reads the rows of a table of pk-patterns(7), which begins after its
// heading and ends at the first request.
func table(t *testing.T, heading string) [][]string {
	t.Helper()
	page, err := os.ReadFile("../../man/pk-patterns.7")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n.B \""+heading+"\"\n")
	require.True(t, found, "the page has no table %q", heading)
	var rows [][]string
	for line := range strings.Lines(rest) {
		if strings.HasPrefix(line, ".") {
			return rows
		}
		rows = append(rows, strings.Fields(unroff.Replace(line)))
	}
	t.Fatalf("table %q does not end", heading)
	return nil
}

func TestTruthTableOfThePage(t *testing.T) {
	rows := table(t, "pattern         path              matches  covers")
	require.NotEmpty(t, rows)
	yes := map[string]bool{"yes": true, "no": false}
	for _, row := range rows {
		require.Len(t, row, 4, "%q", row)
		p, err := Compile(row[0])
		if assert.NoError(t, err) {
			assert.Contains(t, yes, row[2])
			assert.Contains(t, yes, row[3])
			assert.Equal(t, yes[row[2]], p.Match(row[1]), "%q matches %q", row[0], row[1])
			assert.Equal(t, yes[row[3]], p.Covers(row[1]), "%q covers %q", row[0], row[1])
		}
	}
}

func TestRefusedPatternsOfThePage(t *testing.T) {
	rows := table(t, "pattern         what is wrong")
	require.NotEmpty(t, rows)
	for _, row := range rows {
		p, err := Compile(row[0])
		assert.Nil(t, p)
		assert.ErrorContains(t, err, strings.Join(row[1:], " "), "%q", row[0])
	}
}
