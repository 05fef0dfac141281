package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// inside runs a shell script in the sandbox.
func inside(t *testing.T, b *clitest.Box, script string, options ...string) clitest.Outcome {
	t.Helper()
	return b.Run(t, "pk-bwrap", append(options, "--", "bash", "-c", script)...)
}

func TestEverydayWorkSucceeds(t *testing.T) {
	b := clitest.NewBox(t)
	for _, test := range []struct{ name, script, want string }{
		{"starts in the project", "pwd", b.Project + "\n"},
		{"writes in the project", "echo x > f && cat f", "x\n"},
		{"has a name", "id -un | grep -cx '[a-z_][a-z0-9_-]*'", "1\n"},
		{"keeps the caller's uid", "id -u", fmt.Sprintln(os.Getuid())},
		{"has a writable home", "cd ~ && pwd && echo x > f && cat f", b.Home + "\nx\n"},
		{"has a /tmp with the usual mode", "mktemp -p /tmp > /dev/null && stat -c %a /tmp", "1777\n"},
		{"has devices", "head -c1 /dev/zero | wc -c", "1\n"},
		{"follows the links of update-alternatives", "awk 'BEGIN { print 6 * 7 }'", "42\n"},
		{"knows root by name", "getent passwd 0 | cut -d: -f1", "root\n"},
		{"knows localhost", "getent hosts localhost | wc -l", "1\n"},
		{"has a scratch directory for tools", "echo $TMPDIR", "/tmp\n"},
		{"can commit", "git init -q . && echo x > f && git add f && git -c user.name=a -c user.email=b commit -qm x && git log --format=%an", "a\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := clitest.Outcome{Stdout: test.want}
			if strings.HasPrefix(test.script, "git init ") {
				want.Stderr = alone(b.Project)
			}
			assert.Equal(t, want, inside(t, b, test.script))
		})
	}
}

// The settings of npm and pip are there, without their credentials: in the home, and in
// the place of settings files in a tool chain.
func TestSettings(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/.npmrc", "registry=https://npm.corp.example/\n//npm.corp.example/:_authToken=s3cret\n")
	b.Write(t, b.Home+"/.config/pip/pip.conf", "[global]\nindex-url = https://me:s3cret@pypi.corp.example/simple\ntimeout = 5\n")
	node := b.Home + "/.nvm/versions/node/v22/etc/npmrc"
	b.Write(t, node, "fund=false\n_auth=s3cret\n")
	b.Write(t, b.Home+"/.nvm/versions/node/v20/etc/npmrc", "cafile=/etc/ssl/certs/ca-certificates.crt\n")
	got := inside(t, b, "cat ~/.npmrc ~/.config/pip/pip.conf "+node+" ~/.nvm/versions/node/v20/etc/npmrc; grep -rs s3cret ~; echo x >>"+node+" || true")
	assert.Equal(t, "registry=https://npm.corp.example/\n[global]\ntimeout = 5\nfund=false\ncafile=/etc/ssl/certs/ca-certificates.crt\n", got.Stdout)
	assert.Contains(t, got.Stderr, "denied")
	said := b.Run(t, "pk-bwrap", "--explain", b.Home+"/.npmrc", node)
	assert.Equal(t, 2, strings.Count(said.Stdout, "default: settings of npm and pip, without credentials"), said.Stdout)
	assert.Equal(t, 2, strings.Count(said.Stdout, "synthetic"), said.Stdout)

	// A root of the caller's shows the file itself.
	got = b.Run(t, "pk-bwrap", "--readable", b.Home+"/.npmrc", "--", "cat", b.Home+"/.npmrc")
	assert.Contains(t, got.Stdout, "_authToken=s3cret")
}

// alone is the warning about a repository that the command has made.
func alone(repository string) string {
	return fmt.Sprintf("pk-bwrap: warning: git: the repository %q works in the sandbox alone until: pk-fs git-adopt %s\n", repository, repository)
}

// Each attack is a script that prints "in" when it succeeds.
func TestAttacksFail(t *testing.T) {
	b := clitest.NewBox(t)
	outside := filepath.Join(filepath.Dir(b.Project), "outside")
	b.Write(t, filepath.Join(outside, "secret"), "in\n")
	b.Write(t, filepath.Join(b.Home, ".ssh", "id_ed25519"), "in\n")
	require.NoError(t, os.Symlink(outside, filepath.Join(b.Project, "link")))
	inside(t, b, "true")                   // makes the journal
	lists := b.Home + "/.cache/pikuri/git" // of git directories, anew for each command
	require.NoError(t, os.RemoveAll(lists))
	before := clitest.Listing(t, filepath.Dir(b.Project))

	for _, test := range []struct{ name, script string }{
		{"read a neighbour of the project", "cat " + outside + "/secret"},
		{"read through a link in the project", "cat link/secret"},
		{"write through a link in the project", "echo x > link/new && echo in"},
		{"read a key in the home", "cat " + b.Home + "/.ssh/id_ed25519"},
		{"list the keys in the home", "ls " + b.Home + "/.ssh && echo in"},
		{"read the shadow file", "cat /etc/shadow && echo in"},
		{"read the host's accounts", "[ $(wc -l < /etc/passwd) -gt 3 ] && echo in"},
		{"write to the system", "touch /usr/x && echo in"},
		{"write to the root directory", "touch /x && echo in"},
		{"write to /etc", "touch /etc/x && echo in"},
		{"change an account", "echo x >> /etc/passwd && echo in"},
		{"remount the system writable", "mount -o remount,bind,rw /usr && echo in"},
		{"mount something", "mount -t tmpfs none /tmp && echo in"},
		{"unmount the empty home", "umount " + b.Home + " && echo in"},
		{"make a user namespace", "unshare -Ur true && echo in"},
		{"change the kernel's settings", "echo x > /proc/sys/kernel/core_pattern && echo in"},
		{"see a process of the host", "[ -e /proc/" + fmt.Sprint(os.Getpid()) + "/cmdline ] && echo in"},
		{"signal the caller's process group", "kill -TERM 0; sleep 1"},
		{"read a descriptor that was left open", "cat <&9"},
		{"reach the host through init's root", "ls /proc/1/root/home && echo in"},
		{"gain a capability", "[ $(grep -c 'CapEff:.0000000000000000' /proc/self/status) = 1 ] || echo in"},
		{"gain privileges by a setuid program", "[ $(grep -c 'NoNewPrivs:.1' /proc/self/status) = 1 ] || echo in"},
		{"find a directory of the run time", "ls /run /var/run && echo in"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := b.Command("pk-bwrap", "--", "bash", "-c", test.script)
			secret, err := os.Open(filepath.Join(outside, "secret"))
			require.NoError(t, err)
			defer secret.Close()
			cmd.ExtraFiles = []*os.File{nil, nil, nil, nil, nil, nil, secret} // descriptor 9
			got := clitest.Finish(t, cmd)
			assert.NotContains(t, got.Stdout, "in\n")
			assert.NotEqual(t, 125, got.Status, got.Stderr) // the sandbox did start
		})
	}
	require.NoError(t, os.RemoveAll(lists))
	assert.Equal(t, before, clitest.Listing(t, filepath.Dir(b.Project)))
}

