package gitland

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/gitignore"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/internal/heap"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/overlay"
)

const (
	indexFile = "index"
	lockWait  = time.Second // for a lock of the host's git
)

// indexes are the command's index and the host's, which it may replace.
type indexes struct {
	*index.Index
	data    []byte // until it is made fit for the host
	version string
	written time.Time
	invalid error // the host must not see it
	host    *hostIndex
	isBase  bool     // the host's is that with which the command began
	merged  bool     // it is the host's with the command's changes, since the host has staged others
	both    []string // the paths of which the host has staged another change
	err     error    // of the host's

	changed, old []index.Entry // missing in the host's, and the other way round
}

// readIndexes begins to read the command's index and the host's. It returns a function that waits for
// them, to be called before up is closed. It returns nil if there is nothing to land: the command has
// written no index, or this one has landed and the command goes on.
func (n *landing) readIndexes() func() *indexes {
	if !n.own() {
		return func() *indexes { return nil }
	}
	rel, hexLen := path.Join(n.rel, indexFile), n.repo.hexLen()
	landed, since := n.out.Files[rel], n.out.since(rel)
	read := sync.OnceValue(func() *indexes {
		st, err := fsat.Lstat(n.up, indexFile)
		if err != nil {
			return nil
		}
		if overlay.IsWhiteout(st) {
			return &indexes{invalid: errors.New("the command has removed it")}
		}
		if st.Size > heap.Large {
			heap.HugePages()
		}
		hosts := sync.OnceValues(func() (*hostIndex, error) { return readHostIndex(n.git, hexLen) })
		go hosts()
		data, written, err := readIndex(n.up)
		x := &indexes{data: data, version: index.Version(data), written: written}
		switch {
		case errors.Is(err, overlay.ErrTooLarge):
			x.invalid = err
			return x
		case err != nil || landed != "" && landed == x.version && !n.last: // then with stat data
			return nil
		}
		if x.host, x.err = hosts(); x.err != nil {
			return x
		}
		if x.Index, err = index.Parse(data, hexLen, x.host.text); err != nil {
			err = x.join(n.up, err, hexLen)
		}
		if err == nil {
			err = x.Check()
		}
		if _, ok := errors.AsType[*index.HostError](err); ok {
			x.err = fmt.Errorf("cannot read %w", err)
			return x
		}
		if x.invalid = err; err != nil {
			return x
		}
		if x.isBase = n.layer.isBase(n.git, &x.host.stat, since) || bytes.Equal(n.layer.readBase(n.git), x.host.text) && len(x.host.text) > 0; x.isBase {
			x.changed, x.old = x.Differences()
		}
		return x
	})
	go read()
	return read
}

// join parses a split index, whose other part is in the layer or on the host. It returns any other error.
func (x *indexes) join(up int, err error, hexLen int) error {
	split, is := errors.AsType[*index.SplitError](err)
	if !is {
		return err
	}
	shared, _, rerr := overlay.ReadFile(up, split.Shared, unix.O_NOFOLLOW, index.MaxSize)
	if errors.Is(rerr, os.ErrNotExist) {
		shared, rerr = os.ReadFile(filepath.Join(filepath.Dir(x.host.path), split.Shared))
	}
	if rerr != nil {
		return err
	}
	whole, err := index.Join(x.data, shared, hexLen)
	if err != nil {
		return err
	}
	x.data = whole
	x.Index, err = index.Parse(whole, hexLen, x.host.text)
	return err
}

// lockIndex locks the host's index before HEAD moves, or a branch to which it leads: git on the host
// locks the index to commit, and with the old one would take back a commit that has landed.
func (n *landing) lockIndex() error {
	if !n.last || n.layer.shared {
		if err := n.awaitIndex(); err != nil {
			return err
		}
		n.indexes = n.readIndexes()
	}
	if n.underWay || n.lock != nil || n.before().workTree == "" {
		return nil
	}
	if err := n.acquire(); err != nil {
		return err
	}
	if x := n.indexes(); x != nil && x.host != nil && !x.host.same() {
		n.indexes = n.readIndexes()
	}
	return nil
}

// awaitIndex waits for a git of a command that has moved the branch, and is about to replace the index. As
// long as commands run, it returns fs.ErrExist instead. After them, a lock may be left over.
func (n *landing) awaitIndex() error {
	for limit := time.Now().Add(lockWait); ; time.Sleep(moment) {
		st, err := fsat.Lstat(n.up, indexFile+".lock")
		switch {
		case err != nil || overlay.IsWhiteout(st) || n.last && time.Now().After(limit):
			return nil
		case !n.last:
			return fs.ErrExist
		}
	}
}

