package gitland

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// lfsDir holds the files of Git LFS, as AA/BB/AABB...: the name is the SHA-256 of the
// content. git-lfs writes a file elsewhere and gives it its name when it is whole.
const lfsDir = "lfs/objects"

const (
	maxLFS = 1 << 20 // files of one landing

	// leastLFS is how many bytes are read beyond those that the files occupy: they can have
	// holes, and several names.
	leastLFS = 4 << 30
)

var errTooMuch = errors.New("there is too much for one landing")

// landLFS lands the files of Git LFS that the host does not have. Their commits land
// after them, so the host can check these out.
func (r *repository) landLFS(upper int, out *landed) error {
	top, err := fsat.Kernel().Open(upper, lfsDir, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err == unix.EACCES {
		return err
	}
	if err != nil {
		return nil // none, or no directory
	}
	defer unix.Close(top)
	host, err := fsat.Openat(unix.AT_FDCWD, r.host, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(host)
	seen := 0
	err = lfsFiles(top, "", func(dir int, id string) error {
		name := path.Join(lfsDir, id[:2], id[2:4], id)
		if st, err := fsat.Lstat(host, name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return nil
		}
		st, err := fsat.Lstat(dir, id)
		if err != nil {
			return nil
		}
		version := fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim)
		occupied := min(st.Size, st.Blocks*512) / int64(max(1, st.Nlink))
		switch seen++; {
		case r.badLFS[id] == version:
			err = errNotItsName
		case seen > maxLFS || st.Size > r.leftLFS+occupied:
			return errTooMuch
		default:
			r.leftLFS += occupied - st.Size
			if err = landLFSFile(dir, id, host); errors.Is(err, errNotItsName) {
				r.badLFS[id] = version
			}
		}
		switch {
		case err == nil:
		case st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Mode&unix.S_IFMT != unix.S_IFREG:
			out.drop("%q: %v", name, err)
		default:
			out.stay(path.Join(r.rel, name), "%q: %v", name, err)
		}
		return nil
	})
	if err == errTooMuch {
		out.stay(path.Join(r.rel, lfsDir), "%q: %v", lfsDir, err)
		err = nil
	}
	return err
}

var errNotItsName = errors.New("its content does not match its name")

// lfsFiles calls fn with each name of a file of LFS in a directory of the layer, and in
// those below it. prefix is the beginning of these names, of two digits for each level.
func lfsFiles(dir int, prefix string, fn func(dir int, id string) error) error {
	return fsat.Each(dir, func(e fsat.Entry) error {
		switch hexadecimal := strings.Trim(e.Name, "0123456789abcdef") == ""; {
		case !hexadecimal || e.Type == unix.DT_CHR: // a whiteout
			return nil
		case len(prefix) == 4 && len(e.Name) == 2*sha256.Size && strings.HasPrefix(e.Name, prefix):
			return fn(dir, e.Name)
		case len(prefix) < 4 && len(e.Name) == 2:
			sub, err := fsat.Kernel().Open(dir, e.Name, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
			if err == unix.EACCES {
				return err
			}
			if err != nil {
				return nil
			}
			defer unix.Close(sub)
			return lfsFiles(sub, prefix+e.Name, fn)
		}
		return nil
	})
}

// landLFSFile copies a file, so that no process that has it open can change it any more,
// and publishes the copy if its content has this name.
func landLFSFile(dir int, id string, host int) error {
	seen, err := fsat.Openat(dir, id, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	from, _, err := overlay.Open(seen)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := makeDirs(host, path.Join(lfsDir, id[:2], id[2:4]))
	if err != nil {
		return err
	}
	defer unix.Close(to)
	temp := ".pk-" + id
	_ = unix.Unlinkat(to, temp, 0) // of a process that was killed
	fd, err := fsat.Openat(to, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return err
	}
	copied := &sparse{File: os.NewFile(uintptr(fd), temp)}
	sum := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(copied, sum), struct{ io.Reader }{from}, make([]byte, 128<<10))
	if err = errors.Join(err, copied.Close()); err == nil && hex.EncodeToString(sum.Sum(nil)) != id {
		err = errNotItsName
	}
	if err == nil {
		if err = fsat.RenameFresh(to, temp, to, id); err == unix.EEXIST {
			err = nil
		}
	}
	_ = unix.Unlinkat(to, temp, 0)
	return err
}

// sparse leaves holes for zeros: a file with a large hole would fill the disk.
type sparse struct {
	*os.File
	size int64
}

func (s *sparse) Write(b []byte) (n int, err error) {
	if len(bytes.TrimLeft(b, "\x00")) > 0 {
		n, err = s.WriteAt(b, s.size)
	} else {
		n = len(b)
	}
	s.size += int64(n)
	return n, err
}

func (s *sparse) Close() error { return errors.Join(s.Truncate(s.size), s.File.Close()) }

// makeDirs opens a directory below an open one of the host's, through no link. It makes
// those that are missing, with the permissions of the one above.
func makeDirs(top int, name string) (int, error) {
	dir, err := fsat.Reopen(top, unix.O_PATH)
	for part := range strings.SplitSeq(name, "/") {
		if err != nil {
			return -1, err
		}
		above := dir
		dir, err = fsat.Kernel().Open(above, part, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
		if err == unix.ENOENT {
			var st unix.Stat_t
			if err = unix.Fstat(above, &st); err == nil {
				err = unix.Mkdirat(above, part, st.Mode&0o777)
			}
			if err == nil || err == unix.EEXIST {
				dir, err = fsat.Kernel().Open(above, part, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
			}
			if err == nil && st.Mode&unix.S_ISGID != 0 { // shared: against the umask
				_ = fsat.Chmod(dir, st.Mode&0o7777)
			}
		}
		unix.Close(above)
	}
	return dir, err
}
