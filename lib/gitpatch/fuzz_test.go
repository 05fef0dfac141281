package gitpatch

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/gitdir/objects"
)

var unclean = regexp.MustCompile(`(?s)(^|/)(|\.|\.\.)(/|$)|\x00`)

// FuzzWrite applies each patch to its old content, without git.
func FuzzWrite(f *testing.F) {
	add := func(path string, old, new entry) {
		if len(old.data)+len(new.data) < 1000 { // go test takes a minute to shorten a long one
			f.Add(path, old.mode, new.mode, old.data, new.data, len(path)%2 == 0)
		}
	}
	for _, c := range golden {
		add(c.path, c.old, c.new)
	}
	r := random(1)
	for _, name := range append([]string{"..", "a//b", "\x00"}, oddNames...) {
		old := someEntry(r, file(someText(r, 30)))
		add(name, old, someEntry(r, old))
	}
	f.Fuzz(func(t *testing.T, path string, oldMode, newMode uint32, oldData, newData string, sha256 bool) {
		modes := []uint32{0, Regular, Executable, Symlink}
		format := objects.SHA1
		if sha256 {
			format = objects.SHA256
		}
		side := func(mode uint32, data string) entry {
			switch {
			case mode == Regular || mode == Executable || mode == Symlink:
				return entry{mode, data}
			case mode%4 == 0:
				return none
			}
			return entry{modes[mode%4], data}
		}
		old, new := side(oldMode, oldData), side(newMode, newData)
		if len(old.data) > maxLiteral || len(new.data) > maxLiteral {
			return
		}
		var out strings.Builder
		complete, err := Write(&out, format, path, old.side(), new.side())
		if unclean.MatchString(path) {
			require.Error(t, err)
			require.Empty(t, out.String())
			return
		}
		require.NoError(t, err)
		require.True(t, complete)

		at, zeros := old, strings.Repeat("00", format.Size())
		id := func(e entry) string {
			if e == none {
				return zeros
			}
			h := format.New()
			fmt.Fprintf(h, "blob %d\x00%s", len(e.data), e.data)
			return fmt.Sprintf("%x", h.Sum(nil))
		}
		for _, s := range parse(t, out.String()) {
			require.Equal(t, path, s.path)
			after := entry{data: s.apply(t, at.data)}
			if s.newMode != "" {
				mode, err := strconv.ParseUint(s.newMode, 8, 32)
				require.NoError(t, err)
				after.mode = uint32(mode)
			}
			if s.oldMode != "" {
				require.Equal(t, fmt.Sprintf("%o", at.mode), s.oldMode)
			} else {
				require.Equal(t, none, at)
			}
			if s.oldID+s.newID != "" {
				require.Equal(t, id(at), s.oldID)
				require.Equal(t, id(after), s.newID)
			} else {
				require.Equal(t, at.data, after.data)
			}
			at = after
		}
		require.Equal(t, new, at)
	})
}
