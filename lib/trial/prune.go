package trial

import (
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// opaqueName is the attribute of a directory that hides the lower layer's.
const opaqueName = "user.overlay.opaque"

// prune removes landed entries from the upper layer, so that the trial shows the
// project's entries from now on. No command uses the overlay. An entry in an opaque
// directory stays as long as that hides an entry of the project.
func (r *Root) prune(done []Item) error {
	upper, err := r.openUpper()
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	if err := r.unveil(upper, done); err != nil {
		return err
	}
	var errs []error
	hiding := newHiding(upper)
	for _, i := range slices.Backward(done) {
		errs = append(errs, r.pruneOne(hiding, i))
	}
	tried := map[string]bool{}
	for _, i := range slices.Backward(done) {
		dir := path.Dir(i.Path)
		if tried[dir] {
			continue // if an entry of it goes below, that tries again
		}
		for tried[dir] = true; dir != "." && r.fold(hiding, dir); dir = path.Dir(dir) {
		}
	}
	return errors.Join(append(errs, r.renew(upper))...)
}

// unveil makes directories transparent that no longer hide entries of the project.
func (r *Root) unveil(upper int, done []Item) error {
	looked := map[string]bool{}
	for _, i := range done {
		for dir := i.Path; dir != "."; dir = path.Dir(dir) {
			if looked[dir] {
				break
			}
			looked[dir] = true
			if err := r.unveilOne(upper, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Root) unveilOne(upper int, rel string) error {
	dir, err := fsat.Kernel().Open(upper, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return nil // not in the upper layer, or no directory
	}
	defer unix.Close(dir)
	if !overlay.IsOpaque(dir) {
		return nil
	}
	project, err := r.openProject()
	if err != nil {
		return err
	}
	defer unix.Close(project)
	hides := errors.New("it hides something")
	if err := r.beginning(); err != nil {
		return err
	}
	err = overlay.Changes(upper, project, overlay.Options{Paths: []string{rel}, Keep: r.keep}, func(overlay.Change) error { return hides })
	if errors.Is(err, hides) {
		return nil
	}
	if err == nil {
		err = writing(dir, func() error { return unix.Fremovexattr(dir, opaqueName) })
	}
	return err
}

// writing runs change on an open directory, even if its owner may not write there.
func writing(dir int, change func() error) error {
	err := change()
	var st unix.Stat_t
	if err != unix.EACCES || unix.Fstat(dir, &st) != nil || fsat.Chmod(dir, st.Mode&0o7777|0o300) != nil {
		return err
	}
	return errors.Join(change(), fsat.Chmod(dir, st.Mode&0o7777))
}

// pruneOne removes an entry from the upper layer, if that shows the project's.
func (r *Root) pruneOne(h *hiding, i Item) error {
	if h.at(path.Dir(i.Path)) != "" || i.Repository {
		return nil
	}
	dir, err := fsat.Kernel().Open(h.upper, path.Dir(i.Path), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return nil // gone with the one above
	}
	defer unix.Close(dir)
	st, err := fsat.Lstat(dir, path.Base(i.Path))
	if err != nil {
		return nil
	}
	flags := 0
	switch {
	case i.Op == overlay.Removed && !overlay.IsWhiteout(st):
		return nil
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		flags = unix.AT_REMOVEDIR
	}
	err = writing(dir, func() error { return unix.Unlinkat(dir, path.Base(i.Path), flags) })
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return err
}

// fold removes an empty directory from the upper layer that does not differ from the
// project's.
func (r *Root) fold(h *hiding, rel string) bool {
	project, err := r.openProject()
	if err != nil {
		return false
	}
	defer unix.Close(project)
	var modes [2]uint32
	var above int
	for n, root := range []int{project, h.upper} {
		if above, err = fsat.Kernel().Open(root, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath); err != nil {
			return false
		}
		defer unix.Close(above)
		st, err := fsat.Lstat(above, path.Base(rel))
		if err != nil {
			return false
		}
		modes[n] = st.Mode
	}
	if modes[0] != modes[1] || modes[0]&unix.S_IFMT != unix.S_IFDIR || h.at(rel) != "" {
		return false
	}
	return writing(above, func() error { return unix.Unlinkat(above, path.Base(rel), unix.AT_REMOVEDIR) }) == nil
}

// hiding finds the directories of an upper layer that hide the project's. A directory takes
// the answer of the one above it: a command can make chains of thousands.
type hiding struct {
	upper int
	known map[string]string // by directory; what at returns
}

func newHiding(upper int) *hiding { return &hiding{upper, map[string]string{".": ""}} }

// at returns the outermost path, of a directory and those above it, that is opaque or no
// directory, or "".
func (h *hiding) at(dir string) string {
	found, known := h.known[dir]
	if known {
		return found
	}
	if found = h.at(path.Dir(dir)); found == "" && h.hides(dir) {
		found = dir
	}
	h.known[dir] = found
	return found
}

func (h *hiding) hides(dir string) bool {
	st, err := lstatBelow(h.upper, dir)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err == nil
	}
	fd, err := fsat.Kernel().Open(h.upper, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return overlay.IsOpaque(fd)
}

// renew lets the trial begin anew with its next command, if it has no changes left: it removes the
// names of the beginning, which needs no space on a full disk.
func (r *Root) renew(upper int) error {
	list, err := fsat.Reopen(upper, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(list)
	if entries, err := fsat.Next(list); err != nil || len(entries) > 0 {
		return err
	}
	if err := os.Remove(filepath.Join(r.Dir, namesFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// DiscardOptions select the changes to discard.
type DiscardOptions struct {
	All bool // all changes of the root's upper layer
	One bool // of a directory itself, not of entries that are not named

	DryRun   bool                  // only report
	Reviewed func(i Item) Reviewed // as in ApplyOptions; the project's state is not compared
}

// Discard removes changes from the trial. It first locks the root against all commands.
func (r *Root) Discard(items []Item, o DiscardOptions, report func(Item, error)) error {
	upper, err := r.openUpper()
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	if o.All {
		if err := r.empty(upper); err != nil {
			return err
		}
		for _, i := range items {
			report(i, nil)
		}
		return r.renew(upper)
	}
	if o.One { // a new directory goes after its entries
		slices.SortStableFunc(items, func(a, b Item) int {
			if a.Op == overlay.Removed || b.Op == overlay.Removed {
				return cmp.Compare(rank(a), rank(b))
			}
			return strings.Compare(b.Path, a.Path)
		})
	}
	hiding := newHiding(upper)
	for _, i := range items {
		err := i.stillReviewed(o.Reviewed)
		if err == nil && !o.DryRun {
			err = r.discardOne(hiding, i, o.One)
		}
		report(i, err)
	}
	if o.DryRun {
		return nil
	}
	return r.renew(upper)
}

// stillReviewed refuses a change whose result differs from the reviewed one.
func (i Item) stillReviewed(reviewed func(i Item) Reviewed) error {
	if reviewed == nil || !reviewed(i).Given {
		return nil
	}
	next, err := i.After()
	if err != nil {
		return err
	}
	return reviewed(i).holdsAfter(i, next)
}

// empty removes the content of an upper layer, and gives the layer the mode of the root.
func (r *Root) empty(upper int) error {
	if err := fsat.Chmod(upper, 0o700); err != nil {
		return err
	}
	list, err := fsat.Reopen(upper, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(list)
	e := fsat.Eraser{Opener: fsat.Kernel()}
	if err := e.Empty(list); err != nil {
		return err
	}
	return fsat.Chmod(upper, r.began.Mode)
}

// rank puts removals first.
func rank(i Item) int {
	if i.Op == overlay.Removed {
		return 0
	}
	return 1
}

func (r *Root) discardOne(h *hiding, i Item, one bool) error {
	upper := h.upper
	if i.Path == "." {
		return fsat.Chmod(upper, r.began.Mode)
	}
	if i.PermOnly() && i.New.IsDir() {
		dir, err := fsat.Kernel().Open(upper, i.Path, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
		if err != nil {
			return nil // gone with the one above
		}
		defer unix.Close(dir)
		return fsat.Chmod(dir, i.Old.Mode&0o7777)
	}
	dir, err := fsat.Kernel().Open(upper, path.Dir(i.Path), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		if above := h.at(path.Dir(i.Path)); above != "" && i.Op == overlay.Removed {
			return &Refused{Reason: removedWhole(above)}
		}
		return nil // gone with the one above
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	_, err = fsat.Lstat(dir, path.Base(i.Path))
	if errors.Is(err, unix.ENOENT) && i.Op != overlay.Removed {
		return nil
	}
	if above := h.at(path.Dir(i.Path)); above != "" && i.Old.Mode != 0 {
		return &Refused{Reason: removedWhole(above)}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if one {
		err := unix.Unlinkat(dir, path.Base(i.Path), unix.AT_REMOVEDIR)
		switch err {
		case nil:
			return nil
		case unix.ENOTEMPTY, unix.EEXIST:
			return &Refused{Reason: "it holds changes that are not named"}
		}
	}
	e := fsat.Eraser{Opener: fsat.Kernel()}
	return e.Remove(dir, path.Base(i.Path))
}

func removedWhole(dir string) string {
	return "the trial has removed or replaced " + dir + " as a whole: discard that"
}
