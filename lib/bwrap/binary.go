package bwrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// trustedDirs hold the programs that pk itself starts outside the sandbox. PATH is not
// used: it may name a directory that an agent can write.
var trustedDirs = []string{"/usr/bin", "/bin", "/usr/local/bin"}

// Binary is a bwrap that may be started.
type Binary struct {
	Path string // absolute
	own  bool   // the caller owns it, and it is bwrap itself
}

// Copy returns a sealed copy in memory of a bwrap that the caller owns, or nil. The
// sandbox's init runs bwrap. Without a copy the command inside, which has the same uid,
// could change the mode of the file on the host through /proc/1/exe. For root that would
// be the bwrap of all users.
func (b Binary) Copy() (*os.File, error) {
	if !b.own {
		return nil, nil
	}
	program, err := fsat.ReadFile(b.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot copy bwrap: %w", err)
	}
	fd, err := fsat.Memfd("pk-bwrap", program)
	if err != nil {
		return nil, fmt.Errorf("cannot copy bwrap: %w", err)
	}
	f := os.NewFile(uintptr(fd), "bwrap")
	if err := f.Chmod(0o500); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot copy bwrap: %w", err)
	}
	return f, nil
}

// FindBinary returns the bwrap at path, or with path "" the first root-owned one in
// /usr/bin, /bin, /usr/local/bin. It refuses a bwrap below a writable root: a command
// could replace it, and the next run would start its program.
func FindBinary(path string, writable []string) (Binary, error) {
	if path == "" {
		if path = FindTrusted("bwrap"); path == "" {
			return Binary{}, &Unavailable{
				Reason: "cannot find bwrap in /usr/bin, /bin or /usr/local/bin",
				Advice: "install it: " + installLine(),
			}
		}
	}
	real, err := checkBinary(path)
	if err != nil {
		return Binary{}, err
	}
	for _, root := range writable {
		if fsat.Within(real, root) {
			return Binary{}, &Refusal{
				Reason: fmt.Sprintf("cannot use bwrap %q: it lies under the writable root %q", path, root),
				Advice: "name one outside with --bwrap PATH",
			}
		}
	}
	var st unix.Stat_t
	owned := unix.Stat(real, &st) != nil || int(st.Uid) == os.Geteuid()
	return Binary{Path: real, own: owned && isBwrap(real)}, nil
}

// isBwrap tells bwrap from a wrapper, which must be started by its name.
func isBwrap(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	option := []byte("--unshare-user")
	buf := make([]byte, 128<<10) // not the whole: a wrapper may have megabytes
	n, err := io.ReadFull(f, buf)
	if !bytes.HasPrefix(buf, []byte("\x7fELF")) {
		return false
	}
	for !bytes.Contains(buf[:n], option) {
		if err != nil {
			return false
		}
		kept := copy(buf, buf[n-len(option):n])
		n, err = io.ReadFull(f, buf[kept:])
		n += kept
	}
	return true
}

// checkBinary resolves path and refuses a file that others could have replaced. It
// refuses a setuid bwrap too: that has no overlays and cannot forbid nested user
// namespaces, and it is one more program that runs as root.
func checkBinary(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(abs, &st)
	}
	if err != nil {
		return "", &Refusal{Reason: fmt.Sprintf("cannot use bwrap %q: %v", path, cause(err)), Advice: "name one with --bwrap PATH"}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Access(abs, unix.X_OK) != nil:
		return "", &Refusal{Reason: fmt.Sprintf("cannot use bwrap %q: not an executable file", path), Advice: "name one with --bwrap PATH"}
	case st.Mode&unix.S_ISUID != 0:
		return "", &Refusal{Reason: fmt.Sprintf("cannot use bwrap %q: it is setuid", path), Advice: fmt.Sprintf("chmod u-s %s", abs)}
	case st.Mode&0o022 != 0, st.Uid != systemOwner() && int(st.Uid) != os.Geteuid():
		return "", &Refusal{Reason: fmt.Sprintf("cannot use bwrap %q: others may change it", path), Advice: "name one that belongs to root with --bwrap PATH"}
	}
	return abs, nil
}

// FindTrusted returns the first program of that name that the system's owner
// owns and no other user may write, or "".
func FindTrusted(name string) string {
	owner := systemOwner()
	for _, dir := range trustedDirs {
		path := filepath.Join(dir, name)
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Uid == owner && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o022 == 0 && st.Mode&0o111 != 0 {
			return path
		}
	}
	return ""
}

// systemOwner is root, or the ID that stands for root inside a user namespace
// that does not map it: a sandbox of pk's own, where /usr is read-only.
func systemOwner() uint32 {
	var st unix.Stat_t
	if unix.Stat("/usr", &st) != nil || int(st.Uid) == os.Geteuid() {
		return 0
	}
	return st.Uid
}

// installers of bwrap, by the file that identifies the package manager.
var installers = []struct{ file, line string }{
	{"/usr/bin/apt-get", "apt-get install bubblewrap"},
	{"/usr/bin/dnf", "dnf install bubblewrap"},
	{"/usr/bin/pacman", "pacman -S bubblewrap"},
	{"/usr/bin/zypper", "zypper install bubblewrap"},
	{"/sbin/apk", "apk add bubblewrap"},
}

func installLine() string {
	for _, i := range installers {
		if _, err := os.Stat(i.file); err == nil {
			return i.line
		}
	}
	return "the package is called bubblewrap"
}

// cause strips the operation and path, which the caller's message names already.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