func TestEnvironmentIsFiltered(t *testing.T) {
	b := clitest.NewBox(t)
	b.Env = []string{"API_TOKEN=hunter2", "LD_PRELOAD=hunter2.so", "BASH_ENV=hunter2", "PROXY=http://u:hunter2@h/", "EDITOR=vi"}
	const everywhere = "{ env; cat /proc/*/environ; cat /proc/1/cmdline; } 2>/dev/null | tr '\\0' '\\n'"

	got := inside(t, b, everywhere)
	assert.NotContains(t, got.Stdout, "hunter2")
	assert.Contains(t, got.Stdout, "EDITOR=vi\n")

	got = inside(t, b, everywhere, "--pass-env", "API_TOKEN", "--setenv", "A=b,c")
	assert.Contains(t, got.Stdout, "API_TOKEN=hunter2\n")
	assert.Contains(t, got.Stdout, "A=b,c\n")
	assert.NotContains(t, got.Stdout, "LD_PRELOAD")

	got = inside(t, b, "env", "--env-inherit")
	assert.Contains(t, got.Stdout, "PROXY=http://u:hunter2@h/\n")
}

func TestStatusIsTheCommands(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, filepath.Join(b.Project, "plain"), "x")
	b.Write(t, filepath.Join(b.Project, "script"), "#!/no/such/interpreter\n")
	require.NoError(t, os.Chmod(filepath.Join(b.Project, "script"), 0o755))
	for _, test := range []struct {
		name   string
		argv   []string
		status int
		stderr string
	}{
		{"success", []string{"true"}, 0, ""},
		{"failure", []string{"sh", "-c", "exit 3"}, 3, ""},
		{"death by a signal", []string{"sh", "-c", "kill -TERM $$"}, 143, ""},
		{"no such program", []string{"nonesuch"}, 127, "pk-bwrap: cannot run \"nonesuch\": not found in the sandbox's PATH\n"},
		{"no such path", []string{"./nonesuch"}, 127, "pk-bwrap: cannot run \"./nonesuch\": not there in the sandbox\n"},
		{"not executable", []string{"./plain"}, 126, "pk-bwrap: cannot run \"./plain\": permission denied\n"},
		{"a directory", []string{"/usr"}, 126, "pk-bwrap: cannot run \"/usr\": is a directory\n"},
		{"no interpreter", []string{"./script"}, 127, "pk-bwrap: cannot run \"./script\": its interpreter \"/no/such/interpreter\" is not there in the sandbox\n"},
		{"an option of the command", []string{"sh", "-c", "exit $#", "--", "--print", "-z"}, 2, ""},
		{"a whole command line", []string{"make test"}, 127, "pk-bwrap: cannot run \"make test\": not found in the sandbox's PATH\npk-bwrap: hint: type: pk-bwrap -- make test, or pk-bash 'make test'\n"},
		{"a command line for a shell", []string{"make test | tail"}, 127, "pk-bwrap: cannot run \"make test | tail\": not found in the sandbox's PATH\npk-bwrap: hint: type: pk-bash 'make test | tail'\n"},
		{"a command line of the shell's own", []string{"cd .."}, 127, "pk-bwrap: cannot run \"cd ..\": not found in the sandbox's PATH\npk-bwrap: hint: type: pk-bash 'cd ..'\n"},
		{"a word of the shell", []string{"source", "x"}, 127, "pk-bwrap: cannot run \"source\": not found in the sandbox's PATH\npk-bwrap: hint: type: pk-bash 'source x'\n"},
		{"an empty name", []string{""}, 127, "pk-bwrap: cannot run \"\": not found in the sandbox's PATH\npk-bwrap: hint: the name is empty: a variable may not be set\n"},
		{"a program with a blank in its name", []string{"make test", "x"}, 127, "pk-bwrap: cannot run \"make test\": not found in the sandbox's PATH\n"},
		{"a command called help", []string{"help"}, 127, "pk-bwrap: cannot run \"help\": not found in the sandbox's PATH\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, clitest.Outcome{Stderr: test.stderr, Status: test.status}, b.Run(t, "pk-bwrap", append([]string{"--"}, test.argv...)...))
		})
	}
}

func TestRootsAreShownAsTheyWereGiven(t *testing.T) {
	b := clitest.NewBox(t)
	base := filepath.Dir(b.Project)
	b.Write(t, base+"/ro/f", "read\n")
	b.Write(t, base+"/ro/rw/f", "both\n")
	b.Write(t, base+"/one-file", "file\n")
	b.Write(t, b.Project+"/sub/f", "sub\n")
	options := []string{"--readable", base + "/ro", "--writable", base + "/ro/rw", "--readable", base + "/one-file", "--readable", b.Project + "/sub"}
	for _, test := range []struct {
		name, script string
		status       int
	}{
		{"a readable root is read", "cat " + base + "/ro/f", 0},
		{"a readable root is not written", "touch " + base + "/ro/new", 1},
		{"a writable root inside it is written", "touch " + base + "/ro/rw/new", 0},
		{"a file is a root", "cat " + base + "/one-file", 0},
		{"a file root is not written", "echo x >> " + base + "/one-file", 1},
		{"what any root allows is allowed", "touch sub/new", 0},
		{"a neighbour of a file root is not there", "cat " + base + "/ro-not", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := inside(t, b, test.script, options...)
			assert.Equal(t, test.status, got.Status, got.Stderr)
		})
	}
}

func TestOverlaysLeaveTheHostAlone(t *testing.T) {
	b := clitest.NewBox(t)
	cache := filepath.Join(b.Home, ".cache", "go-build")
	other := filepath.Join(filepath.Dir(b.Project), "with,comma:and\\back slash")
	b.Write(t, cache+"/entry", "warm\n")
	b.Write(t, other+"/f", "old\n")
	require.NoError(t, os.Chmod(other, 0o750))
	inside(t, b, "true")     // makes the journal
	shown := func() string { // .cache/pikuri has a file of pk's own, which may change
		return clitest.Listing(t, cache) + clitest.Listing(t, other) + clitest.Finish(t, exec.Command("find", b.Home)).Stdout
	}
	before := shown()

	got := b.Run(t, "pk-bwrap", "--overlay", other, "--", "bash", "-c", `cat ~/.cache/go-build/entry && rm ~/.cache/go-build/entry && touch ~/.cache/go-build/new &&
		cd "$1" && echo new > f && cat f && mkdir d && stat -c %a . && ls /proc/self/fd | wc -l; exit 7`, "sh", other)
	assert.Equal(t, clitest.Outcome{Stdout: "warm\nnew\n750\n4\n", Status: 7}, got)
	assert.Equal(t, before, shown())
}

