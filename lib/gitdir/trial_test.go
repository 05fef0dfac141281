package gitdir

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mount begins and ends a command of a trial, which runs a script in a copy of the root:
// the files of the copy's git directory that the script has written are those of the
// upper layer then.
func (g ground) mount(layers, script string) *Layer {
	g.Helper()
	g.settle()
	l, err := OpenShared(layers, g.path(".git"), "s")
	require.NoError(g, err)
	l.GitDirs = []string{l.GitDir}
	g.sh(`rm -rf ../copy; cp -a . ../copy; cp -a ` + l.Upper() + `/. ../copy/.git; cp -a ../copy/.git ../before; cd ../copy; touch *; ` + script + `
		cd .git; for f in $(find . -type f); do cmp -s $f ../../before/$f || { mkdir -p "` + l.Upper() + `/$(dirname $f)"; cp -a $f ` + l.Upper() + `/$f; }; done
		cd ../..; rm -rf copy before`)
	l.Started()
	require.NoError(g, l.Close())
	return l
}

// landed lands from a layer, and returns what pk tells.
func (g ground) landed(l *Layer) []string {
	g.Helper()
	require.NoError(g, l.Reopen())
	told := l.LandLast()
	require.NoError(g, l.Close())
	return told
}

// Between the commands of a trial, nothing of which lands, the user works on the host.
func TestTrialKeepsStaged(t *testing.T) {
	const refresh, stage = `git update-index --refresh -q || :; git update-index --force-write-index`, `echo y >y; git add y`
	for _, row := range []struct {
		name, first, host, second string
		want                      string // the names in the host's index, and the text that is staged for h
		told                      bool
	}{
		{"the host stages, the trial only looks", refresh, `echo staged >h; git add h; echo later >h`, `true`, "a h staged", false},
		{"and looks again", refresh, `echo staged >h; git add h`, refresh, "a h staged", false},
		{"the host stages, the trial stages then", refresh, `echo staged >h; git add h`, stage, "a h y staged", false},
		{"both stage", stage, `echo staged >h; git add h`, `true`, "a h staged", true},
		{"both stage, the trial twice", stage, `echo staged >h; git add h`, `echo z >z; git add z`, "a h staged", true},
		{"both stage the same", `echo staged >h; git add h`, `echo staged >h; git add h`, refresh, "a h staged", false},
		{"the trial stages, the host looks", stage, `touch a; git status`, `true`, "a y", false},
		{"the host switches, the trial only looks", refresh, `git checkout -q b2`, refresh, "a b", false},
		{"the host switches, the trial has staged", stage, `git checkout -q b2`, refresh, "a b", true},
		{"the host has no index any more", refresh, `rm .git/index`, `true`, "", false},
		{"the host stages after the last command", refresh, `true`, `true; cd -; echo staged >h; git add h; cd ../copy`, "a h staged", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.sh(`repo .; echo a >a; git add a; git commit -qm a; git checkout -q -b b2; echo b >b; git add b; git commit -qm b; git checkout -q main`)
			layers := g.root + "-layers"
			g.mount(layers, row.first)
			g.settle()
			g.sh(row.host)
			l := g.mount(layers, row.second)
			told := g.landed(l)
			if row.told {
				assert.Len(t, told, 1)
				assert.Contains(t, told[0], "the host has staged other changes")
			} else {
				assert.Empty(t, told)
			}
			got := ""
			for _, name := range []string{"a", "b", "h", "y", "z"} {
				if _, err := g.tryGit(".", "rev-parse", "-q", "--verify", ":"+name); err == nil {
					got += name + " "
				}
			}
			if out, err := g.tryGit(".", "show", ":h"); err == nil {
				got += out + " "
			}
			assert.Equal(t, row.want, trimmed(got))
			assert.Empty(t, g.git(".", "fsck", "--full", "--no-dangling"))
		})
	}
}

func trimmed(s string) string { return s[:max(0, len(s)-1)] }

// An index that belongs to a rebase stays, even if no command has staged anything.
func TestTrialKeepsIndexOfRebase(t *testing.T) {
	g := newGround(t)
	g.sh(`repo .; echo a >a; git add a; git commit -qm a`)
	layers := g.root + "-layers"
	l := g.mount(layers, `git update-index --refresh -q; mkdir .git/rebase-merge; echo x >.git/rebase-merge/done`)
	before, err := os.ReadFile(l.Upper() + "/index")
	require.NoError(t, err)
	g.sh(`echo h >h; git add h`)
	l = g.mount(layers, `true`)
	after, err := os.ReadFile(l.Upper() + "/index")
	require.NoError(t, err)
	assert.Equal(t, before, after)
}
