package gitdir

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
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
}

// guard compares the files that git would write at protected names with the host's. A
// command cannot write there, but git on the host could do it for the command: `git
// checkout .` writes the files of the index, `git stash` those of HEAD's commit.
type guard struct {
	*repository
	workTree string
	names    map[string][]string // by their first part; in lower case, as some file systems ignore it
	files    int                 // that were compared
}

// maxGuarded bounds the files in protected directories that are compared.
const maxGuarded = 10_000

// guard returns nil if the work tree has no protected names.
func (l *lander) guard(r *repository, git, workTree string) *guard {
	g := &guard{repository: r, workTree: workTree, names: map[string][]string{}}
	for _, c := range l.layer.Checkouts {
		if c.GitDir != git && git != "" {
			continue
		}
		if g.workTree == "" {
			g.workTree = c.WorkTree
		}
		for _, name := range c.Names {
			name = strings.ToLower(name)
			first, _, _ := strings.Cut(name, "/")
			g.names[first] = append(g.names[first], name)
		}
	}
	if len(g.names) == 0 {
		return nil
	}
	return g
}

// entry returns the first of changed entries of the index that the host must not get, or "".
func (g *guard) entry(changed []index.Entry) string {
	if g == nil {
		return ""
	}
	for _, e := range changed {
		if g.has(e.Path) && !g.same(e.Path, e.Mode, e.ID) {
			return e.Path
		}
	}
	return ""
}

// has reports whether a file at a path is at a protected name, below it, or in the place of
// a directory above it.
func (g *guard) has(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	names := g.names[strings.ToLower(first)]
	if len(names) == 0 {
		return false
	}
	path = strings.ToLower(path)
	return slices.ContainsFunc(names, func(name string) bool { return fsat.Within(path, name) || fsat.Within(name, path) })
}

// same reports whether git would write the content that the host's file has.
func (g *guard) same(path string, mode uint32, id string) bool {
	seen, err := fsat.Kernel().Open(unix.AT_FDCWD, filepath.Join(g.workTree, path), unix.O_PATH|unix.O_NOFOLLOW, 0, fsat.NoLinks)
	if err != nil && mode == index.ModeLink {
		target, err := os.Readlink(filepath.Join(g.workTree, path))
		return err == nil && g.objects.Name([]byte(target)) == id
	}
	if err != nil {
		return false
	}
	text, st, err := overlay.Read(seen, maxIndex)
	if err != nil || mode == index.ModeExecutable && st.Mode&0o111 == 0 || mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return g.objects.Name(text) == id || g.objects.Name(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))) == id
}

// commit returns the first path at which the tree of a commit has something else than the
// host's file and the tree of the host's own commit, or "". old is "" if the host has none.
func (g *guard) commit(id, old string) (string, error) {
	if g == nil || id == old || old != "" && g.isAncestor(id, old) {
		return "", nil
	}
	new, err := g.tree(id)
	if errors.Is(err, objects.ErrNotFound) {
		return "", nil // it does not land
	}
	if err != nil {
		return "", fmt.Errorf("cannot compare commit %s: %w", id, err)
	}
	was, _ := g.tree(old)
	for _, first := range slices.Sorted(maps.Keys(g.names)) {
		for _, name := range g.names[first] {
			if path, err := g.differs(new, was, "", strings.Split(name, "/")); path != "" || err != nil {
				return path, err
			}
		}
	}
	return "", nil
}

// tree returns the tree of a commit.
func (g *guard) tree(commit string) ([]objects.Entry, error) {
	if commit == "" {
		return nil, nil
	}
	c, err := g.look(commit)
	if err != nil {
		return nil, err
	}
	return g.objects.Tree(c.tree)
}

