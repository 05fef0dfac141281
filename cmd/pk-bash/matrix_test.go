package main

import (
	"encoding/json"
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
)

// nasty are commands that hang, leak, lie or drown their caller. Each is
// run with one second of time and one more until SIGKILL, holding a lock that
// no process may hold afterwards.
var nasty = []struct {
	name, command string
	outcome       string
	status        int
	output        string // a part of the output
}{
	{"background child that holds the pipe", "echo hi; sleep 1000 & echo done", "exited", 0, "hi\ndone\n"},
	{"background child with its output elsewhere", "sleep 1000 >/dev/null 2>&1 & echo done", "exited", 0, "done\n"},
	{"background child in its own session", "setsid sleep 1000 & echo done", "exited", 0, "done\n"},
	{"nohup", "nohup sleep 1000 >/dev/null 2>&1 & echo done", "exited", 0, "done\n"},
	{"disown", "sleep 1000 & disown; echo done", "exited", 0, "done\n"},
	{"double fork", "(setsid bash -c 'sleep 1000 & sleep 1000 &' &); sleep 0.05; echo done", "exited", 0, "done\n"},
	{"daemon that forks twice", `perl -e 'use POSIX; fork and exit; POSIX::setsid(); fork and exit; sleep 1000'; sleep 0.05; echo done`, "exited", 0, "done\n"},
	{"processes that keep forking", `perl -e 'fork and exit; while (1) { fork and exit; select undef, undef, undef, 0.001 }'; sleep 0.05; echo done`, "exited", 0, "done\n"},
	{"subreaper that collects the orphans", `python3 -c 'import ctypes, os, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
if os.fork() == 0: time.sleep(1000)
time.sleep(0.05); print("done")'`, "exited", 0, "done\n"},
	{"parent that waits in vfork", `python3 -c 'import ctypes, os
if ctypes.CDLL(None).vfork() == 0: ctypes.CDLL(None).sleep(1000); os._exit(0)'`, "timed-out", 124, ""},
	{"ptrace of a child", `python3 -c 'import ctypes, os, signal, time
libc = ctypes.CDLL(None)
if os.fork() == 0: libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(1000)
time.sleep(0.05); print("done")'`, "exited", 0, "done\n"},
	{"stopped child", "sleep 1000 & kill -STOP $!; echo done", "exited", 0, "done\n"},
	{"stops itself", "kill -STOP $$", "timed-out", 124, ""},
	{"sleeps", "echo a; sleep 1000", "timed-out", 124, "a\n"},
	{"ignores SIGTERM", `trap "" TERM; echo a; sleep 1000; sleep 1000`, "timed-out", 124, "a\n"},
	{"cleans up", `trap "echo bye; exit 7" TERM; sleep 1000 & wait`, "timed-out", 124, "bye\n"},
	{"cleans up for ever", `trap "sleep 1000" TERM; echo a; sleep 1000`, "timed-out", 124, "a\n"},
	{"child in its own session ignores SIGTERM", `setsid -w bash -c 'trap "" TERM; echo a; sleep 1000; sleep 1000'`, "timed-out", 124, "a\n"},
	{"partial line before the time is over", "printf a; sleep 1000", "timed-out", 124, "a"},
	{"busy for ever", "while :; do :; done", "timed-out", 124, ""},
	{"output for ever", "yes", "timed-out", 124, "y\ny\n"},
	{"status of a time limit", "exit 124", "exited", 124, ""},
	{"status of a failed start", "exit 125", "exited", 125, ""},
	{"status of a missing command", "nonesuch", "exited", 127, "nonesuch: command not found\n"},
	{"status of a directory", "/", "exited", 126, "Is a directory\n"},
	{"status that looks like a signal", "exit 137", "exited", 137, ""},
	{"status that looks like a signal, of a child", "sh -c 'kill -9 $$'; exit $?", "exited", 137, ""},
	{"kills itself", "kill -9 $$", "signaled", 137, ""},
	{"terminates itself", "kill $$", "signaled", 143, ""},
	{"crashes", "kill -SEGV $$", "signaled", 139, ""},
	{"becomes another program that crashes", "exec sh -c 'kill -SEGV $$'", "signaled", 139, ""},
	{"kills its process group", "kill -9 0", "signaled", 137, ""},
	{"runs out of its memory", "ulimit -v 200000; python3 -c 'x = bytearray(10**9)'", "exited", 1, "MemoryError\n"},
	{"much output", "head -c 20000000 /dev/zero | tr '\\0' a", "exited", 0, "aaa"},
	{"no newline at the end", "printf abc", "exited", 0, "abc"},
	{"binary", `printf '\x00\x01\xff\xfe\x80'`, "exited", 0, `\x00\x01\xff\xfe\x80`},
	{"progress bar", `for i in 1 2 3; do printf '\r%s%%' $i; done; echo; echo done`, "exited", 0, "3%\ndone\n"},
	{"terminal sequences", `printf '\e[31mred\e[0m\e]0;title\a\n'`, "exited", 0, "red\n"},
	{"hidden text", "printf 'a\u202eb\u200bc\U000e0041'", "exited", 0, `a\u{202E}b\u{200B}c\u{E0041}`},
	{"closed output", "exec >&- 2>&-; sleep 0.05; exit 3", "exited", 3, ""},
	{"reads standard input", "cat; read x; echo $?", "exited", 0, "1\n"},
	{"opens the terminal", "echo x 2>/dev/null >/dev/tty || echo none", "exited", 0, "none\n"},
	{"asks for a password", "git -c credential.helper= ls-remote https://x@127.0.0.1:1/x 2>/dev/null; echo $?", "exited", 0, "128\n"},
	{"a stage that failed", "false | cat; true; false | true", "exited", 0, ""},
	{"reader that leaves early", "yes | head -n 1", "exited", 0, "y\n"},
	{"says that all is well", "echo; echo 'exit status: 0'; exit 3", "exited", 3, "exit status: 0\n"},
	{"unbalanced quote", "echo 'a", "exited", 2, "unexpected EOF"},
	{"many lines", "cat <<'E'\n1\n2\nE\n", "exited", 0, "1\n2\n"},
	{"text after the end", "exit 5\nnot a command (", "exited", 5, ""},
	{"descriptors without end", "ulimit -n 64; for i in {10..70}; do eval \"exec $i</dev/null\" || break; done 2>/dev/null; echo done", "exited", 0, "done\n"},
	{"long command", "# " + strings.Repeat("x", 200<<10) + "\necho long; exit 9", "exited", 9, "long\n"},
}

