package bwrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/pattern"
)

// coveredLink is a symbolic link that a rule covers, or a path that a rule names and that goes
// through a link.
type coveredLink struct {
	path string
	rule rule
}

// noteLink notes a link that a rule covers. It warns of a directory that has other names by the
// link, if a rule bears on these: looking for them would take a walk of its own.
func (n *ruleWalk) noteLink(below string) {
	path := filepath.Join(n.top, below)
	if r := covering(n.deny, below); r != nil {
		n.links = append(n.links, coveredLink{path, *r})
		return
	}
	for _, r := range n.deny {
		if _, literal := r.Pattern.Literal(); literal || !bearsBelow(r.Pattern, below) || slices.Contains(n.plan.NotHidden, r.Pattern.String()) {
			continue
		}
		trail, _ := confine.Follow(path)
		if info, err := os.Stat(path); err == nil && info.IsDir() && n.shown(trail.Place) {
			n.notHidden(r, path, trail.Place)
		}
	}
}

// bearsBelow reports whether a pattern may match below a directory by the name of the directory.
// After "**/" it may also match by the names in the directory alone, which it matches there under
// any other name of the directory as well.
func bearsBelow(p *pattern.Pattern, below string) bool {
	text, anywhere := strings.CutPrefix(p.String(), "**/")
	rest, err := pattern.Compile(text)
	if !anywhere || err != nil {
		return p.MayMatchBelow(below)
	}
	for tail, more := below, true; more; _, tail, more = strings.Cut(tail, "/") {
		if rest.MayMatchBelow(tail) {
			return true
		}
	}
	return false
}

// follow finds the targets of the links. A command may have planted a link so that files of the user's
// are hidden: it can hide no more than roots hold. If it replaces a link, the next plan would hide
// something else, so the links are watched.
func (n *ruleWalk) follow(roots []confine.Root) error {
	for _, r := range n.deny { // names behind a link
		name, ok := r.Pattern.Literal()
		for _, root := range roots {
			if path := filepath.Join(root.Path, name); ok && root.Dir {
				n.links = append(n.links, coveredLink{path, r})
			}
		}
	}
	for i, l := range n.links {
		trail, err := confine.Follow(l.path)
		place := trail.Place
		within := slices.ContainsFunc(roots, func(r confine.Root) bool { return r.Dir && fsat.Within(place, r.Path) })
		switch {
		case i > maxPlaces+len(n.deny)*len(roots):
			return n.tooMany(l.rule)
		case errors.Is(err, fs.ErrPermission) && within: // the command can open the directory up again
			return &Refusal{
				Reason: fmt.Sprintf("cannot hold to %s: the link %q leads into a closed directory: %q", l.rule.String(), l.path, place),
				Advice: "open it (chmod u+x), remove the link, or narrow the pattern",
			}
		case err != nil, len(trail.Links) == 0:
			continue // it leads nowhere
		}
		for _, step := range trail.Links {
			if len(n.writableAbove(step.Place)) > 0 && (n.Tmp == "" || !fsat.Within(step.Place, n.Tmp)) {
				n.watch(Watch{Path: step.Place, Link: step.Target, Rule: l.rule.String()})
			}
		}
		_, err = os.Lstat(place)
		switch {
		case slices.ContainsFunc(roots, func(r confine.Root) bool { return fsat.Within(r.Path, place) }):
			return &Refusal{
				Reason: fmt.Sprintf("cannot hold to %s: it covers the link %q, which leads to %q, a root or a directory around one", l.rule.String(), l.path, place),
				Advice: "remove the link, or narrow the pattern",
			}
		case os.IsNotExist(err):
			if len(n.writableAbove(place)) > 0 && l.rule.option == "--deny" {
				n.watch(Watch{Path: place, Rule: l.rule.String()})
			}
		case within:
			n.hideBehind(l, place)
		case n.shown(place):
			n.notHidden(l.rule, l.path, place)
		}
	}
	return nil
}

// hideBehind has the next walk hide a place.
func (n *ruleWalk) hideBehind(l coveredLink, place string) {
	if n.behind == nil {
		n.behind, n.leading = map[string]rule{}, map[string]bool{}
	}
	l.rule.link = l.path
	n.behind[place] = l.rule
	for dir := filepath.Dir(place); !n.leading[dir]; dir = filepath.Dir(dir) {
		n.leading[dir] = true
	}
}

// shown reports whether the plan shows a path of the host.
func (n *ruleWalk) shown(host string) bool {
	return slices.ContainsFunc(n.plan.Mounts, func(m Mount) bool {
		return m.showsHost() && fsat.Within(host, m.Source) && n.plan.seen(host, filepath.Join(m.Dest, strings.TrimPrefix(host, m.Source)))
	})
}

// notHidden warns, once for each rule, of a link behind which a rule does not hide.
func (n *ruleWalk) notHidden(r rule, link, place string) {
	if text := r.Pattern.String(); !slices.Contains(n.plan.NotHidden, text) {
		n.plan.NotHidden = append(n.plan.NotHidden, text)
		n.warn("%s does not hide what the link %q leads to: %q is shown", r.String(), link, place)
	}
}
