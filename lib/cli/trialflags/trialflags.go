// Package trialflags opens the trial of pk-diff and pk-apply, finds the changes that
// their operands name, and says whether each lands.
package trialflags

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitland"
	"pikuri/lib/hostrun"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
	"pikuri/lib/session"
	"pikuri/lib/trial"
)

// Options are those of both commands.
type Options struct {
	Session string
	Links   bool // symbolic links that lead out of the project are as any other

	// Names receives the items instead of the selection, if the user names no path. It
	// needs only their paths; see trial.ListOptions.
	Names func(trial.Item) error
}

// Options returns the options, to be added to a command's own.
func (o *Options) Options() []cli.Option {
	return []cli.Option{cli.Name(&o.Session, "session", ""), cli.Switch(&o.Links, "links", "")}
}

// Name is the session: by option, else by $PK_SESSION; "" for none.
func (o *Options) Name() string {
	if o.Session != "" {
		return o.Session
	}
	return os.Getenv("PK_SESSION")
}

// Open opens the trial. alone takes it from all commands.
func (o *Options) Open(alone bool) (*trial.Trial, error) {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return nil, cli.Invalid(err)
	}
	t, err := trial.OpenSession(base, o.Name(), alone)
	if held, ok := errors.AsType[*trial.InUse](err); ok {
		return nil, cli.WithHint(fmt.Errorf("%s of session %q runs", held.By, o.Name()), "try again when it has ended")
	}
	if as := sandboxflags.AsOwner(); err != nil && as != "" {
		err = cli.WithHint(err, "commands of root in this directory are its owner's, and their sessions too: %s pk-diff", as)
	}
	return t, cli.Invalid(err)
}

// Selection is the changes that operands name.
type Selection struct {
	Items   []trial.Item // in the order of the roots
	Refs    []Ref
	GitDirs []*gitland.Layer // that are named; without paths all
	Missing []string         // operands that name no change
	Outside []string         // operands in no root and no git directory of the trial
	Gone    []*trial.Gone    // roots that are named, with changes that no directory is left for
}

// Ref is a change of a reference, or of a file such as the index, in a git directory of
// the host.
type Ref struct {
	GitDir string
	File   bool  // Name is a file; Old and New are hashes of its content
	Err    error // of a file that cannot be read, and does not land
	refs.Change
}

