package edit

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitpatch"
)

// TestNothingIsDropped: each line of a patch is applied, or is text around the changes, or
// refuses the patch. The file w has the lines a and b.
func TestNothingIsDropped(t *testing.T) {
	const (
		envelopeA = "*** Begin Patch\n*** Update File: w\n@@\n-a\n+A\n*** End Patch\n"
		envelopeB = "*** Begin Patch\n*** Update File: w\n@@\n-b\n+B\n*** End Patch\n"
		diffA     = "--- a/w\n+++ b/w\n@@ -1 +1 @@\n-a\n+A\n"
		diffB     = "--- a/w\n+++ b/w\n@@ -2 +2 @@\n-b\n+B\n"
		both      = "A\nB\n"
		one       = "A\nb\n"
	)
	for _, row := range []struct{ name, patch, want, says string }{
		{"two envelopes", envelopeA + envelopeB, both, ""},
		{"two envelopes with blank lines", "\n" + envelopeA + "\n\n" + envelopeB + "\n", both, ""},
		{"envelope behind a diff", diffB + envelopeA, both, ""},
		{"diff behind an envelope", envelopeA + diffB, both, ""},
		{"words before an envelope and a diff", "Here it is:\n" + envelopeA + diffB, both, ""},
		{"with CRLF", strings.ReplaceAll(envelopeA+diffB, "\n", "\r\n"), both, ""},
		{"fences", "```diff\n" + diffA + "```\n\nThen:\n\n```\n" + envelopeB + "```\nThat is all.\n", both, ""},
		{"of pk-fs edit", diffA + "sha256 " + strings.Repeat("0a", 32) + "\n" + diffB, both, ""},
		{"of svn", "Index: w\n" + strings.Repeat("=", 67) + "\n" + diffA + "Index: w\n" + strings.Repeat("=", 67) + "\n" + diffB, both, ""},
		{"of diff -r", "diff -ru a/w b/w\n" + diffA + "Only in b: x\n", one, ""},
		{"signature", diffA + "-- \n2.39\n\n", one, ""},
		{"here document", "apply_patch <<'EOF'\n" + envelopeA + "EOF\n", one, ""},
		{"mail that quotes a hunk", "From " + strings.Repeat("0", 40) + " Mon Sep 17\n\n--- a/x\n+++ b/x\n\n@@ -1 +1 @@\n\n*** Begin Patch\ndiff --git a/x b/x\n---\n w | 2 +-\n" + diffA, one, ""},

		{"indented envelope", "\n  " + envelopeA, one, ""},
		{"mail whose hunk has no file", "From " + strings.Repeat("0", 40) + " Mon Sep 17\n\n---\n w | 2 +-\n@@ -2 +2 @@\n-b\n+B\n" + diffA, "", `line 5 of the patch: a hunk has no file`},

		{"more lines behind an empty one", diffA + "\n-b\n+B\n", "", `line 7 of the patch: "-b" belongs to no hunk`},
		{"a context line behind an empty one", diffA + "\n b\n", "", `line 7 of the patch: " b" belongs to no hunk`},
		{"damaged header", diffA + "@ -2 +2 @\n-b\n+B\n", "", `line 6 of the patch: "@ -2 +2 @" belongs to no hunk`},
		{"header without blanks", diffA + "@@-2 +2@@\n-b\n+B\n", "", `line 6 of the patch: "@@-2 +2@@" belongs to no hunk`},
		{"hunk behind an empty line", diffA + "\n@@ -2 +2 @@\n-b\n+B\n", "", `line 7 of the patch: a hunk has no file`},
		{"dots", diffA + "...\n" + diffB, "", `line 6 of the patch: "..." belongs to no hunk`},
		{"words", diffA + "b\n", "", `line 6 of the patch: "b" belongs to no hunk`},
		{"lines behind a fence", diffA + "```\n-b\n+B\n", "", `line 7 of the patch: "-b" belongs to no hunk`},
		{"lines behind a signature", diffA + "-- \n2.39\n-b\n+B\n", "", `line 8 of the patch: "-b" belongs to no hunk`},
		{"signature without text", diffA + "-- \n", "", `line 6 of the patch: "-- " belongs to no hunk`},
		{"signature that is a removed line", diffA + "-- \n+B\n", "", `line 6 of the patch: "-- " belongs to no hunk`},
		{"removed line like a header", diffA + "--- b\n", "", `line 6 of the patch: "--- b" belongs to no hunk`},
		{"new file without +++", "diff --git a/n b/n\nnew file mode 100644\n+x\n", "", `line 3 of the patch: "+x" belongs to no hunk`},
		{"git's header without its first line", diffA + "rename from w\nrename to v\n", "", `line 6 of the patch: "rename from w" belongs to no hunk`},
		{"the same behind a fence", diffA + "```\nrename from w\nrename to v\n", "", `line 7 of the patch: "rename from w" belongs to no hunk`},
		{"lines behind an envelope", envelopeA + "@@\n-b\n+B\n", "", `line 7 of the patch: "@@" belongs to no hunk`},
		{"file behind an envelope", envelopeA + "*** Delete File: w\n", "", `line 7 of the patch: "*** Delete File: w" belongs to no file`},
		{"file before a diff", "*** Delete File: v\n" + diffA, "", `line 1 of the patch: "*** Delete File: v" belongs to no file`},
		{"binary file of diff -r", diffA + "Binary files a/x and b/x differ\n", "", `line 6 of the patch: "Binary files a/x and b/x differ" belongs to no file`},
		{"submodule's log", "Submodule s 1234567..89abcde:\n  > x\n" + diffA, "", `line 1 of the patch: "Submodule s 1234567..89abcde:" belongs to no file`},
		{"context diff behind a diff", diffA + "*** w\n--- w\n", "", `line 6 of the patch: "*** w" belongs to no hunk`},
	} {
		t.Run(row.name, func(t *testing.T) {
			ws, dir := open(t)
			put(t, dir+"/w", "a\nb\n")
			err := apply(t, ws, row.patch)
			if row.says != "" {
				require.ErrorContains(t, err, row.says)
				row.want = "a\nb\n"
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, map[string]string{"w": row.want}, tree(t, dir))
		})
	}
}

