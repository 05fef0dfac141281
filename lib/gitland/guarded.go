package gitland

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Checkout is a work tree of the host's.
type Checkout struct {
	GitDir   string   `json:"git_dir"`
	WorkTree string   `json:"work_tree"`
	Names    []string `json:"names,omitempty"` // protected files and directories, relative to WorkTree
	Held     []string `json:"held,omitempty"`  // those that are there, which no command can write
}

// guard keeps files that programs of the host would run away from the host's git. A command
// cannot write a protected name, such as .envrc or a hook, but git on the host would do it
// from the index, or from any commit that it checks out: of a branch, a stash, a rebase, a
// submodule.
//
// So each commit that lands there is clean: its parents are, and it has nothing at protected
// names that neither they nor the host have, and no new git directory. The commits of the
// host's own branches are clean.
type guard struct {
	*lander
	repo     *repository
	trees    []head              // the work trees of the repository; in checkedOut one of them
	tops     []head              // all of them
	names    map[string][]string // by their first part; in lower case, as some file systems ignore it
	verdicts map[string]string   // why a commit is not clean, or ""
	own      *walk               // of the host's branches
	all      bool                // own has all branches
	had      map[string]string   // versions of protected files in the history of the host's HEADs, each with its path
	settings []gitconfig.Entry   // the repository's configuration
	budget   int                 // of entries of directories that may still be read
	recent   map[string][]objects.Entry
	follow   treeLinks
	behind   map[string][]Behind // the links of trees that were read last
	passed   map[string]bool     // commits of remote branches
	read     []readBefore        // nil: not looked at
}

// maxGuarded bounds the entries of directories that are compared in one landing. A commit
// counts as commitCost of them, and a file that is read as fileCost.
const (
	maxGuarded = 3_000_000
	commitCost = 20
	fileCost   = 10_000
)

// tooMany is why a commit does not land that cannot be compared in reasonable time.
const tooMany = "it has too many new commits and files to compare"

// incomplete is why a reference does not land whose history is not all there. Git fails at each.
const incomplete = "a commit of its history is missing"

// maxHad bounds the commits of the host in which a version of a file is looked for.
const maxHad = 1000

// guard returns the guard of a repository.
func (l *lander) guard(r *repository) *guard {
	if r.guard != nil {
		return r.guard
	}
	g := &guard{lander: l, repo: r, names: map[string][]string{}, recent: map[string][]objects.Entry{}, behind: map[string][]Behind{}, verdicts: map[string]string{}, passed: map[string]bool{}, budget: maxGuarded}
	g.tops = l.heads(r)
	g.trees = g.tops
	g.follow = treeLinks{names: g.names, tree: remembering(g.tree), read: r.objects.Read}
	for _, h := range g.tops {
		g.follow.workTrees = append(g.follow.workTrees, h.workTree)
	}
	g.own = r.from(g.headIDs()...)
	for _, c := range l.layer.Checkouts {
		if l.original(c.GitDir) != l.original(r.host) {
			continue
		}
		for _, name := range c.Names {
			name = strings.ToLower(name)
			first, _, _ := strings.Cut(name, "/")
			g.names[first] = append(g.names[first], name)
		}
	}
	r.guard = g
	return g
}

// original returns the git directory of which one is that of a work tree, or of a submodule
// of a work tree: their commits go from one to the other.
func (l *lander) original(git string) string {
	rel, err := filepath.Rel(l.layer.GitDir, git)
	if err != nil {
		return git
	}
	var kept []string
	for parts := strings.Split(rel, "/"); len(parts) > 0; parts = parts[1:] {
		if parts[0] == "worktrees" && len(parts) > 1 {
			parts = parts[1:]
		} else {
			kept = append(kept, parts[0])
		}
	}
	return filepath.Join(l.layer.GitDir, filepath.Join(kept...))
}

// protects reports whether a file at a path is at a protected name, below it, or in the place
// of a directory above it.
func (g *guard) protects(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	names := g.names[strings.ToLower(first)]
	if len(names) == 0 {
		return false
	}
	path = strings.ToLower(path)
	return slices.ContainsFunc(names, func(name string) bool { return fsat.Within(path, name) || fsat.Within(name, path) })
}

// within reports whether a path is at a protected name or below it.
func (g *guard) within(path string) bool {
	first, _, _ := strings.Cut(strings.ToLower(path), "/")
	return slices.ContainsFunc(g.names[first], func(name string) bool { return fsat.Within(strings.ToLower(path), name) })
}

// commit returns why the host's git must not check out a commit, a tree, or a tag of one, or
// "". Files are harmless by themselves: git writes none without a name.
func (g *guard) commit(id string) (why string, err error) {
	if id == "" || len(g.trees) == 0 && !g.isModule() {
		return "", nil
	}
	if len(g.trees) > 0 || g.all {
		if why, err = g.judge(id); err != nil || why == "" || g.all {
			return why, err
		}
	}
	// It may be in another branch than those of the work trees.
	g.all = true
	own, err := refs.Own(g.repo.refs(g.repo.host))
	if err != nil {
		return "", err
	}
	g.repo.visit(g.own, append(own, headNow(g.repo.refs(g.repo.host))))
	clear(g.verdicts)
	return g.judge(id)
}

