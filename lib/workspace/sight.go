package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// sight is an entry that a swap has opened. It stays open: another entry of the same name
// differs from it.
type sight struct {
	file   *os.File    // to be read if it is a regular one, otherwise with O_PATH; nil for a missing one
	st     unix.Stat_t // when it was opened
	target string
}

func (s *sight) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// see opens a name in a directory, which may be a link.
func (w *LocalWorkspace) see(dir int, name string) (*sight, error) {
	s := &sight{}
	fd, err := w.openBelow(dir, name, unix.O_PATH)
	if err == unix.ELOOP {
		fd, err = fsat.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	}
	if err == unix.ENOENT {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.file = os.NewFile(uintptr(fd), name)
	err = unix.Fstat(fd, &s.st)
	if err == nil && s.st.Mode&unix.S_IFMT == unix.S_IFLNK {
		s.target, err = fsat.ReadLink(fd, "")
	}
	if err == nil && isRegular(&s.st) == nil {
		err = s.reopen(w, dir, name)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// reopen opens a regular file for reading.
func (s *sight) reopen(w *LocalWorkspace, dir int, name string) error {
	fd, err := w.openBelow(dir, name, unix.O_RDONLY)
	if err == unix.ENOENT || err == unix.ELOOP || err == unix.ENXIO {
		return errRaced
	}
	if err != nil {
		return err
	}
	s.file.Close()
	s.file = os.NewFile(uintptr(fd), name)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if !fsat.SameInode(&s.st, &now) {
		return errRaced
	}
	s.st = now
	return nil
}

// entry describes the opened entry, and reads a file of at most limit bytes.
func (s *sight) entry(ctx context.Context, limit int64) (Entry, error) {
	perm := fs.FileMode(s.st.Mode & 0o777)
	switch {
	case s.file == nil:
		return Entry{}, nil
	case s.st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return Entry{Kind: KindDir, Perm: perm}, nil
	case s.target != "":
		return Entry{Kind: KindLink, Target: s.target}, nil
	case isRegular(&s.st) != nil:
		return Entry{Kind: KindOther}, nil
	case limit > 0 && s.st.Size > limit:
		return Entry{}, ErrTooLarge
	}
	sum := sha256.New()
	size, err := io.Copy(sum, &localFile{ctx: ctx, file: s.file})
	if err == nil {
		err = s.unchanged()
	}
	return Entry{Kind: KindFile, Perm: perm, Size: size, Hash: hex.EncodeToString(sum.Sum(nil))}, err
}

// unchanged fails if a file has been written since it was opened, judging by its size and
// its time.
func (s *sight) unchanged() error {
	now, err := statFile(s.file)
	if err == nil && (now.Size != s.st.Size || now.Mtim != s.st.Mtim) {
		err = errRaced
	}
	return err
}
