package gitpatch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
)

// entry is a path of a test's tree. The zero entry: nothing is there.
type entry struct {
	mode uint32
	data string
}

func (e entry) side() Side {
	return Side{e.mode, int64(len(e.data)), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(e.data)), nil }}
}

func file(data string) entry   { return entry{Regular, data} }
func script(data string) entry { return entry{Executable, data} }
func link(target string) entry { return entry{Symlink, target} }

var none entry

// written returns the patch of a change that must not fail.
func written(t testing.TB, format objects.Format, path string, old, new entry) (string, bool) {
	t.Helper()
	var out strings.Builder
	complete, err := Write(&out, format, path, old.side(), new.side())
	require.NoError(t, err)
	return out.String(), complete
}

// In the texts, OLD, NEW and NONE stand for names of blobs, and → for a tab.
var golden = []struct {
	name     string
	path     string
	old, new entry
	want     string
}{
	{"line changed", "x", file("a\nb\nc\n"), file("a\nB\nc\n"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,3 +1,3 @@
 a
-b
+B
 c
`},
	{"two hunks", "d/x", file(lines(1, 20)), file("0\n" + lines(1, 18) + "20\n"), `diff --git a/d/x b/d/x
index OLD..NEW 100644
--- a/d/x
+++ b/d/x
@@ -1,3 +1,4 @@
+0
 1
 2
 3
@@ -16,5 +17,4 @@
 16
 17
 18
-19
 20
`},
	{"file created", "x", none, file("a\nb\n"), `diff --git a/x b/x
new file mode 100644
index NONE..NEW
--- /dev/null
+++ b/x
@@ -0,0 +1,2 @@
+a
+b
`},
	{"executable deleted", "x", script("a\n"), none, `diff --git a/x b/x
deleted file mode 100755
index OLD..NONE
--- a/x
+++ /dev/null
@@ -1,1 +0,0 @@
-a
`},
	{"empty file created", "x", none, file(""), `diff --git a/x b/x
new file mode 100644
index NONE..NEW
`},
	{"empty executable created", "x", none, script(""), `diff --git a/x b/x
new file mode 100755
index NONE..NEW
`},
	{"empty file deleted, blanks", "a b/a ", file(""), none, `diff --git a/a b/a  b/a b/a ` + `
deleted file mode 100644
index OLD..NONE
`},
	{"file emptied", "x", file("a\n"), file(""), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,1 +0,0 @@
-a
`},
	{"empty file filled", "x", file(""), file("a"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -0,0 +1,1 @@
+a
\ No newline at end of file
`},
	{"mode", "x", file("a\n"), script("a\n"), `diff --git a/x b/x
old mode 100644
new mode 100755
`},
	{"mode, blanks", "a b/a ", script(""), file(""), `diff --git a/a b/a  b/a b/a ` + `
old mode 100755
new mode 100644
`},
	{"mode and content", "x", script("a\n"), file("b\n"), `diff --git a/x b/x
old mode 100755
new mode 100644
index OLD..NEW
--- a/x
+++ b/x
@@ -1,1 +1,1 @@
-a
+b
`},
	{"final newline lost", "x", file("a\nb\n"), file("a\nb"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,2 +1,2 @@
 a
-b
+b
\ No newline at end of file
`},
	{"final newline gained", "x", file("b"), file("b\n"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,1 +1,1 @@
-b
\ No newline at end of file
+b
`},
	{"no final newline, before and after", "x", file("a\nb"), file("A\nb"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,2 +1,2 @@
-a
+A
 b
\ No newline at end of file
`},
	{"CRLF kept, and lost in one line", "x", file("a\r\nb\r\nc\r\n"), file("a\r\nb\nd\r\n"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,3 +1,3 @@
 a` + "\r" + `
-b` + "\r" + `
-c` + "\r" + `
+b
+d` + "\r" + `
`},
	{"lines like those of a patch", "x", file("-- a/x\n@@ -1 +1 @@\n"), file("++ b/y\n@@ -1 +1 @@\n\\ No newline at end of file\n"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,2 +1,3 @@
--- a/x
+++ b/y
 @@ -1 +1 @@
+\ No newline at end of file
`},
	{"link created", "l", none, link("../to"), `diff --git a/l b/l
new file mode 120000
index NONE..NEW
--- /dev/null
+++ b/l
@@ -0,0 +1,1 @@
+../to
\ No newline at end of file
`},
	{"link elsewhere, newline in the target", "l", link("a\nb"), link("c"), `diff --git a/l b/l
index OLD..NEW 120000
--- a/l
+++ b/l
@@ -1,2 +1,1 @@
-a
-b
\ No newline at end of file
+c
\ No newline at end of file
`},
	{"file becomes link", "x", file("to"), link("to"), `diff --git a/x b/x
deleted file mode 100644
index OLD..NONE
--- a/x
+++ /dev/null
@@ -1,1 +0,0 @@
-to
\ No newline at end of file
diff --git a/x b/x
new file mode 120000
index NONE..NEW
--- /dev/null
+++ b/x
@@ -0,0 +1,1 @@
+to
\ No newline at end of file
`},
	{"link becomes empty executable", "x", link("to"), script(""), `diff --git a/x b/x
deleted file mode 120000
index OLD..NONE
--- a/x
+++ /dev/null
@@ -1,1 +0,0 @@
-to
\ No newline at end of file
diff --git a/x b/x
new file mode 100755
index NONE..NEW
`},
	{"NUL in byte 8001", "x", file("a\n"), file(strings.Repeat("y", 7999) + "\n\x00\n"), `diff --git a/x b/x
index OLD..NEW 100644
--- a/x
+++ b/x
@@ -1,1 +1,2 @@
-a
+` + strings.Repeat("y", 7999) + "\n+\x00\n"},
	{"NUL in byte 8000", "x", file("a\n"), file(strings.Repeat("y", 7999) + "\x00\n"), `diff --git a/x b/x
index OLD..NEW 100644
GIT binary patch
`},
	{"binary created", "x y", none, file("\x00"), `diff --git a/x y b/x y
new file mode 100644
index NONE..NEW
GIT binary patch
`},
	{"binary deleted", "x", file("\x00"), none, `diff --git a/x b/x
deleted file mode 100644
index OLD..NONE
GIT binary patch
`},
	{"binary becomes text, and executable", "x", file("\x00"), script("x\n"), `diff --git a/x b/x
old mode 100644
new mode 100755
index OLD..NEW
GIT binary patch
`},
	{"name with a blank", "a b", file("a\n"), file("b\n"), `diff --git a/a b b/a b
index OLD..NEW 100644
--- a/a b→
+++ b/a b→
@@ -1,1 +1,1 @@
-a
+b
`},
	{"name that ends in a blank, created", "a ", none, file("b\n"), `diff --git a/a  b/a ` + `
new file mode 100644
index NONE..NEW
--- /dev/null
+++ b/a →
@@ -0,0 +1,1 @@
+b
`},
	{"name to be quoted", "\a\b\t\n\v\f\r\"\\\x01\x1f\x7fü\xff", file("a\n"), file("b\n"), `diff --git "a/\a\b\t\n\v\f\r\"\\\001\037\177\303\274\377" "b/\a\b\t\n\v\f\r\"\\\001\037\177\303\274\377"
index OLD..NEW 100644
--- "a/\a\b\t\n\v\f\r\"\\\001\037\177\303\274\377"
+++ "b/\a\b\t\n\v\f\r\"\\\001\037\177\303\274\377"
@@ -1,1 +1,1 @@
-a
+b
`},
	{"name to be quoted, with a blank", "ü ", none, file("b\n"), `diff --git "a/\303\274 " "b/\303\274 "
new file mode 100644
index NONE..NEW
--- /dev/null
+++ "b/\303\274 "→
@@ -0,0 +1,1 @@
+b
`},
	{"name like no file", "dev/null", file("a\n"), none, `diff --git a/dev/null b/dev/null
deleted file mode 100644
index OLD..NONE
--- a/dev/null
+++ /dev/null
@@ -1,1 +0,0 @@
-a
`},
	{"name with wildcards", "-*?[a]{b}'$~", file("a\n"), script("a\n"), `diff --git a/-*?[a]{b}'$~ b/-*?[a]{b}'$~
old mode 100644
new mode 100755
`},
}

func lines(from, to int) string {
	var s strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&s, i)
	}
	return s.String()
}

// The expected texts are git's own, but for the data of binary patches, which git
// compresses in its own way. Each patch applies, and applies in reverse.
func TestGolden(t *testing.T) {
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, objects.SHA1)
			got, complete := written(t, objects.SHA1, c.path, c.old, c.new)
			assert.True(t, complete)
			names := strings.NewReplacer("OLD", r.hash(c.old.data), "NEW", r.hash(c.new.data), "NONE", strings.Repeat("0", 40), "→", "\t")
			assert.Equal(t, names.Replace(c.want), withoutData(got))

			old, new := tree{}, tree{}
			old.set(c.path, c.old)
			new.set(c.path, c.new)
			r.commit(old)
			assert.Equal(t, r.diff(new), withoutData(got))
			r.reset()
			r.apply(got)
			assert.Equal(t, new, r.tree())
			r.apply(got, "--reverse")
			assert.Equal(t, old, r.tree())
		})
	}
}

