package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

func TestTrace(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/data/set.csv", "x\n")
	b.Write(t, b.Home+"/shown/file", "x\n")
	log := b.Audit(t)
	got := b.Run(t, "pk-bwrap", "--trace", "--audit", log, "--readable", b.Home+"/shown", "--", "sh", "-c", "exec 2>/dev/null; cat ~/data/set.csv; touch ~/shown/new; echo out; exit 3")
	assert.Equal(t, clitest.Outcome{Status: 3, Stdout: "out\n", Stderr: "pk-bwrap: warning: fence: ~/shown/new is read-only (option --readable); --writable ~/shown allows it\n" +
		"pk-bwrap: warning: fence: ~/data/set.csv is not shown (empty home); --readable ~/data/set.csv shows it\n"}, got)
	records := clitest.Records(t, log)
	result, ok := records[len(records)-1]["result"].(map[string]any)
	require.True(t, ok)
	assert.Len(t, result["fence"], 2)

	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-bwrap", "--trace", "--", "true"))
	assert.Equal(t, 128+9, b.Run(t, "pk-bwrap", "--trace", "--", "sh", "-c", "kill -9 $$").Status)
	b.Write(t, b.Home+"/policy", "trace\n")
	assert.Contains(t, b.Run(t, "pk-bwrap", "--policy", b.Home+"/policy", "--", "test", "-e", b.Home+"/data/set.csv").Stderr, "fence: ~/data/set.csv")
	assert.Contains(t, b.Run(t, "pk-bwrap", "--trace", "--print", "--", "true").Stderr, "the printed line leaves out: --trace\n")
}

// A printed line has no tracer, and its filter stops nothing.
func TestTracePrinted(t *testing.T) {
	b := clitest.NewBox(t)
	assert.Equal(t, b.Run(t, "pk-bwrap", "--print", "--", "true").Stdout, b.Run(t, "pk-bwrap", "--trace", "--print", "--", "true").Stdout)
}

// A process has one tracer.
func TestTraceInsideATrace(t *testing.T) {
	b := clitest.NewBox(t)
	if os.Getuid() == 0 {
		t.Skip("root makes no sandbox in a sandbox")
	}
	inner := []string{b.Bin + "/pk-bwrap", "--bwrap", b.Bwrap, "--no-toolchains"}
	outer := []string{"--allow-nested", "--trace", "--readable", b.Bin}
	if dir := filepath.Dir(b.Bwrap); dir != "/usr/bin" {
		outer = append(outer, "--readable", dir)
	}
	got := b.Run(t, "pk-bwrap", append(append(append(outer, "--"), inner...), "--", "echo", "in")...)
	assert.Equal(t, "in\n", got.Stdout)
	got = b.Run(t, "pk-bwrap", append(append(append(outer, "--"), inner...), "--trace", "--", "echo", "in")...)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "pk-bwrap: cannot make a sandbox: cannot trace the command: operation not permitted\npk-bwrap: hint: leave --trace out: ")
}
