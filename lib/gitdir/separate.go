package gitdir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
)

// lockPatience bounds the wait for a lock of the host's git.
const lockPatience = 2 * time.Second

// Separate gives files of the host's git directories an inode of their own if they have
// another name in the root: the command could write them by that. covered are directories
// that layers cover. A search of the root finds these names. It follows only if a link has
// been made or removed since the last one.
func (r *Run) Separate(files []Shared, covered []string) error {
	if len(files) == 0 || r.List.apart == digest(files) {
		return nil
	}
	others, err := r.List.otherNames(files, covered)
	if err != nil {
		return err
	}
	files = slices.Clone(files)
	for i, f := range files {
		other := others[f.at]
		if other == "" || !writable(f.Path) {
			continue
		}
		if err := f.separate(); err != nil {
			return fmt.Errorf("cannot copy %q, which has the name %q too: %w", f.Path, other, err)
		}
		files[i].Path = ""
	}
	return r.noteApart(digest(slices.DeleteFunc(files, func(f Shared) bool { return f.Path == "" })))
}

// writable reports whether this user could write a file, or make it so.
func writable(name string) bool {
	var st unix.Stat_t
	err := unix.Lstat(name, &st)
	return err == nil && (int(st.Uid) == os.Geteuid() || unix.Access(name, unix.W_OK) == nil)
}

// digest identifies files and the times at which links to them were made or removed.
func digest(files []Shared) string {
	var lines []string
	for _, f := range files {
		lines = append(lines, fmt.Sprint(f.at, f.ctime))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return string(sum[:])
}

// otherNames searches the root for names of files.
func (l *List) otherNames(files []Shared, covered []string) (map[[2]uint64]string, error) {
	top, err := fsat.Kernel().Open(unix.AT_FDCWD, l.root, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: l.root, Err: err}
	}
	defer unix.Close(top)
	defer l.shut()
	s := search{List: l, files: files, covered: covered, devs: map[uint64]bool{}, inodes: map[uint64]bool{}, others: map[[2]uint64]string{}}
	for _, f := range files {
		s.devs[f.at[0]], s.inodes[f.at[1]] = true, true
	}
	return s.others, s.directory(top, ".", "")
}

// search looks for other names of files. It goes from one directory to the next by descriptor: some
// may be too deep for a path.
type search struct {
	*List
	files   []Shared
	covered []string
	devs    map[uint64]bool
	inodes  map[uint64]bool // the kernel tells these for each name
	others  map[[2]uint64]string
	dirs    int // so far
}

func (s *search) directory(in int, name, rel string) error {
	if s.dirs++; s.dirs > maxDirs {
		return fmt.Errorf("there are more than %d directories in %q", maxDirs, s.root)
	}
	if len(rel) > maxPath { // it may hold any
		for _, f := range s.files {
			s.others[f.at] = s.absolute(beginning(rel))
		}
		return nil
	}
	fd, err := s.enter(in, name, unix.O_RDONLY|unix.O_NONBLOCK, fsat.NoLinks)
	if err == errClosed && unix.Faccessat(in, name, unix.W_OK, 0) == nil {
		err = unix.EACCES // a command can make names in it
	}
	if fsat.Absent(err) || err == errClosed {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: s.absolute(rel), Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var below []string
	if err = unix.Fstat(fd, &st); err == nil && s.devs[st.Dev] {
		err = fsat.Each(fd, func(e fsat.Entry) error {
			sub := path.Join(rel, e.Name)
			if (e.Type == unix.DT_DIR || e.Type == unix.DT_UNKNOWN) && !slices.Contains(s.covered, s.absolute(sub)) {
				below = append(below, e.Name)
			}
			if s.inodes[e.Ino] && e.Type != unix.DT_DIR {
				if st, err := fsat.Lstat(fd, e.Name); err == nil {
					s.others[[2]uint64{st.Dev, st.Ino}] = s.absolute(sub)
				}
			}
			return nil
		})
	}
	if err != nil {
		return &os.PathError{Op: "read", Path: s.absolute(rel), Err: err}
	}
	for _, name := range below {
		if err := s.directory(fd, name, path.Join(rel, name)); err != nil {
			return err
		}
	}
	return nil
}

// separate replaces the file by a copy of itself.
func (f Shared) separate() error {
	if f.lock == "" {
		return f.copyObject()
	}
	l, err := gitlock.Acquire(f.lock, time.Now().Add(lockPatience))
	if err != nil {
		return err
	}
	var st unix.Stat_t
	content, err := os.ReadFile(f.Path)
	if err == nil {
		err = unix.Lstat(f.Path, &st)
	}
	if err == nil {
		err = gitlock.Replace(f.Path, content, time.Unix(st.Mtim.Unix()), gitlock.Sharing{})
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil // git has removed it
	}
	return errors.Join(err, l.Release())
}

// copyObject copies an object, a pack or a file beside one. They may be large.
func (f Shared) copyObject() error {
	from, err := os.OpenFile(f.Path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return unlessAbsent(err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.CreateTemp(path.Dir(f.Path), "tmp_obj_") // git prune removes these
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	err = errors.Join(err, to.Chmod(info.Mode().Perm()), to.Sync(), to.Close())
	if err == nil {
		err = os.Chtimes(to.Name(), info.ModTime(), info.ModTime())
	}
	if err == nil {
		err = fsat.Exchange(unix.AT_FDCWD, to.Name(), unix.AT_FDCWD, f.Path) // nothing, if gc has removed it
		if err == unix.EINVAL {                                              // NFS
			return os.Rename(to.Name(), f.Path)
		}
	}
	return errors.Join(unlessAbsent(err), os.Remove(to.Name()))
}

// noteApart notes in the list that no other file of these is in the root.
func (r *Run) noteApart(files string) error {
	if r.List.file == "" {
		return nil
	}
	unlock, err := lock(r.state)
	if err != nil {
		return err
	}
	defer unlock()
	l, err := openList(r.List.root, r.List.file, nil)
	if err != nil {
		return err
	}
	l.apart, l.dirty = files, true
	return l.save()
}
