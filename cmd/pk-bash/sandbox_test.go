package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// run runs one command without asking.
func run(t *testing.T, b *clitest.Box, command string, options ...string) clitest.Outcome {
	t.Helper()
	return b.Run(t, "pk-bash", append(append([]string{"-y"}, options...), "--", command)...)
}

// umbrellas lists the session directories in the cache.
func umbrellas(t *testing.T, b *clitest.Box) []string {
	t.Helper()
	left, err := filepath.Glob(b.Home + "/.cache/pikuri/*workspace*")
	require.NoError(t, err)
	return left
}

// leash hands the command a descriptor that pk-bash must not pass on. When the
// read ends, pk-bash has ended and no other process has it.
func leash(t *testing.T, cmd *exec.Cmd) (allGone func()) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	return func() {
		t.Helper()
		w.Close()
		_, err := r.Read(make([]byte, 1))
		assert.EqualError(t, err, "EOF")
	}
}

// modes are the two ways to run a command.
var modes = []struct {
	name    string
	options []string
	stderr  string
}{
	{"sandboxed", nil, ""},
	{"without a sandbox", []string{"--no-sandbox"}, "pk-bash: warning: no sandbox: the command can read and change all that you can\n" +
		"pk-bash: hint: leave --no-sandbox out; if no sandbox can be made, pk-bwrap --check says what to type\n"},
}

// atRisk is the list in the warning; it depends on the machine.
var atRisk = regexp.MustCompile(`, such as .*`)

func TestWarningNamesWhatIsAtRisk(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/.ssh")
	b.Write(t, b.Home+"/.aws", "")
	b.Write(t, b.Home+"/.bashrc", "")
	got := run(t, b, "true", "--no-sandbox")
	assert.Contains(t, got.Stderr, fmt.Sprintf("pk-bash: warning: no sandbox: the command can read and change all that you can, such as %q and %q\n", b.Home+"/.ssh", b.Home+"/.aws"))
}

func TestCommands(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	for _, mode := range modes {
		// A process that has just begun has the name of its parent.
		name := regexp.MustCompile(`command: "[^"]*"`)
		survivor := "ended with the command: \"sleep 1000\" (1 process); use a job of --loop\n"
		if mode.options == nil {
			survivor = strings.Replace(survivor, "loop", "loop, or --keep-background", 1)
		}
		for _, test := range []struct {
			name, command string
			status        int
			output        string
		}{
			{"output", "echo hi", 0, "$ echo hi\nhi\n\nexit status: 0\n"},
			{"status", "exit 7", 7, "$ exit 7\n\nexit status: 7\n"},
			{"status of a time limit", "exit 124", 124, "$ exit 124\n\nexit status: 124\n"},
			{"both streams in order", "echo a; echo b >&2; echo c", 0, "$ echo a; echo b >&2; echo c\na\nb\nc\n\nexit status: 0\n"},
			{"command not found", "nonesuch 2>/dev/null", 127, "$ nonesuch 2>/dev/null\n\nexit status: 127\n"},
			{"killed by itself", "kill -9 $$", 137, "$ kill -9 $$\n\nexit status: 137\n"},
			{"a dash first", "-x", 127, "$ -x\nbash: line 1: -x: command not found\n\nexit status: 127\n"},
			{"an option of bash", "--version", 127, "$ --version\nbash: line 1: --version: command not found\n\nexit status: 127\n"},
			{"reads nothing", "cat; read x; echo $?", 0, "$ cat; read x; echo $?\n1\n\nexit status: 0\n"},
			{"has no terminal", "echo x 2>/dev/null >/dev/tty || echo none", 0, "$ echo x 2>/dev/null >/dev/tty || echo none\nnone\n\nexit status: 0\n"},
			{"background child that holds the pipe", "echo hi; sleep 1000 &", 0, "$ echo hi; sleep 1000 &\nhi\n\n" + survivor + "exit status: 0\n"},
			{"background child in a session of its own", "setsid sleep 1000 & echo hi", 0, "$ setsid sleep 1000 & echo hi\nhi\n\n" + survivor + "exit status: 0\n"},
			{"closed streams", "exec >&- 2>&-; sleep 0.01; exit 3", 3, "$ exec >&- 2>&-; sleep 0.01; exit 3\n\nexit status: 3\n"},
			{"bytes that are not text", `printf '\x1b[1m\xff\x00'`, 0, `$ printf '\x1b[1m\xff\x00'` + "\n" + `\xff\x00` + "\n\n(1 control sequence removed)\nexit status: 0\n"},
			{"marks itself", "echo $PK_BASH", 0, "$ echo $PK_BASH\n1\n\nexit status: 0\n"},
		} {
			t.Run(mode.name+"/"+test.name, func(t *testing.T) {
				cmd := b.Command("pk-bash", append(append([]string{"-y"}, mode.options...), "--", test.command)...)
				allGone := leash(t, cmd)
				got := clitest.Finish(t, cmd)
				got.Stderr = atRisk.ReplaceAllString(got.Stderr, "")
				got.Stdout = name.ReplaceAllString(got.Stdout, `command: "sleep 1000"`)
				assert.Equal(t, clitest.Outcome{Stdout: test.output, Stderr: mode.stderr, Status: test.status}, got)
				allGone()
			})
		}
	}
	assert.Empty(t, umbrellas(t, b))
}

