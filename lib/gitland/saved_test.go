package gitland

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Commands that begin at the same time save one layer each. Saved finds all of them.
func TestSaved(t *testing.T) {
	host, in := t.TempDir(), t.TempDir()
	none, err := Saved(filepath.Join(in, "missing"))
	require.NoError(t, err)
	assert.Empty(t, none)
	var want []string
	for _, name := range []string{"a", "b[", "c", "d\xff"} {
		dir := filepath.Join(host, name, ".git")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		want = append(want, dir)
	}
	require.NoError(t, os.Mkdir(filepath.Join(in, "another"), 0o700))
	var wait sync.WaitGroup
	for _, dir := range slices.Repeat(want, 4) {
		wait.Go(func() {
			l, err := OpenShared(in, dir, "s")
			if assert.NoError(t, err) {
				l.GitDirs = []string{dir}
				assert.NoError(t, l.Save())
				l.Started()
				assert.NoError(t, l.Close())
			}
		})
	}
	wait.Wait()
	list, err := Saved(in)
	require.NoError(t, err)
	var got []string
	for _, l := range list {
		assert.Equal(t, []string{l.GitDir}, l.GitDirs)
		got = append(got, l.GitDir)
	}
	assert.Equal(t, want, got)
}

// Names of references and of directories are bytes. Two of them that are not UTF-8 stay two.
func TestRecordKeepsBytes(t *testing.T) {
	l := &Layer{}
	l.Dir = t.TempDir()
	want, err := l.load()
	assert.ErrorIs(t, err, os.ErrNotExist)
	want.refs("modules/m\xff")["refs/heads/a\xff"] = "1"
	want.refs("modules/m\xff")["refs/heads/a\xfe"] = "2"
	want.began("refs/heads/a\xff", "0")
	want.Keep, want.Held = []string{"refs/heads/a\xff"}, map[string]int64{"refs/heads/a\xff": 1}
	want.Place = "/p\xff/.git"
	require.NoError(t, l.save(want))
	got, err := l.load()
	require.NoError(t, err)
	assert.Equal(t, want, got)
}
