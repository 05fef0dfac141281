package gitland

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
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

	running func(tree string) bool // whether another command runs in a tree that overlaps; nil: not asked yet
	held    bool                   // no command begins
	news    []module               // new submodules of what is to land
}

// repository is one git directory below a layer: the layer's own, or one of its
// submodules'.
type repository struct {
	rel, host string
	format    objects.Format
	sharing   gitlock.Sharing
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
		return l.finish(&s, nil)
	}
	if id, err := gitdir.Identity(l.GitDir); err != nil {
		return err
	} else if s.GitDir != "" && id != s.GitDir {
		return errors.New("another git directory is in its place")
	}
	l.lander.last, l.lander.running, l.lander.news = last, nil, nil
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

func (l *Layer) openUpper() (int, error) { return l.OpenUpper(unix.O_RDONLY) }

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
	if err := l.unpack(out); err != nil {
		return err
	}
	l.moveBase(out)
	held, stay := map[string]int64{}, slices.Concat(out.Keep, out.hold, l.begunWith(out.Keep))
	now := l.now(stay...)
	for _, rel := range stay {
		held[rel] = out.since(rel)
		if value, is := l.hasLanded(&out.record, rel); is {
			held[rel] = now
			out.stayed(rel, value)
		}
	}
	maps.DeleteFunc(out.Trees, func(rel, _ string) bool { return !slices.Contains(out.Keep, path.Join(rel, indexFile)) })
	maps.DeleteFunc(out.Stayed, func(rel, _ string) bool { return !slices.Contains(stay, rel) })
	out.Told = slices.DeleteFunc(out.Told, func(line string) bool { return strings.HasSuffix(line, dropped) }) // the next loss is another one
	out.Refs, out.Began, out.Marks, out.Files, out.Moves, out.Held, out.Phase = nil, nil, nil, nil, nil, held, tidying
	err := error(nil)
	if out.empty() {
		err = os.Rename(filepath.Join(l.Dir, recordFile), filepath.Join(l.Dir, tidyFile))
	} else {
		err = l.save(out.record)
	}
	if err != nil {
		return err
	}
	return l.finish(&out.record, append([]string{}, out.said...))
}

// unpack gives references that stay files of their own, as packed-refs does not stay.
func (l *Layer) unpack(out *landed) error {
	upper, err := l.openUpper()
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	for rel, r := range l.lander.repos {
		var names []string
		for _, kept := range out.keep {
			if name, err := filepath.Rel(cmp.Or(rel, "."), kept); err == nil && strings.HasPrefix(name, "refs/") {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		dir, err := fsat.Kernel().Open(upper, cmp.Or(rel, "."), unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = refs.Unpack(dir, r.hexLen(), names)
		unix.Close(dir)
		if err != nil {
			return err
		}
	}
	return nil
}

// hasLanded returns the value of a reference of the host's that is still as it landed while the command
// ran: the work that stays in the layer began with that.
func (l *Layer) hasLanded(r *record, rel string) (value string, is bool) {
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
			return "", false
		}
		host.HexLen = 2 * format.Size()
		id, target, err := refs.Value(host, name)
		return value, err == nil && valueOf(id, target) == value
	}
	return "", false
}

// finish tidies a layer whose record asks for it, and reports the files that stay. said are the lines of the landing;
// others of the same kind are forgotten, so that they are told again. They are nil if it is not known.
func (l *Layer) finish(s *record, said []string) error {
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
	for _, name := range t.back {
		out.refused(fmt.Sprintf("%q: the command has removed it, and the host's is as it was: git worktree prune, remove and unlock are for the host", filepath.Join(l.GitDir, name)))
	}
	for i, name := range t.bad {
		if i == maxTold {
			out.drop("%d more files that git could not read", len(t.bad)-maxTold)
			break
		}
		out.drop("%q: git could not read it", filepath.Join(l.GitDir, name))
	}
	out.Phase = ""
	if said != nil {
		said = append(said, out.said...)
		out.Told = slices.DeleteFunc(out.Told, func(line string) bool { return strings.HasSuffix(line, stays) && !slices.Contains(said, line) })
	}
	*s = out.record
	needless := []string{tidyFile, recordFile}
	if !s.empty() {
		err, needless = l.save(*s), needless[:1]
	}
	for _, name := range needless {
		if rerr := os.Remove(filepath.Join(l.Dir, name)); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
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
	main, err := l.landing(r, r.host, upper, upper, out)
	if err != nil {
		return err
	}
	defer func() { main.indexes() }()
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
			n, err := l.landing(r, git, upper, sub, out)
			if err != nil {
				return err
			}
			defer func() { n.indexes() }()
			if err := l.submodules(sub, name, out); err != nil {
				return err
			}
			n.owners = owners
			return n.land()
		})
		if err == nil && late[r.host] == pass {
			main.owners = owners
			err = main.land()
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
	r.sharing = sharingOf(r.host)
	if r.objects, err = objects.Open(filepath.Join(r.host, "objects"), r.format); err != nil {
		return nil, err
	}
	r.lander = objects.NewLander(r.objects, r.format, objects.Options{Shallow: r.mayEnd, Cut: r.cut, Promised: r.promised, Sharing: r.sharing, Budget: r.budget})
	l.repos[rel] = r
	return r, nil
}

// sharingOf reads core.sharedRepository of a git directory.
func sharingOf(gitDir string) (s gitlock.Sharing) {
	text, _ := os.ReadFile(filepath.Join(gitDir, "config"))
	entries, _ := gitconfig.Parse("config", text)
	for _, e := range entries {
		if e.Key == "core.sharedrepository" {
			is, _ := e.Bool()
			s = gitlock.ParseSharing(e.Value, is)
		}
	}
	return s
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
	if !out.last {
		r.lander.Remember()
	}
	objects := path.Join(r.rel, "objects")
	switch {
	case result.Later:
		out.keep = append(out.keep, objects)
		out.tell("the objects are more than pk reads for one command: the others land after the next one")
		return err
	case len(result.Refused) > maxTold:
		out.refused(fmt.Sprintf("%d objects do not land: the first is %q: %s", len(result.Refused)+result.Omitted, result.Refused[0].Name, result.Refused[0].Reason))
	default:
		for _, o := range result.Refused {
			out.refused(fmt.Sprintf("object %q does not land: %s", o.Name, o.Reason))
		}
	}
	if len(result.Refused) > 0 {
		out.left = append(out.left, objects)
	}
	return err
}