func TestTimeouts(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		for _, test := range []struct{ name, command, output string }{
			{"sleeps", "echo a; sleep 1000", "Error: command timed out after 1s (sent SIGTERM).\n\n$ echo a; sleep 1000\na\n\nexit status: 124\n"},
			{"cleans up", `trap "echo bye; exit 0" TERM; sleep 1000 & wait`, "Error: command timed out after 1s (sent SIGTERM).\n\n$ trap \"echo bye; exit 0\" TERM; sleep 1000 & wait\nbye\n\nexit status: 124\n"},
			{"ignores the signal", `trap "" TERM; echo a; sleep 1000`, "Error: command timed out after 1s (sent SIGTERM, then SIGKILL).\n\n$ trap \"\" TERM; echo a; sleep 1000\na\n\nexit status: 124\n"},
		} {
			t.Run(mode.name+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				cmd := b.Command("pk-bash", append(append([]string{"-y", "--timeout", "1", "--kill-after", "1"}, mode.options...), "--", test.command)...)
				allGone := leash(t, cmd)
				got := clitest.Finish(t, cmd)
				assert.Equal(t, test.output, got.Stdout)
				assert.Equal(t, 124, got.Status)
				allGone()
			})
		}
	}
}

func TestNoProcessIsLeft(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		for _, test := range []struct{ name, command string }{
			{"plain child", "sleep 1000 &"},
			{"child in its own session", "setsid sleep 1000 & sleep 0.05"},
			{"double fork", "(setsid bash -c 'sleep 1000 & sleep 1000 &' &) ; sleep 0.05"},
			{"child that ignores signals", "bash -c 'trap \"\" TERM HUP INT; sleep 1000' & sleep 0.05"},
			{"stopped child", "sleep 1000 & kill -STOP $!"},
		} {
			t.Run(mode.name+"/"+test.name, func(t *testing.T) {
				// Each process of the command holds this file open and locked.
				lock := filepath.Join(b.Project, "held")
				command := fmt.Sprintf("exec 8>%s; flock -s 8; %s", lock, test.command)
				got := run(t, b, command, mode.options...)
				require.Equal(t, 0, got.Status, got.Stdout)
				f, err := os.Open(lock)
				require.NoError(t, err)
				defer f.Close()
				assert.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), "a process of the command still lives")
			})
		}
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			cmd := b.Command("pk-bash", append(mode.options, "-y", "--raw", `trap "echo bye; exit 9" TERM; echo ready; sleep 1000 & wait`)...)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			buf := make([]byte, 64)
			n, err := out.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "ready\n", string(buf[:n]))
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			n, err = out.Read(buf)
			require.NoError(t, err)
			assert.Equal(t, "bye\n", string(buf[:n]))
			_ = cmd.Wait()
			assert.Equal(t, 9, cmd.ProcessState.ExitCode())
			assert.Empty(t, umbrellas(t, b))
		})
	}
}

// A reader that makes a pause after the command has ended gets all of the output.
func TestReaderThatPauses(t *testing.T) {
	b := clitest.NewBox(t)
	require.NoError(t, unix.Mkfifo(b.Project+"/ended", 0o666))
	cmd := b.Command("pk-bash", "-y", "--raw", "yes | head -c 300000; echo >ended")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = os.ReadFile(b.Project + "/ended")
	require.NoError(t, err)
	time.Sleep(600 * time.Millisecond) // a pipe that is silent counts as held by another process after 200
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	assert.Len(t, text, 300000)
}

// A signal that comes while a reader does not take the last output is in the status: the
// output is not whole.
func TestSignalCutsOutput(t *testing.T) {
	b := clitest.NewBox(t)
	for name, options := range map[string][]string{
		"sandboxed": nil, "without a sandbox": {"--no-sandbox"}, "keep background": {"--keep-background", "--session", "s"},
	} {
		t.Run(name, func(t *testing.T) {
			ended := filepath.Join(b.Project, "ended")
			require.NoError(t, unix.Mkfifo(ended, 0o666))
			cmd := b.Command("pk-bash", append(options, "-y", "--raw", `yes | head -c 120000; sleep 1000 & echo >ended`)...)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = os.ReadFile(ended)
			require.NoError(t, err)
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			state, err := cmd.Process.Wait()
			require.NoError(t, err)
			assert.Equal(t, 143, state.ExitCode())
			require.NoError(t, out.Close())
			require.NoError(t, os.Remove(ended))
			_ = b.Run(t, "pk-sweep", "--session", "s", "--background")
		})
	}
}

