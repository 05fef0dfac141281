package fence

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitland"
	"pikuri/lib/hostrun"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/overlay"
	"pikuri/lib/quarantine"
	"pikuri/lib/session"
)

// git finds the git directories of the writable roots, and lists the files in these that
// decide which repository git uses, and which programs it runs.
func (f *Fence) git(roots []string) ([]bwrap.Protected, error) {
	cannot := func(err error) error {
		return &bwrap.Refusal{Reason: fmt.Sprintf("cannot protect what git runs: %v", err), Advice: "make the configuration readable"}
	}
	var list []bwrap.Protected
	var trees []string
	found := map[string][]gitdir.Repo{}
	for _, root := range roots {
		for _, tree := range append([]string{root}, f.mountsBelow(root)...) {
			repos, err := f.gitIn(tree)
			if err != nil {
				return nil, err
			}
			trees, found[tree] = append(trees, tree), repos
		}
	}
	names, err := gitconfig.NewNames(confine.WritablePaths(f.Roots), f.table, os.LookupEnv)
	if err != nil {
		return nil, cannot(err)
	}
	for _, tree := range trees {
		for _, r := range found[tree] {
			if r.File || r.Link {
				list = append(list, bwrap.Protected{Path: r.DotGit, Rule: gitRule + "it decides which repository this is", Default: true})
			}
		}
		if err := nameFiles(names, tree, found[tree]); err != nil {
			return nil, cannot(err)
		}
	}
	for _, n := range names.Named {
		list = append(list, bwrap.Protected{Path: n.Path, Rule: gitRule + n.Why, Default: true, Link: n.Link, File: n.File, Way: n.Way, Tracked: n.Tracked})
	}
	for _, h := range names.Hooks {
		list = append(list, hostrun.Hooked(h.WorkTree, h.Dir)...)
	}
	f.wholeIndex, f.linked, f.unknown = names.Partial, names.Linked, names.Unknown
	if err := f.nameOutside(found); err != nil {
		return nil, cannot(err)
	}
	return list, nil
}

// nameOutside notes the work trees outside of the roots of the repositories found in them, and
// of their submodules, with the files that git runs there. No command can write there, but git on the
// host would, from a commit.
func (f *Fence) nameOutside(found map[string][]gitdir.Repo) error {
	common := map[string]string{} // by git directory
	var outside []gitland.Checkout
	var dirs []string
	for _, repos := range found {
		for _, r := range repos {
			if r.GitDir == "" {
				continue
			}
			for _, git := range append(gitland.Submodules(r.CommonDir), r.CommonDir) {
				for _, c := range gitland.Checkouts(git) {
					tree, err := filepath.EvalSymlinks(c.WorkTree)
					if c.WorkTree == "" || err != nil || common[c.GitDir] != "" || slices.ContainsFunc(f.checkouts, func(o gitland.Checkout) bool { return o.GitDir == c.GitDir || o.WorkTree == tree }) {
						continue
					}
					common[c.GitDir], c.WorkTree = git, tree
					outside, dirs = append(outside, c), append(dirs, tree)
				}
			}
		}
	}
	if len(outside) == 0 {
		return nil
	}
	f.checkouts = append(f.checkouts, outside...)
	for _, c := range outside {
		f.branches = append(f.branches, gitland.Checkout{GitDir: common[c.GitDir], WorkTree: c.WorkTree})
	}
	names, err := gitconfig.NewNames(dirs, f.table, os.LookupEnv)
	if err != nil {
		return err
	}
	for tree, repos := range found {
		if err := nameFiles(names, tree, repos); err != nil {
			return err
		}
	}
	for _, c := range outside {
		if err := names.Elsewhere(c.WorkTree, c.GitDir, common[c.GitDir]); err != nil {
			return err
		}
	}
	f.outside = append(f.outside, names.Named...)
	return nil
}

