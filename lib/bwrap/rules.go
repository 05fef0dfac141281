package bwrap

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/pattern"
)

// Bounds of the cost of rules. A pattern that may match anywhere is compared with every
// name of every root: half a million names take about a second. Each match is a mount.
const (
	maxNames  = 500_000
	maxPlaces = 250
)

// applyRules turns the rules of the workspace into mounts. A rule is about names; here it
// applies to the files that have such a name when the sandbox starts. A symbolic link cannot
// be a mount point: where a rule that denies covers one, its target is hidden.
func (b *builder) applyRules() error {
	n := &ruleWalk{
		builder: b,
		deny:    append(rules("--deny", b.Rules.Deny), rules("--deny-read", b.Rules.DenyRead)...),
		allow:   rules("--allow-write", b.Rules.AllowWrite),
	}
	if len(n.deny)+len(n.allow) == 0 {
		return nil
	}
	roots := slices.Clone(b.Roots)
	for _, dir := range b.Overlays {
		if !slices.ContainsFunc(roots, func(r confine.Root) bool { return r.Path == dir }) {
			roots = append(roots, confine.Root{Path: dir, Dir: true})
		}
	}
	before := slices.Clone(b.plan.Mounts)
	if err := n.walkAll(roots); err != nil {
		return err
	}
	if err := n.follow(roots); err != nil {
		return err
	}
	if len(n.behind) > 0 { // once more: the files in the targets need no mounts
		b.plan.Mounts, n.names, n.places, n.used = before, 0, 0, nil
		if err := n.walkAll(roots); err != nil {
			return err
		}
	}
	n.warnUnused()
	b.watchLiterals()
	return nil
}

func (n *ruleWalk) walkAll(roots []confine.Root) error {
	for _, root := range roots {
		n.top, n.holes = root.Path, root.Writable && len(n.allow) > 0 && root.Path != n.Tmp
		if n.holes {
			n.makeReadOnly(root.Path)
		}
		if !root.Dir {
			if rule := covering(n.deny, filepath.Base(root.Path)); rule != nil {
				return n.coversRoot(*rule)
			}
			continue
		}
		if err := n.walk(".", false); err != nil {
			return err
		}
	}
	return nil
}

// ruleWalk walks through the roots in turn.
type ruleWalk struct {
	*builder
	deny   []rule
	allow  []rule
	top    string // the root
	holes  bool   // matches of --allow-write become writable again
	names  int    // compared so far
	places int    // mounted so far
	used   []*pattern.Pattern

	links   []coveredLink
	behind  map[string]rule // the targets of links in the roots, which the rules hide
	leading map[string]bool // the directories above these
}

// makeReadOnly makes a root read-only.
func (b *builder) makeReadOnly(root string) {
	for i := range b.plan.Mounts {
		if m := &b.plan.Mounts[i]; m.Op == OpWritable && m.Source == root {
			m.Op, m.Rule = OpReadOnly, m.Rule+"; writable where --allow-write says"
		}
	}
}

// walk visits the entries of a directory of the root. open tells that all of it is
// writable already.
func (n *ruleWalk) walk(below string, open bool) error {
	if rule := n.covering(below); rule != nil {
		return n.coversRoot(*rule)
	}
	if below == "." {
		if rule := n.opens(below, true); n.holes && rule != nil {
			open = true
			if err := n.hole(below, *rule); err != nil {
				return err
			}
		}
	}
	if !n.promising(below, open) {
		return nil
	}
	dir := filepath.Join(n.top, below)
	entries, err := os.ReadDir(dir)
	switch {
	case os.IsNotExist(err), os.IsPermission(err) && !owned(dir):
		return nil // the command has the same uid, and cannot read it either
	case os.IsPermission(err) && below != ".": // the command can open it up again
		rule, err := n.denied(below)
		if rule == nil || err != nil {
			return err
		}
		return n.mask(below, true, *rule)
	case err != nil:
		return n.failed(below, cause(err))
	}
	for _, e := range entries {
		if n.names++; n.names > maxNames {
			return n.failed(below, fmt.Errorf("there are more than %d names to look at", maxNames))
		}
		if err := n.entry(filepath.Join(below, e.Name()), e, open); err != nil {
			return err
		}
	}
	return nil
}

