package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"pikuri/lib/cli"
	"pikuri/lib/pattern"
	"pikuri/lib/workspace"
)

// record is one answer in JSON. The manual page describes it field by field.
type record struct {
	Path    *string    `json:"path,omitempty"`
	PathRaw []byte     `json:"path_base64,omitempty"`
	Exists  *bool      `json:"exists,omitempty"`
	Type    string     `json:"type,omitempty"`
	Mode    string     `json:"mode,omitempty"`
	Size    *int64     `json:"size,omitempty"`
	Time    *time.Time `json:"mtime,omitempty"`
	Bytes   *int64     `json:"bytes,omitempty"`
	SHA256  string     `json:"sha256,omitempty"`

	Line    *int64  `json:"line,omitempty"`
	Text    *string `json:"text,omitempty"`
	TextRaw []byte  `json:"text_base64,omitempty"`
	Context bool    `json:"context,omitempty"`

	Action string `json:"action,omitempty"`
	To     string `json:"to,omitempty"`
	ToRaw  []byte `json:"to_base64,omitempty"`

	Replaced *int   `json:"replaced,omitempty"`
	Diff     string `json:"diff,omitempty"`
	DiffRaw  []byte `json:"diff_base64,omitempty"`
}

func (r *record) setPath(path string) {
	if utf8.ValidString(path) {
		r.Path = &path
	} else {
		r.PathRaw = []byte(path)
	}
}

// answers are written to standard output through a buffer.
type answers struct {
	out      *bufio.Writer
	json     *json.Encoder
	end      byte // of a record
	terminal bool // out is one
}

func (w *work) answers() *answers {
	if w.answered == nil {
		out := bufio.NewWriterSize(w.ctx.Stdout, pieceSize)
		w.answered = &answers{out: out, json: cli.JSON(out), end: '\n', terminal: cli.Terminal(w.ctx.Stdout)}
		if w.zero {
			w.answered.end = 0
		}
	}
	return w.answered
}

// write writes an answer about a path in JSON.
func (a *answers) write(r record, path string) error {
	r.setPath(path)
	return a.failed(a.json.Encode(r))
}

// line writes an answer as a record. It refuses an answer that would be read as two, and
// the others are still written.
func (a *answers) line(text string) error {
	if a.terminal || strings.IndexByte(text, a.end) >= 0 {
		return a.failed(cli.WriteRecord(a.out, text, a.end == 0, a.terminal))
	}
	_, err := a.out.WriteString(text)
	if err == nil {
		err = a.out.WriteByte(a.end)
	}
	if err != nil {
		return &outputError{err}
	}
	return nil
}

// judge refuses a name that line would refuse, before anything is changed.
func (a *answers) judge(name string) error {
	return cli.WriteRecord(io.Discard, name, a.end == 0, a.terminal)
}

// failed returns the failure to write, if there was one; a bufio.Writer repeats its
// first.
func (a *answers) failed(err error) error {
	if _, failed := a.out.Write(nil); failed != nil {
		return &outputError{failed}
	}
	return err
}

func (a *answers) flush() error {
	if err := a.out.Flush(); err != nil {
		return &outputError{err}
	}
	return nil
}

// dir is the operand that names a directory, by default the current one.
func (w *work) dir(at int) string {
	if len(w.args) > at {
		return w.args[at]
	}
	return "."
}

// under is the path of an entry as the user would type it.
func under(dir, name string) string {
	switch {
	case dir == ".":
		return name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}

func (w *work) ls() error {
	typed := w.dir(0)
	p, err := w.at("ls", typed, toRead)
	if err != nil {
		return err
	}
	if err := w.listable("ls", p); err != nil {
		return err
	}
	entries, err := p.List(context.Background(), p.path)
	if err != nil {
		return w.failed("ls", typed, err)
	}
	for _, entry := range entries {
		if err := w.listed(typed, entry); err != nil {
			return err
		}
	}
	return nil
}

// listable fails for a missing directory, which a Workspace lists as empty.
func (w *work) listable(verb string, p *operand) error {
	info, err := p.Stat(context.Background(), p.path)
	if err == nil && !info.IsDir() {
		err = &workspace.Error{Op: "list", Err: workspace.ErrNotDir}
	}
	return w.failed(verb, p.typed, err)
}

// listed prints one entry of a directory.
func (w *work) listed(dir string, entry fs.DirEntry) error {
	if !w.json {
		return w.told(w.answers().line(entry.Name()))
	}
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since
	}
	if err != nil {
		return w.told(w.failed("ls", under(dir, entry.Name()), err))
	}
	return w.answers().write(described(info), under(dir, entry.Name()))
}

