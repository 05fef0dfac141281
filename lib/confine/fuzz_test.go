package confine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
)

// FuzzResolvers compares the resolvers with each other, with the kernel and with GNU
// realpath, on a random tree for each seed.
func FuzzResolvers(f *testing.F) {
	for _, seed := range [][2]uint64{{1, 2}, {3, 5}, {8, 13}, {21, 34}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, one, two uint64) { compare(t, rand.New(rand.NewPCG(one, two)), 100) })
}

// FuzzPath puts any bytes as a path to a tree of traps. The seeds are the paths
// of the corpus and of the attacks.
func FuzzPath(f *testing.F) {
	base := confinetest.Tree(f, "proj/d/e/f", "proj/l => d/e", "proj/up => ..", "proj/out => ../out", "proj/loop => loop", "proj/a => b/b",
		"proj/b => a/a", "proj/dangling => ../out/new", "proj/dot => .", "proj/p => /proc/self/root", "proj/abs => {base}/proj/d", "ro/f", "rw/", "out/f")
	for _, c := range confinetest.Load(f, "testdata/path-corpus.json") {
		f.Add(c.Path("{base}"), false)
	}
	for _, row := range attacks {
		f.Add(row.input, row.mode == Write)
	}
	strong, plain := workspace(f, base, true), workspace(f, base, false)
	f.Fuzz(func(t *testing.T, path string, write bool) {
		req := Request{}
		if write {
			req.Mode = Write
		}
		path = strings.ReplaceAll(path, "{base}", base)
		where, err := strong.Lookup(path, req)
		sameAnswer(t, "walk", path, where, err, plain, req)
		batch := strong.Batch(req)
		defer batch.Forget()
		again, againErr := batch.Resolve(path)
		require.Equal(t, where, again)
		require.Equal(t, err, againErr)
		require.Equal(t, where, strong.Explain(path, req).Where)
		if err == nil {
			inside(t, base, path, where, req.Mode)
			s, err := strong.parse(path)
			require.NoError(t, err)
			opened(t, s.lexical, where)
		}
	})
}

// TestRandomTrees is a bounded run of the same. PK_TREES asks for more trees.
func TestRandomTrees(t *testing.T) {
	trees := 40
	if more, err := strconv.Atoi(os.Getenv("PK_TREES")); err == nil {
		trees = more
	}
	var allowed, refused int
	for i := range trees {
		if !confinetest.Mine(i) {
			continue
		}
		a, r := compare(t, rand.New(rand.NewPCG(20, uint64(i))), 250)
		allowed, refused = allowed+a, refused+r
	}
	t.Logf("%d trees: %d paths allowed, %d refused", trees, allowed, refused)
	assert.NotZero(t, allowed)
	assert.NotZero(t, refused)
}

// compare makes one tree and looks up many paths in it.
func compare(t *testing.T, random *rand.Rand, paths int) (allowed, refused int) {
	base := confinetest.Tree(t, "proj/", "ro/", "rw/", "out/")
	defer os.RemoveAll(base) // not at the end of the test: there are many
	grow(t, random, base)
	strong, plain := workspace(t, base, true), workspace(t, base, false)
	defer strong.Close()
	defer plain.Close()
	narrow := rules(t, "deny **/a", "allow-write {b,c,l}/**")
	ruled, err := Open(Config{ProjectRoot: base + "/proj", Readable: []string{base + "/ro"}, Writable: []string{base + "/rw"}, Rules: narrow})
	require.NoError(t, err)
	defer ruled.Close()
	gnu := map[string]string{}
	for _, req := range []Request{{}, {Mode: Write}} {
		batch := strong.Batch(req)
		defer batch.Forget()
		for range paths {
			path := randomPath(random, base)
			where, err := strong.Lookup(path, req)
			sameAnswer(t, "walk", path, where, err, plain, req)
			again, againErr := batch.Resolve(path)
			require.Equal(t, where, again, "batch, %q", path)
			require.Equal(t, err, againErr, "batch, %q", path)
			physical(t, path, strong, plain, req)
			if err != nil {
				refused++
				continue
			}
			allowed++
			inside(t, base, path, where, req.Mode)
			s, err := strong.parse(path)
			require.NoError(t, err)
			opened(t, s.lexical, where)
			gnu[s.lexical] = where
			held(t, ruled, base, path, s, where, req)
		}
	}
	askRealpath(t, gnu)
	return allowed, refused
}

