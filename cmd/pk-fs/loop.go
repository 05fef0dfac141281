package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/confine"
	"pikuri/lib/edit"
	"pikuri/lib/fence"
	"pikuri/lib/grep"
	"pikuri/lib/jsonline"
	"pikuri/lib/lines"
	"pikuri/lib/pattern"
	"pikuri/lib/workspace"
)

const (
	// maxRequest bounds a request: a large file in base64.
	maxRequest = 96 << 20

	// maxHashed bounds the files that a read reads to the end, for the hash and the number
	// of lines.
	maxHashed = 32 << 20

	// maxPart bounds the text of an answer.
	maxPart = 16 << 20

	// maxSearch ends a grep or a glob, as the requests behind it wait. Most projects are searched in
	// less than a second.
	maxSearch = 20 * time.Second
)

// loop answers requests, in order. It keeps the workspace open between them.
type loop struct {
	o      *options
	ctx    *cli.Context
	opened *cli.Opened
	w      *work
	out    *json.Encoder
	log    *audit.Log
}

// fields are the fields of an answer.
type fields map[string]any

type operation struct {
	name    string
	run     func(*work, *jsonline.Object) (fields, error)
	changes []string // fields with the paths that it changes
}

var operations []operation

func init() { // hello lists them
	operations = []operation{
		{name: "hello", run: (*work).hello}, {name: "read", run: (*work).readPart}, {"write", (*work).writeAll, []string{"path"}},
		{"edit", (*work).editText, []string{"path"}}, {name: "grep", run: (*work).grepText}, {name: "glob", run: (*work).globPaths},
		{name: "ls", run: (*work).list}, {name: "stat", run: (*work).statFields}, {"mkdir", (*work).mkdirOp, []string{"path"}},
		{"mv", (*work).mvOp, []string{"from", "to"}}, {"rm", (*work).rmOp, []string{"path"}}, {name: "patch", run: (*work).patchFiles},
	}
}

func (o *options) loop(ctx *cli.Context) error {
	l := &loop{o: o, ctx: ctx, out: cli.JSON(ctx.Stdout)}
	var err error
	if l.log, err = o.openRecords(); err != nil {
		return err
	}
	defer l.log.Close()
	defer l.close()
	if err := l.open(); err != nil {
		return err
	}
	l.rest()
	input := bufio.NewReaderSize(ctx.Stdin, pieceSize)
	for {
		line, err := jsonline.ReadLine(input, maxRequest)
		long := jsonline.IsTooLong(err)
		switch {
		case err == io.EOF:
			return nil
		case err != nil && !long:
			return fmt.Errorf("cannot read standard input: %w", cause(err))
		}
		var id json.RawMessage
		var answer fields
		if err == nil {
			id, answer, err = l.answer(line)
		}
		if err != nil {
			answer = refusal(err)
		}
		if id != nil {
			answer["id"] = id
		}
		if err := l.out.Encode(answer); err != nil {
			return &outputError{err}
		}
	}
}

func (l *loop) close() {
	if l.w != nil {
		l.w.close()
		l.w = nil
	}
	if l.opened != nil {
		l.opened.Close()
		l.opened = nil
	}
	l.o.view.Close()
}

// open opens the workspace, as for a verb. The loop opens a trial for each request, because
// no change lands while the trial is open.
func (l *loop) open() (err error) {
	l.close()
	if l.opened, err = sandboxflags.OpenAsOwner(l.ctx, &l.o.WorkspaceFlags); err != nil {
		return err
	}
	if err := l.log.CheckOutside(l.opened.Roots()); err != nil {
		return cli.Invalid(err)
	}
	l.w = &work{options: l.o, ctx: l.ctx, confined: l.opened.Workspace, views: map[string]workspace.Workspace{}, hosts: map[string]*fence.HostRun{}, records: l.log}
	if l.o.violations != "" {
		if err := l.w.logTo(l.o.violations); err != nil {
			return cli.Invalid(err)
		}
	}
	return nil
}

// ready opens the workspace again if another directory has replaced a root.
func (l *loop) ready() error {
	if l.w != nil && !slices.ContainsFunc(l.w.confined.Roots(), replaced) {
		return nil
	}
	return l.open()
}

