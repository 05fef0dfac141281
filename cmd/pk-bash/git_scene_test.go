package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// A gitScene is everyday work with git: lines, each a command of its own. They have
// the same effect in the sandbox and outside.
type gitScene struct {
	name string
	// before runs on the host, in the project, in each copy.
	before  string
	root    string // the project root, below PROJECT
	options []string
	lines   []string
}

var gitScenes = []gitScene{
	{name: "commit", lines: []string{`echo x >n; git add n; git commit -qm n`, `echo y >>n; git commit -qam m; git log -1 --format=%s`}},
	{name: "first commit of a repository", before: `rm -rf .git wt mod; git init -q`, lines: []string{`git add a.txt; git commit -qm first`, `git branch b`}},
	{name: "amend", lines: []string{`echo y >>a.txt; git commit -qa --amend -m amended`, `git commit -q --amend --no-edit`}},
	{name: "staged, unstaged and intended changes", lines: []string{`echo y >>a.txt; git add a.txt; echo z >>a.txt`, `echo new >new; git add -N new; git update-index --chmod=+x sub/dir/f`}},
	{name: "removal and renaming", lines: []string{`git rm -q sub/dir/f; git mv a.txt b.txt`, `git commit -qm moved`}},
	{name: "links and modes", lines: []string{`ln -s a.txt l; chmod +x a.txt; git add -A a.txt l; git commit -qm modes`}},
	{name: "reset", lines: []string{`git reset -q --soft HEAD~1`, `git reset -q HEAD~1`, `git reset -q --hard HEAD~1`}},
	{name: "branches", lines: []string{`git branch b1; git checkout -q -b b2; git commit -q --allow-empty -m b2`, `git checkout -q -`, `git checkout -q -; git branch -m b1 b3`, `git branch -d b3; git branch -f topic HEAD~1`}},
	{name: "branch in the place of a directory of branches", before: `git branch a/b; git pack-refs --all`, lines: []string{`git branch -D a/b; git branch a`, `git branch -D a; git branch a/b/c`}},
	{name: "detached HEAD", lines: []string{`git checkout -q --detach HEAD~1; git commit -q --allow-empty -m detached`, `git checkout -q -B kept`}},
	{name: "orphan branch", lines: []string{`git checkout -q --orphan o; git rm -rqf --cached .`, `git add a.txt; git commit -qm o`}},
	{name: "merge", before: `git checkout -q topic; echo t >t; git add t; git commit -qm t; git checkout -q main`, lines: []string{`git merge -q --no-edit topic`}},
	{name: "merge whose conflict is resolved later", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t; git checkout -q main`, lines: []string{`git merge -q topic`, `echo both >a.txt; git add a.txt`, `git commit -q --no-edit`}},
	{name: "merge that stops", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t; git checkout -q main`, lines: []string{`git merge -q topic`}},
	{name: "merge that is given up later", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t; git checkout -q main`, lines: []string{`git merge -q topic`, `git merge --abort`}},
	{name: "rebase", before: `git checkout -q topic; echo t >t; git add t; git commit -qm t`, lines: []string{`git rebase -q main`}},
	{name: "rebase that stops to edit and goes on", lines: []string{`GIT_SEQUENCE_EDITOR="sed -i s/^pick/edit/" git rebase -q -i HEAD~2`, `echo e >e; git add e; git commit -q --amend --no-edit`, `git rebase --continue`, `git rebase --continue`}},
	{name: "rebase that stops", lines: []string{`GIT_SEQUENCE_EDITOR="sed -i s/^pick/edit/" git rebase -q -i HEAD~2`}},
	{name: "rebase whose conflict is resolved later", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t`, lines: []string{`git rebase -q main`, `echo both >a.txt; git add a.txt; git rebase --continue`}},
	{name: "rebase that is given up later", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t`, lines: []string{`git rebase -q main`, `git rebase --abort`}},
	{name: "rebase with a command that fails at first", lines: []string{`git rebase -q -x "test -e ok" HEAD~2`, `touch ok; git rebase --continue; rm ok`}},
	{name: "cherry-pick", before: `git checkout -q topic; echo t >t; git add t; git commit -qm t; git checkout -q main`, lines: []string{`git cherry-pick topic`}},
	{name: "cherry-picks whose conflict is resolved later", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t; echo u >u; git add u; git commit -qm u; git checkout -q main`, lines: []string{`git cherry-pick topic~1 topic`, `echo both >a.txt; git add a.txt`, `git cherry-pick --continue`}},
	{name: "revert", lines: []string{`git revert --no-edit HEAD~1`}},
	{name: "patches", lines: []string{`git format-patch -q -1 HEAD~1; git reset -q --hard HEAD~2`, `git am -q 0001*; rm 0001*`}},
	{name: "stashes", lines: []string{`echo s >>a.txt; git stash -q`, `git stash list`, `echo u >u; git stash push -q -u -m two`, `git stash pop -q stash@{1}`}},
	{name: "bisect", lines: []string{`git bisect start HEAD HEAD~5`, `git bisect good`, `git bisect bad`}},
	{name: "bisect that ends", lines: []string{`git bisect start HEAD HEAD~5`, `git bisect run test -e mod`, `git bisect reset`}},
	{name: "tags", lines: []string{`git tag -a -m v2 v2; git tag light HEAD~1`, `git tag -d v1; git tag -f light`}},
	{name: "notes", lines: []string{`git notes add -m note`, `git notes append -m more; git notes add -m old HEAD~1`}},
	{name: "packing", lines: []string{`git commit -q --allow-empty -m n; git gc -q`, `git commit -q --allow-empty -m o; git branch p`, `git repack -adq; git pack-refs --all; git prune`}},
	{name: "refs that the host has packed", before: `git gc -q`, lines: []string{`git branch -D topic; git tag -d v1`, `git branch topic HEAD~1; git commit -q --allow-empty -m n`}},
	{name: "push, fetch and pull", before: `git init -q --bare --template= ../remote.git; git remote add origin ../remote.git; git push -q origin main topic`, options: []string{"--writable", "PROJECT/../remote.git"}, lines: []string{`git commit -q --allow-empty -m n; git push -q -u origin main`, `git push -q origin :topic; git fetch -q --prune`, `git checkout -q -b x origin/main; git pull -q`}},
	{name: "fetch", before: `git init -q --bare --template= ../remote.git; git remote add origin ../remote.git; git push -q origin main topic main:other; git update-ref -d refs/remotes/origin/other`, options: []string{"--readable", "PROJECT/../remote.git"}, lines: []string{`git fetch -q`, `git checkout -q -b x origin/other`, `git checkout -q other`}},
	{name: "remotes and upstreams", before: `git update-ref refs/remotes/origin/x HEAD~1; git config remote.origin.url https://example.org/a.git; git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'`, lines: []string{`git remote add up https://example.org/x.git; git remote add s git@example.org:x.git`, `git checkout -q -b x origin/x; git branch --set-upstream-to=origin/x topic`}},
	{name: "root that is a linked worktree", root: "wt", lines: []string{`echo w >w; git add w; git commit -qm w`, `echo s >>a.txt; git stash -q; git branch b`}},
	{name: "linked worktree whose repository lies elsewhere", before: `git worktree add -q -b other ../elsewhere`, root: "../elsewhere", lines: []string{`echo w >w; git add w; git commit -qm w`, `git checkout -q -b again; git tag t; git rebase -q HEAD~1`}},
	{name: "update of a submodule", before: `git -C mod commit -q --allow-empty -m ahead; rm mod/lib.c`, lines: []string{`git submodule --quiet update --force`}},
	{name: "commit in a submodule", lines: []string{`cd mod; git checkout -q -b m; echo 1 >>lib.c; git commit -qam m`, `git commit -qam bump`, `git submodule status`}},
	{name: "filter of the user's", before: `printf '[filter "up"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired = true\n' >>~/.gitconfig; echo '*.up filter=up' >.gitattributes; git add .gitattributes; git commit -qm attributes`, lines: []string{`echo hello >x.up; git add x.up; git commit -qm up`, `rm x.up; git checkout -q x.up`}},
	{name: "files of LFS, as git-lfs writes them", lines: []string{`o=$(printf large | sha256sum | cut -c1-64); d=.git/lfs/objects/$(echo $o | sed 's|\(..\)\(..\).*|\1/\2|'); mkdir -p $d .git/lfs/tmp; printf large >.git/lfs/tmp/x; mv .git/lfs/tmp/x $d/$o; git commit -q --allow-empty -m lfs`, `cat .git/lfs/objects/*/*/*`}},
	{name: "ignored files of the user's", before: `echo .env.local >~/.ignored; git config --global core.excludesFile '~/.ignored'`, lines: []string{`touch .env.local seen; git add seen .env.local; git add -A sub; git commit -qm all`}},
	{name: "ignored files in the usual place", before: `mkdir -p ~/.config/git; echo .env.local >~/.config/git/ignore`, lines: []string{`touch sub/.env.local sub/seen; git add sub; git commit -qm all`}},
	{name: "attributes of the user's", before: `echo '*.x text eol=lf' >~/.attributes; git config --global core.attributesFile '~/.attributes'`, lines: []string{`printf 'a\r\nb\r\n' >n.x; git add n.x; git commit -qm x`}},
	{name: "line ends of the user's", before: `git config --global core.autocrlf true`, lines: []string{`printf 'a\r\nb\r\n' >w.txt; git add w.txt; git commit -qm w`, `rm w.txt a.txt; git checkout -q -- w.txt a.txt`}},
	{name: "aliases of the user's", before: `git config --global alias.ci commit; git config --global alias.co 'checkout -q'`, lines: []string{`git ci -q --allow-empty -m c; git co -b n`}},
	{name: "settings of the repository", before: `git config core.abbrev 12; git config alias.ci commit; git config merge.ours.driver true; git config user.name Local`, lines: []string{`git ci -q --allow-empty -m c`}},
	{name: "hash functions of 256 bits", before: `rm -rf .git wt mod; git init -q --object-format=sha256; git add a.txt; git commit -qm 1; git commit -q --allow-empty -m 2`, lines: []string{`echo x >n; git add n; git commit -qm n; git branch b`, `git gc -q; git commit -q --allow-empty -m o`}},
	{name: "index of version 4", before: `git update-index --index-version 4`, lines: []string{`echo x >n; git add n; git commit -qm n; echo y >>a.txt`}},
	{name: "split index", before: `git update-index --split-index`, lines: []string{`echo x >n; git add n; git commit -qm n`, `echo y >m; git add m`}},
	{name: "sparse index", before: `git submodule --quiet deinit -f mod; git status; git sparse-checkout set --sparse-index --cone tools; git ls-files --sparse | grep -qx sub/`, lines: []string{`echo x >n; git add n; git commit -qm n`, `echo y >m; git add m; git commit -qm m`}},
	{name: "split index by the configuration", before: `git config core.splitIndex true; echo z >>a.txt; git add a.txt`, lines: []string{`echo x >n; git add n; git commit -qm n`, `echo y >m; git add m`}},
	{name: "clone that borrows what the other one has just got", before: `git clone -q --shared . .a; echo .a >>.git/info/exclude`, root: ".a", options: []string{"--writable", "PROJECT"}, lines: []string{`cd ..; echo x >n; git add n; git commit -qm n; cd .a; git pull -q`, `git log --oneline -1`}},
	{name: "rebase that puts changes away and brings them back", before: `git checkout -q topic; echo t >>a.txt; git commit -qam t; echo m >>sub/dir/f`, lines: []string{`git rebase -q --autostash main`, `git rebase --abort; cat sub/dir/f`}},
	{name: "files that programs of the host run", before: `echo 1 >.envrc; git add .envrc; git commit -qm 1; echo 2 >.envrc; git commit -qam 2; mkdir .vscode; echo {} >.vscode/settings.json`, lines: []string{`git add .vscode; git commit -qm settings`, `git reset -q --soft HEAD~2`, `git commit -qm both`}},
	{name: "submodule of a linked worktree", before: `git -C wt -c protocol.file.allow=always submodule --quiet update --init`, lines: []string{`cd wt/mod; git checkout -q -b m; echo 1 >>lib.c; git commit -qam m`, `cd wt; git commit -qam bump; git submodule status`}},
	{name: "merge that moves a submodule of a linked worktree", before: `git -C mod commit -q --allow-empty -m ahead; git commit -qam bump`, lines: []string{`cd wt; git merge -q main`}},
	{name: "branch without files", lines: []string{`git switch -q --orphan o; git commit -q --allow-empty -m o`, `git log --oneline; echo x >n; git add n; git commit -qm n`}},
	{name: "rebase of all commits that stops", lines: []string{`GIT_SEQUENCE_EDITOR="sed -i 1s/^pick/edit/" git rebase -q -i --root`, `git commit -q --amend -m first; git rebase --continue`}},
	{name: "commit in a submodule that has hooks", before: `git config --global core.hooksPath .githooks; mkdir mod/.githooks; printf '#!/bin/sh\n' >mod/.githooks/pre-commit; chmod +x mod/.githooks/pre-commit; cd mod; git add .; git commit -qm hooks; cd ..; git commit -qam hooks`, lines: []string{`cd mod; echo 1 >>lib.c; git commit -qam m`, `git commit -qam bump; git submodule status`}},
	{name: "commits in two work trees", lines: []string{`git commit -q --allow-empty -m m; cd wt; git commit -q --allow-empty -m x; git checkout -q -b y; git commit -q --allow-empty -m y`, `git log -g --format=%H -2; git -C wt log -g --format=%H -3`}},
	{name: "shallow clone", before: `git clone -q --depth 2 file://$PWD ../shallow; cd ../shallow; git remote remove origin`, root: "../shallow", lines: []string{`git commit -q --allow-empty -m n`, `git branch b HEAD~1`}},
}

// gitState prints the state of a repository as a user sees it, without pk's own refs.
const gitState = `
	git fsck --full 2>&1 | grep -vE '^(dangling|unreachable|notice)'
	git log --exclude='refs/pk/*' --all --graph --decorate-refs-exclude='refs/pk/*' --format='%H%d %s'
	git status --porcelain=v2 --branch; git status
	git stash list; git for-each-ref | grep -v refs/pk/
	git config --local --get-regexp '^(branch|remote)\.' | sort
	git worktree list; git submodule status; git diff; git diff --cached; git ls-files -s; cat *.up *.txt 2>/dev/null
	find .git/lfs/objects -type f 2>/dev/null | xargs -r sha256sum`

// fixed puts the same dates and editor before each line.
const fixed = `export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_EDITOR=true LC_ALL=C; `