// Under nohup(1), a terminal that goes away ends no command.
func TestIgnoredHangup(t *testing.T) {
	b := clitest.NewBox(t)
	for name, options := range map[string][]string{
		"sandboxed": nil, "without a sandbox": {"--no-sandbox"}, "keep background": {"--keep-background", "--session", "s"},
	} {
		t.Run(name, func(t *testing.T) {
			proceed := filepath.Join(b.Project, "go")
			cmd := b.Command("pk-bash", append(options, "-y", "--raw", `echo ready; until [ -e go ]; do sleep 0.02; done; echo done`)...)
			cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/sh"
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			reader := bufio.NewReader(out)
			line, err := reader.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", line)
			require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
			require.NoError(t, os.WriteFile(proceed, nil, 0o644))
			rest, err := io.ReadAll(reader)
			require.NoError(t, err)
			assert.Equal(t, "done\n", string(rest))
			assert.NoError(t, cmd.Wait())
			require.NoError(t, os.Remove(proceed))
		})
	}
}

// The cuts are between lines, and the omitted text is in a log that outlives the
// command.
func TestLongOutputIsCut(t *testing.T) {
	b := clitest.NewBox(t)
	var whole strings.Builder
	for i := range 100000 {
		fmt.Fprintln(&whole, i+1)
	}
	for _, options := range [][]string{nil, {"--no-sandbox"}, {"--session", "s"}} {
		got := run(t, b, "seq 1 100000", options...)
		require.Equal(t, 0, got.Status)
		assert.Less(t, len(got.Stdout), 31*1024)
		assert.Contains(t, got.Stdout, "$ seq 1 100000\n1\n2\n")
		cut := regexp.MustCompile(`\n(\d+)\n\.\.\. \[(\d+) bytes omitted of 588895 total; full output: (/.*)\] \.\.\.\n(\d+)\n`).FindStringSubmatch(got.Stdout)
		require.NotNil(t, cut, got.Stdout)
		assert.Contains(t, whole.String(), "\n"+cut[1]+"\n")
		assert.Contains(t, whole.String(), "\n"+cut[4]+"\n")
		omitted := whole.String()[strings.Index(whole.String(), "\n"+cut[1]+"\n")+len(cut[1])+2 : strings.Index(whole.String(), "\n"+cut[4]+"\n")+1]
		assert.Equal(t, cut[2], strconv.Itoa(len(omitted)))
		assert.True(t, strings.HasSuffix(got.Stdout, "\n99999\n100000\n\nexit status: 0\n"))
		log, err := os.ReadFile(cut[3])
		require.NoError(t, err)
		assert.Equal(t, whole.String(), string(log))
		assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--older-than", "0s"))
	}
	assert.Empty(t, umbrellas(t, b))

	got := run(t, b, "printf abcdefgh", "--head", "2", "--tail", "3", "--no-log")
	assert.Equal(t, "$ printf abcdefgh\nab\n... [3 bytes omitted of 8 total] ...\nfgh\n\nexit status: 0\n", got.Stdout)
	assert.Empty(t, umbrellas(t, b))
}

func TestRawIsRaw(t *testing.T) {
	b := clitest.NewBox(t)
	got := run(t, b, `printf 'a\x00\xff'; printf b >&2; exit 4`, "--raw")
	assert.Equal(t, clitest.Outcome{Stdout: "a\x00\xff", Stderr: "b", Status: 4}, got)

	got = b.Run(t, "pk-bash", "-y", "--raw", "-c", "seq 1 200000 | tail -n 1")
	assert.Equal(t, clitest.Outcome{Stdout: "200000\n"}, got)
}

func TestJSONTellsHowItEnded(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		for _, test := range []struct {
			name    string
			args    []string
			outcome string
			status  int
			signal  any
		}{
			{"exited", []string{"-y", "exit 3"}, "exited", 3, nil},
			{"exited with the status of a time limit", []string{"-y", "exit 124"}, "exited", 124, nil},
			{"signaled", []string{"-y", "kill -9 $$"}, "signaled", 137, "SIGKILL"},
			{"timed out", []string{"-y", "--timeout", "1", "sleep 1000"}, "timed-out", 124, nil},
			{"declined", []string{"-n", "true"}, "declined", 126, nil},
			{"refused", []string{"-y", " "}, "refused", 125, nil},
			{"workspace that is missing", []string{"-y", "-C", "nonesuch", "true"}, "refused", 125, nil},
		} {
			t.Run(mode.name+"/"+test.name, func(t *testing.T) {
				got := b.Run(t, "pk-bash", append(append([]string{"--json"}, mode.options...), test.args...)...)
				var record map[string]any
				require.NoError(t, json.Unmarshal([]byte(got.Stdout), &record), got.Stdout)
				assert.Equal(t, test.outcome, record["outcome"])
				assert.Equal(t, float64(test.status), record["exit_status"])
				if test.outcome != "timed-out" {
					assert.Equal(t, test.signal, record["signal"])
				}
				assert.Equal(t, test.status, got.Status)
			})
		}
	}
}

