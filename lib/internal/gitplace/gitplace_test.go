package gitplace

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		{"bytes that are not UTF-8", ".git\xff/config", nil, true},
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

// Git refuses in its index all names that it takes for .git.
func TestNamesAsGitTakesThem(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) error {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
		return cmd.Run()
	}
	require.NoError(t, git("init", "-q"))
	for _, name := range []string{
		".git", ".GIT", ".gIt", ".git.", ".git ", ".git . .", ".git:x", ".git::$INDEX_ALLOCATION", "git~1", "GIT~1", "git~1 .", "git~1:x",
		".g\u200cit", "\u200f.git", ".git\ufeff", "\u202e.\u206fgit",
		".gitx", ".gi", "git", "git~2", "git~10", "x.git", " .git", ".git~1", ".git\u2010", "g\u0131t~1", ".g\u0131t", ".gitignore", ".git\xff",
	} {
		err := git("update-index", "--add", "--cacheinfo", "100644,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,d/"+name+"/x")
		assert.Equal(t, err != nil, Named("d/"+name+"/x"), "%q", name)
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", ".git", ".Git", ".git ", ".git...", ".git::$INDEX_ALLOCATION", "GIT~1", "git~1.", "x\\.git", "x\\git~1\\y", ".git\\x", "\u200c.git", ".gi\ufefft"} {
		assert.Error(t, CheckName(name), "%q", name)
	}
	for _, name := range []string{"a", "...", ".gitx", ".git x", "git", "git~2", "git~10", ".gitignore", "é", "a\\b", "x~1", ".gi", "\xff"} {
		assert.NoError(t, CheckName(name), "%q", name)
	}
	for _, name := range []string{".gitmodules", ".GITMODULES", ".gitmodules .", ".gitmodules:x", "gitmod~1", "gitmod~4", "gi7eba~1", "gi7eb~10", "g~123456", "~1234567", "x\\.gitmodules", ".git\u200cmodules"} {
		assert.True(t, IsGitFile(name, "gitmodules", "gi7eba"), "%q", name)
	}
	for _, name := range []string{"gitmodules", ".gitmodulesx", "gitmod~5", "gi7eba~0", "gi7ebx~1", "gi7eba~x", ".gitmodules x"} {
		assert.False(t, IsGitFile(name, "gitmodules", "gi7eba"), "%q", name)
	}
}
