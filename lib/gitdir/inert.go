package gitdir

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/overlay"
)

// Inert is a name that pk has changed: in a repository that a command made, of a file that
// git cannot read, or of a trap. Or it tells of a directory with others that are too deep.
type Inert struct {
	Dir    string // absolute
	Name   string // ".git" or "HEAD" of a repository; "": too deep
	Fenced string // its name now; "": it had to be removed
	ino    uint64
	kept   string // a removed file's content after "=", a removed link's target after ">", or after "+" the inode of the adopted directory
	users  bool   // the user may have made it
	last   bool   // no later command has it back
}

// Repository is the directory by which the user knows the repository: it holds .git or is
// the bare one. Of another name it is that.
func (n Inert) Repository() string {
	if !n.ofRepository() {
		return filepath.Join(n.Dir, n.Name)
	}
	return strings.TrimSuffix(n.Dir, "/.git")
}

func (n Inert) ofRepository() bool { return n.Name == ".git" || n.Name == "HEAD" }

// Line tells the user of the repository; by is empty, or says which command made it.
func (n Inert) Line(by string) string {
	where := n.Repository()
	switch {
	case n.ofRepository():
	case n.Name == "":
		return fmt.Sprintf("%q%s has directories that are too deep for git, and pk looks for no repository there: remove them", where, by)
	case slices.Contains(gitReads, n.Name):
		return fmt.Sprintf("%q%s is %q now: git on the host would wait for it for ever, or crash", where, by, n.Fenced)
	case IsOption(n.Name):
		return fmt.Sprintf("%q%s is %q now: programs to which git on the host gives the name would take it for an option", where, by, n.Fenced)
	default:
		return fmt.Sprintf("the link %q%s is %q now: git on the host would go through it", where, by, n.Fenced)
	}
	leads, repository := n.leads()
	switch {
	case n.users:
		name := filepath.Join(n.Dir, n.Fenced)
		return fmt.Sprintf("%q%s has got a .git meanwhile, which is %q now, as a command may have made it, or changed files there; if you have made it, and have looked at them: mv %s %s",
			where, by, n.Fenced, shellword.Word(name), shellword.Word(filepath.Join(n.Dir, n.Name)))
	case bytes.HasPrefix(leads, []byte("gitdir:")) && bytes.Contains(leads, []byte("/modules/")):
		return fmt.Sprintf("the submodule %q%s works in the sandbox alone; on the host: move it away, and git submodule update --init", where, by)
	case bytes.HasPrefix(leads, []byte("gitdir:")) && bytes.Contains(leads, []byte("/worktrees/")):
		return fmt.Sprintf("the work tree %q%s works in the sandbox alone; on the host: move it away, and git worktree add", where, by)
	case !repository:
		return fmt.Sprintf("%q%s leads to no repository, and stays in the sandbox", filepath.Join(n.Dir, n.Name), by)
	}
	if n.last {
		return fmt.Sprintf("the repository %q%s worked for this command alone: later ones have %d names back at most; its .git is %q now", where, by, maxRecords, n.Fenced)
	}
	return fmt.Sprintf("the repository %q%s works in the sandbox alone until: pk-fs git-adopt %s", where, by, shellword.Word(where))
}

// leads returns the content of a .git that is a file, and reports whether git may see a
// repository at the name.
func (n Inert) leads() (text []byte, repository bool) {
	if n.Fenced == "" {
		kept, isFile := strings.CutPrefix(n.kept, "=")
		return []byte(kept), !isFile || strings.HasPrefix(kept, "gitdir:")
	}
	name := filepath.Join(n.Dir, n.Fenced)
	text, st, err := overlay.ReadFile(unix.AT_FDCWD, name, unix.O_NOFOLLOW, unix.PathMax)
	switch {
	case n.Name != ".git" || st == nil:
		return text, true
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		_, err := os.Lstat(name + "/HEAD")
		_, ferr := os.Lstat(name + "/HEAD" + FencedSuffix)
		return nil, !fsat.Absent(err) || !fsat.Absent(ferr)
	}
	return text, err != nil && err != overlay.ErrTooLarge || bytes.HasPrefix(text, []byte("gitdir:"))
}

