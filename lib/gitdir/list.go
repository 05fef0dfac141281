package gitdir

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// List is the memory of one root: its directories with the time of their last change, and
// the places where git would find a repository. A directory's ctime changes with each
// name that is added, renamed or removed in it, and no process can set it; so a directory
// with the same ctime has the same names.
//
// A List is not safe for concurrent use.
type List struct {
	Land func() // lands the work of the command that ends; or nil

	root    string // absolute, without links
	file    string
	version string // of the file's content: each has another one
	fresh   bool   // there was no list yet
	dirty   bool

	dirs        []dir // each before those below it
	spots       []spot
	links       map[string][]string // by git directory: a key of its index, then the gitlinks
	trees       map[string]string   // by git directory: its core.worktree, for this process
	records     []Inert             // of fenced repositories
	given       map[string]bool     // names restored to repositories of commands
	users       map[string]bool     // directories with a .git that the user may have made meanwhile
	claims      []claim
	since       int64         // a later change may be a command's; 0: none is
	cover       []place       // the git directories that Find found in the root
	unpopulated []Unpopulated // as Find found them
	apart       string        // files of the host's that have several hard links, none of them in the root

	walked int64 // start of the last walk
	early  bool  // gitlinks may be those of an earlier index
	fd     int   // the root, while a walk goes on
	opened []func()
}

// dir is a directory of the root's tree.
type dir struct {
	path  string // below the root, "" for the root
	ino   uint64 // 0: not known, or a running command may have put it there
	ctime int64  // nanoseconds; 0: to be read again
	end   int    // index after the directories below it
}

// spot is a name by which git would find a repository: .git in a directory, or the
// HEAD of a directory that looks like a git directory. Or it is a file of gitReads: a command's if
// git would wait for ever, or crash (unreadable). Those of a command can have any name that is a trap, or none, if
// directories below are too deep.
type spot struct {
	dir   string // below the root
	name  string
	whose owner
	id    id     // of .git; of the directory for HEAD
	text  string // of a .git file or link, with leadsNowhere
}

// leadsNowhere ends the text of a spot where git sees no repository, for want of a directory that a
// command may make.
const leadsNowhere = "\x00"

// claim is a command that runs, or whose root is due. It may have changed all in its root
// that its own plan did not cover with layers.
type claim struct {
	root    string
	since   int64          // its start
	covered map[place]bool // git directories; nil: those of the list
}

// place is a git directory: the name by which git finds it, and the directory's identity. Or it is the
// directory of a submodule that is not populated.
type place struct {
	name string
	id   id
}

const submodule = "submodule" // the name of the latter

// id identifies an inode, even if its number is used again.
type id struct {
	dev, ino uint64
	born     int64
}

type owner byte

const (
	nobodys  owner = iota // git sees no repository there, and no command has changed it
	hosts                 // a repository of the host's
	commands              // a command has made or changed it
)

// maxDirs bounds a list. It is some 200 MB of names.
var maxDirs = 2_000_000

const (
	// quickDepth is the depth to which Quick searches for repositories that the user made
	// since the last command.
	quickDepth = 2

	// maxWalks bounds the repeated walks of a sweep that has found repositories.
	maxWalks = 4

	// maxErrors bounds the errors that a walk collects. It goes on after them.
	maxErrors = 16

	// maxPath bounds the paths of directories below a root, in bytes. A command can make any, and
	// the walk has all directories on the way open.
	maxPath = 2 * unix.PathMax

	// maxNamed bounds a path in an error.
	maxNamed = 100

	// maxChanged bounds the entries of a git directory that are checked for a change. If
	// there are more, it counts as changed.
	maxChanged = 20_000
)

// Settled is the age of a ctime, in nanoseconds, from which all later changes show. File
// systems round times, some to two seconds.
const Settled = 2_000_000_000

var settled int64 = Settled

// rounding is the delay of one file system's clock behind that of another, in
// nanoseconds. A repository that the user made so shortly before a command, and that
// Quick does not see, counts as the command's.
var rounding int64 = 20_000_000

// Quick updates the cheap part of the list: the directories at the top, and the
// repositories that it has. It refreshes a list that is new or short.
func (l *List) Quick() error {
	depth := quickDepth
	if l.small() {
		depth = -1
	}
	_, err := l.walk(depth, false)
	l.shut()
	return err
}

// alwaysAll is the number of directories up to which a full walk costs no more than a
// quick one: half a millisecond.
const alwaysAll = 256

// small reports whether a list is new or short: then all directories are visited.
func (l *List) small() bool { return l.fresh || len(l.dirs) <= alwaysAll }

// refresh updates the whole list and returns the repositories that commands have made.
// Directories that they have closed stay open until shut.
func (l *List) refresh() ([]spot, error) { return l.walk(-1, true) }

// shut takes back the permissions that a walk gave to itself.
func (l *List) shut() {
	for _, undo := range slices.Backward(l.opened) {
		undo()
	}
	l.opened = nil
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	l.fd = -1
}

