package gitland

import (
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
)

// stashed returns why a stash must not land, or "". Commits of the host's own stash are known.
func (g *guard) stashed(c *refs.Change, heads map[string]string) (string, error) {
	own, err := refs.Stashes(g.repo.refs(g.repo.host))
	if err != nil {
		return "", err
	}
	carries := sync.OnceValue(func() bool {
		for git, head := range heads {
			if slices.Contains(g.layer.GitDirs, git) && g.hostCarries(git, head) {
				return true
			}
		}
		return false
	})
	for _, e := range append(slices.Clone(c.Log), refs.LogEntry{New: c.New}) {
		if e.New == "" || slices.Contains(own, e.New) {
			continue
		}
		if why, err := g.commit(e.New); why != "" || err != nil {
			return why, err
		}
		if len(g.names) == 0 {
			continue // nothing is protected
		}
		if carries() {
			return carried, nil
		}
		may, others := false, true
		for git, head := range heads {
			if slices.Contains(g.layer.GitDirs, git) && g.mayPick(e.New, 2, false, head, g.mayCarry) { // the third parent has untracked files
				may = true
			} else {
				others = others && g.lacksNone(e.New, head)
			}
		}
		if !may || !others {
			return "programs of the host run files, of which it or the commit before has other versions; or one side has moved a directory", nil
		}
	}
	return "", nil
}