// denied returns a rule that hides something in a closed directory, or nil. No mount point can be
// made in there.
func (n *ruleWalk) denied(below string) (*rule, error) {
	dir := filepath.Join(n.top, below)
	shut, err := unclosed(dir)
	if err != nil {
		return nil, n.failed(below, cause(err))
	}
	defer shut()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, n.failed(below, cause(err))
	}
	for _, e := range entries {
		name := filepath.Join(below, e.Name())
		rule := n.covering(name)
		if n.names++; n.names > maxNames {
			return nil, n.failed(below, fmt.Errorf("there are more than %d names to look at", maxNames))
		}
		if rule == nil && e.IsDir() && owned(filepath.Join(n.top, name)) && n.promising(name, true) {
			rule, err = n.denied(name)
		}
		if rule != nil && e.Type()&os.ModeSymlink == 0 || err != nil {
			return rule, err
		}
	}
	return nil, nil
}

// unclosed is fsat.OpenUp for the path of a directory.
func unclosed(dir string) (shut func(), err error) {
	fd, err := fsat.Kernel().Open(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return fsat.OpenUp(fd)
}

// owned reports whether path belongs to the caller, whose user ID the command has.
func owned(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) != nil || int(st.Uid) == os.Geteuid()
}

func (n *ruleWalk) entry(below string, e fs.DirEntry, open bool) error {
	if e.Type()&os.ModeSymlink != 0 {
		n.noteLink(below)
		return nil
	}
	if rule := n.covering(below); rule != nil {
		return n.mask(below, e.IsDir(), *rule)
	}
	if rule := n.opens(below, e.IsDir()); n.holes && !open && rule != nil {
		open = true
		if err := n.hole(below, *rule); err != nil {
			return err
		}
	}
	if !e.IsDir() {
		return nil
	}
	return n.walk(below, open)
}

// promising reports whether a rule may match below.
func (n *ruleWalk) promising(below string, open bool) bool {
	rules := n.deny
	if n.holes && !open {
		rules = append(slices.Clone(rules), n.allow...)
	}
	return n.leading[filepath.Join(n.top, below)] || slices.ContainsFunc(rules, func(r rule) bool { return r.Pattern.MayMatchBelow(below) })
}

// covering returns the rule that denies below, or that covers a link to it.
func (n *ruleWalk) covering(below string) *rule {
	if r, ok := n.behind[filepath.Join(n.top, below)]; ok {
		return &r
	}
	return covering(n.deny, below)
}

func covering(rules []rule, below string) *rule {
	for i := range rules {
		if rules[i].Pattern.Covers(below) {
			return &rules[i]
		}
	}
	return nil
}

// opens returns the rule that makes below writable: it matches the file, or all names in
// the directory, future ones too.
func (n *ruleWalk) opens(below string, dir bool) *rule {
	for i, r := range n.allow {
		if !dir && r.Pattern.Match(below) || dir && r.Pattern.CoversBelow(below) {
			return &n.allow[i]
		}
	}
	return nil
}

// mask hides a path wherever the plan shows it, and pins the directories above.
func (n *ruleWalk) mask(below string, dir bool, r rule) error {
	host := filepath.Join(n.top, below)
	for _, m := range slices.Clone(n.plan.Mounts) {
		if !m.showsHost() || !fsat.Within(host, m.Source) || m.Op == OpPin || m.Op == OpProtect {
			continue
		}
		if m.Source == host {
			return n.coversRoot(r)
		}
		dest := filepath.Join(m.Dest, strings.TrimPrefix(host, m.Source))
		if !n.plan.seen(host, dest) {
			continue
		}
		// m may be around the mount that shows it, as /opt around a project there.
		if shows, _ := cover(n.plan.unpinned(), dest); shows.Op == OpWritable {
			n.pinAbove(shows, dest, r.String())
		}
		n.place(Mount{Op: OpMask, Dest: dest, Dir: dir, Rule: r.String()})
		if err := n.count(r); err != nil {
			return err
		}
	}
	return nil
}

