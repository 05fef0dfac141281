package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli/clitest"
)

// gitState prints the state of a repository as a user sees it.
const gitState = `
	git fsck --full 2>&1 | grep -vE '^(dangling|unreachable|notice)' || :
	git log --exclude='refs/pk/*' --all --graph --decorate-refs-exclude='refs/pk/*' --format='%H%d %s'
	git status --porcelain=v2 --branch; git status; git stash list; git for-each-ref | grep -v refs/pk/ || :
	git diff; git diff --cached; git ls-files -s; git symbolic-ref -q HEAD || :`

// Work with git in a trial leaves the host's repository as it is. Once it has landed, the
// repository is the same as after these commands without a trial.
func TestGit(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for i, s := range []struct {
		name, before string
		lines        []string
	}{
		{"commits", "", []string{`echo x >n; git add n; git commit -qm n`, `echo y >>n; git commit -qam m; git rm -q sub/f; git commit -qm gone`}},
		{"branches and tags", "", []string{`git checkout -q -b b; git commit -q --allow-empty -m b; git tag -a -m t t`, `git branch -D topic; git tag light HEAD~1; git branch -m b c`}},
		{"rebase that stops and goes on", `git checkout -q topic; echo t >>a.txt; git commit -qam t`, []string{`git rebase -q main || :`, `echo both >a.txt; git add a.txt; git rebase --continue`}},
		{"rebase that stops", `git checkout -q topic; echo t >>a.txt; git commit -qam t`, []string{`git rebase -q main || :`, `echo both >a.txt; git add a.txt`}},
		{"merge that stops", `git checkout -q topic; echo t >>a.txt; git commit -qam t; git checkout -q main`, []string{`git merge -q topic || :`}},
		{"stashes", "", []string{`echo s >>a.txt; git stash -q; echo u >u; git stash push -q -u -m two`, `git stash pop -q stash@{1}`}},
		{"staged and not", "", []string{`echo y >>a.txt; git add a.txt; echo z >>a.txt; echo new >new; git add -N new; chmod +x sub/f`, `git mv sub/f moved; ln -s a.txt l; git add l`}},
		{"reset and amend", "", []string{`git reset -q --hard HEAD~1; git commit -q --amend -m other`, `git gc -q; git commit -q --allow-empty -m after`}},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b)
			g.host(t, `git init -q; mkdir sub; echo one >a.txt; echo f >sub/f; git add .; git commit -qm 1; git branch topic; echo 2 >>a.txt; git commit -qam 2; echo 3 >>a.txt; git commit -qam 3; `+s.before)
			direct := g.copied(t)
			before := manifest(t, g.Project)
			for _, line := range s.lines {
				g.in(t, direct, line)
				g.trial(t, line)
				assert.Equal(t, without(before, manifest(t, g.Project)), without(manifest(t, g.Project), before), "the host has changed after %s", line)
			}
			assert.Equal(t, g.in(t, direct, gitState), g.trial(t, gitState))
			assert.Equal(t, without(before, manifest(t, g.Project)), without(manifest(t, g.Project), before), "the host has changed")
			got := g.apply(t, "--all")
			assert.Zero(t, got.Status)
			for line := range strings.Lines(got.Stderr) {
				assert.Regexp(t, `^pk-apply: warning: git: "refs/heads/[a-z]+" was [0-9a-f]+, which is (in its reflog|now "refs/pk/trash/.*")\n$`, line)
			}
			sameTree(t, tree(t, direct), tree(t, g.Project))
			assert.Equal(t, g.in(t, direct, gitState), g.host(t, gitState))
			g.done(t)
			g.in(t, direct, `git add -A .; git commit -qm end || :`)
			g.trial(t, `git add -A .; git commit -qm end || :`)
			assert.Zero(t, g.apply(t, "--all").Status)
			assert.Equal(t, g.in(t, direct, gitState), g.host(t, gitState))
		})
	}
}

