package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli/clitest"
)

// A submodule that only commands have populated works in each of them, and the host
// sees nothing of it. Once the host populates it, it is an ordinary submodule.
func TestSubmoduleThatCommandsPopulate(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, session := range [][]string{{"--session", "populates"}, nil} {
		t.Run(fmt.Sprint(session), func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, `git submodule --quiet deinit -f mod; rm -rf .git/modules/mod`)
			options := append([]string{"--readable", g.dir + "/library"}, session...)
			first := g.fence(t, "git submodule --quiet update --init; cat mod/lib.c", options...)
			assert.Equal(t, "lib\n", first.Stdout)
			assert.Equal(t, 1, strings.Count(first.Stderr, "git submodule update --init"), first.Stderr)
			second := g.fence(t, "cat mod/lib.c; echo x >>mod/lib.c; git -C mod commit -qam x; git -C mod log --format=%s; git submodule status", options...)
			assert.Regexp(t, "^lib\nx\nlibrary\n\\+[0-9a-f]+ mod", second.Stdout)
			assert.NotContains(t, second.Stderr, "git submodule update")
			assert.Equal(t, "", g.host(t, g.Project, "ls -A mod; git status --porcelain"))

			g.host(t, g.Project, "git submodule --quiet update --init")
			third := g.fence(t, "cat mod/lib.c; echo y >mod/y; git -C mod add y; git -C mod commit -qm y", options...)
			assert.Equal(t, "lib\n", third.Stdout)
			assert.Equal(t, "y\nx\nlibrary\n", g.host(t, g.Project, "git -C mod log --format=%s"), "commits were lost")
		})
	}
}

// A repository that a command has made and added to the index stays one for commands.
func TestRepositoryThatBecomesASubmodule(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, session := range [][]string{{"--session", "becomes"}, nil} {
		for _, init := range []string{"git init -q n", "mkdir stores; git init -q --separate-git-dir=stores/n n"} {
			t.Run(fmt.Sprint(init, session), func(t *testing.T) {
				t.Parallel()
				g := newGround(t, b, template)
				g.fence(t, init+"; cd n; echo x >x; git add x; git commit -qm one; cd ..; git add n 2>/dev/null; git commit -qm n", session...)
				got := g.fence(t, "git submodule status n 2>/dev/null; cd n; git log --format=%s; echo y >>x; git commit -qam two; git status --porcelain", session...)
				assert.Equal(t, "one\n", got.Stdout)
				got = g.fence(t, "cd n; git log --format=%s; git rev-parse --show-toplevel; cat x", session...)
				assert.Equal(t, "two\none\n"+g.Project+"/n\nx\ny\n", got.Stdout)
				g.fence(t, "rm -rf n/.git; test ! -e n/.git", session...)
				assert.NoDirExists(t, g.Project+"/n/.git")
			})
		}
	}
}

func TestRootThatIsAnUnpopulatedSubmodule(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `git submodule --quiet deinit -f mod`)
	got := g.Run(t, "pk-bash", "-y", "--raw", "-C", g.Project+"/mod", "--", "git init")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "git submodule update --init")
}

// The layer over a bare repository would hide a work tree in it: its commits would land, and
// its files would not.
func TestWorkTreeInABareRepository(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	g.host(t, g.dir, `git clone -q --bare project bare; cd bare; git worktree add -q tree topic`)
	for _, root := range []string{"/bare", "/bare/tree"} {
		got := g.Run(t, "pk-bash", "-y", "--raw", "-C", g.dir+root, "--", "echo x >f; git add f; git commit -qm x")
		assert.Equal(t, 125, got.Status)
		assert.Contains(t, got.Stderr, "git worktree move "+g.dir+"/bare/tree PATH")
	}
	assert.Equal(t, "3\n", g.host(t, g.dir+"/bare", "git rev-list --count topic"))

	g.host(t, g.dir, `mkdir hidden; mv bare/tree aside; mv bare hidden/.bare; mv aside hidden/tree; cd hidden; echo "gitdir: ./.bare" >.git; git worktree repair tree`)
	for _, root := range []string{"/hidden", "/hidden/tree"} {
		got := g.Run(t, "pk-bash", "-y", "--raw", "-C", g.dir+root, "--", "cd "+g.dir+"/hidden/tree; echo "+root+" >>f; git add f; git commit -qm "+root)
		assert.Zero(t, got.Status, got.Stderr)
	}
	assert.Equal(t, "/hidden/tree\n/hidden\n/hidden\n/hidden/tree\n", g.host(t, g.dir+"/hidden/tree", "git log --format=%s -2; cat f; git status --porcelain"))
}