func TestGitScenes(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInEveryRow(t))
	rounds, _ := strconv.Atoi(os.Getenv("PK_ROUNDS"))
	for i, s := range gitScenes {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			want := newGround(t, b, template)
			statuses, state := want.play(t, s, func(line string) clitest.Outcome {
				return clitest.Finish(t, want.hostCommand(filepath.Join(want.Project, s.root), line))
			})
			for _, session := range []bool{false, true} {
				if rounds == 0 && session != (i/4%2 == 0) {
					continue
				}
				t.Run(map[bool]string{false: "without a session", true: "in a session"}[session], func(t *testing.T) {
					g := newGround(t, b, template)
					options := []string{"-y", "--raw", "-C", filepath.Join(g.Project, s.root)}
					for _, o := range s.options {
						options = append(options, filepath.Clean(g.fill(o)))
					}
					if session {
						options = append(options, "--session", "scene")
					}
					got, is := g.play(t, s, func(line string) clitest.Outcome {
						out := g.Run(t, "pk-bash", append(options, "--", fixed+line)...)
						t.Logf("%s\n%s%s", line, out.Stdout, out.Stderr)
						assert.NotContains(t, out.Stderr, "sharedindex")
						return out
					})
					assert.Equal(t, statuses, got, "the commands ended in another way")
					assert.Equal(t, state, is)
				})
			}
		})
	}
}

// play prepares a scene, runs its lines and returns their statuses and the state
// they lead to.
func (g *gitGround) play(t *testing.T, s gitScene, run func(string) clitest.Outcome) (statuses []int, state string) {
	t.Helper()
	if s.before != "" {
		g.host(t, g.Project, g.fill(s.before))
	}
	for _, line := range s.lines {
		statuses = append(statuses, run(line).Status)
	}
	state = g.patient(t, filepath.Join(g.Project, s.root), gitState)
	if s.root != "" {
		state += g.patient(t, g.Project, gitState)
	}
	if exists(g.dir + "/remote.git") {
		state += g.patient(t, g.dir+"/remote.git", "git for-each-ref | grep -v refs/pk/; git fsck --full 2>&1 | grep -v ^dangling")
	}
	return statuses, strings.ReplaceAll(state, g.dir, "DIR")
}

// fence runs one line in the sandbox, which has to succeed.
func (g *gitGround) fence(t *testing.T, line string, options ...string) clitest.Outcome {
	t.Helper()
	got := g.Run(t, "pk-bash", append(append([]string{"-y", "--raw"}, options...), "--", fixed+line)...)
	require.Zero(t, got.Status, "%s\n%s%s", line, got.Stdout, got.Stderr)
	return got
}

// A state that cannot land keeps the branch on which it works, and no work tree of the host
// loses its branch.
// A command cannot write a protected file, nor have the host's git write it.
func TestProtectedFilesByGit(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `mkdir env; echo good >env/real; ln -s env/real .envrc; git add .envrc env; git commit -qm envrc`)
	evil := `git update-index --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),env/real`
	for _, command := range []string{evil, evil + `; git commit -qm x; git reset -q --soft HEAD`, `git rm -q --cached .envrc; git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),.envrc`} {
		got := g.Run(t, "pk-bash", "-y", "--raw", "--", command)
		assert.Contains(t, got.Stderr, "of which it has another version", command)
		g.host(t, g.Project, `git checkout -q .; git stash -q || :; git reset -q --hard`)
		text, err := os.ReadFile(g.Project + "/.envrc")
		require.NoError(t, err)
		assert.Equal(t, "good\n", string(text), command)
	}
}

// Git on the host moves a file of the stash into a directory to which all others have moved.
func TestStashInAMovedDirectory(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	got := g.fence(t, `mkdir x; seq 30 >x/a; seq 40 >x/b; git add x; git commit -qm x; echo evil >x/tasks.json; git add x; git stash -q; mkdir .vscode; git mv x/a x/b .vscode; git commit -qm moved`)
	assert.Contains(t, got.Stderr, "one side has moved a directory")
	assert.Equal(t, "moved\n", g.host(t, g.Project, `git log -1 --format=%s; git stash pop -q 2>/dev/null || :`))
	assert.NoFileExists(t, g.Project+"/.vscode/tasks.json")
}

// A stash may remove a directory, or move it, unless protected names can be there: new files of the host's move along.
func TestStashThatRemovesADirectory(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct {
		name, change string
		lands        bool
	}{
		{"removed", `rm -r y`, true},
		{"removed, and a new file elsewhere", `git rm -qr y; echo n >x/n; git add x`, true},
		{"moved", `git mv y x/z`, true},
		{"moved below the same name", `git mv y/in x/in`, true},
		{"moved to where a protected name can be", `mkdir .vscode; git mv y/in/a .vscode/a; git mv y/in/b x`, false},
		{"moved to the top", `git mv y/in/a y/in/b .`, false},
		{"moved to the top, with a directory that stays below", `git mv y/in .`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, `mkdir -p x y/in; seq 30 >y/in/a; seq 40 >y/in/b; seq 50 >x/x; git add .; git commit -qm dirs`)
			got := g.fence(t, c.change+`; git stash -q`)
			assert.Equal(t, !c.lands, strings.Contains(got.Stderr, "one side has moved a directory"), got.Stderr)
			list := g.host(t, g.Project, `git stash list`)
			assert.Equal(t, c.lands, list != "", list)
			if c.lands {
				g.fence(t, `git stash pop -q && test ! -e y/in/a`)
			}
		})
	}
}

// A stash fits all work trees; a list has no commit that moves a directory, and HEAD moves to
// none that does not fit, also while a command runs; a rebase resets no branch to less.
func TestWhatIsStillToBeApplied(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const base = `mkdir x .vscode; seq 30 >x/a; seq 40 >x/b; echo v >.vscode/v; git add x .vscode; git commit -qm x; `
	const pause = `GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i `
	const move = `cp x/a x/b .vscode; git rm -qr x; git add .vscode; git commit -qm move; `
	for _, c := range []struct{ name, host, first, second, next, file, content string }{
		{"a stash of another work tree", `echo "export A=1" >.envrc; git add .envrc; git commit -qm e`, `cd wt; git show main:.envrc >notes; git add notes; git commit -qm n; echo "export EVIL=1" >>notes; git stash -q`, "", `git stash pop`, ".envrc", "export A=1\n"},
		{"a list that moves and adds", base, `git checkout -q -b c; echo cc >a.txt; git commit -qam c; git checkout -q -b m main; ` + move + `git checkout -q -b a main; echo evil >x/tasks.json; git add x; git commit -qm add; git checkout -q main; echo mm >a.txt; git commit -qam mm; git cherry-pick c m a`, "", `echo r >a.txt; git add a.txt; git cherry-pick --continue`, ".vscode/tasks.json", ""},
		{"a list that fits the host's HEAD alone", base, `git checkout -q -b c; echo cc >a.txt; git commit -qam c; git checkout -q -b a main; echo evil >x/tasks.json; git add x; git commit -qm add; git checkout -q main; echo mm >a.txt; git commit -qam mm; ` + move + `git cherry-pick c a`, "", "true", ".git/sequencer/todo", ""},
		{"HEAD moves under a rebase", base, `echo evil >x/tasks.json; git add x; git commit -qm add; ` + pause + `HEAD~1`, move + `git branch seen; sleep 1.5`, `git rebase --continue`, ".vscode/tasks.json", ""},
		{"HEAD moves under an autostash", base, `echo f >f; git add f; git commit -qm f; echo evil >x/tasks.json; git add x; ` + pause + `--autostash HEAD~1`, move, `git rebase --continue`, ".vscode/tasks.json", ""},
		{"a rebase aborted at a new branch", base + `echo f >f; git add f; git commit -qm f`, pause + `HEAD~1; git branch new; git symbolic-ref HEAD refs/heads/new; git rev-parse main~2 >.git/rebase-merge/orig-head`, "", `git rebase --abort; git log -1 --format=%s main >subject`, "subject", "f\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			for _, command := range []string{c.first, c.second} {
				if command != "" {
					g.Run(t, "pk-bash", "-y", "--raw", "--", command)
				}
			}
			g.patient(t, g.Project, c.next)
			text, _ := os.ReadFile(g.Project + "/" + c.file)
			assert.Equal(t, c.content, string(text))
		})
	}
}

// A commit adds and removes no protected file of the host's, unless the user has done that.
func TestProtectedFilesComeAndGo(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "echo mine >.envrc; git add .envrc; git commit -qm envrc; mkdir .vscode; echo mine >.vscode/tasks.json")
	subject := func() string { return g.host(t, g.Project, "git log -1 --format=%s") }

	got := g.fence(t, "git rm -q --cached .envrc; git commit -qm without")
	assert.Contains(t, got.Stderr, `programs of the host run ".envrc", and it has none`)
	assert.Equal(t, "envrc\n", subject())
	g.host(t, g.Project, "git reset -q; rm .envrc")
	assert.Empty(t, g.fence(t, "git commit -qam without").Stderr, "the user has removed it")
	assert.Equal(t, "without\n", subject())

	got = g.fence(t, "git update-index --add --cacheinfo 100644,$(git rev-parse HEAD~1:.envrc),.envrc; git commit -qm again")
	assert.Contains(t, got.Stderr, `programs of the host run ".envrc", of which it has another version`)
	assert.Equal(t, "without\n", subject())
	g.host(t, g.Project, "git reset -q")
	assert.Empty(t, g.fence(t, "git add .vscode; git commit -qm tasks").Stderr, "the user has made it")
	assert.Equal(t, "tasks\n", subject())
}

// The user's older stash, from a time when a protected file was another, does not keep back a
// new one; nor does a commit of the same command.
func TestStashesBesideOthers(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "echo 1 >.envrc; git add .envrc; git commit -qm 1; echo old >>a.txt; git stash -q; echo 2 >.envrc; git commit -qam 2; echo 3 >.envrc")
	assert.NotContains(t, g.fence(t, "git commit -qam 3; echo new >>a.txt; git stash -q").Stderr, "refs/stash")
	assert.Equal(t, "WIP on main: 3\nWIP on main: 1\n3\n", g.host(t, g.Project, "git stash list --format=%gs | sed 's/main: [0-9a-f]*/main:/'; git log -1 --format=%s"))
	assert.NotContains(t, g.fence(t, "git stash pop -q").Stderr, "stays at")
	assert.Equal(t, "1\nnew\n", g.host(t, g.Project, "git stash list | wc -l; tail -1 a.txt"))
}

// By the log of HEAD, git checkout - goes to no branch with other protected files.
func TestSwitchBack(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `echo 1 >.envrc; git add .envrc; git commit -qm 1; git branch dev; git branch other $(git commit-tree -p HEAD -m other $(git rm -q --cached .envrc; git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),.envrc; git write-tree)); git reset -q; git checkout -q dev; git checkout -q main`)
	for _, c := range []struct{ from, to string }{{"other", "dev"}, {"topic", "topic"}} {
		g.fence(t, `h=$(git rev-parse HEAD); printf "%s %s U <u@x> %s +0000\tcheckout: moving from `+c.from+` to main\n" $h $h $(date +%s) >>.git/logs/HEAD`)
		assert.Equal(t, "ref: refs/heads/"+c.to+"\n", g.host(t, g.Project, `git checkout -q -; cat .git/HEAD; git checkout -q main`), c.from)
	}
}

// Files that the user's configuration runs in every repository are named when one is adopted.
func TestAdoptedHooks(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git config --global core.hooksPath .githooks")
	g.fence(t, `git init -q lib; cd lib; mkdir .githooks; echo x >.githooks/pre-commit; git add -A; git -c core.hooksPath=/none commit -qm l`)
	got := g.Run(t, "pk-fs", "git-adopt", "lib")
	assert.Zero(t, got.Status)
	assert.Contains(t, got.Stderr, "your own configuration runs or reads \""+g.Project+"/lib/.githooks")
}

// pk names what makes a command's submodule and work tree the host's, and that works.
func TestAdviceForSubmodulesAndWorkTrees(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	other := filepath.Dir(g.Project) + "/other"
	g.host(t, g.Project, "git init -q ../other; git -C ../other commit -q --allow-empty -m other")
	got := g.Run(t, "pk-bash", "-y", "--raw", "--readable", other, "--", "git -c protocol.file.allow=always submodule --quiet add file://"+other+" added; git commit -qm added; git worktree add -q -b side tree")
	assert.Contains(t, got.Stderr, fmt.Sprintf("the submodule %q works in the sandbox alone; on the host: move it away, and git submodule update --init", g.Project+"/added"))
	assert.Contains(t, got.Stderr, fmt.Sprintf("the work tree %q works in the sandbox alone; on the host: move it away, and git worktree add", g.Project+"/tree"))
	g.host(t, g.Project, "mv added old; git -c protocol.file.allow=always submodule --quiet update --init added; mv tree older; git worktree add -q tree side")
	assert.Equal(t, "side\n", g.host(t, g.Project, "git -C added log -1 >/dev/null; git -C tree branch --show-current"))
}

// The submodule's commit lands before the superproject's that leads to it.
func TestSubmoduleWithItsOwnGitDirectory(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git clone -q ../library own; git submodule --quiet add ./own own 2>/dev/null || git submodule add ../library own; git commit -qm own; test -d own/.git")
	got := g.fence(t, "cd own; git commit -q --allow-empty -m inner; cd ..; git commit -qam outer")
	assert.Empty(t, got.Stderr)
	assert.Equal(t, "outer\ninner\n", g.host(t, g.Project, "git log -1 --format=%s; git -C own log -1 --format=%s; git diff --exit-code HEAD"))
}

// A tag of the command's does not take the name by which the user means another commit; a
// branch that the host's git pull would merge is told.
func TestNamesForOtherCommits(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git update-ref refs/remotes/origin/main HEAD~1; git update-ref refs/remotes/up/main HEAD; git symbolic-ref refs/remotes/up/HEAD refs/remotes/up/main; git remote add origin https://example.org/a.git")
	got := g.fence(t, `git tag topic; git tag up; git tag origin/main; git tag $(git rev-parse --short HEAD~2); git branch $(git rev-parse --short HEAD~3); git tag new; git tag abcd; printf "create refs/tags/both HEAD\ncreate refs/heads/both HEAD\n" | git update-ref --stdin; git tag abc1234; git tag 20261126; git tag v1-1-gabcd; git branch origin/main; git branch v1
		git config branch.topic.remote .; git config branch.topic.merge refs/heads/wtbranch; git branch -q --track fresh main`)
	for _, name := range []string{"refs/tags/topic", "refs/tags/origin/main", "refs/tags/up", "refs/tags/both", "refs/heads/both", "refs/tags/abc1234", "refs/tags/v1-1-gabcd", "refs/heads/origin/main", "refs/heads/v1"} {
		assert.Contains(t, got.Stderr, fmt.Sprintf("%q does not land: git would take its name for another commit's", name))
	}
	assert.Equal(t, 11, strings.Count(got.Stderr, "for another commit's"))
	assert.Contains(t, got.Stderr, `git pull on the branch "topic" now merges "refs/heads/wtbranch"`)
	assert.NotContains(t, got.Stderr, `"fresh"`)
	assert.Equal(t, "20261126\nabcd\nnew\nv1\n", g.host(t, g.Project, "git tag"))
}