// git runs git in a directory.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.autocrlf=false", "-c", "user.name=n", "-c", "user.email=e"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, said.String())
	return string(out)
}

// TestSeriesOfGit: the changes of several commits are applied whole, one after the
// other. A message of a commit quotes parts of patches.
func TestSeriesOfGit(t *testing.T) {
	ws, dir := open(t)
	numbers := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	commit := func(message string) {
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-q", "-m", message)
	}
	git(t, dir, "init", "-q", "-b", "main")
	put(t, dir+"/f", numbers)
	put(t, dir+"/crlf", "a\r\nb\r\n")
	put(t, dir+"/moved", "x\n"+numbers)
	commit("base")
	git(t, dir, "tag", "base")
	put(t, dir+"/f", strings.Replace(numbers, "5", "five", 1))
	commit("one\n\n- bullet\n+ bullet\n@@ -1 +1 @@\n--- a/f\n+++ b/f\ndiff --git a/f b/f\n\n*** Begin Patch\n*** Update File: f\nBinary files a and b differ\nSubmodule s 1234567..89abcde:\n")
	put(t, dir+"/f", strings.Replace(numbers, "5", "FIVE", 1))
	require.NoError(t, os.Rename(dir+"/moved", dir+"/moved2"))
	put(t, dir+"/new", "n")
	commit("two")
	require.NoError(t, os.Rename(dir+"/moved2", dir+"/moved3"))
	put(t, dir+"/moved3", "y\n"+numbers)
	put(t, dir+"/new", "n\nm\n")
	require.NoError(t, os.Remove(dir+"/crlf"))
	require.NoError(t, os.Chmod(dir+"/f", 0o755))
	commit("three")
	after := tree(t, dir)
	for _, args := range []string{
		"format-patch --stdout base", "format-patch --stdout -p base", "log --reverse -p base..", "log --reverse -p --stat base..",
		"log --reverse -p --format=email base..", "log --reverse -p --oneline base..", "log --reverse -p -m base..", "show main~2 main~1 main",
		"diff base main", "diff --stat -p base main", "diff --no-renames base main",
	} {
		patch := git(t, dir, strings.Fields(args)...)
		git(t, dir, "checkout", "-q", "base")
		require.NoError(t, apply(t, ws, patch), "%s\n%s", args, patch)
		assert.Equal(t, after, tree(t, dir), args)
		git(t, dir, "add", "-A")
		git(t, dir, "checkout", "-qf", "main")
	}
}

