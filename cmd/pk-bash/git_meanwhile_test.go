package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli/clitest"
)

// The user and a command work in a repository at the same time.
func TestUserAndCommandMeanwhile(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const apart = "the command's is \"refs/pk/command/heads/main\""
	for _, c := range []struct{ name, before, first, host, second, told, then, want string }{
		{
			"both make the first commit and the first entry", "rm -rf .git wt mod; git init -q", ":", "echo h >h; git add h", "echo n >n; git add n; git commit -qm n", "",
			"git status --porcelain -- n h; git commit -qm h; git show --stat --format= --name-only", "A  h\nh\n",
		},
		{
			"a split index", "git update-index --split-index; git config core.splitIndex true", ":", "echo h >h; git add h", "echo n >>a.txt; git commit -qam n", "",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"an index that the command splits", ":", ":", "echo h >h; git add h", "git config core.splitIndex true; echo n >>a.txt; git commit -qam n; git update-index --split-index", "the configuration",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"an index that does not land", ":", ":", "echo h >h; git add h", "echo n >>a.txt; git mv sub new; git commit -qam n; echo e >.envrc; git add -f .envrc", "the index",
			"git status --porcelain -- a.txt h sub new; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"a file in the place of the user's directory", ":", ":", "mkdir n; echo h >n/x; git add n", "mkdir t; cd t; echo n >>../a.txt; b=$(git hash-object -w ../a.txt); git update-index --add --cacheinfo 100644,$b,n; git add ../a.txt; git commit -qm n; echo e >../.envrc; git add -f ../.envrc", "has staged another change of \"n\"",
			"rm -r t; git status --porcelain -- a.txt; git commit -qm h; git show --format= --name-status", "D\tn\nA\tn/x\n",
		},
		{
			"a submodule's commit, and an index that does not land", ":", ":", "echo h >h; git add h", "git -C mod commit -q --allow-empty -m m; git commit -qam bump; echo e >.envrc; git add -f .envrc", "the index",
			"git status --porcelain -- mod; git commit -qm h; git show --format= --name-only", "h\n",
		},
		{
			"commits one after the other, and an index that does not land", ":", "echo e >.envrc; git add -f .envrc; echo 1 >>a.txt; git commit -qm 1 a.txt", "echo h >h; until test $(git log -1 --format=%s) = 1; do sleep 0.05; done; git add h", "echo 2 >>a.txt; git commit -qm 2 a.txt", "the index",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"a new submodule, and an index that does not land", ":", ":", "echo h >h; git add h", "git init -q x; git -C x commit -q --allow-empty -m x; git add x 2>/dev/null; git commit -qm x; echo e >.envrc; git add -f .envrc", "the index",
			"git commit -qm h; git show --format= --name-only; git ls-tree --name-only HEAD x", "h\nx\n",
		},
		{
			"a file that the user intends to add", "echo n >n; git add -N n", ":", "echo h >h; git add h", "git add n; git commit -qm n n; echo e >.envrc; git add -f .envrc", "the index",
			"git commit -qm h; git show --format= --name-only", "h\n",
		},
		{
			"marks in a split index", "git update-index --split-index; git config core.splitIndex true; git update-index --assume-unchanged a.txt; echo own >>a.txt", ":", ":", "echo n >n; git add n; git commit -qm n n", "",
			"git ls-files -v a.txt; git status --porcelain", "h a.txt\n",
		},
		{
			"a sparse index", "git sparse-checkout set --cone --sparse-index sub; rm -rf mod; git -c advice.updateSparsePath=false status >/dev/null", ":", "echo h >h; git add --sparse h", "echo n >>a.txt; git commit -qam n; echo e >.envrc; git add -f --sparse .envrc", "the index",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"an index that git cannot read", ":", ":", "echo h >h; git add h", "echo n >>a.txt; git commit -qam n; echo bad >.git/index", "the index",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"a commit that the user drops, without logs", "git config core.logAllRefUpdates false; rm -rf .git/logs", ":", "git reset -q --hard HEAD~1", "echo n >n; git add n; git commit -qm n", apart,
			"git log -1 --format=%s", "5\n",
		},
		{
			"a commit that the user drops, and a log that the command drops", ":", ":", "git reset -q --hard HEAD~1", "echo n >n; git add n; git commit -qm n; git reflog expire --expire=now --all", apart,
			"git log -1 --format=%s", "5\n",
		},
		{
			"a rebase of the user's", "git checkout -q topic; echo t >t; git add t; git commit -qm t; git checkout -q main; echo l >l; git add l; git commit -qm l", ":", "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i topic 2>/dev/null", "echo n >n; git add n; git commit -qm n", "returns to it",
			"git rebase --continue >/dev/null 2>&1; git log -3 --format=%s main; git log -1 --format=%s refs/pk/command/heads/main", "l\nsubmodule\n5\nn\n",
		},
		{
			"objects that the user prunes", "git checkout -q --detach", "echo 1 >n; git add n; git commit -qm 1", "git checkout -q main; git reflog expire --expire=now --all; git prune --expire=now", "echo 2 >n; git commit -qam 2", `"HEAD"`,
			"git log -2 --format=%s refs/pk/command/HEAD", "2\n1\n",
		},
		{
			"a work tree of the user's", ":", ":", "git worktree add -q own; echo h >own/h; git -C own add h", ":", "; if you have made it, and have looked at them: mv ",
			"test ! -e own/.git; mv own/.git.fenced own/.git; git -C own commit -qm h; git log -1 --format=%s own --; rm -rf own; git worktree prune", "h\n",
		},
		{
			"a submodule of the user's", "git submodule --quiet deinit -f mod", ":", "git submodule --quiet update --init mod", ":", "",
			"git -C mod log -1 --format=%s; git status --porcelain", "library\n",
		},
		{
			"a new submodule of the command's", ":", "git init -q x; git -C x commit -q --allow-empty -m x; git checkout -q -b own; git add x 2>/dev/null; git commit -qm x; git branch ok HEAD~1", "until git rev-parse -q --verify ok >/dev/null; do sleep 0.05; done; ! git rev-parse -q --verify own && git symbolic-ref HEAD", "git config --file x/.git/config core.fsmonitor 'touch OUT/ran; echo'", "works in the sandbox alone",
			"git ls-tree --name-only own x; git status --porcelain", "x\n",
		},
		{
			"a git directory in two parts", ":", ":", ":", "git checkout -q -b own; mkdir z; echo ../y >z/commondir; git add z; git commit -qm z; git checkout -q main; mkdir z; echo 'ref: refs/heads/main' >z/HEAD", "would be a git directory",
			"! git rev-parse -q --verify own; rm -r z", "",
		},
		{
			"a message that the user writes", "echo mine >.git/COMMIT_EDITMSG", ":", ":", "git commit -q --allow-empty -m command", "",
			"cat .git/COMMIT_EDITMSG", "mine\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.before)
			got := g.inTwo(t, c.first, func() { g.host(t, g.Project, again+c.host) }, g.fill(c.second))
			if c.told == "" {
				assert.Empty(t, got.Stderr)
			} else {
				assert.Contains(t, got.Stderr, c.told)
			}
			assert.Equal(t, c.want, g.host(t, g.Project, c.then))
			g.host(t, g.Project, "git fsck --strict 2>&1")
		})
	}
}