// Some prompts and makefiles run parts of the names that git prints. A branch of the user's lands.
func TestNamesThatAShellRuns(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git branch 'own$x'; git remote add origin https://host.example/x.git; git update-ref refs/remotes/origin/main HEAD; git branch -q -u origin/main")
	before := g.host(t, g.Project, "git symbolic-ref HEAD")
	got := g.fence(t, "git checkout -q -b '$(touch${IFS}x)'; git commit -q --allow-empty -m kept; git tag 't`id`'; git branch -f 'own$x'; git checkout -q --orphan 'o$(x)'")
	assert.Contains(t, got.Stderr, `"refs/heads/$(touch${IFS}x)" does not land: a prompt or a makefile may run a part of the name "refs/heads/$(touch${IFS}x)"`)
	assert.Contains(t, got.Stderr, "refs/tags/t`id`")
	assert.Equal(t, before, g.host(t, g.Project, "git symbolic-ref HEAD"))
	assert.Equal(t, "kept\n", g.host(t, g.Project, "git log -1 --format=%s 'own$x'"))
	assert.NotEmpty(t, g.host(t, g.Project, "git for-each-ref refs/pk | grep 'heads/__touch_{IFS}x_'"))

	tag := func(name string) string {
		return fmt.Sprintf(`printf 'object %%s\ntype commit\ntag %%b\ntagger A <a@b> 1700000000 +0000\n\nm\n' $(git rev-parse HEAD) '%s' | git hash-object -t tag -w --stdin --literally`, name)
	}
	got = g.fence(t, `git checkout -q main; for t in "$(`+tag("$(x)")+`)" "$(`+tag("v1;x")+`)" "$(`+tag(`\033]0;x\a`)+`)"; do git update-ref refs/tags/t$t $t; done; git tag -am plain plain
		git update-ref 'refs/remotes/origin/a|b' HEAD; git config branch.main.merge 'refs/heads/a|b'; git config remote.origin.url 'https://host.example/$(id)'
		git remote add 'r&x' https://host.example/y; git remote add $(printf 'origin\342\200\213') https://host.example/z; git branch "o'k"`)
	assert.Equal(t, 3, strings.Count(got.Stderr, `may run a part of the name "$(x)"`)+strings.Count(got.Stderr, `of the name "v1;x"`)+strings.Count(got.Stderr, `of the name "\x1b]0;x\a"`), got.Stderr)
	assert.Equal(t, "plain\n", g.host(t, g.Project, "git tag -l t* plain"))
	assert.Empty(t, g.host(t, g.Project, "git for-each-ref --format='%(refname)' | grep \"[$\\`;|&']\" | grep -v 'refs/heads/own' || true"))
	assert.Equal(t, "origin\nhttps://host.example/x.git\norigin/main\n", g.host(t, g.Project, "git remote; git remote get-url origin; git rev-parse --abbrev-ref @{u}"))
}

// Links that a command has checked out or committed are no traps, and no path behind a link becomes tracked.
func TestLinksThatAreTracked(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const base = `mkdir .agents d; echo r >.agents/r; echo c >c; echo d >d/d; git add .; git commit -qm x; git checkout -qb l; ln -sf .agents/r c; rm -r d; ln -s .agents d; echo x >./-x; git add .; git commit -qm l; git checkout -q main`
	for _, command := range []string{"git checkout -q l", "git merge -q --ff-only l", "ln -sf .agents/r c; rm -r d; ln -s /usr d; git add .; git commit -qm two", "git checkout -q l; git checkout -q main"} {
		g := newGround(t, b, template)
		g.host(t, g.Project, base)
		got := g.Run(t, "pk-bash", "-y", "--raw", "--", command)
		assert.Empty(t, got.Stderr, command)
		assert.Empty(t, g.host(t, g.Project, "git status --short"), command)
	}
	g := newGround(t, b, template)
	g.host(t, g.Project, base)
	g.fence(t, "git init -q s; git -C s commit -q --allow-empty -m s; git add s 2>/dev/null; rm -r d; ln -s .agents d; git add d; git commit -qm two") // a submodule lands with it
	assert.Equal(t, "two\n", g.host(t, g.Project, "git log -1 --format=%s"))

	g = newGround(t, b, template)
	g.host(t, g.Project, "mkdir ../victim; echo precious >../victim/f")
	g.fence(t, "ln -s ../victim u")
	got := g.Run(t, "pk-bash", "-y", "--raw", "--", `git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),u/f; git commit -qm x`)
	assert.Contains(t, got.Stderr, `is behind the link "u"`)
	assert.NotContains(t, g.host(t, g.Project, "git commit -qm x u/f 2>&1 || :; git cat-file -p HEAD:u/f 2>&1 || :"), "precious")
	assert.Empty(t, g.host(t, g.Project, "git ls-files u"))
}

// Git on the host finds its repositories and work trees where it did: no link that a command makes is on the way.
func TestWaysOfGitOnTheHost(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const submodule = `git init -q ../l; git -C ../l commit -q --allow-empty -m l; git -c protocol.file.allow=always submodule -q add ../l s; git commit -qm s; `
	const remote = `git remote add f tools/f; `
	for name, c := range map[string]struct{ host, name, leads string }{
		"a .git file":                       {`mkdir st; mv .git st/g; ln -s st l; echo "gitdir: l/g" >.git`, "l", "st"},
		"a .git that is a link":             {`mkdir st; mv .git st/g; ln -s st l; ln -s l/g .git`, "l", "st"},
		"a .git file of a work tree":        {`ln -s .git l; git worktree add -q wt; echo "gitdir: $PWD/l/worktrees/wt" >wt/.git`, "l", ".git"},
		"a .git file of one elsewhere":      {`ln -s .git l; git worktree add -q ../wt; echo "gitdir: $PWD/l/worktrees/wt" >../wt/.git`, "l", ".git"},
		"a .git file of a submodule":        {submodule + `ln -s .git/modules l; echo "gitdir: ../l/s" >s/.git`, "l", ".git/modules"},
		"commondir":                         {`ln -s .git l; git worktree add -q wt; echo $PWD/l >.git/worktrees/wt/commondir`, "l", ".git"},
		"core.worktree through a link":      {`mkdir w; ln -s w l; git config core.worktree ../l`, "l", "w"},
		"core.worktree":                     {`mkdir l; git config core.worktree ../l`, "l", ""},
		"core.worktree that is missing":     {`git config core.worktree ../l`, "l", ""},
		"a remote":                          {`mkdir tools; git init -q --bare tools/f.git; ` + remote, "tools/f", ""},
		"a remote that is missing":          {remote, "tools/f", ""},
		"its directory":                     {remote + "mkdir tools", "tools", ""},
		"pushurl":                           {`git remote add f x; git config remote.f.pushurl file://$PWD/tools/f`, "tools/f.git", ""},
		"url.insteadOf":                     {`git remote add f zz:f; git config --global url.tools/.insteadOf zz:`, "tools/f", ""},
		"the remote of a branch":            {`git config branch.main.remote tools/f`, "tools/f", ""},
		"a file above":                      {`git remote add f l/r.git; echo x >l`, "l", ""},
		"a directory before ..":             {`mkdir l; git init -q --bare r.git; git remote add f l/../r.git`, "l", ""},
		"a URL with a host":                 {`git remote add f "file://localhost$PWD/l/r%2egit"`, "l/r.git", ""},
		"a remote in a file of older times": {`mkdir .git/remotes; echo "URL: tools/f" >.git/remotes/f`, "tools/f", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, b, template)
			g.host(t, g.Project, "find . -mindepth 1 -delete; git init -q -b main; git commit -q --allow-empty -m x; "+c.host)
			g.fence(t, `mkdir -p $(dirname `+c.name+`); rm -f `+c.name+`; mv `+c.name+` old; ln -s /var/tmp/elsewhere `+c.name)
			at := filepath.Join(g.Project, c.name)
			to, _ := os.Readlink(at)
			assert.Equal(t, c.leads, to)
			g.host(t, g.Project, "git config --global --unset-all url.tools/.insteadOf || :")
		})
	}
}

// Where git on the host only passes, people work as anywhere.
func TestWorkOnGitsWay(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const gone = `find . -mindepth 1 -delete; git init -q -b main; git init -q ../l; git -C ../l commit -q --allow-empty -m l; git -c protocol.file.allow=always submodule -q add ../l s; git commit -qm s; git rm -q s; git commit -qm r; `
	for name, c := range map[string]struct{ host, command, want string }{
		"a link to another directory": {gone + `mkdir pkg; echo o >pkg/o; ln -s pkg s; git add .; git commit -qm link`, `echo x >pkg/n; git add .; git commit -qm n`, "n"},
		"a directory that is moved":   {gone + `mkdir s; echo v >s/v; git add .; git commit -qm v`, `git mv s t; git commit -qm n`, "n"},
		"a file on another branch":    {gone + `git checkout -qb o; echo f >s; git add .; git commit -qm n; git checkout -q main; mkdir s; echo v >s/v; git add .; git commit -qm v`, `git checkout -q o`, "n"},
		"a word for no remote":        {gone + `git config branch.main.remote s; echo f >s; git add .; git commit -qm f`, `echo g >s; git commit -qam n`, "n"},
		"a remote behind a link":      {gone + `mkdir real; echo o >real/o; ln -s real alias; git add .; git commit -qm x; git remote add f alias/r.git; git worktree add -q ../wt -b w`, `echo n >real/n; git add .; git commit -qm n`, "n"},
		"a large file":                {gone + `echo big >.gitignore; git add .; git commit -qm n; mkdir ../w; git config core.worktree "$PWD"; git config branch.main.remote big`, `head -c 2000000 /dev/zero >big`, "n"},
		"a file":                      {gone, `echo f >s; git add .; git commit -qm n`, "n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			got := g.fence(t, c.command)
			assert.Empty(t, got.Stderr)
			assert.Equal(t, c.want+"\n", g.host(t, g.Project, "git log -1 --format=%s; git status --short"))
		})
	}
}

// An index does not land without the HEAD to which it belongs.
func TestIndexBesideAHeadThatIsNone(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, made := range []string{"ln -sf refs/heads/o .git/HEAD", "rm .git/HEAD; mkfifo .git/HEAD"} {
		g := newGround(t, b, template)
		g.host(t, g.Project, "git branch o; echo x >f; git add f; git commit -qm two")
		got := g.Run(t, "pk-bash", "-y", "--raw", "--", "git checkout -q o; "+made)
		assert.Contains(t, got.Stderr, `"HEAD": `, made)
		assert.Equal(t, "", g.host(t, g.Project, "git diff --cached"), made)
	}
}

// Git on the host goes through links in the work tree, and hands names to the user's programs.
func TestTrapsInTheWorkTree(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for name, c := range map[string]struct{ host, command, then, says string }{
		"git format-patch": {"", `echo x >f; git add f; git commit -qm 'fix a'; ln -s ../victim/one 0001-fix-a.patch`, `git format-patch -1`, `is "fenced0001-fix-a.patch.fenced" now`},
		"a commit with its link": {"", `echo x >f; ln -s ../victim/one 0001-fix-a.patch; git add .; git commit -qm 'fix a'`, `git reset -q --hard; git format-patch -1`,
			`git on the host would write through the link "0001-fix-a.patch"`},
		"git sparse-checkout": {`mkdir d e; touch d/d e/e; git add .; git commit -qm x; git sparse-checkout init --cone; git sparse-checkout set d`, `ln -s ../victim e`, `git sparse-checkout reapply`, `is "e.fenced" now`},
		"git rm":              {`mkdir d; cp ../victim/one d; git add .; git commit -qm x`, `rm -r d; ln -s ../victim d`, `git rm -rf d; git commit -qm x . ; git show HEAD:d/one`, `is "d.fenced" now`},
		"rerere": {`git config rerere.enabled true; git checkout -qb o; echo o >a; git add a; git commit -qm o; git checkout -q main; echo m >a; git add a; git commit -qm m; git merge -q o || :`,
			`ln -sf ../victim/one a; git add a`, `git commit -qm merged; cat .git/rr-cache/*/postimage`, `is "a.fenced" now`},
		"textconv": {`git config diff.p.textconv "perl -pe 1"`, `f='-e;BEGIN{system(q(touch victim.ran))}#'; echo 1 >"./$f"; echo '* diff=p' >.gitattributes; git add -N .`, `git diff; git add .; git diff --cached`, "would take it for an option"},
		"textconv of a commit": {`git config diff.p.textconv "perl -pe 1"`, `git checkout -qb t; f='-e;BEGIN{system(q(touch victim.ran))}#'; echo 1 >"./$f"; echo '* diff=p' >.gitattributes; git add .; git commit -qm t`,
			`git checkout -q t && git diff HEAD~1`, "would take the name"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, b, template)
			g.host(t, g.Project, "mkdir ../victim; echo precious >../victim/one; "+c.host)
			got := g.Run(t, "pk-bash", "-y", "--raw", "--", c.command)
			assert.Contains(t, got.Stderr, c.says)
			said := g.host(t, g.Project, "{ "+c.then+"; } 2>&1 || :")
			assert.NotContains(t, said, "precious")
			assert.Equal(t, "precious\n", g.host(t, g.Project, "cat ../victim/one"))
			assert.NoFileExists(t, g.Project+"/victim.ran")
		})
	}
}