// acquire takes the lock of the host's index. While the command runs, its work can wait.
func (n *landing) acquire() (err error) {
	file := filepath.Join(n.git, indexFile)
	deadline := time.Now()
	if n.last {
		deadline = deadline.Add(lockWait)
	}
	n.layer.hideLock(file)
	if n.lock, err = gitlock.Acquire(file, deadline); err == nil {
		n.lock.Sharing = n.repo.sharing
	}
	return err
}

// landIndex lands the index, and reports whether it is that of HEAD.
func (n *landing) landIndex() (landed bool, err error) {
	rel := path.Join(n.rel, indexFile)
	if n.moved != "" && n.mine.known && n.indexes() == nil {
		switch own := n.treeOf(n.mine.id); {
		case own != n.treeOf(n.moved):
			n.was = &own // to which the host's index belongs, as the command's does
			return false, nil
		case !n.layer.sameIndex(n.git): // the host has staged or unstaged since
			n.unchanged = true
			if err = n.followHead(); err == nil {
				n.was = nil
				n.baseIs(own)
			}
			return err == nil, err
		default: // as after git reset --soft
			n.baseIs(own)
		}
	}
	why, err := n.wholeIndex()
	switch {
	case err != nil:
	case why == unmerged:
		n.out.left = append(n.out.left, rel)
		n.out.tell("%s: its index stays, and `git status` there shows the difference", why)
	case why != "":
		n.out.stay(rel, "the index: %s", why)
	}
	return why == "" && err == nil, err
}

// baseIs notes the tree of the HEAD to which the base of the index belongs.
func (n *landing) baseIs(tree string) {
	if n.out.Trees == nil {
		n.out.Trees = map[string]string{}
	}
	n.out.Trees[n.rel] = tree
}

// baseTree is the tree of baseIs, or of the HEAD with which the commands began.
func (n *landing) baseTree() string {
	if tree, known := n.out.Trees[n.rel]; known {
		return tree
	}
	return n.treeOf(n.begun())
}

// move is noted of HEAD, index and state before they land: if the process is killed, the next landing tells its
// changes from the user's, and completes them.
type move struct {
	Tree   string                `json:"tree"`             // of HEAD before
	To     []string              `json:"to"`               // commits that HEAD may have then
	Refs   map[string][2]string  `json:"refs,omitempty"`   // HEAD and its branch, before and then
	Index  []string              `json:"index,omitempty"`  // digests of the index
	States map[string]state.Mark `json:"states,omitempty"` // of state.Land
}

// note changes a note, and saves it.
func (n *landing) note(change func(m *move)) error {
	m := n.out.Moves[n.rel]
	change(&m)
	if n.out.Moves == nil {
		n.out.Moves = map[string]move{}
	}
	n.out.Moves[n.rel] = m
	return n.layer.save(n.out.record)
}

// noteMove notes that HEAD moves.
func (n *landing) noteMove(changes []refs.Change) error {
	return n.note(func(m *move) {
		m.Tree, m.To, m.Refs = *n.was, []string{n.mine.id}, map[string][2]string{}
		for _, c := range changes {
			if slices.Contains(n.leading, c.Name) {
				m.To, m.Refs[c.Name] = append(m.To, c.New), [2]string{valueOf(c.Old, c.OldTarget), valueOf(c.New, c.Target)}
			}
		}
	})
}

// noteIndex notes that the index gets a text.
func (n *landing) noteIndex(text []byte) error {
	if n.op == "" { // then it has no state
		return nil
	}
	return n.note(func(m *move) { m.Index = append(m.Index, digestOf(text)) })
}

// wroteIndex reports whether the host's index is as a process of pk's has written it that was killed.
func (n *landing) wroteIndex() bool {
	text, err := os.ReadFile(filepath.Join(n.git, indexFile))
	return err == nil && slices.Contains(n.out.Moves[n.rel].Index, digestOf(text))
}

// resume goes on with the landing of a process that was killed: values that it had noted, and that the host has,
// count as landed.
func (n *landing) resume() error {
	m, is := n.out.Moves[n.rel]
	if !is {
		return nil
	}
	landed := n.out.refs(n.rel)
	for name, values := range m.Refs {
		if id, target, err := refs.Value(n.host, name); err == nil && valueOf(id, target) == values[1] {
			n.out.began(n.path(name), values[0])
			landed[name] = values[1]
		}
	}
	copyShared(n.out.refs(n.repo.rel), landed)
	if head := headNow(n.host); slices.Contains(m.To, head) {
		n.was, n.moved = &m.Tree, head
	}
	return state.Recognize(n.git, m.States, n.out.marks(n.rel))
}

