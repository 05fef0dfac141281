// Package gitplace knows git's rules for names of files and refs. It tells which paths
// of a tree lie in git directories, where a file makes git on the host run or follow
// its content. Tools that write on behalf of an agent refuse them.
package gitplace

import "strings"

// Named reports whether git takes one of the names in a path for .git.
func Named(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if isDotGit(name) {
			return true
		}
	}
	return false
}

// Inside reports whether a path relative to a root, clean and without links, lies in a
// git directory. It is a .git or below one, or in a directory that has the contents of a
// git directory, or would have them if path were made. has reports whether a path
// relative to the root exists.
//
// Git takes three kinds of directory for a repository by their contents: a bare
// repository, a directory behind a .git that is a link or a file, and a root that a
// command has filled with HEAD, objects and refs.
func Inside(path string, has func(path string) (bool, error)) (bool, error) {
	if path == "." {
		return false, nil
	}
	if Named(path) {
		return true, nil
	}
	dir := ""
	for name := range strings.SplitSeq(path, "/") {
		if is, err := makesOne(dir, name, has); is || err != nil {
			return is, err
		}
		dir += name + "/"
	}
	return false, nil
}

// makesOne reports whether dir, "" or with a slash at its end, is a git directory
// once it has name: git wants a HEAD, and either objects and refs or the name of a
// directory that has them.
func makesOne(dir, name string, has func(string) (bool, error)) (bool, error) {
	all := func(marks ...string) (bool, error) {
		for _, mark := range marks {
			if strings.EqualFold(name, mark) {
				continue
			}
			if there, err := has(dir + mark); !there || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if is, err := all("HEAD"); !is || err != nil {
		return false, err
	}
	if is, err := all("objects", "refs"); is || err != nil {
		return is, err
	}
	return all("commondir")
}
