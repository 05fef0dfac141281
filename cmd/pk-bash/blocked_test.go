package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/blocked"
	"pikuri/lib/blocked/blockedtest"
	"pikuri/lib/cli/clitest"
)

// failure is a common command, and its parts that ran into the fence.
type failure struct{ name, command, want string }

// TestBlocked runs a table of failures with several sets of options, each in
// one loop. HOME stands for the home in commands.
func TestBlocked(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	b.Project = b.Home + "/src/project"
	b.Env = []string{"PATH=" + b.Home + "/bin:" + os.Getenv("PATH")}
	for _, path := range []string{"src/sibling/file", "src/project/.env", "src/project/keys/a", "src/project/.vscode/tasks.json", "src/project/sub/x", "src/project/main.c",
		"data/set.csv", "data/two words.csv", ".config/app/rc", ".config/gh/hosts.yml", ".ssh/id_rsa", ".bashrc", ".npmrc", ".aws/config", "shown/file", "shown/lib.h", "docs/manual.txt"} {
		b.Write(t, b.Home+"/"+path, "x\n")
	}
	b.Script(t, b.Home+"/bin/mytool", "echo hi\n")
	b.Script(t, b.Project+"/run.sh", "exec mytool\n")
	b.Write(t, b.Home+"/bin/interpreted", "#!"+b.Home+"/bin/mytool\n")
	b.Write(t, b.Home+"/private.key", "x\n")
	require.NoError(t, os.Chmod(b.Home+"/private.key", 0o600))
	require.NoError(t, os.Symlink(b.Home+"/data/set.csv", b.Project+"/link.csv"))
	require.NoError(t, os.Symlink(b.Home+"/none", b.Project+"/dangling"))

	b.Mkdir(t, b.Home+"/repo/sub/deep")
	require.NoError(t, exec.Command("git", "init", "-q", b.Home+"/repo").Run())
	const (
		beside   = " (nothing beside a root is shown, or can be written)"
		lost     = ", which is lost with the command (empty home)"
		set      = "~/data/set.csv is not shown (empty home); --readable ~/data/set.csv shows it"
		data     = "~/data is not shown (empty home); --readable ~/data shows it"
		sibling  = "~/src/sibling is not shown" + beside + "; --readable ~/src/sibling shows it"
		tool     = "~/bin/mytool is not shown (empty home); --readable ~/bin shows it"
		env      = `~/src/project/.env is masked (--deny ".env")`
		keys     = `~/src/project/keys is masked (--deny "keys")`
		tasks    = "~/src/project/.vscode/tasks.json is protected (VS Code: tasks, also such as run when the folder is opened)"
		readable = " is read-only (option --readable); --writable ~/shown allows it"
	)
	shadow := "" // the host refuses, too
	if os.Geteuid() == 0 {
		shadow = "/etc/shadow is not shown"
	}
	for _, table := range []struct {
		name    string
		options []string
		rows    []failure
	}{
		{"files", []string{"--readable", b.Home + "/shown", "--deny", ".env", "--deny", "keys"}, []failure{
			{"a file of the home", "cat ~/data/set.csv", set},
			{"a file that root alone may read", "cat /etc/shadow", shadow},
			{"a directory of the home", "ls ~/data", data},
			{"a directory, with a slash", "ls ~/data/", data},
			{"two", "cat ~/data/set.csv ~/docs/manual.txt", set + "\n~/docs/manual.txt is not shown (empty home); --readable ~/docs/manual.txt shows it"},
			{"a space in the name", "cat ~/data/two\\ words.csv", `"HOME/data/two words.csv" is not shown (empty home); --readable 'HOME/data/two words.csv' shows it`},
			{"settings", "cat ~/.config/app/rc", "~/.config/app/rc is not shown (empty home)"},
			{"a login", "cat ~/.config/gh/hosts.yml", "~/.config/gh/hosts.yml is not shown (empty home)"},
			{"a key", "cat ~/.ssh/id_rsa", "~/.ssh/id_rsa is not shown (empty home)"},
			{"a directory of keys", "ls ~/.ssh", "~/.ssh is not shown (empty home)"},
			{"a file that may hold a token", "cat ~/.npmrc", "~/.npmrc is not shown (empty home)"},
			{"a cloud's settings", "grep x ~/.aws/config", "~/.aws/config is not shown (empty home)"},
			{"a private file", "cat ~/private.key", "~/private.key is not shown (empty home)"},
			{"a sibling", "ls ../sibling", sibling},
			{"a sibling, from below", "cd sub && ls ../../sibling", sibling},
			{"a sibling, from an unknown directory", "true; cd sub && ls ../../sibling", ""},
			{"a file of a sibling", "cat ../sibling/file", "~/src/sibling/file is not shown" + beside + "; --readable ~/src/sibling/file shows it"},
			{"a sibling, cd", "cd ../sibling", sibling},
			{"a sibling, make", "make -C ../sibling", sibling},
			{"a link that leads out", "cat link.csv", set},
			{"a redirection", "wc -l <~/data/set.csv", set},
			{"test -e says nothing", "test -e ~/data/set.csv", ""},
			{"python", `python3 -c 'open("HOME/data/set.csv")'`, set},
			{"perl", `perl -e 'open(F, "HOME/data/set.csv") or die "cannot open HOME/data/set.csv: $!\n"'`, set},
			{"source", ". ~/.bashrc", "~/.bashrc is not shown (empty home)"},
			{"a program of the home", "mytool", tool},
			{"a program of the home, by its path", "~/bin/mytool", "~/bin/mytool is not shown (empty home); --readable ~/bin/mytool shows it"},
			{"a program of the home, env", "env mytool", tool},
			{"a program of the home, in a script", "sh run.sh", tool},
			{"a program of the home, xargs", "echo x | xargs mytool", tool},
			{"a program that nobody has", "nonesuch", ""},
			{"a pipeline that hides the status", "cat ~/data/set.csv | sort", set},
			{"copying out", "cp main.c ~/data/", "~/data is not shown (empty home); --writable ~/data shows it"},
			{"touch in a directory that is not shown", "touch ~/docs/new", "~/docs is not shown (empty home); --writable ~/docs shows it"},
			{"masked", "cat .env", env},
			{"masked, and named by its whole path", "cat $PWD/.env", env},
			{"masked, grep", "grep -r x .env", env},
			{"masked, written", "echo x >.env", env},
			{"masked, python", `python3 -c 'open(".env")'`, env},
			{"masked, removed", "rm -f .env", env},
			{"masked, copied", "cp -r . /tmp/copy", env},
			{"another .env", "mkdir /tmp/k; cd /tmp/k; echo 1 >.env; chmod 0 .env; cat .env", ""},
			{"other keys", "cd /tmp; cat keys/a", ""},
			{"masked, after cd to the project", "cd HOME/src/project && cat .env", env},
			{"a masked directory", "cat keys/a", keys},
			{"a name behind a mask that nothing has", "cat keys/none", keys},
			{"a masked directory, written", "touch keys/b", keys},
			{"protected", "echo x >.vscode/tasks.json", tasks},
			{"protected, sed -i names another file", "sed -i s/x/y/ .vscode/tasks.json", tasks},
			{"protected, mv", "mv main.c .vscode/tasks.json", tasks},
			{"a directory that holds something protected", "mv .vscode v", "~/src/project/.vscode is protected (pinned: VS Code: programs that it starts as servers)"},
			{"protected, removed", "rm -f .vscode/tasks.json", tasks},
			{"a readable root, written", "echo x >~/shown/file", "~/shown/file" + readable},
			{"a readable root, a new file", "touch ~/shown/new", "~/shown/new" + readable},
			{"a readable root, mkdir", "mkdir ~/shown/dir", "~/shown/dir" + readable},
			{"a readable root, rm", "rm -f ~/shown/file", "~/shown/file" + readable},
			{"a readable root, python", `python3 -c 'open("HOME/shown/new", "w")'`, "~/shown/new" + readable},
			{"not on the host either", "cat ~/none", ""},
			{"not there in the project", "cat none.c", ""},
			{"a link that leads nowhere", "cat dangling", ""},
			{"no such directory, anywhere", "cd /nonesuch/dir", ""},
			{"a test that fails", "echo 'FAIL: expected HOME/shown/file, got main.c'; exit 1", ""},
			{"a compiler's error", "echo 'main.c:3:10: error: x undeclared in HOME/src/project/main.c'; exit 1", ""},
			{"a trace of shown paths", "echo 'error at /usr/bin/env (/usr/lib:3) /proc/self/x /dev/null /tmp/pk-none'; exit 1", ""},
			{"an address", "echo 'error: https://example.com/usr/share/x failed'; exit 1", ""},
			{"a listing that is no complaint", "echo HOME/data/set.csv; exit 1", ""},
			{"a command that went well", "echo 'cannot open HOME/data/set.csv'", ""},
			{"escapes of a terminal", `printf 'cannot open \x1b[31mHOME/data/set.csv\x1b[0m\n'; exit 1`, set},
			{"a new sibling", "echo x >../new", "~/src/new is read-only" + beside + "; --writable ~/src allows it"},
			{"a sibling that the host has, written", "mkdir ../sibling", "~/src/sibling is read-only" + beside + "; --writable ~/src/sibling allows it"},
			{"a work tree beside the project", "git init -q 2>&1; git -c user.name=x -c user.email=x commit -q --allow-empty -m x; git worktree add ../tree 2>&1 | tail -1; false",
				"~/src/tree/.git is read-only" + beside + "; --writable ~/src allows it"},
			{"the project, renamed", "mv ../project ../other", "~/src/other is read-only" + beside + "; --writable ~/src allows it"},
			{"lost: a file of the user's", "echo x >>~/.bashrc", "wrote ~/.bashrc" + lost},
			{"lost: a new file", "echo x >~/result.txt", "wrote ~/result.txt" + lost},
			{"lost: a directory that the host has", "mkdir -p ~/data/new", "wrote ~/data" + lost + "; --writable ~/data keeps it"},
			{"lost: a program", "mkdir -p ~/.local/bin && cp /bin/true ~/.local/bin/prog", "wrote ~/.local/bin/prog" + lost},
			{"lost: a name that is made to deceive", `touch ~/"$(printf 'a\n\033[2Jfence: b')"`, `wrote "HOME/a\n\x1b[2Jfence: b"` + lost},
			{"a failure, and a loss", "cd ~; touch a; echo 'cannot open HOME/data/set.csv'; false", set + "\nwrote ~/a" + lost},
			{"caches and settings", "mkdir -p ~/.cache/x ~/.config/y ~/.npm ~/.m2; touch ~/.state ~/.config/z", ""},
			{"a home that is closed", "touch ~/b; chmod 0 ~", "wrote ~/b" + lost},
			{"a link in place of a directory", "mkdir -p ~/.local ~/.cargo; ln -s /usr/bin ~/.local/bin; mkfifo ~/.cargo/bin", ""},
			{"the scratch directory", "touch /tmp/x", ""},
			{"a session directory", "ls ~/.cache/pikuri", ""},
		}},
		{"below the top of a repository", []string{"-C", b.Home + "/repo/sub/deep"}, []failure{
			{"git", "git status", "~/repo/.git is not shown (empty home); -C ~/repo shows it"},
			{"git, told where", "git -C .. log", "~/repo/.git is not shown (empty home); -C ~/repo shows it"},
			{"git, elsewhere", "cd /tmp; git status", ""},
			{"something else", "echo not a repository; false", ""},
		}},
		{"below the top of a repository that is shown", []string{"-C", b.Home + "/repo/sub/deep", "--readable", b.Home + "/repo"}, []failure{
			{"git", "git status", ""},
			{"git, elsewhere", "git -C /tmp status", ""},
		}},
		{"a trial", []string{"--trial", "--session", "trial"}, []failure{
			{"removed by the command", "rm main.c; cat main.c", ""},
			{"removed by the command before", "cat main.c", ""},
			{"outside of the trial", "cat ~/data/set.csv", set},
		}},
		{"without a network", []string{"--net", "none"}, []failure{
			{"curl", "echo 'curl: (6) Could not resolve host: index.corp.test'; exit 6", "no network: index.corp.test (option --net none); --net allow --allow-host index.corp.test allows it"},
			{"python", `python3 -c 'import socket; socket.getaddrinfo("index.corp.test", 443)'`, "no network (option --net none)"},
			{"npm", "echo 'npm ERR! getaddrinfo ENOTFOUND registry.corp.test'; exit 1", "no network: registry.corp.test (option --net none); --net allow --allow-host registry.corp.test allows it"},
			{"an address of its own", "false", ""},
			{"an address, curl", "echo 'curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Could not connect to server'; exit 7", "no network: 192.0.2.1 (option --net none)"},
		}},
		{"with a network", nil, []failure{
			{"a host that there is not", "echo 'curl: (6) Could not resolve host: nonesuch.example'; exit 6", ""},
		}},
	} {
		t.Run(table.name, func(t *testing.T) {
			fails(t, b, table.rows, table.options...)
		})
	}
}

