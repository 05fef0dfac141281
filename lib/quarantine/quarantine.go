// Package quarantine takes files out of a project that a command put at protected
// names, where a tool on the host would run them.
//
// Before a command starts, Begin writes a note with the names at which there is
// nothing, and holds a lock on it; End moves the files that have appeared there
// and removes the note. A monitor that is killed leaves its note. Every command
// calls Recover before it plans anything, and so does pk-sweep: it does the work
// of notes that nobody holds.
package quarantine

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Note is what remains to be done when a command has ended.
type Note struct {
	Names []string `json:"names,omitempty"` // absolute paths at which there was nothing
	Modes []Mode   `json:"modes,omitempty"`
	Into  string   `json:"into"` // the directory that files are moved to

	// Above are directories above the names that were missing too: a command can
	// put a symbolic link in the place of one, and the name behind the link.
	Above []string `json:"above,omitempty"`

	path string
	file *os.File // locked
}

// Mode is a directory that holds protected files. A command can change its mode,
// and another user could then replace them.
type Mode struct {
	Path     string `json:"path"`
	Mode     uint32 `json:"mode"`
	Dev, Ino uint64
}

// ModeOf notes the mode of a directory.
func ModeOf(path string) (Mode, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return Mode{path, st.Mode & 0o7777, st.Dev, st.Ino}, err
}

// Names in the base, the directory of session directories.
const (
	journal = "journal"
	unready = ".new-" // begins the name of a note that is being written
)

// Begin writes a note into the journal of a base, which exists.
func Begin(base string, n Note) (*Note, error) {
	if len(n.Names) == 0 && len(n.Modes) == 0 {
		return &n, nil
	}
	n.Above = missingAbove(n.Names)
	dir := filepath.Join(base, journal)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make the journal: %w", err)
	}
	text, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	name := rand.Text()
	temporary := filepath.Join(dir, unready+name)
	fd, err := unix.Open(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write to the journal: %w", err)
	}
	n.file, n.path = os.NewFile(uintptr(fd), temporary), filepath.Join(dir, name)
	if err = unix.Flock(fd, unix.LOCK_EX); err == nil {
		_, err = n.file.Write(text)
	}
	if err == nil {
		err = os.Rename(temporary, n.path)
	}
	if err != nil {
		n.file.Close()
		return nil, fmt.Errorf("cannot write to the journal: %w", errors.Join(err, os.Remove(temporary)))
	}
	return &n, nil
}

// missingAbove lists the missing directories above names.
func missingAbove(names []string) []string {
	var list []string
	for _, name := range names {
		for dir := filepath.Dir(name); dir != "/" && !slices.Contains(list, dir); dir = filepath.Dir(dir) {
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				break
			}
			list = append(list, dir)
		}
	}
	return list
}

// planted returns the place to look at for name: name, or the file or link that
// is now in the place of a directory that was missing. A file or link that was
// above name before means that there is nothing.
func planted(name string, missing []string) (place string, ok bool) {
	for dir := filepath.Dir(name); dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			return dir, slices.Contains(missing, dir)
		}
	}
	return name, true
}

// End does what the note says. The note stays if something of it cannot be done:
// the next command tries again.
func (n *Note) End() ([]Moved, error) {
	for _, m := range n.Modes {
		m.restore()
	}
	var names []string
	for _, name := range n.Names {
		if place, ok := planted(name, n.Above); ok {
			names = append(names, place)
		}
	}
	moved, err := Move(names, n.Into)
	if n.file == nil {
		return moved, err
	}
	if err == nil {
		err = os.Remove(n.path)
	}
	return moved, errors.Join(err, n.file.Close())
}

// restore takes back permissions of other users that the command gave.
func (m Mode) restore() {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, m.Path, unix.O_PATH|directory, 0, fsat.NoLinks)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Dev == m.Dev && st.Ino == m.Ino && st.Mode&0o022&^m.Mode != 0 {
		_ = fsat.Chmod(fd, st.Mode&0o7777&^0o022|m.Mode&0o022)
	}
}

// Recover does the work that killed commands have left in the journal of a base.
func Recover(base string) ([]Moved, error) {
	dir := filepath.Join(base, journal)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err := own(base); err != nil {
		return nil, err
	}
	var moved []Moved
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unready) {
			continue
		}
		m, err := recoverOne(filepath.Join(dir, e.Name()))
		moved, errs = append(moved, m...), append(errs, err)
	}
	return moved, errors.Join(errs...)
}

// own refuses a base in which another user can write notes.
func own(base string) error {
	var st unix.Stat_t
	if err := unix.Lstat(base, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("cannot trust the journal in %q: other users can write there", base)
	}
	return nil
}

func recoverOne(path string) ([]Moved, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil // another command has done it
	}
	file := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstat(fd, &st) != nil || st.Nlink == 0 {
		return nil, file.Close() // its command runs, or has just ended
	}
	n := &Note{}
	if err := json.NewDecoder(file).Decode(n); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read %q: %w", path, err), file.Close())
	}
	n.file, n.path = file, path
	if !fsat.Within(n.Into, filepath.Dir(filepath.Dir(path))) {
		return nil, errors.Join(fmt.Errorf("the note %q names a directory elsewhere", path), file.Close())
	}
	return n.End()
}