// judge looks at new commits, parents first. All of them must be there: the host's git may have
// dropped some since another landing.
func (g *guard) judge(id string) (why string, err error) {
	if _, err := g.repo.look(id); errors.Is(err, objects.ErrNotFound) {
		return "", nil // it lands nowhere
	}
	for stack := []string{id}; len(stack) > 0; {
		id := stack[len(stack)-1]
		if _, done := g.verdicts[id]; done {
			stack = stack[:len(stack)-1]
			continue
		}
		c, err := g.repo.look(id)
		switch {
		case errors.Is(err, objects.ErrNotFound):
			g.verdicts[id] = incomplete
			continue
		case err != nil:
			g.verdicts[id] = fmt.Sprintf("its commit %s cannot be read: %v", short(id), err)
			continue
		case g.isOwn(c) && !g.isRead(id):
			g.verdicts[id] = "the history with it has not been read whole: the next command reads on"
			continue
		case g.isOwn(c):
			g.verdicts[id] = ""
			continue
		}
		if len(g.trees) == 0 && g.all {
			g.verdicts[id] = "the submodule has no work tree"
			continue
		}
		if g.repo.ends.host[id] {
			c.up = nil // git sees no parents
		}
		why, known := "", true
		for _, up := range c.up {
			if is, ok := g.verdicts[up]; !ok {
				stack, known = append(stack, up), false
			} else if is != "" && why != incomplete {
				why = is
			}
		}
		if g.budget -= commitCost; g.budget < 0 {
			why, known = tooMany, true
		}
		if known && why == "" {
			if c.tree == id {
				why, err = g.treeAlone(id)
			} else {
				why, err = g.compare(c.tree, c.up, true)
			}
			if err != nil {
				return "", err
			}
		}
		if known {
			g.verdicts[id] = why
		}
	}
	return g.verdicts[id], nil
}

// treeAlone is compare for a tree without a commit, of which git checkout writes the files and
// removes none. It may have what a HEAD has.
func (g *guard) treeAlone(tree string) (string, error) {
	olds := g.treesOf(g.headIDs())
	return g.with(tree, olds, len(olds)+1, true)
}

// isOwn reports whether the host's branches have a commit. It misses one if clocks were wrong:
// first by a second, and when all branches are looked at, by a day.
func (g *guard) isOwn(c dated) bool {
	oldest := c.date
	if g.all {
		oldest -= clocks
	}
	return g.repo.reaches(g.own, c.id, oldest)
}

// compare returns the first file that a tree has at a protected name, and that neither the
// trees of other commits nor the host have; and with dirs, the first git directory that these
// do not have.
func (g *guard) compare(tree string, commits []string, dirs bool) (string, error) {
	if tree == "" {
		return "", nil // it is no commit
	}
	return g.with(tree, g.treesOf(commits), len(commits), dirs)
}

func (g *guard) treesOf(commits []string) (trees []string) {
	for _, id := range commits {
		if c, err := g.repo.look(id); err == nil && c.tree != "" {
			trees = append(trees, c.tree)
		}
	}
	return trees
}

// with compares a tree with those of other commits, of which there are all.
func (g *guard) with(tree string, olds []string, all int, dirs bool) (string, error) {
	if slices.Contains(olds, tree) {
		return "", nil
	}
	why, err := g.directory(tree, olds, all, "", dirs)
	if why == "" && err == nil {
		why = g.leads(tree, olds)
	}
	return why, err
}

// leads returns why a tree has a link to a place that no command was kept from, or "": git on the
// host makes the link, and a command may have left a file there. The places behind links of the
// host's history are protected names.
func (g *guard) leads(tree string, olds []string) string {
	for _, b := range g.links(tree) {
		known := func(old string) bool { return slices.Contains(g.links(old), b) }
		if !g.within(b.Place) && !slices.ContainsFunc(olds, known) {
			return fmt.Sprintf("it has a link, %q, that leads to %q, where a command may write", b.Name, b.Place)
		}
	}
	if g.budget < 0 {
		return tooMany
	}
	return ""
}

// fetched returns why the host must not get a remote branch, which may have any files, or "".
func (g *guard) fetched(id string) string {
	known := func(id string) bool {
		return len(g.histories()) > 0 && !slices.ContainsFunc(g.histories(), func(h readBefore) bool { return !h.seen.has(id) })
	}
	for queue := []string{id}; len(queue) > 0; queue = queue[1:] {
		c, err := g.repo.look(queue[0])
		if err != nil || g.passed[c.id] || known(c.id) || g.isOwn(c) {
			continue
		}
		if g.budget -= commitCost; g.budget < 0 {
			return tooMany
		}
		if why := g.leads(c.tree, g.treesOf(c.up)); why != "" && c.tree != "" {
			return why
		}
		g.passed[c.id] = true
		queue = append(queue, c.up...)
	}
	return ""
}

// maxTrees bounds the trees whose links are remembered.
const maxTrees = 64

// links lists the places in the work trees of the repository that are behind links of a tree. A
// parent is asked for once more.
func (g *guard) links(tree string) []Behind {
	list, known := g.behind[tree]
	if known {
		return list
	}
	list, _ = g.follow.behind(tree) // what cannot be read, git cannot check out
	list = slices.DeleteFunc(list, func(b Behind) bool { return filepath.IsAbs(b.Place) })
	if len(g.behind) >= maxTrees {
		clear(g.behind)
	}
	g.behind[tree] = list
	return list
}

// isRead reports whether the links of a commit of the host's are known, in each work tree.
func (g *guard) isRead(id string) bool {
	return !slices.ContainsFunc(g.histories(), func(h readBefore) bool { return !h.whole && !h.seen.has(id) })
}