// No commit brings a protected file or a git directory to the host: neither by data that git
// reads in another way than it looks, nor by parts that land later.
func TestCommitsThatSeemClean(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const (
		base = `echo mine >.envrc; git add .envrc; git commit -qm e; git branch gone HEAD~1; `
		evil = `e=$(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),.envrc; git commit-tree -p HEAD -m e $(git write-tree)); `
		// with makes a branch x with a file.
		with   = `with() { git branch x $(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --add --cacheinfo $1; git commit-tree -p HEAD -m x $(git write-tree)); }; `
		people = `author A <a@a> 1700000000 +0000\ncommitter A <a@a> 1700000000 +0000\n`
		remote = `git config remote.origin.url https://example.com/x; git config remote.origin.fetch "+refs/heads/*:refs/remotes/origin/*"; `
		// stash changes a file from which a later commit renames .envrc.
		stash = `I=$(git commit-tree -p HEAD -m i HEAD^{tree}); (export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --cacheinfo 100644,$( (echo evil; cat a) | git hash-object -w --stdin),a; git commit-tree -p HEAD -p $I -m s $(git write-tree)) >.git/MERGE_AUTOSTASH`
		moves = `(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --force-remove a; git update-index --add --cacheinfo 100644,$(git rev-parse HEAD:a),.envrc; git update-ref refs/heads/main $(git commit-tree -p HEAD -m h $(git write-tree))); `
		drops = `git update-ref --no-deref HEAD $(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --force-remove env.sample; git commit-tree -p HEAD -m c $(git write-tree)); git update-index --force-remove env.sample`
		same  = `seq 40 >a; cp a .envrc; git add a; git commit -qm a; `
	)
	for _, c := range []struct {
		name, host string
		commands   []string
		next, told string
	}{
		{"two trees", base, []string{evil + `git branch x $(printf 'tree %s\nparent %s\n` + people + `tree %s\n\nm\n' $(git rev-parse $e^{tree}) $(git rev-parse HEAD) $(git rev-parse HEAD^{tree}) | git hash-object -t commit -w --stdin --literally)`}, `git checkout -q x`, "of which it has another version"},
		{"a directory with permissions", base, []string{`k=$(printf '100644 blob %s\tk\n' $(git rev-parse HEAD:.envrc) | git mktree); h=$(echo 'ref: refs/heads/x' | git hash-object -w --stdin); r=$(printf '100644 blob %s\tHEAD\n040000 tree %s\tobjects\n040000 tree %s\trefs\n' $h $k $k | git mktree); git branch x $(git commit-tree -p HEAD -m x $( (git ls-tree HEAD; printf '040755 tree %s\tx\n' $r) | git mktree)); ! git cat-file -p x^{tree} | grep -q 40755`}, "", "would be a git directory"},
		{"a link with permissions", base, []string{`t=$( (git ls-tree HEAD; printf '120777 blob %s\tHEAD\n' $(git rev-parse HEAD:.envrc)) | git mktree); git branch x $(git commit-tree -p HEAD -m x $t)`}, "", "would be a git directory"},
		{"an end of the history that is opened later", base, []string{
			// What lands later is in another store until then: what is in .git may land
			// while the command runs.
			`git init -q --bare /tmp/o; export GIT_OBJECT_DIRECTORY=/tmp/o/objects GIT_ALTERNATE_OBJECT_DIRECTORIES=$PWD/.git/objects; ` + evil + `for o in $e $(git rev-parse $e^{tree} $e:.envrc); do cp /tmp/o/objects/$(echo $o | sed 's|..|&/|') keep-$o; done; unset GIT_OBJECT_DIRECTORY; c=$(GIT_ALTERNATE_OBJECT_DIRECTORIES=/tmp/o/objects git commit-tree -p $e -p HEAD -m c HEAD^{tree}); echo $c >.git/shallow; git update-ref refs/heads/x $c; echo $e >e`,
			`for f in keep-*; do o=${f#keep-}; mkdir -p .git/objects/$(echo $o | cut -c-2); cp $f .git/objects/$(echo $o | sed 's|..|&/|'); done; rm .git/shallow`,
			`git branch ev $(cat e)`}, `git checkout -q ev`, "git fetch on the host makes it deeper"},
		{"a submodule in place of a hook", base + `mkdir hooks; echo x >hooks/pre-commit; git add hooks; git commit -qm h; git config core.hooksPath hooks`, []string{with + `with 160000,$(git rev-parse HEAD),hooks/pre-commit`}, "", `programs of the host run "hooks/pre-commit"`},
		{"a submodule in place of a directory of protected files", base, []string{with + `with 160000,$(git rev-parse HEAD),.vscode`}, "", `programs of the host run ".vscode"`},
		{"a HEAD in another encoding", base, []string{with + `with 100644,$(printf '\302\231\302\205' | git hash-object -w --stdin),d/HEAD`}, "", "would be a git directory"},
		{"a tracked repository", base + `git init -q --bare f.git; echo x >f.git/refs/x; echo x >f.git/objects/x; rm -rf f.git/hooks f.git/info; git add -f f.git; git commit -qm f`, []string{with + `with 100644,$(printf '[core]\n\tsshCommand = x\n' | git hash-object -w --stdin),f.git/config`}, "", "would be a git directory"},
		{"a tracked repository in the index", base + `git init -q --bare f.git; echo x >f.git/refs/x; echo x >f.git/objects/x; rm -rf f.git/hooks f.git/info; git add -f f.git; git commit -qm f`, []string{`git update-index --cacheinfo 100644,$(printf '[core]\n\tsshCommand = x\n' | git hash-object -w --stdin),f.git/config`}, "", "would be a git directory"},

		{"a remote branch named as a short ID", base, []string{evil + `git update-ref refs/remotes/$(git rev-parse --short HEAD~1) $e; git update-ref refs/remotes/$(git rev-parse --short HEAD~2)/HEAD $e`}, `git checkout -q $(git rev-parse --short main~1); git checkout -q -f main; git checkout -q $(git rev-parse --short main~2)`, "for another commit's"},
		{"notes named as a branch", base + `git branch notes/plan HEAD`, []string{evil + `git update-ref refs/notes/plan $e`}, `git reset -q --hard notes/plan`, "for another commit's"},
		{"a reference that is no branch, named as one", base + `git branch a/b HEAD~1`, []string{`git update-ref refs/a/b HEAD`}, "", "for another commit's"},
		{"a branch named as a file of git", base, []string{`git update-ref refs/heads/MERGE_HEAD HEAD`}, "", "for another commit's"},
		{"a remote branch in place of one that is deleted", base, []string{evil + remote + `git branch -q -D gone; git update-ref refs/remotes/origin/gone $e`}, `git checkout -q gone`, "of which it has another version"},
		{"a remote branch in place of one that was deleted", base, []string{`git branch -q -D gone`, evil + remote + `git update-ref refs/remotes/origin/gone $e`}, `git checkout -q gone`, "of which it has another version"},
		{"a tag in place of a branch that was deleted", base + `git checkout -q gone; git checkout -q main`, []string{`git branch -q -D gone`, evil + `git tag gone $e`}, `git checkout -q -`, "of which it has another version"},
		{"a tag in place of a remote branch", base + remote + `git update-ref refs/remotes/origin/main HEAD`, []string{`git update-ref -d refs/remotes/origin/main`, evil + `git tag origin/main $e`}, `git reset -q --hard origin/main`, "for another commit's"},
		{"a remote's HEAD in place of a branch that was deleted", base, []string{`git branch -q -D gone`, evil + `git update-ref refs/remotes/gone/HEAD $e`}, `git checkout -q gone`, "of which it has another version"},
		{"a remote of the command's, with a branch in place of one that was deleted", base, []string{`git branch -q -D gone; git config remote.a/b.url https://example.com/x; git config remote.a/b.fetch "+refs/heads/*:refs/remotes/a/b/*"`, evil + `git update-ref refs/remotes/a/b/gone $e`}, `git checkout -q gone`, "of which it has another version"},
		{"a tag in place of a merged branch that was deleted", base, []string{`git branch -q -d gone`, evil + `git tag gone $e`}, `git checkout -q gone`, "of which it has another version"},
		{"a remote branch of the name of a branch, which goes then", base + remote + `git branch subject HEAD~1`, []string{evil + `git update-ref refs/remotes/origin/subject $e`, `git branch -q -D subject`}, `git checkout -q subject`, "git checkout would make it again from"},
		{"a remote branch of the name of a branch that is renamed", base + remote, []string{evil + `git update-ref refs/remotes/origin/main $e`, `git branch -q -m trunk`}, `git checkout -q main`, "git checkout would make it again from"},
		{"a remote below a remote", base + remote + `git branch subject HEAD~1`, []string{evil + `git branch -q -D subject; git config remote.origin/sub.url https://example.com/y; git config remote.origin/sub.fetch "+refs/heads/*:refs/remotes/origin/sub/*"; git update-ref refs/remotes/origin/sub/subject $e`}, `git checkout -q subject`, "of which it has another version"},
		{"a remote that comes after its branch has gone", base + `git branch same`, []string{`git branch -q -d same`, remote + `:`, evil + `git update-ref refs/remotes/origin/same $e`}, `git checkout -q same`, "of which it has another version"},
		{"a remote branch of the name of a branch that is kept by another name", base + remote + `git update-ref refs/pk/trash/heads/gone/x HEAD`, []string{`git branch -q -d gone`, evil + `git update-ref refs/remotes/origin/gone $e`}, `git checkout -q gone`, "of which it has another version"},
		{"a tag in place of the branch that git would make", base + remote + `git update-ref refs/remotes/origin/new HEAD`, []string{evil + `git tag new $e`}, `git checkout -q new`, "of which it has another version"},
		{"a branch that HEAD leads to through another one", base + `git symbolic-ref refs/heads/alias refs/heads/main; git symbolic-ref HEAD refs/heads/alias`, []string{`git update-ref --no-deref -d refs/heads/main`}, `git rev-parse -q --verify HEAD || echo evil >.envrc`, "has checked it out"},
		{"the branch to which a bisect returns", base + `for i in 1 2 3; do git commit -q --allow-empty -m $i; done; git bisect start HEAD HEAD~2 >/dev/null`, []string{`git update-ref -d refs/heads/main`, evil + `git tag main $e`}, `git bisect reset`, "returns to it"},

		{"tags of trees", base, []string{evil + `t=$e^{tree}; git tag a $t; git tag -a -m b b $t; git tag -a -m c c b 2>/dev/null; git update-ref refs/changes/1 $t; git update-ref refs/worktree/w $t; git update-ref refs/remotes/none/x $t`}, `for x in a b c changes/1 worktree/w none/x; do git checkout -q $x -- .; done`, "of which it has another version"},
		{"the tree of a merge", base, []string{evil + `git rev-parse $e^{tree} >.git/AUTO_MERGE; git commit-tree -p HEAD -m m HEAD^{tree} >.git/MERGE_HEAD; : >.git/MERGE_MODE; echo m >.git/MERGE_MSG`}, `test -e .git/MERGE_HEAD && git checkout -q AUTO_MERGE -- .`, ""},
		{"an autostash, and HEAD moves while a command runs", same, []string{stash, moves + `git read-tree main; sleep 2`}, `git checkout -q .; echo b >>b; git add b; git commit -qm b`, ""},
		{"an autostash of git rebase --apply, and HEAD moves", `seq 40 >env.sample; echo a >b; git add .; git commit -qm one; git checkout -q -b t; echo t >b; git commit -qam t; git checkout -q main; cp env.sample .envrc; echo m >b; git add .; git commit -qm two; git checkout -q t; (echo evil; seq 40) >env.sample; ! git rebase -q --apply --autostash main`, []string{drops, `:`}, `rm -f env.sample; echo r >b; git add b; GIT_EDITOR=true git rebase --continue`, "rebase-apply"},
		{"an autostash, and HEAD moves in another work tree", `seq 40 >.envrc; git add .envrc; git commit -qm zero; cp .envrc a; git add a; git rm -q --cached .envrc; git commit -qm one; git -C wt merge -q main; cp .envrc wt/.envrc`, []string{stash, `in wt: ` + moves, `git read-tree HEAD`}, `git checkout -q .; echo b >>b; git add b; git commit -qm b`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			before, err := os.ReadFile(g.Project + "/.envrc")
			require.NoError(t, err)
			var told strings.Builder
			for _, command := range c.commands {
				dir := g.Project
				if inside, is := strings.CutPrefix(command, "in wt: "); is {
					dir, command = dir+"/wt", inside
				}
				told.WriteString(g.Run(t, "pk-bash", "-y", "--raw", "-C", dir, "--", command).Stderr)
			}
			assert.Contains(t, told.String(), c.told)
			g.patient(t, g.Project, c.next)
			text, _ := os.ReadFile(g.Project + "/.envrc")
			assert.NotContains(t, string(text), "evil")
			assert.True(t, len(text) == 0 || string(text) == string(before), "%s", text)
		})
	}
}

// The host's git drops none of its commits in a rebase for having been upstream: neither the log
// of a remote branch nor one of a branch that is upstream says so.
func TestLogsOfUpstreams(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const (
		remote = `git clone -q --bare . ../o; git remote add origin "$PWD/../o"; git fetch -q; git branch -q -u origin/main; `
		theirs = `git clone -q ../o ../c; cd ../c; echo t >t; git add t; git commit -qm theirs; git push -q; cd ../project; `
		mine   = `echo mine >mine; git add mine; git commit -qm mine; `
	)
	for _, c := range []struct {
		name, host string
		commands   []string
		next, told string
	}{
		{"a remote branch that moves to a commit of the host's, and back", remote + mine + theirs, []string{`git update-ref refs/remotes/origin/main main`, `git update-ref refs/remotes/origin/main main~1`}, `git pull -q --rebase`, ""},
		{"a remote branch that moves to a commit of the host's", remote + mine + theirs, []string{`git update-ref refs/remotes/origin/main main`}, `git pull -q --rebase`, ""},
		{"a remote branch without a log", remote + mine + theirs + `rm -r .git/logs/refs/remotes`, []string{`git update-ref refs/remotes/origin/main main`}, `git pull -q --rebase`, ""},
		{"a branch that is upstream", `git checkout -q -b mine -t main; ` + mine, []string{`git update-ref refs/heads/main mine`, `git update-ref refs/heads/main mine~1`}, `git checkout -q main; echo m >m; git add m; git commit -qm m; git checkout -q mine --; git rebase -q`, `git rebase would drop commits from "mine"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			told := ""
			for _, command := range c.commands {
				told += g.fence(t, command).Stderr
			}
			assert.Contains(t, told, c.told)
			g.host(t, g.Project, c.next)
			assert.FileExists(t, g.Project+"/mine")
		})
	}
}

// A change that depends on another one does not land if that does not.
func TestChangesThatDependOnOthers(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ name, host, command, told, next, want string }{
		{"a tag in place of a branch that stays", "", `git update-ref -d refs/heads/wtbranch; git tag wtbranch main`, `"refs/tags/wtbranch" does not land: git would take its name`, `git tag -l dev wtbranch`, ""},
		{"HEAD to a branch that stays", `echo 1 >.envrc; git add .envrc; git commit -qm 1; git checkout -qb dev; echo 2 >.envrc; git commit -qam 2; git checkout -q main`,
			`git update-ref refs/heads/dev $(git commit-tree -p main -m l $(git ls-tree main | grep -v envrc | git mktree)); git symbolic-ref HEAD refs/heads/dev`, `"HEAD" stays at`, `cat .git/HEAD`, "ref: refs/heads/main\n"},
		{"HEAD to a branch that stays, since a bisect returns to it", `git branch dev; for i in 1 2 3; do git commit -q --allow-empty -m $i; done; git checkout -q dev; git bisect start main main~2 >/dev/null`,
			`git update-ref -d refs/heads/dev; git tag dev main`, `"refs/tags/dev" does not land: git would take its name`, `git tag -l dev wtbranch`, ""},
		{"HEAD to a new branch that does not land", "", `git update-ref refs/heads/new $(git commit-tree -p main -m x $( (git ls-tree main; printf '100644 blob %s\tHEAD\n' $(git rev-parse main:a.txt)) | git mktree)); git symbolic-ref HEAD refs/heads/new; sleep 2`, `"refs/heads/new" does not land`, `cat .git/HEAD`, "ref: refs/heads/main\n"},
		{"HEAD to a branch that cannot be", "", `git symbolic-ref HEAD refs/heads/main/sub`, `the host has the ref "refs/heads/main"`, `cat .git/HEAD`, "ref: refs/heads/main\n"},
		{"HEAD to a branch with others below", "git branch d/e", `git symbolic-ref HEAD refs/heads/d`, `the host has refs below "refs/heads/d"`, `cat .git/HEAD`, "ref: refs/heads/main\n"},
		{"HEAD to the branch of another work tree", "", `git symbolic-ref HEAD refs/heads/wtbranch`, `has checked out "refs/heads/wtbranch"`, `cat .git/HEAD`, "ref: refs/heads/main\n"},
		{"HEAD of another work tree to the branch", "", `git -C wt symbolic-ref HEAD refs/heads/main`, `has checked out "refs/heads/main"`, `git -C wt symbolic-ref HEAD`, "refs/heads/wtbranch\n"},
		{"HEAD to a branch to which another work tree returns", `git branch back; cd wt; git checkout -q back; for i in 1 2 3; do git commit -q --allow-empty -m $i; done; git bisect start HEAD HEAD~2 >/dev/null`, `git symbolic-ref HEAD refs/heads/back`, `has checked out "refs/heads/back"`, `cat .git/HEAD`, "ref: refs/heads/main\n"},
		{"HEAD to the branch of a work tree that is gone", "rm -rf wt", `git worktree prune; git checkout -q wtbranch`, "", `cat .git/HEAD`, "ref: refs/heads/wtbranch\n"},
		{"a branch that another work tree leaves", "", `git checkout -q --detach; git -C wt checkout -q main`, "", `cat .git/HEAD | wc -c; git -C wt symbolic-ref HEAD`, "41\nrefs/heads/main\n"},
		{"the branch of a work tree that leaves it", "", `git -C wt checkout -q --detach; git checkout -q wtbranch`, "", `cat .git/HEAD; git -C wt branch --show-current`, "ref: refs/heads/wtbranch\n"},
		{"a branch in place of a remote one that git fetch makes again", `git config remote.origin.url https://example.com/x; git config remote.origin.fetch "+refs/heads/*:refs/remotes/origin/*"; git update-ref refs/remotes/origin/main main`,
			`git update-ref -d refs/remotes/origin/main; git branch origin/main main`, `"refs/heads/origin/main" does not land: git would take its name`, `git for-each-ref refs/heads/origin`, ""},
		{"branches and tags by names that a remote may have", `git config remote.origin.url https://example.com/x; git config remote.origin.fetch "+refs/heads/*:refs/remotes/origin/*"`,
			`git branch origin/a main; git tag origin/b main; git branch original main`, `"refs/tags/origin/b" does not land: git would take its name`, `git tag -l 'orig*'; git branch -l 'orig*'`, "  original\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			got := g.fence(t, c.command)
			if assert.Contains(t, got.Stderr, c.told); c.told == "" {
				assert.NotContains(t, got.Stderr, "stays at")
			}
			assert.Equal(t, c.want, g.host(t, g.Project, c.next))
		})
	}
}

