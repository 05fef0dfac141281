// Package quarantine takes files out of a project that a command put at protected
// names, where a tool on the host would run them.
//
// Before a command starts, Begin writes a note and holds a lock on it. The note lists
// the protected names at which there is nothing, the links and the files with several
// hard links among them, and the modes of their directories. End moves away the files
// that have appeared or changed there, restores links, files and modes, and removes the
// note. If the monitor is killed, its note stays. The set-up program of its sandbox then
// starts DisarmMode, which does the part of the work that keeps the host safe. Each command that
// runs a sandbox calls Recover before it looks at protected names, and so does pk-sweep:
// Recover does the work of notes that no process has locked.
package quarantine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitland"
	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
	"pikuri/lib/session"
)

// Note lists the work to do when a command has ended.
type Note struct {
	Names   []string `json:"names,omitempty"` // absolute paths at which there was nothing
	Files   []string `json:"files,omitempty"` // of Names: a directory there does no harm
	Ways    []string `json:"ways,omitempty"`  // of Files: nor does a file, unless it says where a repository is
	Links   []Link   `json:"links,omitempty"`
	Modes   []Mode   `json:"modes,omitempty"`
	Linked  []Linked `json:"linked,omitempty"`
	Session string   `json:"session"` // name of the session directory that files are moved to

	// Tmp is the session directory without a name whose session tmp goes with the command, or "".
	Tmp string `json:"tmp,omitempty"`

	Layers []*gitland.Layer `json:"layers,omitempty"` // whose work lands

	// Unlock are git directories in which pk-apply locks files.
	Unlock []string `json:"unlock,omitempty"`

	// Had are the repositories of earlier commands that this one, or one beside it, has back: they
	// have been told.
	Had []string `json:"had,omitempty"`

	// Done has been done already by a process that was killed, or is about to report it.
	Done Report `json:"done,omitzero"`

	// Above are directories above the names that were missing too: a command can put a file
	// in the place of one. Behind are the links above the names, which were there.
	Above  []string `json:"above,omitempty"`
	Behind []string `json:"behind,omitempty"`

	base  string         // without links; "" if there is none
	path  string         // of the note
	file  *os.File       // locked
	again bool           // its command was killed: a part of the work may be done
	until *unix.Timespec // the end of the sandbox, if a killed monitor's set-up program noted it
}

// Link is a symbolic link that a command can replace.
type Link struct{ Path, Target string }

// Empty reports whether nothing remains to be done.
func (n *Note) Empty() bool {
	return len(n.Names)+len(n.Links)+len(n.Modes)+len(n.Layers)+len(n.Linked) == 0 && n.Tmp == ""
}

// Lock is the locked note, or nil. A process that inherits it keeps others from
// carrying out the note. The set-up program holds it until the sandbox has ended, and
// then takes the permission to write away from the note: its ctime is the time of
// the end.
func (n *Note) Lock() *os.File {
	if n == nil {
		return nil
	}
	return n.file
}

// Mode is a directory that holds protected files, or may come to. A command can change its
// mode, and another user could then replace them.
type Mode struct {
	Path     string `json:"path"`
	Mode     uint32 `json:"mode"`
	Dev, Ino uint64
}

// ModeOf notes the mode of a directory.
func ModeOf(path string) (Mode, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return Mode{path, st.Mode & 0o7777, st.Dev, st.Ino}, err
}

// Names in the base, the directory of session directories.
const (
	journal = "journal"
	unready = ".new-" // begins the name of a note that is being written
)

// Begin writes a note into the journal of a base, which exists.
func Begin(base string, n Note) (*Note, error) {
	base, err := trusted(base)
	if err != nil {
		return nil, err
	}
	missing, links := above(n.Names)
	n.Above, n.Behind, n.base = append(n.Above, missing...), append(n.Behind, links...), base
	dir := filepath.Join(base, journal)
	if err := session.MakeDir(unix.AT_FDCWD, dir); err != nil {
		return nil, fmt.Errorf("cannot make the journal: %w", err)
	}
	text, err := bytejson.Marshal(&n)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	name := rand.Text()
	temporary := filepath.Join(dir, unready+name)
	fd, err := unix.Open(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write to the journal: %w", err)
	}
	n.file, n.path = os.NewFile(uintptr(fd), temporary), filepath.Join(dir, name)
	if err = unix.Flock(fd, unix.LOCK_EX); err == nil {
		_, err = n.file.Write(text)
	}
	if err == nil {
		err = os.Rename(temporary, n.path)
	}
	if err != nil {
		n.file.Close()
		return nil, fmt.Errorf("cannot write to the journal: %w", errors.Join(err, os.Remove(temporary)))
	}
	return &n, nil
}

