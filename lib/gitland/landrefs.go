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
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// landRefs lands references: not HEAD, and not its branch, while they belong to a state that stays.
func (n *landing) landRefs() error {
	o := n.refOptions(n.repo, n.out)
	o.Held, o.Began, o.Landed = map[string]time.Time{}, n.layer.values(n.repo.host), n.out.refs(n.rel)
	o.Switch = func(id string) bool {
		why, err := n.guard().checkedOut(n.before(), id)
		return why == "" && err == nil
	}
	for _, name := range n.leading {
		if value, is := n.out.Stayed[n.path(name)]; is {
			o.Began[name] = value
		}
	}
	shared := n.out.refs(n.repo.rel)
	copyShared(o.Landed, shared)
	changes, err := n.changes(o)
	if err != nil {
		return err
	}
	o.Going = func(name string) bool { return n.going[name] }
	if changes, err = n.mayLand(changes); err != nil {
		return err
	}
	o.Made = func(branch string) bool {
		began, landed := n.out.Began[n.path(branch)]
		return landed && began == "" || slices.ContainsFunc(changes, func(c refs.Change) bool {
			return c.Name == branch && (c.Old+c.OldTarget == "" || c.New+c.Target == "")
		})
	}
	changes = n.withWork(changes)
	results, err := n.apply(changes, o)
	n.applied = true
	copyShared(shared, o.Landed)
	for _, c := range results {
		n.report(c)
	}
	return err
}

// withWork leaves HEAD and its branch for the next command, with a new state that belongs to them, if the host
// would keep them apart.
func (n *landing) withWork(changes []refs.Change) []refs.Change {
	leads := func(c refs.Change) bool { return slices.Contains(n.leading, c.Name) }
	i := slices.IndexFunc(changes, func(c refs.Change) bool { return leads(c) && c.Aside != "" })
	if n.op == "" || i < 0 {
		return changes
	}
	if st, err := fsat.Lstat(n.up, n.op); err != nil || overlay.IsWhiteout(st) { // the end of one
		return changes
	}
	n.underWay, n.held, n.apart = true, append(n.held, n.op), fmt.Sprintf("%q: %s", changes[i].Name, changes[i].Aside)
	n.keepWork()
	return slices.DeleteFunc(changes, leads)
}

// copyShared copies the values of references that all worktrees share.
func copyShared(to, from map[string]string) {
	for name, value := range from {
		if !refs.PerWorktree(name) && name != "logs/HEAD" {
			to[name] = value
		}
	}
}

// path is the path of a reference below the layer's git directory.
func (n *landing) path(name string) string {
	if refs.PerWorktree(name) {
		return path.Join(n.rel, name)
	}
	return path.Join(n.repo.rel, name)
}

// changes lists the changes of references that belong to this landing, and reports the files of the layer
// that are none.
func (n *landing) changes(o refs.Options) ([]refs.Change, error) {
	changes, refused, err := refs.Changes(n.host, n.upper, o)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if since, ok := n.out.Held[n.path(c.Name)]; ok {
			o.Held[c.Name] = time.Unix(0, since)
		}
	}
	if len(o.Held) > 0 {
		if changes, refused, err = refs.Changes(n.host, n.upper, o); err != nil {
			return nil, err
		}
	}
	for _, f := range refused {
		if f.Broken {
			n.out.drop("%q: %s", f.Name, f.Reason)
		} else {
			if f.Name != "HEAD" { // a HEAD that is none belongs to no index
				n.refuse(f.Name)
			}
			n.out.stay(n.path(f.Name), "%q: %s", f.Name, f.Reason)
		}
	}
	n.going = map[string]bool{}
	for _, c := range changes {
		if c.New+c.Target == "" && !c.Moved {
			n.going[c.Name] = true
		}
	}
	return slices.DeleteFunc(changes, func(c refs.Change) bool {
		if n.underWay && slices.Contains(n.leading, c.Name) {
			if !c.Moved {
				n.out.stayed(n.path(c.Name), valueOf(c.Old, c.OldTarget))
			}
			return true
		}
		if refs.PerWorktree(c.Name) {
			return !n.own()
		}
		if !n.last && c.New+c.Target == "" {
			return true
		}
		owner, owned := n.owners[c.Name]
		return owned && owner != n.git || !owned && n.git != n.repo.host
	}), nil
}

