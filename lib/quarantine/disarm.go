package quarantine

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/session"
)

// DisarmMode makes the host safe at once when a monitor has been killed: it does the work of
// Recover in a base, its argument, but for that of git directories, where a command has
// written nothing of the host's. Recover does the rest, and reports all.
//
// It runs in the user namespace of the set-up program, where the files of other users are
// out of reach. Recover does the rest of that too.
var DisarmMode = hidden.Mode{Name: "--pk-disarm", Run: func(args []string) error {
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		return hidden.ErrOwnUse
	}
	return disarm(args[0])
}}

func disarm(base string) error {
	base, err := trusted(base)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(base, session.GitDir)); errors.Is(err, os.ErrNotExist) {
		return hidden.ErrOwnUse // no command has begun there
	}
	if err := session.MakeDir(unix.AT_FDCWD, filepath.Join(base, journal)); err != nil {
		return err
	}
	dir, err := openJournal(base)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Flock(dir, unix.LOCK_EX); err != nil {
		return err
	}
	had := Had(base)
	moved, err := each(base, dir, disarmOne) // first: a search for repositories takes longer
	made, gerr := fenceAll(base, func() map[string]bool { return had })
	made.keep(base)
	r := moved.and(made)
	for _, n := range r.kept { // for Recover
		err = errors.Join(err, n.file.Close())
	}
	return errors.Join(err, gerr)
}

func disarmOne(base string, dir int, name string) (r Report, err error) {
	n, err := openNote(base, dir, name)
	if n == nil || err != nil { // Recover has to report it
		return r, n.close()
	}
	err = n.do(&r, nil)
	if err == nil && len(n.Layers)+len(n.Done.Moved)+len(n.Done.Git) == 0 && n.Tmp == "" {
		err = os.Remove(n.path)
	}
	return r, errors.Join(err, n.close())
}

func (n *Note) close() error {
	if n == nil {
		return nil
	}
	return n.file.Close()
}

// disarmTime bounds the wait for a disarm: it may have been stopped.
const disarmTime = 10 * time.Second

// awaitDisarm waits for the end of a disarm, which has the journal locked: the notes that it
// works on look as if their commands were running.
func awaitDisarm(journal int) {
	for limit := time.Now().Add(disarmTime); unix.Flock(journal, unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	_ = unix.Flock(journal, unix.LOCK_UN)
}