func TestStatusDescriptor(t *testing.T) {
	b := clitest.NewBox(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd := b.Command("pk-bash", "-y", "--raw", "--status-fd", "3", "ls /proc/self/fd; exit 3")
	cmd.ExtraFiles = []*os.File{w}
	got := clitest.Finish(t, cmd)
	w.Close()
	assert.Equal(t, clitest.Outcome{Stdout: "0\n1\n2\n3\n", Status: 3}, got) // 3 is ls's own
	var record map[string]any
	require.NoError(t, json.NewDecoder(r).Decode(&record))
	assert.Equal(t, "exited", record["outcome"])
}

func TestCommandFromStandardInput(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bash", "-y", "-")
	cmd.Stdin = strings.NewReader("cat <<'E'\nhi\nE\n")
	assert.Equal(t, clitest.Outcome{Stdout: "$ cat <<'E'\n> hi\n> E\n> \nhi\n\nexit status: 0\n"}, clitest.Finish(t, cmd))
}

func TestStartUpFilesAreNotRead(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/evil", "echo in\n")
	b.Write(t, b.Home+"/.bashrc", "echo in\n")
	b.Env = []string{"BASH_ENV=" + b.Project + "/evil", "ENV=" + b.Project + "/evil", "BASH_FUNC_ls%%=() { echo in; }", "SHELLOPTS=xtrace", "SSH_CLIENT=x"}
	for _, mode := range modes {
		got := run(t, b, "ls -d /usr", mode.options...)
		assert.Equal(t, "$ ls -d /usr\n/usr\n\nexit status: 0\n", got.Stdout, mode.name)
	}
}

func TestSessionsKeepTheirPlayground(t *testing.T) {
	b := clitest.NewBox(t)
	require.Equal(t, 0, run(t, b, "echo x > /tmp/f", "--session", "s").Status)
	assert.Equal(t, "$ cat /tmp/f\nx\n\nexit status: 0\n", run(t, b, "cat /tmp/f", "--session", "s").Stdout)
	assert.Equal(t, 1, run(t, b, "cat /tmp/f", "--session", "other").Status)
	assert.Equal(t, 1, run(t, b, "cat /tmp/f").Status)
	assert.Equal(t, clitest.Outcome{Stdout: b.Home + "/.cache/pikuri/workspace-s/playground/f\n"},
		b.Run(t, "pk-resolve", "--session", "s", "--write", "/tmp/f"))
}

// The scratch directory of a command has the same name inside and out.
func TestPlaygroundIsSeenAtItsOwnPlace(t *testing.T) {
	b := clitest.NewBox(t)
	got := run(t, b, "echo x > /tmp/f; cat ~/.cache/pikuri/workspace-*/playground/f")
	assert.Contains(t, got.Stdout, "\nx\n\nexit status: 0\n")
	assert.Empty(t, umbrellas(t, b))
}

// No terminal is not the user's no.
func TestNobodyToAsk(t *testing.T) {
	b := clitest.NewBox(t)
	const why = "no terminal to ask on: use --yes, or --confirm-command"
	for _, test := range []struct{ name, option, stdout string }{
		{"for people", "--no-follow", "Error: " + why + "\n"},
		{"JSON", "--json", `{"command":"touch in","outcome":"refused","exit_status":126,"error":"` + why + `"}` + "\n"},
		{"raw", "--raw", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := b.Command("pk-bash", test.option, "touch in")
			cmd.Stdin = strings.NewReader("y\n")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			assert.Equal(t, clitest.Outcome{Stdout: test.stdout, Stderr: "pk-bash: " + why + "\n", Status: 126}, clitest.Finish(t, cmd))
			assert.NoFileExists(t, b.Project+"/in")
			assert.Empty(t, umbrellas(t, b))
		})
	}
}

