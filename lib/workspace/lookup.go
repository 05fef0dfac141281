package workspace

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	// maxLinks bounds the links of a path: the kernel's number.
	maxLinks = 40

	// maxRaces bounds the restarts of an operation because the tree changed meanwhile. A
	// caller that loses so many races is under attack.
	maxRaces = 8

	// safeFlags keep open(2) from waiting for the other end of a FIFO or the holder
	// of a lease, and from making a terminal the controlling one.
	safeFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
)

// errRaced makes an operation start again.
var errRaced = errors.New("internal error: a race was not run again")

// place is the end of a path: a name in an open directory.
type place struct {
	dir  int
	name string // "." if it is the directory itself
	path string // relative to the root, without links

	missing []string // directories between dir and name that do not exist
	close   func()
}

// lookup walks from name to name and follows links itself. It opens each directory in the
// one before it, so no rename leads it out of the root. (lib/confine looks names up by
// path, and its answer is only a snapshot.) It does not need openat2.
type lookup struct {
	w     *LocalWorkspace
	at    int      // the current directory; the root's descriptor is borrowed
	names []string // from the root to it
	above int      // the levels that the walk is above the root; at is the root then
	links int
	rest  string
	blame string // the path at which it failed, "" for the current directory
}

// locate finds the place of a path. With follow, its last name is not a link, unless it has
// just become one.
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
			denied = w.ask(Access{Path: l.blame}) // as if the walk had entered and left it
		}
		if denied != nil {
			return nil, denied // err would reveal whether a file exists
		}
		return nil, err
	}
	if !write {
		return p, nil
	}
	if err := w.refuseGitDir(rel, p.path); err != nil {
		p.close()
		if denied := w.ask(Access{Path: p.path, Write: true}); denied != nil {
			err = denied // err would reveal the target of a link
		}
		return nil, err
	}
	return p, nil
}

// direct handles the usual case, a path without links, in one call. It returns nil
// for another path.
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

// walk takes one step after the other, to the end.
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

// isLast reports whether the name that was taken is the last one.
func (l *lookup) isLast() bool { return strings.Trim(l.rest, "/") == "" }

var (
	errOut    = &Error{Err: ErrPathTraversal, Detail: "a link leads out"}
	errLoop   = &Error{Err: ErrPathTraversal, Detail: "it leads through too many links"}
	errALink  = &Error{Err: ErrPathTraversal, Detail: "a symbolic link"}
	errMounts = &Error{Err: ErrPathTraversal, Detail: "something is mounted there"}
)

// found makes a place of a name in the current directory.
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

// enter opens a directory, or follows a link at its name. If it is missing, so is the
// rest of the path.
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

// arrive takes the last name, and follows it if it is a link.
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

// through follows a link in place of a directory. Without a link, it fails with
// otherwise.
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

// missing returns the place of a path whose directories do not exist. As in the
// kernel, ".." cannot leave them.
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

// note records the name at which the walk fails, for the guards.
func (l *lookup) note(name string) { l.blame = join(l.here(), name) }

// follow replaces the name of a link by its target. An absolute target begins at
// the host's root: above this root by as many levels as its path has names.
func (l *lookup) follow(name, target string) error {
	l.note(name) // in case it leads out
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

// leave goes up. That reveals that the directory exists, so it counts as reading.
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
	// It is opened again instead of kept open, so that a walk needs two descriptors
	// at any depth. A replacement of it is inside the root too.
	fd, err := l.w.openBelow(l.w.tree.fd, strings.Join(names, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return errRaced
	}
	l.at, l.names = fd, names
	return nil
}

// comeBack goes down again from above the root, by the root's own names only.
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

// open opens the file at a path, with all links resolved, and returns its place. It has
// asked no guard yet. On an error, where is as far as the lookup came; the guards decide
// whether the caller may know it.
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

// afterGuard returns err, or the denial of a guard instead.
func (w *LocalWorkspace) afterGuard(where string, err error) error {
	if err == nil {
		return nil
	}
	if denied := w.ask(Access{Path: where}); denied != nil {
		return denied
	}
	return err
}

// openPlace opens a place. If its name has become a link, that is a race.
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
