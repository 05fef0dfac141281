package gitdir

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// LendersFirst sorts layers in the order in which they land: a repository comes after those
// from which it borrows objects. Its new commits are complete only then.
func LendersFirst(layers []*Layer) []*Layer {
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
		for _, dir := range l.borrows() {
			for _, lender := range layers {
				if fsat.Within(dir, lender.GitDir) {
					add(lender)
				}
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
