package session

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The file that Lock returns is for callers that become bwrap, which writes to
// it. It goes once there is none: Locked is the lock.

const (
	lockFile = ".lock"

	// maxLock is how large the file may become by what each command writes to it.
	maxLock = 16 << 10
)

// Lock returns a file that holds the session directory as in use, to be handed to
// a process that takes this one's place. What is written to it is lost.
func (d *Dir) Lock() (*os.File, error) {
	if d.lent != nil {
		return d.lent, nil
	}
	f, err := openOwn(d.dir, lockFile, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT)
	if err == nil {
		var st unix.Stat_t
		if unix.Fstat(fd(f), &st) == nil && st.Size > maxLock {
			err = f.Truncate(0)
		}
		if err == nil {
			err = lockWithin(f, unix.LOCK_SH, lockWait)
		}
		if err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock session directory %q: %w", d.Path(), err)
	}
	d.lent = f
	return f, nil
}

// lentOut reports whether the session directory, which is locked exclusively, is held
// by the file that Lock handed on. A keeper that waits for it has it for a moment.
func lentOut(dir *os.File) bool {
	f, err := openOwn(dir, lockFile, unix.O_RDONLY)
	if err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	defer f.Close()
	for range lockOutTries {
		if flock(f, unix.LOCK_EX) == nil {
			return false
		}
		if lockWithin(f, unix.LOCK_SH, lockWait) != nil {
			break
		}
	}
	return true
}

// awaitLent waits until nobody holds what Lock handed on.
func (k *keeper) awaitLent() error {
	f, err := openOwn(k.dir, lockFile, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return uninterrupted(func() error { return unix.Flock(fd(f), unix.LOCK_EX) })
}