// TestChangesOfOneFile: each change sees the file as those before it leave it.
func TestChangesOfOneFile(t *testing.T) {
	const begin, end = "*** Begin Patch\n", "*** End Patch\n"
	for _, row := range []struct {
		name, patch string
		want        map[string]string
		says        string
	}{
		{"added, then changed", "*** Add File: n\n+1\n*** Update File: n\n@@\n-1\n+2\n", map[string]string{"w": "a\n", "n": "2\n"}, ""},
		{"added, then removed", "*** Add File: n\n+1\n*** Delete File: n\n", map[string]string{"w": "a\n"}, ""},
		{"removed, then added", "*** Delete File: w\n*** Add File: w\n+1\n", map[string]string{"w": "1\n"}, ""},
		{"changed, then moved twice", "*** Update File: w\n@@\n-a\n+b\n*** Update File: w\n*** Move to: v\n*** Update File: v\n*** Move to: u\n@@\n-b\n+c\n", map[string]string{"u": "c\n"}, ""},
		{"moved, and another in its place", "*** Update File: w\n*** Move to: v\n*** Add File: w\n+1\n", map[string]string{"v": "a\n", "w": "1\n"}, ""},
		{"there and back", "*** Update File: w\n*** Move to: v\n*** Update File: v\n*** Move to: w\n", map[string]string{"w": "a\n"}, ""},
		{"added twice", "*** Add File: n\n+1\n*** Add File: d/../n\n+1\n", nil, `cannot patch "d/../n": already exists`},
		{"removed, then changed", "*** Delete File: w\n*** Update File: w\n@@\n-a\n+b\n", nil, `cannot patch "w": not found`},
		{"moved, then changed", "*** Update File: w\n*** Move to: v\n*** Update File: w\n@@\n-a\n+b\n", nil, `cannot patch "w": not found`},
		{"moved onto itself", "*** Update File: w\n*** Move to: w\n", nil, `cannot patch "w": already exists`},
	} {
		t.Run(row.name, func(t *testing.T) {
			ws, dir := open(t)
			put(t, dir+"/w", "a\n")
			err := apply(t, ws, begin+row.patch+end)
			if row.says != "" {
				require.EqualError(t, err, row.says)
				row.want = map[string]string{"w": "a\n"}
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, row.want, tree(t, dir))
		})
	}
}

// TestOrderAndModes: a moved file is written before its old name goes, and new files have
// the caller's umask, however often the patch changes them.
func TestOrderAndModes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o027))
	ws, dir := open(t)
	put(t, dir+"/w", "a\n")
	put(t, dir+"/x", "a\n")
	require.NoError(t, os.Chmod(dir+"/x", 0o600))
	changes, err := Parse("*** Begin Patch\n*** Update File: w\n@@\n-a\n+b\n*** Update File: w\n*** Move to: v\n*** Update File: v\n*** Move to: u\n" +
		"*** Delete File: x\n*** Add File: x\n+1\n*** Add File: n\n+1\n*** Update File: n\n@@\n-1\n+2\n*** End Patch\n")
	require.NoError(t, err)
	plan, err := Check(t.Context(), changes, In(ws))
	require.NoError(t, err)
	var order []string
	for _, f := range plan.files {
		order = append(order, f.name)
	}
	assert.Less(t, slices.Index(order, "u"), slices.Index(order, "w"), "%q", order)
	require.NoError(t, plan.Apply(t.Context()))
	for name, want := range map[string]os.FileMode{"n": 0o640, "x": 0o600} {
		info, err := os.Stat(dir + "/" + name)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode(), name)
	}
}

