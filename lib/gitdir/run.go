package gitdir

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
)

// The files of a state directory, which only pk writes. Every access is under an
// exclusive lock on lockFile.
//
// While a command runs there is a locked note, run-NAME, that holds its root. The last of
// the commands with overlapping roots sweeps: it finds the repositories that they have
// made and makes them inert. A command that ends before leaves its note unlocked, as does
// one that is killed: its root is due. Each Begin, End and Recover sweeps the roots that
// are due, as soon as no command runs in a tree that overlaps.
const (
	lockFile   = "lock"
	inertFile  = "inert"
	runPrefix  = "run-"
	listDir    = "lists" // which a start does not read
	listPrefix = "list-"
)

// Run is one command in a root.
type Run struct {
	List     *List
	Restored []Inert // repositories of earlier commands, which this one has back while it runs
	Warning  error   // a part of them could not be restored

	// Unpopulated is as Find lists it, at a time when ending commands know of this one: no
	// index of theirs adds to it before End.
	Unpopulated []Unpopulated
	Withheld    []Inert // repositories in these, which are restored only in their layers

	state string
	note  *os.File
	own   *os.File // the note again, with a lock of this process alone
	root  *os.File
}

// Look returns the list of a root, an absolute path without links, for Find and Begin. No command
// begins while Look reads the tree. Without a state directory there is no list: Look walks the whole
// tree and keeps nothing.
//
// If there is a list, Look first calls known, if that is not nil, with what Find would return by the
// list alone.
func Look(state, root string, known func([]Repo, []Unpopulated)) (*List, error) {
	for {
		unlock, err := lock(state)
		if err == nil {
			defer unlock()
			return look(state, newList(root, listFile(state, root)), true, known)
		}
		readOnly := errors.Is(err, unix.EROFS) // for every command
		if !fsat.Absent(err) && !readOnly {
			return nil, err
		}
		l := newList(root, "")
		if err := l.Quick(); err != nil {
			return nil, err
		}
		l.claimRest()
		if _, err := os.Lstat(filepath.Join(state, lockFile)); err != nil || readOnly {
			return l, nil // nor did a command begin
		}
	}
}

// look reads a list, and brings it up to date if walk is set or it is new.
func look(state string, l *List, walk bool, known func([]Repo, []Unpopulated)) (*List, error) {
	root := l.root
	l, err := openList(root, listFile(state, root), l)
	if err != nil {
		return nil, err
	}
	notes, err := notesIn(state)
	if err != nil {
		return nil, err
	}
	if l.records, err = recordsIn(state); err != nil {
		return nil, err
	}
	l.claim(notes)
	l.walked = refs.Now().UnixNano()
	if walk || l.fresh {
		if known != nil && !l.fresh {
			l.early = true
			if repos, unpopulated, err := find(root, l); err == nil {
				known(repos, unpopulated)
			}
			l.early = false
		}
		if err := l.Quick(); err != nil {
			return nil, err
		}
	}
	l.claimRest()
	return l, l.save()
}

// claim notes the commands that may have changed repositories in the root.
func (l *List) claim(notes notes) {
	l.claims, l.since = nil, 0
	for _, n := range notes {
		if !overlap(n.root, l.root) || l.mountedIn(n.root) {
			continue
		}
		since := n.begun - rounding
		l.claims = append(l.claims, claim{n.root, since, n.covered})
		if l.since == 0 || since < l.since {
			l.since = since
		}
	}
}

// mountedIn reports whether the root is on another mount than a directory around it. A
// command there has a note of its own for each mount.
func (l *List) mountedIn(around string) bool {
	var own, outer unix.Statx_t
	if !fsat.Within(l.root, around) || l.root == around {
		return false
	}
	for name, st := range map[string]*unix.Statx_t{l.root: &own, around: &outer} {
		if unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, st) != nil {
			return false
		}
	}
	return own.Mnt_id != outer.Mnt_id || own.Dev_major != outer.Dev_major || own.Dev_minor != outer.Dev_minor
}