// above lists the missing directories above names, and the outermost links there.
func above(names []string) (missing, links []string) {
	w := ways{}
	for _, name := range names {
		if at := w.to(filepath.Dir(name)); at.isLink && !slices.Contains(links, at.blocked) {
			links = append(links, at.blocked)
		}
	}
	for dir, at := range w {
		if at.missing {
			missing = append(missing, dir)
		}
	}
	return missing, links
}

// ways remembers the state of directories above names: many names share them.
type ways map[string]way

type way struct {
	blocked string // the outermost file or link that is in the place of a directory, or ""
	isLink  bool
	missing bool
}

// to returns the way to a directory.
func (w ways) to(dir string) way {
	if known, ok := w[dir]; ok || dir == "/" {
		return known
	}
	at := w.to(filepath.Dir(dir))
	if at == (way{}) {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			at.missing = true
		case err == nil && !info.IsDir():
			at.blocked, at.isLink = dir, info.Mode()&os.ModeSymlink != 0
		} // on an error it may be a directory
	}
	w[dir] = at
	return at
}

// planted returns the file to move away for name, "" for none: name itself, a link above it that was not there before,
// or a file in the place of a directory above it that was missing.
func (n *Note) planted(name string, w ways) string {
	at, isWay := w.to(filepath.Dir(name)), slices.Contains(n.Ways, name)
	if at.blocked != "" {
		if at.isLink && !slices.Contains(n.Behind, at.blocked) || !isWay && slices.Contains(n.Above, at.blocked) {
			return at.blocked
		}
		return ""
	}
	if at.missing {
		return ""
	}
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ""
	case err != nil || info.Mode()&os.ModeSymlink != 0:
		return name
	case info.IsDir() && slices.Contains(n.Files, name), isWay && !leads(name):
		return ""
	}
	return name
}

// leads reports whether a file says where a repository is.
func leads(name string) bool {
	const most = 1 << 20 // git refuses larger ones (setup.c)
	text, _, err := overlay.ReadFile(unix.AT_FDCWD, name, unix.O_NOFOLLOW, most)
	if errors.Is(err, overlay.ErrTooLarge) {
		return false
	}
	_, is := gitplace.GitFile(text)
	return err != nil || is
}

// Report is the result of carrying out a note.
type Report struct {
	Moved []Moved  `json:"moved,omitempty"`
	Git   []string `json:"git,omitempty"` // changes that did not land as the command may expect, a line each

	kept []*Note // notes that say so until Told
}

func (r Report) and(o Report) Report {
	return Report{append(r.Moved, o.Moved...), append(r.Git, o.Git...), append(r.kept, o.kept...)}
}

// keep notes the report, for Recover if this process is killed. If that fails, this process
// reports all the same.
func (r *Report) keep(base string) {
	says := func(o Report) bool { return len(o.Moved) == len(r.Moved) && len(o.Git) == len(r.Git) }
	if base == "" || says(Report{}) || len(r.kept) == 1 && says(r.kept[0].Done) {
		return
	}
	n, err := Begin(base, Note{Session: session.Reserve(base).Name(), Done: Report{Moved: r.Moved, Git: r.Git}})
	if err != nil {
		return
	}
	_ = r.Told()
	r.kept = []*Note{n}
}

// Told is called when the report has been printed.
func (r *Report) Told() error {
	var errs []error
	for _, n := range r.kept {
		errs = append(errs, os.Remove(n.path), n.file.Close())
	}
	r.kept = nil
	return errors.Join(errs...)
}

// End carries out the note, and adds to the report of work done before. The note stays if a part of
// it fails: the next command tries again.
func (n *Note) End(before Report) (Report, error) {
	r := n.Done.and(before)
	r.keep(n.base)
	err := n.do(&r, (*gitland.Layer).LandLast)
	r.keep(n.base)
	if n.file == nil {
		return r, err
	}
	if err == nil {
		err = os.Remove(n.path)
	}
	return r, errors.Join(err, n.file.Close())
}