// Each refusal is printed once on standard error, with --raw too.
func TestRefusalsAreSaidOnce(t *testing.T) {
	b := clitest.NewBox(t)
	for _, test := range []struct {
		name   string
		args   []string
		stderr string
		status int
	}{
		{"declined", []string{"-n", "true"}, "pk-bash: user declined the bash command.\n", 126},
		{"an empty command", []string{"-y", " "}, "pk-bash: empty bash command.\n", 125},
		{"a workspace that is missing", []string{"-y", "-C", "/nonesuch", "true"}, "pk-bash: cannot use \"/nonesuch\" as the project root: no such file or directory\n", 125},
		{"a time that is too long", []string{"-y", "--timeout", "700", "touch in"}, "pk-bash: option \"--timeout\": \"700\" is not between 1 and 600\n", 125},
		{"a time that is none", []string{"-y", "--timeout", "1.5", "touch in"}, "pk-bash: option \"--timeout\": \"1.5\" is not a whole number\n", 125},
		{"a time that is too long for requests", []string{"--loop", "--timeout", "601"}, "pk-bash: option \"--timeout\": \"601\" is not between 1 and 600\n", 125},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := b.Run(t, "pk-bash", append([]string{"--raw"}, test.args...)...)
			said, _, _ := strings.Cut(got.Stderr, "pk-bash: hint: ")
			assert.Equal(t, test.stderr, said)
			assert.Empty(t, got.Stdout)
			assert.Equal(t, test.status, got.Status)
			assert.NoFileExists(t, b.Project+"/in")
		})
	}
}

func TestAnswers(t *testing.T) {
	b := clitest.NewBox(t)
	for _, test := range []struct {
		name   string
		typed  []string
		status int
	}{
		{"y", []string{"y\n"}, 0},
		{"yes in capitals", []string{"YES\n"}, 0},
		{"n", []string{"n\n"}, 126},
		{"nothing", []string{"\n"}, 126},
		{"the end of input", []string{"\x04"}, 126},
		{"neither, then y", []string{"what?\n", "y\n"}, 0},
		{"neither, then nothing", []string{"yy\n", "\n"}, 126},
		{"an interrupt", []string{"\x03"}, 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := b.Command("pk-bash", "--description", "make a file", "touch in")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			user := startOnTerminal(t, cmd)
			for _, line := range test.typed {
				user.await("Run it (y/N)? ")
				user.type_(line)
			}
			_ = cmd.Wait()
			assert.Equal(t, test.status, clitest.Status(cmd.ProcessState), stderr.String())
			assert.Contains(t, user.screen.String(), "\r\n  sandboxed, with the network of the host, 120 s\r\n  description: make a file\r\n$ touch in\r\n")
			assert.Empty(t, umbrellas(t, b))
			if test.status == 0 {
				assert.NoError(t, os.Remove(b.Project+"/in"))
			} else {
				assert.NoFileExists(t, b.Project+"/in")
			}
		})
	}
}

func TestWhatWasTypedBeforeTheQuestionIsNoAnswer(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bash", "touch in")
	user := startOnTerminal(t, cmd)
	user.type_("y\ny\ny\n")
	user.await("Run it (y/N)? ")
	user.type_("n\n")
	_ = cmd.Wait()
	assert.NoFileExists(t, b.Project+"/in")
}

func TestAReaderThatHasGoneEndsTheCommand(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		for _, output := range [][]string{{"--raw"}, nil} {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			command := "yes"
			if output == nil {
				command = "echo hi" // the observation is written at the end
			}
			cmd := b.Command("pk-bash", append(append(append([]string{"-y"}, output...), mode.options...), command)...)
			cmd.Stdout = w
			r.Close()
			require.NoError(t, cmd.Start())
			w.Close()
			_ = cmd.Wait()
			assert.Equal(t, 141, cmd.ProcessState.ExitCode(), "%s %v", mode.name, output)
			assert.Empty(t, umbrellas(t, b))
		}
	}
}

// A directory that was left open would be a way out of any sandbox.
func TestInheritedDescriptorsAreClosed(t *testing.T) {
	b := clitest.NewBox(t)
	dir, err := os.Open("/")
	require.NoError(t, err)
	defer dir.Close()
	for _, mode := range modes {
		cmd := b.Command("pk-bash", append(mode.options, "-y", "ls /proc/self/fd")...)
		cmd.ExtraFiles = make([]*os.File, 60)
		cmd.ExtraFiles[59] = dir // descriptor 62
		assert.Equal(t, "$ ls /proc/self/fd\n0\n1\n2\n3\n\nexit status: 0\n", clitest.Finish(t, cmd).Stdout, mode.name)
	}
}

