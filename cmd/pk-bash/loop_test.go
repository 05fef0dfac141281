package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	sessiondir "pikuri/lib/session"
)

// answers runs a loop over lines.
func answers(t *testing.T, b *clitest.Box, lines string, options ...string) []map[string]any {
	t.Helper()
	cmd := b.Command("pk-bash", append([]string{"-y", "--loop"}, options...)...)
	cmd.Stdin = strings.NewReader(lines)
	got := clitest.Finish(t, cmd)
	require.Equal(t, 0, got.Status, got.Stderr)
	var list []map[string]any
	for line := range strings.Lines(got.Stdout) {
		var a map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &a), line)
		delete(a, "duration_ms")
		delete(a, "guarantees")
		list = append(list, a)
	}
	return list
}

func TestLoop(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	for _, test := range []struct {
		name, in string
		want     map[string]any
	}{
		{"a command", `{"id":"a","command":"echo hi"}`,
			map[string]any{"id": "a", "command": "echo hi", "outcome": "exited", "exit_status": 0.0, "output": "hi\n", "output_bytes": 3.0}},
		{"a number as id", `{"command":"exit 3","id":12}`, map[string]any{"id": 12.0, "command": "exit 3", "outcome": "exited", "exit_status": 3.0, "output": "", "output_bytes": 0.0}},
		{"no id", `{"command":"kill -9 $$"}`, map[string]any{"command": "kill -9 $$", "outcome": "signaled", "signal": "SIGKILL", "exit_status": 137.0, "output": "", "output_bytes": 0.0}},
		{"bytes", `{"command_base64":"cHJpbnRmICf/Jw=="}`, map[string]any{"command": "printf '\ufffd'", "command_base64": "cHJpbnRmICf/Jw==", "outcome": "exited", "exit_status": 0.0, "output": `\xff`, "output_bytes": 1.0}},
		{"too much time", `{"id":1,"command":"true","timeout":601}`, refused(1.0, "true", "timeout must be <= 600, got 601")},
		{"an empty command", `{"id":1,"command":" "}`, refused(1.0, " ", "empty bash command.")},
		{"no command", `{"id":1}`, refused(1.0, nil, "there is no command")},
		{"no object", `[1]`, refused(nil, nil, "the request is not a JSON object")},
		{"no JSON", `echo hi`, refused(nil, nil, "the request is not a JSON object")},
		{"an empty line", ``, refused(nil, nil, "the request is not a JSON object")},
		{"half an object", `{"id":1,"command":"true"`, refused(1.0, nil, "the request is not a JSON object")},
		{"two objects", `{"id":1,"command":"true"}{"id":2,"command":"true"}`, refused(1.0, nil, "something follows the request on its line")},
		{"a field too many", `{"id":1,"command":"true","sandbox":false}`, refused(1.0, nil, `the field "sandbox" is unknown`)},
		{"a field in capitals", `{"id":1,"Command":"true"}`, refused(1.0, nil, `the field "Command" is unknown`)},
		{"a field twice", `{"id":1,"command":"true","command":"rm x"}`, refused(1.0, nil, `the field "command" is there twice`)},
		{"two commands", `{"id":1,"command":"true","command_base64":"cm0="}`, refused(1.0, nil, "the request has both command and command_base64")},
		{"bad base64", `{"id":1,"command_base64":"***"}`, refused(1.0, nil, "the command_base64 is not base64")},
		{"a command that is a list", `{"id":1,"command":["true"]}`, refused(1.0, nil, "the command is not a string")},
		{"a timeout that is a string", `{"id":1,"command":"true","timeout":"5"}`, refused(1.0, nil, "the timeout is not a whole number")},
		{"a timeout that is null", `{"id":1,"command":"true","timeout":null}`, refused(1.0, nil, "the timeout is not a whole number")},
		{"an id that is an object", `{"id":{},"command":"true"}`, refused(nil, nil, "the id is neither a string nor a number")},
		{"bytes that are not UTF-8", "{\"id\":1,\"command\":\"echo \xff\"}", refused(nil, nil, "the request is not UTF-8")},
		{"half of a surrogate pair", `{"id":1,"command":"echo \ud800"}`, refused(1.0, nil, "the command holds half of a surrogate pair")},
		{"the sign that stands for it", `{"command":"echo \ufffd"}`, map[string]any{"command": "echo \ufffd", "outcome": "exited", "exit_status": 0.0, "output": "\\u{FFFD}\n", "output_bytes": 4.0}},
		{"a NUL", `{"id":1,"command":"echo \u0000"}`, refused(1.0, "echo \x00", "the command holds a NUL byte, at byte 5.")},
		{"a line that is too long", `{"id":1,"command":"` + strings.Repeat("x", maxLine) + `"}`, refused(nil, nil, "the request is longer than 33554432 bytes")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// After any line, the next one is answered.
			got := answers(t, b, test.in+"\n"+`{"id":"next","command":"true"}`)
			require.Len(t, got, 2)
			assert.Equal(t, test.want, got[0])
			assert.Equal(t, "next", got[1]["id"])
			assert.Equal(t, "exited", got[1]["outcome"])
		})
	}
	t.Cleanup(func() { assert.Empty(t, umbrellas(t, b)) })
}

