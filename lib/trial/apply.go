package trial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
	"pikuri/lib/workspace"
)

// Reviewed is a change as the user has reviewed it. The zero value: not reviewed.
type Reviewed struct {
	Given         bool
	Before, After string // Digest
	Modes         string // Modes
}

// Modes are the types and permissions before and after, as text.
func (i Item) Modes() string { return fmt.Sprintf("%o %o", i.Old.Mode, i.New.Mode) }

// ApplyOptions say how to land.
type ApplyOptions struct {
	// Overwrite lands changes that conflict too.
	Overwrite bool

	// Reviewed returns the change at a path in its reviewed state.
	Reviewed func(i Item) Reviewed

	// DryRun changes nothing.
	DryRun bool

	// Plain bounds the permissions of directories that land because of a named path below
	// them: a review has not seen those of the command.
	Plain fs.FileMode

	// Number is the number of this landing.
	Number int64

	// GitState is the directory where gitdir keeps the list of inert repositories.
	GitState string
}

// Apply lands items of one root, which List has returned, and calls report for each with
// nil or the reason why it has not landed. It first locks the root against all commands:
// ErrInUse. It replaces each file in one step, and only if it is the one that the trial
// has seen; a file that another process saves meanwhile stays. It makes directories
// first, and removes entries last. After a kill, the next Apply goes on.
func (r *Root) Apply(items []Item, o ApplyOptions, report func(Item, error)) error {
	ws, err := r.project()
	if err != nil {
		return err
	}
	defer ws.Close()
	a := &applying{Root: r, ApplyOptions: o, ws: ws, report: report, failed: map[string]bool{}, landedDir: map[string]bool{}, unlinked: map[[2]uint64]int64{}}
	if !o.DryRun {
		a.undo = r.newUndo(o.Number, landedList)
	}
	if !o.DryRun {
		err = r.recoverAll(ws)
	}
	a.keepWhole(items)
	for _, i := range order(items) {
		a.land(i)
	}
	if o.DryRun {
		return nil
	}
	return errors.Join(err, a.undo.close(), a.endNotes(), a.finish())
}

// keepWhole marks the directories that another entry cannot replace, so that their entries
// stay with them: it does not land, or the project's directory holds more than what goes.
func (a *applying) keepWhole(items []Item) {
	lands := func(i Item) bool { return i.Refused == "" && (i.Conflict == "" || a.Overwrite) }
	replaced := func(i Item) bool { return i.Op == overlay.Retyped && i.Old.IsDir() }
	if !slices.ContainsFunc(items, replaced) {
		return
	}
	goes := map[string]bool{}
	for _, i := range items {
		if lands(i) && (i.Op == overlay.Removed || replaced(i)) {
			goes[i.Path] = true
		}
	}
	for _, i := range items {
		if replaced(i) && (!lands(i) || a.holdsOthers(i.Path, goes)) {
			a.failed[i.Path] = true
		}
	}
}

// holdsOthers reports whether a directory of the project holds an entry that does not go. One
// that comes later keeps the directory too, but its other entries have gone.
func (a *applying) holdsOthers(dir string, goes map[string]bool) bool {
	others := false
	_ = filepath.WalkDir(filepath.Join(a.Path, dir), func(name string, _ fs.DirEntry, err error) error {
		if others = !goes[strings.TrimPrefix(name, a.Path+"/")]; others {
			return filepath.SkipAll
		}
		return nil
	})
	return others
}

// applying is a landing in progress.
type applying struct {
	*Root
	ApplyOptions
	ws        *workspace.LocalWorkspace
	undo      *undo
	report    func(Item, error)
	failed    map[string]bool // directories that did not land
	landedDir map[string]bool // directories that have landed, or would
	done      []Item

	// unlinked are inodes of the project that have lost a name in this landing, and their
	// ctimes since: another name is no conflict because of that.
	unlinked map[[2]uint64]int64
}

// Steps of a landing, in their order.
const (
	stepDirs    = iota // make directories, and open them to their owner, outer ones first
	stepFiles          // files and links, also when one replaces the other
	stepRemoved        // removals, inner ones first
	stepRetyped        // entries that replace a directory
	stepModes          // modes of directories, inner ones first: a mode may close a directory
)

