package gitconfig

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/mountinfo"
)

// Named is a place in a writable root that the host's git runs, or reads as
// configuration.
type Named struct {
	Path, Why string // Path is absolute and clean, and no link is above its last name

	// Link is a symbolic link on the way to such a place.
	Link bool

	// File says that git would use a file there. As long as nothing is there, a directory
	// does no harm.
	File bool

	// Way is a place on the way to a repository or a work tree. Only a link there does harm, or a file that says where a
	// repository is; Tracked says whether one of a commit would.
	Way, Tracked bool
}

// Names gathers the Named of all repositories. It reads all configuration that git could
// come to read: all conditions of includes hold, and variables choose between no files.
// Any word of a setting that may be a file's name counts. An error is a configuration that
// cannot be read to its end.
type Names struct {
	Named   []Named
	Linked  []string // files outside of the roots with several hard links, of which a root may have one
	Unknown []string // settings that run a file whose name only the running shell knows
	Partial bool     // git may keep a split or sparse index
	Hooks   []Hooks

	roots  []string // in which a command can write
	mounts []mountinfo.Mount
	getenv Getenv
	host   []*setting
	hosts  []Entry // these come from

	index    map[Named]int // by Path and Link
	walked   map[string]confine.Trail
	seen     map[string]state
	listed   map[string]map[string]bool
	programs map[string][]string
	searched []string // directories of PATH in a root, and relative ones
	went     map[[2]string]bool
}

// Hooks is a directory in which git looks for hooks that it runs in a work tree. Both may be missing.
type Hooks struct{ WorkTree, Dir string }

// ground is where git resolves relative names.
type ground struct {
	tops    []string // of work trees
	gitDirs []string
}

// NewNames reads the files of the system and the user, and git's variables. mounts is the
// table of this process.
func NewNames(roots []string, mounts []mountinfo.Mount, getenv Getenv) (*Names, error) {
	n := &Names{
		roots: roots, mounts: mounts, getenv: getenv, index: map[Named]int{}, walked: map[string]confine.Trail{},
		seen: map[string]state{}, listed: map[string]map[string]bool{}, went: map[[2]string]bool{},
	}
	l := &loader{getenv: getenv, every: true}
	for _, file := range getenv.allFiles() {
		n.name(file, "the user's configuration", false)
		if err := l.scope(file, true); err != nil {
			return nil, err
		}
	}
	for _, file := range getenv.lists() {
		n.name(file, "the user's lists of attributes and ignored files", false)
	}
	if err := l.variables(); err != nil {
		return nil, err
	}
	n.host = append(n.settings(l), &setting{Entry: Entry{Key: "PATH"}, kind: runs, read: readCommand(strings.Join(unset, ";"), getenv)})
	n.hosts = l.entries
	if dir := getenv.value("GIT_DIR"); dir != "" {
		dir = absolute(dir)
		n.name(dir, "GIT_DIR", false)
		if at, ok := asGitDir(dir); ok {
			return n, n.repository(at, slices.Clone(roots)...)
		}
	}
	return n, nil
}

func absolute(path string) string {
	if wd, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		return wd + "/" + path
	}
	return path
}

// Tree gathers those of a directory in no repository: the user may make one there.
func (n *Names) Tree(dir string) { n.gather(ground{tops: []string{dir}}, n.host) }

// Repository gathers those of a repository. workTree is the directory that has the .git,
// "" for none; all paths are absolute.
func (n *Names) Repository(workTree, gitDir, commonDir string) error {
	at := gitDirs{gitDir: gitDir, commonDir: commonDir}
	if workTree == "" {
		return n.repository(at)
	}
	return n.repository(at, workTree)
}

// Elsewhere gathers those of a repository that is not shown, and of its submodules: their
// files may name the roots too. Git does not read a configuration that it cannot open.
func (n *Names) Elsewhere(workTree, gitDir, commonDir string) error {
	if n.went[[2]string{gitDir, workTree}] {
		return nil
	}
	for _, dir := range []string{gitDir, commonDir} {
		n.hardLinks(dir)
		n.hardLinks(dir + "/info")
		n.hardLinks(dir + "/hooks")
	}
	err := n.Repository(workTree, gitDir, commonDir)
	if errors.Is(err, unix.EACCES) {
		err = nil
	}
	return errors.Join(err, n.modules(commonDir+"/modules", maxModules))
}

