package gitconfig

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grounds are files of a work tree by which git on the host runs something. In plant,
// {evil} is the program. prepare does the earlier work of the project's owner.
var grounds = []struct {
	name    string
	prepare func(h *home)
	file    string
	plant   []string // file below proj, content; a program if it begins with #!
	run     string   // by the owner, in proj
}{
	{"attributes that a configuration names", func(h *home) { h.user("[filter \"x\"]\nclean={evil}\n[core]\nattributesFile=proj.attributes\n") },
		"proj.attributes", []string{"proj.attributes", "* filter=x\n", "f", "changed\n"}, "git diff"},
	{"an included file", func(h *home) { h.git("proj", "config", "include.path", "../team.config") }, "team.config", monitor("team.config"), "git status"},
	{"an included file, on a branch to come", func(h *home) { h.git("proj", "config", "includeIf.onbranch:b.path", "../b.config") }, "b.config", monitor("b.config"), "git checkout -q -b b && git status"},
	{"a file that the user's configuration includes", func(h *home) { h.user("[include]\npath={home}/proj/c\n") }, "c", monitor("c"), "git status"},
	{"a directory of hooks", func(h *home) { h.git("proj", "config", "core.hooksPath", ".githooks") }, ".githooks", hook(".githooks/pre-commit"), "git commit -q --allow-empty -m x"},
	{"a directory of hooks for all projects", func(h *home) { h.user("[core]\nhooksPath=.githooks\n") }, ".githooks", hook(".githooks/pre-commit"), "git commit -q --allow-empty -m x"},
	{"husky's hooks", func(h *home) {
		h.git("proj", "config", "core.hooksPath", ".husky/_")
		h.write("proj/.husky/_/pre-commit", "#!/bin/sh\n. .husky/pre-commit\n")
		require.NoError(h.t, os.Chmod(h.path("proj/.husky/_/pre-commit"), 0o755))
	}, ".husky", hook(".husky/pre-commit"), "git commit -q --allow-empty -m x"},
	{"a hook that is a link", func(h *home) {
		h.write("proj/tools/check", "#!/bin/sh\n")
		require.NoError(h.t, os.Symlink("../../tools/check", h.path("proj/.git/hooks/pre-commit")))
	}, "tools/check", hook("tools/check"), "git commit -q --allow-empty -m x"},
	{"hooks that are a link", func(h *home) {
		require.NoError(h.t, os.RemoveAll(h.path("proj/.git/hooks")))
		require.NoError(h.t, os.Symlink("../hooks", h.path("proj/.git/hooks")))
	}, "hooks", hook("hooks/pre-commit"), "git commit -q --allow-empty -m x"},
	{"a program that a configuration names", func(h *home) {
		h.git("proj", "config", "alias.x", "!sh ./tools/x")
		h.write("proj/tools/x", "")
	}, "tools/x", hook("tools/x"), "git x"},
	{"a program and a pipe", alias("tools/x|cat"), "tools/x", hook("tools/x"), "git x"},
	{"a program in quotes", alias("sh -c 'tools/x;true' %f"), "tools/x", hook("tools/x"), "git x"},
	{"a program at the top of the work tree", alias("$(git rev-parse --show-toplevel)/tools/x"), "tools/x", hook("tools/x"), "git x"},
	{"a program after a change of directory", alias("cd tools && ./x"), "tools/x", hook("tools/x"), "git x"},
	{"a directory of hooks behind 300 aliases", func(h *home) {
		var aliases strings.Builder
		for i := range 300 {
			aliases.WriteString("\ta" + strings.Repeat("x", i) + "=!sh ./x\n")
		}
		h.user("[alias]\n" + aliases.String())
		h.git("proj", "config", "core.hooksPath", ".githooks")
	}, ".githooks", hook(".githooks/pre-commit"), "git commit -q --allow-empty -m x"},
	{"a directory of hooks in a configuration of 2 MiB", func(h *home) {
		h.user("# " + strings.Repeat("x", 2<<20) + "\n[core]\nhooksPath=.githooks\n")
	}, ".githooks", hook(".githooks/pre-commit"), "git commit -q --allow-empty -m x"},
}

// alias has a git command run a line of the shell.
func alias(line string) func(h *home) {
	return func(h *home) {
		h.git("proj", "config", "alias.x", "!"+line)
		h.write("proj/tools/x", "")
		require.NoError(h.t, os.Chmod(h.path("proj/tools/x"), 0o755))
	}
}

// project is a repository with a commit.
func (h *home) project() {
	h.git("", "init", "-q", "proj")
	h.user("[user]\nname=n\nemail=e\n")
	h.write("proj/f", "x\n")
	h.git("proj", "add", "f")
	h.git("proj", "commit", "-qm", "x")
}

