package gitland

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// history makes a repository of commits, of which one in four is a merge, a minute apart. It
// returns their IDs, and those in each one's history.
func (g ground) history(commits int) (*repository, []string, map[string]map[string]bool) {
	g.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var script strings.Builder
	parents := make([][]int, commits)
	for i := range commits {
		fmt.Fprintf(&script, "commit refs/heads/c%d\nmark :%d\ncommitter a <a@b> %d +0000\ndata 0\n", i, i+1, 1_600_000_000+i*60)
		if i > 0 {
			parents[i] = append(parents[i], max(0, i-1-r.IntN(8)))
			fmt.Fprintf(&script, "from :%d\n", parents[i][0]+1)
		}
		if i > 8 && i%4 == 0 {
			parents[i] = append(parents[i], r.IntN(i-8))
			fmt.Fprintf(&script, "merge :%d\n", parents[i][1]+1)
		}
	}
	require.NoError(g, os.WriteFile(g.Root+"/script", []byte(script.String()), 0o644))
	g.Sh(`repo .; git fast-import --quiet --export-marks=marks <script; git tag -a -m t t c9`)
	repo, err := (&lander{layer: &Layer{GitDir: g.Path(".git")}, repos: map[string]*repository{}}).open("")
	require.NoError(g, err)
	g.Cleanup(repo.objects.Close)
	text, err := os.ReadFile(g.Root + "/marks")
	require.NoError(g, err)
	ids := make([]string, commits)
	for line := range strings.Lines(string(text)) {
		var mark int
		var id string
		_, err := fmt.Sscanf(line, ":%d %s", &mark, &id)
		require.NoError(g, err)
		ids[mark-1] = id
	}
	below := map[string]map[string]bool{}
	for i, id := range ids {
		below[id] = map[string]bool{id: true}
		for _, parent := range parents[i] {
			maps.Copy(below[id], below[ids[parent]])
		}
	}
	return repo, ids, below
}

// Questions in any order have git's answers.
func TestIsAncestor(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	repo, ids, below := g.history(150)
	r := rand.New(rand.NewPCG(3, 4))
	some := func() string { return ids[r.IntN(len(ids))] }
	var growing []string
	for i := range 4000 {
		a, others := some(), []string{some()}
		switch i % 3 {
		case 1:
			others = []string{some(), some(), some()}
		case 2:
			if growing = append(growing, ids[r.IntN(len(ids)/3)]); len(growing) == 20 {
				growing = nil
			}
			others = growing
		}
		want := slices.ContainsFunc(others, func(id string) bool { return below[id][a] })
		require.Equal(t, want, repo.isAncestor(a, others...), "%d: %s in %q", i, a, others)
	}
	assert.True(t, repo.isAncestor(ids[0], g.Git(".", "rev-parse", "refs/tags/t")), "of a tag")
	assert.False(t, repo.isAncestor(strings.Repeat("1", 40), ids[0]), "missing")
}

// Questions about the same commits visit each about once, and there is an end to others.
func TestManyQuestions(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	repo, ids, _ := g.history(150)
	tip := ids[len(ids)-1]
	var others []string
	for _, id := range ids {
		others = append(others, id)
		repo.isAncestor(ids[0], tip)
		repo.isAncestor(id, tip)
		assert.True(t, repo.isAncestor(ids[0], others...))
	}
	assert.Less(t, repo.past.visits, 3*len(ids))

	repo.past.walks, repo.past.visits = nil, maxVisits
	assert.False(t, repo.isAncestor(ids[0], tip), "no walk is left")
	assert.True(t, repo.isAncestor(tip, tip))
}
