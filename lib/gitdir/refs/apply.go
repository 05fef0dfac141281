package refs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitlock"
	"pikuri/lib/internal/gitplace"
)

// Apply makes changes on the host, each by itself, and returns one result for
// each, in the same order. A ref that the host has moved stays, and the command's
// value goes to refs/pk/SESSION. Each object that the host's refs lead to stays within
// reach of them, even against their logs: old values stay below refs/pk/trash if no other
// ref has them. A process killed at any moment leaves a valid repository, and a further
// Apply completes the work.
// Like git, it does not wait for the disk.
func Apply(h Host, changes []Change, o Options) ([]Result, error) {
	t, err := newTransaction(h, o)
	if err != nil {
		return nil, err
	}
	items := make([]*item, len(changes))
	for i, c := range changes {
		items[i] = &item{Change: c, Result: Result{Name: c.Name, Aside: c.Aside, New: c.newValue().String()}}
		if h.reftable() {
			items[i].fail(errReftable)
		} else if err := t.check(&items[i].Change); err != nil {
			items[i].fail(err)
		}
	}
	if slices.ContainsFunc(items, func(it *item) bool { return !it.done }) {
		h.Sweep()
		if err := t.begin(); err != nil {
			return nil, fmt.Errorf("cannot lock references: %w", err)
		}
		t.run(items)
		t.end()
	}
	results := make([]Result, len(items))
	for i, it := range items {
		results[i] = it.Result
	}
	return results, nil
}

// Keep keeps a commit that only a file beside the references names, below
// refs/pk/trash/NAME, and returns that ref: "" if a branch or the like has the commit, or if
// it is none.
func Keep(h Host, id, name string, o Options) (string, error) {
	return keepBeside(h, id, "trash", name, "was "+name, o)
}

// KeepBack is Keep for the value of a branch or of HEAD that does not land yet, below
// refs/pk/SESSION.
func KeepBack(h Host, id, name string, o Options) (string, error) {
	return keepBeside(h, id, sessionPart(o.Session), strings.TrimPrefix(name, "refs/"), "kept", o)
}

func keepBeside(h Host, id, in, name, message string, o Options) (string, error) {
	t, err := newTransaction(h, o)
	switch {
	case err != nil:
		return "", err
	case h.reftable():
		return "", errReftable
	case t.kind(id) != "commit" || t.held("", id):
		return "", nil
	}
	h.Sweep()
	if err := t.begin(); err != nil {
		return "", fmt.Errorf("cannot lock references: %w", err)
	}
	defer t.end()
	return t.save(ours+in+"/", unquoted(name), id, "", message)
}

// LetGo removes a ref that KeepBack has made, if it still has the commit and another ref
// has it too. It reports whether the ref has the commit no more.
func LetGo(h Host, name, id string, o Options) (bool, error) {
	t, err := newTransaction(h, o)
	if err != nil {
		return false, err
	}
	now, err := t.read(name)
	if err != nil || now.id != id || h.reftable() {
		return err == nil, err
	}
	log, err := t.readLog(name)
	if err != nil || !t.held(name, id) {
		return false, err
	}
	if err := t.begin(); err != nil {
		return false, fmt.Errorf("cannot lock references: %w", err)
	}
	defer t.end()
	it := &item{Change: Change{Name: name, Old: id}}
	if err := t.removePacked([]*item{it}); err != nil || it.done {
		return false, err
	}
	t.removeLoose(it, log)
	return it.Outcome == Landed, nil
}

// transaction is the work of one Apply.
type transaction struct {
	*reader
	o        Options
	deadline time.Time // for locks of others
	journal  *os.File
	kinds    map[string]string
	landed   map[string]bool  // IDs that refs have got
	pending  map[string]*item // deletions to come
	parents  map[string]bool  // of their names
	changing map[string]bool  // refs whose values may go
	holders  map[string]string
}

func newTransaction(h Host, o Options) (*transaction, error) {
	if o.Kind == nil {
		return nil, errors.New("internal error: refs without Options.Kind")
	}
	r, err := newReader(h)
	if err != nil {
		return nil, err
	}
	t := &transaction{reader: r, o: o, deadline: time.Now().Add(patience),
		kinds: map[string]string{}, landed: map[string]bool{}, pending: map[string]*item{}, parents: map[string]bool{}, changing: map[string]bool{}}
	t.o.Session = sessionPart(o.Session)
	return t, nil
}