// readBefore holds the commits of a history that have been read at the start, which may be all.
type readBefore struct {
	seen  *idSet
	whole bool
}

func (g *guard) histories() []readBefore {
	if g.read != nil {
		return g.read
	}
	g.read = []readBefore{}
	if g.layer.State == "" {
		return g.read
	}
	for _, h := range g.tops {
		t, ids, close := readHistory(historyFile(g.layer.State, g.repo.host, h.workTree))
		if t.read != nil {
			seen := ids()
			seen.size = g.repo.hexLen() / 2
			g.read = append(g.read, readBefore{seen, len(t.Todo) == 0})
		}
		close()
	}
	return g.read
}

// directory compares a directory with those of the same path in other commits, of which there
// are all.
func (g *guard) directory(tree string, olds []string, all int, dir string, dirs bool) (string, error) {
	if slices.Contains(olds, tree) {
		return "", nil
	}
	entries, err := g.tree(tree)
	if err != nil { // in a partial clone it may be missing
		return fmt.Sprintf("its directory %q cannot be read: %v", dir, err), nil
	}
	was := map[objects.Entry]bool{}
	below := map[string][]string{} // directories, by name
	files := map[string]int{}      // in how many of the others
	for _, old := range olds {
		list, _ := g.tree(old)
		for _, e := range list {
			if was[e] = true; e.Mode == unix.S_IFDIR {
				below[e.Name] = append(below[e.Name], e.ID)
			} else {
				files[e.Name]++
			}
		}
	}
	if g.budget < 0 {
		return tooMany, nil
	}
	if dirs && isBare(entries) {
		return fmt.Sprintf("%q would be a git directory", "./"+dir), nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name)
		if was[e] || len(path) > maxCheckout {
			continue
		}
		why := ""
		if e.Mode != unix.S_IFDIR {
			why, err = g.file(path, e.Mode, e.ID, dirs && files[e.Name] == 0)
		} else if dirs || g.protects(path) {
			why, err = g.directory(e.ID, below[e.Name], all, path, dirs)
		}
		if why != "" || err != nil {
			return why, err
		}
	}
	if dirs {
		return g.removed(entries, files, below, all, dir), nil
	}
	return "", nil
}

// removed returns why a directory must not lack a protected file that all commits have, or "".
func (g *guard) removed(entries []objects.Entry, files map[string]int, below map[string][]string, all int, dir string) string {
	lacks := func(name string, isDir bool) bool {
		return !slices.ContainsFunc(entries, func(e objects.Entry) bool { return e.Name == name && (e.Mode == unix.S_IFDIR) == isDir })
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n := files[name]
		if path := filepath.Join(dir, name); n == all && g.protects(path) && lacks(name, false) && g.present(path) {
			return fmt.Sprintf("programs of the host run %q, and it has none", path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		ids := below[name]
		path := filepath.Join(dir, name)
		if len(ids) < all || !g.protects(path) || !lacks(name, true) {
			continue
		}
		if list, err := g.tree(ids[0]); err == nil && len(path) <= maxCheckout {
			files, below := map[string]int{}, map[string][]string{}
			for _, e := range list {
				if e.Mode == unix.S_IFDIR {
					below[e.Name] = []string{e.ID}
				} else {
					files[e.Name]++
				}
			}
			if why := g.removed(nil, files, below, 1, path); why != "" { // of the first one
				return why
			}
		}
	}
	return ""
}

// present reports whether a work tree of the host's has a file.
func (g *guard) present(path string) bool {
	return slices.ContainsFunc(g.trees, func(h head) bool { return exists(filepath.Join(h.workTree, path)) })
}

// tree reads a directory.
func (g *guard) tree(id string) ([]objects.Entry, error) {
	if list := g.recent[id]; list != nil {
		return list, nil
	}
	list, err := g.repo.objects.Tree(id)
	if len(list) > largeTree {
		if len(g.recent) >= maxRecent {
			clear(g.recent)
		}
		g.recent[id] = list
	}
	g.budget -= 1 + len(list)
	return list, err
}

// A tree of more entries than largeTree is read once, if few others come between.
const (
	largeTree = 1000
	maxRecent = 4
)

// maxCheckout is PATH_MAX: git cannot check out a longer path.
const maxCheckout = 4096

// isBare reports whether git could use a directory as a git directory, as looksBare.
func isBare(entries []objects.Entry) bool {
	return gitdir.IsGitDir(func(name string) bool {
		return slices.ContainsFunc(entries, func(e objects.Entry) bool { return e.Name == name })
	})
}

// file returns why git on the host must not check out a file, a link or a submodule that is
// new at a path, or "". A protected file that a commit adds must be a work tree's own: if a
// commit also removes another file, git may take that for the old name, and a merge then
// applies changes of that file to the protected one.
func (g *guard) file(path string, mode uint32, id string, added bool) (string, error) {
	if mode == index.ModeGitlink && (!g.protects(path) || !added && !g.within(path)) {
		return g.gitlink(path, id, added)
	}
	if path == ".gitmodules" && g.movesModule(id) {
		return "it gives a submodule of the host's another path", nil
	}
	if filepath.Base(path) == "HEAD" { // the rest of it may come later; and attributes may change what git writes
		return fmt.Sprintf("with a new %q, %q would be a git directory", path, "./"+filepath.Dir(path)), nil
	}
	if !g.protects(path) || g.shown(path, mode, id) || !added && g.hadBefore(path, mode, id) {
		return "", nil
	}
	return fmt.Sprintf("programs of the host run %q, of which it has another version", path), nil
}

// movesModule reports whether a .gitmodules has, at another path, a submodule that a work tree
// of the host's has populated.
func (g *guard) movesModule(id string) bool {
	if g.budget -= fileCost; g.budget < 0 {
		return true
	}
	kind, text, err := g.repo.objects.Read(id)
	if err != nil || kind != "blob" {
		return err != nil
	}
	entries, _ := gitconfig.Parse(".gitmodules", text)
	return slices.ContainsFunc(entries, func(e gitconfig.Entry) bool {
		name, ok := strings.CutPrefix(e.Key, "submodule.")
		name, is := strings.CutSuffix(name, ".path")
		if !ok || !is {
			return false
		}
		return slices.ContainsFunc(g.layer.Checkouts, func(c Checkout) bool {
			return slices.ContainsFunc(g.tops, func(h head) bool {
				return c.GitDir == h.git+"/modules/"+name && c.WorkTree != filepath.Join(h.workTree, e.Value)
			})
		})
	})
}

// shown reports whether a work tree of the host's has a file that no command could write. A
// protected file that was missing may be a command's, as long as that runs.
func (g *guard) shown(path string, mode uint32, id string) bool {
	return slices.ContainsFunc(g.layer.Checkouts, func(c Checkout) bool {
		held := slices.ContainsFunc(c.Held, func(name string) bool { return fsat.Within(path, name) })
		return held && slices.ContainsFunc(g.trees, func(h head) bool { return h.git == c.GitDir }) && g.same(c.WorkTree, path, mode, id)
	})
}

// same reports whether git would write the content that the file of a work tree has.
func (g *guard) same(workTree, path string, mode uint32, id string) bool {
	seen, err := fsat.Kernel().Open(unix.AT_FDCWD, filepath.Join(workTree, path), unix.O_PATH|unix.O_NOFOLLOW, 0, fsat.NoLinks)
	if err != nil && mode == index.ModeLink {
		target, err := os.Readlink(filepath.Join(workTree, path))
		return err == nil && g.repo.objects.Name([]byte(target)) == id
	}
	if err != nil {
		return false
	}
	text, st, err := overlay.Read(seen, index.MaxSize)
	if err != nil || mode == index.ModeExecutable && st.Mode&0o111 == 0 || mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return g.repo.objects.Name(text) == id || g.repo.objects.Name(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))) == id
}

