package gitdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Sweep removes from a state directory the layers without use, and the lists of roots and of
// links without change, for that long. The next command in a root makes them again.
// A layer with commits that have not landed stays, unless discard is true; kept has a line
// for each.
func Sweep(state string, olderThan time.Duration, discard bool) (kept []string, err error) {
	old := func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && time.Since(info.ModTime()) >= olderThan
	}
	var errs []error
	for _, dir := range []string{state, filepath.Join(state, listDir)} { // lists were in state before
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case strings.HasPrefix(e.Name(), "git-") && old(path): // each command writes a record there
				place, err := sweepLayer(state, e.Name(), discard)
				if errs = append(errs, err); place != "" {
					kept = append(kept, fmt.Sprintf("%q is kept: it has work that has not landed in %q; --discard drops it", path, place))
				}
			case strings.HasPrefix(e.Name(), listPrefix) && old(path):
				errs = append(errs, sweepList(state, path))
			case strings.HasPrefix(e.Name(), linkPrefix) && old(path):
				errs = append(errs, os.Remove(path))
			}
		}
	}
	return kept, errors.Join(errs...)
}

// sweepLayer removes a layer, unless a command uses it. A command that opens it meanwhile
// finds its lock file gone, and makes the layer anew. If the layer stays for its commits,
// sweepLayer returns the host's git directory.
func sweepLayer(state, name string, discard bool) (place string, err error) {
	l := &Layer{Layer: overlay.Layer{Dir: filepath.Join(state, name)}}
	if err := l.OpenLock(); err != nil {
		return "", err
	}
	defer l.CloseLock()
	if l.Try(overlay.Starting, unix.F_WRLCK) != nil || l.Try(overlay.Use, unix.F_WRLCK) != nil || l.Try(overlay.Landing, unix.F_WRLCK) != nil {
		return "", nil
	}
	if place = l.holds(); place != "" && !discard {
		return place, nil
	}
	dir, err := os.Open(state)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	e := fsat.Eraser{Opener: fsat.Kernel()}
	return "", e.Remove(int(dir.Fd()), name)
}

// HasObjects reports whether a layer has objects, which stay only with something that needs
// them: references, also such as do not land, work trees.
func (l *Layer) HasObjects() bool {
	found := exists(l.Upper() + "/objects")
	for _, name := range []string{"/modules", "/worktrees"} {
		_ = filepath.WalkDir(l.Upper()+name, func(_ string, e os.DirEntry, err error) error {
			found = found || err == nil && e.Name() == "objects"
			return nil
		})
	}
	return found
}

// holds returns the host's git directory of a layer that has objects, and "" if that is gone.
func (l *Layer) holds() string {
	r, err := l.load()
	if err != nil || r.Place == "" {
		return ""
	}
	if id, err := identityOf(r.Place); err != nil || id != r.GitDir {
		return ""
	}
	if !l.HasObjects() {
		return ""
	}
	return r.Place
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