// told reports an error of one answer. The others follow.
func (w *work) told(err error) error {
	if fatal, ok := errors.AsType[*outputError](err); ok || err == nil {
		if fatal != nil {
			return fatal
		}
		return nil
	}
	w.ctx.Report(err)
	w.refused = true
	return nil
}

func (w *work) walk() error {
	everything := func(string) bool { return true }
	return w.treeTo(context.Background(), w, "walk", w.dir(0), everything, func(string, fs.FileMode) bool { return true })
}

func (w *work) glob() error {
	p, err := pattern.Compile(w.args[0])
	if err != nil {
		return cli.Usage("%w", err)
	}
	return w.treeTo(context.Background(), w, "glob", w.dir(1), p.MayMatchBelow, func(below string, kind fs.FileMode) bool {
		return !kind.IsDir() && p.Match(below)
	})
}

// branches receives the entries of a tree, and the errors that hide other entries. If one
// of its methods returns an error, the walk ends.
type branches interface {
	entry(path string, kind fs.FileMode) error
	trouble(err error) error
}

// treeTo gives out the wanted entries below a directory. It enters only some
// directories.
func (w *work) treeTo(ctx context.Context, to branches, verb, typed string, enter func(below string) bool, wanted func(below string, kind fs.FileMode) bool) error {
	p, err := w.at(verb, typed, toRead)
	if err != nil {
		return err
	}
	if err := w.listable(verb, p); err != nil || !enter(".") {
		return err
	}
	skip := 0
	if p.path != "." {
		skip = len(p.path) + 1
	}
	return workspace.Paths(ctx, p.Workspace, p.path, func(path string, kind fs.FileMode, err error) error {
		below := "."
		if len(path) > skip {
			below = path[skip:]
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return to.trouble(w.failed(verb, under(typed, below), err))
		}
		if wanted(below, kind) {
			if err := to.entry(under(typed, below), kind); err != nil {
				return err
			}
		}
		if kind.IsDir() && !enter(below) {
			return fs.SkipDir
		}
		if where := under(p.root, path); kind.IsDir() && w.isShown(where) && w.elsewhere(p.root, where) {
			inner := func(name string) string { return strings.TrimSuffix(under(below, name), "/.") }
			err := w.treeTo(ctx, to, verb, under(typed, below), func(name string) bool { return enter(inner(name)) },
				func(name string, kind fs.FileMode) bool { return wanted(inner(name), kind) })
			if err != nil && !errors.Is(err, errFull) && ctx.Err() == nil {
				err = to.trouble(err)
			}
			if err != nil {
				return err
			}
			return fs.SkipDir
		}
		return nil
	})
}

func (w *work) entry(path string, mode fs.FileMode) error {
	if !w.json {
		return w.told(w.answers().line(path))
	}
	return w.told(w.answers().write(record{Type: kind(mode)}, path))
}

func (w *work) trouble(err error) error { return w.told(err) }

// describe returns the record of the file at a path.
func (w *work) describe(typed string) (r record, err error) {
	p, err := w.at("stat", typed, toRead)
	if err != nil {
		return r, err
	}
	info, err := p.Stat(context.Background(), p.path)
	if err != nil {
		return r, w.failed("stat", typed, err)
	}
	return described(info), nil
}

func (w *work) stat() error {
	return w.each(func(typed string) error {
		r, err := w.describe(typed)
		if err != nil {
			return err
		}
		if w.json {
			return w.answers().write(r, typed)
		}
		return w.answers().line(fmt.Sprintf("%s\t%s\t%d\t%s\t%s", r.Type, r.Mode, *r.Size, r.Time.Format(time.RFC3339Nano), typed))
	})
}

func described(info fs.FileInfo) record {
	size, changed := info.Size(), info.ModTime().UTC()
	return record{Type: kind(info.Mode().Type()), Mode: fmt.Sprintf("%04o", permissions(info.Mode())), Size: &size, Time: &changed}
}

// permissions are the twelve bits that chmod sets.
func permissions(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for mode, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&mode != 0 {
			bits |= bit
		}
	}
	return bits
}

// kind is a word for the type of a file.
func kind(m fs.FileMode) string {
	switch {
	case m == 0:
		return "file"
	case m&fs.ModeDir != 0:
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "link"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeCharDevice != 0:
		return "character-device"
	case m&fs.ModeDevice != 0:
		return "block-device"
	}
	return "other"
}
