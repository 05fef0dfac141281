package edit

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

// TestFindAgainstAModel: find agrees with comparing at every place.
func TestFindAgainstAModel(t *testing.T) {
	letters := []string{"a\n", "b\n", "a \n", " a\n", "b\r\n", "-\n", "\u2013\n", "\n", "a"}
	some := func(n int) (lines []string) {
		for range n {
			lines = append(lines, letters[rand.IntN(len(letters))])
		}
		return lines
	}
	found := 0
	for range 3000 {
		text := &target{lines: some(rand.IntN(60))}
		for range 4 {
			lines, f, from, most := some(1+rand.IntN(4)), fit(rand.IntN(int(fits))), rand.IntN(10), 1+rand.IntN(5)
			if len(text.lines) > 9 && rand.IntN(2) == 0 {
				at := rand.IntN(len(text.lines) - 5)
				lines = text.lines[at : at+1+rand.IntN(5)]
			}
			var want []int
			for at := from; at < len(text.lines) && len(want) < most; at++ {
				if text.fits(at, lines, f) {
					want = append(want, at)
				}
			}
			found += len(want)
			require.Equal(t, want, text.find(from, lines, f, most), "%q from %d in %q by %d", lines, from, text.lines, f)
		}
	}
	assert.Greater(t, found, 1000)
}

// spent is the time of the processor that fn takes, of this and all other goroutines.
func spent(t *testing.T, fn func()) time.Duration {
	now := func() time.Duration {
		var u unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := now()
	fn()
	return now() - before
}

func deleted(n int, text string) (lines []line) {
	for range n {
		lines = append(lines, line{'-', text})
	}
	return lines
}

// TestManyEqualLines: a long hunk in a long text of the same lines takes no time to find,
// or to find missing.
func TestManyEqualLines(t *testing.T) {
	const length = 4000
	runs := strings.Repeat(strings.Repeat("x\n", length-1)+"y\n", 100)
	for _, row := range []struct {
		name, text string
		lines      []line
		says       string
	}{
		{"in many places", strings.Repeat("x\n", 400_000), deleted(length, "x\n"), "hunk 1 fits in several places: lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and so on"},
		{"in none", runs, deleted(length, "x\n"), `hunk 1: its lines are not there, the first of which is "x"`},
		{"in one, the last", runs + "x\n", append(append(deleted(1, "y\n"), line{'-', "x\n"}), line{'-', "z\n"}), `hunk 1: its lines are not there, the first of which is "y"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			took := spent(t, func() {
				_, err := applied([]byte(row.text), []hunk{{lines: row.lines}}, true)
				assert.EqualError(t, err, row.says)
			})
			assert.Less(t, took, 5*time.Second)
		})
	}
}

// TestManyHunks: many hunks with one place each are found without reading the text for
// each. If all lines of a hunk are in too many places, the search ends.
func TestManyHunks(t *testing.T) {
	var text, want strings.Builder
	var hunks []hunk
	for i := range 100_000 {
		fmt.Fprintf(&text, "%d\nsame\n", i)
		want.WriteString("same\n")
		hunks = append(hunks, hunk{lines: []line{{'-', fmt.Sprintf("%d\n", i)}, {' ', "same\n"}}})
	}
	took := spent(t, func() {
		got, err := applied([]byte(text.String()), hunks, false)
		require.NoError(t, err)
		assert.True(t, want.String() == string(got))
	})
	assert.Less(t, took, 10*time.Second)

	over := &target{lines: []string{"x\n", "y\n"}, tries: maxTries}
	_, e := over.locate(hunk{lines: deleted(1, "y\n")}, true)
	require.NotNil(t, e)
	assert.Equal(t, "its lines, and those of the hunks before it, are in too many places to compare them all", e.Why)
	_, err := applied([]byte(strings.Repeat("\n", maxLines)), []hunk{{lines: deleted(1, "y\n")}}, true)
	assert.EqualError(t, err, "hunk 1: the file has more than 2097152 lines")

}

// TestManyFiles: the files of a patch are not compared with each other.
func TestManyFiles(t *testing.T) {
	var text strings.Builder
	text.WriteString("*** Begin Patch\n")
	for i := range 60_000 {
		fmt.Fprintf(&text, "*** Add File: %s%d\n", strings.Repeat("n", 100), i)
	}
	text.WriteString("*** End Patch\n")
	ws := workspace.NewMemWorkspace()
	took := spent(t, func() {
		changes, err := Parse(text.String())
		require.NoError(t, err)
		plan, err := Check(t.Context(), changes, In(ws))
		require.NoError(t, err)
		assert.Len(t, plan.Files(), 60_000)
	})
	assert.Less(t, took, 8*time.Second)
}