// A branch that the host cannot have beside its own hides that one from no later command.
func TestBranchInTheWayOfTheHosts(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	const refused = `git update-ref refs/heads/evil $(git commit-tree -p main -m x $( (git ls-tree main; printf '100644 blob %s\tHEAD\n' $(git rev-parse main:a.txt)) | git mktree))`
	got := g.fence(t, refused+`; git checkout -q --detach; git branch -q -D main; git branch main/x; git symbolic-ref HEAD refs/heads/evil`)
	assert.Contains(t, got.Stderr, `"refs/heads/main/x" does not land: the host has the ref "refs/heads/main"; the command's is "refs/pk/`)
	g.fence(t, `git commit -q --allow-empty -m next`)
	assert.Equal(t, "next\n", g.host(t, g.Project, "git log -1 --format=%s main"))
}

// A new reference may take the place of a deleted one, together with HEAD and while the command runs.
func TestNamesInPlaceOfOthers(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, pause := range []string{"", "; sleep 2"} {
		g := newGround(t, b, template)
		g.host(t, g.Project, `git branch z/m; git branch w; git tag v`)
		g.fence(t, `git commit -q --allow-empty -m x; git branch -m z/m z; git branch -m w w/1; git tag -d v; git tag v/1`+pause)
		assert.Equal(t, "refs/heads/w/1\nrefs/heads/z\nrefs/tags/v/1\n", g.host(t, g.Project, `git for-each-ref --format='%(refname)' refs/heads/w refs/heads/z refs/tags/v refs/pk/command`))
	}
}

// A rebase returns to a branch that a command may make, and a tag is named as tags may be.
func TestNamesBesideReferences(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, name := range []string{`x\$(touch\${IFS}x)`, "origin", "HEAD", "abcdef1", "none/$(printf '\\302\\255')"} {
		g := newGround(t, b, template)
		g.host(t, g.Project, "git remote add origin https://host.example/x")
		got := g.Run(t, "pk-bash", "-y", "--raw", "--", `GIT_SEQUENCE_EDITOR="sed -i 1s/pick/edit/" git rebase -q -i HEAD~1; echo "refs/heads/`+name+`" >.git/rebase-merge/head-name`)
		assert.Contains(t, got.Stderr, "stays in the sandbox", name)
		assert.Equal(t, "main\n", g.host(t, g.Project, "git branch --show-current; ls -d .git/rebase-merge 2>/dev/null || :"), name)
	}
	g := newGround(t, b, template)
	got := g.fence(t, `t=$(printf 'object %s\ntype commit\ntag --output=x\ntagger A <a@b> 1700000000 +0000\n\nm\n' $(git rev-parse HEAD) | git hash-object -t tag -w --stdin --literally); git update-ref refs/tags/v1.0 $t`)
	assert.Contains(t, got.Stderr, `"refs/tags/v1.0" does not land`)
}

// Git merges a stash, or the rest of a list of picks, into the index: it may take a new file there for another one, renamed.
func TestStashOnAnIndexThatRenames(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const base = `seq 30 >old; git add old; git commit -qm base; seq 30 >.envrc`
	for name, c := range map[string]struct {
		host     string
		commands []string
		next     string
	}{
		"a stash":                {base, []string{`(seq 30; echo evil) >old; git stash -q; git add .envrc; git rm -q old`}, `git stash pop -q`},
		"an index after it":      {base, []string{`(seq 30; echo evil) >old; git stash -q`, `git add .envrc; git rm -q old`}, `git stash pop -q`},
		"a stash after that":     {base, []string{`git add .envrc; git rm -q old`, `(seq 30; echo evil) >old; s=$(GIT_INDEX_FILE=/tmp/i sh -c "git read-tree HEAD; git add old; git stash create"); git stash store $s`}, `git stash pop -q`},
		"a rebase":               {base, []string{`echo x >f; git add f; git commit -qm A; (seq 30; echo evil) >old; git commit -qam B; GIT_SEQUENCE_EDITOR="sed -i 1s/pick/edit/" git rebase -q -i HEAD~2; git add .envrc; git rm -q old`}, `GIT_EDITOR=true git rebase --continue`},
		"a merge":                {base, []string{`git checkout -qb t; echo x >g; git add g; git commit -qm A; git checkout -q main; (seq 30; echo evil) >old; git merge -q --no-commit --no-ff --autostash t; git add .envrc; git rm -q old`}, `git commit -qm merged`},
		"a directory that moves": {`mkdir d; seq 30 >d/one; git add d; git commit -qm base; seq 30 >.envrc`, []string{`echo evil >d/tasks.json; git add d; git stash -q; mkdir .vscode; cp d/one .vscode; git add .vscode; git rm -qr d`}, `git stash pop -q; cat .vscode/tasks.json >>.envrc`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, c.host)
			for _, command := range c.commands {
				g.Run(t, "pk-bash", "-y", "--raw", "--", command)
			}
			g.patient(t, g.Project, c.next)
			text, err := os.ReadFile(g.Project + "/.envrc")
			require.NoError(t, err)
			assert.NotContains(t, string(text), "evil")
		})
	}
}

// A stash that a command drops goes, also beside an index of the user's that renames files.
func TestDroppedStashBesideAnIndexThatRenames(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `mkdir d; seq 30 >d/one; git add d; git commit -qm d; echo s >>a.txt; git stash -q; git mv d/one .`)
	assert.NotContains(t, g.fence(t, "git stash drop -q").Stderr, "stays at")
	assert.Equal(t, "R  d/one -> one\n", g.host(t, g.Project, "git stash list; git status --short -uno"))
}

// The user packs references and drops logs while work under way stays in the sandbox. When that ends, it lands.
func TestGcWhileWorkStays(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for name, c := range map[string]struct{ first, second string }{
		"git am":     {`git checkout -q topic; echo 1 >z; git add z; git commit -qm z; git format-patch -q -1; git reset -q --hard HEAD~1; echo 2 >z; git add z; git commit -qm z2; git am -q -3 0*; rm 0*`, `echo 3 >z; git add z; git am -q --continue`},
		"git rebase": {`git checkout -q topic; echo 1 >z; git add z; git commit -qm z; git rebase -q -x "test -e ok" main`, `touch ok; git rebase --continue; rm ok`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			assert.Contains(t, g.Run(t, "pk-bash", "-y", "--raw", "--", c.first).Stderr, "stays in the sandbox")
			g.host(t, g.Project, "git pack-refs --all; git reflog expire --all --expire=now; git gc -q")
			got := g.fence(t, c.second)
			assert.NotContains(t, got.Stderr, "has moved")
			assert.Equal(t, "topic\nz\n", g.host(t, g.Project, "git branch --show-current; git log -1 --format=%s; git diff --exit-code HEAD"), got.Stderr)
		})
	}
}

// The user's other branch has a submodule, which no work tree has now.
func TestBranchWithASubmodule(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `git checkout -q -b with; git init -q ../lib; git -C ../lib commit -q --allow-empty -m l; git -c protocol.file.allow=always submodule add -q ../lib lib; git commit -qm with; git checkout -q main; rm -rf lib`)
	assert.NotContains(t, g.fence(t, `git checkout -q with; echo n >n; git add n`).Stderr, "dropped")
	assert.Equal(t, "with\nA  n\n", g.host(t, g.Project, `git branch --show-current; git status --short -uno`))
	assert.Equal(t, "A  n\n", g.fence(t, `git status --short -uno`).Stdout)
}

// An annotated tag that a command deletes is kept without a log, of which git gc would complain.
func TestTagsAreKeptWithoutALog(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `git tag -am t gone`)
	g.fence(t, `git tag -d gone`)
	assert.Equal(t, "tag\n", g.host(t, g.Project, `git cat-file -t refs/pk/trash/tags/gone; git reflog expire --all 2>&1`))
}

// Changes of linked work trees and of the configuration that do not land are told.
func TestWhatTheHostKeepsIsTold(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, `git worktree lock wt; git worktree add -q --detach ../gone; rm -rf ../gone`)
	assert.Contains(t, g.fence(t, `git worktree unlock wt`).Stderr, `worktrees/wt/locked": the command has removed it, and the host's is as it was`)
	assert.Contains(t, g.fence(t, `git worktree prune`).Stderr, `worktrees/gone": the command has removed it, and the host's is as it was`)
	assert.Contains(t, g.fence(t, `git worktree list`).Stdout, "locked")
	assert.Contains(t, g.fence(t, `git config user.email agent@example.com`).Stderr, `"user.email"; it stays in the sandbox`)
	g.host(t, g.Project, `git config branch.main.description x`)
	assert.Contains(t, g.fence(t, `! git config --local user.email`).Stderr, `the host has changed "`+g.Project+`/.git/config": the configuration that stayed in the sandbox is gone`)
	g.host(t, g.Project, `git config core.commentChar ';'; git commit -q --allow-empty -m 1`)
	assert.NotContains(t, g.Run(t, "pk-bash", "-y", "--raw", "--", `GIT_SEQUENCE_EDITOR="sed -i 1s/pick/edit/" git rebase -q -i --keep-empty HEAD~1`).Stderr, "stays")
	g.host(t, g.Project, `test -d .git/rebase-merge; git rebase --continue`)
}

// Work trees may belong to a bare repository in the place of a .git, or behind one. Its HEAD is checked out nowhere.
func TestWorkTreesOfABareRepository(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, clone := range []string{`git clone -q --bare . ../hub/.bare; echo "gitdir: ./.bare" >../hub/.git`, `git clone -q --bare . ../hub/.git`} {
		for _, root := range []string{"../hub", "../hub/main"} {
			t.Run(clone[22:33]+" "+root, func(t *testing.T) {
				t.Parallel()
				g := newGround(t, b, template)
				g.host(t, g.Project, `mkdir ../hub; `+clone+`; git -C ../hub worktree add -q main`)
				got := g.Run(t, "pk-bash", "-C", root, "-y", "--raw", "--", `[ ! -d main ] || cd main; echo n >n; git add n; git commit -qm n`)
				assert.NotContains(t, got.Stderr, "stays")
				assert.Equal(t, "n\n", g.host(t, g.Project+"/../hub/main", "git log -1 --format=%s; git status --short"))
			})
		}
	}
}

// A command that leaves a branch may delete or rename it.
func TestBranchThatACommandLeaves(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git checkout -q -b feature; git commit -q --allow-empty -m f")
	assert.NotContains(t, g.fence(t, "git checkout -q main; git merge -q feature; git branch -q -d feature; git branch wip; git checkout -q wip").Stderr, "checked it out")
	assert.NotContains(t, g.fence(t, "git branch v9; git branch -q -d v9; git tag v9").Stderr, "its name") // v9 may have landed before
	g.host(t, g.Project, "git branch v8")
	assert.NotContains(t, g.fence(t, "git branch -q -d v8; git tag v8").Stderr, "its name")
	assert.NotContains(t, g.fence(t, "git branch -m wtbranch one; cd wt; git checkout -q -b two; git branch -q -D one").Stderr, "checked it out")
	assert.Equal(t, "two\n", g.host(t, g.Project, "git for-each-ref --format='%(refname:short)' refs/heads/wtbranch refs/heads/one refs/heads/two"))
	g.fence(t, "git branch -m wip next; git commit -q --allow-empty -m n")
	assert.Equal(t, "ref: refs/heads/next\nmain\nnext\n", g.host(t, g.Project, "cat .git/HEAD; git for-each-ref --format='%(refname:short)' refs/heads/main refs/heads/feature refs/heads/wip refs/heads/next"))
}

// Work under way lands if giving it up, or going on, resets only what the host has checked out,
// or a new branch.
func TestWorkUnderWayOnAnotherBranch(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git checkout -q topic; echo t >>a.txt; git commit -qam t; git checkout -q main")
	got := g.Run(t, "pk-bash", "-y", "--raw", "--", "git rebase -q main topic")
	assert.Contains(t, got.Stderr, `the host has not checked out "refs/heads/topic"`)
	assert.Equal(t, "ref: refs/heads/main\n", g.host(t, g.Project, "cat .git/HEAD; ! test -e .git/rebase-merge"))
	g.fence(t, "git rebase --abort")
	assert.NotContains(t, g.Run(t, "pk-bash", "-y", "--raw", "--", "git checkout -q -b own; echo o >>a.txt; git commit -qam o; git checkout -q main; echo m >>a.txt; git commit -qam m; git rebase -q main own").Stderr, "stays in the sandbox")
	g.host(t, g.Project, "test -e .git/rebase-merge; git rebase --abort")
	g.fence(t, "git checkout -q topic")
	assert.NotContains(t, g.Run(t, "pk-bash", "-y", "--raw", "--", "git rebase -q main").Stderr, "stays in the sandbox")
	assert.Equal(t, "t\n", g.host(t, g.Project, "test -e .git/rebase-merge; git rebase --abort; git log -1 --format=%s topic"))
}

