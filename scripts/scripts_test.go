package scripts

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// TestScripts runs testdata/*.txtar with make and crontab.
func TestScripts(t *testing.T) {
	clitest.Need(t, "make")
	clitest.Scripts(t, "TREE="+clitest.Root(t), "BIN="+clitest.Bin(t))
}

// TestUnits has systemd read the units beside a pk-sweep.
func TestUnits(t *testing.T) {
	clitest.Need(t, "make")
	clitest.Need(t, "systemd-analyze")
	dir := t.TempDir()
	require.NoError(t, os.Symlink(clitest.Bin(t), dir+"/bin"))
	out, err := exec.Command("make", "-s", "-C", clitest.Root(t), "install-timer", "PREFIX="+dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	verify := exec.Command("systemd-analyze", "--user", "--man=no", "verify", dir+"/share/systemd/user/pk-sweep.service", dir+"/share/systemd/user/pk-sweep.timer")
	verify.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	out, err = verify.CombinedOutput()
	assert.NoError(t, err)
	assert.Empty(t, string(out))
}

// TestVersions: each command that make has built tells its version, its commit and the Go
// release. Go tells no commit of a linked worktree.
func TestVersions(t *testing.T) {
	if os.Getenv("PK_BIN") == "" {
		t.Skip("PK_BIN is not set: make did not build the commands")
	}
	commit := ""
	if info, err := os.Lstat(clitest.Root(t) + "/.git"); err == nil && info.IsDir() {
		out, err := exec.Command("git", "-C", clitest.Root(t), "rev-parse", "HEAD").Output()
		require.NoError(t, err)
		commit = strings.TrimSpace(string(out))
	}
	commands, err := filepath.Glob(clitest.Root(t) + "/cmd/*")
	require.NoError(t, err)
	require.NotEmpty(t, commands)
	for _, dir := range commands {
		name := filepath.Base(dir)
		told := func(args ...string) string {
			out, err := exec.Command(clitest.Bin(t)+"/"+name, args...).Output()
			require.NoError(t, err, name)
			return string(out)
		}
		var record struct{ Name, Version, Commit, Go string }
		require.NoError(t, json.Unmarshal([]byte(told("--version", "--json")), &record))
		assert.NotEmpty(t, record.Version, name)
		assert.Equal(t, []string{name, commit, runtime.Version()}, []string{record.Name, record.Commit, record.Go})
		words := []string{name, record.Version, "(" + commit + ")", runtime.Version()}
		if commit == "" {
			words = slices.Delete(words, 2, 3)
		}
		assert.Equal(t, strings.Join(words, " ")+"\n", told("--version"))
	}
}
