package monitor

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A monitor that the suspend key stops before it has asked for the signal does not stop
// its command, and does not continue it.
func TestSuspendKeyIsCaughtAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // nothing else runs before the look
	f := NewForeground([3]*os.File{})
	var action [4]uint64 // struct sigaction of the kernel
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0)
	f.Close()
	require.Zero(t, errno)
	require.NotZero(t, action[0], "it stops this process")
}
