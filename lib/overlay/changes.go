package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Op is the kind of a change. It prints as its letter.
type Op byte

const (
	Added    Op = 'A' // the lower layer has no such path
	Modified Op = 'M' // same type; other content, link target or permission bits
	Removed  Op = 'D' // the merged tree has no such path
	Retyped  Op = 'T' // another type of file
)

func (o Op) String() string { return string(rune(o)) }

// File describes an entry of one layer. The zero value: there is none.
type File struct {
	Mode  uint32 // as in unix.Stat_t: type and permission bits
	Size  int64
	Used  int64 // bytes on disk: fewer than Size if the file has holes
	Dev   uint64
	Ino   uint64
	Ctime time.Time // only the kernel sets it
	Btime time.Time // the time of birth; zero if the file system does not tell

	rdev uint64
}

// IsDir reports whether the entry is a directory.
func (f File) IsDir() bool { return f.Mode&unix.S_IFMT == unix.S_IFDIR }

// isNullDevice reports whether the entry is the device 0:0. In an upper layer that is
// a whiteout. An overlay shows that of a lower layer as no file, and any user can
// make one. The other form of whiteouts, an empty file, counts as that in a lower layer.
func (f File) isNullDevice() bool { return f.Mode&unix.S_IFMT == unix.S_IFCHR && f.rdev == 0 }

// Change is a difference between the merged tree and the lower layer.
type Change struct {
	// Path is relative to the roots: names as they are, joined with "/". The roots
	// themselves are ".", and can only be Modified.
	Path string
	Op   Op

	// Old is the entry in the lower layer. With Added, it is zero or the device 0:0,
	// which the merged tree does not show.
	Old File

	// New is the entry in the upper layer; zero with Removed.
	New File

	// Content is set with Modified if the content, link target or device number
	// differs, and not only the permission bits. It is also set if Err leaves that open.
	Content bool

	// CopiedUp tells that New began as a copy of an entry in the lower layer. It is known
	// of regular files and directories, unless Old is zero.
	CopiedUp bool

	// Err tells that New, or Old, could not be read. If Op is Modified, the entry is
	// possibly unchanged. If a directory could not be read, none of its entries is visited.
	Err error
}

// Options limit the walk. The zero value visits all changes.
type Options struct {
	// Paths are clean relative paths. Only changes of these, and below, are visited.
	// None: all are.
	Paths []string

	// Parents visits the changes of the directories above Paths too: an added file
	// cannot land before an added parent.
	Parents bool

	// Types reads only the type of New where the lower layer has no such directory: the
	// kernel returns it with the name. CopiedUp is not determined then.
	Types bool

	// Skip leaves out a path and all below it. isDir: it is a directory in one of the
	// layers at least. Entries below a skipped directory are not asked about.
	Skip func(path string, isDir bool) bool

	// Keep reports whether to keep an entry of the lower layer that is hidden because a
	// directory above it was removed or replaced: the entry came after the overlay was
	// made. It and the entries below it are not visited. The directory above it is
	// visited as Removed all the same.
	Keep func(path string, old File) bool
}

var (
	// ErrTooDeep is a directory with a path longer than maxPath.
	ErrTooDeep = errors.New("its path is too long")

	// ErrMoved is a directory that moved elsewhere while its entries were visited.
	// The others are not visited.
	ErrMoved = errors.New("it was moved meanwhile")
)

const (
	// maxPath bounds the paths, and so the recursion. A command can make a directory
	// of any depth, and each of its entries costs the length of its path.
	maxPath = 4 * unix.PathMax

	// maxHeld bounds the levels whose directories stay open. A deeper one is closed
	// while the walk is below it, and found again as "..".
	maxHeld = 64

	bufferSize = 128 << 10
)