// maxModules bounds the nesting of submodules' git directories.
const maxModules = 32

func (n *Names) modules(dir string, depth int) error {
	entries, err := os.ReadDir(dir)
	if err != nil || depth == 0 {
		return nil
	}
	for _, e := range entries {
		sub := dir + "/" + e.Name()
		if at, ok := asGitDir(sub); ok {
			err = errors.Join(err, n.Elsewhere("", at.gitDir, at.commonDir))
		} else if e.IsDir() {
			err = errors.Join(err, n.modules(sub, depth-1))
		}
	}
	return err
}

// Around gathers those of all repositories in whose trees a directory lies, unless git
// refuses them as another user's.
func (n *Names) Around(dir string) error {
	for dir != "/" {
		dir = filepath.Dir(dir)
		at, ok := openDotGit(strings.TrimSuffix(dir, "/") + "/.git")
		if ok {
			at.worktree = dir
		} else if at, ok = asGitDir(dir); !ok {
			continue
		}
		l := &loader{getenv: n.getenv, at: at}
		if l.distrust(); l.at == at {
			n.DotGit(strings.TrimSuffix(dir, "/") + "/.git")
			if err := n.Elsewhere(at.worktree, at.gitDir, at.commonDir); err != nil {
				return err
			}
		}
	}
	return nil
}

// repository gathers those of a repository with work trees.
func (n *Names) repository(at gitDirs, tops ...string) error {
	key := [2]string{at.gitDir, strings.Join(tops, "\x00")}
	if n.went[key] {
		return nil
	}
	n.went[key] = true
	l := &loader{getenv: n.getenv, every: true, at: at}
	if err := l.repository(); err != nil {
		return err
	}
	if e, on := last(l.entries, "extensions.worktreeconfig"); on && e.Value != "false" {
		trees, _ := os.ReadDir(at.commonDir + "/worktrees")
		for _, tree := range trees {
			if err := l.scope(at.commonDir+"/worktrees/"+tree.Name()+"/config.worktree", false); err != nil {
				return err
			}
		}
	}
	l.entries = append(l.entries, oldRemotes(at.commonDir)...)
	settings := n.settings(l)
	n.ways(at)
	g := ground{tops: tops, gitDirs: slices.Compact([]string{at.gitDir, at.commonDir})}
	for _, s := range slices.Concat(n.host, settings) {
		switch s.Key {
		case "core.worktree":
			g.tops = append(g.tops, beneath(at.gitDir, s.Value))
		case "GIT_WORK_TREE":
			g.tops = append(g.tops, absolute(s.Value))
		default:
			continue
		}
		n.place(g.tops[len(g.tops)-1], Named{Why: "git writes files below it: " + s.Key, Way: true})
	}
	for _, dir := range g.gitDirs {
		n.links(dir, "a link in the git directory leads here")
	}
	for _, dir := range []string{"/info", "/hooks"} {
		n.links(at.commonDir+dir, "a link in the git directory leads here")
	}
	n.hooks(g, at.commonDir+"/hooks")
	n.gather(g, n.host)
	n.gather(g, settings)
	return nil
}

