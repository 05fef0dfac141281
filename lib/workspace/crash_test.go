package workspace_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

// children are the roles in which this test binary runs itself.
var children = map[string]func(args []string) error{
	"write for ever":              func(args []string) error { return writeForEver(args, false) },
	"write for ever, with a name": func(args []string) error { return writeForEver(args, true) },
	"fill a disk":                 fillDisk,
}

func TestMain(m *testing.M) {
	if role := os.Getenv("PK_TEST_ROLE"); role != "" {
		if err := children[role](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child is this test binary in a role.
func child(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "PK_TEST_ROLE="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// version is a content that shows whether it is complete.
func version(n int) []byte {
	return []byte(strings.Repeat(strconv.Itoa(n%10), 200_000+n%10))
}

func writeForEver(args []string, named bool) error {
	w, err := workspace.NewLocalWorkspace(args[0])
	if err != nil {
		return err
	}
	if named {
		workspace.WithoutUnnamed(w)
	}
	for n := 0; ; n++ {
		if err := workspace.AtomicWrite(ctx, w, "f", version(n)); err != nil {
			return err
		}
		if n == 0 {
			fmt.Println("begun")
		}
	}
}

// An atomic write that is killed leaves the old content or the new, and nothing else that
// outlives the next write.
func TestKilledAtomicWriteLeavesWholeFile(t *testing.T) {
	for _, role := range []string{"write for ever", "write for ever, with a name"} {
		t.Run(role, func(t *testing.T) { killWriters(t, role) })
	}
}

func killWriters(t *testing.T, role string) {
	rounds := 8
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		rounds = n
	}
	w, root := local(t)
	leftovers := 0
	for range rounds {
		cmd := child(t, role, root)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		time.Sleep(rand.N(5 * time.Millisecond)) // a random moment
		require.NoError(t, cmd.Process.Kill())
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()

		data, err := w.Read(ctx, "f")
		require.NoError(t, err)
		require.NotEmpty(t, data)
		n := int(data[0] - '0')
		require.Equal(t, string(version(n)), string(data), "a torn file")
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		leftovers += len(entries) - 1
		entries, err = w.List(ctx, ".")
		require.NoError(t, err)
		assert.Len(t, entries, 1, "a list shows what is not finished")

		next, err := workspace.NewLocalWorkspace(root)
		require.NoError(t, err)
		require.NoError(t, workspace.AtomicWrite(ctx, next, "f", []byte("0")))
		require.NoError(t, next.Close())
		entries, err = os.ReadDir(root)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "the next write leaves nothing")
	}
	t.Logf("%d of %d were killed in the middle", leftovers, rounds)
}

// A process that is killed, by a signal that it can catch or not, leaves no name behind.
func TestUnfinishedFileHasNoName(t *testing.T) {
	for _, opts := range []workspace.WriteOptions{{Atomic: true}, {Atomic: true, Exclusive: true}} {
		w, root := local(t)
		out, err := workspace.Create(ctx, w, "f", opts)
		require.NoError(t, err)
		fmt.Fprint(out, "text")
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		assert.Empty(t, entries)
		require.NoError(t, out.Close())
		entries, err = os.ReadDir(root)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
	}
}

// The copy of a sparse file takes no space: a command could fill the host's disk otherwise.
func TestCopyKeepsHoles(t *testing.T) {
	w, root := onDisk(t)
	require.NoError(t, os.WriteFile(root+"/f", []byte("x"), 0o640))
	require.NoError(t, os.Truncate(root+"/f", 64<<20))
	require.NoError(t, workspace.Copy(ctx, w, "f", "g"))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(root+"/g", &st))
	assert.EqualValues(t, 64<<20, st.Size)
	assert.Less(t, st.Blocks, int64(1024))
	sum, err := workspace.Hash(ctx, w, "f")
	require.NoError(t, err)
	same, err := workspace.Hash(ctx, w, "g")
	require.NoError(t, err)
	assert.Equal(t, sum, same)
}

// A sweep leaves the unfinished file of a living writer alone.
func TestSweepLeavesLiveFilesAlone(t *testing.T) {
	w, root := local(t)
	workspace.WithoutUnnamed(w)
	out, err := workspace.Create(ctx, w, "f", workspace.WriteOptions{Atomic: true})
	require.NoError(t, err)
	fmt.Fprint(out, "text")
	for range 3 {
		other, err := workspace.NewLocalWorkspace(root)
		require.NoError(t, err)
		require.NoError(t, workspace.AtomicWrite(ctx, other, "g", nil))
		require.NoError(t, other.Close())
	}
	require.NoError(t, out.Close())
	data, err := w.Read(ctx, "f")
	require.NoError(t, err)
	assert.Equal(t, "text", string(data))
}

// No operation follows a link planted under the name of an unfinished file, or changes
// its target.
func TestPlantedTempsAreHarmless(t *testing.T) {
	w, root := local(t)
	outside := filepath.Dir(root) + "/outside"
	require.NoError(t, os.WriteFile(outside, []byte("SECRET"), 0o600))
	name := func(c string) string { return root + "/.pk-" + strings.Repeat(c, 26) + ".tmp" }
	require.NoError(t, os.Symlink(outside, name("A")))
	require.NoError(t, os.Symlink("nowhere", name("B")))
	require.NoError(t, unix.Mkfifo(name("C"), 0o644))
	require.NoError(t, os.MkdirAll(name("D")+"/x", 0o755))
	require.NoError(t, os.Link(outside, name("E")))
	require.NoError(t, os.Mkdir(name("F"), 0o755))
	require.NoError(t, os.Symlink(outside, root+"/.f.tmp"))
	require.NoError(t, workspace.AtomicWrite(ctx, w, "f", []byte("text")))
	data, err := os.ReadFile(outside)
	require.NoError(t, err)
	assert.Equal(t, "SECRET", string(data))
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	assert.Equal(t, []string{".f.tmp", filepath.Base(name("D")), "f"}, left)
	listed, err := w.List(ctx, ".")
	require.NoError(t, err)
	assert.Len(t, listed, 3, "a directory cannot hide under such a name")
	require.NoError(t, w.RemoveAll(ctx, filepath.Base(name("D"))))
}

// A failure removes the unfinished file.
func TestFailedAtomicWriteLeavesNothing(t *testing.T) {
	w, root := local(t, workspace.WithMaxFileSize(10))
	require.NoError(t, w.Write(ctx, "f", []byte("old")))
	assert.ErrorIs(t, workspace.AtomicWrite(ctx, w, "f", make([]byte, 11)), workspace.ErrTooLarge)
	assert.ErrorIs(t, w.Write(ctx, "f", make([]byte, 11)), workspace.ErrTooLarge)
	out, err := workspace.Create(ctx, w, "f", workspace.WriteOptions{Atomic: true})
	require.NoError(t, err)
	require.NoError(t, os.Remove(root+"/f"))
	require.NoError(t, os.Mkdir(root+"/f", 0o755))
	assert.ErrorIs(t, out.Close(), workspace.ErrIsDir)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// On a full disk, an atomic write leaves the old content, and no litter.
func TestFullDiskKeepsOldContent(t *testing.T) {
	cmd := child(t, "fill a disk", t.TempDir())
	cmd.SysProcAttr = ownMounts()
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "full, and fine\n", string(out))
}

func fillDisk(args []string) error {
	dir := args[0]
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("cannot mount a small disk: %w", err)
	}
	w, err := workspace.NewLocalWorkspace(dir, workspace.WithAtomicWrites(), workspace.WithSync())
	if err != nil {
		return err
	}
	old := []byte(strings.Repeat("old ", 100_000))
	if err := w.Write(ctx, "f", old); err != nil {
		return err
	}
	for what, write := range map[string]func() error{
		"AtomicWrite": func() error { return workspace.AtomicWrite(ctx, w, "f", make([]byte, 800_000)) },
		"Write":       func() error { return w.Write(ctx, "f", make([]byte, 800_000)) },
		"Copy": func() error {
			_ = w.Write(ctx, "g", make([]byte, 300_000))
			defer w.Delete(ctx, "g")
			return workspace.Copy(ctx, w, "f", "g")
		},
	} {
		if err := write(); !matches(err, workspace.ErrNoSpace) {
			return fmt.Errorf("%s: %v, want %v", what, err, workspace.ErrNoSpace)
		}
		if data, err := w.Read(ctx, "f"); err != nil || string(data) != string(old) {
			return fmt.Errorf("%s: %d bytes are left, error %v", what, len(data), err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			return fmt.Errorf("%s: %d files are left, error %v", what, len(entries), err)
		}
	}
	fmt.Println("full, and fine")
	return nil
}
