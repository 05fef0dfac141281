package bwrap

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Some of a plan is beyond an older bwrap: before 0.11 it cannot mount
// overlays, and before 0.12 it follows links when it mounts below a directory
// that a running command may write. The plan is then carried out by a chain,
// each link becoming the next:
//
//	unshare(1)  makes a user and a mount namespace, in which mounting is allowed
//	the stage   (this program again) mounts on a tmpfs what bwrap cannot
//	bwrap       binds that like any other directory
//
// It has to be unshare that makes the namespaces: a Go program has many threads
// and may not. Nothing of the chain is seen outside its namespaces, nothing is
// left when they go, and the caller's terminal, signals and status are the
// command's own all the way.

// StageOption is the first argument by which a command knows that it is to be
// the stage. It is no option for people.
const StageOption = "--pk-stage"

// selfFD is where a descriptor is a path.
const selfFD = "/proc/self/fd/"

// stagingDirs are directories that are everywhere and that nobody puts a
// project into, as a rule. The tmpfs is mounted over one of them, so it must
// not hold anything that the plan shows.
var stagingDirs = []string{"/media", "/mnt", "/srv", "/var/mail", "/var/local", "/usr/games", "/lost+found"}

// staging returns the directory over which the stage mounts its tmpfs, or ""
// when nothing needs it or none can be used.
func (p *Plan) staging(bwrap Binary) string {
	if !p.staged(bwrap) {
		return ""
	}
	for _, dir := range stagingDirs {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		shown := slices.ContainsFunc(p.Mounts, func(m Mount) bool { return within(m.Source, dir) })
		if !shown && !within(bwrap.Path, dir) {
			return dir
		}
	}
	return ""
}

// staged reports whether the plan needs more than this bwrap can do.
func (p *Plan) staged(bwrap Binary) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool {
		return m.Op == OpOverlay && (m.Held || !bwrap.Overlays) || m.Held && !bwrap.HoldsPlaces
	})
}

// stageLine wraps the command line of bwrap. self is this program, as a path
// that unshare can start.
func stageLine(staging, self string, job, bwrapLine []string) []string {
	line := []string{findTrusted("unshare"), "--user", "--map-root-user", "--mount", "--", self, StageOption, staging}
	return append(append(append(line, job...), "--"), bwrapLine...)
}

// The words of a stage's job. Each is followed by as many operands as are named
// here; places are relative to the top of the last tree, and identities are
// those of the inode that was seen when the plan was made.
const (
	jobOverlay = "overlay" // LOWER: an overlay of its own, for bwrap to bind
	jobTree    = "tree"    // SOURCE IDENTITY: a tree of the host, for bwrap to bind
	jobKeep    = "keep"    // PLACE IDENTITY ro|rw: PLACE mounted on itself
	jobBind    = "bind"    // PLACE SOURCE IDENTITY ro|rw
	jobHide    = "hide"    // PLACE
	jobEmpty   = "empty"   // PLACE PERMS SIZE
	jobLay     = "lay"     // PLACE IDENTITY: PLACE becomes an overlay of itself
)

var jobOperands = map[string]int{
	jobOverlay: 1, jobTree: 2, jobKeep: 3, jobBind: 4, jobHide: 1, jobEmpty: 3, jobLay: 2,
}