// hadBefore reports whether the host's index, or one of the last commits of a HEAD of the host,
// has a version of a file. Of a merge, only the first parent counts: a command can merge any
// branch without its files.
func (g *guard) hadBefore(path string, mode uint32, id string) bool {
	version := fmt.Sprintf("%o %s %s", mode, id, path)
	if g.had == nil {
		g.had = map[string]string{}
		for _, h := range g.trees {
			if x, err := readHostIndex(h.git, g.repo.hexLen()); err == nil {
				for _, e := range x.all().Changed(new(index.Index)) {
					if g.protects(e.Path) {
						g.had[fmt.Sprintf("%o %s %s", e.Mode, e.ID, e.Path)] = e.Path
					}
				}
			}
		}
	}
	if g.had[version] != "" {
		return true
	}
	for _, late := range g.headIDs() {
		for range maxHad {
			c, err := g.repo.look(late)
			if err != nil {
				break
			}
			if e, ok := g.entry(c.tree, path); ok && e.Mode == mode && e.ID == id {
				g.had[version] = path
				return true
			}
			if len(c.up) == 0 || g.repo.ends.host[late] || g.budget < 0 {
				break
			}
			late = c.up[0]
		}
	}
	return false
}

// entry returns the entry of a path in a tree.
func (g *guard) entry(tree, path string) (e objects.Entry, ok bool) {
	for name := range strings.SplitSeq(path, "/") {
		list, _ := g.tree(tree)
		if g.budget < 0 {
			return e, false
		}
		i := slices.IndexFunc(list, func(e objects.Entry) bool { return e.Name == name })
		if i < 0 {
			return e, false
		}
		e, tree = list[i], list[i].ID
	}
	return e, true
}

// isModule reports whether the repository is that of a submodule, which has a work tree as soon
// as the host populates it.
func (g *guard) isModule() bool {
	return slices.Contains(strings.Split(g.repo.rel, "/"), "modules")
}

// gitlink judges the commit of a submodule: git checks it out there with the commit of its
// superproject. Which repository that is, a command can change with .gitmodules, of which git
// reads the file. So the commit has to be clean in each that has it, and none may have it
// that the host uses elsewhere, or that a new gitlink would use. A work tree that the host has
// populated must have it.
func (g *guard) gitlink(path, id string, added bool) (string, error) {
	found, populated := false, false
	here := map[string]bool{} // by git directory
	for _, module := range Submodules(g.repo.host) {
		here[module] = !added
	}
	if g.budget -= commitCost * (1 + len(here)); g.budget < 0 {
		return tooMany, nil
	}
	for _, c := range g.layer.Checkouts {
		is := slices.ContainsFunc(g.tops, func(h head) bool { return c.WorkTree == filepath.Join(h.workTree, path) })
		if _, ok := here[c.GitDir]; ok || is {
			here[c.GitDir] = is
		}
		populated = populated || is
	}
	for git, is := range here {
		rel, err := filepath.Rel(g.layer.GitDir, git)
		if err != nil {
			return "", err
		}
		r, err := g.open(rel)
		if err != nil || !r.objects.Has(id) {
			continue
		}
		if found = true; !is && !populated {
			return fmt.Sprintf("%q would be a submodule that the host has elsewhere", path), nil
		}
		if why, err := g.guard(r).commit(id); why != "" || err != nil {
			return fmt.Sprintf("submodule %q: %s", path, why), err
		}
	}
	if populated && !found {
		return fmt.Sprintf("the submodule %q has no commit %s", path, short(id)), nil
	}
	return "", nil
}

