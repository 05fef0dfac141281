package gitdir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/confine"
)

// maxAlternates is how far git follows databases of objects that name others.
const maxAlternates = 5

// Alternates lists the databases of objects outside of the writable roots that those
// of the host's git directories borrow from, without links. Nothing is listed that a
// command could have named: no database in a root is followed, and none behind a
// symbolic link there.
func Alternates(gitDirs, roots []string) []string {
	outside := func(path string) (string, bool) {
		trail, err := confine.Follow(path)
		_, inside := trail.LiesIn(roots)
		return trail.Place, err == nil && !inside
	}
	var list []string
	var follow func(objects string, depth int)
	follow = func(objects string, depth int) {
		text, err := os.ReadFile(filepath.Join(objects, "info/alternates"))
		if err != nil || depth == 0 {
			return
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(objects, line)
			}
			real, ok := outside(line)
			if ok && exists(filepath.Join(real, "pack")) && !slices.Contains(list, real) {
				list = append(list, real)
				follow(real, depth-1)
			}
		}
	}
	for _, dir := range gitDirs {
		objects, ok := filepath.Join(dir, "objects"), true
		if target, err := os.Readlink(objects); err == nil { // of the host's making, but not what it leads to
			if !filepath.IsAbs(target) {
				target = filepath.Join(dir, target)
			}
			objects, ok = outside(target)
		}
		if ok {
			follow(objects, maxAlternates)
		}
	}
	return list
}
