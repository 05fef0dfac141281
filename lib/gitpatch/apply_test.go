package gitpatch

import (
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// section is a patch of one path, read more strictly than git does: lines have to be
// where a hunk says.
type section struct {
	head             []string // lines that are not content
	path             string
	oldMode, newMode string // "": absent, or not in the patch
	oldID, newID     string
	hunks            []hunk
	literals         []string // new, old
}

// hunk has the number of the first line and the lines, for old and new.
type hunk [2]struct {
	first int
	lines []string
}

// reader takes a patch apart.
type reader struct {
	testing.TB
	rest string
}

func (r *reader) at(prefix string) bool { return strings.HasPrefix(r.rest, prefix) }

func (r *reader) line() string {
	l, rest, ok := strings.Cut(r.rest, "\n")
	if !ok {
		require.FailNow(r, "a line has no end", "%q", l)
	}
	r.rest = rest
	return l
}

// parse reads complete patches of Write and of git.
func parse(t testing.TB, patch string) []section {
	t.Helper()
	var all []section
	for r := (&reader{t, patch}); r.rest != ""; {
		all = append(all, r.section())
	}
	return all
}

func (r *reader) section() section {
	s := section{head: []string{r.line()}}
	s.path = r.gitPath(s.head[0])
	for r.rest != "" && !r.at("diff --git ") {
		switch {
		case r.at("@@ "):
			s.hunks = append(s.hunks, r.hunk())
		case r.at("literal "):
			s.literals = append(s.literals, r.literal())
		default:
			s.head = append(s.head, r.line())
			s.read(r, s.head[len(s.head)-1])
		}
	}
	return s
}

func (s *section) read(t testing.TB, line string) {
	switch what, mode, _ := strings.Cut(line, " mode "); what {
	case "old", "deleted file":
		s.oldMode = mode
	case "new", "new file":
		s.newMode = mode
	}
	if ids, ok := strings.CutPrefix(line, "index "); ok {
		ids, mode, same := strings.Cut(ids, " ")
		s.oldID, s.newID, _ = strings.Cut(ids, "..")
		if same {
			s.oldMode, s.newMode = mode, mode
		}
	}
	for _, side := range []string{`--- "a/`, "--- a/", `+++ "b/`, "+++ b/"} {
		if strings.HasPrefix(line, side) {
			name := strings.TrimSuffix(line[4:], "\t")
			assert.Equal(t, strings.Contains(name, " "), name != line[4:], "the tab of %q", line)
			assert.Equal(t, s.path, unquoted(t, name)[2:])
		}
	}
}

// gitPath reads the path in a line diff --git, which has it twice.
func (r *reader) gitPath(line string) string {
	names, ok := strings.CutPrefix(line, "diff --git ")
	require.True(r, ok, "%q", line)
	a, b := unquoted(r, names[:len(names)/2]), unquoted(r, names[len(names)/2+1:])
	require.Equal(r, []string{"a/" + a[2:], "b/" + a[2:]}, []string{a, b})
	return a[2:]
}

func unquoted(t testing.TB, name string) string {
	if name[0] != '"' {
		return name
	}
	s, err := strconv.Unquote(name)
	require.NoError(t, err, "%s", name)
	return s
}

func (r *reader) hunk() (h hunk) {
	head := hunkHead.FindStringSubmatch(r.line())
	require.NotNil(r, head)
	var count [2]int
	for i := range h {
		h[i].first, _ = strconv.Atoi(head[2*i+1])
		count[i] = 1
		if n := head[2*i+2]; n != "" {
			count[i], _ = strconv.Atoi(n[1:])
		}
	}
	for len(h[0].lines) < count[0] || len(h[1].lines) < count[1] || r.at(`\`) {
		line := r.line()
		require.NotEmpty(r, line)
		sides := map[byte][]int{'-': {0}, '+': {1}, ' ': {0, 1}}[line[0]]
		require.NotEmpty(r, sides, "%q", line)
		content := line[1:] + "\n"
		if r.at(`\`) {
			require.Equal(r, `\ No newline at end of file`, r.line())
			content = line[1:]
		}
		for _, i := range sides {
			h[i].lines = append(h[i].lines, content)
		}
	}
	for i := range h {
		require.Len(r, h[i].lines, count[i])
	}
	return h
}

func (r *reader) literal() string {
	size := r.line()
	var packed []byte
	for !r.at("\n") {
		line := r.line()
		n := strings.Index("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", line[:1]) + 1
		line = line[1:]
		require.Len(r, line, (n+3)/4*5)
		var bytes []byte
		for ; line != ""; line = line[5:] {
			v := 0
			for i := range 5 {
				v = v*85 + strings.IndexByte(digits, line[i])
			}
			bytes = binary.BigEndian.AppendUint32(bytes, uint32(v))
		}
		packed = append(packed, bytes[:n]...)
	}
	r.line()
	z, err := zlib.NewReader(strings.NewReader(string(packed)))
	require.NoError(r, err)
	data, err := io.ReadAll(z)
	require.NoError(r, err)
	require.Equal(r, size, fmt.Sprint("literal ", len(data)))
	return string(data)
}

// apply returns content as the section changes it.
func (s section) apply(t testing.TB, content string) string {
	if s.literals != nil {
		require.Len(t, s.literals, 2)
		require.True(t, s.literals[1] == content, "the old literal is another")
		return s.literals[0]
	}
	var out strings.Builder
	old, new := strings.SplitAfter(content, "\n"), 0 // lines that are left, lines that are written
	if content == "" || strings.HasSuffix(content, "\n") {
		old = old[:len(old)-1]
	}
	done := 0
	for _, h := range s.hunks {
		start := [2]int{h[0].first - 1, h[1].first - 1}
		for k := range h {
			if len(h[k].lines) == 0 {
				require.Zero(t, h[k].first, "only empty files are without lines: no hunk lacks context")
				start[k] = 0
			}
		}
		require.GreaterOrEqual(t, start[0], done, "hunks overlap")
		for ; done < start[0]; done++ {
			out.WriteString(old[done])
			new++
		}
		require.Equal(t, start[1], new, "first new line")
		require.LessOrEqual(t, done+len(h[0].lines), len(old))
		require.Equal(t, h[0].lines, append([]string(nil), old[done:done+len(h[0].lines)]...))
		out.WriteString(strings.Join(h[1].lines, ""))
		done += len(h[0].lines)
		new += len(h[1].lines)
	}
	out.WriteString(strings.Join(old[done:], ""))
	return out.String()
}
