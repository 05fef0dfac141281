// Package trial keeps the state of a trial, a session whose writable roots are overlays:
// the project as it was when the trial began, the changes that the session's commands
// have made since, and those of them that have landed.
package trial

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Root is one root of a trial: a directory of the project, and the layer over it. Close
// it.
type Root struct {
	overlay.Layer
	Path    string
	Warning string // a message to the user about the beginning, or ""

	began  began
	before *before // nil until it is needed
	landed map[string]states
	notes  *os.File // of landed entries, or nil
}

// Names in the directory of a layer.
const (
	prefix     = "trial-" // begins the name of the directory
	beganFile  = "began"  // a JSON object
	namesFile  = "names"  // the names in the root's directories; see before. Missing: nothing is left to land, and the next command begins anew
	landedFile = "landed" // a JSON object for each path that has landed, the last one holds
)

// began is the root at the time when the trial began.
type began struct {
	Path    string `json:"path"`
	Dev     uint64 `json:"dev"`
	Ino     uint64 `json:"ino"`
	Mode    uint32 `json:"mode"`  // that the root has in the trial, unless a command changes it
	Since   int64  `json:"since"` // in ns; all later changes in the root have this ctime or a later one
	Project bool   `json:"project,omitempty"`
	Order   int64  `json:"order"`             // Since of the first beginning
	Foreign string `json:"foreign,omitempty"` // a directory with another group than the user's, or ""

	// Protected are the absolute paths that callers have protected by name, with the rule.
	Protected map[string]string `json:"protected,omitempty"`
}

// Dir is the directory of the layer over a root, below the directory of a session's
// overlays.
func Dir(overlays, root string) string {
	return filepath.Join(overlays, prefix+overlay.DirName(filepath.Base(root), root))
}

// Open begins to use a root in a command, and notes the beginning of the trial if this is
// the first one. project tells whether it is the project root. The caller holds the
// session directory, and calls Started once the sandbox is made.
func Open(overlays, root string, project bool) (*Root, error) {
	r := &Root{Layer: overlay.Layer{Dir: Dir(overlays, root)}, Path: root}
	err := apart(overlays, root)
	if err == nil {
		_, err = os.Stat(root)
	}
	if err == nil {
		err = r.Layer.Open(0o700) // note sets the mode of the root
	}
	if err == nil {
		err = r.Share(func() error { return r.begin(project) })
	}
	if err != nil {
		r.CloseLock()
		return nil, fmt.Errorf("cannot prepare the trial of %q: %w", root, err)
	}
	return r, nil
}

// apart refuses a root in or around another one of the trial: two overlays would cover
// the same files.
func apart(overlays, root string) error {
	others, err := Roots(overlays)
	for _, o := range others {
		if o.Path != root && (fsat.Within(root, o.Path) || fsat.Within(o.Path, root)) {
			return &Refusal{fmt.Sprintf("the session has a trial of %q", o.Path), fmt.Sprintf("-C %q, or another session", o.Path)}
		}
	}
	return err
}

// Close ends the use of the root.
func (r *Root) Close() error { return r.CloseLock() }

