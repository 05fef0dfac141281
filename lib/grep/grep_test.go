package grep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitignore"
	"pikuri/lib/pattern"
	"pikuri/lib/workspace"
)

// printed is an Output that prints as grep -n does.
type printed struct {
	bytes.Buffer
	failures []string
	fail     error
}

func (p *printed) Append(text []byte, l Line, group bool) []byte {
	mark := map[bool]string{true: "-", false: ":"}[l.Context]
	if l.Number == 0 {
		return fmt.Appendf(text, "%s\n", l.Path)
	}
	if group {
		text = append(text, "--\n"...)
	}
	return fmt.Appendf(text, "%s%s%d%s%s\n", l.Path, mark, l.Number, mark, l.Text)
}

func (p *printed) Write(text []byte) error {
	p.Buffer.Write(text)
	return p.fail
}

func (p *printed) Failed(path string, err error) error {
	p.failures = append(p.failures, fmt.Sprintf("%s: %v", path, err))
	return nil
}

func place(t testing.TB, dir, path string) Place {
	ws, err := workspace.NewLocalWorkspace(dir)
	require.NoError(t, err)
	t.Cleanup(func() { ws.Close() })
	return Place{Workspace: ws, Path: path, Shown: path, Ignore: &gitignore.Tree{Root: dir, Read: func(path string, most int) []byte {
		text, _ := os.ReadFile(filepath.Join(dir, path))
		return text
	}}}
}

func search(t testing.TB, q Query, places ...Place) (out *printed, total Total) {
	t.Helper()
	out = &printed{}
	total, err := Search(t.Context(), q, places, out)
	require.NoError(t, err)
	return out, total
}

func write(t testing.TB, dir, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
}

// gitGrep returns the output of git grep, which has another order of files.
func gitGrep(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "grep.fallbackToNoIndex=false", "grep", "-I", "-n", "--untracked", "--no-color"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C.UTF-8"}
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 1 {
		err = nil
	}
	require.NoError(t, err)
	return string(out)
}

