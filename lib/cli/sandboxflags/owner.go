package sandboxflags

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/internal/rlimit"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/passwd"
)

// overflowID is the kernel's number for owners that a user namespace does not map. Where they
// are mapped, it is the user nobody.
const overflowID = 65534

// allIDs are the owners that a file can have. The last number means "no change".
const allIDs = 1<<32 - 1

// ownerOf returns the owner of a file. known is false for an owner whom this user namespace
// does not map: root there cannot become that user.
func ownerOf(path string) (st unix.Stat_t, known bool, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, false, err
	}
	defer unix.Close(fd)
	err = unix.Fstat(fd, &st)
	return st, st.Uid != overflowID || mapsAll() || isOwner(fmt.Sprintf("/proc/self/fd/%d", fd)), err
}

// mapsAll tells whether this user namespace maps all owners.
func mapsAll() bool {
	table, err := os.ReadFile("/proc/self/uid_map")
	mapped := 0
	for line := range strings.Lines(string(table)) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return false
		}
		mapped += count
	}
	return err == nil && mapped == allIDs
}

// isOwner tells whether the kernel takes root for the owner of a file. For O_NOATIME it asks for
// that, or for CAP_FOWNER, which counts if the owner is mapped (open(2), user_namespaces(7)).
func isOwner(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOATIME|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// becomeOwner makes root the owner of the project, for good, if that is another
// user: files that a command makes there are then the owner's, and the
// command is never uid 0. It returns the owner's uid, or 0 if nothing was to
// be done. Supplementary groups are given up, since some of them (docker, disk)
// are root by another name.
//
// It comes before everything that depends on the user: home, caches, sessions.
func becomeOwner(project string) (uid int, err error) {
	if os.Geteuid() != 0 {
		return 0, nil
	}
	st, known, err := ownerOf(project)
	if err != nil || st.Uid == 0 || !known {
		return 0, nil
	}
	owner := passwd.Find(passwd.Users, int(st.Uid))
	if owner.GID < 0 {
		owner.GID = int(st.Gid)
	}
	if err := rlimit.Signals(); err != nil {
		return 0, err
	}
	uid = int(st.Uid)
	forgetHome()
	cache := ""
	if noHome(owner.Home) && os.Getenv("XDG_CACHE_HOME") == "" {
		if cache, err = ownCache(runDir, uid, owner.GID); err != nil {
			return 0, &bwrap.Refusal{
				Reason: fmt.Sprintf("cannot make a cache directory for uid %d, who has no home: %v", uid, err),
				Advice: "set XDG_CACHE_HOME to a directory of that user",
			}
		}
	}
	if err := become(uid, owner.GID); err != nil {
		return 0, &bwrap.Refusal{
			Reason: fmt.Sprintf("cannot become uid %d, to whom %q belongs: %v", uid, project, err),
			Advice: "run as that user",
		}
	}
	return uid, settle(owner.Name, owner.Home, cache)
}

// noHome tells whether a user has no home: none in /etc/passwd, or one that does not exist, as
// services have.
func noHome(home string) bool {
	_, err := os.Stat(home)
	return errors.Is(err, os.ErrNotExist)
}

// OpenAsOwner opens the workspace for a command without a sandbox. Root becomes the owner
// of the project, as in a command with one: the session is the owner's, and so are files.
func OpenAsOwner(ctx *cli.Context, w *cli.WorkspaceFlags) (*cli.Opened, error) {
	runAs, err := becomeOwner(w.Project())
	if err != nil {
		return nil, cli.Invalid(err)
	}
	opened, err := w.Open(ctx)
	if err != nil && runAs != 0 && errors.Is(err, os.ErrPermission) {
		return nil, cli.WithHint(err, "root works as the project's owner here, uid %d: let that user enter the directories above", runAs)
	}
	if err != nil {
		return nil, err
	}
	if err := stillOwned(opened.Roots()[0], runAs); err != nil {
		opened.Close()
		return nil, cli.Invalid(err)
	}
	return opened, nil
}

// AsOwner returns the words before a command that run it as the owner of the working
// directory, if the caller is root and the owner is another user; else "".
func AsOwner() string {
	st, known, err := ownerOf(".")
	if os.Geteuid() != 0 || err != nil || st.Uid == 0 || !known {
		return ""
	}
	owner := passwd.Find(passwd.Users, int(st.Uid))
	if owner.GID < 0 {
		owner.GID = int(st.Gid)
	}
	place := "HOME=" + shellword.Word(owner.Home)
	if noHome(owner.Home) {
		place = fmt.Sprintf("XDG_CACHE_HOME=%s/%d", runDir, st.Uid)
	}
	return fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups env %s", st.Uid, owner.GID, place)
}

// become gives up root in the order in which it can be done.
func become(uid, gid int) error {
	if err := syscall.Setgroups([]int{gid}); err != nil {
		return err
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return err
	}
	return syscall.Setresuid(uid, uid, uid)
}

// runDir holds the cache directories of users without a home. Only root can make
// anything in it: in /tmp another user could have made one first.
const runDir = "/run/pikuri"

// ownCache makes a directory for a user below dir, and returns its path. This
// process is still root.
func ownCache(dir string, uid, gid int) (string, error) {
	if err := ownDir(dir, 0, 0, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, strconv.Itoa(uid))
	return path, ownDir(path, uid, gid, 0o700)
}

// ownDir makes a directory unless it exists. It must be the user's, or root's and
// then becomes the user's.
func ownDir(path string, uid, gid int, mode uint32) error {
	if err := unix.Mkdir(path, mode); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Uid != 0 && int(st.Uid) != uid {
		return fmt.Errorf("%q belongs to uid %d", path, st.Uid)
	}
	return errors.Join(unix.Fchown(fd, uid, gid), unix.Fchmod(fd, mode))
}

// forgetHome unsets the variables that lead to root's home.
func forgetHome() {
	old := os.Getenv("HOME")
	for _, kv := range os.Environ() {
		variable, value, _ := strings.Cut(kv, "=")
		if old != "" && strings.HasPrefix(value+"/", old+"/") {
			os.Unsetenv(variable)
		}
	}
}

// settle makes the environment the owner's. cache is the directory of a user
// without a home, or "".
func settle(name, home, cache string) error {
	if name == "" {
		name = "user" // as the sandbox calls it
	}
	if cache != "" {
		if err := os.Setenv("XDG_CACHE_HOME", cache); err != nil {
			return err
		}
	}
	for variable, value := range map[string]string{"HOME": home, "USER": name, "LOGNAME": name} {
		if err := os.Setenv(variable, value); err != nil {
			return err
		}
	}
	return nil
}

// stillOwned refuses a project that became another user's after root had read its
// owner.
func stillOwned(project confine.Root, runAs int) error {
	if runAs == 0 && os.Geteuid() != 0 {
		return nil
	}
	st, known, err := ownerOf(project.Path)
	if err == nil && st.Dev == project.Dev && st.Ino == project.Ino && (int(st.Uid) == runAs || runAs == 0 && !known) {
		return nil
	}
	return &bwrap.Refusal{Reason: fmt.Sprintf("cannot use %q as the project root: its owner has changed", project.Name), Advice: "try again"}
}
