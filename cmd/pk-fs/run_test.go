package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

func TestConsistent(t *testing.T) { clitest.Consistent(t, command(), verbNames()...) }

func TestPolicyPage(t *testing.T) { clitest.PolicyPage(t, new(options).policyOptions()) }

// A name cannot drive the terminal that it is printed on; a program gets its bytes.
func TestNamesOnATerminal(t *testing.T) {
	bin, dir := filepath.Join(clitest.Bin(t), "pk-fs"), t.TempDir()
	name := "a\x1b]0;title\a\u009b2Jb"
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Dir = dir
		return cmd
	}
	const shown = `'a'$'\033'']0;title'$'\007\302\233''2Jb'`
	assert.Equal(t, shown+"\n", clitest.OnTerminal(t, run("ls")))
	assert.Equal(t, shown+"\n", clitest.OnTerminal(t, run("glob", "a*")))
	assert.Equal(t, shown+"\n", clitest.OnTerminal(t, run("walk")))
	assert.Regexp(t, "^file\t0600\t0\t[^\t]*\t"+regexp.QuoteMeta(shown)+"\n$", clitest.OnTerminal(t, run("stat", name)))
	assert.Equal(t, name+"\x00", clitest.OnTerminal(t, run("ls", "-z")))
	assert.NotContains(t, clitest.OnTerminal(t, run("ls", "--json")), "\u009b")
	assert.Equal(t, name+"\n", clitest.Finish(t, run("ls")).Stdout)
}

func TestScripts(t *testing.T) { clitest.Scripts(t) }

// A patch that is cut at a limit would be another one.
func TestPatchThatIsTooLong(t *testing.T) {
	dir := t.TempDir()
	patch := "--- /dev/null\n+++ b/one\n@@ -0,0 +1 @@\n+1\n--- /dev/null\n+++ b/two\n@@ -0,0 +1 @@\n+" + strings.Repeat("2", maxText)
	require.NoError(t, os.WriteFile(dir+"/patch", []byte(patch), 0o600))
	for name, args := range map[string][]string{"standard input": {"patch"}, dir + "/patch": {"patch", "--from", dir + "/patch"}} {
		cmd := exec.Command(filepath.Join(clitest.Bin(t), "pk-fs"), args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
		assert.Equal(t, clitest.Outcome{Status: 1, Stderr: fmt.Sprintf("pk-fs: cannot read %q: it is longer than 64 MiB\n", name)}, clitest.Finish(t, cmd))
	}
	assert.NoFileExists(t, dir+"/one")
}
