package gitland

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// lander lands the changes that commands have written to a layer. All data there may be
// an attacker's, and may change while lander reads it.
type lander struct {
	mutex  sync.Mutex
	layer  *Layer
	last   bool // the command has ended
	told   []string
	notes  int                    // number of lines in told about changes that landed
	left   []string               // as landed.left, of the last landing
	repos  map[string]*repository // by path below the git directory; "" for that itself
	budget objects.Budget
}

// repository is one git directory below a layer: the layer's own, or one of its
// submodules'.
type repository struct {
	rel, host string
	format    objects.Format
	objects   *objects.Database
	lander    *objects.Lander
	guard     *guard
	ends      ends
	promised  []string // kinds of objects that may be missing
	past      past

	budget  *objects.Budget
	badLFS  map[string]string // versions of files of LFS whose content is not that of their name
	leftLFS int64             // bytes of holes and further names in them that may still be read
}

// landed is one landing.
type landed struct {
	record
	told  *[]string
	notes *int
	keep  []string // paths below the upper layer that stay for the next command
	hold  []string // further paths for which the time of the mount still holds
	left  []string // paths of references and files that did not land
	last  bool     // the command has ended
	once  bool     // the layer ends with the command
}

func (o *landed) tell(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(*o.told, line) {
		*o.told = append(*o.told, line)
	}
}

// retell is tell, and takes back what an earlier landing of the command has told with the same beginning.
func (o *landed) retell(beginning, format string, args ...any) {
	*o.told = slices.DeleteFunc(*o.told, func(line string) bool { return strings.HasPrefix(line, beginning) })
	o.tell("%s"+format, append([]any{beginning}, args...)...)
}

// note reports a change that landed.
func (o *landed) note(format string, args ...any) {
	before := len(*o.told)
	o.tell(format, args...)
	*o.notes += len(*o.told) - before
}

// vital are files and directories without which, or with bad ones, git sees no repository
// in a directory, or always fails.
var vital = []string{"HEAD", "refs", "heads", "packed-refs", "shallow", "objects", "commondir", "index"}

// stay leaves a file for the next command, and reports once in the life of a layer why it
// does not land. While the command runs, it may still land.
func (o *landed) stay(rel, format string, args ...any) {
	if o.once || !slices.Contains(vital, path.Base(rel)) {
		o.wait(rel, format, args...)
		return
	}
	o.left = append(o.left, rel) // git would not start with a bad one
	o.drop(format, args...)
}

// wait is stay for a file that is good, and can land later.
func (o *landed) wait(rel, format string, args ...any) {
	o.left = append(o.left, rel)
	line := fmt.Sprintf(format, args...)
	if o.once {
		line += "; it is dropped, since another command ran at the same time"
	} else {
		o.keep = append(o.keep, rel)
		line += "; it stays in the sandbox"
	}
	o.refused(line)
}

const dropped = "; it is dropped"

// drop reports once that a file without which git works is not there for the next command.
func (o *landed) drop(format string, args ...any) { o.refused(fmt.Sprintf(format, args...) + dropped) }

func (o *landed) refused(line string) {
	if o.last && !slices.Contains(o.Told, line) {
		o.Told = append(o.Told, line)
		o.tell("%s", line)
	}
}

func quoted(names []string) string {
	all := fmt.Sprintf("%q", names)
	return strings.ReplaceAll(all[1:len(all)-1], `" "`, `", "`)
}

func (o *landed) keeps(rel string) bool {
	return slices.ContainsFunc(o.keep, func(kept string) bool { return fsat.Within(rel, kept) })
}

func (o *landed) keepsBelow(rel string) bool {
	return slices.ContainsFunc(o.keep, func(kept string) bool { return kept != rel && fsat.Within(kept, rel) })
}

// Land lands new commits and references while the command runs. LandLast lands and reports the
// rest: half of a step may look like another one.
func (l *Layer) Land() { _ = l.land(false, false) }

