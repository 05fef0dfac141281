package gitland

import (
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
)

// Unlock removes the locks in a git directory of the host's that killed processes of pk have left.
func Unlock(gitDir string) {
	for _, git := range (&Layer{GitDir: gitDir}).gitDirs() {
		refs.Host{Common: git}.Sweep()
		for _, name := range []string{indexFile, "config", shallowFile} {
			gitlock.Sweep(filepath.Join(git, name))
		}
	}
}

// forgetLocks makes commands that share the layer see that lock files of the host's are
// gone. An overlay caches a file of its lower layer that a process has looked up, until
// it is mounted anew: a command that met the lock once would never get its own.
// forgetLocks removes only names that are in neither layer.
func (l *Layer) forgetLocks(upper int) {
	if l.View == "" {
		return
	}
	view, err := fsat.Openat(unix.AT_FDCWD, l.View, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(view)
	for i, git := range append([]string{l.GitDir}, l.GitDirs...) {
		if !fsat.Within(git, l.GitDir) || i > 0 && git == l.GitDir {
			continue
		}
		for _, name := range []string{"HEAD", "index", "config", "packed-refs", "shallow"} {
			l.forgetLock(view, upper, path.Join(l.rel(git), name+".lock"))
		}
		if branch := branchOf(git); branch != "" {
			l.forgetLock(view, upper, path.Join(l.rel(l.common(git)), branch+".lock"))
		}
	}
	l.forgetLocksBelow(view, upper, "refs", maxOpenUp)
}

// forgetLocksBelow checks the references in the layer.
func (l *Layer) forgetLocksBelow(view, upper int, in string, depth int) {
	dir, err := fsat.Kernel().Open(upper, in, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	_ = fsat.Each(dir, func(e fsat.Entry) error {
		name := path.Join(in, e.Name)
		if e.Type != unix.DT_DIR {
			l.forgetLock(view, upper, name+".lock")
		} else if depth > 0 {
			l.forgetLocksBelow(view, upper, name, depth-1)
		}
		return nil
	})
}

// hideLock makes commands that share the layer not see a lock that pk is about to take: an
// overlay caches as well that a name is missing. Their git would give up at once, or would
// wait for less time than the lock stays in the cache.
func (l *Layer) hideLock(file string) {
	name, err := filepath.Rel(l.GitDir, file+".lock")
	if err != nil || l.View == "" || exists(file+".lock") {
		return
	}
	view, err := fsat.Openat(unix.AT_FDCWD, l.View, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(view)
	if dir, err := fsat.Kernel().Open(view, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath); err == nil {
		_, _ = fsat.Lstat(dir, path.Base(name))
		unix.Close(dir)
	}
}

// forgetLock checks the host first: looking up a lock that the host holds, in the
// overlay, would cache it there.
func (l *Layer) forgetLock(view, upper int, name string) {
	gone := func() bool {
		_, err := os.Lstat(filepath.Join(l.GitDir, name))
		return os.IsNotExist(err)
	}
	if !gone() {
		return
	}
	dir, err := fsat.Kernel().Open(view, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	base := path.Base(name)
	if _, err := fsat.Lstat(dir, base); err != nil {
		return
	}
	if !gone() {
		return
	}
	in, err := fsat.Kernel().Open(upper, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err == nil {
		_, err = fsat.Lstat(in, base)
		unix.Close(in)
	}
	if err == unix.ENOENT {
		_ = unix.Unlinkat(dir, base, 0)
	}
}
