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
	others, devs := map[[2]uint64]string{}, map[uint64]bool{}
	inodes := map[uint64]bool{} // the kernel tells these for each name
	for _, f := range files {
		devs[f.at[0]], inodes[f.at[1]] = true, true
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	dirs := []string{"."}
	for n := 0; len(dirs) > 0; n++ {
		if n == maxDirs {
			return nil, fmt.Errorf("there are more than %d directories in %q", maxDirs, l.root)
		}
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		fd, err := fsat.Kernel().Open(top, dir, flags, 0, fsat.NoLinks)
		if err == unix.EACCES {
			fd, err = l.openClosed(dir, flags)
		}
		if fsat.Absent(err) || err == unix.ENAMETOOLONG || err == errClosed {
			continue // no command can enter it either
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: l.absolute(dir), Err: err}
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && devs[st.Dev] {
			err = fsat.Each(fd, func(e fsat.Entry) error {
				name := path.Join(dir, e.Name)
				if (e.Type == unix.DT_DIR || e.Type == unix.DT_UNKNOWN) && !slices.Contains(covered, l.absolute(name)) {
					dirs = append(dirs, name)
				}
				if inodes[e.Ino] && e.Type != unix.DT_DIR {
					if st, err := fsat.Lstat(fd, e.Name); err == nil {
						others[[2]uint64{st.Dev, st.Ino}] = l.absolute(name)
					}
				}
				return nil
			})
		}
		unix.Close(fd)
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: l.absolute(dir), Err: err}
		}
	}
	return others, nil
}

// openClosed opens a directory below the root that the user has closed, until shut.
func (l *List) openClosed(dir string, flags int) (int, error) {
	if !writable(l.absolute(dir)) {
		return -1, errClosed
	}
	fd, err := l.open(l.absolute(dir))
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return fsat.Reopen(fd, flags)
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
		err = gitlock.Replace(f.Path, content, time.Unix(st.Mtim.Unix()))
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
