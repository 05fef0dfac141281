package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// childOf is the first child of a process, or 0.
func childOf(pid int) int {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if fields := strings.Fields(string(list)); len(fields) > 0 {
			child, _ := strconv.Atoi(fields[0])
			return child
		}
	}
	return 0
}

// endTime bounds the wait for the end of a sandbox.
const endTime = 20 * time.Second

// begin starts a sandbox whose processes hold the returned pipe.
func begin(t *testing.T, b *clitest.Box, script string) (*exec.Cmd, *os.File) {
	t.Helper()
	alive, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { alive.Close() })
	cmd := b.Command("pk-bwrap", "--", "sh", "-c", script)
	cmd.Stdout = w
	require.NoError(t, cmd.Start())
	w.Close()
	require.NoError(t, alive.SetReadDeadline(time.Now().Add(endTime)))
	return cmd, alive
}

const stays = "setsid sleep 1000 & setsid sh -c 'sleep 1000 & wait' & echo begun; trap '' TERM; sleep 1000"

// The victim is the monitor, the set-up program or bwrap.
func TestNothingOutlivesAKilledProcess(t *testing.T) {
	b := clitest.NewBox(t)
	for depth, name := range []string{"the monitor", "the set-up program", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			cmd, alive := begin(t, b, stays)
			_, err := alive.Read(make([]byte, 16))
			require.NoError(t, err)
			victim := cmd.Process.Pid
			for range depth {
				victim = childOf(victim)
				require.NotZero(t, victim)
			}
			require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
			_, err = io.ReadAll(alive)
			require.NoError(t, err, "something lives on")
			_ = cmd.Wait() // it was killed, or printed an error
			if depth > 0 {
				assert.Equal(t, 137, cmd.ProcessState.ExitCode())
			}
		})
	}
}

func TestSandboxKilledAtRandomMoments(t *testing.T) {
	b := clitest.NewBox(t)
	rounds := 10
	if text := os.Getenv("PK_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for range rounds {
		cmd, alive := begin(t, b, stays)
		time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
		victim := cmd.Process.Pid
		for range rand.IntN(3) {
			if child := childOf(victim); child != 0 {
				victim = child
			}
		}
		require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
		_, err := io.ReadAll(alive)
		require.NoError(t, err, "something lives on")
		_ = cmd.Wait() // it was killed, or printed an error
	}
}

func TestFlagsOfStreamsAreAsBefore(t *testing.T) {
	b := clitest.NewBox(t)
	const set = `use Fcntl; fcntl(STDOUT, F_SETFL, %s) or die; exec @ARGV`
	for before, after := range map[string]string{"0": "O_NONBLOCK | O_APPEND", "O_NONBLOCK": "0", "O_APPEND": "O_NONBLOCK"} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		args := slices.Concat([]string{"-e", fmt.Sprintf(set, before)}, b.Command("pk-bwrap", "--", "perl", "-e", fmt.Sprintf(set, after), "true").Args)
		cmd := exec.Command("perl", args...)
		cmd.Dir, cmd.Env, cmd.Stdout = b.Project, b.Command("pk-bwrap").Env, w
		require.NoError(t, cmd.Run())
		want := map[string]int{"0": 0, "O_NONBLOCK": syscall.O_NONBLOCK, "O_APPEND": syscall.O_APPEND}[before]
		assert.Equal(t, want, flagsOf(t, w)&(syscall.O_NONBLOCK|syscall.O_APPEND), before)
		r.Close()
		w.Close()
	}
}

func flagsOf(t *testing.T, f *os.File) int {
	t.Helper()
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	var flags uintptr
	require.NoError(t, raw.Control(func(fd uintptr) {
		flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	}))
	return int(flags)
}

// notIgnored lets children be interrupted and hung up. A test that runs in the background
// of a script ignores SIGINT, and under nohup SIGHUP; children of a process with a handler
// do not.
func notIgnored(t *testing.T) {
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })
}

func TestSignalsReachTheCommand(t *testing.T) {
	b := clitest.NewBox(t)
	notIgnored(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGABRT, syscall.SIGSYS} {
		cmd, alive := begin(t, b, "echo begun; exec sleep 1000")
		_, err := alive.Read(make([]byte, 16))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(sig))
		_ = cmd.Wait() // by the signal
		assert.Equal(t, sig, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "as the command did")

		cmd, alive = begin(t, b, "trap 'exit 7' TERM INT HUP USR1 ABRT SYS; echo begun; while :; do sleep 0.01; done")
		_, err = alive.Read(make([]byte, 16))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(sig))
		_ = cmd.Wait() // with the command's status
		assert.Equal(t, 7, cmd.ProcessState.ExitCode())
	}
}

// A signal that comes before the command ends the sandbox, which is no kill.
func TestASignalBeforeTheCommand(t *testing.T) {
	b := clitest.NewBox(t)
	slow := filepath.Join(b.Home, "slow")
	b.Write(t, slow, "#!/bin/sh\ncase $* in --version|--help) exec "+b.Bwrap+" \"$@\";; esac\necho begun\nexec sleep 1000\n")
	require.NoError(t, os.Chmod(slow, 0o755))
	alive, w, err := os.Pipe()
	require.NoError(t, err)
	defer alive.Close()
	cmd := b.Command("pk-bwrap", "--bwrap", slow, "--", "true")
	cmd.Stdout = w
	require.NoError(t, cmd.Start())
	w.Close()
	_, err = alive.Read(make([]byte, 16))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // by the signal
	assert.Equal(t, syscall.SIGTERM, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// Before the sandbox is made, a signal ends the program, without a word of the runtime's.
func TestEarlySignals(t *testing.T) {
	b := clitest.NewBox(t)
	for _, program := range []string{"pk-bwrap", "pk-bash"} {
		for _, sig := range []syscall.Signal{unix.SIGQUIT, unix.SIGABRT, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM} {
			list := filepath.Join(t.TempDir(), "list")
			require.NoError(t, unix.Mkfifo(list, 0o644))
			cmd := b.Command(program, "--readable-from", list, "--", "true")
			stderr := new(bytes.Buffer)
			cmd.Stderr = stderr
			require.NoError(t, cmd.Start())
			writer, err := os.OpenFile(list, os.O_WRONLY, 0) // it is read now
			require.NoError(t, err)
			require.NoError(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			writer.Close()
			ended := cmd.ProcessState.Sys().(syscall.WaitStatus)
			assert.True(t, ended.Signal() == sig || program == "pk-bash" && ended.ExitStatus() == 128+int(sig), "%s %s %v", program, sig, ended)
			assert.Empty(t, stderr.String())
		}
	}
}
