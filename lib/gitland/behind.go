package gitland

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/bytejson"
)

// A Behind is a place to which a link of a commit leads from a protected name or from below
// one. git on the host makes the link when it checks the commit out, and a file that a command
// has left at the place is then at the name.
type Behind struct {
	Name  string // below the work tree
	Place string // below the work tree too; or absolute, and it may lead through links
}

// treeLinks finds the places behind symbolic links in trees of commits.
type treeLinks struct {
	names     map[string][]string // protected ones, by their first part in lower case
	tree      func(id string) ([]objects.Entry, error)
	read      func(id string) (kind string, text []byte, err error)
	workTrees []string // which may have the trees
	above     bool     // a link has led above the work tree
	same      map[string][]sameLinks
}

// sameLinks describes trees with the same links: the names at their top that were looked for, and
// the entries there.
type sameLinks struct {
	names map[string]bool
	there string
}

// maxSame bounds these.
const maxSame = 64

// there returns the entries of a tree at names.
func there(top []objects.Entry, names map[string]bool) string {
	text := ""
	for _, e := range top {
		if names[strings.ToLower(e.Name)] {
			text += fmt.Sprintf("%s/%o/%s/", e.Name, e.Mode, e.ID)
		}
	}
	return text
}

// remembering returns a function that reads trees, and has those at hand that it has read before:
// commits have most directories in common.
func remembering(read func(id string) ([]objects.Entry, error)) func(id string) ([]objects.Entry, error) {
	trees, entries := map[string][]objects.Entry{}, 0
	return func(id string) ([]objects.Entry, error) {
		if list, is := trees[id]; is {
			return list, nil
		}
		list, err := read(id)
		if entries += len(list); entries > 10*maxEntries {
			clear(trees)
			entries = len(list)
		}
		if err == nil {
			trees[id] = list
		}
		return list, err
	}
}

// maxLinks is how many links Linux follows in a path. maxEntries bounds the entries of a tree
// that are looked at below protected names, and the links.
const (
	maxLinks   = 40
	maxEntries = 4096
)

// way is a path that is followed in a tree as if it was checked out, and outside of that on the
// file system.
type way struct {
	name   string   // the protected one with which it began
	at     string   // absolute, without links
	trees  []string // of the work tree and of each directory from there to at, "" for a missing one; none outside
	rest   string
	links  int
	linked bool   // at lies behind a link
	out    string // the path by which it has left the work tree
}

// linkWalk finds the links of one tree.
type linkWalk struct {
	*treeLinks
	root  string
	queue []way
	seen  map[string]bool
	left  int  // entries
	up    bool // links lead above the work tree
	found map[Behind]bool
	top   map[string]bool // names at the top that were looked for
	err   error
}

// behind lists the places behind the links of a tree. It goes on where something cannot be read,
// and then returns an error, too.
func (l *treeLinks) behind(tree string) (list []Behind, err error) {
	list, _, err = l.walk(tree)
	return list, err
}

// walk also returns the names at the top that it has looked for, in lower case.
func (l *treeLinks) walk(tree string) (list []Behind, names map[string]bool, err error) {
	w := linkWalk{treeLinks: l, root: tree, found: map[Behind]bool{}, up: true, top: map[string]bool{}}
	top := w.list(tree)
	for i := 0; i < len(l.workTrees) && w.up; i++ { // above each of them is something else
		w.up, w.left, w.seen = false, maxEntries, map[string]bool{}
		for _, e := range top {
			if e.Mode != unix.S_IFDIR && e.Mode != index.ModeLink {
				continue
			}
			for _, name := range l.names[strings.ToLower(e.Name)] {
				w.queue = append(w.queue, way{name: name, at: l.workTrees[i], trees: []string{tree}, rest: name})
			}
		}
		for ; len(w.queue) > 0; w.queue = w.queue[1:] {
			w.step(w.queue[0])
		}
		l.above = l.above || w.up
	}
	return sortedBehind(w.found), w.top, w.err
}

