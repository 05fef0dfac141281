package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/audit"
	"pikuri/lib/cli/clitest"
	"pikuri/lib/workspace"
)

// audited returns a project with a file f, and options that record the operations there.
func audited(t *testing.T) (project, name string, options []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	project, name = filepath.Join(dir, "project"), filepath.Join(dir, "records", "audit")
	for _, d := range []string{project, filepath.Dir(name)} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	t.Chdir(project)
	t.Setenv("HOME", dir)
	require.NoError(t, os.WriteFile("f", []byte("old\n"), 0o600))
	return project, name, []string{"-C", project, "--audit", name}
}

// recorded lists of each record its event, operation, files with hashes, and outcome.
func recorded(t *testing.T, name string) []string {
	t.Helper()
	known := map[string]string{workspace.HashOf([]byte("old\n")): "OLD", workspace.HashOf([]byte("new\n")): "NEW"}
	var list []string
	for _, r := range clitest.Records(t, name) {
		line := fmt.Sprintf("%v %v", r["event"], r["operation"])
		files, _ := r["files"].([]any)
		for _, f := range files {
			file := f.(map[string]any)
			before, _ := file["before"].(string)
			after, _ := file["after"].(string)
			line += fmt.Sprintf(" %v:%s:%s", file["path"], known[before], known[after])
		}
		if result, ok := r["result"].(map[string]any); ok {
			line += fmt.Sprint(" ", result["outcome"], " ", result["kind"])
		}
		list = append(list, line)
	}
	found := false
	require.NoError(t, audit.Check(name, func(f audit.Finding) { found = true }))
	assert.False(t, found)
	return list
}

const patchOfF = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n"

func TestAudit(t *testing.T) {
	_, name, options := audited(t)
	for _, call := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"cat", "f"}},
		{"new\n", []string{"write", "f"}},
		{"old\n", []string{"write", "--exclusive", "f"}},
		{"", []string{"mv", "f", "g"}},
		{"", []string{"rm", "g", "missing"}},
		{"old\n", []string{"append", "f"}},
		{patchOfF, []string{"patch", "--dry-run"}},
		{patchOfF, []string{"patch"}},
		{"", []string{"write", "/etc/none"}},
	} {
		run(call.stdin, append(append([]string{}, options...), call.args...)...)
	}
	assert.Equal(t, []string{
		"begin write f:OLD:", "end write f:OLD:NEW done <nil>",
		"begin write f:NEW:", "end write f:NEW:NEW failed exists",
		"begin mv f:NEW: g::", "end mv f:NEW: g::NEW done <nil>",
		"begin rm g:NEW: missing::", "end rm g:NEW: missing:: failed not-found",
		"begin append f::", "end append f::OLD done <nil>",
		"begin patch f:OLD:", "end patch f:OLD:NEW done <nil>",
		"begin write /etc/none::", "end write /etc/none:: failed denied",
	}, recorded(t, name))
}

func TestAuditOfALoop(t *testing.T) {
	_, name, options := audited(t)
	answersTo(t, `{"op":"read","path":"f"}
{"op":"write","path":"f","content":"new\n"}
{"op":"edit","path":"f","old":"new","new":"old"}
{"op":"mkdir","path":"d"}
{"op":"mv","from":"f","to":"d/f"}
{"op":"rm","path":"d","recursive":true}
{"op":"rm"}
`, options...)
	assert.Equal(t, []string{
		"begin write f:OLD:", "end write f:OLD:NEW done <nil>",
		"begin edit f:NEW:", "end edit f:NEW:OLD done <nil>",
		"begin mkdir d::", "end mkdir d:: done <nil>",
		"begin mv f:OLD: d/f::", "end mv f:OLD: d/f::OLD done <nil>",
		"begin rm d::", "end rm d:: done <nil>",
		"begin rm <nil>::", "end rm <nil>:: failed invalid",
	}, recorded(t, name))
}

// readFunc is a reader that does something when it is read, and then is at its end.
type readFunc func()

func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// The audit file is removed before the first request comes.
func TestNothingChangesWithoutARecord(t *testing.T) {
	_, name, options := audited(t)
	remove := readFunc(func() { assert.NoError(t, os.Remove(name)) })
	for _, request := range []string{
		`{"op":"write","path":"f","content":"new\n"}`, `{"op":"rm","path":"f"}`, `{"op":"mv","from":"f","to":"g"}`, `{"op":"mkdir","path":"d"}`,
		`{"op":"edit","path":"f","old":"old","new":"new"}`, fmt.Sprintf(`{"op":"patch","patch":%q}`, patchOfF),
	} {
		var out, stderr bytes.Buffer
		Run(append(options, "--loop"), io.MultiReader(remove, strings.NewReader(request+"\n")), &out, &stderr)
		assert.Contains(t, out.String(), "cannot write to audit file", request)
		text, err := os.ReadFile("f")
		require.NoError(t, err)
		assert.Equal(t, "old\n", string(text), request)
		assert.NoDirExists(t, "d")
	}
}

func TestAuditFileInARoot(t *testing.T) {
	project, _, _ := audited(t)
	for _, options := range [][]string{
		{"--audit", project + "/audit"},
		{"--readable", filepath.Dir(project), "--audit", filepath.Dir(project) + "/audit"},
	} {
		status, _, stderr := run("new\n", append(options, "write", "f")...)
		assert.Equal(t, 2, status)
		name := options[len(options)-1]
		assert.Contains(t, stderr, fmt.Sprintf("cannot use audit file %q: it lies in %q\n", name, filepath.Dir(name)))
		assert.NoFileExists(t, name)
	}
	seen, list := filepath.Join(filepath.Dir(project), "seen"), filepath.Join(filepath.Dir(project), "list")
	require.NoError(t, os.Mkdir(seen, 0o700))
	require.NoError(t, os.WriteFile(list, []byte(seen+"\n"), 0o600))
	for _, args := range [][]string{{"write", "f"}, {"--loop"}} {
		status, _, stderr := run("new\n", append([]string{"--readable-from", list, "--audit", seen + "/audit"}, args...)...)
		assert.Equal(t, 2, status)
		assert.Contains(t, stderr, "cannot use audit file")
	}
}
