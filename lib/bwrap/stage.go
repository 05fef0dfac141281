package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A bwrap before 0.11 cannot mount overlays. The plan is then carried out by a
// chain, each link becoming the next:
//
//	unshare(1)  makes a user and a mount namespace, in which mounting is allowed
//	the stage   (this program again) mounts a tmpfs, and on it the overlays
//	bwrap       binds the merged directories like any other
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
// when no overlay needs it or none can be used.
func (p *Plan) staging(bwrap Binary) string {
	if bwrap.Overlays || len(p.lowers()) == 0 {
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

// lowers lists the host's sides of the overlays.
func (p *Plan) lowers() []string {
	var dirs []string
	for _, m := range p.Mounts {
		if m.Op == OpOverlay {
			dirs = append(dirs, m.Source)
		}
	}
	return dirs
}

// merged is where the stage shows overlay number i.
func merged(staging string, i int) string {
	return filepath.Join(staging, strconv.Itoa(i), "merged")
}

// stageLine wraps the command line of bwrap. self is this program, as a path
// that unshare can start.
func (p *Plan) stageLine(staging, self string, bwrapLine []string) []string {
	lowers := p.lowers()
	line := []string{findTrusted("unshare"), "--user", "--map-root-user", "--mount", "--", self, StageOption, staging, strconv.Itoa(len(lowers))}
	return append(append(line, lowers...), bwrapLine...)
}

// Stage mounts the overlays and becomes bwrap. args are those behind
// StageOption. It returns only when that fails.
func Stage(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("%s is for pk's own use", StageOption)
	}
	closeOnExec(os.Args[0])
	if !insideOwnNamespace() {
		return fmt.Errorf("%s is for pk's own use", StageOption)
	}
	staging, rest := args[0], args[2:]
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 0 || n >= len(rest) {
		return fmt.Errorf("internal error: %s got %q overlays", StageOption, args[1])
	}
	if err := unix.Mount("pk", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs for overlays: %w", err)
	}
	for i, lower := range rest[:n] {
		if err := mountOverlay(filepath.Join(staging, strconv.Itoa(i)), lower); err != nil {
			return fmt.Errorf("cannot overlay %q: %w", lower, err)
		}
	}
	line := rest[n:]
	closeOnExec(line[0])
	return fmt.Errorf("cannot start bwrap %q: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
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

// mountOverlay mounts an overlay of lower on dir/merged. The lower directory
// is named by a descriptor, since the mount option knows escapes that a path
// may contain.
func mountOverlay(dir, lower string) error {
	for _, sub := range []string{"upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	fd, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	// The merged directory has the mode of the upper one.
	if err := unix.Chmod(filepath.Join(dir, "upper"), st.Mode&0o777); err != nil {
		return err
	}
	options := fmt.Sprintf("userxattr,lowerdir=%s%d,upperdir=%s/upper,workdir=%s/work", selfFD, fd, dir, dir)
	return unix.Mount("pk", filepath.Join(dir, "merged"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}