// Changes visits each difference between the merged tree of an overlay and its lower
// layer. upper and lower are the roots of the layers, and may be O_PATH descriptors.
//
// A directory is visited before its entries, and these in the order of the bytes of
// their names. A removed directory and each entry below it are visited as Removed; if
// it became another type of file, its entries are. If a directory was moved while the
// walk was below it, it is visited a second time, with ErrMoved.
//
// It compares type, permission bits, and content, link target or device number; not
// owners, times and extended attributes. Each name of a file is compared by itself. A
// file that was copied up and not changed is not visited.
//
// The cost is that of the upper layer, plus the entries below removed and replaced
// directories. No link is followed and no mount point entered; only regular files and
// directories are opened; nothing is changed, except the access time of files read.
// If a command changes the upper layer meanwhile, the result is that of no one moment.
//
// An entry that cannot be read does not end the walk: see Change.Err. The error is that
// of visit, as it is, or about Options.Paths or the roots.
func Changes(upper, lower int, o Options, visit func(Change) error) error {
	only, err := selectPaths(o.Paths)
	if err != nil {
		return err
	}
	w := walk{Options: o, visit: visit, opener: fsat.Kernel()}
	up, err := openRoot(upper, unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("cannot read the upper layer: %w", err)
	}
	defer up.close()
	low, err := openRoot(lower, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("cannot read the lower layer: %w", err)
	}
	defer low.close()
	return w.root(up, low, only)
}

// selection is a tree of names: those below which Paths lie. nil stands for everything.
type selection map[string]selection

func selectPaths(paths []string) (selection, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	top := selection{}
	for _, path := range paths {
		if !filepath.IsLocal(path) || filepath.Clean(path) != path {
			return nil, fmt.Errorf("internal error: %q is not a clean relative path", path)
		}
		if path == "." {
			return nil, nil
		}
		top.add(path)
	}
	return top, nil
}

func (s selection) add(path string) {
	for {
		name, rest, more := strings.Cut(path, "/")
		next, known := s[name]
		switch {
		case !more:
			s[name] = nil
			return
		case known && next == nil:
			return // selected as a whole
		case !known:
			next = selection{}
			s[name] = next
		}
		s, path = next, rest
	}
}

type walk struct {
	Options
	opener fsat.Opener
	visit  func(Change) error
	path   []byte    // of the entry at hand
	bufs   [2][]byte // of the files that are compared
}

// dir is an open directory of a layer, or nil if the layer has none there.
type dir struct {
	fd     int
	depth  int
	st     File
	marked bool // of an upper layer: it can hold whiteouts that are regular files
	lost   error
}

// pair is the directories of both layers with one path.
type pair struct {
	up, low *dir

	// hidden: the entries of low are not in the merged tree, since up is no directory,
	// or it or a directory above it is opaque.
	hidden bool

	only  selection    // nil: all entries
	names []fsat.Entry // to look at; of one in both layers, the type in the lower one
	seen  Change       // of the directory itself; Modified if there is none
}

func (p *pair) close() {
	p.up.close()
	p.low.close()
}

// root visits the roots. The kernel merges them even if the upper one is opaque.
func (w *walk) root(up, low *dir, only selection) error {
	p := pair{up: up, low: low, only: only}
	value, err := opaque(up.fd)
	if err != nil {
		return fmt.Errorf("cannot read the upper layer: %w", err)
	}
	up.marked = value == 'x'
	if err := p.list(); err != nil {
		return err
	}
	c := Change{Path: ".", Op: Modified, Old: low.st, New: up.st}
	if permissions(c.Old) != permissions(c.New) {
		if err := w.tell(&c, only, nil, ""); err != nil {
			return err
		}
	}
	return w.entries(&p)
}

// entries visits the entries of a directory and all below it.
func (w *walk) entries(p *pair) error {
	for _, e := range p.names {
		before := len(w.path)
		if before > 0 {
			w.path = append(w.path, '/')
		}
		w.path = append(w.path, e.Name...)
		err := w.entry(p, e, p.only[e.Name])
		w.path = w.path[:before]
		if err != nil {
			return err
		}
		if err := p.lost(); err != nil {
			p.seen.Err = err
			return w.visit(p.seen)
		}
	}
	return nil
}

// lost is the error of a directory that was closed and is not found again.
func (p *pair) lost() error {
	for _, d := range []*dir{p.up, p.low} {
		if d != nil && d.lost != nil {
			return d.lost
		}
	}
	return nil
}