// Keep does the work of the note when the command has ended, and other processes of its
// sandbox run on. End has to follow.
func (n *Note) Keep() (r Report, err error) {
	err = n.do(&r, (*gitland.Layer).LandKept)
	return r, errors.Join(err, r.Told()) // the caller goes on
}

func (n *Note) do(r *Report, land func(*gitland.Layer) []string) error {
	for _, m := range n.Modes {
		m.restore()
	}
	for _, dir := range n.Above {
		narrow(dir)
	}
	var names []string
	var replaced []Link
	for _, l := range n.Links {
		if target, err := os.Readlink(l.Path); (err != nil || target != l.Target) && !n.later(l.Path) {
			names, replaced = append(names, l.Path), append(replaced, l)
		}
	}
	w := ways{}
	for _, name := range n.Names {
		if place := n.planted(name, w); place != "" && !slices.Contains(names, place) && !n.later(place) {
			names = append(names, place)
		}
	}
	var rewritten []Linked
	for _, l := range n.Linked {
		if l.changed() && !n.later(l.Path) {
			names, rewritten = append(names, l.Path), append(rewritten, l)
		}
	}
	into := ""
	if n.base != "" {
		into = filepath.Join(n.base, n.Session, session.AsideDir)
	}
	planned := Report{slices.Clone(r.Moved), r.Git, r.kept}
	moved, err := Move(names, into, func(m Moved) {
		planned.Moved = append(planned.Moved, m)
		planned.keep(n.base)
	})
	r.Moved, r.kept = append(r.Moved, moved...), planned.kept
	if into != "" && (len(moved) > 0 || n.again) {
		// A later command can make a link to the told path, and git on the host goes there.
		if gitdir.FenceAll(into) != nil {
			err = errors.Join(err, r.close())
		}
	}
	for _, l := range replaced {
		err = errors.Join(err, l.restore())
	}
	for _, l := range rewritten {
		if slices.ContainsFunc(moved, func(m Moved) bool { return m.From == l.Path }) {
			err = errors.Join(err, l.restore())
		}
	}
	if land != nil {
		for _, l := range gitland.InOrder(n.Layers) {
			r.Git = append(r.Git, land(l)...)
		}
	}
	return err
}

// close closes moved directories that cannot be looked through, such as very deep ones.
func (r *Report) close() error {
	var errs []error
	for _, m := range r.Moved {
		if info, err := os.Lstat(m.To); err != nil || !info.IsDir() || gitdir.FenceAll(m.To) == nil {
			continue
		}
		errs = append(errs, os.Chmod(m.To, 0))
		r.Git = append(r.Git, fmt.Sprintf("%q cannot be looked through for repositories: it is closed (chmod 0)", m.To))
	}
	return errors.Join(errs...)
}

// later reports whether a file was made after the sandbox had ended. The time of its last change
// does not tell: a file that the command made has other names, by which others change it later.
func (n *Note) later(name string) bool {
	var st unix.Statx_t
	if n.until == nil || unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st) != nil || st.Mask&unix.STATX_BTIME == 0 {
		return false
	}
	return st.Btime.Sec*1e9+int64(st.Btime.Nsec) > n.until.Nano()
}

// restore makes the link again, in a directory that is reached through none.
func (l Link) restore() error {
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, filepath.Dir(l.Path), unix.O_PATH|directory, 0, fsat.NoLinks)
	if err == nil {
		err = unix.Symlinkat(l.Target, dir, filepath.Base(l.Path))
		unix.Close(dir)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot make the link %q again: %w", l.Path, err)
	}
	return nil
}

// narrow takes the permission to write from other users in a directory that the command made
// above a protected name, unless they have it in the directory around that.
func narrow(dir string) {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, dir, unix.O_PATH|directory, 0, fsat.NoLinks)
	if err != nil {
		return // it is not there
	}
	defer unix.Close(fd)
	var st, around unix.Stat_t
	if unix.Fstat(fd, &st) == nil && unix.Lstat(filepath.Dir(dir), &around) == nil && st.Mode&0o022&^around.Mode != 0 {
		_ = fsat.Chmod(fd, st.Mode&0o7777&^(0o022&^around.Mode))
	}
}