func (w *linkWalk) list(tree string) (list []objects.Entry) {
	var err error
	if tree != "" {
		list, err = w.tree(tree)
	}
	w.err = cmp.Or(w.err, err)
	return list
}

// step follows one name of a way.
func (w *linkWalk) step(s way) {
	if s.rest == "" {
		w.end(s)
		return
	}
	key := fmt.Sprintf("%s\x00%d\x00%s\x00%t", s.at, len(s.trees), s.rest, s.linked)
	if w.seen[key] {
		return
	}
	w.seen[key] = true
	var part string
	part, s.rest, _ = strings.Cut(s.rest, "/")
	switch part {
	case "", ".":
		w.queue = append(w.queue, s)
		return
	case "..":
		s.at = filepath.Dir(s.at)
		if len(s.trees) == 1 {
			w.up, s.out = true, cmp.Or(s.out, s.at+"/"+s.rest)
		}
		s.trees = s.trees[:max(len(s.trees)-1, 0)]
		w.inside(s)
		return
	}
	if len(s.trees) == 0 {
		w.outside(s, part)
		return
	}
	if len(s.trees) == 1 {
		w.top[strings.ToLower(part)] = true
	}
	exact := false
	for _, e := range w.list(s.trees[len(s.trees)-1]) {
		if strings.EqualFold(e.Name, part) { // some file systems ignore the case
			exact = exact || e.Name == part
			w.enter(s, e)
		}
	}
	if !exact { // it may be in the work tree alone
		w.missing(s, part)
		w.enter(s, objects.Entry{Name: part})
	}
}

// missing notes a name that is not there above a "..": a command could make it a link.
func (w *linkWalk) missing(s way, part string) {
	if strings.Contains("/"+s.rest+"/", "/../") {
		w.note(s, filepath.Join(s.at, part))
	}
}

// note notes a place to which a way leads.
func (w *linkWalk) note(s way, place string) {
	for _, dir := range w.workTrees {
		if below, is := strings.CutPrefix(place, dir+"/"); is {
			w.found[Behind{s.name, below}] = true
		}
	}
	if len(s.trees) == 0 {
		w.found[Behind{s.name, place}] = true
	}
}

// enter follows an entry of a tree.
func (w *linkWalk) enter(s way, e objects.Entry) {
	if e.Mode == index.ModeLink {
		_, text, err := w.read(e.ID)
		if w.err = cmp.Or(w.err, err); err == nil {
			w.through(s, string(text))
		}
		return
	}
	if e.Mode != unix.S_IFDIR {
		e.ID = ""
	}
	s.at, s.trees = filepath.Join(s.at, e.Name), append(slices.Clip(s.trees), e.ID)
	w.queue = append(w.queue, s)
}

// through follows a link.
func (w *linkWalk) through(s way, target string) {
	s.links++
	if w.left -= 1 + len(target)/16; w.left < 0 || s.links > maxLinks || len(target) >= unix.PathMax {
		return
	}
	s.linked, s.rest = true, target+"/"+s.rest
	if filepath.IsAbs(target) {
		s.at, s.trees, s.out = "/", nil, cmp.Or(s.out, s.rest)
	}
	w.queue = append(w.queue, s)
}

// outside follows a name on the file system.
func (w *linkWalk) outside(s way, part string) {
	at := filepath.Join(s.at, part)
	target, err := os.Readlink(at)
	if err == nil {
		w.through(s, target)
		return
	}
	if errors.Is(err, os.ErrNotExist) {
		w.missing(s, part)
	}
	s.at = at
	w.inside(s)
}

// inside goes on with a way, which may have come to a work tree.
func (w *linkWalk) inside(s way) {
	if len(s.trees) == 0 && slices.Contains(w.workTrees, s.at) {
		s.trees = []string{w.root}
	}
	w.queue = append(w.queue, s)
}