// mayLand returns the changes that may land, and the changes that the host keeps apart.
func (n *landing) mayLand(changes []refs.Change) ([]refs.Change, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	began := n.beganAt()
	meanwhile := n.layer.meanwhile(n.git, began, n.out.Torn, n.out.Files[filepath.Join(n.rel, indexFile)] != "")
	if n.ended {
		meanwhile = cmp.Or(meanwhile, "the host has ended the merge, or the like, meanwhile")
	}
	if err := n.setAside(began, meanwhile, changes); err != nil {
		return nil, err
	}
	for i := range changes { // HEAD lands with its branch
		h := &changes[i]
		if h.Name == "HEAD" && h.Aside == "" && h.Target != h.OldTarget && slices.ContainsFunc(changes, func(c refs.Change) bool { return c.Name == h.Target && c.New != "" && c.Aside != "" }) {
			h.Aside = fmt.Sprintf("%q does not land", h.Target)
		}
	}
	for _, c := range changes {
		if c.Aside != "" {
			delete(n.going, c.Name)
		}
	}
	return slices.DeleteFunc(changes, func(c refs.Change) bool {
		switch {
		case c.Aside == incomplete:
			n.out.stay(n.path(c.Name), "%q: %s", c.Name, incomplete)
		case strings.HasSuffix(c.Aside, besides):
			n.wait(c, c.Aside)
			return true
		case c.Aside == "" || n.last:
			return false
		}
		n.refuse(c.Name)
		return true
	}), nil
}

// wait leaves a change for the next command.
func (n *landing) wait(c refs.Change, why string) {
	n.out.wait(n.path(c.Name), "%q: %s%s", c.Name, why, n.keptBack(c.Name, c.New))
	n.keepLog(c.Name)
	n.refuse(c.Name)
}

// refuse notes a reference that does not land.
func (n *landing) refuse(name string) {
	n.refused = append(n.refused, name)
	n.stays = n.stays || slices.Contains(n.leading, name)
}

// apply applies changes, those of HEAD and its branch with the lock of the index. Of new references there
// may be many: they land without it.
func (n *landing) apply(changes []refs.Change, o refs.Options) (results []refs.Result, err error) {
	moves := func(c refs.Change) bool { return c.Aside == "" && slices.Contains(n.leading, c.Name) }
	rest := changes
	if slices.ContainsFunc(changes, moves) {
		if len(n.news) == 0 { // else the lock of the index comes first
			var first []refs.Change
			rest = nil
			for _, c := range changes {
				if !moves(c) && c.Aside == "" && c.Old+c.OldTarget == "" && !c.Moved && !n.follows(c.Name) {
					first = append(first, c)
				} else {
					rest = append(rest, c)
				}
			}
			if results, err = refs.Apply(n.host, first, o); err != nil {
				return results, err
			}
		}
		switch err := n.lockIndex(); {
		case errors.Is(err, fs.ErrExist):
			rest = n.withoutHead(rest, moves, err)
		case err != nil:
			return results, err
		default:
			why, err := n.inherits(rest)
			if err != nil {
				return results, err
			}
			if why != "" {
				rest = n.without(rest, moves, why)
			}
			if why, err = n.staleIndex(rest); err != nil {
				return results, err
			}
			if why != "" {
				rest = n.aside(rest, moves, why)
			}
		}
	}
	unlock, why, err := n.settle()
	if err != nil {
		return results, err
	}
	if why != "" {
		rest = n.without(rest, func(c refs.Change) bool { return c.Aside == "" && c.New+c.Target != "" }, why)
	}
	if !n.own() {
		defer unlock()
	} else {
		n.unlock = unlock
	}
	if !slices.ContainsFunc(rest, moves) {
		others, err := refs.Apply(n.host, rest, o)
		return append(results, others...), err
	}
	resumed := n.was != nil
	if !resumed {
		was := n.treeOf(headNow(n.host))
		n.was = &was
	}
	if err := n.noteMove(rest); err != nil {
		return results, err
	}
	others, err := refs.Apply(n.host, rest, o)
	if moved, is := n.movedTo(others); is {
		n.moved = moved
	} else if err == nil && !resumed { // the user may move it at any time
		n.was = nil
	}
	return append(results, others...), err
}

