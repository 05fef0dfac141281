package gitplace

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInside(t *testing.T) {
	for _, test := range []struct {
		name  string
		path  string
		there []string
		want  bool
	}{
		{"the root", ".", []string{"HEAD", "objects", "refs"}, false},
		{"an ordinary file", "src/main.c", nil, false},
		{"git's own files in the tree", ".github/.gitignore", nil, false},
		{"names that only begin so", ".gitx/git~2/x.git", nil, false},
		{".git", ".git", nil, true},
		{"below one", "a/.git/hooks/x", nil, true},
		{"in another case", ".GiT/config", nil, true},
		{"with characters that HFS+ ignores", ".g\u200cit/config", nil, true},
		{"with dots and blanks that NTFS drops", ".git . ./config", nil, true},
		{"a stream of NTFS", ".git::$INDEX_ALLOCATION/config", nil, true},
		{"a short name of NTFS", "GIT~1/config", nil, true},
		{"a backslash", `.git\config`, nil, true},
		{"bytes that are not UTF-8", ".git\xff/config", nil, false},
		{"a bare repository at the root", "config", []string{"HEAD", "objects", "refs"}, true},
		{"deep in one further down", "a/m.git/hooks/x", []string{"a/m.git/HEAD", "a/m.git/objects", "a/m.git/refs"}, true},
		{"beside one", "a/x", []string{"a/m.git/HEAD", "a/m.git/objects", "a/m.git/refs"}, false},
		{"the repository itself", "m.git", []string{"m.git/HEAD", "m.git/objects", "m.git/refs"}, false},
		{"two of three", "x", []string{"HEAD", "objects"}, false},
		{"the third, in any case", "Refs/heads/x", []string{"HEAD", "objects"}, true},
		{"HEAD as the third", "HEAD", []string{"objects", "refs"}, true},
		{"HEAD alone", "HEAD", nil, false},
		{"a linked worktree's directory", "config.worktree", []string{"HEAD", "commondir"}, true},
		{"commondir beside HEAD", "commondir", []string{"HEAD"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Inside(test.path, func(path string) (bool, error) { return slices.Contains(test.there, path), nil })
			assert.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestDirectoriesThatCannotBeLookedInto(t *testing.T) {
	fault := errors.New("permission denied")
	_, err := Inside("a/b", func(string) (bool, error) { return false, fault })
	assert.ErrorIs(t, err, fault)
}