// The host sees no repository in the trial's clone until the user adopts it.
func TestClone(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	if !clitest.Turn(1) {
		return
	}
	g := newGround(t, b, "a: 1")
	g.in(t, g.dir, `git init -q other; cd other; echo lib >lib; git add .; git commit -qm lib; git branch b`)
	g.options = []string{"--readable", g.dir + "/other"}
	g.trial(t, `git clone -q ../other sub; cd sub; echo more >>lib; git commit -qam more; git config core.fsmonitor 'touch ../ran'; echo 'touch ../ran' >.git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
		mkdir .git/modules; git init -q --bare .git/modules/m; git -C .git/modules/m config core.bare false`)
	assert.Contains(t, g.diff(t).Stdout, "A\tsub/.git/\ta repository: lands for git-adopt\n")
	got := g.apply(t, "--all")
	assert.Equal(t, clitest.Outcome{Stdout: "A\tsub/\nA\tsub/.git/\tinert: pk-fs git-adopt " + g.Project + "/sub\nA\tsub/lib\n"}, got)
	g.done(t)
	for _, dir := range []string{"/sub", "/sub/.git.fenced", "/sub/.git.fenced/modules/m"} {
		refused := clitest.Finish(t, g.shell(g.Project+dir, "git status; git rev-parse --git-dir"))
		assert.Equal(t, 128, refused.Status, dir)
	}
	assert.Equal(t, "more\n", g.trial(t, `git -C sub log -1 --format=%s`), "the trial keeps its repository")
	adopted := g.Run(t, "pk-fs", "git-adopt", g.Project+"/sub")
	assert.Zero(t, adopted.Status, adopted.Stderr)
	assert.Equal(t, "more\nlib\n", g.host(t, `cd sub; git log --format=%s; git status --porcelain; git fsck 2>/dev/null; git checkout -q -b b HEAD~1; ! test -e ../ran`))
	assert.NotContains(t, g.host(t, `cat sub/.git/config; ls sub/.git/hooks 2>/dev/null || :`), "touch")
	assert.Zero(t, strings.Count(g.diff(t).Stdout, "sub/.git"))
}

// A new repository lands in the state that pk-apply has read for the list.
func TestReviewedClone(t *testing.T) {
	b := clitest.NewBox(t)
	if !clitest.Turn(2) {
		return
	}
	g := newGround(t, b, "a: 1")
	g.trial(t, `git init -q sub; cd sub; echo 1 >f; git add f; git commit -qm 1`)
	list := g.diff(t, "--json").Stdout
	g.trial(t, `cd sub; git -c user.name=x commit -q --amend -m 2`)
	got := g.applyReviewed(t, list)
	assert.Equal(t, 1, got.Status)
	assert.Contains(t, got.Stdout, `the trial's is not the one that was reviewed`)
	assert.NoDirExists(t, g.Project+"/sub/.git.fenced")
	got = g.applyReviewed(t, g.diff(t, "--json").Stdout)
	assert.Zero(t, got.Status, got.Stderr)
	assert.DirExists(t, g.Project+"/sub/.git.fenced")
	g.trial(t, `true`)
	assert.Equal(t, clitest.Outcome{}, g.diff(t))
}

// Commits of a submodule or of a linked worktree alone are listed, keep the trial, and land
// only as they are in the list.
func TestReviewedCommitsBelow(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for i, s := range []struct{ name, trial, look, ref string }{
		{"a branch of a submodule", `cd sub; git checkout -q topic; git commit -q --allow-empty -m %s; git checkout -q main`, `git -C sub log -1 --format=%s topic`, "modules/sub/refs/heads/topic"},
		{"the detached HEAD of a linked worktree", `cd wt; git commit -q --allow-empty -m %s`, `git -C wt log -1 --format=%s`, "worktrees/wt/HEAD"},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, "f: 1")
			g.host(t, `git init -q ../lib; git -C ../lib commit -q --allow-empty -m lib
				git init -q; git submodule --quiet add ../lib sub; git -C sub branch topic; git add .; git commit -qm lib; git worktree add -q --detach wt`)
			g.trial(t, fmt.Sprintf(s.trial, "one"))
			list := g.diff(t, "--json").Stdout
			assert.Contains(t, list, `"ref":"`+s.ref+`"}`)
			assert.Equal(t, 1, strings.Count(list, "\n"), list)
			assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--all"))
			assert.Equal(t, "one\n", g.trial(t, s.look))
			g.trial(t, fmt.Sprintf(s.trial, "two"))
			got := g.applyReviewed(t, list)
			assert.Equal(t, 1, got.Status)
			assert.Contains(t, got.Stdout, s.ref+`\" is not the one that was reviewed`)
			assert.Equal(t, "lib\n", g.host(t, s.look))
			got = g.applyReviewed(t, g.diff(t, "--json").Stdout)
			assert.Equal(t, clitest.Outcome{Stdout: `{"path":"` + s.ref + `","change":"G","done":true}` + "\n"}, got)
			assert.Equal(t, "two\n", g.host(t, s.look))
			g.done(t)
		})
	}
}