// walker makes a new list from an old one.
type walker struct {
	*List
	sweeps   bool // after a command, as opposed to before one
	depth    int  // of directories to visit; -1: all
	now      int64
	old      []dir
	same     []bool             // of old
	spots    map[string][]spot  // of the old list, by directory
	known    map[id]spot        // of the host's
	skip     map[string]bool    // git directories of the host's: a layer covers all below
	gits     map[[2]uint64]bool // their devices and inodes, if they are called .git
	found    []spot
	made     []spot
	suspects []suspect
	errs     []error
	full     bool    // the list, not the walk
	moved    int     // directories around that came to their place since a command began
	inner    *around // the last directory that is being read, or nil
	open     int     // the number of those
	most     int     // of them that may be open
}

// around is an open directory on the way to another one: the root, or the one above.
type around struct {
	fd    int
	path  string
	ctime int64 // of the one above
	id    [2]uint64
}

// name is that of a directory below, for a system call.
func (a *around) name(path string) string {
	return orDot(strings.TrimPrefix(strings.TrimPrefix(path, a.path), "/"))
}

// errFound ends a search.
var errFound = errors.New("found")

func (l *List) walk(depth int, sweeps bool) ([]spot, error) {
	if l.fd < 0 {
		fd, err := fsat.Kernel().Open(unix.AT_FDCWD, l.root, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: l.root, Err: err}
		}
		l.fd = fd
	}
	if sweeps && unix.Faccessat(l.fd, ".", unix.R_OK|unix.X_OK, 0) == unix.EACCES { // the command has closed it
		if err := l.allow(l.fd); err != nil {
			return nil, err
		}
	}
	l.walked = refs.Now().UnixNano()
	w := &walker{List: l, sweeps: sweeps, depth: depth, now: l.walked, old: l.dirs, spots: map[string][]spot{}, known: l.known(), skip: map[string]bool{}, gits: map[[2]uint64]bool{}, most: fsat.DepthLimit()}
	before := l.spots
	for _, s := range before {
		w.spots[s.dir] = append(w.spots[s.dir], s)
	}
	l.dirs = make([]dir, 0, len(w.old)+64)
	var err error
	switch {
	case len(w.old) == 0:
		err = w.read(&around{fd: w.fd}, "", -1, 0)
	case w.compare() && w.keepAll(before):
		l.dirs = w.old
	default:
		err = w.again(0, 0, 0)
	}
	err = errors.Join(append(w.errs, err, w.judgeSuspects())...)
	if err != nil {
		l.dirs = w.old
		return w.made, err
	}
	l.spots = w.found
	l.fresh = false
	l.dirty = l.dirty || !slices.Equal(before, w.found)
	return w.made, nil
}

// known lists the host's spots.
func (l *List) known() map[id]spot {
	known := map[id]spot{}
	for _, s := range l.spots {
		if s.whose == hosts {
			known[s.id] = s
		}
	}
	return known
}

// again visits a directory of the old list. above is the ctime of the directory above.
func (w *walker) again(i, depth int, above int64) error {
	d := w.old[i]
	if w.skip[d.path] {
		w.dirty = true
		return nil
	}
	if w.depth >= 0 && depth > w.depth {
		return w.keep(i)
	}
	if !w.same[i] {
		same, err := w.unchanged(i, new(unix.Stat_t))
		if err != nil {
			return w.vanished(d.path, err)
		}
		if !same {
			return w.read(&around{fd: w.fd, ctime: above}, d.path, i, depth)
		}
	}
	at, found, made := len(w.dirs), len(w.found), len(w.made)
	if err := w.keepSpots(d.path); err != nil {
		return err
	}
	if w.passed(i, w.found[found:]) {
		w.found, w.made = w.found[:found], w.made[:made]
		return w.read(&around{fd: w.fd, ctime: above}, d.path, i, depth)
	}
	w.dirs = append(w.dirs, d)
	for c := i + 1; c < d.end && !w.skip[d.path]; c = w.old[c].end {
		if err := w.again(c, depth+1, d.ctime); err != nil {
			return err
		}
	}
	w.dirs[at].end = len(w.dirs)
	return nil
}

// passed reports whether earlier walks have passed by a repository in a directory of the
// old list, as the host's, that no longer is.
func (w *walker) passed(i int, spots []spot) bool {
	for _, s := range spots {
		d := w.old[i]
		inner := strings.TrimPrefix(d.path+"/.git", "/")
		has := s.name == "HEAD" && d.end > i+1
		for c := i + 1; c < d.end && s.name == ".git"; c = w.old[c].end {
			has = has || w.old[c].path == inner
		}
		if s.whose != hosts && !has && !slices.Contains(gitReads, s.name) {
			return true
		}
	}
	return false
}