// Where a branch of the host's has a link at a protected name, the place behind it is protected
// although another branch is checked out.
func TestLinksOfOtherBranches(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const (
		hooks = `git config core.hooksPath .githooks; git checkout -q -b dev; mkdir scripts; echo r >scripts/README; ln -s scripts .githooks; git add .; git commit -qm hooks; git checkout -q main`
		evil  = `with() { (export GIT_INDEX_FILE=/tmp/ix; git read-tree $1; git update-index --add --cacheinfo 100755,$(git hash-object -w EVIL),$2; git commit-tree -p $1 -m x $(git write-tree)); }; `
	)
	for _, c := range []struct{ name, host, first, second, next, told string }{
		{"a hook", hooks, ":", "mkdir scripts; cp EVIL scripts/post-checkout", "git checkout -q dev; ! test -e scripts/post-checkout", ""},
		{"a hook of the first command", hooks, "mkdir scripts; cp EVIL scripts/post-checkout", ":", "git checkout -q dev; ! test -e scripts/post-checkout", ""},
		{"a hook where another branch has another link", "mkdir h; echo r >h/README; ln -s h .githooks; git add .; git commit -qm h; git checkout -q -b old; git checkout -q main; git rm -q .githooks; git commit -qm none; " + hooks, ":", "mkdir scripts; cp EVIL scripts/post-checkout; ! cp EVIL h/post-checkout", "git checkout -q dev; git checkout -q old; ! test -e scripts/post-checkout; ! test -e h/post-checkout", ""},
		{"a tag", hooks + "; git tag v2 dev; git branch -q -D dev; git pack-refs --all", ":", "mkdir scripts; cp EVIL scripts/post-checkout", "git checkout -q v2; ! test -e scripts/post-checkout", ""},
		{"a file that git ignores", "echo conf >>.git/info/exclude; git checkout -q -b dev; ln -s $PWD/conf/local .envrc; git add .envrc; git commit -qm l; git checkout -q main", ":", "mkdir conf; cp EVIL conf/local", "git checkout -q dev; ! test -e .envrc", ""},
		{"a branch that is new since the last command", "true", "touch seen", "mkdir scripts; cp EVIL scripts/post-checkout", "git checkout -q dev; ! test -e scripts/post-checkout", ""},
		{"a commit", hooks, evil + "git branch x $(with dev scripts/post-checkout)", ":", "! git rev-parse -q --verify x", `"scripts/post-checkout", of which it has another version`},
		{"a commit after one of the host's that no branch has", hooks + "; git merge -q dev; git branch -q -d dev; git rm -q .githooks; git commit -qm none", evil + "git branch x $(with HEAD~1 scripts/post-checkout)", ":", "! git rev-parse -q --verify x", `"scripts/post-checkout", of which it has another version`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, g.fill(c.host))
			told := g.fence(t, g.fill(c.first)).Stderr
			if c.first == "touch seen" {
				g.host(t, g.Project, hooks)
			}
			told += g.fence(t, g.fill(c.second)).Stderr
			assert.Contains(t, told, c.told)
			g.host(t, g.Project, c.next)
		})
	}
}

// Links of branches lead to other places than one in the work tree by the name that they have.
func TestLinksOfBranchesToAllPlaces(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	branch := func(links ...string) string { // each a name and its target
		script := "git checkout -q -b feature"
		for _, link := range links {
			name, target, _ := strings.Cut(link, " ")
			script += "; mkdir -p $(dirname " + name + "); ln -s " + target + " " + name + "; git add -f " + name
		}
		return script + "; git commit -qm link; git checkout -q main; "
	}
	const (
		hooks  = "git config core.hooksPath .githooks; "
		evil   = "mkdir -p conf; cp EVIL conf/envrc"
		none   = "git checkout -q feature; ! test -e .envrc"
		flood  = "for i in $(seq 80); do echo create refs/heads/a$i $(git rev-parse main); done | git update-ref --stdin"
		plants = `a link, ".envrc", that leads to "conf/envrc"`
		moved  = `/conf/envrc" appeared or changed while the command ran, where it is protected`
	)
	envrc := branch(".envrc conf/envrc")
	once := envrc + "git checkout -q feature; git rm -q .envrc; git commit -qm none; git checkout -q main" // in a commit before the last one
	for _, c := range []struct{ name, options, host, first, between, second, next, told string }{
		{"a directory of the same letters", "", "mkdir conf; echo r >conf/r; git add conf; " + envrc, "git checkout -q feature; mkdir CONF; echo d >CONF/d; git add CONF; git commit -qm decoy; git checkout -q main", "", evil, none, ""},
		{"a hook below the directory", "", hooks + branch(".githooks/post-checkout ../scripts/pc"), ":", "", "mkdir scripts; cp EVIL scripts/pc", "git checkout -q feature; ! test -e .githooks/post-checkout", ""},
		{"husky's", "", "git config core.hooksPath .husky/_; " + branch(".husky/pre-commit ../scripts/pc"), ":", "", "mkdir scripts; cp EVIL scripts/pc", "git checkout -q feature; ! test -e .husky/pre-commit", ""},
		{"a hook below a directory behind a link", "", hooks + branch(".githooks hooks", "hooks/post-checkout ../scripts/pc"), ":", "", "mkdir scripts; cp EVIL scripts/pc", "git checkout -q feature; ! test -e .githooks/post-checkout", ""},
		{"a link to a link", "", hooks + branch(".githooks/post-checkout ../scripts/pc", "scripts/pc ../tool"), ":", "", "cp EVIL tool", "git checkout -q feature; ! test -e .githooks/post-checkout", ""},
		{"a commit", "", hooks + "git checkout -q -b base; mkdir scripts; echo >scripts/pc; git add scripts; git commit -qm b; " + branch(".githooks/post-checkout ../scripts/pc"), ":", "", "export GIT_INDEX_FILE=/tmp/ix; git read-tree feature; git update-index --cacheinfo 100755,$(git hash-object -w EVIL),scripts/pc; git branch -f feature $(git commit-tree -p feature -m x $(git write-tree))", "test $(git log -1 --format=%s feature) = link", `"scripts/pc", of which it has another version`},
		{"above the work tree", "--writable OUT", branch(".envrc ../out/envrc"), ":", "", "cp EVIL OUT/envrc", none, ""},
		{"in another root", "--writable OUT", branch(".envrc $PWD/../out/envrc"), ":", "", "cp EVIL OUT/envrc", none, ""},
		{"by another name of the work tree", "", "ln -s PROJECT OUT/alias; " + branch(".envrc OUT/alias/conf/envrc"), ":", "", evil, none, ""},
		{"by another name, to a link", "", "ln -s PROJECT OUT/alias; " + branch(".envrc OUT/alias/conf/envrc", "conf env"), ":", "", "mkdir env; cp EVIL env/envrc", none, ""},
		{"through a name that a command makes a link", "", branch(".envrc new/../conf/envrc"), ":", "", "mkdir -p x/y x/conf; cp EVIL x/conf/envrc; ln -s x/y new", none, ""},
		{"the work tree itself", "", branch(".envrc .", ".claude ../project"), ":", "", "touch new", "test -e new", ""},
		{"a root below a work tree with a link", "-C PROJECT/sub", "ln -s sub/conf/envrc .envrc; cp EVIL sub/evil; git add .; git commit -qm link", ":", "", "mkdir conf; cp evil conf/envrc", "! test -e .envrc", ""},
		{"a root below a work tree with one on a branch", "-C PROJECT/sub", "mkdir -p sub; cp EVIL sub/evil; " + branch(".envrc sub/conf/envrc"), ":", "", "mkdir conf; cp evil conf/envrc", "git checkout -q feature; ! test -e .envrc", ""},
		{"a root below the work tree", "-C PROJECT/sub", "mkdir -p sub; cp EVIL sub/evil; " + branch("sub/.envrc conf/envrc"), ":", "", "cd PROJECT/sub; mkdir conf; cp evil conf/envrc", "git checkout -q feature; ! test -e sub/.envrc", ""},
		{"a link that could not be read", "", envrc + "blob=.git/objects/$(git rev-parse feature:.envrc | sed 's,..,&/,'); cp $blob OUT/blob; rm -f $blob", ":", "cp OUT/blob .git/objects/$(printf conf/envrc | git hash-object --stdin | sed 's,..,&/,')", evil, none, ""},
		{"a branch that was deleted", "", envrc, "git branch -q -D feature", "", evil, "git checkout -q refs/pk/trash/heads/feature; ! test -e .envrc", ""},
		{"a remote branch that was deleted", "", envrc + "git update-ref refs/remotes/origin/f feature; git branch -q -D feature", "git branch -q -r -d origin/f", "", evil, "git checkout -q refs/pk/trash/remotes/origin/f; ! test -e .envrc", ""},
		{"a branch that was moved", "", envrc, "git update-ref refs/heads/feature main", "", evil, "git checkout -q feature@{1}; ! test -e .envrc", ""},
		{"one of many, and other names", "", "git config alias.t '!cat notes'; " + envrc + "git pack-refs --all", flood + "; touch notes", "", evil, none, ""},
		{"one that was deleted, and other names", "", "git config alias.t '!./notes/x'; " + branch("notes conf"), "git branch -q -D feature", "git config alias.u '!./notes/y'", "mkdir conf; cp EVIL conf/y", "git checkout -q refs/pk/trash/heads/feature; ! test -e notes/y", ""},
		{"a new one after many", "", ":", flood, envrc + "git pack-refs --all", evil, none, ""},
		{"a new one after many, in a file", "", ":", strings.Replace(flood, "80", "400", 1), envrc, evil, none, ""},
		{"a new remote one after many", "", ":", flood, envrc + "git update-ref refs/remotes/origin/f feature; git branch -q -D feature", evil, "git checkout -q origin/f; ! test -e .envrc", ""},
		{"a branch that a command moves to an older commit", "", envrc + "git checkout -q feature; git rm -q .envrc; git commit -qm none; git checkout -q main", ":", "", evil + "; git branch -f feature feature~1", none, moved},
		{"in the index alone", "", "ln -s conf/envrc .envrc; git add .envrc; git commit -qm link; git rm -q .envrc; git commit -qm none", ":", "", evil + "; git update-index --add --cacheinfo 120000,$(git rev-parse main~1:.envrc),.envrc", "git checkout -q .; ! test -e .envrc", moved},
		{"with the file in the index alone", "", once, ":", "", evil + "; git add conf; rm -r conf; git branch old feature~1", "git checkout -q old; git checkout -q .; ! test -e .envrc", `"conf/envrc", of which it has another version`},
		{"with the file in a commit that is taken back", "", once, evil + " || :; git add conf; git commit -qm file || :", "", "git branch old feature~1; test $(git log -1 --format=%s) != file || git reset -q HEAD~1", "git checkout -q old; ! test -e .envrc", ""},
		{"with the file among the untracked ones of a stash", "", once, ":", "", evil + "; git stash -qu || :; git update-ref --no-deref HEAD feature~1; git reset -q", "git checkout -q .; git stash pop || :; ! test -e .envrc", ""},
		{"where giving up a rebase leads", "", once + "; echo m >>a.txt; git commit -qam m", ":", "", evil + "; ! git rebase feature~1 -x false; git rev-parse feature~1 >.git/rebase-merge/orig-head", "git rebase --abort || :; ! test -e .envrc", ""},
		{"where ORIG_HEAD is", "", once, ":", "", evil + "; git update-ref ORIG_HEAD feature~1", "git reset -q --hard ORIG_HEAD; ! test -e .envrc", moved},
		{"of a detached HEAD", "", once, "git update-ref --no-deref HEAD feature~1; git reset -q", "", evil, "git reset -q --hard; ! test -e .envrc", ""},
		{"one of many that a command makes", "", once, "for i in $(seq 100); do echo create refs/heads/b$i $(git commit-tree -m $i main^{tree}); done >/tmp/l; echo create refs/heads/aold $(git rev-parse feature~1) >>/tmp/l; git update-ref --stdin </tmp/l", "", evil, "git checkout -q aold; ! test -e .envrc", ""},
		{"where git checkout - goes", "", once, ":", "", evil + "; echo $(git rev-parse main main) 'A <a@x> 1600000000 +0000	checkout: moving from '$(git rev-parse feature~1)' to main' >>.git/logs/HEAD", "git checkout -q - || :; ! test -e .envrc", ""},
		{"in the range of a bisect", "", once + "; git checkout -q feature; for i in 1 2 3 4; do git commit -q --allow-empty -m $i; done", ":", "", evil + "; git bisect start; git bisect bad feature; git bisect good main", "git bisect bad || :; git bisect bad || :; ! test -e .envrc", moved},
		{"by the links of two branches", "", envrc + "ln -s other conf; git add conf; git commit -qm conf", ":", "", "mkdir other; cp EVIL other/envrc", "git merge -q feature; ! test -e .envrc", ""},
		{"in what was fetched", "", once + "; git clone -q --bare . ../o; git branch -q -D feature; git reflog expire --all --expire=now; git gc -q --prune=now; git -C ../o branch pr feature~1; git fetch -q ../o pr", ":", "", evil, "git checkout -q FETCH_HEAD; ! test -e .envrc", moved},
		{"in what was fetched between two commands", "", once + "; git clone -q --bare . ../o; git branch -q -D feature; git reflog expire --all --expire=now; git gc -q --prune=now; git -C ../o branch pr feature~1", ":", "git fetch -q ../o pr", evil, "git checkout -q FETCH_HEAD; ! test -e .envrc", moved},
		{"in a work tree that is made between two commands", "", once + "; git rev-parse feature~1 >../id; git update-ref refs/x/y feature; git branch -q -D feature; git reflog expire --all --expire=now; git update-ref -d refs/x/y", ":", "git worktree add -q --detach ../review $(cat ../id)", evil, "git checkout -q $(git -C ../review rev-parse HEAD); ! test -e .envrc", moved},
		{"where another work tree is", "", once + "; git worktree add -q --detach ../review feature~1; git branch -q -D feature; git reflog expire --all --expire=now", ":", "", evil, "git checkout -q $(git -C ../review rev-parse HEAD); ! test -e .envrc", moved},
		{"from a work tree at another depth", "", hooks + branch(".githooks/post-checkout ../../project/scripts/pc") + "mkdir ../x; git worktree add -q --detach ../x main", ":", "", "mkdir scripts; cp EVIL scripts/pc", "cd ../x; git checkout -q feature; ! test -e .githooks/post-checkout", ""},
		{"in the autostash of a rebase under way", "", "ln -s conf/envrc .envrc; git add .envrc; echo b >b; git add b; git commit -qm b; git rm -q .envrc; echo m >a.txt; git commit -qam m; git checkout -q -b t HEAD~1; echo t >a.txt; git rm -q .envrc; git commit -qam t; ln -s conf/envrc .envrc; git add .envrc; ! git rebase -q --autostash main", ":", "", evil, "git rebase --abort; ! test -e .envrc", moved},
		{"a branch that a command makes, with the file of the host", "", "mkdir conf; echo c >conf/envrc; git add conf; git commit -qm c; " + envrc + "git checkout -q feature; git rm -q .envrc; git commit -qm none; git checkout -q main", ":", "", "git branch old feature~1", "git checkout -q old; test -e .envrc", ""},
		{"a branch that a command makes, with a directory", "", hooks + "mkdir s; echo c >s/c; git add s; git commit -qm c; " + branch(".githooks s") + "git checkout -q feature; git rm -q .githooks; git commit -qm none; git checkout -q main", "git branch old feature~1", "git branch -q -D old", "cp EVIL s/post-checkout || :; git branch old feature~1", "! test -e s/post-checkout || ! git rev-parse -q --verify old", ""},
		{"a remote branch that a command fetches", "", envrc + "git clone -q --bare . .git/o; git branch -q -D feature; git reflog expire --all --expire=now; git gc -q --prune=now; git remote add origin .git/o", ":", "", "git fetch -q; " + evil, "! git rev-parse -q --verify origin/feature", plants},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			options := strings.Fields(g.fill(c.options))
			g.host(t, g.Project, g.fill(c.host))
			told := g.fence(t, g.fill(c.first), options...).Stderr
			g.host(t, g.Project, g.fill(c.between))
			told += g.fence(t, g.fill(c.second), options...).Stderr
			assert.Contains(t, told, c.told)
			g.host(t, g.Project, g.fill(c.next))
		})
	}
}

