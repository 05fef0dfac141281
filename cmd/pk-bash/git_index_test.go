package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// indexOf tells that a commit has landed with its index, after which the host's git writes new
// stat data.
func indexOf(subject string) string {
	return "test $(git log -1 --format=%s main) = " + subject + " && git diff --cached --quiet && touch sub/dir/f && git status"
}

// The index of a command that goes on after a part of its work has landed lands with all of it, and
// with no older version of a file.
func TestIndexThatLandsInSteps(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ name, first, landed, second, after, want, told string }{
		{"another commit", "echo 1 >>a.txt; git commit -qam A", indexOf("A"), "echo 2 >>a.txt; git commit -qam B", "git status --porcelain", "", ""},
		{"an amended one", "echo 1 >>a.txt; git commit -qam A", indexOf("A"), "echo 2 >>a.txt; git commit -qa --amend -m B", "git status --porcelain", "", ""},
		{"a file that comes and goes", "echo n >n; git add n; git commit -qm A", indexOf("A"), "git rm -q n; git commit -qm B", "git status --porcelain", "", ""},
		{"only staged", "echo n >n; git add n", "git ls-files --error-unmatch n && git status", "git rm -q --cached n; echo 2 >>a.txt; git add a.txt", "git status --porcelain", "M  a.txt\n?? n\n", ""},
		{"beside files that the host stages", "echo 1 >>a.txt; git commit -qam A", indexOf("A") + " && echo h >h && git add h", "echo n >n; git add n; git commit -qm B", "git status --porcelain", "A  h\n", ""},
		{"a part of a file that the host stages, and a commit without that file", "echo 1 >>a.txt; git commit -qam A", indexOf("A") + " && echo h >>a.txt && git add a.txt", "echo 2 >a.txt; git add a.txt; echo n >n; git add n; git commit -qm B n", "git commit -qm H; git ls-tree --name-only HEAD n", "n\n", "the host has staged another change of \"a.txt\""},
		{"a file that the host stages too", "echo 1 >>a.txt; git commit -qam A", indexOf("A") + " && echo h >>a.txt && git add a.txt && cp a.txt ../h", "echo 2 >a.txt; git add a.txt", "git show :a.txt | cmp - ../h", "", "the host has staged another change of \"a.txt\""},
		{"on a branch that the host has left", "echo n >n; git add n; git commit -qm A", indexOf("A") + " && git switch -q -c other", "echo 2 >n2; git add n2; git commit -qm B", "git diff --cached --name-only; cat .git/HEAD", "ref: refs/heads/other\n", "the index: the host has another HEAD"},
		{"all of it, before the host leaves the branch", "echo n >n; git add n", "git ls-files --error-unmatch n && git switch -q -c other", ":", "git status --porcelain; cat .git/HEAD", "A  n\nref: refs/heads/other\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			got := g.inSteps(t, c.first, c.landed, c.second)
			assert.Equal(t, c.want, g.host(t, g.Project, c.after))
			if c.told == "" {
				assert.NotContains(t, got.Stderr, "index")
			} else {
				assert.Contains(t, got.Stderr, c.told)
			}
		})
	}
}

