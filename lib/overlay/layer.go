package overlay

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Layer is a directory of pk's own that holds the upper layer of an overlay over a
// directory of the host.
//
// Bytes of its lock file are locked with open file description locks, which a set-up
// program inherits, in this order:
//
//	Starting   exclusive  a command, from before it looks whether the overlay is in use
//	                      until its sandbox is made; a command that changes the layer
//	Use        shared     a command, until its sandbox has ended
//	           exclusive  a command that shares the layer with nobody
//	Landing    exclusive  a command that lands
type Layer struct {
	Dir string `json:"dir"` // of pk's own, absolute, without links

	Elsewhere string `json:"-"` // the upper directory, if it is not in Dir

	lock  *os.File
	fresh bool
	upper string // the name of the upper directory, once it is known
}

// Names in the directory of a layer.
const (
	upperDir  = "upper" // begins the name of the upper directory
	nameFile  = "name"  // holds that name
	workDir   = "work"
	mergedDir = "merged" // where a session's keeper has the overlay
	lockFile  = "lock"
)

// DirName returns the name of the directory of a layer over a path: a label for people, and
// a digest of the path.
func DirName(label, path string) string {
	readable := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return '_'
	}, label)
	sum := sha256.Sum256([]byte(path))
	return readable[:min(len(readable), 40)] + "-" + hex.EncodeToString(sum[:8])
}

// Lock is a byte of the lock file.
type Lock int

// The locks of a layer, in their order.
const (
	Starting Lock = iota
	Use
	Landing
)

// ErrInUse says that another command uses a layer.
var ErrInUse = errors.New("another command uses it")

// Open makes the directories of the layer where they are missing, and opens its lock
// file. mode is that of the lower directory: the merged one has the mode of the upper
// directory. If a command has taken permissions from the owner of that, Open gives them
// back.
func (l *Layer) Open(mode fs.FileMode) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	upper, err := NameUpper(l.Dir)
	if err != nil {
		return err
	}
	l.upper = upper
	for _, name := range []string{workDir, mergedDir, upper} {
		err := os.Mkdir(filepath.Join(l.Dir, name), 0o700)
		switch {
		case err == nil && name == upper:
			err = os.Chmod(filepath.Join(l.Dir, name), mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)|0o700)
		case errors.Is(err, os.ErrExist):
			err = allow(filepath.Join(l.Dir, name))
		}
		if err != nil {
			return err
		}
	}
	return l.OpenLock()
}

// NameUpper returns the name of the upper directory of a layer in a directory, which no command can guess: git and
// other tools on the host would follow a link in a project there, to a repository or the like that the command
// has made beside the protected names.
func NameUpper(dir string) (string, error) {
	if name := knownUpper(dir); name != "" {
		return name, nil
	}
	file, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	name := upperDir + "-" + rand.Text()
	_, err = file.WriteString(name)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	if err := os.Link(file.Name(), filepath.Join(dir, nameFile)); errors.Is(err, os.ErrExist) {
		return knownUpper(dir), nil
	} else if err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(dir, upperDir), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) { // of an older pk
		return "", err
	}
	return name, nil
}

// knownUpper returns "" if a directory has no name for its upper directory.
func knownUpper(dir string) string {
	name, _ := os.ReadFile(filepath.Join(dir, nameFile))
	return string(name)
}

// allow gives the owner of a directory all permissions.
func allow(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm()&0o700 == 0o700 {
		return err
	}
	return os.Chmod(path, info.Mode()|0o700)
}

