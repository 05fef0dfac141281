package edit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/workspace"
)

func open(t *testing.T) (ws *workspace.LocalWorkspace, dir string) {
	t.Helper()
	dir = t.TempDir()
	ws, err := workspace.NewLocalWorkspace(dir)
	require.NoError(t, err)
	t.Cleanup(func() { ws.Close() })
	return ws, dir
}

func put(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o640))
}

func contentOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestReplace(t *testing.T) {
	for _, row := range []struct {
		name, text string
		r          Replacement
		want       string // "" for an error
		says       string
	}{
		{"once", "one\ntwo\n", Replacement{Old: "two", New: "2"}, "one\n2\n", ""},
		{"several lines", "a\nb\nc\n", Replacement{Old: "a\nb\n", New: ""}, "c\n", ""},
		{"without a newline at the end", "a\nb", Replacement{Old: "b", New: "c"}, "a\nc", ""},
		{"bytes that are no text", "a\xff\x00b", Replacement{Old: "\xff\x00", New: "\xfe"}, "a\xfeb", ""},
		{"missing", "one\n", Replacement{Old: "two", New: "2"}, "", "the old text is not there"},
		{"twice", "a\nb\na\n", Replacement{Old: "a", New: "c"}, "", "the old text is there several times: lines 1, 3"},
		{"twice in a line", "a a\n", Replacement{Old: "a", New: "c"}, "", "the old text is there several times: line 1"},
		{"overlapping", "x\naaa\n", Replacement{Old: "aa", New: "b"}, "", "the old text is there several times: line 2"},
		{"all", "a\nb\na\n", Replacement{Old: "a", New: "aa", All: true}, "aa\nb\naa\n", ""},
		{"all, overlapping", "aaa\n", Replacement{Old: "aa", New: "b", All: true}, "ba\n", ""},
		{"all of none", "x\n", Replacement{Old: "aa", New: "b", All: true}, "", "the old text is not there"},
		{"CRLF, given as LF", "a\r\nb\r\nc\r\n", Replacement{Old: "a\nb\n", New: "a\nx\nb\n"}, "a\r\nx\r\nb\r\nc\r\n", ""},
		{"CRLF, a new line in one", "a\r\nb\r\n", Replacement{Old: "b", New: "b\nc"}, "a\r\nb\r\nc\r\n", ""},
		{"CRLF, given as it is", "a\r\nb\r\n", Replacement{Old: "a\r\n", New: "c\n"}, "c\nb\r\n", ""},
		{"CRLF in some lines", "a\r\nb\nc\n", Replacement{Old: "b\nc", New: "x\ny"}, "a\r\nx\ny\n", ""},
		{"CRLF in some lines, given as LF", "a\r\nb\nc\n", Replacement{Old: "a\nb", New: "x"}, "", "the old text is not there"},
		{"no old text", "a\n", Replacement{New: "x"}, "", `cannot edit "f": invalid argument: the old text is empty`},
		{"nothing new", "a\n", Replacement{Old: "a", New: "a"}, "", `cannot edit "f": invalid argument: the old text and the new one are the same`},
		{"the hash", "a\n", Replacement{Old: "a", New: "b", IfHash: workspace.HashOf([]byte("a\n"))}, "b\n", ""},
		{"another hash", "a\n", Replacement{Old: "a", New: "b", IfHash: workspace.HashOf([]byte("b\n"))}, "", `cannot edit "f": changed in the meantime`},
	} {
		t.Run(row.name, func(t *testing.T) {
			ws, dir := open(t)
			put(t, dir+"/f", row.text)
			result, err := File(t.Context(), ws, "f", row.r)
			if row.says != "" {
				assert.EqualError(t, err, row.says)
				row.want = row.text
			} else {
				require.NoError(t, err)
				assert.Equal(t, workspace.HashOf([]byte(row.want)), result.Hash())
			}
			assert.Equal(t, row.want, contentOf(t, dir+"/f"))
			info, err := os.Stat(dir + "/f")
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o640), info.Mode())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, entries, 1)
		})
	}
}