func refused(id, command any, why string) map[string]any {
	a := map[string]any{"outcome": "refused", "exit_status": 125.0, "error": why}
	if id != nil {
		a["id"] = id
	}
	if command != nil {
		a["command"] = command
	}
	return a
}

func TestLoopOfNothing(t *testing.T) {
	b := clitest.NewBox(t)
	assert.Empty(t, answers(t, b, ""))
}

// Each answer is there before the next request is made, and each command has its own
// time limit.
func TestLoopIsAConversation(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		cmd := b.Command("pk-bash", append(mode.options, "-y", "--loop", "--session", "s", "--kill-after", "1")...)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		d := json.NewDecoder(out)
		for _, turn := range []struct{ request, outcome string }{
			{`{"command":"echo x >/tmp/pk-loop-$$; setsid sleep 1000 &"}`, "exited"},
			{`{"command":"sleep 1000","timeout":1}`, "timed-out"},
			{`{"command":"kill -9 $PPID; sleep 0.2; exit 4"}`, map[string]string{"sandboxed": "exited"}[mode.name]},
			{`{"command":"rm -f /tmp/pk-loop-*"}`, "exited"},
		} {
			_, err := io.WriteString(in, turn.request+"\n")
			require.NoError(t, err)
			var a map[string]any
			require.NoError(t, d.Decode(&a))
			if turn.outcome != "" {
				assert.Equal(t, turn.outcome, a["outcome"], turn.request)
			}
		}
		require.NoError(t, in.Close())
		assert.NoError(t, cmd.Wait())
	}
}

// The set-up program that waits for the next request of a loop lies in the user
// namespace of a keeper. The loop does not use it once another keeper runs, and ends
// it with itself.
func TestLoopOutlivesItsKeeper(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/.cache/pip/f", "host\n")
	cmd := b.Command("pk-bash", "-y", "--loop", "--session", "s")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	d := json.NewDecoder(out)
	answer := func(command string) any {
		_, err := io.WriteString(in, `{"command":"`+command+`"}`+"\n")
		require.NoError(t, err)
		var a map[string]any
		require.NoError(t, d.Decode(&a))
		return a["output"]
	}
	assert.Equal(t, "", answer("echo kept > ~/.cache/pip/f"))
	u, err := sessiondir.Open(b.Home+"/.cache/pikuri", "s")
	require.NoError(t, err)
	defer u.Release()
	for range 2 {
		pid, err := u.Keeper()
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		assert.Equal(t, "kept\n", answer("cat ~/.cache/pip/f"))
	}
	var left []string
	require.Eventually(t, func() bool { left = setUps(t, cmd.Process.Pid); return len(left) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, in.Close())
	assert.NoError(t, cmd.Wait())
	for _, process := range left {
		assert.NoFileExists(t, process+"/cmdline")
	}
}

func TestLoopEndsWithASignal(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bash", "-y", "--loop")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(in, `{"command":"true"}`+"\n"+`{"command":"touch ready; sleep 1000"}`+"\n"+`{"command":"touch never"}`+"\n")
	require.NoError(t, err)
	d := json.NewDecoder(out)
	var a map[string]any
	require.NoError(t, d.Decode(&a))
	for {
		if _, err := os.Stat(b.Project + "/ready"); err == nil {
			break
		}
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, d.Decode(&a))
	assert.Equal(t, "signaled", a["outcome"])
	_ = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode())
	assert.NoFileExists(t, b.Project+"/never")
	assert.Empty(t, umbrellas(t, b))
}

func TestLoopUsage(t *testing.T) {
	b := clitest.NewBox(t)
	for _, args := range [][]string{
		{"--loop", "true"}, {"--loop", "-c", "true"}, {"--loop", "--log", "x"}, {"--loop", "--description", "x"}, {"--loop", "--readable-from", "-"},
		{"-y", "--confirm-command", "x", "true"}, {"--no-sandbox", "--wrap", "x", "true"}, {"--raw", "--log", "x", "true"}, {"--raw", "--follow", "true"},
		{"--log", "x", "--no-log", "true"}, {"--wrap", "", "true"}, {"--wrap", "a; b", "true"}, {"--log", "", "true"}, {"--confirm-command", "", "true"},
	} {
		got := b.Run(t, "pk-bash", args...)
		assert.Equal(t, 125, got.Status, args)
		assert.Empty(t, got.Stdout, args)
	}
}

