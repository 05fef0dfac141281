package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"pikuri/lib/internal/lazy"
)

// Action is the kind of a Change.
type Action string

const (
	Add    Action = "add"
	Modify Action = "modify"
	Delete Action = "delete"
	Move   Action = "move" // and modifies it, if there are hunks
)

// Change is the change of one file in a patch.
type Change struct {
	Action Action
	Path   string
	To     string      // where a Move goes
	Mode   fs.FileMode // 0644 or 0755 as git records it; 0: unchanged

	hunks   []hunk
	lenient bool // of apply_patch: no line numbers, and blanks at ends of lines do not count
}

// hunk replaces lines of a file by others.
type hunk struct {
	at      int      // the first line, from 1; 0 if it is not known
	context []string // lines before it, each somewhere behind the one before
	lines   []line
	atEnd   bool // it is at the end of the file
}

// line is a line of a hunk.
type line struct {
	op   byte   // ' ', '-' or '+'
	text string // with its end, if it has one
}

// Parse reads a patch: unified diffs, plain or from git, and the format of apply_patch,
// which begins with "*** Begin Patch".
//
// It refuses binary patches, copies, symbolic links and submodules, and lines behind a
// change that are neither part of one nor text that git, mail and other programs write
// there. In a unified diff, it strips "a/" and "b/" from names.
func Parse(text string) ([]Change, error) {
	if endsInCRLF([]byte(text)) { // on its way: git's headers end in LF, even if the files have CRLF
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	if begun := strings.TrimLeft(text, " \t\r\n"); strings.HasPrefix(begun, beginPatch) {
		text = begun
	}
	r := newReader(text)
	var changes []Change
	for around := atTop; ; {
		l, more := r.peek()
		var some []Change
		var err error
		switch {
		case !more && len(changes) == 0:
			return nil, errNoPatch
		case !more:
			return changes, nil
		case !r.begins(l, around):
			err = r.text(l, &around)
		case strings.HasPrefix(l, beginPatch):
			some, err = r.envelope()
		case strings.HasPrefix(l, "diff "):
			some = make([]Change, 1)
			some[0], err = r.gitSection(l)
		default:
			some = make([]Change, 1)
			some[0], err = r.files(Change{}, "", "")
		}
		if err != nil {
			return nil, err
		}
		if some != nil {
			changes, around = append(changes, some...), behind
		}
	}
}

// place is where text stands around changes.
type place int

const (
	atTop   place = iota // before them; behind a line "commit", or the message of a mail
	message              // of a mail, which may quote a patch in part
	behind               // a change
	ending               // behind a signature or a closing fence
)

// begins reports whether the next lines begin a change.
func (r *reader) begins(l string, around place) bool {
	git := strings.HasPrefix(l, "diff --git ")
	plain := strings.HasPrefix(l, "--- ") && strings.HasPrefix(r.ahead(1), "+++ ")
	if around == message {
		return git && gitHeader().MatchString(r.ahead(1)) || plain && strings.HasPrefix(r.ahead(2), "@@ -")
	}
	return git || plain ||
		strings.TrimRight(l, " \t") == beginPatch // an indented one is in the message of a commit
}

var (
	gitHeader  = lazy.Regexp(`^(old mode|new mode|new file mode|deleted file mode|index|similarity index|dissimilarity index|rename from|rename to|copy from|copy to|---) `)
	fileChange = lazy.Regexp(`^(\*\*\* (Add|Update|Delete) File: |Binary files .* differ$|GIT binary patch$|Submodule .*[0-9a-f]{7})`)
	mailBegins = lazy.Regexp(`^From [0-9a-f]{40,64} `)
	commit     = lazy.Regexp(`^commit [0-9a-f]{7,64}( |$)`)
	fence      = lazy.Regexp("^\\s*(```|~~~)")

	// others is text behind a change: by diff, svn, hg, pk-fs edit, git log --oneline, and a shell's.
	others = lazy.Regexp(`^(\s*$|diff |Index: |Only in |#|={20}|sha256 [0-9a-f]{64}$|[0-9a-f]{7,64} |EOF$)`)
)

// text passes over a line that is part of no change. Behind a change it refuses a line
// that may be a part of it: nothing of a patch is dropped.
func (r *reader) text(l string, around *place) error {
	switch {
	case mailBegins().MatchString(l):
		*around = message
	case *around == message && l == "---":
		*around = atTop
	case *around == message:
	case strings.HasPrefix(l, "@@ -"):
		return r.failed("a hunk has no file: lines with --- and +++ are missing")
	case fileChange().MatchString(l):
		return r.failed("%q belongs to no file: a header that git writes, or *** Begin Patch, is missing", l)
	case *around == atTop, others().MatchString(l):
	case commit().MatchString(l):
		*around = atTop
	case fence().MatchString(l), l == "-- " && isWord(r.ahead(1)):
		*around = ending
	case *around == ending && isWord(l) && !gitHeader().MatchString(l):
	default:
		return r.failed("%q belongs to no hunk: count the lines in the header of the hunk before it anew, or remove the line", l)
	}
	r.at++
	return nil
}

// isWord reports whether a line can be none of a hunk.
func isWord(l string) bool { return l != "" && strings.IndexByte("+- @*\\", l[0]) < 0 }

var errNoPatch = errors.New(`there is no change in it: neither "--- NAME" and "+++ NAME" nor "*** Begin Patch" begins one`)

// reader reads a patch line by line.
type reader struct {
	lines []string // with their ends
	at    int
}

func newReader(text string) *reader {
	r := &reader{}
	for l := range strings.Lines(text) {
		r.lines = append(r.lines, l)
	}
	return r
}

// peek returns the next line without its end; more is false at the end.
func (r *reader) peek() (text string, more bool) {
	if r.at == len(r.lines) {
		return "", false
	}
	return trimEnd(r.lines[r.at]), true
}

// ahead returns a later line without its end, "" behind the last one.
func (r *reader) ahead(n int) string {
	if r.at+n >= len(r.lines) {
		return ""
	}
	return trimEnd(r.lines[r.at+n])
}

func (r *reader) failed(format string, args ...any) error {
	return fmt.Errorf("line %d of the patch: %w", r.at+1, fmt.Errorf(format, args...))
}

// trimEnd removes LF or CR LF. A CR without LF ends no line.
func trimEnd(line string) string {
	if text, ok := strings.CutSuffix(line, "\n"); ok {
		return strings.TrimSuffix(text, "\r")
	}
	return line
}

func hasEnd(line string) bool { return strings.HasSuffix(line, "\n") }

// gitSection reads the change of a file with git's header.
func (r *reader) gitSection(header string) (Change, error) {
	c := Change{Action: Modify}
	from, to := gitNames(strings.TrimPrefix(header, "diff --git "))
	for r.at++; ; r.at++ {
		l, _ := r.peek()
		word := func(prefix string) (string, bool) { return strings.CutPrefix(l, prefix) }
		var err error
		if mode, ok := word("new file mode "); ok {
			c.Action = Add
			err = c.setMode(mode)
		} else if mode, ok := word("deleted file mode "); ok {
			c.Action = Delete
			err = new(Change).setMode(mode)
		} else if mode, ok := word("new mode "); ok {
			err = c.setMode(mode)
		} else if mode, ok := word("old mode "); ok {
			err = new(Change).setMode(mode)
		} else if name, ok := word("rename from "); ok {
			c.Action = Move
			from, err = unquoted(name)
			from = "a/" + from
		} else if name, ok := word("rename to "); ok {
			c.Action = Move
			to, err = unquoted(name)
			to = "b/" + to
		} else if _, ok := word("copy "); ok {
			err = errors.New("it copies a file, which is not supported")
		} else if _, ok := word("index "); ok {
			_, mode, _ := strings.Cut(strings.TrimPrefix(l, "index "), " ")
			if mode != "" {
				err = new(Change).setMode(mode)
			}
		} else if _, ok := word("similarity index "); ok {
		} else if _, ok := word("dissimilarity index "); ok {
		} else if l == "GIT binary patch" || strings.HasPrefix(l, "Binary files ") {
			err = errors.New("it changes a binary file, which is not supported")
		} else if from != to && !(hasPrefix(from) && hasPrefix(to)) {
			err = fmt.Errorf("%q has other prefixes than git's: git diff --no-prefix prints none", header)
		} else if strings.HasPrefix(l, "--- ") {
			return r.files(c, from, to)
		} else if from == "" {
			err = fmt.Errorf("the names in %q cannot be told apart", header)
		} else {
			return c.named(from, to, r)
		}
		if err != nil {
			return c, r.failed("%w", err)
		}
	}
}

// setMode parses a mode of git.
func (c *Change) setMode(text string) error {
	switch text {
	case "100644", "100664":
		c.Mode = 0o644
	case "100755":
		c.Mode = 0o755
	case "120000":
		return errors.New("it is about a symbolic link, which is not supported")
	case "160000":
		return errors.New("it is about a submodule, which is not supported")
	default:
		return fmt.Errorf("%q is no mode of a file", text)
	}
	return nil
}

// gitNames returns the two names in a header, "" if they cannot be separated. Unquoted
// names with blanks can be separated only if they are the same.
func gitNames(text string) (from, to string) {
	if strings.HasPrefix(text, `"`) {
		end := 1
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		if end+2 < len(text) {
			from, fromErr := unquoted(text[:end+1])
			to, toErr := unquoted(text[end+2:])
			if fromErr == nil && toErr == nil {
				return from, to
			}
		}
		return "", ""
	}
	if from, to, ok := strings.Cut(text, ` "`); ok {
		if to, err := unquoted(`"` + to); err == nil {
			return from, to
		}
	}
	half := len(text) / 2
	if len(text)%2 == 1 && text[half] == ' ' && afterSlash(text[:half]) == afterSlash(text[half+1:]) {
		return text[:half], text[half+1:]
	}
	if from, to, ok := strings.Cut(text, " "); ok && !strings.Contains(to, " ") {
		return from, to
	}
	return "", ""
}

func afterSlash(name string) string {
	_, rest, _ := strings.Cut(name, "/")
	return rest
}

// unquoted reads a name, which may be quoted as a C string.
func unquoted(name string) (string, error) {
	if !strings.HasPrefix(name, `"`) {
		return name, nil
	}
	plain, err := strconv.Unquote(name)
	if err != nil {
		return "", fmt.Errorf("%s is no name in quotes", name)
	}
	return plain, nil
}

const devNull = "/dev/null"

// files reads the lines --- and +++ and the hunks. from and to are git's names.
func (r *reader) files(c Change, from, to string) (Change, error) {
	isGit := c.Action != ""
	var names [2]string
	for i, prefix := range []string{"--- ", "+++ "} {
		l, _ := r.peek()
		name, ok := strings.CutPrefix(l, prefix)
		if !ok {
			return c, r.failed("a line with +++ and the new name is missing")
		}
		if !strings.HasPrefix(name, `"`) {
			name, _, _ = strings.Cut(name, "\t") // a time follows
		}
		name, err := unquoted(strings.TrimRight(name, "\t"))
		if err != nil {
			return c, r.failed("%w", err)
		}
		names[i] = name
		r.at++
	}
	if !isGit {
		c.Action = Modify
	}
	given := names
	switch {
	case names[0] == devNull && names[1] == devNull:
		return c, r.failed("both names are %s", devNull)
	case names[0] == devNull:
		c.Action = Add
		names[1] = strings.TrimPrefix(names[1], "b/")
		names[0] = names[1]
	case names[1] == devNull:
		c.Action = Delete
		names[0] = strings.TrimPrefix(names[0], "a/")
		names[1] = names[0]
	}
	if c.Action == Move || isGit && (given[0] == from || given[1] == to) {
		names = [2]string{from, to} // these tell whether there are prefixes
	}
	c, err := c.named(names[0], names[1], r)
	for err == nil {
		l, more := r.peek()
		if !more || !strings.HasPrefix(l, "@@ -") {
			break
		}
		var h hunk
		if h, err = r.hunk(l); err == nil {
			c.hunks = append(c.hunks, h)
		}
	}
	if err == nil && len(c.hunks) == 0 {
		err = r.failed("%q has no hunk: a line like @@ -1,3 +1,4 @@ is missing", c.Path)
	}
	return c, err
}

// named sets the names of a change. Without git's header, the file has the new name. Names
// that are the same have no prefixes: those of git differ.
func (c Change) named(from, to string, r *reader) (Change, error) {
	if from != to && hasPrefix(from) && hasPrefix(to) {
		from, to = from[2:], to[2:]
	}
	c.Path = to
	switch c.Action {
	case Move:
		c.Path, c.To = from, to
	case Delete:
		c.Path = from
	}
	if c.Path == "" || c.Action == Move && c.To == "" {
		return c, r.failed("a file has no name")
	}
	return c, nil
}

// hasPrefix reports whether a name begins with a prefix of git: a/ and b/ (the other way
// round with -R), or c/, i/, o/ and w/.
func hasPrefix(name string) bool {
	return len(name) > 2 && name[1] == '/' && strings.IndexByte("abciow", name[0]) >= 0
}

// hunk reads a hunk. Its header gives the number of its lines.
func (r *reader) hunk(header string) (h hunk, err error) {
	fields := strings.Fields(header)
	var old, new span
	ok := len(fields) >= 4 && fields[3] == "@@"
	if ok {
		ok = old.parse(fields[1], "-") && new.parse(fields[2], "+")
	}
	if !ok {
		return h, r.failed("%q is no header of a hunk, such as @@ -1,3 +1,4 @@", header)
	}
	h.at = old.first
	if old.count == 0 {
		h.at++ // lines are added behind this one
	}
	begin := r.at
	r.at++
	for old.count > 0 || new.count > 0 {
		if r.at == len(r.lines) {
			return h, r.miscounted(begin)
		}
		l := line{' ', r.lines[r.at]}
		if trimEnd(l.text) != "" {
			l = line{l.text[0], l.text[1:]}
		}
		switch l.op {
		case ' ':
			old.count--
			new.count--
		case '-':
			old.count--
		case '+':
			new.count--
		case '\\':
			if err := h.noNewline(); err != nil {
				return h, r.failed("%w", err)
			}
			r.at++
			continue
		default:
			return h, r.failed("%q begins with neither a blank nor + nor -", trimEnd(r.lines[r.at]))
		}
		if old.count < 0 || new.count < 0 {
			return h, r.miscounted(begin)
		}
		if !hasEnd(l.text) {
			l.text += "\n" // the patch itself ends without one
		}
		h.lines = append(h.lines, l)
		r.at++
	}
	if l, more := r.peek(); more && strings.HasPrefix(l, `\`) {
		if err := h.noNewline(); err != nil {
			return h, r.failed("%w", err)
		}
		r.at++
	}
	if l, more := r.peek(); more && l != "" && strings.IndexByte("+- ", l[0]) >= 0 && !strings.HasPrefix(l, "--- ") && l != "-- " {
		return h, r.miscounted(begin)
	}
	return h, nil
}

// miscounted returns the error for a hunk whose lines do not match its header.
func (r *reader) miscounted(begin int) error {
	r.at = begin
	header, _ := r.peek()
	return r.failed("the hunk has other lines than %q says: count them anew", header)
}

// noNewline removes the newline of the last line.
func (h *hunk) noNewline() error {
	if len(h.lines) == 0 {
		return errors.New(`a line begins with \, and there is none before it`)
	}
	last := &h.lines[len(h.lines)-1]
	last.text = strings.TrimSuffix(last.text, "\n")
	return nil
}

// span is one of the two numbers of a hunk's header.
type span struct{ first, count int }

// maxSpan bounds the numbers in a hunk's header: no file has more lines.
const maxSpan = maxFile

func (s *span) parse(text, prefix string) bool {
	text, ok := strings.CutPrefix(text, prefix)
	first, count, both := strings.Cut(text, ",")
	var err, countErr error
	s.first, err = strconv.Atoi(first)
	if s.count = 1; both {
		s.count, countErr = strconv.Atoi(count)
	}
	return ok && err == nil && countErr == nil && s.first >= 0 && s.count >= 0 && s.first <= maxSpan && s.count <= maxSpan
}

const (
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
	endOfFile  = "*** End of File"
	addFile    = "*** Add File: "
	deleteFile = "*** Delete File: "
	updateFile = "*** Update File: "
	moveTo     = "*** Move to: "
)

// envelope reads the format of apply_patch, from its first line to its last.
func (r *reader) envelope() (changes []Change, err error) {
	r.at++
	for {
		l, more := r.peek()
		if !more {
			return nil, r.failed("%q is missing", endPatch)
		}
		r.at++
		c := Change{lenient: true}
		var ok bool
		switch {
		case strings.TrimSpace(l) == endPatch:
			if len(changes) == 0 {
				return nil, errNoPatch
			}
			return changes, nil
		case strings.TrimSpace(l) == "":
			continue
		default:
			for prefix, action := range map[string]Action{addFile: Add, deleteFile: Delete, updateFile: Modify} {
				if c.Path, ok = strings.CutPrefix(l, prefix); ok {
					c.Action, c.Path = action, strings.TrimSpace(c.Path)
					break
				}
			}
		}
		switch {
		case !ok:
			r.at--
			return nil, r.failed("%q begins no file: %sNAME, %sNAME or %sNAME would", l, addFile, updateFile, deleteFile)
		case c.Path == "":
			return nil, r.failed("a file has no name")
		case c.Action == Add:
			c.hunks = []hunk{r.added()}
		case c.Action == Modify:
			err = r.updated(&c)
		}
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
}

// added reads the lines of a new file.
func (r *reader) added() (h hunk) {
	for ; r.at < len(r.lines) && strings.HasPrefix(r.lines[r.at], "+"); r.at++ {
		h.lines = append(h.lines, line{'+', trimEnd(r.lines[r.at][1:]) + "\n"})
	}
	return h
}

// updated reads the new path of a file, if there is one, and its hunks.
func (r *reader) updated(c *Change) error {
	if l, _ := r.peek(); strings.HasPrefix(l, moveTo) {
		c.Action, c.To = Move, strings.TrimSpace(strings.TrimPrefix(l, moveTo))
		if c.To == "" {
			return r.failed("a file has no name")
		}
		r.at++
	}
	var h hunk
	next := func() {
		if len(h.lines) > 0 {
			c.hunks = append(c.hunks, h)
			h = hunk{}
		}
	}
	for ; r.at < len(r.lines); r.at++ {
		l := trimEnd(r.lines[r.at])
		switch {
		case strings.TrimSpace(l) == endOfFile:
			h.atEnd = true
			next()
			continue
		case strings.HasPrefix(l, "*** "):
		case l == "@@" || strings.HasPrefix(l, "@@ "):
			next()
			if context := strings.TrimPrefix(strings.TrimPrefix(l, "@@"), " "); strings.TrimSpace(context) != "" {
				h.context = append(h.context, context)
			}
			continue
		case l == "":
			h.lines = append(h.lines, line{' ', "\n"})
			continue
		case strings.IndexByte(" -+", l[0]) >= 0:
			h.lines = append(h.lines, line{l[0], l[1:] + "\n"})
			continue
		default:
			return r.failed("%q begins with neither a blank nor + nor -", l)
		}
		break
	}
	if len(h.context) > 0 && len(h.lines) == 0 {
		return r.failed("a hunk of %q has no lines", c.Path)
	}
	next()
	if len(c.hunks) == 0 && c.Action != Move {
		return r.failed("%q has no hunk", c.Path)
	}
	return nil
}
