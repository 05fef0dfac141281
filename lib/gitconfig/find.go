package gitconfig

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kind says how a repository was found.
type Kind string

// The kinds of repositories.
const (
	KindRoot      Kind = "root"      // the root's own .git
	KindBare      Kind = "bare"      // a directory that is a repository itself
	KindNested    Kind = "nested"    // the .git of a directory below the root
	KindSubmodule Kind = "submodule" // below modules of another
	KindWorktree  Kind = "worktree"  // below worktrees of another
)

// Repo is a repository whose git directory or working tree lies below a root.
// All names are relative to the root and hold no link, as far as was seen.
type Repo struct {
	Kind      Kind
	DotGit    string // the .git that leads to it, "" if none does
	GitDir    string // "" if Outside
	CommonDir string // where config and hooks are, "" if that is outside

	// Outside tells that the git directory lies elsewhere. What its .git names is
	// data that a command may have written: nothing may be shown or made writable
	// because of it.
	Outside bool

	execFiles []ExecFile
}

// ExecFiles are the files of the repository that decide what git on the host runs,
// sorted by path. One that two repositories share is named by the first.
func (r Repo) ExecFiles() []ExecFile { return slices.Clone(r.execFiles) }

// Limits bound what Find looks at. The zero value of each means its default.
type Limits struct {
	Depth int           // of directories below the root that may have a .git
	Dirs  int           // directories looked at
	Repos int           // repositories
	Time  time.Duration // for all of it
}

// The defaults. A checkout with vendored repositories has them one or two levels
// down; what is deeper is looked for by nobody before each command. A directory
// costs about a microsecond, a repository some fifty.
const (
	DefaultDepth = 2
	DefaultDirs  = 8192
	DefaultRepos = 512
	DefaultTime  = 500 * time.Millisecond
)

// maxModuleDepth is how deep names of submodules nest: each slash in a name and
// each submodule of a submodule is a level.
const maxModuleDepth = 16

// LimitError is more than Find looks at. What was found until then is returned
// as well, but there may be more.
type LimitError struct {
	What string
	Path string // where it was given up
}

func (e *LimitError) Error() string { return fmt.Sprintf("%s at %q", e.What, e.Path) }

// Find returns the repositories below a root, an absolute path: the root's own,
// its submodules and linked worktrees, the repositories in directories close to
// it with theirs, or the root itself if it is bare.
//
// Everything below the root is opened name by name and through no link; a link is
// read, and where it leads is walked the same way. What is outside is read for
// one purpose, which is to learn what it names inside. The environment is that of
// the host's git, whose configuration may name hooks of a project.
//
// It is a snapshot. A repository that appears later is found by asking again.
func Find(root string, limits Limits, getenv Getenv) ([]Repo, error) {
	f, err := newFinder(root, limits, getenv)
	if err != nil {
		return nil, err
	}
	defer unix.Close(f.root.fd)
	f.dotGit("", KindRoot)
	if f.looksBare() {
		f.gitDir(&Repo{Kind: KindBare}, f.absolute(""))
	}
	f.nested("", f.limits.Depth)
	repos := make([]Repo, len(f.repos))
	for i, r := range f.repos {
		slices.SortFunc(r.execFiles, func(a, b ExecFile) int { return strings.Compare(a.Path, b.Path) })
		repos[i] = *r
	}
	if f.limit != nil {
		return repos, f.limit
	}
	return repos, nil
}

type finder struct {
	root   root
	limits Limits
	until  time.Time
	dirs   int
	limit  *LimitError

	repos   []*Repo
	gitDirs map[string]bool // absolute, seen
	named   map[string]bool // exec files
	host    *loader         // the configuration of the system and of the user
}

func newFinder(name string, limits Limits, getenv Getenv) (*finder, error) {
	r, err := openRoot(name)
	if err != nil {
		return nil, err
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&limits.Depth, DefaultDepth}, {&limits.Dirs, DefaultDirs}, {&limits.Repos, DefaultRepos}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if limits.Time == 0 {
		limits.Time = DefaultTime
	}
	f := &finder{root: r, limits: limits, until: time.Now().Add(limits.Time), gitDirs: map[string]bool{}, named: map[string]bool{}}
	f.host = &loader{getenv: getenv, every: true}
	_ = f.host.all() // every: what can be read is, and nothing fails
	return f, nil
}