func replaced(r confine.Root) bool {
	var st unix.Stat_t
	return unix.Lstat(r.Path, &st) != nil || !r.Is(&st)
}

func (l *loop) answer(line []byte) (id json.RawMessage, answer fields, err error) {
	request := jsonline.Parse(line)
	id = request.ID()
	op, _ := request.String("op")
	at := slices.IndexFunc(operations, func(o operation) bool { return o.name == op })
	if at < 0 {
		request.Fail(fmt.Errorf("the op %q is unknown", op))
		return id, nil, &badRequest{request.End()}
	}
	if err := l.ready(); err != nil {
		return id, nil, err
	}
	answer, err = l.perform(operations[at], request)
	l.rest()
	return id, answer, err
}

// perform performs an operation, and records it if it changes files.
func (l *loop) perform(o operation, request *jsonline.Object) (answer fields, err error) {
	if o.changes == nil {
		return o.run(l.w, request)
	}
	var paths []string
	for _, name := range o.changes {
		path, _ := request.Text(name)
		paths = append(paths, path)
	}
	err = l.w.change(o.name, "", paths, func() (err error) {
		answer, err = o.run(l.w, request)
		return err
	})
	return answer, err
}

// rest releases a trial until the next request.
func (l *loop) rest() {
	if l.opened.Session != nil && l.opened.Session.Trial() {
		l.close()
	}
}

// badRequest is an error in a request.
type badRequest struct{ err error }

func (e *badRequest) Error() string { return e.err.Error() }
func (e *badRequest) Unwrap() error { return e.err }

// refusal returns the answer for an error.
func refusal(err error) fields {
	answer := fields{"error": strings.ToValidUTF8(strings.Map(oneLine, err.Error()), "\ufffd"), "kind": kindOf(err)}
	if hint := cli.HintOf(err); hint != "" {
		answer["hint"] = hint
	}
	return answer
}

func oneLine(r rune) rune {
	if r == '\n' {
		return ' '
	}
	return r
}

// kindOf returns the kind of an error, for programs.
func kindOf(err error) string {
	if _, ok := errors.AsType[*badRequest](err); ok {
		return "invalid"
	}
	if jsonline.IsTooLong(err) {
		return "too-large"
	}
	if _, ok := errors.AsType[*edit.MatchError](err); ok {
		return "not-unique"
	}
	if e, ok := errors.AsType[*edit.HunkError](err); ok {
		if len(e.Lines) > 0 {
			return "not-unique"
		}
		return "changed"
	}
	for _, k := range []struct {
		kind string
		errs []error
	}{
		{"changed", []error{workspace.ErrChanged, workspace.ErrRaced}},
		{"not-found", []error{workspace.ErrNotFound}},
		{"exists", []error{workspace.ErrExist}},
		{"too-large", []error{workspace.ErrTooLarge, workspace.ErrTooMany, lines.ErrLongLine}},
		{"invalid", []error{workspace.ErrInvalid, workspace.ErrIsDir, workspace.ErrNotDir, workspace.ErrNotRegular, workspace.ErrUnsupported, lines.ErrBinary}},
		{"denied", []error{fs.ErrPermission}},
	} {
		if slices.ContainsFunc(k.errs, func(e error) bool { return errors.Is(err, e) }) {
			return k.kind
		}
	}
	if _, ok := errors.AsType[*confine.Refusal](err); ok {
		return "denied"
	}
	return "io"
}

// asked reads the fields of a request, and checks their values.
type asked struct{ *jsonline.Object }

func (a asked) path() string {
	if path, ok := a.Text("path"); ok {
		return path
	}
	return "."
}

func (a asked) number(name string, least, most, otherwise int) int {
	n := a.Between(name, least, most)
	if n == nil {
		return otherwise
	}
	return *n
}

func (a asked) hash() string {
	hash, ok := a.String("if_unchanged")
	if ok {
		if err := new(options).setHash(hash); err != nil {
			a.Fail(fmt.Errorf("the if_unchanged %w", err))
		}
	}
	return hash
}

// end returns the first error of a request. An operation calls it before it acts.
func (a asked) end() error {
	if err := a.End(); err != nil {
		return &badRequest{err}
	}
	return nil
}

