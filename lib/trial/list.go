package trial

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
	"pikuri/lib/workspace"
)

// Item is one change of a trial.
type Item struct {
	overlay.Change
	Root *Root

	// Conflict is the change of the path in the project after the trial began, or "". Landing
	// would undo that change.
	Conflict string

	// Refused is the reason why the change never lands, or "".
	Refused string

	// Unread reports that the content is not read, since the trial's files take far less space
	// than they have bytes. It never lands.
	Unread bool

	// Above reports that Path is a new directory above a path that the user has named, and is
	// not named itself.
	Above bool

	// Repository reports that Path is a git directory that the trial has made. It lands as
	// one that the host's git does not use.
	Repository bool
}

// PermOnly reports whether only the permissions change.
func (i Item) PermOnly() bool { return permOnly(i.Change) }

func permOnly(c overlay.Change) bool { return c.Op == overlay.Modified && !c.Content }

// ListOptions select the changes to list.
type ListOptions struct {
	// Paths are clean paths relative to the root. None means all changes.
	Paths []string

	// Protected returns the rule by which a path is protected on the host, or "". dir tells
	// that a directory would land there.
	Protected func(rel string, dir bool) string

	// ProtectedBelow returns the rule by which an entry below a path is protected, or "". A
	// link at the path could put another file there.
	ProtectedBelow func(rel string) string

	// Names asks for paths only: New may hold only the type, and Conflict and Refused are
	// empty.
	Names bool

	// Links allows landing of symbolic links that lead out of the root.
	Links bool
}

// List returns the changes, parents before children. With Paths it returns those of the
// directories above them too.
func (r *Root) List(o ListOptions) ([]Item, error) {
	var items []Item
	err := r.Walk(o, func(i Item) error {
		items = append(items, i)
		return nil
	})
	return items, err
}

// Walk calls visit for the changes that List returns, until visit returns an error.
func (r *Root) Walk(o ListOptions, visit func(Item) error) error {
	l := &listing{Root: r, ListOptions: o, item: visit, repos: map[string]string{}, moved: map[string]bool{}, space: newSpace()}
	err := l.open()
	defer l.close()
	if err == nil {
		err = overlay.Changes(l.upper, l.lower, overlay.Options{Paths: o.Paths, Parents: true, Types: o.Names, Skip: l.skip, Keep: l.keep}, l.visit)
	}
	switch {
	case l.ended != nil:
		return l.ended
	case err != nil:
		return fmt.Errorf("cannot list the changes of the trial of %q: %w", r.Path, err)
	}
	return nil
}

type listing struct {
	*Root
	ListOptions
	upper, lower int
	item         func(Item) error
	ended        error             // returned by item
	repos        map[string]string // directories, by what repositoryAbove returns
	moved        map[string]bool   // directories, by whether the project's has been replaced
	space        *space
	missing      string // a directory missing in the project; the walk looks below it next
}

func (l *listing) open() (err error) {
	l.upper, l.lower = -1, -1
	if err = l.beginning(); err != nil {
		return err
	}
	if l.landed == nil {
		if err = l.readLanded(); err != nil {
			return err
		}
	}
	if l.lower, err = l.openProject(); err != nil {
		return err
	}
	l.upper, err = l.openUpper()
	return err
}