// A loop whose commands would all be refused ends before it reads a request, as one of these
// commands does.
func TestLoopRefusesAtOnce(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/w", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(b.Project+"/w", 0o755))
	for _, test := range []struct {
		name, env string
		args      []string
	}{
		{"limit that cannot be enforced", "", []string{"-y", "--memory", "1M"}},
		{"variable that says neither yes nor no", "PK_CONFIRM=1", nil},
		{"program that answers, missing", "", []string{"--confirm-command", "/nonesuch"}},
		{"program that answers, in the project", "", []string{"--confirm-command", b.Project + "/w"}},
		{"wrapper, missing", "", []string{"-y", "--wrap", "/nonesuch"}},
		{"wrapper in the project", "", []string{"-y", "--wrap", "./w"}},
		{"answerer without a sandbox", "", []string{"--no-sandbox", "--confirm-command", "/nonesuch"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.Env = nil
			if test.env != "" {
				b.Env = []string{test.env}
			}
			one := b.Run(t, "pk-bash", append(test.args, "true")...)
			got := b.Run(t, "pk-bash", append(test.args, "--loop")...)
			assert.NotZero(t, one.Status)
			assert.Equal(t, clitest.Outcome{Stderr: one.Stderr, Status: one.Status}, got)
			assert.Empty(t, umbrellas(t, b))
		})
	}
}

func TestWrap(t *testing.T) {
	b := clitest.NewBox(t)
	container := script(t, b, "container", "box=$1; shift; [ \"$box\" = exec ] && exec env IN=box \"$@\"\n")
	scope := script(t, b, "scope", "while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"; status=$?; exit $status\n")
	// A stand-in for ssh: it joins the words, and a shell splits them.
	b.Mkdir(t, b.Home+"/bin")
	ssh := script(t, b, "bin/ssh", "shift; exec sh -c \"$*\"\n")
	for _, test := range []struct {
		name, prefix, command string
		output                string
		status                int
	}{
		{"env", "env -i PATH=/usr/bin:/bin", "echo ${HOME-none}; exit 3", "none\n", 3},
		{"setpriv", "setpriv --no-new-privs --", "grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1\n", 0},
		{"a container", container + " exec", "echo $IN", "box\n", 0},
		{"a scope", scope + " --user --scope -p 'Memory Max=1G' --", "exit 137", "", 137},
		{"ssh", ssh + " host", "echo 'a  b' \"$0\" '$HOME' \\; ; printf '%s\\n' \"it's\"", "a  b bash $HOME ;\nit's\n", 0},
		{"ssh, a command of two lines", ssh + " host", "echo a\necho b", "a\nb\n", 0},
		{"quotes", `env 'A=1 2' "B=\"" C=\ x`, `echo "$A|$B|$C"`, "1 2|\"| x\n", 0},
		{"nothing is expanded", "env A=$HOME B=*", `echo "$A $B"`, "$HOME *\n", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, b, test.command, "--json", "--wrap", test.prefix)
			var r map[string]any
			require.NoError(t, json.Unmarshal([]byte(got.Stdout), &r), got.Stdout+got.Stderr)
			assert.Equal(t, test.output, r["output"])
			assert.Equal(t, test.status, got.Status)
		})
	}
	got := run(t, b, "true", "--wrap", "nonesuch x")
	assert.Equal(t, clitest.Outcome{Stdout: "Error: cannot find \"nonesuch\" in PATH\n", Stderr: "pk-bash: cannot find \"nonesuch\" in PATH\n", Status: 127}, got)
	b.Write(t, b.Project+"/w", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(b.Project+"/w", 0o755))
	assert.Contains(t, run(t, b, "true", "--wrap", "./w").Stderr, "lies in the writable root")
	got = run(t, b, "# "+strings.Repeat("x", 100), "--wrap", "env")
	assert.Equal(t, 0, got.Status)
}