// staged returns why the host must not get changed entries of the index, or "".
func (g *guard) staged(x *indexes) (string, error) {
	bares := map[string]bool{}
	for _, e := range x.changed {
		added := e.Mode == index.ModeGitlink && !slices.ContainsFunc(x.old, func(old index.Entry) bool { return old.Path == e.Path })
		if why, err := g.file(e.Path, e.Mode, e.ID, added); why != "" || err != nil {
			return why, err
		}
		dir := ""
		for name := range strings.SplitSeq(e.Path, "/") {
			if bare, ok := bares[dir]; bare || !ok && g.bareAt(x, dir, bares) {
				return fmt.Sprintf("%q would be a git directory", "./"+strings.TrimSuffix(dir, "/")), nil
			}
			dir += name + "/"
		}
	}
	return "", nil
}

// bareAt reports whether git on the host could make a git directory of a directory, with
// files of the index beside those that are there.
func (g *guard) bareAt(x *indexes, dir string, bares map[string]bool) bool {
	there := func(name string) bool {
		return slices.ContainsFunc(g.trees, func(h head) bool { return exists(filepath.Join(h.workTree, dir, name)) })
	}
	bares[dir] = gitdir.IsGitDir(func(name string) bool { return x.Has(dir+name) || there(name) })
	return bares[dir]
}

// head is the commit and the branch of a work tree.
type head struct {
	git, workTree string
	branch        string   // "" if HEAD is detached
	others        []string // branches to which that leads, if it is symbolic itself
	id            string
}

// heads lists the HEADs of all work trees of a repository, also outside of the roots.
func (l *lander) heads(r *repository) (list []head) {
	for _, c := range Checkouts(r.host) {
		if c.WorkTree = l.workTree(c.GitDir); c.WorkTree == "" {
			continue // it is bare
		}
		host := r.refs(c.GitDir)
		h := head{git: c.GitDir, workTree: c.WorkTree}
		h.id, h.branch, h.others = leads(host)
		list = append(list, h)
	}
	return list
}

// Checkouts lists the work trees that a git directory of the host says it has, without names
// of files. A bare repository has one with an empty WorkTree.
func Checkouts(git string) []Checkout {
	list := []Checkout{{GitDir: git, WorkTree: workTree(git)}}
	entries, _ := os.ReadDir(filepath.Join(git, "worktrees"))
	for _, e := range entries {
		dir := filepath.Join(git, "worktrees", e.Name())
		list = append(list, Checkout{GitDir: dir, WorkTree: workTree(dir)})
	}
	return list
}

// Submodules lists the git directories of submodules in one of the host's, at any depth.
func Submodules(git string) (list []string) {
	dirs := []string{filepath.Join(git, "modules")}
	worktrees, _ := filepath.Glob(filepath.Join(git, "worktrees/*/modules"))
	for dirs = append(dirs, worktrees...); len(dirs) > 0; dirs = dirs[1:] {
		entries, _ := os.ReadDir(dirs[0])
		for _, e := range entries {
			dir := filepath.Join(dirs[0], e.Name())
			switch {
			case !e.IsDir():
			case exists(filepath.Join(dir, "HEAD")):
				list = append(append(list, dir), Submodules(dir)...)
			default: // a slash in its name
				dirs = append(dirs, dir)
			}
		}
	}
	return list
}

// workTree returns the work tree of a git directory, "" if there is none.
func (l *lander) workTree(git string) string {
	for _, c := range l.layer.Checkouts {
		if c.GitDir == git {
			return c.WorkTree
		}
	}
	return workTree(git)
}

func workTree(git string) string {
	if text, err := os.ReadFile(filepath.Join(git, "gitdir")); err == nil {
		dotGit := strings.TrimSuffix(string(text), "\n")
		if !filepath.IsAbs(dotGit) {
			dotGit = filepath.Join(git, dotGit)
		}
		return filepath.Dir(dotGit)
	}
	if filepath.Base(git) == ".git" {
		return filepath.Dir(git)
	}
	return gitconfig.WorkTree(git)
}

// setAside marks the changes of references that must not land. What else may land depends on
// deletions, which do not all land themselves.
func (l *lander) setAside(r *repository, git string, changes []refs.Change) error {
	stays := map[string]bool{} // references that are not deleted
	for {
		before := len(stays)
		for i := range changes {
			changes[i].Aside = ""
		}
		if err := l.tryAside(r, git, changes, stays); err != nil {
			return err
		}
		for _, c := range changes {
			if c.Aside != "" && c.New+c.Target == "" {
				stays[c.Name] = true
			}
		}
		if len(stays) == before {
			return nil
		}
	}
}