var data = regexp.MustCompile(`(?m)^(?:literal|delta) \d+\n(?:.+\n)+\n`)

func withoutData(patch string) string { return data.ReplaceAllString(patch, "") }

// With six equal lines between two changes, git writes one hunk.
func TestHunksThatTouch(t *testing.T) {
	old, new := file(lines(1, 20)), file(strings.NewReplacer("\n5\n", "\nfive\n", "\n12\n", "\ntwelve\n").Replace(lines(1, 20)))
	patch, _ := written(t, objects.SHA1, "x", old, new)
	assert.Len(t, hunkHead.FindAllString(patch, -1), 2)
	assert.Contains(t, patch, "\n@@ -2,7 +2,7 @@\n")
	assert.Contains(t, patch, "\n@@ -9,7 +9,7 @@\n")
	r := newRepo(t, objects.SHA1)
	r.commit(tree{"x": old})
	r.apply(patch)
	assert.Equal(t, tree{"x": new}, r.tree())
}

func TestEveryByteInNames(t *testing.T) {
	r := newRepo(t, objects.SHA1)
	old, new := tree{}, tree{}
	for b := 1; b < 256; b++ {
		if b != '/' {
			old[fmt.Sprintf("%02x %c/%s", b, 'a'+b%26, []byte{'n', byte(b), 'n'})] = file(fmt.Sprint(b, "\n"))
		}
	}
	for path, e := range old {
		new[path] = script(e.data + "x\n")
	}
	r.commit(old)
	patch := patchOf(t, objects.SHA1, old, new)
	assert.Equal(t, r.diff(new), patch)
	r.reset()
	r.apply(patch)
	assert.Equal(t, new, r.tree())
}