// carriesInto reports whether git may carry a change over to a protected name when it applies a stash or a pick to an
// index: it may take a new file at such a name for a removed one, renamed, and a new directory for a moved one.
func (g *guard) carriesInto(x *index.Index, head string) bool {
	files, dirs, m := map[string]bool{}, map[string]bool{".": true}, moves{map[string]bool{}, map[string]bool{}}
	for file := range x.Paths {
		files[file] = true
		for dir := filepath.Dir(file); !dirs[dir]; dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	has, lost := map[string]bool{}, false
	if !g.each(g.treeOf(head), "", func(file string, isDir bool) {
		switch {
		case isDir:
			if !dirs[file] {
				m.gone[file] = true
			}
		default:
			has[file], lost = true, lost || !files[file]
		}
	}) {
		return true
	}
	for file := range files {
		if !has[file] && lost && g.protects(file) {
			return true
		}
		if !has[file] {
			m.filled[filepath.Dir(file)] = true
		}
	}
	return len(m.gone)*len(m.filled) > maxMoves || g.moved(m, nil)
}

// each calls fn for all that a tree has, and reports whether it could.
func (g *guard) each(tree, dir string, fn func(path string, isDir bool)) bool {
	if tree == "" {
		return true
	}
	list, err := g.tree(tree)
	if err != nil || g.budget < 0 || len(dir) > maxCheckout {
		return false
	}
	for _, e := range list {
		file := filepath.Join(dir, e.Name)
		fn(file, e.Mode == unix.S_IFDIR)
		if e.Mode == unix.S_IFDIR && !g.each(e.ID, file, fn) {
			return false
		}
	}
	return true
}

// hostCarries is carriesInto for the host's index.
func (g *guard) hostCarries(git, head string) bool {
	if len(g.names) == 0 {
		return false
	}
	h, err := readHostIndex(git, g.repo.hexLen())
	if err != nil || h.text == nil {
		return err != nil
	}
	x, err := parseWhole(h.text, git, g.repo.hexLen(), g.repo.objects)
	return err != nil || g.carriesInto(x, head)
}

// lacksNone reports whether the parent of a stash has each protected file of a HEAD: git takes
// a file that is new to it for another one, renamed.
func (g *guard) lacksNone(stash, head string) bool {
	c, err := g.repo.look(stash)
	if err != nil || len(c.up) == 0 {
		return false
	}
	one, err := g.repo.look(head)
	other, failed := g.repo.look(c.up[0])
	return err == nil && failed == nil && !g.lacksIn(one.tree, other.tree, "") && !g.mayCarry(c.up[0], stash, head)
}

// lacksIn reports whether a directory has a protected file that another one has not; "" has none.
func (g *guard) lacksIn(tree, other, dir string) bool {
	if tree == other {
		return false
	}
	list, err := g.tree(tree)
	var others []objects.Entry
	if err == nil && other != "" {
		others, err = g.tree(other)
	}
	if err != nil || g.budget < 0 || len(dir) > maxCheckout {
		return true
	}
	return slices.ContainsFunc(list, func(e objects.Entry) bool {
		path := filepath.Join(dir, e.Name)
		if !g.protects(path) {
			return false
		}
		i := slices.IndexFunc(others, func(o objects.Entry) bool {
			return o.Name == e.Name && (o.Mode == unix.S_IFDIR) == (e.Mode == unix.S_IFDIR)
		})
		if e.Mode != unix.S_IFDIR {
			return i < 0
		}
		below := ""
		if i >= 0 {
			below = others[i].ID
		}
		return g.lacksIn(e.ID, below, path)
	})
}

// mayPick reports whether git on the host may apply the changes of a commit from one of its
// first parents to a HEAD, or take them back. That it is clean is not enough: where the HEAD
// has a protected file that the parent has not, git takes it for another file of the parent
// that was renamed, if their contents are alike, and changes it as the commit changes the
// other. And if one side has moved all of a directory, git moves new files of the other side
// there, too: moves reports whether it may do that.
func (g *guard) mayPick(id string, parents int, back bool, head string, moves func(base, id, head string) bool) bool {
	if why, err := g.commit(id); why != "" || err != nil {
		return false
	}
	c, err := g.repo.look(id)
	if err != nil || !g.alike(id, head) {
		return false
	}
	return !slices.ContainsFunc(c.up[:min(len(c.up), parents)], func(up string) bool {
		from, to := up, id
		if back {
			from, to = id, up
		}
		return !g.alike(up, head) || moves(from, to, head)
	})
}

// movesDir is for a commit with others to follow, which may complete a move: it reports whether the commit removes
// a directory, or one of it and HEAD has moved a directory with changes of the other.
func (g *guard) movesDir(base, id, head string) bool {
	var trees [3]string
	for i, id := range []string{base, id, head} {
		c, err := g.repo.look(id)
		if err != nil {
			return true
		}
		trees[i] = c.tree
	}
	return g.movesIn(trees[0], trees[1], trees[2], 0) || g.removesIn(trees[0], trees[1], 0)
}

func (g *guard) removesIn(base, tree string, depth int) bool {
	if base == tree {
		return false
	}
	was, now := g.dirs(base), g.dirs(tree)
	if g.budget < 0 || depth > maxCheckout/2 {
		return true
	}
	for name, id := range was {
		if now[name] == "" || g.removesIn(id, now[name], depth+1) {
			return true
		}
	}
	return false
}

// maxMoves bounds how many pairs of directories are looked at.
const maxMoves = 100_000

// mayCarry is for a stash. It reports whether git, when it applies the stash to a HEAD or to a later one, may
// carry a new file of one to a protected name, since the other has moved its directory there.
func (g *guard) mayCarry(base, stash, head string) bool {
	one, ok := g.moves(base, stash)
	other, known := g.moves(base, head)
	return !ok || !known || g.moved(one, nil) || g.moved(other, one.filled)
}

// moves are the directories that a commit has no more, and those in which it has a new file.
type moves struct{ gone, filled map[string]bool }

// moved reports whether git may find that a directory has moved to a place that has protected names. The other
// side has new files in some directories; nil stands for all. Git takes a common end of both paths for unmoved.
func (g *guard) moved(m moves, filled map[string]bool) bool {
	for from := range m.gone {
		for to := range m.filled {
			for from != "." && to != "." && filepath.Base(from) == filepath.Base(to) {
				from, to = filepath.Dir(from), filepath.Dir(to)
			}
			if to != "." && !g.protects(to) {
				continue
			}
			if filled == nil || from == "." {
				return true
			}
			for dir := range filled {
				if fsat.Within(dir, from) {
					return true
				}
			}
		}
	}
	return false
}

// moves compares a commit with a base. It reports whether it could.
func (g *guard) moves(base, id string) (m moves, ok bool) {
	one, err := g.repo.look(base)
	other, failed := g.repo.look(id)
	m = moves{map[string]bool{}, map[string]bool{}}
	ok = err == nil && failed == nil && g.movesBelow(one.tree, other.tree, ".", m)
	return m, ok && len(m.gone)*len(m.filled) <= maxMoves
}

func (g *guard) movesBelow(base, tree, dir string, m moves) bool {
	if base == tree {
		return true
	}
	files, below := map[string]bool{}, map[string][2]string{}
	for i, id := range []string{base, tree} {
		if id == "" {
			continue
		}
		list, err := g.tree(id)
		if err != nil || g.budget < 0 || len(dir) > maxCheckout {
			return false
		}
		for _, e := range list {
			switch ids := below[e.Name]; {
			case e.Mode == unix.S_IFDIR:
				ids[i] = e.ID
				below[e.Name] = ids
			case i == 0:
				files[e.Name] = true
			case !files[e.Name]:
				m.filled[dir] = true
			}
		}
	}
	for name, ids := range below {
		file := filepath.Join(dir, name)
		if ids[1] == "" {
			m.gone[file] = true
		}
		if !g.movesBelow(ids[0], ids[1], file, m) {
			return false
		}
	}
	return true
}

// dirs returns the directories in a directory.
func (g *guard) dirs(tree string) map[string]string {
	list, err := g.tree(tree)
	if err != nil {
		g.budget = -1
	}
	dirs := map[string]string{}
	for _, e := range list {
		if e.Mode == unix.S_IFDIR {
			dirs[e.Name] = e.ID
		}
	}
	return dirs
}

func (g *guard) movesIn(base, a, b string, depth int) bool {
	if base == a || base == b || a == b {
		return false
	}
	was, one, other := g.dirs(base), g.dirs(a), g.dirs(b)
	if g.budget < 0 || depth > maxCheckout/2 {
		return true
	}
	for name, id := range was {
		switch x, y := one[name], other[name]; {
		case x == "" && y == "":
		case x == "" && y != id, y == "" && x != id:
			return true
		case x != "" && y != "" && g.movesIn(id, x, y, depth+1):
			return true
		}
	}
	return false
}

// alike reports whether two commits have the same at all protected names.
func (g *guard) alike(a, b string) bool {
	one, err := g.repo.look(a)
	other, failed := g.repo.look(b)
	return err == nil && failed == nil && g.alikeIn(one.tree, other.tree, "")
}

func (g *guard) alikeIn(a, b, dir string) bool {
	if a == b {
		return true
	}
	one, err := g.tree(a)
	other, failed := g.tree(b)
	if err != nil || failed != nil || g.budget < 0 || len(dir) > maxCheckout {
		return false
	}
	differ := func(list, others []objects.Entry) bool {
		return slices.ContainsFunc(list, func(e objects.Entry) bool {
			path := filepath.Join(dir, e.Name)
			if !g.protects(path) || slices.Contains(others, e) {
				return false
			}
			i := slices.IndexFunc(others, func(o objects.Entry) bool { return o.Name == e.Name && o.Mode == e.Mode })
			switch {
			case e.Mode != unix.S_IFDIR:
				return true
			case i < 0:
				return g.lacksIn(e.ID, "", path)
			}
			return !g.alikeIn(e.ID, others[i].ID, path)
		})
	}
	return !differ(one, other) && !differ(other, one)
}
