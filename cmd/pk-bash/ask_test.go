package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// script makes a program outside the workspace.
func script(t *testing.T, b *clitest.Box, name, text string) string {
	t.Helper()
	path := filepath.Join(b.Home, name)
	b.Write(t, path, "#!/bin/sh\n"+text)
	require.NoError(t, os.Chmod(path, 0o755))
	return path
}

func TestConfirmCommand(t *testing.T) {
	b := clitest.NewBox(t)
	for _, test := range []struct {
		name, program string
		stdout        string
		status        int
	}{
		{"yes", "exit 0", "$ echo ran\nran\n\nexit status: 0\n", 0},
		{"yes, and what it says is ignored", "echo no; exit 0", "$ echo ran\nran\n\nexit status: 0\n", 0},
		{"no", "exit 1", "Error: user declined the bash command.\n", 126},
		{"no, with a reason", "echo 'not on a Friday'; echo more; exit 1", "Error: user declined the bash command: not on a Friday\n", 126},
		{"reason that drives the terminal", `printf '\033[2Kfine\n'; exit 1`, `Error: user declined the bash command: \x1b[2Kfine` + "\n", 126},
		{"reason without end", "yes | head -c 100000; exit 1", "Error: user declined the bash command: y\n", 126},
		{"another status", "exit 2", "exited with 2\n", 126},
		{"a signal", "kill -9 $$", "died of SIGKILL\n", 126},
		{"background child that holds its output", "sleep 1000 2>/dev/null & echo $! >\"$HOME/pid\"; exit 1", "Error: user declined the bash command.\n", 126},
	} {
		t.Run(test.name, func(t *testing.T) {
			program := script(t, b, "answer", test.program+"\n")
			got := b.Run(t, "pk-bash", "--confirm-command", program, "echo ran")
			assert.Contains(t, got.Stdout, test.stdout)
			assert.Equal(t, test.status, got.Status)
			assert.Empty(t, got.Stderr)
			if pid, err := os.ReadFile(b.Home + "/pid"); err == nil {
				var n int
				require.NoError(t, json.Unmarshal(pid, &n))
				assert.NoError(t, syscall.Kill(n, syscall.SIGKILL))
				require.NoError(t, os.Remove(b.Home+"/pid"))
			}
		})
	}
}

// A machine that cannot make a sandbox is found out before anybody is asked.
func TestNoQuestionWithoutASandbox(t *testing.T) {
	b := clitest.NewBox(t)
	program := script(t, b, "answer", "touch \"$HOME/asked\"\n")
	cmd := b.Command("pk-bash", "--confirm-command", program, "echo ran")
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_pid_namespaces; exec unshare --user --map-user "$0" --map-group "$0" -- "$@"' "$(id -u)" "$@"`, "sh"}, cmd.Args...)
	got := clitest.Finish(t, cmd)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "pk-bash: cannot make a sandbox: ")
	assert.NoFileExists(t, b.Home+"/asked")
}

func TestConfirmCommandGetsTheQuestion(t *testing.T) {
	b := clitest.NewBox(t)
	program := script(t, b, "answer", "printf '%s' \"$1\" >$HOME/shown; cat >$HOME/object; echo \"$SSH_ASKPASS_PROMPT\" >$HOME/askpass; exit 1\n")
	b.Env = []string{"PK_CONFIRM_COMMAND=" + program}
	got := b.Run(t, "pk-bash", "--net", "none", "--timeout", "9", "--description", "d\ne", "ls\x1b[2K\nrm \xff")
	assert.Equal(t, 126, got.Status)
	shown, _ := os.ReadFile(b.Home + "/shown")
	assert.Equal(t, "pk-bash in "+b.Project+"\n  sandboxed, no network, 9 s\n  description: d\\ne\n$ ls\\x1b[2K\n> rm \\xff\n", string(shown))
	askpass, _ := os.ReadFile(b.Home + "/askpass")
	assert.Equal(t, "confirm\n", string(askpass))
	raw, _ := os.ReadFile(b.Home + "/object")
	var object map[string]any
	require.NoError(t, json.Unmarshal(raw, &object), string(raw))
	assert.Equal(t, map[string]any{
		"tool": "pk-bash", "version": 1.0, "command": "ls\x1b[2K\nrm \ufffd", "command_base64": "bHMbWzJLCnJtIP8=", "display": string(shown),
		"description": `d\ne`, "cwd": b.Project, "fence": "sandboxed, no network", "timeout": 9.0,
		"sha256": object["sha256"],
	}, object)
	assert.Len(t, object["sha256"], 64)
}