// unchanged reports whether a directory of the old list has the same names.
func (w *walker) unchanged(i int, st *unix.Stat_t) (bool, error) {
	d := &w.old[i]
	if err := unix.Fstatat(w.fd, orDot(d.path), st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	return d.ctime != 0 && st.Ino == d.ino && st.Ctim.Nano() == d.ctime && st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// compare checks all directories of the walk at once, and reports whether none has changed.
// The kernel takes a microsecond for each, on every processor that is free.
func (w *walker) compare() bool {
	ask := make([]int, 0, len(w.old))
	for i := 0; i < len(w.old); i++ {
		ask = append(ask, i)
		if d := &w.old[i]; w.depth >= 0 && d.path != "" && strings.Count(d.path, "/")+1 >= w.depth {
			i = d.end - 1
		}
	}
	w.same = make([]bool, len(w.old))
	var begun, changed atomic.Int64
	work := func() {
		var st unix.Stat_t
		for at := int(begun.Add(atOnce)) - atOnce; at < len(ask); at = int(begun.Add(atOnce)) - atOnce {
			for _, i := range ask[at:min(at+atOnce, len(ask))] {
				if w.same[i], _ = w.unchanged(i, &st); !w.same[i] { // the walk repeats an error
					changed.Add(1)
				}
			}
		}
	}
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(ask)/alwaysAll+1) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
	return changed.Load() == 0
}

// atOnce is the number of directories that a processor takes at a time.
const atOnce = 32

// keepAll checks all spots, and reports whether they are as before: with the directories,
// the list is so too.
func (w *walker) keepAll(before []spot) bool {
	last := ""
	for i, s := range before {
		if i == 0 || s.dir != last {
			if w.keepSpots(s.dir) != nil {
				break
			}
		}
		last = s.dir
	}
	if len(w.errs) == 0 && slices.Equal(before, w.found) {
		return true
	}
	w.errs, w.made, w.found = nil, nil, nil
	clear(w.skip)
	return false
}

// keep copies a directory with its tree from the old list, apart from its spots.
func (w *walker) keep(i int) error {
	from, to := len(w.dirs)-i, w.old[i].end
	for _, d := range w.old[i:to] {
		d.end += from
		w.dirs = append(w.dirs, d)
	}
	if len(w.spots) == 0 {
		return nil
	}
	for _, d := range w.old[i:to] {
		if err := w.keepSpots(d.path); err != nil {
			return err
		}
	}
	return nil
}

// keepSpots checks the spots of a directory that has not changed.
func (w *walker) keepSpots(dir string) error {
	if len(w.spots) == 0 || w.spots[dir] == nil {
		return nil
	}
	fd := -1
	defer func() { unix.Close(fd) }() // or nothing, if it is still -1
	for _, s := range w.spots[dir] {
		if slices.Contains(gitReads, s.name) && w.untouched(filepath.Join(dir, s.name)) {
			w.found = append(w.found, s)
			continue
		}
		if fd < 0 {
			var err error
			if fd, err = w.enter(w.fd, orDot(dir), unix.O_PATH, fsat.SameMount); err != nil {
				return w.vanished(dir, err)
			}
		}
		if _, err := w.spot(fd, dir, s.name); err != nil {
			return err
		}
	}
	return nil
}

// untouched reports whether no command has written into a file since one began. There may be thousands.
func (w *walker) untouched(path string) bool {
	if !w.sweeps || w.since == 0 {
		return true
	}
	var st unix.Stat_t
	err := unix.Fstatat(w.fd, path, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Ctim.Nano() < w.since && w.moved == 0
}

// vanished returns nil if another process has removed a path. It records any other error.
func (w *walker) vanished(path string, err error) error {
	if fsat.Absent(err) {
		w.dirty = true
		return nil
	}
	return w.failed(path, err)
}

// failed records an error. The walk goes on, to find as much as possible.
func (w *walker) failed(path string, err error) error {
	if len(w.errs) < maxErrors {
		w.errs = append(w.errs, fmt.Errorf("cannot %w", &os.PathError{Op: "look for git directories in", Path: w.absolute(beginning(path)), Err: err}))
	}
	return nil
}

// beginning cuts a long path after a name.
func beginning(path string) string {
	if len(path) > maxNamed {
		path = path[:max(strings.LastIndexByte(path[:maxNamed], '/'), 0)] // or a part is a name of its own
	}
	return path
}

func (l *List) absolute(path string) string { return filepath.Join(l.root, path) }

func orDot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

// read lists a directory in or below an open one. i is its index in the old list, or -1.
//
// A directory that is too deep for a path is not kept in the list: each walk reads it again. A command
// gets there by descriptors, and could move a repository from there to a place that git sees. From beyond
// maxPath it would come there as a new one.
func (w *walker) read(in *around, path string, i, depth int) error {
	if len(path) > maxPath {
		if w.sweeps && w.since != 0 && in.ctime >= w.since {
			w.made = append(w.made, spot{dir: beginning(path), whose: commands})
		}
		return nil
	}
	full := len(w.dirs) >= maxDirs
	if full && !w.full { // the walk goes on, and keeps no list
		w.full = true
		w.errs = append(w.errs, fmt.Errorf("there are more than %d directories in %q", maxDirs, w.root))
	}
	listed := !full && !deep(path)
	fd, err := w.enter(in.fd, in.name(path), unix.O_RDONLY|unix.O_NONBLOCK, fsat.SameMount)
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil
	case errors.Is(err, errClosed):
		return w.closed(in, path)
	case err != nil:
		return w.vanished(path, err)
	}
	here := &around{fd: fd, path: path}
	defer func() { unix.Close(here.fd) }() // or nothing, if it is -1
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return w.failed(path, err)
	}
	here.ctime, here.id = st.Ctim.Nano(), [2]uint64{st.Dev, st.Ino}
	if w.gits[[2]uint64{st.Dev, st.Ino}] {
		return nil // a .git by another spelling: the directory above folds case
	}
	at, self := len(w.dirs), dir{path: path, ino: st.Ino, ctime: w.stamp(&st)}
	if w.came(in, i, &st) {
		w.moved++
		defer func() { w.moved-- }()
		if !w.sweeps {
			self.ino, self.ctime = 0, 0
		}
	}
	git, err := w.look(fd, path)
	if err != nil {
		return err
	}
	if listed {
		w.dirs = append(w.dirs, self)
	}
	if !w.skip[path] {
		names, reads, suspects, err := list(fd)
		if err != nil { // also if it is removed meanwhile
			self.ctime = 0
			_ = w.vanished(path, err)
		}
		for _, name := range reads {
			if _, err := w.spot(fd, path, name); err != nil {
				return err
			}
		}
		for _, name := range suspects {
			w.suspect(fd, path, name)
		}
		if err := w.within(here, names, git, i, depth+1); err != nil {
			return err
		}
		if here.fd < 0 || slices.ContainsFunc(names, func(name string) bool { return deep(path + "/" + name) }) {
			self.ctime = 0
		}
	}
	if !listed {
		return nil
	}
	self.end = len(w.dirs)
	w.dirs[at] = self
	w.dirty = w.dirty || i < 0 || w.old[i].ctime != self.ctime || w.old[i].ino != self.ino
	return nil
}

