// Package keyring keeps the caller's keys from a command.
package keyring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// JoinAnonymousSession gives the calling thread, and what it starts from then
// on, a new and empty session keyring. Without it a command holds the one it
// was started with, and can read the tickets and passwords in it. Namespaces
// make no difference to that. A kernel without keyrings is no error.
//
// Keys that all processes of the user may read can still be had by their
// number, though no longer be searched for: a filter that refuses keyctl closes
// that. The keyring counts among the user's keys, of which there may be 200 by
// default, as long as something started with it lives; beyond, the error is
// EDQUOT.
//
// The caller must have locked its goroutine to the thread, and must start the
// command from there, or become it.
func JoinAnonymousSession() error {
	// unix.KeyctlJoinSessionKeyring passes a name, if an empty one, and that is
	// refused.
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno != 0 && errno != unix.ENOSYS {
		return fmt.Errorf("cannot join a new session keyring: %w", errno)
	}
	return nil
}
