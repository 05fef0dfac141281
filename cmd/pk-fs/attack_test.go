package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// rounds is the number of tries of an attack that depends on luck: few by default,
// $PK_ROUNDS to be sure.
func rounds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("PK_ROUNDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// run runs the command in process.
func run(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errors bytes.Buffer
	status = Run(args, strings.NewReader(stdin), &out, &errors)
	return status, out.String(), errors.String()
}

// arena is a project in which a directory, d, and a link that leads out change
// places all the time. Its files are in tree, which may be shown for it.
type arena struct {
	project, tree, outside string
	dir                    string // the directory itself, wherever it is at the moment
}

func newArena(t *testing.T, shown bool) *arena {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	a := &arena{project: base + "/proj", tree: base + "/proj", outside: base + "/outside"}
	if shown {
		a.tree = base + "/seen"
		require.NoError(t, os.Mkdir(a.project, 0o755))
		require.NoError(t, os.Symlink(a.outside, a.project+"/d"))
		t.Setenv("XDG_CACHE_HOME", base+"/cache")
	}
	for _, dir := range []string{a.tree + "/d", a.outside + "/sub"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	for _, name := range []string{"f", "g", "secret-name", "sub/f"} {
		require.NoError(t, os.WriteFile(filepath.Join(a.outside, name), []byte("SECRET"), 0o644))
	}
	require.NoError(t, os.Symlink(a.outside, a.tree+"/l"))
	fd, err := unix.Open(a.tree+"/d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	a.dir = fmt.Sprintf("/proc/self/fd/%d", fd)
	return a
}

// swap exchanges the two until the test is over.
func (a *arena) swap(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a.tree+"/d", unix.AT_FDCWD, a.tree+"/l", unix.RENAME_EXCHANGE)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
}

// run runs the command in the project.
func (a *arena) run(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	if a.tree != a.project {
		return viewer{filepath.Dir(a.project), a.tree}.run(t, stdin, args...)
	}
	return run(stdin, append([]string{"-C", a.project}, args...)...)
}

// fill makes the files of the verbs in the directory, through no name that is swapped.
func (a *arena) fill(t *testing.T) {
	require.NoError(t, os.MkdirAll(a.dir+"/sub", 0o755))
	for _, name := range []string{"f", "sub/f"} {
		require.NoError(t, os.WriteFile(a.dir+"/"+name, []byte("inside"), 0o644))
	}
}

// patchFile writes a patch for the files of fill, and returns its path.
func patchFile(t *testing.T) string {
	file := t.TempDir() + "/patch"
	require.NoError(t, os.WriteFile(file, []byte("--- d/f\n+++ d/f\n@@ -1 +1 @@\n-inside\n+patched\n--- /dev/null\n+++ d/g2\n@@ -0,0 +1 @@\n+x\n"), 0o644))
	return file
}

func TestSwappingAttacker(t *testing.T) {
	for _, verb := range [][]string{
		{"cat", "d/f"}, {"read", "d/f"}, {"read", "--tail", "1", "-n", "d/f"}, {"ls", "d"}, {"ls", "--json", "d"}, {"walk", "d"}, {"walk"}, {"glob", "**/*", "d"}, {"glob", "d/*"},
		{"grep", "", "d"}, {"grep", "-l", "S", "."}, {"grep", "E", "d/f"}, {"patch", "--from", patchFile(t)},
		{"stat", "d/f"}, {"exists", "d/g"},
		{"write", "d/f"}, {"write", "d/new/f"}, {"write", "--atomic", "d/f"}, {"write", "--exclusive", "d/made"}, {"append", "d/f"},
		{"edit", "--old", "i", "--new", "I", "d/f"}, {"edit", "--all", "--old", "E", "--new", "e", "d/f"},
		{"cp", "d/f", "d/copy"}, {"cp", "d/f", "copy"}, {"mv", "d/f", "d/g"}, {"mv", "d/f", "moved"}, {"mv", "d/sub", "subdir"},
		{"rm", "d/f"}, {"rm", "-r", "d/sub"}, {"rm", "-rf", "d/sub", "d/f"}, {"mkdir", "d/x/y"},
	} {
		for _, way := range []struct {
			rule  []string
			shown bool
		}{{}, {rule: []string{"--deny", "never", "--allow-write", "**"}}, {shown: true}} {
			t.Run(fmt.Sprintf("%s %v", strings.Join(verb, " "), way), func(t *testing.T) {
				a := newArena(t, way.shown)
				before := clitest.Listing(t, a.outside)
				a.swap(t)
				done := 0
				for range rounds(t, 6) {
					a.fill(t)
					status, stdout, stderr := a.run(t, "written", append(slices.Clone(way.rule), verb...)...)
					if status == 0 {
						done++
					}
					require.NotContains(t, stdout, "SECRET")
					require.False(t, verb[0] == "exists" && status == 0, "what is outside exists")
					require.NotContains(t, stdout+stderr, "secret-name", "a name outside")
					require.NotContains(t, stderr, "internal error")
					for _, made := range []string{"copy", "moved"} {
						content, err := os.ReadFile(a.tree + "/" + made)
						require.False(t, err == nil && strings.Contains(string(content), "SECRET"), made)
					}
					_ = os.RemoveAll(a.tree + "/subdir")
					_ = os.Remove(a.dir + "/g2")
				}
				require.Equal(t, before, clitest.Listing(t, a.outside))
				t.Logf("done %d times", done)
			})
		}
	}
}

// TestKilledWrite: after SIGKILL of an atomic write at any moment, the file is the old one
// or the new one, and the next write removes the temporary files.
func TestKilledWrite(t *testing.T) {
	const size = 1 << 20
	bin := clitest.Bin(t)
	dir := t.TempDir()
	file := dir + "/f"
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte{'a'}, size), 0o644))
	command := func() *exec.Cmd {
		cmd := exec.Command(bin+"/pk-fs", "-C", dir, "write", "--atomic", "f")
		cmd.Env = []string{"HOME=/nonexistent"}
		return cmd
	}
	begun, whole := time.Now(), command()
	whole.Stdin = bytes.NewReader(bytes.Repeat([]byte{'a'}, size))
	require.NoError(t, whole.Run())
	longest := time.Since(begun) * 3 / 2 // so that some are killed in each phase, and some not at all
	survived := 0
	for i := range rounds(t, 20) {
		cmd := command()
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			_, _ = io.Copy(stdin, bytes.NewReader(bytes.Repeat([]byte{byte('a' + i%26)}, size)))
			stdin.Close()
		}()
		time.Sleep(rand.N(longest)) // the moment is the point
		_ = cmd.Process.Kill()
		if cmd.Wait() == nil {
			survived++
		}
		<-fed
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Len(t, content, size)
		require.Equal(t, size, bytes.Count(content, content[:1]), "torn")
	}
	t.Logf("%d came to their end", survived)
	status, _, stderr := run("last", "-C", dir, "write", "--atomic", "f")
	require.Equal(t, 0, status, stderr)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// TestFullDisk: in a namespace of its own, on a small tmpfs.