// item is a change and its outcome.
type item struct {
	Change
	Result
	done bool
}

func (it *item) fail(err error) {
	it.done, it.Outcome, it.Reason = true, Refuse, err.Error()
}

func (t *transaction) succeed(it *item) {
	it.done, it.Outcome = true, Landed
	if !strings.HasPrefix(it.Change.Name, remotes) {
		t.landed[it.Change.New] = true
	}
	delete(t.changing, it.Change.Name)
	t.hold(it.Change.Name, it.Change.New)
	// If only the log changes, the layer has no trace of the ref, which would look like a
	// deletion.
	if t.o.Landed != nil && it.newValue() != it.oldValue() {
		t.o.Landed[it.Change.Name] = it.Result.New
	}
}

// hold notes the new value of a ref.
func (t *transaction) hold(name, id string) {
	if t.holders == nil {
		return
	}
	delete(t.holders, name)
	if id != "" {
		t.holders[name] = id
	}
}

// sessionPart converts the name of a session to a part of a ref's name.
func sessionPart(session string) string {
	if session != "" && session != "trash" && !strings.Contains(session, "/") && gitplace.CheckRef("refs/"+session) == nil {
		return session
	}
	return "session-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, session)
}

// check returns the reason why a change can never land, or nil.
func (t *transaction) check(c *Change) error {
	if c.Name != head {
		if err := CheckName(c.Name); err != nil {
			return err
		}
	}
	switch {
	case c.Target != "" && c.New != "":
		return errors.New("internal error: a value is both ID and target")
	case c.Target != "":
		return checkTarget(c.Name, c.Target)
	case c.New == "" && c.Name == head:
		return errors.New("HEAD is not removed")
	case c.New == "":
		return nil
	}
	if id, ok := parseID(c.New, t.HexLen); !ok || id != c.New || id == zero(t.HexLen) {
		return fmt.Errorf("%.80q is no object ID", c.New)
	}
	if c.Name == stash {
		for _, e := range c.Log {
			if t.kind(e.New) != "commit" {
				return fmt.Errorf("its commit %s has not landed", e.New)
			}
		}
	}
	kind := t.kind(c.New)
	switch {
	case kind == "":
		return fmt.Errorf("its object %s has not landed", c.New)
	case takesCommit(c.Name) && kind != "commit":
		return fmt.Errorf("it leads to a %s, not to a commit", kind)
	}
	return nil
}

// takesCommit reports whether git expects a commit of a reference: with another object for its
// notes, git log fails.
func takesCommit(name string) bool {
	return name == head || name == stash || slices.ContainsFunc([]string{heads, "refs/notes/", "refs/remotes/"}, func(dir string) bool { return strings.HasPrefix(name, dir) })
}

// kind returns the type of an object on the host, "" if there is none.
func (t *transaction) kind(id string) string {
	kind, ok := t.kinds[id]
	if !ok {
		var err error
		if kind, err = t.o.Kind(id); err != nil {
			kind = ""
		}
		t.kinds[id] = kind
	}
	return kind
}

// run makes the changes in an order that loses nothing. It first keeps the old values,
// then makes refs, then moves HEAD, and last deletes refs.
func (t *transaction) run(items []*item) {
	before := t.resolveHead()
	var headItem *item
	var symbolic []*item // they lead to the others
	for _, it := range items {
		t.changing[it.Change.Name] = !it.done
		if !it.done && it.newValue() == (value{}) {
			t.pending[it.Change.Name] = it
			for dir := path.Dir(it.Change.Name); dir != "."; dir = path.Dir(dir) {
				t.parents[dir] = true
			}
		}
	}
	for _, it := range items {
		switch {
		case it.Change.Name == head:
			headItem = it
		case it.done || t.pending[it.Change.Name] == it:
		case it.Change.Name == stash:
			t.stash(it)
		case it.Change.Target != "":
			symbolic = append(symbolic, it)
		default:
			t.update(it)
		}
	}
	for _, it := range symbolic {
		t.update(it)
	}
	t.moveHead(headItem, items, before)
	t.protectHead(headItem)
	t.remove(slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.done }))
}

