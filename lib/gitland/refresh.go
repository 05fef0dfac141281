package gitland

import (
	"path"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Of files beyond these, git finds out itself whether they have changed.
const (
	maxSeen      = 1000 // files of one landing
	maxSeenFile  = 8 << 20
	maxSeenBytes = 64 << 20 // of all of them
)

// settled is shorter in tests.
var settled int64 = gitdir.Settled

// refresher finds stat data for an index that lands, as git update-index --refresh does. It
// reads the files itself: from stat data of a command's, git would take any content for the
// entry's.
type refresher struct {
	repo    *repository
	tree    int
	written *time.Time // of the index
	files   int        // that may still be read
	bytes   int64
}

// look is an index.Look.
//
// Git compares times in seconds, so a later change shows only in the ctime of a file that has
// settled. Git opens another file by itself if that is not older than the index.
func (f *refresher) look(name string, mode uint32, id string) *unix.Stat_t {
	if f.files--; f.files < 0 {
		return nil
	}
	dir, err := fsat.Kernel().Open(f.tree, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	recent := refs.Now().Add(-time.Duration(settled))
	text, st, err := f.read(dir, path.Base(name), mode)
	if err != nil || f.repo.objects.Name(text) != id {
		return nil
	}
	now, err := fsat.Lstat(dir, path.Base(name))
	if err != nil {
		return nil
	}
	if now.Atim = st.Atim; *now != *st {
		return nil
	}
	if st.Ctim.Nano() >= recent.UnixNano() {
		changed := time.Unix(st.Mtim.Sec, 0)
		if changed.Unix() < recent.Unix() {
			return nil
		}
		if changed.Before(*f.written) {
			*f.written = changed
		}
	}
	return st
}

// read reads a regular file, or the target of a link.
func (f *refresher) read(dir int, name string, mode uint32) ([]byte, *unix.Stat_t, error) {
	if mode == index.ModeLink {
		st, err := fsat.Lstat(dir, name)
		if err != nil {
			return nil, nil, err
		}
		target, err := fsat.ReadLink(dir, name)
		return []byte(target), st, err
	}
	text, st, err := overlay.ReadFile(dir, name, unix.O_NOFOLLOW, min(maxSeenFile, f.bytes))
	f.bytes -= int64(len(text))
	return text, st, err
}
