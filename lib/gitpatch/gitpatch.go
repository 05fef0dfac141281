// Package gitpatch writes the change of one path as a patch in git's format, for
// git apply and git apply --3way. It never runs git.
package gitpatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
)

// Modes that git records.
const (
	Regular    = 0o100644
	Executable = 0o100755
	Symlink    = 0o120000
)

// Limits. They alone bound the memory that Write takes: it is below 512 MiB.
const (
	// maxText is the size of the largest file whose lines are compared. Files that
	// people write by hand are smaller.
	maxText = 16 << 20

	// maxLines bounds the lines of one, as each takes far more memory than its bytes.
	maxLines = 1 << 19

	// maxLiteral is the size of the largest content that a patch carries as it is.
	maxLiteral = 1 << 20

	// sniffed is how much of a file git reads to find a NUL, which makes it binary.
	sniffed = 8000
)

// ErrChanged says that the content of a Side is not as long as its Size.
var ErrChanged = errors.New("its size changed while it was read")

// Side is a path before or after a change. The zero Side says that nothing is there.
type Side struct {
	Mode uint32 // Regular, Executable or Symlink
	Size int64
	Open func() (io.ReadCloser, error) // the content; of a symbolic link, its target
}

// Mode returns the mode that git records for a file with a mode of stat(2). Of the
// permissions git keeps one: whether the owner may execute. Mode returns 0 for a file
// that is neither regular nor a symbolic link: git records no others.
func Mode(stat uint32) uint32 {
	switch stat & unix.S_IFMT {
	case unix.S_IFREG:
		if stat&unix.S_IXUSR != 0 {
			return Executable
		}
		return Regular
	case unix.S_IFLNK:
		return Symlink
	}
	return 0
}

// Write writes the patch that turns old into new, and nothing if git sees no
// difference. path is relative to the top of the patch, without components like "..".
// format is the hash function of the repository that the patch is for.
//
// The patch carries all that git apply needs, and names both blobs in full: so git
// apply --3way finds the old one if the repository has it. A change of type is a
// deletion and a creation. As git does, Write takes a file as binary if its first 8000
// bytes hold a NUL; and also a text of over 16 MiB or 524288 lines. If one is over
// 1 MiB, the patch only says that the files differ, and complete is false. git apply
// then refuses this patch and all others in its input.
//
// Contents are written and hashed as they are. Where the repository converts files of
// its work tree (attributes like eol or filter), its blobs differ from the files: git
// apply --3way refuses such a patch, and git apply converts the content that it writes.
// git apply refuses paths that it never tracks, such as those below .git; Write does not.
//
// If Write fails before it has read both sides, it has written nothing.
func Write(out io.Writer, format objects.Format, path string, old, new Side) (complete bool, err error) {
	if err := check(path, old, new); err != nil {
		return false, err
	}
	a, err := old.read(format)
	if err != nil {
		return false, fmt.Errorf("cannot read the old %q: %w", path, err)
	}
	b, err := new.read(format)
	if err != nil {
		return false, fmt.Errorf("cannot read the new %q: %w", path, err)
	}
	p := patch{path: path, complete: true}
	if a.mode&unix.S_IFMT != b.mode&unix.S_IFMT && a.mode != 0 && b.mode != 0 {
		nothing := absent(format)
		p.change(a, nothing)
		p.change(nothing, b)
	} else {
		p.change(a, b)
	}
	if _, err := out.Write(p.Bytes()); err != nil {
		return false, fmt.Errorf("cannot write the patch of %q: %w", path, err)
	}
	return p.complete, nil
}

// Unified writes the lines that differ as a unified diff, and nothing if none does. A
// name is a path, or "" for a file that is not there. The names are those of git, with
// a/ and b/ before a relative one. For a file with a NUL in its first 8000 bytes, one line
// says that it differs. For texts of over 16 MiB or 524288 lines, a line in parentheses
// names the range of old and new lines with the change.
func Unified(oldName, newName string, old, new []byte) []byte {
	side := func(name string, data []byte) blob {
		b := blob{size: int64(len(data)), data: data}
		if name != "" {
			b.mode = Regular
		}
		return b
	}
	prefixed := func(prefix, name string) string {
		if strings.HasPrefix(name, "/") {
			return name
		}
		return prefix + name
	}
	a, b := side(oldName, old), side(newName, new)
	var p patch
	from, to := p.name(prefixed("a/", oldName), a), p.name(prefixed("b/", newName), b)
	switch {
	case bytes.Equal(old, new):
	case a.isText() && b.isText():
		p.hunks(from, to, a, b)
	case a.isBinary() || b.isBinary():
		fmt.Fprintf(&p, "Binary files %s and %s differ\n", from, to)
	default:
		fmt.Fprintf(&p, "--- %s\n+++ %s\n%s", lineName(from), lineName(to), tooLong(old, new))
	}
	return p.Bytes()
}

