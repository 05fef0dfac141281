package gitdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Sweep removes from a state directory the layers without use, and the lists of roots
// without change, for that long. The next command in a root makes its list again.
func Sweep(state string, olderThan time.Duration) error {
	entries, err := os.ReadDir(state)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	old := func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && time.Since(info.ModTime()) >= olderThan
	}
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(state, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "git-") && old(path): // each command writes a record there
			errs = append(errs, sweepLayer(state, e.Name()))
		case strings.HasPrefix(e.Name(), listPrefix) && old(path):
			errs = append(errs, sweepList(state, path))
		}
	}
	return errors.Join(errs...)
}

// sweepLayer removes a layer, unless a command uses it. A command that opens it meanwhile
// finds its lock file gone, and makes the layer anew.
func sweepLayer(state, name string) error {
	l := &Layer{Layer: overlay.Layer{Dir: filepath.Join(state, name)}}
	if err := l.OpenLock(); err != nil {
		return err
	}
	defer l.CloseLock()
	if l.Try(overlay.Starting, unix.F_WRLCK) != nil || l.Try(overlay.Use, unix.F_WRLCK) != nil || l.Try(overlay.Landing, unix.F_WRLCK) != nil {
		return nil
	}
	dir, err := os.Open(state)
	if err != nil {
		return err
	}
	defer dir.Close()
	e := fsat.Eraser{Opener: fsat.Kernel()}
	return e.Remove(int(dir.Fd()), name)
}

// sweepList removes a list, unless a command in its root runs or is due: without the list,
// what the host changes meanwhile would count as the command's.
func sweepList(state, path string) error {
	unlock, err := lock(state)
	if err != nil {
		return err
	}
	defer unlock()
	notes, err := notesIn(state)
	if err != nil || slices.ContainsFunc(notes, func(n note) bool { return listFile(state, n.root) == path }) {
		return err
	}
	return os.Remove(path)
}
