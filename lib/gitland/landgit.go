package gitland

import (
	"errors"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
)

// landGit lands the directory up of the upper layer in git, the host's git directory or
// a linked worktree's: the state of work under way, references, HEAD and the index.
func (l *lander) landGit(r *repository, git string, upper, up int, owners map[string]string, indexes func() *indexes, out *landed) error {
	rel, err := filepath.Rel(l.layer.GitDir, git)
	if err != nil {
		return err
	}
	if !slices.Contains(l.layer.GitDirs, git) {
		if git != r.host {
			return nil
		}
		_, err = l.landRefs(r, git, rel, upper, false, "", owners, headLock{}, out)
		return err
	}
	host := r.refs(git)
	before, began := l.guard(r).before(git), r.beganAt(host, rel, out)
	after := headID(up, upper, host)
	resets := before.id // where git resets HEAD if the work under way is given up
	if branch := headOf(up, host); branch != "" {
		resets, _, _ = refs.Value(host, branch)
	}
	fresh := map[string]bool{}
	o := state.Options{
		HexLen: r.hexLen(), Kind: r.objects.Kind, Whole: func(short string) string { return r.wholeID(host, short) },
		Exists:  func(id string) bool { return r.objects.Has(id) && l.clean(r, id) },
		Fetched: l.guard(r).fetched,
		Pick:    func(id string, back bool) bool { return l.guard(r).mayPick(id, math.MaxInt, back, after) },
		Branch:  before.branch,
		Follows: func(id string, rebase bool) bool {
			from := resets
			if rebase {
				from = began
			}
			why, err := l.guard(r).checkedOut(before, id)
			return why == "" && err == nil && (from == "" || r.isAncestor(from, id))
		},
		Fresh: func(branch string) bool { // as it was before the references landed
			if _, known := fresh[branch]; !known {
				id, _, err := refs.Value(host, branch)
				fresh[branch] = err == nil && out.beginning(r.rel, branch, id) == ""
			}
			return fresh[branch]
		},
		Since: func(name string) time.Time { return time.Unix(0, out.since(path.Join(rel, name))) }, Landed: out.marks(rel),
		Keep: func(id string) error {
			kept, err := refs.Keep(host, id, "autostash", l.refOptions(r, out))
			if kept != "" {
				out.note("the changes that `git --autostash` had put away on the host are now %q", kept)
			}
			return err
		},
	}
	underWay := false // a state that the host's git must not see
	var held []string // its files that stay
	if l.last {
		o.Try = true
		result, err := state.Land(git, up, o)
		if err != nil {
			return err
		}
		for _, s := range result.Stays {
			if st, err := fsat.Lstat(up, s.Name); slices.Contains(operations, s.Name) && (err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR || readable(st, s.Name)) {
				held = append(held, s.Name)
			}
		}
		underWay = len(held) > 0 && !(isRebase(up, held) && headOf(up, host) != "")
	} else { // a state that git is writing would be incomplete
		underWay = hasOperation(up) || slices.ContainsFunc(operations, func(name string) bool { return exists(filepath.Join(git, name)) })
	}
	if l.last && !underWay && after != before.id {
		changed, err := state.Differences(git, up, o)
		if err != nil {
			return err
		}
		if op := l.cannotGoOn(r, git, changed, after); op != "" {
			underWay, held = true, append(held, op)
		}
	}
	branch := "" // which belongs to the state, as do HEAD, the index and the branch from which it began
	if underWay {
		if branch = headOf(up, host); branch != "" && r.isValue(upper, branch) {
			out.keep = append(out.keep, path.Join(r.rel, branch), path.Join(r.rel, "logs", branch))
		}
		if branch != "" || r.isValue(up, "HEAD") {
			out.keep = append(out.keep, path.Join(rel, "HEAD"), path.Join(rel, "logs/HEAD"))
		}
		if x := indexes(); x != nil && x.invalid != nil {
			out.stay(path.Join(rel, indexFile), "the index: %v", x.invalid)
		} else {
			out.keep = append(out.keep, path.Join(rel, indexFile))
		}
	}
	if underWay || len(held) > 0 { // the branch from which a rebase began
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name"} {
			if dir, err := fsat.Kernel().Open(up, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath); err == nil {
				branch, _ := readSmall(dir, path.Base(name), unix.O_NOFOLLOW)
				out.hold = append(out.hold, path.Join(r.rel, strings.TrimSpace(string(branch))))
				unix.Close(dir)
			}
		}
	}
	gitlock.Sweep(filepath.Join(git, indexFile))
	var lock *gitlock.Lock
	defer func() {
		indexes() // it may still be reading
		if lock != nil {
			_ = lock.Release()
		}
	}()
	lockIndex := func() (err error) {
		if !l.last || l.layer.shared {
			if err := l.awaitIndex(up); err != nil {
				return err
			}
			indexes = l.readIndexes(r, git, rel, up, out)
		}
		if x := indexes(); !underWay && lock == nil && x.lands() {
			if lock, err = l.lockIndex(x.host.path); err == nil && !x.host.same() {
				indexes = l.readIndexes(r, git, rel, up, out)
			}
		}
		return err
	}
	_, old, others := leads(host)
	refused, err := l.landRefs(r, git, rel, upper, !underWay, branch, owners, headLock{append(others, "HEAD", old, headOf(up, host)), lockIndex}, out)
	if err != nil || underWay && !l.last {
		return err
	}
	if l.last {
		if o.Try = false; len(held) == 0 { // else it stays, as HEAD may
			after = headNow(host)
		}
		if err := landStates(git, rel, up, o, out); err != nil {
			return err
		}
	}
	if underWay {
		return l.holdBack(r, git, rel, upper, up, held[0], branch, out)
	}
	if err := l.letGo(r, host, rel, out); err != nil {
		return err
	}
	why, at := "", headOf(up, host)
	if slices.Contains(refused, at) || slices.Contains(refused, "HEAD") {
		why = "its HEAD has not landed"
	} else if !l.layer.sameHead(up, git) {
		why = "the host has another HEAD"
	}
	if x, name := indexes(), path.Join(rel, indexFile); why != "" && x != nil && out.Files[name] != x.version {
		if x.invalid == nil && (out.keeps(path.Join(rel, "HEAD")) || at != "" && out.keeps(path.Join(r.rel, at))) {
			out.wait(name, "the index: %s", why)
		} else {
			out.stay(name, "the index: %s", why)
		}
	}
	if why != "" {
		return nil
	}
	err = l.landIndex(r, git, rel, indexes(), lock, out)
	for n := 0; n < maxAgain && errors.Is(err, errIndexChanged); n++ { // an editor may write stat data at any time
		err = l.landIndex(r, git, rel, l.readIndexes(r, git, rel, up, out)(), lock, out)
	}
	return err
}

// maxAgain bounds how often an index is read again that the host writes meanwhile.
const maxAgain = 10