func (n *landing) treeOf(commit string) string { return n.guard().treeOf(commit) }

// treeOf returns the tree of a commit, and "" without one. If the commit cannot be read it is the commit, which
// no reader of trees takes for an empty one.
func (g *guard) treeOf(commit string) string {
	if trees := g.treesOf([]string{commit}); commit != "" && len(trees) > 0 {
		return trees[0]
	}
	return commit
}

// Reasons why an index does not land, or a reference.
const (
	unmerged = "the host has staged other changes meanwhile, with which those of the command cannot be merged"
	besides  = "is a new submodule, and another command runs"
	carried  = "git could carry a change of a stash, or of work under way, over to a file that programs of the host run, since the index renames files"
)

// wholeIndex lands the index, or returns why it must not. The lock of the host's may be held already.
func (n *landing) wholeIndex() (why string, err error) {
	r, git, out := n.repo, n.git, n.out
	x, rel := n.indexes(), path.Join(n.rel, indexFile)
	switch {
	case x == nil:
		return "", nil
	case x.err != nil:
		return "", x.err
	case x.invalid != nil:
		return x.invalid.Error(), nil
	}
	if why, err := n.merge(x); err != nil || why != "" {
		return why, err
	}
	if why, err := n.unsafe(x.changed); err != nil || why != "" {
		return why, err
	}
	without, why, err := n.leaveOut(x)
	if err != nil || why != "" {
		return why, err
	}
	if n.mayBeApplied() && n.carries(x, n.headLanded()) {
		return carried, nil
	}
	unlock, why, err := n.settle()
	if err != nil || why != "" {
		return why, err
	}
	defer unlock()
	quiet, err := n.quiet(git)
	if err != nil {
		return "", err
	}
	if len(x.both) > 0 {
		n.tellBoth(x.both)
	}
	if without != "" {
		out.drop("%s", without)
	}
	var look index.Look
	if quiet { // a running command can write a file through a mapping, which leaves its times
		f := refresher{repo: r, written: &x.written, files: maxSeen, bytes: maxSeenBytes}
		if f.tree, err = fsat.Kernel().Open(unix.AT_FDCWD, n.workTree(git), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks); err == nil {
			defer unix.Close(f.tree)
			look = f.look
		}
	}
	same, unmarked := x.reveal(git, r, look)
	if len(unmarked) > 0 {
		out.note("%q%s: the mark assume-unchanged or skip-worktree has not landed", unmarked[0], andMore(len(unmarked)-1))
	}
	if same {
		if x.merged {
			if err := n.layer.setBase(git, x.data); err != nil {
				return "", err
			}
		}
		n.baseIs(n.ownTree)
		out.Files[rel] = x.version
		return "", nil
	}
	for _, id := range x.Trees() {
		if !r.objects.Has(id) {
			x.DropTrees()
			break
		}
	}
	text := x.Encode()
	var own []byte
	if x.merged {
		own = x.data
	}
	if n.lock == nil {
		if err := n.acquire(); err != nil {
			return "", fmt.Errorf("cannot land the index: %w", err)
		}
	}
	if !x.host.same() {
		return "", fmt.Errorf("cannot land the index: %w", errIndexChanged)
	}
	if err = n.noteIndex(text); err == nil {
		err = n.lock.Replace(text, x.written)
	}
	if err == nil {
		err = n.layer.setBase(git, own)
	}
	if err != nil {
		return "", fmt.Errorf("cannot land the index: %w", err)
	}
	n.baseIs(n.ownTree)
	out.Files[rel] = x.version
	return "", nil
}

// mayBeApplied reports whether git on the host may apply changes to the index: of a stash, a rebase or the like.
func (n *landing) mayBeApplied() bool {
	if id, _, err := refs.Value(n.host, "refs/stash"); err != nil || id != "" {
		return true
	}
	return slices.ContainsFunc([]string{"rebase-merge", "rebase-apply", "sequencer", "MERGE_AUTOSTASH"}, func(name string) bool {
		st, err := fsat.Lstat(n.up, name)
		return exists(filepath.Join(n.git, name)) || err == nil && !overlay.IsWhiteout(st)
	})
}

// carries is carriesInto for an index of the command's, or without one the host's.
func (n *landing) carries(x *indexes, head string) bool {
	g := n.guard()
	if x == nil || x.invalid != nil || x.Index == nil {
		return g.hostCarries(n.git, head)
	}
	if len(g.names) == 0 || x.Tree() != "" && x.Tree() == g.treeOf(head) {
		return false
	}
	text := x.data
	if x.merged {
		text = x.Encode()
	}
	whole, err := parseWhole(text, n.git, n.repo.hexLen(), n.repo.objects)
	return err != nil || g.carriesInto(whole, head)
}