// resolveHead returns the ID that HEAD leads to, or "".
func (t *transaction) resolveHead() string {
	now, err := t.read(head)
	if err == nil && now.target != "" {
		now, err = t.read(now.target)
	}
	if err != nil {
		return ""
	}
	return now.id
}

// protectHead keeps the branch of the host's HEAD if the command has deleted it
// and HEAD could not follow.
func (t *transaction) protectHead(it *item) {
	if it == nil || it.Outcome == Landed {
		return
	}
	if now, err := t.read(head); err == nil {
		if branch := t.pending[now.target]; branch != nil && !branch.done {
			branch.done, branch.Outcome, branch.Result.Aside = true, Kept, "HEAD leads there"
		}
	}
}

// forward reports whether an update loses nothing.
func (t *transaction) forward(old, new string) bool {
	return old == "" || old == new || t.o.IsAncestor != nil && new != "" && t.o.IsAncestor(old, new)
}

// movedBack reports whether the host has dropped commits that the command started from:
// an update from there on would bring them back.
func (t *transaction) movedBack(start, now string) bool {
	return start != "" && start != zero(t.HexLen) && start != now && t.o.IsAncestor != nil && t.o.IsAncestor(now, start)
}

// update makes or changes a ref.
func (t *transaction) update(it *item) {
	c := &it.Change
	if _, stays := t.stays(it, true); stays { // then those in its way stay too
		return
	}
	t.clear(c.Name)
	l, err := t.lock(c.Name)
	if err != nil {
		t.refuse(it, err)
		return
	}
	defer t.unlock(l, c.Name)
	now, stays := t.stays(it, false)
	if stays {
		return
	}
	if err := t.write(l, it, now); err != nil {
		it.fail(err)
		return
	}
	t.succeed(it)
}

// stays decides about a change by the host's value, and reports whether nothing is to be written. going tells
// that refs which are about to be deleted may still be in its way.
func (t *transaction) stays(it *item, going bool) (value, bool) {
	c := &it.Change
	now, err := t.read(c.Name)
	if err == nil && now.value == (value{}) {
		err = t.conflict(c.Name, going)
	}
	if err != nil {
		t.refuse(it, err)
		return now.value, true
	}
	it.Result.Old = now.String()
	_, symbolic := remoteHead(c.Name)
	switch {
	case now.value == c.newValue():
		t.succeed(it)
	case now.target != "" && !symbolic:
		it.fail(fmt.Errorf("on the host it is symbolic and leads to %q", now.target))
	case c.Target != "" && !t.exists(c.Target):
		it.fail(fmt.Errorf("it leads to %q, which the host does not have", c.Target))
	case c.Aside != "", c.guessed, (c.Moved || now.value != c.oldValue()) && !(now.id != "" && c.New != "" && !t.movedBack(c.start, now.id) && t.forward(now.id, c.New)):
		t.keep(it, now.value)
	}
	return now.value, it.done
}

// refuse decides about a ref that cannot be made now. If a ref of the host's stays in its way, it is kept apart: in
// the layer it would hide the host's from the next commands.
func (t *transaction) refuse(it *item, err error) {
	if other, stays := errors.AsType[inTheWay](t.conflict(it.Change.Name, true)); stays {
		it.Change.Aside, it.Result.Aside = other.Error(), other.Error()
		t.keep(it, value{})
	} else {
		it.fail(err)
	}
}

func (t *transaction) exists(name string) bool {
	now, err := t.read(name)
	return err == nil && now.value != value{}
}

// write gives a locked ref its new value, after the old one was kept.
func (t *transaction) write(l *gitlock.Lock, it *item, now value) error {
	c := &it.Change
	if err := t.keepOld(it, now, c.New); err != nil {
		return err
	}
	if t.logged(c.Name) && c.New != "" {
		if err := t.appendLog(c.Name, t.branchLog(c, now.id)); err != nil {
			return err
		}
	}
	return l.Replace(c.newValue().content(), time.Time{})
}

