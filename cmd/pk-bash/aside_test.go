package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// The first of two commands makes a file that is forbidden and was missing, and its end takes
// the file away, and with it the mask that the second one has. The second makes it again.
func TestForbiddenNameOfTwoCommands(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y", "--deny", "secret")
	one := c.start("echo 1 >secret; echo up; until test -e go; do sleep 0.01; done", "")
	c.until(one, "up")
	two := c.start("test -e secret && echo up; while test -e secret; do sleep 0.01; done; echo 2 >secret; echo made", "")
	c.until(two, "up")
	b.Write(t, b.Project+"/go", "")
	for _, job := range []string{one, two} {
		a := c.wait(job)
		assert.Len(t, a["moved_aside"], 1, "%v", a)
	}
	assert.NoFileExists(t, b.Project+"/secret")
	require.NoError(t, c.close())
}

// A missing path cannot be a mount point. A file that a command makes there, and git on
// the host would run, is moved to the quarantine when pk-bash is done.
func TestWhatAppearsIsMovedAside(t *testing.T) {
	b := clitest.NewBox(t)
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n", "objects/x": "", "refs/x": ""} {
		b.Write(t, filepath.Join(b.Project, ".git", name), text)
	}
	for _, options := range [][]string{nil, {"--session", "aside"}} {
		args := append(options, "--deny", "forbidden", "-y", "--json", "mkdir -p .git/hooks .claude/hooks; echo evil > .git/hooks/pre-commit; echo evil > .claude/hooks/pre-commit; echo evil > .mcp.json; echo x > forbidden; echo ok > allowed")
		got := b.Run(t, "pk-bash", args...)
		require.Equal(t, 0, got.Status, got.Stderr)
		var result struct {
			MovedAside []struct {
				From string `json:"from"`
				To   string `json:"to"`
			} `json:"moved_aside"`
			Git []string `json:"git"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &result))
		var from []string
		for _, m := range result.MovedAside {
			from = append(from, m.From)
			assert.FileExists(t, m.To+map[bool]string{true: "/pre-commit"}[filepath.Base(m.From) == "hooks"])
		}
		assert.ElementsMatch(t, []string{b.Project + "/.claude/hooks", b.Project + "/.mcp.json", b.Project + "/forbidden"}, from, got.Stdout)
		for _, name := range from {
			assert.NoFileExists(t, name)
			assert.NoDirExists(t, name)
		}
		assert.FileExists(t, b.Project+"/allowed")
		// In a git directory nothing of the host's appears at all.
		assert.NoDirExists(t, b.Project+"/.git/hooks")
		require.Len(t, result.Git, 1)
		assert.Contains(t, result.Git[0], b.Project+"/.git/hooks")
	}
}
