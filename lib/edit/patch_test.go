package edit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

// tree returns the files of a directory, with the modes of executable files.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		if e.Name() == ".git" {
			return filepath.SkipDir
		}
		if e.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		if info.Mode()&0o100 != 0 {
			text = append(text, "(x)"...)
		}
		files[strings.TrimPrefix(path, dir+"/")] = string(text)
		return nil
	}))
	return files
}

func apply(t testing.TB, ws workspace.Workspace, text string) error {
	changes, err := Parse(text)
	if err != nil {
		return err
	}
	plan, err := Check(t.Context(), changes, In(ws))
	if err != nil {
		return err
	}
	return plan.Apply(t.Context())
}

// TestPatch patches two files: a has the lines 1 to 9, crlf has the lines a and b.
func TestPatch(t *testing.T) {
	const begin, end = "*** Begin Patch\n", "*** End Patch\n"
	for _, row := range []struct {
		name, patch string
		path, want  string // want "-" for a file that is missing
		says        string
	}{
		{"plain", "--- a\t2026-01-01\n+++ a\t2026-01-02\n@@ -1,2 +1,2 @@\n 1\n-2\n+two\n", "a", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"with prefixes", "--- a/a\n+++ b/a\n@@ -2 +2 @@\n-2\n+two\n", "a", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"git's, with words around it", "From: me\n\nSubject\n---\n a | 2 +-\n\ndiff --git a/a b/a\nindex 123..456 100644\n--- a/a\n+++ b/a\n@@ -9 +9,2 @@ 8\n 9\n+10\n-- \n2.39\n", "a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", ""},
		{"further down than it says", "--- a/a\n+++ b/a\n@@ -1,2 +1,1 @@\n-5\n 6\n@@ -3,2 +2,3 @@\n 7\n+x\n 8\n", "a", "1\n2\n3\n4\n6\n7\nx\n8\n9\n", ""},
		{"a new file", "--- /dev/null\n+++ b/m/new\n@@ -0,0 +1,2 @@\n+x\n+y\n\\ No newline at end of file\n", "m/new", "x\ny", ""},
		{"an empty new file", "diff --git a/new b/new\nnew file mode 100755\nindex 0000000..e69de29\n", "new", "(x)", ""},
		{"a mode", "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n", "a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n(x)", ""},
		{"deleted", "--- a/a\n+++ /dev/null\n@@ -1,9 +0,0 @@\n-1\n-2\n-3\n-4\n-5\n-6\n-7\n-8\n-9\n", "a", "-", ""},
		{"deleted, none of it", "diff --git a/a b/a\ndeleted file mode 100644\n", "", "", `cannot patch "a": hunk 1: the file has more lines than the patch deletes`},
		{"deleted, not all of it", "--- a/a\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-1\n", "", "", `cannot patch "a": hunk 1: the file has more lines than the patch deletes`},
		{"moved", "diff --git a/a b/d/b\nsimilarity index 90%\nrename from a\nrename to d/b\n--- a/a\n+++ b/d/b\n@@ -1 +1 @@\n-1\n+one\n", "d/b", "one\n2\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"moved as it is", "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n", "a", "-", ""},
		{"a quoted name", "--- \"a/n\\303\\251w\"\n+++ \"b/n\\303\\251w\"\n@@ -1 +1 @@\n-a\n+b\n", "", "", `cannot patch "néw": not found`},
		{"a name with blanks", "diff --git a/x y b/x y\nnew file mode 100644\n--- /dev/null\n+++ b/x y\t\n@@ -0,0 +1 @@\n+x\n", "x y", "x\n", ""},
		{"an empty context line without its blank", "--- e\n+++ e\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "e", "a\n\nc\n", ""},
		{"no newline at the end, and the patch does not know", "--- n\n+++ n\n@@ -1,2 +1,3 @@\n a\n b\n+c\n", "n", "a\nb\nc\n", ""},
		{"no newline at the end", "--- n\n+++ n\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "n", "a\nc", ""},
		{"CRLF, given as LF", "--- crlf\n+++ crlf\n@@ -1,2 +1,3 @@\n a\n+x\n b\n", "crlf", "a\r\nx\r\nb\r\n", ""},
		{"CRLF, given as it is", "--- crlf\n+++ crlf\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\n", "crlf", "a\r\nc\n", ""},
		{"hunk with CRLF, of a file with LF", "--- a\n+++ a\n@@ -1 +1,2 @@\n 1\r\n+x\r\n", "", "", `cannot patch "a": hunk 1: its lines are there with other ends: CR LF in place of LF, or the reverse`},
		{"LF, of a file with both", "--- mixed\n+++ mixed\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "", "", `cannot patch "mixed": hunk 1: its lines are there with other ends: CR LF in place of LF, or the reverse`},
		{"both, of a file with both", "--- mixed\n+++ mixed\n@@ -1,2 +1,2 @@\n a\r\n-b\n+c\n", "mixed", "a\r\nc\n", ""},
		{"to LF, of a file with LF", "--- a\n+++ a\n@@ -1 +1 @@\n-1\r\n+1\n", "", "", `cannot patch "a": hunk 1: its lines are there with other ends: CR LF in place of LF, or the reverse`},
		{"all of it with CRLF, of a file with LF", "--- a\r\n+++ a\r\n@@ -1 +1,2 @@\r\n 1\r\n+x\r\n", "a", "1\nx\n2\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"lines that are not there", "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-x\n+y\n", "", "", `cannot patch "a": hunk 1: its lines are not there, the first of which is "1"`},
		{"in several places", "--- t\n+++ t\n@@ -9 +9 @@\n-x\n+y\n", "", "", `cannot patch "t": hunk 1 fits in several places: lines 1, 3, 5`},
		{"in several places, one of which it says", "--- t\n+++ t\n@@ -3 +3 @@\n-x\n+y\n", "t", "x\n-\ny\n-\nx\n", ""},
		{"too few lines", "--- a\n+++ a\n@@ -1,3 +1,3 @@\n 1\n", "", "", `line 3 of the patch: the hunk has other lines than "@@ -1,3 +1,3 @@" says: count them anew`},
		{"too many lines", "--- a\n+++ a\n@@ -1,1 +1,1 @@\n 1\n+2\n", "", "", `line 3 of the patch: the hunk has other lines than "@@ -1,1 +1,1 @@" says: count them anew`},
		{"no file", "@@ -1 +1 @@\n-1\n+2\n", "", "", "line 1 of the patch: a hunk has no file: lines with --- and +++ are missing"},
		{"no hunk", "--- a\n+++ a\n", "", "", `line 3 of the patch: "a" has no hunk: a line like @@ -1,3 +1,4 @@ is missing`},
		{"no patch", "hello\n", "", "", errNoPatch.Error()},
		{"binary", "diff --git a/a b/a\nindex 1..2 100644\nGIT binary patch\nliteral 0\n", "", "", "line 3 of the patch: it changes a binary file, which is not supported"},
		{"a link", "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "", "", "line 2 of the patch: it is about a symbolic link, which is not supported"},
		{"a copy", "diff --git a/a b/c\nsimilarity index 100%\ncopy from a\ncopy to c\n", "", "", "line 3 of the patch: it copies a file, which is not supported"},
		{"an overflow", "--- a\n+++ a\n@@ -1,99999999999999999999 +1 @@\n", "", "", `line 3 of the patch: "@@ -1,99999999999999999999 +1 @@" is no header of a hunk, such as @@ -1,3 +1,4 @@`},
		{"moved onto a file", "diff --git a/a b/e\nsimilarity index 100%\nrename from a\nrename to e\n", "", "", `cannot patch "e": already exists`},
		{"moved outside", "diff --git a/a b/../e\nsimilarity index 100%\nrename from a\nrename to ../e\n", "", "", `cannot patch "../e": path traversal denied: it leaves the root through ".."`},
		{"made twice", "--- /dev/null\n+++ a\n@@ -0,0 +1 @@\n+x\n", "", "", `cannot patch "a": already exists`},
		{"changed twice", "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n--- d/../a\n+++ d/../a\n@@ -1 +1 @@\n-1\n+2\n", "", "", `cannot patch "d/../a": hunk 1: its lines are not there, the first of which is "1"`},
		{"outside", "--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n", "", "", `cannot patch "../x": path traversal denied: it leaves the root through ".."`},
		{"absolute", "--- /dev/null\n+++ /etc/x\n@@ -0,0 +1 @@\n+x\n", "", "", `cannot patch "/etc/x": path traversal denied: it is absolute`},
		{"in a git directory", "--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n", "", "", `cannot patch ".git/hooks/x": access denied: it lies in a git directory`},
		{"all or nothing", "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n--- none\n+++ none\n@@ -1 +1 @@\n-1\n+2\n", "", "", `cannot patch "none": not found`},

		{"envelope: update", begin + "*** Update File: a\n@@\n 2\n-3\n+three\n" + end, "a", "1\n2\nthree\n4\n5\n6\n7\n8\n9\n", ""},
		{"envelope: without @@", begin + "*** Update File: a\n-3\n+three\n" + end, "a", "1\n2\nthree\n4\n5\n6\n7\n8\n9\n", ""},
		{"envelope: add", begin + "*** Add File: d/n\n+x\n+\n" + end, "d/n", "x\n\n", ""},
		{"envelope: add an empty file", begin + "*** Add File: n2\n" + end, "n2", "", ""},
		{"envelope: delete", begin + "*** Delete File: a\n" + end, "a", "-", ""},
		{"envelope: move", begin + "*** Update File: a\n*** Move to: d/b\n@@\n-1\n+one\n" + end, "d/b", "one\n2\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"envelope: context", begin + "*** Update File: t\n@@ x\n@@ -\n-x\n+y\n" + end, "t", "x\n-\ny\n-\nx\n", ""},
		{"envelope: several places", begin + "*** Update File: t\n@@\n-x\n+y\n" + end, "", "", `cannot patch "t": hunk 1 fits in several places: lines 1, 3, 5`},
		{"envelope: at the end", begin + "*** Update File: t\n@@\n-x\n+y\n*** End of File\n" + end, "t", "x\n-\nx\n-\ny\n", ""},
		{"envelope: only added, at the end", begin + "*** Update File: n\n@@\n+c\n" + end, "n", "a\nb\nc\n", ""},
		{"envelope: only added, behind a line", begin + "*** Update File: a\n@@ 1\n+x\n" + end, "a", "1\nx\n2\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"envelope: blanks at the ends of lines", begin + "*** Update File: w\n@@\n a\n-b\n+c\n" + end, "w", "a  \nc\n", ""},
		{"envelope: dashes", begin + "*** Update File: dash\n@@\n-a - 'b'\n+c\n" + end, "dash", "c\n", ""},
		{"envelope: a context that is not there", begin + "*** Update File: a\n@@ nope\n-3\n+x\n" + end, "", "", `cannot patch "a": hunk 1: its line "@@ nope" is not there`},
		{"envelope: no end", begin + "*** Delete File: a\n", "", "", `line 3 of the patch: "*** End Patch" is missing`},
		{"envelope: an odd line", begin + "*** Update File: a\n@@\n=3\n" + end, "", "", `line 4 of the patch: "=3" begins with neither a blank nor + nor -`},
		{"envelope: an odd file", begin + "*** Rename File: a\n" + end, "", "", `line 2 of the patch: "*** Rename File: a" begins no file: *** Add File: NAME, *** Update File: NAME or *** Delete File: NAME would`},
		{"envelope: nothing", begin + end, "", "", errNoPatch.Error()},
		{"envelope: an update of nothing", begin + "*** Update File: a\n" + end, "", "", `line 3 of the patch: "a" has no hunk`},
		{"envelope: over a file", begin + "*** Add File: a\n+x\n" + end, "", "", `cannot patch "a": already exists`},
	} {
		t.Run(row.name, func(t *testing.T) {
			ws, dir := open(t)
			for name, text := range map[string]string{
				"a": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "crlf": "a\r\nb\r\n", "mixed": "a\r\nb\n", "e": "a\n\nb\n", "n": "a\nb", "t": "x\n-\nx\n-\nx\n", "w": "a  \nb\t\n", "dash": "a \u2013 \u2018b\u2019\n",
			} {
				require.NoError(t, os.WriteFile(dir+"/"+name, []byte(text), 0o644))
			}
			before := tree(t, dir)
			err := apply(t, ws, row.patch)
			after := tree(t, dir)
			if row.says != "" {
				assert.EqualError(t, err, row.says)
				assert.Equal(t, before, after)
				return
			}
			require.NoError(t, err)
			got, there := after[row.path]
			if !there {
				got = "-"
			}
			assert.Equal(t, row.want, got)
		})
	}
}

// TestPatchesOfGit: the output of git diff turns the old tree into the new one.
func TestPatchesOfGit(t *testing.T) {
	ws, dir := open(t)
	git := func(args ...string) string { return git(t, dir, args...) }
	git("init", "-q")
	names := []string{"a", "b c", "d/e", "d/f\"g", "é", "h\ti", "x.sh"}
	change := func() {
		for _, name := range names {
			file := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			text, _ := os.ReadFile(file)
			lines := strings.SplitAfter(string(text), "\n")
			switch rand.IntN(6) {
			case 0:
				_ = os.Remove(file)
				continue
			case 1:
				require.NoError(t, os.WriteFile(file, text, 0o644))
				require.NoError(t, os.Chmod(file, []os.FileMode{0o644, 0o755}[rand.IntN(2)]))
				continue
			case 2:
				lines = append(lines, strings.Repeat(fmt.Sprintf("line %d\n", rand.IntN(3)), 1+rand.IntN(20)))
			}
			for range rand.IntN(4) {
				at := rand.IntN(len(lines))
				lines[at] = []string{"", "x\n", "y\r\n", fmt.Sprintf("%d\n", rand.IntN(9)), "\n", "-- \n", "--- a\n", "+++ b\n"}[rand.IntN(8)]
			}
			require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644))
		}
	}
	commit := func() {
		git("add", "-A")
		git("commit", "-q", "--allow-empty", "-m", "x")
	}
	change()
	change()
	commit()
	for range 15 {
		old := tree(t, dir)
		change()
		new := tree(t, dir)
		git("add", "-A", "-N")
		options := [][]string{{}, {"-U0"}, {"--no-prefix"}, {"-M"}, {"-U10", "--full-index"}}[rand.IntN(5)]
		patch := git(append([]string{"diff", "--no-ext-diff", "--no-renames"}, append(options, "HEAD")...)...)
		git("add", "-A")
		git("reset", "-q", "--hard")
		require.Equal(t, old, tree(t, dir))
		if patch != "" {
			require.NoError(t, apply(t, ws, patch), patch)
		}
		require.Equal(t, new, tree(t, dir), patch)
		commit()
	}
}

// TestPatchMeanwhile: another process replaces a file during Apply. That file keeps its new
// content. Apply changes either all other files or none.
func TestPatchMeanwhile(t *testing.T) {
	ws, dir := open(t)
	refused := 0
	for i := range 60 {
		for _, name := range []string{"a", "b", "c"} {
			put(t, dir+"/"+name, "old\n")
		}
		_ = os.Remove(dir + "/new")
		changes, err := Parse("--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new\n--- /dev/null\n+++ new\n@@ -0,0 +1 @@\n+x\n--- b\n+++ b\n@@ -1 +1 @@\n-old\n+new\n--- c\n+++ c\n@@ -1 +1 @@\n-old\n+new\n")
		require.NoError(t, err)
		plan, err := Check(t.Context(), changes, In(ws))
		require.NoError(t, err)
		own := fmt.Sprintf("own %d\n", i)
		put(t, dir+"/own", own)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, os.Rename(dir+"/own", dir+"/b")) })
		err = plan.Apply(t.Context())
		wg.Wait()
		want := map[string]string{"a": "new\n", "b": own, "c": "new\n", "new": "x\n"}
		if err != nil {
			require.ErrorIs(t, err, workspace.ErrChanged)
			require.Contains(t, err.Error(), "put back")
			want = map[string]string{"a": "old\n", "b": own, "c": "old\n"}
			refused++
		}
		got := tree(t, dir)
		if err == nil && got["b"] == "new\n" {
			t.Fatal("the user's own version is lost")
		}
		require.Equal(t, want, got, "%v", err)
	}
	t.Logf("refused %d times", refused)
}

// A step in the middle fails: Apply puts back the files of the steps before it.
func TestPutBack(t *testing.T) {
	ws, dir := open(t)
	put(t, dir+"/a", "1\n")
	put(t, dir+"/b", "1\n")
	changes, err := Parse("--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\ndiff --git a/b b/c\nrename from b\nrename to c\n--- /dev/null\n+++ d\n@@ -0,0 +1 @@\n+x\n")
	require.NoError(t, err)
	plan, err := Check(t.Context(), changes, In(ws))
	require.NoError(t, err)
	put(t, dir+"/d", "mine\n")
	err = plan.Apply(t.Context())
	assert.EqualError(t, err, `cannot patch "d": already exists; the files before it are put back`)
	assert.Equal(t, map[string]string{"a": "1\n", "b": "1\n", "d": "mine\n"}, tree(t, dir))
}

// Every error names the path.
func TestErrorsOfPatchesNameThePath(t *testing.T) {
	for _, err := range []error{
		workspace.ErrExist, reason(workspace.ErrExist), &HunkError{Hunk: 1, Why: "why"}, io.ErrUnexpectedEOF, unix.EIO, context.Canceled,
		&os.PathError{Op: "read", Path: "other", Err: unix.ESTALE},
	} {
		got := pathError("a", err)
		assert.Regexp(t, `^cannot patch "a": `, got.Error())
		assert.Equal(t, got, pathError("b", got), "the first name stays")
		for _, kind := range []error{workspace.ErrExist, context.Canceled, unix.EIO} {
			assert.Equal(t, errors.Is(err, kind), errors.Is(got, kind), "%v", err)
		}
	}
	assert.EqualError(t, pathError("a", workspace.ErrExist), `cannot patch "a": already exists`)
	refused := func(string, bool) (workspace.Workspace, string, error) {
		return nil, "", errors.New(`cannot write "x": refused`)
	}
	changes, err := Parse("--- x\n+++ x\n@@ -1 +1 @@\n-1\n+2\n")
	require.NoError(t, err)
	_, err = Check(t.Context(), changes, refused)
	assert.EqualError(t, err, `cannot write "x": refused`)
}

// TestFilesThatCome: a file that comes while a patch is applied stays, and is named.
func TestFilesThatCome(t *testing.T) {
	ws, dir := open(t)
	changes, err := Parse("--- /dev/null\n+++ d/a\n@@ -0,0 +1 @@\n+x\n")
	require.NoError(t, err)
	for range 200 {
		plan, err := Check(t.Context(), changes, In(ws))
		require.NoError(t, err)
		var racing sync.WaitGroup
		made := false
		racing.Go(func() {
			_ = os.Mkdir(dir+"/d", 0o755)
			f, err := os.OpenFile(dir+"/d/a", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if made = err == nil; made {
				f.Close()
			}
		})
		err = plan.Apply(t.Context())
		racing.Wait()
		assert.NotEqual(t, made, err == nil)
		if err != nil {
			assert.EqualError(t, err, `cannot patch "d/a": already exists`)
		}
		require.NoError(t, os.RemoveAll(dir+"/d"))
	}
}

func FuzzParse(f *testing.F) {
	f.Add("--- a\n+++ b\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n\\ No newline at end of file\n")
	f.Add("diff --git \"a/\\303\" b/x\nrename from a\nrename to b\nold mode 100644\nnew mode 100755\n")
	f.Add("*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ x\n-1\n+2\n*** End of File\n*** Add File: c\n+x\n*** Delete File: d\n*** End Patch\n")
	f.Add("--- a\n+++ a\n@@ -0,0 +1 @@\n+x\n")
	f.Fuzz(func(t *testing.T, text string) {
		changes, err := Parse(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, changes)
		for _, c := range changes {
			require.NotEmpty(t, c.Path)
			require.True(t, c.Action == Move == (c.To != ""), "%+v", c)
			_, _ = applied([]byte("1\n2\n3"), c.hunks, c.lenient)
			_, _ = applied([]byte("1\r\n2\r\n"), c.hunks, c.lenient)
		}
	})
}