// entry visits an entry and all below it. only is the selection of paths below it.
func (w *walk) entry(in *pair, e fsat.Entry, only selection) error {
	c := Change{Path: string(w.path), Op: Modified}
	name, whiteout, err := e.Name, false, error(nil)
	if w.Types && in.low == nil && !in.up.marked && e.Type != unix.DT_UNKNOWN && e.Type != unix.DT_CHR {
		c.New.Mode = uint32(e.Type) << 12 // DT_REG and the like are the bits of S_IFMT
	} else if c.New, err = in.up.lstat(name); err == nil {
		whiteout, err = in.up.isWhiteout(name, c.New)
	}
	if err == nil {
		c.Old, err = in.low.lstat(name)
	}
	isNew := c.New.Mode != 0 && !whiteout
	isOld := c.Old.Mode != 0 && !c.Old.isNullDevice()
	if err == nil && !isNew && (!isOld || !in.hidden && !whiteout) {
		return nil // in neither tree, or removed from the upper layer meanwhile
	}
	isDir := isNew && c.New.IsDir() || c.Old.IsDir()
	if w.Skip != nil && w.Skip(c.Path, isDir) {
		return nil
	}
	if err != nil {
		c.Err, c.Content = err, true
		return w.tell(&c, nil, in.up, name)
	}
	switch {
	case !isNew:
		if in.hidden && w.Keep != nil && w.Keep(c.Path, c.Old) {
			return nil
		}
		c.Op, c.New = Removed, File{}
	case !isOld:
		c.Op = Added
	case c.Old.Mode&unix.S_IFMT != c.New.Mode&unix.S_IFMT:
		c.Op = Retyped
	}

	var below pair
	if isDir {
		below, c.Err = w.enter(in, name, isNew && c.New.IsDir(), isOld && c.Old.IsDir(), only)
		defer below.close()
	} else if c.Op == Modified {
		c.Content, c.Err = w.differ(in, name, &c)
	}
	opened := c.Err == nil
	if c.Op != Modified || c.Content || !opened || permissions(c.Old) != permissions(c.New) {
		if err := w.tell(&c, only, in.up, name); err != nil {
			return err
		}
	}
	if !isDir || !opened {
		return nil
	}
	below.seen = c
	in.park(&below)
	err = w.entries(&below)
	in.regain(&below)
	return err
}

// tell visits a change. It skips directories above the wanted paths, unless
// Options.Parents is set or the change is an error.
func (w *walk) tell(c *Change, only selection, in *dir, name string) error {
	if only != nil && !w.Parents && c.Err == nil {
		return nil
	}
	closed := c.New.Mode&unix.S_IRUSR == 0 // perhaps to this process too, which then fails to ask
	if t := c.New.Mode & unix.S_IFMT; in != nil && !w.Types && (c.Old.Mode != 0 || closed) && (t == unix.S_IFREG || t == unix.S_IFDIR) {
		var err error
		if c.CopiedUp, err = in.has(name, "user.overlay.origin"); err != nil && c.Err == nil {
			c.Err = inUpper(err)
		}
	}
	return w.visit(*c)
}

// enter opens the directories with a name in those of in.
func (w *walk) enter(in *pair, name string, isUp, isLow bool, only selection) (p pair, err error) {
	p = pair{hidden: in.hidden || !isUp, only: only}
	if len(w.path) > maxPath {
		return p, ErrTooDeep
	}
	if isUp {
		if p.up, err = w.open(in.up, name, unix.O_RDONLY); err != nil {
			return p, inUpper(err)
		}
		value, err := opaque(p.up.fd)
		if err != nil {
			return p, inUpper(err)
		}
		p.hidden = p.hidden || value == 'y'
		p.up.marked = value == 'x'
	}
	if isLow {
		if p.low, err = w.open(in.low, name, unix.O_PATH); err != nil {
			return p, inLower(err)
		}
	}
	return p, p.list()
}