// Stage does the job and becomes bwrap. args are those behind StageOption. It
// returns only when that fails.
func Stage(args []string) error {
	closeOnExec(os.Args[0])
	end := slices.Index(args, "--")
	if end < 1 || end+1 == len(args) || !insideOwnNamespace() {
		return fmt.Errorf("%s is for pk's own use", StageOption)
	}
	s := &stage{dir: args[0], tree: -1}
	if err := unix.Mount("pk", s.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs to prepare the sandbox on: %w", err)
	}
	if err := s.run(args[1:end]); err != nil {
		return err
	}
	line := args[end+1:]
	closeOnExec(line[0])
	return fmt.Errorf("cannot start bwrap %q: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
}

// stage is a job under way.
type stage struct {
	dir  string // the tmpfs
	made int    // directories made on it so far, named by their numbers
	tree int    // top of the tree being built, mounted; -1 before the first
}

func (s *stage) run(job []string) error {
	for len(job) > 0 {
		n, known := jobOperands[job[0]]
		if !known || len(job) <= n {
			return fmt.Errorf("internal error: %s got %q", StageOption, job)
		}
		if err := s.do(job[0], job[1:1+n]); err != nil {
			return fmt.Errorf("cannot prepare %q (%s): %w", job[1], job[0], err)
		}
		job = job[1+n:]
	}
	return nil
}

func (s *stage) do(word string, args []string) error {
	switch word {
	case jobOverlay:
		return s.overlay(args[0])
	case jobTree:
		return s.newTree(args[0], args[1])
	case jobKeep:
		return s.keep(args[0], args[1], args[2] == "ro")
	case jobBind:
		return s.bind(args[0], args[1], args[2], args[3] == "ro")
	case jobHide:
		return s.hide(args[0])
	case jobEmpty:
		if err := s.mountPoint(args[0], true); err != nil {
			return err
		}
		return s.mountAt(args[0], func(int) (int, error) { return newTmpfs(args[1], args[2], 0) })
	}
	return s.lay(args[0], args[1])
}

// stagedAt is where the stage shows number i of what bwrap is to bind.
func stagedAt(staging string, i int) string { return fmt.Sprintf("%s/%d/top", staging, i) }

// next makes the directories for the next number.
func (s *stage) next(names ...string) (string, error) {
	dir := fmt.Sprintf("%s/%d", s.dir, s.made)
	s.made++
	for _, name := range append(names, "top") {
		if err := os.MkdirAll(dir+"/"+name, 0o700); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func (s *stage) overlay(lower string) error {
	fd, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = s.overlayOf(fd)
	return err
}

// overlayOf mounts an overlay of the open directory and returns where. Lower
// is named by its descriptor, since the mount option knows escapes that a path
// may contain.
func (s *stage) overlayOf(lower int) (string, error) {
	dir, err := s.next("upper", "work")
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(lower, &st); err != nil {
		return "", err
	}
	// The merged directory has the mode of the upper one.
	if err := unix.Chmod(dir+"/upper", st.Mode&0o777); err != nil {
		return "", err
	}
	options := fmt.Sprintf("userxattr,lowerdir=%s%d,upperdir=%s/upper,workdir=%s/work", selfFD, lower, dir, dir)
	return dir + "/top", unix.Mount("pk", dir+"/top", "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// newTree mounts a copy of the tree at source, to which the words that follow
// add what lies in it.
func (s *stage) newTree(source, identity string) error {
	dir, err := s.next()
	if err != nil {
		return err
	}
	if s.tree >= 0 {
		unix.Close(s.tree)
		s.tree = -1
	}
	from, err := openHeld(source, identity)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	top, err := unix.Open(dir+"/top", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	if err := attach(from, top, 0); err != nil {
		return err
	}
	s.tree, err = unix.Open(dir+"/top", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
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

func (s *stage) bind(place, source, identity string, readOnly bool) error {
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
	return s.mountAt(place, func(int) (int, error) { return cloneTree(from, attributes(readOnly)) })
}

// mountPoint makes a mount point directly in the top of the tree, where it is
// missing. The plan leaves that to happen in a playground of pk's own alone.
func (s *stage) mountPoint(place string, dir bool) error {
	at, err := s.walk(place)
	if err == nil {
		return unix.Close(at)
	}
	if err != unix.ENOENT || strings.Contains(place, "/") {
		return err
	}
	if dir {
		return unix.Mkdirat(s.tree, place, 0o700)
	}
	return unix.Mknodat(s.tree, place, unix.S_IFREG|0o600, 0)
}

// hide puts an empty directory over a directory, and over anything else a
// device that cannot be opened, as the mount allows none.
func (s *stage) hide(place string) error {
	return s.mountAt(place, func(at int) (int, error) {
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
		return cloneTree(null, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
	})
}

func (s *stage) lay(place, identity string) error {
	return s.mountAt(place, func(at int) (int, error) {
		if err := isStill(at, identity); err != nil {
			return -1, err
		}
		top, err := s.overlayOf(at)
		if err != nil {
			return -1, err
		}
		merged, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(merged)
		return cloneTree(merged, 0)
	})
}

func attributes(readOnly bool) uint64 {
	if readOnly {
		return unix.MOUNT_ATTR_RDONLY
	}
	return 0
}

// attach mounts a copy of the tree that from is in on the directory top.
func attach(from, top int, attr uint64) error {
	mount, err := cloneTree(from, attr)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return putOn(mount, top)
}

// cloneTree returns a mount of what the descriptor names, which is not yet
// anywhere, with everything mounted below it.
func cloneTree(from int, attr uint64) (int, error) {
	mount, err := unix.OpenTree(from, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	set := unix.MountAttr{Attr_set: attr | unix.MOUNT_ATTR_NOSUID}
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
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	for _, option := range [][2]string{{"source", "pk"}, {"mode", perms}, {"size", size}} {
		if err := unix.FsconfigSetString(fs, option[0], option[1]); err != nil {
			return -1, os.NewSyscallError("fsconfig", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
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
