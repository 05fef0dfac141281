package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"pikuri/lib/gitpatch"
	"pikuri/lib/workspace"
)

// Locate returns the location of a path of a patch. The path must not lead through
// symbolic links; with itself, the last name may be one. Locate refuses a path that may not
// be written. Its errors name the path, but for those of the package workspace.
type Locate func(name string, itself bool) (workspace.Workspace, string, error)

// In returns a Locate for one workspace. It refuses symbolic links.
func In(ws workspace.Workspace) Locate {
	return func(name string, _ bool) (workspace.Workspace, string, error) {
		clean, err := workspace.Clean(name)
		return ws, clean, err
	}
}

// Plan is a checked patch.
type Plan struct {
	steps []step
}

// step is the change of one path. A move consists of two steps.
type step struct {
	change   *Change
	ws       workspace.Workspace
	path     string // there
	name     string // in the patch
	old, new *content
	first    bool // of the change
}

// maxPatch bounds the old and new content of all files of a patch, which is in memory.
const maxPatch = 4 * maxFile

// Check computes the new content of the files, and writes nothing. Errors name the path.
func Check(ctx context.Context, changes []Change, at Locate) (*Plan, error) {
	p := &Plan{}
	size := 0
	for i := range changes {
		c, before := &changes[i], len(p.steps)
		if err := p.add(ctx, c, at); err != nil {
			return nil, pathError(c.Path, err)
		}
		for _, s := range p.steps[before:] {
			size += s.old.size() + s.new.size()
		}
		if size > maxPatch {
			return nil, pathError(c.Path, &workspace.Error{Err: workspace.ErrTooLarge, Detail: "the files of the patch"})
		}
	}
	type place struct {
		ws   workspace.Workspace
		path string
	}
	taken := make(map[place]bool, len(p.steps))
	for _, s := range p.steps {
		at := place{s.ws, s.path}
		if taken[at] {
			return nil, pathError(s.name, &workspace.Error{Err: workspace.ErrInvalid, Detail: "the patch changes it twice"})
		}
		taken[at] = true
	}
	return p, nil
}

func reason(err error) error { return &workspace.Error{Err: err} }

// named is an error that names its path.
type named struct{ error }

func (e *named) Unwrap() error { return e.error }

// pathError makes err name a path, unless it names one.
func pathError(name string, err error) error {
	if _, ok := errors.AsType[*named](err); ok || err == nil {
		return err
	}
	if _, ok := errors.AsType[*HunkError](err); ok {
		return &named{fmt.Errorf("cannot patch %q: %w", name, err)}
	}
	return &named{workspace.NewError("patch", name, err)}
}

// located is at, whose errors name the path.
func (at Locate) located(name string, itself bool) (workspace.Workspace, string, error) {
	ws, path, err := at(name, itself)
	if _, ok := errors.AsType[*workspace.Error](err); !ok && err != nil {
		err = &named{err}
	}
	return ws, path, pathError(name, err)
}

func (c *content) size() int {
	if c == nil {
		return 0
	}
	return len(c.data)
}

func (p *Plan) add(ctx context.Context, c *Change, at Locate) error {
	ws, where, err := at.located(c.Path, c.Action == Delete || c.Action == Move)
	if err != nil {
		return err
	}
	s := step{change: c, ws: ws, path: where, name: c.Path, first: true}
	if c.Action == Add {
		text, err := applied(nil, c.hunks, c.lenient)
		if err != nil {
			return err
		}
		s.new = newContent(text, modeOr(c.Mode, 0o644))
		return p.vacant(ctx, s)
	}
	entry, err := workspace.EntryOf(ctx, ws, where)
	switch {
	case err != nil:
		return err
	case entry.Kind == workspace.KindMissing:
		return reason(workspace.ErrNotFound)
	case entry.Kind == workspace.KindDir:
		return reason(workspace.ErrIsDir)
	case entry.Kind != workspace.KindFile:
		return reason(workspace.ErrNotRegular)
	}
	if s.old, err = read(ctx, ws, where); err != nil {
		return err
	}
	text, err := applied(s.old.data, c.hunks, c.lenient)
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return reason(workspace.ErrTooLarge)
	}
	switch {
	case c.Action == Delete && len(text) > 0 && !(c.lenient && len(c.hunks) == 0):
		return &HunkError{Hunk: max(1, len(c.hunks)), Why: "the file has more lines than the patch deletes"}
	case c.Action == Delete:
		p.steps = append(p.steps, s)
		return nil
	}
	next := newContent(text, c.mode(s.old.entry.Perm))
	if c.Action == Modify {
		s.new = next
		p.steps = append(p.steps, s)
		return nil
	}
	to := step{change: c, new: next, name: c.To, first: true}
	if to.ws, to.path, err = at.located(c.To, true); err != nil {
		return err
	}
	if err := p.vacant(ctx, to); err != nil {
		return pathError(c.To, err)
	}
	s.first = false
	p.steps = append(p.steps, s)
	return nil
}

