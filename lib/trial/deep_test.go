package trial

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// deepen makes a chain of directories below another one, deeper than a path can name.
func deepen(t testing.TB, top string, depth int) {
	t.Helper()
	dir, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range depth {
		require.NoError(t, unix.Mkdirat(dir, "d", 0o755))
		below, err := fsat.Openat(dir, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		unix.Close(dir)
		require.NoError(t, err)
		dir = below
	}
	unix.Close(dir)
}

// What is asked about all directories above a path, a directory takes from the one above it.
// Otherwise a chain of thousands costs the third power of its depth.
func TestDeepChain(t *testing.T) {
	s := newStage(t)
	deepen(t, s.root.Upper(), 3000)
	items, err := s.again(t).List(ListOptions{})
	require.NoError(t, err)
	require.Len(t, items, 3000)
	assert.Empty(t, items[2999].Refused)

	deep := strings.Repeat("d/", 100) + "d"
	l := &listing{Root: s.root, repos: map[string]string{deep: "d/d"}, moved: map[string]bool{deep: true}, lower: -1, upper: -1}
	assert.Equal(t, "d/d", l.repositoryAbove(deep+"/e"))
	assert.True(t, l.movedAbove(deep+"/e"))
	assert.Len(t, l.repos, 2, "it has asked about others")
	assert.Len(t, l.moved, 2, "it has asked about others")

	h := &hiding{-1, map[string]string{deep: "d"}}
	assert.Equal(t, "d", h.at(deep+"/e"))
	assert.Len(t, h.known, 2, "it has asked about others")
}

// It is enough to find one change: a command can make any number of them.
func TestHoldsStopsAtTheFirst(t *testing.T) {
	s := newStage(t)
	require.False(t, holdsAny(t, s))
	grow(t, s.root.Upper(), "a: 1", "b/")
	few := testing.AllocsPerRun(1, func() { require.True(t, holdsAny(t, s)) })
	deepen(t, s.root.Upper()+"/b", 1000)
	many := testing.AllocsPerRun(1, func() { require.True(t, holdsAny(t, s)) })
	assert.InDelta(t, few, many, 100)
}

func holdsAny(t *testing.T, s *stage) bool { return Holds(strings.TrimSuffix(s.overlays, "/overlay")) }

func TestCount(t *testing.T) {
	dir := t.TempDir()
	top, err := unix.Open(dir, unix.O_PATH, 0)
	require.NoError(t, err)
	defer unix.Close(top)
	assert.Zero(t, count(top, 10))
	grow(t, dir, "a: 1", "b/", "b/c: 1", "e: whiteout", "z/", "z/y: 1")
	assert.Equal(t, 6, count(top, 10))
	assert.Equal(t, 4, count(top, 4))
	assert.Zero(t, count(top, 0))
	deepen(t, dir+"/b", 3000)
	assert.Equal(t, 3006, count(top, maxCount))
	assert.Equal(t, 2000, count(top, 2000))
}
