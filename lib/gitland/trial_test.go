package gitland

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mount begins and ends a command of a trial, which runs a script in a copy of the root:
// the upper layer then has the files that the script has written to the copy's git
// directory.
func (g ground) mount(layers, script string) *Layer {
	g.Helper()
	g.Settle()
	l, err := OpenShared(layers, g.Path(".git"), "s")
	require.NoError(g, err)
	l.GitDirs = []string{l.GitDir}
	g.Sh(`rm -rf ../copy; cp -a . ../copy; cp -af ` + l.Upper() + `/. ../copy/.git; cp -a ../copy/.git ../before; cd ../copy; touch *; ` + script + `
		cd .git; for f in $(find . -type f); do cmp -s $f ../../before/$f || { mkdir -p "` + l.Upper() + `/$(dirname $f)"; cp -af $f ` + l.Upper() + `/$f; }; done
		cd ../..; rm -rf copy before`)
	l.Started()
	require.NoError(g, l.Close())
	return l
}

// landed lands from a layer, and returns pk's messages.
func (g ground) landed(l *Layer) []string {
	g.Helper()
	require.NoError(g, l.Reopen())
	told := l.LandLast()
	require.NoError(g, l.Close())
	return told
}

// The user works on the host between commands of a trial, of which nothing lands.
func TestTrialKeepsStaged(t *testing.T) {
	const refresh, stage = `git update-index --refresh -q || :; git update-index --force-write-index`, `echo y >y; git add y`
	for _, row := range []struct {
		name, first, host, second string
		want                      string // the names in the host's index, and the text that is staged for h
		told                      string
	}{
		{"the host stages, the trial only looks", refresh, `echo staged >h; git add h; echo later >h`, `true`, "a h staged", ""},
		{"and looks again", refresh, `echo staged >h; git add h`, refresh, "a h staged", ""},
		{"the host stages, the trial stages then", refresh, `echo staged >h; git add h`, stage, "a h y staged", ""},
		{"both stage", stage, `echo staged >h; git add h`, `true`, "a h y staged", ""},
		{"both stage, the trial twice", stage, `echo staged >h; git add h`, `echo z >z; git add z`, "a h y z staged", ""},
		{"both stage one file", `echo mine >h; git add h`, `echo staged >h; git add h`, `true`, "a h staged", "the host has staged another change of \"h\""},
		{"a file and a directory", `mkdir h; echo y >h/y; git add h`, `echo staged >h; git add h`, `true`, "a h staged", "the host has staged another change of \"h/y\""},
		{"both stage the same", `echo staged >h; git add h`, `echo staged >h; git add h`, refresh, "a h staged", ""},
		{"the trial stages, the host looks", stage, `touch a; git status`, `true`, "a y", ""},
		{"the host switches, the trial only looks", refresh, `git checkout -q b2`, refresh, "a b", ""},
		{"the host switches, the trial has staged", stage, `git checkout -q b2`, refresh, "a b", "the host has another HEAD"},
		{"the host commits, the trial has committed what was staged", `git commit -q --allow-empty -m t`, `echo staged >h; git add h; git commit -qm h`, refresh, "a h staged", "the host has moved \"refs/heads/main\" meanwhile"},
		{"the host has no index any more", refresh, `rm .git/index`, `true`, "", ""},
		{"the host stages after the last command", refresh, `true`, `true; cd -; echo staged >h; git add h; cd ../copy`, "a h staged", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; echo a >a; echo s >s; git add a s; git commit -qm a; git checkout -q -b b2; echo b >b; git add b; git commit -qm b; git checkout -q main`)
			layers := g.Root + "-layers"
			g.mount(layers, row.first)
			g.Settle()
			g.Sh(row.host)
			l := g.mount(layers, row.second)
			told := g.landed(l)
			if row.told == "" {
				assert.Empty(t, told)
			} else {
				assert.Contains(t, strings.Join(told, "\n"), row.told)
			}
			got := ""
			for _, name := range []string{"a", "b", "h", "y", "z"} {
				if _, err := g.TryGit(".", "rev-parse", "-q", "--verify", ":"+name); err == nil {
					got += name + " "
				}
			}
			if out, err := g.TryGit(".", "show", ":h"); err == nil {
				got += out + " "
			}
			assert.Equal(t, row.want, trimmed(got))
			assert.Empty(t, g.Git(".", "fsck", "--full", "--no-dangling"))
		})
	}
}

func trimmed(s string) string { return s[:max(0, len(s)-1)] }

// An index that belongs to a rebase stays, even if no command has staged anything.
func TestTrialKeepsIndexOfRebase(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; echo a >a; git add a; git commit -qm a`)
	layers := g.Root + "-layers"
	l := g.mount(layers, `git update-index --refresh -q; mkdir .git/rebase-merge; echo x >.git/rebase-merge/done`)
	before, err := os.ReadFile(l.Upper() + "/index")
	require.NoError(t, err)
	g.Sh(`echo h >h; git add h`)
	l = g.mount(layers, `true`)
	after, err := os.ReadFile(l.Upper() + "/index")
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// FileChanges lists changes beside references, and none once they have landed.
func TestFileChanges(t *testing.T) {
	for _, row := range []struct {
		name, script, host string
		want               []string
		told               bool
	}{
		{"nothing", `true`, `true`, nil, false},
		{"a look", `git update-index --force-write-index`, `true`, nil, false},
		{"a look, the host stages", `git update-index --force-write-index`, `echo h >h; git add h`, nil, false},
		{"staged", `echo y >y; git add y`, `true`, []string{"M index"}, false},
		{"staged with no index on the host", `echo y >y; git add y`, `rm .git/index`, []string{"A index"}, true},
		{"a flag that hides a file", `git update-index --assume-unchanged a`, `true`, nil, true},
		{"a flag of the host's is gone", `git update-index --no-skip-worktree s`, `true`, []string{"M index"}, false},
		{"a remote", `git remote add o https://example.org/o`, `true`, []string{"M config"}, true},
		{"a remote that the host has too", `git remote add o https://example.org/o`, `git remote add o https://example.org/o`, nil, false},
		{"configuration that never lands", `git config core.pager evil`, `true`, nil, true},
		{"a merge that stops", `git merge -q b2 || :`, `true`, []string{"M index", "A MERGE_MSG", "A MERGE_MODE", "A AUTO_MERGE", "A MERGE_HEAD", "A ORIG_HEAD remark"}, false},
		{"a rebase that stops", `git rebase -q b2 || :`, `true`, []string{"M index", "A MERGE_MSG", "A AUTO_MERGE", "A rebase-merge", "A REBASE_HEAD", "A ORIG_HEAD remark"}, false},
		{"a bad index", `echo bad >.git/index`, `true`, []string{"? index"}, true},
		{"a bad state", `echo bad >.git/MERGE_HEAD`, `true`, []string{"A MERGE_HEAD"}, true},
		{"a commit", `git commit -q --allow-empty -m m`, `true`, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; echo a >a; echo s >s; git add a s; git commit -qm a; git checkout -q -b b2; echo b >a; git commit -qam b; git checkout -q main; echo c >a; git commit -qam c; git update-index --skip-worktree s`)
			l := g.mount(g.Root+"-layers", row.script)
			g.Settle()
			g.Sh(row.host)
			list := func() (names []string) {
				_, changes, err := l.Changes()
				require.NoError(t, err)
				for _, c := range changes {
					name := "M "
					switch {
					case c.Err != nil:
						name = "? "
					case c.Before == "":
						name = "A "
					}
					if name += c.Name; c.Remark() {
						name += " remark"
					}
					if c.Err == nil {
						assert.NotEqual(t, c.Before, c.After)
					}
					names = append(names, name)
				}
				return names
			}
			assert.ElementsMatch(t, row.want, list())
			told := g.landed(l)
			assert.Equal(t, row.told, len(told) > 0, "%q", told)
			if row.name != "a bad state" {
				assert.Empty(t, list(), "after landing")
			}
		})
	}
}

// The files of linked worktrees and submodules are below the git directory.
func TestFileChangesBelow(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; echo a >a; git add a; git commit -qm a; git worktree add -q ../wt; git clone -q --bare . .git/modules/s/m; git -C .git/modules/s/m config core.bare false`)
	l := g.mount(g.Root+"-layers", "true")
	upper := l.Upper()
	l = g.mount(g.Root+"-layers", `git config --file .git/modules/s/m/config remote.o.url https://example.org/o
		cd `+upper+`; mkdir -p worktrees/wt; echo x >worktrees/wt/MERGE_HEAD; cd -; cp .git/worktrees/wt/index `+upper+`/worktrees/wt; GIT_INDEX_FILE=`+upper+`/worktrees/wt/index git rm -q --cached a`)
	l.GitDirs = append(l.GitDirs, g.Path(".git/worktrees/wt"), g.Path(".git/modules/s/m"))
	_, changes, err := l.Changes()
	require.NoError(t, err)
	var names []string
	for _, c := range changes {
		require.NoError(t, c.Err)
		names = append(names, c.Name)
	}
	assert.ElementsMatch(t, []string{"modules/s/m/config", "worktrees/wt/MERGE_HEAD", "worktrees/wt/index"}, names)
}

// Of references, those of linked worktrees and submodules are listed with the path of their
// git directory, and all that is listed lands.
func TestRefChanges(t *testing.T) {
	for _, row := range []struct {
		name, script string
		want         []string
	}{
		{"nothing", `true`, nil},
		{"a branch and HEAD", `git commit -q --allow-empty -m m; git checkout -q -b n`, []string{"HEAD", "refs/heads/main", "refs/heads/n"}},
		{"a branch of a submodule", `git -C .git/modules/s/m branch n HEAD~1`, []string{"modules/s/m/refs/heads/n"}},
		{"a detached HEAD of a submodule", `git -C .git/modules/s/m update-ref --no-deref HEAD main~1`, []string{"modules/s/m/HEAD"}},
		{"a branch of a submodule is removed", `git -C .git/modules/s/m branch -q -D b`, []string{"modules/s/m/refs/heads/b"}},
		{"a submodule of a submodule", `git -C .git/modules/s/m/modules/deep branch n`, []string{"modules/s/m/modules/deep/refs/heads/n"}},
		{"a submodule of a linked worktree", `git -C .git/worktrees/wt/modules/m branch n`, []string{"worktrees/wt/modules/m/refs/heads/n"}},
		{"a detached HEAD of a linked worktree", `git --git-dir=.git/worktrees/wt --work-tree=. commit -q --allow-empty -m m`, []string{"worktrees/wt/HEAD"}},
		{"a bisection of a linked worktree", `git --git-dir=.git/worktrees/wt update-ref refs/bisect/bad HEAD`, []string{"worktrees/wt/refs/bisect/bad"}},
		{"a branch that a linked worktree makes", `git --git-dir=.git/worktrees/wt --work-tree=. checkout -q -b n`, []string{"refs/heads/n", "worktrees/wt/HEAD"}},
		{"a linked worktree of a submodule", `git --git-dir=.git/modules/s/m/worktrees/w update-ref --no-deref HEAD main~1`, []string{"modules/s/m/worktrees/w/HEAD"}},
		{"HEAD of a work tree outside of the roots", `git --git-dir=.git/worktrees/other update-ref --no-deref HEAD main~1`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; git commit -q --allow-empty -m two; git worktree add -q --detach ../wt; git worktree add -q --detach ../other
				for m in .git/modules/s/m .git/modules/s/m/modules/deep .git/worktrees/wt/modules/m; do git clone -q --bare . $m; git -C $m config core.bare false; git -C $m branch b; git -C $m pack-refs --all; done
				git -C .git/modules/s/m worktree add -q --detach ../../../../../w`)
			l := g.mount(g.Root+"-layers", row.script)
			for _, name := range []string{"worktrees/wt", "worktrees/wt/modules/m", "modules/s/m", "modules/s/m/modules/deep", "modules/s/m/worktrees/w"} {
				l.GitDirs = append(l.GitDirs, g.Path(".git/"+name))
			}
			list, _, err := l.Changes()
			require.NoError(t, err)
			var names []string
			for _, c := range list {
				if c.Old != c.New || c.OldTarget != c.Target {
					names = append(names, c.Name)
				}
			}
			assert.ElementsMatch(t, row.want, names)
			for _, line := range g.landed(l) { // the repositories have remotes
				assert.Contains(t, line, `which is now "refs/pk/trash/heads/b"`)
			}
			list, _, err = l.Changes()
			require.NoError(t, err)
			assert.Empty(t, list, "after landing")
		})
	}
}

// A line names each thing of the configuration that does not land.
func TestConfigurationThatStaysIsNamed(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .`)
	l := g.mount(g.Root+"-layers", `git config a.b c; git config 'd.x" "y.e' f`)
	assert.Equal(t, []string{`the configuration "a.b", "d.x\" \"y.e"; it stays in the sandbox`}, g.landed(l))
}
