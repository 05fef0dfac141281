package sandboxflags

import (
	"os"
	"path/filepath"

	"pikuri/lib/bwrap"
)

// Owner returns the user of a command in the project that the options name: the
// caller or, if the caller is root, the project's owner.
func (o *Options) Owner() (uid, gid int) {
	uid, gid = os.Geteuid(), os.Getegid()
	if uid != 0 {
		return uid, gid
	}
	st, known, err := ownerOf(o.Project())
	if err != nil || st.Uid == 0 || !known {
		return uid, gid
	}
	return int(st.Uid), int(st.Gid)
}

// Stage replaces the project that the options name by one made for a check. It adds
// a second writable root beside it, in which .git is a link. bwrap must not follow that
// link to a protected path behind it. A check is no trial: it removes its files.
func (o *Options) Stage(project, second string) {
	o.Trial = false
	o.ProjectRoot = project
	o.AddWritable(second)
	o.protect = append(o.protect, bwrap.Protected{Path: filepath.Join(second, ".git", "hooks"), Rule: "check", Default: true})
}
