package main

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// Nothing that a command destroys loses a commit of the host's.
func TestNoCommitIsLost(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInEveryRow(t))
	for i, test := range []struct {
		name, before, command string
		told                  bool // pk reports on refs, or on the repository
	}{
		{"git directory removed", "", "rm -rf .git", true},
		{"everything removed", "", "rm -rf .git * .g* 2>/dev/null", true},
		{"objects removed", "", "rm -rf .git/objects", false},
		{"refs removed", "", "rm -rf .git/refs .git/packed-refs .git/logs", true},
		{"refs removed that are packed", "git pack-refs --all", "rm -f .git/packed-refs", true},
		{"reset and pruned", "", "git reset -q --hard HEAD~5; git reflog expire --expire=now --all; git gc -q --prune=now", false},
		{"reset and pruned, packed before", "git gc -q", "git reset -q --hard HEAD~5; git reflog expire --expire=now --all; git gc -q --prune=now", false},
		{"every ref deleted", "", "git for-each-ref --format='delete %(refname)' | git update-ref --stdin", true},
		{"every ref deleted, packed before", "git pack-refs --all", "git for-each-ref --format='delete %(refname)' | git update-ref --no-deref --stdin", true},
		{"branches deleted", "git checkout -q -b only topic; git commit -q --allow-empty -m only; git checkout -q main", "git branch -D topic only", true},
		{"branch deleted and made anew", "git checkout -q -b only topic; git commit -q --allow-empty -m only; git checkout -q main", "git branch -D only; git branch only", false},
		{"branch deleted and pruned in a worktree", "git -C wt commit -q --allow-empty -m only", "git worktree remove -f wt; git branch -D wtbranch; git gc -q --prune=now", true},
		{"branches forced elsewhere", "git checkout -q -b only topic; git commit -q --allow-empty -m only; git checkout -q main", "git branch -f only HEAD~3; git update-ref refs/heads/topic HEAD", false},
		{"amended, and its reflog expired", "", "git commit -q --amend --allow-empty -m amended; git reflog expire --expire=now --all; git gc -q --prune=now", false},
		{"reflogs removed", "git reset -q --hard HEAD~1; git commit -q --allow-empty -m other", "rm -rf .git/logs; git reflog expire --expire=all --all; git gc -q --prune=now", false},
		{"stashes dropped", "echo s >>a.txt; git stash -q; echo t >>a.txt; git stash -q", "git stash drop -q; git stash clear; git gc -q --prune=now", false},
		{"tags replaced", "git tag only $(git commit-tree -m only HEAD^{tree})", "git tag -f only HEAD; git tag -d v1; git gc -q --prune=now", false},
		{"notes removed", "git notes add -m note", "git update-ref -d refs/notes/commits; git gc -q --prune=now", true},
		{"HEAD moved to nothing", "git checkout -q --detach; git commit -q --allow-empty -m only", "git symbolic-ref HEAD refs/heads/nothing; git gc -q --prune=now", false},
		{"submodule's branches deleted", "git -C mod checkout -q -b only; git -C mod commit -q --allow-empty -m only; git -C mod checkout -q -", "cd mod; git branch -D only; git reflog expire --expire=now --all; git gc -q --prune=now", true},
		{"borrowed objects removed, in packs behind a link", "git repack -adq; mkdir store; mv .git/objects store/o; mv store/o/pack store/p; ln -s ../p store/o/pack; mkdir -p .git/objects/info .git/objects/pack; echo ../../store/o >.git/objects/info/alternates", "rm -rf store/p/*; rm -rf store; git commit -q --allow-empty -m more && git gc -q --prune=now", false},
		{"hard links to everything written", "git gc -q; git commit -q --allow-empty -m loose; mkdir bk; cp -al .git/objects .git/refs .git/logs .git/packed-refs bk", "chmod -R u+w bk; find bk -type f | while read f; do echo x >$f; done", false},
		{"rebase forgotten that had put changes away", "git checkout -q topic; echo t >>a.txt; git commit -qam t; echo mine >>sub/dir/f; git rebase -q --autostash main || :; test -e .git/rebase-merge/autostash", "rm -rf .git/rebase-merge", true},
		{"merge forgotten that had put changes away", "git checkout -q topic; echo t >>a.txt; git commit -qam t; echo mine >>sub/dir/f; git merge -q --autostash main || :; test -e .git/MERGE_AUTOSTASH", "rm -f .git/MERGE_*; git gc -q --prune=now", true},
		{"submodule removed with its repository", "git -C mod checkout -q -b only; git -C mod commit -q --allow-empty -m only", "git submodule --quiet deinit -f mod; rm -rf .git/modules", false},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			if test.before != "" {
				g.host(t, g.Project, test.before)
			}
			stashed := g.host(t, g.Project, "cat .git/rebase-merge/autostash .git/MERGE_AUTOSTASH 2>/dev/null || :")
			before, modules := g.commits(t, g.Project), g.host(t, g.Project+"/.git/modules/mod", "git --git-dir=. --work-tree=. rev-list --all --reflog")
			options := []string{"-y", "--json", "--no-log"}
			if i/4%2 == 0 {
				options = append(options, "--session", "loss")
			}
			got := g.Run(t, "pk-bash", append(options, "--", test.command)...)
			require.True(t, json.Valid([]byte(got.Stdout)), got.Stdout)
			for _, when := range []string{"at once", "after the host's gc"} {
				assert.Subset(t, g.commits(t, g.Project), append(before, words(stashed)...), "commits were lost %s", when)
				assert.Equal(t, "", g.patient(t, g.Project, "git fsck --full 2>&1 | grep -vE '^(dangling|notice)'"), when)
				if assert.DirExists(t, g.Project+"/.git/modules/mod") {
					assert.Subset(t, words(g.patient(t, g.Project+"/.git/modules/mod", "git --git-dir=. --work-tree=. rev-list --all --reflog")), words(modules), "commits of the submodule were lost %s", when)
				}
				g.patient(t, g.Project, "git gc -q --prune=now")
			}
			if test.told {
				assert.Regexp(t, regexp.MustCompile(`\brefs?\b|\.git`), told(t, got.Stdout)+got.Stderr, "nothing tells the user")
			}
		})
	}
}

func words(text string) []string { return regexp.MustCompile(`\S+`).FindAllString(text, -1) }

// told is a result without the command and its output.
func told(t *testing.T, result string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(result), &fields))
	delete(fields, "command")
	delete(fields, "output")
	delete(fields, "guarantees")
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}
