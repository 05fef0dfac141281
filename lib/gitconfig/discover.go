package gitconfig

import (
	"bytes"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitplace"
)

// gitDirs are the directories of a repository; "" for none.
type gitDirs struct {
	gitDir    string // with its own HEAD: .git, or one of .git/worktrees
	commonDir string // with config and hooks: the same, except for a worktree
	worktree  string // the directory that has the .git; "" for a bare repository
}

// discover finds the repository around dir as git does: a .git in it, or dir as
// a bare repository, or the same for the directory above. It stops where another
// file system begins, and does not look at the owner.
func discover(dir string) gitDirs {
	var top unix.Stat_t
	if unix.Stat(dir, &top) != nil {
		return gitDirs{}
	}
	for dir = path.Clean(dir); ; dir = path.Dir(dir) {
		if p, ok := openDotGit(strings.TrimSuffix(dir, "/") + "/.git"); ok {
			p.worktree = dir
			return p
		}
		if p, ok := asGitDir(dir); ok {
			return p
		}
		var up unix.Stat_t
		if dir == "/" || unix.Stat(path.Dir(dir), &up) != nil || up.Dev != top.Dev {
			return gitDirs{}
		}
	}
}

// Repository is a repository with a work tree. Paths are absolute.
type Repository struct{ WorkTree, GitDir, CommonDir string }

// Around returns the repository whose work tree has dir in it, as git finds it.
func Around(dir string) (Repository, bool) {
	p := discover(dir)
	return Repository{p.worktree, p.gitDir, p.commonDir}, p.gitDir != "" && p.worktree != ""
}

// WorkTree returns the absolute path of the work tree that the configuration of a git
// directory names, "" for none.
func WorkTree(gitDir string) string {
	if e, ok := ownEntry(gitDir, "core.worktree"); ok && e.Value != "" {
		return beneath(gitDir, e.Value)
	}
	return ""
}

// IsBare reports whether a git directory says that it has no work tree of its own: git takes its HEAD for checked out
// nowhere.
func IsBare(gitDir string) bool {
	e, ok := ownEntry(gitDir, "core.bare")
	is, _ := e.Bool()
	return ok && is
}

// ownEntry is the value of a key of the section core in the files of a git directory.
func ownEntry(gitDir, key string) (Entry, bool) {
	for _, name := range []string{"/config.worktree", "/config"} {
		text, err := readAt(unix.AT_FDCWD, gitDir+name, 0, maxFile)
		if err != nil || !bytes.Contains(bytes.ToLower(text), []byte(strings.TrimPrefix(key, "core."))) {
			continue
		}
		entries, _ := Parse(name, text)
		if e, ok := last(entries, key); ok {
			return e, true
		}
	}
	return Entry{}, false
}

// openDotGit follows a .git: a directory, or a file that says where one is.
func openDotGit(name string) (gitDirs, bool) {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return gitDirs{}, false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return asGitDir(name)
	}
	text, err := readAt(unix.AT_FDCWD, name, 0, gitplace.MaxPointer)
	if err != nil {
		return gitDirs{}, false
	}
	target, ok := gitplace.GitFile(text)
	if !ok {
		return gitDirs{}, false
	}
	return asGitDir(beside(name, target))
}

// beside is a name as seen from the directory of a file.
func beside(file, name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Join(path.Dir(file), name)
}

// asGitDir reports whether git would take a directory for that of a repository.
func asGitDir(dir string) (gitDirs, bool) {
	if _, ok := headRef(unix.AT_FDCWD, dir+"/HEAD"); !ok {
		return gitDirs{}, false
	}
	p := gitDirs{gitDir: dir, commonDir: dir}
	if text, err := readAt(unix.AT_FDCWD, dir+"/commondir", 0, gitplace.MaxPointer); err == nil {
		if name := gitplace.Pointer(text); name != "" {
			p.commonDir = beside(dir+"/commondir", name)
		}
	}
	for _, name := range []string{"objects", "refs"} {
		if unix.Access(p.commonDir+"/"+name, unix.X_OK) != nil {
			return gitDirs{}, false
		}
	}
	return p, true
}

// headRef reads a HEAD: ok tells that the file is a HEAD, ref is the ref that it
// points to, if any. In old repositories HEAD is a symbolic link.
func headRef(dir int, name string) (ref string, ok bool) {
	link := make([]byte, gitplace.MaxPointer)
	if n, err := unix.Readlinkat(dir, name, link); err == nil {
		ref = string(link[:n])
		return ref, strings.HasPrefix(ref, "refs/")
	}
	text, err := readAt(dir, name, unix.O_NOFOLLOW, gitplace.MaxPointer)
	if err != nil {
		return "", false
	}
	return gitplace.Head(text)
}
