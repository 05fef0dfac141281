package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli/clitest"
)

// The user and a command work in a repository at the same time.
func TestUserAndCommandMeanwhile(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const (
		apart     = "the command's is \"refs/pk/command/heads/main\""
		topicHasT = "git checkout -q topic 2>/dev/null; echo t >t; git add t; git commit -qm t; git checkout -q main"
	)
	for _, c := range []struct{ name, before, first, host, second, told, then, want string }{
		{
			"both make the first commit and the first entry", "rm -rf .git wt mod; git init -q", ":", "echo h >h; git add h", "echo n >n; git add n; git commit -qm n", "",
			"git status --porcelain -- n h; git commit -qm h; git show --stat --format= --name-only", "A  h\nh\n",
		},
		{
			"a merge that the user gives up", topicHasT + "; git merge -q --no-ff --no-commit topic", ":", "git merge --abort", "echo n >n; git add n; git commit -qm n", "the host has ended the merge",
			"git ls-files t n; git log -1 --format=%s refs/pk/command/heads/main; git log -1 --format=%P refs/pk/command/heads/main | wc -w", "n\n2\n",
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
			"rm -r t; git reset -q -- a.txt; git commit -qm h; git show --format= --name-status; git log -1 --format=%s refs/pk/command/heads/main", "A\tn/x\nn\n",
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
			"a new submodule of the command's", ":", "git init -q x; git -C x commit -q --allow-empty -m x; git checkout -q -b own; git add x 2>/dev/null; git commit -qm x; git branch ok HEAD~1", "until git rev-parse -q --verify ok >/dev/null; do sleep 0.05; done; test -z \"$(git ls-tree own x 2>/dev/null)\"", "git config --file x/.git/config core.fsmonitor 'touch OUT/ran; echo'", "works in the sandbox alone",
			"git ls-tree --name-only own x; git status --porcelain", "x\n",
		},
		{
			"a git directory in two parts", ":", ":", ":", "git checkout -q -b own; mkdir z; echo ../y >z/commondir; git add z; git commit -qm z; git checkout -q main; mkdir z; echo 'ref: refs/heads/main' >z/HEAD", "would be a git directory",
			"! git cat-file -e own:z 2>/dev/null; rm -r z", "",
		},
		{
			"a message that the user writes", "echo mine >.git/COMMIT_EDITMSG", ":", ":", "git commit -q --allow-empty -m command", "",
			"cat .git/COMMIT_EDITMSG", "mine\n",
		},
		{
			"a commit that is not clean, on a new branch", ":", ":", "echo h >h; git add h", "echo n >>a.txt; git commit -qam n; git checkout -q -b x; echo e >.envrc; git add -f .envrc; git commit -qm e", "its HEAD has not landed",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"a commit that is not clean, on another branch", ":", ":", "echo h >h; git add h", "export GIT_INDEX_FILE=$PWD/i; git read-tree topic; echo e >.envrc; git add -f .envrc; c=$(git commit-tree -p topic -m e $(git write-tree)); unset GIT_INDEX_FILE; rm i .envrc; git update-ref refs/heads/topic $c; git checkout -q topic 2>/dev/null", `"refs/heads/topic" does not land`,
			"git symbolic-ref HEAD; git diff --cached --name-only", "refs/heads/main\nh\n",
		},
		{
			"a branch that the user checks out in a work tree", ":", ":", "git -C wt checkout -q topic", "git branch -f topic main", "has checked it out",
			"git -C wt diff --cached --name-only", "",
		},
		{
			"a branch that the user checks out", ":", ":", "git checkout -q topic 2>/dev/null", "git branch -f topic main", "has switched to it meanwhile",
			"git diff --cached --name-only", "",
		},
		{
			"an index that the command removes", ":", ":", "echo h >h; git add h", "echo n >>a.txt; git commit -qam n; rm .git/index", "has removed it",
			"git status --porcelain -- a.txt h; git commit -qm h; git show --format= --name-only", "A  h\nh\n",
		},
		{
			"a change that the command commits, and the user unstages", "echo s >>a.txt; git add a.txt", ":", "git restore --staged a.txt", "git commit -qm s", "",
			"git status --porcelain -- a.txt; echo h >h; git add h; git commit -qm h; git show --format= --name-only", "h\n",
		},
		{
			"a change that the user commits, and the command unstages", "echo s >>a.txt; echo n >n; git add a.txt n", ":", "git commit -qm s", "git reset -q", "",
			"git status --porcelain -- a.txt n; echo h >h; git add h; git commit -qm h; git show --format= --name-only", "h\n",
		},
		{
			"a merge that the command ends, in a commit that is not clean", "git checkout -q topic 2>/dev/null; echo t >>a.txt; git commit -qam t; git checkout -q main; ! git merge topic >/dev/null", ":", ":", "git checkout -q --ours a.txt; git add a.txt; echo e >.envrc; git add -f .envrc; git commit -qm merge", "its HEAD has not landed",
			"test -e .git/MERGE_HEAD; git ls-files -u | wc -l", "3\n",
		},
		{
			"references that the command packs", ":", "echo n >>a.txt; git commit -qam n", "until test $(git log -1 --format=%s) = n; do sleep 0.05; done; echo h >>a.txt; git commit -qam h", "git pack-refs --all; git status --short", "",
			"git status --porcelain; git log -2 --format=%s", "h\nn\n",
		},
		{
			"the user makes the first commit", "rm -rf .git wt mod; git init -q", ":", "echo h >h; git add h; git commit -qm h", "echo n >n; git add n", "",
			"git diff --cached --name-status", "A\tn\n",
		},
		{
			"a branch that the command has checked out", ":", "git checkout -q topic 2>/dev/null", "until test $(git symbolic-ref HEAD) = refs/heads/topic; do sleep 0.05; done; echo h >h; git add h; git commit -qm h", "echo n >n; git add n", "",
			"git diff --cached --name-status; git log -1 --format=%s", "A\tn\nh\n",
		},
		{
			"references that the user deletes, and the command has packed", "git branch gone; git branch old; git tag t", "git gc -q", "git branch -q -D gone; git branch -q -m old new; git tag -d t >/dev/null; rm -rf .git/logs/refs/heads/new", ":", "",
			"git for-each-ref --format='%(refname)' refs/heads refs/tags refs/pk", "refs/heads/main\nrefs/heads/new\nrefs/heads/topic\nrefs/heads/wtbranch\nrefs/tags/v1\n",
		},
		{
			"packed references that the user deletes", "git branch gone; git tag t; git pack-refs --all", "git branch -q -D topic", "git branch -q -D gone; git tag -d t >/dev/null", ":", "is now",
			"git for-each-ref --format='%(refname)' refs/heads refs/tags", "refs/heads/main\nrefs/heads/wtbranch\nrefs/tags/v1\n",
		},
		{
			"a tag that the user moves, and the command has packed", "git tag t", "git pack-refs --all", "git tag -f t HEAD~1 >/dev/null", ":", "refs/tags/t",
			"git log -1 --format=%s t", "5\n",
		},
		{
			"a file that the user has staged, and the command commits", ":", ":", "sed -i 1s/^/user/ a.txt; git add a.txt", "echo n >>a.txt; git commit -qam n", `the host has staged another change of "a.txt"`,
			"git commit -qm u; git log -1 --format=%s refs/pk/command/heads/main", "n\n",
		},
		{
			"a merge that the user begins", "git checkout -q topic 2>/dev/null; echo t >>a.txt; echo t >>sub/dir/f; git commit -qam t; git checkout -q main", ":", "! git merge topic >/dev/null", "git commit -q --allow-empty -m n", "the host has begun a merge",
			"git log -1 --format=%s; git log -1 --format=%s refs/pk/command/heads/main", "submodule\nn\n",
		},
		{
			"a commit that the user takes back to the index", ":", "echo e >.envrc; git add -f .envrc; echo 1 >>a.txt; git commit -qm 1 a.txt", "until test $(git log -1 --format=%s) = 1; do sleep 0.05; done; git reset -q --soft HEAD~1", "git update-index --refresh -q", "the index",
			"git diff --cached --name-only", "a.txt\n",
		},
		{
			"a merge of the command's, and another branch of the user's", topicHasT + "; git branch own", ":", "git checkout -q own", "git merge -q --no-ff --no-commit topic", "MERGE_HEAD, with its index: the host has switched or committed meanwhile",
			"echo h >h; git add h; git commit -qm h; git show --format=%P --name-only | wc -w", "2\n",
		},
		{
			"a merge of the command's, and a commit that the user drops", topicHasT, ":", "git reset -q --hard HEAD~1", "git merge -q --no-ff --no-commit topic", "MERGE_HEAD, with its index: the host has switched or committed meanwhile",
			"echo h >h; git add h; git commit -qm h; git show --format=%P --name-only | wc -w", "2\n",
		},
		{
			"a merge of the command's, and what the user stages", topicHasT, ":", "echo h >h; git add h", "git merge -q --no-ff --no-commit topic", "MERGE_HEAD, with its index: the host has staged other changes meanwhile",
			"git commit -qm h; git show --format=%P --name-only | wc -w", "2\n",
		},
		{
			"a merge of the command's, and a lock", topicHasT, "git merge -q --no-ff --no-commit topic", "touch .git/index.lock", ":", "MERGE_HEAD, with its index: ",
			"rm .git/index.lock; echo h >h; git add h; git commit -qm h; git show --format=%P --name-only | wc -w", "2\n",
		},
		{
			"a merge with an index that does not land", topicHasT, ":", ":", "git merge -q --no-ff --no-commit topic; echo e >.envrc; git add -f .envrc", "MERGE_HEAD, with its index: the index does not land",
			"echo h >h; git add h; git commit -qm h; git show --format=%P --name-only | wc -w", "2\n",
		},
		{
			"the end of the user's merge, and an index that does not land", topicHasT + "; git merge -q --no-ff --no-commit topic", ":", ":", "git merge --abort; echo e >.envrc; git add -f .envrc", "MERGE_HEAD, with its index: the index does not land",
			"test -e .git/MERGE_HEAD; git diff --cached --name-only", "t\n",
		},
		{
			"a pick of the command's, and another branch of the user's", topicHasT + "; echo m >t; git add t; git commit -qm m; git branch own HEAD~1", ":", "git checkout -q own", "! git cherry-pick topic 2>/dev/null", "CHERRY_PICK_HEAD, with its index: ",
			"test ! -e .git/CHERRY_PICK_HEAD; echo h >h; git add h; git commit -qm h; git log -1 --format=%s", "h\n",
		},
		{
			"a branch that the user moves back, and the command checks out", topicHasT, "git rev-parse topic", "git branch -f topic topic~1", "git checkout -q topic; echo s >s; git add s", `"HEAD" stays at "refs/heads/main": the host has moved "refs/heads/topic" meanwhile`,
			"git symbolic-ref HEAD; git diff --cached --name-only", "refs/heads/main\n",
		},
		{
			"a branch that the user moves, and the command checks out without a word in the log", topicHasT + "; git branch own", "git rev-parse own", "git branch -f own $(git commit-tree -p own -m u topic^{tree})", "git rebase -q main own; echo s >s; git add s", `"HEAD" stays at "refs/heads/main": the host has moved "refs/heads/own" meanwhile`,
			"git symbolic-ref HEAD; git diff --cached --name-only", "refs/heads/main\n",
		},
		{
			"a branch that the command resets to another one, and the user's commit", topicHasT + "; echo m >m; git add m; git commit -qm m", ":", "echo h >h; git add h; git commit -qm h", "git reset -q --hard topic", "heads/main",
			"git diff --cached --name-only; git log -1 --format=%s", "h\n",
		},
		{
			"what the user had staged, and an index that does not land", "sed -i 1s/^/user/ a.txt; git add a.txt", ":", ":", "echo c >>a.txt; git commit -qam c; echo e >.envrc; git add -f .envrc", `the host has staged another change of "a.txt"`,
			"git commit -qm u; git log -1 --format=%s refs/pk/command/heads/main", "c\n",
		},
		{
			"what the command commits without a new index, and the user unstages", "echo s >s; find * -type f -exec touch -d @1000000000 {} +; git add .; git write-tree >/dev/null", ":", "git reset -q -- s", "git commit -qm s", "",
			"git diff --cached --name-only; git log -1 --format=%s", "s\n",
		},
		{
			"a merge that the command ends, and the user aborts", topicHasT + "; git merge -q --no-ff --no-commit topic", "git commit -qm m", "git merge --abort", ":", "the host has ended the merge, or the like, meanwhile",
			"git diff --cached --name-only; git log -1 --format=%s; git log -1 --format=%s refs/pk/command/heads/main", "submodule\nm\n",
		},
		{
			"a merge after a commit that is not clean", topicHasT, ":", ":", "echo e >.envrc; git add -f .envrc; git commit -qm e; git merge -q --no-ff --no-commit topic", `MERGE_HEAD, with its index: "refs/heads/main": `,
			"test ! -e .git/MERGE_HEAD; git diff --cached --name-only; git log -1 --format=%s; git log -1 --format=%s refs/pk/command/heads/main", "submodule\ne\n",
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
			assert.Equal(t, c.want, g.host(t, g.Project, c.then), got.Stderr)
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

// If the work of a command does not land, the next one finds a branch of the host's.
func TestNextCommandFindsTheHostsBranch(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ name, first, host, then, want string }{
		{"a new branch is kept apart", "git checkout -q -b x; echo e >.envrc; git add -f .envrc; git commit -qm e", ":", ":", "refs/heads/main\nsubmodule\n"},
		{"the user has committed on a branch that the command renames", "git branch -m main trunk", "git commit -q --allow-empty -m h", ":", "refs/heads/main\nh\n"},
		{"the user commits while a commit waits", "rm -f .git/index.lock; git commit -q --allow-empty -m n", "touch .git/index.lock", "rm .git/index.lock; echo h >h; git add h; git commit -qm h", "refs/heads/main\nh\n"},
		{"the user switches while a commit waits", "rm -f .git/index.lock; echo n >n; git add n; git commit -qm n", "touch .git/index.lock", "rm .git/index.lock; git checkout -q topic 2>/dev/null", "refs/heads/topic\n3\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.inTwo(t, ":", func() { g.host(t, g.Project, c.host) }, c.first)
			g.host(t, g.Project, c.then)
			const look = "git symbolic-ref HEAD; git log -1 --format=%s"
			got := g.fence(t, look)
			assert.Equal(t, c.want, got.Stdout)
			assert.Equal(t, strings.Contains(c.host, "lock"), strings.Contains(got.Stderr, `are dropped; their commit is "refs/pk/command/heads/main"`), got.Stderr)
			assert.Equal(t, c.want, g.host(t, g.Project, look))
			assert.Equal(t, "1\n", g.host(t, g.Project, "git rev-list --count --max-parents=0 --all"))
		})
	}
}

// A submodule that the host's work tree does not have lands when no other command runs: that could make a
// repository there, which git at the top enters.
func TestNewSubmodulesWait(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const tree = `with() { (git ls-tree "$1"; printf '160000 commit %s\tx\n' $(git rev-parse HEAD)) | git mktree --missing; }; `
	for _, c := range []struct{ name, before, second, look string }{
		{"in the index of a linked work tree", ":", "cd wt; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x", "git -C wt ls-files x"},
		{"in the place of a file", ":", tree + "f=$( (git ls-tree HEAD; printf '100644 blob %s\tx\n' $(git rev-parse HEAD:a.txt)) | git mktree); git reset -q --soft $(git commit-tree -m x -p $(git commit-tree -m f -p HEAD $f) $(with HEAD))", "git log --format=%s HEAD~1.. | grep x || :"},
		{"of a branch of the host's", "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x; git commit -qm side; git branch side; git reset -q --hard HEAD~1; rmdir x || :", "git reset -q --soft $(git commit-tree -m x -p HEAD -p side side^{tree})", "git log --format=%s HEAD~1.. | grep x || :"},
		{"in a commit of a submodule", ":", tree + "cd mod; c=$(git commit-tree -m x -p HEAD $(with HEAD)); cd ..; git update-index --cacheinfo 160000,$c,mod", "git diff --cached --name-only"},
		{"that another work tree has populated", "git -C wt rm -q --cached mod; git -C wt commit -qm without; rmdir wt/mod || :", "cd wt; git reset -q --soft $(git commit-tree -m x -p HEAD $( (git ls-tree HEAD; printf '160000 commit %s\tmod\n' $(git rev-parse main:mod)) | git mktree --missing))", "git -C wt log --format=%s HEAD~1.. | grep x || :"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.before)
			g.inTwo(t, ":", func() {
				g.fence(t, c.second)
				assert.Empty(t, g.host(t, g.Project, c.look))
			}, ":")
		})
	}
}

