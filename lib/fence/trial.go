package fence

import (
	"slices"

	"pikuri/lib/setup"
	"pikuri/lib/trial"
)

// openTrial opens the layers over the roots of a trial, in an order that all commands
// share, since each holds a lock while it waits for the next.
func (f *Fence) openTrial() error {
	if !f.Trial {
		return nil
	}
	roots := slices.Sorted(slices.Values(f.Plan.Trials()))
	for _, root := range roots {
		r, err := trial.Open(f.joined.Overlays, root, root == f.Roots[0].Path)
		if err != nil {
			return err
		}
		f.trial = append(f.trial, r)
		if r.Warning != "" {
			f.Warn("%s", r.Warning)
		}
		f.Plan.Lay(root, setup.Layer{Upper: r.Upper(), Work: r.Work(), Fresh: r.Fresh(), Source: f.Session.Marker()}, r.Merged())
	}
	return nil
}

// saveHeld notes the layers over git directories from which the trial may land.
func (f *Fence) saveHeld() error {
	if !f.Trial || len(f.layers) == 0 {
		return nil
	}
	return trial.SaveGit(f.joined.Overlays, slices.Clone(f.layers))
}

