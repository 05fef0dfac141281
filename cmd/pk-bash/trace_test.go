package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// TestTrace runs a table of commands that say nothing of the paths that they fail at.
func TestTrace(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	clitest.Need(t, "python3")
	b.Project = b.Home + "/src/project"
	b.Env = []string{"PATH=" + b.Home + "/bin:" + os.Getenv("PATH")}
	for _, path := range []string{"src/sibling/file", "src/project/.env", "src/project/keys/a", "src/project/.vscode/tasks.json", "src/project/sub/x", "src/project/main.c",
		"data/set.csv", "data/a\nfence: b", ".config/tool/conf", ".config/gh/hosts.yml", "shown/file", "docs/manual.txt"} {
		b.Write(t, b.Home+"/"+path, "x\n")
	}
	b.Script(t, b.Home+"/bin/mytool", "echo hi\n")
	b.Script(t, b.Project+"/try.py", `import os, sys, threading
def work():
    try:
        eval(sys.argv[1])
    except OSError:
        print("failed")
        os._exit(int(sys.argv[2]))
work() if len(sys.argv) < 4 else threading.Thread(target=work).start()
`)
	b.Write(t, b.Project+"/conn.py", `import sys
import socket
s = socket.socket(getattr(socket, sys.argv[1]), getattr(socket, sys.argv[2]))
sys.exit(s.connect_ex((sys.argv[3], int(sys.argv[4]))) != 0)
`)
	b.Mkdir(t, b.Home+"/repo/sub")
	const (
		beside   = " (nothing beside a root is shown, or can be written)"
		set      = "~/data/set.csv is not shown (empty home); --readable ~/data/set.csv shows it"
		conf     = "~/.config/tool/conf is not shown (empty home)"
		manual   = "~/docs/manual.txt is not shown (empty home); --readable ~/docs/manual.txt shows it"
		env      = `~/src/project/.env is masked (--deny ".env")`
		keys     = `~/src/project/keys is masked (--deny "keys")`
		tasks    = "~/src/project/.vscode/tasks.json is protected (VS Code: tasks, also such as run when the folder is opened)"
		readable = " is read-only (option --readable); --writable ~/shown allows it"
	)
	t.Run("files", func(t *testing.T) {
		fails(t, b, []failure{
			{"settings, in silence", "cat ~/.config/tool/conf 2>/dev/null; false", conf},
			{"it ended with 0", "cat ~/.config/tool/conf 2>/dev/null || true", conf},
			{"a test", "test -e ~/data/set.csv", set},
			{"a redirection", ": 2>/dev/null <~/data/set.csv", set},
			{"a program that says failed", "python3 try.py 'open(\"HOME/data/set.csv\")' 1", set},
			{"the same, with 0", "python3 try.py 'open(\"HOME/data/set.csv\")' 0", set},
			{"a thread", "python3 try.py 'open(\"HOME/data/set.csv\")' 1 thread", set},
			{"a process apart", "setsid -f sh -c 'cat ~/data/set.csv 2>/dev/null; : >done'; until test -e done; do :; done; rm done", set},
			{"a login", "cat ~/.config/gh/hosts.yml 2>/dev/null", "~/.config/gh/hosts.yml is not shown (empty home)"},
			{"a directory", "cd ~/data 2>/dev/null", "~/data is not shown (empty home); --readable ~/data shows it"},
			{"a sibling, from below", "cd sub && cat ../../sibling/file 2>/dev/null", "~/src/sibling/file is not shown" + beside + "; --readable ~/src/sibling/file shows it"},
			{"an open directory", `python3 try.py 'os.stat("sibling/file", dir_fd=os.open("..", os.O_RDONLY))' 1`, "~/src/sibling/file is not shown" + beside + "; --readable ~/src/sibling/file shows it"},
			{"a program of the home", "env mytool 2>/dev/null", "~/bin/mytool is not shown (empty home); --readable ~/bin shows it"},
			{"the latest first", "cat ~/data/set.csv 2>/dev/null; cat ~/docs/manual.txt 2>/dev/null", manual + "\n" + set},
			{"the output first", "cat ~/docs/manual.txt; cat ~/data/set.csv 2>/dev/null; false", manual + "\n" + set},
			{"the output, once", "cat ~/docs/manual.txt", manual},
			{"a name that is made to deceive", "cat ~/data/a$'\\n'* ~/data/a$'\\n''fence: b' 2>/dev/null", `"HOME/data/a\nfence: b" is not shown (empty home)`},
			{"a readable root, written", "exec 2>/dev/null; : >~/shown/file", "~/shown/file" + readable},
			{"a readable root, a new file", "touch ~/shown/new 2>/dev/null", "~/shown/new" + readable},
			{"a refusal before many searches", "touch ~/shown/new 2>/dev/null; i=0; while [ $((i+=1)) -lt 2000 ]; do test -e ~/docs/$i; done; test -e ~/docs/manual.txt", "~/shown/new" + readable + "\n" + manual},
			{"masked", "cat .env 2>/dev/null", env},
			{"masked, copied", "cp -r . /tmp/copy 2>/dev/null", env},
			{"masked, from below", "cd sub; cat ../.env", env},
			{"the output alone", "echo 'cat: .env: Permission denied'; false", ""},
			{"a masked directory", "cat keys/a 2>/dev/null", keys},
			{"protected", "exec 2>/dev/null; : >.vscode/tasks.json", tasks},
			{"protected, removed", "rm -f .vscode/tasks.json 2>/dev/null", tasks},
			{"a mount point, renamed", "mv .vscode v 2>/dev/null", "~/src/project/.vscode is protected (pinned: VS Code: programs that it starts as servers)"},
			{"copying out", "cp main.c ~/data/ 2>/dev/null", "~/data is not shown (empty home); --writable ~/data shows it"},
			{"not on the host either", "cat ~/none /nonesuch/x none.c 2>/dev/null", ""},
			{"not there for anybody", "mkdir /proc/none 2>/dev/null; : 2>/dev/null >/proc/none", ""},
			{"a closed directory of the project", "mkdir -m 0 c; ls c 2>/dev/null; rmdir c", ""},
			{"the loopback", "python3 conn.py AF_INET SOCK_STREAM 127.0.0.1 9", ""},
			{"nothing fails", "cat main.c", ""},
			{"a session directory", "ls ~/.cache/pikuri 2>/dev/null", ""},
		}, "--trace", "--readable", b.Home+"/shown", "--deny", ".env", "--deny", "keys")
	})
	t.Run("without a network", func(t *testing.T) {
		fails(t, b, []failure{
			{"a host", "python3 conn.py AF_INET SOCK_STREAM 192.0.2.1 443", "no network: 192.0.2.1:443 (option --net none)"},
			{"by IPv6", "python3 conn.py AF_INET6 SOCK_STREAM 2001:db8::1 80", "no network: [2001:db8::1]:80 (option --net none)"},
			{"a name server", "python3 conn.py AF_INET SOCK_DGRAM 192.0.2.1 53", "no network (option --net none)"},
			{"a name server, after a name", "echo 'cannot resolve host: a.example'; python3 conn.py AF_INET SOCK_DGRAM 192.0.2.1 53", "no network: a.example (option --net none); --net allow --allow-host a.example allows it"},
			{"the loopback", "python3 conn.py AF_INET SOCK_STREAM 127.0.0.1 9", ""},
		}, "--trace", "--net", "none")
	})
	t.Run("below the top of a repository", func(t *testing.T) {
		fails(t, b, []failure{{"settings of git are there", "git status 2>/dev/null; true", ""}}, "--trace", "-C", b.Home+"/repo/sub")
	})
	t.Run("a trial", func(t *testing.T) {
		fails(t, b, []failure{
			{"removed by the command", "rm main.c; test -e main.c", ""},
			{"outside", "test -e ~/data/set.csv", set},
		}, "--trace", "--trial", "--session", "trial")
	})
	t.Run("a job, and state", func(t *testing.T) {
		got := answers(t, b, `{"command":"cd sub; x=1; export x"}
{"command":"test $x = 1 && test -e x && cat ../../sibling/file 2>/dev/null"}
`, "--trace", "--state", "env")
		assert.Contains(t, got[1]["fence"], map[string]any{
			"access": "not shown", "path": b.Home + "/src/sibling/file", "rule": "default: nothing beside a root is shown, or can be written",
			"option": "--readable " + b.Home + "/src/sibling/file",
		})
	})
	t.Run("processes that stay", func(t *testing.T) {
		got := run(t, b, "exec 2>/dev/null; cat ~/data/set.csv; sleep 1000 & "+awaitName+"exit 3", "--session", "s", "--trace", "--keep-background", "--json")
		assert.Equal(t, 3, got.Status)
		assert.Contains(t, got.Stdout, `"background":["sleep 1000"]`)
		assert.Contains(t, got.Stdout, `"path":"`+b.Home+`/data/set.csv"`)
		assert.Equal(t, 0, b.Run(t, "pk-sweep", "--session", "s", "--background").Status)
	})
	t.Run("a socket of the host", func(t *testing.T) {
		require.NoError(t, os.Chdir(b.Home)) // the name of a socket is short
		l, err := net.Listen("unix", "socket")
		require.NoError(t, err)
		defer l.Close()
		fails(t, b, []failure{{"", `python3 -c 'import os, socket; os.chdir("HOME"); socket.socket(socket.AF_UNIX).connect("socket")' 2>/dev/null`, "~/socket is not shown (empty home)"}}, "--trace")
	})
}

