package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
