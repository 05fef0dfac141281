package gitpatch

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/gitdir/objects"
)

// someEntry returns a random entry, and one like before in some.
func someEntry(r *rand.Rand, before entry) entry {
	mode := []uint32{Regular, Regular, Executable}[r.Intn(3)]
	switch r.Intn(12) {
	case 0:
		return none
	case 1:
		return entry{mode, ""}
	case 2:
		return link([]string{"to", "../ö x", "a\nb", "/etc/passwd", "-"}[r.Intn(5)])
	case 3:
		return entry{mode, noise(1 + r.Intn(300))}
	case 4:
		return entry{mode, noise(20_000+r.Intn(9)) + before.data}
	case 5:
		return entry{mode, strings.Repeat("z", sniffed) + "\x00" + before.data}
	case 6:
		if before.mode == Regular || before.mode == Executable {
			return entry{mode, before.data}
		}
	case 7, 8:
		return entry{mode, someText(r, r.Intn(60))}
	}
	l := strings.SplitAfter(before.data, "\n")
	for range r.Intn(6) {
		i := r.Intn(len(l))
		l[i] = []string{"", someText(r, 1), l[i] + someText(r, 3), strings.ReplaceAll(l[i], "\n", "\r\n")}[r.Intn(4)]
	}
	return entry{mode, strings.Join(l, "")}
}

// someText has lines that occur often, and in some texts no final newline or CRLF.
func someText(r *rand.Rand, n int) string {
	var s strings.Builder
	for range n {
		s.WriteString([]string{"\n", "}\n", "\treturn\n", "-- a\n", "++ b\n", "@@ -1 +1 @@\n", "\\ No newline at end of file\n", "\xff ä\n", fmt.Sprint(r.Intn(40), "\n"), fmt.Sprint(r.Intn(9999), "\n")}[r.Intn(10)])
	}
	text := s.String()
	if r.Intn(4) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	if r.Intn(4) == 0 {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

var oddNames = []string{
	"plain", "with blank", "ends in one ", " begins", "tab\there", "new\nline", "\n", `quo"te`, `back\slash`, "ümlaut", "\xff\xfe", "a b/a", "-dash",
	"dev/null", "cr\r", "{x}*?[y]", "\x7f\x01", "a/b/c/d/e", "x b/x", "--- a", "'", "a/a b/a", "...", strings.Repeat("long", 60),
}

func TestRandomChanges(t *testing.T) {
	for seed := range int64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := random(seed)
			format := []objects.Format{objects.SHA1, objects.SHA256}[seed%2]
			old, new := tree{}, tree{}
			for i := range 24 {
				path := fmt.Sprint(i, oddNames[rnd.Intn(len(oddNames))])
				was := someEntry(rnd, file(someText(rnd, 30)))
				old.set(path, was)
				new.set(path, someEntry(rnd, was))
			}
			r := newRepo(t, format)
			r.commit(old)
			patch := patchOf(t, format, old, new)

			r.apply(patch)
			assert.Equal(t, new, r.tree())
			r.apply(patch, "--reverse")
			assert.Equal(t, old, r.tree())
			r.reset()
			r.apply(patch, "--3way")
			assert.Equal(t, new, r.tree())

			// Lines aside, the text is git's own.
			theirs, ours := heads(t, r.diff(new)), heads(t, patch)
			assert.Equal(t, theirs, ours)
			sections := parse(t, patch)
			for path, e := range new {
				if id := r.hash(e.data); e != old[path] {
					assert.True(t, slices.ContainsFunc(sections, func(s section) bool {
						return s.path == path && (s.newID == id || s.newID == "" && old[path].data == e.data)
					}), "%q: no patch has %s", path, id)
				}
			}
		})
	}
}

// heads are the lines of a patch that are not lines of a file.
func heads(t testing.TB, patch string) []string {
	var all []string
	for _, s := range parse(t, patch) {
		all = append(all, s.head...)
	}
	return all
}

// The user's tree has moved on since the change began.
func TestThreeWay(t *testing.T) {
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	base := lines(1, 40)
	replaced := func(old, new string) string { return strings.Replace(base, "\n"+old+"\n", "\n"+new+"\n", 1) }
	for _, c := range []struct {
		name        string
		path        string
		old, new    entry
		moved, want entry
		plain       bool // git apply does it too
		conflict    bool
	}{
		{"lines added before", "x", file(base), file(replaced("20", "twenty")), file("0\n" + base), file("0\n" + replaced("20", "twenty")), true, false},
		{"context changed", "x", file(base), file(replaced("20", "twenty")), file(replaced("18", "eighteen")), file(strings.Replace(replaced("20", "twenty"), "18", "eighteen", 1)), false, false},
		{"context changed, CRLF", "x", file(crlf(base)), file(crlf(replaced("20", "twenty"))), file(crlf(replaced("18", "eighteen"))), file(crlf(strings.Replace(replaced("20", "twenty"), "18", "eighteen", 1))), false, false},
		{"context changed, odd name, mode", "ä \n", file(base), script(replaced("20", "twenty")), file(replaced("18", "eighteen")), script(strings.Replace(replaced("20", "twenty"), "18", "eighteen", 1)), false, false},
		{"context changed, no final newline", "x", file(base + "41"), file(base + "forty-one"), file(replaced("39", "y") + "41"), file(replaced("39", "y") + "forty-one"), false, false},
		{"same change made", "x", file(base), file(replaced("20", "twenty")), file(replaced("20", "twenty")), file(replaced("20", "twenty")), false, false},
		{"same binary change made", "x", file("\x00a"), file("\x00b"), file("\x00b"), file("\x00b"), false, false},
		{"mode changed, content moved on", "x", file(base), script(base), file(replaced("1", "one")), script(replaced("1", "one")), true, false},
		{"line changed on both sides", "x", file(base), file(replaced("20", "a")), file(replaced("20", "b")), file(replaced("20", "<<<<<<< ours\nb\n=======\na\n>>>>>>> theirs")), false, true},
	} {
		for _, format := range []objects.Format{objects.SHA1, objects.SHA256} {
			t.Run(fmt.Sprintf("%d/%s", format.Size(), c.name), func(t *testing.T) {
				t.Parallel()
				patch, complete := written(t, format, c.path, c.old, c.new)
				require.True(t, complete)
				r := newRepo(t, format)
				r.commit(tree{c.path: c.old})
				r.commit(tree{c.path: c.moved})
				_, err := r.try(patch, "apply")
				assert.Equal(t, c.plain, err == nil, "plain git apply")
				r.reset()
				out, err := r.try(patch, "apply", "--3way")
				assert.Equal(t, c.conflict, err != nil, out)
				assert.Equal(t, tree{c.path: c.want}, r.tree())
			})
		}
	}
}
