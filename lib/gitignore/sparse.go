package gitignore

import "strings"

// Sparse are the patterns of a sparse checkout: info/sparse-checkout in a git directory.
type Sparse struct{ rules *Rules }

// ParseSparse parses the patterns. Cones are a special form of them.
func ParseSparse(patterns []byte) Sparse {
	return Sparse{(&Rules{dir: "."}).with(patterns)}
}

// Has reports whether git checks out a file. If no pattern matches it, the directory above
// decides.
func (s Sparse) Has(path string) bool {
	dir, has := ".", false
	for {
		name, below, isDir := strings.Cut(path, "/")
		if rule := s.rules.last(dir, name, isDir); rule != nil {
			has = !rule.negated
		}
		if !isDir {
			return has
		}
		dir, path = join(dir, name), below
	}
}
