package gitignore

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Sparse decides as git does, for cones and for other patterns.
func TestSparseAsGit(t *testing.T) {
	files := strings.Fields("a b.o d/a d/b.o d/e/a d/e/f/a d/g/a e/a e/d/a f/e/a")
	dir := t.TempDir()
	git(t, dir, "/dev/null", "", "init", "-q")
	for _, file := range files {
		write(t, dir, file, "")
	}
	git(t, dir, "/dev/null", "", "add", ".")
	for _, row := range []struct{ cone, patterns string }{
		{"--cone", ""}, {"--cone", "d"}, {"--cone", "d/e"}, {"--cone", "d/e/f\ne"}, {"--cone", "e/d\nf"}, {"--cone", "none"},
		{"--no-cone", ""}, {"--no-cone", "/d/"}, {"--no-cone", "d"}, {"--no-cone", "a"}, {"--no-cone", "*.o"}, {"--no-cone", "/*\n!/d"}, {"--no-cone", "/*\n!/d/*\n/d/e"},
		{"--no-cone", "/d/\n!/d/e\n/d/e/f"}, {"--no-cone", "*\n!a"}, {"--no-cone", "!/d\nd/a"}, {"--no-cone", "e/"}, {"--no-cone", "d/*/a"}, {"--no-cone", "/*\n!/*/\n"},
	} {
		cmd := exec.Command("git", "sparse-checkout", "set", row.cone, "--stdin")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(row.patterns+"\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		patterns, err := os.ReadFile(dir + "/.git/info/sparse-checkout")
		require.NoError(t, err)
		s := ParseSparse(patterns)
		var got []string
		for _, file := range files {
			mark := "S "
			if s.Has(file) {
				mark = "H "
			}
			got = append(got, mark+file)
		}
		want := git(t, dir, "/dev/null", "", "ls-files", "-t")
		assert.Equal(t, strings.Split(strings.TrimSpace(want), "\n"), got, "%s %q", row.cone, row.patterns)
	}
}
