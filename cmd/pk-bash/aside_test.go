package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// kill starts a monitor and kills it once its command has made the file "on". It returns when the
// set-up program has done its work.
func kill(t *testing.T, b *clitest.Box, monitor *exec.Cmd) {
	t.Helper()
	require.NoError(t, monitor.Start())
	awaitFile(t, b.Project+"/on")
	require.NoError(t, monitor.Process.Kill())
	_ = monitor.Wait()
	b.AwaitOrphans(t)
}

// A monitor is killed. Without another command, the repository that its command has made is inert
// soon, and the planted file is gone. The next command tells of both, once.
func TestKilledMonitorLeavesTheHostSafe(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	b.Mkdir(t, b.Home+"/.cache/pip") // a cache makes a keeper
	const command = "git init -q made; echo x >.envrc; touch on; sleep 1000"
	for name, prepare := range map[string]func() *exec.Cmd{
		"pk-bash":               func() *exec.Cmd { return b.Command("pk-bash", "-y", command) },
		"pk-bash, in a session": func() *exec.Cmd { return b.Command("pk-bash", "-y", "--session", "killed", command) },
		"pk-bash, with a gate": func() *exec.Cmd {
			return b.Command("pk-bash", "-y", "--net", "allow", "--allow-host", "example.com", command)
		},
		"pk-bwrap": func() *exec.Cmd { return b.Command("pk-bwrap", "--", "sh", "-c", command) },
		"pk-bash, a loop": func() *exec.Cmd {
			cmd := b.Command("pk-bash", "-y", "--loop")
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			_, err = fmt.Fprintf(in, "{\"op\":\"start\",\"command\":%q}\n{\"op\":\"start\",\"command\":\"sleep 1000\"}\n", command)
			require.NoError(t, err)
			return cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				kill(t, b, prepare())
				assert.NoDirExists(t, b.Project+"/made/.git")
				assert.NoFileExists(t, b.Project+"/.envrc")
				got := b.Run(t, "pk-bash", "-y", "--raw", "ls -A made; rm -r made on")
				assert.Equal(t, ".git\n", got.Stdout)
				assert.Regexp(t, `^pk-bash: warning: "[^"]*/\.envrc" was left by a command that was killed, and is now "[^"]*"\npk-bash: warning: git: the repository "[^"]*/made", which a killed command has made, works in the sandbox alone until: pk-fs git-adopt \S*\n$`, got.Stderr)
				assert.Empty(t, b.Run(t, "pk-bash", "-y", "--raw", "true").Stderr)
			}
		})
	}
}

// A planted file is changed later, by another of its names. It is not the user's for that.
func TestPlantedFilesWithOtherNames(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for name, plant := range map[string]string{
		".mcp.json": "echo x >.mcp.json; mkdir s; ln .mcp.json s/.git",
		".codex":    "mkdir .codex; git init -q .codex",
		".envrc":    "git init -q --bare bare; ln bare/HEAD .envrc",
	} {
		kill(t, b, b.Command("pk-bash", "-y", plant+"; touch on; sleep 1000"))
		_, err := os.Lstat(filepath.Join(b.Project, name))
		assert.ErrorIs(t, err, os.ErrNotExist, name)
		got := b.Run(t, "pk-bash", "-y", "--raw", "rm -rf s bare on")
		assert.Contains(t, got.Stderr, fmt.Sprintf("%q was left by a command that was killed, and is now", filepath.Join(b.Project, name)))
	}
}

// No killed command has made the repository of an earlier one.
func TestRepositoryIsToldOnceInSpiteOfAKill(t *testing.T) {
	b := clitest.NewBox(t)
	assert.Contains(t, b.Run(t, "pk-bash", "-y", "--raw", "git init -q made").Stderr, "works in the sandbox alone until: pk-fs git-adopt")
	for range 2 {
		kill(t, b, b.Command("pk-bash", "-y", "test -d made/.git && touch on; sleep 1000"))
		assert.NoDirExists(t, b.Project+"/made/.git")
		assert.Equal(t, clitest.Outcome{Stdout: ".git\n"}, b.Run(t, "pk-bash", "-y", "--raw", "ls -A made; rm on"))
	}
}