// In a session /tmp is the session tmp: a project below the host's /tmp has only a
// relative name.
func TestLogInAProjectBelowTmp(t *testing.T) {
	b := clitest.NewBox(t)
	dir, err := os.MkdirTemp("/tmp", "pk-log-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	b.Project = dir
	for _, name := range []string{"kept.log", dir + "/kept.log"} {
		got := b.Run(t, "pk-bash", "-y", "--session", "s", "--log", name, "echo "+name)
		assert.Equal(t, 0, got.Status, got.Stderr)
		text, err := os.ReadFile(dir + "/kept.log")
		assert.NoError(t, err)
		assert.Equal(t, name+"\n", string(text))
	}
}

// A command can put links in the place of the log: they would lead to files that are protected from it.
func TestLogBehindLinks(t *testing.T) {
	b := clitest.NewBox(t)
	for script, log := range map[string]string{
		"ln -s .envrc log":                  "log",
		"ln -s missing.envrc log":           "log",
		"ln -s ../project log; mkdir x":     "log/.envrc",
		"ln -s . log":                       "log/.envrc",
		"mkdir d; ln -s ../other/back d/in": "d/in/.envrc",
		"echo x >names; ln names log":       "log",
	} {
		b.Project = filepath.Join(t.TempDir(), "project")
		require.NoError(t, os.MkdirAll(filepath.Join(b.Project, "../other"), 0o755))
		require.NoError(t, os.Mkdir(b.Project, 0o755))
		require.NoError(t, os.Symlink(b.Project, filepath.Join(b.Project, "../other/back")))
		require.NoError(t, os.WriteFile(b.Project+"/.envrc", []byte("users\n"), 0o755))
		got := b.Run(t, "pk-bash", "-y", "--no-log", script)
		require.Equal(t, 0, got.Status, got.Stderr)
		for _, name := range []string{log, b.Project + "/" + log, filepath.Join(b.Project, "../other/back", log)} {
			got := b.Run(t, "pk-bash", "-y", "--log", name, "echo evil")
			assert.Equal(t, 125, got.Status, "%s: %s", script, name)
			assert.Contains(t, got.Stderr, "cannot make the log", script)
			assert.Contains(t, got.Stderr, "hint: name a file outside of the writable roots", script)
		}
		text, err := os.ReadFile(b.Project + "/.envrc")
		assert.NoError(t, err)
		assert.Equal(t, "users\n", string(text), script)
		assert.NoFileExists(t, b.Project+"/missing.envrc", script)
		got = b.Run(t, "pk-bash", "-y", "--log", "../other/back/kept.log", "echo kept")
		assert.Equal(t, 0, got.Status, got.Stderr)
		assert.FileExists(t, b.Project+"/kept.log")
	}
}

// setUps lists the set-up programs of a process, as directories of /proc.
func setUps(t *testing.T, parent int) (list []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, name := range all {
		line, _ := os.ReadFile(name) // it may have ended
		status, _ := os.ReadFile(filepath.Dir(name) + "/status")
		if bytes.Contains(line, []byte("\x00--pk-setup\x00")) && bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", parent)) {
			list = append(list, filepath.Dir(name))
		}
	}
	return list
}

// One set-up program makes all sandboxes of a loop in a session. It keeps no file of those
// that have ended; if it is killed, all of them end, and the next command gets another one.
func TestOneSetUpProgram(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/.cache/pip") // a cache makes a keeper
	for _, options := range [][]string{nil, {"--net", "none"}, {"--trace"}} {
		c := dial(t, b, append(options, "-y")...)
		// A process that is forked, and runs no other program yet, looks like a second one.
		var programs []string
		one := func() bool {
			programs = setUps(t, c.cmd.Process.Pid)
			return len(programs) == 1
		}
		files := func() int {
			list, err := os.ReadDir(programs[0] + "/fd")
			require.NoError(t, err)
			return len(list)
		}
		first, second := c.start("echo up; sleep 1000", ""), c.start("echo up; sleep 1000", "")
		c.until(first, "up")
		c.until(second, "up")
		require.Eventually(t, one, minute, tick, "there are %q", &programs)
		before := files()
		for range 10 {
			assert.Equal(t, "hi\n", c.ask(`{"command":"echo hi"}`)["output"])
			assert.Equal(t, 1.0, c.ask(`{"command":"./nonesuch; exit 1"}`)["exit_status"])
		}
		require.Eventually(t, func() bool { return one() && files() <= before }, minute, tick, "there are %q", &programs)
		assert.Equal(t, "signaled", c.ask(`{"op":"kill","job":%q}`, first)["outcome"])
		assert.Equal(t, "running", c.ask(`{"op":"read","job":%q}`, second)["outcome"])
		pid, err := strconv.Atoi(filepath.Base(programs[0]))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		last := c.wait(second)
		assert.Equal(t, []any{"signaled", "SIGKILL"}, []any{last["outcome"], last["signal"]})
		assert.Equal(t, "hi\n", c.ask(`{"command":"echo hi"}`)["output"])
		require.NoError(t, c.close())
	}
}
