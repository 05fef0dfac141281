// Package keyring keeps the caller's keys from a command.
package keyring

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// JoinAnonymousSession gives the calling thread, and all that it starts from then
// on, a new and empty session keyring. Without it, a command inherits the caller's
// session keyring and can read the tickets and passwords in it: no namespace
// separates keyrings. On a kernel without keyrings it does nothing.
//
// A process can still use a key whose permissions allow all processes of the
// user, if it knows the key's number. A filter that refuses keyctl closes that.
//
// The keyring counts against the user's quota, 200 keys by default, as long as a
// process started with it lives; beyond that the error is EDQUOT.
//
// The caller must have locked its goroutine to the thread, and must start the
// command from there or exec it.
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

// An unused keyring counts until the kernel's next RCU grace period is over, 10 to
// 25 ms on an idle machine, and the kernel sends no notification. Without a wait, many
// short commands in a row would use up the quota.
const (
	pause    = 2 * time.Millisecond
	patience = time.Second
)

// join passes no name. unix.KeyctlJoinSessionKeyring passes an empty one, which the
// kernel refuses.
func join() unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	return errno
}
