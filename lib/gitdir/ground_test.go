package gitdir

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pikuri/lib/gitdir/refs"

	"github.com/stretchr/testify/require"
)

// first is a repository with a commit.
var first string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pk-test-")
	if err != nil {
		panic(err)
	}
	g := ground{root: dir}
	first = dir
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := g.tryGit(".", args...); err != nil {
			panic(out)
		}
	}
	rounding, settled = 0, 0 // all is on one file system
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// ground is a root with a state directory beside it, and a file that git writes on the
// host when it runs a repository's configuration.
type ground struct {
	*testing.T
	root, state, ran string
}

func newGround(t *testing.T) ground {
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	g := ground{t, base + "/root", base + "/state", base + "/ran"}
	require.NoError(t, os.Mkdir(g.root, 0o755))
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", g.root).Run() })
	return g
}

func (g ground) path(rel string) string { return filepath.Join(g.root, rel) }

// tryGit runs the host's git in a directory of the root.
func (g ground) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = g.path(dir)
	cmd.Env = g.env()
	out, err := cmd.CombinedOutput()
	return strings.TrimRight(string(out), "\n"), err
}

func (g ground) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_TEMPLATE_DIR=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(g.root),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always", "GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main"}
}

func (g ground) git(dir string, args ...string) string {
	g.Helper()
	out, err := g.tryGit(dir, args...)
	require.NoError(g, err, "git %q in %q: %s", args, dir, out)
	return out
}

// runs reports whether git on the host runs the configuration of a command.
func (g ground) runs(dir string, args ...string) bool {
	_ = os.Remove(g.ran)
	_, _ = g.tryGit(dir, args...)
	_, err := os.Stat(g.ran)
	return err == nil
}

// prelude are shell functions: repo DIR makes a repository with a commit, arm
// GITDIR makes a git directory run a program as soon as git looks at its index.
const prelude = `
repo() { mkdir -p "$1"; cp -r "$FIRST" "$1/.git"; }
arm() { git config --file "$1/config" core.fsmonitor "$HOOK"; }
`

func (g ground) sh(script string) {
	g.Helper()
	hook := filepath.Dir(g.ran) + "/hook"
	require.NoError(g, os.WriteFile(hook, []byte("#!/bin/sh\necho x >>"+g.ran+"\n"), 0o755))
	cmd := exec.Command("sh", "-ec", prelude+script)
	cmd.Dir = g.root
	cmd.Env = append(g.env(), "HOOK="+hook, "FIRST="+first+"/.git")
	out, err := cmd.CombinedOutput()
	require.NoError(g, err, "%s", out)
}

// settle waits until the file system gives later changes another time than earlier ones.
func (g ground) settle() {
	for begun := time.Now(); !refs.Now().After(begun); {
	}
}

func (g ground) begin() *Run {
	g.Helper()
	r, err := g.tryBegin(g.root)
	require.NoError(g, err)
	return r
}

func (g ground) tryBegin(root string) (*Run, error) {
	l, err := Look(g.state, root, nil)
	if err == nil {
		_, _, err = Find(root, l)
	}
	if err != nil {
		return nil, err
	}
	return Begin(g.state, l)
}

// command runs fn as a command, between Begin and End.
func (g ground) command(fn func()) []Inert {
	g.Helper()
	g.settle()
	r := g.begin()
	require.NoError(g, r.Warning)
	fn()
	made, err := r.End()
	require.NoError(g, err)
	return made
}

// repos lists the result of Find, below the root: work trees, or bare git directories.
func (g ground) repos(r *Run) []string {
	g.Helper()
	repos, _, err := Find(g.root, r.List)
	require.NoError(g, err)
	var list []string
	for _, repo := range repos {
		rel, err := filepath.Rel(g.root, repo.place())
		require.NoError(g, err)
		list = append(list, rel)
	}
	return list
}
