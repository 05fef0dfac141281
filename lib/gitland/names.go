package gitland

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/internal/lazy"
)

// describes is the end of a name that git-describe(1) prints.
var describes = lazy.Regexp(`-g[0-9a-f]{4,}$`)

// mayBeShort reports whether git could take a name for the beginning of an ID, some day. One of
// digits alone may be a date.
func mayBeShort(name string) bool {
	hexadecimal := strings.Trim(name, "0123456789abcdef") == "" && strings.ContainsAny(name, "abcdef")
	return len(name) >= 7 && hexadecimal || describes().MatchString(name)
}

// shortNames are the names without refs/ by which users, and git, call a reference.
func shortNames(ref string) (names []string) {
	parts := strings.SplitN(ref, "/", 3)
	switch {
	case len(parts) < 3 || parts[0] != "refs":
	case parts[1] == "tags" || parts[1] == "heads":
		names = []string{parts[2]}
	case parts[1] == "remotes":
		names = []string{parts[2]}
		if name, is := strings.CutSuffix(parts[2], "/HEAD"); is {
			names = append(names, name)
		}
	default:
		names = []string{parts[1] + "/" + parts[2]}
	}
	return names
}

// meanings lists the references for which git takes a name. It uses the first that exists
// (gitrevisions(7)).
func meanings(name string) []string {
	list := []string{"refs/" + name, "refs/tags/" + name, "refs/heads/" + name, "refs/remotes/" + name, "refs/remotes/" + name + "/HEAD"}
	if strings.HasPrefix(name, "refs/") {
		list = append(list, name)
	}
	return list
}