// Stashes identifies the list of stashes, of which the reference names only the last: "" for
// another reference.
func (r Ref) Stashes() string {
	if r.Name != "refs/stash" && !strings.HasSuffix(r.Name, "/refs/stash") || r.File {
		return ""
	}
	hash := sha256.New()
	for _, e := range r.Log {
		hash.Write([]byte(e.String()))
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Select lists the changes at paths, and below, as they were typed, or all changes. parents
// adds new directories above them, which land first.
func (o *Options) Select(t *trial.Trial, paths []string, all, parents bool) (*Selection, error) {
	s := &Selection{}
	protected, err := protectedIn(t)
	if err != nil {
		return nil, err
	}
	within := map[*trial.Root][]string{}
	used := map[string]bool{}
	var absolute []string
	wanted := operands{map[string]bool{}, map[string][]string{}}
	for _, p := range paths {
		if p == "" { // of a script whose variable is not set
			return nil, cli.Invalid(fmt.Errorf("%q: %w", p, confine.ErrEmpty))
		}
		abs := o.absolute(t, p)
		wanted.named[abs] = true
		absolute = append(absolute, abs)
		if root, rel := t.Find(abs); root != nil {
			within[root] = append(within[root], rel)
		}
	}
	for _, root := range t.Roots {
		if !all && within[root] == nil {
			continue
		}
		if gone := root.Gone(); gone != nil {
			for _, abs := range absolute {
				used[abs] = used[abs] || fsat.Within(abs, root.Path)
			}
			if t.Wrote(root) {
				s.Gone = append(s.Gone, gone)
			}
			continue
		}
		here := protected.in(root.Path)
		list := trial.ListOptions{Paths: within[root], Links: o.Links, Names: o.Names != nil, Protected: here.rule, ProtectedBelow: here.below}
		if all && o.Names != nil {
			if err := root.Walk(list, o.Names); err != nil {
				return nil, err
			}
			continue
		}
		items, err := root.List(list)
		if err != nil {
			return nil, err
		}
		if all && s.Items == nil {
			s.Items = items
			continue
		}
		for _, i := range items {
			named := all
			for _, at := range wanted.above(filepath.Join(root.Path, i.Path)) {
				named, used[at] = true, true
			}
			if i.Above = !named; named || parents && i.New.IsDir() && i.Op != overlay.Modified {
				s.Items = append(s.Items, i)
			}
		}
	}
	if err := s.refs(t, absolute, all, used); err != nil {
		return nil, err
	}
	for n, abs := range absolute {
		switch {
		case used[abs]:
		case known(t, abs):
			s.Missing = append(s.Missing, paths[n])
		default:
			s.Outside = append(s.Outside, paths[n])
		}
	}
	return s, nil
}

// known reports whether a path may have changes: it lies in a root of the trial, or is that
// of a git directory, in one or above one.
func known(t *trial.Trial, path string) bool {
	if root, _ := t.Find(path); root != nil {
		return true
	}
	return slices.ContainsFunc(t.Git, func(l *gitland.Layer) bool { return fsat.Within(path, l.GitDir) || fsat.Within(l.GitDir, path) })
}

// operands are absolute paths that the user has named.
type operands struct {
	named map[string]bool
	known map[string][]string // what above returns
}

// above returns the operands at a path and above it. A path takes the answer of the
// directory above it: a command can make chains of thousands.
func (o *operands) above(path string) []string {
	found, known := o.known[path]
	if known || path == "/" {
		return found
	}
	found = o.above(filepath.Dir(path))
	if o.named[path] {
		found = append(slices.Clip(found), path)
	}
	o.known[path] = found
	return found
}

// refs adds the changes of references, of the git directories that paths name.
func (s *Selection) refs(t *trial.Trial, paths []string, all bool, used map[string]bool) error {
	for _, l := range t.Git {
		if root, _ := t.Find(l.GitDir); root != nil && root.Gone() != nil {
			continue
		}
		named := all
		for _, p := range paths {
			if fsat.Within(l.GitDir, p) {
				named = true
				used[p] = used[p] || p == l.GitDir // its index may have changed alone
			}
		}
		if !named {
			continue
		}
		s.GitDirs = append(s.GitDirs, l)
		changes, files, err := l.Changes()
		if err != nil {
			return fmt.Errorf("cannot list the changes of git directory %q: %w", l.GitDir, err)
		}
		for _, c := range changes {
			if c.Old == c.New && c.OldTarget == c.Target {
				continue // its log alone
			}
			s.Refs = append(s.Refs, Ref{GitDir: l.GitDir, Change: c})
		}
		for _, f := range files {
			if f.Remark() {
				continue
			}
			r := Ref{GitDir: l.GitDir, File: true, Err: f.Err}
			r.Name, r.Old, r.New = f.Name, f.Before, f.After
			s.Refs = append(s.Refs, r)
		}
		for _, p := range paths {
			used[p] = used[p] || len(changes)+len(files) > 0 && fsat.Within(l.GitDir, p)
		}
	}
	return nil
}

// absolute is an operand as an absolute path: from the working directory if that is in a
// root of the trial, else from the project root.
func (o *Options) absolute(t *trial.Trial, typed string) string {
	if filepath.IsAbs(typed) {
		if root, _ := t.Find(filepath.Clean(typed)); root == nil {
			if trail, err := confine.Follow(filepath.Dir(typed)); err == nil {
				return filepath.Join(trail.Place, filepath.Base(typed))
			}
		}
		return filepath.Clean(typed)
	}
	from := t.Project()
	if wd, err := os.Getwd(); err == nil {
		if trail, err := confine.Follow(wd); err == nil {
			wd = trail.Place
		}
		if root, _ := t.Find(wd); root != nil {
			from = wd
		}
	}
	return filepath.Join(from, typed)
}

// FromRoot is a path of a list, which begins at the project root, as an absolute path.
func FromRoot(t *trial.Trial, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(t.Project(), path)
}

// protectedPaths are paths with the rule that protects each.
type protectedPaths map[string]protection

type protection struct {
	rule string
	file bool // a directory there does no harm
}

func protectedIn(t *trial.Trial) (protectedPaths, error) {
	var roots []confine.Root
	for _, r := range t.Roots {
		if _, err := os.Lstat(r.Path); errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // nothing lands there
		}
		roots = append(roots, confine.Root{Path: r.Path, Writable: true, Dir: true})
	}
	named := protectedPaths{}
	for path, rule := range t.Protected() {
		named[path] = protection{rule: rule}
	}
	if len(roots) == 0 {
		return named, nil
	}
	list, err := fence.Protected(roots)
	if err != nil {
		return nil, err
	}
	add := func(path string, p protection) {
		if _, known := named[path]; !known || !p.file {
			named[path] = p
		}
	}
	for _, p := range list {
		add(p.Path, protection{p.Rule, p.File})
	}
	for path, p := range maps.Clone(named) { // and where links of the project lead from there
		for _, place := range hostrun.Behind(path) {
			add(place, p)
		}
	}
	return named, nil
}

// protectedHere are those of a root, relative to it.
type protectedHere struct {
	paths   protectedPaths
	longest int // the length of the longest path
}

// in returns those of a root.
func (p protectedPaths) in(root string) protectedHere {
	here := protectedHere{paths: protectedPaths{}}
	for path, rule := range p {
		if rel, ok := strings.CutPrefix(path, root+"/"); ok {
			here.paths[rel] = rule
			here.longest = max(here.longest, len(rel))
		}
	}
	return here
}

// rule names the rule by which nothing lands at a relative path, or returns "". dir tells
// that a directory would. It looks at no name longer than all protected ones.
func (p protectedHere) rule(path string, dir bool) string {
	end := len(path)
	for end > p.longest {
		end = strings.LastIndexByte(path[:end], '/')
	}
	for ; end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if found, ok := p.paths[path[:end]]; ok && !(found.file && (dir || end < len(path))) {
			return "protected: " + strings.TrimPrefix(found.rule, "default: ")
		}
	}
	return ""
}

