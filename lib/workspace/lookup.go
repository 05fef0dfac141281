package workspace

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	// maxLinks is how many links a path may lead through: the kernel's number.
	maxLinks = 40

	// maxRaces is how often an operation is begun again because something was not
	// what it had been a moment before. Who loses that often is being played with.
	maxRaces = 8

	// safeFlags are for opening in earnest: without waiting for the other end of
	// a FIFO or the holder of a lease, and without getting a terminal.
	safeFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
)

// errRaced is an operation to be begun again.
var errRaced = errors.New("internal error: a race was not run again")

// place is where a path leads: a name in a directory that is open.
type place struct {
	dir  int
	name string // "." if it is the directory itself
	path string // relative to the root, without links

	missing []string // directories between dir and name that do not exist
	close   func()
}

// lookup is a walk from name to name, on its own feet: the kernel is never asked
// to follow a link. It needs no openat2. What it goes by are directories below
// the root that it has opened one in the other, so nothing that is renamed
// meanwhile leads it out.
type lookup struct {
	w     *LocalWorkspace
	at    int      // the directory that it has come to; the root's is borrowed
	names []string // how it is reached from the root
	above int      // how many levels above the root it is; at is the root then
	links int
	rest  string
	blame string // what it failed at, "" for where it has come to
}

// locate finds out where a path leads: the directory and the name in it. With
// follow, the last name is no link, unless it has just become one.
func (w *LocalWorkspace) locate(rel string, write, follow bool) (*place, error) {
	l := lookup{w: w, at: w.tree.fd, rest: rel}
	p, err := l.direct(rel, follow)
	if p == nil && err == nil {
		p, err = l.walk(follow)
	}
	if err != nil {
		if l.blame == "" {
			l.blame = l.here()
		}
		l.letGo()
		denied := w.ask(Access{Path: l.blame, Write: write})
		if denied == nil && strings.Contains(l.rest, "..") {
			denied = w.ask(Access{Path: l.blame}) // as if it had been there, and left again
		}
		if denied != nil {
			return nil, denied // rather than tell what is there
		}
		return nil, err
	}
	return p, nil
}

// direct is for the usual case, in which there is no link. Then one look from
// the kernel is enough. It returns nil if it does not know.
func (l *lookup) direct(rel string, follow bool) (*place, error) {
	if !l.w.tree.opener.Openat2 || rel == "." {
		return nil, nil
	}
	dir, name := parent(rel), rel[strings.LastIndexByte(rel, '/')+1:]
	fd := l.w.tree.fd
	if dir != "." {
		var err error
		if fd, err = l.w.openBelow(fd, dir, unix.O_PATH|unix.O_DIRECTORY); err != nil {
			return nil, nil
		}
		l.at, l.names = fd, strings.Split(dir, "/")
	}
	if follow && isLink(fd, name) {
		l.letGo()
		return nil, nil
	}
	return l.found(name), nil
}

// walk takes step after step, until nothing is left or a step is the end.
func (l *lookup) walk(follow bool) (*place, error) {
	for {
		p, err := l.step(follow)
		if p != nil || err != nil {
			return p, err
		}
		if !l.isLast() {
			continue
		}
		if l.above > 0 {
			return nil, errOut
		}
		return l.found("."), nil
	}
}

// step takes one name.
func (l *lookup) step(follow bool) (*place, error) {
	var name string
	name, l.rest, _ = strings.Cut(l.rest, "/")
	switch {
	case name == "" || name == ".":
		return nil, nil
	case name == "..":
		return nil, l.leave()
	case l.above > 0:
		return nil, l.comeBack(name)
	case !l.isLast():
		return l.enter(name)
	case follow:
		return l.arrive(name)
	}
	return l.found(name), nil
}

// isLast tells whether nothing comes after the name that was taken.
func (l *lookup) isLast() bool { return strings.Trim(l.rest, "/") == "" }

var (
	errOut    = &Error{Err: ErrPathTraversal, Detail: "a link leads out"}
	errLoop   = &Error{Err: ErrPathTraversal, Detail: "it leads through too many links"}
	errALink  = &Error{Err: ErrPathTraversal, Detail: "a symbolic link"}
	errMounts = &Error{Err: ErrPathTraversal, Detail: "something is mounted there"}
)

// found makes a place of a name in the directory that the walk has come to.
func (l *lookup) found(name string) *place {
	where := l.here()
	if name != "." {
		where = join(where, name)
	}
	p := &place{dir: l.at, name: name, path: where, close: func() {}}
	if len(l.names) > 0 {
		p.close = func() { unix.Close(p.dir) }
	}
	return p
}

func (l *lookup) here() string {
	if len(l.names) == 0 {
		return "."
	}
	return strings.Join(l.names, "/")
}

func (l *lookup) letGo() {
	if len(l.names) > 0 {
		unix.Close(l.at)
	}
	l.at, l.names = l.w.tree.fd, nil
}

// enter goes into a directory, or follows a link in its place. If it is missing,
// all of the rest is.
func (l *lookup) enter(name string) (*place, error) {
	fd, err := l.w.openBelow(l.at, name, unix.O_PATH|unix.O_DIRECTORY)
	switch err {
	case nil:
		names := append(l.names, name)
		l.letGo()
		l.at, l.names = fd, names
		return nil, nil
	case unix.ENOTDIR, unix.ELOOP:
		return nil, l.through(name, unix.ENOTDIR)
	case unix.ENOENT:
		return l.missing(name)
	}
	l.note(name)
	return nil, err
}

