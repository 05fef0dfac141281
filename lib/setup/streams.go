package setup

import (
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// reopened is standard input of the caller's, and the same file on a read-only mount of its own. Both begin at one offset.
type reopened struct {
	caller, own int
	at          int64
}

// readOnly opens a regular file that the caller opened for reading anew, from a read-only mount: through
// /proc/self/fd, the command could open the caller's for writing. It returns the caller's if the file has no name
// here; then the command needs the file's permissions for that.
func (r *run) readOnly(fd int) int {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	var st unix.Stat_t
	if err != nil || flags&(unix.O_ACCMODE|unix.O_PATH) != unix.O_RDONLY || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fd
	}
	name, err := os.Readlink(fsat.Path(fd))
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
	own, err := fsat.Openat(unix.AT_FDCWD, fsat.Path(mount), unix.O_RDONLY|flags&unix.O_NONBLOCK, 0)
	if err != nil {
		return fd
	}
	at := offset(fd)
	_, _ = unix.Seek(own, at, unix.SEEK_SET)
	r.input = &reopened{dup(fd), own, at}
	return own
}

func offset(fd int) int64 {
	at, _ := unix.Seek(fd, 0, unix.SEEK_CUR)
	return at
}

// moveOn moves the caller's file to where the command's is: a script reads on there. If the caller has moved it
// meanwhile, it stays.
func (r *run) moveOn() {
	f := r.input
	if f == nil {
		return
	}
	if now := offset(f.own); now != f.at && offset(f.caller) == f.at {
		_, _ = unix.Seek(f.caller, now, unix.SEEK_SET)
	}
	unix.Close(f.own)
	unix.Close(f.caller)
	r.input = nil
}