// tryAside is setAside if the host keeps some references that the command has deleted.
func (l *lander) tryAside(r *repository, git string, changes []refs.Change, stays map[string]bool) (err error) {
	g := l.guard(r)
	hiding, err := g.hiding(r.refs(git), changes, stays)
	if err != nil {
		return err
	}
	succeeding, err := g.succeeding(r.refs(git), changes)
	if err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		switch {
		case hiding[c.Name]:
			c.Aside = "git would take its name for another commit's"
		case succeeding[c.Name] || g.remoteOf(c.Name) == "":
			c.Aside, err = g.commit(c.New)
		case c.New != "":
			c.Aside = g.fetched(c.New)
		}
		if branch := ""; c.Aside == "" && err == nil {
			if branch, err = g.losesTo(r.refs(git), *c); branch != "" {
				c.Aside = fmt.Sprintf("git rebase would drop commits from %q, which has it as upstream", branch)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := g.succeeded(r.refs(git), changes); err != nil {
		return err
	}
	heads := map[string]string{} // commits of the HEADs then, by git directory
	for _, h := range g.trees {
		if h.git != git { // it may have landed meanwhile
			h.id, h.branch, h.others = leads(r.refs(h.git))
		}
		heads[h.git] = h.id
		left := false // HEAD leaves its branch
		for _, name := range append([]string{"HEAD", h.branch}, h.others...) {
			i := slices.IndexFunc(changes, func(c refs.Change) bool { return c.Name == name })
			if i < 0 || changes[i].Aside != "" || name == "HEAD" && h.git != git {
				continue
			}
			c := &changes[i]
			ids := []string{c.New}
			if c.Target != "" {
				if ids, err = l.valuesThen(r, git, c.Target, changes, stays); err != nil {
					return err
				}
			}
			id := ids[0]
			switch {
			case name == "HEAD" && c.Target != "" && c.Target != h.branch && g.usedElsewhere(c.Target, git) != "":
				c.Aside = fmt.Sprintf("%q has checked out %q", g.usedElsewhere(c.Target, git), c.Target)
			case id == "" && name == "HEAD" && slices.ContainsFunc(changes, func(b refs.Change) bool { return b.Name == c.Target && b.New != "" }):
				c.Aside = fmt.Sprintf("%q does not land", c.Target)
			case id == "" && name == "HEAD":
			case id == "" && !left:
				c.Aside = fmt.Sprintf("%q has checked it out", h.workTree)
			case id == "":
				continue
			default:
				for i := 0; i < len(ids) && c.Aside == "" && err == nil; i++ {
					c.Aside, err = g.checkedOut(h, ids[i])
				}
			}
			// landGit asks about those of the command itself.
			if c.Aside == "" && err == nil && (h.git != git || !slices.Contains(l.layer.GitDirs, git)) {
				if op := l.cannotGoOn(r, h.git, nil, id); op != "" {
					c.Aside = fmt.Sprintf("the work under way in %q (%s) could not go on there", h.workTree, op)
				}
			}
			if err != nil {
				return err
			}
			if c.Aside == "" && !c.Moved {
				left = name == "HEAD" && c.Target != h.branch
				heads[h.git] = id
			}
		}
	}
	for _, h := range g.tops {
		branches := returns(h.git)
		for i := range changes {
			if c := &changes[i]; c.Aside == "" && c.New+c.Target == "" && slices.Contains(branches, c.Name) {
				c.Aside = fmt.Sprintf("the work under way in %q returns to it", h.workTree)
			}
		}
	}
	for i := range changes {
		switch c := &changes[i]; {
		case c.Aside != "":
		case c.Name == "refs/stash":
			c.Aside, err = g.stashed(c, heads)
		case strings.HasPrefix(c.Name, "refs/bisect/"):
			bad, _, _ := refs.Value(r.refs(git), "refs/bisect/bad")
			if c.New != "" && !r.isAncestor(c.New, bad, g.before(git).id, heads[git]) {
				c.Aside = "HEAD does not have it in its history"
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// valuesThen returns the commit that a branch has after the landing, or "". If the host has moved
// the branch, it may be the command's or the host's.
func (l *lander) valuesThen(r *repository, git, branch string, changes []refs.Change, stays map[string]bool) (ids []string, err error) {
	for _, c := range changes {
		if c.Name == branch && c.Aside == "" && !stays[branch] {
			if ids = append(ids, c.New); !c.Moved {
				return ids, nil
			}
		}
	}
	id, _, err := refs.Value(r.refs(git), branch)
	return append(ids, id), err
}

// usedElsewhere returns the work tree of another git directory that has checked out a branch, or
// returns to it; or "". Git checks out no branch twice: a commit in one work tree would look like
// changes in the other.
func (g *guard) usedElsewhere(branch, git string) string {
	for _, h := range g.tops {
		if h.git == git || !exists(h.workTree) { // git worktree prune forgets one that is gone
			continue
		}
		_, at, others := leads(g.repo.refs(h.git)) // it may have landed meanwhile
		if slices.Contains(append(append(others, returns(h.git)...), at), branch) {
			return h.workTree
		}
	}
	return ""
}

// stashed returns why a stash must not land, or "". Commits of the host's own stash are known.
func (g *guard) stashed(c *refs.Change, heads map[string]string) (string, error) {
	own, err := refs.Stashes(g.repo.refs(g.repo.host))
	if err != nil {
		return "", err
	}
	for _, e := range append(slices.Clone(c.Log), refs.LogEntry{New: c.New}) {
		if e.New == "" || slices.Contains(own, e.New) {
			continue
		}
		if why, err := g.commit(e.New); why != "" || err != nil {
			return why, err
		}
		may, others := false, true
		for git, head := range heads {
			if slices.Contains(g.layer.GitDirs, git) && g.mayPick(e.New, 2, false, head) { // the third parent has untracked files
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

// describes is the end of a name that git-describe(1) prints.
var describes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`-g[0-9a-f]{4,}$`) })

// mayBeShort reports whether git could take a name for the beginning of an ID, some day. One of
// digits alone may be a date.
func mayBeShort(name string) bool {
	hexadecimal := strings.Trim(name, "0123456789abcdef") == "" && strings.ContainsAny(name, "abcdef")
	return len(name) >= 7 && hexadecimal || describes().MatchString(name)
}

// shortNames are the names without refs/ by which users, and git, call a reference.
func shortNames(ref string) (names []string) {
	parts := strings.SplitN(ref, "/", 3)
	switch {
	case len(parts) < 3 || parts[0] != "refs":
	case parts[1] == "tags" || parts[1] == "heads":
		names = []string{parts[2]}
	case parts[1] == "remotes":
		names = []string{parts[2]}
		if name, is := strings.CutSuffix(parts[2], "/HEAD"); is {
			names = append(names, name)
		}
	default:
		names = []string{parts[1] + "/" + parts[2]}
	}
	return names
}

// meanings lists the references for which git takes a name. It uses the first that exists
// (gitrevisions(7)).
func meanings(name string) []string {
	list := []string{"refs/" + name, "refs/tags/" + name, "refs/heads/" + name, "refs/remotes/" + name, "refs/remotes/" + name + "/HEAD"}
	if strings.HasPrefix(name, "refs/") {
		list = append(list, name)
	}
	return list
}

// pseudo is a name of files in a git directory, such as ORIG_HEAD: a reference has their
// meaning as long as they are not there.
func pseudo(name string) bool {
	return strings.HasSuffix(name, "HEAD") && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

// hiding lists the new references whose short names git takes for another thing that the host
// has, or this command makes: a commit or another reference. Those of stays are not
// deleted. A fetch of the host's may make a remote branch of any name.
func (g *guard) hiding(host refs.Host, changes []refs.Change, stays map[string]bool) (map[string]bool, error) {
	hiding := map[string]bool{}
	others := map[string][]string{} // new references, by those of the same short name
	made, gone := map[string]bool{}, map[string]bool{}
	for _, c := range changes {
		made[c.Name] = c.New+c.Target != ""
		gone[c.Name] = !made[c.Name] && !stays[c.Name] && !c.Moved && g.remoteOf(c.Name) == ""
		if !made[c.Name] || c.Old+c.OldTarget != "" || c.Name == "refs/stash" {
			continue
		}
		for _, name := range shortNames(c.Name) {
			lower := strings.ToLower(name)
			if pseudo(name) || mayBeShort(lower) || len(name) >= 4 && len(name) < g.repo.hexLen() && len(g.repo.objects.Begin(lower)) > 0 {
				hiding[c.Name] = true
			}
			for _, other := range meanings(name) {
				if other != c.Name {
					others[other] = append(others[other], c.Name)
				}
			}
			if !strings.HasPrefix(c.Name, "refs/remotes/") && g.remoteOf("refs/remotes/"+name) != "" {
				hiding[c.Name] = true
			}
		}
	}
	has, err := refs.Has(host, slices.Collect(maps.Keys(others))...)
	for other, names := range others {
		for _, name := range names {
			hiding[name] = hiding[name] || has[other] && !gone[other] || made[other]
		}
	}
	return hiding, err
}

// succeeding lists the remote branches to which a user may come by the name of a branch
// that is gone: git makes a branch that is missing from a remote branch of its name. Which part
// of a reference is the name depends on the remotes, which may change.
func (g *guard) succeeding(host refs.Host, changes []refs.Change) (map[string]bool, error) {
	branches := map[string][]string{} // of these names, by reference
	var asked []string
	gone := map[string]bool{}
	for _, c := range changes {
		gone[c.Name] = c.New+c.Target == ""
		rest, is := strings.CutPrefix(c.Name, "refs/remotes/")
		if !is || gone[c.Name] {
			continue
		}
		for is {
			branches[c.Name] = append(branches[c.Name], "refs/heads/"+rest)
			asked = append(append(asked, "refs/heads/"+rest), trashed(rest)...)
			_, rest, is = strings.Cut(rest, "/")
		}
	}
	if len(branches) == 0 {
		return nil, nil
	}
	known := map[string]bool{}
	for _, h := range g.tops {
		switched, err := refs.Switched(g.repo.refs(h.git))
		if err != nil {
			return nil, err
		}
		for name := range switched {
			known["refs/heads/"+name] = true
		}
		for _, branch := range returns(h.git) {
			known[branch] = true
		}
	}
	has, err := refs.Has(host, asked...)
	list := map[string]bool{}
	for _, c := range changes {
		for _, branch := range branches[c.Name] {
			was := known[branch] || slices.ContainsFunc(trashed(strings.TrimPrefix(branch, "refs/heads/")), func(trash string) bool { return has[trash] })
			list[c.Name] = list[c.Name] || gone[branch] || !has[branch] && was
		}
	}
	return list, err
}

// succeeded sets aside the deletions of branches for which git checkout would take a remote
// branch of the same name that is not clean. It has landed since the branch was there.
func (g *guard) succeeded(host refs.Host, changes []refs.Change) error {
	var names []string
	for _, c := range changes {
		if name, is := strings.CutPrefix(c.Name, "refs/heads/"); is && c.New+c.Target == "" && c.Aside == "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	remotes, err := refs.RemotesNamed(host, names)
	if err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		if name, is := strings.CutPrefix(c.Name, "refs/heads/"); is && c.New+c.Target == "" && c.Aside == "" {
			for _, remote := range remotes[name] {
				why, err := g.commit(remote.ID)
				if err != nil {
					return err
				}
				if why != "" {
					c.Aside = fmt.Sprintf("git checkout would make it again from %q: %s", remote.Name, why)
				}
			}
		}
	}
	return nil
}

// trashed lists the references that pk keeps of a branch that a command has deleted.
func trashed(branch string) []string {
	return []string{"refs/pk/trash/heads/" + branch, "refs/pk/trash/heads-" + strings.ReplaceAll(branch, "/", "-")}
}

// remoteOf returns the remote of the host's to which a reference belongs, or "". Remote branches
// may lead to any commit: they are the work of others, and a user knows that by the name.
func (g *guard) remoteOf(ref string) (remote string) {
	for _, name := range g.ownRemotes() {
		if strings.HasPrefix(ref, "refs/remotes/"+name+"/") && len(name) > len(remote) {
			remote = name
		}
	}
	return remote
}

// ownRemotes lists the remotes of the host's configuration.
func (g *guard) ownRemotes() (remotes []string) {
	for _, e := range g.config() {
		name, is := strings.CutPrefix(e.Key, "remote.")
		if i := strings.LastIndexByte(name, '.'); is && i > 0 && !slices.Contains(remotes, name[:i]) {
			remotes = append(remotes, name[:i])
		}
	}
	return remotes
}

// config is the host's configuration of the repository.
func (g *guard) config() []gitconfig.Entry {
	if g.settings == nil {
		text, _ := os.ReadFile(filepath.Join(g.repo.host, "config"))
		entries, _ := gitconfig.Parse("config", text)
		g.settings = append([]gitconfig.Entry{}, entries...)
	}
	return g.settings
}

// losesTo returns a branch from which git rebase would drop a commit that its upstream, a branch
// of the host's, has had and loses by a change; or "".
func (g *guard) losesTo(host refs.Host, c refs.Change) (string, error) {
	if !strings.HasPrefix(c.Name, "refs/heads/") || c.Old == "" || c.New == "" {
		return "", nil
	}
	for _, e := range g.config() {
		name, is := strings.CutPrefix(strings.TrimSuffix(e.Key, ".merge"), "branch.")
		if !is || !strings.HasSuffix(e.Key, ".merge") || e.Value != c.Name {
			continue
		}
		id, _, err := refs.Value(host, "refs/heads/"+name)
		if err != nil || id != "" && "refs/heads/"+name != c.Name && !g.repo.isAncestor(c.Old, c.New) && g.repo.isAncestor(c.Old, id) {
			return name, err
		}
	}
	return "", nil
}

// returns lists the branches to which git goes back after a rebase or a bisect that is under
// way in a git directory of the host's.
func returns(git string) (branches []string) {
	for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
		text, _, _ := overlay.ReadFile(unix.AT_FDCWD, filepath.Join(git, name), 0, maxCheckout)
		if branch := strings.TrimSpace(string(text)); branch != "" {
			branches = append(branches, "refs/heads/"+strings.TrimPrefix(branch, "refs/heads/"))
		}
	}
	return branches
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
	return err == nil && failed == nil && !g.lacksIn(one.tree, other.tree, "") && !g.movesDir(c.up[0], stash, head)
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

// checkedOut returns why a work tree must not get a commit of the host's, or "": the
// user may have fetched it.
func (g *guard) checkedOut(h head, id string) (string, error) {
	if id == "" || id == h.id {
		return "", nil
	}
	c, err := g.repo.look(id)
	if err != nil {
		return "", nil // it does not land
	}
	all, had := g.trees, g.had
	g.trees, g.had = []head{h}, nil // another work tree may have another branch, with its files
	defer func() { g.trees, g.had = all, had }()
	return g.compare(c.tree, []string{h.id}, false)
}

func (g *guard) headIDs() (ids []string) {
	for _, h := range g.trees {
		ids = append(ids, h.id)
	}
	return ids
}

// mayPick reports whether git on the host may apply the changes of a commit from one of its
// first parents to a HEAD, or take them back. That it is clean is not enough: where the HEAD
// has a protected file that the parent has not, git takes it for another file of the parent
// that was renamed, if their contents are alike, and changes it as the commit changes the
// other. And if one side has moved all of a directory, git moves new files of the other side
// there, too. Since others may follow, no commit removes a directory.
func (g *guard) mayPick(id string, parents int, back bool, head string) bool {
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
		return !g.alike(up, head) || g.movesDir(from, to, head) || g.removesDir(from, to)
	})
}

// movesDir reports whether git may find, from a base on, that one of two commits has moved a
// directory in which the other has changed something.
func (g *guard) movesDir(base, a, b string) bool {
	var trees [3]string
	for i, id := range []string{base, a, b} {
		c, err := g.repo.look(id)
		if err != nil {
			return true
		}
		trees[i] = c.tree
	}
	return g.movesIn(trees[0], trees[1], trees[2], 0)
}

// removesDir reports whether a commit lacks a directory that another has.
func (g *guard) removesDir(base, id string) bool {
	one, err := g.repo.look(base)
	other, failed := g.repo.look(id)
	return err != nil || failed != nil || g.removesIn(one.tree, other.tree, 0)
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

// clean reports whether git on the host may check out an object.
func (l *lander) clean(r *repository, id string) bool {
	why, err := l.guard(r).commit(id)
	return why == "" && err == nil
}
