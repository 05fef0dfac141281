package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/confine"
	"pikuri/lib/confine/confinetest"
	"pikuri/lib/fence"
	"pikuri/lib/sandbox"
	"pikuri/lib/session"
	"pikuri/lib/workspace"
)

func TestMain(m *testing.M) {
	sandbox.Main() // git-clone starts helpers
	os.Exit(m.Run())
}

// viewer runs the command in a session in which seen replaces base/proj.
type viewer struct {
	base, seen string
}

func (v viewer) run(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	o := new(options)
	o.Shown = func(d *session.Dir, roots []confine.Root) (map[string]*os.File, error) {
		require.Equal(t, v.base+"/proj", roots[0].Path)
		fd, err := unix.Open(v.seen, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return map[string]*os.File{roots[0].Path: os.NewFile(uintptr(fd), v.seen)}, err
	}
	args = append([]string{"--session", "s", "-C", v.base + "/proj"}, args...)
	status = o.command().Run(args, strings.NewReader(stdin), &out, &errors)
	assert.NotContains(t, out.String()+errors.String(), v.seen, "%q", args)
	return status, out.String(), errors.String()
}

// project is the tree that is shown.
var project = []string{
	"d/f", "d/g", "l => d", "abs => {base}/proj/d/f", "out => {base}/outside/f", "old", "gone", "sub/dir/f", "made/f", "a b", "inner/g",
}

func grown(dir string, lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, dir+"/"+line)
	}
	return all
}

// actions are verbs in the order in which they act on the shown project.
var actions = []struct {
	stdin, args string
	status      int
	stdout      string // {base} stands for the base
	stderr      string // a part of it
}{
	{args: "cat d/f l/g abs {base}/proj/d/f", stdout: "text\ntext\ntext\ntext\n"},
	{args: "cat out", status: 1, stderr: `cannot read "out": outside every readable root ("{base}/proj"`},
	{args: "ls", stdout: "a b\nabs\nd\ngone\ninner\nl\nmade\nold\nout\nsub\n"},
	{args: "walk d", stdout: "d/f\nd/g\n"},
	{args: "glob **/f", stdout: "d/f\nmade/f\nsub/dir/f\n"},
	{args: "stat hostonly", status: 1, stderr: `cannot stat "hostonly": not found`},
	{args: "exists d/f abs"},
	{args: "exists hostonly", status: 1},
	{args: "write new", stdin: "one"},
	{args: "cat new", stdout: "one"},
	{args: "append new", stdin: "two"},
	{args: "cat new", stdout: "onetwo"},
	{args: "write d/f", stdin: "in place"},
	{args: "append d/g", stdin: "more"},
	{args: "cat d/f d/g", stdout: "in placetext\nmore"},
	{args: "write --atomic abs", stdin: "atomic"},
	{args: "cat d/f", stdout: "atomic"},
	{args: "write --if-unchanged 34d1a5cf77e3c8ad1d8b5b0b1f1f8b40b2b9e1f5f9d0f6a6f1b7b3d8d6d8f0c1 d/f", stdin: "x", status: 1, stderr: "changed"},
	{args: "write --exclusive d/f", stdin: "x", status: 1, stderr: "exists"},
	{args: "write --exclusive d/made/x", stdin: "x"},
	{args: "write out", stdin: "x", status: 1, stderr: "outside every writable root"},
	{args: "cp old copy"},
	{args: "mv old moved"},
	{args: "mv d/made renamed"},
	{args: "mv l link"},
	{args: "rm gone"},
	{args: "rm -r sub"},
	{args: "rm gone", status: 1, stderr: `"gone"`},
	{args: "mkdir x/y/z"},
	{args: "cp copy /tmp/from"},
	{args: "mv /tmp/from back"},
	{args: "git-adopt made", status: 1, stderr: `cannot git-adopt "made": the session keeps the changes of "{base}/proj" to itself`},
	{args: "git-clone --protocol file file://{base}/origin cloned"},
	{args: "git-head cloned", stdout: "{head}\n"},
	{args: "write cloned/.git/config", stdin: "x", status: 1, stderr: "git directory"},
	{args: "--deny d cat d/f", status: 1, stderr: `--deny "d" covers it`},
	{args: "--deny d cat abs", status: 1, stderr: `--deny "d" covers the place it leads to`},
	{args: "append inner/g", stdin: "more"},
	{args: "--readable {base} glob proj/**/x {base}", stdout: "{base}/proj/renamed/x\n"},
	{args: "--readable {base} walk {base}/proj/x", stdout: "{base}/proj/x/y\n{base}/proj/x/y/z\n"},
	{args: "--readable {base} glob proj/d/* {base}", stdout: "{base}/proj/d/f\n{base}/proj/d/g\n"},
	{args: "--readable {base} cat {base}/proj/d/g {base}/outside/f", stdout: "text\nmoretext\n"},
	{args: "--readable {base}/proj/inner cat inner/g", stdout: "text\nmore"},
	{args: "--readable {base}/proj/inner/g cat inner/g", stdout: "text\nmore"},
	{args: "--readable {base} ls {base}/proj/d", stdout: "f\ng\n"},
}

// after lists the files of the shown project then, beside cloned.
const after = "a b abs back copy d d/f d/g inner inner/g link made made/f moved new out renamed renamed/x x x/y x/y/z"

