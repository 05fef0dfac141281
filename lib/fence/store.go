package fence

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitland"
	"pikuri/lib/session"
)

// readStore begins to read the objects and references of repositories, which takes some
// milliseconds. The result waits for the end.
func (f *Fence) readStore(repos []gitdir.Repo) func() *gitdir.Store {
	read := sync.OnceValue(func() *gitdir.Store {
		var dirs []string
		for _, r := range repos {
			dirs = append(dirs, r.GitDir, r.CommonDir, r.Beyond, r.BeyondCommon)
		}
		slices.Sort(dirs)
		dirs = slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return dir == "" })
		return gitdir.StoreOf(dirs, gitland.IndexLinks(f.layerDirs(dirs)))
	})
	go read()
	return read
}

// stored lists the places in writable roots where repositories have objects or references
// without a layer.
func (f *Fence) stored() []bwrap.Protected {
	for _, read := range f.stores {
		s := read()
		f.store.Borrowed = append(f.store.Borrowed, s.Borrowed...)
		f.store.Links = append(f.store.Links, s.Links...)
		f.store.Shared = append(f.store.Shared, s.Shared...)
	}
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
	for _, dir := range f.store.Borrowed {
		if _, err := os.Lstat(dir); err == nil {
			list = append(list, filepath.Clean(dir))
		}
	}
	return list
}

// layerDirs lists the directories of all layers on git directories.
func (f *Fence) layerDirs(gitDirs []string) []string {
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
	for _, gitDir := range gitDirs {
		for _, dir := range in {
			list = append(list, filepath.Join(dir, gitland.LayerName(gitDir)))
		}
	}
	return list
}
