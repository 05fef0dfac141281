package monitor

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The Go runtime sends signals to its own threads. One of them once had a loop start a
// second set-up program.
func TestAliveDespiteSignals(t *testing.T) {
	ours, theirs, err := socketPair()
	require.NoError(t, err)
	defer ours.Close()
	p := &program{control: ours}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, stop, stopped := unix.Gettid(), make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), thread, syscall.SIGURG)
			}
		}
	}()
	for interrupted := 0; interrupted < 100; {
		if _, err := unix.Poll(nil, 0); err == unix.EINTR {
			interrupted++
		}
		require.True(t, p.alive())
	}
	close(stop)
	<-stopped
	require.NoError(t, theirs.Close())
	require.False(t, p.alive())
}

// A set-up program that is killed while it makes the sandbox is not taken for a bwrap that has failed.
func TestKilledProgramIsTold(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	child := exec.Command("sleep", "1000")
	child.Stderr = write
	require.NoError(t, child.Start())
	write.Close()
	require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	p := &program{said: listen(read), wait: func() (e exit, err error) {
		_ = child.Wait()
		return exit{status: child.ProcessState.Sys().(syscall.WaitStatus)}, nil
	}}
	assert.EqualError(t, (&Sandbox{program: p}).explain(io.EOF), "cannot make a sandbox: the set-up program was killed by signal 15 (SIGTERM)")
}

// A program that a started program becomes has the large table of files too.
func TestTableOfFilesSurvivesExec(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exec grep FDSize /proc/self/status"},
		&syscall.ProcAttr{Env: os.Environ(), Files: withRoom([]uintptr{null.Fd(), write.Fd()}, null.Fd())})
	write.Close()
	require.NoError(t, err)
	said, err := io.ReadAll(read)
	require.NoError(t, err)
	_, err = syscall.Wait4(pid, nil, 0, nil)
	require.NoError(t, err)
	var size int
	_, err = fmt.Sscanf(string(said), "FDSize: %d", &size)
	require.NoError(t, err)
	assert.Greater(t, size, 256) // as many as this process may have inherited
}
