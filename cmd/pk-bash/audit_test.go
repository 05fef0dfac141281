package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// eventsOf lists of each record its event, its command, the authority that answered and the
// number of its begin record.
func eventsOf(t *testing.T, name string) []string {
	t.Helper()
	var list []string
	for _, r := range clitest.Records(t, name) {
		line := fmt.Sprint(r["event"])
		for _, field := range []string{"command", "asked", "answer", "reason", "begin", "unfenced"} {
			if value, ok := r[field]; ok {
				line += fmt.Sprintf(" %s=%v", field, value)
			}
		}
		if result, ok := r["result"].(map[string]any); ok {
			line += fmt.Sprintf(" %v %v", result["outcome"], result["exit_status"])
		}
		list = append(list, line)
	}
	return list
}

// whole checks the chain of an audit file.
func whole(t *testing.T, b *clitest.Box, name string) {
	t.Helper()
	assert.Equal(t, clitest.Outcome{}, clitest.Finish(t, exec.Command(filepath.Join(b.Bin, "pk-bash"), "--audit-check", name)))
}

func TestAudit(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	name := b.Audit(t)
	answers := filepath.Join(filepath.Dir(name), "answers")
	b.Script(t, answers, "echo not today; exit 1\n")
	b.Run(t, "pk-bash", "-y", "--audit", name, "--description", "a label", "exit 3")
	b.Run(t, "pk-bash", "-n", "--audit", name, "true")
	b.Run(t, "pk-bash", "--confirm-command", answers, "--audit", name, "rm x")
	b.Run(t, "pk-bash", "-y", "--audit", name, "--readable", "/nonexistent", "true")
	b.Run(t, "pk-bash", "-y", "--audit", name, "--no-sandbox", "kill -9 $$")
	assert.Equal(t, []string{
		"begin command=exit 3 asked=--yes",
		"end asked=--yes begin=1 exited 3",
		"declined command=true asked=--no declined 126",
		"question command=rm x asked=" + answers + " answer=no reason=not today",
		"declined command=rm x asked=" + answers + " declined 126",
		"refused command=true refused 125",
		"begin command=kill -9 $$ asked=--yes unfenced=true",
		"end asked=--yes begin=7 unfenced=true signaled 137",
	}, eventsOf(t, name))
	first := clitest.Records(t, name)[0]
	assert.Equal(t, []any{"pk-bash", "a label", b.Project, b.Project, float64(os.Getuid())}, []any{first["program"], first["description"], first["project"], first["cwd"], first["uid"]})
	assert.Contains(t, first["guarantees"], "files")
	whole(t, b, name)
}

// A job is recorded as a command is, and its input before it reads it.
func TestAuditOfALoop(t *testing.T) {
	b := clitest.NewBox(t)
	name := b.Audit(t)
	c := dial(t, b, "-y", "--audit", name)
	job := c.start("cat", `,"stdin":true`)
	c.ask(`{"op":"write","job":%q,"input":"hello","eof":true}`, job)
	c.wait(job)
	c.ask(`{"command":"true"}`)
	require.NoError(t, c.close())
	assert.Equal(t, []string{
		"begin command=cat asked=--yes",
		"input command=hello asked=--yes begin=1",
		"end asked=--yes begin=1 exited 0",
		"begin command=true asked=--yes",
		"end asked=--yes begin=4 exited 0",
	}, eventsOf(t, name))
	session := clitest.Records(t, name)[0]["session"]
	assert.NotEmpty(t, session)
	for _, r := range clitest.Records(t, name) {
		assert.Equal(t, session, r["session"])
	}
	whole(t, b, name)
}

// A full disk is a file that cannot grow.
func TestNothingRunsWithoutARecord(t *testing.T) {
	b := clitest.NewBox(t)
	name := b.Audit(t)
	require.NoError(t, os.WriteFile(name, []byte("{\"time\":\""+strings.Repeat("\n", 1<<20)), 0o600))
	for _, args := range [][]string{{"pk-bash", "-y", "--audit", name, "touch witness"}, {"pk-bwrap", "--audit", name, "--", "touch", "witness"}} {
		cmd := b.Command(args[0], args[1:]...)
		limited := exec.Command("bash", append([]string{"-c", `ulimit -f 1024; exec "$@"`, "bash"}, cmd.Args...)...)
		limited.Dir, limited.Env = cmd.Dir, cmd.Env
		got := clitest.Finish(t, limited)
		assert.Equal(t, 125, got.Status)
		assert.Equal(t, fmt.Sprintf("%s: cannot write to audit file %q: file too large\n", args[0], name), got.Stderr)
		assert.NoFileExists(t, b.Project+"/witness")
	}
}

