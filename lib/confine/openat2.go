package confine

import (
	"strings"

	"golang.org/x/sys/unix"
)

// canonical is walk for clean paths. Without links on the way it takes two system
// calls. It gives the same answers: it calls walk where openat2 cannot decide.
func (v view) canonical(path string) (string, error) {
	switch v.plain(path) {
	case nil:
		return path, nil
	case unix.ENOENT:
		return v.canonicalMissing(path)
	}
	return v.walk(path)
}

// plain reports whether path exists and leads through no link.
func (v view) plain(path string) error {
	fd, err := v.open(path)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// canonicalMissing settles a path whose end is missing: it opens the deepest
// ancestor that exists and looks there for the next name. For a dangling link
// openat2 also fails with ENOENT, but a new file would land at its target.
func (v view) canonicalMissing(path string) (string, error) {
	for dir := path; dir != "/"; {
		slash := strings.LastIndexByte(dir, '/')
		name := dir[slash+1:]
		dir = dir[:max(slash, 1)]
		fd, err := v.open(dir)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return v.walk(path)
		}
		err = linkTest(fd, name)
		unix.Close(fd)
		if err == unix.ENOENT {
			return path, nil
		}
		return v.walk(path)
	}
	return v.walk(path)
}