func TestNoDifference(t *testing.T) {
	for _, e := range []entry{none, file(""), file("a\n"), script("\x00"), link("to"), file(strings.Repeat("x", maxText+1))} {
		patch, complete := written(t, objects.SHA1, "x", e, e)
		assert.Empty(t, patch)
		assert.True(t, complete)
	}
}

func TestLimits(t *testing.T) {
	huge := strings.Repeat(strings.Repeat("z", 63)+"\n", maxText/64)
	short := strings.Repeat("\n", maxLines)
	noise := noise(maxLiteral + 1)
	for _, c := range []struct {
		name     string
		old, new entry
		content  string // the line that begins it; none: the contents only differ
	}{
		{"largest text", file(huge), file("x" + huge[1:]), "--- a/x y\t"},
		{"larger text", file(huge), file(huge + "x"), ""},
		{"larger text before", file(huge + "x"), file("x"), ""},
		{"larger text deleted", file(huge + "x"), none, ""},
		{"most lines", file(short[1:]), file("x" + short[1:]), "--- a/x y\t"},
		{"more lines", file(short[1:]), file("x" + short), "GIT binary patch"},
		{"more lines before", file(short), file("x"), "GIT binary patch"},
		{"largest literal", file("a"), file(noise[1:]), "GIT binary patch"},
		{"larger literal", file("a"), file(noise), ""},
		{"larger literal before", file(noise), file("a"), ""},
		{"larger literal created", none, file(noise), ""},
		{"larger literal, mode only", file(noise), script(noise), "new mode 100755"},
	} {
		t.Run(c.name, func(t *testing.T) {
			patch, complete := written(t, objects.SHA1, "x y", c.old, c.new)
			assert.Equal(t, c.content != "", complete)
			if complete {
				assert.Contains(t, patch, "\n"+c.content+"\n")
				assert.NotContains(t, patch, "Binary files")
				sections := parse(t, patch)
				require.Len(t, sections, 1)
				assert.True(t, c.new.data == sections[0].apply(t, c.old.data), "other content")
				return
			}
			from, to := "a/x y", "b/x y"
			if c.old == none {
				from = "/dev/null"
			}
			if c.new == none {
				to = "/dev/null"
			}
			assert.Regexp(t, "^diff --git a/x y b/x y\n(?:.*\n)?index [0-9a-f]{40}\\.\\.[0-9a-f]{40}(?: 100644)?\nBinary files "+from+" and "+to+" differ\n$", patch)
			r := newRepo(t, objects.SHA1)
			if c.old != none {
				assert.Contains(t, patch, r.hash(c.old.data)+"..")
			}
			if c.new != none {
				assert.Contains(t, patch, ".."+r.hash(c.new.data))
			}
			r.commit(tree{})
			out, err := r.try(patch, "apply", "-")
			assert.Error(t, err, "git applies a patch without content: %s", out)
		})
	}
}