// hook writes a program.
func hook(file string) []string { return []string{file, "#!/bin/sh\nexec {evil}\n"} }

// monitor writes a configuration that makes every status run something.
func monitor(file string) []string {
	return []string{file, "[core]\nrepositoryformatversion=0\nfsmonitor={evil}\n"}
}

// user adds to the user's configuration.
func (h *home) user(text string) {
	old, _ := os.ReadFile(h.path(".gitconfig"))
	h.write(".gitconfig", string(old)+strings.ReplaceAll(text, "{evil}", h.path("evil")))
}

// named gathers what is named below proj, a repository.
func (h *home) named() (*Names, error) {
	names, err := NewNames([]string{h.path("proj")}, nil, h.getenv)
	if err == nil {
		err = names.Repository(h.path("proj"), h.path("proj/.git"), h.path("proj/.git"))
	}
	return names, err
}

// below lists the named places below proj. A link ends in "@".
func (h *home) below(names *Names) []string {
	var paths []string
	for _, n := range names.Named {
		path := strings.TrimPrefix(n.Path, h.path("proj")+"/")
		if n.Link {
			path += "@"
		}
		paths = append(paths, path)
	}
	return paths
}

// TestGitRunsWhatIsNamed shows for each named file that it is one: with the owner's
// git, when nothing keeps a command from writing it.
func TestGitRunsWhatIsNamed(t *testing.T) {
	for _, g := range grounds {
		t.Run(g.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			h.write("evil", "#!/bin/sh\n: >{home}/ran\nexec cat </dev/null\n")
			require.NoError(t, os.Chmod(h.path("evil"), 0o755))
			g.prepare(h)
			names, err := h.named()
			require.NoError(t, err)
			assert.Contains(t, h.below(names), g.file)
			out := h.plantAndRun(g.plant, g.run)
			assert.FileExists(t, h.path("ran"), "git said %q", out)
		})
	}
}

func TestNamedFilesOfAConfigurationThatCannotBeRead(t *testing.T) {
	h := newHome(t)
	h.project()
	h.user("# " + strings.Repeat("x", maxFile) + "\n[core]\nhooksPath=.githooks\n")
	_, err := h.named()
	assert.ErrorContains(t, err, h.path(".gitconfig"))
}

func TestNoFileIsNamedByChance(t *testing.T) {
	h := newHome(t)
	h.project()
	h.mkdir("proj/src")
	h.write("proj/main", "x")
	h.git("proj", "config", "branch.main.merge", "refs/heads/main")
	h.git("proj", "config", "user.name", "main src f")
	h.git("proj", "config", "alias.x", "!ls src")
	h.git("proj", "config", "core.worktree", h.path("proj"))
	h.git("proj", "config", "blame.ignoreRevsFile", ".git-blame-ignore-revs")
	h.git("proj", "config", "alias.force", "!git branch -f topic && git push -f origin && rm -f a.out")
	h.git("proj", "config", "alias.awk", "!git log | awk '{ n[$1]++ } END { for (i in n) print n[i]/2, i }' | sed 's/^[[:blank:]]*/x; s/a/b/'")
	h.git("proj", "config", "alias.test", `!f() { [ $# -gt 1 ] && b="git branch $(git rev-parse HEAD)" && $b; }; f`)
	names, err := h.named()
	require.NoError(t, err)
	assert.Empty(t, names.Named)
	assert.Empty(t, names.Unknown)
}

func TestIndexThatMayNotBeWhole(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare []string
		partial bool
	}{
		{"plain", []string{"status"}, false},
		{"split", []string{"update-index", "--split-index"}, true},
		{"split by the configuration", []string{"config", "core.splitIndex", "true"}, true},
		{"sparse by the configuration", []string{"config", "index.sparse", "true"}, true},
		{"sparse by the worktree's", []string{"sparse-checkout", "set", "--sparse-index", "--cone"}, true},
		{"off by the configuration", []string{"config", "core.splitIndex", "false"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			h.git("proj", test.prepare...)
			names, err := h.named()
			require.NoError(t, err)
			assert.Equal(t, test.partial, names.Partial)
		})
	}
}

// plantAndRun writes files and has the owner use git. Git fails or not.
func (h *home) plantAndRun(plant []string, script string) string {
	for i := 0; i < len(plant); i += 2 {
		text := strings.ReplaceAll(plant[i+1], "{evil}", h.path("evil"))
		h.write("proj/"+plant[i], text)
		if strings.HasPrefix(text, "#!") {
			require.NoError(h.t, os.Chmod(h.path("proj/"+plant[i]), 0o755))
		}
	}
	require.NoFileExists(h.t, h.path("ran"))
	cmd := h.command("proj")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script}
	out, _ := cmd.CombinedOutput()
	return string(out)
}