// follows is a program whose child stops and goes on, is killed, and cannot trace.
const follows = `
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.system("perl -e 'print \"ptrace \", syscall(NUMBER, 0, 0, 0, 0), \" \", $! + 0, \"\\n\"'")
print([l.split()[1] for l in open("/proc/self/status") if l.startswith("TracerPid")])
print(sorted(os.listdir("/proc/self/fd")))
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
    os.kill(os.getppid(), signal.SIGUSR2)
    while True: pass
pid, status = os.waitpid(child, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP)
os.kill(child, signal.SIGCONT)
pid, status = os.waitpid(child, os.WCONTINUED)
print("continued", os.WIFCONTINUED(status))
signal.sigwait([signal.SIGUSR2])
os.kill(child, signal.SIGUSR1)
print("exited", os.waitpid(child, 0)[1] >> 8)
child = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -9 $$"], {})
print("killed", os.waitpid(child, 0)[1])
os.execv("/bin/sh", ["sh", "-c", "exit 5"])
`

// forges stops the sandbox's init with a signal that claims to come from outside.
const forges = `
import ctypes, os, signal, struct
call = {"x86_64": 129, "aarch64": 138}[os.uname().machine]
info = struct.pack("iiiiii104x", signal.SIGSTOP, 0, -1, 0, 0, 0)
print(ctypes.CDLL(None).syscall(call, 1, signal.SIGSTOP, info))
`