func sameAnswer(t *testing.T, who, path, where string, err error, w *Workspace, req Request) {
	t.Helper()
	other, otherErr := w.Lookup(path, req)
	require.Equal(t, where, other, "%s, %q", who, path)
	require.Equal(t, err, otherErr, "%s, %q", who, path)
}

// physical checks the kernel's reading, against the kernel.
func physical(t *testing.T, path string, strong, plain *Workspace, req Request) {
	t.Helper()
	req.Physical = true
	where, err := strong.Lookup(path, req)
	sameAnswer(t, "walk, physical", path, where, err, plain, req)
	if err == nil {
		s, err := strong.parse(path)
		require.NoError(t, err)
		opened(t, s.raw, where)
	}
}

// inside checks the answer against the roots, by other means than fsat.Within.
func inside(t *testing.T, base, path, where string, mode Mode) {
	t.Helper()
	top, _, _ := strings.Cut(strings.TrimPrefix(where, base+"/"), "/")
	require.True(t, top == "proj" || top == "rw" || top == "ro" && mode == Read, "%q is %q", path, where)
}

// held checks the verdict of the rules that compare gives, by separate code.
func held(t *testing.T, ruled *Workspace, base, path string, s parsedPath, where string, req Request) {
	t.Helper()
	kernel, err := ruled.view.walk(s.raw)
	require.NoError(t, err)
	want := true
	for _, place := range []string{s.lexical, where, kernel} {
		for _, root := range []string{base + "/proj/", base + "/rw/", base + "/ro/"} {
			below, inside := strings.CutPrefix(place+"/", root)
			if !inside {
				continue
			}
			top, _, _ := strings.Cut(below, "/")
			denied := strings.Contains("/"+below, "/a/")
			allowed := req.Mode == Read || slices.Contains([]string{"b", "c", "l"}, top)
			want = want && !denied && allowed
		}
	}
	require.Equal(t, want, allows(ruled, path, req), "%q", path)
}

func allows(w *Workspace, path string, req Request) bool {
	_, err := w.Lookup(path, req)
	return err == nil
}

// opened compares the answer with the file that the kernel opens, if it opens one.
func opened(t *testing.T, path, where string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	got, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	require.NoError(t, err)
	require.Equal(t, got, where, "%q", path)
}

// askRealpath compares the answers with GNU realpath. Paths that realpath might
// take for options do not occur.
func askRealpath(t *testing.T, answers map[string]string) {
	t.Helper()
	args := []string{"-m", "-L", "-z", "--"}
	var want []string
	for path, where := range answers {
		args, want = append(args, path), append(want, where)
	}
	if len(want) == 0 {
		return
	}
	var out, stderr bytes.Buffer
	cmd := exec.Command("realpath", args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	require.NoError(t, cmd.Run(), "%s", stderr.String())
	require.Equal(t, want, strings.Split(strings.TrimSuffix(out.String(), "\x00"), "\x00"))
}

// Few names, so that random paths meet each other and the tree.
var randomNames = []string{"a", "b", "c", "l", "m", "proj", "ro", "out"}

// grow adds directories, files and links at random: inside and outside, in
// chains and circles, absolute and relative, to existing and missing targets.
func grow(t *testing.T, random *rand.Rand, base string) {
	t.Helper()
	dirs := []string{base, base + "/proj", base + "/proj", base + "/rw", base + "/ro", base + "/out"}
	for range 30 {
		path := dirs[random.IntN(len(dirs))] + "/" + randomNames[random.IntN(5)]
		switch random.IntN(5) {
		case 0, 1:
			if os.Mkdir(path, 0o755) == nil {
				dirs = append(dirs, path)
			}
		case 2:
			if _, err := os.Lstat(path); err != nil {
				require.NoError(t, os.WriteFile(path, nil, 0o644))
			}
		default:
			_ = os.Symlink(randomTarget(random, base), path) // one that exists stays
		}
	}
}

func randomTarget(random *rand.Rand, base string) string {
	target := randomPath(random, base)
	if target == "" {
		return "."
	}
	return target
}

func randomPath(random *rand.Rand, base string) string {
	var parts []string
	for range 1 + random.IntN(5) {
		switch random.IntN(8) {
		case 0, 1:
			parts = append(parts, "..")
		case 2:
			parts = append(parts, []string{".", ""}[random.IntN(2)])
		default:
			parts = append(parts, randomNames[random.IntN(len(randomNames))])
		}
	}
	path := strings.Join(parts, "/")
	if random.IntN(4) == 0 {
		return base + "/" + path
	}
	if strings.HasPrefix(path, "/") {
		return "." + path
	}
	return path
}