// A command that is too long for an argument runs as a short one does.
func TestLongCommand(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		for _, command := range []string{
			"echo $_; return 3; echo $?\nnonesuch; ls /proc/self/fd; ls /proc/$$/fd; echo $0 $# $LINENO ${#BASH_SOURCE[@]} ${BASH_EXECUTION_STRING%%#*}\nset -v\ntrap 'echo failed' ERR; false && true",
			"set -e; false | cat\nx=${x:?y}; echo $x",
		} {
			run := func(padding int) clitest.Outcome {
				cmd := b.Command("pk-bash", append(mode.options, "-y", "--raw", "-")...)
				cmd.Stdin = strings.NewReader(command + "\n" + strings.Repeat(" ", padding) + "# the end")
				return clitest.Finish(t, cmd)
			}
			short, long := run(0), run(128<<10)
			long.Stderr = strings.ReplaceAll(long.Stderr, strings.Repeat(" ", 128<<10), "")
			assert.Equal(t, short, long, command)
		}
	}
}

// Nothing of the code with which bash tells of a pipeline is seen.
func TestNoCodeOfOursIsSeen(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		output := func(command string) (output string, pipeline []int) {
			var result struct {
				Output   string
				Pipeline []int
			}
			got := b.Run(t, "pk-bash", append(mode.options, "-y", "--json", command)...)
			require.NoError(t, json.Unmarshal([]byte(got.Stdout), &result), got)
			return result.Output, result.Pipeline
		}
		text, _ := output("echo $_; trap -p EXIT DEBUG ERR RETURN; declare -F; declare -p __ ___; false | true")
		assert.Equal(t, "bash\nbash: line 1: declare: __: not found\nbash: line 1: declare: ___: not found\n", text, mode.name)
		text, _ = output("set -v; false | true\nexit")
		assert.Equal(t, "exit\n", text, mode.name)
		text, pipeline := output("exec 7>&1; BASH_XTRACEFD=7; PS4=; set -x; false | false | false; true | false | :")
		assert.NotContains(t, text, "trap", mode.name)
		assert.Equal(t, 6, strings.Count(text, "\n"), text)
		assert.Equal(t, []int{0, 1, 0}, pipeline, mode.name)
	}
}

// Bash tells pk of a pipeline and of its state by a socket, which no program of the command has.
func TestNoProgramHasTheSocketOfBash(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		got := b.Run(t, "pk-bash", append(mode.options, "-y", "--json", "false | ls /proc/self/fd; ls /proc/self/fd | cat; exec ls /proc/self/fd")...)
		var result struct{ Output string }
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &result), got)
		assert.Equal(t, strings.Repeat("0\n1\n2\n3\n", 3), result.Output, mode.name)
	}
	cmd := b.Command("pk-bash", "-y", "false | ls /proc/self/fd; ulimit -Sn")
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -Sn 64; exec "$@"`, "sh"}, cmd.Args...)
	assert.Contains(t, clitest.Finish(t, cmd).Stdout, "Sn\n0\n1\n2\n3\n64\n")
	c := dial(t, b, "-y", "--state", "env")
	for range 2 {
		assert.Equal(t, "0\n1\n2\n3\n", c.ask(`{"command":"cd /tmp; ls /proc/self/fd"}`)["output"])
	}
	assert.NoError(t, c.close())
}

// Ctrl-C reaches the command, not the sandbox around it.
func TestInterruptOnTheTerminal(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			cmd := b.Command("pk-bash", append(mode.options, "-y", "--raw", `trap "exit 9" INT; echo ready; sleep 1000 & wait`)...)
			cmd.Stdout = w
			user := startOnTerminal(t, cmd)
			w.Close()
			_, err = r.Read(make([]byte, 16))
			require.NoError(t, err)
			user.type_("\x03")
			_ = cmd.Wait()
			assert.Equal(t, 9, cmd.ProcessState.ExitCode())
		})
	}
}

func TestRefusalsLeaveNothing(t *testing.T) {
	b := clitest.NewBox(t)
	before := clitest.Listing(t, filepath.Dir(b.Home))
	for _, args := range [][]string{
		{"-y", "-C", "/nonesuch", "true"}, {"-y", "--bwrap", "/nonesuch", "true"}, {"-y", "--readable", "/nonesuch", "true"},
		{"-y", "--readable", "/run", "true"}, {"-y", "--setenv", "x", "true"}, {"-y", " "}, {"-y", "--timeout", "0", "true"},
		{"-y", "--status-fd", "99", "touch in"}, {"-y", "-n", "true"},
	} {
		got := b.Run(t, "pk-bash", args...)
		assert.Equal(t, 125, got.Status, args)
		assert.Equal(t, before, clitest.Listing(t, filepath.Dir(b.Home)), args)
	}
}

// A command could put a link where the session directories are.
func TestSessionDirectoriesInTheProjectAreRefused(t *testing.T) {
	b := clitest.NewBox(t)
	b.Env = []string{"XDG_CACHE_HOME=" + b.Project + "/.cache"}
	for _, options := range [][]string{nil, {"--session", "s"}} {
		got := run(t, b, "true", options...)
		assert.Equal(t, 125, got.Status)
		assert.Contains(t, got.Stderr, fmt.Sprintf("it lies in the writable root %q\npk-bash: hint: set XDG_CACHE_HOME", b.Project))
		assert.NoDirExists(t, b.Project+"/.cache")
	}
	b.Mkdir(t, b.Home+"/victim")
	require.NoError(t, os.Symlink(b.Home+"/victim", b.Project+"/.cache"))
	for _, options := range [][]string{nil, {"--session", "s"}} {
		assert.Equal(t, 125, run(t, b, "true", options...).Status)
		assert.NoDirExists(t, b.Home+"/victim/pikuri")
	}
}

// A full disk of the cache is told of with its directory, wherever pk needs a file there.
func TestFullCache(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	clitest.Need(t, "unshare")
	b.Mkdir(t, b.Home+"/.cache")
	require.NoError(t, exec.Command("git", "init", "-q", b.Project).Run())
	for files := 1; files < 400; files += 3 {
		cmd := b.Command("pk-bwrap", "--", "echo", "ok") // pk-bash would ask for the PIN of root, which an ordinary user is there
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs -o nr_inodes=$0 none "$HOME/.cache" && exec "$@"' "$@"`, "sh", strconv.Itoa(files)}, cmd.Args...)
		got := clitest.Finish(t, cmd)
		if got.Status == 0 {
			assert.Greater(t, files, 10)
			return
		}
		lines := strings.Split(got.Stderr, "\n")
		require.Len(t, lines, 3, "%d files: %s", files, got.Stderr)
		assert.Contains(t, lines[0], "no space left on device")
		assert.Equal(t, fmt.Sprintf("pk-bwrap: hint: free space in %q, or set XDG_CACHE_HOME to a directory on another disk", b.Home+"/.cache/pikuri"), lines[1])
	}
	t.Error("no command begins with 400 files")
}

