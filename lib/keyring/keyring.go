// Package keyring keeps the caller's keys from a command.
package keyring

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// JoinAnonymousSession gives the calling thread, and what it starts from then
// on, a new and empty session keyring. Without it a command holds the one it
// was started with, and can read the tickets and passwords in it. Namespaces
// make no difference to that. A kernel without keyrings is no error.
//
// Keys that all processes of the user may read can still be had by their
// number, though no longer be searched for: a filter that refuses keyctl closes
// that. The keyring counts among the keys of the user, who may have 200 by
// default, as long as something started with it lives; beyond, the error is
// EDQUOT.
//
// The caller must have locked its goroutine to the thread, and must start the
// command from there, or become it.
func JoinAnonymousSession() error {
	errno := join()
	for waited := time.Duration(0); errno == unix.EDQUOT && waited < patience; waited += pause {
		time.Sleep(pause)
		errno = join()
	}
	if errno != 0 && errno != unix.ENOSYS {
		return fmt.Errorf("cannot join a new session keyring: %w", errno)
	}
	return nil
}

// A keyring that nothing uses any more counts until the kernel's next grace
// period is over, 10 to 25 ms on an idle machine, and tells nobody. Many short
// commands in a row would otherwise use up what a user may have.
const (
	pause    = 2 * time.Millisecond
	patience = time.Second
)

// join is what unix.KeyctlJoinSessionKeyring cannot do: that passes a name, if
// an empty one, and the kernel refuses it.
func join() unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	return errno
}
