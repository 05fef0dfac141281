package gitdir

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Release forgets the inert repository in a directory once take has made it the host's. It gives take
// the record of the repository, and that of its HEAD; take returns the path of the host's new git directory, and calls
// ready before that gets its name. state is the directory of Begin. No command may run in a tree around dir.
func Release(state, dir string, take func(made, head Inert, ready func(gitDir string) error) (gitDir string, err error)) error {
	unlock, err := lock(state)
	if errors.Is(err, os.ErrNotExist) { // no command has run yet
		return notMade(dir)
	}
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := sweepDue(state, "", nil); overlapping(err, dir) != nil {
		return err
	}
	all, err := notesIn(state)
	if err != nil {
		return err
	}
	if all.running(dir) {
		return fmt.Errorf("cannot adopt %q: a command runs in a directory around it", dir)
	}
	records, err := recordsIn(state)
	if err != nil {
		return err
	}
	if records, err = completed(records, dir); err != nil {
		return err
	}
	var made, head Inert
	for _, n := range records {
		if n.Dir == dir {
			made = n // if both exist, .git comes after HEAD
		}
		if n.Name == "HEAD" && (n.Dir == dir || n.Dir == dir+"/.git") {
			head = n
		}
	}
	if made.Dir == "" {
		return notMade(dir)
	}
	ready := func(gitDir string) error { // after SIGKILL, nothing is to get the name back
		var st unix.Stat_t
		if err := unix.Lstat(gitDir, &st); err != nil {
			return err
		}
		i := slices.Index(records, made)
		made.kept = adoptedMark + strconv.FormatUint(st.Ino, 10)
		records[i] = made
		return saveRecords(state, records)
	}
	gitDir, err := take(made, head, ready)
	if err != nil {
		return fmt.Errorf("cannot adopt %q: %w", dir, err)
	}
	return saveRecords(state, slices.DeleteFunc(records, func(n Inert) bool { return n == made || fsat.Within(n.Dir, gitDir) }))
}

func notMade(dir string) error {
	return fmt.Errorf("cannot adopt %q: it is no repository that a command has made", dir)
}

// Is reports whether the record names this file.
func (n Inert) Is(st *unix.Stat_t) bool { return st.Ino == n.ino }

// Removed returns the content of a file that had to be removed.
func (n Inert) Removed() (text string, ok bool) { return strings.CutPrefix(n.kept, "=") }

// completed adds the record of a .git that could not be renamed, on a full disk, when the HEAD
// in it was removed.
func completed(records []Inert, dir string) ([]Inert, error) {
	in := func(dir string) bool {
		return slices.ContainsFunc(records, func(n Inert) bool { return n.Dir == dir })
	}
	if in(dir) || !in(dir+"/.git") {
		return records, nil
	}
	fd, err := fsat.Openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	st, err := fsat.Lstat(fd, ".git")
	if err != nil {
		return nil, err
	}
	n := Inert{Dir: dir, Name: ".git", Fenced: FreeName(fd, ".git"), ino: st.Ino}
	if err := fsat.RenameFresh(fd, n.Name, fd, n.Fenced); err != nil {
		return nil, err
	}
	return append(records, n), nil
}
