package trialflags

import (
	"fmt"
	"os"
	"slices"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/session"
	"pikuri/lib/trial"
)

// View lets a file tool see and write the files of a trial, if its session is a trial. The
// zero value shows the host's roots. It keeps the trial in use until Close, or until the
// process ends: no change lands meanwhile.
type View struct{ view *trial.View }

// Close releases the trial. The caller can call Shown again.
func (v *View) Close() {
	if v.view != nil {
		_ = v.view.Close() // the result of Shown is closed already
		v.view = nil
	}
}

// Active reports whether the session is a trial.
func (v *View) Active() bool { return v.view != nil }

// Shown is for cli.WorkspaceFlags.
func (v *View) Shown(d *session.Dir, roots []confine.Root) (map[string]*os.File, error) {
	if !d.Trial() {
		return nil, nil
	}
	tmp, err := d.Tmp()
	if err != nil {
		return nil, err
	}
	tmp = bwrap.Canonical(tmp)
	known, err := trial.Paths(d)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, r := range roots {
		switch {
		case r.Path == tmp:
		case slices.Contains(known, r.Path), r.Writable && r.Dir:
			paths = append(paths, r.Path)
		case r.Writable:
			return nil, cli.WithHint(fmt.Errorf("cannot write the file %q in a trial", r.Path), "name its directory as a root")
		}
	}
	nsenter := bwrap.FindTrusted("nsenter")
	if nsenter == "" {
		return nil, cli.WithHint(fmt.Errorf("cannot see the trial: nsenter is missing"), "install util-linux")
	}
	if v.view, err = trial.Show(d, nsenter, paths); err != nil {
		return nil, err
	}
	return v.view.Shown, nil
}