func initRepository(t testing.TB) string {
	dir := t.TempDir()
	out, err := exec.Command("git", "init", "-q", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

func sorted(text string) []string { return slices.Sorted(strings.Lines(text)) }

// randomText has lines of few letters. Sometimes its last line has no newline.
func randomText(lines int) string {
	var text strings.Builder
	for range rand.IntN(lines) {
		for range rand.IntN(8) {
			text.WriteByte("abcAB. é"[rand.IntN(8)])
		}
		text.WriteByte('\n')
	}
	return text.String() + []string{"", "ab"}[rand.IntN(2)]
}

// TestAsGitGrep compares the search with git grep, with and without context.
func TestAsGitGrep(t *testing.T) {
	dir := initRepository(t)
	write(t, dir, ".gitignore", "*.o\n/out/\n!keep.o\n")
	for i := range 30 {
		write(t, dir, fmt.Sprintf("%s/f%d%s", []string{".", "a", "a/b", "out", ".hidden"}[i%5], i, []string{"", ".o"}[i/5%2]), randomText(40))
	}
	write(t, dir, "keep.o", randomText(40))
	write(t, dir, "binary", "ab\x00ab\n")
	write(t, dir, "large", strings.Repeat("x\n", firstRead)+"abc\n"+strings.Repeat("y\n", 3*firstRead)+"a")
	write(t, dir, "long", strings.Repeat("x", 3*firstRead)+"\nabc\n")
	require.NoError(t, os.Symlink("keep.o", dir+"/link"))
	at := place(t, dir, ".")
	for _, q := range []Query{
		{Pattern: "a"}, {Pattern: "ab"}, {Pattern: "abc"}, {Pattern: "a+b"}, {Pattern: "[ab]c"}, {Pattern: "^a"}, {Pattern: "b$"}, {Pattern: "ab|bc"}, {Pattern: "ab|bc|ca|aB"},
		{Pattern: "a b", IgnoreCase: true}, {Pattern: "AB", IgnoreCase: true}, {Pattern: ".", Fixed: true}, {Pattern: "a.", Fixed: true, IgnoreCase: true}, {Pattern: "^b$"},
		{Pattern: "(a|b)c+"}, {Pattern: "x{3}"}, {Pattern: "nothing"},
	} {
		args := []string{"-E"}
		if q.Fixed {
			args = []string{"-F"}
		}
		if q.IgnoreCase {
			args = append(args, "-i")
		}
		want := sorted(gitGrep(t, dir, append(args, "-e", q.Pattern)...))
		out, total := search(t, q, at)
		got := sorted(strings.ReplaceAll(out.String(), "--\n", ""))
		for i := range want {
			if len(want[i]) > maxShown {
				want[i], got[i] = want[i][:100], got[i][:100]
			}
		}
		require.Equal(t, want, got, "%+v", q)
		assert.Equal(t, len(want), total.Matches, "%+v", q)
		assert.Empty(t, out.failures)
		q.FilesOnly = true
		out, total = search(t, q, at)
		require.Equal(t, sorted(gitGrep(t, dir, append(args, "-l", "-e", q.Pattern)...)), sorted(out.String()), "%+v", q)
		assert.Equal(t, total.Files, total.Matches)
	}
	for range 60 {
		name := "context"
		write(t, dir, name, randomText(30))
		if rand.IntN(8) == 0 {
			write(t, dir, name, strings.Repeat(randomText(30)+"\n", 3000)) // of several blocks
		}
		q := Query{Pattern: []string{"abc", "a", "^b", "c$"}[rand.IntN(4)], Before: rand.IntN(4), After: rand.IntN(4)}
		out, _ := search(t, q, place(t, dir, name))
		got := strings.TrimPrefix(out.String(), "--\n")
		if q.Before+q.After == 0 {
			got = strings.ReplaceAll(out.String(), "--\n", "")
		}
		want := gitGrep(t, dir, "-E", fmt.Sprintf("-B%d", q.Before), fmt.Sprintf("-A%d", q.After), "-e", q.Pattern, "--", name)
		i := 0
		for i < min(len(want), len(got)) && want[i] == got[i] {
			i++
		}
		require.Equal(t, want[max(i-200, 0):min(i+200, len(want))], got[max(i-200, 0):min(i+200, len(got))], "%+v", q)
	}
}

// TestNeedles: text that the search skips without the expression has no line that matches.
func TestNeedles(t *testing.T) {
	pieces := []string{"a", "b", "ab", "abc", "k", "s", "é", "K", "\u212a", "ſ", ".", "a*", "b+", "[ab]", "(ab)", "(a|bc)", "(?i:ks)", "(?:abk){2}", "(ab)?", "^", "$", `\b`, `\.`, "|", "\ufffd", "[^a]", "x{0,2}"}
	letters := []string{"a", "b", "c", "k", "K", "s", "S", "\u212a", "ſ", "é", "É", "A", "B", "C", ".", " ", "\n", "\n", "\xff", "ab", "abc", "ABC"}
	tried := 0
	for range 4000 {
		var p, text strings.Builder
		for range 1 + rand.IntN(4) {
			p.WriteString(pieces[rand.IntN(len(pieces))])
		}
		for range rand.IntN(60) {
			text.WriteString(letters[rand.IntN(len(letters))])
		}
		holdsWhatRegexpDoes(t, Query{Pattern: p.String(), IgnoreCase: rand.IntN(2) == 0, Fixed: rand.IntN(4) == 0}, text.String(), &tried)
	}
	require.Greater(t, tried, 2000)
}

func holdsWhatRegexpDoes(t *testing.T, q Query, text string, tried *int) {
	m, err := compile(q)
	if err != nil {
		return
	}
	*tried++
	expression := q.Pattern
	if q.Fixed {
		expression = regexp.QuoteMeta(expression)
	}
	if q.IgnoreCase {
		expression = "(?i)" + expression
	}
	matches := func(line string) bool { return strings.Contains(line, q.Pattern) }
	if !q.Fixed || q.IgnoreCase {
		matches = regexp.MustCompile(expression).MatchString
	}
	var want, got []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); matches(line) {
			want = append(want, line)
		}
	}
	l := lines{matcher: m}
	l.look([]byte(text))
	for at := 0; ; {
		begin, end, match := l.find(at)
		if match == nil {
			break
		}
		got = append(got, text[begin:end])
		at = end + 1
	}
	require.Equal(t, want, got, "%+v in %q", q, text)
}

