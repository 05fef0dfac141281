package refs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pikuri/lib/internal/gitlock"
)

// remove deletes refs. First it keeps all their values, then it writes packed-refs once,
// then it removes the files.
func (t *transaction) remove(items []*item) {
	if len(items) == 0 {
		return
	}
	staying := t.staying(items)
	logs := map[*item]string{}
	for _, it := range items {
		log, err := t.prepare(it, staying)
		if err != nil {
			it.fail(err)
		}
		logs[it] = log
	}
	if err := t.removePacked(items); err != nil {
		for _, it := range items {
			if !it.done {
				it.fail(err)
			}
		}
	}
	for _, it := range items {
		if !it.done {
			t.removeLoose(it, logs[it])
		}
		delete(t.pending, it.Change.Name)
	}
}

// prepare compares a ref to be deleted with the host's, and keeps its value and its log,
// which it returns. A value that another ref holds is not kept, unless it is a branch's: by the
// name of what is kept pk knows those of branches that were deleted.
func (t *transaction) prepare(it *item, staying map[string]bool) (string, error) {
	c := &it.Change
	now, err := t.read(c.Name)
	if err != nil {
		return "", err
	}
	log, err := t.readLog(c.Name)
	if err != nil {
		return "", err
	}
	it.Result.Old = now.String()
	_, symbolic := remoteHead(c.Name)
	switch {
	case now.value == value{}:
		t.succeed(it)
	case now.target != "" && !symbolic:
		return "", fmt.Errorf("on the host it is symbolic and leads to %q", now.target)
	case c.Aside != "", c.Moved, now.value != c.oldValue():
		t.keep(it, now.value)
	case c.Name == stash:
		err = t.trashStashes(it, log, nil)
	case now.id != "" && (strings.HasPrefix(c.Name, heads) || !((staying[now.id] || t.passing(c.Name, now.id)) && t.onlyHolds(log, now.id))):
		it.Trash, err = t.trash(c.Name, now.id, log)
	}
	return log, err
}

// passing reports whether git makes and removes a ref by itself, during a bisect or a
// rebase, and its value is in the history of HEAD or of the branch on which the bisect
// began.
func (t *transaction) passing(name, id string) bool {
	if name == head || !PerWorktree(name) || t.o.IsAncestor == nil {
		return false
	}
	ids := []string{t.resolveHead()}
	if start, err := os.ReadFile(filepath.Join(t.Git, "BISECT_START")); err == nil {
		branch := heads + strings.TrimSpace(string(start))
		if now, err := t.read(branch); CheckName(branch) == nil && err == nil {
			ids = append(ids, now.id)
		}
	}
	return slices.ContainsFunc(ids, func(other string) bool {
		return other != "" && (other == id || t.o.IsAncestor(id, other))
	})
}

// onlyHolds reports whether a log has no other ID.
func (t *transaction) onlyHolds(log, id string) bool {
	for line := range strings.Lines(log) {
		e, err := parseEntry(strings.TrimSuffix(line, "\n"), t.HexLen)
		if err != nil || e.New != id || e.Old != id && e.Old != zero(t.HexLen) {
			return false
		}
	}
	return true
}

// staying returns the values of refs to be deleted that other refs hold: values that have
// just landed, the packed ones, and HEAD's branch, but not remote branches. Reading 50 000 loose refs would take
// longer than one more ref in the trash.
func (t *transaction) staying(items []*item) map[string]bool {
	going, wanted := map[string]bool{}, map[string]bool{}
	for _, it := range items {
		going[it.Change.Name] = true
		wanted[it.Change.Old] = true
	}
	for name := range t.pending {
		going[name] = true
	}
	held := map[string]bool{}
	for id := range t.landed {
		held[id] = true
	}
	if now, err := t.read(head); err == nil && now.target != "" && !going[now.target] {
		if branch, err := t.read(now.target); err == nil {
			held[branch.id] = true
		}
	}
	if p, err := t.packed(); err == nil {
		p.each(func(name, id string) bool {
			if wanted[id] && !going[name] && !strings.HasPrefix(name, remotes) {
				now, err := t.read(name)
				held[id] = held[id] || err == nil && now.id == id
			}
			return true
		})
	}
	return held
}