// TestCR: only LF ends a line, so a CR before the end of a file is a character of it.
func TestCR(t *testing.T) {
	const noEnd = "\\ No newline at end of file\n"
	for _, row := range []struct{ name, file, patch, want, says string }{
		{"added at the end", "one\ntwo", "@@ -1,2 +1,2 @@\n one\n-two\n" + noEnd + "+two\r\n" + noEnd, "one\ntwo\r", ""},
		{"removed at the end", "one\ntwo\r", "@@ -1,2 +1,2 @@\n one\n-two\r\n" + noEnd + "+two\n" + noEnd, "one\ntwo", ""},
		{"only in the patch", "one\ntwo", "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\r\n" + noEnd, "", "its lines are not there"},
		{"only in the file", "one\ntwo\r", "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n" + noEnd, "", "its lines are not there"},
		{"only in a file with CR LF", "one\r\ntwo\r", "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n" + noEnd, "", "its lines are not there"},
	} {
		t.Run(row.name, func(t *testing.T) {
			ws, dir := open(t)
			put(t, dir+"/f", row.file)
			err := apply(t, ws, "--- a/f\n+++ b/f\n"+row.patch)
			if row.says != "" {
				require.ErrorContains(t, err, row.says)
				row.want = row.file
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, map[string]string{"f": row.want}, tree(t, dir))
		})
	}
}

// TestDiffsFitTheirFiles: Parse and applied undo gitpatch.Unified, with any line ends.
func TestDiffsFitTheirFiles(t *testing.T) {
	text := func() string {
		var b strings.Builder
		for range rand.IntN(12) {
			b.WriteString([]string{"a", "b", "\r", "\n", "\n", "\r\n", "- ", "+"}[rand.IntN(8)])
		}
		return b.String()
	}
	for range 20000 {
		old, new := text(), text()
		diff := string(gitpatch.Unified("f", "f", []byte(old), []byte(new)))
		if diff == "" {
			continue
		}
		changes, err := Parse(diff)
		require.NoError(t, err, "%q to %q:\n%q", old, new, diff)
		got, err := applied([]byte(old), changes[0].hunks, false)
		require.NoError(t, err, "%q to %q:\n%q", old, new, diff)
		require.Equal(t, new, string(got), "%q:\n%q", old, diff)
	}
}

// TestPrefixes: git's prefixes are stripped, and directories with such names are not.
func TestPrefixes(t *testing.T) {
	ws, dir := open(t)
	write := func(files map[string]string) {
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755))
			put(t, dir+"/"+name, text)
		}
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-q", "-m", "x")
	}
	git(t, dir, "init", "-q", "-b", "main")
	write(map[string]string{"a/f": "1\n", "b/f": "1\n", "c/f": "1\n", "a/gone": "1\n", "b/gone": "1\n", "gone": "1\n", "a/moved": "1\n2\n3\n", "f": "1\n"})
	git(t, dir, "tag", "old")
	git(t, dir, "rm", "-q", "a/gone", "b/gone", "gone")
	git(t, dir, "mv", "a/moved", "b/moved")
	write(map[string]string{"a/f": "2\n", "b/f": "2\n", "c/f": "2\n", "a/new": "1\n", "b/new": "1\n", "c/new": "1\n", "new": "1\n", "a/a b": "1\n", "f": "2\n", "empty": "", "b/empty": ""})
	for _, args := range []string{
		"", "-R", "--no-prefix", "--no-prefix -R", "--src-prefix=i/ --dst-prefix=w/", "--src-prefix=c/ --dst-prefix=o/ -R",
	} {
		for _, renames := range []string{"-M", "--no-renames"} {
			from, to := "old", "main"
			if strings.Contains(args, "-R") {
				from, to = to, from
			}
			patch := git(t, dir, append(append([]string{"diff", renames}, strings.Fields(args)...), "old", "main")...)
			git(t, dir, "checkout", "-qf", to)
			after := tree(t, dir)
			git(t, dir, "checkout", "-qf", from)
			require.NoError(t, apply(t, ws, patch), patch)
			assert.Equal(t, after, tree(t, dir), patch)
			git(t, dir, "add", "-A")
			git(t, dir, "checkout", "-qf", "main")
		}
	}
	patch := git(t, dir, "diff", "--src-prefix=x/", "--dst-prefix=y/", "old", "main")
	assert.ErrorContains(t, apply(t, ws, patch), "has other prefixes than git's")
	require.NoError(t, apply(t, ws, "--- /dev/null\n+++ c/plain\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/plain\n@@ -0,0 +1 @@\n+x\n"))
	assert.FileExists(t, dir+"/c/plain")
	assert.FileExists(t, dir+"/plain")
}
