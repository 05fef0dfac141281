package sandboxflags

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
)

// overflowID is what the kernel calls owners that a user namespace does not map.
const overflowID = 65534

// becomeOwner makes root the owner of the project, for good, where that is
// somebody else: files that a command makes there are then the owner's, and the
// command is never uid 0. It returns the owner's uid, or 0 where nothing was to
// be done. Supplementary groups are given up, since some of them (docker, disk)
// are root by another name.
//
// It comes before everything that depends on the user: home, caches, sessions.
func becomeOwner(project string) (uid int, err error) {
	var st unix.Stat_t
	if os.Geteuid() != 0 || unix.Stat(project, &st) != nil || st.Uid == 0 || st.Uid == overflowID {
		return 0, nil
	}
	name, home, gid := bwrap.Account(int(st.Uid))
	if gid < 0 {
		gid = int(st.Gid)
	}
	uid = int(st.Uid)
	if err := become(uid, gid); err != nil {
		return 0, &bwrap.Refusal{
			Reason: fmt.Sprintf("cannot become uid %d, to whom %q belongs: %v", uid, project, err),
			Advice: "run as that user",
		}
	}
	return uid, settle(name, home)
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

// settle makes the environment the owner's: what led to root's home no longer
// does. An owner whom the machine does not know, as in a container, keeps its
// session directories in /tmp; that they are its own is checked there.
func settle(name, home string) error {
	old := os.Getenv("HOME")
	for _, kv := range os.Environ() {
		variable, value, _ := strings.Cut(kv, "=")
		if old != "" && strings.HasPrefix(value+"/", old+"/") {
			os.Unsetenv(variable)
		}
	}
	if name == "" {
		name = "user" // as the sandbox calls it
	}
	if home == "" && os.Getenv("XDG_CACHE_HOME") == "" {
		if err := os.Setenv("XDG_CACHE_HOME", fmt.Sprintf("/tmp/pk-%d", os.Geteuid())); err != nil {
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
