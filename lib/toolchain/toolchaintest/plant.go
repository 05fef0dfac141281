// Package toolchaintest makes homes in which every tool of the table is used,
// and every credential that the table knows of lies where it would.
package toolchaintest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/toolchain"
)

// files are paths of the table that are files, not directories.
var files = []string{"~/.config/mise/config.toml", "~/.asdfrc", "~/.tool-versions"}

// directories are secrets in which pk itself keeps something.
var directories = []string{"~/.cache/pikuri"}

// Plant makes every path of the table below home, for a user called "u" and
// without variables, and a file with the given content at each place of a
// credential. It returns these files. It leaves alone paths outside the home, and
// files that a tool needs and that therefore stay visible.
func Plant(t testing.TB, home string, table toolchain.Table, content string) []string {
	t.Helper()
	for _, r := range table.Rows() { // first the exposed directories, so that no file takes the place of one
		path, inHome := concrete(home, r.Path)
		switch {
		case !inHome:
		case slices.Contains(files, r.Path):
			write(t, path, "")
		default:
			require.NoError(t, os.MkdirAll(path, 0o755))
		}
	}
	return PlantSecrets(t, home, table, content)
}

// PlantSecrets is Plant without the paths in which there are no credentials.
func PlantSecrets(t testing.TB, home string, table toolchain.Table, content string) []string {
	t.Helper()
	secrets := table.Secrets()
	// The deepest first: a directory of one row is a file to none.
	slices.SortStableFunc(secrets, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	var planted []string
	for _, s := range secrets {
		path, inHome := concrete(home, s)
		if !inHome {
			continue
		}
		if slices.Contains(directories, s) {
			require.NoError(t, os.MkdirAll(path, 0o700))
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, "planted")
		}
		write(t, path, content)
		if !slices.Contains(planted, path) {
			planted = append(planted, path)
		}
	}
	return planted
}

// concrete is one path that a pattern below the home matches.
func concrete(home, pattern string) (string, bool) {
	rel, inHome := strings.CutPrefix(pattern, "~/")
	return filepath.Join(home, strings.NewReplacer("*", "x", "$USER", "u").Replace(rel)), inHome
}

func write(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}