// followHead gives the host's index the difference that HEAD has moved by, if no index of the command's has
// landed with it. With the old index the user's next commit would take the difference back.
func (n *landing) followHead() error {
	if n.was == nil || n.before().workTree == "" {
		return nil
	}
	was, now := *n.was, n.treeOf(n.headLanded())
	if was == now {
		return nil
	}
	if n.lock == nil {
		if err := n.acquire(); err != nil {
			return fmt.Errorf("cannot write the index: %w", err)
		}
	}
	hexLen := n.repo.hexLen()
	h, err := readHostIndex(n.git, hexLen)
	if err != nil {
		return err
	}
	host, err := parseWhole(h.text, n.git, hexLen, n.repo.objects)
	if err != nil {
		return nil // git on the host cannot commit either
	}
	own, began, then := host, was, was
	if text := n.layer.readBase(n.git); n.unchanged && len(text) > 0 {
		if base, err := parseWhole(text, n.git, hexLen, n.repo.objects); err == nil {
			own, began, then = base, n.baseTree(), now
		}
	}
	heads, err := n.heads(began, then, was, now)
	if err != nil {
		return err
	}
	links, err := n.newSubmodules(was, now)
	why := ""
	for _, link := range links { // HEAD has moved to it with a branch of the user's
		if err == nil && why == "" {
			why, err = n.newModule(n.repo, n.git, link.Path)
		}
	}
	if err != nil {
		return err
	}
	unlock := func() {}
	if why == "" {
		if unlock, why, err = n.settle(); err != nil {
			return err
		}
	}
	defer unlock()
	if why != "" {
		for _, link := range links {
			delete(heads, link.Path)
		}
	}
	maps.DeleteFunc(heads, func(name string, _ index.Heads) bool { return n.guard().behindLink(name) != "" })
	text, both := index.Merge(own, own, host, heads)
	if text == nil { // the host lacks trees of a sparse index
		n.out.tell("%s: its index stays, and `git status` there shows the difference", unmerged)
		return nil
	}
	merged, err := index.Parse(text, hexLen, nil)
	if err == nil {
		err = merged.Check()
	}
	if err == nil && len(both) > 0 {
		n.tellBoth(both)
	}
	if err != nil || index.SameContent(merged, host) {
		return err
	}
	data := merged.Encode()
	if err := n.noteIndex(data); err != nil {
		return err
	}
	return n.lock.Replace(data, time.Unix(h.stat.Mtim.Unix()))
}

// merging are files of a commit that the user has not made yet.
var merging = []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"}

// staleIndex returns why HEAD must not move with these changes, or "": the user has begun a merge since the
// commands began, or has staged a version of a file that is neither that of HEAD nor the new one, for which git
// refuses to move HEAD too (git-read-tree(1), two tree merge). The user's next commit would take back the
// command's.
func (n *landing) staleIndex(changes []refs.Change) (why string, err error) {
	ids := n.headsThen(changes)
	if len(ids) == 0 || n.before().workTree == "" {
		return "", nil
	}
	for _, name := range merging {
		st, err := fsat.Lstat(unix.AT_FDCWD, filepath.Join(n.layer.Base(), n.rel, name))
		if err == nil && overlay.IsWhiteout(st) && exists(filepath.Join(n.git, name)) && !state.Wrote(n.git, name, n.out.marks(n.rel)) {
			return "the host has begun a merge or the like meanwhile", nil
		}
	}
	fit, err := n.fit()
	if err != nil || fit && n.layer.sameIndex(n.git) || n.isSoft(ids) {
		return "", err
	}
	h, err := readHostIndex(n.git, n.repo.hexLen())
	if err != nil {
		return "", err
	}
	hexLen, db := n.repo.hexLen(), n.repo.objects
	host, err := parseWhole(h.text, n.git, hexLen, db)
	if err != nil {
		return "", nil // git on the host cannot commit either
	}
	base := new(index.Index)
	if fit {
		if x, err := parseWhole(n.layer.readBase(n.git), n.git, hexLen, db); err == nil {
			base = x
		}
	}
	tree := n.treeOf(headNow(n.host))
	for _, id := range ids {
		was, is, err := n.differing(tree, n.treeOf(id))
		if err != nil {
			return "", err
		}
		if path := stale(host, base, was, is); path != "" {
			if !fit {
				return fmt.Sprintf("the command's index cannot land, and the host has staged another change of %q", path), nil
			}
			return fmt.Sprintf("the host has staged another change of %q", path), nil
		}
	}
	return "", nil
}

