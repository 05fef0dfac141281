package gittest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pikuri/lib/gitdir/refs"

	"github.com/stretchr/testify/require"
)

// Ground is a root with a place for a state directory beside it, and a file that git writes on the
// host when it runs a repository's configuration.
type Ground struct {
	*testing.T
	Root, State, Ran string
}

// first makes a repository with a commit, once, and returns its directory.
var first = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "pk-test-")
	if err != nil {
		panic(err)
	}
	made = dir
	g := Ground{Root: dir}
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := g.TryGit(".", args...); err != nil {
			panic(out)
		}
	}
	return dir
})

var made string // by first

// Main runs the tests of a package that uses grounds.
func Main(m *testing.M) int {
	defer func() { _ = os.RemoveAll(made) }() // "" is no error
	return m.Run()
}

// NewGround makes a ground with an empty root.
func NewGround(t *testing.T) Ground {
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	g := Ground{t, base + "/root", base + "/state", base + "/ran"}
	require.NoError(t, os.Mkdir(g.Root, 0o755))
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", g.Root).Run() })
	return g
}

// Path is that of a file in the root.
func (g Ground) Path(rel string) string { return filepath.Join(g.Root, rel) }

// TryGit runs the host's git in a directory of the root.
func (g Ground) TryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = g.Path(dir)
	cmd.Env = g.Env()
	out, err := cmd.CombinedOutput()
	return strings.TrimRight(string(out), "\n"), err
}

// Env is the environment of all programs.
func (g Ground) Env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_TEMPLATE_DIR=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(g.Root),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always", "GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main"}
}

// Git is TryGit, and fails the test if git fails.
func (g Ground) Git(dir string, args ...string) string {
	g.Helper()
	out, err := g.TryGit(dir, args...)
	require.NoError(g, err, "git %q in %q: %s", args, dir, out)
	return out
}

// Runs reports whether git on the host runs the configuration of a command.
func (g Ground) Runs(dir string, args ...string) bool {
	_ = os.Remove(g.Ran)
	_, _ = g.TryGit(dir, args...)
	_, err := os.Stat(g.Ran)
	return err == nil
}

const prelude = `
repo() { mkdir -p "$1"; cp -r "$FIRST" "$1/.git"; }
arm() { git config --file "$1/config" core.fsmonitor "$HOOK"; }
`

// Sh runs a script in the root. It has two functions: repo DIR makes a repository with a commit, arm
// GITDIR makes a git directory run a program as soon as git looks at its index.
func (g Ground) Sh(script string) {
	g.Helper()
	hook := filepath.Dir(g.Ran) + "/hook"
	require.NoError(g, os.WriteFile(hook, []byte("#!/bin/sh\necho x >>"+g.Ran+"\n"), 0o755))
	cmd := exec.Command("sh", "-ec", prelude+script)
	cmd.Dir = g.Root
	cmd.Env = append(g.Env(), "HOOK="+hook, "FIRST="+first()+"/.git")
	out, err := cmd.CombinedOutput()
	require.NoError(g, err, "%s", out)
}

// Settle waits until the file system gives later changes another time than earlier ones.
func (g Ground) Settle() {
	for begun := time.Now(); !refs.Now().After(begun); {
	}
}
