package bwrap

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// Some of a plan is beyond bwrap. Before 0.11 it cannot mount overlays; before
// 0.12 it binds no descriptors, and follows links when it mounts below a
// directory that a running command may write; and no version mounts on what it
// was shown and nothing else. The plan is then carried out by a chain, each link
// becoming the next:
//
//	unshare(1)  makes a user and a mount namespace, in which mounting is allowed
//	the stage   (this program again) mounts on a tmpfs all that is shown of the host,
//	            and /dev
//	bwrap       binds that, as one tree, and adds what has to be its own
//
// One tree, since bwrap reads its table of mounts again for each bind, and nobody
// on the machine can mount while it reads: eight commands at once would wait for
// one another.
//
// It has to be unshare that makes the namespaces: a Go program has many threads
// and may not. Nothing of the chain is seen outside its namespaces, nothing is
// left when they go, and the caller's terminal, signals and status are the
// command's own all the way.

// stageOption is the first argument of the stage.
const stageOption = "--pk-stage"

// selfFD is where a descriptor is a path.
const selfFD = "/proc/self/fd/"

// stagingDirs are directories that are everywhere and that nobody puts a
// project into, as a rule. The tmpfs is mounted over one of them, so it must
// not hold anything that the plan shows. In a sandbox of pk's, where this may run
// too, there is /dev/shm.
var stagingDirs = []string{"/media", "/mnt", "/srv", "/var/mail", "/var/local", "/dev/shm", "/usr/games", "/lost+found"}

// staging returns the directory over which the stage mounts its tmpfs, or ""
// when nothing needs it or none can be used.
func (p *Plan) staging(bwrap Binary) string {
	if !p.staged(bwrap) {
		return ""
	}
	return p.stageable(bwrap)
}

// stagingToRun is staging of a plan that is carried out now. Then the stage is
// wanted where it can be had: what bwrap binds itself goes on to follow the host,
// and what is mounted there meanwhile is seen as it is there, writable.
func (p *Plan) stagingToRun(bwrap Binary) string {
	if p.Joined == nil && findTrusted("unshare") == "" {
		return ""
	}
	return p.stageable(bwrap)
}

// stageable returns the directory that staging would.
func (p *Plan) stageable(bwrap Binary) string {
	last := ""
	for _, dir := range stagingDirs {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || within(bwrap.Path, dir) {
			continue
		}
		if slices.ContainsFunc(p.Mounts, func(m Mount) bool { return within(m.Source, dir) }) {
			continue
		}
		if !slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.showsHost() && within(dir, m.Source) }) {
			return dir
		}
		last = cmp.Or(last, dir) // it is in a tree that is shown, and has to be hidden there
	}
	return last
}

// staged reports whether the plan needs more than this bwrap can do.
func (p *Plan) staged(bwrap Binary) bool {
	for i, m := range p.Mounts {
		switch {
		case p.Joined != nil && m.Op == OpOverlay && p.shownAt(m) != "":
		case p.Joined != nil && m.Held:
			return true // no descriptor from out here can be bound in there
		case m.Op == OpOverlay && !bwrap.Overlays || m.Held && (p.tops[i] != i || !bwrap.HoldsPlaces):
			return true
		}
	}
	return false
}

// stageLine wraps the command line of bwrap. self is this program, as a path
// that unshare can start, and parent the process with which it is to die, or
// nobody.
func stageLine(staging, self string, parent int, job, bwrapLine []string) []string {
	line := []string{findTrusted("unshare"), "--user", "--map-root-user", "--mount", "--", self, stageOption, strconv.Itoa(parent), staging}
	return append(append(append(line, job...), "--"), bwrapLine...)
}