func (l *listing) close() {
	for _, fd := range []int{l.upper, l.lower} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// openProject opens the project's directory, if it is still the one with which the trial
// began.
func (r *Root) openProject() (int, error) {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, r.Path, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return -1, &Gone{r.Path, "its directory is not there any more"}
	default:
		return -1, &os.PathError{Op: "open", Path: r.Path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if st.Dev != r.began.Dev || st.Ino != r.began.Ino {
		unix.Close(fd)
		return -1, &Gone{r.Path, "another directory has its place since the trial began"}
	}
	return fd, nil
}

// Gone says that a root has not the directory with which the trial began.
type Gone struct{ Path, Reason string }

func (g *Gone) Error() string { return g.Reason }

// Hint is the advice.
func (g *Gone) Hint() string {
	return "move the old one back; pk-apply --discard --all drops all changes of the trial"
}

// Gone returns nil if the root has the directory with which the trial began, or may have.
func (r *Root) Gone() *Gone {
	fd, err := r.openProject()
	if err == nil {
		unix.Close(fd)
	}
	gone, _ := errors.AsType[*Gone](err)
	return gone
}

// openUpper opens the upper layer.
func (r *Root) openUpper() (int, error) { return r.OpenUpper(unix.O_PATH) }

// skip leaves git directories out. Those of the host have layers of their own, and one
// that the trial has made is one item.
func (l *listing) skip(rel string, isDir bool) bool {
	if !gitplace.Named(path.Base(rel)) {
		if !isDir || rel == "." || l.repositoryAbove(rel) != rel {
			return false
		}
		i := Item{Root: l.Root, Refused: "git on the host would use it as a repository"}
		i.Path, i.Op, i.Content = rel, overlay.Added, true
		if st, ok := l.at(l.upper, rel); ok {
			i.New = overlay.File{Mode: st.Mode}
		}
		if st, ok := l.at(l.lower, rel); ok {
			i.Op, i.Old = overlay.Modified, overlay.File{Mode: st.Mode}
		}
		if i.New.Mode != 0 { // else the project has it, and nothing has changed
			l.add(i)
		}
		return true
	}
	if st, ok := l.at(l.upper, rel); ok && !overlay.IsWhiteout(st) {
		if _, ok := l.at(l.lower, rel); !ok && !(l.landed[rel].entries != nil && l.landed[rel].matches(l.repositoryEntry(rel))) {
			i := Item{Root: l.Root, Repository: path.Base(rel) == ".git" && st.Mode&unix.S_IFMT == unix.S_IFDIR}
			i.Path, i.Op, i.New = rel, overlay.Added, fileOf(st)
			switch {
			case !i.Repository:
				i.Refused = "git on the host would use the repository that it names"
			case !l.Names && !l.space.tree(filepath.Join(l.Upper(), rel)):
				i.Refused = tooSparse
			}
			l.add(i)
		}
	}
	return true
}

// keep reports whether an entry appeared in the project after the trial began, other than
// by landing.
func (r *Root) keep(rel string, old overlay.File) bool {
	if r.landed[rel].entries != nil {
		return false
	}
	return !r.before.had(rel) || old.IsDir() && r.before.dirs[rel] != nil && !r.before.same(rel, old.Dev, old.Ino)
}

func (l *listing) visit(c overlay.Change) error {
	if c.Path == "." && c.New.Mode&0o7777 == l.began.Mode {
		return nil // pk has given it that mode; the user has changed the project's since, or cannot write there
	}
	i := Item{Change: c, Root: l.Root}
	if !l.Names {
		i.Conflict, i.Refused = l.conflict(c), l.refuse(c)
	}
	l.add(i)
	return l.ended
}

func (l *listing) add(i Item) {
	if !l.Names && !l.space.takes(i.New) {
		i.Unread = true
		if i.Refused == "" {
			i.Refused = tooSparse
		}
	}
	if l.ended == nil {
		l.ended = l.item(i)
	}
}

// at describes a path in a layer, through no link.
func (l *listing) at(layer int, rel string) (*unix.Stat_t, bool) {
	in := path.Dir(rel)
	if layer == l.lower && l.missing != "" && fsat.Within(in, l.missing) {
		return nil, false
	}
	dir, err := fsat.Kernel().Open(layer, in, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		if layer == l.lower && errors.Is(err, unix.ENOENT) {
			l.missing = in
		}
		return nil, false
	}
	defer unix.Close(dir)
	st, err := fsat.Lstat(dir, path.Base(rel))
	return st, err == nil
}

// conflict returns the change in the project after the trial saw the path. The ctime of a
// file changes with its content, mode and name, and no system call sets it. That of a
// directory changes with its entries, so its identity and mode are compared instead.
func (l *listing) conflict(c overlay.Change) string {
	if dir := path.Dir(c.Path); c.Path != "." && c.Old.Mode != 0 && l.movedAbove(dir) {
		return fmt.Sprintf("the project's directory %q has been replaced", dir)
	}
	known := l.landed[c.Path]
	had := l.before.had(c.Path)
	switch {
	case c.Old.Mode == 0:
		if had && !known.matches(workspace.Entry{}) {
			return "it has been removed from the project"
		}
		return ""
	case known.entries != nil:
		if now, err := l.entryNow(c.Path); err == nil && known.matches(now) {
			return ""
		}
	}
	if !had {
		return "it has come to the project since"
	}
	if c.Old.IsDir() {
		was := l.before.dirs[c.Path]
		switch {
		case was == nil: // the commands could not open it
		case was.dev != c.Old.Dev || was.ino != c.Old.Ino:
			return "it has been replaced in the project"
		case was.mode&0o7777 != c.Old.Mode&0o7777:
			return "its permissions have changed in the project"
		}
		return ""
	}
	// The trial may have seen the change, if its overlay was mounted later. It is a conflict
	// even so: a command may have based its own on an older copy.
	if c.Old.Ctime.UnixNano() >= l.began.Since {
		return "it has changed in the project"
	}
	return ""
}

// movedAbove reports whether a directory of the project, or one above it, has been replaced
// since the trial began. One without a note is new, or was closed to the trial.
func (l *listing) movedAbove(dir string) bool {
	if dir == "." {
		return false
	}
	moved, known := l.moved[dir]
	if known {
		return moved
	}
	if st, ok := l.at(l.lower, dir); ok && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		was := l.before.dirs[dir]
		moved = was != nil && (was.dev != st.Dev || was.ino != st.Ino)
	}
	moved = moved || l.movedAbove(path.Dir(dir))
	l.moved[dir] = moved
	return moved
}

// refuse returns the reason why a change never lands, or "".
func (l *listing) refuse(c overlay.Change) string {
	if errors.Is(c.Err, unix.EACCES) && c.New.Mode != 0 && (c.New.Mode&0o400 == 0 || c.New.IsDir() && c.New.Mode&0o100 == 0) {
		return "it cannot be read: a command has taken the permission, and chmod u+rwX in the trial gives it back"
	}
	if c.Err != nil {
		return fmt.Sprintf("it cannot be read: %v", c.Err)
	}
	if c.Path == "." {
		return "the permissions of a root do not land"
	}
	if rule := l.rule(c.Path, c.Op != overlay.Removed && c.New.IsDir()); rule != "" {
		return rule
	}
	if c.Op == overlay.Removed {
		return ""
	}
	if c.Old.Mode&unix.S_IFMT == unix.S_IFCHR && c.Op == overlay.Added {
		return "the project has a device there that a trial cannot see"
	}
	bits := c.New.Mode & 0o7000
	if c.New.IsDir() && c.Old.IsDir() {
		bits ^= c.Old.Mode & 0o7000
	}
	if c.New.IsDir() && bits != 0 {
		bits &^= l.inherited(c.Path) // a directory keeps the bits that it inherits
	}
	if bits != 0 && c.New.Mode&unix.S_IFMT != unix.S_IFLNK {
		return bitsStay
	}
	switch c.New.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return ""
	case unix.S_IFLNK:
		return l.refuseLink(c.Path)
	}
	return "it is neither a file, a directory nor a symbolic link"
}