// below names the rule by which something below a path is protected.
func (p protectedHere) below(path string) string {
	for at, found := range p.paths {
		if at != path && fsat.Within(at, path) {
			return "a link there would lead to what is protected: " + strings.TrimPrefix(found.rule, "default: ")
		}
	}
	return ""
}

// Remark is the reason, for one column of a line, why a change does not land, or "".
func Remark(i trial.Item) string {
	switch {
	case i.Refused != "":
		return "stays: " + i.Refused
	case i.Conflict != "":
		return "conflict: " + i.Conflict
	case i.Repository:
		return "a repository: lands for git-adopt"
	}
	return ""
}

// Letter is the kind of a change: A, M, D, T, and P if only the permissions change.
func Letter(i trial.Item) string {
	if i.PermOnly() && i.Err == nil {
		return "P"
	}
	return i.Op.String()
}

// Arrow formats the change of a reference: its values before and after.
func (r Ref) Arrow() string {
	switch {
	case r.Err != nil:
		return "stays: " + r.Err.Error()
	case r.File && r.Old == "":
		return "new"
	case r.File && r.New == "":
		return "removed"
	case r.File:
		return "changed"
	}
	short := func(id, target string) string {
		switch {
		case target != "":
			return target
		case id == "":
			return "none"
		}
		return id[:min(len(id), 12)]
	}
	arrow := short(r.Old, r.OldTarget) + " -> " + short(r.New, r.Target)
	if r.Moved {
		arrow += "; the project has moved it"
	}
	return arrow
}
