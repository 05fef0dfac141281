package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// GitPull brings the repository in dir up to date with the branch that its own
// branch follows. It goes forward only: what would need a merge, and what would
// overwrite changes that are not committed, is an error, and nothing has been
// changed then. The files that change are replaced one by one; another GitPull
// takes up one that was interrupted.
//
// The history is fetched into a directory outside the workspace, and compared
// with the commit that the repository says it is at. Then the files that differ,
// and the history that is new, are copied. So git reads no file of the workspace
// but the index, and that with a configuration of its own.
func (w *LocalWorkspace) GitPull(ctx context.Context, dir string) error {
	return failed("pull in", dir, w.gitPull(ctx, dir))
}

func (w *LocalWorkspace) gitPull(ctx context.Context, dir string) error {
	r, err := w.repository(ctx, dir)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.outer.ask(Access{Path: ".", Write: true}); err != nil {
		return err
	}
	s, err := w.gitScratch()
	if err != nil {
		return err
	}
	defer s.close()
	p := &pull{gitScratch: s, repository: r}
	for _, step := range []func(context.Context) error{p.origin, p.fetch, p.compare, p.check, p.apply} {
		if err := step(ctx); err != nil || p.done {
			return err
		}
	}
	return nil
}

// pull is one GitPull.
type pull struct {
	*gitScratch
	*repository

	branch, commit string // what is checked out
	remote         string // the name of where it comes from
	address, ref   string // and what that means
	next           string // the commit to go to
	done           bool   // there is nothing to do

	changes  []change
	gone     map[string]bool // files that are removed
	goneDirs map[string]bool // and the directories that they are in
}

// change is one file that differs between the two commits.
type change struct {
	path     string
	old, new mode // 0: it is not there
}

// mode is what git says a file is.
type mode int

const (
	gitFile       mode = 0o100644
	gitExecutable mode = 0o100755
	gitLink       mode = 0o120000
	gitSubmodule  mode = 0o160000
)

// origin finds out what the repository follows. Its configuration is read by a
// git that takes nothing from it.
func (p *pull) origin(ctx context.Context) (err error) {
	if p.commit, p.branch, err = p.head(ctx); err != nil {
		return err
	}
	name, ok := strings.CutPrefix(p.branch, "refs/heads/")
	if !ok {
		return &Error{Err: ErrGit, Detail: "no branch is checked out"}
	}
	text, err := p.read(ctx, "config", maxGitConfig)
	if err != nil {
		return err
	}
	list, _, err := p.run(ctx, gitCall{args: []string{"config", "--file", "-", "--no-includes", "--null", "--list"}, stdin: text})
	if err != nil {
		return err
	}
	settings, err := parseSettings(list)
	if err != nil {
		return err
	}
	p.remote = settings["branch."+name+".remote"]
	p.address, p.ref = settings["remote."+p.remote+".url"], settings["branch."+name+".merge"]
	if p.address == "" || !isRef(p.ref) || !strings.HasPrefix(p.ref, "refs/heads/") || !isRef("refs/remotes/"+p.remote) {
		return &Error{Err: ErrGit, Detail: "its branch follows none"}
	}
	return checkURL(p.address, p.conf.Protocols)
}

// parseSettings reads what git config prints. The last of several values counts;
// of addresses, the first does. What makes a repository another kind of repository
// is refused.
func parseSettings(list string) (map[string]string, error) {
	settings := map[string]string{}
	for record := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		key, value, _ := strings.Cut(record, "\n")
		switch {
		case strings.HasPrefix(key, "extensions.") && !(key == "extensions.objectformat" && value == "sha1"),
			key == "core.worktree", key == "core.sparsecheckout" && value != "false", key == "core.bare" && value == "true":
			return nil, &Error{Err: ErrGit, Detail: fmt.Sprintf("its configuration holds %q, which is not understood here", key)}
		case strings.HasSuffix(key, ".url") && settings[key] != "":
			continue
		}
		settings[key] = value
	}
	return settings, nil
}