// bitsStay refuses an entry with bits that do not land. A directory above a named path lands
// without them, see Plain.
const bitsStay = "set-user-ID, set-group-ID and sticky bits do not land"

// rule returns the rule that forbids landing at a path, or "". dir is as in Protected.
func (l *listing) rule(rel string, dir bool) string {
	if workspace.IsReserved(path.Base(rel)) {
		return "its name is one of pk's own"
	}
	if dir := l.repositoryAbove(path.Dir(rel)); dir != "" {
		return fmt.Sprintf("git on the host would use %q as a repository", dir)
	}
	if l.Protected != nil {
		return l.Protected(rel, dir)
	}
	return ""
}

// repositoryAbove is the directory, or the innermost one above it, that git treats as a
// repository, or "". A directory takes the answer of the one above it: a command can make
// chains of thousands, and to look at all of those above for each took minutes.
func (l *listing) repositoryAbove(dir string) string {
	found, known := l.repos[dir]
	if known {
		return found
	}
	has := func(name string) bool { return l.has(path.Join(dir, name)) }
	switch {
	case has("HEAD") && (has("objects") && has("refs") || has("commondir")):
		found = dir
	case dir != ".":
		found = l.repositoryAbove(path.Dir(dir))
	}
	l.repos[dir] = found
	return found
}