// keepOld keeps the value that a ref is about to lose. Its log is not enough: the user
// decides when git gc(1) drops lines from it.
func (t *transaction) keepOld(it *item, now value, to string) (err error) {
	if now.id != "" && !t.forward(now.id, to) && !t.passing(it.Change.Name, now.id) && !t.held(it.Change.Name, now.id) {
		it.Trash, err = t.trash(it.Change.Name, now.id, "")
	}
	return err
}

// maxHolders bounds the refs that are asked for a value.
const maxHolders = 1000

// held reports whether a value is in the history of other refs that stay.
func (t *transaction) held(name, id string) bool {
	if t.holders == nil {
		t.findHolders()
	}
	var others []string
	for other, has := range t.holders {
		if other != name && !t.changing[other] {
			others = append(others, has)
		}
	}
	return slices.Contains(others, id) || t.o.IsAncestor != nil && t.kind(id) == "commit" && t.o.IsAncestor(id, others...)
}

// findHolders reads the refs that do not go by themselves: not a bisect's, not the stash,
// and not remote branches, which the next `git fetch --prune` may remove.
func (t *transaction) findHolders() {
	t.holders = map[string]string{}
	add := func(name string) {
		if !slices.ContainsFunc([]string{heads, tags, ours}, func(space string) bool { return strings.HasPrefix(name, space) }) {
			return
		}
		if now, err := t.read(name); len(t.holders) < maxHolders && err == nil && now.id != "" {
			t.holders[name] = now.id
		}
	}
	_ = t.loose("refs", add)
	if p, err := t.packed(); err == nil {
		p.each(func(name, _ string) bool {
			add(name)
			return len(t.holders) < maxHolders
		})
	}
}

// logged reports whether a ref has a log on the host, or gets one now: git makes one by
// default, except in a bare repository.
func (t *transaction) logged(name string) bool {
	for _, space := range []string{heads, remotes, "refs/notes/"} {
		if strings.HasPrefix(name, space) {
			return true
		}
	}
	info, err := os.Lstat(t.log(name))
	return name == head || err == nil && info.Mode().IsRegular()
}

// branchLog returns the lines for an update: the layer's, if they lead from the host's
// value to the new one, otherwise one of pk's. It returns none if a process wrote them
// and was killed before the ref.
func (t *transaction) branchLog(c *Change, now string) []LogEntry {
	if strings.HasPrefix(c.Name, remotes) {
		return t.remoteLog(c.Name, now)
	}
	if t.written(c.Name, now, c.New) {
		return nil
	}
	entries := t.usable(c, now, c.New)
	if entries == nil {
		return []LogEntry{t.summary(now, c.New, "")}
	}
	return entries
}

// remoteLog returns the lines for an update of a remote branch. Git drops commits in a rebase
// that the log of their upstream has had (git merge-base --fork-point): it has no values by a
// command, which could name any commit of the host's. Without a log git takes the value itself.
func (t *transaction) remoteLog(name, now string) []LogEntry {
	if log, err := t.readLogEnd(name); now == "" || err != nil || log != "" {
		return nil
	}
	return []LogEntry{t.summary(now, now, "was here")}
}

// written reports whether the end of a log leads from one ID to another.
func (t *transaction) written(name, from, to string) bool {
	log, err := t.readLogEnd(name)
	if err != nil || from == to {
		return false
	}
	var entries []LogEntry // from the end on: usually the last one leads elsewhere
	for log != "" && (len(entries) == 0 || entries[0].New == t.orZero(to)) {
		at := strings.LastIndexByte(strings.TrimSuffix(log, "\n"), '\n') + 1
		if e, err := parseEntry(strings.TrimSuffix(log[at:], "\n"), t.HexLen); err == nil {
			entries = append(entries, e)
		}
		log = log[:at]
	}
	slices.Reverse(entries)
	return chain(entries, t.orZero(from), t.orZero(to)) != nil
}

