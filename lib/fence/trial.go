package fence

import (
	"path/filepath"
	"slices"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/overlay"
	"pikuri/lib/trial"
)

// openTrial opens the layers over the roots of a trial. All commands use one order,
// since each holds a lock while it waits for the next.
func (f *Fence) openTrial() error {
	if !f.Trial {
		return nil
	}
	named := f.protectedByName()
	roots := slices.Sorted(slices.Values(f.Plan.Trials()))
	for _, root := range roots {
		r, err := trial.Open(f.joined.Overlays, root, root == f.Roots[0].Path)
		if err != nil {
			return err
		}
		f.trial = append(f.trial, r)
		if len(named) > 0 { // pk-apply lands nothing there
			if err := r.Protect(named); err != nil {
				return err
			}
		}
		if r.Warning != "" {
			f.Warn("%s", r.Warning)
		}
		f.Plan.Lay(root, overlay.Layers{Upper: r.Upper(), Work: r.Work(), Fresh: r.Fresh(), Source: f.Session.Marker()}, r.Merged())
	}
	return nil
}

// protectedByName lists the absolute paths that the caller protects, with the rule.
func (f *Fence) protectedByName() map[string]string {
	named := map[string]string{}
	for _, p := range f.Protect {
		if !filepath.IsAbs(p.Path) {
			p.Path = filepath.Join(f.Roots[0].Path, p.Path)
		}
		named[filepath.Clean(p.Path)] = p.Rule
	}
	return named
}

// Protected lists the paths in writable roots that are protected by default, as a plan
// would.
func Protected(roots []confine.Root) ([]bwrap.Protected, error) {
	f := &Fence{Config: Config{Roots: roots, Warn: func(string, ...any) {}, Tell: true}, table: bwrap.OwnMounts()}
	return f.protected(roots, "")
}
