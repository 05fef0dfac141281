package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pk-fs makes no sandbox, and refuses all that the policy denies to a sandbox.
func TestPolicyOfASandbox(t *testing.T) {
	project, _, _ := audited(t)
	file := filepath.Join(filepath.Dir(project), "policy")
	for _, row := range []struct {
		policy  string
		args    []string
		refused string
	}{
		{"trial", []string{"write", "f"}, "cannot write: policy %f, line 1 says trial, and the session is none\npk-fs: hint: --session NAME"},
		{"trial", []string{"rm", "f"}, "cannot rm: policy %f, line 1 says trial"},
		{"trial", []string{"patch"}, "cannot patch: policy %f, line 1 says trial"},
		{"trial", []string{"git-adopt", "."}, "cannot git-adopt: policy %f, line 1 says trial"},
		{"trial", []string{"cat", "f"}, ""},
		{"net none", []string{"git-clone", "https://nowhere.test/x", "d"}, "cannot git-clone with the network of the host: policy %f, line 1 says another"},
		{"net allow", []string{"git-pull", "d"}, "cannot git-pull with the network of the host: policy %f, line 1"},
		{"net none", []string{"write", "f"}, ""},
		{"net none\nnet host", []string{"git-pull", "d"}, "cannot git-pull \"d\": "},
	} {
		require.NoError(t, os.WriteFile(file, []byte(row.policy+"\n"), 0o600))
		require.NoError(t, os.WriteFile("f", []byte("old\n"), 0o600))
		status, _, stderr := run(patchOfF, append([]string{"--policy", file}, row.args...)...)
		assert.Equal(t, row.refused != "", status == 1, "%s, %v: %s", row.policy, row.args, stderr)
		assert.Contains(t, stderr, strings.ReplaceAll(row.refused, "%f", strconv.Quote(file)))
		if row.policy == "trial" {
			text, err := os.ReadFile("f")
			require.NoError(t, err)
			assert.Equal(t, "old\n", string(text))
		}
	}
	require.NoError(t, os.WriteFile(file, []byte("trial\n"), 0o600))
	assert.Contains(t, answersTo(t, `{"op":"write","path":"f","content":"new\n"}`+"\n", "--policy", file)[0]["error"], "says trial")
}