// usable returns the lines that land of a layer's log that lead from one ID to
// another, if all their objects are on the host.
func (t *transaction) usable(c *Change, from, to string) []LogEntry {
	entries := slices.Clone(chain(c.Log, t.orZero(from), t.orZero(to)))
	for _, e := range entries {
		for _, id := range []string{e.Old, e.New} {
			if id != zero(t.HexLen) && (t.kind(id) == "" || !t.clean(id) || t.forks(c.Name, id, from, to)) {
				return nil
			}
		}
	}
	if len(entries) == 0 {
		return nil
	}
	first, last := t.times(c.Name)
	for i, e := range entries {
		entries[i] = e.within(first, last)
		first = entries[i].Time
		if message, ok := t.wasThere(e); ok && c.Name == head {
			entries[i].Message = message
		} else {
			entries[i] = entries[i].prefixed(t.o.Session)
		}
	}
	return entries
}

// forks reports whether git rebase could think that upstream has dropped a commit, and
// so drop it from another branch of the host's: the log of a branch has had it, but neither
// value has.
func (t *transaction) forks(name, id, from, to string) bool {
	return name != head && id != from && id != to && !t.forward(id, to) && !(from != "" && t.forward(id, from)) && t.held(name, id)
}

// clean reports whether a log may lead to an object.
func (t *transaction) clean(id string) bool { return t.o.Clean == nil || t.o.Clean(id) }

// wasThere returns the message of a switch as it may land, in which git finds the branch that HEAD
// was on before, which it calls "-". A branch that the command has made, and may delete, is called by
// its commit: without it, git would take the name for any reference. ok is false if that commit may
// not be checked out.
func (t *transaction) wasThere(e LogEntry) (message string, ok bool) {
	text, is := strings.CutPrefix(e.Message, moving)
	name, to, whole := strings.Cut(text, " to ")
	if !is || !whole {
		return "", false
	}
	id, known := parseID(name, t.HexLen)
	if branch := heads + name; !known && gitplace.IsBranch(name) && t.pending[branch] == nil && (t.o.Made == nil || !t.o.Made(branch)) {
		now, err := t.read(branch)
		id, known = now.id, err == nil && now.id != ""
	}
	if !known {
		id, name = e.Old, e.Old
	}
	return moving + name + " to " + to, t.kind(id) == "commit" && t.clean(id) && (t.o.Switch == nil || t.o.Switch(id))
}

// times returns the bounds of the times of lines that land for a command: it has run
// between them, and after the host's last line.
func (t *transaction) times(name string) (first, last int64) {
	last = time.Now().Unix()
	first = min(t.o.since(name).Unix(), last)
	log, err := t.readLogEnd(name)
	log = strings.TrimSuffix(log, "\n")
	e, bad := parseEntry(log[strings.LastIndexByte(log, '\n')+1:], t.HexLen)
	if err == nil && bad == nil {
		first = max(first, e.Time)
	}
	return first, max(first, last)
}

// summary is a line of pk's for any change. message may be empty.
func (t *transaction) summary(old, id, message string) LogEntry {
	switch {
	case message != "":
	case old == "":
		message = "created"
	case t.o.IsAncestor != nil && !t.forward(old, id):
		message = "forced update"
	default:
		message = "update"
	}
	person := t.o.Committer
	if !validPerson(person) || !strings.HasSuffix(person, ">") {
		person = "pk <>"
	}
	now := time.Now()
	return LogEntry{t.orZero(old), t.orZero(id), person, now.Unix(), now.Format("-0700"), "pk: " + t.o.Session + ": " + message}
}

func (t *transaction) orZero(id string) string {
	if id == "" {
		return zero(t.HexLen)
	}
	return id
}

// appendLog adds lines to the log of a ref. The caller holds the lock of the ref.
func (t *transaction) appendLog(name string, entries []LogEntry) error {
	if len(entries) == 0 {
		return nil
	}
	file := t.log(name)
	if err := t.clearLogs(name); err != nil {
		return fmt.Errorf("cannot write its log: %w", err)
	}
	for range 5 { // git may remove an empty directory that pk made
		if err := makeParents(file, t.o.Sharing); err != nil && !notThere(err) {
			return fmt.Errorf("cannot write its log: %w", err)
		}
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o666)
		if notThere(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot write its log: %w", err)
		}
		err = appendText(f, logText(entries))
		if err == nil {
			err = t.o.Sharing.Share(f)
		}
		if err2 := f.Close(); err == nil {
			err = err2
		}
		if err != nil {
			return fmt.Errorf("cannot write its log: %w", err)
		}
		return nil
	}
	return fmt.Errorf("cannot write its log: its directory %q vanishes", filepath.Dir(file))
}

