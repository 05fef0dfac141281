package confine

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Request says what is asked about a path. The zero value asks what Resolve
// asks for reading.
type Request struct {
	Mode     Mode
	Physical bool // take ".." as the kernel does, not lexically
	Existing bool // the path must exist
	Itself   bool // if its last name is a link, the link is meant, as for removing it
}

// maxParents bounds what a Batch remembers. Both names of a directory are kept,
// so the worst case is 8 KiB each; a usual one is 100 bytes.
const maxParents = 4096

// maxName is the longest file name that Linux knows.
const maxName = 255

// Batch resolves many paths, remembering directories from one to the next
// until Forget is called. What it remembers grows old: its answers are those of
// some moment since the last Forget. It is not for concurrent use.
type Batch struct {
	Request

	workspace *Workspace
	parents   map[string]string // lexical to canonical; nil: remember nothing
	present   map[int]bool      // the roots that were seen to be in place
	heldDir   string            // the directory, lexical and canonical, that held holds; ""
	held      int
}

// Batch returns a Batch that answers like Lookup with the same request.
func (w *Workspace) Batch(req Request) *Batch {
	return &Batch{Request: req, workspace: w, parents: map[string]string{}, present: map[int]bool{}}
}

// Forget drops everything remembered, and the descriptor that goes with it. To be
// called before waiting for input, as the one who sends it may have changed the
// tree in the meantime, and at the end.
func (b *Batch) Forget() {
	b.letGo()
	clear(b.parents)
	clear(b.present)
}

// Resolve is Lookup.
func (b *Batch) Resolve(path string) (string, error) {
	spelled, err := b.workspace.spell(path)
	if err != nil {
		return "", b.refuse(path, spelled, "", err)
	}
	where, err := "", b.typed(spelled)
	if err == nil {
		where, err = b.locate(spelled)
	}
	if err != nil {
		return "", b.refuse(path, spelled, where, err)
	}
	return where, nil
}

// spelling is a path made absolute, but not yet looked up.
type spelling struct {
	start   string // what was put in front of what was typed, "" for nothing
	raw     string // as typed, "" if it could not be made absolute
	lexical string // without ".", ".." and double slashes
	climbs  bool   // ".." follows a name, so the kernel may read it differently
}

// spell makes path absolute.
func (w *Workspace) spell(typed string) (spelling, error) {
	switch {
	case typed == "":
		return spelling{}, ErrEmpty
	case strings.IndexByte(typed, 0) >= 0:
		return spelling{}, ErrNUL
	case len(w.roots) == 0:
		return spelling{}, ErrOutside
	}
	start, rest := "", typed
	switch {
	case w.aliasTmp && contains("/tmp", typed):
		rest = typed[len("/tmp"):]
		if above(rest) {
			return spelling{}, ErrAboveTmp
		}
		start = w.temp
	case typed[0] != '/':
		start, rest = w.ProjectRoot(), "/"+typed
	}
	raw := start + rest
	return spelling{start: start, raw: raw, lexical: path.Clean(raw), climbs: climbs(rest)}, nil
}

// above tells whether rest, with ".." taken lexically, leaves where it began:
// /tmp/../etc is not /etc when /tmp is an alias, and not the alias's parent.
func above(rest string) bool {
	depth := 0
	for name := range names(rest) {
		switch name {
		case ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			return true
		}
	}
	return false
}

// climbs tells whether a ".." follows a name.
func climbs(rest string) bool {
	if !strings.Contains(rest, "..") {
		return false
	}
	named := false
	for name := range names(rest) {
		if name == ".." && named {
			return true
		}
		named = named || name != "." && name != ".."
	}
	return false
}

// typed holds the rules against the path as it was typed, before anything is
// looked up: what is forbidden does not tell whether it exists. The lexical
// reading is no reading when the kernel's was asked for and is another one.
func (b *Batch) typed(s spelling) error {
	if s.climbs && b.Physical {
		return nil
	}
	return b.workspace.rules(s.lexical, false, b.Mode)
}

// locate looks the path up and checks where it is.
//
// With "..", link/../x is lexically x, and the kernel finds it beside the
// target of link. The lexical answer alone would be right for a caller that
// uses the answer, and an escape for one that asks and then opens what it
// asked about. So both places have to be allowed.
func (b *Batch) locate(s spelling) (string, error) {
	if !s.climbs {
		return b.settle(s, b.canon, s.lexical)
	}
	where, err := b.settle(s, walk, s.raw)
	if err != nil || b.Physical {
		return where, err
	}
	return b.settle(s, b.canon, s.lexical)
}