func TestTmpIsThePlayground(t *testing.T) {
	b := clitest.NewBox(t)
	got := run(t, b, "true", "--no-alias-tmp")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "pk-bash: hint: leave --no-alias-tmp out\n")
}

func TestASignalWhilePreparing(t *testing.T) {
	b := clitest.NewBox(t)
	require.NoError(t, syscall.Mkfifo(b.Home+"/list", 0o600))
	cmd := b.Command("pk-bash", "-y", "--readable-from", b.Home+"/list", "true")
	require.NoError(t, cmd.Start())
	list, err := os.OpenFile(b.Home+"/list", os.O_WRONLY, 0) // returns when pk-bash reads it
	require.NoError(t, err)
	defer list.Close()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode())
	assert.NoDirExists(t, b.Home+"/.cache")
}

func TestASignalAtAnyMoment(t *testing.T) {
	b := clitest.NewBox(t)
	for i := range 30 {
		cmd := b.Command("pk-bash", "-y", "--kill-after", "600", "sleep 1000")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(5*i) * time.Millisecond) // a different moment each time
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait() // and not after ten minutes
		assert.Equal(t, 143, clitest.Status(cmd.ProcessState))
	}
	assert.Empty(t, umbrellas(t, b))
}

// The command writes without end, and the output has no reader.
func TestAReaderThatStallsDoesNotStopTheClock(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		cmd := b.Command("pk-bash", append(mode.options, "-y", "--raw", "--timeout", "1", "yes")...)
		cmd.Stdout = w
		require.NoError(t, cmd.Start())
		w.Close()
		_ = cmd.Wait()
		r.Close()
		assert.Equal(t, 124, cmd.ProcessState.ExitCode(), mode.name)
		assert.Empty(t, umbrellas(t, b))
	}
}

func TestLostOutputIsNoSuccess(t *testing.T) {
	b := clitest.NewBox(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	var stderr bytes.Buffer
	cmd := b.Command("pk-bash", "-y", "--raw", "echo x")
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Equal(t, "pk-bash: cannot write the command's output: no space left on device\n", stderr.String())
}

func TestWithoutBash(t *testing.T) {
	b := clitest.NewBox(t)
	b.Env = []string{"PATH=/nonesuch"}
	for _, mode := range modes {
		got := run(t, b, "true", mode.options...)
		assert.Equal(t, 127, got.Status, mode.name)
		assert.Contains(t, got.Stderr, "bash")
		assert.Empty(t, umbrellas(t, b))
	}
}

// The result lists the guarantees that held, so that its reader need not ask again.
func TestWhatHeldIsToldInJSON(t *testing.T) {
	b := clitest.NewBox(t)
	held := func(options ...string) []string {
		var result struct{ Guarantees []string }
		got := run(t, b, "true", append(options, "--json")...)
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &result), got.Stderr)
		return result.Guarantees
	}
	assert.Subset(t, held(), []string{"files", "processes", "protect"})
	assert.NotContains(t, held(), "network")
	assert.Contains(t, held("--net", "none"), "network")
	assert.NotContains(t, held("--no-protect"), "protect")
	assert.Empty(t, held("--no-sandbox"))
}