const (
	// maxNames bounds the names tried for a fenced file before a random one.
	maxNames = 8

	// maxFenced bounds the kept part of a name, which may have NAME_MAX bytes.
	maxFenced = 200

	// maxRounds bounds the renames of a name that a process restores each time.
	maxRounds = 4
)

// maxRecords bounds the names that the commands of one root have back. Each takes some 100
// microseconds at every start there.
var maxRecords = 10_000

// fence renames the repositories that commands have made, the deepest first. It writes
// the record before: if the monitor is killed, the next command finds all renamed ones.
// Files that git cannot read are in no record: the next command does not have them back. stays is the number of names that could stay.
func (l *List) fence(made []spot, records []Inert, save func([]Inert) error) (done []Inert, stays int, err error) {
	var planned []Inert
	for _, s := range slices.Backward(made) {
		if s.name == "" {
			done = append(done, Inert{Dir: l.absolute(s.dir)})
			stays++
			continue
		}
		planned = append(planned, Inert{Dir: l.absolute(s.dir), Name: s.name, Fenced: s.name + FencedSuffix, users: s.name == ".git" && l.users[s.dir]})
	}
	if len(planned) == 0 {
		return done, stays, nil
	}
	told := len(done)
	var errs []error
	room := maxRecords
	for _, n := range records {
		if fsat.Within(n.Dir, l.root) {
			room--
		}
	}
	for i := range planned {
		planned[i].last = i >= room
		if dir, err := l.open(planned[i].Dir); err == nil {
			if st, err := fsat.Lstat(dir, planned[i].Name); err == nil {
				planned[i].ino, planned[i].Fenced = st.Ino, FreeName(dir, planned[i].Name)
			}
			unix.Close(dir)
		}
	}
	// On a full disk no name can be restored later, but a rename needs no space.
	ofRepositories := func(names []Inert) []Inert {
		return slices.Concat(records, slices.DeleteFunc(slices.Clone(names), func(n Inert) bool { return n.last || !n.ofRepository() }))
	}
	errs = append(errs, save(ofRepositories(planned)))
	for _, n := range planned {
		err := l.fenceOne(&n)
		switch {
		case err == errNoHead:
			stays++
		case err != nil:
			errs = append(errs, fmt.Errorf("cannot make %q inert: %w", n.Repository(), err))
		}
		if n.ino != 0 {
			done = append(done, n)
		}
	}
	if !slices.Equal(done[told:], planned) {
		errs = append(errs, save(ofRepositories(done[told:])))
	}
	return done, stays, errors.Join(errs...)
}

// errNoHead is a .git that stays: git sees no repository there.
var errNoHead = errors.New("it has no HEAD")

// fenceOne renames a name and checks that it is gone. n.ino is 0 then if it renamed
// nothing.
func (l *List) fenceOne(n *Inert) error {
	n.ino = 0
	dir, err := l.open(n.Dir)
	if err != nil {
		return unlessAbsent(err) // then nothing has the name
	}
	defer unix.Close(dir)
	for range maxRounds {
		st, err := fsat.Lstat(dir, n.Name)
		if err != nil {
			return unlessAbsent(err)
		}
		err = renameFresh(dir, n.Name, dir, n.Fenced)
		switch {
		case err == nil:
			n.ino = st.Ino
			if n.ofRepository() {
				ignore(dir, n.Fenced)
			}
		case errors.Is(err, unix.EEXIST):
			n.Fenced = FreeName(dir, n.Name)
		case !fsat.Absent(err):
			return n.remove(dir, fmt.Errorf("cannot rename %s: %w", n.Name, err))
		}
	}
	if _, err := fsat.Lstat(dir, n.Name); fsat.Absent(err) {
		return nil
	}
	return fmt.Errorf("a process keeps making %s", n.Name)
}

// renameFresh is another function in tests.
var renameFresh = fsat.RenameFresh

