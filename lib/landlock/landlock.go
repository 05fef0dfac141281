// Package landlock closes two ways out of a sandbox that shares the host's network.
// Connections to abstract Unix sockets belong to the network namespace and to no file
// tree. Signals reach the caller's processes across PID namespaces, through the
// terminal's process group.
//
// It uses only the scopes of Landlock. A ruleset with file rules forbids mounting,
// and bwrap has to mount. See landlock(7) and
// https://docs.kernel.org/userspace-api/landlock.html.
package landlock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// version is an ABI version of Landlock.
type version int

// withScopes is the first version with scopes: Linux 6.12.
const withScopes version = 6

// unsupported is a reason why this kernel has no scopes.
type unsupported string

func (u unsupported) Error() string        { return string(u) }
func (u unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

// Supported returns nil if this kernel can close the two ways. Otherwise the
// error says why not, and matches errors.ErrUnsupported unless it is unexpected.
func Supported() error {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		if version(v) < withScopes {
			return unsupported(fmt.Sprintf("Landlock has no scopes, its version is %d and has to be %d (Linux 6.12)", v, withScopes))
		}
		return nil
	case unix.ENOSYS:
		return unsupported("this kernel has no Landlock")
	case unix.EOPNOTSUPP:
		return unsupported("Landlock is switched off, it is not in the kernel's list lsm=")
	case unix.EPERM: // from a container's filter: the kernel has other errors
		return unsupported("a system call filter keeps Landlock away")
	}
	return fmt.Errorf("cannot ask for Landlock's version: %w", errno)
}

// ScopeThread restricts the calling thread and all that it starts from then on:
// they can connect to an abstract Unix socket, or send a signal, only if the other
// end is restricted with them. Abstract names stay shared in the other direction:
// Landlock forbids neither binding one nor connections from the host's programs.
//
// The restriction is permanent. It sets no_new_privs, which Landlock demands of
// all users but root: set-user-ID programs, bwrap included, gain nothing. The
// thread can no longer trace processes outside, nor open their /proc/PID/ns, fd,
// root and environ: open those first. Unix sockets that are files, and open
// descriptors, work as before.
//
// The caller must have locked its goroutine to the thread, and must start the
// command from there or exec it. It must not unlock: then Go ends the thread with
// the goroutine, and no other goroutine runs on it. A command that dies with its
// parent dies with that thread.
//
// It fails as Supported does, and has changed nothing then.
func ScopeThread() error {
	ruleset, err := Scopes()
	if err != nil {
		return err
	}
	defer unix.Close(ruleset)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot give up new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("cannot restrict a thread with Landlock: %w", errno)
	}
	return nil
}

// Scopes returns a ruleset with which a process that has given up new privileges
// restricts itself as ScopeThread does. It fails as Supported does.
func Scopes() (ruleset int, err error) {
	if err := Supported(); err != nil {
		return -1, err
	}
	attributes := unix.LandlockRulesetAttr{
		Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes), 0)
	if errno != 0 {
		return -1, fmt.Errorf("cannot make a Landlock ruleset: %w", errno)
	}
	return int(fd), nil
}
