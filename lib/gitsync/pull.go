package gitsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

func (c *Client) pull(ctx context.Context, ws *workspace.LocalWorkspace, dir string) error {
	r, err := openRepository(ctx, ws, dir)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.ask(workspace.Access{Path: ".", Write: true}); err != nil {
		return err
	}
	s, err := newScratch(c.conf, ws.Root())
	if err != nil {
		return err
	}
	defer s.close()
	p := &pull{scratch: s, repository: r}
	for _, step := range []func(context.Context) error{p.origin, p.fetch, p.compare, p.check, p.apply} {
		if err := step(ctx); err != nil || p.done {
			return err
		}
	}
	return nil
}

// pull is one Pull.
type pull struct {
	*scratch
	*repository

	branch, commit string // checked out
	remote         string // the name of the remote repository
	address, ref   string // of the remote branch
	next           string // the commit to go to
	done           bool   // there is nothing to do

	changes  []change
	gone     map[string]bool // files that are removed
	goneDirs map[string]bool // and the directories that they are in
}

// change is one file that differs between the two commits.
type change struct {
	path     string
	old, new mode // 0: missing
}

// mode is the type of a file, as git has it.
type mode int

const (
	gitFile       mode = 0o100644
	gitExecutable mode = 0o100755
	gitLink       mode = 0o120000
	gitSubmodule  mode = 0o160000
)

// origin finds out which remote branch the repository follows. A git that obeys
// none of it parses the configuration.
func (p *pull) origin(ctx context.Context) (err error) {
	if p.commit, p.branch, err = p.head(ctx); err != nil {
		return err
	}
	name, ok := strings.CutPrefix(p.branch, "refs/heads/")
	if !ok {
		return gitError("no branch is checked out")
	}
	text, err := p.read(ctx, "config", maxGitConfig)
	if err != nil {
		return err
	}
	list, err := p.run(ctx, call{args: []string{"config", "--file", "-", "--no-includes", "--null", "--list"}, stdin: text})
	if err != nil {
		return err
	}
	config, err := parseSettings(list)
	if err != nil {
		return err
	}
	p.remote = config["branch."+name+".remote"]
	p.address, p.ref = config["remote."+p.remote+".url"], config["branch."+name+".merge"]
	if p.address == "" || !isRef(p.ref) || !strings.HasPrefix(p.ref, "refs/heads/") || !isRef("refs/remotes/"+p.remote) {
		return gitError("its branch follows none")
	}
	return checkURL(p.address, p.conf.Protocols)
}

// parseSettings parses the output of git config --list. The last of several values
// counts; of addresses, the first does. It refuses settings that make a repository
// of another kind.
func parseSettings(list string) (map[string]string, error) {
	settings := map[string]string{}
	for record := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		key, value, _ := strings.Cut(record, "\n")
		switch {
		case strings.HasPrefix(key, "extensions.") && !(key == "extensions.objectformat" && value == "sha1"),
			key == "core.worktree", key == "core.sparsecheckout" && value != "false", key == "core.bare" && value == "true":
			return nil, gitError(fmt.Sprintf("its configuration holds %q, which is not understood here", key))
		case strings.HasSuffix(key, ".url") && settings[key] != "":
			continue
		}
		settings[key] = value
	}
	return settings, nil
}

// fetch gets the history of the branch, unless it has not changed.
func (p *pull) fetch(ctx context.Context) error {
	out, err := p.run(ctx, call{args: []string{"ls-remote", "--quiet", "--", p.address, p.ref}})
	if err != nil {
		return err
	}
	p.next, _, _ = strings.Cut(out, "\t")
	if !gitHash().MatchString(p.next) {
		return gitError("the branch that it follows is gone")
	}
	if p.done = p.next == p.commit; p.done {
		return nil
	}
	branch := strings.TrimPrefix(p.ref, "refs/heads/")
	_, err = p.run(ctx, call{args: []string{
		"clone", "--quiet", "--bare", "--single-branch", "--no-tags", "--no-local", "--no-hardlinks", "--template=",
		"--branch=" + branch, "--", p.address, p.path("repo"),
	}})
	if err != nil {
		return err
	}
	out, err = p.git(ctx, call{args: []string{"rev-parse", "--verify", "--end-of-options", p.ref + "^{commit}"}})
	p.next = strings.TrimSpace(out)
	return err
}