// fetch gets the history of the branch, unless it has not changed.
func (p *pull) fetch(ctx context.Context) error {
	out, _, err := p.run(ctx, gitCall{args: []string{"ls-remote", "--quiet", "--", p.address, p.ref}})
	if err != nil {
		return err
	}
	p.next, _, _ = strings.Cut(out, "\t")
	if !gitHash().MatchString(p.next) {
		return &Error{Err: ErrGit, Detail: "the branch that it follows is gone"}
	}
	if p.done = p.next == p.commit; p.done {
		return nil
	}
	branch := strings.TrimPrefix(p.ref, "refs/heads/")
	_, _, err = p.run(ctx, gitCall{args: []string{
		"clone", "--quiet", "--bare", "--single-branch", "--no-tags", "--no-local", "--no-hardlinks", "--template=",
		"--branch=" + branch, "--", p.address, p.path("repo"),
	}})
	if err != nil {
		return err
	}
	out, _, err = p.git(ctx, gitCall{args: []string{"rev-parse", "--verify", "--end-of-options", p.ref + "^{commit}"}})
	p.next = strings.TrimSpace(out)
	return err
}

// git runs git on what was fetched.
func (p *pull) git(ctx context.Context, call gitCall) (string, int, error) {
	call.args = append([]string{"--git-dir=" + p.path("repo")}, call.args...)
	return p.run(ctx, call)
}

// compare finds out what changes from one commit to the other. The repository may
// lie about its commit; a commit that the other side does not know is no way
// forward.
func (p *pull) compare(ctx context.Context) error {
	_, status, err := p.git(ctx, gitCall{args: []string{"merge-base", "--is-ancestor", p.commit, p.next}, also: 1})
	if err != nil || status != 0 {
		return &Error{Err: ErrGit, Detail: "it cannot go forward: its commit is not one of those that the branch it follows has come from"}
	}
	out, _, err := p.git(ctx, gitCall{args: []string{"diff-tree", "-r", "-z", "--raw", "--no-renames", p.commit, p.next}})
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
		for dir := parent(c.path); dir != "." && !p.goneDirs[dir]; dir = parent(dir) {
			p.goneDirs[dir] = true
		}
	}
	return err
}

// parseChanges reads what git diff-tree prints. Submodules are passed over, as
// in any pull.
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
			return nil, &Error{Err: ErrGit, Detail: fmt.Sprintf("the branch holds the path %q", c.path)}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// plainPath tells whether a path of a tree is one below its top and not git's own.
func plainPath(path string) bool {
	rel, err := clean(path)
	return err == nil && rel == path && rel != "." && !slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool {
		return strings.EqualFold(name, ".git") || isTemp(name)
	})
}

// check writes both versions of what changes outside the workspace, as they are
// in a working tree, and holds the old ones against the files that are there.
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
		if err := p.outer.ask(Access{Path: c.path, Write: true}); err != nil {
			return err
		}
		ok, err := p.unchanged(ctx, c)
		if err != nil {
			return err
		}
		if !ok {
			return &Error{Err: ErrChanged, Detail: fmt.Sprintf("%q has changes that are not committed", c.path)}
		}
	}
	return nil
}

// checkOut writes the files of a commit that change.
func (p *pull) checkOut(ctx context.Context, name, commit string, mode func(change) mode) error {
	env := map[string]string{"GIT_INDEX_FILE": p.path(name + ".index")}
	if _, _, err := p.git(ctx, gitCall{args: []string{"read-tree", commit}, env: env}); err != nil {
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
	_, _, err := p.git(ctx, gitCall{
		args:  []string{"--work-tree=" + p.path(name), "checkout-index", "--quiet", "-z", "--stdin"},
		stdin: list.Bytes(), env: env,
	})
	return err
}

// staged refuses a repository whose index holds what is not committed: it is
// replaced.
func (p *pull) staged(ctx context.Context) error {
	index, err := p.read(ctx, "index", maxGitIndex)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(p.path("its.index"), index, 0o600)
	}
	if err != nil {
		return err
	}
	out, _, err := p.git(ctx, gitCall{
		args: []string{"diff-index", "--cached", "--raw", "--no-renames", "--ignore-submodules", p.commit},
		env:  map[string]string{"GIT_INDEX_FILE": p.path("its.index")},
	})
	if err == nil && out != "" && p.differs(ctx) {
		err = &Error{Err: ErrChanged, Detail: "its index has changes that are not committed"}
	}
	return err
}

