package confine

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"pikuri/lib/pattern"
)

// Why a path is refused, beyond what the system says. A refusal never says
// where a link leads: that may be the secret.
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

// Refusal says which path is refused, and why. Err is one of the errors above, a
// *Denial or a unix.Errno.
type Refusal struct {
	Path string // as it was given
	Mode Mode
	Err  error

	roots []string // those that would allow the mode
	hint  string
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("cannot %s %q: %v", r.Mode, r.Path, r.Err)
	if r.Err == ErrOutside {
		text = fmt.Sprintf("cannot %s %q: outside every %s root (%s)", r.Mode, r.Path, able(r.Mode), r.named())
	}
	return text
}

func (r *Refusal) Unwrap() error { return r.Err }

// Hint is the option that would allow the path, when there is one.
func (r *Refusal) Hint() string { return r.hint }

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

func (b *Batch) refuse(typed string, s spelling, err error) error {
	r := &Refusal{Path: typed, Mode: b.Mode, Err: err}
	for _, root := range b.workspace.roots {
		if b.Mode == Read || root.Writable {
			r.roots = append(r.roots, root.Path)
		}
	}
	r.hint = b.hint(s, err)
	return r
}

// hint names the option that would allow the path. It is made from what was
// typed alone: a hint made from what is there would tell what is there.
func (b *Batch) hint(s spelling, err error) string {
	if d, ok := errors.AsType[*Denial](err); ok {
		return fmt.Sprintf("leave out %s to allow it", d.rule())
	}
	switch err {
	case ErrOutside:
		return b.rootHint(s)
	case ErrNotAllowed:
		return b.allowHint(s)
	}
	return ""
}

// allowHint names the pattern that would allow the path. There is none for a
// path that is allowed and leads to one that is not.
func (b *Batch) allowHint(s spelling) string {
	w := b.workspace
	if w.rules(s.lexical, false, b.Mode) == nil {
		return ""
	}
	for _, root := range w.roots {
		if below, inside := root.relative(s.lexical, false); inside && root.Writable {
			return fmt.Sprintf("--allow-write %q would allow it", pattern.Quote(below))
		}
	}
	return ""
}

// rootHint names the root that would allow the path. There is none for a path
// that leaves through a link.
func (b *Batch) rootHint(s spelling) string {
	for _, root := range b.workspace.roots {
		if s.lexical == "" || root.covers(s.lexical, b.Mode) {
			return ""
		}
	}
	if b.Mode == Read {
		return fmt.Sprintf("--readable %q would allow it", s.lexical)
	}
	dir := path.Dir(s.lexical)
	if DeniedRoot(dir, b.workspace.home) {
		return ""
	}
	return fmt.Sprintf("--writable %q would allow it", dir)
}
