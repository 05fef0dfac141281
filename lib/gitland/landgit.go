package gitland

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/overlay"
)

// landing lands the part of the upper layer that belongs to one git directory: the repository's
// own, or a linked worktree's.
type landing struct {
	*lander
	repo    *repository
	git     string            // the host's git directory
	rel     string            // its path below the layer's
	host    refs.Host         // its references
	upper   int               // the upper layer over the repository
	up      int               // the upper layer over git
	owners  map[string]string // the git directory with which a branch lands
	indexes func() *indexes   // waits for the command's index and the host's
	out     *landed

	mine      seen            // the command's HEAD
	after     string          // the commit of HEAD after the landing, as far as known
	leading   []string        // HEAD, and the branches to which it leads, before and after
	was       *string         // the tree of the host's HEAD before it moves
	moved     string          // the commit to which HEAD has moved
	unchanged bool            // the command's index is that with which it began, and belongs to moved
	ownTree   string          // of the HEAD to which the command's index belongs, once it is merged
	stays     bool            // HEAD, or a branch to which it leads, has not landed
	underWay  bool            // HEAD and the index belong to a state that the host's git must not see
	op        string          // a file of a state that lands with the index
	apart     string          // why it does not
	ended     bool            // the command has ended a state that the host has ended meanwhile, in another way
	branch    string          // which belongs to that state too, or ""
	held      []string        // files of the state that stay
	refused   []string        // references that have not landed
	going     map[string]bool // references that the command has deleted
	applied   bool            // the others have landed
	lock      *gitlock.Lock   // of the host's index
	unlock    func()          // lets commands begin
}

// landing begins to read the index, so indexes must be called before up is closed.
func (l *lander) landing(r *repository, git string, upper, up int, out *landed) (*landing, error) {
	rel, err := filepath.Rel(l.layer.GitDir, git)
	if err != nil {
		return nil, err
	}
	n := &landing{lander: l, repo: r, git: git, rel: rel, host: r.refs(git), upper: upper, up: up, out: out}
	n.indexes = n.readIndexes()
	return n, nil
}

// own reports whether HEAD, index and state of the git directory may land.
func (n *landing) own() bool { return slices.Contains(n.layer.GitDirs, n.git) }

func (n *landing) guard() *guard { return n.lander.guard(n.repo) }

// before returns the host's HEAD before the landing.
func (n *landing) before() head { return n.guard().before(n.git) }

// beganAt returns the commit of the host's HEAD before the commands began.
func (n *landing) beganAt() string { return n.repo.beganAt(n.host, n.rel, n.out) }

// land lands the state of work under way, references, HEAD and the index.
func (n *landing) land() (err error) {
	if !n.own() {
		if n.git == n.repo.host {
			err = n.landRefs()
		}
		return err
	}
	n.mine, n.after = n.layer.headSeen(n.up, n.upper, n.host, n.out.Since), headID(n.up, n.upper, n.host)
	_, branch, others := leads(n.host)
	n.leading = append(others, "HEAD", branch, headOf(n.up, n.host))
	gitlock.Sweep(filepath.Join(n.git, indexFile))
	n.unlock = func() {}
	defer func() {
		n.indexes() // it may still be reading
		if n.lock != nil {
			_ = n.lock.Release() // or a later command removes it
		}
		n.unlock()
	}()
	if err := n.resume(); err != nil {
		return err
	}
	o := n.stateOptions()
	o.Begin = func(marks map[string]state.Mark) error {
		if n.op == "" {
			return nil
		}
		return n.note(func(m *move) { m.States = marks })
	}
	if err := n.findWork(o); err != nil {
		return err
	}
	n.keepWork()
	landed := false
	if err = n.landRefs(); err == nil && (n.last || !n.underWay) {
		landed, err = n.landWork(o)
	}
	ferr := error(nil)
	if !landed {
		ferr = n.followHead()
	}
	if ferr == nil {
		delete(n.out.Moves, n.rel)
	}
	err = errors.Join(err, ferr)
	if _, known := n.out.Trees[n.rel]; !known && n.out.keeps(path.Join(n.rel, indexFile)) {
		n.baseIs(n.treeOf(n.begun()))
	}
	return err
}