// An overlay root that was given through a link is there under that name, too.
func TestOverlaysUnderTypedNames(t *testing.T) {
	b := clitest.NewBox(t)
	base := filepath.Dir(b.Project)
	typed := base + "/link/ov"
	b.Write(t, base+"/target/ov/f", "f\n")
	require.NoError(t, os.Symlink("target", base+"/link"))
	b.Write(t, base+"/list", typed+"\n")
	b.Write(t, base+"/policy", "overlay "+typed+"\n")
	for _, options := range [][]string{
		{"--overlay", typed},
		{"--overlay-from", base + "/list"},
		{"--policy", base + "/policy"},
		{"--overlay", typed, "--session", "typed"},
		{"--readable", base + "/target/ov", "--overlay", typed},
	} {
		got := inside(t, b, "cat "+typed+"/f && touch "+typed+"/g && ls "+base+"/target/ov", options...)
		assert.Equal(t, clitest.Outcome{Stdout: "f\nf\ng\n"}, got, options)
	}
	assert.NoFileExists(t, base+"/target/ov/g")
}

func TestPrintedLineMakesTheSameSandbox(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, filepath.Join(b.Home, ".cache", "go-build", "entry"), "warm\n")
	const script = "pwd; env | sort; cat ~/.cache/go-build/entry; touch ~/.cache/go-build/x; ls /etc | grep -v -x -e passwd -e group; touch /usr/x || echo closed"
	printed := b.Run(t, "pk-bwrap", "--print", "-z", "--", "bash", "-c", script)
	require.Equal(t, 0, printed.Status, printed.Stderr)
	words := strings.Split(strings.TrimSuffix(printed.Stdout, "\x00"), "\x00")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{}
	cmd.Dir = b.Project

	want := inside(t, b, script)
	require.Contains(t, want.Stdout, "closed\n")
	assert.Equal(t, want, clitest.Finish(t, cmd))
}

func TestPrintedLineNamesWhatItLeavesOut(t *testing.T) {
	b := clitest.NewBox(t)
	got := b.Run(t, "pk-bwrap", "--print", "--session", "s", "--pids", "99", "--", "true")
	assert.Equal(t, 0, got.Status)
	assert.Equal(t, "pk-bwrap: the printed line leaves out: the session's overlays, which are new ones, --memory and --pids\n", got.Stderr)
	assert.Empty(t, b.Run(t, "pk-bwrap", "--print", "--", "true").Stderr)
	const audit = "pk-bwrap: the printed line leaves out: --audit\n"
	assert.Equal(t, audit, b.Run(t, "pk-bwrap", "--print", "--audit", b.Home+"/records", "--", "true").Stderr)
	b.Write(t, b.Home+"/policy", "audit "+b.Home+"/records\n")
	assert.Equal(t, audit, b.Run(t, "pk-bwrap", "--print", "--policy", b.Home+"/policy", "--", "true").Stderr)
	assert.NoFileExists(t, b.Home+"/records")
}

func TestNetNone(t *testing.T) {
	b := clitest.NewBox(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	script := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port)

	assert.Equal(t, 0, inside(t, b, script).Status)
	assert.Equal(t, 1, inside(t, b, script, "--net", "none").Status)
}

func TestNothingOutlivesTheCommand(t *testing.T) {
	b := clitest.NewBox(t)
	// The orphan holds the pipe: the read ends when it does.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := b.Command("pk-bwrap", "--", "bash", "-c", "setsid sleep 1000 & exit 0")
	cmd.Stdout = w
	require.NoError(t, cmd.Run())
	w.Close()
	_, err = r.Read(make([]byte, 1))
	assert.EqualError(t, err, "EOF")
}

func TestGitIdentityOfTheHostHolds(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/.gitconfig", "[user]\n\tname = Everywhere\n\temail = e@example.org\n[includeIf \"gitdir:"+b.Project+"/\"]\n\tpath = work\n")
	b.Write(t, b.Home+"/work", "[user]\n\temail = work@example.org\n")
	got := inside(t, b, "git init -q . && git commit -q --allow-empty -m x && git log --format='%an <%ae>'")
	assert.Equal(t, "Everywhere <e@example.org>\n", got.Stdout, got.Stderr)

	adopted := b.Run(t, "pk-fs", "git-adopt", b.Project)
	require.Equal(t, 0, adopted.Status, adopted.Stderr)
	got = inside(t, b, "git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'")
	assert.Equal(t, "Everywhere <work@example.org>\n", got.Stdout, got.Stderr)
}

func TestNoIdentityIsMadeUp(t *testing.T) {
	b := clitest.NewBox(t)
	got := inside(t, b, "env | grep ^GIT_ | grep -v -x -e GIT_TERMINAL_PROMPT=0")
	assert.Equal(t, clitest.Outcome{Status: 1}, got)
}

func TestGitInsideIsTheUsers(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/.gitconfig", "[user]\n\tname = N\n\temail = e@example.org\n\tsigningKey = K\n[commit]\n\tgpgSign\n[credential]\n\thelper = store\n"+
		"[alias]\n\tst = status -s\n\tx = !true\n[core]\n\tautocrlf = input\n\texcludesFile = ~/ignored\n\tattributesFile = ~/attributes\n\thooksPath = /\n"+
		"[filter \"x\"]\n\tclean = tr a b\n\tsmudge = tr b a\n\trequired\n[filter \"y\"]\n\tclean = pk-nonesuch\n\trequired\n")
	b.Write(t, b.Home+"/ignored", ".env.local\n")
	b.Write(t, b.Home+"/attributes", "*.x filter=x\n*.y filter=y\n")
	const warning = "pk-bwrap: warning: git filter \"y\" is not in the sandbox: \"pk-nonesuch\" is missing\n"
	b.Write(t, b.Project+"/.git/HEAD", "ref: refs/heads/main\n")
	b.Mkdir(t, b.Project+"/.git/objects")
	b.Mkdir(t, b.Project+"/.git/refs/heads")
	for _, test := range []struct{ name, script, want string }{
		{"a filter runs", "echo aaa >f.x; git add f.x && git show :f.x; rm f.x; git checkout -q f.x; cat f.x", "bbb\naaa\n"},
		{"line ends are converted", "printf 'l\\r\\n' >crlf; git add crlf 2>/dev/null; git show :crlf | wc -c", "2\n"},
		{"what the user ignores is ignored", "touch .env.local; git add -A 2>/dev/null; git ls-files .env.local", ""},
		{"an alias works", "touch new; git st new; rm new", "?? new\n"},
		{"a commit is not signed", "git commit -q -m x && git log --format='%an <%ae> %G?'", "N <e@example.org> N\n"},
		{"a file without its filter is refused", "touch f.y; git add f.y 2>/dev/null; echo $?; rm f.y", "128\n"},
		{"neither credentials nor hooks", "git config --get-regexp '^(credential|core.hookspath|alias.x|user.signingkey)'", ""},
		{"a setting of the command's own", "git config --global a.b c && git config a.b", "c\n"},
	} {
		got := inside(t, b, test.script)
		assert.Equal(t, test.want, got.Stdout, test.name)
		assert.Equal(t, warning, got.Stderr, test.name)
	}
	got := b.Run(t, "pk-bwrap", "--explain", b.Home+"/.gitconfig", "--", "true")
	assert.Contains(t, got.Stdout, "default: git: the user's configuration, reduced to data")

	// Shown by the caller, the file is as it is.
	got = inside(t, b, "git config credential.helper", "--readable", b.Home+"/.gitconfig")
	assert.Equal(t, "store\n", got.Stdout, got.Stderr)
}