// behindLinks lists the places behind links that commits of the host's have at protected names:
// the host may check them out, in any of their work trees.
func (f *Fence) behindLinks(list []bwrap.Protected) (more []bwrap.Protected, err error) {
	names, trees := map[string][]string{}, map[string][]string{} // by git directory
	paths := held(f.outside)
	for _, p := range list {
		if !p.Way {
			paths = append(paths, p.Path)
		}
	}
	for _, b := range f.branches {
		if slices.Contains(trees[b.GitDir], b.WorkTree) {
			continue
		}
		trees[b.GitDir] = append(trees[b.GitDir], b.WorkTree)
		all := paths
		within := func(root string) bool { return fsat.Within(b.WorkTree, root) }
		isNamed := func(path string) bool { return fsat.Within(path, b.WorkTree) } // by nameOutside
		if !slices.ContainsFunc(confine.WritablePaths(f.Roots), within) && !slices.ContainsFunc(f.outside, func(n gitconfig.Named) bool { return isNamed(n.Path) }) {
			named, err := gitconfig.NewNames([]string{b.WorkTree}, f.table, os.LookupEnv)
			if err == nil {
				err = named.Elsewhere(b.WorkTree, b.GitDir, b.GitDir)
			}
			if err != nil {
				return nil, err
			}
			all = slices.Concat(paths, held(named.Named))
		}
		for _, path := range all {
			if name, is := strings.CutPrefix(path, b.WorkTree+"/"); is && !slices.Contains(names[b.GitDir], name) {
				names[b.GitDir] = append(names[b.GitDir], name)
			}
		}
	}
	known := map[bwrap.Protected]bool{}
	for _, common := range slices.Sorted(maps.Keys(trees)) {
		slices.Sort(trees[common])
		links, save := gitland.LinksOfHistory(f.gitState(), common, trees[common], names[common])
		f.saves = append(f.saves, save)
		for _, tree := range trees[common] {
			for _, p := range f.placesBehind(tree, links) {
				if !known[p] {
					known[p], more = true, append(more, p)
				}
			}
		}
	}
	return more, nil
}

// placesBehind lists places behind links as they are for a work tree.
func (f *Fence) placesBehind(workTree string, links []gitland.Behind) (more []bwrap.Protected) {
	for _, link := range links {
		p := bwrap.Protected{Rule: fmt.Sprintf("%sa link of a commit leads there from %q", gitRule, link.Name), Default: true}
		if p.Path = filepath.Join(workTree, link.Place); filepath.IsAbs(link.Place) {
			trail, _ := confine.Follow(link.Place) // an error ends the way
			for _, l := range trail.Links {
				more = append(more, bwrap.Protected{Path: l.Place, Rule: p.Rule, Default: true, Link: true})
			}
			p.Path = trail.Place
		}
		in := func(dir string) bool { return fsat.Within(p.Path, dir) }
		holds := func(dir string) bool { return fsat.Within(dir, p.Path) } // all of it stays writable
		if !slices.ContainsFunc(f.gitDirs, in) && !holds(workTree) && !slices.ContainsFunc(confine.WritablePaths(f.Roots), holds) {
			more = append(more, p)
		}
	}
	return more
}

// held lists the paths that commands cannot write, also behind links of commits.
func held(names []gitconfig.Named) (paths []string) {
	for _, n := range names {
		if !n.Way {
			paths = append(paths, n.Path)
		}
	}
	return paths
}

// nameProtected notes the protected names of each work tree, with those of work trees in it
// and the places to which links lead.
func (f *Fence) nameProtected(list []bwrap.Protected) {
	paths := map[string]bool{} // by whether they are mounted
	for _, n := range f.outside {
		if !n.Way || n.Tracked {
			paths[n.Path] = false
		}
	}
	for _, p := range list {
		if !p.Way || p.Tracked {
			paths[p.Path] = false
		}
	}
	for _, w := range f.Plan.Watched {
		if !w.Way {
			paths[w.Path] = false
		}
	}
	for _, m := range f.Plan.Mounts {
		if m.Op == bwrap.OpProtect {
			paths[m.Source] = true
		}
	}
	others := sync.OnceValue(f.otherNotes) // a file may be the work of their commands
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for i := range f.checkouts {
			c := &f.checkouts[i]
			if path == c.WorkTree || !fsat.Within(path, c.WorkTree) || filepath.Base(path) == ".git" {
				continue
			}
			name := path[len(c.WorkTree)+1:]
			c.Names = append(c.Names, name)
			if paths[path] && !slices.ContainsFunc(others(), func(o quarantine.Note) bool { return slices.Contains(o.Names, path) }) {
				c.Held = append(c.Held, name)
			}
		}
	}
}