// ForgetLocks makes commands see that locks of the host's are gone.
func (l *Layer) ForgetLocks() {
	if l.Plain != nil {
		return
	}
	upper, err := fsat.Openat(unix.AT_FDCWD, l.Upper(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == nil {
		l.forgetLocks(upper)
		unix.Close(upper)
	}
}

// LandLast lands once the command has ended. told are lines for the user about changes
// that landed in another way than expected. Work that cannot land now lands with the next
// command that uses the layer.
func (l *Layer) LandLast() (told []string) { return l.landEnded(true) }

// LandKept is LandLast for a layer that processes of the command still use.
func (l *Layer) LandKept() (told []string) { return l.landEnded(false) }

func (l *Layer) landEnded(tidy bool) (told []string) {
	if l.File() == nil {
		return nil // Reopen has found that the host's git directory is gone
	}
	if err := l.land(true, tidy); err != nil {
		l.lander.told = append(l.lander.told, fmt.Sprintf("cannot land all that was written to %q: %s; it lands after the next command that uses it", l.GitDir, strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	return l.lander.told
}

// Landed reports whether all lines of LandLast are about changes that landed.
func (l *Layer) Landed() bool { return len(l.lander.told) == l.lander.notes }

// Left lists the references and files below the git directory that the last landing did not
// land.
func (l *Layer) Left() []string { return l.lander.left }

// land lands. last tells that the command has ended; tidy removes landed changes from the
// layer.
func (l *Layer) land(last, tidy bool) error {
	l.lander.mutex.Lock()
	defer l.lander.mutex.Unlock()
	if l.Plain != nil {
		return l.keepPlain(last)
	}
	upper, err := l.openUpper()
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	if entries, err := fsat.Next(upper); err != nil || len(entries) == 0 {
		if tidy && l.Once {
			err = errors.Join(err, l.remove())
		}
		return err
	}
	if err := l.Wait(overlay.Landing, unix.F_WRLCK); err != nil {
		return err
	}
	defer func() { _ = l.Try(overlay.Landing, unix.F_UNLCK) }()
	s, err := l.load()
	if errors.Is(err, os.ErrNotExist) { // another command has landed all, and tidied
		return nil
	}
	if err != nil {
		return err
	}
	if s.Phase == tidying {
		return l.finish(&s)
	}
	if id, err := gitdir.Identity(l.GitDir); err != nil {
		return err
	} else if s.GitDir != "" && id != s.GitDir {
		return errors.New("another git directory is in its place")
	}
	l.lander.last = last
	for _, r := range l.lander.repos {
		r.guard = nil
	}
	out := &landed{record: s, told: &l.lander.told, notes: &l.lander.notes, last: last, once: l.Once}
	err = l.lander.repository(upper, "", out)
	if errors.Is(err, unix.EACCES) { // the command may have closed directories of the layer
		openUp(upper, maxOpenUp)
		err = l.lander.repository(upper, "", out)
	}
	out.Keep, l.lander.left = out.keep, out.left
	if tidy && err == nil {
		return l.tidyUp(out)
	}
	l.forgetLocks(upper)
	return errors.Join(err, l.save(out.record))
}

func (l *Layer) openUpper() (int, error) {
	info, err := os.Lstat(l.Upper())
	if err == nil && info.Mode().Perm()&0o700 != 0o700 { // the command has closed it
		err = os.Chmod(l.Upper(), info.Mode().Perm()|0o700)
	}
	if err != nil {
		return -1, err
	}
	return fsat.Openat(unix.AT_FDCWD, l.Upper(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// remove removes the layer of one command.
func (l *Layer) remove() error {
	dir, err := os.Open(filepath.Dir(l.Dir))
	if err != nil {
		return err
	}
	defer dir.Close()
	e := fsat.Eraser{Opener: fsat.Kernel()}
	return e.Remove(int(dir.Fd()), filepath.Base(l.Dir))
}

// maxOpenUp bounds the depth to which directories are opened up. Names of references and
// of submodules nest no deeper.
const maxOpenUp = 64

// openUp gives the owner all permissions on the directories below one of a layer.
func openUp(dir, depth int) {
	list, err := fsat.Reopen(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(list)
	_ = fsat.Each(list, func(e fsat.Entry) error {
		_ = fsat.AllowOwner(fsat.Kernel(), list, e.Name) // it may be another file now, or gone
		if sub, err := fsat.Openat(list, e.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil {
			if depth > 0 {
				openUp(sub, depth-1)
			}
			unix.Close(sub)
		}
		return nil
	})
}

// tidyUp removes from the layer the files that later commands must not see, once no
// command uses it. It first saves that in the record: in a half-emptied layer a command
// seems to have removed the rest.
func (l *Layer) tidyUp(out *landed) error {
	if l.shared {
		if err := l.Wait(overlay.Starting, unix.F_WRLCK); err != nil {
			return err
		}
		defer func() { _ = l.Try(overlay.Starting, unix.F_UNLCK) }()
		if err := l.Try(overlay.Use, unix.F_WRLCK); err != nil {
			return l.save(out.record) // another command uses it, and will tidy
		}
		// The next command has to mount the overlay anew, so it must not find it in use.
		defer func() { _ = l.Try(overlay.Use, unix.F_UNLCK) }()
	}
	if l.Once {
		return l.remove()
	}
	l.moveBase(out)
	held := map[string]int64{}
	for _, rel := range slices.Concat(out.Keep, out.hold, l.begunWith(out.Keep)) {
		if held[rel] = out.since(rel); l.hasLanded(&out.record, rel) {
			held[rel] = l.now()
		}
	}
	out.Refs, out.Began, out.Marks, out.Files, out.Held, out.Phase = nil, nil, nil, nil, held, tidying
	err := error(nil)
	if out.empty() {
		err = os.Rename(filepath.Join(l.Dir, recordFile), filepath.Join(l.Dir, tidyFile))
	} else {
		err = l.save(out.record)
	}
	if err != nil {
		return err
	}
	return l.finish(&out.record)
}

// hasLanded reports whether a reference of the host's is still as it landed while the command
// ran: the work that stays in the layer began with that.
func (l *Layer) hasLanded(r *record, rel string) bool {
	for git, landed := range r.Refs {
		name, below := rel, true
		if git != "" && git != "." {
			name, below = strings.CutPrefix(rel, git+"/")
		}
		value, is := landed[name]
		if !is || !below {
			continue
		}
		host := refs.Host{Common: filepath.Join(l.GitDir, git), Git: filepath.Join(l.GitDir, git)}
		if filepath.Base(filepath.Dir(host.Git)) == "worktrees" {
			host.Common = filepath.Dir(filepath.Dir(host.Git))
		}
		format, _, err := objects.FormatOf(host.Common)
		if err != nil {
			return false
		}
		host.HexLen = 2 * format.Size()
		id, target, err := refs.Value(host, name)
		if target != "" {
			id = "ref: " + target
		}
		return err == nil && id == value
	}
	return false
}

// finish tidies a layer whose record asks for it, and reports the files that stay.
func (l *Layer) finish(s *record) error {
	upper, err := l.openUpper()
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	out := &landed{record: *s, told: &l.lander.told, notes: &l.lander.notes, keep: s.Keep, last: true}
	t := &tidy{host: l.GitDir, out: out, eraser: fsat.Eraser{Opener: fsat.Kernel()}}
	if err := t.upper(upper); err != nil {
		return err
	}
	for _, name := range t.stays {
		out.stay(name, "%q", filepath.Join(l.GitDir, name))
	}
	for i, name := range t.bad {
		if i == maxTold {
			out.drop("%d more files that git could not read", len(t.bad)-maxTold)
			break
		}
		out.drop("%q: git could not read it", filepath.Join(l.GitDir, name))
	}
	out.Phase = ""
	*s = out.record
	if !s.empty() {
		err = l.save(*s)
	}
	if rerr := os.Remove(filepath.Join(l.Dir, tidyFile)); !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// repository lands from the upper layer of one git directory, and from those of the
// linked worktrees and submodules in it that the host has.
func (l *lander) repository(upper int, rel string, out *landed) error {
	if st, err := fsat.Lstat(upper, "HEAD"); err == nil && overlay.IsWhiteout(st) {
		out.tell("the command has removed the git directory %q, and the host's is as it was", filepath.Join(l.layer.GitDir, rel))
		return nil
	}
	r, err := l.open(rel)
	if err != nil {
		return err
	}
	r.past = past{}
	indexes := l.readIndexes(r, r.host, rel, upper, out)
	defer indexes()
	if err := r.landObjects(upper, out); err != nil {
		return err
	}
	if err := l.submodules(upper, rel, out); err != nil { // their commits come before those that lead to them
		return err
	}
	if err := l.landEnds(r, out); err != nil {
		return fmt.Errorf("cannot land %q: %w", shallowFile, err)
	}
	if err := r.landLFS(upper, out); err != nil {
		return err
	}
	// A branch lands with the HEAD that leads to it, whose log has its commits too; other
	// references that all worktrees share land last. A HEAD that takes the branch of another
	// work tree comes after that one's.
	owners, late := map[string]string{}, map[string]bool{}
	own := func(up int, git string) {
		_, herr := fsat.Lstat(up, "HEAD")
		_, lerr := fsat.Lstat(up, "logs/HEAD")
		if branch := headOf(up, r.refs(git)); branch != "" && (herr == nil || lerr == nil) && slices.Contains(l.layer.GitDirs, git) {
			owners[branch] = git
			late[git] = l.guard(r).usedElsewhere(branch, git) != ""
		}
	}
	own(upper, r.host)
	err = l.each(upper, "worktrees", rel, func(sub int, name string) error {
		own(sub, filepath.Join(l.layer.GitDir, name))
		return nil
	})
	for _, pass := range []bool{false, true} {
		if err != nil {
			break
		}
		err = l.each(upper, "worktrees", rel, func(sub int, name string) error {
			git := filepath.Join(l.layer.GitDir, name)
			if late[git] != pass {
				return nil
			}
			indexes := l.readIndexes(r, git, name, sub, out)
			defer indexes()
			if err := l.submodules(sub, name, out); err != nil {
				return err
			}
			return l.landGit(r, git, upper, sub, owners, indexes, out)
		})
		if err == nil && late[r.host] == pass {
			err = l.landGit(r, r.host, upper, upper, owners, indexes, out)
		}
	}
	if err == nil && l.last { // else a branch may be missing that a setting is about
		err = l.landConfig(r, upper, out)
	}
	return err
}

// submodules lands from the upper layers of the submodules of a work tree.
func (l *lander) submodules(dir int, rel string, out *landed) error {
	return l.modules(dir, "modules", rel, func(sub int, name string) error { return l.repository(sub, name, out) })
}

// modules calls do for each submodule. A slash in a submodule's name is a directory here.
func (l *lander) modules(dir int, in, rel string, do func(sub int, name string) error) error {
	return l.each(dir, in, rel, func(sub int, name string) error {
		if exists(filepath.Join(l.layer.GitDir, name, "HEAD")) {
			return do(sub, name)
		}
		return l.modules(sub, ".", name, do)
	})
}

// each calls do for the directories in a directory of the upper layer that the host has
// too, with their path below the git directory.
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
	r := &repository{rel: rel, host: filepath.Join(l.layer.GitDir, rel), ends: ends{fresh: map[string]bool{}}, budget: &l.budget, badLFS: map[string]string{}, leftLFS: leastLFS}
	var err error
	if r.format, r.promised, err = objects.FormatOf(r.host); err != nil {
		return nil, err
	}
	if r.objects, err = objects.Open(filepath.Join(r.host, "objects"), r.format); err != nil {
		return nil, err
	}
	r.lander = objects.NewLander(r.objects, r.format, objects.Options{Shallow: r.mayEnd, Cut: r.cut, Promised: r.promised, Budget: r.budget})
	l.repos[rel] = r
	return r, nil
}

// hexLen is the number of digits of an ID.
func (r *repository) hexLen() int { return 2 * r.format.Size() }

// refs are the references of a git directory of the repository.
func (r *repository) refs(git string) refs.Host {
	return refs.Host{Common: r.host, Git: git, HexLen: r.hexLen()}
}

func (r *repository) landObjects(upper int, out *landed) error {
	if err := r.readEnds(upper, out); err != nil {
		return err
	}
	dir, err := fsat.Openat(upper, "objects", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == unix.EACCES {
		return err
	}
	if err != nil {
		return nil // none, or no directory
	}
	defer unix.Close(dir)
	result, err := r.lander.Land(dir)
	objects := path.Join(r.rel, "objects")
	switch {
	case result.Later:
		out.keep = append(out.keep, objects)
		out.tell("the objects are more than pk reads for one command: the others land after the next one")
		return err
	case len(result.Refused) > maxTold:
		out.stay(objects, "%d objects: the first is %q: %s", len(result.Refused)+result.Omitted, result.Refused[0].Name, result.Refused[0].Reason)
		return err
	}
	for _, o := range result.Refused {
		out.stay(objects, "object %q: %s", o.Name, o.Reason)
	}
	return err
}

// maxTold bounds the objects that are named.
const maxTold = 10

// landGit lands the directory up of the upper layer in git, the host's git directory or
// a linked worktree's: the state of work under way, references, HEAD and the index.
func (l *lander) landGit(r *repository, git string, upper, up int, owners map[string]string, indexes func() *indexes, out *landed) error {
	rel, err := filepath.Rel(l.layer.GitDir, git)
	if err != nil {
		return err
	}
	if !slices.Contains(l.layer.GitDirs, git) {
		if git != r.host {
			return nil
		}
		_, err = l.landRefs(r, git, rel, upper, false, "", owners, headLock{}, out)
		return err
	}
	host := r.refs(git)
	before, began := l.guard(r).before(git), r.beganAt(host, rel, out)
	after := headID(up, upper, host)
	resets := before.id // where git resets HEAD if the work under way is given up
	if branch := headOf(up, host); branch != "" {
		resets, _, _ = refs.Value(host, branch)
	}
	fresh := map[string]bool{}
	o := state.Options{
		HexLen: r.hexLen(), Kind: r.objects.Kind, Whole: func(short string) string { return r.wholeID(host, short) },
		Exists:  func(id string) bool { return r.objects.Has(id) && l.clean(r, id) },
		Fetched: l.guard(r).fetched,
		Pick:    func(id string, back bool) bool { return l.guard(r).mayPick(id, math.MaxInt, back, after) },
		Branch:  before.branch,
		Follows: func(id string, rebase bool) bool {
			from := resets
			if rebase {
				from = began
			}
			why, err := l.guard(r).checkedOut(before, id)
			return why == "" && err == nil && (from == "" || r.isAncestor(from, id))
		},
		Fresh: func(branch string) bool { // as it was before the references landed
			if _, known := fresh[branch]; !known {
				id, _, err := refs.Value(host, branch)
				fresh[branch] = err == nil && out.beginning(r.rel, branch, id) == ""
			}
			return fresh[branch]
		},
		Since: func(name string) time.Time { return time.Unix(0, out.since(path.Join(rel, name))) }, Landed: out.marks(rel),
		Keep: func(id string) error {
			kept, err := refs.Keep(host, id, "autostash", l.refOptions(r, out))
			if kept != "" {
				out.note("the changes that `git --autostash` had put away on the host are now %q", kept)
			}
			return err
		},
	}
	underWay := false // a state that the host's git must not see
	var held []string // its files that stay
	if l.last {
		o.Try = true
		result, err := state.Land(git, up, o)
		if err != nil {
			return err
		}
		for _, s := range result.Stays {
			if st, err := fsat.Lstat(up, s.Name); slices.Contains(operations, s.Name) && (err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR || readable(st, s.Name)) {
				held = append(held, s.Name)
			}
		}
		underWay = len(held) > 0 && !(isRebase(up, held) && headOf(up, host) != "")
	} else { // a state that git is writing would be incomplete
		underWay = hasOperation(up) || slices.ContainsFunc(operations, func(name string) bool { return exists(filepath.Join(git, name)) })
	}
	if l.last && !underWay && after != before.id {
		changed, err := state.Differences(git, up, o)
		if err != nil {
			return err
		}
		if op := l.cannotGoOn(r, git, changed, after); op != "" {
			underWay, held = true, append(held, op)
		}
	}
	branch := "" // which belongs to the state, as do HEAD, the index and the branch from which it began
	if underWay {
		if branch = headOf(up, host); branch != "" && r.isValue(upper, branch) {
			out.keep = append(out.keep, path.Join(r.rel, branch), path.Join(r.rel, "logs", branch))
		}
		if branch != "" || r.isValue(up, "HEAD") {
			out.keep = append(out.keep, path.Join(rel, "HEAD"), path.Join(rel, "logs/HEAD"))
		}
		if x := indexes(); x != nil && x.invalid != nil {
			out.stay(path.Join(rel, indexFile), "the index: %v", x.invalid)
		} else {
			out.keep = append(out.keep, path.Join(rel, indexFile))
		}
	}
	if underWay || len(held) > 0 { // the branch from which a rebase began
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name"} {
			if dir, err := fsat.Kernel().Open(up, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath); err == nil {
				branch, _ := readSmall(dir, path.Base(name), unix.O_NOFOLLOW)
				out.hold = append(out.hold, path.Join(r.rel, strings.TrimSpace(string(branch))))
				unix.Close(dir)
			}
		}
	}
	gitlock.Sweep(filepath.Join(git, indexFile))
	var lock *gitlock.Lock
	defer func() {
		indexes() // it may still be reading
		if lock != nil {
			_ = lock.Release()
		}
	}()
	lockIndex := func() (err error) {
		if !l.last || l.layer.shared {
			if err := l.awaitIndex(up); err != nil {
				return err
			}
			indexes = l.readIndexes(r, git, rel, up, out)
		}
		if x := indexes(); !underWay && lock == nil && x.lands() {
			if lock, err = l.lockIndex(x.host.path); err == nil && !x.host.same() {
				indexes = l.readIndexes(r, git, rel, up, out)
			}
		}
		return err
	}
	_, old, others := leads(host)
	refused, err := l.landRefs(r, git, rel, upper, !underWay, branch, owners, headLock{append(others, "HEAD", old, headOf(up, host)), lockIndex}, out)
	if err != nil || underWay && !l.last {
		return err
	}
	if l.last {
		if o.Try = false; len(held) == 0 { // else it stays, as HEAD may
			after = headNow(host)
		}
		if err := landStates(git, rel, up, o, out); err != nil {
			return err
		}
	}
	if underWay {
		return l.holdBack(r, git, rel, upper, up, held[0], branch, out)
	}
	if err := l.letGo(r, host, rel, out); err != nil {
		return err
	}
	why, at := "", headOf(up, host)
	if slices.Contains(refused, at) || slices.Contains(refused, "HEAD") {
		why = "its HEAD has not landed"
	} else if !l.layer.sameHead(up, git) {
		why = "the host has another HEAD"
	}
	if x, name := indexes(), path.Join(rel, indexFile); why != "" && x != nil && out.Files[name] != x.version {
		if x.invalid == nil && (out.keeps(path.Join(rel, "HEAD")) || at != "" && out.keeps(path.Join(r.rel, at))) {
			out.wait(name, "the index: %s", why)
		} else {
			out.stay(name, "the index: %s", why)
		}
	}
	if why != "" {
		return nil
	}
	err = l.landIndex(r, git, rel, indexes(), lock, out)
	for n := 0; n < maxAgain && errors.Is(err, errIndexChanged); n++ { // an editor may write stat data at any time
		err = l.landIndex(r, git, rel, l.readIndexes(r, git, rel, up, out)(), lock, out)
	}
	return err
}

// maxAgain bounds how often an index is read again that the host writes meanwhile.
const maxAgain = 10

// landStates lands states, and reports those that stay.
func landStates(git, rel string, up int, o state.Options, out *landed) error {
	result, err := state.Land(git, up, o)
	for _, s := range result.Stays {
		if slices.Contains(remarks, s.Name) {
			continue
		}
		if st, err := fsat.Lstat(up, s.Name); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && !readable(st, s.Name) {
			out.drop("%s: %s", s.Name, s.Why)
			continue
		}
		out.stay(path.Join(rel, s.Name), "%s: %s", s.Name, s.Why)
	}
	return err
}

// before returns a HEAD of the host before the landing.
func (g *guard) before(git string) head {
	if i := slices.IndexFunc(g.tops, func(h head) bool { return h.git == git }); i >= 0 {
		return g.tops[i]
	}
	return head{}
}

// headNow returns the commit of the host's HEAD.
func headNow(host refs.Host) string {
	id, _, _ := leads(host)
	return id
}

// beganAt returns the commit of the host's HEAD before the commands began.
func (r *repository) beganAt(host refs.Host, rel string, out *landed) string {
	id, branch, _ := refs.Value(host, "HEAD")
	if branch != "" {
		id = "ref: " + branch
	}
	id = out.beginning(rel, "HEAD", id)
	if branch, is := strings.CutPrefix(id, "ref: "); is {
		id, _, _ = refs.Value(host, branch)
		id = out.beginning(r.rel, branch, id)
	}
	return id
}

// readSmall reads a small file that a command may have made, such as HEAD.
func readSmall(dir int, name string, flags int) ([]byte, error) {
	text, _, err := overlay.ReadFile(dir, name, flags, gitplace.MaxPointer)
	return text, err
}

// leads follows the host's HEAD, through branches that lead to others, as far as git does.
func leads(host refs.Host) (id, branch string, others []string) {
	id, branch, _ = refs.Value(host, "HEAD")
	for at := branch; at != "" && len(others) < 5; {
		if id, at, _ = refs.Value(host, at); at != "" {
			others = append(others, at)
		}
	}
	return id, branch, others
}

// cannotGoOn returns the name of a state of the host's that does not change, and that the
// host's git may not go on with at another HEAD, or "".
func (l *lander) cannotGoOn(r *repository, git string, changed []state.Difference, head string) string {
	if head == l.guard(r).before(git).id {
		return ""
	}
	ends := func(op string) bool {
		return slices.ContainsFunc(changed, func(d state.Difference) bool { return d.Name == op })
	}
	if exists(filepath.Join(git, "rebase-apply")) && !ends("rebase-apply") {
		return "rebase-apply" // its patches may change any file
	}
	for _, op := range []string{"rebase-merge", "sequencer", "MERGE_AUTOSTASH"} {
		if ends(op) {
			continue
		}
		for id, back := range state.Picks(git, op) {
			if len(id) < r.hexLen() {
				id = r.wholeID(r.refs(git), id)
			}
			if !l.guard(r).mayPick(id, math.MaxInt, back, head) {
				return op
			}
		}
	}
	return ""
}

// wholeID returns the ID for which git takes the beginning of one, "" if that is not clear or
// if a reference has that name.
func (r *repository) wholeID(host refs.Host, short string) string {
	for _, name := range []string{short, "refs/" + short, "refs/tags/" + short, "refs/heads/" + short, "refs/remotes/" + short, "refs/remotes/" + short + "/HEAD"} {
		if id, target, err := refs.Value(host, name); err != nil || id+target != "" {
			return ""
		}
	}
	return r.objects.Whole(short)
}

// remarks are files that git writes for the user's convenience with almost any command.
// Without them nothing is lost.
var remarks = []string{"COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG", "ORIG_HEAD", "FETCH_HEAD"}

// operations are the names of work under way that has a HEAD and an index of its own.
var operations = []string{"rebase-merge", "rebase-apply", "sequencer", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "BISECT_LOG"}

// isValue reports whether git reads an ID in a file of a reference, if there is one: without
// a HEAD it finds no repository.
func (r *repository) isValue(dir int, name string) bool {
	if st, err := fsat.Lstat(dir, name); err == nil && overlay.IsWhiteout(st) {
		return name != "HEAD"
	}
	text, err := readSmall(dir, name, unix.O_NOFOLLOW)
	id := bytes.TrimSpace(text)
	_, bad := hex.DecodeString(string(id))
	return errors.Is(err, os.ErrNotExist) || err == nil && bad == nil && len(id) == r.hexLen()
}

// holdBack keeps on the host the commit of a HEAD that does not land, since a state stays in
// the sandbox, and tells of it: commands may have left the state and work on another branch.
func (l *lander) holdBack(r *repository, git, rel string, upper, up int, state, branch string, out *landed) error {
	host, o := r.refs(git), l.refOptions(r, out)
	changes, _, err := refs.Changes(host, upper, o)
	if err != nil {
		return err
	}
	name, what := "HEAD", "HEAD and the index do not land"
	if branch != "" {
		name, what = branch, fmt.Sprintf("%q, HEAD and the index do not land", branch)
	}
	i := slices.IndexFunc(changes, func(c refs.Change) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	in := r.rel
	if name == "HEAD" {
		in = rel
	}
	out.left = append(out.left, path.Join(in, name))
	id := changes[i].New
	kept, err := refs.KeepBack(host, id, name, o)
	if err != nil {
		out.tell("%s while %q stays in the sandbox, and the commit %s cannot be kept on the host: %v", what, state, short(id), err)
	}
	if kept == "" {
		return nil
	}
	out.Waits = append(slices.DeleteFunc(out.Waits, func(w waiting) bool { return w.Ref == kept }), waiting{rel, kept, id})
	then := ""
	if !out.once {
		then = "; finish that, or give it up and keep the commits: " + l.layer.toType(quitting(up, state))
	}
	out.tell("%s while %q stays in the sandbox: the commit %s is %q%s", what, state, short(id), kept, then)
	return nil
}

// letGo removes the refs of holdBack whose commits have landed.
func (l *lander) letGo(r *repository, host refs.Host, rel string, out *landed) error {
	var left []waiting
	for _, w := range out.Waits {
		gone := false
		if w.Git == rel {
			var err error
			if gone, err = refs.LetGo(host, w.Ref, w.ID, l.refOptions(r, out)); err != nil {
				return err
			}
		}
		if !gone {
			left = append(left, w)
		}
	}
	out.Waits = left
	return nil
}

// isRebase reports whether the files of work under way are those of a rebase, during which
// HEAD leads to no branch: if it does, the command has left the rebase.
func isRebase(up int, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return quitting(up, name) != "git rebase --quit" })
}

// quitting is the command that ends the operation with a file, and changes no branch.
func quitting(up int, state string) string {
	switch state {
	case "rebase-apply":
		if fd, err := fsat.Kernel().Open(up, "rebase-apply/applying", unix.O_PATH|unix.O_NOFOLLOW, 0, fsat.Beneath); err == nil {
			unix.Close(fd)
			return "git am --quit"
		}
		return "git rebase --quit"
	case "rebase-merge":
		return "git rebase --quit"
	case "REVERT_HEAD":
		return "git revert --quit"
	case "MERGE_HEAD":
		return "git merge --quit"
	case "BISECT_LOG":
		return "git bisect reset HEAD"
	}
	return "git cherry-pick --quit"
}

// toType is a command line for the layer's sandbox.
func (l *Layer) toType(command string) string {
	if l.shared {
		return command + ", in the session"
	}
	return "pk-bash '" + command + "'"
}

// headOf returns the branch to which HEAD leads in a directory of the upper layer, or on
// the host if that has none, and "" if it is detached.
func headOf(up int, host refs.Host) string {
	text, err := readSmall(up, "HEAD", unix.O_NOFOLLOW)
	if err != nil {
		_, target, _ := refs.Value(host, "HEAD")
		return target
	}
	target, symbolic := strings.CutPrefix(string(text), "ref:")
	if target = strings.TrimSpace(target); !symbolic || refs.CheckName(target) != nil {
		return ""
	}
	return target
}

// headID returns the commit of HEAD in a directory of the upper layer, or on the host if the
// layer has none; "" if it is not clear.
func headID(up, upper int, host refs.Host) string {
	name, dir := headOf(up, host), upper
	if name == "" {
		name, dir = "HEAD", up
	}
	text, err := readSmall(dir, name, unix.O_NOFOLLOW)
	if err == nil {
		return strings.TrimSpace(string(text))
	}
	if _, err := fsat.Lstat(upper, "packed-refs"); err == nil {
		return ""
	}
	id, _, _ := refs.Value(host, name)
	return id
}

// sameHead reports whether the host has the HEAD of a directory of the upper layer. If that
// has none, it is the host's branch with which the commands began: the user may have switched to
// another one since.
func (l *Layer) sameHead(up int, git string) bool {
	seen, err := readSmall(up, "HEAD", unix.O_NOFOLLOW)
	if err != nil {
		began := filepath.Join(l.Base(), l.rel(git))
		return !exists(filepath.Join(began, "HEAD")) || branchOf(began) == branchOf(git)
	}
	has, err := os.ReadFile(filepath.Join(git, "HEAD"))
	return err == nil && strings.TrimSpace(string(has)) == strings.TrimSpace(string(seen))
}

// headLock is the lock of an index, to be taken before HEAD moves, or a branch to which it leads: git on
// the host locks the index to commit, and with the old one would take back a commit that has landed.
type headLock struct {
	names []string
	lock  func() error
}

// landRefs lands references, but not HEAD without head, and not the branch stays. It returns
// the refused ones.
func (l *lander) landRefs(r *repository, git, rel string, upper int, head bool, stays string, owners map[string]string, lock headLock, out *landed) (refusals []string, err error) {
	host := r.refs(git)
	path := func(name string) string {
		if refs.PerWorktree(name) {
			return path.Join(rel, name)
		}
		return path.Join(r.rel, name)
	}
	o := l.refOptions(r, out)
	o.Held, o.Began, o.Landed = map[string]time.Time{}, l.layer.values(r.host), out.refs(rel)
	o.Switch = func(id string) bool {
		why, err := l.guard(r).checkedOut(l.guard(r).before(git), id)
		return why == "" && err == nil
	}
	common := out.refs(r.rel)
	for name, value := range common {
		if !refs.PerWorktree(name) && name != "logs/HEAD" {
			o.Landed[name] = value
		}
	}
	changes, refused, err := refs.Changes(host, upper, o)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if since, ok := out.Held[path(c.Name)]; ok {
			o.Held[c.Name] = time.Unix(0, since)
		}
	}
	if len(o.Held) > 0 {
		if changes, refused, err = refs.Changes(host, upper, o); err != nil {
			return nil, err
		}
	}
	for _, f := range refused {
		if f.Broken {
			out.drop("%q: %s", f.Name, f.Reason)
		} else {
			out.stay(path(f.Name), "%q: %s", f.Name, f.Reason)
		}
	}
	own := slices.Contains(l.layer.GitDirs, git)
	changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
		if refs.PerWorktree(c.Name) {
			return c.Name == "HEAD" && !head || !own
		}
		if !l.last && c.New+c.Target == "" {
			return true
		}
		owner, owned := owners[c.Name]
		return c.Name == stays || owned && owner != git || !owned && git != r.host
	})
	if len(changes) > 0 {
		began := r.beganAt(host, rel, out)
		meanwhile := l.layer.meanwhile(git, began, out.Torn, out.Files[filepath.Join(rel, indexFile)] != "")
		if err := l.setAside(r, git, began, meanwhile, changes); err != nil {
			return nil, err
		}
	}
	changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
		if c.Aside == incomplete {
			refusals = append(refusals, c.Name)
			out.stay(path(c.Name), "%q: %s", c.Name, incomplete)
		}
		return c.Aside == incomplete
	})
	if !l.last {
		changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
			if c.Aside != "" {
				refusals = append(refusals, c.Name)
			}
			return c.Aside != ""
		})
	}
	refuse := func(stay func(rel, format string, args ...any), name string, why any) {
		if stay(path(name), "%q: %v", name, why); out.keeps(path(name)) {
			out.keep = append(out.keep, path("logs/"+name))
		}
	}
	moves := func(c refs.Change) bool { return c.Aside == "" && slices.Contains(lock.names, c.Name) }
	var results []refs.Result
	if slices.ContainsFunc(changes, moves) {
		isNew := func(c refs.Change) bool { return !moves(c) && c.Aside == "" && c.Old+c.OldTarget == "" && !c.Moved }
		slices.SortStableFunc(changes, func(a, b refs.Change) int { // of which there may be many, without the lock
			switch {
			case isNew(a) == isNew(b):
				return 0
			case isNew(a):
				return -1
			}
			return 1
		})
		n := slices.IndexFunc(changes, func(c refs.Change) bool { return !isNew(c) })
		if results, err = refs.Apply(host, changes[:n], o); err != nil {
			return nil, err
		}
		err := lock.lock()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		changes = slices.DeleteFunc(changes, func(c refs.Change) bool {
			waits := err != nil && moves(c)
			if waits {
				refusals = append(refusals, c.Name)
				refuse(out.wait, c.Name, err)
			}
			return waits
		})
	}
	others, err := refs.Apply(host, changes[len(results):], o)
	results = append(results, others...)
	for name, value := range o.Landed {
		if !refs.PerWorktree(name) && name != "logs/HEAD" {
			common[name] = value
		}
	}
	for i, c := range results {
		aside := changes[i].Aside
		if c.Outcome == refs.Landed && c.Old != c.New {
			out.began(path(c.Name), c.Old)
		}
		if c.Outcome != refs.Landed {
			out.left = append(out.left, path(c.Name))
		}
		if c.Outcome == refs.Refuse || c.Outcome == refs.Kept && aside != "" {
			refusals = append(refusals, c.Name)
		}
		switch {
		case c.Outcome == refs.Refuse:
			stay := out.stay
			if _, err := r.objects.Kind(c.New); !isID(c.New) || err == nil {
				stay = out.wait
			}
			refuse(stay, c.Name, c.Reason)
		case c.Outcome == refs.Kept && aside != "" && c.Kept != "":
			out.tell("%q %s: %s; the command's is %q: look at it before you merge it", c.Name, staysAt(c.Old), aside, c.Kept)
		case c.Outcome == refs.Kept && aside != "":
			out.tell("%q %s: %s", c.Name, staysAt(c.Old), aside)
		case c.Outcome == refs.Kept && c.Old == "" && c.Kept != "":
			out.tell("the host has removed %q meanwhile; the command's is %q%s", c.Name, c.Kept, adviceToMake(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
		case c.Outcome == refs.Kept && c.Kept != "":
			out.retell(fmt.Sprintf("the host has moved %q meanwhile: it stays at ", c.Name), "%s, and the command's is %q%s", short(c.Old), c.Kept, advice(c.Name, strings.TrimPrefix(c.Kept, "refs/")))
		case c.Outcome == refs.Kept:
			out.retell(fmt.Sprintf("the host has moved %q meanwhile: it stays at ", c.Name), "%s", short(c.Old))
		case c.Trash != "":
			id, _, _ := refs.Value(host, c.Trash) // of the stash, any entry
			out.note("%q was %s, which is now %q", c.Name, short(cmp.Or(id, c.Old)), c.Trash)
		case !refs.PerWorktree(c.Name) && c.Name != "refs/stash" && isID(c.Old) && isID(c.New) && !r.isAncestor(c.Old, c.New):
			out.note("%q was %s, which other references have", c.Name, short(c.Old))
		}
	}
	return refusals, err
}

// isID reports whether a value is that of a reference which leads to no other one.
func isID(value string) bool { return value != "" && !strings.HasPrefix(value, "ref: ") }

func (l *lander) refOptions(r *repository, out *landed) refs.Options {
	return refs.Options{
		Session: l.layer.Session, Kind: r.objects.Kind, IsAncestor: r.isAncestor, Clean: func(id string) bool { return l.clean(r, id) }, Committer: committer(), Since: time.Unix(0, out.Since),
		Locking: l.layer.hideLock,
	}
}

// advice is the command that gives a user the value of a kept reference, or "".
func advice(name, kept string) string {
	switch branch, is := strings.CutPrefix(name, "refs/heads/"); {
	case is && inShell(branch) && inShell(kept):
		return "; git checkout " + branch + " && git merge --autostash " + kept
	case name == "refs/stash" && inShell(kept):
		return "; git stash apply " + kept
	}
	return ""
}

// adviceToMake is advice if the host has removed the reference.
func adviceToMake(name, kept string) string {
	if branch, is := strings.CutPrefix(name, "refs/heads/"); is && inShell(branch) && inShell(kept) {
		return "; git branch " + branch + " " + kept
	}
	return ""
}

// inShell reports whether a name is safe in a shell. A command in the sandbox may have chosen it.
func inShell(name string) bool {
	return !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./+", r))
	})
}

// short is an ID, or a branch to which HEAD leads, in messages.
func short(value string) string {
	if target, ok := strings.CutPrefix(value, "ref: "); ok {
		return strconv.Quote(target)
	}
	return value[:min(len(value), 10)]
}

// staysAt tells of a reference whose new value does not land.
func staysAt(old string) string {
	if old == "" {
		return "does not land"
	}
	return "stays at " + short(old)
}

// committer is the name in reflogs, as git chooses it without a configuration.
func committer() string {
	name, host := "pk", "localhost"
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + " <" + name + "@" + host + ">"
}

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
	if slices.ContainsFunc(stays, decidesRepository) {
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

// decidesRepository reports whether a wrong value of a key makes git find no repository,
// or another one.
func decidesRepository(key string) bool {
	return strings.HasPrefix(key, "extensions.") || slices.Contains([]string{"core.bare", "core.worktree", "core.repositoryformatversion"}, key)
}