// A lock of the host's, which the command removes as git advises, keeps a reference from landing. The
// next command finds all as the last one has left it, packed or not, and it lands together.
func TestLocksThatACommandRemoves(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ lock, change, look string }{
		{"refs/heads/main.lock", "echo n >n; git add n; git commit -qm n", "git log -1 --format=%s; git status --porcelain"},
		{"refs/heads/main.lock", "echo n >n; git add n; git commit -qm n; git pack-refs --all", "git log -1 --format=%s; git status --porcelain"},
		{"index.lock", "echo n >n; git add n; git commit -qm n", "git log -1 --format=%s; git status --porcelain"}, // of a commit whose message the user writes
		{"index.lock", "echo n >n; git add n; git commit -qm n; git pack-refs --all", "git log -1 --format=%s; git status --porcelain"},
		{"refs/heads/a/b.lock", "git branch -q a/b $(git commit-tree -m b HEAD^{tree}); git pack-refs --all", "git log -1 --format=%s a/b"},
		{"HEAD.lock", "git checkout -q -b other; echo n >n; git add n", "git symbolic-ref HEAD; git status --porcelain"},
	} {
		t.Run(c.lock+" "+c.change, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, "mkdir -p $(dirname .git/"+c.lock+") && touch .git/"+c.lock)
			got := g.fence(t, "rm -f .git/"+c.lock+"; "+c.change+"; "+c.look, "--session", "s")
			if c.lock == "index.lock" {
				assert.Equal(t, 1, strings.Count(got.Stderr, "\n"), got.Stderr)
			}
			assert.Contains(t, got.Stderr, "in that case remove the file")
			assert.Contains(t, got.Stderr, "; it stays in the sandbox")
			if strings.Contains(c.change, "commit") { // which is not lost, should the session go
				assert.Contains(t, got.Stderr, g.host(t, g.Project, "git for-each-ref --format='%(refname)' refs/pk | tr -d '\n'"))
			}
			g.host(t, g.Project, "rm .git/"+c.lock)
			again := g.fence(t, c.look, "--session", "s")
			assert.Equal(t, got.Stdout, again.Stdout)
			assert.Empty(t, again.Stderr)
			assert.Equal(t, got.Stdout, g.host(t, g.Project, c.look+"; git for-each-ref refs/pk"))
		})
	}
}

// again makes the host's git try again if pk holds a lock, as the user would.
const again = `git() { until command git "$@" 2>../said; do grep -q '[.]lock' ../said || { cat ../said >&2; return 1; }; sleep 0.1; done; }
`

// What the user commits while a command runs stays: the command finds HEAD, the branch, the index and
// the lack of a merge as they were when it began.
func TestHostCommitsMeanwhile(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const moved = `the host has moved "refs/heads/main" meanwhile`
	const merged = "git merge -q --autostash pk/command/heads/main >/dev/null 2>&1; "
	for _, c := range []struct{ name, first, host, second, told, after, want string }{
		{"a file staged before", "echo n >n; git add n", "echo h >h; git add h; git commit -qm H", "git commit -qm n", moved,
			"git log -1 --format=%s; " + merged + "git ls-files h n; git status --porcelain", "H\nh\nn\n"},
		{"a file that the host removes", "echo n >n; git add n", "git rm -q a.txt; git commit -qm H", "git commit -qm n", moved,
			"git log -1 --format=%s; " + merged + "git ls-files a.txt n; git status --porcelain", "H\nn\n"},
		{"all files", ":", "echo h >>a.txt; git commit -qam H", "echo n >n; git add n; git commit -qam n", moved,
			"git log -1 --format=%s; " + merged + "tail -n 1 a.txt; git ls-files n; git status --porcelain", "H\nh\nn\n"},
		{"two commits", "echo n >n; git add n", "echo h >h; echo h >>a.txt; git add .; git commit -qm H", "git commit -qm n; echo n >>a.txt; git commit -qm m a.txt", moved,
			"git log -1 --format=%s; git show HEAD:h", "H\nh\n"},
		{"a new branch", "echo n >n; git add n", "echo h >h; git add h; git commit -qm H", "git switch -qc fix; git commit -qm n", `"HEAD" stays at "refs/heads/main": the host has committed meanwhile`,
			"git log -1 --format=%s; git symbolic-ref HEAD; git log -1 --format=%s fix", "H\nrefs/heads/main\nn\n"},
		{"a detached HEAD", "echo n >n; git add n", "echo h >h; git add h; git commit -qm H", "git checkout -q --detach; git commit -qm n; git tag t", `"HEAD" stays at "refs/heads/main": the host has committed meanwhile`,
			"git log -1 --format=%s; git symbolic-ref HEAD; git log -1 --format=%s t", "H\nrefs/heads/main\nn\n"},
		{"a branch that the host switches to", "echo n >n; git add n", "git branch -q next; git checkout -q next; echo h >h; git add h; git commit -qm H", "git commit -qm n", "",
			"git log -1 --format=%s; git symbolic-ref HEAD; git log -1 --format=%s main; git ls-tree --name-only main h", "H\nrefs/heads/next\nn\n"},
		{"a merge that the host begins", ":", "git merge -q --no-commit $(git commit-tree -p topic -m side topic^{tree})", "echo n >n; git add n; git commit -qm n n", "",
			"git rev-list --parents -1 main | wc -w; test -e .git/MERGE_HEAD; git commit -qm merge; git rev-list --parents -1 main | wc -w", "2\n3\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			got := g.inTwo(t, c.first, func() { g.host(t, g.Project, again+c.host) }, c.second)
			assert.Contains(t, got.Stderr, c.told)
			assert.Equal(t, c.want, g.host(t, g.Project, c.after))
			g.host(t, g.Project, "git fsck --strict 2>&1")
		})
	}
}