// begun returns the commit of the HEAD with which the commands began.
func (n *landing) begun() string {
	if _, id, known := n.layer.began(n.git); known {
		return id
	}
	return n.beganAt()
}

// landWork lands states and the index. It reports whether the index is that of HEAD.
func (n *landing) landWork(o state.Options) (landed bool, err error) {
	if o.Try = false; n.last && len(n.held) == 0 { // else it stays, as HEAD may
		n.after = headNow(n.host)
	}
	if n.underWay {
		return false, errors.Join(n.endStates(o), n.holdBack())
	}
	if n.op == "" { // else after the index
		if err := n.endStates(o); err != nil {
			return false, err
		}
	}
	if err := n.letGo(); err != nil {
		return false, err
	}
	if why := n.otherHead(); why != "" {
		n.leaveIndex(why)
	} else if n.last || !n.isTorn() && !n.isEnded() {
		landed, err = n.landIndex()
		if errors.Is(err, errIndexChanged) { // before pk locked it: an editor may write stat data at any time
			n.indexes = n.readIndexes()
			landed, err = n.landIndex()
		}
	}
	if err == nil && n.op != "" {
		if !landed && !n.stays {
			n.apart = "the index does not land"
			n.out.keep = append(n.out.keep, path.Join(n.rel, indexFile))
		}
		err = n.endStates(o)
	}
	return landed, err
}

// isTorn reports whether the host was committing when the command began: then the commits of the command
// stay apart (Layer.meanwhile), which is not known any more once an index has landed.
func (n *landing) isTorn() bool {
	return slices.Contains(n.out.Torn, n.git) && !n.layer.sameIndex(n.git)
}

// isEnded reports whether the host has ended a state in which the command began. The commit by which the
// command ends it too stays apart, and its index with it.
func (n *landing) isEnded() bool {
	return slices.ContainsFunc(operations, func(name string) bool {
		st, err := fsat.Lstat(unix.AT_FDCWD, filepath.Join(n.layer.Base(), n.rel, name))
		return err == nil && !overlay.IsWhiteout(st) && !exists(filepath.Join(n.git, name))
	})
}

// endStates lands states once the command has ended, or leaves them for the next one.
func (n *landing) endStates(o state.Options) error {
	switch {
	case !n.last:
		return nil
	case n.stays || n.apart != "":
		return n.leaveStates(o)
	}
	return n.landStates(o)
}

func (n *landing) stateOptions() state.Options {
	began := n.beganAt()
	resets := began // where git resets HEAD if the work under way is given up
	if branch := headOf(n.up, n.host); branch != "" {
		resets, _, _ = refs.Value(n.host, branch)
		resets = n.out.beginning(n.repo.rel, branch, resets)
	}
	carries := sync.OnceValue(func() bool { return n.carries(n.indexes(), cmp.Or(n.mine.id, headNow(n.host))) })
	fresh := map[string]bool{}
	has := func(branch string) bool {
		id, target, err := refs.Value(n.host, branch)
		return err == nil && id+target != ""
	}
	return state.Options{
		HexLen: n.repo.hexLen(), Kind: n.repo.objects.Kind, Whole: func(short string) string { return n.repo.wholeID(n.host, short) },
		Exists:  func(id string) bool { return n.repo.objects.Has(id) && n.clean(n.repo, id) },
		Fetched: n.guard().fetched,
		Pick: func(id string, back bool) bool {
			return !carries() && n.guard().mayPick(id, math.MaxInt, back, n.after, n.guard().movesDir)
		},
		Branch: leadsTo(n.repo.valueAt(n.host, n.rel, n.out)),
		Follows: func(id string, rebase bool) bool {
			from := resets
			if rebase {
				from = began
			}
			why, err := n.guard().checkedOut(n.before(), id)
			return why == "" && err == nil && (from == "" || n.repo.isAncestor(from, id))
		},
		Fresh: func(branch string) bool { // as it was before the references landed
			if _, known := fresh[branch]; !known {
				id, _, err := refs.Value(n.host, branch)
				fresh[branch] = err == nil && n.out.beginning(n.repo.rel, branch, id) == "" && n.guard().mayBe(branch)
			}
			return fresh[branch] && (!n.applied || has(branch)) // by now it has landed
		},
		Since: func(name string) time.Time { return time.Unix(0, n.out.since(path.Join(n.rel, name))) }, Landed: n.out.marks(n.rel),
		Keep: func(id string) error {
			kept, err := refs.Keep(n.host, id, "autostash", n.refOptions(n.repo, n.out))
			if kept != "" {
				n.out.note("the changes that `git --autostash` had put away on the host are now %q", kept)
			}
			return err
		},
	}
}