// end notes where a way has led, and goes on with each link below that.
func (w *linkWalk) end(s way) {
	if s.linked {
		w.note(s, s.at)
		if s.out != "" { // links outside may lead elsewhere when the host comes to them
			w.found[Behind{s.name, s.out}] = true
		}
	}
	if len(s.trees) < 2 || w.seen[s.at] {
		return
	}
	w.seen[s.at] = true
	s.linked, s.out = false, ""
	for _, e := range w.list(s.trees[len(s.trees)-1]) {
		if w.left--; w.left >= 0 && (e.Mode == unix.S_IFDIR || e.Mode == index.ModeLink) {
			below := s
			below.name += "/" + e.Name
			w.enter(below, e)
		}
	}
}

// Bounds of the part of a history that one start reads: a commit counts as commitCost, its directory by its
// entries, and one with links as linksCost. The next starts read on. Of the commits that could not be
// read, maxLost are remembered, and each start tries maxAgainLost of them again.
const (
	linksCost    = 200
	maxLost      = 4096
	maxAgainLost = 64
)

// maxHistory is less in tests.
var maxHistory = 2_000_000

// history is the part of the commits of a git directory that has been read. In its file the IDs of the
// commits follow: it is the only place that has those of references that are gone, so no sweep
// removes it as long as the git directory is there.
type history struct {
	Common string           `json:"common"`
	Trees  []string         `json:"trees"` // the work trees
	Above  bool             `json:"above"` // a link leads above one, and so elsewhere for another
	Names  []string         `json:"names"` // protected ones, for which it was read
	Dirs   map[string]int64 `json:"dirs"`  // when files and directories of references have changed
	List   []Behind         `json:"list"`
	Of     []string         `json:"of"`   // the commit of each place
	Full   bool             `json:"full"` // Lost does not have all
	Todo   []string         `json:"todo"` // commits that are to be read next, with all in their histories
	Lost   []string         `json:"lost"` // commits that could not be read, as those of a partial clone
	read   os.FileInfo      // the file, as it was read
}

// maxNames bounds the names of a history, which grow as the protected names change.
const maxNames = 10_000

// LinksOfHistory lists the places behind links of all commits to which the references of a git
// directory of the host's lead, or once did, for names in its work trees. Only new commits are read:
// save keeps the findings in a file of a directory.
func LinksOfHistory(in, common string, workTrees, names []string) (list []Behind, save func()) {
	file := historyFile(in, common)
	t, ids, close := readHistory(file)
	defer close()
	if t.Common != common || !t.covers(names) || t.Above && !slices.Equal(t.Trees, workTrees) {
		t = &history{Common: common, Names: union(t.Names, names), List: t.List, Of: t.Of, read: t.read}
		ids = func() *idSet { return new(idSet) }
	}
	t.Trees = workTrees
	if t.isCurrent() {
		return t.List, func() {}
	}
	seen := ids()
	err := t.readOn(seen)
	for range maxLinks { // another commit may have a link at a place behind one
		var places []string
		for _, b := range t.List {
			if !filepath.IsAbs(b.Place) {
				places = append(places, b.Place)
			}
		}
		if err != nil || t.covers(places) {
			break
		}
		t.Names, t.Dirs, t.Todo, t.Lost, *seen = union(t.Names, places), nil, nil, nil, idSet{}
		err = t.readOn(seen)
	}
	if err != nil {
		return t.List, func() {} // what pk cannot read, git cannot check out
	}
	return t.List, func() {
		other, ids, close := readHistory(file)
		defer close()
		if other.read != nil && (t.read == nil || !os.SameFile(other.read, t.read)) {
			t.merge(other, seen, ids()) // another command has saved it meanwhile
		}
		if head, err := bytejson.Marshal(t); err == nil {
			_ = gitdir.SaveList(file, append(append(head, '\n'), seen.sorted()...)) // without it the next start reads all again
		}
	}
}

func historyFile(in, common string) string {
	sum := sha256.Sum256([]byte(common))
	return gitdir.ListFile(in, gitdir.LinksPrefix+strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])))
}

