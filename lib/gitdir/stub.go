package gitdir

import (
	"os"
	"path/filepath"
)

type lander struct{}

func (l *Layer) Land() {}

func (l *Layer) LandLast() ([]string, error) { return nil, nil }

type Repo struct {
	WorkTree, DotGit, GitDir, CommonDir string
	File                                bool
}
type List struct{}

func Find(root string, l *List) ([]Repo, error) {
	d := filepath.Join(root, ".git")
	if i, err := os.Lstat(d); err == nil && i.IsDir() {
		return []Repo{{root, d, d, d, false}}, nil
	}
	return nil, nil
}
func Layers(r []Repo) (l []string) {
	for _, x := range r {
		l = append(l, x.CommonDir)
	}
	return l
}