const gitRule = "default: git: "

// nameFiles names the files of a root for its repositories.
func nameFiles(names *gitconfig.Names, root string, repos []gitdir.Repo) error {
	if !slices.ContainsFunc(repos, func(r gitdir.Repo) bool { return r.WorkTree == root }) {
		names.Tree(root)
	}
	for _, r := range repos {
		if r.File || r.Link {
			names.DotGit(r.DotGit)
		}
		var err error
		switch {
		case r.GitDir != "":
			err = names.Repository(r.WorkTree, r.GitDir, r.CommonDir)
		case r.Beyond != "":
			err = names.Elsewhere(r.WorkTree, r.Beyond, r.BeyondCommon)
		}
		if err != nil {
			return err
		}
	}
	return names.Around(root)
}

// shortened writes names into one line.
func shortened(names []string) string {
	const most = 6
	line := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		line += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return line
}

// gitIn lists the repositories of one file system.
func (f *Fence) gitIn(root string) ([]gitdir.Repo, error) {
	in, err := gitplace.Inside(root[1:], func(path string) (bool, error) {
		_, err := os.Lstat("/" + path)
		return err == nil, nil
	})
	if in && err == nil && !slices.ContainsFunc(f.Roots, func(r confine.Root) bool { return r.Path == root }) {
		return nil, &bwrap.Refusal{Reason: fmt.Sprintf("cannot protect %q: it is a mount of its own", root), Advice: "inside another sandbox of pk, which protects it already, add --no-protect"}
	}
	if in && err == nil {
		advice := "name the work tree"
		if around, ok := gitconfig.Around(root); ok && around.WorkTree == root {
			advice = moveAdvice(root)
		}
		return nil, &bwrap.Refusal{Reason: fmt.Sprintf("cannot show %q writable: it lies in a git directory", root), Advice: advice}
	}
	repos, err := f.repositories(root)
	if refused, ok := errors.AsType[*bwrap.Refusal](err); ok {
		return nil, refused
	}
	if err != nil {
		return nil, &bwrap.Refusal{Reason: fmt.Sprintf("cannot find the git directories of %q: %v", root, err), Advice: gitAdvice(err)}
	}
	for _, bare := range repos {
		for _, r := range repos {
			if bare.WorkTree == "" && r.WorkTree != "" && fsat.Within(r.WorkTree, bare.GitDir) { // the commits would land, the files would not
				return nil, &bwrap.Refusal{Reason: fmt.Sprintf("cannot show %q writable: the work tree %q lies in the bare repository %q", root, r.WorkTree, bare.GitDir), Advice: moveAdvice(r.WorkTree)}
			}
		}
	}
	for _, r := range repos {
		if r.BeyondCommon != "" {
			f.branches = append(f.branches, gitland.Checkout{GitDir: r.BeyondCommon, WorkTree: r.WorkTree})
		}
		if r.GitDir != "" {
			f.ownGitDirs = append(f.ownGitDirs, r.GitDir)
			if r.WorkTree != "" {
				f.workTrees = append(f.workTrees, r.WorkTree)
				f.checkouts = append(f.checkouts, gitland.Checkout{GitDir: r.GitDir, WorkTree: r.WorkTree})
				f.branches = append(f.branches, gitland.Checkout{GitDir: r.CommonDir, WorkTree: r.WorkTree})
			}
		}
	}
	if len(repos) == 0 || repos[0].WorkTree != root {
		if around, ok := gitconfig.Around(filepath.Dir(root)); ok {
			f.stores = append(f.stores, f.readStore([]gitdir.Repo{{GitDir: around.GitDir, CommonDir: around.CommonDir}}))
			f.branches = append(f.branches, gitland.Checkout{GitDir: around.CommonDir, WorkTree: around.WorkTree})
		}
	}
	for _, dir := range gitdir.Layers(repos) {
		if !slices.Contains(f.gitDirs, dir) {
			f.gitDirs = append(f.gitDirs, dir)
		}
	}
	return repos, nil
}

func moveAdvice(workTree string) string {
	return fmt.Sprintf("move it out of the repository: git worktree move %s PATH", shellword.Word(workTree))
}

