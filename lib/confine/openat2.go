package confine

import (
	"strings"

	"golang.org/x/sys/unix"
)

// hasOpenat2 tells whether openat2 works here. It came with Linux 5.6; a
// seccomp filter that does not know it answers EPERM, and some kernels in user
// space answer otherwise. Any error is a no.
func hasOpenat2() bool {
	return plain("/") == nil
}

// canonical is walk for clean paths, in two system calls where there is no
// link. It gives the same answers: what openat2 cannot settle goes to walk.
func canonical(path string) (string, error) {
	switch plain(path) {
	case nil:
		return path, nil
	case unix.ENOENT:
		return canonicalMissing(path)
	}
	return walk(path)
}

// plain opens path, which has to exist and to lead through no link, and lets go
// of it. O_PATH opens nothing in earnest: no FIFO blocks, no device wakes up,
// no permission on the file itself is needed.
func plain(path string) error {
	fd, err := openPlain(path)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func openPlain(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// canonicalMissing settles a path whose end is missing: it looks for the
// deepest ancestor that exists and asks there whether the next name is missing
// too. A dangling link also makes openat2 report a missing file, and it is not
// one: its target is where a new file would land.
func canonicalMissing(path string) (string, error) {
	for dir := path; dir != "/"; {
		slash := strings.LastIndexByte(dir, '/')
		name := dir[slash+1:]
		dir = dir[:max(slash, 1)]
		fd, err := openPlain(dir)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return walk(path)
		}
		err = linkTest(fd, name)
		unix.Close(fd)
		if err == unix.ENOENT {
			return path, nil
		}
		return walk(path)
	}
	return walk(path)
}