// A command that begins between two steps of the host's git has not seen one moment: what it commits
// stays apart.
func TestHostCommitsAtTheBeginning(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ hook, host, when, want string }{
		{"reference-transaction", "echo h >>a.txt; git commit -qam H", `test "$1" = committed || exit 0`, "H\nmain\nh\n"},
		{"post-index-change", "git checkout -q next", `test "$1" = 1 || exit 0`, "H\nnext\nh\n"},
	} {
		t.Run(c.hook, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, "git checkout -q -b next; echo h >>a.txt; git commit -qam H; git checkout -q main")
			g.Script(t, g.Project+"/.git/hooks/"+c.hook, c.when+"\ntest \"$SLOW\" || exit 0; touch ../open; until test -e ../done; do sleep 0.05; done\n")
			host := g.hostCommand(g.Project, "export SLOW=1; "+c.host)
			require.NoError(t, host.Start())
			g.await(t, "test -e ../open")
			landing := g.hostCommand(g.Project, "until git rev-parse -q --verify x; do sleep 0.02; done; touch landed")
			got := g.inTwo(t, ":", func() {
				g.host(t, g.Project, "touch ../done")
				require.NoError(t, host.Wait())
				require.NoError(t, landing.Start())
			}, "echo n >n; git add n; git branch x; until test -e landed; do sleep 0.02; done; git commit -qm n n")
			require.NoError(t, landing.Wait())
			assert.Contains(t, got.Stderr, `"refs/heads/main" stays at `)
			assert.Contains(t, got.Stderr, "the host was committing or switching when the command began")
			assert.Equal(t, c.want, g.host(t, g.Project, "git log -1 --format=%s; git symbolic-ref --short HEAD; git show :a.txt | tail -n 1"))
		})
	}
}

// Names and HEADs that are out of the ordinary.
func TestHeadsOfAllKinds(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ name, host, first, between, second, want string }{
		{"a branch renamed below its own name", "git checkout -q -b feat", ":", "git branch -m feat feat/x", "git pack-refs --all", "git symbolic-ref HEAD; git log -1 --format=%s; git for-each-ref --format='%(refname)' refs/heads/feat"},
		{"an unborn one above others", "git branch rel/1; git checkout -q --orphan rel", "git log -1 --format=%s rel/1", ":", "git branch --list 'rel/*'", "git symbolic-ref HEAD; git branch --list 'rel/*'"},
		{"references that lead to each other", "git symbolic-ref refs/heads/x refs/heads/y; git symbolic-ref refs/heads/y refs/heads/x; git symbolic-ref HEAD refs/heads/x", ":", ":", ":", "cat .git/HEAD"},
		{"branches that the host removes", "git branch -q plain; git worktree add -q ../h -b h", "git branch >/dev/null", "git worktree remove ../h; git branch -q -D h plain; git branch -m main trunk", "git pack-refs --all", "git branch --format='%(refname)'"},
		{"a symbolic link", "git checkout -q -b next; ln -sf refs/heads/next .git/HEAD", "echo n >n; git add n; git commit -qm n", ":", ":", "git symbolic-ref HEAD; git log -1 --format=%s next"},
		{"a file among the work trees", "touch .git/worktrees/.DS_Store", "echo n >n; git add n; git commit -qm n", ":", ":", "git log -1 --format=%s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			inside, plain := newGround(t, b, template), g
			inside.host(t, inside.Project, c.host)
			inside.inTwo(t, c.first, func() { inside.host(t, inside.Project, again+c.between) }, c.second)
			plain.host(t, plain.Project, c.first+"\n"+c.between+"\n"+c.second)
			assert.Equal(t, plain.host(t, plain.Project, c.want), inside.host(t, inside.Project, c.want))
		})
	}
}