// mountsBelow lists the directories in a root on which the host has mounted something:
// each is looked at as a root of its own.
func (f *Fence) mountsBelow(root string) []string {
	var points []string
	for _, m := range f.table {
		if strings.HasPrefix(m.Point, root+"/") && bwrap.Canonical(m.Point) == m.Point {
			if info, err := os.Lstat(m.Point); err == nil && info.IsDir() {
				points = append(points, m.Point)
			}
		}
	}
	return points
}

// search looks for the repositories of a root, which takes a while in a large tree.
// Meanwhile there is a plan by those that the last command knew.
type search struct {
	root    string
	known   chan found            // one if it is of use, then closed
	planned found                 // those in the plan
	end     func() (found, error) // waits for the search
}

// found are the repositories of a root.
type found struct {
	list        *gitdir.List
	repos       []gitdir.Repo
	unpopulated []gitdir.Unpopulated
	store       func() *gitdir.Store // waits for it; nil: it is not being read
}

// lookAhead begins to look for repositories.
func (f *Fence) lookAhead() {
	for _, r := range f.Roots {
		if r.Writable && !f.NoProtect && !(f.OwnTmp && r.Path == f.Tmp) {
			f.search(r.Path, true)
		}
	}
}

// search returns the search in a root, and begins it. With ahead, there is a plan before it
// has ended.
func (f *Fence) search(root string, ahead bool) *search {
	for _, s := range f.searches {
		if s.root == root {
			return s
		}
	}
	s, state := &search{root: root, known: make(chan found, 1)}, f.gitState()
	var known func([]gitdir.Repo, []gitdir.Unpopulated)
	if ahead {
		known = func(repos []gitdir.Repo, unpopulated []gitdir.Unpopulated) {
			s.known <- found{repos: repos, unpopulated: unpopulated, store: f.readStore(repos)}
		}
	}
	s.end = sync.OnceValues(func() (at found, err error) {
		defer close(s.known)
		if at.list, err = gitdir.Look(state, root, known); err == nil {
			at.repos, at.unpopulated, err = gitdir.Find(root, at.list)
		}
		return at, err
	})
	f.searches = append(f.searches, s)
	go s.end()
	return s
}

// repositories lists those of a root.
func (f *Fence) repositories(root string) ([]gitdir.Repo, error) {
	s := f.search(root, false)
	at, ok := <-s.known
	if !ok {
		var err error
		if at, err = s.end(); err != nil {
			return nil, err
		}
	}
	if at.store == nil {
		at.store = f.readStore(at.repos)
	}
	f.stores = append(f.stores, at.store)
	s.planned = at
	return at.repos, f.cover(at.unpopulated)
}

// planned waits for the searches, and reports whether the plan is by what they found. If
// not, the user has made a repository since the last command.
func (f *Fence) planned() bool {
	all := true
	for _, s := range f.searches {
		at, err := s.end()
		all = all && err == nil && slices.Equal(at.repos, s.planned.repos) && slices.Equal(at.unpopulated, s.planned.unpopulated)
	}
	return all
}

// cover adds unpopulated submodules to those that get a layer, and makes their directories.
// It refuses a root that is one: nothing of it would land.
func (f *Fence) cover(unpopulated []gitdir.Unpopulated) error {
	if f.Trial {
		return nil // pk-apply lands no repository there
	}
	for _, u := range unpopulated {
		if slices.ContainsFunc(f.Roots, func(r confine.Root) bool { return r.Writable && r.Path == u.Dir }) {
			return &bwrap.Refusal{Reason: fmt.Sprintf("cannot show %q writable: it is a submodule that is not populated", u.Dir), Advice: "git submodule update --init"}
		}
		if !f.Tell {
			if err := u.Make(); err != nil {
				return &bwrap.Refusal{
					Reason: fmt.Sprintf("cannot lay a layer over the submodule %q, which is not populated: %v", u.Dir, err),
					Advice: "make it a directory, or take it from the index: git rm --cached",
				}
			}
		} else if _, err := os.Lstat(u.Dir); err != nil {
			continue
		}
		if !f.covers(u) {
			f.submodules = append(f.submodules, u)
		}
	}
	return nil
}

