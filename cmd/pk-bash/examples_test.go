package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// playground is a box for the examples of scripts/examples.
type playground struct {
	*clitest.Box
	examples string
	commands string // the real binaries, by name
}

func newPlayground(t *testing.T) *playground {
	t.Helper()
	b := clitest.NewBoxInOneRow(t)
	return &playground{Box: b, examples: filepath.Join(clitest.Root(t), "scripts", "examples"), commands: b.Commands(t)}
}

// run runs a program in the project.
func (p *playground) run(t *testing.T, stdin string, argv ...string) clitest.Outcome {
	t.Helper()
	clitest.Need(t, argv[0])
	program, err := exec.LookPath(argv[0])
	require.NoError(t, err)
	cmd := exec.Command(program, argv[1:]...)
	cmd.Dir, cmd.Stdin = p.Project, strings.NewReader(stdin)
	cmd.Env = append([]string{"HOME=" + p.Home, "PATH=" + p.commands + ":" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1",
		"GIT_CONFIG_NOSYSTEM=1", "TMPDIR=" + filepath.Dir(p.Project)}, p.Env...)
	return clitest.Finish(t, cmd)
}

// python is the interpreter itself: python3 can be a shell script that looks for it,
// each time.
var python = sync.OnceValue(func() string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "python3"
	}
	return strings.TrimSpace(string(path))
})

// example runs one of the examples with an interpreter.
func (p *playground) example(t *testing.T, stdin, interpreter, name string, args ...string) clitest.Outcome {
	t.Helper()
	argv := []string{interpreter, filepath.Join(p.examples, name)}
	if interpreter == "python3" { // -S: half of its start is to look for packages, and the examples use none
		argv = []string{python(), "-S", argv[1]}
	}
	return p.run(t, stdin, append(argv, args...)...)
}

// Each example needs a test, and its name here.
func TestNoExampleIsUntried(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(clitest.Root(t), "scripts", "examples"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.Name() != "__pycache__" {
			names = append(names, e.Name())
		}
	}
	assert.Equal(t, []string{"Makefile", "agent.mjs", "agent.py", "audit-ship", "ci.yml", "embed", "loop.mjs", "loop.py", "loop.sh", "mcp", "pre-push", "pretooluse.py"}, names)
}

// A program in any language can drive the loop.
func TestLoopExamples(t *testing.T) {
	p := newPlayground(t)
	for _, example := range [][]string{{"sh", "loop.sh"}, {"python3", "loop.py"}, {"node", "loop.mjs"}} {
		t.Run(example[1], func(t *testing.T) { // in turn: they use the same file
			p.Run(t, "pk-bash", "-y", "rm -f go")
			if example[0] == "sh" {
				clitest.Need(t, "jq")
			}
			got := p.example(t, "", example[0], example[1], "pk-bash", "-y")
			assert.Equal(t, clitest.Outcome{Stdout: "uname: exited 0: Linux\nfails: exited 3: \nslow: timed-out 124: begun\nbad: refused 125: there is no command\n" +
				"start: running -: \nbeside: exited 0: beside it\nread: running -: gone\nkill: signaled 143: \n"}, got)
		})
	}
}

func TestAgentExamples(t *testing.T) {
	p := newPlayground(t)
	p.Write(t, p.Project+"/test.sh", "test \"$PK_BASH\" = 1 || exit 9\ngrep -q hello greeting || { echo 'the \"greeting\" is wrong'; exit 1; }\n")
	for _, example := range [][]string{{"python3", "agent.py"}, {"node", "agent.mjs"}} {
		t.Run(example[1], func(t *testing.T) {
			p.Write(t, p.Project+"/greeting", "helo\n")
			got := p.example(t, "", example[0], example[1], "mend the test", "pk-bash", "-y", "--net", "none")
			assert.Equal(t, 0, got.Status, got.Stderr)
			assert.Equal(t, "The tests pass, and the server serves.", lastOf(got.Stdout), got.Stdout)
			assert.Contains(t, got.Stdout, "run: ")
			assert.Contains(t, got.Stdout, "hello\\nexit status: 0")
			assert.Contains(t, got.Stdout, "run the tests again: ")
			assert.FileExists(t, p.Project+"/greeting")

			p.Write(t, p.Project+"/greeting", "good bye\n")
			got = p.example(t, "", example[0], example[1], "mend the test", "pk-bash", "-y")
			assert.Equal(t, "I give up.", lastOf(got.Stdout))

			got = p.example(t, "", example[0], example[1], "mend the test", "pk-bash", "-n")
			assert.Contains(t, got.Stdout, "declined")

			for _, wrong := range [][]string{{"task"}, {"task", "nonesuch"}, {"task", "pk-bash", "--nonesuch"}} {
				got = p.example(t, "", example[0], example[1], wrong...)
				assert.Equal(t, 1, got.Status, wrong)
				assert.Regexp(t, "^agent: .", lastOf(got.Stderr), wrong)
			}
		})
	}
}

