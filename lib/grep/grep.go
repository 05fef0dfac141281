// Package grep searches the files of a workspace for lines that match a regular expression.
// It skips binary files and files that git ignores.
package grep

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"pikuri/lib/gitignore"
	"pikuri/lib/pattern"
	"pikuri/lib/workspace"
)

// Query describes a search. The search matches one line at a time, without its end.
type Query struct {
	Pattern       string // RE2, as in the package regexp
	Fixed         bool   // the pattern is a text
	IgnoreCase    bool
	Before, After int // lines of context
	FilesOnly     bool
	Limit         int // lines that match, or files with FilesOnly; 0: all

	// If there are Globs, a file has to match one of them. A pattern without a slash is
	// compared with the name, another one with the path below the place.
	Globs []*pattern.Pattern
}

// Place is a directory or a file to search. The search reads a named file without a check
// of Globs, and a named directory even if git ignores it.
type Place struct {
	Workspace workspace.Workspace
	Path      string // in the workspace
	Shown     string // its name in results

	// For a directory. Ignore holds git's rules. Other returns the place through which to
	// search a directory below, nil for this place.
	Ignore *gitignore.Tree
	Other  func(path string) *Place
}

// Output receives the results of a search.
type Output interface {
	// Append appends a line to a text. group is true if the line does not follow the last
	// one in its file. Several goroutines call Append at once.
	Append(text []byte, l Line, group bool) []byte

	// Write receives texts in the order of the files. An error ends the search.
	Write(text []byte) error

	// Failed is called for a file that cannot be searched, and once, with ErrIgnoreList,
	// for a list of ignored files that is not applied. An error ends the search.
	Failed(path string, err error) error
}

// Total counts the results.
type Total struct {
	Matches, Files int
	Truncated      bool // there are more than the limit
}

// ErrPattern reports an invalid pattern.
type ErrPattern struct {
	Pattern string
	Err     error
}

func (e *ErrPattern) Error() string { return fmt.Sprintf("pattern %s: %v", brief(e.Pattern), e.Err) }
func (e *ErrPattern) Unwrap() error { return e.Err }

// brief quotes a text, of a long one its beginning.
func brief(text string) string {
	if len(text) > maxTold {
		return fmt.Sprintf("%q...", text[:boundary([]byte(text), maxTold)])
	}
	return fmt.Sprintf("%q", text)
}

// maxTold bounds the bytes of an expression in an error.
const maxTold = 200

// ErrBinary is a file that was named, and is binary.
var ErrBinary = errors.New("it is binary")

// ErrIgnoreList is a list of ignored files that is longer than gitignore.MaxFile. Files
// that it names are searched.
var ErrIgnoreList = fmt.Errorf("it is longer than %d bytes, so files that it names are searched", gitignore.MaxFile)

// Check returns an *ErrPattern if a query cannot be made.
func Check(q Query) error {
	if _, err := compile(q); err != nil {
		return &ErrPattern{q.Pattern, err}
	}
	return nil
}

// Search searches places, on all processors. In a directory, it searches files before
// directories, each sorted by name. It skips symbolic links and entries with the name .git.
// A file with a NUL byte is binary: Search reads it up to the block with the first NUL
// byte.
//
// Search searches the first MiB of a line, and reports at most 2000 bytes. It does not
// search a line if its length times the size of the compiled expression is over a bound.
// A MiB times 127 instructions is within the bound. Output.Failed then gets ErrLongLine
// for the file.
//
// Search ends some seconds after ctx does, at the latest, with its error.
func Search(ctx context.Context, q Query, places []Place, out Output) (Total, error) {
	m, err := compile(q)
	if err != nil {
		return Total{}, &ErrPattern{q.Pattern, err}
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	r := &run{query: q, ctx: inner, out: out, batches: make(chan *batch, waiting), room: make(chan struct{}, waiting), ready: map[int]*batch{}, long: map[string]bool{}, stop: stop}
	r.moved.L = &r.mu
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { r.work(m) })
	}
	for _, p := range places {
		r.place(p)
	}
	r.submit()
	close(r.batches)
	workers.Wait()
	if r.err == nil {
		r.err = ctx.Err()
	}
	return r.total, r.err
}

const (
	// waiting bounds the batches in work and the batches that wait for earlier ones.
	// batchSize bounds the files of a batch, and spill its output.
	waiting   = 64
	batchSize = 32
	spill     = 256 << 10
)

// run is a search. One goroutine walks the places and makes batches of files; others search
// the batches.
type run struct {
	query   Query
	ctx     context.Context
	out     Output
	stop    func()
	batches chan *batch
	room    chan struct{}
	filling *batch
	made    int
	long    map[string]bool // the lists of ignored files that were reported as too long

	mu    sync.Mutex // guards the fields below
	moved sync.Cond
	next  int // the batch whose output is written
	ready map[int]*batch
	over  bool
	total Total
	err   error
}

