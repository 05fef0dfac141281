package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// holds is a command that leaves a process with a lock on the file "held".
const holds = "exec 8>held; flock -s 8; sleep 1000 & " + awaitName

// awaitName waits until a process in the background has its own name. At first it has that of bash.
const awaitName = "until IFS= read -rd '' name </proc/$!/cmdline && [ \"$name\" = sleep ]; do :; done; "

func isFree(t *testing.T, lock string) bool {
	f, err := os.Open(lock)
	require.NoError(t, err)
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// stayer returns the process that stays with the background of session s, 0 if there is none.
func stayer(t *testing.T, b *clitest.Box) int {
	t.Helper()
	f, err := os.Open(b.Home + "/.cache/pikuri/workspace-s/.background")
	require.NoError(t, err)
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock))
	if lock.Type == unix.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}

func TestKeepBackgroundUsage(t *testing.T) {
	t.Setenv("PK_SESSION", "")
	for want, args := range map[string][]string{
		"--keep-background needs a session":                  {"true"},
		"--keep-background cannot be used with --no-sandbox": {"--no-sandbox", "--session", "s", "true"},
		"--keep-background cannot be used with --wrap":       {"--wrap", "env", "--loop"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 125, Run(append([]string{"--keep-background"}, args...), strings.NewReader(""), &stdout, &stderr))
		assert.Contains(t, stderr.String(), want)
		assert.Empty(t, stdout)
	}
}

// Later commands reach a server that a command has left. It ends with pk-sweep, and its caller
// waits for nothing of it.
func TestKeptServer(t *testing.T) {
	b := clitest.NewBox(t)
	clitest.Need(t, "curl")
	clitest.Need(t, "python3")
	b.Write(t, b.Project+"/f", "served\n")
	const get = "curl -s http://127.0.0.1:8000/f"
	options := []string{"--session", "s", "--net", "none", "--raw"}

	cmd := b.Command("pk-bash", append(options, "-y", "--keep-background", "--json", "--", "python3 -Su -m http.server 8000 & until "+get+"; do :; done; exit 3")...)
	allGone := leash(t, cmd)
	got := clitest.Finish(t, cmd)
	allGone()
	assert.Equal(t, 3, got.Status)
	assert.Empty(t, got.Stderr)
	assert.Regexp(t, `"output":"[^}]*served.*"background":\["[^"]*http.server 8000"\],"background_count":1,"background_log":"/tmp/background-[a-z0-9]{10}.log"`, got.Stdout)

	got = run(t, b, get+`; until grep -h -m 1 "GET /f" /tmp/background-*.log; do :; done`, options...)
	assert.Regexp(t, `^served\n127.*"GET /f HTTP/`, got.Stdout)
	got = b.Run(t, "pk-sweep", "--session", "s")
	assert.Equal(t, 1, got.Status)
	assert.Contains(t, got.Stderr, "it is in use\npk-sweep: hint: with --background, ")

	got = b.Run(t, "pk-sweep", "--session", "s", "--background", "-v")
	assert.Equal(t, clitest.Outcome{Stdout: "ended what 1 command of session \"s\" had left running\n"}, got)
	assert.Equal(t, 7, run(t, b, get, options...).Status)
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--session", "s"))
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--session", "s", "--background"))
}

