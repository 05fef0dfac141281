package trial

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitland"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
	"pikuri/lib/session"
)

// Trial is a trial in use. Close it.
type Trial struct {
	Session string
	Roots   []*Root          // the project root first
	Git     []*gitland.Layer // over git directories; not open
	InUse   bool             // a command of the trial runs

	dir *session.Dir
}

// InUse says that another command holds the trial.
type InUse struct{ By string }

func (i *InUse) Error() string { return i.By + " uses the trial" }

// OpenSession opens the trial of the session called name. With alone it locks the trial
// against all commands, for changes: *InUse.
func OpenSession(base, name string, alone bool) (*Trial, error) {
	r, err := session.ReserveNamed(base, name)
	if err != nil {
		return nil, err
	}
	if !r.IsTrial() {
		if r.Exists() {
			return nil, &Refusal{fmt.Sprintf("session %q is no trial: its commands have changed the project", name), "pk-diff without --session lists the trials"}
		}
		return nil, &Refusal{fmt.Sprintf("there is no session %q", name), "pk-diff without --session lists the trials"}
	}
	dir, err := r.Open()
	if err != nil {
		return nil, err
	}
	t := &Trial{Session: name, dir: dir}
	if err := t.load(alone); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trial) overlays() string { return filepath.Join(t.dir.Path(), session.OverlayDir) }

func (t *Trial) load(alone bool) error {
	overlays := t.overlays()
	var err error
	if t.Roots, err = Roots(overlays); err != nil {
		return err
	}
	if t.Git, err = gitland.Saved(overlays); err != nil {
		return err
	}
	for _, r := range t.Roots {
		if err := r.OpenLock(); err != nil {
			return err
		}
		if alone {
			err = r.lockAll()
		} else if err = r.Wait(overlay.Landing, unix.F_RDLCK); err == nil { // no pk-apply has Use now
			var how int16
			how, err = r.Held(overlay.Use)
			t.InUse = t.InUse || how != unix.F_UNLCK
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lockAll locks a root against all commands, pk-diff too.
func (r *Root) lockAll() error {
	err := r.Alone()
	if err == nil {
		err = r.Try(overlay.Landing, unix.F_WRLCK)
	}
	if err != unix.EAGAIN && err != overlay.ErrInUse {
		return err
	}
	how, err := r.Held(overlay.Landing)
	switch {
	case err != nil:
		return err
	case how == unix.F_WRLCK:
		return &InUse{"another pk-apply"}
	case how == unix.F_RDLCK:
		return &InUse{"a pk-diff or pk-apply --dry-run"}
	}
	return &InUse{"a command"}
}

// Close ends the use of the trial.
func (t *Trial) Close() error {
	var errs []error
	for _, r := range t.Roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(append(errs, t.dir.Release())...)
}

// Project is the base directory of relative paths, or "".
func (t *Trial) Project() string {
	if len(t.Roots) == 0 {
		return ""
	}
	return t.Roots[0].Path
}

// Find returns the root that an absolute, clean path lies in, and the path relative to
// it.
func (t *Trial) Find(path string) (*Root, string) {
	var found *Root
	for _, r := range t.Roots {
		if fsat.Within(path, r.Path) && (found == nil || len(r.Path) > len(found.Path)) {
			found = r
		}
	}
	if found == nil {
		return nil, ""
	}
	if path == found.Path {
		return found, "."
	}
	return found, path[len(found.Path)+1:]
}

// Wrote reports whether commands have written to a root, or to a git directory in it, and
// that has not landed.
func (t *Trial) Wrote(r *Root) bool {
	return r.entries(1) > 0 || slices.ContainsFunc(t.Git, func(l *gitland.Layer) bool { return fsat.Within(l.GitDir, r.Path) && hasCommits(l) })
}

// Protected lists the paths that callers have protected by name, with the rule.
func (t *Trial) Protected() map[string]string {
	all := map[string]string{}
	for _, r := range t.Roots {
		maps.Copy(all, r.began.Protected)
	}
	return all
}

// Name is the path of an item in messages: relative to the project root, or absolute.
func (t *Trial) Name(i Item) string {
	if len(t.Roots) > 0 && i.Root.Path == t.Roots[0].Path {
		return i.Path
	}
	return filepath.Join(i.Root.Path, i.Path)
}

// Summary is a trial in the list of Sessions.
type Summary struct {
	Session string
	Project string
	Began   time.Time // zero if it holds nothing
	Entries int       // in the upper layers, maxCount at most
	Commits bool      // references of git directories have changed
}

// maxCount bounds the entries counted for a summary.
const maxCount = 100_000

// Sessions lists the trials among the session directories in base, by name.
func Sessions(base string) ([]Summary, error) {
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var list []Summary
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), session.Prefix)
		if !ok {
			continue
		}
		r, err := session.ReserveNamed(base, name)
		if err != nil || !r.IsTrial() {
			continue
		}
		s := Summary{Session: name}
		roots, err := Roots(filepath.Join(r.Path(), session.OverlayDir))
		if err != nil {
			return nil, err
		}
		for _, root := range roots {
			if s.Project == "" {
				s.Project = root.Path
			}
			if began := time.Unix(0, root.began.Since); s.Began.IsZero() || began.Before(s.Began) {
				s.Began = began
			}
			s.Entries += root.entries(maxCount - s.Entries)
		}
		layers, err := gitland.Saved(filepath.Join(r.Path(), session.OverlayDir))
		if err != nil {
			return nil, err
		}
		s.Commits = slices.ContainsFunc(layers, hasCommits)
		list = append(list, s)
	}
	return list, nil
}

// hasCommits reports whether a layer has changed references, the index, configuration or
// the state of work under way, or may have; or objects for something that does not land.
func hasCommits(l *gitland.Layer) bool {
	refs, files, err := l.Changes()
	return err != nil || len(refs) > 0 || l.HasObjects() || slices.ContainsFunc(files, func(c gitland.FileChange) bool { return !c.Remark() })
}

// errHolds ends a walk at its first change.
var errHolds = errors.New("the trial holds a change")

// Holds reports whether the trial of a session directory has changes that have not
// landed, or may have.
func Holds(dir string) bool {
	overlays := filepath.Join(dir, session.OverlayDir)
	roots, err := Roots(overlays)
	if err != nil {
		return true
	}
	for _, r := range roots {
		if r.OpenLock() != nil {
			return true
		}
		err := r.Walk(ListOptions{Names: true}, func(Item) error { return errHolds })
		r.CloseLock()
		if errors.Is(err, errHolds) {
			return true
		}
		if err != nil {
			if r.Gone() != nil && r.entries(1) == 0 {
				continue
			}
			return true
		}
	}
	layers, err := gitland.Saved(overlays)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(layers, hasCommits)
}
