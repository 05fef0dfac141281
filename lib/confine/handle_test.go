package confine

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

func TestLinksThemselves(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/d/f", "proj/in => d/f", "proj/out => ../out/f", "proj/none => nowhere", "proj/loop => loop",
			"proj/dir => d", "proj/outdir => ../out", "out/f")
		require.NoError(t, os.Link(base+"/proj/d/f", base+"/proj/hard"))
		w, err := open(Config{ProjectRoot: base + "/proj", Rules: rules(t, "deny never")}, fsat.Opener{Openat2: openat2})
		require.NoError(t, err)
		defer w.Close()
		for _, row := range []struct {
			name, path, want string
			err              error
		}{
			{"file", "d/f", "/proj/d/f", nil},
			{"missing", "d/new", "/proj/d/new", nil},
			{"link inside", "in", "/proj/in", nil},
			{"link outside", "out", "/proj/out", nil},
			{"link to nothing", "none", "/proj/none", nil},
			{"loop", "loop", "/proj/loop", nil},
			{"link to a directory, with a slash", "dir/", "", unix.ENOTDIR},
			{"file, with a slash", "d/f/", "", unix.ENOTDIR},
			{"directory, with a slash", "d/", "/proj/d", nil},
			{"missing, with a slash", "d/new/", "/proj/d/new", nil},
			{"below a link", "dir/f", "/proj/d/f", nil},
			{"below a link outside", "outdir/f", "", ErrOutside},
			{"dot dot at the end", "d/..", "/proj", nil},
			{"dot dot behind a link", "outdir/../d", "", ErrOutside},
			{"outside", "../out/f", "", ErrOutside},
			{"hard link: only its name is removed", "hard", "/proj/hard", nil},
			{"the root", ".", "/proj", nil},
		} {
			where, err := w.Lookup(row.path, Request{Mode: Write, Itself: true})
			assert.ErrorIs(t, err, row.err, row.name)
			if row.err == nil {
				assert.Equal(t, base+row.want, where, row.name)
			}
		}
	})
}

func TestPermits(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/", "ro/", "ro/rw/")
	w, err := Open(Config{
		ProjectRoot: base + "/proj", Readable: []string{base + "/ro"}, Writable: []string{base + "/ro/rw"},
		Rules: rules(t, "deny secret", "deny-read blind", "allow-write d/**", "allow-write f"),
	})
	require.NoError(t, err)
	for _, row := range []struct {
		path string
		mode Mode
		ok   bool
	}{
		{"/proj", Read, true}, {"/proj/x", Read, true}, {"/proj/x", Write, false}, {"/proj/d/x", Write, true},
		{"/proj/secret/x", Read, false}, {"/proj/secret", Write, false}, {"/proj/blind", Read, false},
		{"/ro/x", Read, true}, {"/ro/d/x", Write, false}, {"/ro/rw/f", Write, true}, {"/projx", Read, false}, {"/", Read, false},
	} {
		err := w.Permits(base+row.path, row.mode)
		assert.Equal(t, row.ok, err == nil, "%v %v: %v", row.mode, row.path, err)
	}
	assert.False(t, w.PermitsAll(w.Roots()[0]))
	w.Close()
	assert.ErrorIs(t, w.Permits(base+"/proj", Read), ErrOutside)
	assert.ErrorIs(t, new(Workspace).Permits("/", Read), ErrOutside)

	free, err := Open(Config{ProjectRoot: base + "/proj", Readable: []string{base + "/ro"}})
	require.NoError(t, err)
	defer free.Close()
	assert.True(t, free.PermitsAll(free.Roots()[0]))
	assert.False(t, free.PermitsAll(free.Roots()[1]), "it is not writable")
}

// TestOpenRoot: OpenRoot returns the directory that was opened, even if it was moved.
func TestOpenRoot(t *testing.T) {
	base := confinetest.Tree(t, "proj/f", "evil/f")
	w, err := Open(Config{ProjectRoot: base + "/proj"})
	require.NoError(t, err)
	root := w.Roots()[0]
	require.NoError(t, os.Rename(base+"/proj", base+"/moved"))
	require.NoError(t, os.Symlink(base+"/evil", base+"/proj"))
	dir, err := w.OpenRoot(root)
	require.NoError(t, err)
	w.Close()
	defer dir.Close()
	var got, want unix.Stat_t
	require.NoError(t, unix.Fstat(int(dir.Fd()), &got))
	require.NoError(t, unix.Stat(base+"/moved", &want))
	assert.Equal(t, want.Ino, got.Ino)
	assert.Equal(t, base+"/proj", dir.Name())
	_, err = w.OpenRoot(root)
	assert.Error(t, err)
}
