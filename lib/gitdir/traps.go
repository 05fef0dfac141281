package gitdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/lazy"
	"pikuri/lib/overlay"
)

// suspect is a name of a command that may be a trap: git on the host would follow it, or hand it to a program as an option.
type suspect struct {
	spot
	isLink bool
}

// suspect notes a name in an open directory, if a command has made it.
func (w *walker) suspect(fd int, path, name string) {
	if !w.sweeps || w.since == 0 {
		return
	}
	if st, err := fsat.Lstat(fd, name); err == nil && (st.Ctim.Nano() >= w.since || w.moved > 0) {
		w.suspects = append(w.suspects, suspect{spot{dir: path, name: name, whose: commands}, st.Mode&unix.S_IFMT == unix.S_IFLNK})
	}
}

// IsOption reports whether a program would take a path in a work tree for an option: git hands
// paths to the textconv, filter, diff and merge programs of the user, gitattributes(5).
func IsOption(path string) bool { return strings.HasPrefix(path, "-") }

// IsWritten reports whether git may write through a link of this name: git-format-patch(1), and
// git-mergetool(1) into a directory.
func IsWritten(name string) bool {
	return patchName().MatchString(name) || strings.HasSuffix(name, ".orig")
}

var patchName = lazy.Regexp(`^(v[^/]*-)?\d{4,}-`)

// errLandFirst asks for another sweep once the work of the command has landed: a link that it has checked out is no trap.
// The landing may take the lock of the state directory itself.
var errLandFirst = errors.New("internal error: the command's work has to land first")

// judgeSuspects finds the traps.
func (w *walker) judgeSuspects() error {
	if len(w.suspects) == 0 {
		return nil
	}
	repos, _, err := find(w.root, w.List)
	if err != nil {
		return err
	}
	if around, ok := gitconfig.Around(filepath.Dir(w.root)); ok {
		repos = append(repos, Repo{WorkTree: around.WorkTree, GitDir: around.GitDir})
	}
	read := map[string][]*index.Index{}
	for _, s := range w.suspects {
		at := w.absolute(filepath.Join(s.dir, s.name))
		top, gitDir := w.treeAround(at, repos)
		if gitDir == "" {
			continue
		}
		if _, known := read[gitDir]; !known {
			read[gitDir] = indexesOf(gitDir)
		}
		if rel, err := filepath.Rel(top, at); err == nil && w.isTrap(s, rel, read[gitDir]) {
			if w.Land != nil {
				return errLandFirst
			}
			w.made = append(w.made, s.spot)
		}
	}
	return nil
}

// treeAround returns the work tree around a path, and its git directory, "" for none.
func (w *walker) treeAround(at string, repos []Repo) (top, gitDir string) {
	for _, r := range repos {
		git := r.GitDir + r.Beyond
		for _, tree := range []string{r.WorkTree, w.workTree(git)} {
			if tree != "" && git != "" && fsat.Within(at, tree) && len(tree) > len(top) {
				top, gitDir = tree, git
			}
		}
	}
	return top, gitDir
}

// isTrap judges a name by its path in the work tree. git 2.39 goes through links in the place of directories that the
// index knows (git sparse-checkout empties them, git commit PATH reads files there, git rm and git mv take them away), and
// of files in a conflict (rerere).
func (w *walker) isTrap(s suspect, rel string, indexes []*index.Index) bool {
	has := func(is func(x *index.Index) bool) bool { return slices.ContainsFunc(indexes, is) }
	switch {
	case IsOption(rel):
		return !has(func(x *index.Index) bool { return x.Has(rel) })
	case !s.isLink:
		return false
	case has(func(x *index.Index) bool { e := x.Get(rel); return x.Has(rel) && (e.Mode == 0 || e.Stage > 0) }):
		return true
	case has(func(x *index.Index) bool { return x.Get(rel).Mode == index.ModeLink }):
		return false
	}
	return IsWritten(s.name) && w.leadsAway(s.dir, s.name)
}

// leadsAway reports whether a link that git may write through leads to another file than one in the root that git may
// write, too.
func (w *walker) leadsAway(dir, name string) bool {
	to, err := filepath.EvalSymlinks(w.absolute(filepath.Join(dir, name)))
	if err != nil || !fsat.Within(to, w.root) || strings.Contains(strings.TrimPrefix(to, w.root), "/.") {
		return true
	}
	st, err := os.Lstat(to)
	return err != nil || !st.Mode().IsRegular() || patchName().MatchString(name) && !patchName().MatchString(filepath.Base(to))
}

// indexesOf reads the index of a git directory: two files if it is split. One that cannot be read has
// nothing, for git too.
func indexesOf(gitDir string) (list []*index.Index) {
	fd, err := fsat.Openat(unix.AT_FDCWD, gitDir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	for names := []string{"index"}; len(names) > 0; names = names[1:] {
		text, _, err := overlay.ReadFile(fd, names[0], 0, index.MaxSize)
		if err != nil {
			continue
		}
		for _, hexLen := range hexLens(fd) {
			x, err := index.ParseHost(text, hexLen)
			if split, is := errors.AsType[*index.SplitError](err); is {
				names = append(names, split.Shared)
				break
			}
			if err == nil {
				list = append(list, x)
				break
			}
		}
	}
	return list
}
