package workspace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pikuri/lib/confine/confinetest"
)

func TestSmoke(t *testing.T) {
	base := confinetest.Tree(t, "w/d/f", "w/l => d", "w/a => {base}/w/d/f", "w/u => ../w/d/f", "w/out => ../o/x", "o/", "w/loop => loop")
	ctx := context.Background()
	w, err := NewLocalWorkspace(base + "/w")
	require.NoError(t, err)
	for _, o := range []bool{true, false} {
		w.tree.openat2 = o
		for _, p := range []string{"d/f", "l/f", "a", "u"} {
			b, err := w.Read(ctx, p)
			require.NoError(t, err, p)
			require.Equal(t, "text\n", string(b))
		}
		require.ErrorIs(t, w.Write(ctx, "out", []byte("x")), ErrPathTraversal)
		require.ErrorIs(t, w.Write(ctx, "loop", []byte("x")), ErrPathTraversal)
		require.NoError(t, w.Write(ctx, "l/x/y/z", []byte("x")))
		require.NoError(t, AtomicWrite(ctx, w, "l/x/y/z", []byte("y")))
		require.NoError(t, WriteIfUnchanged(ctx, w, "l/x/y/z", []byte("z"), HashOf([]byte("y"))))
		require.ErrorIs(t, WriteIfUnchanged(ctx, w, "l/x/y/z", []byte("z"), HashOf([]byte("y"))), ErrChanged)
		require.ErrorIs(t, WriteExclusive(ctx, w, "l/x/y/z", []byte("z")), ErrExist)
		require.NoError(t, WriteExclusive(ctx, w, "l/x/y/z2", []byte("z")))
		require.NoError(t, w.Rename(ctx, "l/x/y", "q/r/s"))
		all, err := Glob(ctx, w, "**")
		require.NoError(t, err)
		t.Log(all)
		require.NoError(t, w.RemoveAll(ctx, "q"))
		require.NoError(t, w.RemoveAll(ctx, "d/x"))
	}
}
