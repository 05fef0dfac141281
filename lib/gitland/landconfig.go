package gitland

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/overlay"
)

func (l *lander) landConfig(r *repository, upper int, out *landed) error {
	text, _, err := overlay.ReadFile(upper, "config", unix.O_NOFOLLOW, objects.MaxConfig)
	rel := path.Join(r.rel, "config")
	if err != nil || out.Files[rel] == digestOf(text) {
		switch {
		case err == nil:
			out.keep = append(out.keep, rel)
		case errors.Is(err, overlay.ErrTooLarge) || errors.Is(err, overlay.ErrNotRegular):
			out.drop("the configuration: %v", err)
		}
		return nil
	}
	file := filepath.Join(r.host, "config")
	var base []byte
	if r.rel == "" {
		base = out.Base
	}
	changed, stays, err := gitconfig.LandRemotes(file, base, text)
	if err != nil {
		out.drop("the configuration: %v", err)
		return nil
	}
	noteRemotes(changed, func(branch string) (had, fresh bool) {
		branch = "refs/heads/" + branch
		id, _, _ := refs.Value(r.refs(r.host), branch)
		fresh = id != "" && out.beginning(r.rel, branch, id) == "" &&
			!slices.ContainsFunc(l.guard(r).trees, func(h head) bool { return h.branch == branch })
		return id != "" && !fresh, fresh
	}, out)
	entries, _ := gitconfig.Parse(rel, text) // LandRemotes has read it
	if slices.ContainsFunc(stays, func(key string) bool { return decidesRepository(key) && !asksForWorktree(entries, key) }) {
		out.tell("the configuration %s; it is dropped, with all of the layer's configuration", quoted(stays))
		stays = nil
	} else if len(stays) > 0 {
		out.stay(rel, "the configuration %s", quoted(stays))
	}
	now, err := os.ReadFile(file)
	out.Files[rel] = digestOf(text)
	if len(stays) > 0 {
		out.Config[rel] = digestOf(now)
	}
	return err
}

// noteRemotes names the places to which the host's git push, and fetch, will go, and how its
// git pull will change branches: first of remotes and branches that the host had. made tells of
// a branch that the host had, and of one that the command has made.
func noteRemotes(changed []gitconfig.Change, made func(branch string) (had, fresh bool), out *landed) {
	isNew := map[string]bool{} // remotes
	for _, c := range changed {
		if of, variable := c.Remote(); variable == "remote.url" && len(c.Old) == 0 {
			isNew[of] = true
		}
	}
	var lines [3][]string // of the host's remotes, of its branches, and others
	for _, c := range changed {
		of, variable := c.Remote()
		values := "none"
		if len(c.New) > 0 {
			values = quoted(c.New)
		}
		line, kind := "", 2
		switch variable {
		case "remote.url", "remote.pushurl", "remote.fetch":
			if isNew[of] && variable == "remote.fetch" && len(c.Old) == 0 {
				continue
			}
			if line = fmt.Sprintf("the %s of the remote %q is now %s", strings.TrimPrefix(variable, "remote."), of, values); !isNew[of] {
				kind = 0
			}
		case "branch.remote", "branch.merge", "branch.rebase":
			had, fresh := made(of)
			if len(c.Old) > 0 || had {
				kind = 1
			}
			switch {
			case variable == "branch.remote" && (len(c.Old) > 0 || slices.Contains(c.New, ".") && !fresh || had && !slices.Equal(c.New, []string{"origin"})):
				line = fmt.Sprintf("the remote of the branch %q is now %s", of, values)
			case variable == "branch.merge" && len(c.New) > 0 && (len(c.Old) > 0 || !slices.Equal(c.New, []string{"refs/heads/" + of}) && !fresh):
				line = fmt.Sprintf("git pull on the branch %q now merges %s", of, values)
			case variable == "branch.rebase" && (len(c.New) > 0 || had) && (len(c.Old) > 0 || !fresh):
				line = fmt.Sprintf("the setting rebase of the branch %q, for git pull, is now %s", of, values)
			}
		}
		if line != "" {
			lines[kind] = append(lines[kind], line)
		}
	}
	others := slices.Concat(lines[1], lines[2])
	for _, line := range slices.Concat(lines[0], others[:min(len(others), maxTold)]) {
		out.note("%s", line)
	}
	if more := len(others) - maxTold; more > 0 {
		out.note("%d more remotes and branches have changed: git remote -v", more)
	}
}

// asksForWorktree reports whether a key only says whether there is a config.worktree. git
// sparse-checkout sets it, and keeps its own settings there.
func asksForWorktree(entries []gitconfig.Entry, key string) bool {
	return key == "extensions.worktreeconfig" && !slices.ContainsFunc(entries, func(e gitconfig.Entry) bool {
		_, known := e.Bool()
		return e.Key == key && !known
	})
}

// decidesRepository reports whether a wrong value of a key makes git find no repository,
// or another one.
func decidesRepository(key string) bool {
	return strings.HasPrefix(key, "extensions.") || slices.Contains([]string{"core.bare", "core.worktree", "core.repositoryformatversion"}, key)
}
