package gitland

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

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
	read     *readBefore         // nil: not looked at
	isLink   map[string]bool     // directories of tracked files in the work trees
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
	g := &guard{lander: l, repo: r, names: map[string][]string{}, recent: map[string][]objects.Entry{}, behind: map[string][]Behind{}, verdicts: map[string]string{}, passed: map[string]bool{}, isLink: map[string]bool{}, budget: maxGuarded}
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
	for queue := []string{id}; len(queue) > 0; queue = queue[1:] {
		c, err := g.repo.look(queue[0])
		if err != nil || g.passed[c.id] || g.history().seen.has(c.id) || g.isOwn(c) {
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

// isRead reports whether the links of a commit of the host's are known.
func (g *guard) isRead(id string) bool { return g.history().whole || g.history().seen.has(id) }

// readBefore is the part of the history that the start has read.
type readBefore struct {
	seen  *idSet
	list  []Behind
	whole bool
}

func (g *guard) history() *readBefore {
	if g.read != nil {
		return g.read
	}
	g.read = &readBefore{seen: &idSet{size: g.repo.hexLen() / 2}, whole: true}
	if g.layer.State == "" {
		return g.read
	}
	t, ids, close := readHistory(historyFile(g.layer.State, g.repo.host))
	defer close()
	if t.read != nil {
		g.read = &readBefore{ids(), t.List, len(t.Todo) == 0}
		g.read.seen.size = g.repo.hexLen() / 2
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
	modules := map[string]bool{}   // submodules
	for _, old := range olds {
		list, _ := g.tree(old)
		for _, e := range list {
			switch was[e] = true; e.Mode {
			case unix.S_IFDIR:
				below[e.Name] = append(below[e.Name], e.ID)
			case index.ModeGitlink:
				modules[e.Name] = true
				fallthrough
			default:
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
		why := ""
		switch {
		case was[e]:
			continue
		case len(path) > maxCheckout:
			return fmt.Sprintf("it has a path of more than %d bytes, %q", maxCheckout, path[:maxNamed]+"..."), nil
		}
		if dirs && files[e.Name] == 0 && below[e.Name] == nil {
			why = g.trap(path, e.Mode, e.ID)
			if e.Mode == unix.S_IFDIR {
				why = cmp.Or(why, g.behindLink(path+"/"))
			}
		}
		if why != "" {
			return why, nil
		}
		if e.Mode != unix.S_IFDIR {
			why, err = g.file(path, e.Mode, e.ID, dirs && (files[e.Name] == 0 || e.Mode == index.ModeGitlink && !modules[e.Name]))
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

// maxCheckout is PATH_MAX: git cannot check out a longer path. maxNamed is how much of it is named.
const (
	maxCheckout = 4096
	maxNamed    = 100
)

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
		return g.gitlink(path, id, added, false)
	}
	if path == ".gitmodules" && g.movesModule(id) {
		return "it gives a submodule of the host's another path", nil
	}
	if name := filepath.Base(path); name == "HEAD" || name == "commondir" { // the rest of it may come later; and attributes may change what git writes
		return fmt.Sprintf("with a new %q, %q would be a git directory", path, "./"+filepath.Dir(path)), nil
	}
	if !g.protects(path) || g.shown(path, mode, id) || !added && g.hadBefore(path, mode, id) {
		return "", nil
	}
	for _, b := range g.history().list {
		if fsat.Within(path, b.Place) {
			return fmt.Sprintf("a commit of the host's has a link, %q, that leads to %q, of which it has another version", b.Name, path), nil
		}
	}
	return fmt.Sprintf("programs of the host run %q, of which it has another version", path), nil
}

// trap returns why git on the host must not write a new path into a work tree, as gitdir.List judges those that are
// there: links may lead to others of the kind.
func (g *guard) trap(path string, mode uint32, id string) string {
	switch dir, name := filepath.Split(path); {
	case gitdir.IsOption(path):
		return fmt.Sprintf("programs would take the name %q for an option", path)
	case mode == index.ModeLink && gitdir.IsWritten(name):
		_, text, err := g.repo.objects.Read(id)
		to := filepath.Join(dir, string(text))
		if err != nil || filepath.IsAbs(string(text)) || !filepath.IsLocal(to) || strings.Contains("/"+to, "/.") || !gitdir.IsWritten(filepath.Base(to)) {
			return fmt.Sprintf("git on the host would write through the link %q", path)
		}
	}
	return ""
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
//
// judged tells that HEAD has it too, with the same commit: that was judged with HEAD.
func (g *guard) gitlink(path, id string, added, judged bool) (string, error) {
	found := false
	here := map[string]bool{} // by git directory
	has := map[string]bool{}  // the git directories of work trees that have populated it
	for _, module := range Submodules(g.repo.host) {
		here[module] = !added
	}
	if g.budget -= commitCost * (1 + len(here)); g.budget < 0 {
		return tooMany, nil
	}
	for _, c := range g.layer.Checkouts {
		is := false
		for _, h := range g.tops {
			if c.WorkTree == filepath.Join(h.workTree, path) {
				is, has[h.git] = true, true
			}
		}
		if _, ok := here[c.GitDir]; ok || is {
			here[c.GitDir] = is
		}
	}
	for git, is := range here {
		if judged {
			break
		}
		rel, err := filepath.Rel(g.layer.GitDir, git)
		if err != nil {
			return "", err
		}
		r, err := g.open(rel)
		if err != nil || !r.objects.Has(id) {
			continue
		}
		if found = true; !is && len(has) == 0 {
			return fmt.Sprintf("%q would be a submodule that the host has elsewhere", path), nil
		}
		if why, err := g.guard(r).commit(id); why != "" || err != nil {
			return fmt.Sprintf("submodule %q: %s", path, why), err
		}
	}
	if len(has) > 0 && !found && !judged {
		return fmt.Sprintf("the submodule %q has no commit %s", path, short(id)), nil
	}
	if !added {
		return "", nil
	}
	for _, h := range g.tops { // git at the top enters a repository there once a commit has the gitlink
		if !has[h.git] {
			if why, err := g.newModule(g.repo, h.git, path); why != "" || err != nil {
				return why, err
			}
		}
	}
	return "", nil
}

// staged returns why the host must not get changed entries of the index, or "". If it is for some files alone, bad
// has these, sorted: the rest may land. A submodule that its HEAD has as well, with that tree, was judged with that.
func (g *guard) staged(x *indexes, head string) (why string, bad []string, err error) {
	bares, had, hadModule := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range x.old {
		had[e.Path] = true
		hadModule[e.Path] = hadModule[e.Path] || e.Mode == index.ModeGitlink
	}
	for _, e := range x.changed {
		judged := func() bool {
			of, is := g.entry(head, e.Path)
			return is && of.Mode == e.Mode && of.ID == e.ID
		}
		if !had[e.Path] {
			if why := g.behindLink(e.Path); why != "" {
				return why, nil, nil
			}
			if trap := g.trap(e.Path, e.Mode, e.ID); trap != "" && !judged() {
				why, bad = cmp.Or(why, trap), append(bad, e.Path)
				continue
			}
		}
		added := e.Mode == index.ModeGitlink && !hadModule[e.Path]
		judge := func() (string, error) { return g.file(e.Path, e.Mode, e.ID, added) }
		if e.Mode == index.ModeGitlink && !g.protects(e.Path) {
			judge = func() (string, error) { return g.gitlink(e.Path, e.ID, added, judged()) }
		}
		switch fault, err := judge(); {
		case err != nil:
			return "", nil, err
		case fault != "" && (e.Mode == index.ModeGitlink || !g.protects(e.Path)):
			return fault, nil, nil
		case fault != "":
			why, bad = cmp.Or(why, fault), append(bad, e.Path)
			continue
		}
		dir := ""
		for name := range strings.SplitSeq(e.Path, "/") {
			if bare, ok := bares[dir]; bare || !ok && g.bareAt(x, dir, bares) {
				return fmt.Sprintf("%q would be a git directory", "./"+strings.TrimSuffix(dir, "/")), nil, nil
			}
			dir += name + "/"
		}
	}
	return why, slices.Compact(bad), nil
}

// behindLink returns why a new path must not become tracked that lies behind a link of a work tree, or "". git adds none.
func (g *guard) behindLink(name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		for _, h := range g.trees {
			at := filepath.Join(h.workTree, dir)
			if _, known := g.isLink[at]; !known {
				st, err := os.Lstat(at)
				g.isLink[at] = err == nil && st.Mode()&os.ModeSymlink != 0
			}
			if g.isLink[at] {
				return fmt.Sprintf("%q is behind the link %q", name, dir)
			}
		}
	}
	return ""
}

// bareAt reports whether git on the host could make a git directory of a directory, with
// files of the index beside the present ones.
func (g *guard) bareAt(x *indexes, dir string, bares map[string]bool) bool {
	there := func(name string) bool {
		return slices.ContainsFunc(g.trees, func(h head) bool { return exists(filepath.Join(h.workTree, dir, name)) })
	}
	bares[dir] = gitdir.IsGitDir(func(name string) bool { return x.Has(dir+name) || there(name) })
	return bares[dir]
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

// clean reports whether git on the host may check out an object.
func (l *lander) clean(r *repository, id string) bool {
	why, err := l.guard(r).commit(id)
	return why == "" && err == nil
}
