package gitland

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/gitdir/objects"
)

// The links of all commits count, also when their references have gone, and for names that are
// protected later. A start reads a part, and the next ones the rest.
func TestLinksOfHistory(t *testing.T) {
	defer func(was int) { maxHistory = was }(maxHistory)
	g := newGround(t)
	g.Sh(`git init -q -b main .
		link() { git checkout -q -b $1; mkdir -p $(dirname $2); ln -s $3 $2; git add -f $2; git commit -qm $1; git rm -q $2; git commit -qm none; }
		git commit -q --allow-empty -m first
		link one .envrc conf/envrc; for n in 1 2 3; do git commit -q --allow-empty -m $n; done
		git checkout -q main; link two .vscode/tasks.json ../x/tasks; git checkout -q main; link three notes n; git checkout -q --detach; link four .envrc there`)
	names := []string{".envrc", ".vscode/tasks.json"}
	require.NoError(t, os.Mkdir(g.State, 0o700))
	look := func(names ...string) (list []Behind) {
		list, save := LinksOfHistory(g.State, g.Root+"/.git", []string{g.Root}, names)
		save()
		return list
	}
	maxHistory = 1
	starts := 0
	for ; starts < 100 && !assert.ObjectsAreEqual(all, look(names...)); starts++ {
	}
	assert.Greater(t, starts, 10, "there are twelve commits")
	assert.Equal(t, all, look(names...))
	maxHistory = 1_000_000
	g.Sh("git checkout -q main; git branch -q -D one two three four 2>/dev/null || git branch -q -D one two three; git reflog expire --expire=now --all")
	g.Settle()
	assert.Equal(t, all, look(names...))
	g.Sh("git checkout -q -b late; ln -s m notes; git add notes; git commit -qm late")
	g.Settle()
	assert.Equal(t, all, look(names...))
	assert.Contains(t, look(append(names, "notes")...), Behind{"notes", "m"})
	assert.Contains(t, look(names...), Behind{"notes", "m"}, "what was protected stays so")
	g.Sh("git gc -q --prune=now")
	assert.Equal(t, []Behind{{"notes", "m"}}, look(names...), "the commits are gone")
}

var all = []Behind{{".envrc", "conf/envrc"}, {".envrc", "there"}, {".vscode/tasks.json", "x/tasks"}}

// A commit that could not be read is read again.
func TestLinksThatAreFetchedLater(t *testing.T) {
	g := newGround(t)
	g.Sh("git init -q .; ln -s conf/envrc .envrc; git add .envrc; git commit -qm link; git rm -q .envrc; git commit -qm none; id=$(git rev-parse HEAD~1:.envrc); mv .git/objects/${id%${id#??}}/${id#??} ../blob; echo .git/objects/${id%${id#??}}/${id#??} >../name")
	require.NoError(t, os.Mkdir(g.State, 0o700))
	look := func() (list []Behind) {
		list, save := LinksOfHistory(g.State, g.Root+"/.git", []string{g.Root}, []string{".envrc"})
		save()
		return list
	}
	assert.Empty(t, look())
	g.Sh("mv ../blob $(cat ../name)")
	assert.Equal(t, []Behind{{".envrc", "conf/envrc"}}, look())
	_, err := os.Stat(historyFile(g.State, g.Root+"/.git"))
	assert.NoError(t, err)
}

