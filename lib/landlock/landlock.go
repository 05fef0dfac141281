// Package landlock closes two ways out of a sandbox that shares the network
// with its host: abstract Unix sockets, which are part of the network and not
// of any file tree, and signals to the caller's processes, which the terminal's
// process group reaches even across process namespaces.
//
// It uses the scopes of Landlock and nothing else of it. A ruleset that says
// anything about files forbids mounting, and bwrap has to mount; one with
// scopes alone does not get in its way.
package landlock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scopesABI is the first version of Landlock with scopes: Linux 6.12.
const scopesABI = 6

// ABI returns the version of Landlock here. The error matches
// errors.ErrUnsupported where there is none: the kernel was built without it or
// told at boot to leave it out, or a container's filter does not know it.
func ABI() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return int(version), nil
	case unix.ENOSYS:
		return 0, unsupported("this kernel has no Landlock")
	case unix.EOPNOTSUPP:
		return 0, unsupported("Landlock is switched off, it is not in the kernel's list lsm=")
	case unix.EPERM: // the kernel itself never says so
		return 0, unsupported("a system call filter keeps Landlock away")
	}
	return 0, fmt.Errorf("cannot ask for Landlock's version: %w", errno)
}

// ScopeThread keeps the calling thread, and what it starts from then on, to
// themselves: they cannot connect to an abstract Unix socket, nor send a signal,
// unless the other end has been kept in with them. It cannot be undone. It sets
// no_new_privs, without which only root could do it: no set-user-ID program
// gains anything any more, bwrap included.
//
// What else changes is that processes outside cannot be traced, so that their
// /proc/PID/ns, fd, root and environ cannot be opened: open first what is
// needed of them. Unix sockets that are files, and descriptors that are open
// already, stay as they are.
//
// The caller must have locked its goroutine to the thread, and must start the
// command from there, or become it. It must not unlock: Go then ends the thread
// with the goroutine, and other goroutines never run on it. A command that is
// to die with its parent dies with that thread.
//
// The error matches errors.ErrUnsupported below version 6 of Landlock, and
// nothing has happened then.
func ScopeThread() error {
	version, err := ABI()
	if err != nil {
		return err
	}
	if version < scopesABI {
		return unsupported(fmt.Sprintf("Landlock has no scopes, its version is %d and has to be %d (Linux 6.12)", version, scopesABI))
	}
	ruleset, err := scopes()
	if err != nil {
		return fmt.Errorf("cannot make a Landlock ruleset: %w", err)
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

// scopes returns a ruleset that handles no access, to files or the network.
func scopes() (int, error) {
	attributes := unix.LandlockRulesetAttr{
		Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func unsupported(why string) error { return fmt.Errorf("%s: %w", why, errors.ErrUnsupported) }
