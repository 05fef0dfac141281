package gitland

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
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
	above bool // links lead above the work tree
	found map[Behind]bool
	err   error
}

// behind lists the places behind the links of a tree. It goes on where something cannot be read,
// and then returns an error, too.
func (l *treeLinks) behind(tree string) (list []Behind, err error) {
	w := linkWalk{treeLinks: l, root: tree, found: map[Behind]bool{}, above: true}
	top := w.list(tree)
	for i := 0; i < len(l.workTrees) && w.above; i++ { // above each of them is something else
		w.above, w.left, w.seen = false, maxEntries, map[string]bool{}
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
	}
	return slices.SortedFunc(maps.Keys(w.found), func(a, b Behind) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Place, b.Place))
	}), w.err
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
			w.above, s.out = true, cmp.Or(s.out, s.at+"/"+s.rest)
		}
		s.trees = s.trees[:max(len(s.trees)-1, 0)]
		w.inside(s)
		return
	}
	if len(s.trees) == 0 {
		w.outside(s, part)
		return
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

// maxTips bounds the new commits that are read at a start, and those that are read again: the
// rest is for the next starts. Of more commits with links than maxKept those are remembered whose
// links no other one has.
const (
	maxTips = 64
	maxKept = 256
)

// tips holds the links of branches, as they were read last.
type tips struct {
	Key  string           `json:"key"`  // of the names
	Dirs map[string]int64 `json:"dirs"` // ctimes of the directories of references, and of packed-refs
	List []Behind         `json:"list"`
	More bool             `json:"more"` // commits are left for the next start
	Size int64            `json:"size"` // of the file of landed ones (noteLinked)
	Last string           `json:"last"` // the one that was read again last
}

// commitLinks holds the links of a commit.
type commitLinks struct {
	Again bool     `json:"again,omitempty"` // it has to be read again: for other names, or not all could be read
	List  []Behind `json:"list,omitempty"`
}

// LinksOfBranches lists the places behind links of the branches and tags of a git directory of
// the host's, for names in a work tree; and of those that branches had before, as long as the
// host has the commits. It reads only new commits: save keeps the others in a file of a directory.
func LinksOfBranches(in, common, workTree string, names []string) (list []Behind, save func()) {
	sum := sha256.Sum256([]byte(common + "\x00" + workTree))
	file := gitdir.ListFile(in, gitdir.LinksPrefix+strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])))
	landed, _ := os.ReadFile(linkedFile(in, common))
	slices.Sort(names)
	sum = sha256.Sum256([]byte(strings.Join(names, "\x00")))
	t, known := tips{}, map[string]commitLinks{}
	text, _ := os.ReadFile(file)
	saved := json.NewDecoder(bytes.NewReader(text))
	key := fmt.Sprintf("%x", sum[:8])
	if err := saved.Decode(&t); err == nil && t.Key == key && t.Size == int64(len(landed)) && t.unchanged(common) {
		return t.List, func() {}
	} else if err != nil || saved.Decode(&known) != nil {
		t, known = tips{}, map[string]commitLinks{}
	}
	if t.Key != key {
		for id, c := range known {
			known[id] = commitLinks{true, c.List}
		}
	}
	t.Key = key
	t.Size = int64(len(landed))
	if t.update(common, workTree, names, strings.Fields(string(landed)), known) != nil {
		return t.List, func() {} // what pk cannot read, git cannot check out
	}
	return t.List, func() {
		head, herr := json.Marshal(t)
		rest, rerr := json.Marshal(known)
		if herr == nil && rerr == nil {
			_ = gitdir.SaveList(file, append(head, rest...)) // without it the next command reads all again
		}
	}
}

// linkedFile has the commits with links that commands have landed in a git directory, a line each. The
// bounds of LinksOfBranches are not for them: a command could choose which of them the next start does
// not read. No sweep removes the file, since no start could make it again.
func linkedFile(in, common string) string {
	sum := sha256.Sum256([]byte(common))
	return gitdir.ListFile(in, "linked-"+strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])))
}

// noteLinked adds a commit to the file of landed ones.
func (g *guard) noteLinked(id string) error {
	if g.layer.State == "" {
		return nil
	}
	file := linkedFile(g.layer.State, g.repo.host)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) || bytes.Contains(text, []byte(id)) {
		return err
	}
	return gitdir.SaveList(file, append(text, id+"\n"...))
}