// pinAbove makes mount points of the directories between the tree of m and dest.
func (n *ruleWalk) pinAbove(m Mount, dest, rule string) {
	for dir := filepath.Dir(dest); dir != m.Dest && fsat.Within(dir, m.Dest); dir = filepath.Dir(dir) {
		source := filepath.Join(m.Source, strings.TrimPrefix(dir, m.Dest))
		n.place(Mount{Op: OpPin, Source: source, Dest: dir, Rule: "pinned: " + rule})
	}
}

// hole makes a path writable in a read-only root.
func (n *ruleWalk) hole(below string, r rule) error {
	host := filepath.Join(n.top, below)
	for _, m := range slices.Clone(n.plan.Mounts) {
		if m.Op != OpReadOnly || m.Source != n.top {
			continue
		}
		dest := filepath.Join(m.Dest, strings.TrimPrefix(host, m.Source))
		if below == "." {
			i := slices.IndexFunc(n.plan.Mounts, func(o Mount) bool { return o.Dest == dest })
			n.plan.Mounts[i].Op, n.plan.Mounts[i].Rule = OpWritable, r.String()
		} else {
			n.place(Mount{Op: OpWritable, Source: host, Dest: dest, Rule: r.String(), Root: true})
		}
		if err := n.count(r); err != nil {
			return err
		}
	}
	return nil
}

// count bounds the number of mounts for rules.
func (n *ruleWalk) count(r rule) error {
	n.used = append(n.used, r.Pattern)
	if n.places++; n.places <= maxPlaces {
		return nil
	}
	return n.tooMany(r)
}

func (n *ruleWalk) tooMany(r rule) error {
	return &Refusal{
		Reason: fmt.Sprintf("cannot hold to %s: it bears on more than %d places", r.String(), maxPlaces),
		Advice: "name the directories rather than what is in them",
	}
}

func (n *ruleWalk) coversRoot(r rule) error {
	return &Refusal{
		Reason: fmt.Sprintf("cannot show the root %q: %s covers it", n.top, r.String()),
		Advice: "leave the root out, or narrow the pattern",
	}
}

func (n *ruleWalk) failed(below string, err error) error {
	return &Refusal{
		Reason: fmt.Sprintf("cannot hold to the rules in %q: %v", filepath.Join(n.top, below), err),
		Advice: "narrow the patterns, so that they bear on less",
	}
}

// warnUnused warns of missing names of --allow-write: they cannot be made inside.
func (n *ruleWalk) warnUnused() {
	for _, r := range n.allow {
		if !slices.Contains(n.used, r.Pattern) {
			n.warn("%s matches nothing that is there, and what it matches cannot be made inside", r)
		}
	}
}

// watchLiterals watches the missing names that a rule forbids.
func (b *builder) watchLiterals() {
	for _, r := range rules("--deny", b.Rules.Deny) {
		name, ok := r.Pattern.Literal()
		for _, root := range b.Roots {
			path := filepath.Join(root.Path, name)
			if _, err := os.Lstat(path); ok && root.Writable && root.Path != b.Tmp && os.IsNotExist(err) {
				b.watch(Watch{Path: path, Rule: r.String()})
			}
		}
	}
}

// rule is a rule of the workspace with the option that gave it.
type rule struct {
	option string
	confine.Rule
	link string // covered by the rule, and leads to the hidden file; or ""
}

func rules(option string, given []confine.Rule) []rule {
	named := make([]rule, 0, len(given))
	for _, r := range given {
		named = append(named, rule{option: option, Rule: r})
	}
	return named
}

func (r rule) String() string {
	text := fmt.Sprintf("%s %q", r.option, r.Pattern)
	if r.Source != "" {
		text += " of policy " + r.Source
	}
	if r.link != "" {
		text += fmt.Sprintf(", by way of %q", r.link)
	}
	return text
}