// TestTracedProcesses compares a traced command with one that is not.
func TestTracedProcesses(t *testing.T) {
	b := clitest.NewBox(t)
	clitest.Need(t, "python3")
	clitest.Need(t, "perl")
	b.Write(t, b.Project+"/follows.py", strings.Replace(follows, "NUMBER", fmt.Sprint(unix.SYS_PTRACE), 1))
	b.Write(t, b.Project+"/forge.py", forges)
	plain := run(t, b, "python3 follows.py", "--raw")
	got := run(t, b, "python3 follows.py", "--raw", "--trace")
	assert.Equal(t, 5, got.Status)
	assert.Contains(t, plain.Stdout, "ptrace 0 0\n")
	assert.Equal(t, strings.Replace(plain.Stdout, "ptrace 0 0", "ptrace -1 1", 1), got.Stdout)
	assert.Regexp(t, `(?s)\n\['0'\]\n.*stopped True\ncontinued True\nexited 7\nkilled 9\n$`, got.Stdout)

	for command, want := range map[string]string{
		"kill -9 $$":                           `"outcome":"signaled","exit_status":137`,
		"kill -TERM $$":                        `"outcome":"signaled","exit_status":143`,
		"sleep 1000 & " + awaitName + "exit 4": `"survivors":1`,
		"trap 'exit 6' TERM; sleep 1000":       `"outcome":"timed-out"`,
		"kill -STOP 1; exit 4":                 `"outcome":"exited","exit_status":4`,
		"python3 forge.py; exit 4":             `"outcome":"exited","exit_status":4`,
	} {
		options := []string{"--trace", "--json"}
		if strings.Contains(command, "trap") {
			options = append(options, "--timeout", "1", "--kill-after", "1")
		}
		assert.Contains(t, run(t, b, command, options...).Stdout, want, command)
	}
}

func TestTraceUsage(t *testing.T) {
	for _, other := range [][]string{{"--no-sandbox"}, {"--wrap", "env"}} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 125, Run(append([]string{"-y", "--trace"}, append(other, "true")...), strings.NewReader(""), &stdout, &stderr))
		assert.Contains(t, stderr.String(), "--trace cannot be used with "+other[0])
	}
}