// vacant adds a step that makes a new file. It fails if the path exists.
func (p *Plan) vacant(ctx context.Context, s step) error {
	entry, err := workspace.EntryOf(ctx, s.ws, s.path)
	if err == nil && entry.Kind != workspace.KindMissing {
		err = reason(workspace.ErrExist)
	}
	if err == nil {
		p.steps = append(p.steps, s)
	}
	return err
}

func newContent(text []byte, mode fs.FileMode) *content {
	return &content{workspace.Entry{Kind: workspace.KindFile, Perm: mode, Size: int64(len(text)), Hash: workspace.HashOf(text)}, text}
}

func modeOr(mode, otherwise fs.FileMode) fs.FileMode {
	if mode == 0 {
		return otherwise
	}
	return mode
}

// mode returns the permissions of a file after the change. Git records only whether a file
// is executable.
func (c *Change) mode(old fs.FileMode) fs.FileMode {
	switch c.Mode {
	case 0o755:
		return old | old>>2&0o111
	case 0o644:
		return old &^ 0o111
	}
	return old
}

// Changed is the change of one file, for the user.
type Changed struct {
	Path   string `json:"path"`
	Action Action `json:"action"`
	To     string `json:"to,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of the new content
}

// Files lists the changes of the patch.
func (p *Plan) Files() []Changed {
	var files []Changed
	for _, s := range p.steps {
		if !s.first {
			continue
		}
		f := Changed{Path: s.change.Path, Action: s.change.Action, To: s.change.To}
		if s.new != nil {
			f.SHA256 = s.new.entry.Hash
		}
		files = append(files, f)
	}
	return files
}

// Diff returns the changes of the patch as unified diffs.
func (p *Plan) Diff() []byte {
	var diff bytes.Buffer
	for i, s := range p.steps {
		var old, new content
		from, to := s.name, s.name
		switch {
		case !s.first:
			continue
		case s.change.Action == Move:
			old, new, from = *p.steps[i+1].old, *s.new, s.change.Path
			fmt.Fprintf(&diff, "rename from %s\nrename to %s\n", s.change.Path, s.change.To)
		case s.old == nil:
			new, from = *s.new, ""
		case s.new == nil:
			old, to = *s.old, ""
		default:
			old, new = *s.old, *s.new
		}
		diff.Write(gitpatch.Unified(from, to, old.data, new.data))
	}
	return diff.Bytes()
}

// Apply writes the files of a checked patch. It compares each file with the content that
// Check has read, and replaces the file in one step. If it cannot replace a file, it puts
// back the files before it. It does not put back a file that another process has changed
// meanwhile, and the error names each such file. A kill in the middle leaves the files
// changed so far as they are.
func (p *Plan) Apply(ctx context.Context) error {
	for i := range p.steps {
		if err := p.steps[i].do(ctx); err != nil {
			err = pathError(p.steps[i].name, err)
			return p.undo(context.WithoutCancel(ctx), p.steps[:i], err)
		}
	}
	return nil
}

func (s *step) do(ctx context.Context) error {
	if s.old == nil && s.change.Action == Add {
		return s.create(ctx)
	}
	return s.swap(ctx, s.old, s.new)
}

// create makes a file with the caller's umask.
func (s *step) create(ctx context.Context) error {
	out, err := workspace.Create(ctx, s.ws, s.path, workspace.WriteOptions{Exclusive: true, Atomic: true, Perm: s.new.entry.Perm})
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := out.Write(s.new.data); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	entry, err := workspace.EntryOf(ctx, s.ws, s.path)
	if err == nil && entry.Kind == workspace.KindFile {
		s.new.entry.Perm = entry.Perm
	}
	return err
}

func (s *step) swap(ctx context.Context, from, to *content) error {
	var old, next workspace.Entry
	var text bytes.Reader
	if from != nil {
		old = from.entry
	}
	if to != nil {
		next = to.entry
		text.Reset(to.data)
	}
	return workspace.Swap(ctx, s.ws, s.path, old, next, &text)
}

// undo puts back the files of the steps that are done, in reverse order.
func (p *Plan) undo(ctx context.Context, done []step, cause error) error {
	if len(done) == 0 {
		return cause
	}
	var stays []string
	for i := len(done) - 1; i >= 0; i-- {
		if err := done[i].swap(ctx, done[i].new, done[i].old); err != nil {
			stays = append(stays, fmt.Sprintf("%q (%v)", done[i].name, err))
		}
	}
	if len(stays) > 0 {
		return fmt.Errorf("%w; these are changed and could not be put back: %s", cause, strings.Join(stays, ", "))
	}
	return fmt.Errorf("%w; the files before it are put back", cause)
}
