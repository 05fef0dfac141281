package gitland

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
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
	entries, err := os.ReadDir(state)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	errs := []error{err, gitdir.SweepLists(state, old)}
	for _, e := range entries {
		path := filepath.Join(state, e.Name())
		if strings.HasPrefix(e.Name(), "git-") && old(path) { // each command writes a record there
			place, err := sweepLayer(state, e.Name(), discard)
			if errs = append(errs, err); place != "" {
				kept = append(kept, fmt.Sprintf("%q is kept: it has work that has not landed in %q; --discard drops it", path, place))
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
	switch err := l.OpenLock(); {
	case fsat.Absent(err): // another sweep has removed it
		return "", nil
	case err != nil:
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
	if err := e.Remove(int(dir.Fd()), name); !fsat.Absent(err) {
		return "", err
	}
	return "", nil
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
	if id, err := gitdir.Identity(r.Place); err != nil || id != r.GitDir {
		return ""
	}
	if !l.HasObjects() {
		return ""
	}
	return r.Place
}