// differs compares two directories at the rest of a protected name: nil stands for all that
// is there.
func (g *guard) differs(new, old []objects.Entry, dir string, rest []string) (string, error) {
	for _, e := range new {
		if rest != nil && strings.ToLower(e.Name) != rest[0] || slices.Contains(old, e) {
			continue
		}
		path := e.Name
		if dir != "" {
			path = dir + "/" + path
		}
		if g.files++; g.files > maxGuarded {
			return path, nil
		}
		if e.Mode != unix.S_IFDIR {
			if !g.same(path, e.Mode, e.ID) {
				return path, nil
			}
			continue
		}
		new, err := g.objects.Tree(e.ID)
		if errors.Is(err, objects.ErrNotFound) { // of a partial clone
			return path, nil
		}
		if err != nil {
			return "", fmt.Errorf("cannot read %q of a commit: %w", path, err)
		}
		var was []objects.Entry
		if i := slices.IndexFunc(old, func(o objects.Entry) bool { return o.Name == e.Name && o.Mode == e.Mode }); i >= 0 {
			was, _ = g.objects.Tree(old[i].ID)
		}
		below := rest
		if below != nil {
			if below = rest[1:]; len(below) == 0 {
				below = nil
			}
		}
		if path, err := g.differs(new, was, path, below); path != "" || err != nil {
			return path, err
		}
	}
	return "", nil
}

// head is the commit and the branch of a work tree.
type head struct {
	git, workTree string
	branch        string // "" if HEAD is detached
	id            string
}

// heads lists the HEADs of all work trees of a repository, also outside of the roots.
func (l *lander) heads(r *repository) (list []head) {
	dirs := []string{r.host}
	if entries, err := os.ReadDir(filepath.Join(r.host, "worktrees")); err == nil {
		for _, e := range entries {
			dirs = append(dirs, filepath.Join(r.host, "worktrees", e.Name()))
		}
	}
	for _, git := range dirs {
		host := r.refs(git)
		h := head{git: git, workTree: l.workTree(git)}
		if h.workTree == "" {
			continue // it is bare
		}
		if h.id, h.branch, _ = refs.Value(host, "HEAD"); h.branch != "" {
			h.id, _, _ = refs.Value(host, h.branch)
		}
		list = append(list, h)
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

// setAside marks the changes of references that must not land since a work tree has them.
func (l *lander) setAside(r *repository, git string, changes []refs.Change) (err error) {
	value := map[string]string{} // of references then
	var own *refs.Change
	for i, c := range changes {
		if value[c.Name] = c.New; c.Name == "HEAD" {
			own = &changes[i]
		}
	}
	for _, h := range l.heads(r) {
		if h.git == git && own != nil && (own.New != own.Old || own.Target != own.OldTarget) {
			id, known := own.New, own.Target == ""
			if !known {
				if id, known = value[own.Target]; !known {
					id, _, _ = refs.Value(r.refs(git), own.Target)
				}
			}
			if own.Aside, err = l.otherFile(r, h, id); err != nil {
				return err
			}
			if own.Aside == "" {
				continue // it leaves its branch
			}
		}
		i := slices.IndexFunc(changes, func(c refs.Change) bool { return c.Name == h.branch })
		if i < 0 {
			continue
		}
		why := ""
		if c := changes[i]; c.New == "" && c.Target == "" {
			why = fmt.Sprintf("%q has checked it out", h.workTree)
		} else if why, err = l.otherFile(r, h, c.New); err != nil {
			return err
		}
		if why != "" {
			changes[i].Aside = why
		}
	}
	return nil
}

// otherFile returns why a work tree must not get a commit, or "".
func (l *lander) otherFile(r *repository, h head, id string) (string, error) {
	path, err := l.guard(r, l.guarding(r, h.git), h.workTree).commit(id, h.id)
	if path == "" || err != nil {
		return "", err
	}
	return fmt.Sprintf("programs of the host run %q, of which it has another version", path), nil
}

// guarding returns the git directory whose names count for that of a work tree: its own, or
// all of the repository's if it lies outside of the roots.
func (l *lander) guarding(r *repository, git string) string {
	if slices.ContainsFunc(l.layer.Checkouts, func(c Checkout) bool { return c.GitDir == git }) {
		return git
	}
	return ""
}