// list finds the names to compare. A name that the upper layer neither has nor hides
// is unchanged.
func (p *pair) list() error {
	if p.only != nil {
		for name := range p.only {
			p.names = append(p.names, fsat.Entry{Name: name, Type: unix.DT_UNKNOWN})
		}
		slices.SortFunc(p.names, byName)
		return nil
	}
	if p.up != nil {
		if err := p.add(p.up.fd); err != nil {
			return inUpper(err)
		}
	}
	if p.low != nil && p.hidden {
		fd, err := fsat.Reopen(p.low.fd, unix.O_RDONLY)
		if err != nil {
			return inLower(err)
		}
		defer unix.Close(fd)
		if err := p.add(fd); err != nil {
			return inLower(err)
		}
	}
	slices.SortFunc(p.names, byName)
	p.names = slices.CompactFunc(p.names, func(a, b fsat.Entry) bool { return a.Name == b.Name })
	return nil
}

func byName(a, b fsat.Entry) int { return strings.Compare(a.Name, b.Name) }

func (p *pair) add(fd int) error {
	return fsat.Each(fd, func(e fsat.Entry) error {
		p.names = append(p.names, e)
		return nil
	})
}

func inUpper(err error) error { return fmt.Errorf("cannot read it in the upper layer: %w", err) }
func inLower(err error) error { return fmt.Errorf("cannot read it in the lower layer: %w", err) }

func permissions(f File) uint32 {
	if f.Mode&unix.S_IFMT == unix.S_IFLNK {
		return 0 // the caller does not use them
	}
	return f.Mode & 0o7777
}

// differ compares two entries of one type that are no directories.
func (w *walk) differ(in *pair, name string, c *Change) (bool, error) {
	switch c.New.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if c.New.Size != c.Old.Size {
			return true, nil
		}
		return w.contentDiffers(in, name, c.New.Size)
	case unix.S_IFLNK:
		target, err := fsat.ReadLink(in.up.fd, name)
		if err != nil {
			return true, inUpper(err)
		}
		before, err := fsat.ReadLink(in.low.fd, name)
		if err != nil {
			return true, inLower(err)
		}
		return target != before, nil
	}
	return c.New.rdev != c.Old.rdev, nil
}

// contentDiffers compares two regular files of the same size. It does not read where both
// have a hole.
func (w *walk) contentDiffers(in *pair, name string, size int64) (bool, error) {
	up, err := w.openFile(in.up, name)
	if err != nil {
		return true, inUpper(err)
	}
	defer unix.Close(up)
	low, err := w.openFile(in.low, name)
	if err != nil {
		return true, inLower(err)
	}
	defer unix.Close(low)
	if w.bufs[0] == nil {
		w.bufs = [2][]byte{make([]byte, bufferSize), make([]byte, bufferSize)}
	}
	for at := int64(0); ; {
		if at = min(nextData(up, at, size), nextData(low, at, size)); at >= size {
			return false, nil
		}
		part := int(min(size-at, bufferSize))
		n, err := readFull(up, w.bufs[0][:part], at)
		if err != nil {
			return true, inUpper(err)
		}
		m, err := readFull(low, w.bufs[1][:part], at)
		if err != nil {
			return true, inLower(err)
		}
		if n < part || !bytes.Equal(w.bufs[0][:n], w.bufs[1][:m]) {
			return true, nil
		}
		at += int64(part)
	}
}

// nextData is the first place of a file, from at, that is not in a hole; size for none. A file
// that has become shorter has data, so that it is read.
func nextData(fd int, at, size int64) int64 {
	next, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		if end, err := unix.Seek(fd, 0, unix.SEEK_END); err == nil && end >= size {
			return size
		}
		return at
	case err != nil:
		return at // the file system does not tell
	}
	return min(next, size)
}

// openFile opens a regular file for reading.
func (w *walk) openFile(in *dir, name string) (int, error) {
	seen, err := w.opener.Open(in.fd, name, unix.O_PATH, 0, fsat.SameMount)
	if err != nil {
		return -1, err
	}
	fd, _, err := open(seen)
	return fd, err
}

// readFull fills a buffer from a place in a file, unless the file ends.
func readFull(fd int, buf []byte, at int64) (int, error) {
	got := 0
	for got < len(buf) {
		n, err := fsat.Again(func() (int, error) { return unix.Pread(fd, buf[got:], at+int64(got)) })
		if err != nil {
			return got, err
		}
		if n == 0 {
			break
		}
		got += n
	}
	return got, nil
}