// Each way to end a command's background processes, and each in which none is left.
func TestEndOfBackground(t *testing.T) {
	b := clitest.NewBox(t)
	lock := b.Project + "/held"
	sweep := func() {
		assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--session", "s", "--background"))
		assert.True(t, isFree(t, lock))
	}
	left := func(command string, options ...string) clitest.Outcome {
		return run(t, b, command, append(options, "--session", "s", "--keep-background")...)
	}
	const note = "left running: \"sleep 1000\" (1 process); pk-sweep --session s --background ends it; further output: /tmp/"

	t.Run("two at once", func(t *testing.T) {
		for range 2 {
			assert.Contains(t, left(holds).Stdout, note)
		}
		assert.False(t, isFree(t, lock))
		sweep()
	})
	t.Run("the time limit ends it all", func(t *testing.T) {
		got := left(holds+"wait", "--timeout", "1")
		assert.Equal(t, 124, got.Status)
		assert.NotContains(t, got.Stdout, "left running")
		assert.True(t, isFree(t, lock))
	})
	t.Run("SIGKILL", func(t *testing.T) {
		assert.Contains(t, left(holds).Stdout, note)
		require.NoError(t, unix.Kill(stayer(t, b), unix.SIGKILL))
		require.Eventually(t, func() bool { return isFree(t, lock) }, minute, tick)
		sweep()
	})
	t.Run("it ends by itself", func(t *testing.T) {
		assert.Contains(t, left("exec 8>held; flock -s 8; until [ -e go ]; do sleep 0.01; done &").Stdout, "left running")
		b.Write(t, b.Project+"/go", "")
		require.Eventually(t, func() bool { return stayer(t, b) == 0 }, minute, tick)
		assert.True(t, isFree(t, lock))
		sweep()
	})
	t.Run("nothing is left", func(t *testing.T) {
		got := left("true | cat; exit 4")
		assert.Equal(t, 4, got.Status)
		assert.NotContains(t, got.Stdout, "left running")
		sweep()
	})
	t.Run("it ignores SIGTERM", func(t *testing.T) {
		left("exec 8>held; flock -s 8; (trap '' TERM; touch deaf; while :; do sleep 1000; done) & until [ -e deaf ]; do :; done", "--kill-after", "0")
		sweep()
	})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		t.Run(fmt.Sprint(sig, " to the caller's process"), func(t *testing.T) {
			os.Remove(b.Project + "/ready")
			// With a program in the place of ":", bash may ignore SIGINT.
			cmd := b.Command("pk-bash", "-y", "--session", "s", "--keep-background", "--", holds+": >ready; wait")
			require.NoError(t, cmd.Start())
			awaitFile(t, b.Project+"/ready")
			require.NoError(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			if sig != syscall.SIGKILL {
				assert.Equal(t, 128+int(sig), clitest.Status(cmd.ProcessState))
				assert.Equal(t, sig == syscall.SIGINT, cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled(), "or a shell's loop goes on")
				assert.True(t, isFree(t, lock))
			}
			require.Eventually(t, func() bool { return isFree(t, lock) }, minute, tick)
		})
	}
	require.Eventually(t, func() bool { return b.Run(t, "pk-sweep", "--session", "s").Status == 0 }, minute, tick)
}

// In a loop, the background of a command lives until the loop ends, and the background of a
// job until its kill.
func TestBackgroundOfALoop(t *testing.T) {
	b := clitest.NewBox(t)
	for _, end := range []string{"end of input", "SIGTERM", "reset", "SIGKILL"} {
		t.Run(end, func(t *testing.T) {
			c := dial(t, b, "-y", "--keep-background", "--net", "none")
			a := c.ask(`{"command":%s}`, quoted(holds+"echo plain"))
			assert.Equal(t, []any{"exited", "plain\n", []any{"sleep 1000"}, 1.0}, []any{a["outcome"], a["output"], a["background"], a["background_count"]})

			job := c.start("exec 9>job; flock -s 9; sleep 1001 & "+awaitName+"echo job", `,"wait_ms":300000`)
			a = c.ask(`{"op":"read","job":%q,"since":0}`, job)
			assert.Equal(t, []any{"exited", "job\n", []any{"sleep 1001"}}, []any{a["outcome"], a["output"], a["background"]})
			assert.Equal(t, []any{"sleep 1001"}, c.ask(`{"op":"list"}`)["jobs"].([]any)[0].(map[string]any)["background"])
			assert.False(t, isFree(t, b.Project+"/job"))
			assert.NotContains(t, c.ask(`{"op":"kill","job":%q}`, job), "background")
			assert.True(t, isFree(t, b.Project+"/job"))
			assert.NotContains(t, c.ask(`{"op":"list"}`)["jobs"].([]any)[0], "background")
			assert.Equal(t, "still\n", c.ask(`{"command":"echo still"}`)["output"])
			assert.False(t, isFree(t, b.Project+"/held"))

			switch end {
			case "end of input":
				assert.NoError(t, c.close())
			case "SIGTERM":
				_ = c.cmd.Process.Signal(syscall.SIGTERM)
				<-c.ended
				assert.EqualError(t, c.cmd.Wait(), "exit status 143")
			case "SIGKILL":
				_ = c.cmd.Process.Kill()
				_ = c.cmd.Wait()
				require.Eventually(t, func() bool { return isFree(t, b.Project+"/held") }, minute, tick)
				return
			case "reset":
				c.ask(`{"op":"reset","jobs":true}`)
			}
			assert.True(t, isFree(t, b.Project+"/held"))
			if end == "reset" {
				assert.NoError(t, c.close())
			}
			assert.Empty(t, umbrellas(t, b))
		})
	}
}