// deep reports whether a path below the root is too long for a system call, and for git.
func deep(path string) bool { return len(path) >= unix.PathMax }

// came reports whether a directory may have come to its place since a command began: it is new there, or
// another one than in the list. A rename changes the ctime of the directory and of the one above, and not
// that of a repository in it.
func (w *walker) came(in *around, i int, st *unix.Stat_t) bool {
	const subvolume = 256 // the inode number of each one of btrfs
	known := len(w.old) == 0 || i >= 0 && w.old[i].ino == st.Ino && st.Ino != subvolume
	return !known && w.since != 0 && in.ctime >= w.since && st.Ctim.Nano() >= w.since
}

// stamp is the ctime by which a later change shows, 0 if it is too recent.
func (w *walker) stamp(st *unix.Stat_t) int64 {
	if ctime := st.Ctim.Nano(); ctime < w.now-settles(st) {
		return ctime
	}
	return 0
}

// settles is settled, or less for a file system that keeps finer times than milliseconds: it
// takes them from the kernel's clock, which ticks a hundred times a second or more often. A
// file system without a device may be another machine's, with another clock.
func settles(st *unix.Stat_t) int64 {
	if unix.Major(st.Dev) != 0 && st.Ctim.Nsec%int64(time.Millisecond) != 0 {
		return min(settled, int64(50*time.Millisecond))
	}
	return settled
}

// look finds the spots of an open directory. It looks the names up instead of reading
// them: a directory that folds case has .GIT and other spellings for .git. git reports
// that the .git in it is one of the host's.
func (w *walker) look(fd int, path string) (git bool, err error) {
	git, err = w.spot(fd, path, ".git")
	if err == nil && looksBare(fd) {
		var bare bool
		if bare, err = w.spot(fd, path, "HEAD"); bare {
			w.skip[path] = true
		}
	}
	return git, err
}

// looksBare reports whether git could use an open directory as a git directory: commondir
// may name another directory for objects and refs.
func looksBare(fd int) bool {
	return IsGitDir(func(name string) bool { _, err := fsat.Lstat(fd, name); return !fsat.Absent(err) })
}

