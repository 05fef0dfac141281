package confine

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// view looks paths up: on the host, but a shown directory and all below it in the open
// directory that replaces it. Paths are absolute and, unless a method says otherwise,
// clean. The walker follows links, since a target is a path of the view too: the kernel
// would take an absolute one on the host.
//
// Its zero value is the host.
type view struct {
	shown  []shownDir // sorted by path, so that a directory comes before those below it
	opener fsat.Opener
}

// shownDir is a directory and its replacement.
type shownDir struct {
	path string
	fd   int
}

// find returns the index of the innermost shown directory that holds path, -1 for
// a path on the host.
func (v view) find(path string) int {
	for i := len(v.shown) - 1; i >= 0; i-- {
		if fsat.Within(path, v.shown[i].path) {
			return i
		}
	}
	return -1
}

// at returns path as system calls take it: a directory, and a name from there.
func (v view) at(path string) (dir int, name string) {
	i := v.find(path)
	if i < 0 {
		return unix.AT_FDCWD, path
	}
	return v.shown[i].fd, below(path, v.shown[i].path)
}

// below returns path relative to a directory that holds it.
func below(path, dir string) string {
	name := strings.TrimLeft(path[len(dir):], "/")
	if name == "" {
		return "."
	}
	return name
}

// open opens path with O_PATH, through no link. That neither blocks on a FIFO nor
// wakes up a device, and needs no permission on the file itself. Like walk, it accepts
// no link above a shown directory either.
func (v view) open(name string) (int, error) {
	i := v.find(name)
	if i < 0 {
		return v.opener.Open(unix.AT_FDCWD, name, unix.O_PATH, 0, fsat.NoLinks)
	}
	shown := v.shown[i]
	above, err := view{v.shown[:i], v.opener}.open(path.Dir(shown.path))
	if err != nil {
		return -1, err
	}
	unix.Close(above)
	return v.opener.Open(shown.fd, below(name, shown.path), unix.O_PATH, 0, fsat.Beneath)
}

// lstat is lstat(2). path has no links but at its end, and may end in "/" or "/.".
func (v view) lstat(path string, st *unix.Stat_t) error {
	dir, name := v.at(path)
	return unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// stat fails as stat(2) does. path is as it was typed.
func (v view) stat(path string) error {
	var st unix.Stat_t
	if len(v.shown) == 0 {
		return unix.Stat(path, &st)
	}
	w := walker{view: v, rest: path, missing: -1, strict: true}
	where, err := w.walk()
	if err == nil && strings.HasSuffix(path, "/") {
		err = v.lstat(where+"/", &st)
	}
	return err
}

// linkTest finds out whether the end of path is a link: nil if it is, EINVAL if it
// is another file, ENOENT or ENOTDIR if it is missing.
func (v view) linkTest(path string) error { return linkTest(v.at(path)) }

// checkProcLink refuses links on a procfs. A link below /proc/PID leads straight
// to an open file, another root or another namespace, and its text ("pipe:[1]",
// "/x (deleted)") is no path; see proc(5). /proc/self depends on the process that
// follows it, so the answer would hold for this process and not for the caller.
//
// dir holds the link, and is "" for the root directory.
func (v view) checkProcLink(dir string) error {
	var fs unix.Statfs_t
	err := v.statfs(dir, &fs)
	if err == nil && fs.Type == unix.PROC_SUPER_MAGIC {
		err = ErrProcLink
	}
	return err
}

func (v view) statfs(dir string, fs *unix.Statfs_t) error {
	at, name := v.at(dir + "/")
	if at == unix.AT_FDCWD {
		return unix.Statfs(name, fs)
	}
	fd, err := v.opener.Open(at, path.Clean(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstatfs(fd, fs)
}

// show replaces the root at place by dir. Places come in order.
func (w *Workspace) show(place string, dir *os.File) error {
	failed := func(err error) error { return &RootError{Name: place, Err: err, role: roleShown} }
	root := w.rootAt(place)
	switch {
	case root == nil:
		return failed(ErrNoRoot)
	case !root.Dir:
		return failed(unix.ENOTDIR)
	}
	fd, err := fsat.Reopen(int(dir.Fd()), unix.O_PATH)
	if err != nil {
		return failed(err)
	}
	w.view.shown = append(w.view.shown, shownDir{place, fd})
	return nil
}

// Shown returns the path of the root whose directory of Config.Shown has the files of
// where, which is resolved; "" if where is on the host.
func (w *Workspace) Shown(where string) string {
	if i := w.view.find(where); i >= 0 {
		return w.view.shown[i].path
	}
	return ""
}