func TestGitSettingsOfTheEnvironmentHold(t *testing.T) {
	b := clitest.NewBox(t)
	b.Env = []string{"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=Env", "GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=/x"}
	got := inside(t, b, "git init -q . && git config user.name Repository; git config user.name; git config core.fsmonitor")
	assert.Equal(t, "Env\n", got.Stdout, got.Stderr)
}

func TestRefusals(t *testing.T) {
	b := clitest.NewBox(t)
	base := filepath.Dir(b.Project)
	b.Write(t, b.Project+"/bwrap", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(b.Project+"/bwrap", 0o755))
	b.Mkdir(t, base+"/play")
	b.Mkdir(t, b.Home+"/.cache")
	before := clitest.Listing(t, base)
	const help = "pk-bwrap: hint: pk-bwrap --help lists the options\n"
	for _, test := range []struct {
		name    string
		options []string
		stderr  string
	}{
		{"an unknown option", []string{"--nonesuch"}, "pk-bwrap: unknown option \"--nonesuch\"\n" + help},
		{"a wrong network", []string{"--net", "some"}, "pk-bwrap: option \"--net\": \"some\" is not one of host, none and allow\n" + help},
		{"a variable without a value", []string{"--setenv", "A"}, "pk-bwrap: cannot set \"A\" in the environment\npk-bwrap: hint: write --setenv NAME=VALUE\n"},
		{"two variables in one", []string{"--pass-env", "A B"}, "pk-bwrap: cannot pass \"A B\" of the environment: it is no name\npk-bwrap: hint: write --pass-env NAME, once for each variable\n"},
		{"a policy that is missing", []string{"--policy", base + "/policy"}, fmt.Sprintf("pk-bwrap: option \"--policy\": cannot read policy %q: no such file or directory\npk-bwrap: hint: name a file with one; pk-policy(5) tells what it holds\n", base+"/policy")},
		{"a home in quotes", []string{"--readable", "~/nonesuch"}, "pk-bwrap: cannot use \"~/nonesuch\" as a readable root: no such file or directory\npk-bwrap: hint: a shell replaces ~ only without quotes, and at the beginning of a word\n"},
		{"a playground that is not /tmp", []string{"--temp", base + "/play", "--no-alias-tmp"}, "pk-bwrap: cannot make a sandbox in which /tmp is not the session tmp\npk-bwrap: hint: leave --no-alias-tmp out\n"},
		{"the run-time directory", []string{"--readable", "/run"}, "pk-bwrap: cannot show \"/run\": it holds the sockets of running services\npk-bwrap: hint: name a narrower directory\n"},
		{"everything", []string{"--readable", "/"}, "pk-bwrap: cannot show \"/\": it would show the control socket \"/run/docker.sock\"\npk-bwrap: hint: name a narrower directory\n"},
		{"the host's processes", []string{"--readable", "/proc"}, "pk-bwrap: cannot show \"/proc\": the sandbox has a /proc of its own\npk-bwrap: hint: name a directory elsewhere\n"},
		{"an overlay that is a root", []string{"--overlay", b.Project}, fmt.Sprintf("pk-bwrap: cannot overlay %q: it is a writable root\npk-bwrap: hint: leave one of the two out\n", b.Project)},
		{"an overlay that is missing", []string{"--overlay", base + "/nonesuch"}, fmt.Sprintf("pk-bwrap: cannot overlay %q: no such file or directory\npk-bwrap: hint: name an existing directory\n", base+"/nonesuch")},
		{"an overlay with the session directories in it", []string{"--overlay", b.Home + "/.cache"}, fmt.Sprintf("pk-bwrap: cannot overlay %q: it contains the session directories, %q\npk-bwrap: hint: show it with --readable or --writable\n", b.Home+"/.cache", b.Home+"/.cache/pikuri")},
		{"an overlay that is a file", []string{"--overlay", b.Project + "/bwrap"}, fmt.Sprintf("pk-bwrap: cannot overlay %q: it is not a directory\npk-bwrap: hint: show it with --readable or --writable\n", b.Project+"/bwrap")},
		{"the whole machine as the project", []string{"-C", "/"}, "pk-bwrap: cannot use \"/\" as the project root: it is a system directory or a home\npk-bwrap: hint: name a directory below it\n"},
		{"a system directory, writable", []string{"--writable", "/usr"}, "pk-bwrap: cannot use \"/usr\" as a writable root: it is a system directory or a home\npk-bwrap: hint: name a directory below it\n"},
		{"the home as the project", []string{"-C", b.Home}, fmt.Sprintf("pk-bwrap: cannot use %q as the project root: it is a system directory or a home\npk-bwrap: hint: name a directory below it\n", b.Home)},
		{"a root that is missing", []string{"--readable", base + "/nonesuch"}, fmt.Sprintf("pk-bwrap: cannot use %q as a readable root: no such file or directory\npk-bwrap: hint: make it first, or name an existing directory\n", base+"/nonesuch")},
		{"a guarantee that there is not", []string{"--require", "magic"}, "pk-bwrap: cannot require \"magic\": there is no such guarantee\npk-bwrap: hint: there are files, processes, capabilities, environment, descriptors, terminal, litter, network, net-allow, nested, syscalls, abstract-sockets, overlay, protect\n"},
		{"a guarantee that does not hold", []string{"--require", "files,network"}, "pk-bwrap: cannot promise \"network\" (no network but a loopback of its own): the host's network is shared\npk-bwrap: hint: --net none\n"},
		{"a bwrap from the project", []string{"--bwrap", b.Project + "/bwrap"}, fmt.Sprintf("pk-bwrap: cannot use bwrap %q: it lies under the writable root %q\npk-bwrap: hint: name one outside with --bwrap PATH\n", b.Project+"/bwrap", b.Project)},
		{"a bwrap that is missing", []string{"--bwrap", base + "/bwrap"}, fmt.Sprintf("pk-bwrap: cannot use bwrap %q: no such file or directory\npk-bwrap: hint: name one with --bwrap PATH\n", base+"/bwrap")},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := inside(t, b, "echo in", test.options...)
			assert.Equal(t, clitest.Outcome{Stderr: test.stderr, Status: 125}, got)
		})
	}
	got := inside(t, b, "echo in", "--overlay", "/sys")
	assert.Equal(t, 125, got.Status)
	assert.Regexp(t, `^pk-bwrap: cannot overlay "/sys": "/sys/[^"]*" is mounted below it\npk-bwrap: hint: show it with --readable or --writable\n$`, got.Stderr)
	assert.Equal(t, before, clitest.Listing(t, base), "a refusal leaves nothing behind")
}