func openRoot(root, flags int) (*dir, error) {
	fd, err := fsat.Reopen(root, flags)
	return newDir(fd, 0, err)
}

// open opens a directory in another one. It fails with EACCES also if the directory
// can be listed and nothing in it looked up.
func (w *walk) open(in *dir, name string, flags int) (*dir, error) {
	fd, err := w.opener.Open(in.fd, name, flags|unix.O_DIRECTORY, 0, fsat.SameMount)
	return newDir(fd, in.depth+1, err)
}

func newDir(fd, depth int, err error) (*dir, error) {
	if err != nil {
		return nil, err
	}
	d := &dir{fd: fd, depth: depth}
	if d.st, err = stat(fd, "."); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *dir) close() {
	if d != nil && d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// park closes deep directories while the walk is below them.
func (p *pair) park(below *pair) {
	if below.up != nil && p.up.depth >= maxHeld {
		p.up.close()
	}
	if below.low != nil && p.low.depth >= maxHeld {
		p.low.close()
	}
}

func (p *pair) regain(below *pair) {
	p.up.regain(below.up)
	p.low.regain(below.low)
}

// regain reopens a directory that was closed, from one that was in it. A command may
// have moved that since.
func (d *dir) regain(below *dir) {
	if d == nil || d.fd >= 0 {
		return
	}
	d.lost = ErrMoved
	fd, err := fsat.Openat(below.fd, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	if st, err := stat(fd, "."); err != nil || st.Dev != d.st.Dev || st.Ino != d.st.Ino {
		unix.Close(fd)
		return
	}
	d.fd, d.lost = fd, nil
}

// lstat is zero, without an error, if there is no such entry.
func (d *dir) lstat(name string) (File, error) {
	if d == nil {
		return File{}, nil
	}
	f, err := stat(d.fd, name)
	if err == unix.ENOENT {
		err = nil
	}
	return f, err
}

// isWhiteout reports whether an entry of an upper layer stands for a removed one. Linux
// makes devices. Programs that copy layers where they cannot make these write
// empty files with an attribute, which Linux reads since 6.7, in marked directories.
func (d *dir) isWhiteout(name string, f File) (bool, error) {
	if d != nil && d.marked && f.Mode&unix.S_IFMT == unix.S_IFREG && f.Size == 0 {
		return d.has(name, "user.overlay.whiteout")
	}
	return f.isNullDevice(), nil
}

// has reports whether an entry has an extended attribute. It takes the path through
// /proc because fgetxattr(2) refuses O_PATH descriptors and getxattrat(2) came with
// Linux 6.13.
func (d *dir) has(name, attribute string) (bool, error) {
	return present(unix.Lgetxattr(fsat.Path(d.fd)+"/"+name, attribute, nil))
}

func present(_ int, err error) (bool, error) {
	switch err {
	case nil, unix.ERANGE:
		return true, nil
	case unix.ENODATA, unix.EOPNOTSUPP, unix.ENOENT:
		return false, nil
	}
	return false, err
}

// opaque is the value of the attribute of an open directory that IsOpaque is about, if
// it has one byte; 0 otherwise.
func opaque(dir int) (byte, error) {
	var value [2]byte
	n, err := unix.Fgetxattr(dir, "user.overlay.opaque", value[:])
	if has, err := present(n, err); !has || err != nil || n != 1 {
		return 0, err
	}
	return value[0], nil
}

// stat describes a name in a directory, not the target of a link.
func stat(dir int, name string) (File, error) {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	var st unix.Statx_t
	_, err := fsat.Again(func() (int, error) {
		return 0, unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	})
	if err != nil {
		return File{}, err
	}
	f := File{
		Mode:  uint32(st.Mode),
		Size:  int64(st.Size),
		Used:  int64(st.Blocks) * 512, // see statx(2)
		Dev:   unix.Mkdev(st.Dev_major, st.Dev_minor),
		Ino:   st.Ino,
		Ctime: time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)),
		rdev:  unix.Mkdev(st.Rdev_major, st.Rdev_minor),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		f.Btime = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	return f, nil
}