// The words of a stage's job. Each is followed by as many operands as are named
// here; places are relative to the top of the last tree, and identities are
// those of the inode that was seen when the plan was made.
const (
	jobOverlay = "overlay" // LOWER: an overlay of its own, for bwrap to bind
	jobTree    = "tree"    // SOURCE IDENTITY ro|rw|own: a tree of the host, for bwrap to bind
	jobFresh   = "fresh"   // PERMS SIZE: an empty tree in memory, for bwrap to bind
	jobKeep    = "keep"    // PLACE IDENTITY ro|rw: PLACE mounted on itself
	jobBind    = "bind"    // PLACE SOURCE IDENTITY ro|rw|own|as: the last, as it is mounted there
	jobHide    = "hide"    // PLACE IDENTITY: nothing can be seen at PLACE
	jobBlank   = "blank"   // PLACE IDENTITY: the file at PLACE seems empty
	jobEmpty   = "empty"   // PLACE IDENTITY PERMS SIZE
	jobLay     = "lay"     // PLACE IDENTITY: PLACE becomes an overlay of itself
	jobOver    = "over"    // PLACE LOWER: PLACE becomes an overlay of LOWER
	jobDev     = "dev"     // PLACE SIZE ro|rw: devices, and memory to share of that size
	jobSame    = "same"    // PATH IDENTITY: the host's PATH is still that
	jobRead    = "read"    // DESCRIPTOR: the words are there, each with a NUL behind it
)

var jobOperands = map[string]int{
	jobOverlay: 1, jobTree: 3, jobFresh: 2, jobKeep: 3, jobBind: 4, jobHide: 2, jobBlank: 2, jobEmpty: 4, jobLay: 2, jobOver: 2, jobDev: 3, jobSame: 2, jobRead: 1,
}

// runStage does the job and becomes bwrap. args are those behind stageOption. It
// returns only when that fails.
func runStage(args []string) error {
	runtime.LockOSThread() // this one execs, and it is the one that is to die
	closeOnExec(os.Args[0])
	job, line := splitJob(args, 2)
	if len(line) == 0 || !insideOwnNamespace() {
		return hidden.ErrOwnUse
	}
	if err := dieWith(args[0]); err != nil {
		return err
	}
	if err := prepare(args[1], job); err != nil {
		return err
	}
	closeOnExec(line[0])
	return fmt.Errorf("cannot start bwrap %q: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
}

// splitJob returns the words of a job, which begins at args[from], and what follows
// the "--" behind it. A place may be called "--" as well.
func splitJob(args []string, from int) (job, line []string) {
	for i := from; i < len(args); {
		if args[i] == "--" {
			return args[from:i], args[i+1:]
		}
		n, known := jobOperands[args[i]]
		if !known {
			break
		}
		i += 1 + n
	}
	return nil, nil
}

// prepare does a job on a tmpfs over the directory dir.
func prepare(dir string, job []string) error {
	s := &stage{dir: dir, tree: -1, fresh: map[uint64]bool{}, own: map[string]bool{}}
	defer unix.Umask(unix.Umask(0)) // modes are what they are said to be
	if err := unix.Mount("pk", s.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs to prepare the sandbox on: %w", err)
	}
	return s.run(job)
}

// stage is a job under way.
type stage struct {
	dir  string // the tmpfs
	made int    // what bwrap is to bind, so far
	laid int    // overlays in trees, so far
	top  string // what the places in the tree being built are relative to
	tree int    // its top, mounted; -1 before the first

	fresh map[uint64]bool // devices of file systems that were made here, empty
	own   map[string]bool // identities of directories of pk's own
}

func (s *stage) run(job []string) error {
	for len(job) > 0 {
		n, known := jobOperands[job[0]]
		if !known || len(job) <= n {
			return fmt.Errorf("internal error: %s got %q", stageOption, job)
		}
		if job[0] == jobRead {
			words, err := read(job[1])
			if err != nil {
				return err
			}
			job = append(words, job[2:]...)
			continue
		}
		if err := s.do(job[0], job[1:1+n]); err != nil {
			return fmt.Errorf("cannot mount what is to be seen at %q: %w", s.seenAt(job[0], job[1]), err)
		}
		job = job[1+n:]
	}
	return nil
}

// seenAt is what to call the first operand of a word in a message.
func (s *stage) seenAt(word, operand string) string {
	switch word {
	case jobTree, jobOverlay, jobSame:
		return operand
	case jobFresh:
		return "/"
	}
	return filepath.Join(s.top, operand)
}

// read returns the words of a job that travel on a descriptor: they are many, and
// nobody's who looks at the list of processes.
func read(descriptor string) ([]string, error) {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return nil, fmt.Errorf("internal error: %s got %q for a descriptor", stageOption, descriptor)
	}
	f := os.NewFile(uintptr(fd), "job")
	defer f.Close()
	words, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read what is to be mounted: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00"), nil
}