// removePacked takes refs out of packed-refs. It needs no locks on the refs: a
// process that changes one meanwhile makes a loose ref, and that is not touched.
func (t *transaction) removePacked(items []*item) error {
	p, err := t.packed()
	if err != nil {
		return err
	}
	found := false
	for _, it := range items {
		found = found || !it.done && p.get(it.Change.Name) != ""
	}
	if !found {
		return nil
	}
	file, err := filepath.EvalSymlinks(filepath.Join(t.Common, "packed-refs"))
	if err != nil {
		return err
	}
	l, err := t.acquire(file)
	if err != nil {
		return fmt.Errorf("cannot lock packed-refs: %w", err)
	}
	defer func() { _ = l.Release() }()
	t.cached = nil
	if p, err = t.packed(); err != nil {
		return err
	}
	going := map[string]bool{}
	for _, it := range items {
		if it.done || p.get(it.Change.Name) == "" {
			continue
		}
		if now, err := t.read(it.Change.Name); err != nil || now.value != it.oldValue() {
			t.keep(it, now.value)
			continue
		}
		going[it.Change.Name] = true
	}
	if len(going) == 0 {
		return nil
	}
	before := t.packedSince(&t.o)
	if err := l.Replace([]byte(p.without(going)), time.Time{}); err != nil || t.o.Landed == nil {
		return err
	}
	// If the command removes more of them later, they have not changed in between.
	info, err := os.Stat(file)
	if err == nil {
		t.o.Landed[packedRefs] = fmt.Sprint(ctime(info).UnixNano(), before.UnixNano())
	}
	return err
}

// removeLoose removes the files of a ref that is no longer packed.
func (t *transaction) removeLoose(it *item, log string) {
	name := it.Change.Name
	l, err := t.lock(name)
	if err != nil {
		it.fail(err)
		return
	}
	defer t.unlock(l, name)
	now, err := t.read(name)
	if err != nil {
		it.fail(err)
		return
	}
	again, err := t.readLog(name)
	if now.value != (value{}) && now.value != it.oldValue() || err != nil || again != log {
		t.keep(it, now.value)
		return
	}
	gitlock.Step("unlink")
	if err := os.Remove(t.file(name)); err != nil && !notThere(err) {
		it.fail(err)
		return
	}
	if log != "" {
		gitlock.Step("unlink log")
		if err := os.Remove(t.log(name)); err == nil {
			removeParents(t.top(name), "logs/"+name)
		}
	}
	t.succeed(it)
}

// stash lands refs/stash with its log. It first keeps the entries of the host's log that
// the layer's log lacks.
func (t *transaction) stash(it *item) {
	c := &it.Change
	l, err := t.lock(stash)
	if err != nil {
		it.fail(err)
		return
	}
	defer t.unlock(l, stash)
	now, err := t.read(stash)
	if err != nil {
		it.fail(err)
		return
	}
	it.Result.Old = now.String()
	log, err := t.readLog(stash)
	switch {
	case err != nil:
		it.fail(err)
	case c.Aside != "", now.value != c.newValue() && (c.Moved || now.value != c.oldValue()):
		t.keep(it, now.value)
	case now.target != "":
		it.fail(fmt.Errorf("on the host it is symbolic and leads to %q", now.target))
	default:
		if err := t.writeStash(l, it, now.value, log); err != nil {
			it.fail(err)
			return
		}
		t.succeed(it)
		if t.o.Landed != nil {
			t.o.Landed[stashLog] = c.logSum
		}
	}
}

func (t *transaction) writeStash(l *gitlock.Lock, it *item, now value, log string) error {
	c := &it.Change
	stays := map[string]bool{c.New: true}
	for _, e := range c.Log {
		stays[e.New] = true
	}
	lines := t.stashLines(c.Log, log)
	if now.id != "" && !stays[now.id] && log == "" {
		log = t.summary("", now.id, "stash").String()
	}
	if err := t.trashStashes(it, log, stays); err != nil {
		return err
	}
	if text := logText(lines); text != "" && text != log {
		removeEmpty(t.log(stash))
		if err := makeParents(t.log(stash), t.o.Sharing); err != nil {
			return err
		}
		logLock, err := t.acquire(t.log(stash))
		if err != nil {
			return fmt.Errorf("cannot lock its log: %w", err)
		}
		err = logLock.Replace([]byte(text), time.Time{})
		if err = errors.Join(err, logLock.Release()); err != nil {
			return fmt.Errorf("cannot write its log: %w", err)
		}
	}
	if now.id == c.New {
		return nil
	}
	return l.Replace([]byte(c.New+"\n"), time.Time{})
}

// stashLines returns the lines that land of a layer's log of refs/stash. A stash that
// the host's log has keeps its label and time there.
func (t *transaction) stashLines(layer []LogEntry, host string) []LogEntry {
	had := map[string]LogEntry{}
	for line := range strings.Lines(host) {
		if e, err := parseEntry(strings.TrimSuffix(line, "\n"), t.HexLen); err == nil {
			had[e.New] = e
		}
	}
	first, last := t.times(stash)
	lines := make([]LogEntry, len(layer))
	for i, e := range layer {
		if h, ok := had[e.New]; ok {
			h.Old = e.Old
			lines[i] = h
			continue
		}
		lines[i] = e.within(first, last)
		first = lines[i].Time
	}
	return lines
}