func (f *Fence) covers(u gitdir.Unpopulated) bool {
	return slices.ContainsFunc(f.submodules, func(o gitdir.Unpopulated) bool { return o.Dir == u.Dir })
}

// gitState is where layers and lists of repositories are kept.
func (f *Fence) gitState() string {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return nowhere
	}
	state := filepath.Join(base, session.GitDir)
	for _, dir := range []string{base, state} { // refuse those of another user, to which a link might lead
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		if err == nil && (int(st.Uid) != os.Geteuid() || dir == state && st.Mode&unix.S_IFMT != unix.S_IFDIR) || err != nil && err != unix.ENOENT {
			return nowhere
		}
	}
	return state
}

const nowhere = "/proc/nonexistent"

// beginGit notes that a command runs in the roots, and makes the git directories that
// earlier commands made there usable again.
func (f *Fence) beginGit() error {
	if len(f.searches) == 0 || f.Trial { // repositories that a trial makes are not the host's
		return nil
	}
	base, err := makeBase()
	if err != nil {
		return err
	}
	if f.gitState() == nowhere {
		return &bwrap.Refusal{Reason: fmt.Sprintf("cannot use cache directory %q: it or its %q is another user's", base, session.GitDir), Advice: "set XDG_CACHE_HOME to a directory of your own"}
	}
	f.Ahead.Start(f.Keeper(), f.Plan.Gate != nil && f.Session == nil)
	f.Ahead.Await() // from here on, there is something to do if this process is killed
	for _, s := range f.searches {
		at, err := s.end()
		if err != nil {
			return err
		}
		run, err := gitdir.Begin(f.gitState(), at.list)
		if err != nil {
			return err
		}
		f.runs = append(f.runs, run)
		run.List.Land = f.landNow
		if err := run.Separate(f.store.Shared, f.gitDirs); err != nil {
			return &bwrap.Refusal{Reason: fmt.Sprintf("cannot protect a repository: %v", err), Advice: "remove other names of its files from the roots"}
		}
		if run.Warning != nil {
			f.Warn("git: %v", run.Warning)
		}
		for _, u := range run.Unpopulated {
			if !f.covers(u) {
				return &bwrap.Refusal{Reason: fmt.Sprintf("%q has become a submodule while the sandbox was made", u.Dir), Advice: "try again"}
			}
		}
	}
	return nil
}

// endGit makes the git directories of the command unusable for the host, and lists them.
func (f *Fence) endGit() (told []string, err error) {
	told, err = f.each((*gitdir.Run).End)
	f.runs = nil
	return told, err
}

func (f *Fence) each(end func(*gitdir.Run) ([]gitdir.Inert, error)) (told []string, err error) {
	had := sync.OnceValue(func() map[string]bool { // of this command, and of others beside it
		if base, err := session.Base(os.Getenv); err == nil {
			return quarantine.Had(base)
		}
		return nil
	})
	seen := map[string]bool{}
	for _, run := range f.runs {
		made, rerr := end(run)
		err = errors.Join(err, rerr)
		for _, r := range run.Restored {
			seen[r.Repository()] = true
		}
		for _, m := range made {
			if name := m.Repository(); !seen[name] && !had()[name] {
				seen[name] = true
				told = append(told, m.Line(""))
			}
		}
	}
	return told, err
}

// gitAdvice never proposes to go without protection: a command may have made the
// tree so that the search fails.
func gitAdvice(err error) string {
	closed := ""
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		closed = path.Path
	} else if look, ok := errors.AsType[*gitdir.LookError](err); ok {
		closed = look.Name
	}
	if closed != "" && errors.Is(err, fs.ErrPermission) {
		return fmt.Sprintf("make it readable: chmod u+rwx %s", shellword.Word(unreadable(closed)))
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok { // as of a full disk, where a narrower root helps nothing
		return ""
	}
	return "name a narrower root"
}

// unreadable is the path itself, a directory above it that cannot be entered, or the .git in it
// that cannot be read.
func unreadable(path string) string {
	may := func(path string, mode uint32) bool {
		return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS) != unix.EACCES
	}
	for dir := filepath.Dir(path); dir != "/" && dir != "." && !may(path, unix.F_OK); dir = filepath.Dir(dir) {
		path = dir
	}
	if dotGit := filepath.Join(path, ".git"); may(path, unix.R_OK|unix.X_OK) && !may(dotGit, unix.R_OK|unix.X_OK) {
		return dotGit
	}
	return path
}