// follows reports whether a reference can be made only once another one is deleted.
func (n *landing) follows(name string) bool {
	for other := range n.going {
		if fsat.Within(name, other) || fsat.Within(other, name) {
			return true
		}
	}
	return false
}

// movedTo returns the commit to which a landing has moved the host's HEAD, or "" for a branch that is not there
// yet. is is false if it has not.
func (n *landing) movedTo(results []refs.Result) (moved string, is bool) {
	id, branch, others := leads(n.host)
	for _, c := range results {
		switch {
		case c.Outcome != refs.Landed || c.Old == c.New || c.Name != "HEAD" && c.Name != branch && !slices.Contains(others, c.Name):
		case isID(c.New):
			return c.New, true
		default:
			moved, is = id, true
		}
	}
	return moved, is
}

// without leaves some changes for the next command.
func (n *landing) without(changes []refs.Change, some func(refs.Change) bool, why string) []refs.Change {
	return slices.DeleteFunc(changes, func(c refs.Change) bool {
		if some(c) {
			n.wait(c, why)
			return true
		}
		return false
	})
}

// withoutHead leaves HEAD and its branch for the next command, with the index, and tells of all three in a line.
func (n *landing) withoutHead(changes []refs.Change, moves func(refs.Change) bool, why error) []refs.Change {
	what, kept := "HEAD and the index", ""
	changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
		if !moves(c) {
			return false
		}
		if c.Name != "HEAD" {
			what = fmt.Sprintf("%q, HEAD and the index", c.Name)
		}
		n.refuse(c.Name)
		n.out.leave(n.path(c.Name))
		n.keepLog(c.Name)
		kept = cmp.Or(n.keptBack(c.Name, c.New), kept)
		return true
	})
	n.out.wait(path.Join(n.rel, indexFile), "%s: %v%s", what, why, kept)
	return changes
}

// aside has the host keep apart some changes; while the command runs, they do not land yet.
func (n *landing) aside(changes []refs.Change, some func(refs.Change) bool, why string) []refs.Change {
	for i := range changes {
		if c := &changes[i]; some(*c) {
			c.Aside = why
		}
	}
	return slices.DeleteFunc(changes, func(c refs.Change) bool {
		if c.Aside == why && !n.last {
			n.refuse(c.Name)
		}
		return c.Aside == why && !n.last
	})
}