func TestUmask(t *testing.T) {
	b := clitest.NewBox(t)
	for mask, want := range map[string]string{
		"777": "pk-bwrap: cannot make files: the umask 0777 takes permissions from their owner\npk-bwrap: hint: umask 022\n",
		"077": "",
	} {
		for _, args := range [][]string{{"--", "true"}, {"--check"}} {
			if want == "" && len(args) == 1 {
				continue
			}
			cmd := b.Command("pk-bwrap", args...)
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", "umask " + mask + `; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
			out, _ := cmd.CombinedOutput()
			assert.Equal(t, want, string(out))
		}
	}
}

// Each way to start a command names the missing file of the machine.
func TestMissingSystem(t *testing.T) {
	b := clitest.NewBox(t)
	for dir, want := range map[string]string{
		"/proc": "cannot start a command: /proc is not mounted\nNAME: hint: as root: mount -t proc proc /proc\n",
		"/dev":  "cannot start a command: there is no /dev/null\nNAME: hint: as root: rm -f /dev/null; mknod -m 666 /dev/null c 1 3\n",
	} {
		for _, words := range [][]string{
			{"pk-bwrap", "--", "true"}, {"pk-bwrap", "--check"}, {"pk-bash", "-y", "--raw", "true"}, {"pk-bash", "-y", "--raw", "--no-sandbox", "true"},
		} {
			cmd := b.Command(words[0], words[1:]...)
			cmd.Path, cmd.Args = b.Bwrap, append([]string{b.Bwrap, "--dev-bind", "/", "/", "--tmpfs", dir, "--", cmd.Path}, cmd.Args[1:]...)
			got := clitest.Finish(t, cmd)
			assert.Equal(t, 125, got.Status, words)
			assert.Contains(t, got.Stderr, words[0]+": "+strings.ReplaceAll(want, "NAME", words[0]), words)
		}
	}
}

func TestSocketsOfContainersAreRefused(t *testing.T) {
	b := clitest.NewBox(t)
	runtime := filepath.Join(filepath.Dir(b.Project), "runtime")
	b.Mkdir(t, runtime)
	listener, err := net.Listen("unix", runtime+"/docker.sock")
	require.NoError(t, err)
	defer listener.Close()
	b.Mkdir(t, b.Project+"/sockets")
	require.NoError(t, os.Link(runtime+"/docker.sock", b.Project+"/sockets/harmless"))
	b.Env = []string{"XDG_RUNTIME_DIR=" + runtime}
	for _, test := range []struct{ name, root string }{
		{"the directory", runtime},
		{"the socket", runtime + "/docker.sock"},
		{"a directory above", filepath.Dir(runtime)},
		{"a directory with a hard link to it", b.Project + "/sockets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := inside(t, b, "echo in", "--readable", test.root)
			assert.Equal(t, 125, got.Status)
			assert.Empty(t, got.Stdout)
			assert.Contains(t, got.Stderr, fmt.Sprintf("pk-bwrap: cannot show %q: ", test.root))
		})
	}
}

func TestTooManyArguments(t *testing.T) {
	b := clitest.NewBox(t)
	many := strings.Fields(strings.Repeat("x ", 9000))
	got := b.Run(t, "pk-bwrap", append([]string{"--", "true"}, many...)...)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "pk-bwrap: bwrap takes 9000 words at most, and this would be ")

	assert.Equal(t, 0, b.Run(t, "pk-bwrap", append([]string{"--", "true"}, many[:8000]...)...).Status)
}

// In a sandbox no further sandbox can be made, unless an option allows
// it.
func TestInsideASandbox(t *testing.T) {
	b := clitest.NewBox(t)
	bwrap := filepath.Dir(b.Bwrap) // with the files beside it
	nested := []string{"--readable", b.Bin, "--", b.Bin + "/pk-bwrap", "--bwrap", b.Bwrap, "--no-toolchains", "--", "echo", "in"}
	if bwrap != "/usr/bin" {
		nested = append([]string{"--readable", bwrap}, nested...)
	}
	got := b.Run(t, "pk-bwrap", nested...)
	assert.Equal(t, 125, got.Status)
	assert.Empty(t, got.Stdout)
	assert.Regexp(t, `^pk-bwrap: cannot make a sandbox: .*\npk-bwrap: hint: (this is inside a sandbox already; start the one around it with: pk-bwrap --allow-nested|no more namespaces are allowed.*)\n$`, got.Stderr)

	got = b.Run(t, "pk-bwrap", append([]string{"--allow-nested"}, nested...)...)
	if os.Getuid() == 0 { // without capabilities the kernel does not let a process map uid 0
		assert.Equal(t, 125, got.Status)
		assert.Contains(t, got.Stderr, "cannot make a sandbox: setting up uid map")
		return
	}
	assert.Equal(t, clitest.Outcome{Stdout: "in\n"}, got)

	// The masks of the outer sandbox do not prevent those of the inner one.
	b.Write(t, b.Project+"/.env", "secret")
	nested = append(nested[:len(nested)-3], "--deny", ".env", "--", "sh", "-c", `! cat .env; find / -name .env -size +0 -not -path '/proc/*' 2>/dev/null; true`)
	got = b.Run(t, "pk-bwrap", append([]string{"--allow-nested"}, nested...)...)
	assert.Equal(t, 0, got.Status, got.Stderr)
	assert.Empty(t, got.Stdout)

	// The outer sandbox has a layer over the git directory.
	out, err := exec.Command("git", "init", "-q", b.Project).CombinedOutput()
	require.NoError(t, err, string(out))
	nested = append(nested[:len(nested)-6], "--", "sh", "-c", "echo >.git/hooks/post-commit; git -c user.name=n -c user.email=e commit -q --allow-empty -m in")
	got = b.Run(t, "pk-bwrap", append([]string{"--allow-nested"}, nested...)...)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "hint: inside another sandbox of pk, which protects it already, add --no-protect\n")
	nested = slices.Insert(nested, slices.Index(nested, "--no-toolchains"), "--no-protect")
	got = b.Run(t, "pk-bwrap", append([]string{"--allow-nested"}, nested...)...)
	assert.Equal(t, 0, got.Status, got.Stderr)
	assert.Contains(t, got.Stderr, ".git/hooks")
	out, err = exec.Command("git", "-C", b.Project, "log", "--format=%s").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "in\n", string(out))
	assert.NoFileExists(t, b.Project+"/.git/hooks/post-commit")
}

