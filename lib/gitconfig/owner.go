package gitconfig

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// distrust drops the repository if git would not read it for this user: a part of it
// belongs to another user, and safe.directory does not name it. Conditions then find
// no repository.
func (l *loader) distrust() {
	at := l.at
	paths := []string{at.gitDir}
	if at.worktree != "" {
		paths = append(paths, at.worktree, at.worktree+"/.git")
	}
	for _, path := range paths {
		if at.gitDir != "" && !l.getenv.owns(path) {
			l.at = gitDirs{}
		}
	}
	if l.at != at && l.declaredSafe(cmp.Or(at.worktree, at.gitDir)) {
		l.at = at
	}
}

// owns applies git's rule: the owner is the effective user or, for root under sudo,
// the user of SUDO_UID.
func (get Getenv) owns(path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return false
	}
	uid := os.Geteuid()
	sudo, err := strconv.Atoi(get.value("SUDO_UID"))
	return int(st.Uid) == uid || uid == 0 && err == nil && int(st.Uid) == sudo
}

// declaredSafe reports whether safe.directory names a directory. Git reads it from
// the host's files and the environment, without a repository.
func (l *loader) declaredSafe(dir string) bool {
	protected := &loader{getenv: l.getenv}
	if protected.host() != nil || protected.environment() != nil {
		return false
	}
	safe := false
	for _, e := range protected.entries {
		if e.Key != "safe.directory" {
			continue
		}
		named, ok := l.expand(e.Value)
		above, all := strings.CutSuffix(named, "/*")
		switch {
		case e.Value == "":
			safe = false
		case e.Value == "*", ok && realpath(named) == realpath(dir), ok && all && strings.HasPrefix(dir, above+"/"):
			safe = true
		}
	}
	return safe
}