// trashStashes keeps each stash of the host's log, except those that stay.
func (t *transaction) trashStashes(it *item, log string, stays map[string]bool) error {
	if log == "" && it.Change.Old != "" && !stays[it.Change.Old] {
		log = t.summary("", it.Change.Old, "stash").String()
	}
	for line := range strings.Lines(log) {
		e, err := parseEntry(strings.TrimSuffix(line, "\n"), t.HexLen)
		if err != nil || stays[e.New] || t.kind(e.New) == "" {
			continue
		}
		e.Old = zero(t.HexLen)
		if it.Trash, err = t.trash(stash, e.New, e.String()); err != nil {
			return err
		}
	}
	return nil
}

// moveHead lands HEAD, and adds a line to its log if its branch has moved, as git does.
// before is the ID to which HEAD led.
func (t *transaction) moveHead(it *item, items []*item, before string) {
	if it == nil {
		if t.resolveHead() == before {
			return
		}
		now, err := t.read(head)
		if err != nil {
			return
		}
		it = &item{Change: Change{Name: head, Old: now.id, OldTarget: now.target, New: now.id, Target: now.target}}
	}
	c := &it.Change
	switch kept, err := t.born(c, items); {
	case err != nil:
		it.fail(err)
	case kept:
		it.done, it.Outcome, it.Result.Aside = true, Kept, fmt.Sprintf("%q does not land", c.Target)
	}
	l, err := t.lock(head)
	if err != nil {
		it.fail(err)
		return
	}
	defer t.unlock(l, head)
	now, err := t.read(head)
	if err != nil {
		it.fail(err)
		return
	}
	it.Result.Old = now.String()
	if !it.done && now.value != c.newValue() && (c.Aside != "" || c.Moved || now.value != c.oldValue()) {
		t.keep(it, now.value)
	}
	want := c.newValue()
	if it.done {
		want = now.value
	}
	if err := t.writeHead(l, it, now.value, want, before); err != nil {
		it.fail(err)
		return
	}
	if t.o.Landed != nil && c.logSum != "" {
		t.o.Landed[headLog] = c.logSum
	}
	if !it.done {
		t.succeed(it)
	}
}

// born refuses to move HEAD to a branch that has failed to land, or that the host can not have: git on the
// host would take all its changes for staged. kept reports that the branch is kept apart, and
// HEAD is too.
func (t *transaction) born(c *Change, items []*item) (kept bool, err error) {
	branch := c.Target
	for _, it := range items {
		if it.Change.Name != branch || it.Outcome == Landed || it.Change.New == "" {
			continue
		}
		if now, err := t.read(head); err == nil && now.target == branch {
			continue // it does not move
		}
		if it.Outcome == Kept {
			return true, nil
		}
		return false, fmt.Errorf("its branch %q has not landed", branch)
	}
	if now, err := t.read(branch); branch != "" && branch != c.OldTarget && err == nil && now.value == (value{}) {
		if err := t.conflict(branch, true); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (t *transaction) writeHead(l *gitlock.Lock, it *item, now, want value, before string) error {
	after := want.id
	if want.target != "" {
		branch, err := t.read(want.target)
		if err != nil {
			return err
		}
		after = branch.id
	}
	from := before
	entries := t.usable(&it.Change, from, after)
	if entries == nil && now.target != "" && want.target != now.target {
		if entries = t.usable(&it.Change, "", after); entries != nil {
			from = "" // the first commit of an orphan branch; the branch that HEAD leaves keeps its value
		}
	}
	if t.written(head, from, after) {
		entries = nil
	} else if entries == nil {
		if err := t.keepLeft(it); err != nil {
			return err
		}
		if after != "" && (before != after || now != want) {
			entries = []LogEntry{t.summary(before, after, "")}
		}
	}
	if err := t.appendLog(head, entries); err != nil {
		return err
	}
	if now == want {
		return nil
	}
	if err := t.keepOld(it, now, after); err != nil {
		return err
	}
	return l.Replace(want.content(), time.Time{})
}

// keepLeft keeps the commits of a detached HEAD that the command has left, if the log of HEAD does not land:
// it leads from or to another commit than the host's.
func (t *transaction) keepLeft(it *item) (err error) {
	for _, e := range it.Change.Log {
		if err == nil && strings.HasPrefix(e.Message, "checkout: moving from "+e.Old+" ") && t.kind(e.Old) == "commit" && t.clean(e.Old) && !t.held("", e.Old) {
			it.Trash, err = t.trash(head, e.Old, "")
		}
	}
	return err
}