func FuzzNeedles(f *testing.F) {
	f.Add("a|bc", "x\nabc\n", true, false)
	f.Add("(?i)ks", "Kſ\n\xff", false, true)
	f.Fuzz(func(t *testing.T, pattern, text string, ignoreCase, fixed bool) {
		tried := 0
		holdsWhatRegexpDoes(t, Query{Pattern: pattern, IgnoreCase: ignoreCase, Fixed: fixed}, text, &tried)
	})
}

func TestLimit(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		write(t, dir, fmt.Sprintf("f%03d", i), "a\nx\na\n")
	}
	at := place(t, dir, ".")
	for _, limit := range []int{1, 2, 3, 250, 399, 400, 401} {
		out, total := search(t, Query{Pattern: "a", Limit: limit}, at)
		lines := sorted(strings.ReplaceAll(out.String(), "--\n", ""))
		want := min(limit, 400)
		assert.Len(t, lines, want)
		assert.Equal(t, Total{Matches: want, Files: (want + 1) / 2, Truncated: limit < 400}, total)
		assert.Equal(t, "f000:1:a\n", lines[0])
		if limit == 250 {
			assert.Equal(t, "f124:3:a\n", lines[249], "the first ones")
		}
	}
	out, total := search(t, Query{Pattern: "a", Limit: 1, After: 1, Before: 1}, at)
	assert.Equal(t, "--\nf000:1:a\nf000-2-x\n", out.String())
	assert.True(t, total.Truncated)
	out, total = search(t, Query{Pattern: "a", Limit: 3, FilesOnly: true}, at)
	assert.Equal(t, "f000\nf001\nf002\n", out.String())
	assert.Equal(t, Total{3, 3, true}, total)
}

func TestPlacesAndGlobs(t *testing.T) {
	dir := initRepository(t)
	for _, path := range []string{"a.go", "a.c", "d/b.go", "d/e/c.go", "skip/x.go", ".git/y.go", "d/.git/z.go"} {
		write(t, dir, path, "hit\n")
	}
	write(t, dir, ".gitignore", "skip\n*.c\n")
	glob := func(text string) []*pattern.Pattern {
		p, err := pattern.Compile(text)
		require.NoError(t, err)
		return []*pattern.Pattern{p}
	}
	for _, row := range []struct {
		path, glob, want string
	}{
		{".", "**", "a.go\nd/b.go\nd/e/c.go\n"},
		{".", "*.go", "a.go\nd/b.go\nd/e/c.go\n"},
		{".", "d/*.go", "d/b.go\n"},
		{".", "*.{c,h}", ""},
		{"d", "e/*", "d/e/c.go\n"},
		{"d", "d/*", ""},
		{"skip", "**", "skip/x.go\n"},
		{"a.c", "*.go", "a.c\n"},
		{"d/e/c.go", "**", "d/e/c.go\n"},
		{"none", "**", ""},
	} {
		out, _ := search(t, Query{Pattern: "hit", FilesOnly: true, Globs: glob(row.glob)}, place(t, dir, row.path))
		assert.Equal(t, row.want, out.String(), "%+v", row)
		assert.Len(t, out.failures, map[bool]int{true: 1}[row.path == "none"])
	}
}

