package shell

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/monitor"
)

// Bash can begin between the look for processes and the end of the sandbox. The kernel
// tells of its SIGKILL then.
func TestSignalAsBashBegins(t *testing.T) {
	bash := exec.Command("sleep", "1000")
	require.NoError(t, bash.Start())
	fd, err := unix.PidfdOpen(bash.Process.Pid, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, bash.Process.Kill())
	_ = bash.Wait()
	s := &Supervisor{job: &Job{Fence: &monitor.Config{}}, gate: &gate{pidfd: fd}, result: &Result{Sent: []syscall.Signal{syscall.SIGTERM}}}
	s.note(monitor.Event{Kind: monitor.Exited, Status: syscall.WaitStatus(syscall.SIGTERM), Ran: true, Early: true})
	s.conclude()
	assert.Equal(t, Signaled, s.result.Outcome)
	assert.Equal(t, 143, s.result.Status)
	assert.Equal(t, syscall.SIGTERM, s.result.Signal)
}
