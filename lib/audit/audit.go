// Package audit appends records of the commands of pk to a file, and checks whether
// the file is whole.
//
// Each record is a line of JSON with the SHA-256 of the line before. A second file, with
// .head at the end of its name, has the place and the hash of the last line, and so shows
// a cut at the end. No sandbox can reach either. A process of the same user outside of any
// sandbox can write both anew.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/passwd"
	"pikuri/lib/session"
)

// headSuffix ends the name of the file about the last record.
const headSuffix = ".head"

// Log is a file that records are appended to, by any number of processes. The nil Log
// drops them.
type Log struct {
	name          string
	trail         confine.Trail
	program, user string
	uid           int

	// above are the file and the directories above it, as root finds them; see CheckOutside.
	above []unix.Stat_t

	mu         sync.Mutex
	file, head *os.File
	inside     error // a command would see it; nil if none does
}

// Open opens the file called name for the records of program, and makes it if it is
// missing; the name "" is for no file. It refuses a file that another user could have put
// there, and a file with other content than records. It makes none in one of the roots that
// the caller knows already; see CheckOutside.
func Open(program, name string, roots []string) (*Log, error) {
	if name == "" {
		return nil, nil
	}
	trail, err := confine.Follow(name)
	if err != nil {
		return nil, unusable(name, err)
	}
	l := &Log{name: name, trail: trail, program: program, uid: os.Getuid()}
	if root, inside := trail.LiesIn(roots); inside {
		return nil, l.Within(fmt.Sprintf("%q", root))
	}
	l.user = passwd.Find(passwd.Users, l.uid).Name
	if err := l.open(); err != nil {
		l.Close()
		return nil, unusable(name, err)
	}
	return l, nil
}

func (l *Log) open() error {
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, path.Dir(l.trail.Place), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if err := own(&st); err != nil {
		return fmt.Errorf("its directory %w", err)
	}
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NOCTTY
	if l.file, err = openOwn(dir, path.Base(l.trail.Place), flags|unix.O_APPEND); err != nil {
		return err
	}
	isNew, err := checkBegin(l.file)
	if err != nil {
		return err
	}
	if l.head, err = openOwn(dir, path.Base(l.trail.Place)+headSuffix, flags); err == nil {
		err = checkHead(l.head, isNew)
	}
	if err != nil {
		return fmt.Errorf("its %s file: %w", headSuffix, err)
	}
	return l.look()
}

// look remembers which files are above: root cannot look at its own directories any more
// once it has become the owner of a project.
func (l *Log) look() error {
	for at := l.trail.Place; at != "/"; at = path.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return err
		}
		l.above = append(l.above, st)
	}
	return nil
}

// recordBegins is how each record begins, a torn one too.
const recordBegins = `{"time":"`

// checkBegin refuses a file that begins otherwise than records do. A shell would run
// commands that are appended to its start-up file.
func checkBegin(f *os.File) (isNew bool, err error) {
	text := make([]byte, len(recordBegins))
	n, err := f.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	if !strings.HasPrefix(recordBegins, string(text[:n])) {
		return false, errors.New("it has other content than records")
	}
	return n == 0, nil
}

// checkHead refuses a file that another user can open: flock(2) needs no more, and all
// commands would wait. Beside a new log it refuses a file that is not a head, and would be
// written over.
func checkHead(f *os.File, isNew bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&0o044 != 0 {
		return errors.New("it can be read by others, who could lock it: chmod go-r")
	}
	if _, ok := readHead(f); isNew && info.Size() > 0 && !ok {
		return errors.New("it has other content than the number and the hash of a record")
	}
	return nil
}

