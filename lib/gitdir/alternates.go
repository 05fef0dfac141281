package gitdir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxAlternates is how far git follows databases of objects that name others.
const maxAlternates = 5

// Alternates lists the databases of objects that those of the host's git directories
// borrow from, and that exist, without links. git reads them; nothing is written there.
func Alternates(gitDirs []string) []string {
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
			if real, err := filepath.EvalSymlinks(line); err == nil && !slices.Contains(list, real) {
				list = append(list, real)
				follow(real, depth-1)
			}
		}
	}
	for _, dir := range gitDirs {
		follow(filepath.Join(dir, "objects"), maxAlternates)
	}
	return list
}
