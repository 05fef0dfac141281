package blocked

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/bwrap"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/setup"
)

// stateFiles end the names of files that tools write for themselves.
var stateFiles = []string{"_history", "-hsts", "hst", ".viminfo"}

// Lost returns the losses of a command that wrote into the empty home: files and
// directories that are not hidden, hidden files that the user has as well, and installed
// programs. Caches and settings are directories that are hidden.
func (c Command) Lost(left []setup.Entry) []Fact {
	s := c.search()
	dirs := c.Plan.Vanishing()
	for _, e := range left {
		shown := slices.ContainsFunc(c.Plan.Mounts, func(m bwrap.Mount) bool { return fsat.Within(m.Dest, e.Path) })
		around := slices.ContainsFunc(dirs, func(dir string) bool { return fsat.Within(dir, e.Path) })
		if shown || around || filepath.Dir(e.Path) == dirs[0] && !missed(e) {
			continue
		}
		f := Fact{Path: e.Path, Access: Lost, Rule: "default: empty home"}
		if e.Dir && s.inView(e.Path) {
			f.Option = s.writable(e.Path)
		}
		s.add(f)
	}
	return s.found
}

// missed tells by its name whether a file directly in the home is missed.
func missed(e setup.Entry) bool {
	name := filepath.Base(e.Path)
	if !strings.HasPrefix(name, ".") {
		return true
	}
	_, err := os.Lstat(e.Path)
	return err == nil && !e.Dir && !slices.ContainsFunc(stateFiles, func(end string) bool { return strings.HasSuffix(name, end) })
}