// restore takes back permissions of other users that the command gave.
func (m Mode) restore() {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, m.Path, unix.O_PATH|directory, 0, fsat.NoLinks)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Dev == m.Dev && st.Ino == m.Ino && st.Mode&0o022&^m.Mode != 0 {
		_ = fsat.Chmod(fd, st.Mode&0o7777&^0o022|m.Mode&0o022)
	}
}

// Others returns the notes in the journal of a base, for Inherit. Call it before the rest of a
// new note is collected: the work of a command that is not among them is undone by then.
func Others(base string) ([]Note, error) {
	base, err := trusted(base)
	if err != nil {
		return nil, nil // no command has a note there: see Begin
	}
	names, err := os.ReadDir(filepath.Join(base, journal))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal in %q: %w", base, err)
	}
	var list []Note
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(base, journal, name.Name()))
		if errors.Is(err, os.ErrNotExist) || strings.HasPrefix(name.Name(), unready) {
			continue // it has ended, or not begun
		}
		var n Note
		if err == nil {
			err = bytejson.Unmarshal(text, &n)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %q in the journal: %w", name.Name(), err)
		}
		list = append(list, n)
	}
	return list, nil
}

// Inherit takes over from the notes of other commands their entries of the same places. A file that
// is there now may be the work of these commands. Their End takes it away, and the mount that
// protects it goes with it. seen are files that are protected because they are there.
func (n *Note) Inherit(others []Note, seen []string) {
	for _, name := range seen {
		_, err := os.Lstat(name)
		if err != nil || slices.ContainsFunc(others, func(o Note) bool { return slices.Contains(o.Names, name) }) {
			n.Names = append(n.Names, name)
		}
	}
	for _, o := range others {
		n.Links = slices.DeleteFunc(n.Links, func(l Link) bool { return n.planned(l.Path, o) })
		for i, l := range n.Links {
			if at := slices.IndexFunc(o.Links, func(ol Link) bool { return ol.Path == l.Path }); at >= 0 {
				n.Links[i] = o.Links[at]
			}
		}
		for i, m := range n.Modes {
			if at := slices.IndexFunc(o.Modes, func(om Mode) bool { return om.Dev == m.Dev && om.Ino == m.Ino }); at >= 0 {
				n.Modes[i].Mode &^= 0o022 &^ o.Modes[at].Mode
			}
		}
		for i, l := range n.Linked {
			if at := slices.IndexFunc(o.Linked, func(ol Linked) bool { return ol.Path == l.Path && ol.Dev == l.Dev && ol.Ino == l.Ino }); at >= 0 {
				n.Linked[i] = o.Linked[at]
			}
		}
	}
}

// planned reports whether another note says that a link was missing, and adds to n the names
// of that note at the link, or behind it.
func (n *Note) planned(link string, o Note) bool {
	switch {
	case slices.Contains(o.Names, link):
		n.Names = append(n.Names, link)
	case slices.Contains(o.Above, link):
		n.Above = append(n.Above, link)
		for _, name := range o.Names {
			if strings.HasPrefix(name, link+"/") {
				n.Names = append(n.Names, name)
			}
		}
	default:
		return false
	}
	return true
}

// Recover does the work that killed commands have left in the journal of a base.
func Recover(base string) (Report, error) {
	base, err := trusted(base)
	if errors.Is(err, os.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, err
	}
	r, gerr := fenceAll(base, func() map[string]bool { return Had(base) })
	r.keep(base)
	dir, err := openJournal(base)
	if err == unix.ENOENT {
		return r, gerr
	}
	if err != nil {
		return r, errors.Join(gerr, fmt.Errorf("cannot open the journal in %q: %w", base, err))
	}
	defer unix.Close(dir)
	awaitDisarm(dir)
	done, err := each(base, dir, recoverOne)
	r = r.and(done)
	r.Git = Few(r.Git)
	return r, errors.Join(gerr, err)
}