func TestFilesThatAreNotSearched(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "late", strings.Repeat("hit\n", firstRead)+"\x00\nhit\n")
	write(t, dir, "early", "hit\n\x00")
	write(t, dir, "huge", "")
	require.NoError(t, os.Truncate(dir+"/huge", 8<<30))
	require.NoError(t, exec.Command("mkfifo", dir+"/fifo").Run())
	require.NoError(t, os.Symlink("/etc/passwd", dir+"/out"))
	require.NoError(t, os.Symlink(".", dir+"/loop"))
	out, total := search(t, Query{Pattern: "hit|root", FilesOnly: true}, place(t, dir, "."))
	assert.Equal(t, "late\n", out.String())
	assert.Empty(t, out.failures)
	assert.Equal(t, 1, total.Matches)
	out, _ = search(t, Query{Pattern: "hit"}, place(t, dir, "early"), place(t, dir, "fifo"), place(t, dir, "out"))
	assert.Contains(t, out.failures, `fifo: cannot read "fifo": not a regular file`)
	assert.Contains(t, strings.Join(out.failures, "\n"), "early: it is binary")
	assert.Len(t, out.failures, 3)
}

// A long line takes at most a MiB of memory.
func TestLongLines(t *testing.T) {
	dir := t.TempDir()
	line := strings.Repeat("x", maxLine/2) + "hit" + strings.Repeat("x", 5*maxLine) + "late"
	write(t, dir, "f", line+"\nhit\nlate\n"+line)
	out, total := search(t, Query{Pattern: "hit|late", Before: 1}, place(t, dir, "f"))
	assert.Equal(t, 4, total.Matches)
	assert.Less(t, out.Len(), 5*maxShown)
	assert.Regexp(t, `(?m)^f:2:hit$`, out.String())
	assert.Regexp(t, `(?m)^f:3:late$`, out.String())
	assert.Regexp(t, `(?m)^f:4:\[\d+ bytes\] x+hitx+ \[\d+ more bytes\]$`, out.String())
	assert.Equal(t, strings.Repeat("é", maxShown/2)+" [2 more bytes]", string(shown([]byte(strings.Repeat("é", maxShown/2+1)), nil)))
}

// Long output from many files comes whole and in order.
func TestMuchOutput(t *testing.T) {
	dir := t.TempDir()
	var want strings.Builder
	for i := range 100 {
		name := fmt.Sprintf("f%03d", i)
		lines := 1
		if i%10 == 0 {
			lines = spill / 8
		}
		write(t, dir, name, strings.Repeat("hit\n", lines))
		for n := range lines {
			fmt.Fprintf(&want, "%s:%d:hit\n", name, n+1)
		}
	}
	out, total := search(t, Query{Pattern: "hit"}, place(t, dir, "."))
	assert.True(t, want.String() == strings.ReplaceAll(out.String(), "--\n", ""))
	assert.Equal(t, 100, total.Files)
}