func stepOf(i Item) int {
	switch {
	case i.Op == overlay.Removed:
		return stepRemoved
	case i.Op == overlay.Retyped && i.Old.IsDir():
		return stepRetyped
	case i.New.IsDir() && i.Op == overlay.Modified && (i.New.Mode&0o700 != 0o700 || i.Old.Mode&0o700 == 0o700):
		return stepModes
	case i.New.IsDir():
		return stepDirs
	}
	return stepFiles
}

// order sorts the items by step. A new directory is made open to its owner; a later step
// sets its mode.
func order(items []Item) []Item {
	var steps [stepModes + 1][]Item
	for _, i := range items {
		step := stepOf(i)
		steps[step] = append(steps[step], i)
		if step == stepDirs && i.New.Mode&0o700 != 0o700 {
			closing := i
			closing.Op, closing.Content, closing.Old = overlay.Modified, false, overlay.File{}
			steps[stepModes] = append(steps[stepModes], closing)
		}
	}
	slices.Reverse(steps[stepRemoved])
	slices.Reverse(steps[stepModes])
	return slices.Concat(steps[:]...)
}

// land lands one item, or reports why it does not.
func (a *applying) land(i Item) {
	closing := i.Op == overlay.Modified && i.Old.Mode == 0
	if closing && a.failed[i.Path] {
		return // entries of it have been reported
	}
	err := a.try(i, closing)
	if i.New.IsDir() && err != nil {
		a.failed[i.Path] = true
	} else if i.New.IsDir() {
		a.landedDir[i.Path] = true
	}
	if err == nil && (!i.Above || workspacePerm(i.New.Mode)&^a.Plain == 0 && i.New.Mode&0o7000 == 0) { // else its mode is left to land
		a.done = append(a.done, i)
	}
	if !closing || err != nil {
		a.report(i, err)
	}
}

// Refused is a change that does not land. With Conflict, another option lands it.
type Refused struct {
	Reason   string
	Conflict bool
}

func (r *Refused) Error() string { return r.Reason }

func (a *applying) try(i Item, closing bool) error {
	switch {
	case i.Refused != "" && !(i.Above && i.Refused == bitsStay):
		return &Refused{Reason: i.Refused}
	case i.Conflict != "" && !a.Overwrite:
		return &Refused{i.Conflict, true}
	}
	if dir := a.failedAbove(i.Path); dir != "" {
		return &Refused{Reason: fmt.Sprintf("its directory %q has not landed", dir)}
	}
	if dir := path.Dir(i.Path); i.Op == overlay.Added && !a.landedDir[dir] && a.isNoDirectory(dir) {
		return &Refused{Reason: fmt.Sprintf("the project's %q is no directory: name %q too, which replaces it", dir, dir)}
	}
	if a.failed[i.Path] && i.Old.IsDir() && i.Op == overlay.Retyped {
		return &Refused{holdsFiles, true}
	}
	if i.Repository {
		return a.repository(i)
	}
	ctx := context.Background()
	old, next, err := a.entries(ctx, i, closing)
	if err != nil {
		return err
	}
	if err := a.reviewed(i, old, next); err != nil {
		return err
	}
	switch {
	case old == next && !i.PermOnly(): // another directory was in the place of one above for a moment
		return &Refused{"it has changed in the project", true}
	case old == next, a.DryRun:
		return nil
	}
	return a.swap(ctx, i, old, next)
}

func (a *applying) failedAbove(rel string) string {
	if len(a.failed) == 0 {
		return ""
	}
	for end := strings.LastIndexByte(rel, '/'); end > 0; end = strings.LastIndexByte(rel[:end], '/') {
		if a.failed[rel[:end]] {
			return rel[:end]
		}
	}
	return ""
}

// isNoDirectory reports whether the project has something else at a path.
func (a *applying) isNoDirectory(rel string) bool {
	fd, err := a.openProject()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	st, err := lstatBelow(fd, rel)
	return err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR
}

// Interrupted reports whether a landing, or an undo, was killed at work.
func (r *Root) Interrupted() bool {
	for _, known := range r.landed {
		if known.open {
			return true
		}
	}
	return false
}