// begin notes the root before its overlay is mounted.
func (r *Root) begin(project bool) error {
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, r.Path, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	err = r.load()
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := r.note(dir, &st, project); err != nil {
			return err
		}
	case err != nil:
		return err
	case r.over():
		if err := os.Remove(filepath.Join(r.Dir, landedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := r.note(dir, &st, project); err != nil {
			return err
		}
	case r.began.Dev != st.Dev || r.began.Ino != st.Ino:
		return &Refusal{"another directory has its place since the trial began", "begin a new session; pk-diff shows what this one has changed"}
	}
	return nil
}

// note notes the beginning of a trial.
func (r *Root) note(dir int, st *unix.Stat_t, project bool) error {
	now, err := coarseNow()
	if err != nil {
		return err
	}
	r.began = began{
		Path: r.Path, Dev: st.Dev, Ino: st.Ino, Mode: st.Mode&0o7777 | 0o700, Since: now, Project: project,
		Order: cmp.Or(r.began.Order, now), Protected: r.began.Protected,
	}
	if err := unix.Chmod(r.Upper(), r.began.Mode); err != nil {
		return err
	}
	names, hidden, err := noteNames(dir, st, &r.began)
	if err != nil {
		return err
	}
	if hidden != "" {
		r.Warning = fmt.Sprintf("the trial may not see all files in %q: it has the attribute user.overlay.opaque", hidden)
	}
	if r.began.Foreign != "" {
		r.Warning = fmt.Sprintf("files of another group than yours cannot be written in a trial, such as those in %q", r.began.Foreign)
	}
	if err := r.save(); err != nil {
		return err
	}
	return fsat.WriteFile(filepath.Join(r.Dir, namesFile), names)
}

// over reports whether nothing is left to land.
func (r *Root) over() bool {
	_, err := os.Lstat(filepath.Join(r.Dir, namesFile))
	return errors.Is(err, os.ErrNotExist)
}

func (r *Root) save() error {
	text, err := bytejson.Marshal(&r.began)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return fsat.WriteFile(filepath.Join(r.Dir, beganFile), text)
}

// load reads the note of the beginning.
func (r *Root) load() error {
	text, err := os.ReadFile(filepath.Join(r.Dir, beganFile))
	if err != nil {
		return err
	}
	if err := bytejson.Unmarshal(text, &r.began); err != nil {
		return fmt.Errorf("cannot read the beginning of the trial: %w", err)
	}
	r.Path = r.began.Path
	return nil
}

// Protect records the paths that a command's caller protects by name, in addition to the
// recorded ones. The caller holds Starting.
func (r *Root) Protect(named map[string]string) error {
	if err := r.load(); err != nil {
		return err
	}
	changed := false
	for path, rule := range named {
		if fsat.Within(path, r.Path) && r.began.Protected[path] != rule {
			if r.began.Protected == nil {
				r.began.Protected = map[string]string{}
			}
			r.began.Protected[path], changed = rule, true
		}
	}
	if !changed {
		return nil
	}
	return r.save()
}

// maxTicks bounds the wait for a tick, of 10 ms at most, in case the clock is set back.
const maxTicks = 100

// coarseNow returns a time between the changes before and after the call: no later change
// gets an earlier time, no earlier change a later one. The kernel gives files the time of
// its last tick, and since Linux 6.13 sometimes the time itself: so coarseNow waits for
// the next tick.
func coarseNow() (int64, error) {
	var now, tick unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_REALTIME, &now)
	for tries := 0; err == nil && tries < maxTicks; tries++ {
		if err = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &tick); tick.Nano() > now.Nano() {
			break
		}
		time.Sleep(time.Millisecond / 2)
	}
	return tick.Nano(), err
}

// Refusal is an error with advice for the user.
type Refusal struct{ Reason, Advice string }

func (r *Refusal) Error() string { return r.Reason }

// Hint is the advice, or "".
func (r *Refusal) Hint() string { return r.Advice }

// Roots lists the roots of the trial whose overlays are in a directory, the project root
// first. It does not lock them.
func Roots(overlays string) ([]*Root, error) {
	entries, err := os.ReadDir(overlays)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var roots []*Root
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		r := &Root{Layer: overlay.Layer{Dir: filepath.Join(overlays, e.Name())}}
		if err := r.load(); errors.Is(err, os.ErrNotExist) {
			continue // its first command has not begun
		} else if err != nil {
			return nil, err
		}
		roots = append(roots, r)
	}
	slices.SortStableFunc(roots, func(a, b *Root) int {
		switch {
		case a.began.Project != b.began.Project:
			if a.began.Project {
				return -1
			}
			return 1
		case a.began.Order != b.began.Order:
			return cmp.Compare(a.began.Order, b.began.Order)
		}
		return strings.Compare(a.Path, b.Path)
	})
	return roots, nil
}
