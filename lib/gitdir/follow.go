package gitdir

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// target is the git directory that a .git leads to.
type target struct {
	gitDir, commonDir string // absolute, without links; "" if git sees no repository there
	file, link        bool   // .git is a file; .git is a symbolic link
	text              string // of a .git file, or of a link
}

// follow finds the git directory of an open directory's .git, by the rules of git's own
// discovery, except that it ignores owners. ENOENT: there is no .git. Any other error
// means that git might see a repository that pk does not see.
func follow(dir int) (t target, err error) {
	st, err := fsat.Lstat(dir, ".git")
	if err != nil {
		return t, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		t.link = true
		if t.text, err = fsat.ReadLink(dir, ".git"); err != nil {
			return t, err
		}
		if err = unix.Fstatat(dir, ".git", st, 0); err != nil {
			return t, unlessAbsent(err)
		}
	}
	name := ".git"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		text, err := readSmall(dir, ".git", 0)
		if err != nil {
			return t, err
		}
		t.file = true
		if !t.link {
			t.text = string(text)
		}
		var ok bool
		if name, ok = gitplace.GitFile(text); !ok {
			return t, nil
		}
	case unix.S_IFDIR:
	default:
		return t, nil
	}
	fd, err := fsat.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return t, unlessAbsent(err)
	}
	defer unix.Close(fd)
	t.gitDir, t.commonDir, err = asGitDir(fd)
	return t, err
}

// unlessAbsent drops errors for a missing file.
func unlessAbsent(err error) error {
	if fsat.Absent(err) {
		return nil
	}
	return err
}

// asGitDir returns the real paths of an open directory and of the one that it shares, if
// git uses it as the git directory of a repository.
func asGitDir(dir int) (gitDir, commonDir string, err error) {
	if ok, err := hasHead(dir); err != nil || !ok {
		return "", "", err
	}
	common, err := openCommon(dir)
	if err != nil {
		return "", "", unlessAbsent(err)
	}
	defer unix.Close(common)
	for _, name := range []string{"objects", "refs"} {
		if err := unix.Faccessat(common, name, unix.X_OK, 0); err != nil {
			return "", "", unlessAbsent(err)
		}
	}
	if gitDir, err = os.Readlink(fsat.Path(dir)); err == nil {
		commonDir, err = os.Readlink(fsat.Path(common))
	}
	if errors.Is(err, unix.ENAMETOOLONG) { // git asks for the path too, and fails
		return "", "", nil
	}
	return gitDir, commonDir, err
}

// openCommon opens the directory that a git directory shares.
func openCommon(dir int) (int, error) {
	text, err := readSmall(dir, "commondir", 0)
	name := "."
	if err == nil {
		name = cmp.Or(gitplace.Pointer(text), ".")
	} else if !fsat.Absent(err) {
		return -1, fmt.Errorf("cannot read commondir: %w", err)
	}
	return fsat.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// hasHead reports whether a git directory has a HEAD that git accepts. In old
// repositories it is a link.
func hasHead(dir int) (bool, error) {
	if link, err := fsat.ReadLink(dir, "HEAD"); err == nil {
		return strings.HasPrefix(link, "refs/"), nil
	}
	text, err := readSmall(dir, "HEAD", unix.O_NOFOLLOW)
	if err != nil {
		return false, unlessAbsent(ignoreKind(err))
	}
	_, ok := gitplace.Head(text)
	return ok, nil
}

// ignoreKind drops the error of a HEAD that is not a file: to git there is none then.
func ignoreKind(err error) error {
	if errors.Is(err, overlay.ErrNotRegular) {
		return nil
	}
	return err
}

// readSmall reads a regular file that a command may have made.
func readSmall(dir int, name string, flags int) ([]byte, error) {
	return read(dir, name, flags, gitplace.MaxPointer)
}

func read(dir int, name string, flags int, limit int64) ([]byte, error) {
	data, _, err := overlay.ReadFile(dir, name, flags, limit)
	return data, err
}
