package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// openUp lets every user reach dir.
func openUp(t *testing.T, dir string) {
	t.Helper()
	for dir = filepath.Dir(dir); dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		if info.Mode()&0o001 == 0 {
			require.NoError(t, os.Chmod(dir, info.Mode()|0o011))
		}
	}
}

// giveAway gives a project, below directories of the test's own, to a user that no account
// and no test of another process has, and returns its uid.
func giveAway(t *testing.T, project string) int {
	t.Helper()
	uid := 50_000 + os.Getpid()%10_000
	require.NoError(t, os.Chown(project, uid, uid))
	t.Cleanup(func() { os.RemoveAll(fmt.Sprintf("/run/pikuri/%d", uid)) }) // in the place of a home
	openUp(t, project)
	return uid
}

// Root works in another user's project as that user. An ordinary user cannot
// become another: for him the test is that nothing changes.
func TestRootBecomesTheProjectsOwner(t *testing.T) {
	b := clitest.NewBox(t)
	want := os.Getuid()
	if want == 0 {
		want = giveAway(t, b.Project)
	}
	for _, args := range [][]string{{"pk-bwrap", "--", "sh", "-c"}, {"pk-bash", "-y", "--raw"}} {
		got := b.Run(t, args[0], append(args[1:], `id -u; id -G | wc -w; touch made; cd && pwd; grep -c "^CapEff:.0*$" /proc/self/status`)...)
		home := b.Home
		if os.Getuid() == 0 {
			home = "/home/user"
		}
		groups := "1\n"
		if os.Getuid() != 0 {
			groups = strings.SplitAfter(got.Stdout, "\n")[1]
		}
		assert.Equal(t, clitest.Outcome{Stdout: fmt.Sprint(want) + "\n" + groups + home + "\n1\n"}, got)
		info, err := os.Stat(filepath.Join(b.Project, "made"))
		require.NoError(t, err)
		assert.Equal(t, uint32(want), info.Sys().(*syscall.Stat_t).Uid)
		require.NoError(t, os.Remove(filepath.Join(b.Project, "made")))
	}
}

// The user nobody owns files as any other does, and has a home that does not exist.
func TestRootBecomesNobody(t *testing.T) {
	const nobody = 65534
	b := clitest.NewBox(t)
	want := os.Getuid()
	if want == 0 {
		want = nobody
		const cache = "/run/pikuri/65534"
		if _, err := os.Lstat(cache); err != nil {
			defer os.RemoveAll(cache)
		}
		require.NoError(t, os.Chown(b.Project, nobody, nobody))
		openUp(t, b.Project)
	}
	assert.Equal(t, fmt.Sprintln(want), b.Run(t, "pk-bash", "-y", "--raw", "id -u").Stdout)
}

// The file tools of root are in the owner's session, and their files are the owner's. The
// commands without a project say how to find the trial.
func TestRootFindsTheOwnersSessions(t *testing.T) {
	b := clitest.NewBox(t)
	uid := os.Getuid()
	if uid == 0 {
		uid = giveAway(t, b.Project)
	}
	got := b.Run(t, "pk-bash", "-y", "--raw", "--session", "s", "--trial", "echo tmp >/tmp/f; echo new >f")
	require.Equal(t, 0, got.Status, got.Stderr)
	assert.Equal(t, clitest.Outcome{Stdout: "new\ntmp\n"}, b.Run(t, "pk-fs", "--session", "s", "cat", "f", "/tmp/f"))
	require.Equal(t, 0, b.Run(t, "pk-fs", "mkdir", "made").Status)
	info, err := os.Stat(b.Project + "/made")
	require.NoError(t, err)
	assert.Equal(t, uint32(uid), info.Sys().(*syscall.Stat_t).Uid)
	if os.Getuid() != 0 {
		return
	}
	as := fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups env XDG_CACHE_HOME=/run/pikuri/%d pk-diff", uid, uid, uid)
	for _, args := range [][]string{{"pk-diff"}, {"pk-diff", "--session", "s"}, {"pk-apply", "--session", "s", "--all"}} {
		assert.Contains(t, b.Run(t, args[0], args[1:]...).Stderr, as+"\n", args)
	}
	asOwner := strings.TrimSuffix(as, "pk-diff")
	cmd := exec.Command("sh", "-c", as+" --session s; "+asOwner+"pk-apply --session s --all && "+asOwner+"pk-sweep --session s")
	cmd.Dir, cmd.Env = b.Project, []string{"PATH=" + b.Bin + ":" + os.Getenv("PATH")}
	found := clitest.Finish(t, cmd)
	assert.Equal(t, 0, found.Status, found.Stderr)
	assert.Contains(t, found.Stdout, "A\tf\n")
	assert.FileExists(t, b.Project+"/f")
}

// A rule about who may answer holds for root in a project of another user, too.
func TestRootKeepsItsRuleAboutAnswers(t *testing.T) {
	b := clitest.NewBox(t)
	const owner = 54398 // no user has it
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(b.Project, owner, owner))
		defer os.RemoveAll(fmt.Sprintf("/run/pikuri/%d", owner)) // as it has no home
		openUp(t, b.Project)
	}
	pin := b.Home + "/.config/pikuri/confirm"
	b.Write(t, pin, "require terminal\n")
	require.NoError(t, os.Chmod(pin, 0o600))
	got := b.Run(t, "pk-bash", "-y", "touch made")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "--yes cannot be used")
	assert.NoFileExists(t, b.Project+"/made")
}

// The line that root prints there is the owner's line too: run as root, it would make
// a sandbox in which root could write to the host's /proc/sys.
func TestThePrintedLineIsTheOwners(t *testing.T) {
	b := clitest.NewBox(t)
	want := os.Getuid()
	if want == 0 {
		want = giveAway(t, b.Project)
	}
	const script = `id -u; test -w /proc/sys/kernel/core_pattern || echo closed; touch made`
	printed := b.Run(t, "pk-bwrap", "--print", "-z", "--", "sh", "-c", script)
	require.Equal(t, 0, printed.Status, printed.Stderr)
	line := strings.Split(strings.TrimSuffix(printed.Stdout, "\x00"), "\x00")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env, cmd.Dir = []string{}, "/"
	assert.Equal(t, clitest.Outcome{Stdout: fmt.Sprint(want) + "\nclosed\n"}, clitest.Finish(t, cmd))
	info, err := os.Stat(filepath.Join(b.Project, "made"))
	require.NoError(t, err)
	assert.Equal(t, uint32(want), info.Sys().(*syscall.Stat_t).Uid)
}