// Masks apply in an overlay, whose inodes are not the host's.
func TestRulesInAnOverlay(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/sub/deep/s", "secret")
	b.Write(t, b.Project+"/sub/deep/f", "text")
	for _, session := range [][]string{nil, {"--session", "s"}} {
		options := append(session, "--overlay", b.Project+"/sub", "--deny", "sub/deep/s", "--", "sh", "-c")
		got := b.Run(t, "pk-bwrap", append(options, "cat sub/deep/s || cat sub/deep/f; echo more >sub/deep/new && cat sub/deep/new")...)
		assert.Equal(t, 0, got.Status, got.Stderr)
		assert.Equal(t, "textmore\n", got.Stdout)
		got = b.Run(t, "pk-bwrap", append(options, "mv sub/deep sub/d || rm sub/deep/s || echo kept")...)
		assert.Equal(t, "kept\n", got.Stdout, got.Stderr)
	}
	assert.NoFileExists(t, b.Project+"/sub/deep/new")
}

// A credential that a command of the session has removed from its overlay needs
// no hiding.
func TestAHiddenFileThatTheSessionRemoved(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/.ccache/ccache.conf", "secret")
	got := b.Run(t, "pk-bwrap", "--session", "s", "--no-toolchains", "--overlay", b.Home+"/.ccache", "--", "rm", b.Home+"/.ccache/ccache.conf")
	require.Equal(t, 0, got.Status, got.Stderr)
	got = b.Run(t, "pk-bwrap", "--session", "s", "--", "sh", "-c", "cat ~/.ccache/ccache.conf || echo gone")
	assert.Equal(t, "gone\n", got.Stdout, got.Stderr)
	assert.FileExists(t, b.Home+"/.ccache/ccache.conf")
}

// While a command runs, the monitor and the set-up program hold the session as in use.
func TestASessionInUseIsNotSwept(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bwrap", "--session", "s", "--", "bash", "-c", "echo ready; read _; cat /tmp/f")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	buf := make([]byte, 16)
	_, err = out.Read(buf)
	require.NoError(t, err)
	playground := b.Home + "/.cache/pikuri/workspace-s/playground"
	b.Write(t, playground+"/f", "kept\n")

	assert.Equal(t, 1, b.Run(t, "pk-sweep", "--session", "s").Status)
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--all"))
	in.Close()
	n, err := out.Read(buf)
	require.NoError(t, err)
	assert.Equal(t, "kept\n", string(buf[:n]))
	require.NoError(t, cmd.Wait())

	// The last process of a sandbox dies a little after its command.
	lock, err := os.Open(filepath.Dir(playground))
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	lock.Close()
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--session", "s"))
	assert.NoDirExists(t, playground)
}

// Ambient capabilities come with some logins and containers.
func TestAmbientCapabilitiesAreNoObstacle(t *testing.T) {
	b := clitest.NewBox(t)
	if os.Getuid() != 0 {
		return // only root can hand any out
	}
	project, err := os.MkdirTemp("/var/tmp", "pk-")
	require.NoError(t, err)
	defer os.RemoveAll(project)
	require.NoError(t, os.Chown(project, 54321, 54321))
	cmd := b.Command("pk-bwrap", "-C", project, "--", "true")
	cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+project+"-cache")
	require.NoError(t, os.Mkdir(project+"-cache", 0o700))
	defer os.RemoveAll(project + "-cache")
	require.NoError(t, os.Chown(project+"-cache", 54321, 54321))
	cmd.Args = append([]string{"setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=+chown", "--ambient-caps=+chown", cmd.Path}, cmd.Args[1:]...)
	cmd.Path, _ = exec.LookPath("setpriv")
	cmd.Dir = "/"
	assert.Equal(t, clitest.Outcome{}, clitest.Finish(t, cmd))
}

func TestIdentityIsThatOfTheProject(t *testing.T) {
	b := clitest.NewBox(t)
	for dir, name := range map[string]string{b.Project: "Here", b.Home + "/other": "Elsewhere"} {
		b.Write(t, dir+"/.git/config", "[core]\n\trepositoryformatversion = 0\n[user]\n\tname = "+name+"\n")
		b.Write(t, dir+"/.git/HEAD", "ref: refs/heads/main\n")
		b.Mkdir(t, dir+"/.git/objects")
		b.Mkdir(t, dir+"/.git/refs")
	}
	b.Env = []string{"GIT_DIR=" + b.Home + "/other/.git"}
	assert.Equal(t, "Here\n", inside(t, b, "git config user.name").Stdout)
}

// An open directory leads to its parent, and so out. No process in the sandbox
// may hold one, its init included.
func TestNoProcessInsideHoldsADirectory(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/.cache/go-build")
	// bwrap's init lists its own descriptors as it starts, so each is awaited.
	const script = `for f in /proc/[0-9]*/fd/*; do
		for i in {1..100}; do [ -d "$f/" ] || break; sleep 0.02; done
		[ ! -d "$f/" ] || echo "in: $f"
	done; [ -e /proc/1/fd/0 ] && echo looked`
	for _, options := range [][]string{nil, {"--no-toolchains"}, {"--session", "s"}, {"--session", "s", "--no-toolchains"}} {
		got := inside(t, b, script, options...)
		assert.Equal(t, clitest.Outcome{Stdout: "looked\n"}, got, "pk-bwrap %v", options)
		got = b.Run(t, "pk-bash", append(options, "-y", "--raw", script)...)
		assert.Equal(t, clitest.Outcome{Stdout: "looked\n"}, got, "pk-bash %v", options)
	}
}

// Variables that the caller sets for the command do not reach bwrap, which runs outside.
// With this variable, a dynamic linker lists libraries and runs nothing.
func TestVariablesOfTheCommandDoNotReachBwrap(t *testing.T) {
	b := clitest.NewBox(t)
	for _, options := range [][]string{
		{"--setenv", "LD_TRACE_LOADED_OBJECTS=1"},
		{"--pass-env", "LD_TRACE_LOADED_OBJECTS"},
		{"--env-inherit"},
	} {
		cmd := b.Command("pk-bwrap", append(options, "--readable", b.Bin, "--", b.Bin+"/pk-resolve", "--version")...)
		cmd.Env = append(cmd.Env, "LD_TRACE_LOADED_OBJECTS=1")
		got := clitest.Finish(t, cmd)
		assert.Regexp(t, "^pk-resolve ", got.Stdout, options)
	}
}

func TestStandardStreamsMayNotBeDirectories(t *testing.T) {
	b := clitest.NewBox(t)
	dir, err := os.Open("/")
	require.NoError(t, err)
	defer dir.Close()
	cmd := b.Command("pk-bwrap", "--", "true")
	cmd.Stdin = dir
	assert.Equal(t, clitest.Outcome{
		Stderr: "pk-bwrap: cannot hand on standard input: it is a directory\npk-bwrap: hint: redirect it from a file or /dev/null\n",
		Status: 125,
	}, clitest.Finish(t, cmd))
}