// A command of a loop is recorded, even if the loop has refused an earlier one that would
// have seen the file.
func TestAuditAfterARefusal(t *testing.T) {
	b := clitest.NewBox(t)
	name := b.Audit(t)
	link, other := b.Home+"/link", b.Home+"/other"
	b.Mkdir(t, other)
	require.NoError(t, os.Symlink(other, link))
	c := dial(t, b, "-y", "--audit", name, "--readable", link)
	require.Equal(t, "exited", c.ask(`{"command":"true"}`)["outcome"])
	for _, to := range []string{filepath.Dir(name), other} {
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Symlink(to, link))
		c.ask(`{"command":"echo %s"}`, filepath.Base(to))
	}
	require.NoError(t, c.close())
	assert.Equal(t, []string{
		"begin command=true asked=--yes", "end asked=--yes begin=1 exited 0",
		"begin command=echo other asked=--yes", "end asked=--yes begin=3 exited 0",
	}, eventsOf(t, name))
	whole(t, b, name)
}

func TestAuditFilesThatACommandSees(t *testing.T) {
	b := clitest.NewBox(t)
	seen := filepath.Join(filepath.Dir(b.Project), "seen")
	b.Mkdir(t, seen)
	b.Mkdir(t, b.Home+"/.cache/pikuri")
	require.NoError(t, os.Symlink(seen, b.Project+"/link"))
	for _, args := range [][]string{
		{"--audit", "audit"},
		{"--audit", "link/audit"},
		{"--readable", seen, "--audit", seen + "/audit"},
		{"--writable", seen, "--audit", seen + "/audit"},
		{"--overlay", seen, "--audit", seen + "/audit"},
		{"--session", "s", "--audit", b.Home + "/.cache/pikuri/audit"},
	} {
		for _, command := range [][]string{{"pk-bash", "-y"}, {"pk-bwrap"}} {
			all := append(append(command[1:len(command):len(command)], args...), "--", "true")
			got := b.Run(t, command[0], all...)
			assert.Equal(t, 125, got.Status, "%s %s", command[0], args)
			assert.Contains(t, got.Stderr, "cannot use audit file")
			assert.Contains(t, got.Stderr, "hint: keep it where no command can see it")
		}
	}
	assert.NoFileExists(t, b.Project+"/audit")
	for _, dir := range []string{seen, b.Home + "/.cache/pikuri"} {
		if content, err := os.ReadFile(dir + "/audit"); err == nil {
			assert.Empty(t, content, dir)
		}
	}
}

// Each refusal has its object, and no other hint before it.
func TestRefusalBeforeTheSandbox(t *testing.T) {
	b := clitest.NewBox(t)
	for args, hint := range map[string]string{
		"--audit /nonexistent/audit": "make its directory first",
		"--audit /etc/passwd":        "name a file of your own, in a directory that others cannot write",
		"--trial --readable /none":   "make it first, or name an existing directory",
	} {
		got := b.Run(t, "pk-bash", slices.Concat([]string{"-y", "--json"}, strings.Fields(args), []string{"true"})...)
		assert.Equal(t, 125, got.Status)
		message, ok := strings.CutSuffix(got.Stderr, "\npk-bash: hint: "+hint+"\n")
		assert.True(t, ok, got.Stderr)
		message = strings.TrimPrefix(message, "pk-bash: ")
		assert.Equal(t, fmt.Sprintf(`{"command":"true","outcome":"refused","exit_status":125,"error":%q}`+"\n", message), got.Stdout)
	}
}

func TestAuditCheck(t *testing.T) {
	b := clitest.NewBox(t)
	name := b.Audit(t)
	b.Run(t, "pk-bash", "-n", "--audit", name, "one")
	b.Run(t, "pk-bash", "-n", "--audit", name, "two")
	whole(t, b, name)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	require.NoError(t, os.WriteFile(name, []byte(first+"\n"), 0o600))
	got := b.Run(t, "pk-bash", "--audit-check", name)
	assert.Equal(t, clitest.Outcome{Status: 1, Stdout: "line 1: records 2 to 2 are missing after it\n"}, got)
	got = b.Run(t, "pk-bash", "--audit-check", name, "--json")
	assert.Equal(t, clitest.Outcome{Status: 1, Stdout: `{"line":1,"finding":"records 2 to 2 are missing after it"}` + "\n"}, got)
	got = b.Run(t, "pk-bash", "--audit-check", name+".none")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "no such file or directory")
}

// The example passes each record on once, and again if the program fails.
func TestAuditShipExample(t *testing.T) {
	p := newPlayground(t)
	name := p.Audit(t)
	ship := func(program ...string) clitest.Outcome {
		return p.example(t, "", "sh", "audit-ship", append([]string{name}, program...)...)
	}
	p.Run(t, "pk-bash", "-n", "--audit", name, "one")
	first, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, 1, ship("false").Status)
	assert.Equal(t, clitest.Outcome{Stdout: string(first)}, ship("cat"))
	assert.Equal(t, clitest.Outcome{}, ship("cat"))
	p.Run(t, "pk-bash", "-n", "--audit", name, "two")
	both, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, clitest.Outcome{Stdout: strings.TrimPrefix(string(both), string(first))}, ship("cat"))
}