// findWork looks for a state of work under way that the host's git must not see.
func (n *landing) findWork(o state.Options) error {
	n.ended = slices.ContainsFunc(operations, n.endedTwice)
	if !n.last { // one that git is writing would be incomplete
		n.underWay = n.isUnderWay()
		return nil
	}
	o.Try = true
	result, err := state.Land(n.git, n.up, o)
	if err != nil {
		return err
	}
	for _, s := range result.Stays {
		if st, err := fsat.Lstat(n.up, s.Name); slices.Contains(operations, s.Name) && (err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR || readable(st, s.Name)) {
			n.held = append(n.held, s.Name)
		}
	}
	n.underWay = len(n.held) > 0 && !(isRebase(n.up, n.held) && headOf(n.up, n.host) != "")
	if i := slices.IndexFunc(result.Landed, func(name string) bool { return name != "BISECT_LOG" && slices.Contains(operations, name) }); i >= 0 && !n.underWay {
		n.op = result.Landed[i]
		if n.apart, err = n.changedSince(); err != nil {
			return err
		}
		if n.apart != "" {
			n.underWay, n.held = true, append(n.held, n.op)
		}
	}
	if n.underWay || n.after == n.before().id {
		return nil
	}
	changed, err := state.Differences(n.git, n.up, o)
	if err != nil {
		return err
	}
	if op := n.cannotGoOn(n.git, changed, n.after); op != "" {
		n.underWay, n.held = true, append(n.held, op)
	}
	return nil
}

// isUnderWay reports whether the command or the host has a state of work under way.
func (n *landing) isUnderWay() bool {
	return hasOperation(n.up) || slices.ContainsFunc(operations, func(name string) bool { return exists(filepath.Join(n.git, name)) })
}

// endedTwice reports whether the command has ended a state that is gone on the host, too, and pk has not removed it
// there.
func (n *landing) endedTwice(name string) bool {
	if exists(filepath.Join(n.git, name)) {
		return false
	}
	mark, landed := n.out.marks(n.rel)[name]
	st, err := fsat.Lstat(n.up, name)
	if err != nil { // the command has removed its own, which has landed
		return err == unix.ENOENT && landed && !mark.Had && mark.Host != [sha256.Size]byte{}
	}
	return overlay.IsWhiteout(st) && (!landed || !mark.Had)
}

