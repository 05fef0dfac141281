package monitor

import (
	"os"
	"runtime"
	"syscall"
	"testing"

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