// IsGitDir reports whether a directory that has these names may be a git directory.
func IsGitDir(has func(name string) bool) bool {
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// within is children. If many directories are being read, the last one above is closed meanwhile: a
// tree can have more levels than a process may have descriptors.
func (w *walker) within(here *around, names []string, git bool, i, depth int) error {
	above := w.inner
	w.inner = here
	w.open++
	if w.open > w.most && above != nil {
		unix.Close(above.fd)
		above.fd = -1
		defer w.reopen(above, here)
	}
	defer func() { w.inner, w.open = above, w.open-1 }()
	return w.children(here, names, git, i, depth)
}

// errMoved is a directory that another process has moved while the walk was below it.
var errMoved = errors.New("it was moved meanwhile")

// reopen opens a directory again: from one below, or by its path if that one was moved or is not
// directly in it.
// Without it the walk has missed a part of the tree. That is no error before a command, if the
// directory was removed: the next walk reads its place again.
func (w *walker) reopen(in, below *around) {
	fd, err := fsat.Openat(below.fd, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil && !in.is(fd) {
		unix.Close(fd)
		err = errMoved
	}
	if err != nil {
		fd, err = w.openDeep(in.path)
	}
	if err == nil && !in.is(fd) {
		unix.Close(fd)
		err = errMoved
	}
	switch {
	case err == nil:
		in.fd = fd
	case w.sweeps:
		_ = w.failed(in.path, errMoved)
	default:
		_ = w.vanished(in.path, err)
	}
}

// is reports whether an open file is the directory.
func (a *around) is(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && a.id == [2]uint64{st.Dev, st.Ino}
}

// openDeep opens a directory below the root whose path may be too long for one system call.
func (w *walker) openDeep(path string) (int, error) {
	fd, err := fsat.Reopen(w.fd, unix.O_PATH|unix.O_DIRECTORY)
	for rest := path; err == nil && rest != ""; {
		part := rest
		if deep(part) {
			part = part[:strings.LastIndexByte(part[:unix.PathMax], '/')]
		}
		rest = strings.TrimPrefix(rest[len(part):], "/")
		var next int
		next, err = fsat.Kernel().Open(fd, part, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.SameMount)
		unix.Close(fd)
		fd = next
	}
	return fd, err
}

// children visits the directories in an open directory.
func (w *walker) children(in *around, names []string, git bool, i, depth int) error {
	old := map[string]int{}
	if i >= 0 {
		for c := i + 1; c < w.old[i].end; c = w.old[c].end {
			old[w.old[c].path] = c
		}
	}
	var err error
	for _, name := range names {
		if git && name == ".git" {
			continue
		}
		sub := name
		if in.path != "" {
			sub = in.path + "/" + name
		}
		switch c, known := old[sub]; {
		case known:
			err = w.again(c, depth, in.ctime)
		case w.depth >= 0 && depth > w.depth:
			later := dir{path: sub, end: len(w.dirs) + 1}
			if st, err := fsat.Lstat(in.fd, name); err == nil && !w.came(in, -1, st) {
				later.ino = st.Ino
			}
			w.dirs = append(w.dirs, later)
			w.dirty = true
		default:
			err = w.read(in, sub, -1, depth)
		}
		if err != nil || in.fd < 0 { // reopen has said why
			return err
		}
	}
	return nil
}

// list returns the names of the directories in an open one, those of gitReads, and those that may be traps.
func list(fd int) (dirs, reads, suspects []string, err error) {
	err = fsat.Each(fd, func(e fsat.Entry) error {
		if e.Type == unix.DT_LNK || e.Type == unix.DT_UNKNOWN || IsOption(e.Name) {
			suspects = append(suspects, e.Name)
		}
		if e.Type == unix.DT_DIR || e.Type == unix.DT_UNKNOWN {
			dirs = append(dirs, e.Name)
		}
		if e.Type != unix.DT_DIR && slices.Contains(gitReads, e.Name) {
			reads = append(reads, e.Name)
		}
		return nil
	})
	slices.Sort(dirs)
	return dirs, reads, suspects, err
}

// gitReads are the files of a work tree that git opens by their names, gitignore(5), gitattributes(5),
// gitmailmap(5) and gitmodules(5), and the usual value of blame.ignoreRevsFile, git-blame(1).
var gitReads = []string{".gitignore", ".gitattributes", ".mailmap", modulesFile, ".git-blame-ignore-revs"}

const modulesFile = ".gitmodules"

// unreadable reports whether git would wait for ever for the content of a file of gitReads, or have no
// memory for it, or crash. It follows no link but that of .gitmodules, which can lead to a FIFO as well.
func unreadable(fd int, name string, st *unix.Statx_t) bool {
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFREG && st.Size <= maxRead && name == ".gitattributes":
		data, _, err := overlay.ReadFile(fd, name, unix.O_NOFOLLOW, maxRead)
		return err == nil && objects.CheckAttributes(data) != nil
	case kind == unix.S_IFREG:
		return st.Size > maxRead || st.Size > maxMailmap && name == ".mailmap"
	default:
		return kind == unix.S_IFIFO || kind == unix.S_IFLNK && name == modulesFile
	}
}

// maxRead bounds the bytes of a file that git reads whole. A sparse one takes no space on the disk.
const maxRead = 16 << 20

// maxMailmap bounds a .mailmap: git sorts its lines in quadratic time, four million bytes in nine seconds. That of the Linux
// kernel has 50 kB.
const maxMailmap = 1 << 20

// closed keeps a directory that may stay closed, unless it has a known repository of the
// host's: a command could have closed it to hide that.
func (w *walker) closed(in *around, path string) error {
	if slices.ContainsFunc(w.List.spots, func(s spot) bool { return s.whose == hosts && fsat.Within(s.dir, orDot(path)) }) {
		return w.failed(path, unix.EACCES)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(in.fd, in.name(path), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return w.vanished(path, err)
	}
	if !deep(path) {
		w.dirs = append(w.dirs, dir{path: path, ino: st.Ino, ctime: w.stamp(&st), end: len(w.dirs) + 1})
	}
	return nil
}

// errClosed is a directory that stays closed: it belongs to another user.
var errClosed = errors.New("it is closed")

// enter opens a directory by its name in an open one, through no link. It opens a closed directory of
// the user's, or one above, until shut: a command may have closed it, and can use known
// names in there.
func (l *List) enter(in int, name string, flags int, rules fsat.Resolve) (int, error) {
	flags |= unix.O_DIRECTORY
	fd, err := fsat.Kernel().Open(in, name, flags, 0, rules)
	if err == nil && flags&unix.O_PATH == 0 && unix.Faccessat(fd, ".", unix.X_OK, 0) != nil {
		unix.Close(fd)
		err = unix.EACCES
	}
	if err != unix.EACCES {
		return fd, err
	}
	fd, err = fsat.Kernel().Open(in, name, unix.O_PATH|unix.O_DIRECTORY, 0, rules)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, err
	}
	if int(st.Uid) != os.Geteuid() {
		return -1, errClosed
	}
	if err := l.allow(fd); err != nil {
		return -1, err
	}
	return fsat.Kernel().Open(in, name, flags, 0, rules)
}

// allow gives the owner of an open directory all permissions on it until shut.
func (l *List) allow(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return nil
	}
	shut, err := fsat.OpenUp(fd)
	if err == nil {
		l.opened = append(l.opened, shut)
	}
	return err
}

