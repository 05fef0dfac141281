package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

func TestAudit(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	name := b.Audit(t)
	policy := filepath.Join(filepath.Dir(name), "policy")
	b.Write(t, policy, "audit audit\nnet none\n")
	b.Run(t, "pk-bwrap", "--policy", policy, "--", "sh", "-c", "exit 3")
	b.Run(t, "pk-bwrap", "--policy", policy, "--", "sh", "-c", "kill -9 $$")
	b.Run(t, "pk-bwrap", "--policy", policy, "--", "nonesuch")
	b.Run(t, "pk-bwrap", "--policy", policy, "--print", "true") // runs nothing
	var list []string
	for _, r := range clitest.Records(t, name) {
		line := fmt.Sprint(r["program"], " ", r["event"], " ", r["command"], " ", r["begin"], " ", r["error"])
		if result, ok := r["result"].(map[string]any); ok {
			line += fmt.Sprint(" ", result["outcome"], " ", result["exit_status"], " ", result["signal"])
			assert.Contains(t, result["guarantees"], "network")
		}
		list = append(list, line)
	}
	assert.Equal(t, []string{
		"pk-bwrap begin sh -c 'exit 3' <nil> <nil>",
		"pk-bwrap end <nil> 1 <nil> exited 3 <nil>",
		"pk-bwrap begin sh -c 'kill -9 $$' <nil> <nil>",
		"pk-bwrap end <nil> 3 <nil> exited 137 <nil>",
		`pk-bwrap refused nonesuch <nil> cannot run "nonesuch": not found in the sandbox's PATH`,
	}, list)
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-bash", "--audit-check", name))
}

// Each command that ran has a record, whenever the monitor is killed.
func TestAuditWhenKilledAtRandomMoments(t *testing.T) {
	b := clitest.NewBox(t)
	name := b.Audit(t)
	for i := range 12 {
		alive, w, err := os.Pipe()
		require.NoError(t, err)
		cmd := b.Command("pk-bwrap", "--audit", name, "--", "sh", "-c", fmt.Sprintf("touch w%d; sleep 1000", i))
		cmd.Stdout = w
		require.NoError(t, cmd.Start())
		w.Close()
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.NoError(t, alive.SetReadDeadline(time.Now().Add(endTime)))
		_, err = io.ReadAll(alive) // to the end of the sandbox
		require.NoError(t, err)
		alive.Close()
		_ = cmd.Wait() // it was killed
	}
	commands := map[any]bool{}
	if _, err := os.Stat(name); err == nil {
		for _, r := range clitest.Records(t, name) {
			commands[r["command"]] = true
		}
		assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-bash", "--audit-check", name))
	}
	for i := range 12 {
		if _, err := os.Stat(fmt.Sprintf("%s/w%d", b.Project, i)); err == nil {
			assert.True(t, commands[fmt.Sprintf("sh -c 'touch w%d; sleep 1000'", i)], "w%d ran", i)
		}
	}
}

// Users have no other file than the machine's mandatory one, and no command goes without.
func TestMandatoryAudit(t *testing.T) {
	b := clitest.NewBox(t)
	name := b.Audit(t)
	machine := "mandatory\naudit " + name + "\nuser-may bwrap environment\n"
	for _, call := range [][]string{
		{"pk-bwrap", "--", "true"}, {"pk-bash", "-y", "true"}, {"pk-fs", "mkdir", "d"}, {"pk-apply", "--session", "s", "--all"}, {"pk-resolve", "d"},
	} {
		got := under(t, b, machine, nil, call[0], call[1:]...)
		assert.NotContains(t, got.Stderr, "policy", call)
		if call[0] == "pk-resolve" {
			continue // it records nothing
		}
		got = under(t, b, machine, nil, call[0], append([]string{"--audit", name + "2"}, call[1:]...)...)
		assert.Contains(t, got.Stderr, `option "--audit": the machine's policy is mandatory`, call)
	}
	var programs []any
	for _, r := range clitest.Records(t, name) {
		programs = append(programs, r["program"])
	}
	assert.Equal(t, []any{"pk-bwrap", "pk-bash", "pk-fs"}, slices.Compact(programs))
}