// A rebase that stops in one command and goes on in the next lands, also of a branch that the first
// command made: once each repository is new.
func TestRebaseGoesOn(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for range 6 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.fence(t, "git checkout -q -b own topic; echo o >>a.txt; git commit -qam o; ! git rebase -q main")
			got := g.fence(t, "echo both >a.txt; git add a.txt; GIT_EDITOR=true git rebase --continue")
			assert.NotContains(t, got.Stderr, "meanwhile")
			assert.Equal(t, "o\nsubmodule\nrefs/heads/own\n", g.host(t, g.Project, "git log -2 --format=%s own; git symbolic-ref HEAD; git status --porcelain"))
		})
	}
}

// A branch with a repository that a command has made: git at the top enters it when that is checked out,
// also while a later command runs, to which the repository was given back.
func TestBranchWithARepository(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.fence(t, g.fill("git init -q x; git -C x commit -q --allow-empty -m x; git checkout -q -b own; git add x 2>/dev/null; git commit -qm x; git checkout -q main; git config --file x/.git/config core.fsmonitor 'touch OUT/ran; echo'"))
	got := g.inTwo(t, "git -C x log -1 --format=%s", func() {
		g.host(t, g.Project, "git checkout -q own; git status --porcelain; test ! -e ../out/ran; git checkout -q main")
	}, "git -C x commit -q --allow-empty -m y; git -C x log --format=%s")
	assert.Equal(t, "x\ny\nx\n", got.Stdout)
	assert.Equal(t, "y\n", g.fence(t, "git -C x log -1 --format=%s").Stdout)
}