func TestEnds(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		write(t, dir, fmt.Sprintf("f%d", i), "hit\n")
	}
	out := &printed{fail: errors.New("full")}
	_, err := Search(t.Context(), Query{Pattern: "hit"}, []Place{place(t, dir, ".")}, out)
	assert.EqualError(t, err, "full")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = Search(ctx, Query{Pattern: "hit"}, []Place{place(t, dir, ".")}, &printed{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestPatterns(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb":                   "it holds a newline, and lines are matched one at a time",
		`a\nb`:                   "it holds a newline, and lines are matched one at a time",
		"(":                      "missing closing ): \"(\"",
		"a{1001}":                "invalid repeat count: \"{1001}\"",
		`(a)\1`:                  "invalid escape sequence: \"\\\\1\"",
		"\xff(":                  "invalid UTF-8: \"\\xff(\"",
		"(((a{100}){100}){100})": "",
		"x{1000}(y{1000}|" + strings.Repeat("z{1000}", 8) + ")":        "it is too large: compiled, it has over 10000 instructions; repeat less in it",
		strings.Repeat("(a?){1000}", 3000):                             "expression too large: \"" + strings.Repeat("(a?){1000}", 20) + "\"...",
		strings.Repeat(`(\b){500}`, 30) + strings.Repeat("(|a)", 5000): "it is too large: compiled, it has over 10000 instructions; repeat less in it",
		strings.Repeat("|a", maxPattern):                               "it is longer than 65536 bytes",
	} {
		err := Check(Query{Pattern: text})
		require.Error(t, err)
		assert.Less(t, len(err.Error()), 600)
		if want != "" {
			assert.EqualError(t, errors.Unwrap(err), want)
		}
	}
	assert.NoError(t, Check(Query{Pattern: "(a*)*b"}))
	assert.NoError(t, Check(Query{Pattern: "x{1000}"}))
	assert.NoError(t, Check(Query{Pattern: "(x{1,30}){1,30}y"}))
	assert.NoError(t, Check(Query{Pattern: strings.Repeat("a", 2*maxPattern), Fixed: true}))
	assert.NoError(t, Check(Query{Pattern: "\xff(", Fixed: true}))
}

// spent is the time of the processor that fn takes, on all threads.
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

const costly = "(x{1,30}){1,30}y" // some 1800 steps for each x

// The search of a line ends after some seconds, with an error that says so.
func TestCostlyLines(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", "xy\n"+strings.Repeat("x", maxLine)+"\nxxy\n")
	write(t, dir, "g", strings.Repeat("z", maxLine)+"\nxy\n") // has no x where it is long
	write(t, dir, "h", strings.Repeat("x", 5*maxLine))
	var out *printed
	var total Total
	took := spent(t, func() { out, total = search(t, Query{Pattern: costly}, place(t, dir, ".")) })
	assert.Less(t, took, 10*time.Second)
	assert.Equal(t, "f:1:xy\nf:3:xxy\ng:2:xy\n", strings.ReplaceAll(out.String(), "--\n", ""))
	assert.Equal(t, []string{"f: " + ErrLongLine.Error(), "h: " + ErrLongLine.Error()}, slices.Sorted(slices.Values(out.failures)))
	assert.Equal(t, 3, total.Matches)

	// An ordinary expression searches the longest line.
	q := Query{Pattern: "(q{1,40}|[yz]{20})hit"}
	m, err := compile(q)
	require.NoError(t, err)
	require.Greater(t, m.steps, 64)
	require.Less(t, m.steps, 128)
	write(t, dir, "i", "short\n"+strings.Repeat("q", maxLine-8)+"hit"+strings.Repeat("q", 5*maxLine))
	out, total = search(t, q, place(t, dir, "i"))
	assert.Equal(t, 1, total.Matches)
	assert.Empty(t, out.failures)
}

// A search whose time is over ends at once, even within a block that was read.
func TestSearchThatTakesTooLong(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", "xy\n"+strings.Repeat(strings.Repeat("x", 1000)+"\n", 4000)+"xy\n")
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	out := &printed{}
	var total Total
	var err error
	took := spent(t, func() {
		total, err = Search(ctx, Query{Pattern: strings.Repeat("(x{1,30}){1,30}", 5) + "y"}, []Place{place(t, dir, ".")}, out)
	})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, took, 5*time.Second)
	assert.LessOrEqual(t, total.Matches, 1)
	assert.Empty(t, out.failures)
}

// Failed is called once for a list of ignored files that is too long.
func TestLongIgnoreLists(t *testing.T) {
	dir := initRepository(t)
	write(t, dir, ".gitignore", strings.Repeat("skip\n", gitignore.MaxFile/5+1))
	write(t, dir, "d/.gitignore", strings.Repeat("skip\n", gitignore.MaxFile/5+1))
	write(t, dir, "d/skip", "hit\n")
	out, total := search(t, Query{Pattern: "hit"}, place(t, dir, "."), place(t, dir, "d"))
	assert.Equal(t, 2, total.Matches)
	assert.Equal(t, []string{dir + "/.gitignore: " + ErrIgnoreList.Error(), dir + "/d/.gitignore: " + ErrIgnoreList.Error()}, out.failures)
	at := place(t, dir, ".")
	at.Ignore.User = []byte(strings.Repeat("#", gitignore.MaxFile+1))
	out, _ = search(t, Query{Pattern: "hit"}, at)
	assert.Contains(t, out.failures, "core.excludesFile: "+ErrIgnoreList.Error())
}