func (f *finder) absolute(rel string) string { return path.Join(f.root.name, rel) }

// mayLook counts a directory, and tells whether there is still something to
// spend.
func (f *finder) mayLook(rel string) bool {
	f.dirs++
	if f.limit == nil && f.dirs > f.limits.Dirs {
		f.limit = &LimitError{What: "too many directories", Path: f.absolute(rel)}
	}
	if f.limit == nil && f.dirs%64 == 0 && time.Now().After(f.until) {
		f.limit = &LimitError{What: "too many slow directories", Path: f.absolute(rel)}
	}
	return f.limit == nil
}

// dotGit adds the repository that the .git in a directory leads to.
func (f *finder) dotGit(dir string, kind Kind) {
	entry := path.Join(dir, ".git")
	repo := &Repo{Kind: kind, DotGit: entry}
	switch seen := f.root.look(entry); {
	case seen.link != "":
		repo.name(f, entry, "a link decides which repository this is", always)
		f.behindLink(repo, entry)
	case seen.mode == unix.S_IFDIR:
		f.gitDir(repo, f.absolute(entry))
	case seen.mode == unix.S_IFREG:
		repo.name(f, entry, "it decides which repository this is", always)
		f.behindFile(repo, entry)
	}
}

// behindLink goes on where a .git that is a link leads.
func (f *finder) behindLink(repo *Repo, entry string) {
	target := f.root.follow(f.absolute(entry))
	rel, inside := f.root.inside(target)
	if inside && f.root.look(rel).mode == unix.S_IFREG {
		f.behindFile(repo, rel)
		return
	}
	f.gitDir(repo, target)
}

func (f *finder) behindFile(repo *Repo, entry string) {
	text, err := f.root.read(entry, maxPointer)
	if err != nil {
		return
	}
	if target, ok := gitFile(text); ok {
		f.gitDir(repo, f.root.follow(beside(f.absolute(entry), target)))
	}
}

// gitDir adds a git directory, given by its absolute name, with all that belongs
// to it.
func (f *finder) gitDir(repo *Repo, dir string) {
	rel, inside := f.root.inside(dir)
	repo.GitDir, repo.Outside = rel, !inside
	if f.gitDirs[dir] {
		f.again(repo, dir)
		return
	}
	if len(f.repos) == f.limits.Repos {
		if f.limit == nil {
			f.limit = &LimitError{What: "too many repositories", Path: dir}
		}
		return
	}
	f.gitDirs[dir] = true
	f.repos = append(f.repos, repo)
	at := gitDirs{gitDir: dir, commonDir: f.commonDir(dir, rel, inside)}
	common, commonInside := f.root.inside(at.commonDir)
	if commonInside {
		repo.CommonDir = common
	}
	f.execFiles(repo, at)
	if commonInside {
		f.modules(path.Join(common, "modules"), maxModuleDepth)
		f.worktrees(path.Join(common, "worktrees"))
	}
}

// again is a second way to a git directory that is known: its .git counts for
// the repository, and so does what is relative to its working tree.
func (f *finder) again(repo *Repo, dir string) {
	for _, known := range f.repos {
		if known.GitDir == repo.GitDir && known.Outside == repo.Outside && !repo.Outside {
			if known.DotGit == "" {
				known.DotGit = repo.DotGit
			}
			known.execFiles = append(known.execFiles, repo.execFiles...)
			f.configured(known, gitDirs{gitDir: dir, commonDir: f.absolute(known.CommonDir)}, f.worktreeOf(repo, dir))
			return
		}
	}
	f.repos = append(f.repos, repo)
}

// commonDir is the absolute name of the directory that a git directory shares.
func (f *finder) commonDir(dir, rel string, inside bool) string {
	var text []byte
	var err error
	if inside {
		text, err = f.root.read(path.Join(rel, "commondir"), maxPointer)
	} else {
		text, err = readAt(unix.AT_FDCWD, dir+"/commondir", 0, maxPointer)
	}
	name := pointer(text)
	if err != nil || name == "" {
		return dir
	}
	common := f.root.follow(beside(dir+"/commondir", name))
	f.gitDirs[common] = f.gitDirs[common] || common == dir
	return common
}

