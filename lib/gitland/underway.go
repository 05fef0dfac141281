package gitland

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// landStates lands states, and reports the rest.
func (n *landing) landStates(o state.Options) error {
	result, err := state.Land(n.git, n.up, o)
	for _, s := range result.Stays {
		if slices.Contains(remarks, s.Name) {
			continue
		}
		if st, err := fsat.Lstat(n.up, s.Name); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && !readable(st, s.Name) {
			n.out.drop("%s: %s", s.Name, s.Why)
			continue
		}
		n.out.stay(path.Join(n.rel, s.Name), "%s: %s", s.Name, s.Why)
	}
	return err
}

// cannotGoOn returns the name of a state of the host's that does not change, and that the
// host's git may not go on with at another HEAD, or "".
func (n *landing) cannotGoOn(git string, changed []state.Difference, head string) string {
	if head == n.guard().before(git).id {
		return ""
	}
	ends := func(op string) bool {
		return slices.ContainsFunc(changed, func(d state.Difference) bool { return d.Name == op })
	}
	if exists(filepath.Join(git, "rebase-apply")) && !ends("rebase-apply") {
		return "rebase-apply" // its patches may change any file
	}
	for _, op := range []string{"rebase-merge", "sequencer", "MERGE_AUTOSTASH"} {
		if ends(op) {
			continue
		}
		for id, back := range state.Picks(git, op) {
			if len(id) < n.repo.hexLen() {
				id = n.repo.wholeID(n.repo.refs(git), id)
			}
			if !n.guard().mayPick(id, math.MaxInt, back, head, n.guard().movesDir) {
				return op
			}
		}
	}
	return ""
}

// wholeID returns the ID for which git takes the beginning of one, "" if that is not clear or
// if a reference has that name.
func (r *repository) wholeID(host refs.Host, short string) string {
	for _, name := range []string{short, "refs/" + short, "refs/tags/" + short, "refs/heads/" + short, "refs/remotes/" + short, "refs/remotes/" + short + "/HEAD"} {
		if id, target, err := refs.Value(host, name); err != nil || id+target != "" {
			return ""
		}
	}
	return r.objects.Whole(short)
}

// remarks are files that git writes for the user's convenience with almost any command.
// Without them nothing is lost.
var remarks = []string{"ORIG_HEAD", "FETCH_HEAD"}

// operations are the names of work under way that has a HEAD and an index of its own.
var operations = []string{"rebase-merge", "rebase-apply", "sequencer", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "BISECT_LOG"}

// holdBack keeps on the host the commit of a HEAD that does not land, since a state stays in
// the sandbox, and tells of it: commands may have left the state and work on another branch.
func (n *landing) holdBack() error {
	out, state, o := n.out, n.held[0], n.refOptions(n.repo, n.out)
	changes, _, err := refs.Changes(n.host, n.upper, o)
	if err != nil {
		return err
	}
	name, file, what := "HEAD", path.Join(n.rel, "HEAD"), "HEAD and the index do not land"
	if n.branch != "" {
		name, file, what = n.branch, path.Join(n.repo.rel, n.branch), fmt.Sprintf("%q, HEAD and the index do not land", n.branch)
	}
	defer n.holdBranches(changes, state, name, o)
	i := slices.IndexFunc(changes, func(c refs.Change) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	out.left = append(out.left, file)
	id := changes[i].New
	kept, err := refs.KeepBack(n.host, id, name, o)
	if err != nil {
		out.tell("%s while %q stays in the sandbox, and the commit %s cannot be kept on the host: %v", what, state, short(id), err)
	}
	if kept == "" {
		return nil
	}
	n.await(kept, id)
	then := ""
	if st, err := fsat.Lstat(n.up, state); err == nil && overlay.IsWhiteout(st) { // ended in the sandbox, not on the host
		then = "; to have it, give up the host's: " + strings.Replace(quitting(n.up, state), "--quit", "--abort", 1) + advice(name, strings.TrimPrefix(kept, "refs/"))
	} else if !out.once {
		then = "; finish that, or give it up and keep the commits: " + n.layer.toType(quitting(n.up, state))
	}
	out.tell("%s while %q stays in the sandbox: the commit %s is %q%s", what, state, short(id), kept, then)
	return nil
}

// holdBranches is holdBack for the other branches that do not land with HEAD, such as that from which a rebase has begun.
func (n *landing) holdBranches(changes []refs.Change, state, but string, o refs.Options) {
	for _, c := range changes {
		if c.Name == but || c.New == "" || !slices.Contains(n.leading, c.Name) {
			continue
		}
		kept, err := refs.KeepBack(n.host, c.New, c.Name, o)
		if err != nil {
			n.out.tell("%q does not land while %q stays in the sandbox, and its commit %s cannot be kept on the host: %v", c.Name, state, short(c.New), err)
		} else if kept != "" {
			n.await(kept, c.New)
			n.out.tell("%q does not land while %q stays in the sandbox: its commit %s is %q", c.Name, state, short(c.New), kept)
		}
	}
}

// await notes a ref for letGo.
func (n *landing) await(kept, id string) {
	n.out.Waits = append(slices.DeleteFunc(n.out.Waits, func(w waiting) bool { return w.Ref == kept }), waiting{n.rel, kept, id})
}

// letGo removes the refs of holdBack whose commits have landed.
func (n *landing) letGo() error {
	var left []waiting
	for _, w := range n.out.Waits {
		gone := false
		if w.Git == n.rel {
			var err error
			if gone, err = refs.LetGo(n.host, w.Ref, w.ID, n.refOptions(n.repo, n.out)); err != nil {
				return err
			}
		}
		if !gone {
			left = append(left, w)
		}
	}
	n.out.Waits = left
	return nil
}

// isRebase reports whether the files of work under way are those of a rebase, during which
// HEAD leads to no branch: if it does, the command has left the rebase.
func isRebase(up int, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return quitting(up, name) != "git rebase --quit" })
}

// quitting is the command that ends the operation with a file, and changes no branch.
func quitting(up int, state string) string {
	switch state {
	case "rebase-apply":
		if fd, err := fsat.Kernel().Open(up, "rebase-apply/applying", unix.O_PATH|unix.O_NOFOLLOW, 0, fsat.Beneath); err == nil {
			unix.Close(fd)
			return "git am --quit"
		}
		return "git rebase --quit"
	case "rebase-merge":
		return "git rebase --quit"
	case "REVERT_HEAD":
		return "git revert --quit"
	case "MERGE_HEAD":
		return "git merge --quit"
	case "BISECT_LOG":
		return "git bisect reset HEAD"
	}
	return "git cherry-pick --quit"
}
