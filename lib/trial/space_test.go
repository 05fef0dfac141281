package trial

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/overlay"
)

func TestSpace(t *testing.T) {
	const gib = 1 << 30
	s := newSpace()
	takes := func(size, used int64, inode uint64) bool {
		return s.takes(overlay.File{Mode: unix.S_IFREG, Size: size, Used: used, Ino: inode})
	}
	assert.True(t, takes(1000*gib, 1000*gib, 1), "a file that takes its space")
	assert.True(t, takes(smallFile, 0, 2), "a small one")
	assert.EqualValues(t, maxSparse, s.left)
	assert.False(t, takes(17*gib, 0, 3), "a hole")
	assert.True(t, takes(10*gib, 0, 4), "after one that is not counted")
	assert.True(t, takes(5*gib, 5*gib, 5))
	assert.True(t, takes(5*gib, 5*gib, 5), "a second name")
	assert.False(t, takes(5*gib, 5*gib, 5), "a third name")
	assert.False(t, takes(2*gib, 0, 6))
	assert.True(t, takes(gib, 0, 6))
	assert.False(t, takes(gib, 0, 7))
}

// The sum over all files and repositories counts, and the others land.
func TestFilesWithoutSpace(t *testing.T) {
	s := newStage(t, "f: 1")
	upper := s.root.Upper()
	grow(t, upper, "f: 2", "r/", "r/.git/", "r/.git/x: 1", "other/", "other/.git/", "small: 1")
	for _, name := range []string{"0", "1", "2", "r/.git/x", "other/.git/x"} {
		f, err := os.Create(upper + "/" + name)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(6<<30))
		require.NoError(t, f.Close())
	}
	stays := ": refused: " + tooSparse
	assert.Equal(t, lines{"A 0", "A 1", "A 2" + stays, "M f", "A other", "A other/.git" + stays, "A r", "A r/.git" + stays, "A small"}, s.list(t, ListOptions{}))
	items, err := s.again(t).List(ListOptions{Names: true})
	require.NoError(t, err)
	assert.Len(t, items, 9)
	for name := range 40 { // further names cost a command nothing
		require.NoError(t, os.Link(upper+"/0", fmt.Sprint(upper, "/link", name)))
	}
	unread := 0
	items, err = s.again(t).List(ListOptions{})
	require.NoError(t, err)
	for _, i := range items {
		if i.Unread {
			unread++
			e, err := i.After()
			require.NoError(t, err)
			assert.Empty(t, Digest(e))
		}
	}
	assert.Equal(t, 41, unread)
}
