package gitdir

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
)

// lander lands what commands have written to a layer. Whatever it reads there may
// be an attacker's, and may change while it is read.
type lander struct {
	mutex sync.Mutex
	layer *Layer
	last  bool // the command has ended
	told  []string
	repos map[string]*repository // by path below the git directory; "" for that itself
}

// repository is one git directory below a layer: the layer's own, or one of its
// submodules'.
type repository struct {
	rel, host string
	format    objects.Format
	objects   *objects.Database
	lander    *objects.Lander
	shallow   map[string]bool // commits whose parents may be missing
	fresh     map[string]bool // those of them that the host did not have
}

// landed is one landing.
type landed struct {
	record
	told *[]string
	keep []string // paths below the upper layer that stay for the next command
}

func (o *landed) tell(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(*o.told, line) {
		*o.told = append(*o.told, line)
	}
}

// stay leaves a file for the next command, and says once in the life of a layer why
// it does not land.
func (o *landed) stay(rel, format string, args ...any) {
	o.keep = append(o.keep, rel)
	line := fmt.Sprintf(format, args...) + "; it stays in the sandbox"
	if !slices.Contains(o.Told, line) {
		o.Told = append(o.Told, line)
		o.tell("%s", line)
	}
}

func (o *landed) keeps(rel string) bool {
	return slices.ContainsFunc(o.keep, func(kept string) bool { return fsat.Within(rel, kept) })
}

func (o *landed) keepsBelow(rel string) bool {
	return slices.ContainsFunc(o.keep, func(kept string) bool { return fsat.Within(kept, rel) })
}

// Land lands what can while the command runs. What it cannot do, LandLast reports.
func (l *Layer) Land() { _ = l.land(false) }

// LandLast lands once the command has ended. told are lines for people about what is
// not as the command may expect.
func (l *Layer) LandLast() (told []string, err error) {
	if l.lock == nil {
		return nil, nil // Reopen has found that the host's git directory is gone
	}
	if err = l.land(true); err != nil {
		err = fmt.Errorf("cannot land what was written to git directory %q: %w", l.GitDir, err)
	}
	return l.lander.told, err
}