// A submodule's commits have links as well, and only the commit of its superproject says which one
// git checks out.
func TestLinksOfSubmodules(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, first := range []string{"mkdir -p mod2/scripts; cp EVIL mod2/scripts/pc", ":"} {
		g := newGround(t, b, template)
		g.host(t, g.Project, g.fill(`git init -q ../module; cd ../module; mkdir .githooks; ln -s ../scripts/pc .githooks/post-checkout; git add .; git commit -qm link; git rm -q .githooks/post-checkout; git commit -q --allow-empty -m none
			cd ../project; git -c protocol.file.allow=always submodule add -q ../module mod2; git -C mod2 config core.hooksPath .githooks; git commit -qm module`))
		g.fence(t, g.fill(first+"; git update-index --cacheinfo 160000,$(git -C mod2 rev-parse HEAD~1),mod2; git commit -qm older"))
		g.fence(t, g.fill("mkdir -p mod2/scripts; cp EVIL mod2/scripts/pc || :"))
		g.host(t, g.Project, "git submodule update -q || :; ! test -e mod2/scripts/pc")
	}
}

// Another command runs while the branch lands, and leaves the file later; or the same one does.
func TestLinksOfBranchesAndFilesThatComeLater(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	const older = "git checkout -q -b feature; ln -s conf/envrc .envrc; git add .envrc; git commit -qm link; git rm -q .envrc; git commit -qm none; git checkout -q main"
	g := newGround(t, b, template)
	g.host(t, g.Project, older)
	g.inTwo(t, ":", func() { g.fence(t, "git branch old feature~1") }, "mkdir conf; cp EVIL conf/envrc")
	g.host(t, g.Project, "git checkout -q old; ! test -e .envrc")

	g = newGround(t, b, template)
	g.host(t, g.Project, older)
	got := g.inSteps(t, "git branch old feature~1; git branch sign", "git show-ref -q --verify refs/heads/sign", "mkdir conf; cp EVIL conf/envrc")
	assert.Contains(t, got.Stderr, `/conf/envrc" appeared or changed`)
	g.host(t, g.Project, "git checkout -q old; ! test -e .envrc")
}

// patiently is wait for a landing on a busy machine.
var patiently = strings.Replace(wait, "-lt 500", "-lt 1500", 1)

// inSteps runs a command whose second part begins when the first has landed, as a script of the
// host's says.
func (g *gitGround) inSteps(t *testing.T, first, landed, second string) clitest.Outcome {
	t.Helper()
	return g.inTwo(t, first, func() { g.await(t, landed) }, second)
}

// await waits until a script succeeds on the host.
func (g *gitGround) await(t *testing.T, script string) {
	t.Helper()
	g.host(t, g.Project, "for n in $(seq 400); do if ("+script+") >/dev/null 2>&1; then exit 0; fi; sleep 0.05; done; exit 1")
}

// inTwo runs a command whose second part begins after between.
func (g *gitGround) inTwo(t *testing.T, first string, between func(), second string, options ...string) clitest.Outcome {
	t.Helper()
	finished := make(chan clitest.Outcome, 1)
	cmd := g.Command("pk-bash", append(options, "-y", "--raw", "--", g.fill("set -e; "+fixed+first+"; "+patiently+"rm PROJECT/started PROJECT/go; "+second))...)
	go func() { finished <- clitest.Finish(t, cmd) }()
	g.awaitStart(t, finished)
	between()
	g.Write(t, g.Project+"/go", "")
	got := <-finished
	assert.Zero(t, got.Status, got.Stderr)
	return got
}

// What a command does after a part of its work has landed goes on as if nothing had.
func TestWorkThatLandsInSteps(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, c := range []struct{ name, first, landed, second, after, want string }{
		{
			"a rebase of a branch that is new", "git checkout -q -b own; echo o >>a.txt; git commit -qam o; git checkout -q main; echo m >>a.txt; git commit -qam m",
			"test $(git log -1 --format=%s own)$(git log -1 --format=%s main) = om", "! git rebase -q main own",
			"test -e .git/rebase-merge; git rebase --abort; git log -1 --format=%s own", "o\n",
		},
		{
			"a branch that goes", "git branch -q -D topic; git branch new", "git show-ref -q --verify refs/heads/new && git show-ref -q --verify refs/heads/topic", "git branch topic new",
			"git rev-parse topic new | uniq | wc -l; git for-each-ref refs/pk/trash/heads/topic", "1\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			got := g.inSteps(t, c.first, c.landed, c.second)
			assert.NotContains(t, got.Stderr, "stays")
			assert.Equal(t, c.want, g.host(t, g.Project, c.after))
		})
	}
}

// HEAD lands, and the command goes on with the index that it has not written, or on another branch.
func TestHeadThatLandsFirst(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.fence(t, "echo 1 >>a.txt; git commit -qam 1; echo 2 >>a.txt; git commit -qam 2")
	got := g.inSteps(t, "git reset -q --soft HEAD~1", "test $(git log -1 --format=%s) = 1", "echo r >a.txt; git add a.txt; git commit -qm r")
	assert.NotContains(t, got.Stderr, "meanwhile")
	assert.Equal(t, "r\n1\n", g.host(t, g.Project, "git status --porcelain -- a.txt; git log -2 --format=%s"))
	got = g.inSteps(t, "git checkout -q -b own", "test $(git symbolic-ref --short HEAD) = own", "echo o >o; git add o; git commit -qm o; git checkout -q main")
	assert.NotContains(t, got.Stderr, "meanwhile")
	assert.Equal(t, "o\nr\nmain\n", g.host(t, g.Project, "git log -1 --format=%s own; git log -1 --format=%s; git symbolic-ref --short HEAD"))
}

// HEAD moves, and the index is as the user has staged it.
func TestHeadThatMovesAlone(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "echo s >>a.txt; git commit -qam s; echo t >>a.txt; git add a.txt")
	assert.NotContains(t, g.fence(t, "git reset -q --soft HEAD~1").Stderr, "stays")
	assert.Equal(t, "M  a.txt\nsubmodule\n", g.host(t, g.Project, "git status --porcelain -- a.txt; git log -1 --format=%s"))
	g.host(t, g.Project, "git branch there; git checkout -q --orphan none; echo u >>a.txt; git add a.txt")
	assert.NotContains(t, g.fence(t, "git branch -M there").Stderr, "stays")
	assert.Equal(t, "refs/heads/there\nM  a.txt\n", g.host(t, g.Project, "git symbolic-ref HEAD; git status --porcelain -- a.txt"))
}

// A commit that does not land, or is missing, holds back the commits after it alone.
func TestBranchBesideOneThatDoesNotLand(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for name, bad := range map[string]string{
		"refused": `printf '[submodule "s"]\npath=s\nurl=./s\nupdate=!make\n' >.gitmodules; git add .gitmodules; git commit -qm bad`,
		"missing": `git commit -q --allow-empty -m bad; i=$(git rev-parse HEAD); rm -f .git/objects/${i%%${i#??}}/${i#??}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, b, template)
			main := g.host(t, g.Project, "git rev-parse main")
			got := g.Run(t, "pk-bash", "-y", "--raw", "--", bad)
			assert.Contains(t, got.Stderr, `"refs/heads/main": its object`)
			got = g.Run(t, "pk-bash", "-y", "--raw", "--", "git checkout -q -f -b good "+strings.TrimSpace(main)+"; echo g >g; git add g; git commit -qm good")
			assert.NotContains(t, got.Stderr, "cannot land")
			got = g.fence(t, "echo more >>g; git commit -qam more")
			assert.Empty(t, got.Stderr, "what does not land is told once")
			assert.Equal(t, main+"more\ngood\nrefs/heads/good\n", g.host(t, g.Project, "git rev-parse main; git log -2 --format=%s; git symbolic-ref HEAD; git status --porcelain --untracked=no"))
		})
	}
}

func TestWhatStaysIsToldOnce(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	const hooks = `.git/hooks"; it stays in the sandbox`
	for _, session := range [][]string{nil, {"--session", "told-once"}} {
		run := func(command string) string {
			return g.Run(t, "pk-bash", append(append([]string{"-y", "--raw"}, session...), "--", command)...).Stderr
		}
		assert.Contains(t, run("echo x >.git/hooks/pre-commit"), hooks)
		assert.Empty(t, run(":"))
		assert.NotContains(t, run("echo y >.git/hooks/pre-commit; git commit -q --allow-empty -m x"), hooks)
		run("rm -f .git/hooks/pre-commit; rmdir .git/hooks")
		assert.Contains(t, run("mkdir -p .git/hooks; echo z >.git/hooks/pre-push"), hooks, "it is another one")
	}
}

// git sparse-checkout has its settings in a file that another setting asks for.
func TestSettingsOfASparseCheckoutStay(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	const set, show = "git config pk.kept yes; git sparse-checkout set --no-cone a.txt", "git config pk.kept; git sparse-checkout list; git rev-parse --is-inside-work-tree"
	g.Run(t, "pk-bash", "-y", "--raw", "--", set)
	assert.Equal(t, "yes\na.txt\ntrue\n", g.Run(t, "pk-bash", "-y", "--raw", "--", show).Stdout)
	assert.Equal(t, "none\n", g.host(t, g.Project, "git config pk.kept || git config extensions.worktreeConfig || echo none"))
	g.Run(t, "pk-bash", "-y", "--raw", "--", "git config extensions.worktreeConfig maybe")
	assert.Equal(t, "true\n", g.Run(t, "pk-bash", "-y", "--raw", "--", show).Stdout, "such a value ends every git")
}

// The host renames the branch of a command that goes on.
func TestBranchThatTheHostRenames(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	got := g.inSteps(t, "echo m >>a.txt; git commit -qam m", "test $(git log -1 --format=%s main) = m && git branch -m main trunk", "echo n >>a.txt; git commit -qam n")
	const advice = "git branch main pk/command/heads/main"
	assert.Contains(t, got.Stderr, `the host has removed "refs/heads/main" meanwhile; the command's is "refs/pk/command/heads/main"; `+advice)
	assert.Equal(t, "m\nn\n", g.host(t, g.Project, advice+"; git log -1 --format=%s trunk; git log -1 --format=%s main"))
}

// The files of git rerere stay in the sandbox, and nothing else with them.
func TestStatesWithRerere(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for name, commands := range map[string][]string{
		"a merge":  {"! git merge -q side", "git status >/dev/null", "echo r >a.txt; git add a.txt; git commit -qm end"},
		"a rebase": {"! git rebase -q side", "git status >/dev/null", "echo r >a.txt; git add a.txt; GIT_EDITOR=true git rebase --continue; git commit -q --allow-empty -m end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, "git config rerere.enabled true; git checkout -q -b side; echo s >a.txt; git commit -qam s; git checkout -q main; echo m >a.txt; git commit -qam m")
			told := ""
			for _, command := range commands {
				told += g.fence(t, command).Stderr
			}
			assert.NotContains(t, told, "the host changed it meanwhile")
			assert.Equal(t, "end\n", g.host(t, g.Project, "git log -1 --format=%s main; ls -d .git/MERGE_HEAD .git/rebase-merge 2>/dev/null || :"))
		})
	}
}

// The lock that pk takes for the host's index is none for the command's git.
func TestLockOfALanding(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "mkfifo .git/.index.pk") // pk writes the new index there, and waits for a reader
	finished := make(chan clitest.Outcome, 1)
	cmd := g.Command("pk-bash", "-y", "--raw", "--", g.fill("set -e; "+fixed+"echo 1 >n; git add n; git commit -qm one; "+patiently+"echo 2 >>n; git commit -qam two; touch done"))
	go func() { finished <- clitest.Finish(t, cmd) }()
	g.awaitStart(t, finished)
	g.host(t, g.Project, "for n in $(seq 400); do if [ -e .git/index.lock ]; then exit 0; fi; sleep 0.05; done; exit 1")
	g.Write(t, g.Project+"/go", "")
	g.patient(t, g.Project, "for n in $(seq 400); do if [ -e done ]; then exit; fi; sleep 0.05; done")
	g.host(t, g.Project, "mv .git/.index.pk ../pipe; timeout 20 cat ../pipe")
	assert.Zero(t, (<-finished).Status)
	assert.Equal(t, "two\none\n", g.host(t, g.Project, "git log -2 --format=%s; git diff --exit-code HEAD; git diff --exit-code --cached"))
}

// As long as a command runs, a protected file of its making is there, and commits land.
func TestProtectedFileThatWasMissing(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	cmd := g.Command("pk-bash", "-y", "--raw", "--", g.fill(fixed+"echo evil >.mcp.json; git add -f .mcp.json; git commit -q -m x; git branch landed HEAD~1; "+wait))
	finished := make(chan clitest.Outcome, 1)
	go func() { finished <- clitest.Finish(t, cmd) }()
	g.awaitStart(t, finished)
	landed := false
	for i := 0; i < 400 && !landed; i++ {
		landed = strings.Contains(g.host(t, g.Project, "git branch; sleep 0.01"), "landed")
	}
	assert.True(t, landed)
	g.Write(t, g.Project+"/go", "")
	got := <-finished
	assert.Contains(t, got.Stderr, "of which it has another version")
	g.host(t, g.Project, "git stash -q || :; git reset -q --hard")
	assert.NoFileExists(t, g.Project+"/.mcp.json")
}

func TestBranchOfAWorkTreeStays(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git checkout -q topic; echo t >t; git add t; git commit -qm t; echo u >>a.txt; git commit -qam u; git checkout -q main; echo m >>a.txt; git commit -qam m")
	const state = "git log --oneline --branches; git diff --cached; git worktree list; git -C wt status --porcelain"
	before := g.host(t, g.Project, state)
	got := g.Run(t, "pk-bash", "-y", "--raw", "--", "git cherry-pick -X patience topic~1 topic; rm -rf .git/worktrees/wt; git branch -D wtbranch")
	assert.Contains(t, got.Stderr, "refs/heads/wtbranch")
	assert.Contains(t, got.Stderr, "sequencer")
	assert.Equal(t, before, g.host(t, g.Project, state), "the host has a part of it")
	g.host(t, g.Project, "git gc -q --prune=now")
	g.fence(t, "echo both >a.txt; git add a.txt; git cherry-pick --continue")
	assert.Equal(t, "u\nt\nm\n", g.host(t, g.Project, "git log -3 --format=%s; git diff --exit-code HEAD"))
}

