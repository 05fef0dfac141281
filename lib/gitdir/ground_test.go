package gitdir

import (
	"os"
	"path/filepath"
	"testing"

	"pikuri/lib/gitdir/gittest"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	rounding, settled = 0, 0 // all is on one file system
	os.Exit(gittest.Main(m))
}

type ground struct{ gittest.Ground }

func newGround(t *testing.T) ground { return ground{gittest.NewGround(t)} }

func (g ground) begin() *Run {
	g.Helper()
	r, err := g.tryBegin(g.Root)
	require.NoError(g, err)
	return r
}

func (g ground) tryBegin(root string) (*Run, error) {
	l, err := Look(g.State, root, nil)
	if err == nil {
		_, _, err = Find(root, l)
	}
	if err != nil {
		return nil, err
	}
	return Begin(g.State, l)
}

// command runs fn as a command, between Begin and End.
func (g ground) command(fn func()) []Inert {
	g.Helper()
	g.Settle()
	r := g.begin()
	require.NoError(g, r.Warning)
	fn()
	made, err := r.End()
	require.NoError(g, err)
	return made
}

// repos lists the result of Find, below the root: work trees, or bare git directories.
func (g ground) repos(r *Run) []string {
	g.Helper()
	repos, _, err := Find(g.Root, r.List)
	require.NoError(g, err)
	var list []string
	for _, repo := range repos {
		rel, err := filepath.Rel(g.Root, repo.place())
		require.NoError(g, err)
		list = append(list, rel)
	}
	return list
}