// isSoft reports whether HEAD moves to some commits alone, as by git reset --soft: the command has written no index,
// and the user has not either.
func (n *landing) isSoft(ids []string) bool {
	return n.indexes() == nil && n.mine.known && n.layer.sameIndex(n.git) &&
		!slices.ContainsFunc(ids, func(id string) bool { return n.treeOf(id) != n.treeOf(n.mine.id) })
}

// fit reports whether the command's index, if it has one, may land.
func (n *landing) fit() (bool, error) {
	x := n.indexes()
	if x == nil || x.err != nil || x.invalid != nil {
		return false, nil
	}
	whole := indexes{Index: x.Index}
	whole.changed, whole.old = x.Differences()
	why, err := n.unsafe(whole.changed)
	if why == "" && err == nil {
		why, _, err = n.guard().staged(&whole, n.treeOf(n.headLanded()))
	}
	return why == "" && err == nil, err
}

// leaveOut gives the index the host's entries for the files that the host must not get, and tells of these. It
// returns why even the rest must not land, or "". A state under way belongs to the whole index: without a file, its
// end would take back what another branch has there.
func (n *landing) leaveOut(x *indexes) (told, why string, err error) {
	head := n.treeOf(n.headLanded())
	why, bad, err := n.guard().staged(x, head)
	if err != nil || len(bad) == 0 || !n.last || n.layer.adopts || n.isUnderWay() {
		return "", why, err
	}
	host, err := parseWhole(x.host.text, n.git, n.repo.hexLen(), n.repo.objects)
	if err != nil {
		return "", why, nil
	}
	text := x.Restored(host, bad)
	if text == nil {
		return "", why, nil
	}
	rest, err := index.Parse(text, n.repo.hexLen(), x.host.text)
	if err == nil {
		err = rest.Check()
	}
	if err != nil { // it would have a file and files below it
		return "", why, nil
	}
	told = fmt.Sprintf("the index lands without %q%s: %s", bad[0], andMore(len(bad)-1), why)
	without := *x
	without.Index, without.merged = rest, true
	without.changed, without.old = rest.Differences()
	if why, _, err = n.guard().staged(&without, head); why == "" && err == nil {
		*x = without
	}
	return told, why, err
}

// stale returns a path at which the host's index keeps HEAD from moving, or "". was and is are the versions of
// files that differ in the two trees. An entry of base keeps it not: the command's index
// lands too.
func stale(host, base *index.Index, was, is []index.Entry) string {
	known, added := map[string][]index.Entry{}, map[string]bool{}
	for _, e := range was {
		known[e.Path] = append(known[e.Path], e)
	}
	for _, e := range is {
		known[e.Path] = append(known[e.Path], e)
		added[e.Path] = true
	}
	for _, path := range slices.Sorted(maps.Keys(known)) {
		now, began := host.Get(path), base.Get(path)
		same := func(e index.Entry) bool { return e.Mode == now.Mode && e.ID == now.ID && now.Stage == 0 }
		gone := (now.Mode == 0 || now.IntentToAdd) && len(known[path]) < 2 // one of the two does not have it
		if !slices.ContainsFunc(known[path], same) && !gone && !(same(began) || now == began) {
			return path
		}
	}
	staged := map[string]bool{}
	for _, e := range host.Changed(base) {
		if len(known[e.Path]) > 0 {
			continue
		}
		staged[e.Path] = true
		if file := above(e.Path, added); file != "" {
			return file
		}
	}
	for _, e := range is {
		if above(e.Path, staged) != "" {
			return e.Path
		}
	}
	return ""
}

// above returns one of some files that is where a path needs a directory, or "".
func above(name string, files map[string]bool) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if files[dir] {
			return dir
		}
	}
	return ""
}

// heads lists the paths at which four trees differ: those of the HEADs of the base of the index, of the
// command's index and of the host's, and that of the host's HEAD now.
func (n *landing) heads(base, own, host, now string) (map[string]index.Heads, error) {
	all := map[string]index.Heads{}
	known := map[string]index.Entry{} // versions in base
	var versions [3]map[string]index.Entry
	for i, tree := range []string{own, host, now} {
		was, is, err := n.differing(base, tree)
		if err != nil {
			return nil, err
		}
		versions[i] = map[string]index.Entry{}
		for _, e := range was {
			known[e.Path], versions[i][e.Path], all[e.Path] = e, index.Entry{}, index.Heads{}
		}
		for _, e := range is {
			versions[i][e.Path], all[e.Path] = e, index.Heads{}
		}
	}
	of := func(i int, path string) index.Entry {
		if e, differs := versions[i][path]; differs {
			return e
		}
		return known[path]
	}
	outside := sync.OnceValue(func() func(path string) bool { return n.repo.sparse(n.git) })
	for path := range all {
		now := of(2, path)
		now.SkipWorktree = now.Mode != 0 && outside()(path)
		all[path] = index.Heads{Base: known[path], Own: of(0, path), Host: of(1, path), Now: now}
	}
	return all, nil
}

