package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPrintsWhatGoTestPrints(t *testing.T) {
	for name, c := range map[string]struct {
		row, events, want, results string
		status                     int
	}{
		"a package that passes": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`,
			want:    "ok  \tp\t0.1s\n",
			results: "pass\t\tp\tTestA\n",
		},
		"a test that fails, under a row": {
			row: "bwrap 0.8",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a.go:1: \"Action\":\"pass\"\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Elapsed":0.5}
`,
			want:    "    a.go:1: \"Action\":\"pass\"\nFAIL\tp\t0.500s\t[bwrap 0.8]\n",
			results: "fail\tbwrap 0.8\tp\tTestA\n",
			status:  1,
		},
		"a crash in the middle of a test": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: no\n"}
{"Action":"fail","Package":"p"}
`,
			want:    "panic: no\n",
			results: "fail\t\tp\t\n",
			status:  1,
		},
		"a package that does not compile": {
			events: `{"ImportPath":"p","Action":"build-output","Output":"p/a.go:1: oh\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`,
			want:    "p/a.go:1: oh\nFAIL\tp [build failed]\n",
			results: "fail\t\tp\t\n",
			status:  1,
		},
		"a line that is no event": {
			events: "sh: cannot start\n",
			want:   "sh: cannot start\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "results")
			var stdout, stderr bytes.Buffer
			status := run([]string{"-results", file, "-row", c.row}, strings.NewReader(c.events), &stdout, &stderr)
			assert.Equal(t, c.status, status)
			assert.Equal(t, c.want, stdout.String())
			assert.Empty(t, stderr.String())
			results, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, c.results, string(results))
		})
	}
}

func TestTally(t *testing.T) {
	for name, c := range map[string]struct{ results, want string }{
		"nothing":                                   {"", "0 passed, 0 failed"},
		"each row counts":                           {"pass|a|p|T\npass|b|p|T\n", "2 passed, 0 failed"},
		"skipped in one row, run in another":        {"skip||p|T\npass|a|p|T\n", "1 passed, 0 failed"},
		"skipped in every row":                      {"skip|a|p|T\nskip|b|p|T\n", "skipped: p T\n0 passed, 0 failed, 1 skipped"},
		"subtests, not the test around them":        {"pass||p|T/x\npass||p|T/y/z\npass||p|T/y\npass||p|T\n", "2 passed, 0 failed"},
		"a test that fails because a subtest did":   {"fail||p|T/x\nfail||p|T\n", "failed: p T/x\n0 passed, 1 failed"},
		"a test that fails beside passing subtests": {"pass||p|T/x\nfail|a|p|T\n", "failed: p T [a]\n1 passed, 1 failed"},
		"a skipped subtest of a passing test":       {"skip||p|T/x\npass||p|T\n", "skipped: p T/x\n0 passed, 0 failed, 1 skipped"},
		"a package that failed as a whole":          {"fail||p|\n", "failed: p\n0 passed, 1 failed"},
		"a test of the same name elsewhere":         {"pass||p|T\npass||q|T/x\n", "2 passed, 0 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "results")
			require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(c.results, "|", "\t")), 0o600))
			var stdout, stderr bytes.Buffer
			status := run([]string{"-tally", file}, nil, &stdout, &stderr)
			assert.Equal(t, c.want+"\n", stdout.String())
			assert.Equal(t, strings.Contains(c.want, " 0 failed"), status == 0)
		})
	}
}

func TestCalledWrongly(t *testing.T) {
	for _, args := range [][]string{{}, {"-tally"}, {"-results", "x", "operand"}, {"-what"}, {"-tally", "/does/not/exist"}} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, run(args, nil, &stdout, &stderr))
		assert.Empty(t, stdout.String())
		assert.NotEmpty(t, stderr.String())
	}
}
