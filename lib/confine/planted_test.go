package confine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
				require.ErrorIs(t, err, ErrPlanted)
			}
		})
	}
}

// What was a link when the root was opened, and is a directory when its name is
// looked at, is no root.
func TestRootsThroughSwappedLinks(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/f", "proj/evil => ../out", "out/f")
	stop := attack(t, base+"/proj/d", base+"/proj/evil")
	defer stop()
	var opened, refused int
	for begun := time.Now(); goOn(begun, 500*time.Millisecond, opened > 0 && refused > 0); {
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

func TestPlaceThatWasFoundAndPlaceThatIsThere(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/f", "out/f", "mine => out")
	writable := []string{base + "/proj"}
	assert.NoError(t, Planted(base+"/proj/d/f", base+"/proj/d/f", writable))
	assert.ErrorIs(t, Planted(base+"/proj/d/f", base+"/out/f", writable), ErrMoved)
	assert.NotContains(t, PlantedHint(ErrMoved, base+"/out/f"), "out")
	assert.Equal(t, `name "`+base+`/out/f" itself`, PlantedHint(ErrPlanted, base+"/out/f"))
	assert.NoError(t, Planted(base+"/mine/f", base+"/elsewhere", writable), "nobody who is fenced can change that")
}
