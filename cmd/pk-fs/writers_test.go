package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWritersAreRecorded: the verbs under Writing and Git in --help are those that change
// files, here and in --loop, and the pages list them. A verb that changes files and does not
// say so leaves no record of --audit.
func TestWritersAreRecorded(t *testing.T) {
	writing := between(t, help, "\nWriting:\n", "\nOptions of verbs:\n")
	recorded := between(t, page(t, "pk-audit.5"), "records the operations that change files: ", ".\n")
	loop := between(t, page(t, "pk-fs.1"), "\n.SH LOOP\n", "\n.SH EXIT STATUS\n")
	listed := strings.FieldsFunc(recorded, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
	for _, v := range verbs {
		writes := strings.Contains("\n"+writing, "\n  "+v.name+" ") && v.name != "git-head"
		assert.Equal(t, writes, v.changes || v.name == "patch", "%s: changes", v.name) // a patch names its files itself
		assert.Equal(t, writes, slices.Contains(listed, v.name), "%s in pk-audit(5)", v.name)
		if i := slices.IndexFunc(operations, func(o operation) bool { return o.name == v.name }); i >= 0 {
			assert.Equal(t, v.changes, operations[i].changes != nil, "%s in --loop: changes", v.name)
		}
	}
	for _, o := range operations {
		assert.Regexp(t, `(?m)^\.BR? (.* )?`+regexp.QuoteMeta(o.name)+`( |$)`, loop, "%s in LOOP of pk-fs(1)", o.name)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../man/" + name)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), `\-`, "-")
}

func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, from)
	require.True(t, found, from)
	part, _, found := strings.Cut(rest, to)
	require.True(t, found, to)
	return part
}
