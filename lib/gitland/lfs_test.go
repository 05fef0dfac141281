package gitland_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Files of Git LFS land if their content has their name, and none of the host's changes.
func TestLFS(t *testing.T) {
	p := newTemplate(t).place(t)
	at := func(dir, content string) string {
		id := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
		return filepath.Join(dir, "lfs/objects", id[:2], id[2:4], id)
	}
	put := func(file, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	}
	holes := string(make([]byte, 1<<20)) + "end" + string(make([]byte, 1<<20))
	put(at(p.gitDir, "the host's"), "which is damaged")
	var landing []string
	land := func() []string {
		told, err := p.land(func(upper string) {
			for _, content := range []string{"new", "", holes} {
				put(at(upper, content), content)
				landing = append(landing, content)
			}
			put(at(upper, "the host's"), "the host's")
			put(at(upper, "name"), "content")
			put(at(upper, "elsewhere")+"x", "elsewhere")
			put(filepath.Join(upper, "lfs/objects/ab/cd", filepath.Base(at("", "deep"))), "deep")
			put(upper+"/lfs/tmp/x", "x")
			put(upper+"/lfs/cache/x", "x")
			link := at(upper, "link")
			require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
			require.NoError(t, os.Symlink("/etc/passwd", link))
			require.NoError(t, os.MkdirAll(at(upper, "directory"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Dir(at(upper, "pipe")), 0o755))
			require.NoError(t, unix.Mkfifo(at(upper, "pipe"), 0o644))
		})
		require.NoError(t, err)
		return told
	}
	told := land()
	for _, content := range landing {
		text, err := os.ReadFile(at(p.gitDir, content))
		require.NoError(t, err)
		assert.True(t, content == string(text))
	}
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(at(p.gitDir, holes), &st))
	assert.Less(t, st.Blocks*512, int64(1<<20))
	text, err := os.ReadFile(at(p.gitDir, "the host's"))
	require.NoError(t, err)
	assert.Equal(t, "which is damaged", string(text))
	files, err := filepath.Glob(p.gitDir + "/lfs/*/*/*/*")
	require.NoError(t, err)
	assert.Len(t, files, len(landing)+1)
	assert.NoDirExists(t, p.gitDir+"/lfs/tmp")
	assert.NoDirExists(t, p.gitDir+"/lfs/cache")
	require.Len(t, told, 4)
	for i, why := range []string{"its content", "link", "regular", "regular"} {
		assert.Contains(t, fmt.Sprint(told), why, "%d", i)
	}
	upper := filepath.Join(p.layers, "*/upper-*")
	left, err := filepath.Glob(upper + "/lfs/objects/*/*/*")
	require.NoError(t, err)
	assert.Len(t, left, 2, "those that did not land, but no link and no pipe")
	left, err = filepath.Glob(upper + "/lfs/tmp")
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A file of holes costs no disk, and hours to read.
func TestLFSOfHoles(t *testing.T) {
	p := newTemplate(t).place(t)
	told, err := p.land(func(upper string) {
		dir := filepath.Join(upper, "lfs/objects/12/34")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		file := filepath.Join(dir, fmt.Sprintf("1234%060d", 0))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
		require.NoError(t, os.Truncate(file, 1<<40))
		for i := range 9 {
			require.NoError(t, os.Link(file, filepath.Join(dir, fmt.Sprintf("1234%060d", i+1))))
		}
	})
	require.NoError(t, err)
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "too much for one landing")
}
