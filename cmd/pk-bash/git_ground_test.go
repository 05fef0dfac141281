package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/gitdir/gittest"
)

// gitGround holds one test with a repository: a project, a home, a directory that no
// command may change, and a directory for witnesses. A program that the command made
// leaves a file there when the host runs it.
type gitGround struct {
	*clitest.Box
	dir, out, witness string
}

// shared is the repository that each test copies.
var shared struct {
	sync.Once
	top, template string
}

func TestMain(m *testing.M) {
	status := m.Run()
	if shared.top != "" {
		os.RemoveAll(shared.top)
	}
	os.Exit(status)
}

// newGitBox returns a box and a repository to copy from.
func newGitBox(t *testing.T, b *clitest.Box) (_ *clitest.Box, template string) {
	t.Helper()
	shared.Do(func() { makeTemplate(t, b) })
	require.NotEmpty(t, shared.template, "there is no repository to copy")
	return b, shared.template
}

func makeTemplate(t *testing.T, b *clitest.Box) {
	t.Helper()
	top, err := os.MkdirTemp("", "pk-git")
	require.NoError(t, err)
	shared.top = top
	top, err = filepath.EvalSymlinks(top)
	require.NoError(t, err)
	template := top + "/template"
	for _, dir := range []string{"home", "project", "out", "witness"} {
		b.Mkdir(t, filepath.Join(template, dir))
	}
	b.Write(t, template+"/home/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n[maintenance]\n\tauto = false\n[gc]\n\tauto = 0\n\treflogExpire = never\n\treflogExpireUnreachable = never\n")
	b.Write(t, template+"/home/.bashrc", "# mine\n")
	b.Write(t, template+"/out/canary", "canary\n")
	b.Write(t, template+"/out/identity", "[user]\n\tname = in-secret\n")
	g := &gitGround{Box: b, dir: template}
	g.host(t, template, `
		git init -q --template= library && cd library
		echo lib >lib.c && git add . && git commit -qm library && cd ..
		cd out && git init -q --template= repo && cd repo
		echo in-secret >secret && git add . && git commit -qm secret
		git config remote.origin.url https://in-secret@example.org/
		cd ../../project && git init -q --template=
		mkdir -p sub/dir tools && echo /wt >.gitignore && echo one >a.txt && echo f >sub/dir/f && echo 'echo tool' >tools/hook && chmod +x tools/hook
		git add . && git commit -qm 1
		for n in 2 3 4 5; do echo $n >>a.txt; git commit -qam $n; done
		git tag -a -m v1 v1 HEAD~1
		git branch topic HEAD~2
		git submodule --quiet add ../library mod && git commit -qm submodule
		git worktree add -q -b wtbranch wt
		mkdir -p .git/hooks .git/info && printf '%s\n' /tools/evil /tools/index-\* /started /go >.git/info/exclude`)
	shared.template = template
}

// newGround copies the template.
func newGround(t *testing.T, b *clitest.Box, template string) *gitGround {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	out, err := exec.Command("cp", "-a", template+"/.", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	g := &gitGround{
		Box: &clitest.Box{Bin: b.Bin, Bwrap: b.Bwrap, Project: dir + "/project", Home: dir + "/home"},
		dir: dir, out: dir + "/out", witness: dir + "/witness",
	}
	g.Write(t, g.Project+"/.git/worktrees/wt/gitdir", g.Project+"/wt/.git\n")
	g.Write(t, g.Project+"/wt/.git", "gitdir: "+g.Project+"/.git/worktrees/wt\n")
	g.Script(t, g.Project+"/tools/evil", evilBody(g))
	for name, index := range evilIndexes(g) {
		require.NoError(t, os.WriteFile(g.Project+"/tools/"+name, index, 0o644))
	}
	t.Cleanup(func() {
		sweep := g.Command("pk-sweep", "--all")
		sweep.Dir = "/"
		got := clitest.Finish(t, sweep)
		assert.Zero(t, got.Status, got.Stderr)
		_ = exec.Command("chmod", "-R", "u+rwx", g.dir).Run()
	})
	return g
}

func evilBody(g *gitGround) string {
	return "echo \"$0 $*\" >>" + g.witness + "/ran\nexit 0\n"
}

// fill puts the ground's names into a script.
func (g *gitGround) fill(script string) string {
	return strings.NewReplacer("PROJECT", g.Project, "WITNESS", g.witness, "OUT", g.out, "HOME", g.Home, "EVIL", g.Project+"/tools/evil").Replace(script)
}

// hostCommand prepares a shell of the user's outside, with the same dates each time.
func (g *gitGround) hostCommand(dir, script string) *exec.Cmd {
	home := g.Home
	if strings.HasSuffix(g.dir, "/template") {
		home = g.dir + "/home"
	}
	cmd := exec.Command("timeout", "-k1", "100", "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TEMPLATE_DIR=", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true",
		"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000",
	}, g.Env...)
	return cmd
}

// host runs a script outside, which has to succeed.
func (g *gitGround) host(t *testing.T, dir, script string) string {
	t.Helper()
	got := clitest.Finish(t, g.hostCommand(dir, "set -e\n"+script))
	require.Zero(t, got.Status, "%s\n%s%s", script, got.Stdout, got.Stderr)
	return got.Stdout
}

// patient runs a script of the host that may fail, and must not hang.
func (g *gitGround) patient(t *testing.T, dir, script string) string {
	t.Helper()
	got := clitest.Finish(t, g.hostCommand(dir, "exec 2>&1\n"+script))
	assert.NotContains(t, []int{124, 137}, got.Status, "the host's git hangs: %s", got.Stdout)
	return got.Stdout
}

// commits are all that refs and reflogs lead to.
func (g *gitGround) commits(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(g.patient(t, dir, "git rev-list --all --reflog; git rev-list HEAD 2>/dev/null"))
}

// evilIndexes are index files by their name in tools. Their blobs are tools/evil, and for a link the
// text "../out".
func evilIndexes(g *gitGround) map[string][]byte {
	evil, link := gittest.BlobID("#!/bin/sh\n"+evilBody(g)), gittest.BlobID("../out")
	one := func(path string) []byte {
		return gittest.MakeIndex([]gittest.IndexEntry{{Path: path, Mode: 0o100755, ID: evil}})
	}
	return map[string][]byte{
		"index-hook":   one(".git/hooks/post-checkout"),
		"index-config": one(".git/config"),
		"index-case":   one(".GIT/hooks/post-checkout"),
		"index-deep":   one("sub/.git/hooks/post-checkout"),
		"index-up":     one("../out/x"),
		"index-out":    one("../../out/x"),
		"index-inner":  one("sub/../../out/x"),
		"index-root":   one("/" + g.out + "/x"),
		"index-link":   gittest.MakeIndex([]gittest.IndexEntry{{Path: "l", Mode: 0o120000, ID: link}, {Path: "l/x", Mode: 0o100755, ID: evil}}),
		"index-split":  gittest.MakeIndex(nil, append([]byte("link\x00\x00\x00\x14"), evil[:]...)...),
	}
}