// tooLong tells the range of lines that differ.
func tooLong(old, new []byte) string {
	first := 0
	for shorter := min(len(old), len(new)); first < shorter && old[first] == new[first]; {
		first++
	}
	first = bytes.LastIndexByte(old[:first], '\n') + 1
	before := bytes.Count(old[:first], newline)
	old, new = old[first:], new[first:]
	same := 0
	for shorter := min(len(old), len(new)); same < shorter && old[len(old)-same-1] == new[len(new)-same-1]; {
		same++
	}
	beginsLine := func(text []byte) bool { return len(text) == same || text[len(text)-same-1] == '\n' }
	if !beginsLine(old) || !beginsLine(new) {
		_, rest, _ := bytes.Cut(old[len(old)-same:], newline)
		same = len(rest)
	}
	return fmt.Sprintf("(diff too long to show: %s became %s)\n", lineRange(before, old[:len(old)-same]), lineRange(before, new[:len(new)-same]))
}

var newline = []byte("\n")

// lineRange names the lines of a text that follows others.
func lineRange(before int, text []byte) string {
	n := bytes.Count(text, newline)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	switch n {
	case 0:
		return "no lines"
	case 1:
		return fmt.Sprintf("line %d", before+1)
	}
	return fmt.Sprintf("lines %d to %d", before+1, before+n)
}

func check(path string, sides ...Side) error {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.Contains(part, "\x00") {
			return fmt.Errorf("cannot write a patch of %q: no clean relative path", path)
		}
	}
	for _, s := range sides {
		switch s.Mode {
		case 0, Regular, Executable, Symlink:
		default:
			return fmt.Errorf("internal error: %q has a mode that git does not record: %o", path, s.Mode)
		}
	}
	return nil
}

// blob is a Side that has been read.
type blob struct {
	mode uint32
	id   string // in hexadecimal; zeros if nothing is there
	size int64
	data []byte // the content, up to maxText
}

func absent(format objects.Format) blob {
	return blob{id: strings.Repeat("00", format.Size())}
}

// read reads no more than Size and a byte.
func (s Side) read(format objects.Format) (blob, error) {
	if s.Mode == 0 {
		return absent(format), nil
	}
	r, err := s.Open()
	if err != nil {
		return blob{}, err
	}
	defer r.Close()
	hash := format.New()
	fmt.Fprintf(hash, "blob %d\x00", s.Size)
	var held bytes.Buffer
	to := io.Writer(hash)
	if s.Size <= maxText {
		held.Grow(int(max(s.Size, 0)))
		to = io.MultiWriter(hash, &held)
	}
	if n, err := io.Copy(to, io.LimitReader(r, s.Size+1)); err != nil {
		return blob{}, err
	} else if n != s.Size {
		return blob{}, ErrChanged
	}
	return blob{s.Mode, fmt.Sprintf("%x", hash.Sum(nil)), s.Size, held.Bytes()}, nil
}

func (b blob) isText() bool {
	return b.size <= maxText && !b.isBinary() && bytes.Count(b.data, newline) < maxLines
}

func (b blob) isBinary() bool {
	return bytes.IndexByte(b.data[:min(len(b.data), sniffed)], 0) >= 0
}

type patch struct {
	bytes.Buffer
	path     string
	complete bool
}

// change adds the patch from a to b, which are of one type unless one is absent.
func (p *patch) change(a, b blob) {
	if a.mode == b.mode && a.id == b.id {
		return
	}
	p.header(a, b)
	switch {
	case a.id == b.id:
	case a.isText() && b.isText():
		p.hunks(p.name("a/"+p.path, a), p.name("b/"+p.path, b), a, b)
	case a.size <= maxLiteral && b.size <= maxLiteral:
		p.WriteString("GIT binary patch\n")
		p.literal(b.data)
		p.literal(a.data) // for git apply --reverse
	default:
		fmt.Fprintf(p, "Binary files %s and %s differ\n", p.name("a/"+p.path, a), p.name("b/"+p.path, b))
		p.complete = false
	}
}

func (p *patch) header(a, b blob) {
	fmt.Fprintf(p, "diff --git %s %s\n", quote("a/"+p.path), quote("b/"+p.path))
	switch {
	case a.mode == 0:
		fmt.Fprintf(p, "new file mode %o\n", b.mode)
	case b.mode == 0:
		fmt.Fprintf(p, "deleted file mode %o\n", a.mode)
	case a.mode != b.mode:
		fmt.Fprintf(p, "old mode %o\nnew mode %o\n", a.mode, b.mode)
	}
	switch {
	case a.id == b.id:
	case a.mode == b.mode:
		fmt.Fprintf(p, "index %s..%s %o\n", a.id, b.id, a.mode)
	default:
		fmt.Fprintf(p, "index %s..%s\n", a.id, b.id)
	}
}

// name returns the name that a patch gives to a side.
func (p *patch) name(path string, b blob) string {
	if b.mode == 0 {
		return "/dev/null"
	}
	return quote(path)
}

// hunks adds the lines that differ. An empty file that comes or goes has none.
func (p *patch) hunks(from, to string, a, b blob) {
	text := diff.Diff("", a.data, "", b.data)
	if text == nil {
		return
	}
	hunks, ok := bytes.CutPrefix(text, []byte("diff  \n--- \n+++ \n"))
	if !ok {
		panic("internal error: the package diff has another header")
	}
	fmt.Fprintf(p, "--- %s\n+++ %s\n", lineName(from), lineName(to))
	p.Write(hunks)
}

// lineName formats a name for the lines --- and +++. Like git, it adds a tab to a name with
// blanks: otherwise patch(1) takes the text after the blank as a time.
func lineName(name string) string {
	if strings.Contains(name, " ") {
		return name + "\t"
	}
	return name
}