// spot judges one name in an open directory, and reports whether it is the host's.
func (w *walker) spot(fd int, path, name string) (bool, error) {
	s, err := w.judge(fd, path, name)
	if err != nil || s == nil {
		if unlessAbsent(err) != nil {
			err = w.failed(path, err)
		} else {
			err = nil
		}
		return false, err
	}
	if !deep(path) {
		w.found = append(w.found, *s) // a command's too: nothing else may bring a walk back here
	}
	switch s.whose {
	case commands:
		w.made = append(w.made, *s)
	case hosts:
		if name == ".git" {
			w.skip[strings.TrimPrefix(path+"/.git", "/")] = true
			w.gits[[2]uint64{s.id.dev, s.id.ino}] = true
		}
	}
	return s.whose == hosts, nil
}

// judge finds the maker of a spot: the host or a command; nil if there is none. A .git file
// may have another name (a hard link), so judge compares its content.
func (w *walker) judge(fd int, path, name string) (*spot, error) {
	s := &spot{dir: path, name: name}
	of := name
	if name == "HEAD" {
		of = ""
		if _, err := fsat.Lstat(fd, "HEAD"); err != nil {
			return nil, err
		}
	}
	st, err := identify(fd, of, &s.id)
	if err != nil {
		return nil, err
	}
	kind := st.Mode & unix.S_IFMT
	if slices.Contains(gitReads, name) {
		changed, err := w.changed(fd, of, st, w.since)
		if changed && unreadable(fd, name, st) {
			s.whose = commands
		}
		return s, err // a write in place does not change the directory
	}
	if kind != unix.S_IFDIR && kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return nil, nil // git ignores a FIFO, a socket or a device
	}
	known, same := w.known[s.id]
	same = same && known.name == name
	since := w.since
	if kind == unix.S_IFDIR {
		since = w.uncovered(s)
	}
	if since != 0 && name == ".git" && w.layered(fd, path) {
		since = 0
	}
	if since == 0 && same && w.sweeps && kind == unix.S_IFDIR {
		s.whose = hosts
		return s, nil
	}
	changed, err := w.changed(fd, of, st, since)
	if err != nil {
		return nil, err
	}
	var t target
	if name == ".git" {
		t, err = follow(fd)
	} else {
		t.gitDir, _, err = asGitDir(fd)
	}
	if s.text = t.text; t.gitDir == "" {
		s.text += leadsNowhere
	}
	was := slices.IndexFunc(w.List.spots, func(o spot) bool { return o.dir == path && o.name == name && o.id == s.id })
	turned := since != 0 && t.gitDir != "" && was >= 0 && strings.HasSuffix(w.List.spots[was].text, leadsNowhere)
	switch {
	case turned, changed && !(same && kind != unix.S_IFDIR && known.text == s.text && err == nil):
		s.whose = commands
		if err == nil && t.file && !t.link && w.mayBeUsers(t, path) {
			w.users[path] = true
		}
		return s, nil
	case err != nil:
		return nil, err
	case t.gitDir != "" || t.file || t.link:
		s.whose = hosts
	}
	return s, nil
}

// mayBeUsers reports whether the user may have made the work tree or submodule of a new .git file: it
// leads into a git directory of the host's, where no command could write, and that leads back. A command
// may have written it, or files of the work tree: it is fenced too.
func (w *walker) mayBeUsers(t target, dir string) bool {
	top := t.commonDir
	if before, _, is := strings.Cut(t.gitDir, "/.git/modules/"); is {
		top = before + "/.git"
	}
	p, err := placeOf(top)
	known := w.known[p.id]
	return err == nil && known.name == p.name && t.gitDir != top && fsat.Within(t.gitDir, top) && w.uncovered(&known) == 0 && pointsBack(t, w.absolute(dir))
}