// remove makes a name inert that could not be renamed: in a full directory of a full disk,
// the longer name takes a block. Removing a file or link takes none, and the record has its
// few bytes. A directory is inert if the HEAD in it is.
func (n *Inert) remove(dir int, renamed error) error {
	st, err := fsat.Lstat(dir, n.Name)
	if err != nil {
		return unlessAbsent(err)
	}
	kept := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		sub, err := fsat.Openat(dir, n.Name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return renamed
		}
		defer unix.Close(sub)
		if gitDir, _, err := asGitDir(sub); err != nil || gitDir != "" {
			return renamed
		}
		return errNoHead
	case unix.S_IFLNK:
		if target, err := fsat.ReadLink(dir, n.Name); err == nil {
			kept = ">" + target
		}
	default:
		if text, err := readSmall(dir, n.Name, unix.O_NOFOLLOW); err == nil {
			kept = "=" + string(text)
		}
	}
	if unix.Unlinkat(dir, n.Name, 0) != nil {
		return renamed
	}
	n.Fenced, n.ino, n.kept = "", st.Ino, kept
	return nil
}

// ignore keeps git add from adding a directory that is no longer called .git. If it
// fails, or if the command has a file there, nothing is lost.
func ignore(dir int, name string) {
	fd, err := fsat.Kernel().Open(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.SameMount)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = makeFile(fd, ".gitignore", []byte("*\n"))
}

// FreeName returns a free name. The user or a command may have a file with the usual one.
func FreeName(dir int, name string) string {
	name = name[:min(len(name), maxFenced)]
	if IsOption(name) || IsWritten(name) {
		name = "fenced" + name
	}
	free := name + FencedSuffix
	for i := 2; i <= maxNames; i++ {
		if _, err := fsat.Lstat(dir, free); fsat.Absent(err) {
			return free
		}
		free = fmt.Sprintf("%s.fenced.%d", name, i)
	}
	return name + ".fenced." + rand.Text()
}

// open opens a directory in the root, name by name and through no link. It opens a closed
// directory of the user's own until shut.
func (l *List) open(name string) (int, error) {
	rel, err := filepath.Rel(l.root, name)
	if err != nil || !filepath.IsLocal(rel) {
		return -1, fmt.Errorf("internal error: %q is not in the root %q", name, l.root)
	}
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, l.root, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	for part := range strings.SplitSeq(rel, "/") {
		if err != nil {
			return -1, err
		}
		var next int
		next, err = fsat.Kernel().Open(dir, part, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.SameMount)
		if err == unix.EACCES && l.allow(dir) == nil {
			next, err = fsat.Kernel().Open(dir, part, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.SameMount)
		}
		unix.Close(dir)
		dir = next
	}
	if err == nil {
		if err = l.allow(dir); err != nil {
			unix.Close(dir)
		}
	}
	return dir, err
}

// restore restores the names in the root. It returns the records that remain, and those
// that it restored. A record remains if its name is in use, and goes if its file is gone.
// The host's git would use a repository in an unpopulated submodule at once.
func (l *List) restore(records []Inert, unpopulated []Unpopulated) (left, restored []Inert, err error) {
	defer l.shut()
	var errs []error
	names := map[string]bool{} // of left
	leave := func(n Inert) {
		left = append(left, n)
		names[filepath.Join(n.Dir, n.Name)] = true
	}
	for _, n := range slices.Backward(records) {
		if !fsat.Within(n.Dir, l.root) || below(n.Dir, names) || slices.ContainsFunc(unpopulated, n.in) {
			leave(n)
			continue
		}
		switch err := l.restoreOne(n); {
		case err == nil:
			restored = append(restored, n)
			l.given[filepath.Join(n.Dir, n.Name)] = true
		case !fsat.Absent(err):
			leave(n)
			errs = append(errs, fmt.Errorf("cannot give the repository %q its %s back: %w", n.Repository(), n.Name, err))
		}
	}
	slices.Reverse(left)
	return left, restored, errors.Join(errs...)
}

