package confine

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/pattern"
)

// Reasons to refuse a path, beside those of the system. A refusal does not say
// where a link leads, since that may be a secret.
var (
	ErrOutside  = errors.New("outside every root")
	ErrAboveTmp = errors.New("it leaves /tmp through \"..\"")
	ErrReplaced = errors.New("its root is not the one that was opened")
	ErrEmpty    = errors.New("it is empty")
	ErrNUL      = errors.New("it holds a NUL byte")
	ErrProcLink = errors.New("it leads through a link in /proc, which is another one to everyone who follows it")
)

// maxNamedRoots is how many roots a refusal names: enough to recognize the
// workspace, and still one line when a list of toolchains was added to it.
const maxNamedRoots = 4

// Refusal is a path that is refused. Err is one of the errors above, a *Denial or
// a unix.Errno.
type Refusal struct {
	Path string // as it was given
	Mode Mode
	Err  error

	roots []string // those that would allow the mode
	hint  string

	where     string // the place outside that the path leads to, "" if unknown
	whereHint string
	disclosed bool
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("cannot %s %q: %v", r.Mode, r.Path, r.Err)
	if r.Err == ErrOutside {
		text = fmt.Sprintf("cannot %s %q: outside every %s root (%s)", r.Mode, r.Path, able(r.Mode), r.named())
	}
	if r.disclosed && r.where != "" {
		text += fmt.Sprintf("; it is %q", r.where)
	}
	return text
}

func (r *Refusal) Unwrap() error { return r.Err }

const noProtect = "--no-protect would allow it"

// Hint is the option that would allow the path, when there is one.
func (r *Refusal) Hint() string {
	if _, ok := r.Err.(*HostRuns); ok {
		return noProtect
	}
	if r.disclosed && r.hint == "" {
		return r.whereHint
	}
	return r.hint
}

// Where is the place outside every root that the path leads to, "" if it is refused
// for another reason. It may be a secret: a link can be planted to find out which
// files exist.
func (r *Refusal) Where() string { return r.where }

// Disclose returns a refusal whose text and hint say where the path leads.
func (r *Refusal) Disclose() *Refusal {
	open := *r
	open.disclosed = true
	return &open
}

// reasons are the words for programs. Any other error is one of the system's.
var reasons = map[error]string{
	ErrOutside:        "outside",
	ErrAboveTmp:       "above-tmp",
	ErrReplaced:       "root-replaced",
	ErrEmpty:          "empty",
	ErrNUL:            "nul",
	ErrProcLink:       "proc-link",
	ErrNotAllowed:     "not-allowed",
	ErrManyNames:      "hard-links",
	ErrGitDir:         "git-directory",
	ErrRaced:          "raced",
	ErrSpecial:        "special-file",
	unix.ELOOP:        "loop",
	unix.ENOENT:       "missing",
	unix.ENOTDIR:      "not-a-directory",
	unix.EACCES:       "unreadable",
	unix.ENAMETOOLONG: "too-long",
}

// Reason is one word for why the path is refused; it does not change from one
// release to the next.
func (r *Refusal) Reason() string {
	if _, ok := r.Err.(*Denial); ok {
		return "denied"
	}
	if _, ok := r.Err.(*HostRuns); ok {
		return "host-runs"
	}
	if word, ok := reasons[r.Err]; ok {
		return word
	}
	return "system"
}

// Rule names the rule that forbids the path, "" if none does.
func (r *Refusal) Rule() string {
	if d, ok := r.Err.(*Denial); ok {
		return d.rule()
	}
	if r.Err == ErrGitDir {
		return "default: git directories are not written"
	}
	return ""
}

func (r *Refusal) named() string {
	if len(r.roots) == 0 {
		return "there are none"
	}
	var quoted []string
	for _, root := range r.roots[:min(len(r.roots), maxNamedRoots)] {
		quoted = append(quoted, fmt.Sprintf("%q", root))
	}
	text := strings.Join(quoted, ", ")
	if more := len(r.roots) - len(quoted); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func able(m Mode) string {
	if m == Write {
		return "writable"
	}
	return "readable"
}

func (b *Batch) refuse(typed string, p parsedPath, where string, err error) error {
	r := &Refusal{Path: typed, Mode: b.Mode, Err: err}
	if err == ErrOutside {
		r.where, r.whereHint = where, b.rootHint(where)
	}
	for _, root := range b.workspace.roots {
		if b.Mode == Read || root.Writable {
			r.roots = append(r.roots, root.Path)
		}
	}
	r.hint = b.hint(p, err)
	if r.hint == "" && r.where != "" && b.workspace.RootOf(r.where, Read) != nil {
		r.hint = r.whereHint // it may be read, so where it is is no secret
	}
	return r
}

// hint names the option that would allow the path. It depends on the typed text
// alone: a hint that depends on the file system would disclose it.
func (b *Batch) hint(p parsedPath, err error) string {
	if d, ok := errors.AsType[*Denial](err); ok {
		return fmt.Sprintf("leave out %s to allow it", d.rule())
	}
	switch err {
	case ErrOutside:
		return b.rootHint(p.lexical)
	case ErrNotAllowed:
		return b.allowHint(p)
	case ErrGitDir:
		return noProtect
	}
	return ""
}

// allowHint names the pattern that would allow the path. There is none for an
// allowed path that leads to a refused one.
func (b *Batch) allowHint(p parsedPath) string {
	w := b.workspace
	if w.rules(p.lexical, false, b.Mode) == nil {
		return ""
	}
	for _, root := range w.roots {
		if below, inside := root.relative(p.lexical, false); inside && root.Writable {
			return fmt.Sprintf("--allow-write %q would allow it", pattern.Quote(below))
		}
	}
	return ""
}

// rootHint names the root that would allow a place. There is none for a place
// in a root: a path that is typed there leaves it through a link.
func (b *Batch) rootHint(place string) string {
	for _, root := range b.workspace.roots {
		if place == "" || root.covers(place, b.Mode) {
			return ""
		}
	}
	if b.Mode == Read {
		return fmt.Sprintf("--readable %q would allow it", place)
	}
	dir := path.Dir(place)
	if DeniedRoot(dir, b.workspace.home) {
		return ""
	}
	return fmt.Sprintf("--writable %q would allow it", dir)
}