// layered reports whether no command could write in an open directory, since it is that of a submodule
// which was not populated when they began: a layer was over it.
func (w *walker) layered(fd int, path string) bool {
	p := place{name: submodule}
	if _, err := identify(fd, "", &p.id); err != nil {
		return false
	}
	return w.since != 0 && !slices.ContainsFunc(w.claims, func(c claim) bool {
		return fsat.Within(w.absolute(path), c.root) && !c.covered[p]
	})
}

// uncovered is the time after which a command may have changed a directory that it had
// under no layer; 0: none could.
func (w *walker) uncovered(s *spot) (since int64) {
	for _, c := range w.claims {
		covered := c.covered[place{s.name, s.id}]
		if c.covered == nil {
			known, ok := w.known[s.id]
			covered = ok && known.name == s.name
		}
		if !covered && fsat.Within(w.absolute(s.dir), c.root) && (since == 0 || c.since < since) {
			since = c.since
		}
	}
	return since
}

// Identity distinguishes a directory from another one at the same path.
func Identity(dir string) (string, error) {
	var id id
	_, err := identify(unix.AT_FDCWD, dir, &id)
	return fmt.Sprint(id), err
}

func identify(fd int, name string, of *id) (*unix.Statx_t, error) {
	st := new(unix.Statx_t)
	err := unix.Statx(fd, name, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, st)
	*of = id{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, nano(st.Btime)}
	return st, err
}

func nano(t unix.StatxTimestamp) int64 { return t.Sec*1_000_000_000 + int64(t.Nsec) }

// changed reports whether a spot has changed since a command began.
func (w *walker) changed(fd int, name string, st *unix.Statx_t, since int64) (bool, error) {
	if since == 0 || nano(st.Ctime) >= since || w.moved > 0 {
		return since != 0, nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, nil
	}
	left := maxChanged
	return changedBelow(fd, orDot(name), since, &left, maxModuleDepth)
}

// changedBelow looks for a change in a git directory, apart from the content of packs. An
// unreadable file counts as changed: the same user could read it before.
func changedBelow(dir int, name string, since int64, left *int, depth int) (bool, error) {
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil || depth == 0 {
		return true, nil
	}
	defer unix.Close(fd)
	changed := false
	err = fsat.Each(fd, func(e fsat.Entry) error {
		st, err := fsat.Lstat(fd, e.Name)
		*left--
		if err != nil || *left < 0 || st.Ctim.Nano() >= since {
			changed = true
			return errFound
		}
		// The directories of loose objects have changed if an object was added or removed.
		if st.Mode&unix.S_IFMT == unix.S_IFDIR && !isFanOut(name, e.Name) {
			changed, err = changedBelow(fd, e.Name, since, left, depth-1)
		}
		if changed {
			return errFound
		}
		return err
	})
	if changed {
		return true, nil
	}
	return false, err
}

// isFanOut reports whether a directory holds only loose objects or packs.
func isFanOut(in, name string) bool { return in == "objects" && (len(name) == 2 || name == "pack") }

// whose returns the maker of the .git in an open directory of the root. It is not the
// host's if its name was restored for a command, or if a running command has made it.
func (l *List) whose(fd int, rel string) (owner, error) {
	if l.given[l.absolute(rel)+"/.git"] {
		return commands, nil
	}
	w := &walker{List: l, known: l.known()}
	s, err := w.judge(fd, rel, ".git")
	if s == nil {
		return nobodys, err
	}
	return s.whose, err
}

// trusts reports whether a git directory, inside or outside of the root, is the host's. A
// pointer of the host's may lead to a directory that a command has made since.
func (l *List) trusts(gitDir string) bool {
	if !fsat.Within(gitDir, l.root) {
		return true
	}
	for _, s := range l.spots {
		top := l.absolute(s.dir)
		if s.name == ".git" {
			top += "/.git"
		}
		if s.whose == hosts && fsat.Within(gitDir, top) {
			return true
		}
	}
	if l.given[gitDir+"/HEAD"] {
		return false
	}
	p, err := placeOf(gitDir)
	if err != nil {
		return false
	}
	rel, _ := filepath.Rel(l.root, gitDir)
	w := &walker{List: l, known: l.known()}
	since := w.uncovered(&spot{dir: rel, name: p.name, id: p.id})
	if since == 0 {
		return true
	}
	left := maxChanged
	changed, _ := changedBelow(unix.AT_FDCWD, gitDir, since, &left, maxModuleDepth)
	return !changed
}

// placeOf identifies a git directory.
func placeOf(gitDir string) (p place, err error) {
	p.name = "HEAD"
	if filepath.Base(gitDir) == ".git" {
		p.name = ".git"
	}
	_, err = identify(unix.AT_FDCWD, gitDir, &p.id)
	return p, err
}

