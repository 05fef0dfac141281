package confine

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/confine/confinetest"
)

func TestRefusals(t *testing.T) {
	base := confinetest.Tree(t, "proj/l => ../secret-place", "proj/loop => loop", "ro/", "rw/", "out/")
	w := workspace(t, base, true)
	for _, row := range []struct {
		name, input string
		mode        Mode
		want, hint  string
	}{
		{"outside, reading", "../out/f", Read,
			`cannot read "../out/f": outside every readable root ("{base}/proj", "{base}/ro", "{base}/rw")`,
			`--readable "{base}/out/f" would allow it`},
		{"outside, writing", "../out/f", Write,
			`cannot write "../out/f": outside every writable root ("{base}/proj", "{base}/rw")`,
			`--writable "{base}/out" would allow it`},
		{"read-only", "../ro/f", Write,
			`cannot write "../ro/f": outside every writable root ("{base}/proj", "{base}/rw")`,
			`--writable "{base}/ro" would allow it`},
		{"nothing would allow it", "/etc/passwd", Write,
			`cannot write "/etc/passwd": outside every writable root ("{base}/proj", "{base}/rw")`, ""},
		{"a link does not say where it leads", "l", Read,
			`cannot read "l": outside every readable root ("{base}/proj", "{base}/ro", "{base}/rw")`, ""},
		{"loop", "loop", Read, `cannot read "loop": too many levels of symbolic links`, ""},
		{"empty", "", Read, `cannot read "": it is empty`, ""},
		{"bytes", "../\x1b[2J\xff", Write,
			`cannot write "../\x1b[2J\xff": outside every writable root ("{base}/proj", "{base}/rw")`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := w.Resolve(row.input, row.mode)
			refusal, ok := errors.AsType[*Refusal](err)
			require.True(t, ok)
			assert.Equal(t, strings.ReplaceAll(row.want, "{base}", base), refusal.Error())
			if row.hint != "" {
				assert.Equal(t, strings.ReplaceAll(row.hint, "{base}", base), refusal.Hint())
			}
			assert.NotContains(t, refusal.Error()+refusal.Hint(), "secret-place")
		})
	}
}

func TestRefusalNamesFewRoots(t *testing.T) {
	r := &Refusal{Path: "x", Err: ErrOutside, roots: []string{"/a", "/b", "/c", "/d", "/e", "/f"}}
	assert.EqualError(t, r, `cannot read "x": outside every readable root ("/a", "/b", "/c", "/d" and 2 more)`)
	r.roots = nil
	assert.EqualError(t, r, `cannot read "x": outside every readable root (there are none)`)
}