func TestRefused(t *testing.T) {
	broken := errors.New("broken")
	a := file("a\n").side()
	sized := func(n int64) Side { s := a; s.Size = n; return s }
	opens := func(f func() (io.ReadCloser, error)) Side { return Side{Regular, 2, f} }
	for _, c := range []struct {
		name     string
		path     string
		old, new Side
		err      string
	}{
		{"no path", "", Side{}, a, `cannot write a patch of "": no clean relative path`},
		{"absolute path", "/x", Side{}, a, `cannot write a patch of "/x": no clean relative path`},
		{"path upwards", "x/../../y", Side{}, a, `cannot write a patch of "x/../../y": no clean relative path`},
		{"dot", "./x", Side{}, a, `cannot write a patch of "./x": no clean relative path`},
		{"directory", "x/", Side{}, a, `cannot write a patch of "x/": no clean relative path`},
		{"NUL in the path", "x\x00", Side{}, a, `cannot write a patch of "x\x00": no clean relative path`},
		{"directory as a side", "x", Side{Mode: 0o40000}, a, `internal error: "x" has a mode that git does not record: 40000`},
		{"mode of stat(2)", "x", a, Side{Mode: 0o100600}, `internal error: "x" has a mode that git does not record: 100600`},
		{"file shrank", "x", sized(3), a, `cannot read the old "x": its size changed while it was read`},
		{"file grew", "x", a, sized(1), `cannot read the new "x": its size changed while it was read`},
		{"file was empty", "x", a, sized(0), `cannot read the new "x": its size changed while it was read`},
		{"size below zero", "x", a, sized(-1), `cannot read the new "x": its size changed while it was read`},
		{"large file shrank", "x", a, sized(maxText + 1), `cannot read the new "x": its size changed while it was read`},
		{"cannot be opened", "x", a, opens(func() (io.ReadCloser, error) { return nil, broken }), `cannot read the new "x": broken`},
		{"cannot be read", "x", opens(func() (io.ReadCloser, error) { return io.NopCloser(failing{broken}), nil }), a, `cannot read the old "x": broken`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			complete, err := Write(&out, objects.SHA1, c.path, c.old, c.new)
			assert.EqualError(t, err, c.err)
			assert.False(t, complete)
			assert.Empty(t, out.String())
		})
	}
	_, err := Write(failing{broken}, objects.SHA1, "x", Side{}, a)
	assert.EqualError(t, err, `cannot write the patch of "x": broken`)
	_, err = Write(io.Discard, objects.SHA1, "x", Side{}, sized(7))
	assert.ErrorIs(t, err, ErrChanged)
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error)  { return 0, f.error }
func (f failing) Write([]byte) (int, error) { return 0, f.error }