func TestFilesThatAreNone(t *testing.T) {
	ws, dir := open(t)
	require.NoError(t, os.Mkdir(dir+"/d", 0o755))
	require.NoError(t, os.Symlink("f", dir+"/l"))
	require.NoError(t, os.Truncate(put2(t, dir+"/huge"), maxFile+1))
	put(t, dir+"/f", "a")
	for path, want := range map[string]error{"d": workspace.ErrIsDir, "none": workspace.ErrNotFound, "huge": workspace.ErrTooLarge, "../f": workspace.ErrPathTraversal} {
		_, err := File(t.Context(), ws, path, Replacement{Old: "a", New: "b"})
		assert.ErrorIs(t, err, want, path)
	}
	_, err := File(t.Context(), ws, "l", Replacement{Old: "a", New: "b"})
	assert.ErrorIs(t, err, workspace.ErrChanged, "the caller follows links")
	assert.Equal(t, "a", contentOf(t, dir+"/f"))
}

func put2(t *testing.T, file string) string { put(t, file, ""); return file }

// TestRandomEdits compares a thousand edits with a model in memory.
func TestRandomEdits(t *testing.T) {
	ws, dir := open(t)
	model := ""
	piece := func(n int) string {
		var text strings.Builder
		for range rand.IntN(n) {
			text.WriteByte("abc\n"[rand.IntN(4)])
		}
		return text.String()
	}
	done := 0
	for range 1000 {
		if len(model) < 20 || len(model) > 3500 { // most edits would do nothing from here on
			model = strings.Repeat("abc\nab\n", 20)
			put(t, dir+"/f", model)
		}
		r := Replacement{Old: piece(12), New: piece(12), All: rand.IntN(4) == 0}
		if rand.IntN(2) == 0 && len(model) > 10 { // often one that is there
			at := rand.IntN(len(model) - 5)
			r.Old = model[at:min(len(model), at+1+rand.IntN(15))]
		}
		want, ok := model, r.Old != "" && r.Old != r.New
		if ok && r.All {
			ok = strings.Contains(model, r.Old)
			want = strings.ReplaceAll(model, r.Old, r.New)
		} else if ok {
			before, after, found := strings.Cut(model, r.Old)
			ok = found && !strings.Contains(model[len(before)+1:], r.Old)
			want = before + r.New + after
		}
		if len(want) > 4000 {
			continue
		}
		result, err := File(t.Context(), ws, "f", r)
		require.Equal(t, ok, err == nil, "%+v: %v", r, err)
		if ok {
			require.Equal(t, want, string(result.New))
			model = want
			done++
		}
		require.Equal(t, model, contentOf(t, dir+"/f"))
	}
	require.Greater(t, done, 100)
}

// TestEditsAtOnce: concurrent edits of a file are all kept. An edit that comes too late
// returns ErrChanged.
func TestEditsAtOnce(t *testing.T) {
	ws, dir := open(t)
	put(t, dir+"/f", "a0.\nb0.\nc0.\n")
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for i := 0; i < 40; {
				_, err := File(t.Context(), ws, "f", Replacement{Old: fmt.Sprintf("%s%d.", name, i), New: fmt.Sprintf("%s%d.", name, i+1)})
				if err == nil {
					i++
				} else if !errors.Is(err, workspace.ErrChanged) {
					assert.NoError(t, err)
					return
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, "a40.\nb40.\nc40.\n", contentOf(t, dir+"/f"))
}

// TestChangedMeanwhile: an editor replaces a file during an edit. No version of the editor
// is lost.
func TestChangedMeanwhile(t *testing.T) {
	ws, dir := open(t)
	refused := 0
	for i := range 100 {
		put(t, dir+"/f", "old x\n")
		own := fmt.Sprintf("version %d x\n", i)
		put(t, dir+"/f.new", own)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, os.Rename(dir+"/f.new", dir+"/f")) })
		_, err := File(t.Context(), ws, "f", Replacement{Old: "x", New: "y"})
		wg.Wait()
		if err != nil {
			require.ErrorIs(t, err, workspace.ErrChanged)
			refused++
		}
		require.Contains(t, []string{own, strings.Replace(own, "x", "y", 1)}, contentOf(t, dir+"/f"), "%v", err)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
	t.Logf("refused %d times", refused)
}
