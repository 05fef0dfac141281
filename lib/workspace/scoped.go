package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"pikuri/lib/pattern"
)

// ScopedWorkspace restricts a workspace by patterns, in the language of the package
// pattern. Paths that WithMandatoryDeny covers are neither read nor written. Paths
// that WithDenyRead covers are not read. Only paths that WithAllowWrite matches
// Patterns apply to the path as it was given and, if the workspace is a Guarder, to the
// place that it leads to, so that no link bypasses them. A refusal does not tell whether
// a denied file exists, and lists leave such files out.
//
// Missing directories above a file that may be written are made, even if no pattern
// matches them. Rename and Copy need to read the file. RemoveAll and Rename of a
// directory are refused before they change anything if one file in it may not be written;
// Rename also if one may not be read, or not written under its new name.
//
// The other names of a file with several hard links are not known. Such a file is not
// written in place, and with WithoutHardLinks not read. Replacing it in one step writes a
// new file, and is allowed.
//
// Patterns compare bytes. On a file system that ignores case, as a LocalWorkspace
// knows of its root and WithFoldedNames says of any, patterns that deny ignore
// case too; those that allow do not.
//
// The zero value denies everything.
type ScopedWorkspace struct {
	view // of a workspace that calls decide with resolved paths

	mandatory, denyRead, allowWrite rules
	folded                          *foldedRules // nil: case matters
	single                          bool
	logger                          ViolationLogger
}

// foldedRules are the rules that deny, in one case.
type foldedRules struct{ mandatory, denyRead rules }

// ScopedOption is an option of NewScopedWorkspace. Patterns of several options of
// a kind add up.
type ScopedOption func(*scope)

// scope is the result of the options.
type scope struct {
	mandatory, denyRead, allowWrite []string
	single, fold                    bool
	logger                          ViolationLogger
}

// WithDenyRead forbids reading paths that the patterns cover.
func WithDenyRead(patterns ...string) ScopedOption {
	return func(s *scope) { s.denyRead = append(s.denyRead, patterns...) }
}

// WithAllowWrite allows writing paths that the patterns match. "src" is one name,
// "src/**" the directory with its whole tree, "**" everything.
func WithAllowWrite(patterns ...string) ScopedOption {
	return func(s *scope) { s.allowWrite = append(s.allowWrite, patterns...) }
}

// WithMandatoryDeny forbids reading or writing paths that the patterns cover, even if
// WithAllowWrite matches them.
func WithMandatoryDeny(patterns ...string) ScopedOption {
	return func(s *scope) { s.mandatory = append(s.mandatory, patterns...) }
}

// WithoutHardLinks forbids reading files with several hard links.
func WithoutHardLinks() ScopedOption {
	return func(s *scope) { s.single = true }
}

// WithFoldedNames makes patterns that deny ignore case. It is for a tree on a file
// system that does, in whole or in some directories.
func WithFoldedNames() ScopedOption {
	return func(s *scope) { s.fold = true }
}

// WithViolationLogger logs refusals to l, or not at all if l is nil.
func WithViolationLogger(l ViolationLogger) ScopedOption {
	return func(s *scope) { s.logger = l }
}

// NewScopedWorkspace returns a view of inner. It fails with ErrInvalid and a
// *pattern.SyntaxError on a malformed pattern, which would silently deny nothing.
func NewScopedWorkspace(inner Workspace, opts ...ScopedOption) (*ScopedWorkspace, error) {
	if isNil(inner) {
		return nil, failed("scope", "", &Error{Err: ErrInvalid, Detail: "there is no workspace"})
	}
	var conf scope
	for _, opt := range opts {
		opt(&conf)
	}
	s := &ScopedWorkspace{single: conf.single, logger: conf.logger}
	for _, list := range []struct {
		texts []string
		rules *rules
	}{{conf.mandatory, &s.mandatory}, {conf.denyRead, &s.denyRead}, {conf.allowWrite, &s.allowWrite}} {
		for _, text := range list.texts {
			p, err := pattern.Compile(text)
			if err != nil {
				return nil, &Error{Op: "scope", Path: text, Err: ErrInvalid, Detail: err.Error(), Cause: err}
			}
			*list.rules = append(*list.rules, p)
		}
	}
	if folds, ok := inner.(interface{ ignoresCase() bool }); conf.fold || ok && folds.ignoresCase() {
		s.folded = &foldedRules{s.mandatory.caseFold(), s.denyRead.caseFold()}
	}
	s.view = view{inner: Guarded(inner, s.decide), run: s.run, shows: s.showsEntry}
	return s, nil
}

// String formats the policy on one line.
func (s *ScopedWorkspace) String() string {
	text := fmt.Sprintf("mandatory-deny %s, deny-read %s, allow-write %s", s.mandatory, s.denyRead, s.allowWrite)
	if s.single {
		text += ", no hard links"
	}
	return text
}