// A command leaves a link where the next one names a root.
func TestAPlantedLinkDoesNotWidenTheNextSandbox(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Home+"/.ssh/id", "secret\n")
	b.Mkdir(t, b.Project+"/data")
	require.Equal(t, 0, inside(t, b, "rmdir data && ln -s ~/.ssh data").Status)
	for _, option := range []string{"--readable", "--writable", "--overlay"} {
		got := inside(t, b, "cat data/id", option, "data")
		assert.Equal(t, 125, got.Status, option)
		assert.Contains(t, got.Stderr, "it leads out of a writable root, through a link in it\n")
	}
}

// In a session /tmp lasts, and a project may lie below the host's /tmp.
func TestALinkInTheSessionDoesNotLeadToTheHost(t *testing.T) {
	b := clitest.NewBox(t)
	base, err := os.MkdirTemp("/tmp", "pk-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	b.Mkdir(t, base+"/in/project")
	b.Mkdir(t, b.Home+"/victim")
	options := []string{"--session", "s", "--no-toolchains", "-C", base + "/in/project"}
	require.Equal(t, 0, inside(t, b, "pwd", options...).Status)

	require.Equal(t, 0, inside(t, b, fmt.Sprintf("rm -rf %[1]s; ln -s /oldroot%[2]s/victim %[1]s", base, b.Home), "--session", "s", "--no-toolchains").Status)
	got := inside(t, b, "pwd", options...)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, fmt.Sprintf("pk-bwrap: cannot show %q", base))
	left, err := os.ReadDir(b.Home + "/victim")
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestRefusalsMakeNoSession(t *testing.T) {
	b := clitest.NewBox(t)
	for _, args := range [][]string{{"--readable", "/run", "--", "true"}, {"--setenv", "x", "--", "true"}, {"--bwrap", "/nonesuch", "--", "true"}} {
		got := b.Run(t, "pk-bwrap", append([]string{"--session", "s"}, args...)...)
		assert.GreaterOrEqual(t, got.Status, 125)
		assert.NoDirExists(t, b.Home+"/.cache/pikuri/workspace-s", args)
	}
}

// A command that is refused, or only explained, does not remove the session that
// others have begun to use meanwhile.
func TestRefusalsRemoveNoSession(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	for round := range 10 {
		name := fmt.Sprintf("s%d", round)
		var others sync.WaitGroup
		for _, args := range [][]string{{"--", "nonesuch"}, {"--explain"}, {"--print", "--", "true"}, {"--readable", "/run", "--", "true"}} {
			others.Go(func() { b.Run(t, "pk-bwrap", append([]string{"--session", name}, args...)...) })
		}
		got := inside(t, b, "echo mine > /tmp/f", "--session", name)
		others.Wait()
		assert.Equal(t, clitest.Outcome{}, got)
		assert.FileExists(t, b.Home+"/.cache/pikuri/workspace-"+name+"/playground/f")
	}
}

func TestOddHomes(t *testing.T) {
	b := clitest.NewBox(t)
	require.NoError(t, os.Symlink(b.Home, filepath.Dir(b.Home)+"/way"))
	dangling := filepath.Dir(b.Home) + "/dangling"
	for link, target := range map[string]string{"dangling": "gone", "device": "/dev/nonesuch", "process": "/proc/self/nonesuch",
		"system": "/usr/nonesuch", "inside": "project/nonesuch", "loop": "loop"} {
		require.NoError(t, os.Symlink(target, filepath.Dir(b.Home)+"/"+link))
	}
	for _, home := range []string{"", "relative", "/", "/nonesuch/deep", "/proc/x", "/dev/x", "/lib/zz", "/usr/x", "/bin", "/etc", "/tmp", "/tmp/x",
		"/a:b", "/with blank", filepath.Dir(b.Home) + "/way", b.Project, b.Project + "/in", "/var/tmp/nonesuch", "/dev/null", dangling, dangling + "/deep",
		filepath.Dir(b.Home) + "/device", filepath.Dir(b.Home) + "/process", filepath.Dir(b.Home) + "/system", filepath.Dir(b.Home) + "/inside", filepath.Dir(b.Home) + "/loop"} {
		// Without protection there is no note, and so no journal in these places.
		cmd := b.Command("pk-bwrap", "--no-protect", "--", "sh", "-c", "cd && pwd >/dev/null && ls >/dev/null")
		cmd.Env = append(cmd.Env, "HOME="+home)
		got := clitest.Finish(t, cmd)
		if home == b.Project || home == b.Project+"/in" || home == filepath.Dir(b.Home)+"/inside" || home == filepath.Dir(b.Home)+"/process" {
			assert.Equal(t, 125, got.Status, "a home is no project, and a project no place for session directories; /proc/self may lead to one")
			continue
		}
		assert.NotEqual(t, 125, got.Status, "%q: %s", home, got.Stderr)
		assert.NotContains(t, got.Stderr, "bwrap:", home)
	}
	assert.NoDirExists(t, b.Project+"/in")
	assert.NoDirExists(t, filepath.Dir(b.Home)+"/gone")

	for _, args := range [][]string{{"--", "touch", "f"}, {"--session", "s", "--", "touch", "f"}} {
		cmd := b.Command("pk-bwrap", args...)
		cmd.Env = append(cmd.Env, "HOME="+dangling)
		assert.Equal(t, clitest.Outcome{Status: 125, Stderr: fmt.Sprintf("pk-bwrap: cannot make cache directory %q: no such file or directory\n", dangling+"/.cache/pikuri") +
			"pk-bwrap: hint: set XDG_CACHE_HOME to a directory of your own\n"}, clitest.Finish(t, cmd))
	}
	assert.NoFileExists(t, b.Project+"/f")
}

// /proc/1/exe is bwrap's file: init runs it. A command may try to change it.
func TestTheCommandCannotChangeBwrap(t *testing.T) {
	b := clitest.NewBox(t)
	own := filepath.Dir(b.Project) + "/bwrap"
	require.NoError(t, os.WriteFile(own, realBwrap(t, b), 0o755))
	b.Mkdir(t, b.Home+"/.cache/go-build")
	for _, name := range []string{"pk-bwrap", "pk-bash"} {
		for _, options := range [][]string{nil, {"--no-toolchains"}} {
			args := append([]string{"--bwrap", own}, options...)
			if name == "pk-bash" {
				args = append(args, "-y", "--raw", "chmod 000 /proc/1/exe; ls /proc/self/fd")
			} else {
				args = append(args, "--", "sh", "-c", "chmod 000 /proc/1/exe; ls /proc/self/fd")
			}
			got := b.Run(t, name, args...)
			assert.Equal(t, "0\n1\n2\n3\n", got.Stdout, "%s %v: %s", name, options, got.Stderr)
			info, err := os.Stat(own)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o755), info.Mode())
		}
	}
}

