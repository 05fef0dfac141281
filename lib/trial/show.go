package trial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
	"pikuri/lib/session"
)

// View is the roots of a trial as its commands see them, for tools outside of the
// sandbox. It keeps the roots in use. Close it.
type View struct {
	// Shown is the merged directory of each root, by the root's path. It is for lookups below
	// (O_PATH), with the caller's own rights.
	Shown map[string]*os.File

	roots  []*Root
	joined *session.Joined
}

// Show opens the trial's roots, and mounts them as a command of the trial would. roots are
// those of the tool: each belongs to the trial from now on.
func Show(d *session.Dir, nsenter string, roots []string) (_ *View, err error) {
	v := &View{Shown: map[string]*os.File{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cannot see the trial of session directory %q: %w", d.Path(), err), v.Close())
		}
	}()
	if v.joined, err = session.Join(d, nil, session.JoinOptions{Nsenter: nsenter}); err != nil {
		return nil, err
	}
	var list []session.Layered
	for _, path := range slices.Sorted(slices.Values(roots)) { // in the order in which commands lock them
		r, err := Open(v.joined.Overlays, path, path == roots[0])
		if err != nil {
			return nil, err
		}
		v.roots = append(v.roots, r)
		list = append(list, session.Layered{
			Lower: path, Point: r.Merged(),
			Layers: overlay.Layers{Upper: r.Upper(), Work: r.Work(), Source: d.Marker(), Fresh: r.Fresh()},
		})
	}
	if err = v.joined.Lay(d, nsenter, list); err != nil {
		return nil, err
	}
	for _, r := range v.roots {
		fd, err := fsat.Openat(unix.AT_FDCWD, filepath.Join(v.joined.Root(), r.Merged()), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		v.Shown[r.Path] = os.NewFile(uintptr(fd), r.Path)
		r.Started()
	}
	if !session.IsKeeper(v.joined.Lock, v.joined.Pid) {
		return nil, errors.New("its keeper was killed meanwhile")
	}
	return v, nil
}

// Close ends the use of the roots.
func (v *View) Close() error {
	var errs []error
	for _, f := range v.Shown {
		errs = append(errs, f.Close())
	}
	for _, r := range v.roots {
		errs = append(errs, r.Close())
	}
	if v.joined != nil {
		errs = append(errs, v.joined.Close())
	}
	return errors.Join(errs...)
}

// Paths lists the roots that the trial of a session has.
func Paths(d *session.Dir) ([]string, error) {
	roots, err := Roots(filepath.Join(d.Path(), session.OverlayDir))
	var paths []string
	for _, r := range roots {
		paths = append(paths, r.Path)
	}
	return paths, err
}