// beneath is a name as seen from a directory. It is not cleaned: the kernel follows a link
// before "..".
func beneath(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// follow walks a path as the kernel does.
func (n *Names) follow(path string) confine.Trail {
	trail, known := n.walked[path]
	if known {
		return trail
	}
	// Many names are in few directories.
	slash := strings.LastIndexByte(path, '/')
	if last := path[slash+1:]; slash > 0 && last != "" && last != "." && last != ".." {
		above := n.follow(path[:slash])
		place := strings.TrimSuffix(above.Place, "/") + "/" + last
		if _, err := unix.Readlinkat(unix.AT_FDCWD, place, make([]byte, 1)); err == unix.EINVAL || err == unix.ENOENT {
			trail = confine.Trail{Place: place, Links: above.Links}
			n.walked[path] = trail
			return trail
		}
	}
	trail, _ = confine.Follow(path) // after an error, as far as it came
	n.walked[path] = trail
	return trail
}

// DotGit gathers the way from the .git of a work tree to its repository.
func (n *Names) DotGit(name string) { n.dotGit(name, true) }

func (n *Names) dotGit(name string, tracked bool) {
	text, _ := readAt(unix.AT_FDCWD, name, 0, gitplace.MaxPointer)
	target, ok := gitplace.GitFile(text)
	if !ok {
		n.place(name, Named{Why: toRepository, Way: true, Tracked: tracked})
		return
	}
	n.name(name, toRepository, true)
	n.way(beneath(filepath.Dir(name), target))
}

const toRepository = "git finds a repository through it"

// ways gathers the ways between a repository and its work trees.
func (n *Names) ways(at gitDirs) {
	pointer := func(dir, name string) string {
		text, err := readAt(unix.AT_FDCWD, dir+name, 0, gitplace.MaxPointer)
		if to := gitplace.Pointer(text); err == nil && to != "" {
			return beneath(dir, to)
		}
		return ""
	}
	dirs := []string{at.gitDir}
	if key := [2]string{at.commonDir, "/worktrees"}; !n.went[key] {
		n.went[key] = true
		_ = entries(at.commonDir+"/worktrees", func(name string, _ bool) { dirs = append(dirs, at.commonDir+"/worktrees/"+name) })
	}
	for _, dir := range dirs {
		if common := pointer(dir, "/commondir"); common != "" {
			n.way(common)
		}
		if dotGit := pointer(dir, "/gitdir"); dotGit != "" {
			n.DotGit(dotGit)
		}
	}
}

// way adds a path to a repository. A link on it could lead git to another repository.
func (n *Names) way(path string) {
	n.place(path, Named{Why: toRepository, Way: true, Tracked: true})
}

// name adds a path, which may be relative to nothing, with the links on its way.
func (n *Names) name(path, why string, file bool) { n.place(path, Named{Why: why, File: file}) }

// place adds a path and the links on it. named is the rest of the entry.
func (n *Names) place(path string, named Named) {
	trail, why := n.follow(path), named.Why
	for _, l := range trail.Links {
		if place, in := n.inRoot(l.Place); in {
			n.add(Named{Path: place, Why: why, Link: true, Way: named.Way, Tracked: named.Tracked})
		}
	}
	if place, in := n.inRoot(trail.Place); in {
		named.Path, named.Tracked = place, named.Tracked && n.look(place) == missingFile
		n.add(named)
	} else if !named.Way {
		n.hardLink(trail.Place)
	}
	// Above a "..", a name may become a link.
	for at := strings.Index(path, "/../"); at > 0; {
		above := n.follow(path[:at])
		if place, in := n.inRoot(above.Place); in {
			n.add(Named{Path: place, Why: why, Way: true, Tracked: n.look(above.Place) == missingFile})
		}
		next := strings.Index(path[at+3:], "/../")
		if next < 0 {
			break
		}
		at += 3 + next
	}
}

func (n *Names) add(named Named) {
	key := Named{Path: named.Path, Link: named.Link}
	if at, known := n.index[key]; known {
		n.Named[at].File = n.Named[at].File && named.File
		n.Named[at].Way, n.Named[at].Tracked = n.Named[at].Way && named.Way, n.Named[at].Tracked || named.Tracked
		return
	}
	n.index[key] = len(n.Named)
	n.Named = append(n.Named, named)
}

// inRoot returns the path in a root by which a command reaches a place. Directories that
// fold case, and bind mounts, have several.
func (n *Names) inRoot(place string) (string, bool) {
	for _, root := range n.roots {
		if below, ok := within(place, root); ok {
			return place, below != ""
		}
	}
	for _, root := range n.roots {
		names := strings.Count(root, "/")
		top := place
		for strings.Count(top, "/") > names {
			top = filepath.Dir(top)
		}
		if top != place && strings.EqualFold(top, root) && sameFile(top, root) {
			return root + place[len(top):], true
		}
	}
	device, inner := n.onDevice(place)
	for _, root := range n.roots {
		if on, top := n.onDevice(root); on == device && device != "" {
			if below, ok := within(inner, top); ok {
				return root + below, below != ""
			}
		}
	}
	return "", false
}

func within(path, dir string) (below string, ok bool) {
	if !fsat.Within(path, dir) {
		return "", false
	}
	return path[len(strings.TrimSuffix(dir, "/")):], true
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// onDevice is the path of a place in its file system.
func (n *Names) onDevice(place string) (device, inner string) {
	longest := -1
	for _, m := range n.mounts { // a later one covers earlier ones
		if below, ok := within(place, m.Point); ok && len(m.Point) >= longest {
			longest, device, inner = len(m.Point), m.Device, strings.TrimSuffix(m.Root, "/")+below
		}
	}
	return device, inner
}

// entries calls fn with the names in a directory, as far as it can be read.
func entries(dir string, fn func(name string, link bool)) error {
	fd, err := fsat.Openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fsat.Each(fd, func(e fsat.Entry) error {
		fn(e.Name, e.Type == unix.DT_LNK || e.Type == unix.DT_UNKNOWN && fsat.IsLink(fd, e.Name))
		return nil
	})
}

// links adds the targets of the symbolic links in a directory.
func (n *Names) links(dir, why string) {
	_ = entries(dir, func(name string, link bool) {
		n.Partial = n.Partial || strings.HasPrefix(name, "sharedindex.")
		if link {
			n.name(dir+"/"+name, why, false)
		}
	})
}

// hardLinks is hardLink for the files in a directory.
func (n *Names) hardLinks(dir string) {
	_ = entries(dir, func(name string, link bool) {
		if !link {
			n.hardLink(dir + "/" + name)
		}
	})
}

// hardLink notes a file outside of the roots that may have another name in one. The
// system's own are no command's to write.
func (n *Names) hardLink(place string) {
	var st unix.Stat_t
	if strings.HasPrefix(place, "/usr/") && !strings.HasPrefix(place, "/usr/local/") || unix.Lstat(place, &st) != nil {
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 && !slices.Contains(n.Linked, place) {
		n.Linked = append(n.Linked, place)
	}
}

// directory adds a directory in which git looks for some names. If it is also the top of
// a work tree, only these.
func (n *Names) directory(dir, why string, names []string) {
	real := n.follow(dir).Place
	if n.isTop(real) {
		for _, name := range names {
			n.name(dir+"/"+name, why, true)
		}
	} else {
		n.name(dir, why, false)
	}
	n.links(dir, why)
	if _, in := n.inRoot(real); !in {
		n.hardLinks(dir)
	}
}

func (n *Names) hooks(at ground, dir string) {
	for _, top := range at.tops {
		if h := (Hooks{n.follow(top).Place, dir}); !slices.Contains(n.Hooks, h) {
			n.Hooks = append(n.Hooks, h)
		}
	}
}

// isTop reports whether commands have to write in a directory: it is the top of a work
// tree, or a root is in it.
func (n *Names) isTop(dir string) bool {
	if slices.ContainsFunc(n.roots, func(root string) bool { return fsat.Within(root, dir) }) {
		return true
	}
	_, err := os.Lstat(dir + "/.git")
	return err == nil
}

type state byte

const (
	unseen state = iota
	missingFile
	aFile
	aDirectory
)

// look finds the file that a path leads to.
func (n *Names) look(path string) state {
	is := n.seen[path]
	if is == unseen {
		var st unix.Stat_t
		switch err := unix.Stat(path, &st); {
		case err != nil:
			is = missingFile
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			is = aDirectory
		default:
			is = aFile
		}
		n.seen[path] = is
	}
	return is
}

// has reports whether a directory may have the first name of a path. Most words name
// nothing there.
func (n *Names) has(dir, path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "./"), "/")
	if first == "" || first == "." || first == ".." {
		return true
	}
	names, known := n.listed[dir]
	if !known {
		names = map[string]bool{}
		if err := entries(dir, func(name string, _ bool) { names[strings.ToLower(name)] = true }); err != nil && !missing(err) {
			names = nil // it has files that cannot be listed
		}
		n.listed[dir] = names
	}
	return names == nil || names[strings.ToLower(first)]
}

func (n *Names) hasAny(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return n.has(dir, path) })
}