// git runs git on the fetched repository.
func (p *pull) git(ctx context.Context, c call) (string, error) {
	c.args = append([]string{"--git-dir=" + p.path("repo")}, c.args...)
	return p.run(ctx, c)
}

// compare lists the files that differ between the two commits. The repository may
// lie about its commit: a commit that the remote does not know is an error.
func (p *pull) compare(ctx context.Context) error {
	_, err := p.git(ctx, call{args: []string{"merge-base", "--is-ancestor", p.commit, p.next}})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return gitError("it cannot go forward: its commit is not one of those that the branch it follows has come from")
	}
	out, err := p.git(ctx, call{args: []string{"diff-tree", "-r", "-z", "--raw", "--no-renames", p.commit, p.next}})
	if err != nil {
		return err
	}
	p.changes, err = parseChanges(out)
	p.gone, p.goneDirs = map[string]bool{}, map[string]bool{}
	for _, c := range p.changes {
		if c.new != 0 {
			continue
		}
		p.gone[c.path] = true
		for dir := path.Dir(c.path); dir != "." && !p.goneDirs[dir]; dir = path.Dir(dir) {
			p.goneDirs[dir] = true
		}
	}
	return err
}

// parseChanges parses the output of git diff-tree. It leaves submodules out, as any
// pull does.
func parseChanges(out string) ([]change, error) {
	var changes []change
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		c := change{path: fields[i+1]}
		if _, err := fmt.Sscanf(fields[i], ":%o %o", &c.old, &c.new); err != nil {
			return nil, fmt.Errorf("internal error: git diff-tree printed %q", fields[i])
		}
		if c.old == gitSubmodule || c.new == gitSubmodule {
			continue
		}
		if !plainPath(c.path) {
			return nil, gitError(fmt.Sprintf("the branch holds the path %q", c.path))
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// plainPath reports whether a path of a commit lies below its top and is not git's
// own.
func plainPath(name string) bool {
	rel, err := workspace.Clean(name)
	return err == nil && rel == name && rel != "." && !slices.ContainsFunc(strings.Split(name, "/"), func(name string) bool {
		return strings.EqualFold(name, ".git") || workspace.IsReserved(name)
	})
}

// check writes both versions of the files that change outside the workspace, as
// they are in a working tree, and compares the old ones with the workspace.
func (p *pull) check(ctx context.Context) error {
	for _, side := range []struct {
		name, commit string
		mode         func(change) mode
	}{
		{"old", p.commit, func(c change) mode { return c.old }},
		{"new", p.next, func(c change) mode { return c.new }},
	} {
		if err := p.checkOut(ctx, side.name, side.commit, side.mode); err != nil {
			return err
		}
	}
	if err := p.staged(ctx); err != nil {
		return err
	}
	for _, c := range p.changes {
		if err := p.ask(workspace.Access{Path: c.path, Write: true}); err != nil {
			return err
		}
		ok, err := p.unchanged(ctx, c)
		if err != nil {
			return err
		}
		if !ok {
			return &workspace.Error{Err: workspace.ErrChanged, Detail: fmt.Sprintf("%q has changes that are not committed", c.path)}
		}
	}
	return nil
}

// checkOut writes the files of a commit that change.
func (p *pull) checkOut(ctx context.Context, name, commit string, mode func(change) mode) error {
	env := map[string]string{"GIT_INDEX_FILE": p.path(name + ".index")}
	if _, err := p.git(ctx, call{args: []string{"read-tree", commit}, env: env}); err != nil {
		return err
	}
	if err := os.Mkdir(p.path(name), 0o700); err != nil {
		return err
	}
	var list bytes.Buffer
	for _, c := range p.changes {
		if mode(c) != 0 {
			list.WriteString(c.path + "\x00")
		}
	}
	_, err := p.git(ctx, call{
		args:  []string{"--work-tree=" + p.path(name), "checkout-index", "--quiet", "-z", "--stdin"},
		stdin: list.Bytes(), env: env,
	})
	return err
}

// staged refuses a repository whose index, which apply replaces, holds changes that
// are not committed.
func (p *pull) staged(ctx context.Context) error {
	index, err := p.read(ctx, "index", maxGitIndex)
	if errors.Is(err, workspace.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(p.path("its.index"), index, 0o600)
	}
	if err != nil {
		return err
	}
	for _, commit := range []string{p.commit, p.next} { // an interrupted pull may have left the next one
		out, err := p.git(ctx, call{
			args: []string{"diff-index", "--cached", "--raw", "--no-renames", "--ignore-submodules", commit},
			env:  map[string]string{"GIT_INDEX_FILE": p.path("its.index")},
		})
		if err != nil || out == "" {
			return err
		}
	}
	return &workspace.Error{Err: workspace.ErrChanged, Detail: "its index has changes that are not committed"}
}

// unchanged reports whether a file is the one of the old commit, or already that of
// the new one.
func (p *pull) unchanged(ctx context.Context, c change) (bool, error) {
	if c.old == 0 {
		if p.belowGone(c.path) {
			return true, nil // the file in the place of its directory is checked by itself
		}
		if gone, err := p.isGoneDir(ctx, c.path); gone || err != nil {
			return gone, err
		}
	}
	for _, side := range []string{"old", "new"} {
		same, err := p.same(ctx, c.path, filepath.Join(p.path(side), c.path))
		if err == unix.ENOTDIR {
			return p.goneWithDir(ctx, c)
		}
		if same || err != nil {
			return same, err
		}
	}
	return p.removedBefore(c)
}

// goneWithDir reports whether a file that goes is missing because its directory is
// a file by now. A link in the place of the directory leads to another tree.
func (p *pull) goneWithDir(ctx context.Context, c change) (bool, error) {
	if _, err := p.files.Stat(ctx, path.Dir(c.path)); errors.Is(err, workspace.ErrPathTraversal) {
		return false, err
	}
	return c.new == 0, nil
}

// removedBefore reports whether an interrupted pull has removed a file, which then
// had to make room for a directory.
func (p *pull) removedBefore(c change) (bool, error) {
	if c.new != 0 {
		return false, nil
	}
	st, err := p.lstat(c.path)
	info, hostErr := os.Lstat(filepath.Join(p.path("new"), c.path))
	return err == nil && hostErr == nil && isDir(st) && info.IsDir(), nil
}

// belowGone reports whether a directory on the way to a path was a file in the old
// commit, which goes.
func (p *pull) belowGone(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if p.gone[dir] {
			return true
		}
	}
	return false
}

// isGoneDir reports whether a path is a directory in which everything goes.
func (p *pull) isGoneDir(ctx context.Context, name string) (bool, error) {
	st, err := p.lstat(name)
	if err != nil || !isDir(st) {
		return false, nil // same finds out
	}
	all := true
	err = workspace.Walk(ctx, p.files, name, func(path string, entry fs.DirEntry) error {
		all = all && (p.gone[path] || entry.IsDir() && p.goneDirs[path])
		return nil
	})
	return all && p.goneDirs[name], err
}

// apply changes the repository: first the new history, to which nothing refers yet,
// then the files, and last the branch and the index.
func (p *pull) apply(ctx context.Context) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer func() { _ = p.files.Delete(context.WithoutCancel(ctx), ".git/index.lock") }()
	if err := p.copyHistory(ctx); err != nil {
		return err
	}
	for _, replace := range []func(context.Context, change) error{p.remove, p.place} {
		for _, c := range p.changes {
			if err := replace(ctx, c); err != nil {
				return err
			}
		}
	}
	if err := p.moveBranch(ctx); err != nil {
		return err
	}
	return p.files.Rename(ctx, ".git/index.lock", ".git/index")
}