// openOwn opens a regular file with one name that no other user can write.
func openOwn(dir int, name string, flags int) (*os.File, error) {
	fd, err := fsat.Openat(dir, name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = own(&st)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("it %w", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("it is not a regular file")
	case st.Nlink != 1:
		err = fmt.Errorf("it has %d hard links", st.Nlink)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// own refuses a file that another user than root and the caller can write. In a sticky directory
// another user can be the first to make the file.
func own(st *unix.Stat_t) error {
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to uid %d", st.Uid)
	case st.Mode&0o022 != 0:
		return errors.New("can be written by others: chmod go-w")
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() {
	if l != nil {
		l.file.Close() // nil can be closed
		l.head.Close()
	}
}

// Name returns the name of the file as it was given, and Place where that leads.
func (l *Log) Name() string { return l.name }

// Place returns where the name of the file leads, without symbolic links.
func (l *Log) Place() string { return l.trail.Place }

// CheckOutside refuses a file that lies in one of the roots, or among the session
// directories, where layers of overlays are. A root can have another name
// where it is bind-mounted, so the directories above the file are compared with it by inode.
func (l *Log) CheckOutside(roots []confine.Root) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.inside = nil
	l.mu.Unlock()
	var paths []string
	for _, r := range roots {
		paths = append(paths, r.Path)
	}
	if base, err := session.Base(os.Getenv); err == nil {
		t, _ := confine.Follow(base) // as far as it can be followed
		paths = append(paths, t.Place)
	}
	root, inside := l.trail.LiesIn(paths)
	for n, at := 0, l.trail.Place; !inside && at != "/"; n, at = n+1, path.Dir(at) {
		st := l.above[n]
		if err := unix.Lstat(at, &st); err != nil && err != unix.EACCES {
			return fmt.Errorf("cannot use audit file %q: %w", l.name, err)
		}
		for _, r := range roots {
			if r.Is(&st) {
				root, inside = r.Path, true
			}
		}
	}
	if inside {
		return l.Within(fmt.Sprintf("%q", root))
	}
	return nil
}

// Within is the error that a command could read or change the file, since it lies in where.
// Nothing is written to it until CheckOutside finds it outside again.
func (l *Log) Within(where string) error {
	err := &refusal{fmt.Errorf("cannot use audit file %q: it lies in %s", l.name, where), "keep it where no command can see it"}
	l.mu.Lock()
	l.inside = err
	l.mu.Unlock()
	return err
}

// unusable is the error of a file that cannot be opened, or must not be trusted.
func unusable(name string, err error) error {
	hint := "name a file of your own, in a directory that others cannot write"
	if errors.Is(err, os.ErrNotExist) { // a missing file is made
		hint = "make its directory first"
	}
	return &refusal{fmt.Errorf("cannot use audit file %q: %w", name, err), hint}
}

type refusal struct {
	error
	hint string
}

func (r *refusal) Unwrap() error { return r.error }
func (r *refusal) Hint() string  { return r.hint }

// end is where the chain of records ends.
type end struct {
	seq  uint64 // of the last record; 0 for none
	hash string // of the last line
	size int64  // of the file
}

// origin is the end of an empty file.
var origin = end{hash: strings.Repeat("0", 64)}

// Append writes a record and returns its number. Once it returns, the kernel has the whole
// record. Append does not wait for the disk.
func (l *Log) Append(r Record) (seq uint64, err error) {
	if l == nil {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside != nil && r.Event == Refused {
		return 0, nil // the caller reports the cause itself
	}
	if l.inside != nil {
		return 0, l.inside
	}
	if err = flock(l.head, unix.LOCK_EX); err == nil { // others may read the log
		defer flock(l.head, unix.LOCK_UN)
		var last end
		if last, err = l.mended(); err == nil {
			last, err = l.write(last, r)
			seq = last.seq
		}
	}
	if e, ok := errors.AsType[*os.PathError](err); ok { // it has the name already
		err = e.Err
	}
	if err != nil {
		return 0, fmt.Errorf("cannot write to audit file %q: %w", l.name, err)
	}
	return seq, nil
}

func flock(f *os.File, how int) error {
	_, err := fsat.Again(func() (int, error) { return 0, unix.Flock(int(f.Fd()), how) })
	return err
}

// mended returns the end of the chain. If the last writer was killed, or the file was cut,
// it writes a record of that first. Nothing is removed: the file can be append-only.
func (l *Log) mended() (end, error) {
	size, err := sizeOf(l.file)
	if err != nil {
		return end{}, err
	}
	known, ok := readHead(l.head)
	switch {
	case ok && known.size == size:
		return known, nil
	case !ok && size == 0:
		return origin, l.writeHead(origin)
	}
	last, err := readTail(l.file, size)
	if err != nil {
		return end{}, err
	}
	remark := Record{Event: Torn, Error: "the line before is incomplete: the disk was full, or its writer was killed"}
	switch {
	case !ok:
		remark = Record{Event: Gap, Error: "no valid " + headSuffix + " file was there: records before this one may be missing"}
	case known.size > size || known.seq > last.seq && last.whole:
		remark = Record{Event: Gap, Error: fmt.Sprintf("the file ended with record %d, and record %d had been written", last.seq, known.seq)}
	case last.whole && known.seq == last.seq: // it was changed, and the next record must not follow on it
		last.hash = known.hash
		return last.end, nil
	case last.whole:
		return last.end, nil // its writer was killed before it wrote the head
	}
	last.seq = max(last.seq, known.seq)
	if !last.terminated {
		if _, err := l.file.Write([]byte("\n")); err != nil {
			return end{}, err
		}
		last.size++
	}
	return l.write(last.end, remark)
}

// write appends one record to the chain.
func (l *Log) write(last end, r Record) (end, error) {
	r.Time, r.Seq, r.Prev = time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"), last.seq+1, last.hash
	r.Program, r.UID, r.User, r.Pid = l.program, l.uid, l.user, os.Getpid()
	line, err := r.encode()
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		return end{}, err
	}
	last = end{r.Seq, hash(line), last.size + int64(len(line)) + 1}
	return last, l.writeHead(last)
}

// writeHead writes in place, in one piece: a full disk could cut off a new
// file.
func (l *Log) writeHead(e end) error {
	_, err := l.head.WriteAt(fmt.Appendf(nil, headFormat, e.seq, e.hash, e.size), 0)
	return err
}

const headFormat = "%020d %s %020d\n"

// readHead reports whether there is a valid head.
func readHead(f *os.File) (e end, ok bool) {
	text := make([]byte, len(fmt.Sprintf(headFormat, 0, origin.hash, 0)))
	if _, err := f.ReadAt(text, 0); err != nil {
		return end{}, false
	}
	n, _ := fmt.Sscanf(string(text), "%d %s %d", &e.seq, &e.hash, &e.size)
	return e, n == 3
}

// sizeOf returns the size of the file. It refuses a file without a name, which no reader would
// find, and one with two.
func sizeOf(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	if st.Nlink != 1 {
		return 0, fmt.Errorf("it was removed, or has another name: it has %d hard links", st.Nlink)
	}
	return st.Size, nil
}

// tail is the end of a file without a valid head.
type tail struct {
	end             // seq is that of the last valid record
	whole      bool // the last line is a valid record
	terminated bool // it ends in a newline
}

func readTail(f *os.File, size int64) (tail, error) {
	text := make([]byte, min(size, maxLine))
	if _, err := f.ReadAt(text, size-int64(len(text))); err != nil && err != io.EOF {
		return tail{}, err
	}
	if size == 0 {
		return tail{origin, true, true}, nil
	}
	t := tail{end: end{size: size}, terminated: text[len(text)-1] == '\n'}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	t.hash = hash(lines[len(lines)-1])
	for i, line := range slices.Backward(lines) {
		if link, ok := parse(line); ok {
			t.seq, t.whole = link.Seq, t.terminated && i == len(lines)-1
			break
		}
	}
	return t, nil
}

// link is the part of a record that makes the chain.
type link struct {
	Seq   uint64
	Prev  string
	Event Event
}

func parse(line []byte) (l link, ok bool) {
	err := json.Unmarshal(line, &l)
	return l, err == nil && l.Seq > 0
}
