package quarantine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilesWithOtherNames(t *testing.T) {
	large := strings.Repeat("x", maxLinked+1)
	for _, test := range []struct {
		name    string
		content string
		change  func(t *testing.T, protected, other string)
		want    string // the final content at the protected name
		moved   bool
		fails   string
	}{
		{"nothing", "mine", func(*testing.T, string, string) {}, "mine", false, ""},
		{"written by its other name", "mine", func(t *testing.T, _, other string) {
			require.NoError(t, os.WriteFile(other, []byte("evil"), 0o600))
		}, "mine", true, ""},
		{"its times are set back", "mine", func(t *testing.T, _, other string) {
			info, err := os.Stat(other)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(other, []byte("evil"), 0o600))
			require.NoError(t, os.Chtimes(other, info.ModTime(), info.ModTime()))
		}, "mine", true, ""},
		{"it cannot be read any more", "mine", func(t *testing.T, _, other string) {
			require.NoError(t, os.WriteFile(other, []byte("evil"), 0o600))
			require.NoError(t, os.Chmod(other, 0))
		}, "mine", true, ""},
		{"its other name is removed", "mine", func(t *testing.T, _, other string) { require.NoError(t, os.Remove(other)) }, "mine", false, ""},
		{"the user replaces it", "mine", func(t *testing.T, protected, other string) {
			require.NoError(t, os.WriteFile(protected+"~", []byte("newer"), 0o644))
			require.NoError(t, os.Rename(protected+"~", protected))
		}, "newer", false, ""},
		{"the user removes it", "mine", func(t *testing.T, protected, _ string) { require.NoError(t, os.Remove(protected)) }, "", false, ""},
		{"a large one is not touched", large, func(*testing.T, string, string) {}, large, false, ""},
		{"a large one is written", large, func(t *testing.T, _, other string) {
			tick(t, filepath.Dir(other))
			require.NoError(t, os.WriteFile(other, []byte("evil"), 0o600))
		}, "", true, "its content was not kept"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base, project := ground(t)
			protected, other := project+"/.git/hooks/x", project+"/other"
			require.NoError(t, os.Mkdir(project+"/.git/hooks", 0o755))
			require.NoError(t, os.WriteFile(other, []byte(test.content), 0o640))
			require.NoError(t, os.Link(other, protected))
			require.NoError(t, os.WriteFile(project+"/.git/hooks/single", nil, 0o600))
			linked, err := LinkedBelow(project + "/.git/hooks")
			require.NoError(t, err)
			require.Len(t, linked, 1)
			n, err := Begin(base, Note{Linked: linked, Session: "workspace-x"})
			require.NoError(t, err)
			test.change(t, protected, other)
			require.NoError(t, n.file.Close())
			done, err := Recover(base) // as End does
			require.NoError(t, done.Told())
			if test.fails == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.fails)
			}
			assert.Len(t, done.Moved, map[bool]int{true: 1}[test.moved])
			text, err := os.ReadFile(protected)
			if test.want == "" {
				assert.ErrorIs(t, err, os.ErrNotExist)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, string(text))
			if test.moved {
				info, err := os.Stat(protected)
				require.NoError(t, err)
				assert.Equal(t, os.FileMode(0o640), info.Mode())
			}
		})
	}
}

func TestFilesThatAreTooMany(t *testing.T) {
	dir := t.TempDir()
	for i := range maxEntries {
		require.NoError(t, os.Mkdir(filepath.Join(dir, strings.Repeat("d", i%200+1)+string(rune('A'+i/200))), 0o755))
	}
	_, err := LinkedBelow(dir)
	assert.ErrorContains(t, err, "more than")
	linked, err := LinkedBelow(dir + "/nonesuch")
	assert.NoError(t, err)
	assert.Empty(t, linked)
}

// A file that cannot be moved loses its name at least.
func TestWhereThereIsNoQuarantine(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
	for _, into := range []string{"", dir + "/file/aside"} {
		require.NoError(t, os.WriteFile(dir+"/hook", nil, 0o700))
		moved, err := Move([]string{dir + "/hook"}, into, func(Moved) {})
		assert.ErrorContains(t, err, `cannot move "`+dir+`/hook" to the quarantine: it is now ".pk-moved-`)
		assert.Empty(t, moved)
		assert.NoFileExists(t, dir+"/hook")
	}
}
