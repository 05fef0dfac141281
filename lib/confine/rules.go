package confine

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/pattern"
)

// Rule is a pattern for paths below every root.
type Rule struct {
	Pattern *pattern.Pattern
	Source  string // where it was given, for messages; "" for the command line
}

// Rules restrict the access that roots give. The zero value restricts nothing.
type Rules struct {
	Deny       []Rule // paths that one of them covers are neither read nor written
	DenyRead   []Rule // paths that one of them covers are not read
	AllowWrite []Rule // if there are any, only paths that one of them matches are written

	Protect []Protected
}

// Protected is a path that is not written, and nothing below it.
type Protected struct {
	Path   string // absolute
	Source string // as in Rule
}

// bothPlaces adds the places that protected paths lead to.
func bothPlaces(list []Protected) []Protected {
	var both []Protected
	for _, p := range list {
		trail, _ := Follow(p.Path) // as far as it can be followed
		both = append(both, Protected{path.Clean(p.Path), p.Source}, Protected{trail.Place, p.Source})
	}
	return both
}

// Reasons to refuse a path because of rules, beside a Denial.
var (
	ErrNotAllowed = errors.New("no --allow-write pattern matches it")
	ErrManyNames  = errors.New("it has several hard links, and a rule may bear on another of them")
)

// Denial is a path that a rule forbids.
type Denial struct {
	Rule Rule

	option string
	path   string // of --protect, which has no pattern
	beyond bool   // it forbids the place that the path leads to
}

func (d *Denial) Error() string {
	what := "it"
	if d.beyond {
		what = "the place it leads to"
	}
	return fmt.Sprintf("%s covers %s", d.rule(), what)
}

// Pattern is the pattern of the rule, or the path of --protect.
func (d *Denial) Pattern() string {
	if d.Rule.Pattern == nil {
		return d.path
	}
	return d.Rule.Pattern.String()
}

// rule names the rule as its user knows it.
func (d *Denial) rule() string {
	text := fmt.Sprintf("%s %q", d.option, d.Pattern())
	if d.Rule.Source != "" {
		text += " of " + d.Rule.Source
	}
	return text
}

// rules applies the rules to a path as it was typed, or to its place (beyond).
// They do not concern a path outside every root.
func (w *Workspace) rules(name string, beyond bool, mode Mode) error {
	for _, p := range w.narrow.Protect {
		if mode == Write && fsat.Within(name, p.Path) {
			return &Denial{Rule: Rule{Source: p.Source}, option: "--protect", path: p.Path, beyond: beyond}
		}
	}
	writable, allowed := false, mode == Read || len(w.narrow.AllowWrite) == 0
	for _, r := range w.roots {
		below, inside := r.relative(name, beyond)
		if !inside {
			continue
		}
		if d := w.denies(below, mode); d != nil {
			d.beyond = beyond
			return d
		}
		writable = writable || r.Writable
		allowed = allowed || r.Writable && (r.scratch || matched(w.narrow.AllowWrite, below))
	}
	if writable && !allowed {
		return ErrNotAllowed
	}
	return nil
}

// denies returns the denial of a path below a root, or nil.
func (w *Workspace) denies(below string, mode Mode) *Denial {
	for _, rule := range w.narrow.Deny {
		if rule.Pattern.Covers(below) {
			return &Denial{Rule: rule, option: "--deny"}
		}
	}
	if mode == Write {
		return nil
	}
	for _, rule := range w.narrow.DenyRead {
		if rule.Pattern.Covers(below) {
			return &Denial{Rule: rule, option: "--deny-read"}
		}
	}
	return nil
}

func matched(rules []Rule, below string) bool {
	for _, rule := range rules {
		if rule.Pattern.Match(below) {
			return true
		}
	}
	return false
}

// relative returns name relative to the root, for rules. A resolved name can only
// be below the resolved root; a typed one may begin with the root as it was given.
func (r heldRoot) relative(name string, resolved bool) (below string, inside bool) {
	top := r.Path
	if !fsat.Within(name, top) {
		top = r.given
		if resolved || top == "" || !fsat.Within(name, top) {
			return "", false
		}
	}
	switch {
	case !r.Dir:
		return path.Base(name), name == top
	case name == top:
		return ".", true
	case top == "/":
		return name[1:], true
	}
	return name[len(top)+1:], true
}

// rulesOnWriting reports whether a rule restricts writing.
func (w *Workspace) rulesOnWriting() bool {
	return len(w.narrow.Deny)+len(w.narrow.AllowWrite)+len(w.narrow.Protect) > 0
}

// singular refuses to write a file with several hard links if there are rules: a
// rule is about names, and another name of the file may be forbidden.
func (w *Workspace) singular(where string, mode Mode) error {
	if mode == Read || !w.rulesOnWriting() {
		return nil
	}
	var st unix.Stat_t
	if err := w.view.lstat(where, &st); err != nil {
		return nil // a missing file has no name yet
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 {
		return ErrManyNames
	}
	return nil
}