// has reports whether the trial, or the project, has a path.
func (l *listing) has(rel string) bool {
	if st, ok := l.at(l.upper, rel); ok && !overlay.IsWhiteout(st) {
		return true
	}
	_, ok := l.at(l.lower, rel)
	return ok
}

// inherited are the bits that the kernel gives to a new directory in the project: those of
// the next directory above it that the project has.
func (l *listing) inherited(rel string) uint32 {
	dir := path.Dir(rel)
	if l.missing != "" && fsat.Within(dir, l.missing) {
		dir = path.Dir(l.missing)
	}
	for ; ; dir = path.Dir(dir) {
		if st, ok := l.at(l.lower, dir); ok && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return st.Mode & unix.S_ISGID
		} else if dir == "." {
			return 0
		}
	}
}

// refuseLink refuses a link that is absolute, or may lead out of the root. ".." may begin
// its target, but not follow a name, which could be another link.
func (l *listing) refuseLink(rel string) string {
	if l.ProtectedBelow != nil {
		if rule := l.ProtectedBelow(rel); rule != "" {
			return rule
		}
	}
	if l.Links {
		return ""
	}
	dir, err := fsat.Kernel().Open(l.upper, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return fmt.Sprintf("it cannot be read: %v", err)
	}
	defer unix.Close(dir)
	target, err := fsat.ReadLink(dir, path.Base(rel))
	switch {
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", err)
	case strings.HasPrefix(target, "/"):
		return fmt.Sprintf("the link is absolute: %q (--links lands it)", target)
	case leadsOut(path.Dir(rel), target):
		return fmt.Sprintf("the link may lead out of the project: %q (--links lands it)", target)
	case l.leadsOutHere(path.Dir(rel), target):
		return fmt.Sprintf("the link leads out of the project, or into a git directory, through another link: %q (--links lands it)", target)
	case gitplace.Named(target):
		return fmt.Sprintf("the link leads into a git directory: %q (--links lands it)", target)
	}
	return ""
}

// maxRaces bounds the retries of a lookup through "..". openat2(2) fails with EAGAIN if
// any process on the machine renames or mounts something meanwhile.
const maxRaces = 128

// leadsOutHere reports whether a target leads out of the project, or into a git directory,
// by the links in the project.
func (l *listing) leadsOutHere(dir, target string) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(l.lower, path.Join(dir, target), &how)
	for tries := 0; err == unix.EAGAIN && tries < maxRaces; tries++ {
		fd, err = unix.Openat2(l.lower, path.Join(dir, target), &how)
	}
	if err != nil {
		return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
	}
	defer unix.Close(fd)
	where, err := os.Readlink(fsat.Path(fd))
	return err != nil || gitplace.Named(strings.TrimPrefix(where, l.Path))
}

// leadsOut reports whether a relative target, seen from a directory of the root, leads
// above the root, or has ".." after a name.
func leadsOut(dir, target string) bool {
	depth := 0
	if dir != "." {
		depth = strings.Count(dir, "/") + 1
	}
	named := false
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; named || depth < 0 {
				return true
			}
		default:
			named = true
		}
	}
	return false
}
