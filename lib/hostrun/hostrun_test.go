package hostrun

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		assert.False(t, seen[r.Path], "%s comes twice", r.Path)
		seen[r.Path] = true
		for _, text := range []string{r.Tool, r.Why} {
			assert.Equal(t, strings.TrimSpace(text), text)
			assert.NotContains(t, []string{"", "-"}, text, r.Path)
		}
		for _, path := range []string{r.Path, r.Needs} {
			assert.True(t, path == "" || filepath.IsLocal(path) && filepath.Clean(path) == path && path != ".", path)
		}
		source := strings.TrimPrefix(r.Source, "unchecked ")
		assert.True(t, strings.HasPrefix(source, "https://") || r.Tool == "pk", "%s: %s", r.Path, r.Source)
	}
	for _, path := range []string{".envrc", ".mcp.json", ".claude/settings.json", ".vscode/tasks.json", ".codex", ".pk", ".idea/runConfigurations"} {
		assert.True(t, seen[path], path)
	}
	for _, path := range []string{"Makefile", "package.json", "CLAUDE.md", ".env", ".gitmodules", ".git"} {
		assert.False(t, seen[path], path)
	}
}

func TestBraces(t *testing.T) {
	assert.Equal(t, []string{"a"}, spelled("a"))
	assert.Equal(t, []string{"a.b.x", "a.b.y", "ab.x", "ab.y"}, spelled("a{.,}b.{x,y}"))
	for _, r := range Rows() {
		assert.False(t, strings.ContainsAny(r.Path, "{}"), r.Path)
	}
}

// A tool that reads a file under several names finds none of them written.
func TestAllNamesOfATool(t *testing.T) {
	for _, names := range [][]string{
		{"lefthook", "lefthook", ".lefthook", "lefthook-local", ".lefthook-local", ".config/lefthook", ".config/lefthook-local"},
		{"mise", "mise", ".mise", ".config/mise", "mise.local", ".mise.local", ".config/mise.local", "mise/config", "mise/config.local"},
		{"hk", "hk", "hk.local", ".config/hk", ".config/hk.local"},
	} {
		endings := map[string][]string{"lefthook": {"yml", "yaml", "toml", "json", "jsonc"}, "mise": {"toml"}, "hk": {"pkl"}}[names[0]]
		for _, name := range names[1:] {
			for _, ending := range endings {
				path := name + "." + ending
				assert.True(t, slices.ContainsFunc(Rows(), func(r Row) bool { return r.Tool == names[0] && r.Path == path }), path)
			}
		}
	}
	for _, path := range []string{".lefthook", ".lefthook-local", ".local-overcommit.yml", ".git-hooks", "prek.toml", ".pre-commit-config.yml"} {
		assert.True(t, slices.ContainsFunc(Rows(), func(r Row) bool { return r.Path == path && r.Needs == gitHooks }), path)
	}
}

func TestRowsThatAreNone(t *testing.T) {
	_, err := parse("# one\n\na\tb\n")
	assert.ErrorContains(t, err, "line 3")
}

func TestRowsThatNeedAPath(t *testing.T) {
	root := t.TempDir()
	listed := func(name string) bool {
		for _, p := range Files(root) {
			assert.True(t, p.Default)
			if p.Path == filepath.Join(root, name) {
				return true
			}
		}
		return false
	}
	assert.True(t, listed(".envrc"), "also while it is missing")
	assert.False(t, listed(".pre-commit-config.yaml"))
	require.NoError(t, os.MkdirAll(root+"/.git/hooks", 0o755))
	require.NoError(t, os.WriteFile(root+"/.git/hooks/pre-commit.sample", nil, 0o755))
	assert.False(t, listed(".pre-commit-config.yaml"))
	require.NoError(t, os.Symlink("nowhere", root+"/.git/hooks/pre-push"))
	assert.True(t, listed(".pre-commit-config.yaml"))
}

func TestRowsThatNeedAHook(t *testing.T) {
	tree, hooks := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(hooks+"/pre-push.sample", nil, 0o755))
	assert.Empty(t, Hooked(tree, hooks))
	assert.Empty(t, Hooked(tree, hooks+"/missing"))
	assert.Empty(t, Hooked(tree, "/dev/null"))
	require.NoError(t, os.WriteFile(hooks+"/pre-push", nil, 0o755))
	var names []string
	for _, p := range Hooked(tree, hooks) {
		assert.True(t, p.Default)
		names = append(names, strings.TrimPrefix(p.Path, tree+"/"))
	}
	assert.Subset(t, names, []string{".pre-commit-config.yaml", "lefthook.yml", ".overcommit.yml"})
	assert.NotContains(t, names, ".envrc")
}

// The page lists each row.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../man/pk-bwrap.1")
	require.NoError(t, err)
	var words []string
	for _, word := range strings.Fields(strings.ReplaceAll(string(text), `\-`, "-")) {
		words = append(words, spelled(word)...)
	}
	for _, r := range Rows() {
		if !slices.Contains(words, r.Path) {
			t.Errorf("man/pk-bwrap.1 does not list %q of %s", r.Path, r.Tool)
		}
	}
}
