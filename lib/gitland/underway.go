package gitland

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
)

// landStates lands states, and reports those that stay.
func landStates(git, rel string, up int, o state.Options, out *landed) error {
	result, err := state.Land(git, up, o)
	for _, s := range result.Stays {
		if slices.Contains(remarks, s.Name) {
			continue
		}
		if st, err := fsat.Lstat(up, s.Name); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && !readable(st, s.Name) {
			out.drop("%s: %s", s.Name, s.Why)
			continue
		}
		out.stay(path.Join(rel, s.Name), "%s: %s", s.Name, s.Why)
	}
	return err
}

// cannotGoOn returns the name of a state of the host's that does not change, and that the
// host's git may not go on with at another HEAD, or "".
func (l *lander) cannotGoOn(r *repository, git string, changed []state.Difference, head string) string {
	if head == l.guard(r).before(git).id {
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
			if len(id) < r.hexLen() {
				id = r.wholeID(r.refs(git), id)
			}
			if !l.guard(r).mayPick(id, math.MaxInt, back, head) {
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
var remarks = []string{"COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG", "ORIG_HEAD", "FETCH_HEAD"}

// operations are the names of work under way that has a HEAD and an index of its own.
var operations = []string{"rebase-merge", "rebase-apply", "sequencer", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "BISECT_LOG"}

// holdBack keeps on the host the commit of a HEAD that does not land, since a state stays in
// the sandbox, and tells of it: commands may have left the state and work on another branch.
func (l *lander) holdBack(r *repository, git, rel string, upper, up int, state, branch string, out *landed) error {
	host, o := r.refs(git), l.refOptions(r, out)
	changes, _, err := refs.Changes(host, upper, o)
	if err != nil {
		return err
	}
	name, what := "HEAD", "HEAD and the index do not land"
	if branch != "" {
		name, what = branch, fmt.Sprintf("%q, HEAD and the index do not land", branch)
	}
	i := slices.IndexFunc(changes, func(c refs.Change) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	in := r.rel
	if name == "HEAD" {
		in = rel
	}
	out.left = append(out.left, path.Join(in, name))
	id := changes[i].New
	kept, err := refs.KeepBack(host, id, name, o)
	if err != nil {
		out.tell("%s while %q stays in the sandbox, and the commit %s cannot be kept on the host: %v", what, state, short(id), err)
	}
	if kept == "" {
		return nil
	}
	out.Waits = append(slices.DeleteFunc(out.Waits, func(w waiting) bool { return w.Ref == kept }), waiting{rel, kept, id})
	then := ""
	if !out.once {
		then = "; finish that, or give it up and keep the commits: " + l.layer.toType(quitting(up, state))
	}
	out.tell("%s while %q stays in the sandbox: the commit %s is %q%s", what, state, short(id), kept, then)
	return nil
}

// letGo removes the refs of holdBack whose commits have landed.
func (l *lander) letGo(r *repository, host refs.Host, rel string, out *landed) error {
	var left []waiting
	for _, w := range out.Waits {
		gone := false
		if w.Git == rel {
			var err error
			if gone, err = refs.LetGo(host, w.Ref, w.ID, l.refOptions(r, out)); err != nil {
				return err
			}
		}
		if !gone {
			left = append(left, w)
		}
	}
	out.Waits = left
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