// below reports whether a path, or a directory above it, is one of the names.
func below(path string, names map[string]bool) bool {
	for ; len(path) > 1; path = filepath.Dir(path) {
		if names[path] {
			return true
		}
	}
	return false
}

func (l *List) restoreOne(n Inert) error {
	dir, err := l.open(n.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if n.Fenced == "" {
		return n.remake(dir)
	}
	st, err := fsat.Lstat(dir, n.Fenced)
	if err != nil {
		return err
	}
	if st.Ino != n.ino {
		return unix.ENOENT // another file of the user's
	}
	if now, err := fsat.Lstat(dir, n.Name); err == nil {
		if n.kept == adoptedMark+strconv.FormatUint(now.Ino, 10) {
			return unix.ENOENT
		}
		return unix.EEXIST
	}
	return fsat.RenameFresh(dir, n.Fenced, dir, n.Name)
}

const adoptedMark = "+"

// remake makes a removed file or link again.
func (n *Inert) remake(dir int) error {
	if target, ok := strings.CutPrefix(n.kept, ">"); ok {
		return unix.Symlinkat(target, dir, n.Name)
	}
	text, ok := strings.CutPrefix(n.kept, "=")
	if !ok {
		return unix.ENOENT
	}
	err := makeFile(dir, n.Name, []byte(text))
	if err != nil && err != unix.EEXIST {
		_ = unix.Unlinkat(dir, n.Name, 0)
	}
	return err
}

func makeFile(dir int, name string, text []byte) error {
	file, err := fsat.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	return fsat.Fill(file, text)
}

// recordsIn reads the records of a state directory: a line of quoted names each, and of
// what was kept.
func recordsIn(state string) ([]Inert, error) {
	text, err := os.ReadFile(filepath.Join(state, inertFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var records []Inert
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		n, ok := parseRecord(lines.Text())
		if !ok {
			return nil, fmt.Errorf("cannot read the list of inert repositories in %q: a line is damaged", state)
		}
		records = append(records, n)
	}
	return records, errors.Join(err, lines.Err())
}

func parseRecord(line string) (n Inert, ok bool) {
	ino, rest, _ := strings.Cut(line, " ")
	n.ino, _ = strconv.ParseUint(ino, 10, 64)
	for i, field := range []*string{&n.Dir, &n.Name, &n.Fenced, &n.kept} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return n, i == 3 // records of earlier versions end here
		}
		*field, _ = strconv.Unquote(quoted)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return n, true
}

func saveRecords(state string, records []Inert) error {
	var text bytes.Buffer
	for _, n := range records {
		fmt.Fprintf(&text, "%d %q %q %q %q\n", n.ino, n.Dir, n.Name, n.Fenced, n.kept)
	}
	if err := fsat.WriteFile(filepath.Join(state, inertFile), text.Bytes()); err != nil {
		return fmt.Errorf("cannot write the list of inert repositories: %w", err)
	}
	return nil
}

// FencedSuffix is added to the name of a git directory that a command made.
const FencedSuffix = ".fenced"

// Fenced is a name of a repository that the host's git has never seen: At is the absolute
// path of the file that a command made as Dir/Name.
type Fenced struct{ Dir, Name, At string }

// NoteInert adds names, inner ones first, to the list of inert repositories in a state
// directory: the next command in the root has them back, and Adopt makes the repository
// the host's.
func NoteInert(state string, names []Fenced) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	unlock, err := lock(state)
	if err != nil {
		return err
	}
	defer unlock()
	records, err := recordsIn(state)
	if err != nil {
		return err
	}
	for _, n := range names {
		var st unix.Stat_t
		if err := unix.Lstat(n.At, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: n.At, Err: err}
		}
		records = slices.DeleteFunc(records, func(r Inert) bool { return r.Dir == n.Dir && r.Name == n.Name })
		records = append(records, Inert{Dir: n.Dir, Name: n.Name, Fenced: filepath.Base(n.At), ino: st.Ino})
	}
	return saveRecords(state, records)
}