// A line that pk says to type is safe to paste: a command chooses the names in it.
func TestAdviceIsQuoted(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	got := g.fence(t, "git init -q 'x$(touch ran)`touch ran`'")
	_, advice, _ := strings.Cut(got.Stderr, "until: ")
	g.host(t, g.Project, strings.ReplaceAll(strings.TrimSpace(advice), "pk-fs git-adopt", "ls -d")+"; test ! -e ran")
}

// The user stages something while a command ends the user's merge: its commit is kept, and the advice gives it.
func TestEndThatWaits(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git checkout -q topic 2>/dev/null; echo t >a.txt; git commit -qam t; git checkout -q main; echo m >a.txt; git commit -qam m; ! git merge -q topic")
	got := g.inTwo(t, "echo both >a.txt; git commit -qam ended", func() { g.host(t, g.Project, again+"echo h >h; git add h") }, ":")
	_, typed, told := strings.Cut(got.Stderr, "give up the host's: ")
	assert.True(t, told, got.Stderr)
	typed, _, _ = strings.Cut(typed, "\n")
	assert.Equal(t, "ended\n", g.host(t, g.Project, "("+typed+") >/dev/null 2>&1; git log -1 --format=%s"))
}

// A merge that could not land does so after the next command, once the host is as it was.
func TestMergeThatWaits(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git checkout -q topic 2>/dev/null; echo t >t; git add t; git commit -qm t; git checkout -q main")
	got := g.inTwo(t, ":", func() { g.host(t, g.Project, again+"echo h >h; git add h") }, "git merge -q --no-ff --no-commit topic")
	assert.Contains(t, got.Stderr, "stays in the sandbox")
	g.host(t, g.Project, "git rm -q --cached h")
	got = g.Run(t, "pk-bash", "-y", "--raw", "--", "git diff --cached --name-only")
	assert.Equal(t, "t\n", got.Stdout)
	assert.Equal(t, "2\nt\n", g.host(t, g.Project, "git commit -qm m; git show --no-patch --format=%P | wc -w; git diff --name-only HEAD~1"))
	g.host(t, g.Project, "git fsck --strict 2>&1")
}
