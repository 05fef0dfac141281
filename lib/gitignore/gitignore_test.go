package gitignore

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// git runs git with no configuration except list as core.excludesFile.
func git(t testing.TB, dir, list, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.excludesFile=" + list}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	cmd.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 1 && args[0] == "check-ignore" {
		err = nil
	}
	require.NoError(t, err, said.String())
	return string(out)
}

func tree(dir string, user []byte) *Tree {
	return &Tree{Root: dir, User: user, Read: func(path string, most int) []byte {
		info, err := os.Lstat(filepath.Join(dir, path))
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		text, _ := os.ReadFile(filepath.Join(dir, path))
		return text[:min(len(text), most+1)]
	}}
}

// ignored walks a tree as a search does, and returns the ignored paths, directories with a
// slash. It does not enter an ignored directory.
func ignored(t testing.TB, tr *Tree) []string {
	var found []string
	var walk func(parent *Rules, dir string)
	walk = func(parent *Rules, dir string) {
		entries, err := os.ReadDir(filepath.Join(tr.Root, dir))
		require.NoError(t, err)
		has := func(name string) bool {
			return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
		}
		rules := tr.Enter(parent, dir, has(".git"), has(FileName))
		for _, e := range entries {
			switch path := join(dir, e.Name()); {
			case e.Name() == ".git":
			case rules.Ignore(dir, e.Name(), e.IsDir()) && e.IsDir():
				found = append(found, path+"/")
			case rules.Ignore(dir, e.Name(), e.IsDir()):
				found = append(found, path)
			case e.IsDir():
				walk(rules, path)
			}
		}
	}
	walk(nil, ".")
	return found
}

// judged returns the paths that git ignores.
func judged(t testing.TB, tr *Tree, list string) []string {
	var paths strings.Builder
	dirs := map[string]bool{}
	require.NoError(t, filepath.WalkDir(tr.Root, func(path string, e fs.DirEntry, err error) error {
		if e.Name() == ".git" && e.IsDir() {
			return fs.SkipDir
		}
		if below, ok := strings.CutPrefix(path, tr.Root+"/"); ok && e.Name() != ".git" {
			paths.WriteString(below + "\x00")
			if e.IsDir() {
				dirs[below] = true
			}
		}
		return err
	}))
	var found []string
	inside := ""
	for path := range strings.SplitSeq(strings.TrimSuffix(git(t, tr.Root, list, paths.String(), "check-ignore", "--no-index", "-z", "--stdin"), "\x00"), "\x00") {
		if path == "" || inside != "" && strings.HasPrefix(path, inside) {
			continue
		}
		inside = ""
		if dirs[path] {
			path += "/"
			inside = path
		}
		found = append(found, path)
	}
	slices.Sort(found)
	return found
}

func write(t testing.TB, dir, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
}

// agree compares the package with git.
func agree(t testing.TB, dir, list string) {
	t.Helper()
	user, _ := os.ReadFile(list)
	tr := tree(dir, user)
	lists := fmt.Sprintf("user: %q", user)
	for _, file := range []string{".gitignore", "a/.gitignore", "foo/.gitignore", ".git/info/exclude"} {
		text, _ := os.ReadFile(filepath.Join(dir, file))
		lists += fmt.Sprintf("\n%s: %.200q", file, text)
	}
	got := ignored(t, tr)
	slices.Sort(got)
	require.Equal(t, judged(t, tr, list), got, lists)
}

var names = []string{"a", "b", "ab", "abc", "a.o", "x.o", "foo", "bar", "foobar", "-", "a b", "a ", "]", "!x", "#y", "é", "\xff", "a[b", "a\\b", ".a", "A"}

