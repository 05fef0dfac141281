package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// pk-fs and pk-resolve see and write the trial, under the project's names.
func TestFileTools(t *testing.T) {
	g := newGround(t, clitest.NewBox(t), "a: host", "d/", "d/f: f")
	g.trial(t, "echo agent >a; rm -r d; mkdir n; ln -s n l")
	run := func(program string, args ...string) clitest.Outcome {
		return g.Run(t, program, append([]string{"--session", sessionName}, args...)...)
	}
	assert.Equal(t, "agent\n", run("pk-fs", "cat", "a").Stdout)
	assert.Equal(t, "host\n", g.Run(t, "pk-fs", "cat", "a").Stdout, "without the session")
	assert.Equal(t, "pk-fs: cannot cat \"d/f\": not found\n", run("pk-fs", "cat", "d/f").Stderr)
	assert.Zero(t, run("pk-fs", "cp", "a", "l/new").Status)
	assert.Zero(t, run("pk-fs", "rm", "a").Status)
	assert.Equal(t, g.Project+"/n/new\n", run("pk-resolve", "-e", "l/new").Stdout)
	assert.Equal(t, 1, run("pk-resolve", "-e", "a").Status)
	assert.Equal(t, "agent\n", g.trial(t, "cat n/new; ! test -e a"), "the commands see it too")
	text, err := os.ReadFile(g.Project + "/a")
	require.NoError(t, err)
	assert.Equal(t, "host\n", string(text))
	assert.NoFileExists(t, g.Project+"/n/new")
	assert.Equal(t, "D\ta\nD\td/\nD\td/f\nA\tl\nA\tn/\nA\tn/new\n", g.diff(t).Stdout)
}

// A running tool keeps changes from landing, and begins the trial like a command.
func TestFileToolKeepsTheTrialInUse(t *testing.T) {
	g := newGround(t, clitest.NewBox(t), "a: host")
	g.trial(t, "echo agent >a")
	resolver := g.Command("pk-resolve", "--session", sessionName, "--stdin")
	in, err := resolver.StdinPipe()
	require.NoError(t, err)
	out, err := resolver.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, resolver.Start())
	_, err = in.Write([]byte("a\n"))
	require.NoError(t, err)
	answer := make([]byte, 100)
	_, err = out.Read(answer)
	require.NoError(t, err)
	got := g.Run(t, "pk-apply", "--session", sessionName, "--all")
	assert.Equal(t, 1, got.Status)
	assert.Contains(t, got.Stderr, "runs")
	require.NoError(t, in.Close())
	require.NoError(t, resolver.Wait())
	assert.Zero(t, g.Run(t, "pk-apply", "--session", sessionName, "--all").Status)
	text, err := os.ReadFile(g.Project + "/a")
	require.NoError(t, err)
	assert.Equal(t, "agent\n", string(text))
}