// newSubmodules lists those of a tree that another one and the host's index do not have.
func (n *landing) newSubmodules(old, now string) (list []index.Entry, err error) {
	was, is, err := n.differing(old, now)
	if err != nil {
		return nil, err
	}
	modules := func(e index.Entry) bool { return e.Mode != index.ModeGitlink }
	was, is = slices.DeleteFunc(was, modules), slices.DeleteFunc(is, modules)
	var host *index.Index
	for _, e := range is {
		if slices.ContainsFunc(was, func(o index.Entry) bool { return o.Path == e.Path }) {
			continue
		}
		if host == nil {
			h, err := readHostIndex(n.git, n.repo.hexLen())
			if err != nil {
				return nil, err
			}
			host = h.all()
		}
		if host.Get(e.Path).Mode != index.ModeGitlink {
			list = append(list, e)
		}
	}
	return list, nil
}

// tellBoth tells of files that the host and the command have staged, each with another change.
func (n *landing) tellBoth(paths []string) {
	n.out.tell("the host has staged another change of %q%s meanwhile, or committed one: its index keeps that, without the command's; git --literal-pathspecs add -- %s takes the file as it is", paths[0], andMore(len(paths)-1), shellword.Word(paths[0]))
}

// differing lists the files by which two trees differ, each "" or an ID.
func (n *landing) differing(old, now string) (was, is []index.Entry, err error) {
	d := difference{guard: n.guard(), left: maxGuarded}
	err = d.collect(old, now, "")
	return d.was, d.is, err
}

// difference collects files. left is the number of entries that it may still read: a few trees
// that name each other many times stand for more files than fit into memory.
type difference struct {
	*guard
	was, is []index.Entry
	left    int
}

func (d *difference) collect(old, now, dir string) error {
	if old == now {
		return nil
	}
	names := map[string][2]string{} // of directories
	files := map[string]objects.Entry{}
	for i, tree := range []string{old, now} {
		if tree == "" {
			continue
		}
		entries, err := d.tree(tree)
		if d.left -= 1 + len(entries); err == nil && d.left < 0 {
			err = errors.New(tooMany)
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case e.Mode == unix.S_IFDIR:
				pair := names[e.Name]
				pair[i] = e.ID
				names[e.Name] = pair
			case len(dir)+len(e.Name) >= maxCheckout:
			case i == 0:
				files[e.Name] = e
			case files[e.Name] == e:
				delete(files, e.Name)
			default:
				d.is = append(d.is, entryOf(dir, e))
			}
		}
	}
	for _, e := range files {
		d.was = append(d.was, entryOf(dir, e))
	}
	for name, pair := range names {
		if err := d.collect(pair[0], pair[1], dir+name+"/"); err != nil {
			return err
		}
	}
	return nil
}

func entryOf(dir string, e objects.Entry) index.Entry {
	if e.Mode&unix.S_IFMT == unix.S_IFREG { // early ones have more modes
		e.Mode = index.ModeFile | e.Mode&0o111
	}
	return index.Entry{Path: dir + e.Name, Mode: e.Mode, ID: e.ID}
}

// readIndex also returns the time of the index. An index that is newer than a change of a
// file hides that change from git, if the size stays.
func readIndex(up int) (data []byte, written time.Time, err error) {
	data, st, err := readIndexOfLayer(up)
	if err != nil {
		return nil, written, err
	}
	written = time.Unix(st.Mtim.Sec, 0) // a file of this second is not older
	if now := time.Now(); written.After(now) {
		written = now.Truncate(time.Second)
	}
	return data, written, nil
}

