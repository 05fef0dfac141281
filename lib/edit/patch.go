package edit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	files   []*file // in the order of their writing, when Check is done
	results []result
	known   map[where]*file
}

// where identifies a file.
type where struct {
	ws   workspace.Workspace
	path string
}

// file is one path that the patch changes.
type file struct {
	where
	order    int      // of writing
	name     string   // in the patch
	old, new *content // nil if it is missing; old is on disk, new the state after the changes so far
}

// result is the outcome of one change.
type result struct {
	*Change
	old, new *content
}

// maxPatch bounds the old and new content of all files of a patch, which is in memory.
const maxPatch = 4 * maxFile

// Check computes the new content of the files, and writes nothing. Each change sees the
// files as those before it leave them. Errors name the path.
func Check(ctx context.Context, changes []Change, at Locate) (*Plan, error) {
	p := &Plan{known: map[where]*file{}}
	size := 0
	for i := range changes {
		c := &changes[i]
		r, err := p.add(ctx, c, at)
		if err != nil {
			return nil, pathError(c.Path, err)
		}
		p.results = append(p.results, *r)
		if size += r.old.size() + r.new.size(); size > maxPatch {
			return nil, pathError(c.Path, &workspace.Error{Err: workspace.ErrTooLarge, Detail: "the files of the patch"})
		}
	}
	slices.SortStableFunc(p.files, func(a, b *file) int { return cmp.Compare(a.order, b.order) })
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

func (p *Plan) add(ctx context.Context, c *Change, at Locate) (*result, error) {
	f, err := p.file(ctx, c.Path, at, c.Action != Modify, c.Action == Add)
	if err != nil {
		return nil, err
	}
	r := &result{c, f.new, nil}
	if c.Action == Add {
		text, err := applied(nil, c.hunks, c.lenient)
		if err != nil {
			return nil, err
		}
		mode := modeOr(c.Mode, 0o644)
		if f.old != nil { // a change before this one removed it
			mode = (&Change{Mode: mode}).mode(f.old.entry.Perm)
		}
		r.new = newContent(text, mode)
		r.new.isNew = f.old == nil
		f.new = r.new
		return r, nil
	}
	text, err := applied(f.new.data, c.hunks, c.lenient)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, reason(workspace.ErrTooLarge)
	case c.Action == Delete && len(text) > 0 && !(c.lenient && len(c.hunks) == 0):
		return nil, &HunkError{Hunk: max(1, len(c.hunks)), Why: "the file has more lines than the patch deletes"}
	case c.Action == Delete:
		f.new = nil
		return r, nil
	}
	r.new = newContent(text, c.mode(f.new.entry.Perm))
	r.new.isNew = f.new.isNew
	f.new = r.new
	if c.Action == Modify {
		return r, nil
	}
	to, err := p.file(ctx, c.To, at, true, true)
	if err != nil {
		return nil, pathError(c.To, err)
	}
	to.order, f.order = f.order, len(p.files) // a kill between the two leaves both
	to.new, f.new = r.new, nil
	return r, nil
}

// file returns a path with a file, or with vacant a free one.
func (p *Plan) file(ctx context.Context, name string, at Locate, itself, vacant bool) (*file, error) {
	ws, path, err := at.located(name, itself)
	if err != nil {
		return nil, err
	}
	f, known := p.known[where{ws, path}]
	if !known {
		f = &file{where: where{ws, path}, name: name}
	}
	kind := workspace.KindMissing
	if f.new != nil {
		kind = workspace.KindFile
	} else if !known {
		entry, err := workspace.EntryOf(ctx, ws, path)
		if err != nil {
			return nil, err
		}
		kind = entry.Kind
	}
	switch {
	case vacant && kind != workspace.KindMissing:
		return nil, reason(workspace.ErrExist)
	case vacant:
	case kind == workspace.KindMissing:
		return nil, reason(workspace.ErrNotFound)
	case kind == workspace.KindDir:
		return nil, reason(workspace.ErrIsDir)
	case kind != workspace.KindFile:
		return nil, reason(workspace.ErrNotRegular)
	case !known:
		if f.old, err = read(ctx, ws, path); err != nil {
			return nil, err
		}
		f.new = f.old
	}
	if !known {
		p.files = append(p.files, f)
		f.order = len(p.files)
		p.known[f.where] = f
	}
	return f, nil
}

func newContent(text []byte, mode fs.FileMode) *content {
	entry := workspace.Entry{Kind: workspace.KindFile, Perm: mode, Size: int64(len(text)), Hash: workspace.HashOf(text)}
	return &content{entry: entry, data: text}
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
	for _, r := range p.results {
		f := Changed{Path: r.Path, Action: r.Action, To: r.To}
		if r.new != nil {
			f.SHA256 = r.new.entry.Hash
		}
		files = append(files, f)
	}
	return files
}

// Diff returns the changes of the patch as unified diffs.
func (p *Plan) Diff() []byte {
	var diff bytes.Buffer
	for _, r := range p.results {
		var old, new content
		from, to := r.Path, r.Path
		switch {
		case r.Action == Move:
			to = r.To
			fmt.Fprintf(&diff, "rename from %s\nrename to %s\n", from, to)
		case r.old == nil:
			from = ""
		case r.new == nil:
			to = ""
		}
		if r.old != nil {
			old = *r.old
		}
		if r.new != nil {
			new = *r.new
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
	for i, f := range p.files {
		if err := f.do(ctx); err != nil {
			return p.undo(context.WithoutCancel(ctx), p.files[:i], pathError(f.name, err))
		}
	}
	return nil
}

func (f *file) do(ctx context.Context) error {
	switch {
	case f.old == nil && f.new == nil: // it has come and gone
		return nil
	case f.old == nil && f.new.isNew:
		return f.create(ctx)
	}
	return f.swap(ctx, f.old, f.new)
}

// create makes a file with the caller's umask.
func (f *file) create(ctx context.Context) error {
	out, err := workspace.Create(ctx, f.ws, f.path, workspace.WriteOptions{Exclusive: true, Atomic: true, Perm: f.new.entry.Perm})
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := out.Write(f.new.data); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	entry, err := workspace.EntryOf(ctx, f.ws, f.path)
	if err == nil && entry.Kind == workspace.KindFile {
		f.new.entry.Perm = entry.Perm
	}
	return err
}

func (f *file) swap(ctx context.Context, from, to *content) error {
	var old, next workspace.Entry
	var text bytes.Reader
	if from != nil {
		old = from.entry
	}
	if to != nil {
		next = to.entry
		text.Reset(to.data)
	}
	return workspace.Swap(ctx, f.ws, f.path, old, next, &text)
}

// undo puts back the files of the steps that are done, in reverse order.
func (p *Plan) undo(ctx context.Context, done []*file, cause error) error {
	if len(done) == 0 {
		return cause
	}
	var stays []string
	for i := len(done) - 1; i >= 0; i-- {
		if done[i].old == nil && done[i].new == nil {
			continue
		}
		if err := done[i].swap(ctx, done[i].new, done[i].old); err != nil {
			stays = append(stays, fmt.Sprintf("%q (%v)", done[i].name, err))
		}
	}
	if len(stays) > 0 {
		return fmt.Errorf("%w; these are changed and could not be put back: %s", cause, strings.Join(stays, ", "))
	}
	return fmt.Errorf("%w; the files before it are put back", cause)
}