// readHistory reads the file of a history, and its IDs until close. A missing file is empty.
func readHistory(file string) (t *history, ids func() *idSet, close func()) {
	t, ids, close = new(history), func() *idSet { return new(idSet) }, func() {}
	f, err := os.Open(file)
	if err != nil {
		return t, ids, close
	}
	in := bufio.NewReader(f)
	head, err := in.ReadBytes('\n')
	if err != nil || bytejson.Unmarshal(head, t) != nil {
		t, in = new(history), bufio.NewReader(strings.NewReader(""))
	}
	t.read, _ = f.Stat()
	return t, func() *idSet {
		data, err := io.ReadAll(in)
		if err != nil {
			return new(idSet)
		}
		return &idSet{data: data}
	}, func() { f.Close() }
}

func (t *history) covers(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		_, known := slices.BinarySearch(t.Names, name)
		return !known
	})
}

// union returns the names of both, or of the second, in order.
func union(a, b []string) []string {
	if len(a) > maxNames {
		a = nil
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// merge adds the findings of another start, also for other names: then the next start reads all again.
func (t *history) merge(other *history, seen, others *idSet) {
	t.Todo, t.Lost, t.Dirs = append(t.Todo, other.Todo...), append(t.Lost, other.Lost...), nil
	t.Full = t.Full || other.Full
	found := t.places()
	for b, id := range other.places() {
		found[b] = id
	}
	t.setPlaces(found)
	if t.Common != other.Common || !slices.Equal(t.Names, other.Names) {
		t.Names, t.Todo, t.Lost = union(t.Names, other.Names), nil, nil
		*seen = idSet{}
		return
	}
	for i := 0; seen.size > 0 && i+seen.size <= len(others.data); i += seen.size {
		seen.addRaw(others.data[i : i+seen.size])
	}
}

// places returns the places with their commits.
func (t *history) places() map[Behind]string {
	found := map[Behind]string{}
	for i, b := range t.List {
		if found[b] = ""; i < len(t.Of) {
			found[b] = t.Of[i]
		}
	}
	return found
}

func (t *history) setPlaces(found map[Behind]string) {
	t.List, t.Of = sortedBehind(found), nil
	for _, b := range t.List {
		t.Of = append(t.Of, found[b])
	}
}

// isCurrent reports whether there is nothing to read: each change of a reference changes its
// directory, or packed-refs. Of a repository there is always a HEAD.
func (t *history) isCurrent() bool {
	for name, ctime := range t.Dirs {
		if refs.Changed(t.Common, name) != ctime {
			return false
		}
	}
	isNew := func(name string) bool { _, known := t.Dirs[name]; return !known }
	return len(t.Todo)+len(t.Lost) == 0 && !slices.ContainsFunc(refs.Texts(t.Common), isNew)
}

// readOn reads the commits that are new, as far as it may.
func (t *history) readOn(seen *idSet) error {
	format, _, err := objects.FormatOf(t.Common)
	if err != nil {
		return err
	}
	db, err := objects.Open(filepath.Join(t.Common, "objects"), format)
	if err != nil {
		return err
	}
	defer db.Close()
	links := treeLinks{names: map[string][]string{}, tree: remembering(db.Tree), read: db.Read, workTrees: t.Trees, same: map[string][]sameLinks{}}
	for _, name := range t.Names {
		first, _, _ := strings.Cut(strings.ToLower(name), "/")
		links.names[first] = append(links.names[first], name)
	}
	seen.size = format.Size()
	if slices.ContainsFunc(t.Of, func(id string) bool { return id != "" && !db.Has(id) }) { // git gc has removed it
		t.List, t.Of, t.Full, t.Dirs, t.Todo, t.Lost, *seen = nil, nil, false, nil, nil, nil, idSet{size: seen.size}
	}
	now := refs.Now().UnixNano()
	ids, dirs := refs.Tips(refs.Host{Common: t.Common, Git: t.Common, HexLen: 2 * format.Size()}, t.Dirs)
	t.Dirs = dirs
	for name, ctime := range dirs {
		t.Dirs[name] = min(ctime, now-settled) // a later change may not show
	}
	again := t.Lost[:min(len(t.Lost), maxAgainLost)]
	queue := slices.Concat(again, t.Todo, ids)
	t.Lost = t.Lost[len(again):]
	tips := map[string]bool{}
	if t.Full { // the host may have got the files of one since
		for _, id := range ids {
			tips[id] = true
		}
	}
	left, lost, found := maxHistory, map[string]bool{}, t.places()
	for ; len(queue) > 0 && left > 0; queue = queue[1:] {
		id := queue[0]
		if seen.has(id) && !tips[id] || lost[id] {
			continue
		}
		tips[id] = false
		h, err := db.Header(id)
		left -= commitCost
		if err == nil && h.Tree != "" {
			err = links.add(h.Tree, id, found, &left)
		}
		if err != nil && len(t.Lost) < maxLost {
			t.Lost, lost[id] = append(t.Lost, id), true // a partial clone may get it later, and a shallow one its parents
		} else {
			t.Full = t.Full || err != nil
			seen.add(id)
		}
		queue = append(queue, h.Parents...)
	}
	t.Todo, t.Above = queue, t.Above || links.above
	t.setPlaces(found)
	return nil
}

// add adds the places behind links of a commit's tree. Most commits have the same links.
func (l *treeLinks) add(tree, commit string, found map[Behind]string, left *int) error {
	top, err := l.tree(tree)
	if err != nil {
		return err
	}
	*left -= len(top)
	key := ""
	for _, e := range top {
		if (e.Mode == unix.S_IFDIR || e.Mode == index.ModeLink) && l.names[strings.ToLower(e.Name)] != nil {
			key += e.Name + "/" + e.ID + "/"
		}
	}
	if key == "" || slices.ContainsFunc(l.same[key], func(s sameLinks) bool { return there(top, s.names) == s.there }) {
		return nil
	}
	*left -= linksCost
	list, names, err := l.walk(tree)
	if err == nil && len(l.same[key]) < maxSame {
		l.same[key] = append(l.same[key], sameLinks{names, there(top, names)})
	}
	for _, b := range list {
		if found[b] == "" {
			found[b] = commit
		}
	}
	return err
}

func sortedBehind[T any](found map[Behind]T) []Behind {
	return slices.SortedFunc(maps.Keys(found), func(a, b Behind) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Place, b.Place))
	})
}