// fails runs the commands of a table in one loop, and compares the facts. HOME stands for the
// home.
func fails(t *testing.T, b *clitest.Box, rows []failure, options ...string) {
	t.Helper()
	requests := ""
	for _, row := range rows {
		command, err := json.Marshal(strings.ReplaceAll(row.command, "HOME", b.Home))
		require.NoError(t, err)
		requests += `{"command":` + string(command) + "}\n"
	}
	got := answers(t, b, requests, options...)
	require.Len(t, got, len(rows))
	var facts []blocked.Fact
	for i, row := range rows {
		answer := got[i]
		text, err := json.Marshal(answer["fence"])
		require.NoError(t, err)
		var found []blocked.Fact
		require.NoError(t, json.Unmarshal(text, &found))
		facts = append(facts, found...)
		var lines []string
		for _, f := range found {
			lines = append(lines, f.Line(b.Home))
		}
		assert.Equal(t, strings.ReplaceAll(row.want, "HOME", b.Home), strings.Join(lines, "\n"), "%s: %s\n%s", row.name, row.command, answer["output"])
	}
	assert.Empty(t, strings.Join(blockedtest.Untrue(facts, shellOf(b, options)), "\n"))
}

// shellOf runs scripts on the host, or in the sandbox with the options.
func shellOf(b *clitest.Box, options []string) blockedtest.Shell {
	return func(script string, fenced bool, more ...string) (string, bool) {
		cmd := b.Command("pk-bash", slices.Concat([]string{"-y", "--raw"}, options, more, []string{script})...)
		if !fenced {
			cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-c", script}
		}
		out, err := cmd.Output()
		return string(out), err == nil
	}
}

// A shell may execute the input of a job, and change the working directory.
func TestBlockedAfterInput(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/.env", "x\n")
	c := dial(t, b, "-y", "--deny", ".env")
	for input, want := range map[string]int{"": 1, "cd /tmp; echo 1 >.env; chmod 0 .env; cat .env": 0} {
		command := "cat .env"
		if input != "" {
			command = "bash"
		}
		job := c.start(command, `,"stdin":true`)
		if input != "" {
			c.type_(job, `"input":"`+input+`\n","eof":true`, "denied")
		}
		fence, _ := c.wait(job)["fence"].([]any)
		assert.Len(t, fence, want, command)
	}
	assert.NoError(t, c.close())
}

func TestHelloNamesTheRepositoryAround(t *testing.T) {
	b := clitest.NewBox(t)
	sub := b.Project + "/sub"
	b.Mkdir(t, sub)
	require.NoError(t, exec.Command("git", "init", "-q", b.Project).Run())
	for options, want := range map[string]any{sub: b.Project, b.Project: nil} {
		assert.Equal(t, want, answers(t, b, `{"op":"hello"}`, "-C", options)[0]["repository"])
	}
}
