package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// governed is a command with the workspace options under a machine's policy.
func governed(t *testing.T, machine string) (*Command, *WorkspaceFlags) {
	t.Helper()
	machineFile = t.TempDir() + "/none"
	t.Cleanup(func() { machineFile = "/etc/pikuri/policy" })
	w := &WorkspaceFlags{}
	options := append(append(w.Options(), w.RuleOptions()...), Switch(&w.AllowAll, "allow-all", ""), w.AuditOption(), Text(new(string), "from", "").FromInput())
	c := &Command{Name: "pk-sample", Workspace: w, Options: w.WithPolicy(options), Action: func(*Context) error { return nil }}
	require.NoError(t, w.reader(machines).read(policy{name: "/m"}, machine))
	w.narrowed = len(w.rules.AllowWrite) > 0
	return c, w
}

func TestMandatory(t *testing.T) {
	file := writePolicy(t, "deny x\nno-protect\n")
	for _, row := range []struct {
		name, machine, args string
		refused             string // "" if the call is accepted
	}{
		{"nothing said", "readable /m\n", "--readable /x --no-protect --allow-all", ""},
		{"widening", "mandatory\n", "--readable /x", `option "--readable": the machine's policy is mandatory ("/m", line 1)`},
		{"widening, a switch", "mandatory\n", "--no-protect", `option "--no-protect"`},
		{"widening, before the line", "readable /m\n\nmandatory\n", "--allow-all", `("/m", line 3)`},
		{"widening, allowed", "mandatory\nuser-may allow-all readable\n", "--readable /x --allow-all", ""},
		{"widening, another allowed", "mandatory\nuser-may readable\n", "--writable /x", `option "--writable"`},
		{"widening, in the user's policy", "mandatory\n", "--policy " + file, file + `", line 2: option "no-protect": the machine's policy is mandatory`},
		{"tightening", "mandatory\ndeny m\n", "--deny x --deny-read y", ""},
		{"allow-write, the first", "mandatory\n", "--allow-write x --allow-write y", ""},
		{"allow-write, a further one", "mandatory\nallow-write m\n", "--allow-write x", `option "--allow-write"`},
		{"allow-write, allowed", "mandatory\nallow-write m\nuser-may allow-write\n", "--allow-write x", ""},
		{"neutral", "mandatory\n", "-C /x --session s", ""},
		{"a file that pk writes", "mandatory\n", "--audit /x", `option "--audit"`},
		{"a file that pk writes, allowed", "mandatory\nuser-may audit\n", "--audit /x", ""},
		{"a file that pk reads", "mandatory\n", "--from /x", `option "--from"`},
		{"standard input", "mandatory\n", "--from -", ""},
		{"neutral, and the machine has said", "mandatory\nproject-root /m\n", "-C /x", `option "--project-root"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, _ := governed(t, row.machine)
			var stderr strings.Builder
			status := c.Run(strings.Fields(row.args), nil, io.Discard, &stderr)
			if row.refused == "" {
				assert.Equal(t, 0, status, stderr.String())
				return
			}
			assert.Equal(t, 2, status)
			assert.Contains(t, stderr.String(), row.refused)
			assert.Contains(t, stderr.String(), "hint: its administrator can allow this one there: user-may ")
		})
	}
}

func TestMachinePolicyLines(t *testing.T) {
	_, w := governed(t, "mandatory\nuser-may readable\tenvironment\n")
	assert.False(t, w.Pinned())
	_, w = governed(t, "mandatory\n")
	assert.True(t, w.Pinned())
	_, w = governed(t, "user-may readable\n")
	assert.False(t, w.Pinned())
	for text, want := range map[string]string{
		"user-may raedable\n": `"/m", line 1: option "user-may": "raedable" is not an option`,
		"user-may\n":          `option "user-may" needs a value`,
		"mandatory yes\n":     `option "mandatory" takes no value`,
		"wirtable /x\n":       `"wirtable" is not an option that a policy can give`,
	} {
		assert.ErrorContains(t, new(WorkspaceFlags).reader(machines).read(policy{name: "/m"}, text), want)
	}
}

// An empty table, or a name that it lacks, refuses.
func TestUnknownOptionsWiden(t *testing.T) {
	w := &WorkspaceFlags{machine: machine{mandatory: "x"}}
	assert.Error(t, w.permit(users, Switch(new(bool), "unheard-of", ""), ""))
	assert.Error(t, w.permit(projects, Switch(new(bool), "unheard-of", ""), ""))
	assert.Error(t, w.permit(projects, Switch(new(bool), "verbose", ""), ""), "a project does nothing but tighten")
	assert.Empty(t, Classes("unheard-of"))
	seen := map[string]bool{}
	for _, name := range strings.Fields(tightening + " " + widening + " " + neutral) {
		assert.False(t, seen[name], "%q is listed twice", name)
		seen[name] = true
	}
}

// --help and --version work under a broken policy of the machine, and nothing else does.
func TestBrokenMachinePolicy(t *testing.T) {
	c, _ := governed(t, "")
	c.Help = "helped\n"
	machineFile = t.TempDir() // no file
	var stdout, stderr strings.Builder
	assert.Equal(t, 0, c.Run([]string{"--help"}, nil, &stdout, &stderr))
	assert.Equal(t, "helped\n", stdout.String())
	c.help = false
	assert.Equal(t, 2, c.Run(nil, nil, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "cannot read policy")
}

func TestOnlyRootWritesTheMachinePolicy(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	file, err := os.Create(dir + "/policy")
	require.NoError(t, err)
	defer file.Close()
	check := func() error { return checkMachine(file, file.Name()) }
	if os.Getuid() != 0 {
		assert.ErrorContains(t, check(), "is not root's alone")
		return
	}
	require.NoError(t, file.Chmod(0o644))
	assert.NoError(t, check())
	require.NoError(t, file.Chmod(0o664))
	assert.ErrorContains(t, check(), "policy\" is not root's alone (owner 0, mode 0664)")
	require.NoError(t, file.Chmod(0o600))
	require.NoError(t, os.Chmod(dir, 0o777))
	assert.ErrorContains(t, check(), "(owner 0, mode 0777)")
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, file.Chown(1, 0))
	assert.ErrorContains(t, check(), "owner 1")
}

// project is a project with a policy, and a home of its own.
func projectWith(t *testing.T, text string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Setenv("HOME", dir+"/home")
	t.Setenv("XDG_CONFIG_HOME", "")
	require.NoError(t, os.MkdirAll(dir+"/proj/.pk", 0o700))
	require.NoError(t, os.WriteFile(dir+"/proj/"+projectFile, []byte(text), 0o600))
	return dir
}

// runIn runs a governed command in the project.
func runIn(t *testing.T, dir string, act func(*WorkspaceFlags, *Context) error) (status int, stdout, stderr string) {
	t.Helper()
	c, w := governed(t, "")
	c.Action = func(ctx *Context) error { return act(w, ctx) }
	c.Options = append(c.Options, Switch(&w.Trusting, "trust-project", ""))
	var out, errs strings.Builder
	args := []string{"-C", dir + "/proj"}
	if act == nil {
		c.Action, args = w.TrustProject, append(args, "--trust-project")
	}
	status = c.Run(args, nil, &out, &errs)
	return status, out.String(), errs.String()
}

func TestProjectPolicy(t *testing.T) {
	dir := projectWith(t, "# ours\ndeny  **/.env\nnet none\n")
	rules := func(n int) func(*WorkspaceFlags, *Context) error {
		return func(w *WorkspaceFlags, _ *Context) error { assert.Len(t, w.Rules().Deny, n); return nil }
	}
	status, _, stderr := runIn(t, dir, rules(0))
	assert.Equal(t, 0, status)
	assert.Equal(t, `pk-sample: warning: the project's policy is not used, since you have not trusted it: read "`+dir+`/proj/.pk/policy", then pk-bwrap --trust-project`+"\n", stderr)

	status, stdout, stderr := runIn(t, dir, nil)
	assert.Equal(t, 0, status, stderr)
	assert.Equal(t, "deny **/.env\n", stdout, "pk-sample has no option net")
	info, err := os.Stat(dir + "/home/.config/pikuri/trusted-projects")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	status, _, stderr = runIn(t, dir, rules(1))
	assert.Equal(t, 0, status)
	assert.Empty(t, stderr)

	require.NoError(t, os.WriteFile(dir+"/proj/"+projectFile, []byte("deny x\n"), 0o600))
	status, _, stderr = runIn(t, dir, func(*WorkspaceFlags, *Context) error { t.Error("ran"); return nil })
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, `has changed since you trusted it`)
	assert.Contains(t, stderr, `pk-sample: hint: read it, then pk-bwrap -C `+dir+`/proj --trust-project`)

	require.NoError(t, os.Rename(dir+"/proj", dir+"/old"))
	require.NoError(t, os.MkdirAll(dir+"/proj/.pk", 0o700))
	require.NoError(t, os.WriteFile(dir+"/proj/"+projectFile, []byte("# ours\ndeny  **/.env\nnet none\n"), 0o600))
	status, _, stderr = runIn(t, dir, rules(1))
	assert.Equal(t, 2, status, "another directory of that name")
	assert.Contains(t, stderr, "has changed")
}

// Only the version that the user trusted last counts: a command can bring back an older one.
func TestEarlierProjectPolicy(t *testing.T) {
	dir := projectWith(t, "deny a\n")
	file, table := dir+"/proj/"+projectFile, dir+"/home/.config/pikuri/trusted-projects"
	become := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	run := func() int {
		status, _, _ := runIn(t, dir, func(*WorkspaceFlags, *Context) error { return nil })
		return status
	}
	trust := func() {
		status, _, stderr := runIn(t, dir, nil)
		require.Equal(t, 0, status, stderr)
	}
	trust()
	one, err := os.ReadFile(table)
	require.NoError(t, err)
	become("deny a\ndeny b\n")
	trust()
	assert.Equal(t, 0, run())
	become("deny a\n")
	assert.Equal(t, 2, run(), "it was trusted before the present one")
	trust()
	assert.Equal(t, 0, run())
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	assert.Equal(t, string(one), string(text), "one row")

	become("deny a\ndeny b\n")
	trust()
	two, err := os.ReadFile(table)
	require.NoError(t, err)
	become("deny a\n")
	require.NoError(t, os.WriteFile(table, append(one, two...), 0o600))
	assert.Equal(t, 2, run(), "a table of an earlier pk")
}

// The rows of other projects stay, also when several processes write.
func TestTrustKeepsOtherRows(t *testing.T) {
	dir := t.TempDir()
	kept, file := dir+"/dotfiles", dir+"/trusted-projects"
	require.NoError(t, os.Symlink("dotfiles", file))
	const others = "# mine\n\n\"/p\"\t1:1\taa\n\"/p/0\"\t1:1\told"
	require.NoError(t, os.WriteFile(kept, []byte(others), 0o600))
	want := []string{"# mine", "", "\"/p\"\t1:1\taa", ""}
	var all sync.WaitGroup
	for i := range 20 {
		p := project{path: fmt.Sprint("/p/", i)}
		p.row = fmt.Sprintf("%q\t1:1\tnew", p.path)
		want = append(want, p.row)
		all.Go(func() {
			for range 3 {
				assert.NoError(t, p.trust(file))
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(kept)
	require.NoError(t, err)
	assert.ElementsMatch(t, want, strings.Split(string(text), "\n"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "no other file is left")
	require.NoError(t, os.Chmod(kept, 0o622))
	assert.ErrorContains(t, (&project{path: "/q"}).trust(file), "others may write to it")
}

func TestProjectPolicyMayOnlyTighten(t *testing.T) {
	for _, line := range []string{"readable /x", "no-protect", "session s", "project-root /x", "include x", "mandatory", "user-may readable", "allow-host x", "setenv A=b", "allow-all"} {
		dir := projectWith(t, "deny x\n"+line+"\n")
		status, _, stderr := runIn(t, dir, nil)
		assert.Equal(t, 2, status, line)
		assert.Contains(t, stderr, `/proj/.pk/policy", line 2: `, line)
		assert.NoFileExists(t, dir+"/home/.config/pikuri/trusted-projects")
	}
}

// A trusted policy that cannot be read any more is an error. A policy that is gone is none:
// the user has removed it.
func TestTrustedProjectPolicyThatIsNoneNow(t *testing.T) {
	dir := projectWith(t, "deny x\n")
	file := dir + "/proj/" + projectFile
	status, _, stderr := runIn(t, dir, nil)
	require.Equal(t, 0, status, stderr)
	for _, now := range []struct {
		name string
		make func() error
		why  string
	}{
		{"an empty file", func() error { return os.WriteFile(file, nil, 0o600) }, "trusted it\n"},
		{"a long file", func() error { return os.WriteFile(file, make([]byte, maxPolicy+1), 0o600) }, "trusted it: it is longer than"},
		{"a directory", func() error { return os.Mkdir(file, 0o700) }, "trusted it: it is not a file"},
		{"a FIFO", func() error { return syscall.Mkfifo(file, 0o600) }, "trusted it: it is not a file"},
		{"a loop", func() error { return os.Symlink("policy", file) }, "trusted it: too many levels"},
		{"below a file", func() error {
			return errors.Join(os.Remove(filepath.Dir(file)), os.WriteFile(filepath.Dir(file), nil, 0o600))
		}, "trusted it: not a directory"},
	} {
		require.NoError(t, os.RemoveAll(file))
		require.NoError(t, now.make())
		status, _, stderr = runIn(t, dir, func(*WorkspaceFlags, *Context) error { t.Error("ran"); return nil })
		assert.Equal(t, 2, status, now.name)
		assert.Contains(t, stderr, "the project's policy \""+file+"\" has changed since you "+now.why, now.name)
	}
	require.NoError(t, os.Remove(filepath.Dir(file)))
	status, _, stderr = runIn(t, dir, func(*WorkspaceFlags, *Context) error { return nil })
	assert.Equal(t, 0, status)
	assert.Empty(t, stderr)
}

// A project's policy that is missing or not a plain file does not count.
func TestProjectPolicyThatIsNone(t *testing.T) {
	dir := projectWith(t, "")
	file := dir + "/proj/" + projectFile
	run := func() string {
		status, _, stderr := runIn(t, dir, func(*WorkspaceFlags, *Context) error { return nil })
		assert.Equal(t, 0, status)
		return stderr
	}
	assert.Empty(t, run(), "an empty one")
	require.NoError(t, os.Remove(file))
	assert.Empty(t, run())
	require.NoError(t, os.Mkdir(file, 0o700))
	assert.Contains(t, run(), "it is not a file")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink("policy", file))
	assert.Contains(t, run(), "the project's policy is not used")
}
