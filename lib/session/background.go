package session

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// backgroundFile is locked by the processes that stay with the background of commands, one
// byte by each. The locks are those of fcntl(2), as the keeper's.
const backgroundFile = ".background"

const (
	// maxBackground bounds the commands of a session that leave processes running.
	maxBackground = 1024

	// backgroundWait bounds the wait for one of them. It is longer than the longest time
	// between SIGTERM and SIGKILL.
	backgroundWait = 11 * time.Minute
)

// Stay locks a byte of backgroundFile for this process, which stays with the background of
// a command, until it ends or closes the file. SIGTERM must end the background.
func (d *Dir) Stay() (*os.File, error) {
	f, err := openOwn(d.dir, backgroundFile, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	for at := range int64(maxBackground) {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %q in the session directory: %w", backgroundFile, err)
	}
	return f, nil
}

// EndBackground ends the background of the commands of the session called name, waits for
// that, and returns the number of these commands.
func EndBackground(base, name string) (ended int, err error) {
	f, err := openBackground(base, name)
	if err == nil {
		defer f.Close()
		ended, err = endHolders(f)
	}
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return ended, fmt.Errorf("cannot end the background of session %q: %w", name, err)
	}
	return ended, nil
}

// HasBackground tells whether commands of the session called name have left something
// running.
func HasBackground(base, name string) bool {
	f, err := openBackground(base, name)
	if err != nil {
		return false
	}
	defer f.Close()
	pid, err := holderOf(f)
	return pid != 0 && err == nil
}

func openBackground(base, name string) (*os.File, error) {
	in, err := openBase(base)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	dir, err := openPrivate(in, Prefix+name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openOwn(dir, backgroundFile, unix.O_RDONLY)
}

// endHolders ends the processes that hold a lock on a part of f, one after another.
func endHolders(f *os.File) (ended int, err error) {
	for range maxBackground {
		pid, err := holderOf(f)
		if errors.Is(err, ErrElsewhere) {
			err = errors.New("its monitor runs in another process namespace")
		}
		if err != nil || pid == 0 {
			return ended, err
		}
		if err := endHolder(f, pid); err != nil {
			return ended, err
		}
		ended++
	}
	return ended, errors.New("more and more commands leave something running")
}

func endHolder(f *os.File, pid int) error {
	n, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(n)
		if again, herr := holderOf(f); herr != nil || again != pid {
			return herr // it has just ended
		}
		err = unix.PidfdSendSignal(n, unix.SIGTERM, nil, 0)
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return fmt.Errorf("cannot end process %d: %w", pid, err)
	case !AwaitEnd(n, backgroundWait):
		return fmt.Errorf("process %d does not end", pid)
	}
	return nil
}