// recoverAll finishes or undoes the work of a killed landing, or undo, in all directories in which it
// was at work. No entry may be left to land there.
func (r *Root) recoverAll(ws *workspace.LocalWorkspace) (err error) {
	recovered := map[string]bool{}
	for rel, known := range r.landed {
		dir := path.Dir(rel)
		if !known.open || recovered[dir] {
			continue
		}
		recovered[dir] = true
		kept, rerr := workspace.Recover(context.Background(), ws, dir)
		// The directory has not landed yet, or has gone.
		if !errors.Is(rerr, workspace.ErrNotFound) && !errors.Is(rerr, workspace.ErrNotDir) {
			err = errors.Join(err, rerr)
		}
		for _, name := range kept {
			err = errors.Join(err, fmt.Errorf("a landing that was killed had displaced a file of yours, which is %q now", name))
		}
	}
	return err
}

// entries returns the project's entry at the path of an item, and its replacement. If the
// project has changed since the item was listed, it is a conflict.
func (a *applying) entries(ctx context.Context, i Item, closing bool) (old, next workspace.Entry, err error) {
	if old, err = workspace.EntryOf(ctx, a.ws, i.Path); err != nil {
		return old, next, err
	}
	if !closing && !a.DryRun && !a.unchanged(i) {
		return old, next, &Refused{"it has changed in the project", true}
	}
	if next, err = i.After(); err != nil {
		return old, next, err
	}
	if i.Above {
		next.Perm &= a.Plain
	}
	if stepOf(i) == stepDirs {
		next.Perm |= 0o700
	}
	old.Size, next.Size = 0, 0
	return old, next, nil
}

// unchanged reports whether the project's entry is the one that the list saw.
func (a *applying) unchanged(i Item) bool {
	fd, err := a.openProject()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	st, err := lstatBelow(fd, i.Path)
	if err != nil {
		return i.Old.Mode == 0 && errors.Is(err, unix.ENOENT)
	}
	if i.Old.IsDir() {
		return st.Mode == i.Old.Mode && st.Dev == i.Old.Dev && st.Ino == i.Old.Ino
	}
	return st.Mode == i.Old.Mode && a.sameCtime(st, i)
}

// sameCtime reports whether an inode has had no change but this landing's since an item was listed.
func (a *applying) sameCtime(st *unix.Stat_t, i Item) bool {
	now, known := st.Ctim.Nano(), a.unlinked[[2]uint64{st.Dev, st.Ino}]
	return st.Dev == i.Old.Dev && st.Ino == i.Old.Ino && (now == i.Old.Ctime.UnixNano() || now == known)
}

// lossOfName begins to watch the inode of an entry with other names. The returned function
// notes its ctime once the entry is gone, if nothing else has changed.
func (a *applying) lossOfName(i Item) func() {
	fd, err := a.openProject()
	if err != nil {
		return func() {}
	}
	defer unix.Close(fd)
	old, err := fsat.Kernel().Open(fd, i.Path, unix.O_PATH|unix.O_NOFOLLOW, 0, fsat.Beneath)
	if err != nil {
		return func() {}
	}
	var before, after unix.Stat_t
	if unix.Fstat(old, &before) != nil || before.Nlink < 2 || before.Mode&unix.S_IFMT == unix.S_IFDIR || !a.sameCtime(&before, i) {
		unix.Close(old)
		return func() {}
	}
	return func() {
		defer unix.Close(old)
		if unix.Fstat(old, &after) == nil && after.Nlink == before.Nlink-1 && after.Mode == before.Mode && after.Size == before.Size && after.Mtim == before.Mtim {
			a.unlinked[[2]uint64{after.Dev, after.Ino}] = after.Ctim.Nano()
		}
	}
}

// reviewed compares the change with its reviewed state.
func (a *applying) reviewed(i Item, old, next workspace.Entry) error {
	if a.Reviewed == nil {
		return nil
	}
	r := a.Reviewed(i)
	switch {
	case !r.Given:
	case r.Before != Digest(old):
		return &Refused{"the project's is not the one that was reviewed", true}
	}
	return r.holdsAfter(i, next)
}