// modules adds the git directories of submodules, whose names may have slashes.
func (f *finder) modules(dir string, depth int) {
	for _, name := range f.subdirs(dir) {
		sub := path.Join(dir, name)
		switch {
		case f.root.look(path.Join(sub, "HEAD")).exists():
			f.gitDir(&Repo{Kind: KindSubmodule}, f.absolute(sub))
		case depth > 0:
			f.modules(sub, depth-1)
		case f.limit == nil:
			f.limit = &LimitError{What: "too many levels of submodules", Path: f.absolute(sub)}
		}
	}
}

// worktrees adds the linked worktrees. Each says where its .git is, which may be
// anywhere.
func (f *finder) worktrees(dir string) {
	for _, name := range f.subdirs(dir) {
		sub := path.Join(dir, name)
		repo := &Repo{Kind: KindWorktree}
		if text, err := f.root.read(path.Join(sub, "gitdir"), maxPointer); err == nil && pointer(text) != "" {
			repo.linked(f, f.root.follow(beside(f.absolute(sub)+"/gitdir", pointer(text))))
		}
		f.gitDir(repo, f.absolute(sub))
	}
}

// linked names a .git that a git directory claims as its own, if it is inside.
func (r *Repo) linked(f *finder, dotGit string) {
	rel, inside := f.root.inside(dotGit)
	if !inside || path.Base(rel) != ".git" || f.root.look(rel).mode != unix.S_IFREG {
		return
	}
	r.DotGit = rel
	r.name(f, rel, "it decides which repository this is", always)
}

// subdirs lists the directories in a directory, links not among them.
func (f *finder) subdirs(dir string) []string {
	fd, err := f.root.openDir(dir)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return directories(f.list(dir, fd))
}

func directories(entries []os.DirEntry) []string {
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	slices.Sort(dirs)
	return dirs
}

// list reads an open directory, as much as there is to spend.
func (f *finder) list(dir string, fd int) []os.DirEntry {
	if !f.mayLook(dir) {
		return nil
	}
	entries, err := names(fd, maxNames+1)
	switch {
	case f.limit != nil:
	case len(entries) > maxNames:
		f.limit = &LimitError{What: "too many names", Path: f.absolute(dir)}
	case errors.Is(err, unix.EACCES) && ownDirectory(fd):
		f.limit = &LimitError{What: "a directory that is closed to its owner", Path: f.absolute(dir)}
	}
	return entries
}

// maxNames bounds what is read of one directory. A directory of data is no
// reason to give up; reading so many names takes a few dozen milliseconds.
const maxNames = 200_000

// ownDirectory reports whether the caller could open the directory up again. So
// can a command that runs as the caller, which may have closed it to hide what
// is in it.
func ownDirectory(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || int(st.Uid) == os.Geteuid()
}

// nested adds the repositories in dir and in directories below it. Those at the
// last level are asked for a .git and not read, so that a bare one is not seen
// there.
func (f *finder) nested(dir string, depth int) {
	fd, err := f.root.openDir(dir)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	entries := f.list(dir, fd)
	if dir != "" {
		f.repository(dir, entries)
	}
	for _, name := range directories(entries) {
		switch {
		case name == ".git" || f.limit != nil:
		case depth > 1:
			f.nested(path.Join(dir, name), depth-1)
		case depth == 1 && f.mayLook(dir) && unix.Faccessat(fd, name+"/.git", unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil:
			f.dotGit(path.Join(dir, name), KindNested)
		}
	}
}

// repository adds what a directory with these entries has or is.
func (f *finder) repository(dir string, entries []os.DirEntry) {
	bare := 0
	for _, e := range entries {
		switch e.Name() {
		case ".git":
			f.dotGit(dir, KindNested)
		case "HEAD", "objects", "refs":
			bare++
		}
	}
	if bare == 3 {
		f.gitDir(&Repo{Kind: KindBare}, f.absolute(dir))
	}
}

// looksBare reports whether git would take the root itself for a repository.
func (f *finder) looksBare() bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if !f.root.look(name).exists() {
			return false
		}
	}
	return true
}