// unchanged reports whether the references are those of before. Each change of one changes its
// directory, or packed-refs.
func (t *tips) unchanged(common string) bool {
	for name, ctime := range t.Dirs {
		if refs.Changed(common, name) != ctime {
			return false
		}
	}
	return len(t.Dirs) > 0 && !t.More
}

// update reads the commits that are new, and some that have to be read again.
func (t *tips) update(common, workTree string, names, landed []string, known map[string]commitLinks) error {
	format, _, err := objects.FormatOf(common)
	if err != nil {
		return err
	}
	db, err := objects.Open(filepath.Join(common, "objects"), format)
	if err != nil {
		return err
	}
	defer db.Close()
	links := treeLinks{names: map[string][]string{}, tree: remembering(db.Tree), read: db.Read, workTrees: []string{workTree}}
	for _, name := range names {
		first, _, _ := strings.Cut(strings.ToLower(name), "/")
		links.names[first] = append(links.names[first], name)
	}
	now := refs.Now().UnixNano()
	ids, dirs := refs.Tips(refs.Host{Common: common, Git: common, HexLen: 2 * format.Size()}, t.Dirs)
	t.Dirs = dirs
	for name, ctime := range dirs {
		if ctime > now-settled { // a later change may not show
			t.Dirs[name] = 0
		}
	}
	isNew := func(id string) bool {
		_, is := known[id]
		return !is
	}
	fresh := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !isNew(id) || slices.Contains(landed, id) })
	landed = slices.DeleteFunc(slices.Clone(landed), func(id string) bool { return !isNew(id) || !db.Has(id) })
	var again []string
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if known[id].Again {
			again = append(again, id)
		}
	}
	after, _ := slices.BinarySearch(again, t.Last+" ") // in turn: some can never be read
	again = slices.Concat(again[after:], again[:after])
	again = again[:min(len(again), maxTips)]
	if len(again) > 0 {
		t.Last = again[len(again)-1]
	}
	trees := map[string]commitLinks{}
	for _, id := range slices.Concat(landed, fresh[:min(len(fresh), maxTips)], again) {
		c := readLinks(db, &links, id, trees)
		if c.Again {
			c.List = append(slices.Clip(c.List), known[id].List...)
		}
		known[id] = c
	}
	t.More = len(fresh) > maxTips || slices.ContainsFunc(slices.Collect(maps.Values(known)), func(c commitLinks) bool { return c.Again })
	t.forget(db, known, ids)
	return nil
}

// forget lists the links of all commits, and drops commits that are of no use. A command can move
// or delete a branch whose commit has links: git on the host finds it all the same, in a log or
// below refs/pk.
func (t *tips) forget(db *objects.Database, known map[string]commitLinks, ids []string) {
	t.List = nil
	kept, is := 0, map[string]bool{}
	for _, id := range ids {
		is[id] = true
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(id string) bool { return is[id] })
	for _, id := range append(ids, others...) {
		more := slices.DeleteFunc(slices.Clone(known[id].List), func(b Behind) bool { return slices.Contains(t.List, b) })
		if !is[id] && (len(known[id].List) == 0 || kept >= maxKept && (len(more) == 0 || kept >= maxEntries) || !db.Has(id)) {
			delete(known, id)
			continue
		}
		if len(known[id].List) > 0 {
			kept++
		}
		t.List = append(t.List, more...)
	}
}

// readLinks reads the links of a commit, or of a tag. trees has those of trees that were read.
func readLinks(db *objects.Database, links *treeLinks, id string, trees map[string]commitLinks) commitLinks {
	h, err := db.Header(id)
	for err == nil && h.Tree == "" && len(h.Parents) == 1 { // a tag
		h, err = db.Header(h.Parents[0])
	}
	if err != nil {
		return commitLinks{Again: true} // a partial clone may get it later
	}
	c, is := trees[h.Tree]
	if !is && h.Tree != "" {
		c.List, err = links.behind(h.Tree)
		c.Again = err != nil
		trees[h.Tree] = c
	}
	return c
}