// A rebase that stays, and that commands leave for another branch, keeps no commit from the
// host. One on no branch does not land, but has a reference there, which pk names.
func TestCommitsBesideAStateThatStays(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	const state = "git log -2 --format=%s; cat .git/HEAD; git diff --cached --name-only; git for-each-ref refs/pk/command/HEAD --format='%(refname) %(subject)'"
	g.inSteps(t, "git checkout -q topic", "test $(git symbolic-ref HEAD) = refs/heads/topic", "! git rebase -q --no-ff -x false HEAD~1")
	g.fence(t, "git checkout -q main; echo n >n; git add n; git commit -qm one")
	got := g.fence(t, "git commit -q --allow-empty -m two; git status")
	assert.Contains(t, got.Stdout, "git rebase --continue")
	assert.Equal(t, "two\none\nref: refs/heads/main\n", strings.Split(g.host(t, g.Project, state), "refs/pk")[0])

	for _, subject := range []string{"three", "four"} {
		got := g.fence(t, "git checkout -q --detach; git commit -q --allow-empty -m "+subject)
		assert.Contains(t, got.Stderr, `HEAD and the index do not land while "rebase-merge" stays in the sandbox`)
		assert.Contains(t, got.Stderr, "pk-bash 'git rebase --quit'")
		assert.Contains(t, g.host(t, g.Project, "git for-each-ref refs/pk/command --format='%(subject)'"), subject)
	}
	assert.NotContains(t, g.fence(t, "git status").Stderr, "HEAD", "nothing is new")
	g.fence(t, "git rebase --quit; git checkout -q -B main")
	assert.Equal(t, "four\nthree\nref: refs/heads/main\n", strings.Split(g.host(t, g.Project, state), "refs/pk")[0])
	assert.NotContains(t, g.host(t, g.Project, "git for-each-ref refs/pk"), g.host(t, g.Project, "git rev-parse HEAD"))
}

// A branch on which a state that stays has work does not land before it ends.
func TestBranchOfAStateThatStays(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "git checkout -q topic; echo t >t; git add t; git commit -qm t; echo u >>a.txt; git commit -qam u; git checkout -q main; echo m >>a.txt; git commit -qam m")
	before := g.host(t, g.Project, "git for-each-ref refs/heads")
	got := g.Run(t, "pk-bash", "-y", "--raw", "--session", "s", "--", "git cherry-pick -X patience topic~1 topic")
	assert.Contains(t, got.Stderr, `"refs/heads/main", HEAD and the index do not land while "sequencer" stays in the sandbox`)
	assert.Contains(t, got.Stderr, "git cherry-pick --quit, in the session")
	assert.Equal(t, before+"t\n", g.host(t, g.Project, "git for-each-ref refs/heads; git log -1 --format=%s refs/pk/s/heads/main"))
	g.fence(t, "git cherry-pick --quit; git checkout -q -f", "--session", "s")
	assert.Equal(t, "t\n", g.host(t, g.Project, "git log -1 --format=%s main; git for-each-ref refs/pk/s"))
}

// Files that git cannot read are gone in the next command.
func TestWhatBreaksGitIsDropped(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, command := range []string{
		"mkfifo .git/refs/heads/f",
		"mkfifo .git/MERGE_HEAD",
		"echo x >.git/refs/heads/main; : >.git/refs/heads/topic",
		"ln -s /dev/zero .git/refs/heads/l",
		`echo '[remote "x' >>.git/config`,
		"truncate -s 60G .git/config",
		"mkdir -p .git/info; rm -f .git/info/exclude; mkfifo .git/info/exclude",
		"mkdir -p .git/info; truncate -s 60G .git/info/attributes",
		"mkdir .git/rebase-merge; mkfifo .git/rebase-merge/head-name",
		"git rebase -q --no-ff -x false HEAD~1; echo x >.git/HEAD; echo x >.git/index; :",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			before := g.host(t, g.Project, "git for-each-ref")
			got := g.Run(t, "pk-bash", "-y", "--raw", "--", command)
			assert.Zero(t, got.Status, got.Stderr)
			assert.Equal(t, "", g.fence(t, "git status --porcelain; git log --oneline --all >/dev/null; git fsck --no-dangling").Stdout)
			assert.Equal(t, before, g.host(t, g.Project, "git for-each-ref"))
		})
	}
}

// Fifty commands of one session commit at the same time, each on a branch of its own
// and, by git's locks, in turn on a common one. All of it is in the repository then.
func TestParallelCommits(t *testing.T) {
	if !clitest.Turn(0) {
		return
	}
	b, template := newGitBox(t, clitest.NewBoxInEveryRow(t))
	g := newGround(t, b, template)
	const n = 50
	ended := make(chan clitest.Outcome, n)
	limit := make(chan bool, 8)
	for i := range n {
		go func() {
			limit <- true
			defer func() { <-limit }()
			ended <- g.Run(t, "pk-bash", "-y", "--raw", "--session", "many", "--", fmt.Sprintf(`
				c=$(git commit-tree -p HEAD -m commit-%[1]d HEAD^{tree}) && git update-ref refs/heads/own-%[1]d $c || exit 3
				for try in $(seq 200); do
					old=$(git rev-parse main); c=$(git commit-tree -p $old -m common-%[1]d $old^{tree})
					said=$(git update-ref refs/heads/main $c $old 2>&1) && exit 0; sleep 0.0$((RANDOM %% 10))
				done; echo "$said" >&2; exit 4`, i))
		}()
	}
	for range n {
		got := <-ended
		assert.Zero(t, got.Status, got.Stderr)
	}
	said := g.host(t, g.Project, "git log --all --reflog --format=%s; git fsck --full 2>&1")
	for i := range n {
		assert.Contains(t, said, fmt.Sprintf("commit-%d\n", i))
		assert.Contains(t, said, fmt.Sprintf("common-%d\n", i))
		g.host(t, g.Project, fmt.Sprintf("git rev-parse -q --verify own-%d", i))
	}
	assert.Equal(t, n, strings.Count(g.host(t, g.Project, "git log --format=%s main"), "common-"))
	assert.NotContains(t, said, "error")
}

// The user commits while a command runs: on another branch, and on the same one.
func TestUserCommitsMeanwhile(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	for _, session := range [][]string{{"--session", "meanwhile"}, nil} {
		for _, test := range []struct{ name, host string }{
			{"on another branch", "git checkout -q --detach; git update-ref refs/heads/topic $(git commit-tree -p topic -m users topic^{tree}); git checkout -q main"},
			{"on the same branch", "git commit -q --allow-empty -m users"},
		} {
			t.Run(fmt.Sprint(test.name, session), func(t *testing.T) {
				t.Parallel()
				g := newGround(t, b, template)
				before := g.commits(t, g.Project)
				cmd := g.Command("pk-bash", append(session, "-y", "--raw", "--", g.fill(fixed+"git log -1 >/dev/null; "+wait+"git commit -q --allow-empty -m sessions"))...)
				finished := make(chan clitest.Outcome, 1)
				go func() { finished <- clitest.Finish(t, cmd) }()
				g.awaitStart(t, finished)
				g.host(t, g.Project, "GIT_COMMITTER_DATE='1700000001 +0000' && export GIT_COMMITTER_DATE && "+test.host)
				g.Write(t, g.Project+"/go", "")
				got := <-finished
				assert.Zero(t, got.Status, got.Stderr)
				said := g.host(t, g.Project, "git log --all --format='%s%d'; git fsck --full 2>&1")
				assert.Contains(t, said, "users")
				assert.Contains(t, said, "sessions")
				assert.NotContains(t, said, "error")
				assert.Subset(t, g.commits(t, g.Project), before)
				main := g.host(t, g.Project, "git log -1 --format=%s main")
				if test.name == "on another branch" {
					assert.Equal(t, "sessions\n", main)
					assert.Equal(t, "users\n", g.host(t, g.Project, "git log -1 --format=%s topic"))
					return
				}
				assert.Equal(t, "users\n", main, "the user's branch stays the user's")
				kept := strings.Fields(g.host(t, g.Project, "git for-each-ref --format='%(refname)' --contains $(git rev-list --all --grep=sessions) refs/pk"))
				require.Len(t, kept, 1, "the session's commit is kept")
				var lines []string
				for line := range strings.Lines(got.Stderr) {
					if strings.Contains(line, kept[0]) {
						lines = append(lines, line)
					}
				}
				require.Len(t, lines, 1, "one line names both: %s", got.Stderr)
				assert.Regexp(t, `^pk-bash: .*main`, lines[0])
			})
		}
	}
}

// Of a reference that both change, the command's value is kept, and the line that says
// so ends in a command that works as typed.
func TestAdviceForValuesThatWereKept(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInEveryRow(t))
	for i, test := range []struct {
		name, before, command, host string
		advice, then                string // then: commands of the user, before and after the advice
	}{
		{"branch", "", "git commit -q --allow-empty -m s", "git commit -q --allow-empty -m h", "git checkout main && git merge --autostash pk/NAME/heads/main", "git checkout -q topic; ADVICE; git log --format=%s | grep -x s"},
		{"branch of a deep name", "git branch d/x", "git update-ref refs/heads/d/x $(git commit-tree -p HEAD -m s HEAD^{tree})", "git update-ref refs/heads/d/x $(git commit-tree -p HEAD -m h HEAD^{tree})", "git checkout d/x && git merge --autostash pk/NAME/heads/d/x", "ADVICE; git log --format=%s d/x | grep -x s"},
		{"branch of an odd name", "git branch 'd;x'", "git update-ref 'refs/heads/d;x' $(git commit-tree -p HEAD -m s HEAD^{tree})", "git update-ref 'refs/heads/d;x' $(git commit-tree -p HEAD -m h HEAD^{tree})", "", ""},
		{"stash", "", "echo s >>a.txt; git stash -q", "echo h >>a.txt; git stash -q", "git stash apply pk/NAME/stash", "ADVICE; tail -n1 a.txt | grep -x s"},
		{"tag", "", "git tag -f v1 HEAD~3", "git tag -f v1 HEAD~2", "", ""},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b, template)
			g.host(t, g.Project, "echo ORIG >.git/FETCH_HEAD; git update-ref ORIG_HEAD HEAD; "+test.before)
			cmd := g.Command("pk-bash", "-y", "--raw", "--session", "advice", "--", g.fill(fixed+"git update-ref ORIG_HEAD HEAD~1; "+wait+test.command))
			finished := make(chan clitest.Outcome, 1)
			go func() { finished <- clitest.Finish(t, cmd) }()
			g.awaitStart(t, finished)
			g.host(t, g.Project, "export GIT_COMMITTER_DATE='1700000001 +0000'; git update-ref ORIG_HEAD HEAD~2; "+test.host)
			g.Write(t, g.Project+"/go", "")
			got := <-finished
			require.Zero(t, got.Status, got.Stderr)
			for _, name := range []string{"ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG"} {
				assert.NotContains(t, got.Stderr, name)
			}
			_, advice, _ := strings.Cut(got.Stderr, "; git ")
			if test.advice == "" {
				assert.Contains(t, got.Stderr, "refs/pk/")
				assert.Empty(t, advice)
				return
			}
			advice, _, _ = strings.Cut("git "+advice, "\n")
			assert.Regexp(t, "^"+strings.Replace(test.advice, "NAME", "[^/ ]+", 1)+"$", advice, got.Stderr)
			g.host(t, g.Project, strings.Replace(test.then, "ADVICE", advice, 1))
		})
	}
}

// A long command's commits are the host's before it ends.
func TestCommitsLandWhileACommandRuns(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	cmd := g.Command("pk-bash", "-y", "--raw", "--", g.fill(fixed+"git commit -q --allow-empty -m early; "+wait))
	finished := make(chan clitest.Outcome, 1)
	go func() { finished <- clitest.Finish(t, cmd) }()
	g.awaitStart(t, finished)
	seen := false
	for range 400 {
		if seen = strings.Contains(g.host(t, g.Project, "git log --format=%s main"), "early"); seen {
			break
		}
		g.host(t, g.Project, "sleep 0.01")
	}
	assert.True(t, seen, "the commit has not landed")
	g.Write(t, g.Project+"/go", "")
	got := <-finished
	assert.Zero(t, got.Status, got.Stderr)
}

// A repository that a command makes works in the next command, and the host's git
// sees none until it is adopted.
func TestRepositoriesOfACommand(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInOneRow(t))
	for _, session := range [][]string{{"--session", "made"}, nil} {
		for _, test := range []struct{ name, before, make, dir string }{
			{"init in a subdirectory", "", "git init -q third/party", "third/party"},
			{"clone in a subdirectory", "", "git clone -q . third/party", "third/party"},
			{"clone of a package manager", "", "mkdir -p deps; git clone -q --bare . deps/db; git clone -q -s deps/db deps/checkout", "deps/checkout"},
			{"init in a root that has none", "rm -rf .git wt mod", "git init -q", "."},
			{"init of a directory that has files", "", "cd sub && git init -q", "sub"},
			{"init with a git directory elsewhere", "", "mkdir stores && git init -q --separate-git-dir=stores/a third/party", "third/party"},
		} {
			t.Run(fmt.Sprint(test.name, session), func(t *testing.T) {
				t.Parallel()
				g := newGround(t, b, template)
				if test.before != "" {
					g.host(t, g.Project, test.before)
				}
				g.fence(t, test.make, session...)
				dir := "cd " + test.dir + " && "
				g.fence(t, dir+"echo x >made && git add made && git commit -qm made", session...)
				got := g.fence(t, dir+"git log -1 --format=%s && git rev-parse --show-toplevel", session...)
				assert.Equal(t, "made\n"+filepath.Join(g.Project, test.dir)+"\n", got.Stdout)
				g.fence(t, dir+g.fill("git config core.fsmonitor EVIL; git config core.worktree ."), session...)
				host := g.patient(t, filepath.Join(g.Project, test.dir), "git rev-parse --show-toplevel; git log -1 --format=%s; git status >/dev/null")
				assert.NotContains(t, strings.Split(host, "\n"), "made", "the host's git takes it for a repository")
				assert.NoFileExists(t, g.witness+"/ran")
			})
		}
	}
}

// The plan is made while the tree is searched. The user has made and removed repositories
// since the last command.
func TestRepositoriesOfTheUserMeanwhile(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	g.host(t, g.Project, "for n in $(seq 300); do mkdir -p many/$n; done; git init -q gone; git init -q stays")
	g.fence(t, "true")
	g.host(t, g.Project, "rm -rf gone; git init -q many/7; cd many/7; echo x >f; git add f; git commit -qm kept")
	g.fence(t, "cd many/7 && git log && { rm -rf .git || :; }")
	assert.Equal(t, "kept\n", g.host(t, g.Project+"/many/7", "git log --format=%s"))
	assert.NoDirExists(t, g.Project+"/gone")
	assert.DirExists(t, g.Project+"/stays/.git/objects")
}

// A write beside the root cannot succeed without a trace.
func TestWorktreeOutsideTheRoot(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	got := g.Run(t, "pk-bash", "-y", "--raw", "--", "git worktree add -q ../beside")
	assert.NoDirExists(t, g.dir+"/beside")
	assert.True(t, got.Status != 0 || strings.Contains(got.Stderr, "beside"), "it succeeded, and nothing tells that it is gone: %+v", got)
	assert.NotContains(t, g.host(t, g.Project, "git worktree list"), "beside")
}
