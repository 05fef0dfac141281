package confine

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Request is a question about a path. The zero value is that of Resolve, for
// reading.
//
// In every request, a path that ends in a slash names a directory or a missing
// file. For any other file the error is ENOTDIR, as in the kernel.
type Request struct {
	Mode     Mode
	Physical bool // take ".." as the kernel does, not lexically
	Existing bool // fail as stat(2) does, or lstat(2) with Itself
	Itself   bool // do not follow a link at the end, as for removing it
}

// maxParents bounds the memory of a Batch. An entry holds two names of a
// directory: 8 KiB in the worst case, usually 100 bytes.
const maxParents = 4096

// maxName is the longest file name that Linux knows.
const maxName = 255

// Batch resolves many paths and remembers directories until Forget is called: an
// answer is that of some moment since the last Forget. It is not for concurrent
// use.
type Batch struct {
	Request

	workspace *Workspace
	parents   map[string]string // lexical to canonical; nil: remember nothing
	present   map[int]bool      // the roots that are known to be in place
	plain     map[string]bool   // directories in which only a .git or a HEAD can be refused
	heldDir   string            // the directory, lexical and canonical, that is open as held; ""
	held      int
}

// Batch returns a Batch that answers like Lookup with the same request.
func (w *Workspace) Batch(req Request) *Batch {
	return &Batch{Request: req, workspace: w, parents: map[string]string{}, present: map[int]bool{}, plain: map[string]bool{}}
}

// Forget drops everything remembered, and closes the descriptor that goes with it.
// Call it at the end, and before waiting for input: the sender may have changed
// the tree meanwhile.
func (b *Batch) Forget() {
	b.letGo()
	clear(b.parents)
	clear(b.present)
	clear(b.plain)
}

// Resolve is Lookup.
func (b *Batch) Resolve(path string) (string, error) {
	p, err := b.workspace.parse(path)
	if err != nil {
		return "", b.refuse(path, p, "", err)
	}
	where, err := "", b.typed(p)
	if err == nil {
		where, err = b.locate(p)
	}
	if err != nil {
		return "", b.refuse(path, p, where, err)
	}
	return where, nil
}

// parsedPath is a path made absolute, but not yet looked up.
type parsedPath struct {
	start     string // the prefix that made it absolute, "" for none
	raw       string // as typed, "" if it could not be made absolute
	lexical   string // without ".", ".." and double slashes
	hasDotDot bool   // ".." follows a name, so the kernel may find another place
	directory bool   // it ends in a slash, so it does not name another kind of file
}

// parse makes path absolute.
func (w *Workspace) parse(typed string) (parsedPath, error) {
	switch {
	case typed == "":
		return parsedPath{}, ErrEmpty
	case strings.IndexByte(typed, 0) >= 0:
		return parsedPath{}, ErrNUL
	case len(w.roots) == 0:
		return parsedPath{}, ErrOutside
	}
	start, rest := "", typed
	switch {
	case w.aliasTmp && fsat.Within(typed, "/tmp"):
		rest = typed[len("/tmp"):]
		if above(rest) {
			return parsedPath{}, ErrAboveTmp
		}
		start = w.temp
	case typed[0] != '/':
		start, rest = w.ProjectRoot(), "/"+typed
	}
	raw := start + rest
	directory := strings.HasSuffix(raw, "/") || strings.HasSuffix(raw, "/.")
	return parsedPath{start, raw, path.Clean(raw), hasDotDot(rest), directory}, nil
}

// above reports whether rest, with ".." taken lexically, leaves its beginning:
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

// hasDotDot reports whether a ".." follows a name.
func hasDotDot(rest string) bool {
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

// typed applies the rules to the path as it was typed, before any lookup, so that a
// refusal does not disclose whether a forbidden file exists. With Physical, it skips
// the lexical path if ".." makes it differ.
func (b *Batch) typed(p parsedPath) error {
	if p.hasDotDot && b.Physical {
		return nil
	}
	if err := b.workspace.rules(p.lexical, false, b.Mode); err != nil {
		return err
	}
	return b.workspace.gitNames(p.lexical, b.Mode)
}

// locate looks the path up and checks its place.
//
// Lexically, link/../x is x; the kernel finds it beside the target of link. The
// lexical place is right for a caller that uses the answer. A caller that asks
// and then opens the path that it asked about escapes to the kernel's place. So
// both have to be allowed.
func (b *Batch) locate(p parsedPath) (string, error) {
	if !p.hasDotDot {
		return b.settle(b.canon, p.lexical, p.directory)
	}
	where, err := b.settle(b.workspace.view.walk, p.raw, p.directory)
	if err != nil || b.Physical {
		return where, err
	}
	return b.settle(b.canon, p.lexical, p.directory)
}

// settle looks up the raw or the lexical path and checks its place.
func (b *Batch) settle(canon func(string) (string, error), path string, directory bool) (string, error) {
	if b.Itself {
		canon = itself(canon)
	}
	where, err := canon(path)
	if err == nil {
		err = b.admit(where)
	}
	if err == nil {
		err = b.workspace.rules(where, true, b.Mode)
	}
	if err == nil {
		err = b.gitPlace(where)
	}
	if err == nil && !b.Itself { // the removal of one name of several writes nothing
		err = b.workspace.singular(where, b.Mode)
	}
	if err == nil && (b.Existing || directory) {
		err = b.exists(where, path, directory)
	}
	return where, err
}

// canon finds the canonical path. In a remembered directory, it looks only at the
// last name: unless that is a link, its place is below.
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

// settleDir finds a directory's canonical path. A directory without links stays open
// until the next: lists are mostly sorted, and a lookup costs a third if the kernel need
// not find its directory.
func (b *Batch) settleDir(dir string) (string, error) {
	if !b.workspace.view.opener.Openat2 {
		return b.workspace.view.walk(dir)
	}
	fd, err := b.workspace.view.open(dir)
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
	return b.workspace.view.linkTest(where)
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

// inPlace reports whether a root's path still names the root. A yes is
// remembered, a no is not.
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

// checkLength refuses paths that no system call takes.
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

// exists asks the kernel about a path whose place is where, since a walk passes
// missing names and files on the way that stat(2) does not.
func (b *Batch) exists(where, path string, directory bool) error {
	if b.Existing && !b.Itself {
		if directory {
			path += "/"
		}
		return b.workspace.view.stat(path)
	}
	var st unix.Stat_t
	switch err := b.workspace.view.lstat(where, &st); {
	case !b.Existing && (err == unix.ENOENT || err == unix.ENOTDIR):
		return nil
	case err == nil && directory && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return unix.ENOTDIR
	default:
		return err
	}
}