// The list of stashes is reviewed, not only its end.
func TestReviewedStashes(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	g := newGround(t, b, "f: 1")
	g.host(t, `git init -q; git add f; git commit -qm 1`)
	g.trial(t, `echo 2 >f; git stash -q; echo 3 >f; git stash -q`)
	list := g.diff(t, "--json").Stdout
	g.trial(t, `i=$(git rev-parse stash@{0}); git stash clear; git stash store -m other $(git commit-tree -p HEAD -p HEAD -m other HEAD^{tree}); git stash store -m top $i`)
	got := g.applyReviewed(t, list)
	assert.Contains(t, got.Stdout, `refs/stash\" is not the one that was reviewed`)
	assert.Empty(t, g.host(t, `git stash list`))
	g.applyReviewed(t, g.diff(t, "--json").Stdout)
	assert.Equal(t, "top\nother\n", g.host(t, `git stash list --format=%gs`))
}

// An empty list, and an empty operand of a script whose variable is not set, do not name all.
func TestNothingIsNamed(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	g := newGround(t, b, "f: 1")
	g.host(t, `git init -q; git add f; git commit -qm 1`)
	g.trial(t, `echo 2 >f; git commit -qam 2; echo n >n`)
	list := g.diff(t).Stdout
	refused := func(name string, status int) clitest.Outcome {
		return clitest.Outcome{Stderr: name + ": \"\": it is empty\n" + name + ": hint: " + name + " --help lists the options\n", Status: status}
	}
	for _, options := range [][]string{nil, {"--json"}, {"-z"}, {"--discard"}, {"--dry-run"}} {
		cmd := g.Command("pk-apply", append(options, "--session", sessionName, "--from", "-")...)
		cmd.Stdin = strings.NewReader("")
		assert.Equal(t, clitest.Outcome{}, clitest.Finish(t, cmd), options)
	}
	for _, args := range [][]string{{""}, {"--discard", ""}, {"--dry-run", "n", ""}} {
		assert.Equal(t, refused("pk-apply", 2), g.apply(t, args...), args)
	}
	assert.Equal(t, refused("pk-diff", 125), g.diff(t, ""))
	assert.Equal(t, refused("pk-bwrap", 125), g.Run(t, "pk-bwrap", "--explain", ""))
	assert.Equal(t, list, g.diff(t).Stdout)
	assert.Equal(t, "1\n", g.host(t, `git log --format=%s; ! test -e n`))
}

// A trial stays that has commits to which nothing leads that lands.
func TestCommitsThatDoNotLandKeepTheTrial(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	g := newGround(t, b, "f: 1")
	g.host(t, `git init -q; git add f; git commit -qm 1`)
	g.trial(t, `git update-ref refs/wip $(git commit-tree -m wip HEAD^{tree})`)
	assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--all"))
	assert.Equal(t, "wip\n", g.trial(t, `git log -1 --format=%s refs/wip`))
}

// The user stages and switches branches between the commands of a trial. Landing loses
// nothing of that.
func TestGitStagedOnTheHost(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for i, s := range []struct{ name, first, host, second, said, status, staged string }{
		{"the trial only looks", `touch f; git status`, `echo staged >h; git add h; echo later >h`, `true`, "", "AM h\n", "staged\n"},
		{"the host switches", `touch f; git status`, `git checkout -q b2`, `touch f; git status`, "", "", "b2\n"},
		{"both stage", `echo x >x; git add x`, `echo staged >h; git add h`, `true`, "", "A  h\nA  x\n", "staged\n"},
		{"both stage one file", `echo x >h; git add h; rm h`, `echo staged >h; git add h`, `true`, "the host has staged another change", "A  h\n", "staged\n"},
		{"the host switches, the trial has staged", `echo x >x; git add x`, `git checkout -q b2`, `true`, "the host has another HEAD", "?? x\n", "b2\n"},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, "f: 1")
			g.host(t, `git init -q; git add .; git commit -qm 1; git checkout -q -b b2; echo b2 >h; git add h; git commit -qm 2; git checkout -q main; sleep 1.1`)
			g.trial(t, s.first)
			g.host(t, s.host)
			g.trial(t, s.second)
			got := g.apply(t, "--all")
			if s.said == "" {
				assert.Equal(t, clitest.Outcome{Stdout: got.Stdout}, got)
			} else {
				assert.NotZero(t, got.Status)
				assert.Contains(t, got.Stderr, s.said)
			}
			assert.Equal(t, s.status, g.host(t, `git status --short`))
			assert.Equal(t, s.staged, g.host(t, `git show :h`))
		})
	}
}

