package confine

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"pikuri/lib/pattern"
)

// Rule is a pattern that decides about paths below every root.
type Rule struct {
	Pattern *pattern.Pattern
	Source  string // where it was given, for messages; "" for the command line
}

// Rules narrow what the roots allow. The zero value narrows nothing.
type Rules struct {
	Deny       []Rule // what one of them covers is neither read nor written
	DenyRead   []Rule // what one of them covers is not read
	AllowWrite []Rule // if there are any, only what one of them matches is written
}

// What rules can object to, beyond being covered by one.
var (
	ErrNotAllowed = errors.New("no --allow-write pattern matches it")
	ErrManyNames  = errors.New("it has several hard links, and a rule may bear on another of them")
)

// Denial says which rule forbids a path.
type Denial struct {
	Rule Rule

	option string
	beyond bool // not the path itself, but where it leads
}

func (d *Denial) Error() string {
	what := "it"
	if d.beyond {
		what = "the place it leads to"
	}
	return fmt.Sprintf("%s covers %s", d.rule(), what)
}

// rule names the rule as its user knows it.
func (d *Denial) rule() string {
	text := fmt.Sprintf("%s %q", d.option, d.Rule.Pattern)
	if d.Rule.Source != "" {
		text += " of " + d.Rule.Source
	}
	return text
}

// rules holds the rules against one name of what is asked for. A path outside
// every root is none of their business.
func (w *Workspace) rules(name string, beyond bool, mode Mode) error {
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

// denies returns what forbids a path below a root.
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

// relative returns name as rules see it from the top of the root. A resolved
// name can only be below the resolved root; one that was typed may begin with
// the root as it was given.
func (r heldRoot) relative(name string, resolved bool) (below string, inside bool) {
	top := r.Path
	if !contains(top, name) {
		top = r.given
		if resolved || top == "" || !contains(top, name) {
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

// rulesOnWriting tells whether a rule bears on writing.
func (w *Workspace) rulesOnWriting() bool {
	return len(w.narrow.Deny)+len(w.narrow.AllowWrite) > 0
}

// singular refuses to have a file written that has further names, where one of
// these might be forbidden. A rule is about names, and a hard link is a second
// name for the same thing.
func (w *Workspace) singular(where string, mode Mode) error {
	if mode == Read || !w.rulesOnWriting() {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(where, &st); err != nil {
		return nil // what is missing has no name yet
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 {
		return ErrManyNames
	}
	return nil
}