func (s *stage) do(word string, args []string) error {
	switch word {
	case jobOverlay:
		return s.overlay(args[0])
	case jobTree:
		return s.newTree(args[0], args[1], args[2])
	case jobFresh:
		return s.newFresh(args[0], args[1])
	case jobKeep:
		return s.keep(args[0], args[1], args[2] == "ro")
	case jobBind:
		return s.bind(args[0], args[1], args[2], args[3])
	case jobHide, jobBlank:
		hide := s.hide
		if word == jobBlank {
			hide = s.blank
		}
		if err := hide(args[0], args[1]); err != unix.ENOENT || args[1] != unseen {
			return err
		}
		return nil // a command of the session has removed it from an overlay
	case jobEmpty:
		if err := s.mountPoint(args[0], true); err != nil {
			return err
		}
		return s.mountAt(args[0], func(at int) (int, error) {
			if err := isStill(at, args[1]); err != nil {
				return -1, err
			}
			return s.empty(args[2], args[3])
		})
	case jobOver:
		return s.put(args[0], func() (int, error) { return s.overlayOf(args[1]) })
	case jobDev:
		return s.devices(args[0], args[1], args[2] == "ro")
	case jobSame:
		fd, err := openHeld(args[0], args[1])
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	return s.lay(args[0], args[1])
}

// stagedAt is where the stage shows number i of what bwrap is to bind.
func stagedAt(staging string, i int) string { return fmt.Sprintf("%s/%d/top", staging, i) }

// next makes the directory for the next thing that bwrap is to bind, which it
// knows by its number.
func (s *stage) next() (string, error) {
	dir := fmt.Sprintf("%s/%d", s.dir, s.made)
	s.made++
	return dir, os.MkdirAll(dir, 0o700)
}

func (s *stage) overlay(lower string) error {
	mount, err := s.overlayOf(lower)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	dir, err := s.next()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir+"/top", 0o700); err != nil {
		return err
	}
	top, err := unix.Open(dir+"/top", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	return putOn(mount, top)
}

// overlayOf is newOverlay of a directory with a name.
func (s *stage) overlayOf(lower string) (int, error) {
	fd, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return s.newOverlay(fd)
}

// newOverlay returns a mount of an overlay of the open directory, which is not yet
// anywhere. Lower is named by its descriptor, since the option knows escapes that
// a path may contain.
func (s *stage) newOverlay(lower int) (int, error) {
	dir := fmt.Sprintf("%s/lay%d", s.dir, s.laid)
	s.laid++
	var st unix.Stat_t
	if err := unix.Fstat(lower, &st); err != nil {
		return -1, err
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(dir+"/upper", 0o700), os.Mkdir(dir+"/work", 0o700)); err != nil {
		return -1, err
	}
	// The merged directory has the mode of the upper one.
	if err := unix.Chmod(dir+"/upper", st.Mode&0o777); err != nil {
		return -1, err
	}
	return newMount("overlay", 0, [][2]string{
		{"source", "pk"}, {"userxattr"}, {"lowerdir", selfFD + strconv.Itoa(lower)}, {"upperdir", dir + "/upper"}, {"workdir", dir + "/work"},
	})
}

// newTree mounts a copy of the tree at source, to which the words that follow
// add what lies in it.
func (s *stage) newTree(source, identity, access string) error {
	from, err := openHeld(source, identity)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	s.top = source
	return s.plant(
		func(top string) error { return likeness(from, top) },
		func() (int, error) { return s.clone(from, access) },
	)
}

// newFresh mounts an empty tree in memory, to which the words that follow add
// what lies in it.
func (s *stage) newFresh(perms, size string) error {
	s.top = "/"
	return s.plant(
		func(top string) error { return os.Mkdir(top, 0o700) },
		func() (int, error) { return s.empty(perms, size) },
	)
}

// empty is newTmpfs of a directory in which mount points may be made.
func (s *stage) empty(perms, size string) (int, error) {
	mount, err := newTmpfs(perms, size, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(mount, &st); err != nil {
		unix.Close(mount)
		return -1, err
	}
	s.fresh[st.Dev] = true
	return mount, nil
}

// clone is cloneTree, with the access that a word grants.
func (s *stage) clone(from int, access string) (int, error) {
	if access == "as" {
		return cloneWith(from, 0)
	}
	if access == "own" {
		var st unix.Stat_t
		if err := unix.Fstat(from, &st); err != nil {
			return -1, err
		}
		s.own[identity(st.Dev, st.Ino)] = true
	}
	return cloneTree(from, attributes(access == "ro"))
}

// plant mounts what made returns, on a mount point that point makes, as the tree
// that the following words are about.
func (s *stage) plant(point func(top string) error, made func() (int, error)) error {
	dir, err := s.next()
	if err != nil {
		return err
	}
	if s.tree >= 0 {
		unix.Close(s.tree)
		s.tree = -1
	}
	if err := point(dir + "/top"); err != nil {
		return err
	}
	mount, err := made()
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	top, err := unix.Open(dir+"/top", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	if err := putOn(mount, top); err != nil {
		return err
	}
	s.tree, err = unix.Open(dir+"/top", unix.O_PATH|unix.O_CLOEXEC, 0)
	return err
}

// likeness makes a mount point for what is open: a directory for a directory, a
// file for anything else.
func likeness(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.Mkdir(path, 0o700)
	}
	return os.WriteFile(path, nil, 0o600)
}

// mountAt mounts what made returns, which may look at the open place, on it.
func (s *stage) mountAt(place string, made func(at int) (int, error)) error {
	at, err := s.walk(place)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	mount, err := made(at)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return putOn(mount, at)
}

// walk opens a place in the tree, through no link and never out of the tree. A
// name that became a link since the plan was made is an error.
func (s *stage) walk(place string) (int, error) {
	if s.tree < 0 {
		return -1, errors.New("internal error: no tree")
	}
	return unix.Openat2(s.tree, place, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func (s *stage) keep(place, identity string, readOnly bool) error {
	return s.mountAt(place, func(at int) (int, error) {
		if err := isStill(at, identity); err != nil {
			return -1, err
		}
		return cloneTree(at, attributes(readOnly))
	})
}

func (s *stage) bind(place, source, identity, access string) error {
	from, err := openHeld(source, identity)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if err := s.mountPoint(place, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return s.mountAt(place, func(int) (int, error) { return s.clone(from, access) })
}

// mountPoint makes a mount point where it is missing: anywhere in what was empty,
// and directly in a directory of pk's own. Nothing is ever made in another.
func (s *stage) mountPoint(place string, dir bool) error {
	in, name := filepath.Split(place)
	parent, err := s.parent(in)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	var st unix.Stat_t
	if err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
		return err
	}
	if err := unix.Fstat(parent, &st); err != nil {
		return err
	}
	switch {
	case !s.fresh[st.Dev] && !s.own[identity(st.Dev, st.Ino)]:
		return unix.ENOENT
	case dir:
		return unix.Mkdirat(parent, name, 0o700)
	}
	return unix.Mknodat(parent, name, unix.S_IFREG|0o600, 0)
}

// parent opens a directory of the tree, made where it is missing in what was empty.
func (s *stage) parent(place string) (int, error) {
	at, err := unix.Openat(s.tree, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for name := range strings.FieldsFuncSeq(place, func(c rune) bool { return c == '/' }) {
		if err != nil {
			break
		}
		above := at
		at, err = openNext(above, name)
		var st unix.Stat_t
		if err == unix.ENOENT && unix.Fstat(above, &st) == nil && s.fresh[st.Dev] {
			if err = unix.Mkdirat(above, name, 0o700); err == nil {
				at, err = openNext(above, name)
			}
		}
		unix.Close(above)
	}
	return at, err
}

// openNext opens a directory in another, and no link to one.
func openNext(dir int, name string) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// hide puts an empty directory over a directory, and over anything else a
// device that cannot be opened, as the mount allows none.
func (s *stage) hide(place, identity string) error {
	return s.mountAt(place, func(at int) (int, error) {
		if err := isStill(at, identity); err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			return -1, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return newTmpfs("0555", "4096", unix.MOUNT_ATTR_RDONLY)
		}
		null, err := unix.Open("/dev/null", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(null)
		return cloneTree(null, unix.MOUNT_ATTR_RDONLY)
	})
}

// blank puts an empty file over a file, for those who stop at one that cannot be
// opened.
func (s *stage) blank(place, identity string) error {
	return s.mountAt(place, func(at int) (int, error) {
		if err := isStill(at, identity); err != nil {
			return -1, err
		}
		empty, err := unix.Open(s.dir+"/blank", unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o444)
		if err != nil {
			return -1, err
		}
		defer unix.Close(empty)
		return cloneTree(empty, unix.MOUNT_ATTR_RDONLY)
	})
}

func (s *stage) lay(place, identity string) error {
	return s.mountAt(place, func(at int) (int, error) {
		if err := isStill(at, identity); err != nil {
			return -1, err
		}
		return s.newOverlay(at)
	})
}

func attributes(readOnly bool) uint64 {
	if readOnly {
		return unix.MOUNT_ATTR_RDONLY
	}
	return 0
}

// cloneTree returns a mount of what the descriptor names, which is not yet
// anywhere, with everything mounted below it.
func cloneTree(from int, attr uint64) (int, error) {
	return cloneWith(from, attr|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// cloneWith is cloneTree with these attributes alone. What is mounted on the host
// from now on is not to be seen: it would come as it is there, writable.
func cloneWith(from int, attr uint64) (int, error) {
	mount, err := unix.OpenTree(from, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	set := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &set); err != nil {
		unix.Close(mount)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return mount, nil
}

// putOn puts a mount on what the descriptor at names, and no other.
func putOn(mount, at int) error {
	err := unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return os.NewSyscallError("move_mount", err)
}

// newTmpfs returns a mount of an empty directory in memory.
func newTmpfs(perms, size string, attr int) (int, error) {
	return newMount("tmpfs", attr, [][2]string{{"source", "pk"}, {"mode", perms}, {"size", size}})
}

// newMount returns a mount of a new file system, which is not yet anywhere. An
// option without a value is a flag.
func newMount(kind string, attr int, options [][2]string) (int, error) {
	return newMountWith(kind, attr|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options)
}

func newMountWith(kind string, attr int, options [][2]string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	for _, option := range options {
		if option[1] == "" {
			err = unix.FsconfigSetFlag(fs, option[0])
		} else {
			err = unix.FsconfigSetString(fs, option[0], option[1])
		}
		if err != nil {
			return -1, os.NewSyscallError("fsconfig", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	return mount, os.NewSyscallError("fsmount", err)
}

// insideOwnNamespace tells a namespace that unshare made for one user from the
// machine's own, in which the mounts would be everybody's.
func insideOwnNamespace() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(ids))
	return err == nil && len(fields) == 3 && fields[2] == "1"
}

// closeOnExec keeps the descriptor through which this program was started from
// the sandbox.
func closeOnExec(self string) {
	number, ok := strings.CutPrefix(self, selfFD)
	if fd, err := strconv.Atoi(number); ok && err == nil {
		unix.CloseOnExec(fd)
	}
}
