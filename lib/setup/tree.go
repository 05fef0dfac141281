package setup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// stagingDirs are directories over which the tree can be built. The namespace is
// private and everything of the host is opened before, so their content does not
// matter, as long as bwrap itself does not lie there.
var stagingDirs = []string{"/mnt", "/media", "/srv", "/opt", "/home", "/root", "/var", "/tmp"}

// tree is the sandbox's root directory under construction.
type tree struct {
	dir       string            // a tmpfs; the tree is dir/root, layers of overlays lie beside it
	root      int               // the root of the tree
	layers    int               // how many overlays have layers in dir
	blanks    int               // how many files there cover others
	layered   map[string]string // Layer.Upper -> where its overlay is in the tree
	fresh     []uint64
	sealed    []int // mounts that become read-only in the end
	own       []Inode
	sources   []int // by mount: its source, cloned or opened; -1 for none
	console   int   // a terminal that is shown as /dev/console, or another file
	terminals int   // the devpts to show; -1 for a new one

	open   []directory // that were opened last, each below the one before: mounts are sorted, so the next place may lie in one
	buffer []byte      // for copies
}

// directory is an open directory of the tree.
type directory struct {
	place string
	fd    int
	fresh bool // in memory
}

// stage begins the tree: it opens the host's files, and mounts the directory to build in.
// terminals is the devpts to show, or -1 for a new one;
// session returns a mount of the file or directory at a path of the session's mount
// namespace.
func stage(j *Job, terminals int, session func(string) (int, error)) (*tree, error) {
	t := &tree{root: -1, layered: map[string]string{}, sources: make([]int, len(j.Mounts)), console: j.console(), terminals: terminals}
	for _, i := range j.Unchanged {
		fd, err := i.open(i.Path)
		if err != nil {
			return nil, fmt.Errorf("cannot show %q: %w", i.Path, err)
		}
		unix.Close(fd)
	}
	for i := range t.sources {
		t.sources[i] = -1
	}
	for i, m := range j.Mounts { // before anything hides the host
		var err error
		if t.sources[i], err = t.source(m, session); err != nil {
			t.close()
			return nil, failed(m, err)
		}
	}
	if err := t.mountStage(j.Program); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// close closes the files of the tree.
func (t *tree) close() {
	t.leave("/")
	for _, fd := range slices.Concat(t.sources, t.sealed, []int{t.root, t.terminals}) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// path is where bwrap can bind the tree.
func (t *tree) path() string { return t.dir + "/root" }

// proc is where the first process mounts its /proc.
func (t *tree) proc() string { return t.dir + "/proc" }

// build makes the mounts of the tree.
func (t *tree) build(j *Job) error {
	defer unix.Umask(unix.Umask(0)) // modes are what the job says
	for i, m := range j.Mounts {
		if err := t.mount(m, t.sources[i]); err != nil {
			return failed(m, err)
		}
		if t.sources[i] >= 0 {
			unix.Close(t.sources[i])
			t.sources[i] = -1
		}
	}
	return t.finish(j.WritableRoot)
}

// finish makes the mount point of /proc, which bwrap mounts, and then makes the root
// directory and the sealed directories read-only. bwrap's --remount-ro would read the table of mounts once more.
func (t *tree) finish(writable bool) error {
	if _, err := t.parent("/proc"); err != nil {
		return err
	}
	list := t.sealed
	if !writable {
		list = append(list, t.root)
	}
	for _, mount := range list {
		set := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &set); err != nil {
			return os.NewSyscallError("mount_setattr", err)
		}
	}
	return nil
}

// console is the standard output of the command, unless it has a terminal of the
// sandbox's own.
func (j *Job) console() int {
	if len(j.Terminal.Streams) > 0 {
		return -1
	}
	return int(FilesAt(j.FDs.Passed)[1])
}

// failed names the mount and, for errors that a user can mend, the
// remedy.
func failed(m Mount, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EMFILE):
		hint = fsat.MoreFiles()
	case errors.Is(err, errChanged), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP):
		hint = "another process changes it; try again"
	}
	return &failure{fmt.Errorf("cannot show %q: %w", m.At, err), hint}
}

// failure is an error with a hint.
type failure struct {
	error
	hint string
}

func (f *failure) Unwrap() error { return f.error }

// errChanged says that a file was replaced after the plan was made.
var errChanged = errors.New("it has changed since it was checked")