func plant(t testing.TB) string {
	dir := t.TempDir()
	git(t, dir, "", "", "init", "-q")
	dirs := []string{"", "a/", "a/b/", "foo/", "foo/bar/", "foo/bar/a/", "ab/a b/", ".a/", "x/foo/y/"}
	for _, d := range dirs {
		require.NoError(t, os.MkdirAll(dir+"/"+d, 0o755))
	}
	for _, d := range dirs {
		for _, name := range names {
			if _, err := os.Lstat(filepath.Join(dir, d+name)); err != nil {
				write(t, dir, d+name+map[bool]string{true: "/f"}[rand.IntN(4) == 0], "")
			}
		}
	}
	return dir
}

// pattern returns a random pattern, mostly of pieces with a meaning in git.
func pattern() string {
	pieces := append([]string{"*", "**", "?", "/", "/", "/", "**/", "/**", "*.o", "[ab]", "[!a]", "[^b-z]", "[]]", "[]-a]", "[a-", "[[:alpha:]]", "[[:nope:]]", "[[:digit:]x]", "[\\]]", "[a\\-z]", "\\a", "\\*", "\\ ", "\\", "[a/b]", "\\/", " ", "***", "[[:", "[a-]"}, names...)
	var text strings.Builder
	if rand.IntN(4) == 0 {
		text.WriteString("!")
	}
	for range 1 + rand.IntN(5) {
		text.WriteString(pieces[rand.IntN(len(pieces))])
	}
	if rand.IntN(4) == 0 {
		text.WriteString("/")
	}
	if rand.IntN(6) == 0 {
		text.WriteString([]string{" ", "  ", "\\ ", "\r", "\t"}[rand.IntN(5)])
	}
	return text.String()
}

// TestRandomRulesAsGit compares random rules with git check-ignore.
func TestRandomRulesAsGit(t *testing.T) {
	dir := plant(t)
	list := t.TempDir() + "/list"
	for range 40 {
		for _, file := range []string{".gitignore", "a/.gitignore", "foo/.gitignore", ".git/info/exclude", list} {
			path := filepath.Join(dir, file)
			if file == list {
				path = list
			}
			var text strings.Builder
			for range rand.IntN(5) {
				text.WriteString(pattern() + "\n")
			}
			require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
		}
		agree(t, dir, list)
		if t.Failed() {
			return
		}
	}
}

// TestRulesAsGit has the patterns that the random test would seldom try.
func TestRulesAsGit(t *testing.T) {
	dir := plant(t)
	for _, text := range []string{
		"foo**/bar", "foo**", "fo**/a", "/foo**/a", "a/**", "**/a", "a/**/b", "**", "**/", "/**", "/*", "/*/", "*", "!*", "*\n!*/\n!*.o",
		"foo/*\n!foo/bar\n!foo/bar/a", "\ufefffoo", "foo\r\nbar", "foo ", "foo\\ ", "a\\ ", "a b", "#y", "\\#y", "!x", "\\!x", "foo\x00x", "/", "!", "//", "foo//bar",
		"[[:alpha:]]", "[[:punct:]]*", "[]-]", "[!]a]", "[\xc3]\xa9", "?", "??", "é", "\xff", "*\xff", "a[[]b", "a\\\\b", ".*", "**.o", "***/a", "**a/b", "a**b", "foo/**/a", "*/a", "*/*/a", "x/**/y/a",
		strings.Repeat("x", 5000), "foo", "foo/", "/foo", "foo/bar", "bar/", "bar\n!bar/", "foo/b*r",
	} {
		write(t, dir, ".gitignore", text)
		agree(t, dir, "/dev/null")
	}
}

