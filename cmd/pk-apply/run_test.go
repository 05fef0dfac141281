package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

func TestTextsAgree(t *testing.T) { clitest.Consistent(t, command()) }

// A reader that goes ends no landing half-way, and no name looks like a remark.
func TestListOfALanding(t *testing.T) {
	g := newGround(t, clitest.NewBoxInOneRow(t))
	g.trial(t, `for n in $(seq 600); do echo x >a-rather-long-name-of-a-file-$n; done; echo x >$'a\tstays: here'`)
	assert.Contains(t, g.diff(t, "--stat").Stderr, "holds a tab")
	cmd := g.Command("pk-apply", "--session", sessionName, "--all")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	cmd.Stdout = write
	var said strings.Builder
	cmd.Stderr = &said
	_ = cmd.Run()
	assert.Equal(t, 1, clitest.Status(cmd.ProcessState), said.String())
	assert.Contains(t, said.String(), "broken pipe")
	g.changes(t)
	g.trial(t, `echo y >$'a\tstays: here'`)
	assert.Equal(t, "M\t\"a\\tstays: here\"\n", g.apply(t, "--all").Stdout)
}
