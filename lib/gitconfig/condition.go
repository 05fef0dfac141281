package gitconfig

import (
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/passwd"
)

// holds reports whether a condition of includeIf does. As in git, an unknown condition
// does not.
func (l *loader) holds(condition string, e Entry) bool {
	kind, pattern, ok := strings.Cut(condition, ":")
	if !ok {
		return false
	}
	switch kind {
	case "gitdir":
		return l.inGitDir(pattern, e, false)
	case "gitdir/i":
		return l.inGitDir(pattern, e, true)
	case "onbranch":
		branch, ok := l.at.branch()
		return ok && matches(wholeDirectory(pattern), branch, false)
	case "hasconfig":
		glob, ok := strings.CutPrefix(pattern, "remote.*.url:")
		return ok && l.hasURL(glob)
	}
	return false
}

// inGitDir matches the repository's directory, both as it really is and as the
// caller came to it.
func (l *loader) inGitDir(pattern string, e Entry, fold bool) bool {
	if l.at.gitDir == "" {
		return false
	}
	pattern, literal, ok := l.pathPattern(pattern, e)
	if !ok {
		return false
	}
	for _, dir := range []string{realpath(l.at.gitDir), l.at.gitDir} {
		if len(dir) < literal || !samePrefix(pattern[:literal], dir[:literal], fold) {
			continue
		}
		if matches(pattern[literal:], dir[literal:], fold) {
			return true
		}
	}
	return false
}

func samePrefix(a, b string, fold bool) bool {
	return a == b || fold && strings.EqualFold(a, b)
}

// pathPattern completes the pattern of a directory, and tells how much of it is
// the name of the including file's directory, in which nothing is special.
func (l *loader) pathPattern(pattern string, e Entry) (whole string, literal int, ok bool) {
	if expanded, ok := l.expand(pattern); ok {
		if home := l.home(pattern); home != "" { // is matched as it really is
			expanded = realpath(home) + strings.TrimPrefix(expanded, home)
		}
		pattern = expanded
	}
	switch {
	case strings.HasPrefix(pattern, "./"):
		dir := path.Dir(realpath(e.File))
		pattern = dir + pattern[1:]
		literal = len(dir) + 1
	case !strings.HasPrefix(pattern, "/"):
		pattern = "**/" + pattern
	}
	return wholeDirectory(pattern), literal, true
}

// wholeDirectory makes a trailing slash mean everything below.
func wholeDirectory(pattern string) string {
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	return pattern
}

// hasURL reports whether a remote has such a URL. A second reading of all files gathers
// the URLs; in it no condition on a URL holds.
func (l *loader) hasURL(glob string) bool {
	if l.counting {
		return false
	}
	if !l.knows {
		l.knows = true
		again := &loader{getenv: l.getenv, at: l.at, counting: true}
		_ = again.all() // the same mistake comes up in the reading that asked
		for _, e := range again.entries {
			if strings.HasPrefix(e.Key, "remote.") && strings.HasSuffix(e.Key, ".url") && len(e.Key) > len("remote..url") {
				l.urls = append(l.urls, e.Value)
			}
		}
	}
	for _, url := range l.urls {
		if matches(glob, url, false) {
			return true
		}
	}
	return false
}

// expand replaces the prefixes of a path that git expands: "~/" and "~user/", and
// "%(prefix)/", the directory where git was installed.
func (l *loader) expand(name string) (string, bool) {
	if rest, ok := strings.CutPrefix(name, "%(prefix)/"); ok {
		return "/usr/" + rest, true
	}
	if !strings.HasPrefix(name, "~") {
		return name, true
	}
	home := l.home(name)
	if home == "" {
		return "", false
	}
	_, rest, _ := strings.Cut(name, "/")
	if strings.Contains(name, "/") {
		rest = "/" + rest
	}
	return home + rest, true
}

// home is the home that a path begins with, or "".
func (l *loader) home(name string) string {
	who, _, _ := strings.Cut(name, "/")
	if who == "~" {
		return l.getenv.value("HOME")
	}
	if !strings.HasPrefix(who, "~") {
		return ""
	}
	return passwd.FindName(passwd.Users, who[1:]).Home
}

// realpath resolves the links of a path. It only cleans a path that cannot be resolved.
func realpath(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return path.Clean(name)
}

// branch is the branch that is checked out, or would be with the first commit.
func (p gitDirs) branch() (string, bool) {
	if p.gitDir == "" {
		return "", false
	}
	ref, ok := headRef(unix.AT_FDCWD, p.gitDir+"/HEAD")
	if !ok {
		return "", false
	}
	return strings.CutPrefix(ref, "refs/heads/")
}