// OpenUpper opens the upper directory. If a command has taken permissions from its owner, it
// gives them back.
func (l *Layer) OpenUpper(flags int) (int, error) {
	if err := allow(l.Upper()); err != nil {
		return -1, err
	}
	return fsat.Openat(unix.AT_FDCWD, l.Upper(), flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// OpenLock opens the lock file alone.
func (l *Layer) OpenLock() error {
	name := filepath.Join(l.Dir, lockFile)
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	l.lock = os.NewFile(uintptr(fd), lockFile)
	return nil
}

// Share begins to use the layer beside the other commands of a session. The caller
// holds Starting until Started. begin is called if no other command uses the layer.
func (l *Layer) Share(begin func() error) error {
	if err := l.Wait(Starting, unix.F_WRLCK); err != nil {
		return err
	}
	switch err := l.Try(Use, unix.F_WRLCK); err {
	case nil:
		l.fresh = true
		if err := begin(); err != nil {
			return err
		}
	case unix.EAGAIN:
	default:
		return err
	}
	return l.Wait(Use, unix.F_RDLCK) // a command that tidies has it exclusively for a moment
}

// Alone takes the layer from all other commands. It fails with ErrInUse.
func (l *Layer) Alone() error {
	for _, which := range []Lock{Starting, Use} {
		if err := l.Try(which, unix.F_WRLCK); err == unix.EAGAIN {
			return ErrInUse
		} else if err != nil {
			return err
		}
	}
	l.fresh = true
	return nil
}

// Held tells how another command holds a lock: F_RDLCK, F_WRLCK, or F_UNLCK if none does.
func (l *Layer) Held(which Lock) (how int16, err error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(which), Len: 1}
	err = unix.FcntlFlock(l.lock.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type, err
}

// SetFresh notes that no other command uses the layer.
func (l *Layer) SetFresh() { l.fresh = true }

// InPlace reports whether the locked file still has its name: a sweep may have removed
// the layer before the lock was taken.
func (l *Layer) InPlace() bool {
	var own, named unix.Stat_t
	return unix.Fstat(int(l.lock.Fd()), &own) == nil && unix.Lstat(filepath.Join(l.Dir, lockFile), &named) == nil && fsat.SameInode(&own, &named)
}

// Upper is the upper layer, Work the kernel's directory beside it, and Merged the place
// where a session mounts the overlay.
func (l *Layer) Upper() string {
	if l.Elsewhere != "" {
		return l.Elsewhere
	}
	if l.upper == "" {
		l.upper = knownUpper(l.Dir)
	}
	return filepath.Join(l.Dir, cmp.Or(l.upper, upperDir))
}
func (l *Layer) Work() string   { return filepath.Join(l.Dir, workDir) }
func (l *Layer) Merged() string { return filepath.Join(l.Dir, mergedDir) }

// Fresh reports whether no other command uses the layer.
func (l *Layer) Fresh() bool { return l.fresh }

// File is the lock file, or nil. It is kept open until the sandbox has ended.
func (l *Layer) File() *os.File { return l.lock }

// Started is called once the sandbox is made.
func (l *Layer) Started() { _ = l.Try(Starting, unix.F_UNLCK) }

// CloseLock gives the layer back.
func (l *Layer) CloseLock() error {
	if l.lock == nil {
		return nil
	}
	return l.lock.Close()
}

// lockTime bounds the wait for a lock that is held while a sandbox is made, or while
// work lands: a large fetch takes its time.
const lockTime = 10 * time.Minute

// Try takes a lock, or fails with EAGAIN. how is F_RDLCK, F_WRLCK or F_UNLCK.
func (l *Layer) Try(which Lock, how int16) error {
	lock := unix.Flock_t{Type: how, Start: int64(which), Len: 1}
	_, err := fsat.Again(func() (int, error) { return 0, unix.FcntlFlock(l.lock.Fd(), unix.F_OFD_SETLK, &lock) })
	if err == unix.EACCES {
		err = unix.EAGAIN
	}
	return err
}

// Wait takes a lock within some minutes.
func (l *Layer) Wait(which Lock, how int16) error {
	for limit := time.Now().Add(lockTime); ; time.Sleep(time.Millisecond) {
		err := l.Try(which, how)
		if err != unix.EAGAIN || time.Now().After(limit) {
			return err
		}
	}
}
