package gitdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
)

// treeLinks follows the symbolic links in trees of commits.
type treeLinks struct {
	names     map[string][]string // protected ones, by their first part in lower case
	tree      func(id string) ([]objects.Entry, error)
	read      func(id string) (kind string, text []byte, err error)
	workTrees []string // to which absolute links may lead
}

// behind returns the places, in a tree, of the protected names that lie behind links of the
// tree.
func (l *treeLinks) behind(tree string) (map[string]string, error) {
	entries, err := l.tree(tree)
	if err != nil {
		return nil, err
	}
	places := map[string]string{}
	for _, e := range entries {
		if e.Mode != unix.S_IFDIR && e.Mode != index.ModeLink {
			continue
		}
		for _, name := range l.names[strings.ToLower(e.Name)] {
			if place, linked := l.follow(tree, name); linked && place != "" {
				places[name] = place
			}
		}
	}
	return places, nil
}

// maxLinks is how many links Linux follows in a path.
const maxLinks = 40

// follow follows a path through the links in a tree. It finds no place outside of the tree.
func (l *treeLinks) follow(tree, name string) (place string, linked bool) {
	rest := strings.Split(name, "/")
	at, dirs := []string{}, []string{tree} // the directories so far, and their trees
	links := 0
	for len(rest) > 0 {
		part := rest[0]
		switch rest = rest[1:]; part {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return "", false
			}
			at, dirs = at[:len(at)-1], dirs[:len(at)]
			continue
		}
		list, _ := l.tree(dirs[len(dirs)-1])
		i := slices.IndexFunc(list, func(e objects.Entry) bool { return strings.EqualFold(e.Name, part) })
		if i < 0 { // it may be in the work tree alone
			return filepath.Join(append(append(at, part), rest...)...), links > 0
		}
		e := list[i]
		if e.Mode != index.ModeLink {
			at, dirs = append(at, e.Name), append(dirs, e.ID)
			continue
		}
		_, text, err := l.read(e.ID)
		if links++; err != nil || links > maxLinks {
			return "", false
		}
		target := string(text)
		if filepath.IsAbs(target) {
			j := slices.IndexFunc(l.workTrees, func(dir string) bool { return fsat.Within(target, dir) })
			if j < 0 {
				return "", false
			}
			at, dirs, target = nil, dirs[:1], strings.TrimPrefix(target, l.workTrees[j])
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return filepath.Join(at...), links > 0
}

// A Behind is a place to which links of branches lead from a protected name. git on the host
// makes the links when it checks a branch out, and a file that a command has left at the place
// is then at the name.
type Behind struct {
	Name, Place string // below the work tree
}

// maxTips bounds the branches and tags whose links are known.
const maxTips = 64

// tips holds the links of branches, as they were read last.
type tips struct {
	Key  string           `json:"key"`  // of the names
	Dirs map[string]int64 `json:"dirs"` // ctimes of the directories of references, and of packed-refs
	List []Behind         `json:"list"`
}

// LinksOfBranches lists the places behind links of the branches and tags of a git directory of
// the host's, for names in a work tree. It keeps them in a file of a directory, and reads only
// new commits.
func LinksOfBranches(in, common, workTree string, names []string) []Behind {
	sum := sha256.Sum256([]byte(common + "\x00" + workTree))
	file := filepath.Join(in, listDir, linkPrefix+strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])))
	slices.Sort(names)
	sum = sha256.Sum256([]byte(strings.Join(names, "\x00")))
	t, have := tips{}, map[string][]Behind{} // by commit
	text, _ := os.ReadFile(file)
	saved := json.NewDecoder(bytes.NewReader(text))
	if key := fmt.Sprintf("%x", sum[:8]); saved.Decode(&t) != nil || t.Key != key {
		t = tips{Key: key}
	} else if t.unchanged(common) {
		return t.List
	} else if saved.Decode(&have) != nil {
		have = nil
	}
	have, err := t.update(common, workTree, names, have)
	if err != nil {
		return t.List // what pk cannot read, git cannot check out
	}
	head, herr := json.Marshal(t)
	rest, rerr := json.Marshal(have)
	if herr == nil && rerr == nil {
		_ = saveList(file, append(head, rest...)) // without it the next command reads all again
	}
	return t.List
}

// unchanged reports whether the references are those of before. Each change of one changes its
// directory, or packed-refs.
func (t *tips) unchanged(common string) bool {
	for name, ctime := range t.Dirs {
		if refs.Changed(common, name) != ctime {
			return false
		}
	}
	return len(t.Dirs) > 0
}

// update reads the branches that are new.
func (t *tips) update(common, workTree string, names []string, known map[string][]Behind) (map[string][]Behind, error) {
	format, _, err := FormatOf(common)
	if err != nil {
		return nil, err
	}
	db, err := objects.Open(filepath.Join(common, "objects"), format)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	links := treeLinks{names: map[string][]string{}, tree: db.Tree, read: db.Read, workTrees: []string{workTree}}
	for _, name := range names {
		first, _, _ := strings.Cut(strings.ToLower(name), "/")
		links.names[first] = append(links.names[first], name)
	}
	now := refs.Now().UnixNano()
	ids, dirs, all := refs.Tips(refs.Host{Common: common, Git: common, HexLen: 2 * format.Size()}, maxTips)
	t.Dirs = dirs
	for name, ctime := range dirs {
		if ctime > now-settled { // a later change may not show
			t.Dirs[name] = 0
		}
	}
	have := map[string][]Behind{}
	if !all { // a command may have made so many that others are not among them
		for id, list := range known {
			if len(list) > 0 {
				have[id] = list
			}
		}
	}
	trees := map[string][]Behind{}
	for _, id := range ids {
		var is bool
		if have[id], is = known[id]; is {
			continue
		}
		h, err := db.Header(id)
		for err == nil && h.Tree == "" && len(h.Parents) == 1 { // a tag
			h, err = db.Header(h.Parents[0])
		}
		if err != nil || h.Tree == "" {
			delete(have, id) // a partial clone may get it later
			continue
		}
		if have[id], is = trees[h.Tree]; is {
			continue
		}
		places, err := links.behind(h.Tree)
		if err != nil {
			delete(have, id)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(places)) {
			have[id] = append(have[id], Behind{name, places[name]})
		}
		trees[h.Tree] = have[id]
	}
	t.List = nil
	for _, id := range slices.Sorted(maps.Keys(have)) {
		for _, b := range have[id] {
			if !slices.Contains(t.List, b) {
				t.List = append(t.List, b)
			}
		}
	}
	return have, nil
}
