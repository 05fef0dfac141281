package gitdir

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// trap judges a name in an open directory that git on the host would follow, or hand to a program as an
// option, if a command has made it.
func (w *walker) trap(fd int, path, name string) {
	if !w.sweeps || w.since == 0 {
		return
	}
	st, err := fsat.Lstat(fd, name)
	if err != nil || st.Ctim.Nano() < w.since && w.moved == 0 {
		return
	}
	s := spot{dir: path, name: name, whose: commands}
	switch isLink := st.Mode&unix.S_IFMT == unix.S_IFLNK; {
	case isLink && IsPatch(name):
		w.made = append(w.made, s)
	case isLink, IsOption(name):
		w.traps = append(w.traps, s)
	}
}

// IsOption reports whether a program would take a name at the top of a work tree for an option: git hands
// such paths to the textconv, filter, diff and merge programs of the user, gitattributes(5).
func IsOption(name string) bool { return strings.HasPrefix(name, "-") }

// IsPatch reports whether git-format-patch(1) may write to a name. It follows a link.
func IsPatch(name string) bool { return patchName.MatchString(name) }

var patchName = regexp.MustCompile(`^(v[^/]*-)?\d{4,}-.*\.patch$`)

// judgeTraps finds the options that the index of the host's does not have, and the links that stand where it has
// something else, or files below, and lead out of the root or to a hidden name in it. git 2.39 goes through these: git
// sparse-checkout empties the directory, git commit PATH and rerere read a file, git rm and git mv take one away.
func (w *walker) judgeTraps() error {
	if len(w.traps) == 0 {
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
	for _, s := range w.traps {
		at, of := w.absolute(filepath.Join(s.dir, s.name)), Repo{}
		for _, r := range repos {
			if r.WorkTree != "" && fsat.Within(at, r.WorkTree) && len(r.WorkTree) >= len(of.WorkTree) {
				of = r
			}
		}
		gitDir := of.GitDir + of.Beyond
		if gitDir == "" {
			continue
		}
		if _, known := read[gitDir]; !known {
			read[gitDir] = indexesOf(gitDir)
		}
		rel, err := filepath.Rel(of.WorkTree, at)
		has := func(x *index.Index) bool { return x.Has(rel) }
		isLink := func(x *index.Index) bool { return x.Get(rel).Mode == index.ModeLink }
		tracked := err == nil && slices.ContainsFunc(read[gitDir], has)
		if IsOption(rel) && !tracked || tracked && !IsOption(rel) && !slices.ContainsFunc(read[gitDir], isLink) && w.leadsAway(at) {
			w.made = append(w.made, s)
		}
	}
	return nil
}

// leadsAway reports whether a link leads out of the root, to a hidden name in it, or nowhere.
func (w *walker) leadsAway(link string) bool {
	to, err := filepath.EvalSymlinks(link)
	return err != nil || !fsat.Within(to, w.root) || strings.Contains(strings.TrimPrefix(to, w.root), "/.")
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