// A repository inside another one has its own rules. A directory outside of repositories
// has none.
func TestRepositories(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".gitignore", "*.o\n")
	write(t, dir, "x.o", "")
	assert.Empty(t, ignored(t, tree(dir, []byte("x*"))), "no repository")
	inside := tree(dir, []byte("user"))
	inside.Inside = true
	write(t, dir, "user", "")
	assert.Equal(t, []string{"user", "x.o"}, ignored(t, inside))

	git(t, dir, "", "", "init", "-q", "sub")
	write(t, dir, "sub/x.o", "")
	write(t, dir, "sub/y", "")
	write(t, dir, "sub/.git/info/exclude", "y\n")
	assert.Equal(t, []string{"sub/y", "user", "x.o"}, ignored(t, inside))
	// The git directories of a linked work tree and of a submodule lie elsewhere.
	git(t, dir+"/sub", "", "", "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "x")
	git(t, dir+"/sub", "", "", "worktree", "add", "-q", "../linked")
	write(t, dir, "linked/y", "")
	assert.Contains(t, ignored(t, inside), "linked/y")
	require.NoError(t, os.Rename(dir+"/sub/.git", dir+"/moved"))
	write(t, dir, "sub/.git", "gitdir: ../moved\n")
	assert.Contains(t, ignored(t, inside), "sub/y")
	write(t, dir, "sub/.git", "gitdir: ../../outside\n")
	assert.NotContains(t, ignored(t, inside), "sub/y")
}

// A link is no list. A list that is too long is ignored, and TooLong is called.
func TestListsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "", "", "init", "-q")
	write(t, dir, "list", "list\n")
	require.NoError(t, os.Symlink("list", dir+"/.gitignore"))
	agree(t, dir, "/dev/null")
	require.NoError(t, os.Remove(dir+"/.gitignore"))
	write(t, dir, ".gitignore", strings.Repeat("list\n", MaxFile/5+1))
	write(t, dir, ".git/info/exclude", strings.Repeat("list\n", MaxFile/5+1))
	var long []string
	at := tree(dir, []byte(strings.Repeat("list\n", MaxFile/5+1)))
	at.TooLong = func(path string) { long = append(long, path) }
	assert.Empty(t, ignored(t, at))
	assert.Equal(t, []string{"", ".git/info/exclude", ".gitignore"}, long)
	write(t, dir, ".gitignore", strings.Repeat("#", MaxFile-5)+"\nlist")
	assert.Equal(t, []string{"list"}, ignored(t, tree(dir, nil)))
}

// TestHostileRules: patterns with exponential time in a backtracking matcher finish at
// once.
func TestHostileRules(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("*a", 1000) + "b", strings.Repeat("a/**/", 500) + "b", strings.Repeat("**/", 1000) + "b", strings.Repeat("?", 4000) + "*b",
		strings.Repeat("[a-z]*", 800) + "0", "x" + strings.Repeat("**/a", 500),
	} {
		r := (&Rules{dir: "."}).with([]byte(text))
		assert.False(t, r.Ignore(strings.Repeat("a/", 1000)+"a", strings.Repeat("a", 250), false))
	}
}

// FuzzRule: no rule crashes, and a pattern without special characters matches itself.
func FuzzRule(f *testing.F) {
	for range 50 {
		f.Add(pattern(), "a/b")
	}
	f.Fuzz(func(t *testing.T, line, path string) {
		r := (&Rules{dir: "."}).with([]byte(line))
		for _, dir := range []bool{true, false} {
			r.Ignore(filepath.Dir(path), filepath.Base(path), dir)
		}
		if !strings.ContainsAny(line, "*?[\\!#/ \r\n\x00\ufeff") && line != "" {
			require.True(t, r.Ignore("x", line, false), "%q", line)
		}
	})
}

// A directory takes the rules of the one above it, and looks no further.
func TestIgnoredBelowKnown(t *testing.T) {
	deep := strings.Repeat("/d", 1000)
	tree := &Tree{Root: "/", Read: func(string, int) []byte { return nil }}
	asked := 0
	has := func(string) bool { asked++; return false }
	known := map[string]*Rules{"/top" + deep: nil, "/top/ignored": everything}
	assert.False(t, tree.Ignored(known, "/top", deep[1:]+"/e/f", true, has))
	assert.Equal(t, 2, asked, "it has asked for lists above")
	assert.True(t, tree.Ignored(known, "/top", "ignored/e/f", true, has))
	assert.Equal(t, 2, asked)
}