func (v viewer) act(t *testing.T) {
	t.Helper()
	head := gitOrigin(t, v.base+"/origin")
	expand := strings.NewReplacer("{base}", v.base, "{head}", head).Replace
	for _, a := range actions {
		status, stdout, stderr := v.run(t, a.stdin, strings.Fields(expand(a.args))...)
		assert.Equal(t, a.status, status, "%s: %s", a.args, stderr)
		assert.Equal(t, expand(a.stdout), stdout, a.args)
		if a.stderr == "" {
			assert.Empty(t, stderr, a.args)
		} else {
			assert.Contains(t, stderr, expand(a.stderr), a.args)
		}
	}
	_, stdout, _ := v.run(t, "", "walk")
	var left []string
	for name := range strings.Lines(stdout) {
		if !strings.HasPrefix(name, "cloned") {
			left = append(left, strings.TrimSuffix(name, "\n"))
		}
	}
	assert.Equal(t, after, strings.Join(left, " "))
}

// gitOrigin makes a repository with a commit.
func gitOrigin(t *testing.T, dir string) (head string) {
	t.Helper()
	script := `git init -q "$1"; cd "$1"; echo x >f; git add f
		git -c user.name=x -c user.email=x@example.org commit -qm x; git rev-parse HEAD`
	cmd := exec.Command("sh", "-euc", script, "sh", dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

// TestShownElsewhere: with a plain directory for the project, and one on the host that
// leads out at every name.
func TestShownElsewhere(t *testing.T) {
	base := confinetest.Tree(t, append(grown("seen", project), "outside/f", "cache/",
		"proj/d => ../outside", "proj/new => ../outside/made", "proj/l => /etc", "proj/abs => ../outside/f", "proj/hostonly", "proj/old => ../outside/f",
		"proj/gone => ../outside/f", "proj/sub => ../outside", "proj/made/", "proj/inner/g", "proj/hostdir/x", "proj/x => ../outside", "proj/.git => ../outside", "proj/copy => ../outside/made")...)
	t.Setenv("XDG_CACHE_HOME", base+"/cache")
	v := viewer{base, base + "/seen"}
	before := clitest.Listing(t, base+"/proj") + clitest.Listing(t, base+"/outside")
	v.act(t)
	assert.Equal(t, before, clitest.Listing(t, base+"/proj")+clitest.Listing(t, base+"/outside"))
}

// TestShownOverlay: with an overlay that another namespace has mounted.
func TestShownOverlay(t *testing.T) {
	base := confinetest.Tree(t, append(grown("proj", project), "outside/f", "cache/", "layers/upper/", "layers/work/", "layers/merged/")...)
	t.Setenv("XDG_CACHE_HOME", base+"/cache")
	script := `cd "$1"; mount -t overlay -o userxattr,lowerdir="$2",upperdir=upper,workdir=work pk merged
		mount -t tmpfs hidden "$2"; echo mounted; read -r end || :`
	keeper := exec.Command("unshare", "-Urm", "sh", "-euc", script, "sh", base+"/layers", base+"/proj")
	stdin, err := keeper.StdinPipe()
	require.NoError(t, err)
	stdout, err := keeper.StdoutPipe()
	require.NoError(t, err)
	keeper.Stderr = os.Stderr
	require.NoError(t, keeper.Start())
	defer func() {
		stdin.Close()
		assert.NoError(t, keeper.Wait())
	}()
	said := make([]byte, len("mounted"))
	_, err = stdout.Read(said)
	require.NoError(t, err)
	require.Equal(t, "mounted", string(said))

	v := viewer{base, fmt.Sprintf("/proc/%d/root%s/layers/merged", keeper.Process.Pid, base)}
	before := clitest.Listing(t, base+"/proj") + clitest.Listing(t, base+"/outside")
	v.act(t)
	status, _, stderr := v.run(t, "", "mv", "d", "e")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, `cannot mv "d" to "e"`)
	assert.Contains(t, stderr, "an overlay shows; copy it")
	assert.Equal(t, before, clitest.Listing(t, base+"/proj")+clitest.Listing(t, base+"/outside"))
	assert.FileExists(t, base+"/layers/upper/new")
	assert.NoFileExists(t, base+"/proj/new")
}

// TestRootAroundAShownOne: a path that leads into the shown root only after its root was
// picked does not lead to the host's files.
func TestRootAroundAShownOne(t *testing.T) {
	base := confinetest.Tree(t, "proj/hostonly", "seen/f", "other", "link => proj")
	seen, err := os.Open(base + "/seen")
	require.NoError(t, err)
	defer seen.Close()
	confined, err := confine.Open(confine.Config{ProjectRoot: base + "/proj", Readable: []string{base}, Shown: map[string]*os.File{base + "/proj": seen}})
	require.NoError(t, err)
	defer confined.Close()
	w := &work{options: new(options), confined: confined, views: map[string]workspace.Workspace{}, hosts: map[string]*fence.HostRun{}}
	defer w.close()
	around, err := w.open(*confined.RootOf(base+"/other", confine.Read))
	require.NoError(t, err)
	for path, want := range map[string]error{"other": nil, "proj": nil, "proj/hostonly": workspace.ErrAccessDenied, "link/hostonly": workspace.ErrAccessDenied} {
		_, err := around.Stat(t.Context(), path)
		assert.ErrorIs(t, err, want, path)
	}
	entries, err := around.List(t.Context(), "proj")
	require.NoError(t, err)
	assert.Empty(t, entries)
}
