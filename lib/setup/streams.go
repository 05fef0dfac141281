package setup

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// reopened is a file of the caller's, and the same on a read-only mount of its own.
type reopened struct{ caller, own int }

// readOnly opens a regular file that the caller opened for reading anew, from a read-only mount: through
// /proc/self/fd, the command could open the caller's for writing. It returns the caller's if the file has no name
// here; then the command needs the file's permissions for that.
func (r *run) readOnly(fd int) int {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	var st unix.Stat_t
	if err != nil || flags&(unix.O_ACCMODE|unix.O_PATH) != unix.O_RDONLY || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fd
	}
	link := "/proc/self/fd/" + strconv.Itoa(fd)
	name, err := os.Readlink(link)
	if err != nil {
		return fd
	}
	seen, err := Inode{Path: name, Dev: st.Dev, Ino: st.Ino}.open(name)
	if err != nil {
		return fd
	}
	defer unix.Close(seen)
	mount, err := clone(seen, ReadOnly)
	if err != nil {
		return fd
	}
	defer unix.Close(mount)
	own, err := fsat.Openat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(mount), unix.O_RDONLY|flags&unix.O_NONBLOCK, 0)
	if err != nil {
		return fd
	}
	follow(fd, own)
	r.reopened = append(r.reopened, reopened{dup(fd), own})
	return own
}

// follow moves a file to where another one is.
func follow(from, to int) {
	if at, err := unix.Seek(from, 0, unix.SEEK_CUR); err == nil {
		_, _ = unix.Seek(to, at, unix.SEEK_SET)
	}
}

// moveOn moves the caller's files to where the command's are: a script reads on there.
func (r *run) moveOn() {
	for _, f := range r.reopened {
		follow(f.own, f.caller)
		unix.Close(f.own)
		unix.Close(f.caller)
	}
	r.reopened = nil
}
