package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// free waits until no process holds the lock.
func free(t *testing.T, lock string) {
	t.Helper()
	f, err := os.OpenFile(lock, os.O_RDONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer f.Close()
	assert.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
}

// After SIGKILL of pk-bash no process of the command is left, even if it left its
// session or ignores signals.
func TestKilledPkBashLeavesNoProcess(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		cmd := b.Command("pk-bash", append(mode.options, "-y", "--raw",
			`exec 8>held; flock -s 8; setsid sleep 1000 & (setsid bash -c 'trap "" TERM HUP INT; sleep 1000' &); sleep 0.05; echo ready; sleep 1000`)...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 16))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		free(t, filepath.Join(b.Project, "held"))
	}
}

// The set-up program ends the sandbox after that, also if it has been stopped before.
func TestKilledWhileTheSetUpIsStopped(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for _, options := range [][]string{nil, {"--session", "s"}, {"--net", "none"}} {
		cmd := b.Command("pk-bash", append(options, "-y", "--raw", `exec 8>held; flock -s 8; echo ready; sleep 1000`)...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 16))
		require.NoError(t, err)
		programs := setUps(t, cmd.Process.Pid)
		require.NotEmpty(t, programs)
		for _, program := range programs {
			pid, err := strconv.Atoi(filepath.Base(program))
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		free(t, filepath.Join(b.Project, "held"))
	}
}

// Without a sandbox a command can kill its guard. The monitor then ends its
// processes.
func TestKilledGuard(t *testing.T) {
	b := clitest.NewBox(t)
	got := run(t, b, `exec 8>held; flock -s 8; setsid sleep 1000 & (setsid bash -c 'trap "" TERM HUP INT; sleep 1000' &); sleep 0.05; echo hi; kill -9 $PPID; sleep 1000`, "--no-sandbox")
	assert.Equal(t, 137, got.Status)
	assert.Contains(t, got.Stdout, "\nhi\n\nthe process that watched over the command was killed.\nexit status: 137\n")
	free(t, filepath.Join(b.Project, "held"))
}

func TestGuardIsForPkItself(t *testing.T) {
	b := clitest.NewBox(t)
	for _, args := range [][]string{
		{}, {"3"}, {"3", "false,0", "/bin/true", "true"}, {"0", "false,0", "/bin/true", "true"}, {"x", "false,0", "/bin/true", "true"}, {"99999", "false,0", "/bin/true", "true"},
	} {
		cmd := b.Command("pk-bash")
		cmd.Args = append(cmd.Args[:1], append([]string{"--pk-guard"}, args...)...)
		assert.Equal(t, clitest.Outcome{Stderr: "pk-bash: --pk-guard is for pk's own use\n", Status: 125}, clitest.Finish(t, cmd), args)
	}
}

// Many commands at a time, each killed at a random moment. PK_ROUNDS sets their number.
func TestKilledAtAnyMoment(t *testing.T) {
	b := clitest.NewBox(t)
	rounds := 16
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		rounds = n
	}
	const atATime = 8
	var workers sync.WaitGroup
	for w := range atATime {
		workers.Go(func() {
			for i := range rounds / atATime {
				mode := modes[(w+i)%len(modes)]
				lock := fmt.Sprintf("held-%d-%d", w, i)
				cmd := b.Command("pk-bash", append(mode.options, "-y",
					"exec 8>"+lock+`; flock -s 8; setsid sleep 1000 & (setsid bash -c 'trap "" TERM; sleep 1000' &); sleep 1000`)...)
				if !assert.NoError(t, cmd.Start()) {
					return
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // a random moment
				assert.NoError(t, cmd.Process.Kill())
				_ = cmd.Wait()
				free(t, filepath.Join(b.Project, lock))
			}
		})
	}
	workers.Wait()
	// A pk-bash killed while it started its guard may have a child that has not become
	// the guard yet, and holds its parent's locks.
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, clitest.Outcome{}, b.Run(t, "pk-sweep", "--all"))
		assert.Empty(c, umbrellas(t, b))
	}, 10*time.Second, 10*time.Millisecond)
}