// The user drops a commit on which the trial has gone on. Landing does not bring it back.
func TestGitMovedBackOnTheHost(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	if !clitest.Turn(0) {
		return
	}
	g := newGround(t, b, "f: 1")
	g.host(t, `git init -q; git add .; git commit -qm 1; git commit -q --allow-empty -m dropped; sleep 1.1`)
	g.trial(t, `git commit -q --allow-empty -m trial`)
	g.host(t, `git reset -q --hard HEAD~1`)
	got := g.apply(t, "--all")
	assert.NotZero(t, got.Status)
	assert.Contains(t, got.Stderr, `the host has moved "refs/heads/main" meanwhile`)
	assert.Contains(t, got.Stderr, `refs/pk/`+sessionName+`/heads/main`)
	assert.Contains(t, got.Stderr, `cannot land "refs/heads/main"`)
	assert.NotContains(t, got.Stdout, "refs/heads/main", "it is said to have landed")
	assert.Equal(t, "1\n", g.host(t, `git log --format=%s`))
	assert.Equal(t, "trial\ndropped\n1\n", g.host(t, `git log --format=%s refs/pk/`+sessionName+`/heads/main`))
	g.done(t)
}

// A trial that has changed no reference and no file, but the index, a remote or the state
// of a merge, holds that until it lands.
func TestGitFilesAlone(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for i, s := range []struct{ name, trial, look, want, told string }{
		{"a remote", `git remote add o https://example.org/o`, `git remote get-url o`, "https://example.org/o\n", "pk-apply: warning: git: the url of the remote \"o\" is now \"https://example.org/o\"\n"},
		{"the index", `git rm -q --cached f`, `git ls-files`, "", ""},
		{"a merge", `git merge -q --no-commit -s ours b2`, `git log --format=%s -1 MERGE_HEAD`, "2\n", ""},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, "f: 1")
			g.host(t, `git init -q; git add .; git commit -qm 1; git checkout -q -b b2; git commit -q --allow-empty -m 2; git checkout -q -b b3 main; git commit -q --allow-empty -m 3`)
			g.trial(t, s.trial)
			assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--all"))
			assert.Equal(t, s.want, g.trial(t, s.look))
			got := g.apply(t, "--all")
			assert.Zero(t, got.Status)
			assert.Equal(t, s.told, got.Stderr)
			assert.Equal(t, s.want, g.host(t, s.look))
			g.done(t)
		})
	}
}

// Git on the host would run a tracked hook. The trial's version of it does not land.
func TestGitKeepsHooksOfTheHost(t *testing.T) {
	g := newGround(t, clitest.NewBoxInOneRow(t), "f: 1")
	g.host(t, `git init -q; mkdir .hk; echo '#!/bin/sh' >.hk/post-checkout; git add .; git commit -qm hook; git config core.hooksPath .hk`)
	before := g.host(t, "git log --format=%s; git status --porcelain")
	g.trial(t, `b=$(echo 'touch ran' | git hash-object -w --stdin); git update-index --cacheinfo 100755,$b,.hk/post-checkout; git commit -qm evil`)
	got := g.apply(t, "--all")
	assert.NotZero(t, got.Status)
	assert.NotContains(t, got.Stdout, "refs/heads/main")
	assert.Contains(t, got.Stderr, `programs of the host run ".hk/post-checkout"`)
	assert.Equal(t, before, g.host(t, "git log --format=%s; git status --porcelain"))
}

// Paths and names of references are bytes. Not only UTF-8 survives in all records.
func TestNamesThatAreNotUTF8(t *testing.T) {
	g := newGround(t, clitest.NewBoxInOneRow(t))
	g.Project = g.dir + "/no\xffUTF-8"
	g.Mkdir(t, g.Project)
	g.grow(t, "kept\xff: 1", "a\xff: 1")
	g.host(t, `git init -q; git add .; git commit -qm 1`)
	g.trial(t, "true", "--protect", "kept\xff")
	g.trial(t, "echo 2 >kept\xff; echo 2 >a\xff; git checkout -q -b b\xfe; git commit -q --allow-empty -m one; git checkout -q -b b\xff; git commit -q --allow-empty -m two; git checkout -q main")
	got := g.applyReviewed(t, g.diff(t, "--json").Stdout)
	assert.Contains(t, got.Stdout, "protected: option --protect")
	assert.Equal(t, "1", g.read(t, "kept\xff"))
	assert.Equal(t, "2", g.read(t, "a\xff"))
	assert.Equal(t, "one\ntwo\n", g.host(t, "git log --format=%s -1 b\xfe; git log --format=%s -1 b\xff"))
	g.changes(t, "M | kept\xff | stays: protected: option --protect")
}