// lock takes the lock of the repository's index, as any git that changes it does,
// and fills it with the new index.
func (p *pull) lock(ctx context.Context) error {
	err := p.write(ctx, p.path("new.index"), ".git/index.lock", workspace.WriteOptions{Exclusive: true, Atomic: true, Sync: true})
	if errors.Is(err, workspace.ErrExist) {
		return &workspace.Error{Err: workspace.ErrExist, Detail: "another git is at work in it (.git/index.lock)"}
	}
	return err
}

// copyHistory copies the objects that the next commit has and the old one has not.
func (p *pull) copyHistory(ctx context.Context) error {
	if err := os.Mkdir(p.path("pack"), 0o700); err != nil {
		return err
	}
	_, err := p.git(ctx, call{
		args:  []string{"pack-objects", "--quiet", "--revs", p.path("pack/pack")},
		stdin: fmt.Appendf(nil, "%s\n^%s\n", p.next, p.commit),
	})
	if err != nil {
		return err
	}
	packs, err := os.ReadDir(p.path("pack"))
	if err != nil {
		return err
	}
	slices.Reverse(packs) // the pack before its idx: git looks for the latter
	for _, pack := range packs {
		err := p.put(ctx, p.path("pack/"+pack.Name()), ".git/objects/pack/"+pack.Name(), 0o444)
		if err != nil {
			return err
		}
	}
	return nil
}