// claimRest counts with commands that begin between the walk and Find.
func (l *List) claimRest() {
	rest := claim{root: l.root, since: l.walked}
	for _, c := range l.claims { // as these, it will have the host's repositories under layers
		if rest.covered == nil {
			rest.covered = map[place]bool{}
			for _, s := range l.known() {
				rest.covered[place{s.name, s.id}] = true
			}
		}
		for p := range c.covered {
			if p.name != submodule { // the index may have lost it
				rest.covered[p] = true
			}
		}
	}
	l.claims = append(l.claims, rest)
	if l.since == 0 {
		l.since = l.walked
	}
}

// Begin prepares the start of a command in the root of a list that Look returned. state
// is a directory of pk's, made if it is missing, the same for all roots of the user. If
// Begin fails the command must not start.
//
// Begin does not walk again. A repository that the user has made since Look is not in the
// plan: once the command has changed something in it, it counts as the command's.
//
// The lock on Lock is held until End. A process that inherits the file keeps the
// lock after this one was killed.
func Begin(state string, looked *List) (*Run, error) {
	root := looked.root
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := sweepDue(state, "", nil); err != nil {
		if err = overlapping(err, root); err != nil {
			return nil, err
		}
	}
	l, err := look(state, looked, false, nil)
	if err != nil {
		return nil, err
	}
	r := &Run{List: l, state: state}
	if r.note, r.own, err = newNote(state, root, slices.Concat(looked.cover, layersOver(looked.unpopulated))); err != nil {
		return nil, err
	}
	_, r.Unpopulated, err = find(root, l)
	if err == nil {
		r.root, err = os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err == nil {
		err = r.restore()
	}
	if err != nil {
		r.root.Close() // it accepts nil
		return nil, errors.Join(err, r.note.Close(), r.own.Close(), os.Remove(r.note.Name()))
	}
	return r, nil
}

// Lock is the note of the command, which is locked.
func (r *Run) Lock() *os.File { return r.note }

// restore restores the names. From now on the note is needed to change them again.
func (r *Run) restore() error {
	records, err := recordsIn(r.state)
	if err != nil || len(records) == 0 {
		return err
	}
	left, restored, err := r.List.restore(records, r.Unpopulated)
	r.Restored, r.Warning = restored, err
	for _, n := range left {
		if slices.ContainsFunc(r.Unpopulated, n.in) {
			r.Withheld = append(r.Withheld, n)
		}
	}
	if len(left) == len(records) {
		return nil
	}
	return saveRecords(r.state, left)
}

// End makes the command's repositories inert, and returns them. If another command runs
// in a tree that overlaps it returns nothing, and the other one's End does the work. An
// error names files that may still be a repository to the host's git; the next Begin
// tries again.
func (r *Run) End() ([]Inert, error) {
	unlock, err := lock(r.state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = r.note.Chmod(0o600) // after Keep
	done, serr := r.sweep(unlock)
	return done, errors.Join(err, overlapping(serr, r.List.root), r.moved(), r.note.Close(), r.own.Close(), r.root.Close())
}

// moved returns an error if the host has moved the root while the command ran: what the
// command has left there was looked for at its old place.
func (r *Run) moved() error {
	var st unix.Stat_t
	now, err := os.Stat(r.List.root)
	if was, serr := r.root.Stat(); serr != nil || err == nil && os.SameFile(was, now) {
		return serr
	}
	if err := unix.Fstat(int(r.root.Fd()), &st); err != nil || st.Nlink == 0 {
		return err // it is removed
	}
	to, _ := os.Readlink(fsat.Path(int(r.root.Fd())))
	return fmt.Errorf("%q was moved to %q while the command ran: repositories and other files that it made there may be in use by the host", r.List.root, to)
}

// Keep does the work of End when the command has ended and other processes of its sandbox
// run on. From now on, they do not delay the work of other commands' End: a server would
// do so for days. End has to follow.
func (r *Run) Keep() ([]Inert, error) {
	unlock, err := lock(r.state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.note.Chmod(keptMode); err != nil {
		return nil, err
	}
	done, err := r.sweep(unlock)
	return done, overlapping(err, r.List.root)
}

// sweep is sweepDue, twice if something has to land. unlock ends the lock meanwhile, and may be called again.
func (r *Run) sweep(unlock func()) ([]Inert, error) {
	done, err := sweepDue(r.state, r.note.Name(), r.List)
	if !errors.Is(err, errLandFirst) {
		return done, err
	}
	unlock()
	land := r.List.Land
	land()
	r.List.Land = nil
	defer func() { r.List.Land = land }() // End follows Keep
	again, err := lock(r.state)
	if err != nil {
		return done, err
	}
	defer again()
	more, err := sweepDue(r.state, r.note.Name(), r.List)
	return append(done, more...), err
}

// keptMode is the mode of the note of a command that has ended and left processes.
const keptMode = 0o400

// Recover does the work that killed commands have left.
func Recover(state string) ([]Inert, error) {
	if _, err := os.Stat(state); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	unlock, err := lock(state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return sweepDue(state, "", nil)
}

func lock(state string) (unlock func(), err error) {
	fd, err := fsat.Openat(unix.AT_FDCWD, filepath.Join(state, lockFile), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = fsat.Again(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX) })
	}
	if err != nil {
		return nil, fmt.Errorf("cannot %w", &os.PathError{Op: "lock", Path: state, Err: err})
	}
	return sync.OnceFunc(func() { unix.Close(fd) }), nil
}

// Hold keeps commands from beginning until unlock, and tells whether one runs in a tree that overlaps
// with another.
func Hold(state string) (running func(tree string) bool, unlock func(), err error) {
	none := func(string) bool { return false }
	unlock, err = lock(state)
	if fsat.Absent(err) { // no command has begun there
		return none, func() {}, nil
	}
	if err != nil {
		return none, func() {}, err
	}
	all, err := notesIn(state)
	if err != nil {
		unlock()
		return none, func() {}, err
	}
	return all.running, unlock, nil
}

// keep saves the list if Find has read an index: another process may have saved it since,
// with the same content.
func (l *List) keep() error {
	if !l.dirty || l.file == "" {
		return nil
	}
	unlock, err := lock(filepath.Dir(filepath.Dir(l.file)))
	if err != nil {
		return err
	}
	defer unlock()
	return l.save()
}

func listFile(state, root string) string {
	return filepath.Join(state, listDir, fmt.Sprintf(listPrefix+"%x", sha256.Sum256([]byte(root))))
}

// LinksPrefix begins the names of the lists of links in histories.
const LinksPrefix = "links-"

// ListFile is the path of another list in a state directory, for SaveList.
func ListFile(state, name string) string { return filepath.Join(state, listDir, name) }

// SaveList writes a list. The first one makes their directory.
func SaveList(file string, text []byte) error {
	err := fsat.WriteFile(file, text)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(file), 0o700); err == nil || errors.Is(err, os.ErrExist) {
			err = fsat.WriteFile(file, text)
		}
	}
	return err
}