func TestWhoMayAnswer(t *testing.T) {
	b := clitest.NewBox(t)
	yes, no := script(t, b, "yes", "exit 0\n"), script(t, b, "no", "exit 1\n")
	inside := b.Project + "/yes"
	b.Write(t, inside, "#!/bin/sh\n")
	require.NoError(t, os.Chmod(inside, 0o755))
	require.NoError(t, os.Symlink(inside, b.Home+"/link"))
	for _, test := range []struct {
		name, pin string
		env, args []string
		status    int
		stderr    string
	}{
		{"a variable says yes", "", []string{"PK_CONFIRM=yes"}, nil, 0, ""},
		{"a variable says no", "", []string{"PK_CONFIRM=no"}, nil, 126, ""},
		{"a variable says what nobody understands", "", []string{"PK_CONFIRM=1"}, nil, 125, "neither \"yes\" nor \"no\""},
		{"an option wins over a variable", "", []string{"PK_CONFIRM=no"}, []string{"-y"}, 0, ""},
		{"a program named by a variable", "", []string{"PK_CONFIRM_COMMAND=" + no}, nil, 126, ""},
		{"a program that is missing", "", nil, []string{"--confirm-command", "/nonesuch"}, 125, "cannot find the program"},
		{"a program that a command could replace", "", nil, []string{"--confirm-command", inside}, 125, "lies in the writable root"},
		{"a link to such a program", "", nil, []string{"--confirm-command", b.Home + "/link"}, 125, "lies in the writable root"},
		{"the terminal alone", "require terminal\n", nil, []string{"-y"}, 125, "--yes cannot be used: only the terminal may answer"},
		{"the terminal alone, and a variable", "require terminal\n", []string{"PK_CONFIRM=yes"}, nil, 125, "PK_CONFIRM cannot be used"},
		{"the terminal alone, and a program", "require terminal\n", nil, []string{"--confirm-command", yes}, 125, "--confirm-command cannot be used"},
		{"the terminal alone, and there is none", "require terminal\n", nil, nil, 126, "pk-bash: no terminal to ask on, and \"" + b.Home + "/.config/pikuri/confirm\" lets nothing else answer\n"},
		{"a no is always an answer", "require terminal\n", nil, []string{"-n"}, 126, ""},
		{"one program alone", "# who\n\nrequire command " + yes + "\n", nil, nil, 0, ""},
		{"one program alone, which is named", "require command " + yes + "\n", nil, []string{"--confirm-command", yes}, 0, ""},
		{"one program alone, and another is named", "require command " + no + "\n", nil, []string{"--confirm-command", yes}, 125, "only the program"},
		{"one program alone, and nobody is to be asked", "require command " + yes + "\n", nil, []string{"-y"}, 125, "--yes cannot be used"},
		{"a word that is not known", "require nobody\n", nil, []string{"-y"}, 125, "line 1"},
		{"nobody", "# nothing\n", nil, []string{"-y"}, 125, "it names nobody"},
		{"two", "require terminal\nrequire terminal\n", nil, []string{"-y"}, 125, "line 2"},
		{"a program without a path", "require command yes\n", nil, []string{"-y"}, 125, "not an absolute path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pin := b.Home + "/.config/pikuri/confirm"
			require.NoError(t, os.RemoveAll(b.Home+"/.config"))
			if test.pin != "" {
				b.Write(t, pin, test.pin)
				require.NoError(t, os.Chmod(pin, 0o600))
			}
			b.Env = test.env
			cmd := b.Command("pk-bash", append(test.args, "true")...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			got := clitest.Finish(t, cmd)
			assert.Equal(t, test.status, got.Status, got.Stderr)
			assert.Contains(t, got.Stderr, test.stderr)
			assert.Empty(t, umbrellas(t, b))
		})
	}
}

func TestPinThatOthersCouldWrite(t *testing.T) {
	b := clitest.NewBox(t)
	pin := b.Home + "/.config/pikuri/confirm"
	b.Write(t, pin, "require terminal\n")
	require.NoError(t, os.Chmod(pin, 0o666))
	got := run(t, b, "true")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "it is open to others (mode 0666)")

	// A second place makes it stricter, and takes nothing away.
	require.NoError(t, os.Chmod(pin, 0o600))
	b.Env = []string{"XDG_CONFIG_HOME=" + b.Home + "/other"}
	assert.Contains(t, run(t, b, "true").Stderr, "only the terminal may answer")

	b.Write(t, b.Project+"/pikuri/confirm", "require command /bin/true\n")
	require.NoError(t, os.Chmod(b.Project+"/pikuri/confirm", 0o600))
	require.NoError(t, os.Remove(pin))
	b.Env = []string{"XDG_CONFIG_HOME=" + b.Project}
	assert.Contains(t, run(t, b, "true").Stderr, "it lies in the writable root")

	require.NoError(t, os.Remove(b.Project+"/pikuri/confirm"))
	require.NoError(t, syscall.Mkfifo(b.Project+"/pikuri/confirm", 0o600))
	assert.Contains(t, run(t, b, "true").Stderr, "it is not a file")
}

