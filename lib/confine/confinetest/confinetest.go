// Package confinetest builds the trees that tests of containment need, and
// replays the cases of lib/confine/testdata/path-corpus.json.
package confinetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Mine reports whether this run does a round of a random test. scripts/test runs the tests
// as root and as an ordinary user, and sets $PK_TEST_MATRIX. Then each run does every other
// round; without it, a run does all.
func Mine(round int) bool {
	return os.Getenv("PK_TEST_MATRIX") == "" || round%2 == 0 == (os.Getuid() == 0)
}

// Share is the part of the duration of a race, or of its rounds, that this run does: half
// of it where Mine shares rounds.
func Share[N int | time.Duration](all N) N {
	if os.Getenv("PK_TEST_MATRIX") == "" {
		return all
	}
	return all / 2
}

// Dir returns an empty directory with a canonical name that any user can enter.
// It is not below /tmp, which an alias may give another meaning.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(top(t), "pk-test-")
	check(t, err)
	t.Cleanup(func() { remove(dir) })
	check(t, os.Chmod(dir, 0o755))
	return dir
}

// IsDir reports whether dir is one that Dir returned, or lies in one.
func IsDir(t testing.TB, dir string) bool { return strings.HasPrefix(dir, top(t)+"/pk-test-") }

// top is $TMPDIR, or /var/tmp where that is below /tmp or closed to others.
func top(t testing.TB) string {
	t.Helper()
	dir := os.TempDir()
	if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 || dir == "/tmp" || strings.HasPrefix(dir, "/tmp/") {
		dir = "/var/tmp"
	}
	dir, err := filepath.EvalSymlinks(dir)
	check(t, err)
	return dir
}

// remove removes a tree. The kernel makes a directory of mode 000 below the work
// directory of an overlay, and leaves whiteouts in it.
func remove(dir string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	os.RemoveAll(dir)
}

// Tree makes a tree in a new directory: "d/" is a directory, "f" a file,
// "a => b" a link to b, in which {base} stands for the new directory. Missing
// parents are made.
func Tree(t testing.TB, lines ...string) string {
	t.Helper()
	base := Dir(t)
	Grow(t, base, lines...)
	return base
}

// Grow adds lines to a tree.
func Grow(t testing.TB, base string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		name, target, isLink := strings.Cut(line, " => ")
		path := base + "/" + name
		check(t, os.MkdirAll(filepath.Dir(strings.TrimSuffix(path, "/")), 0o755))
		switch {
		case isLink:
			check(t, os.Symlink(strings.ReplaceAll(target, "{base}", base), path))
		case strings.HasSuffix(name, "/"):
			check(t, os.MkdirAll(path, 0o755))
		default:
			check(t, os.WriteFile(path, []byte("text\n"), 0o644))
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
