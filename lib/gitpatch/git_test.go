package gitpatch

import (
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
)

type tree map[string]entry

func (t tree) set(path string, e entry) {
	if e != none {
		t[path] = e
	}
}

// patchOf returns the patches of all paths in one, sorted by path as git sorts.
func patchOf(t testing.TB, format objects.Format, old, new tree) string {
	all := maps.Clone(old)
	maps.Copy(all, new)
	var s strings.Builder
	for _, path := range slices.Sorted(maps.Keys(all)) {
		patch, complete := written(t, format, path, old[path], new[path])
		require.True(t, complete, "%q", path)
		s.WriteString(patch)
	}
	return s.String()
}

// repo is a repository with a work tree, for the real git.
type repo struct {
	testing.TB
	dir string
}

func newRepo(t testing.TB, format objects.Format) repo {
	t.Helper()
	r := repo{t, t.TempDir()}
	r.git("", "init", "-q", "--object-format="+map[objects.Format]string{objects.SHA1: "sha1", objects.SHA256: "sha256"}[format])
	return r
}

func (r repo) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_TEMPLATE_DIR=/nonexistent", "LC_ALL=C",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(r.dir),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r repo) git(stdin string, args ...string) string {
	r.Helper()
	out, err := r.try(stdin, args...)
	require.NoError(r, err, "git %q: %s", args, out)
	return out
}

func (r repo) hash(data string) string {
	return strings.TrimSpace(r.git(data, "hash-object", "--stdin"))
}

// commit makes the tree that of the work tree, of the index and of a commit.
func (r repo) commit(t tree) {
	r.Helper()
	r.write(t)
	r.git("", "add", "-A")
	r.git("", "commit", "-q", "--allow-empty", "-m", "x")
}

// write replaces the work tree.
func (r repo) write(t tree) {
	r.Helper()
	for _, e := range r.entries() {
		require.NoError(r, os.RemoveAll(filepath.Join(r.dir, e)))
	}
	for path, e := range t {
		name := r.dir + "/" + path
		require.NoError(r, os.MkdirAll(filepath.Dir(name), 0o755))
		if e.mode == Symlink {
			require.NoError(r, os.Symlink(e.data, name))
			continue
		}
		require.NoError(r, os.WriteFile(name, []byte(e.data), fs.FileMode(e.mode&0o777)))
	}
}

func (r repo) entries() []string {
	entries, err := os.ReadDir(r.dir)
	require.NoError(r, err)
	var names []string
	for _, e := range entries {
		if e.Name() != ".git" {
			names = append(names, e.Name())
		}
	}
	return names
}

// tree reads the work tree.
func (r repo) tree() tree {
	r.Helper()
	t := tree{}
	require.NoError(r, filepath.WalkDir(r.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		var st unix.Stat_t
		require.NoError(r, unix.Lstat(name, &st))
		e := entry{mode: Mode(st.Mode)}
		if e.mode == Symlink {
			e.data, err = os.Readlink(name)
		} else {
			var b []byte
			b, err = os.ReadFile(name)
			e.data = string(b)
		}
		t[strings.TrimPrefix(name, r.dir+"/")] = e
		return err
	}))
	return t
}

func (r repo) reset() { r.git("", "reset", "-q", "--hard") }

func (r repo) apply(patch string, options ...string) {
	r.Helper()
	if out, err := r.try(patch, append([]string{"apply", "--whitespace=nowarn"}, options...)...); err != nil {
		r.Fatalf("git apply: %s\n%s", out, patch[:min(len(patch), 600)])
	}
}

var hunkHead = regexp.MustCompile(`(?m)^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@.*$`)

// diff returns the patch of git itself from the last commit to a tree, which it leaves
// in the index. Counts of lines are given always, the line of a function never, and the
// data of binary patches neither.
func (r repo) diff(new tree) string {
	r.Helper()
	r.write(new)
	r.git("", "add", "-A")
	// With this algorithm git chooses the same lines for the changes of these tests.
	patch := r.git("", "diff", "--cached", "--binary", "--full-index", "--no-renames", "--no-color", "--patience", "--no-indent-heuristic")
	patch = hunkHead.ReplaceAllStringFunc(patch, func(line string) string {
		m := hunkHead.FindStringSubmatch(line)
		for _, i := range []int{2, 4} {
			if m[i] == "" {
				m[i] = ",1"
			}
		}
		return "@@ -" + m[1] + m[2] + " +" + m[3] + m[4] + " @@"
	})
	return withoutData(patch)
}

func random(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }

func noise(n int) string {
	b := make([]byte, n)
	random(int64(n)).Read(b)
	b[n/2], b[n-1] = 0, 0
	for i := range min(n, sniffed) / 100 {
		b[i*100+1] = 0
	}
	return string(b)
}