// Of a clone without files, more commits cannot be read than are remembered. Those to which the host
// comes later are read then.
func TestLinksOfATreelessClone(t *testing.T) {
	g := newGround(t)
	g.Sh(fmt.Sprintf(`git init -q .; ln -s conf/envrc .envrc; git add .envrc; git commit -qm link; git rev-parse HEAD >../link; git rm -q .envrc; git commit -q --allow-empty -m none
		ref=$(git symbolic-ref HEAD); file() { id=$(git rev-parse $1^{tree}); echo .git/objects/${id%%${id#??}}/${id#??}; }
		file HEAD >../other; file HEAD~1 >../name
		{ for n in $(seq %d); do printf 'commit %%s\ncommitter a <a@b> %%d +0000\ndata 0\n' $ref $n; test $n != 1 || echo from $ref^0; done; } | git fast-import --quiet
		mv $(cat ../name) ../tree; rm -f $(cat ../other)`, maxLost+100))
	require.NoError(t, os.Mkdir(g.State, 0o700))
	look := func() (list []Behind) {
		list, save := LinksOfHistory(g.State, g.Root+"/.git", []string{g.Root}, []string{".envrc"})
		save()
		return list
	}
	assert.Empty(t, look())
	assert.Empty(t, look())
	g.Sh("mv ../tree $(cat ../name); cp ../link .git/FETCH_HEAD")
	assert.Equal(t, []Behind{{".envrc", "conf/envrc"}}, look())
}

// A commit of another repository, which a message names, is not looked for at each start.
func TestMessagesNameNoCommits(t *testing.T) {
	g := newGround(t)
	g.Sh("git init -q .; git commit -q --allow-empty -m 'cherry picked from commit 0123456789012345678901234567890123456789'; test -s .git/COMMIT_EDITMSG || cp .git/logs/HEAD .git/COMMIT_EDITMSG")
	require.NoError(t, os.Mkdir(g.State, 0o700))
	_, save := LinksOfHistory(g.State, g.Root+"/.git", []string{g.Root}, []string{".envrc"})
	save()
	h, _, close := readHistory(historyFile(g.State, g.Root+"/.git"))
	close()
	assert.NotNil(t, h.read)
	assert.Empty(t, h.Lost)
}

func TestIDSet(t *testing.T) {
	s := idSet{size: objects.SHA1.Size()}
	ids := []string{"aa00000000000000000000000000000000000000", "0100000000000000000000000000000000000000", "ff00000000000000000000000000000000000000", "aa00000000000000000000000000000000000001"}
	for i, id := range ids {
		assert.False(t, s.has(id))
		s.add(id)
		assert.True(t, s.has(id))
		s = idSet{size: s.size, data: s.sorted()}
		assert.Len(t, s.data, (i+1)*s.size)
	}
	for _, id := range ids {
		assert.True(t, s.has(id))
	}
	assert.False(t, s.has("ab00000000000000000000000000000000000000"))
}

// As long as the history is not read whole, no reference lands at a commit that is to be read.
func TestHistoryThatIsNotReadWhole(t *testing.T) {
	defer func(was int) { maxHistory = was }(maxHistory)
	g := newGround(t)
	g.Sh("git init -q .; for n in 1 2 3; do git commit -q --allow-empty -m $n; done")
	git, old := g.Root+"/.git", g.Git(".", "rev-parse", "HEAD~2")
	require.NoError(t, os.Mkdir(g.State, 0o700))
	start := func() {
		_, save := LinksOfHistory(g.State, git, []string{g.Root}, []string{".envrc"})
		save()
	}
	land := func(branch string) []string {
		l, err := OpenShared(g.State, git, "s")
		require.NoError(t, err)
		defer l.Close()
		l.GitDirs, l.WorkTrees, l.State, l.Checkouts = []string{git}, []string{g.Root}, g.State, []Checkout{{GitDir: git, WorkTree: g.Root, Names: []string{".envrc"}}}
		require.NoError(t, os.MkdirAll(l.Upper()+"/refs/heads", 0o755))
		require.NoError(t, os.WriteFile(l.Upper()+"/refs/heads/"+branch, []byte(old+"\n"), 0o644))
		l.Started()
		return l.LandLast()
	}
	maxHistory = 1
	start()
	assert.Contains(t, strings.Join(land("early"), "\n"), `"refs/heads/early" does not land: the history with it has not been read whole: the next command reads on`)
	maxHistory = 1_000_000
	start()
	assert.Empty(t, land("late"))
	assert.Equal(t, old, g.Git(".", "rev-parse", "late"))
}