// A readable root around the session directories shows none of them but the session
// tmp of the command, from the first command on.
func TestRootsAroundTheSessions(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/.cache")
	b.Run(t, "pk-bash", "-y", "--session", "other", "--", "echo secret >/tmp/f")
	for _, root := range []string{b.Home, b.Home + "/.cache"} {
		for _, options := range [][]string{nil, {"--session", "s"}, {"--session", "s", "--net", "none"}} {
			got := run(t, b, "echo kept >/tmp/f && cat /tmp/f; ls ~/.cache/pikuri | wc -l; cat ~/.cache/pikuri/workspace-other/playground/f",
				append([]string{"--raw", "--readable", root}, options...)...)
			assert.Equal(t, "kept\n1\n", got.Stdout, got.Stderr)
			assert.NotContains(t, got.Stderr, "cannot make")
		}
	}
}

// A start without enough descriptors is refused before its first step: one message,
// and nothing of it stays.
func TestTooFewDescriptors(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/.cache/pip")
	for _, limit := range []int{12, 14, 15, 30, 57, 127, 128, 255, 256, 300, 400} {
		for _, session := range []string{"", "--session s"} {
			cmd := b.Command("pk-bash")
			cmd.Path = "/bin/sh"
			cmd.Args = []string{"sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s/pk-bash -y --raw --bwrap %s %s 'echo ok'", limit, b.Bin, b.Bwrap, session)}
			got := clitest.Finish(t, cmd)
			if limit >= 256 {
				assert.Equal(t, 0, got.Status, got.Stderr)
				continue
			}
			assert.Equal(t, 125, got.Status, "%d %s: %s", limit, session, got.Stderr)
			assert.Contains(t, got.Stderr, "too many open files", "%d %s", limit, session)
			assert.Contains(t, got.Stderr, "pk-bash: hint: ", "%d %s", limit, session)
			assert.Equal(t, 2, strings.Count(got.Stderr, "\n"), "%d %s: %s", limit, session, got.Stderr)
		}
	}
	b.Run(t, "pk-sweep", "--session", "s")
	assert.Empty(t, umbrellas(t, b))
}

// Without pending signals there is no gate. A start that needs one is refused, and the next
// one of the session, without the limit, is not affected.
func TestTooFewSignals(t *testing.T) {
	b := clitest.NewBox(t)
	for _, options := range []string{"--session s --net none", "--net allow --allow-host a.test"} {
		cmd := b.Command("pk-bash")
		cmd.Path = "/bin/bash"
		cmd.Args = []string{"bash", "-c", fmt.Sprintf("ulimit -i 0; exec %s/pk-bash -y --raw --bwrap %s %s 'echo ok'", b.Bin, b.Bwrap, options)}
		got := clitest.Finish(t, cmd)
		assert.Equal(t, 125, got.Status, got.Stderr)
		assert.Contains(t, got.Stderr, "too few signals may be pending: the limit is 0")
		assert.Contains(t, got.Stderr, "pk-bash: hint: raise the limit: ulimit -i ")
	}
	got := run(t, b, "echo ok", "--raw", "--session", "s", "--net", "none")
	assert.Equal(t, "ok\n", got.Stdout, got.Stderr)
}

// A command that survives SIGXCPU dies of SIGKILL, and only its processor time tells which
// limit that was.
func TestLimitsAreNamed(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	got := run(t, b, `trap "" XCPU; while :; do :; done`, "--cpu-time", "1", "--json")
	assert.Equal(t, 137, got.Status)
	assert.Contains(t, got.Stdout, `"limit":"cpu-time"`)
	for _, command := range []string{"head -c 9000 /dev/zero >f", "head -c 9000 /dev/zero >f; exit $?"} {
		got = run(t, b, command, "--file-size", "4K", "--json")
		assert.Equal(t, 153, got.Status, got.Stdout)
		assert.Contains(t, got.Stdout, `"limit":"file-size"`)
	}
}

// TestFirstThreadEnded leaves a process whose first thread has ended: it is a zombie that runs.
func TestFirstThreadEnded(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	clitest.Need(t, "python3")
	b.Write(t, b.Project+"/thread.py", `
import ctypes, os, threading, time
def stay():
    while " Z " not in open("/proc/self/stat").read(): pass
    open("gone", "w").close()
    time.sleep(1000)
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
`)
	got := run(t, b, "python3 thread.py >/dev/null & until test -e gone; do :; done; exit 5", "--json")
	assert.Equal(t, 5, got.Status)
	assert.Regexp(t, `"outcome":"exited".*"survivors":1,"ended":\["python3[0-9.]*"\]`, got.Stdout)
}
