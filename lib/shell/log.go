package shell

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"

	sessions "pikuri/lib/session"
)

// Limits of logs. A command that writes without end must not fill the disk.
const (
	MaxLog  = 64 << 20  // bytes in one
	maxLogs = 512 << 20 // bytes in the logs of one session: the oldest go first
)

// Log is the file that keeps an output. It is made when there is something to
// keep that is not kept in memory.
type Log struct {
	open func() (*os.File, error)
	most int64

	early []byte // until the file is made
	wait  int    // how much that may be
	file  *os.File
	seen  int64
	err   error
}

// NewLog makes a log that calls open as soon as it has got more than wait bytes,
// and keeps the first most. If memory holds all of the output in the end, the log is
// removed.
func NewLog(wait int, most int64, open func() (*os.File, error)) *Log {
	return &Log{open: open, wait: wait, most: most}
}

// NewLogFile makes a log of an open file.
func NewLogFile(most int64, file *os.File) *Log { return &Log{file: file, most: most} }

func (l *Log) write(p []byte) {
	at := l.seen
	l.seen += int64(len(p))
	if l.file == nil && l.seen <= int64(l.wait) {
		l.early = append(l.early, p...)
		return
	}
	l.start()
	l.put(p, at)
}

// start makes the file and writes the text that came before.
func (l *Log) start() {
	if l.file != nil || l.err != nil {
		return
	}
	if l.file, l.err = l.open(); l.err == nil {
		l.put(l.early, 0)
	}
	l.early = nil
}

// put writes p, which begins at byte at of the output, as far as it fits.
func (l *Log) put(p []byte, at int64) {
	if l.err != nil {
		return
	}
	if room := l.most - at; int64(len(p)) > room {
		p = p[:max(0, room)]
	}
	if len(p) > 0 {
		_, l.err = l.file.Write(p)
	}
}

// capped reports whether there was more than the log holds.
func (l *Log) capped() bool { return l.seen > l.most }

// close returns the name of the log, "" if there is none. cut tells whether bytes
// are missing from the kept text.
func (l *Log) close(cut bool) (string, error) {
	if cut {
		l.start()
	}
	if l.file == nil {
		return "", l.err
	}
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	if l.open != nil && !cut {
		_ = os.Remove(l.file.Name())
		return "", nil
	}
	return l.file.Name(), l.err
}

// OpenLog makes a new log in a session directory. A command without a sandbox can put
// links there, and none is followed.
func OpenLog(session string) (*os.File, error) {
	dir, err := openDirAt(unix.AT_FDCWD, session)
	if err != nil {
		return nil, fmt.Errorf("cannot open session directory %q: %w", session, err)
	}
	defer unix.Close(dir)
	path := filepath.Join(session, sessions.LogDir)
	if err := sessions.MakeDir(dir, sessions.LogDir); err != nil {
		return nil, fmt.Errorf("cannot make %q: %w", path, err)
	}
	logs, err := openDirAt(dir, sessions.LogDir)
	if err != nil {
		return nil, fmt.Errorf("cannot open %q: %w", path, err)
	}
	defer unix.Close(logs)
	prune(logs, maxLogs-MaxLog)
	name := time.Now().UTC().Format("20060102T150405Z-") + strings.ToLower(rand.Text()[:8]) + logSuffix
	fd, err := unix.Openat(logs, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot make a log in %q: %w", path, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(path, name)), nil
}

const logSuffix = ".out"

// openDirAt opens a directory of the user's own, and no link to one.
func openDirAt(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && int(st.Uid) != os.Geteuid() {
		err = fmt.Errorf("it belongs to user %d", st.Uid)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// prune removes the oldest logs until the rest has room bytes. It ignores errors: a
// log that cannot be removed stays.
func prune(logs int, room int64) {
	fd, err := unix.Dup(logs)
	if err != nil {
		return
	}
	dir := os.NewFile(uintptr(fd), sessions.LogDir)
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) }) // newest first
	for _, name := range names {
		var st unix.Stat_t
		if !strings.HasSuffix(name, logSuffix) || unix.Fstatat(logs, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		if room -= st.Size; room < 0 {
			_ = unix.Unlinkat(logs, name, 0)
		}
	}
}

// CreateLog makes, or empties, a log of the user's own choice. It is a plain
// file: a FIFO would wait, and a link that another process put there would lead
// elsewhere.
func CreateLog(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.ELOOP) {
		err = errors.New("it is a link")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the log %q: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("it is not a file")
	case st.Nlink > 1:
		err = errors.New("it has other names")
	default:
		err = unix.Ftruncate(fd, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot make the log %q: %w", path, err)
	}
	return f, nil
}

// PlainIn checks that no link in a root is on the way to a path, and that the file there, if there is one,
// has no other name. If opened is not nil, it has to be that file.
func PlainIn(root, path string, opened *os.File) error {
	above, err := canonicalIn(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, above, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err == unix.ELOOP {
		return fmt.Errorf("a directory in %q on the way to it is a link", root)
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	st, err := fsat.Lstat(dir, filepath.Base(path))
	if err == unix.ENOENT && opened == nil {
		return nil
	}
	if err != nil {
		return err
	}
	var is unix.Stat_t
	if opened != nil {
		if err := unix.Fstat(int(opened.Fd()), &is); err != nil {
			return err
		}
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return errors.New("it is a link")
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1:
		return errors.New("it has other names")
	case opened != nil && (is.Dev != st.Dev || is.Ino != st.Ino):
		return errors.New("another file has taken its place")
	}
	return nil
}

// canonicalIn resolves the links of a path that come before a root, and leaves those in it.
func canonicalIn(root, path string) (string, error) {
	for at := range len(path) + 1 {
		if at == 0 || at < len(path) && path[at] != '/' {
			continue
		}
		above, err := filepath.EvalSymlinks(path[:at])
		if err != nil {
			return "", err
		}
		if fsat.Within(above, root) {
			return above + path[at:], nil
		}
	}
	return path, nil
}

// size formats a number of bytes for people.
func size(n int64) string {
	for _, unit := range []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.n && n%unit.n == 0 {
			return fmt.Sprintf("%d %s", n/unit.n, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