// readIndexOfLayer reads the index in a directory of the upper layer. Of a file that
// begins otherwise it reads the beginning alone: the rest may be a hole of a gigabyte.
func readIndexOfLayer(dir int) ([]byte, *unix.Stat_t, error) {
	seen, err := fsat.Openat(dir, indexFile, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	f, st, err := overlay.Open(seen)
	if err != nil {
		return nil, st, err
	}
	defer f.Close()
	var start [4]byte
	n, err := f.ReadAt(start[:], 0)
	if err != nil && err != io.EOF {
		return nil, st, err
	}
	if !index.Begins(start[:n]) {
		return start[:n], st, nil
	}
	return overlay.ReadFile(dir, indexFile, unix.O_NOFOLLOW, index.MaxSize)
}

// hostIndex is the host's index before it is replaced.
type hostIndex struct {
	path   string
	hexLen int
	text   []byte
	stat   unix.Stat_t // zero if there is none
}

func readHostIndex(git string, hexLen int) (h *hostIndex, err error) {
	h = &hostIndex{path: filepath.Join(git, indexFile), hexLen: hexLen}
	if err := unix.Lstat(h.path, &h.stat); err == unix.ENOENT {
		return h, nil
	}
	if h.text, err = os.ReadFile(h.path); err != nil || !index.MayBeSplit(h.text, hexLen) {
		return h, err
	}
	if _, whole, err := joined(h.text, git, hexLen); err == nil {
		h.text = whole
	}
	return h, nil
}

// all parses the whole index. An index that cannot be read counts as empty.
func (h *hostIndex) all() *index.Index {
	if x, err := index.ParseHost(h.text, h.hexLen); err == nil {
		return x
	}
	return new(index.Index)
}

// joined parses an index of the host's, and returns its text: of a split one with the other part, which is
// in the git directory.
func joined(text []byte, git string, hexLen int) (*index.Index, []byte, error) {
	x, err := index.ParseHost(text, hexLen)
	split, is := errors.AsType[*index.SplitError](err)
	if !is {
		return x, text, err
	}
	shared, err := os.ReadFile(filepath.Join(git, split.Shared))
	if err != nil {
		return nil, nil, err
	}
	if text, err = index.Join(text, shared, hexLen); err != nil {
		return nil, nil, err
	}
	x, err = index.ParseHost(text, hexLen)
	return x, text, err
}

// parseWhole parses an index of the host's, with both parts of a split one and the files of sparse
// directories. Without a text it is empty.
func parseWhole(text []byte, git string, hexLen int, db *objects.Database) (*index.Index, error) {
	if len(text) == 0 {
		return index.Of(nil, hexLen)
	}
	x, _, err := joined(text, git, hexLen)
	if err != nil {
		return nil, err
	}
	whole, err := x.Expand(func(tree string, each func(path string, mode uint32, id string) error) error {
		return filesOf(db, tree, "", each)
	})
	if err != nil || whole == nil {
		return x, err
	}
	return index.ParseHost(whole, hexLen)
}

// filesOf lists the files of a tree in the order of an index.
func filesOf(db *objects.Database, tree, dir string, each func(path string, mode uint32, id string) error) error {
	entries, err := db.Tree(tree)
	for _, e := range entries {
		switch {
		case err != nil:
		case len(dir) > maxCheckout:
			err = errors.New("a path is too long")
		case e.Mode == unix.S_IFDIR:
			err = filesOf(db, e.ID, dir+e.Name+"/", each)
		default:
			err = each(dir+e.Name, e.Mode, e.ID)
		}
	}
	return err
}

// same reports whether the host's index is still the file that was read.
func (h *hostIndex) same() bool {
	var st unix.Stat_t
	if err := unix.Lstat(h.path, &st); err != nil {
		return err == unix.ENOENT && h.stat.Ino == 0
	}
	return fsat.SameInode(&st, &h.stat) && st.Size == h.stat.Size && st.Mtim == h.stat.Mtim && st.Ctim == h.stat.Ctim
}

// merge puts the staged changes of the command on the host's index, if the host has changed that since the
// command began, or it belongs to another HEAD. It returns why that is not possible, or "".
func (n *landing) merge(x *indexes) (why string, err error) {
	if n.layer.adopts {
		x.changed, x.old = x.Differences()
		return "", nil
	}
	hexLen, db := n.repo.hexLen(), n.repo.objects
	head := n.headLanded()
	now := n.treeOf(head)
	host := now
	if n.was != nil {
		host = *n.was
	}
	began := n.baseTree()
	own, apart := now, false // from the host's HEAD
	switch {
	case !n.mine.known:
		own = began
	case n.mine.id != head:
		own, apart = n.treeOf(n.mine.id), !n.repo.isAncestor(n.mine.id, head)
		if begun := n.begun(); apart && begun != "" && n.repo.isAncestor(begun, n.mine.id) {
			own, apart = began, false // what its commits change is staged: git merge goes over no file that is not
		}
	}
	n.ownTree = own
	if same := began == host && own == now; x.isBase && same {
		return "", nil
	} else if x.isBase {
		x.changed = nil
	}
	base, err := parseWhole(n.layer.readBase(n.git), n.git, hexLen, db)
	theirs, herr := parseWhole(x.host.text, n.git, hexLen, db)
	switch {
	case herr != nil:
		return unmerged, nil
	case err != nil: // it is not known
		if !index.SameContent(theirs, x.Index) {
			return unmerged, nil
		}
	case began == host && own == now && index.SameContent(base, theirs): // an editor makes git write new stat data every few seconds
	default:
		heads, err := n.heads(began, own, host, now)
		if err != nil {
			return "", err
		}
		for path, h := range heads { // what the user had staged is still staged, if the command's commit of it has not landed
			if e := base.Get(path); apart && e.Mode == h.Own.Mode && e.ID == h.Own.ID {
				h.Own = h.Base
				heads[path] = h
			}
		}
		text, both := index.Merge(base, x.Index, theirs, heads)
		if text == nil {
			return unmerged, nil
		}
		merged, err := index.Parse(text, hexLen, x.host.text)
		if err == nil {
			err = merged.Check()
		}
		if err != nil {
			return unmerged, nil
		}
		if n.wroteIndex() { // a change on both sides is the command's
			both = nil
		}
		x.Index, x.both, x.merged = merged, both, true
	}
	x.changed, x.old = x.Differences()
	return "", nil
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// unsafe reports the first changed entry that the host must not see, or "": one whose
// object is missing or cannot be that file, or a gitlink to a repository which is not covered. The
// next commit on the host would have a tree that git gc cannot read.
func (n *landing) unsafe(changed []index.Entry) (why string, err error) {
	r := n.repo
	missing := map[string]string{} // their paths
	for _, e := range changed {
		if e.Mode == index.ModeGitlink {
			if !n.inert(n.git, e.Path) {
				return fmt.Sprintf("%q is a repository of its own", e.Path), nil
			}
			continue
		}
		name := path.Base(e.Path)
		if e.Mode == index.ModeLink {
			name = "" // index.Check refuses the links that git follows
		}
		switch fault, absent, err := r.lander.File(e.ID, name); {
		case err != nil:
			return "", err
		case absent:
			missing[e.ID] = e.Path
		case fault != "":
			return fmt.Sprintf("object %s of %q: %s", e.ID, e.Path, fault), nil
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	refused, err := r.lander.Promise(slices.Sorted(maps.Keys(missing)))
	if refused != "" {
		why = fmt.Sprintf("object %s of %q is missing", refused, missing[refused])
	}
	return why, err
}

// reveal makes the index one in which the host's git sees all changes of files.
func (x *indexes) reveal(git string, r *repository, look index.Look) (same bool, unmarked []string) {
	sparse := sync.OnceValue(func() func(path string) bool { return r.sparse(git) })
	return x.Reveal(time.Unix(x.host.stat.Mtim.Unix()), &x.written, func(path string) bool { return sparse()(path) }, look)
}

// sparse reports which files the host's sparse checkout leaves out. A command cannot change
// it.
func (r *repository) sparse(git string) func(path string) bool {
	on := false
	for _, file := range []string{filepath.Join(r.host, "config"), filepath.Join(git, "config.worktree")} {
		text, _ := os.ReadFile(file)
		entries, _ := gitconfig.Parse(file, text)
		for _, e := range entries {
			if e.Key == "core.sparsecheckout" {
				on, _ = e.Bool()
			}
		}
	}
	patterns, err := os.ReadFile(filepath.Join(git, "info/sparse-checkout"))
	if !on || err != nil {
		return func(string) bool { return false }
	}
	s := gitignore.ParseSparse(patterns)
	return func(path string) bool { return !s.Has(path) }
}

// inert reports whether the host's git finds no repository made by a command at a path of
// the work tree: there is none, one without HEAD, or one of the host's.
func (l *lander) inert(git, path string) bool {
	tree := l.workTree(git)
	if named := gitconfig.WorkTree(git); named != "" {
		if named, err := filepath.EvalSymlinks(named); err != nil || named != tree {
			return false
		}
	}
	if tree == "" {
		return false // its place is not known
	}
	place := filepath.Join(tree, path)
	if slices.Contains(l.layer.WorkTrees, place) {
		return true
	}
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, place, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer unix.Close(dir)
	dotGit, err := fsat.Openat(dir, ".git", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer unix.Close(dotGit)
	_, err = fsat.Lstat(dotGit, "HEAD")
	return errors.Is(err, unix.ENOENT)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

var errIndexChanged = errors.New("it has changed meanwhile")
