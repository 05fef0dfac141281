package confine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
)

// FuzzResolvers holds the resolvers to each other, to the kernel and to GNU
// realpath, on a random tree for each seed.
func FuzzResolvers(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, one, two uint64) { compare(t, rand.New(rand.NewPCG(one, two)), 100) })
}

// TestRandomTrees is a bounded run of the same. PK_TREES asks for more trees.
func TestRandomTrees(t *testing.T) {
	trees := 40
	if more, err := strconv.Atoi(os.Getenv("PK_TREES")); err == nil {
		trees = more
	}
	random := rand.New(rand.NewPCG(20, uint64(trees)))
	var allowed, refused int
	for range trees {
		a, r := compare(t, random, 250)
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
	gnu := map[string]string{}
	for _, req := range []Request{{}, {Mode: Write}} {
		batch := strong.Batch(req)
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
			s, err := strong.spell(path)
			require.NoError(t, err)
			opened(t, s.lexical, where)
			gnu[s.lexical] = where
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
		s, err := strong.spell(path)
		require.NoError(t, err)
		opened(t, s.raw, where)
	}
}

// inside checks the answer against the roots, by other means than contains.
func inside(t *testing.T, base, path, where string, mode Mode) {
	t.Helper()
	top, _, _ := strings.Cut(strings.TrimPrefix(where, base+"/"), "/")
	require.True(t, top == "proj" || top == "rw" || top == "ro" && mode == Read, "%q is %q", path, where)
}

// opened checks the answer against what the kernel opens, where it opens it.
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

// askRealpath checks the answers against GNU realpath. Paths that it might
// take for something else do not occur.
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
// chains and circles, absolute and relative, to what exists and what does not.
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