// differs tells whether the index is not that of the next commit either, which a
// pull that was interrupted may have put there.
func (p *pull) differs(ctx context.Context) bool {
	out, _, err := p.git(ctx, gitCall{
		args: []string{"diff-index", "--cached", "--raw", "--no-renames", "--ignore-submodules", p.next},
		env:  map[string]string{"GIT_INDEX_FILE": p.path("its.index")},
	})
	return err != nil || out != ""
}

// unchanged tells whether a file is what it was at the old commit, or is already
// what it is to be.
func (p *pull) unchanged(ctx context.Context, c change) (bool, error) {
	if c.old == 0 {
		if p.belowGone(c.path) {
			return true, nil // what is there instead is looked at by itself
		}
		if gone, err := p.isGoneDir(ctx, c.path); gone || err != nil {
			return gone, err
		}
	}
	for _, side := range []string{"old", "new"} {
		same, err := p.same(ctx, c, filepath.Join(p.path(side), c.path))
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// belowGone tells whether what is a directory on the way to a path has been a
// file, which goes.
func (p *pull) belowGone(path string) bool {
	for dir := parent(path); dir != "."; dir = parent(dir) {
		if p.gone[dir] {
			return true
		}
	}
	return false
}

// isGoneDir tells whether a path is a directory in which everything goes.
func (p *pull) isGoneDir(ctx context.Context, path string) (bool, error) {
	info, err := p.files.lstat(ctx, path)
	if err != nil || !info.IsDir() {
		return false, nil // not for this to say
	}
	all := true
	err = Walk(ctx, p.files, path, func(path string, entry fs.DirEntry) error {
		all = all && (p.gone[path] || entry.IsDir() && p.goneDirs[path])
		return nil
	})
	return all && p.goneDirs[path], err
}

// same tells whether a file of the workspace is the same as one of the host,
// which may be missing, as the other may. A link in the place of a directory is
// another tree.
func (p *pull) same(ctx context.Context, c change, host string) (same bool, err error) {
	info, hostErr := os.Lstat(host)
	err = p.files.do(ctx, c.path, func(rel string) error {
		at, err := p.files.locate(rel, false, false)
		if errors.Is(err, unix.ENOTDIR) {
			same = hostErr != nil && c.new == 0 // it goes, and is gone; but nothing can come there
			return nil
		}
		if err != nil {
			return err
		}
		defer at.close()
		var st unix.Stat_t
		err = unix.ENOENT
		if at.missing == nil {
			err = unix.Fstatat(at.dir, at.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		switch {
		case err == unix.ENOENT:
			same = hostErr != nil
			return nil
		case err != nil || hostErr != nil:
			return err
		}
		if info.IsDir() {
			same = st.Mode&unix.S_IFMT == unix.S_IFDIR && c.new == 0
			return nil // a pull that was interrupted has removed the file
		}
		same, err = p.sameContent(at, &st, host, info)
		return err
	})
	return same, err
}

func (p *pull) sameContent(at *place, st *unix.Stat_t, host string, info fs.FileInfo) (bool, error) {
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFLNK && info.Mode()&fs.ModeSymlink != 0:
		target, err := readlinkat(at.dir, at.name)
		if err != nil {
			return false, err
		}
		want, err := os.Readlink(host)
		return target == want, err
	case kind != unix.S_IFREG || !info.Mode().IsRegular() || st.Size != info.Size():
		return false, nil
	}
	fd, err := p.files.openPlace(at, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), at.name)
	defer f.Close()
	g, err := os.Open(host)
	if err != nil {
		return false, err
	}
	defer g.Close()
	return equalReaders(f, g)
}

func equalReaders(a, b io.Reader) (bool, error) {
	bufA, bufB := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if n != m || !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		if errA == io.EOF || errA == io.ErrUnexpectedEOF {
			return errB == errA, nil
		}
		if errA != nil || errB != nil {
			return false, errors.Join(errA, errB)
		}
	}
}

// apply changes the repository: new history first, which nothing refers to yet,
// then the files, and last what says that it has happened.
func (p *pull) apply(ctx context.Context) error {
	lock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Abort()
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
	if err := lock.Close(); err != nil {
		return err
	}
	return p.files.Rename(ctx, ".git/index.lock", ".git/index")
}

// lock takes the lock of the repository's index, as any git does that changes
// it, and fills it with the index that is to be.
func (p *pull) lock(ctx context.Context) (Writer, error) {
	lock, err := p.files.Create(ctx, ".git/index.lock", WriteOptions{Exclusive: true})
	if errors.Is(err, ErrExist) {
		return nil, &Error{Err: ErrExist, Detail: "another git is at work in it (.git/index.lock)"}
	}
	if err != nil {
		return nil, err
	}
	index, err := os.Open(p.path("new.index"))
	if err == nil {
		_, err = io.Copy(lock, index)
		index.Close()
	}
	if err != nil {
		_ = lock.Abort()
		_ = p.files.Delete(context.WithoutCancel(ctx), ".git/index.lock")
		return nil, err
	}
	return lock, nil
}

// copyHistory copies what the next commit needs and the old one does not have.
func (p *pull) copyHistory(ctx context.Context) error {
	if err := os.Mkdir(p.path("pack"), 0o700); err != nil {
		return err
	}
	_, _, err := p.git(ctx, gitCall{
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
		err := p.write(ctx, p.path("pack/"+pack.Name()), ".git/objects/pack/"+pack.Name(), 0o444)
		if err != nil {
			return err
		}
	}
	return nil
}

// write copies a file of the host into the workspace, in one step.
func (p *pull) write(ctx context.Context, from, to string, perm fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := p.files.Create(ctx, to, WriteOptions{Atomic: true, Sync: true, Perm: perm})
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// remove removes what is not there any more, or is something else now.
func (p *pull) remove(ctx context.Context, c change) error {
	if c.old == 0 || c.new == c.old && c.new != gitLink {
		return nil
	}
	err := p.files.Delete(ctx, c.path)
	if errors.Is(err, ErrNotDir) || errors.Is(err, ErrIsDir) && c.new == 0 {
		return nil // see same
	}
	if err != nil {
		return err
	}
	if c.new == 0 {
		p.prune(ctx, parent(c.path))
	}
	return nil
}

// prune removes the directories that are empty now, as git does.
func (p *pull) prune(ctx context.Context, dir string) {
	for ; dir != "."; dir = parent(dir) {
		err := p.files.do(ctx, dir, func(rel string) error {
			at, err := p.files.locate(rel, true, false)
			if err != nil {
				return err
			}
			defer at.close()
			return unix.Unlinkat(at.dir, at.name, unix.AT_REMOVEDIR)
		})
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
		return p.write(ctx, from, c.path, 0o755)
	}
	return p.write(ctx, from, c.path, 0o644)
}

func (p *pull) link(ctx context.Context, from, path string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return p.files.do(ctx, path, func(rel string) error {
		at, err := p.files.locate(rel, true, false)
		if err != nil {
			return err
		}
		defer func() { at.close() }()
		if err := p.files.makeParents(at, false); err != nil {
			return err
		}
		err = unix.Symlinkat(target, at.dir, at.name)
		if err == unix.EEXIST {
			if there, _ := readlinkat(at.dir, at.name); there == target {
				return nil
			}
		}
		return err
	})
}

// moveBranch says where the branch is now, unless it has moved meanwhile.
func (p *pull) moveBranch(ctx context.Context) error {
	name := ".git/" + p.branch
	now, _, err := p.head(ctx)
	if err == nil && now != p.commit {
		err = &Error{Err: ErrChanged, Detail: "its branch has moved"}
	}
	if err != nil {
		return err
	}
	line := []byte(p.next + "\n")
	old, err := p.files.Read(ctx, name)
	if errors.Is(err, ErrNotFound) {
		err = WriteExclusive(ctx, p.files, name, line)
	} else if err == nil {
		err = WriteIfUnchanged(ctx, p.files, name, line, HashOf(old))
	}
	if err != nil {
		return err
	}
	return AtomicWrite(ctx, p.files, ".git/refs/remotes/"+p.remote+"/"+strings.TrimPrefix(p.ref, "refs/heads/"), line)
}