// batch is a group of files, and the results in them.
type batch struct {
	index int
	items []item
	text  []byte
	found []found
}

type item struct {
	dir   *openDir
	name  string
	named *Place // instead: the caller named the file
}

func (i item) open(ctx context.Context) (workspace.File, error) {
	if i.named != nil {
		return workspace.Open(ctx, i.named.Workspace, i.named.Path)
	}
	return i.dir.Open(ctx, i.name)
}

func (i item) path() string {
	if i.named != nil {
		return i.named.Shown
	}
	return i.dir.shown + i.name
}

// found is the place in a batch's text at which the lines of a match begin.
type found struct {
	at   int
	file bool // it is the first of a file
}

// openDir is a directory with files that wait for the search.
type openDir struct {
	*workspace.Dir
	shown string // before the names in it
	users atomic.Int32
}

func (d *openDir) release() {
	if d.users.Add(-1) == 0 {
		d.Close()
	}
}

// place walks one place.
func (r *run) place(p Place) {
	info, err := p.Workspace.Stat(r.ctx, p.Path)
	if err != nil {
		r.failed(p.Shown, err)
		return
	}
	if info.IsDir() {
		w := r.walker(p)
		w.walk(p.Path, w.above(p.Path), 0)
		return
	}
	r.add(item{named: &p})
}

// maxDepth ends a walk of a workspace whose directories contain themselves.
const maxDepth = 2048

// walker walks a place.
type walker struct {
	*run
	Place
}

func (r *run) walker(p Place) *walker {
	if p.Ignore != nil {
		tree := *p.Ignore
		tree.TooLong = func(path string) { r.tooLong(&tree, path) }
		p.Ignore = &tree
	}
	return &walker{r, p}
}

// tooLong tells of a list of ignored files.
func (r *run) tooLong(tree *gitignore.Tree, path string) {
	switch {
	case path == "":
		path = "core.excludesFile"
	case !strings.HasPrefix(path, "/"):
		path = strings.TrimSuffix(tree.Root, "/") + "/" + path
	}
	if !r.long[path] {
		r.long[path] = true
		r.failed(path, ErrIgnoreList)
	}
}

// above returns the rules of the directories above dir.
func (w *walker) above(dir string) *gitignore.Rules {
	if w.Ignore == nil || dir == "." {
		return nil
	}
	rules := w.look(nil, ".")
	for i, c := range dir {
		if c == '/' {
			rules = w.look(rules, dir[:i])
		}
	}
	return rules
}

// look returns the rules in a directory. A directory that cannot be listed adds no rules.
func (w *walker) look(rules *gitignore.Rules, dir string) *gitignore.Rules {
	d, names, err := workspace.OpenDir(w.ctx, w.Workspace, dir)
	if err == nil {
		d.Close()
	}
	return w.enter(rules, dir, names)
}

// enter returns the rules in a directory with these entries.
func (w *walker) enter(rules *gitignore.Rules, dir string, names []workspace.Name) *gitignore.Rules {
	if w.Ignore == nil {
		return nil
	}
	git, list := false, false
	for _, n := range names {
		git = git || n.Name == ".git"
		list = list || n.Name == gitignore.FileName && n.Kind == 0
	}
	return w.Ignore.Enter(rules, dir, git, list)
}

// walk searches a directory. rules holds the rules of the directory above.
func (w *walker) walk(dir string, rules *gitignore.Rules, deep int) {
	if w.ctx.Err() != nil {
		return
	}
	d, names, err := workspace.OpenDir(w.ctx, w.Workspace, dir)
	if err == nil && deep > maxDepth {
		d.Close()
		err = workspace.NewError("list", dir, workspace.ErrTooMany)
	}
	if err != nil {
		if deep == 0 || !errors.Is(err, workspace.ErrNotFound) && !errors.Is(err, workspace.ErrNotDir) {
			w.failed(w.told(dir), err)
		}
		return
	}
	rules = w.enter(rules, dir, names)
	open := &openDir{Dir: d, shown: w.told(dir) + "/"}
	if open.shown == "./" && w.Shown == "." {
		open.shown = ""
	}
	open.shown = strings.Replace(open.shown, "//", "/", 1)
	open.users.Store(1)
	dirs := names[:0]
	for _, n := range names {
		switch {
		case n.Name == ".git":
		case n.Kind.IsDir():
			dirs = append(dirs, n)
		case n.Kind == 0 && w.globbed(dir, n.Name) && !rules.Ignore(dir, n.Name, false):
			w.add(item{dir: open, name: n.Name})
		}
	}
	open.release()
	for _, n := range dirs {
		if rules.Ignore(dir, n.Name, true) {
			continue
		}
		below := join(dir, n.Name)
		if w.Other != nil {
			if other := w.Other(below); other != nil {
				other.Shown = w.told(below)
				w.run.walker(*other).walk(other.Path, nil, deep+1)
				continue
			}
		}
		w.walk(below, rules, deep+1)
	}
}