// inherits returns why the host's HEAD must not move with these changes, or "": to a commit with a submodule
// that the index does not have, perhaps of another branch of the host's.
func (n *landing) inherits(changes []refs.Change) (why string, err error) {
	for _, id := range n.headsThen(changes) {
		links, err := n.newSubmodules(n.treeOf(headNow(n.host)), n.treeOf(id))
		for _, link := range links {
			if err == nil && why == "" {
				why, err = n.newModule(n.repo, n.git, link.Path)
			}
		}
		if why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// headsThen lists the commits that changes may give the host's HEAD. A refused or missing commit cannot be read.
func (n *landing) headsThen(changes []refs.Change) (ids []string) {
	_, branch, others := leads(n.host)
	for _, c := range changes {
		switch {
		case c.Aside != "":
		case c.Name == "HEAD" && (c.New != "" || c.Target != c.OldTarget): // else it moves with its branch
			ids = append(ids, n.mine.id)
		case c.Name == branch || slices.Contains(others, c.Name):
			ids = append(ids, c.New)
		}
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool {
		_, err := n.repo.look(id)
		return err != nil
	})
}

// keepLog keeps the log of a reference that stays for the next command.
func (n *landing) keepLog(name string) {
	if n.out.keeps(n.path(name)) {
		n.out.keep = append(n.out.keep, n.path("logs/"+name))
		if n.git != n.repo.host && slices.Contains(n.leading, name) { // it tells whose branch it is
			n.out.keep = append(n.out.keep, path.Join(n.rel, "logs/HEAD"))
		}
	}
}

// keptBack keeps a commit on the host that waits in the layer, and returns words that tell of it, or "".
// A later landing lets it go.
func (n *landing) keptBack(name, id string) string {
	if !n.last || !isID(id) {
		return ""
	}
	kept, err := refs.KeepBack(n.host, id, name, n.refOptions(n.repo, n.out))
	if err != nil || kept == "" {
		return ""
	}
	n.out.Waits = append(slices.DeleteFunc(n.out.Waits, func(w waiting) bool { return w.Ref == kept }), waiting{n.rel, kept, id})
	return fmt.Sprintf(" (its commit %s is %q)", short(id), kept)
}

// report tells of a reference that has not landed as the command has it.
func (n *landing) report(c refs.Result) {
	out, r := n.out, n.repo
	if c.Outcome == refs.Landed && c.Old != c.New {
		out.began(n.path(c.Name), c.Old)
	}
	if c.Outcome != refs.Landed {
		out.left = append(out.left, n.path(c.Name))
		n.stays = n.stays || slices.Contains(n.leading, c.Name)
	}
	if c.Outcome == refs.Kept && c.Aside != "" {
		n.refuse(c.Name)
	}
	switch {
	case c.Outcome == refs.Refuse:
		n.refuse(c.Name)
		if _, err := r.objects.Kind(c.New); !isID(c.New) || err == nil {
			out.wait(n.path(c.Name), "%q: %s%s", c.Name, c.Reason, n.keptBack(c.Name, c.New))
		} else {
			out.stay(n.path(c.Name), "%q: %s", c.Name, c.Reason)
		}
		n.keepLog(c.Name)
	case c.Outcome == refs.Kept && c.Aside != "" && c.Kept != "":
		out.tell("%q %s: %s; the command's is %q: look at it before you merge it", c.Name, staysAt(c.Old), c.Aside, c.Kept)
	case c.Outcome == refs.Kept && c.Aside != "":
		out.tell("%q %s: %s", c.Name, staysAt(c.Old), c.Aside)
	case c.Outcome == refs.Kept && c.Old == "" && c.Kept != "":
		out.tell("the host has removed %q meanwhile; the command's is %q%s", c.Name, c.Kept, adviceToMake(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
	case c.Outcome == refs.Kept && c.Kept != "":
		out.retell(fmt.Sprintf("the host has moved %q meanwhile: it stays at ", c.Name), "%s, and the command's is %q%s", short(c.Old), c.Kept, advice(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
	case c.Outcome == refs.Kept:
		out.retell(fmt.Sprintf("the host has moved %q meanwhile: it stays at ", c.Name), "%s", short(c.Old))
	case c.Trash != "":
		id, _, _ := refs.Value(n.host, c.Trash)
		was := "was"
		if c.Name == "refs/stash" { // it may be any entry
			was = "had"
		}
		out.note("%q %s %s, which is now %q", c.Name, was, short(cmp.Or(id, c.Old)), c.Trash)
	case !refs.PerWorktree(c.Name) && c.Name != "refs/stash" && isID(c.Old) && isID(c.New) && !r.isAncestor(c.Old, c.New):
		out.note("%q was %s, which other references have", c.Name, short(c.Old))
	}
}

func (l *lander) refOptions(r *repository, out *landed) refs.Options {
	return refs.Options{
		Session: l.layer.Session, Kind: r.objects.Kind, IsAncestor: r.isAncestor, Clean: func(id string) bool { return l.clean(r, id) }, Committer: committer(), Since: time.Unix(0, out.Since),
		Locking: l.layer.hideLock, Packed: l.layer.packedThen(r.host), Sharing: r.sharing,
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

// valueOf is an ID, or the name of another reference, as in refs.Options.Landed.
func valueOf(id, target string) string {
	if target != "" {
		return "ref: " + target
	}
	return id
}

// isID reports whether a value is that of a reference which leads to no other one.
func isID(value string) bool { return value != "" && !strings.HasPrefix(value, "ref: ") }