// idSet is a set of object IDs.
type idSet struct {
	size int    // of an ID, in bytes
	data []byte // IDs, sorted
	more map[string]bool
}

func (s *idSet) has(id string) bool {
	raw, err := hex.DecodeString(id)
	if err != nil || s.more[string(raw)] {
		return err == nil
	}
	at := func(i int) []byte { return s.data[i*s.size : (i+1)*s.size] }
	i := sort.Search(len(s.data)/s.size, func(i int) bool { return bytes.Compare(at(i), raw) >= 0 })
	return i < len(s.data)/s.size && bytes.Equal(at(i), raw)
}

func (s *idSet) add(id string) {
	if raw, err := hex.DecodeString(id); err == nil {
		s.addRaw(raw)
	}
}

func (s *idSet) addRaw(raw []byte) {
	if s.more == nil {
		s.more = map[string]bool{}
	}
	s.more[string(raw)] = true
}

// sorted returns all IDs, one after another.
func (s *idSet) sorted() (all []byte) {
	rest := s.data
	for _, id := range slices.Sorted(maps.Keys(s.more)) {
		n := s.size * sort.Search(len(rest)/s.size, func(i int) bool { return string(rest[i*s.size:(i+1)*s.size]) >= id })
		all = append(append(all, rest[:n]...), id...)
		rest = bytes.TrimPrefix(rest[n:], []byte(id))
	}
	return append(all, rest...)
}
