package gitconfig

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grounds are ways to make git on the host run something, each by writing what
// Find names and nothing else. In what is written, {evil} is the program. prepare
// is what the owner of the project did before.
var grounds = []struct {
	name    string
	prepare func(h *home)
	file    string
	plant   []string // file below proj, content; a program if it begins with #!
	run     string   // by the owner, in proj
}{
	{"a hook", nil, ".git/hooks", hook(".git/hooks/post-checkout"), "git checkout -q -b x"},
	{"config, monitor", nil, ".git/config", monitor(".git/config"), "git status"},
	{"config, ssh", nil, ".git/config", []string{".git/config", "[remote \"o\"]\nurl=ssh://h/x\n[core]\nsshCommand={evil}\n"}, "git fetch o"},
	{"config, editor", nil, ".git/config", []string{".git/config", "[core]\neditor={evil}\n"}, "git commit --allow-empty"},
	{"config, pager", nil, ".git/config", []string{".git/config", "[core]\npager={evil}\n"}, "script -qec 'git log' /dev/null"},
	{"config, credentials", nil, ".git/config", []string{".git/config", "[credential]\nhelper=!{evil}\n"}, "echo url=https://h | git credential fill"},
	{"config, text of a diff", nil, ".git/config", []string{".git/config", "[diff \"x\"]\ntextconv={evil}\n", ".gitattributes", "* diff=x\n", "f", "changed\n"}, "git diff"},
	{"attributes, a filter of the user's", func(h *home) { h.user("[filter \"x\"]\nclean={evil}\n") }, ".git/info/attributes", []string{".git/info/attributes", "* filter=x\n", "f", "changed\n"}, "git diff"},
	{"attributes that a configuration names", func(h *home) { h.user("[filter \"x\"]\nclean={evil}\n[core]\nattributesFile=proj.attributes\n") },
		"proj.attributes", []string{"proj.attributes", "* filter=x\n", "f", "changed\n"}, "git diff"},
	{"config of the worktree", func(h *home) { h.git("proj", "config", "extensions.worktreeConfig", "true") }, ".git/config.worktree", monitor(".git/config.worktree"), "git status"},
	{"commondir", nil, ".git/commondir", append(repository("fake"), ".git/commondir", "../fake"), "git status"},
	{".git that is a file", owns("worktree"), ".git", append(repository("fake"), ".git", "gitdir: fake\n"), "git status"},
	{".git that is a link", owns("link"), ".git", nil, ""},
	{"a worktree's .git", owns("inner"), "wt/.git", append(repository("fake"), "wt/.git", "gitdir: ../fake\n"), "git -C wt status"},
	{"a worktree's config", owns("inner"), ".git/worktrees/wt/config.worktree", monitor(".git/worktrees/wt/config.worktree"), "git -C wt status"},
	{"a worktree's commondir", owns("inner"), ".git/worktrees/wt/commondir", append(repository("fake"), ".git/worktrees/wt/commondir", "../../../fake"), "git -C wt status"},
	{"a submodule's hook", func(h *home) { h.submodule("s/m") }, ".git/modules/s/m/hooks", hook(".git/modules/s/m/hooks/post-checkout"), "git -C sub checkout -q -b x"},
	{"a submodule's config", func(h *home) { h.submodule("s/m") }, ".git/modules/s/m/config", monitor(".git/modules/s/m/config"), "git status"},
	{"a submodule's .git", func(h *home) { h.submodule("s/m") }, "sub/.git", append(repository("fake"), "sub/.git", "gitdir: ../fake\n"), "git -C sub status"},
	{"a submodule to come", func(h *home) {
		h.submodule("sub")
		h.git("proj", "submodule", "-q", "deinit", "sub")
		require.NoError(h.t, os.RemoveAll(h.path("proj/.git/modules")))
	}, ".git/modules", append(repository(".git/modules/sub"), hook(".git/modules/sub/hooks/post-checkout")...), "git submodule update --init"},
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
	{"a program in a submodule's terms", func(h *home) {
		h.submodule("sub")
		h.git("proj/sub", "config", "core.editor", "sh ./ed")
		h.write("proj/sub/ed", "")
	}, "sub/ed", hook("sub/ed"), "git -C sub commit --allow-empty"},
	{"remotes", func(h *home) { h.git("proj", "remote", "remove", "origin") }, ".git/remotes", append(bareWithHook("fake"), ".git/remotes/origin", "URL: {home}/proj/fake\n"), "git push origin HEAD:refs/heads/x"},
	{"branches", func(h *home) { h.git("proj", "remote", "remove", "origin") }, ".git/branches", append(bareWithHook("fake"), ".git/branches/origin", "{home}/proj/fake\n"), "git push origin HEAD:refs/heads/x"},
	{"a rebase that waits", func(h *home) {
		h.commit("proj", "g")
		h.env = append(h.env, "GIT_SEQUENCE_EDITOR=sed -i s/pick/edit/")
		h.git("proj", "rebase", "-q", "-i", "HEAD~1")
	}, ".git/rebase-merge", []string{".git/rebase-merge/git-rebase-todo", "exec {evil}\n"}, "git rebase --continue"},
	{"a nested repository's hook", func(h *home) { h.git("proj", "clone", "-q", "../origin.git", "a/b") }, "a/b/.git/hooks", hook("a/b/.git/hooks/post-checkout"), "git -C a/b checkout -q -b x"},
	{"a nested repository's config", func(h *home) { h.git("proj", "clone", "-q", "../origin.git", "a/b") }, "a/b/.git/config", monitor("a/b/.git/config"), "git -C a/b status"},
	{"a separate git directory", func(h *home) {
		h.mkdir("proj/store")
		h.git("proj", "init", "-q", "--separate-git-dir", "store/git")
	}, "store/git/config", monitor("store/git/config"), "git status"},
	{"a bare repository's hook", func(h *home) {
		require.NoError(h.t, os.RemoveAll(h.path("proj")))
		h.git("", "clone", "-q", "--bare", "origin.git", "proj")
		h.git("", "clone", "-q", "proj", "other")
	}, "hooks", hook("hooks/update"), "git -C ../other push origin HEAD:refs/heads/x"},
}