// open opens path without following symbolic links, and checks that it is the
// inode. An unchecked one may lie behind links.
func (i Inode) open(path string) (int, error) {
	if !i.checked() {
		return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, path, unix.O_PATH, 0, fsat.NoLinks)
	if err != nil {
		return -1, err
	}
	if err := i.check(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// check compares an open file with the identity, if there is one.
func (i Inode) check(fd int) error {
	var st unix.Stat_t
	if i.Ino == 0 {
		return nil
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Dev != i.Dev || st.Ino != i.Ino {
		return errChanged
	}
	return nil
}

// source opens the host's file for a mount: a detached mount for Bind, an O_PATH
// descriptor for Overlay, a file for Copy.
func (t *tree) source(m Mount, session func(string) (int, error)) (int, error) {
	switch m.Op {
	case Overlay:
		if m.Session != "" {
			return session(m.Session)
		}
		if m.From == "" {
			return -1, nil
		}
		return m.Inode.open(m.From)
	case Copy:
		return unix.Open(m.From, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	case Bind:
		fd, err := m.Inode.open(m.From)
		if err != nil {
			return -1, err
		}
		defer unix.Close(fd)
		if m.Access == Own {
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				return -1, err
			}
			t.own = append(t.own, Inode{Dev: st.Dev, Ino: st.Ino})
		}
		return clone(fd, m.Access)
	}
	return -1, nil
}

// mountStage mounts a tmpfs to build on, and the root of the tree in it.
func (t *tree) mountStage(program string) error {
	for _, dir := range stagingDirs {
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() && !strings.HasPrefix(program, dir+"/") {
			t.dir = dir
			break
		}
	}
	if t.dir == "" {
		return &failure{fmt.Errorf("cannot build the sandbox: none of %q exists", stagingDirs), "make /mnt"}
	}
	if err := unix.Mount("pk", t.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs to build the sandbox on: %w", err)
	}
	for _, dir := range []string{t.path(), t.proc()} {
		if err := unix.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	mount, err := t.empty("0755", rootSize)
	if err != nil {
		return err
	}
	if err := fsat.Attach(mount, t.path()); err != nil {
		return err
	}
	t.root, err = unix.Open(t.path(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// rootSize bounds the directory that all mounts lie in. It holds small files,
// and is read-only in the end.
const rootSize = 64 << 20

// mount carries out one step.
func (t *tree) mount(m Mount, source int) error {
	switch m.Op {
	case Bind:
		return t.attach(m.At, source)
	case Overlay:
		return t.overlay(m, source)
	case Copy, File:
		return t.file(m, source)
	case Link:
		parent, err := t.parent(filepath.Dir(m.At))
		if err != nil {
			return err
		}
		return unix.Symlinkat(m.From, parent.fd, filepath.Base(m.At))
	case Dev:
		return t.devices(m)
	case Empty:
		if _, err := t.mountPoint(m.At, true); err != nil {
			return err
		}
	case Keep, Blank, Hide:
	default:
		return fmt.Errorf("internal error: %s got the operation %q", option, m.Op)
	}
	at, err := t.walk(m.At)
	if err != nil {
		if errors.Is(err, unix.ENOENT) && !m.Inode.checked() {
			return nil // a command of the session has removed it from an overlay
		}
		return err
	}
	defer unix.Close(at)
	if err := m.Inode.check(at); err != nil {
		return err
	}
	mount, err := t.cover(m, at)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	t.leave(m.At) // it is covered now
	if m.Op == Empty && m.Access == ReadOnly {
		t.sealed = append(t.sealed, dup(mount))
	}
	return moveTo(mount, at)
}

// cover makes the mount that goes over the open place.
func (t *tree) cover(m Mount, at int) (int, error) {
	switch m.Op {
	case Keep:
		return clone(at, m.Access)
	case Empty:
		return t.empty(perms(m.Perms), m.Size)
	case Blank:
		return t.blank(m.Data)
	}
	return hide(at)
}

func perms(mode uint32) string { return fmt.Sprintf("%04o", mode) }

// empty makes a directory in memory, in which mount points may be made.
func (t *tree) empty(perms string, size int64) (int, error) {
	mount, err := newTmpfs(perms, size, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(mount, &st); err != nil {
		unix.Close(mount)
		return -1, err
	}
	t.fresh = append(t.fresh, st.Dev)
	return mount, nil
}

// hide covers a directory with an empty one, and a file with a device that
// cannot be opened, since the mount allows none.
func hide(at int) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return newTmpfs("0555", 4096, unix.MOUNT_ATTR_RDONLY)
	}
	null, err := unix.Open("/dev/null", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(null)
	return clone(null, ReadOnly)
}

// blank makes a file that has other content than the one it covers: tools stop at a file
// that cannot be opened.
func (t *tree) blank(data []byte) (int, error) {
	t.blanks++
	name := fmt.Sprintf("%s/blank%d", t.dir, t.blanks)
	if err := writeFile(unix.AT_FDCWD, name, 0o444, func(fd int) error { return writeAll(fd, data) }); err != nil {
		return -1, err
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return clone(fd, ReadOnly)
}

// writeFile makes a file of the tree. Nothing is forked meanwhile: the gate's process would
// have a copy of the descriptor until it execs. The kernel makes no mount read-only that
// has a file open for writing (EBUSY).
func writeFile(dir int, name string, perms uint32, fill func(fd int) error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perms)
	if err != nil {
		return err
	}
	return errors.Join(fill(fd), unix.Close(fd))
}

// overlay lays memory, a layer on disk, or the session's upper layer over a
// directory. Two overlays of one upper layer would corrupt it, so the second place
// gets the mount of the first.
func (t *tree) overlay(m Mount, lower int) error {
	mount := lower
	var err error
	at, again := "", false
	if m.Layer != nil {
		at, again = t.layered[m.Layer.Upper]
	}
	switch {
	case again:
		mount, err = t.cloneOf(at)
	case m.Layer != nil && m.Session == "":
		mount, err = m.Layer.Mount(lower)
	case m.Session == "":
		mount, err = t.newOverlay(lower, m.Perms)
	}
	if err != nil {
		return err
	}
	if mount != lower {
		defer unix.Close(mount)
	}
	if m.Layer != nil {
		t.layered[m.Layer.Upper] = m.At
	}
	return t.attach(m.At, mount)
}

// enterMounts moves this thread alone to a mount namespace.
func enterMounts(namespace int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("setns", unix.Setns(namespace, unix.CLONE_NEWNS))
}

// cloneOf returns a mount of the file or directory at a place of the tree.
func (t *tree) cloneOf(place string) (int, error) {
	fd, err := t.walk(place)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return clone(fd, "")
}

// mountInSession mounts an overlay with layers on disk in the session's mount
// namespace, in which this thread is.
func (m Mount) mountInSession() error {
	err := m.Layer.MountAt(m.Session, func() (int, error) { return m.Inode.open(m.From) })
	if errors.Is(err, overlay.ErrElsewhere) {
		return &failure{err, "try again when the session's other commands have ended"}
	}
	return err
}

// newOverlay makes an overlay of an open directory, or of nothing, with layers in
// memory.
func (t *tree) newOverlay(lower int, mode uint32) (int, error) {
	t.layers++
	layer := func(name string, mode uint32) (string, error) {
		dir := fmt.Sprintf("%s/%s%d", t.dir, name, t.layers)
		return dir, unix.Mkdir(dir, mode)
	}
	if lower >= 0 {
		var st unix.Stat_t
		if err := unix.Fstat(lower, &st); err != nil {
			return -1, err
		}
		mode = st.Mode & 0o777
	} else {
		from, err := layer("lower", 0o700)
		if err == nil {
			lower, err = unix.Open(from, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			return -1, err
		}
		defer unix.Close(lower)
	}
	upper, err := layer("upper", mode) // the merged directory has its mode
	if err != nil {
		return -1, err
	}
	work, err := layer("work", 0o700)
	if err != nil {
		return -1, err
	}
	return overlay.Mount(fsat.Path(lower), upper, work, "", false)
}

// file makes a file in a directory in memory, with Data or the content of source.
func (t *tree) file(m Mount, source int) error {
	parent, err := t.parent(filepath.Dir(m.At))
	if err != nil {
		return err
	}
	return writeFile(parent.fd, filepath.Base(m.At), m.Perms, func(fd int) error {
		if err := writeAll(fd, m.Data); err != nil || source < 0 {
			return err
		}
		return t.copy(fd, source)
	})
}

// copy copies a file. It stops at a size that the tree cannot hold: another
// process may have replaced the file.
func (t *tree) copy(to, from int) error {
	if t.buffer == nil {
		t.buffer = make([]byte, 64<<10+1) // one call reads a file that the plan has copied
	}
	for copied := 0; copied < rootSize; {
		n, err := unix.Read(from, t.buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		}
		if err := writeAll(to, t.buffer[:n]); err != nil || n < len(t.buffer) {
			return err // a regular file ends with a short read
		}
		copied += n
	}
	return nil
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && err != unix.EINTR {
			return err
		}
		data = data[max(n, 0):]
	}
	return nil
}

// attach puts a mount at a place, which is made where it is missing in a
// directory of pk's. A symbolic link that is there by now is not followed.
func (t *tree) attach(place string, mount int) error {
	var st unix.Stat_t
	if err := unix.Fstat(mount, &st); err != nil {
		return err
	}
	parent, err := t.mountPoint(place, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return err
	}
	err = unix.MoveMount(mount, "", parent.fd, filepath.Base(place), unix.MOVE_MOUNT_F_EMPTY_PATH)
	t.leave(place) // it is covered now
	return os.NewSyscallError("move_mount", err)
}

// walk opens a place in the tree, through no symbolic link and never out of it.
func (t *tree) walk(place string) (int, error) {
	return fsat.Kernel().Open(t.root, cmp.Or(below(place), "."), unix.O_PATH, 0, fsat.Beneath)
}

// mountPoint makes a mount point where it is missing: anywhere in memory, and
// directly in a directory of pk's own. Nothing is ever made in another. It returns
// the directory that holds it.
func (t *tree) mountPoint(place string, dir bool) (directory, error) {
	parent, err := t.parent(filepath.Dir(place))
	if err != nil {
		return parent, err
	}
	name := filepath.Base(place)
	if name == "/" {
		return parent, fmt.Errorf("internal error: %s got a mount over the root", option)
	}
	make := func() error {
		if dir {
			return unix.Mkdirat(parent.fd, name, 0o755)
		}
		return unix.Mknodat(parent.fd, name, unix.S_IFREG|0o644, 0)
	}
	if parent.fresh {
		if err := make(); err != unix.EEXIST {
			return parent, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(parent.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			err = unix.ELOOP
		}
		return parent, err
	}
	if err := unix.Fstat(parent.fd, &st); err != nil {
		return parent, err
	}
	if !slices.Contains(t.own, Inode{Dev: st.Dev, Ino: st.Ino}) {
		return parent, unix.ENOENT
	}
	return parent, make()
}

// parent opens a directory of the tree, through no symbolic link. It stays open until a
// place elsewhere is opened. Missing directories are made in memory.
func (t *tree) parent(place string) (directory, error) {
	for i, d := range slices.Backward(t.open) {
		if fsat.Within(place, d.place) {
			break
		}
		unix.Close(d.fd)
		t.open = t.open[:i]
	}
	at := directory{"/", t.root, true}
	if len(t.open) > 0 {
		at = t.open[len(t.open)-1]
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(place[len(at.place):], "/"), "/") {
		if name == "" {
			continue // the place is open
		}
		var err error
		if at, err = t.enter(at, name); err != nil {
			return directory{}, err
		}
		t.open = append(t.open, at)
	}
	return at, nil
}

// enter opens a directory in an open one. It makes a missing one in memory.
func (t *tree) enter(in directory, name string) (directory, error) {
	at := directory{place: filepath.Join(in.place, name)}
	enter := func() (err error) {
		at.fd, err = unix.Openat(in.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	}
	if in.fresh {
		if err := unix.Mkdirat(in.fd, name, 0o755); err == nil {
			at.fresh = true
			return at, enter()
		} else if err != unix.EEXIST {
			return at, err
		}
	}
	err := enter()
	if err == unix.ENOTDIR && fsat.IsLink(in.fd, name) {
		err = unix.ELOOP
	}
	at.fresh = err == nil && t.isFresh(at.fd)
	return at, err
}

// leave closes the open directories at a place and below.
func (t *tree) leave(place string) {
	for len(t.open) > 0 && fsat.Within(t.open[len(t.open)-1].place, place) {
		unix.Close(t.open[len(t.open)-1].fd)
		t.open = t.open[:len(t.open)-1]
	}
}

// isFresh reports whether a directory is in memory.
func (t *tree) isFresh(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && slices.Contains(t.fresh, st.Dev)
}