// pseudo is a name of files in a git directory, such as ORIG_HEAD: a reference has their
// meaning as long as they are not there.
func pseudo(name string) bool {
	return strings.HasSuffix(name, "HEAD") && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

// outer are beginnings of names that git also takes for a reference of another kind, or for a file
// below the git directory: of any file it reads an ID at the beginning.
var outer = []string{"refs/", "heads/", "tags/", "remotes/", "pk/", "main-worktree/", "worktrees/", "modules/", "logs/refs/", "lfs/objects/", "rr-cache/", "info/refs"}

// means reports whether git takes the name of a branch for another thing, which may lead to any
// commit, if there is no such branch: a remote branch, a reference of pk's or a file. It need not be
// there yet.
func (g *guard) means(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	isTop := func(file string) bool { return strings.EqualFold(top, file) }
	return pseudo(name) || slices.ContainsFunc(state.Names, isTop) || isTop("shallow") || isTop("packed-refs") ||
		slices.ContainsFunc(outer, func(beginning string) bool { return strings.HasPrefix(strings.ToLower(name), beginning) }) ||
		g.remoteOf("refs/remotes/"+name+"/HEAD") != ""
}

// mayBe reports whether a branch of a command may have a name, as far as that alone tells: git makes the branch to which
// a rebase returns.
func (g *guard) mayBe(branch string) bool {
	short := strings.TrimPrefix(branch, "refs/heads/")
	return refs.CheckName(branch) == nil && gitplace.IsPlain(branch) && !g.means(short) && !mayBeShort(strings.ToLower(short))
}

// runs returns a name that a shell would run a part of, if a reference is new and has it, or if it leads to a tag
// with it; or "". Home-made prompts put such names into PS1, which bash expands, and makefiles the output of
// git-describe(1) into their lines.
func (g *guard) runs(host refs.Host, c refs.Change) (string, error) {
	if h, err := g.repo.objects.Header(c.New); err == nil && h.Name != "" && (!gitplace.IsPlain(h.Name) || refs.CheckName("refs/tags/"+h.Name) != nil) {
		return h.Name, nil
	}
	name, old := c.Name, c.Old+c.OldTarget
	if name == "HEAD" {
		name, old = c.Target, ""
	}
	if gitplace.IsPlain(name) || old != "" {
		return "", nil
	}
	has, err := refs.Has(host, name)
	if has[name] {
		name = ""
	}
	return name, err
}

// hiding lists the new references whose short names git takes for another thing that the host
// has, or this command makes: a commit or another reference. Those of stays are not
// deleted. A fetch of the host's may make a remote branch of any name.
func (g *guard) hiding(host refs.Host, changes []refs.Change, stays map[string]bool) (map[string]bool, error) {
	hiding := map[string]bool{}
	others := map[string][]string{} // new references, by those of the same short name
	made, gone := map[string]bool{}, map[string]bool{}
	for _, c := range changes {
		made[c.Name] = c.New+c.Target != ""
		gone[c.Name] = !made[c.Name] && !stays[c.Name] && !c.Moved && g.remoteOf(c.Name) == ""
		ref, old := c.Name, c.Old+c.OldTarget
		if ref == "HEAD" && c.Target != "" { // its branch may be unborn
			has, err := refs.Has(host, c.Target)
			if ref = c.Target; err != nil {
				return nil, err
			} else if !has[ref] {
				old = ""
			}
		}
		if !made[c.Name] || old != "" || ref == "refs/stash" {
			continue
		}
		for _, name := range shortNames(ref) {
			lower := strings.ToLower(name)
			if pseudo(name) || mayBeShort(lower) || len(name) >= 4 && len(name) < g.repo.hexLen() && len(g.repo.objects.Begin(lower)) > 0 {
				hiding[c.Name] = true
			}
			for _, other := range meanings(name) {
				if other != ref {
					others[other] = append(others[other], c.Name)
				}
			}
			if !strings.HasPrefix(ref, "refs/remotes/") && g.means(name) {
				hiding[c.Name] = true
			}
		}
	}
	has, err := refs.Has(host, slices.Collect(maps.Keys(others))...)
	for other, names := range others {
		for _, name := range names {
			hiding[name] = hiding[name] || has[other] && !gone[other] || made[other]
		}
	}
	return hiding, err
}

// succeeding lists the remote branches to which a user may come by the name of a branch
// that is gone: git makes a branch that is missing from a remote branch of its name. Which part
// of a reference is the name depends on the remotes, which may change. And by the log of HEAD git
// checkout - asks for any reference of that name, or for the HEAD of a remote, which leads to any
// branch of it.
func (g *guard) succeeding(host refs.Host, changes []refs.Change) (map[string]bool, error) {
	branches := map[string][]string{} // of these names, by reference
	before := map[string][]string{}   // for which only the log of HEAD asks
	var asked []string
	gone := map[string]bool{}
	for _, c := range changes {
		gone[c.Name] = c.New+c.Target == ""
		rest, is := strings.CutPrefix(c.Name, "refs/remotes/")
		if !is || gone[c.Name] {
			continue
		}
		add := func(in map[string][]string, name string) {
			in[c.Name] = append(in[c.Name], "refs/heads/"+name)
			asked = append(append(asked, "refs/heads/"+name), trashed(name)...)
		}
		add(before, c.Name)
		add(before, "remotes/"+rest)
		for remote := path.Dir(rest); remote != "."; remote = path.Dir(remote) {
			add(before, remote)
		}
		for is {
			add(branches, rest)
			_, rest, is = strings.Cut(rest, "/")
		}
	}
	if len(branches) == 0 {
		return nil, nil
	}
	known, left := map[string]bool{}, map[string]bool{}
	for _, h := range g.tops {
		switched, err := refs.Switched(g.repo.refs(h.git))
		if err != nil {
			return nil, err
		}
		for name, from := range switched {
			known["refs/heads/"+name], left["refs/heads/"+name] = true, left["refs/heads/"+name] || from
		}
		for _, branch := range returns(h.git) {
			known[branch] = true
		}
	}
	has, err := refs.Has(host, asked...)
	list := map[string]bool{}
	for _, c := range changes {
		goes := func(branch string, known map[string]bool) bool {
			return gone[branch] || !has[branch] && (known[branch] || slices.ContainsFunc(trashed(strings.TrimPrefix(branch, "refs/heads/")), func(trash string) bool { return has[trash] }))
		}
		list[c.Name] = slices.ContainsFunc(branches[c.Name], func(branch string) bool { return goes(branch, known) }) ||
			slices.ContainsFunc(before[c.Name], func(branch string) bool { return goes(branch, left) })
	}
	return list, err
}

// succeeded sets aside the deletions of branches for which git checkout would take a remote
// branch of the same name that is not clean, which has landed since the branch was there; and of
// those whose names git takes for other things, since the log of HEAD may name them.
func (g *guard) succeeded(host refs.Host, changes []refs.Change) error {
	var names []string
	for i := range changes {
		c := &changes[i]
		name, is := strings.CutPrefix(c.Name, "refs/heads/")
		switch {
		case !is || c.New+c.Target != "" || c.Aside != "":
		case g.means(name):
			c.Aside = "git would take its name for another commit's"
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	remotes, err := refs.RemotesNamed(host, names)
	if err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		if name, is := strings.CutPrefix(c.Name, "refs/heads/"); is && c.New+c.Target == "" && c.Aside == "" {
			for _, remote := range remotes[name] {
				why, err := g.commit(remote.ID)
				if err != nil {
					return err
				}
				if why != "" {
					c.Aside = fmt.Sprintf("git checkout would make it again from %q: %s", remote.Name, why)
				}
			}
		}
	}
	return nil
}

// trashed lists the references that pk keeps of a branch that a command has deleted.
func trashed(branch string) []string {
	return []string{"refs/pk/trash/heads/" + branch, "refs/pk/trash/heads-" + strings.ReplaceAll(branch, "/", "-")}
}

// remoteOf returns the remote of the host's to which a reference belongs, or "". Remote branches
// may lead to any commit: they are the work of others, and a user knows that by the name.
func (g *guard) remoteOf(ref string) (remote string) {
	for _, name := range g.ownRemotes() {
		if strings.HasPrefix(ref, "refs/remotes/"+name+"/") && len(name) > len(remote) {
			remote = name
		}
	}
	return remote
}

// ownRemotes lists the remotes of the host's configuration.
func (g *guard) ownRemotes() (remotes []string) {
	for _, e := range g.config() {
		name, is := strings.CutPrefix(e.Key, "remote.")
		if i := strings.LastIndexByte(name, '.'); is && i > 0 && !slices.Contains(remotes, name[:i]) {
			remotes = append(remotes, name[:i])
		}
	}
	return remotes
}
