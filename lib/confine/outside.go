package confine

import "fmt"

// RefuseWritable refuses a path that lies in a writable root: a command could
// replace the file, and the next command would use the replacement. verb says the
// purpose of the path, as in "take the list". The error has a hint.
func RefuseWritable(verb, path string, roots []Root, hint string) error {
	root, ok := LiesIn(path, WritablePaths(roots))
	if !ok {
		return nil
	}
	return &inRoot{fmt.Sprintf("cannot %s %q: it lies in the writable root %q", verb, path, root), hint}
}

type inRoot struct{ text, hint string }

func (e *inRoot) Error() string { return e.text }

// Hint suggests an alternative.
func (e *inRoot) Hint() string { return e.hint }

// WritablePaths lists the paths of the writable ones among roots.
func WritablePaths(roots []Root) []string {
	var paths []string
	for _, r := range roots {
		if r.Writable {
			paths = append(paths, r.Path)
		}
	}
	return paths
}
