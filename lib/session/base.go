package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/passwd"
)

// cacheTag keeps backups away from the base (https://bford.info/cachedir/).
// The first line is the signature that tools look for.
const (
	cacheTag     = "CACHEDIR.TAG"
	cacheTagText = "Signature: 8a477f597d28d172789f06886806bc55\n" +
		"# Session directories of pk. They may be removed when no session runs.\n"
)

// GitDir is the directory in the base with the layers over git directories of commands
// without a session.
const GitDir = "git"

// Base returns the directory that holds the session directories. It need not exist.
//
// It is $XDG_CACHE_HOME/pikuri, or ~/.cache/pikuri if the variable is unset or, as its
// specification asks, holds a relative path. Without $HOME, as under some cron daemons,
// the home is the one in /etc/passwd.
func Base(getenv func(string) string) (string, error) {
	if cache := getenv("XDG_CACHE_HOME"); filepath.IsAbs(cache) {
		return filepath.Join(cache, "pikuri"), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		home = passwd.Find(passwd.Users, os.Getuid()).Home
	}
	if !filepath.IsAbs(home) {
		return "", refuse("set HOME", "there is no home directory for user %d", os.Getuid())
	}
	return filepath.Join(home, ".cache", "pikuri"), nil
}

// CheckBase refuses roots and overlays among the session directories, and session
// directories in a writable root: a command could write files there that pk acts on, or
// replace them by a symbolic link.
func CheckBase(base string, roots []confine.Root, overlays []string) error {
	shown := slices.Clone(overlays)
	for _, r := range roots {
		shown = append(shown, r.Path)
	}
	real, _ := confine.Follow(base) // as far as its links resolve
	for _, path := range shown {
		if t, _ := confine.Follow(path); fsat.Within(t.Place, real.Place) && filepath.Base(t.Place) != TmpDir {
			return refuse("join the session with --session NAME", "cannot show %q: it lies among the session directories", t.Place)
		}
	}
	return confine.RefuseWritable("keep session directories in", base, roots, "set XDG_CACHE_HOME to a directory outside")
}

// MakeBase makes the base if it is missing, and checks that it is the user's own.
func MakeBase(path string) error {
	base, err := makeBase(path)
	if err != nil {
		return err
	}
	return base.Close()
}

// CanMakeBase returns the error that MakeBase would most likely return, and makes nothing.
func CanMakeBase(path string) error {
	if err := checkGround(path); err != nil {
		return err
	}
	cache := filepath.Dir(path)
	var err error
	for _, dir := range []string{path, cache, filepath.Dir(cache)} {
		if err = unix.Access(dir, unix.W_OK|unix.X_OK); err != unix.ENOENT {
			break
		}
	}
	if err != nil {
		return cannotMake(path, err)
	}
	return nil
}

// makeBase opens the base. It makes and tags a missing one.
func makeBase(path string) (*os.File, error) {
	if err := checkGround(path); err != nil {
		return nil, err
	}
	// 0700 for the cache directory too, as the specification of $XDG_CACHE_HOME asks. A home
	// that does not exist, as many service users have, is not made.
	for _, dir := range []string{filepath.Dir(path), path} {
		if err := MakeDir(unix.AT_FDCWD, dir); err != nil {
			return nil, cannotMake(path, err)
		}
	}
	base, err := openBase(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, refuse("set HOME or XDG_CACHE_HOME to a directory of your own", "cannot make cache directory %q: a link on the way leads nowhere", path)
	}
	if err != nil {
		return nil, err
	}
	if err := settle(base); err != nil {
		base.Close()
		return nil, fmt.Errorf("cannot use cache directory %q: %w", path, err)
	}
	return base, nil
}

func cannotMake(path string, err error) error {
	if isFull(err) {
		return fmt.Errorf("cannot make cache directory %q: %w", path, err)
	}
	return refuse("set XDG_CACHE_HOME to a directory of your own", "cannot make cache directory %q: %v", path, err)
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Full returns the advice for an error that names a file in the base, if its disk is full, or "". The
// kernel gives the same error where it refuses a namespace or a cgroup.
func Full(err error) string {
	base, unknown := Base(os.Getenv)
	if unknown != nil || !isFull(err) || !strings.Contains(err.Error(), base) {
		return ""
	}
	return fmt.Sprintf("free space in %q, or set XDG_CACHE_HOME to a directory on another disk", base)
}

// checkGround keeps root from making directories in another user's home, as it would if
// sudo(8) kept $HOME: their owner could not use them.
func checkGround(path string) error {
	for dir := path; os.Geteuid() == 0; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		if err == nil && st.Uid != 0 {
			return refuse("set HOME or XDG_CACHE_HOME to a directory of root", "cannot make cache directory %q: it would be in a directory of user %d", path, st.Uid)
		}
		if err == nil || dir == filepath.Dir(dir) {
			break
		}
	}
	return nil
}

// settle removes other users' access from a base, and tags it. The tag only serves backup
// programs, so a full disk does not stop a command here.
func settle(base *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd(base), &st); err != nil {
		return err
	}
	if st.Mode&0o077 != 0 {
		if err := unix.Fchmod(fd(base), 0o700); err != nil {
			return err
		}
	}
	n, err := unix.Openat(fd(base), cacheTag, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == nil {
		tag := os.NewFile(uintptr(n), cacheTag)
		_, _ = tag.WriteString(cacheTagText)
		_ = tag.Close()
	}
	return nil
}

// openBase opens an existing base. It must be the user's own directory, and no other user
// may be able to write to it.
func openBase(path string) (*os.File, error) {
	base, err := openDir(unix.AT_FDCWD, path, path)
	if err != nil {
		return nil, fmt.Errorf("cannot use cache directory %q: %w", path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd(base), &st)
	switch {
	case err != nil:
	case int(st.Uid) != os.Geteuid():
		err = foreign(st.Uid)
	case st.Mode&0o022 != 0:
		err = refuse("chmod 700 it after a look inside", "others can write to it (mode %04o)", st.Mode&0o7777)
	}
	if err != nil {
		base.Close()
		return nil, fmt.Errorf("cannot use cache directory %q: %w", path, err)
	}
	return base, nil
}
