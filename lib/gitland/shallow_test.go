package gitland

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// collect lets the host's git drop all that it does not need, and returns the commits that
// it has.
func (g ground) collect() []string {
	g.Helper()
	g.Git(".", "-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
	assert.Empty(g, g.Git(".", "fsck", "--full", "--no-dangling"))
	var commits []string
	for line := range strings.Lines(g.Git(".", "cat-file", "--batch-all-objects", "--batch-check")) {
		if f := strings.Fields(line); f[1] == "commit" {
			commits = append(commits, f[0])
		}
	}
	return commits
}

// A commit at which git ends the history hides all that is below it, and gc drops that.
func TestShallow(t *testing.T) {
	const (
		full = `repo .; for i in 1 2 3 4; do echo $i >f; git add f; git commit -qm c$i; done; `
		// clone makes a shallow clone of a repository with four commits.
		clone = `git init -q ../up; cd ../up; for i in 1 2 3 4; do echo $i >f; git add f; git commit -qm c$i; done; cd ../root; git init -q; git remote add origin file://$PWD/../up; git fetch -q --depth=2 origin main; git reset -q --hard FETCH_HEAD; `
		// orphan makes a commit without its parent.
		orphan = `x=$(printf "tree %s\nparent 1111111111111111111111111111111111111111\n%sauthor a <a@x> 1700000000 +0000\ncommitter a <a@x> 1700000000 +0000\n\nx\n" $(git rev-parse HEAD^{tree}) "$more" | git hash-object --literally -t commit -w --stdin); git update-ref refs/heads/evil $x; `
	)
	for _, row := range []struct {
		name, host, command string
		again               string   // a second command
		shallow             string   // of the host then: revisions
		told                []string // each with a part of it
		branch              string   // one that lands
	}{
		{"commit of the host's", full, `git rev-parse HEAD >.git/shallow`, ``, ``, []string{"would hide history"}, ``},
		{"commit of the host's in a pack of the command's", full, `git rev-parse HEAD | git pack-objects -q .git/objects/pack/pack`, `git rev-parse HEAD >.git/shallow`, ``, []string{"would hide history"}, ``},
		{"parent of a new commit", full, `git commit -q --allow-empty -m new; git rev-parse HEAD~1 >.git/shallow; git commit -q --allow-empty -m newer`, ``, ``, []string{"would hide history"}, `main`},
		{"new commit with its parents", full, `git commit -q --allow-empty -m new; git rev-parse HEAD >.git/shallow`, ``, ``, nil, `main`},
		{"commit that landed with its parents", full, `git commit -q --allow-empty -m new`, `git rev-parse HEAD >.git/shallow`, ``, []string{"would hide history"}, ``},
		{"new commit without its parent", full, orphan + `echo $x >.git/shallow`, ``, `evil`, []string{"a shallow one now"}, `evil`},
		{"new commit on top of one without its parent", full, orphan + `echo $x >.git/shallow; git update-ref refs/heads/evil $(git commit-tree -p $x -m y $x^{tree})`, ``, `evil~1`, []string{"a shallow one now"}, `evil`},
		{"new commit, and one that nobody has", full, orphan + `printf "%s\n2222222222222222222222222222222222222222\n" $x >.git/shallow`, ``, `evil`, []string{"a shallow one now", "no object 2222"}, `evil`},
		{"new commit without its parent, not named", full, orphan, ``, ``, []string{"missing", "has not landed"}, ``},
		{"and text that is not git's", full, orphan + `printf "%s\nx\n" $x >.git/shallow`, ``, ``, []string{"no object ID", "missing", "has not landed"}, ``},
		{"in one line", full, orphan + `printf "%s %s\n" $x $x >.git/shallow`, ``, ``, []string{"no object ID", "missing", "has not landed"}, ``},
		{"without the end of the line", full, orphan + `printf %s $x >.git/shallow`, ``, ``, []string{"no object ID", "missing", "has not landed"}, ``},
		{"empty", full, `: >.git/shallow; git commit-tree -m x HEAD^{tree}`, ``, ``, []string{"is empty"}, ``},
		{"a branch's old commit below one without all its parents", full, `more="parent $(git rev-parse HEAD)
"; ` + orphan + `echo $x >.git/shallow; git update-ref refs/heads/main $x`, ``, `main`, []string{"a shallow one now", `now "refs/pk/trash/heads/main"`}, `main`},

		{"fetch that makes it deeper", clone, `git fetch -q --depth=3 origin main`, ``, `main~2`, nil, ``},
		{"fetch of everything", clone, `git fetch -q --unshallow origin main; : >../gone`, ``, ``, nil, ``},
		{"fetch of a new branch", clone + `cd ../up; git checkout -q -b b main~2; git commit -q --allow-empty -m b; cd ../root`, `git fetch -q --depth=1 origin b; git update-ref refs/heads/b FETCH_HEAD`, ``, `main~1 b`, nil, `b`},
		{"only said to be complete", clone, `: >../gone`, ``, `main~1`, []string{"not complete"}, ``},
		{"only said to be complete, parts are there", clone + `git fetch -q --depth=3 origin main; git rev-parse main~1 >.git/shallow; rm -f .git/objects/$(git rev-parse main~2^{tree} | sed "s,..,&/,") .git/objects/pack/*; git fetch -q --refetch --depth=2 origin main`, `: >../gone`, ``, `main~1`, []string{"not complete"}, ``},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(row.host)
			before := g.collect()
			layers, gone := g.Root+"-layers", g.Root+"/../gone"
			var told []string
			for _, command := range []string{row.command, row.again} {
				if command == "" {
					continue
				}
				l := g.mount(layers, command)
				if _, err := os.Stat(gone); err == nil {
					g.Sh(`rm -f ` + l.Upper() + `/shallow; mknod ` + l.Upper() + `/shallow c 0 0`)
				}
				told = g.landed(l)
			}
			require.Len(t, told, len(row.told), "%q", told)
			for i, part := range row.told {
				assert.Contains(t, told[i], part)
			}
			for _, id := range g.collect() {
				before = slices.DeleteFunc(before, func(old string) bool { return old == id })
			}
			assert.Empty(t, before, "commits are lost")
			want := ""
			if row.shallow != "" {
				want = g.Git(".", append([]string{"rev-parse"}, strings.Fields(row.shallow)...)...) + "\n"
			}
			text, _ := os.ReadFile(g.Path(".git/shallow"))
			assert.ElementsMatch(t, strings.Fields(want), strings.Fields(string(text)))
			if row.branch != "" {
				g.Git(".", "log", row.branch)
			}
			assert.NoFileExists(t, g.Path(".git/shallow.lock"))
		})
	}
}

// A commit lands as a reference only with all its history: the host may have dropped a part, or
// the end that it was, since an earlier landing.
func TestCommitWhoseEndIsGone(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .`)
	g.landed(g.mount(g.Root+"-layers", `x=$(printf "tree %s\nparent 1111111111111111111111111111111111111111\nauthor a <a@x> 1700000000 +0000\ncommitter a <a@x> 1700000000 +0000\n\nx\n" $(git rev-parse HEAD^{tree}) | git hash-object --literally -t commit -w --stdin); echo $x >.git/shallow`))
	text, err := os.ReadFile(g.Path(".git/shallow"))
	require.NoError(t, err)
	id := strings.TrimSpace(string(text))
	g.Sh(`git cat-file -e ` + id + `; rm .git/shallow`)
	told := g.landed(g.mount(g.Root+"-layers", `git update-ref refs/heads/x `+id+`; git tag x1 $(git commit-tree -p `+id+` -m y HEAD^{tree})`))
	assert.Contains(t, strings.Join(told, "\n"), "a commit of its history is missing")
	assert.Equal(t, "refs/heads/main", g.Git(".", "for-each-ref", "--format=%(refname)"))
}