// settle looks one reading of the path up and checks it.
func (b *Batch) settle(s spelling, canon func(string) (string, error), reading string) (string, error) {
	if b.Itself {
		canon = itself(canon)
	}
	where, err := canon(reading)
	if err == nil {
		err = b.admit(where)
	}
	if err == nil {
		err = b.workspace.rules(where, true, b.Mode)
	}
	if err == nil && !b.Itself { // removing one name of several writes nothing
		err = b.workspace.singular(where, b.Mode)
	}
	if err == nil && b.Existing {
		err = exists(where, s.raw)
	}
	return where, err
}

// canon finds the canonical path. When the directory is remembered, one look
// at the last name is enough: unless it is a link, it stays below.
func (b *Batch) canon(lexical string) (string, error) {
	slash := strings.LastIndexByte(lexical, '/')
	if b.parents == nil || slash <= 0 {
		return b.workspace.canon(lexical)
	}
	dir, where := lexical[:slash], lexical
	parent, ok := b.parents[dir]
	if !ok {
		var err error
		if parent, err = b.learn(dir); err != nil {
			return "", err
		}
	}
	if parent != dir {
		where = parent + lexical[slash:]
	}
	switch b.lastNameTest(dir, where, lexical[slash+1:]) {
	case unix.EINVAL, unix.ENOENT, unix.ENOTDIR:
		return where, nil
	}
	return b.workspace.canon(lexical)
}

// learn finds a directory's canonical path and remembers it.
func (b *Batch) learn(dir string) (string, error) {
	parent, err := b.settleDir(dir)
	if err != nil {
		return "", err
	}
	if len(b.parents) >= maxParents {
		clear(b.parents)
	}
	parent = strings.TrimSuffix(parent, "/") // "" for the root directory
	b.parents[dir] = parent
	return parent, nil
}

// settleDir finds a directory's canonical path. One without links is kept open
// until the next: lists are mostly sorted, and looking at a name costs a third
// when the kernel need not find its directory.
func (b *Batch) settleDir(dir string) (string, error) {
	if !b.workspace.openat2 {
		return walk(dir)
	}
	fd, err := openPlain(dir)
	if err != nil {
		return b.workspace.canon(dir)
	}
	b.letGo()
	b.heldDir, b.held = dir, fd
	return dir, nil
}

// lastNameTest is linkTest for the last name of a path.
func (b *Batch) lastNameTest(dir, where, name string) error {
	if dir == b.heldDir {
		return linkTest(b.held, name)
	}
	return linkTest(unix.AT_FDCWD, where)
}

func (b *Batch) letGo() {
	if b.heldDir != "" {
		unix.Close(b.held)
		b.heldDir = ""
	}
}

// admit checks a canonical path against the roots.
func (b *Batch) admit(where string) error {
	if err := checkLength(where); err != nil {
		return err
	}
	if b.workspace.allowAll {
		return nil
	}
	err := ErrOutside
	for i, r := range b.workspace.roots {
		if !r.covers(where, b.Mode) {
			continue
		}
		if b.inPlace(i) {
			return nil
		}
		err = ErrReplaced
	}
	return err
}

// inPlace tells whether a root is still what was opened. That it was is
// remembered; that it was not is never excused.
func (b *Batch) inPlace(i int) bool {
	if b.present[i] {
		return true
	}
	in := b.workspace.roots[i].present()
	if in && b.present != nil {
		b.present[i] = true
	}
	return in
}

// checkLength refuses what no system call would take.
func checkLength(where string) error {
	if len(where) >= unix.PathMax {
		return unix.ENAMETOOLONG
	}
	if len(where) <= maxName {
		return nil
	}
	for name := range names(where) {
		if len(name) > maxName {
			return unix.ENAMETOOLONG
		}
	}
	return nil
}

// exists does what Existing asks for. A path typed with a slash at its end
// names a directory or nothing.
func exists(where, raw string) error {
	var st unix.Stat_t
	if err := unix.Lstat(where, &st); err != nil {
		return err
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !dir && (strings.HasSuffix(raw, "/") || strings.HasSuffix(raw, "/.")) {
		return unix.ENOTDIR
	}
	return nil
}