// OpenLayers opens a layer over each git directory: the session's, or one of the
// command's own. Sandbox calls it after the question to the user, since other commands
// of the session then wait until the sandbox is made.
func (f *Fence) OpenLayers() error {
	if err := f.beginGit(); err != nil {
		return err
	}
	for _, save := range f.saves {
		save()
	}
	if err := f.openTrial(); err != nil {
		return err
	}
	for _, dir := range f.gitDirs {
		l, err := f.openLayer(dir)
		if err != nil {
			return err
		}
		l.WorkTrees, l.GitDirs, l.State = f.workTrees, f.ownGitDirs, f.gitState()
		l.Checkouts = f.checkouts
		f.layers = append(f.layers, l)
		if f.Trial { // pk-apply lands from it
			if err := l.Save(); err != nil {
				return err
			}
		}
		layer := overlay.Layers{Upper: l.Upper(), Base: l.Base(), Work: l.Work(), Fresh: l.Fresh(), Volatile: !f.Trial}
		at := ""
		if f.joined != nil {
			layer.Source, at = f.Session.Marker(), l.Merged()
			l.View = filepath.Join(f.joined.Root(), at)
		}
		f.Plan.Lay(dir, layer, at)
	}
	return f.openSubmodules()
}

// openSubmodules opens, for each repository that has unpopulated submodules, a layer
// with an overlay for each of them.
func (f *Fence) openSubmodules() error {
	var withheld []gitdir.Inert
	for _, run := range f.runs {
		withheld = append(withheld, run.Withheld...)
	}
	of := map[string][]string{}
	for _, s := range f.submodules {
		of[s.GitDir] = append(of[s.GitDir], s.Dir)
	}
	for _, gitDir := range slices.Sorted(maps.Keys(of)) {
		l, err := f.openLayer(gitDir, of[gitDir]...)
		if err != nil {
			return err
		}
		f.layers = append(f.layers, l)
		if f.Trial { // pk-apply lands from it
			if err := l.Save(); err != nil {
				return err
			}
		}
		for _, dir := range l.Plain {
			upper, work, at, err := l.Submodule(dir, withheld)
			if err != nil {
				return err
			}
			layer := overlay.Layers{Upper: upper, Work: work, Fresh: l.Fresh(), Volatile: !f.Trial}
			if f.joined == nil {
				at = ""
			} else {
				layer.Source = f.Session.Marker()
			}
			f.Plan.Lay(dir, layer, at)
		}
	}
	return nil
}

func (f *Fence) openLayer(gitDir string, plain ...string) (*gitland.Layer, error) {
	if f.joined != nil {
		return gitland.OpenShared(f.joined.Overlays, gitDir, strings.TrimPrefix(f.Session.Name(), session.Prefix), plain...)
	}
	state, err := filepath.EvalSymlinks(f.gitState())
	if err != nil {
		return nil, err
	}
	return gitland.OpenOwn(state, gitDir, plain...)
}

// While a command runs, its work lands every second. Locks of the host's that are gone
// are looked for more often: git waits a tenth of a second for one, if at all.
const (
	lockEvery = 250 * time.Millisecond
	landEvery = 4 // times that
)

// started lands the command's work while it runs.
func (f *Fence) started(root string) {
	for _, l := range f.layers {
		if at, ok := f.Plan.ShownAt(l.GitDir); ok && l.View == "" {
			l.View = root + at
		}
		l.Started()
	}
	for _, r := range f.trial {
		r.Started()
	}
	if f.Trial {
		return // it lands with pk-apply
	}
	f.land()
}

// landNow lands the work of the command so far.
func (f *Fence) landNow() {
	if f.Trial {
		return
	}
	for _, l := range f.layers {
		l.Land()
	}
}

// land lands the command's work every second, until stop is called.
func (f *Fence) land() {
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		tick := time.NewTicker(lockEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for _, l := range f.layers {
				if n%landEvery == 0 {
					l.Land()
				}
				l.ForgetLocks()
			}
		}
	}()
	f.stop = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
}