// Work with git lands, files at protected names are moved away and new repositories are made
// inert three times: at the end of the command, of a later command, and of the background.
func TestWorkOfTheBackground(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBox(t))
	g := newGround(t, b, template)
	log := b.Audit(t)
	options := []string{"-y", "--raw", "--session", "s", "--keep-background", "--audit", log, "--"}
	commit := func(name string) string {
		return "git commit -q --allow-empty -m " + name + "; echo x >.mcp.json; git init -q " + name + "; "
	}
	landed := func(name string) {
		t.Helper()
		assert.Contains(t, g.host(t, g.Project, "git log --format=%s main"), name)
		assert.NoFileExists(t, g.Project+"/.mcp.json")
		_, err := os.Lstat(filepath.Join(g.Project, name, ".git/HEAD"))
		assert.ErrorIs(t, err, os.ErrNotExist, "the host's git takes it for a repository")
	}
	got := g.Run(t, "pk-bash", append(options, commit("early")+"(until [ -e go ]; do sleep 0.01; done; "+commit("late")+") &")...)
	assert.Contains(t, got.Stderr, ".mcp.json")
	assert.Zero(t, got.Status, got.Stderr)
	require.NotZero(t, stayer(t, g.Box))
	landed("early")

	got = g.Run(t, "pk-bash", append(options, commit("between"))...)
	assert.Zero(t, got.Status, got.Stderr)
	landed("between")

	g.Write(t, g.Project+"/go", "")
	require.Eventually(t, func() bool { return stayer(t, g.Box) == 0 }, minute, tick)
	landed("late")
	assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--session", "s", "--background"))
	records := clitest.Records(t, log)
	last := records[len(records)-1]
	assert.Equal(t, []any{"background", 1.0}, []any{last["event"], last["begin"]})
	assert.Contains(t, last["result"], "moved_aside")
	assert.NotContains(t, last["result"], "exit_status")
	assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-bash", "--audit-check", log))
}

// A command finds a file at a protected name, made by another command, whose end moves the
// file away. The command then makes it again.
func TestPlantedAgain(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	plant := func(name, before, after string) (end func()) {
		job := c.start(fmt.Sprintf("%s : >%[2]s-on; until [ -e %[2]s-go ]; do sleep 0.01; done; %[3]s", before, name, after), "")
		awaitFile(t, filepath.Join(b.Project, name+"-on"))
		return func() {
			b.Write(t, filepath.Join(b.Project, name+"-go"), "")
			got := c.wait(job)
			assert.Equal(t, "exited", got["outcome"])
			assert.NotEmpty(t, got["moved_aside"])
			assert.NoFileExists(t, b.Project+"/.mcp.json")
		}
	}
	first := plant("first", "echo x >.mcp.json;", "")
	second := plant("second", "", "echo x >.mcp.json")
	first()
	second()
	require.NoError(t, c.close())
}
