package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// The tests of lib/limits test the limits; these show that the commands set them.
func TestLimitsHoldInTheSandbox(t *testing.T) {
	b := clitest.NewBox(t)
	for _, name := range []string{"pk-bwrap", "pk-bash"} {
		run := func(script string, options ...string) clitest.Outcome {
			if name == "pk-bash" {
				return b.Run(t, name, append(options, "-y", "--raw", script)...)
			}
			return b.Run(t, name, append(options, "--", "bash", "-c", script)...)
		}
		got := run("ulimit -f -t; ulimit -H -t; ulimit -t unlimited 2>/dev/null || echo no", "--file-size", "1M", "--cpu-time", "7")
		assert.Equal(t, "file size                   (blocks, -f) 1024\ncpu time                   (seconds, -t) 7\n8\nno\n", got.Stdout, "%s: %s", name, got.Stderr)
		got = run("trap '' XFSZ; head -c 2M /dev/zero > big; stat -c %s big; rm big", "--file-size", "1M")
		assert.Contains(t, got.Stdout, "1048576\n", name)
		got = run("ulimit -f", "--file-size", "4K")
		assert.Equal(t, clitest.Outcome{Stdout: "4\n"}, got, "%s starts with the least", name)
	}
}

func TestLimitsThatAreNoneAreRefused(t *testing.T) {
	b := clitest.NewBox(t)
	for _, test := range [][3]string{
		{"--memory", "lots", `pk-bwrap: option "--memory": `},
		{"--pids", "1", `pk-bwrap: option "--pids": `},
		{"--cpu-time", "0", `pk-bwrap: option "--cpu-time": `},
		{"--file-size", "-1", `pk-bwrap: option "--file-size": `},
	} {
		got := inside(t, b, "true", test[0], test[1])
		assert.Equal(t, 125, got.Status)
		assert.Contains(t, got.Stderr, test[2]+`"`+test[1]+`"`)
	}
}

// The caller may have a limit of its own, below the size of a file that pk copies.
func TestTheCallersLimitOnTheSizeOfFiles(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bwrap", "--", "sh", "-c", "cat /etc/services >/dev/null && ulimit -f")
	line := strings.Join(cmd.Args[1:len(cmd.Args)-1], " ")
	cmd.Args = []string{"sh", "-c", "ulimit -f 256; exec \"$0\" " + line + " \"$1\"", cmd.Path, cmd.Args[len(cmd.Args)-1]}
	cmd.Path = "/bin/sh"
	got := clitest.Finish(t, cmd)
	if got.Status != 0 { // a bwrap of the caller's own may be copied
		info, err := os.Stat(b.Bwrap)
		require.NoError(t, err)
		require.EqualValues(t, os.Getuid(), info.Sys().(*syscall.Stat_t).Uid, got.Stderr)
		assert.Equal(t, clitest.Outcome{Status: 125, Stderr: "pk-bwrap: cannot copy bwrap: file too large\n"}, got)
		return
	}
	assert.Equal(t, clitest.Outcome{Stdout: "256\n"}, got)
}

func TestTooSmallFiles(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bwrap", "--", "true")
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -f 1; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	got := clitest.Finish(t, cmd)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "pk-bwrap: cannot make a sandbox: file too large\npk-bwrap: hint: the caller's limit on the size of files is 512 bytes, too few for a start; raise it: ulimit -f 1024\n")
}

// Root has no limit on processes.
func TestTooFewProcesses(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	if os.Getuid() == 0 {
		return
	}
	cmd := b.Command("pk-bwrap", "--", "true")
	cmd.Path = "/bin/bash"
	cmd.Args = append([]string{"bash", "-c", `ulimit -u $(($(ps -L -u $UID --no-headers | wc -l) + 15)); exec "$0" "$@"`, b.Bin + "/pk-bwrap"}, cmd.Args[1:]...)
	got := clitest.Finish(t, cmd)
	assert.Equal(t, 125, got.Status, got.Stderr)
	assert.Regexp(t, `^pk-bwrap: cannot make a sandbox: too few processes: .*\npk-bwrap: hint: raise the limit on processes: ulimit -u \d+; .*\n$`, got.Stderr)
}
