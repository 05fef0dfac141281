package gitland

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/overlay"
)

// Checkout is a work tree of the host's.
type Checkout struct {
	GitDir   string   `json:"git_dir"`
	WorkTree string   `json:"work_tree"`
	Names    []string `json:"names,omitempty"` // protected files and directories, relative to WorkTree
	Held     []string `json:"held,omitempty"`  // those that are there, which no command can write
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

// usedElsewhere returns the work tree of another git directory that has checked out a branch, or
// returns to it; or "". Git checks out no branch twice: a commit in one work tree would look like
// changes in the other.
func (g *guard) usedElsewhere(branch, git string) string {
	for _, h := range g.tops {
		if h.git == git || !exists(h.workTree) || gitconfig.IsBare(h.git) { // git worktree prune forgets one that is gone
			continue
		}
		_, at, others := leads(g.repo.refs(h.git)) // it may have landed meanwhile
		if slices.Contains(append(append(others, returns(h.git)...), at), branch) {
			return h.workTree
		}
	}
	return ""
}

// returning are the files that name the branch to which git goes back.
var returning = []string{"rebase-merge/head-name", "rebase-apply/head-name", bisectStart}

// returns lists the branches to which git goes back after a rebase or a bisect that is under
// way in a git directory of the host's.
func returns(git string) (branches []string) {
	for _, name := range returning {
		text, _, _ := overlay.ReadFile(unix.AT_FDCWD, filepath.Join(git, name), 0, maxCheckout)
		if branch := strings.TrimSpace(string(text)); branch != "" {
			branches = append(branches, "refs/heads/"+strings.TrimPrefix(branch, "refs/heads/"))
		}
	}
	return branches
}

func (g *guard) headIDs() (ids []string) {
	for _, h := range g.trees {
		ids = append(ids, h.id)
	}
	return ids
}