// arrive is at the last name, which is one to follow.
func (l *lookup) arrive(name string) (*place, error) {
	target, err := readlinkat(l.at, name)
	switch err {
	case nil:
		return nil, l.follow(name, target)
	case unix.EINVAL, unix.ENOENT:
		return l.found(name), nil
	}
	l.note(name)
	return nil, err
}

// through follows a link in the place of a directory. What is none there fails
// with otherwise.
func (l *lookup) through(name string, otherwise error) error {
	target, err := readlinkat(l.at, name)
	switch err {
	case nil:
		return l.follow(name, target)
	case unix.EINVAL:
		err = otherwise
	case unix.ENOENT:
		err = errRaced
	}
	l.note(name)
	return err
}

// missing is the place of a path whose directories do not exist. The kernel would
// not climb back out of them, and neither does this.
func (l *lookup) missing(name string) (*place, error) {
	names := []string{name}
	for next := range strings.SplitSeq(l.rest, "/") {
		switch next {
		case "", ".":
		case "..":
			l.note(name)
			return nil, unix.ENOENT
		default:
			names = append(names, next)
		}
	}
	p := l.found(strings.Join(names, "/"))
	p.missing, p.name = names[:len(names)-1], names[len(names)-1]
	return p, nil
}

// note says what the walk fails at, for the guards to be asked.
func (l *lookup) note(name string) { l.blame = join(l.here(), name) }

// follow puts the target of a link in place of its name. An absolute target
// begins at the host's root, which is above this one by as many levels as this
// one's path has names.
func (l *lookup) follow(name, target string) error {
	l.note(name) // for when it leads out
	if l.links++; l.links > maxLinks {
		return errLoop
	}
	if l.w.conf.noLinks {
		return errALink
	}
	l.rest = target + "/" + l.rest
	if target[0] != '/' {
		return nil
	}
	l.letGo()
	t := l.w.tree
	if below, ok := strings.CutPrefix(target, t.given); ok && (below == "" || below[0] == '/') {
		l.rest = below + l.rest[len(target):]
		return nil
	}
	l.above = len(t.names)
	return nil
}

// leave goes up. Who climbs out of a directory has found that it is there: that
// is reading.
func (l *lookup) leave() error {
	if len(l.names) == 0 {
		if l.above < len(l.w.tree.names) {
			l.above++
		}
		return nil
	}
	if err := l.w.ask(Access{Path: l.here()}); err != nil {
		return err
	}
	names := l.names[:len(l.names)-1]
	l.letGo()
	if len(names) == 0 {
		return nil
	}
	// It is looked up again rather than kept open: a walk needs two descriptors,
	// however deep it goes. Somebody may have replaced it, by something that is
	// inside too.
	fd, err := l.w.openBelow(l.w.tree.fd, strings.Join(names, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return errRaced
	}
	l.at, l.names = fd, names
	return nil
}

// comeBack goes down again from above the root: only the root's own names lead
// there.
func (l *lookup) comeBack(name string) error {
	names := l.w.tree.names
	if name != names[len(names)-l.above] {
		return errOut
	}
	l.above--
	return nil
}

// openBelow opens a clean path below a directory, through no link.
func (w *LocalWorkspace) openBelow(dir int, path string, flags int) (int, error) {
	return w.createBelow(dir, path, flags, 0)
}

func (w *LocalWorkspace) createBelow(dir int, path string, flags int, mode uint32) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= safeFlags
	}
	rules := fsat.Beneath
	if w.conf.oneDevice {
		rules = fsat.SameMount
	}
	fd, err := w.tree.opener.Open(dir, path, flags, mode, rules)
	switch {
	case err == unix.EXDEV && w.conf.oneDevice:
		err = errMounts
	case err == unix.EXDEV, err == unix.EAGAIN:
		err = errRaced
	}
	return fd, err
}

// open opens what a path leads to, every link followed, and tells where it is.
// No guard has been asked yet. On an error, where is as far as it came, and all
// that may be said of it depends on the guards.
func (w *LocalWorkspace) open(rel string, flags int) (fd int, where string, err error) {
	if w.tree.opener.Openat2 {
		fd, err := w.openBelow(w.tree.fd, rel, flags)
		if err == nil || err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EACCES {
			return fd, rel, w.afterGuard(rel, err)
		}
	}
	p, err := w.locate(rel, false, true)
	if err != nil {
		return -1, rel, err
	}
	defer p.close()
	fd, err = w.openPlace(p, flags)
	return fd, p.path, w.afterGuard(p.path, err)
}

// afterGuard is err, unless a guard does not want it told.
func (w *LocalWorkspace) afterGuard(where string, err error) error {
	if err == nil {
		return nil
	}
	if denied := w.ask(Access{Path: where}); denied != nil {
		return denied
	}
	return err
}

// openPlace opens what has been located. If it has become a link, that is a race.
func (w *LocalWorkspace) openPlace(p *place, flags int) (int, error) {
	if p.missing != nil {
		return -1, unix.ENOENT
	}
	fd, err := w.openBelow(p.dir, p.name, flags)
	if err == unix.ELOOP || err == unix.ENOTDIR && isLink(p.dir, p.name) {
		err = errRaced
	}
	return fd, err
}

func isLink(dir int, name string) bool { return fsat.IsLink(dir, name) }

func readlinkat(dir int, name string) (string, error) { return fsat.ReadLink(dir, name) }