// newNote makes the note of a command. The lock on f lasts as long as its sandbox, and
// the one on own as long as this process.
func newNote(state, root string, covered []place) (f, own *os.File, err error) {
	f, err = os.OpenFile(filepath.Join(state, runPrefix+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = f.Write(encodeNote(root, covered))
	}
	if err == nil {
		own, err = os.OpenFile(f.Name(), os.O_RDWR, 0)
	}
	if err == nil {
		err = unix.FcntlFlock(own.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		own.Close() // Close accepts nil
		return nil, nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, own, nil
}

// encodeNote writes the root of a command, NUL, and the git directories that its plan covers.
func encodeNote(root string, covered []place) []byte {
	text := append([]byte(root), 0)
	for _, p := range covered {
		text = append(text, p.name[0])
		for _, n := range []uint64{p.id.dev, p.id.ino, uint64(p.id.born)} {
			text = binary.LittleEndian.AppendUint64(text, n)
		}
	}
	return text
}

func decodeNote(text []byte) (root string, covered map[place]bool) {
	before, rest, now := bytes.Cut(text, []byte{0})
	if !now { // an earlier version wrote it
		return string(before), nil
	}
	covered = map[place]bool{}
	number := binary.LittleEndian.Uint64
	for ; len(rest) >= 25; rest = rest[25:] {
		name := map[byte]string{'.': ".git", submodule[0]: submodule, 'H': "HEAD"}[rest[0]]
		covered[place{name, id{number(rest[1:]), number(rest[9:]), int64(number(rest[17:]))}}] = true
	}
	return string(before), covered
}

// note is a command that runs, or whose root is due.
type note struct {
	file, root string
	covered    map[place]bool
	begun      int64
	runs       bool
	dies       bool // its monitor was killed, and the kernel is ending its sandbox
	kept       bool // it has ended, and processes of its sandbox run on
	stays      bool // these have not ended
}

type notes []note

func overlap(a, b string) bool { return fsat.Within(a, b) || fsat.Within(b, a) }

func (ns notes) running(root string) bool {
	return slices.ContainsFunc(ns, func(n note) bool { return n.runs && overlap(n.root, root) })
}

// withoutKept leaves out the commands that have ended and left processes.
func (ns notes) withoutKept() notes {
	return slices.DeleteFunc(slices.Clone(ns), func(n note) bool { return n.kept })
}

func notesIn(state string) (notes, error) {
	fd, err := fsat.Openat(unix.AT_FDCWD, state, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	var all notes
	if err == nil {
		defer unix.Close(fd)
		err = fsat.Each(fd, func(e fsat.Entry) error {
			if !strings.HasPrefix(e.Name, runPrefix) {
				return nil
			}
			n, err := readNote(filepath.Join(state, e.Name))
			all = append(all, n)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the notes of commands: %w", err)
	}
	return all, nil
}

func readNote(name string) (note, error) {
	f, err := os.Open(name)
	if err != nil {
		return note{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return note{}, err
	}
	root, covered := decodeNote(text)
	info, err := f.Stat()
	if err != nil {
		return note{}, err
	}
	runs := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	dies := runs && unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type == unix.F_UNLCK
	return note{file: name, root: root, covered: covered, begun: info.ModTime().UnixNano(), runs: runs, dies: dies, kept: info.Mode().Perm() == keptMode}, nil
}

// deathTime bounds the wait for a sandbox whose monitor was killed. The kernel takes some
// milliseconds, more on a busy machine.
const deathTime = 10 * time.Second

// awaitDeath returns once the sandbox of a killed command has ended. If commands beside
// it ended before, its repositories would not become inert.
func (n *note) awaitDeath() {
	f, err := os.Open(n.file)
	if err != nil {
		return
	}
	defer f.Close()
	for limit := time.Now().Add(deathTime); n.runs && time.Now().Before(limit); time.Sleep(time.Millisecond) {
		n.runs = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
	}
}

// rootError is the error of one root.
type rootError struct {
	root string
	err  error
}

func (e *rootError) Error() string { return e.err.Error() }
func (e *rootError) Unwrap() error { return e.err }

// overlapping keeps the joined errors that matter to a root.
func overlapping(err error, root string) error {
	var kept []error
	var each func(error)
	each = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				each(e)
			}
			return
		}
		var of *rootError
		if !errors.As(err, &of) || overlap(of.root, root) {
			kept = append(kept, err)
		}
	}
	each(err)
	return errors.Join(kept...)
}

// sweepDue sweeps the roots that are due; ending is the note of a command that
// ends, which counts as due though it is locked. known is the list of its root.
func sweepDue(state, ending string, known *List) ([]Inert, error) {
	all, err := notesIn(state)
	if err != nil {
		return nil, err
	}
	var done []Inert
	var errs []error
	swept := map[string]bool{}
	for i := range all {
		if all[i].dies {
			all[i].awaitDeath()
		}
		all[i].stays = all[i].kept && all[i].runs
		all[i].runs = all[i].runs && all[i].file != ending
	}
	for _, n := range all {
		if n.runs || swept[n.root] {
			continue
		}
		if all.withoutKept().running(n.root) {
			errs = append(errs, all.merge(n))
			continue
		}
		swept[n.root] = true
		inert, err := sweep(state, n.root, all, known)
		done = append(done, inert...)
		if err != nil {
			errs = append(errs, &rootError{n.root, err})
			continue
		}
		for _, o := range all {
			if o.root == n.root && !o.stays {
				errs = append(errs, os.Remove(o.file))
			}
		}
	}
	return done, errors.Join(errs...)
}

// merge removes a note if an older one of the same root is due: commands that overlap for
// days leave one. A command that has left processes still needs its own: it would be the
// only trace of their repositories once the older root was swept.
func (ns notes) merge(n note) error {
	if n.stays {
		return nil
	}
	for _, o := range ns {
		if o.root == n.root && !o.runs && (o.begun < n.begun || o.begun == n.begun && o.file < n.file) && o.coversLess(n) {
			return os.Remove(n.file)
		}
	}
	return nil
}

// coversLess reports whether another command had layers over all places over which this one had some: its
// note then tells of no place that this one does not.
func (n note) coversLess(than note) bool {
	for p := range n.covered {
		if !than.covered[p] {
			return false
		}
	}
	return n.covered != nil || than.covered == nil
}

// sweep makes inert the repositories that commands have made in a root. It
// walks until it finds no more. All processes of commands must have ended: they could
// move a repository to a directory that the last walk has passed.
func sweep(state, root string, notes notes, known *List) ([]Inert, error) {
	if known != nil && known.root != root {
		known = nil
	}
	l, err := openList(root, listFile(state, root), known)
	if err != nil {
		return nil, err
	}
	if known != nil {
		l.Land = known.Land
	}
	l.claim(notes)
	defer l.shut()
	var done []Inert
	for range maxWalks {
		made, err := l.refresh()
		if errors.Is(err, os.ErrNotExist) && len(made) == 0 {
			return done, nil // the root is gone
		}
		records, rerr := recordsIn(state)
		if rerr != nil {
			return done, errors.Join(err, rerr)
		}
		fenced, stays, ferr := l.fence(made, records, func(all []Inert) error { return saveRecords(state, all) })
		done = append(done, fenced...)
		if err := errors.Join(err, ferr); err != nil {
			return done, err
		}
		if len(made) == stays {
			return done, l.save()
		}
	}
	return done, fmt.Errorf("a process keeps making git directories in %q", root)
}

// FenceAll makes inert all repositories in a directory that is none of the host's.
func FenceAll(dir string) error {
	l := newList(dir, "")
	l.claims, l.since = []claim{{root: dir, since: 1}}, 1
	defer l.shut()
	for range maxWalks {
		made, err := l.refresh()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		done, stays, ferr := l.fence(made, nil, func([]Inert) error { return nil })
		if err = errors.Join(err, ferr); err != nil {
			return err
		}
		if slices.ContainsFunc(done, func(n Inert) bool { return n.Name == "" }) {
			return fmt.Errorf("the directories in %q are too deep", dir)
		}
		if len(made) == stays {
			return nil
		}
	}
	return fmt.Errorf("a process keeps making git directories in %q", dir)
}
