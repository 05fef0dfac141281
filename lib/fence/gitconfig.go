package fence

import (
	"maps"
	"slices"
	"strings"

	"pikuri/lib/bwrap"
	"pikuri/lib/gitconfig"
)

// gitHome gives git in the sandbox the user's configuration, as far as it is data.
// Without it git would do harm without an error: it would commit an LFS file whole, and
// files that the user ignores everywhere.
func (f *Fence) gitHome(project string) func(func(string) bool) bwrap.Home {
	return func(has func(program string) bool) bwrap.Home {
		var set []gitconfig.Entry
		if f.wholeIndex {
			set = gitconfig.WholeIndex
		}
		c := gitconfig.Compose(project, f.gitenv(), has, set...)
		home := bwrap.Home{Warnings: slices.Concat(c.Notes, c.Missing)}
		add := func(name string, data []byte, what string) {
			if data != nil {
				home.Files = append(home.Files, bwrap.Mount{Op: bwrap.OpData, Dest: name, Data: data, Perms: "0644", Rule: "default: git: " + what})
			}
		}
		add(gitconfig.ConfigName, c.Config, "the user's configuration, reduced to data")
		add(gitconfig.ExcludesName, c.Excludes, "the files that the user ignores")
		add(gitconfig.AttributesName, c.Attributes, "the user's attributes")
		for _, name := range slices.Sorted(maps.Keys(c.Included)) {
			add(name, c.Included[name], "what the repository's configuration includes, reduced to data")
		}
		for _, kv := range c.Env {
			name, value, _ := strings.Cut(kv, "=")
			home.Vars = append(home.Vars, bwrap.Var{Name: name, Value: value, Rule: "default: git: settings that are data"})
		}
		return home
	}
}