// text adds a text, or its field in base64.
func (f fields) text(name, text string) {
	if utf8.ValidString(text) {
		f[name] = text
	} else {
		f[name+"_base64"] = []byte(text)
	}
}

// truncated tells that there is more, unless why is "".
func (f fields) truncated(why string) {
	if f["truncated"] = why != ""; why != "" {
		f["truncated_by"] = why
	}
}

func (w *work) hello(request *jsonline.Object) (fields, error) {
	if err := (asked{request}).end(); err != nil {
		return nil, err
	}
	var names []string
	for _, op := range operations {
		names = append(names, op.name)
	}
	roots := []fields{}
	for _, r := range w.confined.Roots() {
		root := fields{"writable": r.Writable}
		root.text("path", r.Path)
		roots = append(roots, root)
	}
	answer := fields{"version": cli.VersionOf(version), "ops": names, "roots": roots}
	answer.text("root", w.confined.ProjectRoot())
	return answer, nil
}

func (w *work) readPart(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed := a.Need("path")
	first, count := a.Int("offset"), a.Int("limit")
	r := lines.Range{First: 1, Last: 2000, Numbers: a.Bool("numbers")}
	if first != nil {
		if r.First = int64(*first); r.First < 1 {
			a.Fail(errors.New("the offset is not a line, from 1"))
		}
	}
	if count != nil {
		if r.Last = int64(*count); r.Last < 1 {
			a.Fail(errors.New("the limit is not a number of lines"))
		}
	}
	r.Last += r.First - 1
	l := lines.Limits{Bytes: a.number("max_bytes", 1, maxPart, 256<<10)}
	if r.Numbers {
		l.Line = 2000
	}
	if err := a.end(); err != nil {
		return nil, err
	}
	p, err := w.at("read", typed, toRead)
	if err != nil {
		return nil, err
	}
	f, err := workspace.Open(context.Background(), p.Workspace, p.path)
	if err != nil {
		return nil, w.failed("read", typed, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, w.failed("read", typed, err)
	}
	answer := fields{"bytes": info.Size(), "binary": false}
	in, sum := io.Reader(f), sha256.New()
	if l.Counted = info.Size() <= maxHashed; l.Counted {
		in = io.TeeReader(io.LimitReader(f, maxHashed), sum)
	}
	part, err := lines.Read(in, r, l)
	if err == lines.ErrBinary {
		if first != nil || count != nil || r.Numbers {
			return nil, cli.WithHint(fmt.Errorf("cannot read %q: %w", typed, err), "without offset, limit and numbers its bytes are read")
		}
		return answer, w.failed("read", typed, w.readBytes(answer, f, l.Bytes))
	}
	if err == lines.ErrLongLine {
		return nil, fmt.Errorf("cannot read %q: %w", typed, err)
	}
	if err != nil {
		return nil, w.failed("read", typed, err)
	}
	answer.text("text", string(part.Text))
	answer["first"], answer["last"] = part.First, part.Last
	answer["truncated"] = part.Cut || part.Lines < 0 || part.Lines > max(part.Last, r.First-1)
	if part.Lines >= 0 {
		answer["lines"] = part.Lines
	}
	if l.Counted && part.Lines >= 0 {
		answer["sha256"] = hex.EncodeToString(sum.Sum(nil))
	}
	return answer, nil
}

// readBytes answers with the bytes of a binary file.
func (w *work) readBytes(answer fields, f workspace.File, most int) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var content bytes.Buffer
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(&content, sum), io.LimitReader(f, int64(most))); err != nil {
		return err
	}
	rest, err := io.Copy(sum, io.LimitReader(f, maxHashed))
	answer["content_base64"], answer["binary"], answer["truncated"] = content.Bytes(), true, rest > 0
	if err == nil && int64(content.Len())+rest == answer["bytes"] {
		answer["sha256"] = hex.EncodeToString(sum.Sum(nil))
	}
	return err
}