// holdsAfter refuses a change whose result differs from the reviewed one.
func (r Reviewed) holdsAfter(i Item, next workspace.Entry) error {
	if r.Given && (r.After != Digest(next) || r.Modes != i.Modes()) {
		return &Refused{Reason: "the trial's is not the one that was reviewed"}
	}
	return nil
}

// Digest is the hash of a file, "link:" and the target of a symbolic link, and "" for
// anything else.
func Digest(e workspace.Entry) string {
	if e.Kind == workspace.KindLink {
		return "link:" + e.Target
	}
	return e.Hash
}

const holdsFiles = "the project's directory holds files that the trial has not removed"

// swap keeps the project's entry, notes its replacement, and puts that in its place.
func (a *applying) swap(ctx context.Context, i Item, old, next workspace.Entry) error {
	if err := a.undo.keep(ctx, a.ws, i.Path, old, next); err != nil {
		return fmt.Errorf("cannot keep what it displaces: %w", err)
	}
	if err := a.noteLanded(i.Path, next); err != nil {
		return err
	}
	lost := a.lossOfName(i)
	err := a.put(ctx, i, old, next)
	lost()
	switch {
	case errors.Is(err, workspace.ErrChanged) && old.Kind == workspace.KindDir && next.Kind != workspace.KindDir:
		err = &Refused{holdsFiles, true}
	case errors.Is(err, workspace.ErrChanged):
		err = &Refused{"it has changed in the project", true}
	}
	if err != nil {
		return errors.Join(err, a.undo.forget(ctx, a.ws, i.Path, next))
	}
	if next.Kind == workspace.KindFile {
		fd, err := a.openProject()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if st, err := lstatBelow(fd, i.Path); err == nil {
			next.Perm = workspacePerm(st.Mode)
		}
	}
	return a.confirmLanded(i.Path, next)
}

func (a *applying) put(ctx context.Context, i Item, old, next workspace.Entry) error {
	if next.Kind != workspace.KindFile {
		return workspace.Swap(ctx, a.ws, i.Path, old, next, nil)
	}
	content, err := i.OpenAfter()
	if err != nil {
		return err
	}
	defer content.Close()
	return workspace.Swap(ctx, a.ws, i.Path, old, next, content)
}

// addEqual adds entries that landed before, when pk-apply was killed, and still equal the
// project's.
func (a *applying) addEqual() error {
	upper, err := a.openUpper()
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	project, err := a.openProject()
	if err != nil {
		return err
	}
	defer unix.Close(project)
	now := map[string]bool{}
	for _, i := range a.done {
		now[i.Path] = true
	}
	for rel, known := range a.landed {
		if now[rel] {
			continue
		}
		i := Item{Root: a.Root}
		i.Path = rel
		st, err := lstatBelow(upper, rel)
		switch {
		case err != nil:
			continue
		case overlay.IsWhiteout(st):
			i.Op = overlay.Removed
		case !sameSize(st, project, rel): // and perhaps of any size
			continue
		default:
			i.Op, i.New = overlay.Modified, overlay.File{Mode: st.Mode}
		}
		after, aerr := i.After()
		before, berr := a.entryNow(rel)
		after.Size, before.Size = 0, 0
		if aerr == nil && berr == nil && after == before && known.matches(before) {
			a.done = append(a.done, i)
		}
	}
	return nil
}

// sameSize reports whether the project's entry is as large as one of the trial.
func sameSize(st *unix.Stat_t, project int, rel string) bool {
	now, err := lstatBelow(project, rel)
	return err == nil && (now.Size == st.Size || st.Mode&unix.S_IFMT != unix.S_IFREG)
}

// finish syncs all landed entries to the disk, and removes them from the upper layer.
func (a *applying) finish() error {
	if err := a.addEqual(); err != nil {
		return err
	}
	if len(a.done) == 0 {
		return nil
	}
	fd, err := a.openProject()
	if err != nil {
		return err
	}
	synced, err := fsat.Reopen(fd, unix.O_RDONLY)
	unix.Close(fd)
	if err == nil {
		err = unix.Syncfs(synced)
		unix.Close(synced)
	}
	if err != nil {
		return fmt.Errorf("cannot put the changes on stable storage: %w", err)
	}
	return a.prune(a.done)
}