// realBwrap is a bwrap that needs no other file, as a wrapper would: the one
// under test, or the machine's, or the other one of the test environment.
func realBwrap(t *testing.T, b *clitest.Box) []byte {
	t.Helper()
	for _, path := range []string{b.Bwrap, "/usr/bin/bwrap", filepath.Dir(filepath.Dir(b.Bwrap)) + "/bwrap-0.8/bwrap"} {
		program, err := os.ReadFile(path)
		if err == nil && bytes.Contains(program, []byte("--unshare-user")) {
			return program
		}
	}
	require.Fail(t, "there is no bwrap that is not a wrapper")
	return nil
}

// A command in another project is not told of a root that a command has closed.
func TestARootThatIsClosed(t *testing.T) {
	b := clitest.NewBox(t)
	closed := b.Project
	t.Cleanup(func() { _ = os.Chmod(closed, 0o755) })
	got := b.Run(t, "pk-bwrap", "--", "sh", "-c", "mkdir sub; git init -q sub; chmod 0 .")
	assert.Zero(t, got.Status, got.Stderr)
	assert.Contains(t, got.Stderr, "works in the sandbox alone")
	b.Project = filepath.Dir(closed) + "/open"
	b.Mkdir(t, b.Project)
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-bwrap", "--", "true"))
	require.NoError(t, os.Chmod(closed, 0o755))
	assert.NoDirExists(t, closed+"/sub/.git")
}

// The process of a script around bwrap stays, and holds bwrap's sockets open.
func TestBwrapWithinAScript(t *testing.T) {
	b := clitest.NewBox(t)
	script := filepath.Dir(b.Project) + "/script"
	b.Script(t, script, "timeout --foreground 60 '"+b.Bwrap+"' \"$@\"\nexit $?\n")
	b.Bwrap = script
	for _, session := range [][]string{{"--"}, {"--session", "s", "--"}} {
		got := b.Run(t, "pk-bwrap", append(session, "sh", "-c", "echo ran; exit 3")...)
		assert.Equal(t, clitest.Outcome{Stdout: "ran\n", Status: 3}, got)
	}
}

// No command can reach the session's lock, so it can neither drop the lock nor break the
// session for others.
func TestInitHoldsNoFileOfTheHost(t *testing.T) {
	b := clitest.NewBox(t)
	got := inside(t, b, `for f in /proc/1/fd/*; do
		case $(readlink "$f") in /dev/null | /proc/* | pipe:* | anon_inode:* | "") ;; *) ls -l "$f" ;; esac
	done; [ -e /proc/1/fd/0 ] && echo looked`, "--session", "s")
	assert.Equal(t, clitest.Outcome{Stdout: "looked\n"}, got)
}

// The next command would show paths that this command wrote into a list.
func TestListsInAWritableRootAreRefused(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/list", b.Home+"\n")
	b.Write(t, b.Home+"/list", b.Project+"\n")
	for _, option := range []string{"--readable-from", "--writable-from", "--overlay-from"} {
		got := inside(t, b, "true", option, "list")
		assert.Equal(t, 125, got.Status, option)
		assert.NotEmpty(t, got.Stderr)
	}
	assert.Equal(t, clitest.Outcome{}, inside(t, b, "true", "--readable-from", b.Home+"/list"))
}

// A later command could write orders for pk there, or reach another session.
func TestSessionDirectoriesAreNoRoots(t *testing.T) {
	b := clitest.NewBox(t)
	require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	base := b.Home + "/.cache/pikuri"
	b.Mkdir(t, base+"/journal")
	for _, root := range []string{base, base + "/journal", base + "/workspace-s"} {
		for _, option := range []string{"--readable", "--writable", "--overlay"} {
			got := inside(t, b, "true", option, root)
			assert.Equal(t, 125, got.Status, "%s %s", option, root)
			assert.NotEmpty(t, got.Stderr)
		}
	}
}

// Git follows each link on the way to its hooks, and a command may replace each.
func TestEachLinkOnTheWayIsMadeAgain(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Project+"/real")
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n", "objects/x": "", "refs/x": ""} {
		b.Write(t, filepath.Join(b.Project, ".git", name), text)
	}
	require.NoError(t, os.Symlink("real", b.Project+"/middle"))
	require.NoError(t, os.Symlink("../middle", b.Project+"/.git/hooks"))
	got := inside(t, b, "mkdir evil; : > evil/pre-commit; ln -sfn evil middle; ln -sfn ../evil .git/hooks; ! { : > real/pre-commit; } 2>/dev/null")
	require.Equal(t, 0, got.Status, got.Stderr)
	assert.Contains(t, got.Stderr, "moved")
	for link, target := range map[string]string{"middle": "real", ".git/hooks": "../middle"} {
		now, err := os.Readlink(filepath.Join(b.Project, link))
		require.NoError(t, err)
		assert.Equal(t, target, now)
	}
}

// The kernel leads such a name to another place for each process.
func TestPkRefusesFilesBehindItsOwnWorkingDirectory(t *testing.T) {
	b := clitest.NewBox(t)
	got := inside(t, b, "true", "--bwrap", "/proc/self/cwd/bwrap")
	assert.Equal(t, 125, got.Status)
	b.Write(t, b.Project+"/list", b.Home+"\n")
	got = inside(t, b, "true", "--readable-from", "/proc/self/cwd/list")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "lies in the writable root")
}

// A file that the caller redirects is read where the caller reads on, and cannot be opened anew for writing.
func TestInputThatIsAFile(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	list := b.Home + "/list"
	for _, options := range []string{"", "--session s", "--net none"} {
		require.NoError(t, os.WriteFile(list, []byte("one\ntwo\nthree\n"), 0o644))
		cmd := exec.Command("sh", "-c", `pk-bwrap `+options+` -- sh -c 'read x; echo "in $x"; echo evil >>/proc/self/fd/0 || echo no; chmod 600 /proc/self/fd/0 || echo no'; cat`)
		cmd.Dir, cmd.Env = b.Project, append(b.Command("pk-bwrap").Env, "PATH="+b.Commands(t)+":"+os.Getenv("PATH"))
		in, err := os.Open(list)
		require.NoError(t, err)
		cmd.Stdin = in
		got := clitest.Finish(t, cmd)
		in.Close()
		assert.Equal(t, "in one\nno\nno\ntwo\nthree\n", got.Stdout, "%s: %s", options, got.Stderr)
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		assert.Equal(t, "one\ntwo\nthree\n", string(text))
		st, err := os.Stat(list)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o644), st.Mode())
	}

	// If the caller has read on meanwhile, the offset does not go back.
	in, err := os.Open(list)
	require.NoError(t, err)
	defer in.Close()
	cmd := b.Command("pk-bwrap", "--", "sh", "-c", "read x; touch begun; until [ -e end ]; do :; done")
	cmd.Stdin = in
	require.NoError(t, cmd.Start())
	until(t, func() bool { _, err := os.Stat(b.Project + "/begun"); return err == nil })
	_, err = in.Seek(8, io.SeekStart)
	require.NoError(t, err)
	b.Write(t, b.Project+"/end", "")
	require.NoError(t, cmd.Wait())
	at, err := in.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	assert.EqualValues(t, 8, at)
}