func (l *Layer) land(last bool) error {
	l.lander.mutex.Lock()
	defer l.lander.mutex.Unlock()
	if info, err := os.Lstat(l.Upper()); err != nil {
		return err
	} else if info.Mode().Perm()&0o700 != 0o700 { // the command has closed it
		if err := os.Chmod(l.Upper(), info.Mode().Perm()|0o700); err != nil {
			return err
		}
	}
	upper, err := fsat.Openat(unix.AT_FDCWD, l.Upper(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	if entries, err := fsat.Next(upper); err != nil || len(entries) == 0 {
		return err
	}
	if err := l.wait(landing, unix.F_WRLCK); err != nil {
		return err
	}
	defer func() { _ = l.try(landing, unix.F_UNLCK) }()
	s, err := l.load()
	if err != nil {
		return err
	}
	l.lander.last = last
	out := &landed{record: s, told: &l.lander.told}
	err = l.lander.repository(upper, "", out)
	if errors.Is(err, unix.EACCES) { // the command has closed directories of the layer
		openUp(upper, maxOpenUp)
		err = l.lander.repository(upper, "", out)
	}
	if last && err == nil {
		err = l.tidy(out)
	}
	if last && l.Once && err == nil {
		return os.RemoveAll(l.Dir)
	}
	l.forgetLocks(upper)
	return errors.Join(err, l.save(out.record))
}

// maxOpenUp is how deep directories are opened up. Names of references and of
// submodules nest no deeper.
const maxOpenUp = 64

// openUp gives the owner all permissions on the directories below one of a layer.
func openUp(dir, depth int) {
	list, err := fsat.Reopen(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(list)
	_ = fsat.Each(list, func(e fsat.Entry) error {
		_ = fsat.AllowOwner(fsat.Kernel(), list, e.Name) // another file, or nothing by now
		if sub, err := fsat.Openat(list, e.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil {
			if depth > 0 {
				openUp(sub, depth-1)
			}
			unix.Close(sub)
		}
		return nil
	})
}

// tidy takes from the layer what no later command is to see there.
func (l *Layer) tidy(out *landed) error {
	if l.shared {
		if err := l.wait(starting, unix.F_WRLCK); err != nil {
			return err
		}
		defer func() { _ = l.try(starting, unix.F_UNLCK) }()
		if err := l.try(use, unix.F_WRLCK); err != nil {
			return nil // another command uses it, and will tidy
		}
	}
	upper, err := fsat.Openat(unix.AT_FDCWD, l.Upper(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	t := &tidy{host: l.GitDir, out: out, eraser: fsat.Eraser{Opener: fsat.Kernel()}}
	if err := t.upper(upper); err != nil {
		return err
	}
	out.Refs, out.Marks, out.Files = nil, nil, nil // of files that are gone
	for _, name := range t.stays {
		out.stay(name, "%q", filepath.Join(l.GitDir, name))
	}
	return nil
}

// repository lands from the upper layer of one git directory, and from those of the
// linked worktrees and submodules in it that the host has.
func (l *lander) repository(upper int, rel string, out *landed) error {
	if st, err := fsat.Lstat(upper, "HEAD"); err == nil && isWhiteout(st) {
		out.tell("the command has removed the git directory %q, and the host's is as it was", filepath.Join(l.layer.GitDir, rel))
		return nil
	}
	r, err := l.open(rel)
	if err != nil {
		return err
	}
	if err := r.landObjects(upper, out); err != nil {
		return err
	}
	// Linked worktrees come first: the log of HEAD begins with the value that its branch
	// has on the host before it lands.
	err = l.each(upper, "worktrees", rel, func(sub int, name string) error {
		return l.landGit(r, filepath.Join(l.layer.GitDir, name), upper, sub, out)
	})
	if err == nil {
		err = l.landGit(r, r.host, upper, upper, out)
	}
	if err == nil {
		err = r.landConfig(upper, out)
	}
	return errors.Join(err, l.modules(upper, "modules", rel, out))
}

// modules lands submodules. A slash in a submodule's name is a directory here.
func (l *lander) modules(dir int, in, rel string, out *landed) error {
	return l.each(dir, in, rel, func(sub int, name string) error {
		if exists(filepath.Join(l.layer.GitDir, name, "HEAD")) {
			return l.repository(sub, name, out)
		}
		return l.modules(sub, ".", name, out)
	})
}

// each calls do for the directories in a directory of the upper layer that the host
// has too, with their path below the git directory.
func (l *lander) each(dir int, in, rel string, do func(sub int, name string) error) error {
	list, err := fsat.Openat(dir, in, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // the command has changed nothing there
	}
	defer unix.Close(list)
	return fsat.Each(list, func(e fsat.Entry) error {
		name := path.Join(rel, in, e.Name)
		info, err := os.Lstat(filepath.Join(l.layer.GitDir, name))
		if err != nil || !info.IsDir() {
			return nil
		}
		sub, err := fsat.Openat(list, e.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil
		}
		defer unix.Close(sub)
		return do(sub, name)
	})
}

// open opens the host's repository at a path below the layer's git directory.
func (l *lander) open(rel string) (*repository, error) {
	if r := l.repos[rel]; r != nil {
		return r, nil
	}
	r := &repository{rel: rel, host: filepath.Join(l.layer.GitDir, rel)}
	promised := false
	text, err := os.ReadFile(filepath.Join(r.host, "config"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	entries, err := gitconfig.Parse("config", text)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		switch e.Key {
		case "extensions.objectformat":
			if e.Value == "sha256" {
				r.format = objects.SHA256
			}
		case "extensions.partialclone":
			promised = true
		}
	}
	if r.objects, err = objects.Open(filepath.Join(r.host, "objects"), r.format); err != nil {
		return nil, err
	}
	r.lander = objects.NewLander(r.objects, r.format, objects.Options{Shallow: func(id string) bool { return r.shallow[id] }, Promised: promised})
	l.repos[rel] = r
	return r, nil
}

// hexLen is the number of digits of an ID.
func (r *repository) hexLen() int { return 2 * r.format.Size() }

func (r *repository) landObjects(upper int, out *landed) error {
	if err := r.readShallow(upper); err != nil {
		return err
	}
	dir, err := fsat.Openat(upper, "objects", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	result, err := r.lander.Land(dir)
	for _, o := range result.Refused {
		out.stay(path.Join(r.rel, "objects"), "object %q: %s", o.Name, o.Reason)
	}
	return err
}

// readShallow reads the commits without parents: those of the host, and those of the
// layer that the host does not have.
func (r *repository) readShallow(upper int) error {
	host, err := os.ReadFile(filepath.Join(r.host, "shallow"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.shallow, r.fresh = map[string]bool{}, map[string]bool{}
	for _, id := range strings.Fields(string(host)) {
		r.shallow[id] = true
	}
	layer, err := readFile(upper, "shallow", maxShallow)
	if err != nil {
		return nil
	}
	for _, id := range strings.Fields(string(layer)) {
		if !r.shallow[id] && (!r.objects.Has(id) || r.lander.Added(id)) {
			r.shallow[id], r.fresh[id] = true, true
		}
	}
	return nil
}

// maxShallow bounds the file shallow: a line of 41 bytes for each branch, as a rule.
const maxShallow = 16 << 20

// landGit lands from git, the host's git directory or a linked worktree's, what lies
// in up: the state of work under way, references, HEAD and the index.
func (l *lander) landGit(r *repository, git string, upper, up int, out *landed) error {
	rel, err := filepath.Rel(l.layer.GitDir, git)
	if err != nil {
		return err
	}
	if !slices.Contains(l.layer.GitDirs, git) {
		if git != r.host {
			return nil
		}
		return l.landRefs(r, git, rel, upper, false, out)
	}
	o := state.Options{
		HexLen: r.hexLen(), Exists: r.objects.Has, Kind: r.objects.Kind,
		IsNew: func(id string) bool { return r.fresh[id] }, Parents: r.parents,
		Since: time.Unix(0, out.Since), Landed: out.marks(rel),
	}
	underWay := false // something that the host's git must not see
	landState := func(land func(string, int, state.Options) (state.Result, error)) error {
		result, err := land(git, up, o)
		for _, s := range result.Stays {
			if slices.Contains(remarks, s.Name) {
				continue
			}
			out.stay(path.Join(rel, s.Name), "%s: %s", s.Name, s.Why)
			underWay = underWay || slices.Contains(operations, s.Name)
		}
		return err
	}
	if git == r.host {
		if err := landState(state.Shallow); err != nil {
			return err
		}
	}
	if l.last {
		err = landState(state.Land)
	} else { // a state that git is writing would be torn
		underWay = slices.ContainsFunc(operations, func(name string) bool { _, err := fsat.Lstat(up, name); return err == nil })
	}
	if err != nil {
		return err
	}
	if underWay { // HEAD and the index are a part of it
		out.keep = append(out.keep, path.Join(rel, "HEAD"), path.Join(rel, "logs/HEAD"), path.Join(rel, indexFile))
	}
	if err := l.landRefs(r, git, rel, upper, !underWay, out); err != nil || underWay {
		return err
	}
	return l.landIndex(r, git, rel, up, out)
}

// remarks are files that git writes for the user's convenience with almost any command.
// Without them nothing is lost.
var remarks = []string{"COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD"}

// operations are what git has under way with a HEAD and an index of its own.
var operations = []string{"rebase-merge", "rebase-apply", "sequencer", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_HEAD", "BISECT_LOG"}

// parents lists those of a commit on the host.
func (r *repository) parents(id string) (ids []string, err error) {
	_, text, err := r.objects.Read(id)
	if err != nil {
		return nil, err
	}
	header, _, _ := strings.Cut(string(text), "\n\n")
	for line := range strings.SplitSeq(header, "\n") {
		if parent, ok := strings.CutPrefix(line, "parent "); ok {
			ids = append(ids, parent)
		}
	}
	return ids, nil
}

func (l *lander) landRefs(r *repository, git, rel string, upper int, head bool, out *landed) error {
	host := refs.Host{Common: r.host, Git: git, HexLen: r.hexLen()}
	o := refs.Options{
		Session: l.layer.Session, Kind: r.objects.Kind, Since: time.Unix(0, out.Since), Landed: out.refs(rel),
		Committer: committer(), IsAncestor: r.isAncestor,
	}
	changes, refused, err := refs.Changes(host, upper, o)
	if err != nil {
		return err
	}
	for _, f := range refused {
		out.stay(path.Join(r.rel, f.Name), "%q: %s", f.Name, f.Reason)
	}
	own := slices.Contains(l.layer.GitDirs, git)
	changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
		return c.Name == "HEAD" && !head || git != r.host && !ofWorktree(c.Name) || !own && ofWorktree(c.Name)
	})
	results, err := refs.Apply(host, changes, o)
	for _, c := range results {
		switch {
		case c.Outcome == refs.Refuse:
			out.stay(path.Join(r.rel, c.Name), "%q: %s", c.Name, c.Reason)
		case c.Outcome == refs.Kept && c.Kept != "":
			out.tell("the host has moved %q meanwhile: it stays at %s, and the command's is %q%s", c.Name, short(c.Old), c.Kept, advice(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
		case c.Outcome == refs.Kept:
			out.tell("the host has moved %q meanwhile: it stays at %s", c.Name, short(c.Old))
		case c.Trash != "":
			out.tell("%q was %s, which is now %q", c.Name, short(c.Old), c.Trash)
		}
	}
	return err
}

// advice is what a user types to have the value of a reference that was kept, or "". A
// command may have chosen the name, which a shell must not take apart.
func advice(name, kept string) string {
	branch, isBranch := strings.CutPrefix(name, "refs/heads/")
	unsafe := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./+", r))
	}
	switch {
	case strings.ContainsFunc(kept, unsafe) || strings.HasPrefix(branch, "-"):
	case isBranch && !strings.ContainsFunc(branch, unsafe):
		return "; git checkout " + branch + " && git merge " + kept
	case name == "refs/stash":
		return "; git stash apply " + kept
	}
	return ""
}

// ofWorktree reports whether each worktree has a reference of that name.
func ofWorktree(name string) bool {
	return name == "HEAD" || strings.HasPrefix(name, "refs/bisect/") || strings.HasPrefix(name, "refs/worktree/") || strings.HasPrefix(name, "refs/rewritten/")
}

// maxWalk bounds the commits that are looked at to tell a fast-forward.
const maxWalk = 10_000

// isAncestor reports whether commit a is among the last commits before b.
func (r *repository) isAncestor(a, b string) bool {
	seen := map[string]bool{b: true}
	for next := []string{b}; len(next) > 0 && len(seen) < maxWalk; next = next[1:] {
		if next[0] == a {
			return true
		}
		parents, _ := r.parents(next[0])
		for _, p := range parents {
			if !seen[p] {
				seen[p], next = true, append(next, p)
			}
		}
	}
	return false
}

// short is an ID as people read it.
func short(value string) string { return value[:min(len(value), 10)] }

// committer is named in reflogs, as git does without a configuration.
func committer() string {
	name, host := "pk", "localhost"
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + " <" + name + "@" + host + ">"
}

func (r *repository) landConfig(upper int, out *landed) error {
	text, err := readFile(upper, "config", maxConfig)
	rel := path.Join(r.rel, "config")
	if err != nil || out.Files[rel] == digestOf(text) {
		if text != nil {
			out.keep = append(out.keep, rel)
		}
		return nil
	}
	file := filepath.Join(r.host, "config")
	var base []byte
	if r.rel == "" {
		base = out.Base
	}
	_, stays, err := gitconfig.LandRemotes(file, base, text)
	if err != nil {
		out.stay(rel, "the configuration: %v", err)
		return nil
	}
	if len(stays) > 0 {
		out.stay(rel, "the configuration of %q", stays)
	}
	now, err := os.ReadFile(file)
	out.Files[rel], out.Config = digestOf(text), digestOf(now)
	return err
}

const maxConfig = 4 << 20
