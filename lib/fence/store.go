package fence

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/gitdir"
	"pikuri/lib/session"
)

// stored lists the places in writable roots where repositories have objects or references
// without a layer.
func (f *Fence) stored() []bwrap.Protected {
	slices.Sort(f.storeDirs)
	f.store = gitdir.StoreOf(slices.Compact(f.storeDirs), f.layerDirs())
	var list []bwrap.Protected
	add := func(path, why string) {
		if slices.ContainsFunc(f.Roots, func(r confine.Root) bool { return r.Path == path }) {
			return // the caller decides
		}
		if slices.ContainsFunc(f.Roots, func(r confine.Root) bool { return r.Writable && strings.HasPrefix(path, r.Path+"/") }) {
			list = append(list, bwrap.Protected{Path: path, Rule: "default: git: " + why, Default: true})
		}
	}
	for _, path := range slices.Concat(f.store.Links, f.store.Borrowed) {
		trail, _ := confine.Follow(path) // an error ends the way
		for _, link := range trail.Links {
			add(link.Place, "it leads to objects or references")
		}
		add(trail.Place, "a repository has objects or references there")
	}
	return list
}

// borrowed lists the object databases from which repositories borrow.
func (f *Fence) borrowed() []string {
	var list []string
	if f.store == nil {
		return nil
	}
	for _, dir := range f.store.Borrowed {
		if _, err := os.Lstat(dir); err == nil {
			list = append(list, filepath.Clean(dir))
		}
	}
	return list
}

// layerDirs lists the directories of all layers on the git directories.
func (f *Fence) layerDirs() []string {
	in := []string{f.gitState()}
	if base, err := session.Base(os.Getenv); err == nil {
		entries, _ := os.ReadDir(base)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), session.Prefix) {
				in = append(in, filepath.Join(base, e.Name(), session.OverlayDir))
			}
		}
	}
	var list []string
	for _, gitDir := range f.gitDirs {
		for _, dir := range in {
			list = append(list, filepath.Join(dir, gitdir.LayerName(gitDir)))
		}
	}
	return list
}