// clearLogs moves logs in the way of a new one to the trash if their refs do not exist:
// a process was killed before it removed them.
func (t *transaction) clearLogs(name string) error {
	for dir := path.Dir(name); strings.Contains(dir, "/"); dir = path.Dir(dir) {
		if info, err := os.Lstat(t.log(dir)); err == nil && !info.IsDir() {
			return t.clearLog(dir)
		}
	}
	top := t.log(name)
	if info, err := os.Lstat(top); err != nil || !info.IsDir() {
		return nil
	}
	err := filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return t.clearLog(name + file[len(top):])
	})
	removeEmpty(top)
	return err
}

func (t *transaction) clearLog(name string) error {
	now, err := t.read(name)
	if err != nil || now.value != (value{}) {
		return err
	}
	log, err := t.readLog(name)
	if err != nil {
		return err
	}
	last := ""
	for line := range strings.Lines(log) {
		if e, err := parseEntry(strings.TrimSuffix(line, "\n"), t.HexLen); err == nil && t.kind(e.New) != "" {
			last = e.New
		}
	}
	if last != "" {
		if _, err := t.trash(name, last, log); err != nil {
			return err
		}
	}
	return os.Remove(t.log(name))
}

// appendText writes text at the end of a file in one call.
func appendText(f *os.File, text string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
		text = "\n" + text // a full disk cut the last line
	}
	gitlock.Step("log")
	_, err = f.WriteString(text)
	return err
}

// clear removes refs that block a new one and are about to be deleted anyway: a branch
// "a" if "a/b" is made, or the reverse.
func (t *transaction) clear(name string) {
	var first []*item
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if it := t.pending[dir]; it != nil {
			first = append(first, it)
		}
	}
	if t.parents[name] {
		for other, it := range t.pending {
			if strings.HasPrefix(other, name+"/") {
				first = append(first, it)
			}
		}
	}
	t.remove(first)
}

// lock locks a ref.
func (t *transaction) lock(name string) (*gitlock.Lock, error) {
	l, err := t.acquire(t.file(name))
	if err == nil {
		return l, nil
	}
	if other := t.conflict(name, false); other != nil {
		return nil, other
	}
	return nil, fmt.Errorf("cannot lock it: %w", err)
}

// unlock ends a lock. It removes directories made for the lock if the ref was not made.
func (t *transaction) unlock(l *gitlock.Lock, name string) {
	_ = l.Release()
	removeParents(t.top(name), name)
}

