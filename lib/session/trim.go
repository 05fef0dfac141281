package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Directories in a session directory whose entries Trim counts.
const (
	LogDir   = "log"         // logs of commands
	AsideDir = "moved-aside" // files that were moved out of a project
)

const (
	// maxKept bounds the logs and the files moved aside of all sessions of a user.
	maxKept = 1 << 30

	// passingEvery and passingTime bound the work that a command does for others.
	passingEvery = time.Hour
	passingTime  = 500 * time.Millisecond
)

// DefaultAge is the time without use after which a sweep removes a session.
const DefaultAge = 7 * 24 * time.Hour

// kept is a log, or a file that was moved aside.
type kept struct {
	in, name string // in is a directory below the base
	size     int64
	time     time.Time
}

// Trim removes the oldest logs and files moved aside until those of all sessions in base
// take no more than 1 GiB.
func Trim(base string) error { return trim(base, maxKept, nil) }

func trim(base string, most int64, ask func(string) error) error {
	dir, err := openBase(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var list []kept
	var total int64
	for _, name := range names {
		if !strings.HasPrefix(name, Prefix) || !isSessionDir(name) {
			continue
		}
		if inUse(dir, name) {
			continue
		}
		for _, part := range []string{LogDir, AsideDir} {
			for _, k := range keptIn(dir, filepath.Join(name, part)) {
				list = append(list, k)
				total += k.size
			}
		}
	}
	slices.SortFunc(list, func(a, b kept) int { return a.time.Compare(b.time) })
	var errs []error
	for total > most && len(list) > 0 {
		k := list[fullest(list)]
		if err := k.remove(dir, ask); err != nil {
			errs = append(errs, err)
		} else {
			total -= k.size
		}
		list = slices.DeleteFunc(list, func(other kept) bool { return other.in == k.in && other.name == k.name })
	}
	return errors.Join(errs...)
}

// fullest returns the oldest of the session that keeps most: a session that fills the
// disk does not displace files of another.
func fullest(list []kept) int {
	sizes := map[string]int64{}
	most := ""
	for _, k := range list {
		name := filepath.Dir(k.in)
		if sizes[name] += k.size; sizes[name] > sizes[most] || most == "" {
			most = name
		}
	}
	return slices.IndexFunc(list, func(k kept) bool { return filepath.Dir(k.in) == most })
}

// inUse reports whether a command holds a session directory, or whether that cannot be
// determined.
func inUse(base *os.File, name string) bool {
	n, err := openBeneath(fd(base), name)
	if err != nil {
		return true
	}
	defer unix.Close(n) // and with it the lock
	return unix.Flock(n, unix.LOCK_EX|unix.LOCK_NB) != nil
}

// keptIn lists the entries of one directory. One that is missing, or is not a directory of
// this file system, has none.
func keptIn(base *os.File, in string) []kept {
	n, err := openBeneath(fd(base), in)
	if err != nil {
		return nil
	}
	defer unix.Close(n)
	var list []kept
	_ = fsat.Each(n, func(e fsat.Entry) error {
		var st unix.Stat_t
		if unix.Fstatat(n, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return nil
		}
		k := kept{in: in, name: e.Name, size: st.Blocks * 512, time: time.Unix(st.Ctim.Unix())}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			if below, err := openBeneath(n, e.Name); err == nil {
				k.size += measure(below).Bytes
				unix.Close(below)
			}
		}
		list = append(list, k)
		return nil
	})
	return list
}

func (k kept) remove(base *os.File, ask func(string) error) error {
	n, err := openBeneath(fd(base), k.in)
	if err != nil {
		return err
	}
	defer unix.Close(n)
	e := &fsat.Eraser{Opener: opener(), Ask: ask}
	if err := e.Remove(n, k.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &os.PathError{Op: "remove", Path: filepath.Join(base.Name(), k.in, k.name), Err: err}
	}
	return nil
}

// SweepInPassing removes sessions that have not been used for a week, and trims logs, at
// most once an hour for all commands of the user. It takes half a second at most, and
// leaves the rest to the next sweep. holds is that of SweepOptions; also is called with
// the others.
func SweepInPassing(base string, holds func(path string) bool, also func(olderThan time.Duration)) {
	if !due(base) {
		return
	}
	limit := time.Now().Add(passingTime)
	late := func(string) error {
		if time.Now().After(limit) {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sweepIn(base, SweepOptions{OlderThan: DefaultAge, Holds: holds}, late, func(Result) {})
		_ = trim(base, maxKept, late)
		also(DefaultAge)
	}()
	select {
	case <-done:
	case <-time.After(passingTime):
	}
}

// due reports whether the last sweep in passing was long ago, and sets its time to now.
// The time is that of the cache tag, which stays as long as the base.
func due(base string) bool {
	dir, err := openBase(base)
	if err != nil {
		return false
	}
	defer dir.Close()
	var st unix.Stat_t
	if unix.Fstatat(fd(dir), cacheTag, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	return (age < 0 || age >= passingEvery) && unix.UtimesNanoAt(fd(dir), cacheTag, nil, unix.AT_SYMLINK_NOFOLLOW) == nil
}