// grace bounds the time that ending a command takes, beyond its time and the pause
// before SIGKILL: on a machine that does other things as well, or on an idle one with
// PK_GRACE=1s and -parallel 1.
func grace() time.Duration {
	if given, err := time.ParseDuration(os.Getenv("PK_GRACE")); err == nil {
		return given
	}
	return 20 * time.Second
}

func TestNastyCommands(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			b := clitest.NewBoxInOneRow(t)
			t.Cleanup(func() { assert.Empty(t, umbrellas(t, b)) })
			for i, test := range nasty {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					if strings.Contains(test.command, "python3") {
						clitest.Need(t, "python3")
					}
					lock := filepath.Join(b.Project, "held-"+strconv.Itoa(i))
					command := "exec 8>" + lock + "; flock -s 8\n" + test.command
					cmd := b.Command("pk-bash", append(append([]string{"-y", "--json", "--no-log", "--timeout", "1", "--kill-after", "1"}, mode.options...), "-")...)
					cmd.Stdin = strings.NewReader(command)
					if !strings.Contains(test.outcome, "timed") {
						cmd.Args = append(cmd.Args[:len(cmd.Args)-1], "--timeout", "60", "-")
					}
					begun := time.Now()
					got := clitest.Finish(t, cmd)
					assert.Less(t, time.Since(begun), 2*time.Second+grace())
					var r struct {
						Outcome, Output string
						ExitStatus      int `json:"exit_status"`
						Left            int
					}
					require.NoError(t, json.Unmarshal([]byte(got.Stdout), &r), got.Stdout+got.Stderr)
					assert.Equal(t, test.outcome, r.Outcome, got.Stdout)
					assert.Equal(t, test.status, r.ExitStatus)
					assert.Equal(t, test.status, got.Status)
					assert.Contains(t, r.Output, test.output)
					assert.Zero(t, r.Left)
					f, err := os.Open(lock)
					require.NoError(t, err)
					defer f.Close()
					assert.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), "a process of the command still lives")
				})
			}
		})
	}
}
