package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// outcome is the output and the exit status of a task.
type outcome struct {
	stdout, stderr string
	status         int
}

// run runs this test binary with a task.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	require.NotNil(t, cmd.ProcessState, err)
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// guard runs a command under limits and returns its supervisor's report.
func guard(t *testing.T, limits string, command ...string) report {
	t.Helper()
	got := run(t, append([]string{"guard", limits}, command...)...)
	require.Equal(t, 0, got.status, got.stderr)
	var r report
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r), got.stdout)
	assert.False(t, r.Left, "the cgroup is left")
	return r
}

// fences are the ways to run a command of the test binary: by itself, and in
// the bwrap to test with.
func fences(t *testing.T) map[string][]string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ways := map[string][]string{"bare": {self}}
	if bwrap := os.Getenv("PK_TEST_BWRAP"); bwrap != "" {
		ways["in bwrap"] = inBwrap(bwrap, self)
	}
	return ways
}

func inBwrap(bwrap, self string, options ...string) []string {
	line := []string{bwrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/",
		"--tmpfs", "/sys", "--tmpfs", "/tmp", "--ro-bind", self, "/tmp/self", "--proc", "/proc", "--dev", "/dev"}
	return append(append(line, options...), "--", "/tmp/self")
}

// needs reports whether this machine can enforce the limits. If not, it checks that they are
// refused: no test passes only for lack of a cgroup.
func needs(t *testing.T, limits string) bool {
	t.Helper()
	l, err := parse(limits)
	require.NoError(t, err)
	got := run(t, "guard", limits, "/proc/self/exe", "nothing")
	if got.status == 0 {
		return true
	}
	assert.Equal(t, 125, got.status)
	assert.Empty(t, got.stdout)
	assert.Contains(t, got.stderr, fmt.Sprintf("cannot enforce --%s", l.controllers()[0]))
	assert.Regexp(t, "hint: .", got.stderr)
	t.Logf("refused here, and that is what was tested: %s", got.stderr)
	return false
}

func TestMemory(t *testing.T) {
	if !needs(t, "memory=64M") {
		return
	}
	for name, way := range fences(t) {
		t.Run(name, func(t *testing.T) {
			r := guard(t, "memory=64M", append(way, "hold", "16M")...)
			assert.Equal(t, report{Output: "held 16777216\n", Dir: r.Dir}, r)

			r = guard(t, "memory=64M", append(way, "hold", "256M")...)
			assert.Equal(t, report{Status: 137, Stopped: Memory, Dir: r.Dir}, r)

			r = guard(t, "memory=64M", append(way, "hold", "256M", "child")...)
			assert.Equal(t, report{Status: 137, Stopped: Memory, Dir: r.Dir}, r, "all go, not the largest alone")

		})
	}
}

func TestLeastMemoryIsEnough(t *testing.T) {
	least := "memory=" + FormatSize(LeastMemory)
	if !needs(t, least) {
		return
	}
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	for _, limits := range []string{least, least + ",cpu-time=60"} {
		r := guard(t, limits, inBwrap(bwrap, "/usr/bin/true")...)
		assert.Equal(t, report{Dir: r.Dir}, r, limits)
	}
}

func TestPids(t *testing.T) {
	if !needs(t, "pids=40") {
		return
	}
	for name, way := range fences(t) {
		t.Run(name, func(t *testing.T) {
			r := guard(t, "pids=60", append(way, "fork", "20")...)
			assert.Equal(t, report{Output: "forked 20\n", Dir: r.Dir}, r)

			r = guard(t, "pids=60", append(way, "fork", "100")...)
			assert.Equal(t, 125, r.Status)
			assert.True(t, r.Crowded)
			assert.Empty(t, r.Stopped, "it was not stopped")
			assert.Contains(t, r.Output, "resource temporarily unavailable")
			var n int
			_, err := fmt.Sscanf(r.Output, "forked %d", &n)
			require.NoError(t, err)
			assert.Less(t, n, 60)
			assert.Greater(t, n, 30, "Go has a few threads, not that many")

		})
	}
}

// A sandbox always starts with the lowest limit on processes, though Go
// programs take part in making it.
func TestLeastPidsAreEnough(t *testing.T) {
	least := fmt.Sprintf("pids=%d", LeastPids)
	if !needs(t, least) {
		return
	}
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	for range rounds(t) {
		r := guard(t, least+",cpu-time=60", inBwrap(bwrap, "/usr/bin/true")...)
		require.Equal(t, report{Dir: r.Dir}, r)
	}
}

