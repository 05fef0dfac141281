// Package gitdir finds the git directories of the host below a writable root, so that a
// sandbox shows them through layers, and makes inert the ones that a command has made.
// A git directory is the host's if it was in the tree before any command ran. The list
// of a root (List) remembers them. When a command has ended, each .git that it made is
// renamed to .git.fenced, and the HEAD of each directory that looks like a git directory
// to HEAD.fenced: then git finds no repository there. The next command gets the names
// back while it runs.
package gitdir

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// Repo is a repository of the host. If its .git leads nowhere, it has no directories. It
// is listed so that no command can make a file at the end of .git.
type Repo struct {
	WorkTree string // absolute; "" for a bare one, and for a submodule that is not checked out
	DotGit   string // .git in the work tree; "" if WorkTree is
	File     bool   // DotGit is a file: the sandbox makes it read-only
	Link     bool   // DotGit is a symbolic link, which cannot be a mount point

	GitDir, CommonDir string // absolute, without links; both "" if DotGit leads nowhere

	// Beyond and BeyondCommon are these two if the git directory is outside of the root and
	// does not belong to the work tree: a .git in an unpacked archive may name any. It gets
	// no layer. Git on the host uses it all the same.
	Beyond, BeyondCommon string
}

// maxModuleDepth bounds the nesting of submodule names: each slash in a name and each
// submodule of a submodule is a level.
const maxModuleDepth = 32

// Unpopulated is a submodule in an index of the host's that has no repository of the
// host's, or the place to which the .git of one leads, if there is none. The host's git uses a
// repository there as soon as it appears.
type Unpopulated struct {
	Dir    string // absolute; it may be missing
	GitDir string // of the repository whose index names it
}

// Find lists the host's repositories for a root, an absolute path without links: the
// root's own, wherever its git directory lies, or the root itself if it is bare, those
// that the list has, and all that these lead to: gitlinks of their indexes, linked
// worktrees in the root, submodules. Work trees come before those within them. The second
// list has the unpopulated submodules in the root, or the root itself, also those of the
// repository around the root.
//
// Any error but "not there" ends the search: a repository that cannot be read cannot be
// covered by a layer.
func Find(root string, l *List) ([]Repo, []Unpopulated, error) {
	repos, unpopulated, err := find(root, l)
	if err == nil {
		err = l.keep()
	}
	return repos, unpopulated, err
}