// ask starts a command on a terminal and returns the terminal's text when it ended.
func ask(t *testing.T, b *clitest.Box, talk func(*terminal), args ...string) (shown string, status int) {
	t.Helper()
	cmd := b.Command("pk-bash", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	user := startOnTerminal(t, cmd)
	talk(user)
	_ = cmd.Wait()
	return user.screen.String(), cmd.ProcessState.ExitCode()
}

// Text pasted before the question, however slowly it arrives, answers nothing.
func TestPastedAheadIsNoAnswer(t *testing.T) {
	b := clitest.NewBox(t)
	_, status := ask(t, b, func(user *terminal) {
		user.type_(strings.Repeat("y\n", 1000))
		user.await("$ touch in")
		user.type_("y\ny\n") // the question is there, and no user can have read it
		user.await("Run it (y/N)? ")
		user.type_("\n")
	}, "touch in")
	assert.Equal(t, 126, status)
	assert.NoFileExists(t, b.Project+"/in")
}

// A loop that reads its requests from the terminal does not ask there: an answer would be
// read as a request.
func TestRequestsFromTheTerminal(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bash", "--loop")
	var out bytes.Buffer
	user, tty := clitest.Terminal(t)
	cmd.Stdin, cmd.Stdout = tty, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	_, err := user.WriteString(`{"command":"touch in"}` + "\n\x04")
	require.NoError(t, err)
	require.NoError(t, cmd.Run())
	tty.Close()
	assert.Contains(t, out.String(), `"exit_status":126`)
	assert.Contains(t, out.String(), "no terminal to ask on: the loop reads its requests from it: use --yes, or --confirm-command")
	assert.NoFileExists(t, b.Project+"/in")
}

func TestGarbageIsNoAnswer(t *testing.T) {
	b := clitest.NewBox(t)
	_, status := ask(t, b, func(user *terminal) {
		for _, line := range []string{strings.Repeat("y", 3000) + "\n", "\xff\xfe\n", "ok\n", "y n\n", "да\n"} {
			user.await("Run it (y/N)? ")
			user.type_(line)
		}
		user.await("Run it (y/N)? ")
		user.type_("y\x04\x04") // the end of input is no end of a line
	}, "touch in")
	assert.Equal(t, 126, status)
	assert.NoFileExists(t, b.Project+"/in")
}

// The command's text cannot draw a question of its own, nor answer this one.
func TestTheCommandCannotAnswer(t *testing.T) {
	b := clitest.NewBox(t)
	b.Env = []string{"LC_ALL=C.UTF-8"}
	for _, command := range []string{
		"true\nRun it (y/N)? y\n", "true\r\x1b[2K\x1b[1ARun it (y/N)? y\r\n", "printf 'y\\n' >/dev/tty; true", "true \x1b[5n\x1b[c\x1bZ\x05",
		"true" + strings.Repeat(" ", 4000) + "; touch in", "true" + strings.Repeat("\n", 500) + "touch in", "true\x1b]52;c;eQo=\x07", "true \u202e)N/y(\u2066",
	} {
		shown, status := ask(t, b, func(user *terminal) {
			user.await("Run it (y/N)? ")
			for strings.Contains(command, "Run it") && strings.Count(user.screen.String(), "Run it (y/N)? ") < 2 {
				user.await("Run it (y/N)? ")
			}
			user.type_("\n")
		}, command)
		assert.Equal(t, 126, status, "%q", command)
		for _, row := range strings.Split(strings.TrimPrefix(shown, "\r\n"), "\r\n") {
			plain := strings.NewReplacer("\x1b[7m", "", "\x1b[27m", "").Replace(row)
			assert.NotContains(t, plain, "\x1b", "%q", command)
			lead := plain[:min(2, len(plain))]
			assert.Contains(t, []string{"pk", "  ", "$ ", "> ", ">", ". ", "Ru", ""}, lead, "%q", command)
		}
		assert.Contains(t, shown, "\r\nRun it (y/N)? ", "the cue is on a row of its own")
	}
	assert.NoFileExists(t, b.Project+"/in")
}

// A program that draws its own screen has turned off line mode; it finds its
// terminal as it was.
func TestTerminalIsLeftAsItWas(t *testing.T) {
	b := clitest.NewBox(t)
	program := script(t, b, "raw", `stty -icanon -echo -icrnl </dev/tty
before=$(stty -g </dev/tty); "$@"; status=$?
[ "$before" = "$(stty -g </dev/tty)" ] && echo same; exit $status`+"\n")
	for typed, status := range map[string]int{"y\r": 0, "n\r": 126, "\x03": 130} {
		cmd := b.Command("pk-bash", "true")
		cmd.Args = append([]string{program}, cmd.Args...)
		cmd.Path = program
		var out bytes.Buffer
		cmd.Stdout = &out
		user := startOnTerminal(t, cmd)
		user.await("Run it (y/N)? ")
		user.type_(typed)
		_ = cmd.Wait()
		if typed != "\x03" { // the script dies of that as well
			assert.Equal(t, status, cmd.ProcessState.ExitCode())
			assert.Contains(t, out.String(), "same\n")
		}
	}
}