// put copies a file of the host in one step.
func (p *pull) put(ctx context.Context, from, to string, perm fs.FileMode) error {
	return p.write(ctx, from, to, workspace.WriteOptions{Atomic: true, Sync: true, Perm: perm})
}

// remove removes a file that goes, or that becomes one of another type.
func (p *pull) remove(ctx context.Context, c change) error {
	if c.old == 0 || c.new == c.old && c.new != gitLink {
		return nil
	}
	err := p.files.Delete(ctx, c.path)
	if errors.Is(err, workspace.ErrNotDir) || errors.Is(err, workspace.ErrIsDir) && c.new == 0 {
		return nil // see removedBefore
	}
	if err != nil {
		return err
	}
	if c.new == 0 {
		p.prune(path.Dir(c.path))
	}
	return nil
}

// prune removes the directories that are empty now, as git does.
func (p *pull) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		err := p.at(dir, func(parent int, name string) error { return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR) })
		if err != nil {
			return
		}
	}
}

// place puts a new file, or a new version of one, in its place.
func (p *pull) place(ctx context.Context, c change) error {
	from := filepath.Join(p.path("new"), c.path)
	switch c.new {
	case 0:
		return nil
	case gitLink:
		return p.link(ctx, from, c.path)
	case gitExecutable:
		return p.put(ctx, from, c.path, 0o755)
	}
	return p.put(ctx, from, c.path, 0o644)
}

// moveBranch sets the branch to the new commit, unless it has moved meanwhile.
func (p *pull) moveBranch(ctx context.Context) error {
	name := ".git/" + p.branch
	now, _, err := p.head(ctx)
	if err == nil && now != p.commit {
		err = &workspace.Error{Err: workspace.ErrChanged, Detail: "its branch has moved"}
	}
	if err != nil {
		return err
	}
	line := []byte(p.next + "\n")
	old, err := p.files.Read(ctx, name)
	if errors.Is(err, workspace.ErrNotFound) {
		err = workspace.WriteExclusive(ctx, p.files, name, line)
	} else if err == nil {
		err = workspace.WriteIfUnchanged(ctx, p.files, name, line, workspace.HashOf(old))
	}
	if err != nil {
		return err
	}
	return workspace.AtomicWrite(ctx, p.files, ".git/refs/remotes/"+p.remote+"/"+strings.TrimPrefix(p.ref, "refs/heads/"), line)
}