// fenceAll makes the repositories of killed commands inert.
func fenceAll(base string, had func() map[string]bool) (r Report, err error) {
	made, err := gitdir.Recover(filepath.Join(base, session.GitDir))
	if len(made) == 0 {
		return r, err
	}
	told := had()
	for _, m := range made { // two names of one repository
		line := m.Line(", which a killed command has made,")
		if !told[m.Repository()] && !slices.Contains(r.Git, line) {
			r.Git = append(r.Git, line)
		}
	}
	return r, err
}

// Had collects Note.Had of all notes in the journal of a base.
func Had(base string) map[string]bool {
	had := map[string]bool{}
	notes, _ := Others(base) // without it, a repository is told twice
	for _, n := range notes {
		for _, repository := range n.Had {
			had[repository] = true
		}
	}
	return had
}

// each calls do for each note in the journal, and for files that may be notes.
func each(base string, journal int, do func(base string, journal int, name string) (Report, error)) (r Report, err error) {
	var errs []error
	err = fsat.Each(journal, func(e fsat.Entry) error {
		if !strings.HasPrefix(e.Name, unready) {
			one, err := do(base, journal, e.Name)
			r, errs = r.and(one), append(errs, err)
		}
		return nil
	})
	return r, errors.Join(append(errs, err)...)
}

func openJournal(base string) (int, error) {
	return fsat.Kernel().Open(unix.AT_FDCWD, filepath.Join(base, journal), unix.O_RDONLY|directory, 0, fsat.NoLinks)
}

// trusted returns a base without symbolic links. It refuses a base that another user
// can replace: notes are orders.
func trusted(base string) (string, error) {
	real, err := filepath.Abs(base)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", err
	}
	for dir := real; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return "", err
		}
		own := int(st.Uid) == os.Geteuid()
		if !own && st.Uid != 0 && st.Uid != overflowID || dir == real && !own || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 && !(own && dir != real && st.Mode&0o002 == 0) {
			return "", fmt.Errorf("cannot trust the journal in %q: other users can replace %q", base, dir)
		}
		if dir == "/" {
			return real, nil
		}
	}
}

// overflowID is the owner that a user namespace without root shows for root's files.
const overflowID = 65534

// openNote opens and locks a note of a killed command. It returns nil if there is none: the
// command runs, or has just ended. An error says that the file is no note.
func openNote(base string, dir int, name string) (*Note, error) {
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil // another command has done it
	}
	n := &Note{base: base, path: filepath.Join(base, journal, name), file: os.NewFile(uintptr(fd), name), again: true}
	var st unix.Stat_t
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstat(fd, &st) != nil || st.Nlink == 0 {
		n.file.Close()
		return nil, nil
	}
	text, err := io.ReadAll(n.file)
	if err == nil {
		err = bytejson.Unmarshal(text, n)
	}
	if err != nil || int(st.Uid) != os.Geteuid() || st.Nlink != 1 || filepath.Base(n.Session) != n.Session || !strings.HasPrefix(n.Session, session.Prefix) ||
		n.Tmp != "" && (filepath.Base(n.Tmp) != n.Tmp || !strings.HasPrefix(n.Tmp, session.Prefix)) {
		return n, fmt.Errorf("removed %q from the journal, which is no note of pk: files that a killed command planted may be left", n.path)
	}
	if st.Mode&0o200 == 0 {
		n.until = &st.Ctim
	}
	n.Done.Moved = slices.DeleteFunc(n.Done.Moved, func(m Moved) bool { // it was planned
		_, err := os.Lstat(m.To)
		return errors.Is(err, os.ErrNotExist)
	})
	return n, nil
}

func recoverOne(base string, dir int, name string) (r Report, err error) {
	n, err := openNote(base, dir, name)
	if n == nil {
		return r, nil
	}
	if err != nil {
		return r, errors.Join(err, os.Remove(n.path), n.file.Close())
	}
	for _, git := range n.Unlock {
		gitland.Unlock(git)
	}
	for _, l := range n.Layers {
		if err := l.Reopen(); err != nil {
			return r, errors.Join(err, n.file.Close())
		}
		defer l.Close()
	}
	if n.Tmp != "" {
		if err := session.Abandon(base, n.Tmp); err != nil {
			return r, errors.Join(fmt.Errorf("cannot remove the /tmp of a killed command in %q: %w", filepath.Join(base, n.Tmp), err), n.file.Close())
		}
	}
	return n.End(Report{})
}
