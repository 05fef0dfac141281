package toolchain

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func builtinTable(t *testing.T) Table {
	t.Helper()
	table, err := Load()
	require.NoError(t, err)
	return table
}

// TestLoadSkipsNoMistake: Parse accepts the text that Load does not check.
func TestLoadSkipsNoMistake(t *testing.T) {
	checked, err := Parse("toolchains.tsv", builtin)
	require.NoError(t, err)
	assert.Equal(t, checked, builtinTable(t))
}

// TestOrder pins the rows that were there first, which callers may rely on.
func TestOrder(t *testing.T) {
	first := map[Kind]string{
		Readable: "/usr /opt ~/.local/share/mise ~/.config/mise/config.toml ~/.asdf ~/.rbenv ~/.pyenv ~/.nvm ~/.rustup",
		Overlay: "~/.cargo/registry ~/.m2/repository ~/.gradle/caches ~/.gradle/wrapper/dists ~/.gradle/jdks ~/.ivy2/cache " +
			"~/go/pkg/mod ~/.cache/pip ~/.cache/uv ~/.npm/_cacache ~/.npm/_npx ~/.local/share/pnpm/store ~/.nuget/packages",
	}
	got := map[Kind]string{}
	for _, r := range builtinTable(t).Rows() {
		got[r.Kind] += r.Path + " "
	}
	for kind, want := range first {
		assert.True(t, strings.HasPrefix(got[kind], want+" "), "%s: %s", kind, got[kind])
	}
}

// TestNoRowShowsASecret checks each row against never.txt and against its own
// list of credentials beside it.
func TestNoRowShowsASecret(t *testing.T) {
	require.NotEmpty(t, neverList())
	for _, r := range builtinTable(t).Rows() {
		for _, n := range neverList() {
			assert.False(t, n.forbids(elements(r.Path)), "%s: %s", r.Path, n.pattern)
		}
		for _, beside := range r.Beside {
			assert.False(t, newNever(beside, false).forbids(elements(r.Path)), "%s shows %s, which is not marked", r.Path, beside)
		}
		for _, risk := range r.Risks {
			_, inside := below(r.Path, risk)
			assert.True(t, inside, "%s: %s is not inside", r.Path, risk)
		}
	}
}

// TestNoRowShowsAnothersSecret: no row shows a credential that another row names.
func TestNoRowShowsAnothersSecret(t *testing.T) {
	rows := builtinTable(t).Rows()
	for _, r := range rows {
		for _, beside := range r.Beside {
			for _, other := range rows {
				assert.False(t, newNever(beside, false).forbids(elements(other.Path)), "%s shows %s of %s", other.Path, beside, r.Path)
			}
		}
	}
}

func TestNeverListIsWellFormed(t *testing.T) {
	for _, n := range neverList() {
		assert.NoError(t, checkPath(n.pattern), n.pattern)
	}
}

func TestSourcesAreGiven(t *testing.T) {
	for _, r := range builtinTable(t).Rows() {
		assert.True(t, strings.HasPrefix(r.Source, "https://"), r.Path)
		assert.Equal(t, r.Path, path.Clean(r.Path))
	}
}

func TestParseRow(t *testing.T) {
	table, err := Parse("own.tsv", "# comment\n\noverlay\tx\t~/.x/*\t$X/a; $Y[0]/b\tin:~/.x/*/key; risk:~/.x/*/**/c; ~/.y\tX_MODE=copy; X_DIR={path}\tunchecked https://e.org\n")
	require.NoError(t, err)
	assert.Equal(t, []Row{{
		Kind: Overlay, Tool: "x", Path: "~/.x/*",
		Variables: []string{"$X/a", "$Y[0]/b"},
		Inside:    []string{"key"},
		Risks:     []string{"~/.x/*/**/c"},
		Beside:    []string{"~/.y"},
		Settings:  []string{"X_MODE=copy", "X_DIR={path}"},
		Source:    "https://e.org",
		Unchecked: true,
		File:      "own.tsv",
		Line:      3,
	}}, table.Rows())
	assert.Equal(t, []string{"x"}, table.Tools())
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ name, row, want string }{
		{"five columns", "readable\tx\t/x\t-\t-", "5 columns, want 7"},
		{"blanks for tabs", "readable x /x - - -", "1 columns, want 7"},
		{"unknown kind", "writable\tx\t/x\t-\t-\t-\t-", `kind "writable"`},
		{"no tool", "readable\t-\t/x\t-\t-\t-\t-", "the tool has no name"},
		{"relative path", "readable\tx\tx\t-\t-\t-\t-", `path "x"`},
		{"home itself", "readable\tx\t~\t-\t-\t-\t-", `path "~"`},
		{"home itself, by another name", "readable\tx\t~/.\t-\t-\t-\t-", `path "~/."`},
		{"the root", "readable\tx\t/\t-\t-\t-\t-", `path "/"`},
		{"dots", "readable\tx\t/x/../y\t-\t-\t-\t-", "is not clean"},
		{"bad pattern", "readable\tx\t/x[\t-\t-\t-\t-", "is not a pattern"},
		{"any depth", "readable\tx\t/x/**/y\t-\t-\t-\t-", "is not a pattern"},
		{"template without a variable", "readable\tx\t/x\t/y\t-\t-\t-", `template "/y"`},
		{"a setting without a value", "readable\tx\t/x\t-\t-\tX\t-", `setting "X" is not NAME=VALUE`},
		{"a setting without a name", "readable\tx\t/x\t-\t-\t1X=a\t-", `setting "1X=a" is not NAME=VALUE`},
		{"an excluded file without a place", "readable\tx\t/x\t-\tsecrets\t-\t-", `path "secrets"`},
		{"in: outside", "readable\tx\t/x\t-\tin:/xy\t-\t-", `"/xy" is not inside "/x"`},
		{"in: the path itself", "readable\tx\t/x\t-\tin:/x\t-\t-", `"/x" is not inside "/x"`},
		{"in: with dots", "readable\tx\t/x\t-\tin:/x/../y\t-\t-", "is not clean"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("own.tsv", "# comment\n"+test.row+"\n")
			require.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, "own.tsv: line 2: ")
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(builtin)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := Parse("fuzz", text)
		if err != nil {
			return
		}
		for _, r := range table.Rows() {
			assert.True(t, strings.HasPrefix(r.Path, "/") || strings.HasPrefix(r.Path, "~/"), "%q", r.Path)
		}
	})
}

func TestForbids(t *testing.T) {
	for _, test := range []struct {
		name string
		line never
		dir  string
		want bool
	}{
		{"the place", newNever("/a/b", false), "/a/b", true},
		{"above it", newNever("/a/b", false), "/a", true},
		{"the root", newNever("/a/b", false), "/", true},
		{"in it", newNever("/a/b", false), "/a/b/c", true},
		{"beside it", newNever("/a/b", false), "/a/c", false},
		{"a longer name", newNever("/a/b", false), "/a/bc", false},
		{"a pattern", newNever("/a/b*", false), "/a/bc", true},
		{"the top of a place", newNever("/run/user/*", true), "/run/user/1000", true},
		{"above the top", newNever("/run/user/*", true), "/run", true},
		{"below the top", newNever("/run/user/*", true), "/run/user/1000/fnm", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, test.line.forbids(elements(test.dir)))
		})
	}
}