// lastOf is the last line of a text.
func lastOf(s string) string {
	s = strings.TrimSuffix(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

func TestMakefileExample(t *testing.T) {
	p := newPlayground(t)
	text, err := os.ReadFile(p.examples + "/Makefile")
	require.NoError(t, err)
	makefile := p.Project + "/Makefile"
	p.Write(t, makefile, string(text)+"\nwidens:\n\t@echo 'SHELL = sh' >>Makefile\n")

	got := p.run(t, "", "make")
	assert.Equal(t, clitest.Outcome{Stdout: "fenced: 1, in " + p.Project + ", home with 0 files\n/tmp: it's\n/tmp: \"quoted\"\n/tmp: $PWD\n"}, got)

	got = p.run(t, "", "make", "fails")
	assert.Equal(t, 2, got.Status)
	assert.Empty(t, got.Stdout)
	assert.Contains(t, got.Stderr, "Error 3")

	got = p.run(t, "", "make", "widens")
	assert.Equal(t, 2, got.Status)
	assert.Contains(t, got.Stderr, "Makefile: Read-only file system")
	p.Write(t, makefile, string(text))

	// Only with the descriptors of the jobserver do the two meet.
	parts := []string{"make", "-j2", "parts"}
	if help := p.run(t, "", "make", "--help"); strings.Contains(help.Stdout, "--jobserver-style") {
		parts = append(parts, "--jobserver-style=pipe")
	}
	got = p.run(t, "", parts...)
	assert.Equal(t, clitest.Outcome{Stdout: "parts run together\nparts run together\n"}, got)
}

func TestPrePushExample(t *testing.T) {
	p := newPlayground(t)
	git := func(args ...string) clitest.Outcome {
		t.Helper()
		return p.run(t, "", append([]string{"git", "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	}
	does := func(args ...string) {
		t.Helper()
		got := git(args...)
		require.Equal(t, 0, got.Status, got.Stderr)
	}
	remote := filepath.Join(filepath.Dir(p.Project), "remote")
	does("init", "-q", "--bare", remote)
	does("init", "-q", "-b", "main", ".")
	does("remote", "add", "origin", remote)
	hook, err := os.ReadFile(p.examples + "/pre-push")
	require.NoError(t, err)
	p.Write(t, p.Project+"/.git/hooks/pre-push", string(hook))
	require.NoError(t, os.Chmod(p.Project+"/.git/hooks/pre-push", 0o755))
	p.Write(t, p.Project+"/Makefile", "test:\n\t@ls; test -e good && ! test -e "+p.Project+"/Makefile\n")

	p.Write(t, p.Project+"/good", "")
	does("add", ".")
	does("commit", "-q", "-m", "good")
	p.Write(t, p.Project+"/not committed", "")
	got := git("push", "-q", "origin", "main")
	assert.Equal(t, clitest.Outcome{Stderr: "pre-push: refs/heads/main: make test\nMakefile\ngood\n"}, got)

	does("rm", "-q", "--cached", "good") // it still lies there
	does("commit", "-q", "-m", "bad")
	got = git("push", "-q", "origin", "main", "HEAD~:refs/heads/before")
	assert.Equal(t, 1, got.Status)
	assert.Contains(t, got.Stderr, "pre-push: refs/heads/main is not pushed: `make test` exits with 2\n")
	does("config", "pk.prePush", "true")
	does("push", "-q", "origin", "main", "HEAD~:refs/heads/before")
	does("config", "pk.prePush", "false")
	does("push", "-q", "origin", ":before")

	// The fence protects the hook and its setting.
	got = p.Run(t, "pk-bash", "-y", "echo >.git/hooks/pre-push; git config pk.prePush true")
	assert.Equal(t, 0, got.Status, got.Stderr)
	kept, err := os.ReadFile(p.Project + "/.git/hooks/pre-push")
	require.NoError(t, err)
	assert.Equal(t, string(hook), string(kept))
	assert.Equal(t, "false\n", git("config", "pk.prePush").Stdout)
	left, err := filepath.Glob(filepath.Dir(p.Project) + "/pre-push.*")
	require.NoError(t, err)
	assert.Empty(t, left)
}

// steps returns the scripts of a workflow, by the names of its steps.
func steps(t *testing.T, workflow string) map[string]string {
	t.Helper()
	found, name, indent := map[string]string{}, "", ""
	for line := range strings.Lines(workflow) {
		text := strings.TrimLeft(line, " ")
		if rest, ok := strings.CutPrefix(text, "- name: "); ok {
			name, indent = strings.TrimSpace(rest), ""
		} else if rest, ok := strings.CutPrefix(text, "run: "); ok && rest != "|\n" {
			found[name] = rest
		} else if ok {
			indent = line[:len(line)-len(text)] + "  "
		} else if indent != "" && strings.HasPrefix(line, indent) {
			found[name] += strings.TrimPrefix(line, indent)
		}
	}
	return found
}

// The steps are run as a runner does, each by a bash of its own.
func TestCIExample(t *testing.T) {
	p := newPlayground(t)
	workflow, err := os.ReadFile(p.examples + "/ci.yml")
	require.NoError(t, err)
	run := steps(t, string(workflow))
	require.Len(t, run, 4)
	step := func(name string) clitest.Outcome {
		require.Contains(t, run, name)
		script := filepath.Join(filepath.Dir(p.Project), "step.sh")
		p.Write(t, script, run[name])
		return p.run(t, "", "bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	}
	// It installs, and gives bwrap a profile: a stand-in prints the commands.
	p.Script(t, p.commands+"/sudo", "echo \"$@\"\n[ \"$1\" != tee ] || cat\n")
	p.Write(t, filepath.Dir(p.Project)+"/pk/Makefile", "build:\n\t@echo built\n")
	assert.Equal(t, "apt-get update\napt-get install -y --no-install-recommends bubblewrap\n"+
		"tee /etc/apparmor.d/pk\nabi <abi/4.0>,\nprofile pk /{usr/bin/bwrap,usr/local/bin/pk-*} flags=(unconfined) { userns, }\n"+
		"apparmor_parser -r /etc/apparmor.d/pk\nbuilt\nmake -C ../pk install\n",
		regexp.MustCompile("(?m)^make: .*\n").ReplaceAllString(step("Install the fence").Stdout, ""))
	got := step("Say what holds here")
	assert.Equal(t, 0, got.Status, got.Stdout+got.Stderr)

	p.Write(t, p.Project+"/Makefile", "deps:\n\techo fetched >/tmp/deps\ntest:\n\t@cat /tmp/deps; ls /sys/class/net 2>/dev/null | grep -v lo; exit $${BAD:-0}\n")
	got = step("Fetch what the tests need")
	assert.Equal(t, 0, got.Status, got.Stdout+got.Stderr)
	got = step("Test")
	assert.Equal(t, 0, got.Status, got.Stdout+got.Stderr)
	log, err := os.ReadFile(p.Project + "/test.log")
	require.NoError(t, err)
	assert.Equal(t, "fetched\n", string(log))
	p.Env = []string{"BAD=1"}
	assert.Equal(t, 2, step("Test").Status)
}

// hooked is the hook's answer to a call.
type hooked struct {
	HookSpecificOutput struct {
		HookEventName      string         `json:"hookEventName"`
		PermissionDecision string         `json:"permissionDecision"`
		UpdatedInput       map[string]any `json:"updatedInput"`
	} `json:"hookSpecificOutput"`
}

func (p *playground) hook(t *testing.T, call map[string]any, args ...string) hooked {
	t.Helper()
	var stdin bytes.Buffer
	require.NoError(t, json.NewEncoder(&stdin).Encode(call))
	got := p.example(t, stdin.String(), "python3", "pretooluse.py", args...)
	require.Equal(t, 0, got.Status, got.Stderr)
	var h hooked
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &h), got.Stdout)
	return h
}

// The command in the hook's answer has the same effect as the original.
func TestPreToolUseExampleQuotes(t *testing.T) {
	p := newPlayground(t)
	p.Write(t, p.Project+"/a b", "")
	for _, test := range []struct{ name, command string }{
		{"plain", "echo hi"},
		{"status", "echo out; echo err >&2; exit 7"},
		{"single quotes", `echo 'a'"'"'b' "it's"`},
		{"double quotes", `echo "a \"b\" c"`},
		{"backslashes", `printf '%s\n' \\ '\' "\\" \'`},
		{"expansions", "echo $(echo sub) `echo tick` ${x:-y} $((1+1)) * ~+"},
		{"newlines", "echo a\necho b\n\n"},
		{"here-document", "cat <<'E'\n$x 'y' \"z\"\nE\n"},
		{"control characters", "printf '%s' 'a\tb\x01c\x7f' | od -c"},
		{"unicode", "echo 'é☃😀' \u202e"},
		{"history and braces", "echo hi! {a,b} # 'not closed"},
		{"begins with a dash", "-n 2>&1 | sed 's/^.*: line/line/'; true"},
		{"operators", "true && echo a || echo b; (echo c) & wait; ! false"},
		{"quote that is not closed", "echo 'a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := p.run(t, "", "bash", "-c", "--", test.command)
			h := p.hook(t, map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": test.command}})
			rewritten, _ := h.HookSpecificOutput.UpdatedInput["command"].(string)
			got := p.run(t, "", "bash", "-c", rewritten)
			assert.Equal(t, want.Stdout, got.Stdout)
			assert.Equal(t, want.Status, got.Status)
			assert.Equal(t, want.Stderr == "", got.Stderr == "", got.Stderr)
		})
	}
}

func TestPreToolUseExample(t *testing.T) {
	p := newPlayground(t)
	sub := p.Project + "/it's a dir"
	p.Mkdir(t, sub)
	p.Env = []string{"CLAUDE_PROJECT_DIR=" + p.Project}
	call := map[string]any{"hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": sub,
		"tool_input": map[string]any{"command": "pwd; echo $PK_BASH; mkdir -p ../.claude; echo {} >../.claude/settings.json", "timeout": 1500.0, "description": "d"}}
	out := p.hook(t, call).HookSpecificOutput
	assert.Equal(t, "PreToolUse", out.HookEventName)
	assert.Equal(t, "ask", out.PermissionDecision)
	assert.Equal(t, "d", out.UpdatedInput["description"])
	assert.Equal(t, 1500.0, out.UpdatedInput["timeout"])
	command, _ := out.UpdatedInput["command"].(string)
	assert.Contains(t, command, " --timeout 2 ")
	got := p.run(t, "", "sh", "-c", command)
	assert.Equal(t, sub+"\n1\n", got.Stdout)
	assert.NoFileExists(t, p.Project+"/.claude/settings.json")

	out = p.hook(t, call, "--allow", "pk-bash", "--net", "none").HookSpecificOutput
	assert.Equal(t, "allow", out.PermissionDecision)
	assert.Contains(t, out.UpdatedInput["command"], "pk-bash --net none -y ")

	// Monitor also runs commands. The hook can deny tools that run outside the fence.
	call["tool_name"] = "Monitor"
	call["tool_input"].(map[string]any)["run_in_background"] = true
	out = p.hook(t, call, "--strict").HookSpecificOutput
	assert.Contains(t, out.UpdatedInput["command"], " --timeout 600 ")
	denied := map[string]any{"tool_name": "PowerShell", "tool_input": map[string]any{"command": "ls"}}
	assert.Equal(t, "deny", p.hook(t, denied).HookSpecificOutput.PermissionDecision)
	denied["tool_name"] = "Write"
	assert.Equal(t, "deny", p.hook(t, denied, "--allow", "--strict").HookSpecificOutput.PermissionDecision)

	// A command that cannot be fenced does not run; other tools are let through.
	for _, test := range []struct {
		name, call string
		status     int
	}{
		{"no JSON", "rm -rf ~", 2},
		{"nothing", "", 2},
		{"no object", "[]", 2},
		{"no tool", "{}", 2},
		{"no command", `{"tool_name":"Bash","tool_input":{}}`, 2},
		{"no input", `{"tool_name":"Bash","tool_input":null}`, 2},
		{"command that is a list", `{"tool_name":"Bash","tool_input":{"command":["ls"]}}`, 2},
		{"NUL", `{"tool_name":"Bash","tool_input":{"command":"ls \u0000"}}`, 2},
		{"timeout that is no number", `{"tool_name":"Bash","tool_input":{"command":"ls","timeout":"x"}}`, 2},
		{"timeout without end", `{"tool_name":"Bash","tool_input":{"command":"ls","timeout":Infinity}}`, 2},
		{"another tool", `{"tool_name":"Read","tool_input":{"file_path":"/x"}}`, 0},
		{"a tool that writes", `{"tool_name":"Write","tool_input":{"file_path":"/x"}}`, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := p.example(t, test.call, "python3", "pretooluse.py")
			assert.Equal(t, test.status, got.Status)
			assert.Empty(t, got.Stdout)
			if test.status == 2 {
				assert.Regexp(t, `^pretooluse: cannot fence this call: .*\n$`, got.Stderr)
			}
		})
	}
}