func TestFullDisk(t *testing.T) {
	script := `mount -t tmpfs -o size=1m pk "$1"; cd "$1"; PATH=$2:$PATH
		try() { said=$("$@" 2>&1) && echo done || echo "$said"; }
		printf old >f
		head -c 4000000 /dev/zero | try pk-fs write --atomic f; cat f; echo
		head -c 4000000 /dev/zero | try pk-fs write --atomic --exclusive new
		head -c 4000000 /dev/zero | try pk-fs write new
		rm new; head -c 700000 /dev/zero >big
		try pk-fs cp big copy
		ls -A`
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", script, "sh", t.TempDir(), clitest.Bin(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, `pk-fs: cannot write "f": no space left
old
pk-fs: cannot write "new": no space left
pk-fs: cannot write "new": no space left
pk-fs: cannot cp "copy": no space left
big
f
`, string(out))
}

// TestManyOperands: roots are opened once, and files closed.
func TestManyOperands(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/f", []byte("x"), 0o644))
	args := []string{"-C", dir, "cat"}
	for range 5000 {
		args = append(args, "f")
	}
	status, stdout, stderr := run("", args...)
	assert.Equal(t, 0, status, stderr)
	assert.Equal(t, strings.Repeat("x", 5000), stdout)
}

// TestSpecialFilesDoNotBlock: the FIFO never has a process at its other end.
func TestSpecialFilesDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(dir+"/fifo", 0o644))
	for _, args := range [][]string{{"cat", "fifo"}, {"write", "fifo"}, {"write", "--atomic", "fifo"}, {"append", "fifo"}, {"read", "fifo"}, {"edit", "--old", "x", "--new", "y", "fifo"}, {"cp", "fifo", "x"}} {
		status, stdout, stderr := run("x", append([]string{"-C", dir}, args...)...)
		assert.Equal(t, 1, status, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "not a regular file", args)
	}
	status, _, _ := run("", "-C", dir, "rm", "fifo")
	assert.Equal(t, 0, status)
}