func TestMode(t *testing.T) {
	for stat, want := range map[uint32]uint32{
		0o100600: Regular, 0o100677: Regular, 0o100000: Regular, 0o106644: Regular,
		0o100700: Executable, 0o104755: Executable, 0o100100: Executable,
		0o120777: Symlink, 0o040755: 0, 0o010644: 0, 0o020000: 0, 0o060644: 0, 0o140755: 0, 0: 0,
	} {
		assert.Equal(t, want, Mode(stat), "%o", stat)
	}
	name := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(name, nil, 0o755))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(name, &st))
	assert.EqualValues(t, Executable, Mode(st.Mode))
}

// The bound leaves room for the race detector. Without it the largest allocates 480 MiB, three
// quarters of which are in use at once. In quadratic time these would not end.
func TestBounds(t *testing.T) {
	const long = "a line, number %d, in a file of 10 MB\n"
	many := func(n int, format string) string {
		var s strings.Builder
		for i := range n {
			fmt.Fprintf(&s, format, i)
		}
		return s.String()
	}
	shuffled := func(s string) string {
		l := strings.SplitAfter(strings.TrimSuffix(s, "\n"), "\n")
		random(1).Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		return strings.Join(l, "")
	}
	text := many(270_000, long)
	require.Greater(t, len(text), 10_000_000)
	for _, c := range []struct{ name, old, new string }{
		{"10 MB, each tenth line changed", text, strings.ReplaceAll(text, "7, in", "x, in")},
		{"10 MB, nothing in common", text, many(270_000, "another "+long)},
		{"10 MB, shuffled", text, shuffled(text)},
		{"most lines, two at random", shuffled(strings.Repeat("a\nb\n", maxLines/2-1)), shuffled(strings.Repeat("b\na\n", maxLines/2-2))},
		{"all lines equal", strings.Repeat("same\n", maxLines-1), strings.Repeat("same\n", maxLines/2)},
		{"most and longest lines, nothing in common", many(maxLines-1, "a%030d\n"), many(maxLines-1, "b%030d\n")},
		{"one line", strings.Repeat("x", maxText), strings.Repeat("y", maxText)},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, new := file(c.old).side(), file(c.new).side()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			complete, err := Write(io.Discard, objects.SHA1, "x", old, new)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			assert.True(t, complete)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			assert.Less(t, allocated, uint64(800), "MiB")
			t.Logf("%d MiB", allocated)
		})
	}
}

// A text that is too long for a diff is not called binary.
func TestUnifiedOfLongTexts(t *testing.T) {
	const head = "--- a/f\n+++ b/f\n"
	many := strings.Repeat("a\n", maxLines)
	for _, row := range []struct{ name, old, new, want string }{
		{"all lines", many, strings.Repeat("b\n", maxLines), "lines 1 to 524288 became lines 1 to 524288"},
		{"one line, the first", many, "b" + many[1:], "line 1 became line 1"},
		{"one line, the last", many, many[:len(many)-2] + "b\n", "line 524288 became line 524288"},
		{"the end of the last line", many, many[:len(many)-1], "line 524288 became line 524288"},
		{"lines that are longer", many[:20] + "xay\n" + many, many[:20] + "xbby\n" + many, "line 11 became line 11"},
		{"lines that are added", "1\n" + many, "1\n2\n3\n" + many, "no lines became lines 2 to 3"},
		{"lines that go", "1\n22\n2\n" + many, "1\n2\n" + many, "line 2 became no lines"},
		{"a long line", strings.Repeat("x", maxText) + "1\nend\n", strings.Repeat("x", maxText) + "2\nend\n", "line 1 became line 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, head+"(diff too long to show: "+row.want+")\n", string(Unified("f", "f", []byte(row.old), []byte(row.new))))
		})
	}
	assert.Equal(t, "Binary files a/f and b/f differ\n", string(Unified("f", "f", []byte("\x00"+many), []byte(many))))
	assert.Equal(t, "--- /dev/null\n+++ b/f\n(diff too long to show: no lines became lines 1 to 524288)\n", string(Unified("", "f", nil, []byte(many))))
}
