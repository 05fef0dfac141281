package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

func TestOptionsAreTheSameEverywhere(t *testing.T) { clitest.Consistent(t, command()) }

// No other command links a web server. pk-mcp links no sandbox.
func TestWhatIsLinked(t *testing.T) {
	clitest.NeedModules(t)
	clitest.Need(t, "go")
	imports := func(pkg ...string) []string {
		out, err := exec.Command("go", append([]string{"list", "-deps"}, pkg...)...).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	own := imports(".")
	for _, pkg := range []string{"bwrap", "fence", "monitor", "setup", "shell", "gate"} {
		assert.NotContains(t, own, "pikuri/lib/"+pkg)
	}
	list, err := exec.Command("go", "list", "../...").Output()
	require.NoError(t, err)
	var others []string
	for _, pkg := range strings.Fields(string(list)) {
		if pkg != "pikuri/cmd/pk-mcp" {
			others = append(others, pkg)
		}
	}
	assert.NotContains(t, imports(others...), "net/http")
}
