package gitland

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
)

// setAside marks the changes of references that must not land. The rest of the landing depends on
// deletions, which do not all land themselves.
//
// began is the commit of the host's HEAD, without the landed ones, and meanwhile the reason that keeps
// changes of HEAD and its branch from landing, or "".
func (n *landing) setAside(began, meanwhile string, changes []refs.Change) error {
	stays := map[string]bool{} // references that are not deleted
	for {
		before := len(stays)
		for i := range changes {
			changes[i].Aside = ""
		}
		if err := n.tryAside(began, meanwhile, changes, stays); err != nil {
			return err
		}
		for _, c := range changes {
			if c.Aside != "" && c.New+c.Target == "" {
				stays[c.Name] = true
			}
		}
		if len(stays) == before {
			return nil
		}
	}
}

// tryAside is setAside if the host keeps some references that the command has deleted.
func (n *landing) tryAside(began, meanwhile string, changes []refs.Change, stays map[string]bool) (err error) {
	g, r, git := n.guard(), n.repo, n.git
	hiding, err := g.hiding(n.host, changes, stays)
	if err != nil {
		return err
	}
	succeeding, err := g.succeeding(n.host, changes)
	if err != nil {
		return err
	}
	start, commit, known := n.layer.began(git)
	for i := range changes {
		c := &changes[i]
		runs, err := g.runs(n.host, *c)
		switch {
		case err != nil:
			return err
		case runs != "" && c.New+c.Target != "":
			c.Aside = fmt.Sprintf("a prompt or a makefile may run a part of the name %q", runs)
		case meanwhile != "" && (c.Name == "HEAD" || c.Name == start || n.ended && slices.Contains(n.leading, c.Name)):
			c.Aside = meanwhile
		case hiding[c.Name]:
			c.Aside = "git would take its name for another commit's"
		case succeeding[c.Name] && c.Target != "":
			var ids []string
			ids, err = n.valuesThen(c.Target, changes, stays)
			for i := 0; i < len(ids) && c.Aside == "" && err == nil; i++ {
				c.Aside, err = g.commit(ids[i])
			}
		case succeeding[c.Name] || g.remoteOf(c.Name) == "":
			c.Aside, err = g.commit(c.New)
		case c.New != "":
			c.Aside = g.fetched(c.New)
		}
		if branch := ""; c.Aside == "" && err == nil {
			if branch, err = g.losesTo(n.host, *c); branch != "" {
				c.Aside = fmt.Sprintf("git rebase would drop commits from %q, which has it as upstream", branch)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := g.succeeded(n.host, changes); err != nil {
		return err
	}
	heads := map[string]string{} // commits of the HEADs then, by git directory
	for _, h := range g.trees {
		if h.git != git { // it may have landed meanwhile
			h.id, h.branch, h.others = leads(r.refs(h.git))
		}
		heads[h.git] = h.id
		left := false // HEAD leaves its branch
		for _, name := range append([]string{"HEAD", h.branch}, h.others...) {
			i := slices.IndexFunc(changes, func(c refs.Change) bool { return c.Name == name })
			if i < 0 || changes[i].Aside != "" || name == "HEAD" && h.git != git {
				continue
			}
			c := &changes[i]
			ids := []string{c.New}
			if c.Target != "" {
				if ids, err = n.valuesThen(c.Target, changes, stays); err != nil {
					return err
				}
			}
			id := ids[0]
			switch {
			case name == "HEAD" && known && commit != began && !r.isAncestor(h.id, id) && start != h.branch:
				c.Aside = "the host has switched meanwhile"
			case name == "HEAD" && known && commit != began && !r.isAncestor(h.id, id):
				c.Aside = "the host has committed meanwhile"
			case name == "HEAD" && c.Target != "" && c.Target != h.branch && n.mine.known && (n.mine.moved || slices.ContainsFunc(ids, func(id string) bool { return id != "" && !r.isAncestor(n.mine.id, id) })):
				c.Aside = fmt.Sprintf("the host has moved %q meanwhile", c.Target)
			case name == "HEAD" && c.Target != "" && c.Target != h.branch && g.usedElsewhere(c.Target, git) != "":
				c.Aside = fmt.Sprintf("%q has checked out %q", g.usedElsewhere(c.Target, git), c.Target)
			case id == "" && name == "HEAD" && slices.ContainsFunc(changes, func(b refs.Change) bool { return b.Name == c.Target && b.New != "" }):
				c.Aside = fmt.Sprintf("%q does not land", c.Target)
			case id == "" && name == "HEAD" && n.mine.known && n.mine.id != "":
				c.Aside = fmt.Sprintf("the host has removed %q meanwhile", c.Target)
			case id == "" && name == "HEAD":
			case id == "" && !left:
				c.Aside = fmt.Sprintf("%q has checked it out", h.workTree)
			case id == "":
				continue
			default:
				for i := 0; i < len(ids) && c.Aside == "" && err == nil; i++ {
					c.Aside, err = g.checkedOut(h, ids[i])
				}
			}
			// findWork asks about those of the command itself.
			if c.Aside == "" && err == nil && (h.git != git || !n.own()) {
				if op := n.cannotGoOn(h.git, nil, id); op != "" {
					c.Aside = fmt.Sprintf("the work under way in %q (%s) could not go on there", h.workTree, op)
				}
			}
			if err != nil {
				return err
			}
			if c.Aside == "" && !c.Moved {
				left = name == "HEAD" && c.Target != h.branch
				heads[h.git] = id
			}
		}
	}
	at := leadsTo(n.repo.valueAt(n.host, n.rel, n.out)) // what has landed while the command runs is none of the host's
	own := git
	if !n.own() { // nobody moves the index of that
		own = ""
	}
	headStays := slices.ContainsFunc(changes, func(c refs.Change) bool { return c.Name == "HEAD" && c.Aside != "" })
	for _, h := range g.tops {
		branches := returns(h.git)
		goesOn := h.git == git && !headStays && slices.ContainsFunc(returning, func(file string) bool { // the command does that work
			work, _, _ := strings.Cut(file, "/")
			_, err := fsat.Lstat(n.up, work)
			return err == nil
		})
		for i := range changes {
			if c := &changes[i]; c.Aside == "" && (c.New+c.Target == "" || !goesOn) && slices.Contains(branches, c.Name) {
				c.Aside = fmt.Sprintf("the work under way in %q returns to it", h.workTree)
			}
		}
	}
	for i := range changes {
		switch c := &changes[i]; {
		case c.Aside != "":
		case c.New != "" && strings.HasPrefix(c.Name, "refs/heads/") && g.usedElsewhere(c.Name, own) != "":
			c.Aside = fmt.Sprintf("%q has checked it out", g.usedElsewhere(c.Name, own))
		case c.New != "" && known && start != at && c.Name == at && n.mine.branch != c.Name:
			c.Aside = "the host has switched to it meanwhile"
		case c.Name == "refs/stash":
			c.Aside, err = g.stashed(c, heads)
		case strings.HasPrefix(c.Name, "refs/bisect/"):
			bad, _, _ := refs.Value(n.host, "refs/bisect/bad")
			start := ""
			if n.layer.adopts { // a commit, if the bisect began without a branch
				text, _ := readSmall(n.up, bisectStart, unix.O_NOFOLLOW)
				start = strings.TrimSpace(string(text))
			}
			if c.New != "" && !r.isAncestor(c.New, bad, n.before().id, heads[git], start) {
				c.Aside = "HEAD does not have it in its history"
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// valuesThen returns the commit that a branch has after the landing, or "". If the host has moved
// the branch, it may be the command's or the host's.
func (n *landing) valuesThen(branch string, changes []refs.Change, stays map[string]bool) (ids []string, err error) {
	for _, c := range changes {
		if c.Name == branch && c.Aside == "" && !stays[branch] {
			if ids = append(ids, c.New); !c.Moved {
				return ids, nil
			}
		}
	}
	id, _, err := refs.Value(n.host, branch)
	return append(ids, id), err
}

// config is the host's configuration of the repository.
func (g *guard) config() []gitconfig.Entry {
	if g.settings == nil {
		text, _ := os.ReadFile(filepath.Join(g.repo.host, "config"))
		entries, _ := gitconfig.Parse("config", text)
		g.settings = append([]gitconfig.Entry{}, entries...)
	}
	return g.settings
}

// losesTo returns a branch from which git rebase would drop a commit that its upstream, a branch
// of the host's, has had and loses by a change; or "".
func (g *guard) losesTo(host refs.Host, c refs.Change) (string, error) {
	if !strings.HasPrefix(c.Name, "refs/heads/") || c.Old == "" || c.New == "" {
		return "", nil
	}
	for _, e := range g.config() {
		name, is := strings.CutPrefix(strings.TrimSuffix(e.Key, ".merge"), "branch.")
		if !is || !strings.HasSuffix(e.Key, ".merge") || e.Value != c.Name {
			continue
		}
		id, _, err := refs.Value(host, "refs/heads/"+name)
		if err != nil || id != "" && "refs/heads/"+name != c.Name && !g.repo.isAncestor(c.Old, c.New) && g.repo.isAncestor(c.Old, id) {
			return name, err
		}
	}
	return "", nil
}