func (w *work) writeAll(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed, content := a.Need("path"), a.Need("content")
	opts := workspace.WriteOptions{Atomic: true, IfHash: a.hash(), Exclusive: a.Bool("exclusive"), Sync: w.sync}
	if opts.IfHash != "" && opts.Exclusive {
		a.Fail(errors.New("exclusive cannot be used with if_unchanged"))
	}
	if err := a.end(); err != nil {
		return nil, err
	}
	req := toWrite
	if opts.Exclusive {
		req = itself
	}
	p, err := w.file("write", typed, req)
	if err != nil {
		return nil, err
	}
	there, err := p.Exists(context.Background(), p.path)
	if err != nil {
		return nil, w.failed("write", typed, err)
	}
	out, err := workspace.Create(context.Background(), p.Workspace, p.path, opts)
	if err != nil {
		return nil, w.failed("write", typed, err)
	}
	defer out.Abort()
	if _, err = io.WriteString(out, content); err == nil {
		err = out.Close()
	}
	if err != nil {
		return nil, w.failed("write", typed, err)
	}
	return fields{"bytes": len(content), "sha256": workspace.HashOf([]byte(content)), "created": !there}, nil
}

func (w *work) editText(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed := a.Need("path")
	r := edit.Replacement{Old: a.Need("old"), New: a.Need("new"), All: a.Bool("all"), IfHash: a.hash()}
	if err := a.end(); err != nil {
		return nil, err
	}
	result, err := w.replace(typed, r)
	if err != nil {
		return nil, err
	}
	answer := fields{"sha256": result.Hash(), "replaced": result.Replaced}
	answer.text("diff", string(result.Diff(typed)))
	return answer, nil
}

func (w *work) grepText(request *jsonline.Object) (fields, error) {
	a := asked{request}
	q := grep.Query{
		Pattern: a.Need("pattern"), IgnoreCase: a.Bool("ignore_case"), Fixed: a.Bool("fixed"), FilesOnly: a.Bool("files_only"),
		Before: a.number("before", 0, maxContext, 0), After: a.number("after", 0, maxContext, 0), Limit: a.number("limit", 1, 100_000, 250),
	}
	typed := a.path()
	if glob, ok := a.Text("glob"); ok {
		a.Fail(addGlob(&q, glob))
	}
	a.Fail(grep.Check(q))
	if err := a.end(); err != nil {
		return nil, err
	}
	place, err := w.place(typed)
	if err != nil {
		return nil, err
	}
	out := &gathered{work: w, form: onOneLine(formOf(q))}
	ctx, stop := context.WithTimeout(context.Background(), w.maxSearch)
	defer stop()
	total, err := grep.Search(ctx, q, []grep.Place{*place}, out)
	why := ""
	switch {
	case total.Truncated:
		why = "limit"
	case errors.Is(err, errFull):
		why = "size"
	case errors.Is(err, context.DeadlineExceeded):
		why = "time"
	case err != nil:
		return nil, err
	}
	if out.failure != nil && total.Matches == 0 && out.unread == 1 {
		return nil, out.failure
	}
	answer := fields{"matches": total.Matches, "files": total.Files}
	answer.truncated(why)
	if out.unread > 0 {
		answer["unread"] = out.unread
	}
	answer.text("text", strings.TrimPrefix(out.String(), separator))
	return answer, nil
}

// gathered collects the results of grep, up to a bound.
type gathered struct {
	*work
	form lineForm
	bytes.Buffer
	unread  int
	failure error
}

var errFull = errors.New("internal error: an answer is full")

func (g *gathered) Append(text []byte, l grep.Line, group bool) []byte {
	return g.form(text, l, group, '\n')
}

// Write keeps whole lines.
func (g *gathered) Write(text []byte) error {
	room := maxPart - g.Len()
	if len(text) > room {
		g.Buffer.Write(text[:bytes.LastIndexByte(text[:room], '\n')+1])
		return errFull
	}
	g.Buffer.Write(text)
	return nil
}

func (g *gathered) Failed(path string, err error) error {
	g.unread++
	if err == grep.ErrIgnoreList {
		return nil
	}
	if err = g.failed("grep", path, unsearched(path, err)); g.failure == nil {
		g.failure = err
	}
	return nil
}