// hook writes a program.
func hook(file string) []string { return []string{file, "#!/bin/sh\nexec {evil}\n"} }

// monitor writes a configuration that makes every status run something.
func monitor(file string) []string {
	return []string{file, "[core]\nrepositoryformatversion=0\nfsmonitor={evil}\n"}
}

// repository writes a git directory, with its own configuration.
func repository(dir string) []string {
	return append([]string{dir + "/HEAD", "ref: refs/heads/main\n", dir + "/objects/x", "", dir + "/refs/x.lock", ""}, monitor(dir+"/config")...)
}

func bareWithHook(dir string) []string {
	return append([]string{dir + "/HEAD", "ref: refs/heads/main\n", dir + "/objects/x", "", dir + "/refs/x.lock", "", dir + "/config", "[core]\nrepositoryformatversion=0\nbare=true\n"}, hook(dir+"/hooks/update")...)
}

// owns makes the project one of a kind.
func owns(kind string) func(h *home) {
	return func(h *home) {
		switch kind {
		case "worktree":
			require.NoError(h.t, os.Rename(h.path("proj"), h.path("main")))
			h.git("main", "worktree", "add", "-q", "../proj")
		case "inner":
			h.git("proj", "config", "extensions.worktreeConfig", "true")
			h.git("proj", "worktree", "add", "-q", "wt")
		case "link":
			require.NoError(h.t, os.Rename(h.path("proj/.git"), h.path("proj/store")))
			require.NoError(h.t, os.Symlink("store", h.path("proj/.git")))
		}
	}
}

// user adds to the user's configuration.
func (h *home) user(text string) {
	h.write(".gitconfig", string(must(os.ReadFile(h.path(".gitconfig"))))+strings.ReplaceAll(text, "{evil}", h.path("evil")))
}

// TestGitRunsWhatAnExecFileSays shows for each exec file that it is one: with the owner's
// git, when nothing keeps a command from writing it.
func TestGitRunsWhatAnExecFileSays(t *testing.T) {
	for _, g := range grounds {
		t.Run(g.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			h.write("evil", "#!/bin/sh\n: >{home}/ran\nexec cat </dev/null\n")
			require.NoError(t, os.Chmod(h.path("evil"), 0o755))
			if g.prepare != nil {
				g.prepare(h)
			}
			named := slices.ContainsFunc(h.find(), func(r Repo) bool {
				return slices.ContainsFunc(r.ExecFiles(), func(s ExecFile) bool { return s.Path == g.file })
			})
			assert.True(t, named, "%q is not among %q", g.file, lines(h.find()))
			if g.run == "" {
				return
			}
			out := h.plantAndRun(g.plant, g.run)
			assert.FileExists(t, h.path("ran"), "git said %q", out)
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