// Two commands of a session commit in turns, and the host's git looks.
func TestIndexOfTwoCommands(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.inTwo(t, "echo 1 >>a.txt; git commit -qam A", func() {
		g.await(t, indexOf("A"))
		g.fence(t, "echo b >b; git add b; git commit -qm B", "--session", "s")
		assert.Equal(t, "B\n", g.host(t, g.Project, "git log -1 --format=%s"))
		g.host(t, g.Project, "! git diff-files --quiet -- b") // the other command may be writing it
		assert.Equal(t, "?? started\n", g.host(t, g.Project, "git status --porcelain --ignored -- started b a.txt | sed 's/^!!/??/'"))
	}, "echo 2 >>a.txt; echo 2 >>b; git commit -qam C", "--session", "s")
	assert.Equal(t, "C\nB\nA\n", g.host(t, g.Project, "git log -3 --format=%s; git status --porcelain"))
}

// After a command, git commands that do not look at the files again find a clean tree clean, on
// the host and in the next command.
func TestStatDataAfterACommand(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	const looked = "git status >/dev/null; "
	const isClean = "git diff-files --quiet && git diff-index --quiet HEAD && git diff-index --quiet --cached HEAD"
	for _, c := range []struct{ name, host, command, then string }{
		{"a commit", looked, "echo x >>a.txt; : >empty; ln -s a.txt link; git add .; git commit -qm x", isClean + " && git reset -q --keep HEAD~1"},
		{"files that the host has written with its index", looked + "echo y >>a.txt; echo y >y; git add .; git commit -qm y", "echo x >x; git add x; git commit -qm x", isClean},
		{"files that are as they were", looked, "git checkout -q topic; git checkout -q main", isClean},
		{"a merge in conflict", looked + "git checkout -q topic; echo t >>a.txt; git commit -qam t", "! git merge -q main", "git merge --abort && " + isClean},
		{"a cherry-pick in conflict", looked + "git checkout -q topic; echo t >>a.txt; echo n >n; git add .; git commit -qm t; git checkout -q main", "! git cherry-pick topic", "git cherry-pick --abort && " + isClean},
		{"an index of version 4", "git update-index --index-version 4; " + looked, "echo x >>a.txt; git commit -qam x", isClean},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			g.fence(t, c.command)
			if c.name == "a commit" {
				g.fence(t, isClean)
			} else {
				g.fence(t, isClean+" || test -e .git/MERGE_HEAD -o -e .git/CHERRY_PICK_HEAD")
			}
			g.host(t, g.Project, c.then)
		})
	}
	t.Run("a commit that landed while the command ran", func(t *testing.T) {
		t.Parallel()
		g := newGround(t, b, template)
		g.host(t, g.Project, looked)
		g.inSteps(t, "echo 1 >>a.txt; git commit -qam A", "test $(git log -1 --format=%s) = A && git diff --cached --quiet", ":")
		g.host(t, g.Project, isClean)
	})
}

// Git on the host opens a file that a command has changed within a second, and given its old times.
func TestStatDataHidesNoChange(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	for range 5 {
		g.fence(t, "echo good >f; touch -d 2001-01-01 f; git add f; git commit -q --allow-empty -m f; git update-index -q --refresh")
		g.fence(t, "echo evil >f; touch -d 2001-01-01 f")
		assert.Equal(t, " M f\n", g.host(t, g.Project, "git status --porcelain f"))
	}
}