// The limit is exact: it does not count bwrap's own processes.
func TestPidsAreTheCommands(t *testing.T) {
	if !needs(t, "pids=20") {
		return
	}
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	count := `n=1; while [ $n -lt 40 ]; do sleep 60 & n=$((n+1)); echo $n; done`
	r := guard(t, "pids=20", append(inBwrap(bwrap, "/bin/sh"), "-c", count)...)
	assert.Contains(t, r.Output, "\n20\n")
	assert.NotContains(t, r.Output, "\n21\n")
	assert.True(t, r.Crowded)
}

// rounds is how often a race is run: $PK_ROUNDS, or a few times.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PK_ROUNDS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func TestCPUTime(t *testing.T) {
	clitest.OneRow(t)
	ways := fences(t)
	way, ok := ways["in bwrap"]
	if !ok {
		way = ways["bare"]
	}
	for command, status := range map[string]int{"spin": 152, "spin deaf": 137} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			r := guard(t, "cpu-time=1", append(slices.Clone(way), strings.Fields(command)...)...)
			assert.Equal(t, report{Status: status, Stopped: CPUTime}, r)
		})
	}
}

func TestFileSize(t *testing.T) {
	for name, way := range fences(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f")
			if name != "bare" {
				file = "/tmp/f"
			}
			r := guard(t, "file-size=64K", append(way, "write", file, "64K")...)
			assert.Equal(t, report{}, r)
			r = guard(t, "file-size=64K", append(way, "write", file, "65K")...)
			assert.Equal(t, report{Status: 153, Stopped: FileSize}, r)
			r = guard(t, "file-size=64K", append(way, "write", file, "65K", "deaf")...)
			assert.Equal(t, 125, r.Status)
			assert.Contains(t, r.Output, "file too large")
			assert.Empty(t, r.Stopped, "it was not stopped")

		})
	}
}

func TestLimitsCannotBeRaisedInside(t *testing.T) {
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	r := guard(t, "cpu-time=7,file-size=64K", append(inBwrap(bwrap, self), "raise")...)
	assert.Contains(t, r.Output, "7 8 operation not permitted\n")
	assert.Contains(t, r.Output, "65536 65536 operation not permitted\n")
}

// A command with namespaces of its own can mount the cgroup file system, but
// must not find its limits there.
func TestCgroupNamespaceIsNoWayOut(t *testing.T) {
	if !needs(t, "memory=64M,pids=40") {
		return
	}
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	line := inBwrap(bwrap, self)
	plain := guard(t, "memory=64M,pids=40", append(line, "escape")...)
	assert.Equal(t, "mount: operation not permitted\n", plain.Output)

	// Root cannot be mapped a second time.
	line = inBwrap(bwrap, "/usr/bin/unshare", "--ro-bind", self, "/tmp/task", "--uid", "1000", "--gid", "1000")
	nested := guard(t, "memory=64M,pids=40", append(line, "--user", "--map-root-user", "--mount", "--cgroup", "/tmp/task", "escape")...)
	assert.Contains(t, nested.Output, "memory.max: open /tmp/cgroup/memory.max: no such file or directory\n")
	assert.Contains(t, nested.Output, "pids.max: open /tmp/cgroup/pids.max: no such file or directory\n")
}

// Close ends every process of the command, in any process session.
func TestCloseEndsAll(t *testing.T) {
	if !needs(t, "pids=40") {
		return
	}
	got := run(t, "close", "pids=40", "/bin/sh", "-c", `trap "" TERM; setsid sleep 60 & setsid sh -c "sleep 60 & echo x; wait"`)
	assert.Equal(t, outcome{stdout: "signal: killed\ntrue <nil>\n"}, got)
}

// A command started by exec leaves an empty cgroup, which the next command
// removes. It leaves the cgroup of a living maker alone.
func TestLeftoversAreSwept(t *testing.T) {
	dir := t.TempDir()
	gone := exec.Command("/proc/self/exe", "nothing")
	require.NoError(t, gone.Run())
	for _, name := range []string{fmt.Sprintf("pk-%d-a/in", gone.Process.Pid), fmt.Sprintf("pk-%d-b/in", os.Getpid()), "pk-x/in", "pk--1-c", "pk-0-d", "other"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	sweep(dir)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"other", "pk--1-c", "pk-0-d", fmt.Sprintf("pk-%d-b", os.Getpid()), "pk-x"}, names)
}