type rules []*pattern.Pattern

func (r rules) String() string {
	var quoted []string
	for _, p := range r {
		quoted = append(quoted, fmt.Sprintf("%q", p))
	}
	return "[" + strings.Join(quoted, " ") + "]"
}

// covering returns the rule that covers a place, or nil.
func (r rules) covering(place string) *pattern.Pattern {
	for _, p := range r {
		if p.Covers(place) {
			return p
		}
	}
	return nil
}

func (r rules) match(place string) bool {
	for _, p := range r {
		if p.Match(place) {
			return true
		}
	}
	return false
}

// denial is the refusal of a rule, the cause of an ErrAccessDenied.
type denial struct {
	kind    ViolationKind
	place   string
	reason  string
	pattern string
}

func (d *denial) Error() string { return d.reason }

func deny(d *denial, detail string) error {
	return &Error{Err: ErrAccessDenied, Detail: detail, Cause: d}
}

// decide applies the policy.
func (s *ScopedWorkspace) decide(a Access) error {
	if s.inner == nil {
		return deny(&denial{ViolatedPolicy, a.Path, "no policy", ""}, "there is no policy")
	}
	if p := s.covering(s.mandatory, a.Path, func(f *foldedRules) rules { return f.mandatory }); p != nil {
		return deny(&denial{ViolatedPolicy, a.Path, "mandatory deny", p.String()}, "mandatory deny")
	}
	if a.Links > 1 && (a.Write || s.single) {
		return deny(&denial{ViolatedHardLinks, a.Path, "several hard links", ""}, "it has several hard links")
	}
	if a.Write {
		if !s.allowWrite.match(a.Path) {
			return deny(&denial{ViolatedPolicy, a.Path, "not in allow-write list", ""}, "write denied")
		}
		return nil
	}
	if p := s.covering(s.denyRead, a.Path, func(f *foldedRules) rules { return f.denyRead }); p != nil {
		return deny(&denial{ViolatedPolicy, a.Path, "deny-read pattern matched", p.String()}, "read denied")
	}
	return nil
}

// covering returns the rule that covers a place, or nil. It ignores case if the file
// system does.
func (s *ScopedWorkspace) covering(r rules, place string, folded func(*foldedRules) rules) *pattern.Pattern {
	if p := r.covering(place); p != nil || s.folded == nil {
		return p
	}
	return folded(s.folded).covering(caseFold(place))
}

// showsEntry decides about an entry by its name in dir, which may have been reached
// through a link.
func (s *ScopedWorkspace) showsEntry(dir string, entry fs.DirEntry) bool {
	rel, _ := clean(dir)
	return s.decide(Access{Path: join(rel, entry.Name())}) == nil
}

// Guarded returns a view that asks guard as well.
func (s *ScopedWorkspace) Guarded(guard Guard) Workspace {
	view := *s
	view.inner = Guarded(s.inner, guard)
	return &view
}

// admit decides about the paths of an operation as they were given, before it looks them
// up.
func (s *ScopedWorkspace) admit(op operation) error {
	path, to, err := op.clean()
	if err == nil && op.read {
		err = s.decide(Access{Path: path})
	}
	if err == nil && op.write {
		err = s.decide(Access{Path: path, Write: true})
	}
	if err == nil && op.name == "rename" {
		err = s.decide(Access{Path: to, Write: true})
	}
	return err
}

func (s *ScopedWorkspace) run(ctx context.Context, op operation, do func(path, to string) error) error {
	err := s.admit(op)
	if err == nil {
		err = do(op.path, op.to)
	}
	return s.logged(ctx, op, err)
}

// logged makes err the error of the operation, and logs a violation.
func (s *ScopedWorkspace) logged(ctx context.Context, op operation, err error) error {
	if err == nil {
		return nil
	}
	err = op.failed(err)
	if record, ok := violation(op, err); ok && s.logger != nil {
		func() {
			defer func() { _ = recover() }() // the refusal stands, even if the logger panics
			s.logger.LogViolation(ctx, record)
		}()
	}
	return err
}

// violation makes a record of a refusal.
func violation(op operation, err error) (ViolationRecord, bool) {
	record := ViolationRecord{Time: time.Now(), Operation: op.name, Path: op.path, To: op.to}
	d, denied := errors.AsType[*denial](err)
	switch {
	case denied:
		record.Kind, record.Reason, record.Pattern = d.kind, d.reason, d.pattern
		if rel, err := clean(op.path); err != nil || rel != d.place {
			record.Resolved = d.place
		}
	case errors.Is(err, ErrPathTraversal):
		record.Kind, record.Reason = ViolatedRoot, "path traversal"
	case errors.Is(err, ErrNotRegular):
		record.Kind, record.Reason = ViolatedFileKind, "not a regular file"
	default:
		return record, false
	}
	return record, true
}
