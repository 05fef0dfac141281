package confine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
)

func TestRootsThroughPlantedLinks(t *testing.T) {
	base := confinetest.Tree(t, "proj/in/", "proj/out => {base}/secret", "proj/deep/out => ../../secret", "proj/inside => in",
		"proj/round => {base}/proj/in", "proj/twice => out", "secret/", "mine => secret", "also/", "also/x => {base}/proj/in")
	for _, test := range []struct {
		name, root string
		refused    bool
	}{
		{"a directory", "/proj/in", false},
		{"a link that stays", "/proj/inside", false},
		{"an absolute link that stays", "/proj/round", false},
		{"a link out of the caller's own", "/mine", false},
		{"a link out", "/proj/out", true},
		{"a relative link out", "/proj/deep/out", true},
		{"a link to a link out", "/proj/twice", true},
		{"a link out with more behind it", "/proj/out/.", true},
		{"a link out and back by a name of the caller's", "/proj/out/../proj/in", false},
		{"a link from one writable root to another", "/also/x", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, cfg := range []Config{
				{ProjectRoot: base + "/proj", Readable: []string{base + test.root}, Writable: []string{base + "/also"}},
				{ProjectRoot: base + "/proj", Writable: []string{base + test.root, base + "/also"}},
				{ProjectRoot: base + "/proj", Writable: []string{base + "/also"}, Temp: base + test.root},
			} {
				w, err := Open(cfg)
				if !test.refused {
					require.NoError(t, err)
					w.Close()
					continue
				}
				require.ErrorIs(t, err, ErrEscapes)
			}
		})
	}
}

// A link that becomes a directory while a root is opened, and back, never makes a
// root of another place.
func TestRootsThroughSwappedLinks(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/f", "proj/evil => ../out", "out/f")
	stop := attack(t, base+"/proj/d", base+"/proj/evil")
	defer stop()
	var opened, refused int
	for begun := time.Now(); goOn(begun, confinetest.Share(500*time.Millisecond), opened > 0 && refused > 0); {
		for _, cfg := range []Config{
			{ProjectRoot: base + "/proj", Readable: []string{base + "/proj/d"}},
			{ProjectRoot: base + "/proj", Temp: base + "/proj/d"},
		} {
			w, err := Open(cfg)
			if err != nil {
				refused++
				continue
			}
			opened++
			for _, r := range w.Roots() {
				require.Contains(t, []string{base + "/proj", base + "/proj/d"}, r.Path)
			}
			w.Close()
		}
	}
	t.Logf("%d opened, %d refused", opened, refused)
	assert.NotZero(t, opened)
	assert.NotZero(t, refused)
}

func TestFollow(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/f", "proj/up => ..", "proj/abs => {base}/proj/d", "mine => proj/abs", "loop => loop", "gone => none/../proj", "out/f")
	place := func(name string) string { return base + name }
	for _, row := range []struct {
		name, path, want string
		links            []Link
		lies             bool
	}{
		{"no link", "/proj/d/f", "/proj/d/f", nil, true},
		{"no link, outside", "/out/f", "/out/f", nil, false},
		{"chain", "/mine/f", "/proj/d/f", []Link{{place("/mine"), "proj/abs"}, {place("/proj/abs"), place("/proj/d")}}, true},
		{"link in a writable root, out of it", "/proj/up/out", "/out", []Link{{place("/proj/up"), ".."}}, true},
		{"through a writable root and out by dots", "/proj/d/../../out/f", "/out/f", nil, true},
		{"missing end", "/mine/new/x", "/proj/d/new/x", []Link{{place("/mine"), "proj/abs"}, {place("/proj/abs"), place("/proj/d")}}, true},
		{"missing name, left again", "/gone/d", "/proj/d", []Link{{place("/gone"), "none/../proj"}}, true},
	} {
		trail, err := Follow(place(row.path))
		require.NoError(t, err, row.name)
		assert.Equal(t, place(row.want), trail.Place, row.name)
		assert.Equal(t, row.links, trail.Links, row.name)
		assert.Equal(t, row.links, Links(place(row.path)), row.name)
		_, lies := trail.LiesIn([]string{place("/proj")})
		assert.Equal(t, row.lies, lies, row.name)
		_, lies = LiesIn(place(row.path), []string{place("/proj")})
		assert.Equal(t, row.lies, lies, row.name)
	}
	trail, err := Follow(place("/loop/x/y"))
	assert.ErrorIs(t, err, unix.ELOOP)
	assert.Equal(t, place("/loop/x/y"), trail.Place, "as far as it came, and the rest")
	assert.Len(t, trail.Links, maxLinks+1, "the last was one too many")
	t.Chdir(base + "/proj")
	trail, err = Follow("up/out")
	require.NoError(t, err)
	assert.Equal(t, place("/out"), trail.Place)
	_, err = Follow("")
	assert.ErrorIs(t, err, ErrNoName)
}
