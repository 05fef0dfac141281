package gitland

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pikuri/lib/gitdir/refs"
)

// headLock is the lock of an index, to be taken before HEAD moves, or a branch to which it leads: git on
// the host locks the index to commit, and with the old one would take back a commit that has landed.
type headLock struct {
	names []string
	lock  func() error
}

// landRefs lands references, but not HEAD without head, and not the branch stays. It returns
// the refused ones.
func (l *lander) landRefs(r *repository, git, rel string, upper int, head bool, stays string, owners map[string]string, lock headLock, out *landed) (refusals []string, err error) {
	host := r.refs(git)
	path := func(name string) string {
		if refs.PerWorktree(name) {
			return path.Join(rel, name)
		}
		return path.Join(r.rel, name)
	}
	o := l.refOptions(r, out)
	o.Held, o.Began, o.Landed = map[string]time.Time{}, l.layer.values(r.host), out.refs(rel)
	o.Switch = func(id string) bool {
		why, err := l.guard(r).checkedOut(l.guard(r).before(git), id)
		return why == "" && err == nil
	}
	common := out.refs(r.rel)
	for name, value := range common {
		if !refs.PerWorktree(name) && name != "logs/HEAD" {
			o.Landed[name] = value
		}
	}
	changes, refused, err := refs.Changes(host, upper, o)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if since, ok := out.Held[path(c.Name)]; ok {
			o.Held[c.Name] = time.Unix(0, since)
		}
	}
	if len(o.Held) > 0 {
		if changes, refused, err = refs.Changes(host, upper, o); err != nil {
			return nil, err
		}
	}
	for _, f := range refused {
		if f.Broken {
			out.drop("%q: %s", f.Name, f.Reason)
		} else {
			out.stay(path(f.Name), "%q: %s", f.Name, f.Reason)
		}
	}
	own := slices.Contains(l.layer.GitDirs, git)
	changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
		if refs.PerWorktree(c.Name) {
			return c.Name == "HEAD" && !head || !own
		}
		if !l.last && c.New+c.Target == "" {
			return true
		}
		owner, owned := owners[c.Name]
		return c.Name == stays || owned && owner != git || !owned && git != r.host
	})
	if len(changes) > 0 {
		began := r.beganAt(host, rel, out)
		meanwhile := l.layer.meanwhile(git, began, out.Torn, out.Files[filepath.Join(rel, indexFile)] != "")
		if err := l.setAside(r, git, began, meanwhile, changes); err != nil {
			return nil, err
		}
	}
	changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
		if c.Aside == incomplete {
			refusals = append(refusals, c.Name)
			out.stay(path(c.Name), "%q: %s", c.Name, incomplete)
		}
		return c.Aside == incomplete
	})
	if !l.last {
		changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
			if c.Aside != "" {
				refusals = append(refusals, c.Name)
			}
			return c.Aside != ""
		})
	}
	refuse := func(stay func(rel, format string, args ...any), name string, why any) {
		if stay(path(name), "%q: %v", name, why); out.keeps(path(name)) {
			out.keep = append(out.keep, path("logs/"+name))
		}
	}
	moves := func(c refs.Change) bool { return c.Aside == "" && slices.Contains(lock.names, c.Name) }
	var results []refs.Result
	if slices.ContainsFunc(changes, moves) {
		isNew := func(c refs.Change) bool { return !moves(c) && c.Aside == "" && c.Old+c.OldTarget == "" && !c.Moved }
		slices.SortStableFunc(changes, func(a, b refs.Change) int { // of which there may be many, without the lock
			switch {
			case isNew(a) == isNew(b):
				return 0
			case isNew(a):
				return -1
			}
			return 1
		})
		n := slices.IndexFunc(changes, func(c refs.Change) bool { return !isNew(c) })
		if results, err = refs.Apply(host, changes[:n], o); err != nil {
			return nil, err
		}
		err := lock.lock()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
			waits := err != nil && moves(c)
			if waits {
				refusals = append(refusals, c.Name)
				refuse(out.wait, c.Name, err)
			}
			return waits
		})
	}
	others, err := refs.Apply(host, changes[len(results):], o)
	results = append(results, others...)
	for name, value := range o.Landed {
		if !refs.PerWorktree(name) && name != "logs/HEAD" {
			common[name] = value
		}
	}
	for i, c := range results {
		aside := changes[i].Aside
		if c.Outcome == refs.Landed && c.Old != c.New {
			out.began(path(c.Name), c.Old)
		}
		if c.Outcome != refs.Landed {
			out.left = append(out.left, path(c.Name))
		}
		if c.Outcome == refs.Refuse || c.Outcome == refs.Kept && aside != "" {
			refusals = append(refusals, c.Name)
		}
		switch {
		case c.Outcome == refs.Refuse:
			stay := out.stay
			if _, err := r.objects.Kind(c.New); !isID(c.New) || err == nil {
				stay = out.wait
			}
			refuse(stay, c.Name, c.Reason)
		case c.Outcome == refs.Kept && aside != "" && c.Kept != "":
			out.tell("%q %s: %s; the command's is %q: look at it before you merge it", c.Name, staysAt(c.Old), aside, c.Kept)
		case c.Outcome == refs.Kept && aside != "":
			out.tell("%q %s: %s", c.Name, staysAt(c.Old), aside)
		case c.Outcome == refs.Kept && c.Old == "" && c.Kept != "":
			out.tell("the host has removed %q meanwhile; the command's is %q%s", c.Name, c.Kept, adviceToMake(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
		case c.Outcome == refs.Kept && c.Kept != "":
			out.retell(fmt.Sprintf("the host has moved %q meanwhile: it stays at ", c.Name), "%s, and the command's is %q%s", short(c.Old), c.Kept, advice(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
		case c.Outcome == refs.Kept:
			out.retell(fmt.Sprintf("the host has moved %q meanwhile: it stays at ", c.Name), "%s", short(c.Old))
		case c.Trash != "":
			id, _, _ := refs.Value(host, c.Trash) // of the stash, any entry
			out.note("%q was %s, which is now %q", c.Name, short(cmp.Or(id, c.Old)), c.Trash)
		case !refs.PerWorktree(c.Name) && c.Name != "refs/stash" && isID(c.Old) && isID(c.New) && !r.isAncestor(c.Old, c.New):
			out.note("%q was %s, which other references have", c.Name, short(c.Old))
		}
	}
	return refusals, err
}

func (l *lander) refOptions(r *repository, out *landed) refs.Options {
	return refs.Options{
		Session: l.layer.Session, Kind: r.objects.Kind, IsAncestor: r.isAncestor, Clean: func(id string) bool { return l.clean(r, id) }, Committer: committer(), Since: time.Unix(0, out.Since),
		Locking: l.layer.hideLock,
	}
}

// committer is the name in reflogs, as git chooses it without a configuration.
func committer() string {
	name, host := "pk", "localhost"
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + " <" + name + "@" + host + ">"
}

// isID reports whether a value is that of a reference which leads to no other one.
func isID(value string) bool { return value != "" && !strings.HasPrefix(value, "ref: ") }