func (w *work) globPaths(request *jsonline.Object) (fields, error) {
	a := asked{request}
	text, typed, limit := a.Need("pattern"), a.path(), a.number("limit", 1, 1_000_000, 1000)
	p, err := pattern.Compile(text)
	a.Fail(err)
	if err := a.end(); err != nil {
		return nil, err
	}
	found := &gatheredPaths{limit: limit, paths: []string{}}
	ctx, stop := context.WithTimeout(context.Background(), w.maxSearch)
	defer stop()
	err = w.treeTo(ctx, found, "glob", typed, p.MayMatchBelow, func(below string, kind fs.FileMode) bool {
		return !kind.IsDir() && p.Match(below)
	})
	why := ""
	switch {
	case errors.Is(err, errFull):
		why = "limit"
	case ctx.Err() != nil:
		why = "time"
	case err != nil:
		return nil, err
	}
	answer := fields{"paths": found.paths}
	answer.truncated(why)
	if len(found.raw) > 0 {
		answer["paths_base64"] = found.raw
	}
	if found.unread > 0 {
		answer["unread"] = found.unread
	}
	return answer, nil
}

// gatheredPaths collects the results of glob, up to a limit.
type gatheredPaths struct {
	limit  int
	paths  []string
	raw    [][]byte // those that are not UTF-8
	unread int
}

func (g *gatheredPaths) entry(path string, _ fs.FileMode) error {
	if len(g.paths)+len(g.raw) == g.limit {
		return errFull
	}
	if utf8.ValidString(path) {
		g.paths = append(g.paths, path)
	} else {
		g.raw = append(g.raw, []byte(path))
	}
	return nil
}

func (g *gatheredPaths) trouble(error) error {
	g.unread++
	return nil
}

func (w *work) list(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed := a.path()
	if err := a.end(); err != nil {
		return nil, err
	}
	p, err := w.at("ls", typed, toRead)
	if err != nil {
		return nil, err
	}
	if err := w.listable("ls", p); err != nil {
		return nil, err
	}
	names, err := p.List(context.Background(), p.path)
	if err != nil {
		return nil, w.failed("ls", typed, err)
	}
	entries := []fields{}
	for _, name := range names {
		info, err := name.Info()
		if err != nil {
			continue // gone since
		}
		entry := fields{"type": shortKind(info.Mode().Type()), "size": info.Size()}
		entry.text("name", name.Name())
		entries = append(entries, entry)
	}
	return fields{"entries": entries}, nil
}

// shortKind returns the type of an entry in the short form that ls of --loop uses.
func shortKind(m fs.FileMode) string {
	switch word := kind(m); word {
	case "directory":
		return "dir"
	case "link":
		return "symlink"
	default:
		return word
	}
}

func (w *work) statFields(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed := a.Need("path")
	if err := a.end(); err != nil {
		return nil, err
	}
	r, err := w.describe(typed)
	if err != nil {
		return nil, err
	}
	answer := fields{"type": r.Type, "mode": r.Mode, "size": r.Size, "mtime": r.Time}
	answer.text("path", typed)
	return answer, nil
}

func (w *work) mkdirOp(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed := a.Need("path")
	if err := a.end(); err != nil {
		return nil, err
	}
	return fields{}, w.makeDir(typed)
}

func (w *work) mvOp(request *jsonline.Object) (fields, error) {
	a := asked{request}
	from, to := a.Need("from"), a.Need("to")
	if err := a.end(); err != nil {
		return nil, err
	}
	return fields{}, w.move(from, to)
}

func (w *work) rmOp(request *jsonline.Object) (fields, error) {
	a := asked{request}
	typed, recursive := a.Need("path"), a.Bool("recursive")
	if err := a.end(); err != nil {
		return nil, err
	}
	return fields{}, w.remove(typed, recursive)
}

func (w *work) patchFiles(request *jsonline.Object) (fields, error) {
	a := asked{request}
	text, dry := a.Need("patch"), a.Bool("dry_run")
	if err := a.end(); err != nil {
		return nil, err
	}
	plan, err := w.checked(text)
	if err == nil && !dry {
		err = w.landed(plan)
	}
	if err != nil {
		return nil, err
	}
	files := []fields{}
	for _, c := range plan.Files() {
		file := fields{"action": c.Action}
		file.text("path", c.Path)
		if c.To != "" {
			file.text("to", c.To)
		}
		if c.SHA256 != "" {
			file["sha256"] = c.SHA256
		}
		files = append(files, file)
	}
	answer := fields{"files": files}
	answer.text("diff", string(plan.Diff()))
	return answer, nil
}