// conflict returns an inTheWay that names the ref of the host that blocks a new one. With going, a ref
// that is still to be deleted does not.
func (t *transaction) conflict(name string, going bool) error {
	p, err := t.packed()
	if err != nil {
		return err
	}
	stays := func(other string) bool {
		if it := t.pending[other]; going && it != nil {
			return it.done
		}
		return !going || t.o.Going == nil || !t.o.Going(other)
	}
	for dir := path.Dir(name); strings.Contains(dir, "/"); dir = path.Dir(dir) {
		if now, err := t.read(dir); (err != nil || now.value != (value{})) && stays(dir) {
			return inTheWay(fmt.Sprintf("the host has the ref %q", dir))
		}
	}
	for other := range p.below(name) {
		if !PerWorktree(name) && stays(other) {
			return inTheWay(fmt.Sprintf("the host has the ref %q", other))
		}
	}
	file := t.file(name)
	if info, err := os.Lstat(file); err == nil && info.IsDir() {
		if removeEmpty(file); exists(file) {
			blocked := false
			err := t.loose(name, func(other string) { blocked = blocked || stays(other) })
			if blocked || err != nil || !going {
				return inTheWay(fmt.Sprintf("the host has refs below %q", name))
			}
		}
	}
	if t.folding {
		return t.otherCase(name, p)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// otherCase returns an error that names the ref with the same file as a new one, on a
// file system that ignores the case of names.
func (t *transaction) otherCase(name string, p packed) error {
	var found error
	p.each(func(other, _ string) bool {
		if other != name && strings.EqualFold(other, name) {
			found = inTheWay(fmt.Sprintf("the host has the ref %q, and its file system ignores case", other))
		}
		return found == nil
	})
	return found
}

// keep puts the command's value of a ref below refs/pk, because the host has moved the
// ref.
func (t *transaction) keep(it *item, now value) {
	c := &it.Change
	reason := "the host has moved it to " + now.String()
	switch {
	case c.Aside != "":
		reason = c.Aside
	case now == value{}:
		reason = "the host has deleted it"
	}
	if c.New == "" {
		it.done, it.Outcome, it.Reason = true, Kept, reason
		return
	}
	log := ""
	if c.Name == stash {
		log = logText(c.Log)
	} else if entries := t.usable(c, c.Old, c.New); entries != nil {
		log = logText(entries)
	}
	name, err := t.save(ours+t.o.Session+"/", unquoted(strings.TrimPrefix(c.Name, "refs/")), c.New, log, "kept")
	if err != nil {
		it.fail(fmt.Errorf("%s, and the command's value cannot be kept: %w", reason, err))
		return
	}
	it.done, it.Outcome, it.Reason, it.Kept = true, Kept, reason, name
}

func logText(entries []LogEntry) string {
	var text strings.Builder
	for _, e := range entries {
		text.WriteString(e.String())
	}
	return text.String()
}

// trash keeps the old value of a ref, and its log.
func (t *transaction) trash(name, id, log string) (string, error) {
	return t.save(ours+"trash/", strings.TrimPrefix(name, "refs/"), id, log, "was "+name)
}

// maxSaved bounds the refs that one name may have below refs/pk.
const maxSaved = 10000

// save makes a ref below refs/pk that holds an ID, and returns its name. It writes the
// log before a line of pk's. It uses an existing ref that holds the ID, or an ancestor
// kept for the same session, and does not touch one with another value.
func (t *transaction) save(prefix, short, id, log, message string) (string, error) {
	for i := range maxSaved {
		name := prefix + short
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		advance := prefix != ours+"trash/"
		if now, err := t.read(name); err == nil && now.id != "" && now.id != id && !advance {
			continue
		}
		ok, err := t.saveAs(name, id, log, message, advance)
		if _, blocked := errors.AsType[inTheWay](err); blocked {
			if strings.Contains(short, "/") { // a ref "a" was kept where now "a/b" should be, or the other way round
				return t.save(prefix, strings.ReplaceAll(short, "/", "-"), id, log, message)
			}
			continue
		}
		if ok || err != nil {
			return name, err
		}
	}
	return "", fmt.Errorf("%q has too many refs of this name", prefix)
}

// inTheWay says which ref of the host keeps another one from being made.
type inTheWay string

func (e inTheWay) Error() string { return string(e) }

func (t *transaction) saveAs(name, id, log, message string, advance bool) (bool, error) {
	if err := t.conflict(name, false); err != nil {
		return false, err
	}
	l, err := t.lock(name)
	if err != nil {
		return false, err
	}
	defer t.unlock(l, name)
	now, err := t.read(name)
	switch {
	case err != nil:
		return false, err
	case now.id == id:
		return true, nil
	case now.value != value{} && !(advance && now.id != "" && t.o.IsAncestor != nil && t.o.IsAncestor(now.id, id)):
		return false, nil
	}
	if now.value == (value{}) && log != "" {
		if err := t.clearLogs(name); err != nil {
			return false, err
		}
		if err := makeParents(t.log(name), t.o.Sharing); err != nil {
			return false, err
		}
		if err := gitlock.Replace(t.log(name), []byte(log), time.Time{}, t.o.Sharing); err != nil {
			return false, err
		}
	}
	if t.kind(id) == "commit" { // git gc complains of others in a log
		if err := t.appendLog(name, []LogEntry{t.summary(now.id, id, message)}); err != nil {
			return false, err
		}
	}
	if err := l.Replace([]byte(id+"\n"), time.Time{}); err != nil {
		return false, err
	}
	t.hold(name, id)
	return true, nil
}

func sum(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:])
}