// changedSince returns why a state cannot land that belongs to the command's HEAD and index, or "": the user has
// switched, committed or staged since the commands began, so their next commit would be the end of a merge without
// its files, or with another parent. It locks the host's index, or the user could yet do so.
func (n *landing) changedSince() (why string, err error) {
	if !n.layer.isBegun(n.repo, n.git, n.out) {
		return "the host has switched or committed meanwhile", nil
	}
	if n.before().workTree == "" {
		return "", nil
	}
	switch err := n.acquire(); {
	case errors.Is(err, fs.ErrExist):
		return err.Error(), nil
	case err != nil:
		return "", err
	case n.layer.sameIndex(n.git) || n.wroteIndex():
		return "", nil
	}
	h, err := readHostIndex(n.git, n.repo.hexLen())
	if err != nil {
		return "", err
	}
	host, herr := parseWhole(h.text, n.git, n.repo.hexLen(), n.repo.objects)
	base, err := parseWhole(n.layer.readBase(n.git), n.git, n.repo.hexLen(), n.repo.objects)
	if herr != nil || err != nil || !index.SameContent(host, base) {
		return "the host has staged other changes meanwhile", nil
	}
	return "", nil
}

// keepWork leaves for the next command the files that belong to a state that stays.
func (n *landing) keepWork() {
	out, r := n.out, n.repo
	if n.underWay {
		n.branch = headOf(n.up, n.host)
		for _, name := range n.leading {
			if name != "" && name != "HEAD" && r.isValue(n.upper, name) {
				out.keep = append(out.keep, path.Join(r.rel, name), path.Join(r.rel, "logs", name))
			}
		}
		if n.branch != "" || r.isValue(n.up, "HEAD") {
			out.keep = append(out.keep, path.Join(n.rel, "HEAD"), path.Join(n.rel, "logs/HEAD"))
		}
		if x := n.indexes(); x != nil && x.invalid != nil {
			out.stay(path.Join(n.rel, indexFile), "the index: %v", x.invalid)
		} else {
			out.keep = append(out.keep, path.Join(n.rel, indexFile))
		}
	}
	if n.underWay || len(n.held) > 0 { // the branch from which a rebase began
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name"} {
			if dir, err := fsat.Kernel().Open(n.up, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath); err == nil {
				branch, _ := readSmall(dir, path.Base(name), unix.O_NOFOLLOW)
				out.hold = append(out.hold, path.Join(r.rel, strings.TrimSpace(string(branch))))
				unix.Close(dir)
			}
		}
	}
}

// otherHead returns why the index has another HEAD than the host's, or "".
func (n *landing) otherHead() string {
	if slices.Contains(n.refused, headOf(n.up, n.host)) || slices.Contains(n.refused, "HEAD") {
		return "its HEAD has not landed"
	}
	if !n.layer.sameHead(n.up, n.git) {
		return "the host has another HEAD"
	}
	return ""
}

// leaveStates leaves states with the HEAD to which they belong.
func (n *landing) leaveStates(o state.Options) error {
	changed, err := state.Differences(n.git, n.up, o)
	if n.waits() || n.apart != "" {
		for _, d := range changed {
			n.out.leave(path.Join(n.rel, d.Name))
		}
	}
	if n.apart != "" {
		line := n.op + ", with its index: "
		n.out.Told = slices.DeleteFunc(n.out.Told, func(told string) bool { return strings.HasPrefix(told, line) }) // each command works there
		n.out.wait(path.Join(n.rel, n.op), "%s%s", line, n.apart)
	}
	return err
}

// waits reports whether the command's HEAD, or its branch, stays for the next command.
func (n *landing) waits() bool {
	at, head := headOf(n.up, n.host), path.Join(n.rel, "HEAD")
	return n.out.keeps(head) || at != "" && n.out.keeps(path.Join(n.repo.rel, at)) && !slices.Contains(n.out.left, head)
}

// leaveIndex leaves the index with its HEAD.
func (n *landing) leaveIndex(why string) {
	x, name := n.indexes(), path.Join(n.rel, indexFile)
	if x == nil || n.out.Files[name] == x.version || slices.Contains(n.out.left, name) {
		return
	}
	if x.invalid == nil && n.waits() {
		n.out.wait(name, "the index: %s", why)
	} else {
		n.out.stay(name, "the index: %s", why)
	}
}