func find(root string, l *List) ([]Repo, []Unpopulated, error) {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, root, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	f := &finder{root: root, fd: fd, list: l, seen: map[string]bool{}, went: map[string]bool{}}
	if err := f.workTree(""); err != nil {
		return nil, nil, err
	}
	if around, ok := gitconfig.Around(path.Dir(root)); ok {
		if err := f.gitlinks(Repo{WorkTree: around.WorkTree, GitDir: around.GitDir}); err != nil {
			return nil, nil, err
		}
	}
	for _, s := range l.spots {
		if s.whose != hosts {
			continue
		}
		err := f.workTree(s.dir)
		if s.name == "HEAD" {
			err = f.bare(s.dir)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	layers := Layers(f.repos)
	f.targets = slices.DeleteFunc(f.targets, func(u Unpopulated) bool {
		return slices.ContainsFunc(layers, func(dir string) bool { return fsat.Within(u.Dir, dir) || fsat.Within(dir, u.Dir) })
	})
	for _, u := range slices.Concat(f.targets, l.atNoted(f.repos)) {
		if !slices.ContainsFunc(f.unpopulated, func(o Unpopulated) bool { return fsat.Within(u.Dir, o.Dir) }) {
			f.unpopulated = append(f.unpopulated, u)
		}
	}
	f.cover()
	slices.SortStableFunc(f.repos, func(a, b Repo) int { return strings.Compare(a.place(), b.place()) })
	return f.repos, f.unpopulated, nil
}

// cover notes the git directories in the root: layers are over them.
func (f *finder) cover() {
	f.list.cover = nil
	for _, r := range f.repos {
		for _, dir := range []string{r.GitDir, r.CommonDir} {
			if _, inside := f.inside(dir); !inside {
				continue
			}
			if p, err := placeOf(dir); err == nil {
				f.list.cover = append(f.list.cover, p)
			}
		}
	}
	f.list.unpopulated = f.unpopulated
}

// Layers lists the distinct directories that need a layer. A directory covers those below
// it.
func Layers(repos []Repo) []string {
	var dirs []string
	for _, r := range repos {
		for _, dir := range []string{r.GitDir, r.CommonDir} {
			if dir != "" {
				dirs = append(dirs, dir)
			}
		}
	}
	slices.Sort(dirs)
	var tops []string
	for _, dir := range dirs {
		if !slices.ContainsFunc(tops, func(top string) bool { return fsat.Within(dir, top) }) {
			tops = append(tops, dir)
		}
	}
	return tops
}

func (r Repo) place() string {
	if r.WorkTree != "" {
		return r.WorkTree
	}
	return r.GitDir
}

type finder struct {
	root  string
	fd    int
	list  *List
	seen  map[string]bool // .git names
	went  map[string]bool // git directories, and worktrees in them
	repos []Repo

	unpopulated []Unpopulated
	targets     []Unpopulated // of .git files that lead nowhere
}

func (f *finder) failed(name string, err error) error { return &LookError{name, err} }

// LookError is the failure to look at the repository whose .git, or git directory, has a name.
type LookError struct {
	Name string
	Err  error
}

func (e *LookError) Error() string {
	return fmt.Sprintf("cannot look at the repository %q: %v", e.Name, e.Err)
}

func (e *LookError) Unwrap() error { return e.Err }

// workTree adds the repository of the .git in a directory below the root. A running
// command may have made it: then it is not the host's.
func (f *finder) workTree(rel string) error {
	dir := path.Join(f.root, rel)
	name := path.Join(dir, ".git")
	if f.seen[name] {
		return nil
	}
	fd, err := fsat.Kernel().Open(f.fd, path.Join(".", rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return f.missing(name, err)
	}
	defer unix.Close(fd)
	if whose, err := f.list.whose(fd, rel); err != nil || whose != hosts {
		return f.missing(name, err)
	}
	t, err := follow(fd)
	if err != nil {
		return f.missing(name, err)
	}
	repo := Repo{WorkTree: dir, DotGit: name, File: t.file && !t.link, Link: t.link, GitDir: t.gitDir, CommonDir: t.commonDir}
	if t.gitDir != "" && !(f.list.trusts(t.gitDir) && f.list.trusts(t.commonDir)) {
		repo.GitDir, repo.CommonDir = "", ""
	} else if t.gitDir != "" && !fsat.Within(t.gitDir, f.root) && !pointsBack(t, dir) {
		repo.GitDir, repo.CommonDir, repo.Beyond, repo.BeyondCommon = "", "", t.gitDir, t.commonDir
	}
	if repo.GitDir == "" && repo.Beyond == "" && !t.file && !t.link {
		return nil
	}
	f.seen[name] = true
	f.repos = append(f.repos, repo)
	if repo.Beyond != "" {
		return f.gitlinks(repo)
	}
	return f.beyond(repo)
}

// pointsBack reports whether a git directory outside of the root belongs to a work tree.
func pointsBack(t target, workTree string) bool {
	if text, err := os.ReadFile(path.Join(t.gitDir, "gitdir")); err == nil && fsat.Within(t.gitDir, t.commonDir+"/worktrees") {
		dotGit := gitplace.Pointer(text)
		if !path.IsAbs(dotGit) {
			dotGit = path.Join(t.gitDir, dotGit)
		}
		return sameDir(path.Dir(dotGit), workTree)
	}
	back := gitconfig.WorkTree(t.gitDir)
	return back != "" && sameDir(back, workTree)
}

func sameDir(a, b string) bool {
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// missing converts the error of a lookup to that of the search.
func (f *finder) missing(name string, err error) error {
	if unlessAbsent(err) == nil {
		return nil
	}
	return f.failed(name, err)
}

// bare adds a directory below the root that is a repository.
func (f *finder) bare(rel string) error {
	dir := path.Join(f.root, rel)
	if f.went[dir] {
		return nil
	}
	fd, err := fsat.Kernel().Open(f.fd, path.Join(".", rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return f.missing(dir, err)
	}
	defer unix.Close(fd)
	return f.gitDir(fd, dir)
}

// gitDir adds an open git directory without a work tree.
func (f *finder) gitDir(fd int, name string) error {
	gitDir, commonDir, err := asGitDir(fd)
	if err != nil {
		return f.failed(name, err)
	}
	if gitDir == "" || f.went[gitDir] {
		return nil
	}
	repo := Repo{GitDir: gitDir, CommonDir: commonDir}
	f.repos = append(f.repos, repo)
	return f.beyond(repo)
}

// beyond adds the repositories that a repository leads to.
func (f *finder) beyond(r Repo) error {
	if r.GitDir == "" || f.went[r.GitDir] {
		return nil
	}
	f.went[r.GitDir] = true
	if err := f.gitlinks(r); err != nil {
		return err
	}
	dirs := []string{r.GitDir}
	if r.CommonDir != r.GitDir {
		dirs = append(dirs, r.CommonDir)
	}
	for _, dir := range dirs {
		if err := f.modules(dir+"/modules", maxModuleDepth); err != nil {
			return err
		}
	}
	if f.went[r.CommonDir+"/worktrees"] {
		return nil
	}
	f.went[r.CommonDir+"/worktrees"] = true
	return f.worktrees(r.CommonDir)
}

// gitlinks adds the submodules that the index names. git status on the host enters
// each of them that has a repository.
func (f *finder) gitlinks(r Repo) error {
	gitDir, top := cmp.Or(r.GitDir, r.Beyond), r.WorkTree
	if !fsat.Within(gitDir, cmp.Or(r.CommonDir, r.BeyondCommon)+"/worktrees") {
		top = cmp.Or(f.list.workTree(gitDir), top)
	}
	if top == "" {
		return nil
	}
	links, err := f.list.gitlinks(gitDir)
	if err != nil {
		return f.failed(gitDir, err)
	}
	for _, link := range links {
		dir := path.Join(top, link)
		rel, inside := f.inside(dir)
		if !inside {
			continue
		}
		if err := f.workTree(rel); err != nil {
			return err
		}
		if !f.seen[dir+"/.git"] {
			f.unpopulated = append(f.unpopulated, Unpopulated{dir, gitDir})
		} else if slices.ContainsFunc(f.repos, func(r Repo) bool { return r.WorkTree == dir && r.GitDir == "" && r.Beyond == "" }) {
			f.nowhere(dir, gitDir)
		}
	}
	return nil
}

// nowhere notes the places to which the .git of a submodule leads, if git sees no repository there for want
// of files that a command could make: git at the top would enter it. A layer is over these places, as over
// a submodule without a .git.
func (f *finder) nowhere(dir, gitDir string) {
	name := dir + "/.git"
	if text, err := readSmall(unix.AT_FDCWD, name, 0); err == nil {
		target, ok := gitplace.GitFile(text)
		if !ok {
			return
		}
		name = from(dir, target)
	}
	if !f.mayBecome(name, gitDir) {
		return
	}
	if text, err := readSmall(unix.AT_FDCWD, name+"/commondir", 0); err == nil {
		f.mayBecome(from(name, gitplace.Pointer(text)), gitDir)
	}
}

func from(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return dir + "/" + name // not cleaned: the kernel follows a link before ".."
}

// mayBecome notes a place that may become a git directory, unless it has files and none of git's.
func (f *finder) mayBecome(name, gitDir string) bool {
	trail, _ := confine.Follow(name) // after an error, as far as it came
	if _, inside := f.inside(trail.Place); !inside || trail.Place == f.root {
		return false
	}
	entries, err := os.ReadDir(trail.Place)
	if err != nil && !fsat.Absent(err) {
		return false
	}
	ours := func(e os.DirEntry) bool {
		return slices.Contains([]string{"HEAD", "objects", "refs", "commondir", "config"}, e.Name())
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, ours) {
		return false
	}
	f.targets = append(f.targets, Unpopulated{trail.Place, gitDir})
	return true
}

// workTree is the work tree that the configuration of a git directory names, or "".
func (l *List) workTree(gitDir string) string {
	tree, known := l.trees[gitDir]
	if !known {
		if tree = gitconfig.WorkTree(gitDir); tree != "" {
			if real, err := filepath.EvalSymlinks(tree); err == nil {
				tree = real
			}
		}
		l.trees[gitDir] = tree
	}
	return tree
}

func (f *finder) inside(name string) (rel string, ok bool) {
	if name == f.root {
		return "", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(f.root, "/")+"/")
}

// modules adds the git directories of submodules, whose names may have slashes.
func (f *finder) modules(dir string, depth int) error {
	return f.subdirs(dir, func(fd int, name string) error {
		if _, err := fsat.Lstat(fd, "HEAD"); err == nil {
			return f.gitDir(fd, name)
		} else if !fsat.Absent(err) {
			return f.failed(name, err)
		}
		if depth == 0 {
			return f.failed(name, errors.New("too many levels of submodules"))
		}
		return f.modules(name, depth-1)
	})
}

// worktrees adds the linked worktrees in the root. Each git directory names its .git.
func (f *finder) worktrees(common string) error {
	return f.subdirs(common+"/worktrees", func(fd int, name string) error {
		text, err := readSmall(fd, "gitdir", 0)
		if err != nil {
			return f.missing(name, err)
		}
		dotGit := gitplace.Pointer(text)
		if !strings.HasPrefix(dotGit, "/") {
			dotGit = path.Join(name, dotGit)
		}
		rel, inside := f.inside(path.Dir(path.Clean(dotGit)))
		if !inside || path.Base(dotGit) != ".git" {
			return nil
		}
		return f.workTree(rel)
	})
}

// subdirs calls fn with each directory in a directory of the host's, if there is
// one.
func (f *finder) subdirs(dir string, fn func(fd int, name string) error) error {
	fd, err := fsat.Openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return f.missing(dir, err)
	}
	defer unix.Close(fd)
	return fsat.Each(fd, func(e fsat.Entry) error {
		sub, err := fsat.Openat(fd, e.Name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return f.missing(dir+"/"+e.Name, err)
		}
		defer unix.Close(sub)
		return fn(sub, dir+"/"+e.Name)
	})
}

// gitlinks reads the gitlinks of a git directory's index, unless the list has them. A
// split index has some of them in another file.
func (l *List) gitlinks(gitDir string) ([]string, error) {
	fd, err := fsat.Openat(unix.AT_FDCWD, gitDir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "index", &st, 0); err != nil {
		return nil, unlessAbsent(err)
	}
	key := fmt.Sprintf("%d %d %d %d %x", st.Dev, st.Ino, st.Size, st.Mtim, checksum(fd, st.Size)) // gitland.Layer's base changes the ctime
	known := l.links[gitDir]                                                                      // the key comes first
	if len(known) > 0 && (l.early || known[0] == key) {
		return known[1:], nil
	}
	found, err := gitlinksIn(fd, "index")
	if split := new(index.SplitError); errors.As(err, &split) {
		var shared []string
		shared, err = gitlinksIn(fd, split.Shared)
		found = append(found, shared...)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read its index: %w", err)
	}
	// Without gitlinks a new key is not worth the writing: looking again takes no longer.
	l.dirty = l.dirty || len(known) != 1 || len(found) > 0
	l.links[gitDir] = append([]string{key}, found...)
	return found, nil
}

// checksum reads the end of an index. A command chooses the size and the time of an index that lands.
func checksum(dir int, size int64) []byte {
	sum := make([]byte, 20)
	fd, err := fsat.Openat(dir, "index", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil // reading it fails too
	}
	defer unix.Close(fd)
	n, _ := unix.Pread(fd, sum, max(0, size-int64(len(sum))))
	return sum[:max(0, n)]
}

// gitlinksIn reads one file of an index. That does not name the length of its hashes: one
// without entries can be read with both.
func gitlinksIn(dir int, name string) ([]string, error) {
	seen, err := fsat.Openat(dir, name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	f, st, err := overlay.Open(seen)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if may, err := index.MayHaveGitlinks(f); err != nil || !may || st.Size == 0 { // git treats an empty index as none
		return nil, err
	}
	data, err := read(dir, name, 0, index.MaxSize)
	if err != nil {
		return nil, err
	}
	var links []string
	for _, hexLen := range hexLens(dir) {
		links, err = index.GitlinksOf(data, hexLen)
		if split := new(index.SplitError); err == nil || errors.As(err, &split) {
			break
		}
	}
	return links, err
}

// hexLens are the numbers of digits that IDs may have in a git directory: one, if git can
// read its configuration.
func hexLens(dir int) []int {
	common, err := openCommon(dir)
	if err == nil {
		defer unix.Close(common)
		text, _, rerr := overlay.ReadFile(common, "config", 0, objects.MaxConfig)
		if format, _, ferr := objects.FormatIn(text); rerr == nil && ferr == nil {
			return []int{2 * format.Size()}
		}
	}
	return []int{40, 64}
}