// told converts a path of the workspace to the form in results.
func (w *walker) told(path string) string {
	below := w.below(path)
	switch {
	case below == ".":
		return w.Shown
	case w.Shown == ".":
		return below
	}
	return strings.TrimSuffix(w.Shown, "/") + "/" + below
}

// below converts a path of the workspace to a path below the place.
func (w *walker) below(path string) string {
	switch {
	case path == w.Path:
		return "."
	case w.Path == ".":
		return path
	}
	return path[len(w.Path)+1:]
}

func (w *walker) globbed(dir, name string) bool {
	for _, g := range w.query.Globs {
		path := name
		if strings.Contains(g.String(), "/") {
			path = join(w.below(dir), name)
		}
		if g.Match(path) {
			return true
		}
	}
	return len(w.query.Globs) == 0
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// add adds a file to the current batch.
func (r *run) add(i item) {
	if r.filling == nil {
		r.filling = &batch{index: r.made, items: make([]item, 0, batchSize)}
		r.made++
	}
	if i.dir != nil {
		i.dir.users.Add(1)
	}
	r.filling.items = append(r.filling.items, i)
	if len(r.filling.items) == batchSize {
		r.submit()
	}
}

func (r *run) submit() {
	if r.filling != nil {
		r.room <- struct{}{}
		r.batches <- r.filling
		r.filling = nil
	}
}

// work searches batches until there are no more.
func (r *run) work(m *matcher) {
	var now *batch
	matches := 0 // in this file
	s := &searcher{Query: &r.query, lines: lines{matcher: m, stopped: func() bool { return r.ctx.Err() != nil }}}
	s.emit = func(l Line, group, match bool) bool {
		if len(now.text) > spill {
			r.spill(now)
		}
		if match {
			now.found = append(now.found, found{len(now.text), matches == 0})
			matches++
		}
		now.text = r.out.Append(now.text, l, group)
		return (r.query.Limit == 0 || matches <= r.query.Limit) && r.ctx.Err() == nil
	}
	for now = range r.batches {
		for _, i := range now.items {
			matches = 0
			r.file(s, i)
			if i.dir != nil {
				i.dir.release()
			}
		}
		r.finish(now)
	}
}

// file searches a file. It skips a file that another process has removed or replaced since
// the listing.
func (r *run) file(s *searcher, i item) {
	if r.ctx.Err() != nil {
		return
	}
	f, err := i.open(r.ctx)
	if err != nil {
		if i.named != nil || !errors.Is(err, workspace.ErrNotFound) && !errors.Is(err, workspace.ErrNotRegular) && !errors.Is(err, workspace.ErrIsDir) {
			r.failed(i.path(), err)
		}
		return
	}
	defer f.Close()
	binary, err := s.search(f, i.path)
	switch {
	case binary && i.named != nil:
		err = ErrBinary
	case s.long && err == nil:
		err = ErrLongLine
	}
	if err != nil {
		r.failed(i.path(), err)
	}
}

func (r *run) failed(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.ctx.Err() != nil {
		return
	}
	if err := r.out.Failed(path, err); err != nil {
		r.end(err)
	}
}

func (r *run) end(err error) {
	r.over, r.err = true, err
	r.stop()
}

// spill writes the results that a batch has so far, once it is the batch's turn.
func (r *run) spill(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next != b.index {
		r.moved.Wait()
	}
	r.write(b)
}

// finish writes a batch in its turn, and then the finished batches after it.
func (r *run) finish(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready[b.index] = b
	for b = r.ready[r.next]; b != nil; b = r.ready[r.next] {
		r.write(b)
		delete(r.ready, r.next)
		r.next++
		<-r.room
	}
	r.moved.Broadcast()
}

func (r *run) write(b *batch) {
	text := b.text
	for _, f := range b.found {
		if r.query.Limit > 0 && r.total.Matches == r.query.Limit {
			r.total.Truncated = true
			text = text[:f.at]
			break
		}
		if r.over {
			break
		}
		r.total.Matches++
		if f.file {
			r.total.Files++
		}
	}
	if !r.over && len(text) > 0 {
		if err := r.out.Write(text); err != nil {
			r.end(err)
		}
	}
	if r.total.Truncated {
		r.end(r.err)
	}
	b.text, b.found = b.text[:0], b.found[:0]
}