// The file of a list: a line of magic, then strings and numbers, each string after its length.
// Each directory's path begins with the length shared with the last one.
const magic = "pk list of git directories 2\n"

// openList reads the list of a root, or begins one. A file that is not a list counts as
// none. known is an earlier List of that file, or nil: openList returns it if the file is
// still the same.
func openList(root, file string, known *List) (*List, error) {
	if known != nil && known.current() {
		known.given, known.users, known.claims, known.since, known.walked = map[string]bool{}, map[string]bool{}, nil, 0, 0
		return known, nil
	}
	l := newList(root, file)
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	r := reader{text: string(data)}
	if r.take(len(magic)) != magic {
		return l, nil
	}
	if l.version = r.string(); r.string() != root {
		return newList(root, file), nil
	}
	r.list(l)
	if r.bad || r.at < len(r.text) {
		return newList(root, file), nil
	}
	l.fresh = false
	return l, nil
}

func newList(root, file string) *List {
	return &List{root: root, file: file, fresh: true, links: map[string][]string{}, trees: map[string]string{}, given: map[string]bool{}, users: map[string]bool{}, fd: -1}
}

// current reports whether no other process has written the file of the list.
func (l *List) current() bool {
	if l.fresh || l.version == "" {
		return false
	}
	f, err := os.Open(l.file)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(l.head()))
	n, _ := f.Read(head)
	return string(head[:n]) == l.head()
}

// head is the beginning of the file.
func (l *List) head() string {
	return string(append(binary.AppendUvarint([]byte(magic), uint64(len(l.version))), l.version...))
}

type reader struct {
	text string
	at   int
	bad  bool
}

func (r *reader) take(n int) string {
	if n < 0 || n > len(r.text)-r.at {
		r.bad, n = true, len(r.text)-r.at
	}
	r.at += n
	return r.text[r.at-n : r.at]
}

func (r *reader) number() uint64 {
	var n uint64
	for shift := 0; r.at < len(r.text) && shift < 64; shift += 7 {
		b := r.text[r.at]
		r.at++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	r.bad = true
	return 0
}

func (r *reader) string() string { return r.take(int(r.number())) }

// count is a number of records, each of which takes a byte at least.
func (r *reader) count() int { return min(int(r.number()), len(r.text)-r.at) }

func (r *reader) list(l *List) {
	l.dirs = make([]dir, 0, r.count())
	last, paths := "", new(strings.Builder) // one allocation for many paths
	paths.Grow(2 * len(r.text))
	for range cap(l.dirs) {
		shared, start := min(int(r.number()), len(last)), paths.Len()
		paths.WriteString(last[:shared])
		paths.WriteString(r.string())
		d := dir{path: paths.String()[start:], ino: r.number(), ctime: int64(r.number()), end: int(r.number())}
		r.bad = r.bad || d.end <= len(l.dirs) || d.end > cap(l.dirs)
		l.dirs, last = append(l.dirs, d), d.path
	}
	for range r.count() {
		l.spots = append(l.spots, spot{r.string(), r.string(), owner(r.number()), id{r.number(), r.number(), int64(r.number())}, r.string()})
	}
	for range r.count() {
		gitDir, links := r.string(), []string(nil)
		for range r.count() {
			links = append(links, r.string())
		}
		l.links[gitDir] = links
		r.bad = r.bad || links == nil
	}
	if r.at < len(r.text) { // earlier versions end here
		l.apart = r.string()
	}
}

func (l *List) encode() []byte {
	b := make([]byte, 0, 64*len(l.dirs)+1024)
	number := func(n uint64) { b = binary.AppendUvarint(b, n) }
	text := func(s string) { number(uint64(len(s))); b = append(b, s...) }
	b = append(b, l.head()...)
	text(l.root)
	number(uint64(len(l.dirs)))
	last := ""
	for _, d := range l.dirs {
		shared := 0
		for shared < len(last) && shared < len(d.path) && last[shared] == d.path[shared] {
			shared++
		}
		number(uint64(shared))
		text(d.path[shared:])
		number(d.ino)
		number(uint64(d.ctime))
		number(uint64(d.end))
		last = d.path
	}
	number(uint64(len(l.spots)))
	for _, s := range l.spots {
		text(s.dir)
		text(s.name)
		number(uint64(s.whose))
		number(s.id.dev)
		number(s.id.ino)
		number(uint64(s.id.born))
		text(s.text)
	}
	number(uint64(len(l.links)))
	for gitDir, links := range l.links {
		text(gitDir)
		number(uint64(len(links)))
		for _, link := range links {
			text(link)
		}
	}
	text(l.apart)
	return b
}

// save writes the list if it has changed.
func (l *List) save() error {
	if !l.dirty {
		return nil
	}
	l.version = rand.Text()
	if err := SaveList(l.file, l.encode()); err != nil {
		return fmt.Errorf("cannot write the list of git directories: %w", err)
	}
	l.dirty = false
	return nil
}
