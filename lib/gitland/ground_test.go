package gitland

import (
	"os"
	"testing"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/gittest"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	settled = 0 // all is on one file system
	os.Exit(gittest.Main(m))
}

type ground struct{ gittest.Ground }

func newGround(t *testing.T) ground { return ground{gittest.NewGround(t)} }

func (g ground) begin() *gitdir.Run {
	g.Helper()
	l, err := gitdir.Look(g.State, g.Root, nil)
	require.NoError(g, err)
	_, _, err = gitdir.Find(g.Root, l)
	require.NoError(g, err)
	r, err := gitdir.Begin(g.State, l)
	require.NoError(g, err)
	return r
}

// command runs fn as a command in the root.
func (g ground) command(fn func()) {
	g.Helper()
	g.Settle()
	r := g.begin()
	require.NoError(g, r.Warning)
	fn()
	_, err := r.End()
	require.NoError(g, err)
}
