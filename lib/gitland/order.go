package gitland

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// InOrder sorts layers in the order in which they land: a repository comes after those from
// which it borrows objects, and after those in its work tree, which may be submodules. Its new
// commits are complete only then.
func InOrder(layers []*Layer) []*Layer {
	if len(layers) < 2 {
		return layers
	}
	sorted := make([]*Layer, 0, len(layers))
	seen := map[*Layer]bool{}
	var add func(l *Layer)
	add = func(l *Layer) {
		if seen[l] {
			return
		}
		seen[l] = true
		dirs := l.borrows()
		for _, other := range layers {
			lends := slices.ContainsFunc(dirs, func(dir string) bool { return fsat.Within(dir, other.GitDir) })
			if lends || fsat.Within(filepath.Dir(other.GitDir), filepath.Dir(l.GitDir)) {
				add(other)
			}
		}
		sorted = append(sorted, l)
	}
	for _, l := range layers {
		add(l)
	}
	return sorted
}

// borrows returns the object databases from which the layer's git directories borrow.
func (l *Layer) borrows() (list []string) {
	var read func(dir string, depth int)
	read = func(dir string, depth int) {
		text, _, err := overlay.ReadFile(unix.AT_FDCWD, dir+"/info/alternates", 0, gitplace.MaxPointer)
		if err != nil || depth == objects.MaxAlternates {
			return
		}
		for _, other := range objects.Alternates(dir, text) {
			if other, err := filepath.EvalSymlinks(other); err == nil {
				list = append(list, other)
				read(other, depth+1)
			}
		}
	}
	for _, dir := range append([]string{l.GitDir}, l.GitDirs...) {
		read(filepath.Join(dir, "objects"), 0)
	}
	return list
}
