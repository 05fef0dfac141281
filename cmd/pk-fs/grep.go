package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitignore"
	"pikuri/lib/grep"
	"pikuri/lib/overlay"
	"pikuri/lib/pattern"
	"pikuri/lib/workspace"
)

// maxContext bounds the lines of context: people read them.
const maxContext = 1000

// grepOptions are the options of grep.
func grepOptions(q *grep.Query) []cli.Option {
	context := func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > maxContext {
			return fmt.Errorf("%q is not between 0 and %d", v, maxContext)
		}
		q.Before, q.After = n, n
		return nil
	}
	return []cli.Option{
		cli.Switch(&q.IgnoreCase, "ignore-case", "i"),
		cli.Switch(&q.Fixed, "fixed", "F"),
		cli.Int(&q.Before, 0, maxContext, "before", "B"),
		cli.Int(&q.After, 0, maxContext, "after", "A"),
		cli.Func(context, "context", ""),
		cli.Switch(&q.FilesOnly, "files-only", "l"),
		cli.Func(func(v string) error { return addGlob(q, v) }, "glob", ""),
		cli.Int(&q.Limit, 1, 1<<31-1, "limit", ""),
	}
}

func addGlob(q *grep.Query, text string) error {
	if strings.HasPrefix(text, "!") {
		return fmt.Errorf(`%q leaves nothing out; a name that begins with "!" is %q`, text, `\`+text)
	}
	p, err := pattern.Compile(text)
	if err != nil {
		return err
	}
	q.Globs = append(q.Globs, p)
	return nil
}

func (w *work) grep() error {
	q := w.query
	q.Pattern = w.args[0]
	if err := grep.Check(q); err != nil {
		return cli.Usage("%w", err)
	}
	paths := w.args[1:]
	if len(paths) == 0 {
		paths = []string{"."}
	}
	var places []grep.Place
	for _, typed := range paths {
		place, err := w.place(typed)
		if err := w.told(err); err != nil {
			return err
		}
		if err == nil {
			places = append(places, *place)
		}
	}
	out := &found{work: w, form: formOf(q), odd: map[string]bool{}}
	if w.json {
		out.form = jsonLine
	}
	if cli.Terminal(w.ctx.Stdout) && !w.zero && !w.json {
		out.form = visible(out.form)
	}
	total, err := grep.Search(context.Background(), q, places, out)
	w.refused = w.refused || total.Matches == 0
	for path := range out.odd {
		err = errors.Join(err, w.told(fmt.Errorf("%q holds a newline: with -z or --json it is printed", path)))
	}
	return err
}

// place returns the place that grep searches for a path.
func (w *work) place(typed string) (*grep.Place, error) {
	p, err := w.at("grep", typed, toRead)
	if err != nil {
		return nil, err
	}
	around, ok := gitconfig.Around(p.root)
	return &grep.Place{
		Workspace: p.Workspace, Path: p.path, Shown: typed,
		Ignore: &gitignore.Tree{
			Root: p.root, User: w.userIgnores(), Inside: ok && around.WorkTree != p.root,
			Read: func(path string, most int) []byte { return content(p.Workspace, path, most) },
		},
		Other: func(path string) *grep.Place {
			where := under(p.root, path)
			if !w.isShown(where) || !w.elsewhere(p.root, where) {
				return nil
			}
			other, err := w.place(where)
			if err != nil {
				return nil
			}
			return other
		},
	}, nil
}

// userIgnores returns the content of the user's own ignore list. Git in the sandbox has it too. In a
// root, or behind a link there, a command could have another file in its place: then it is read as
// any file of a root.
func (w *work) userIgnores() []byte {
	file := gitconfig.ExcludesFile(w.confined.ProjectRoot(), os.LookupEnv)
	if file == "" {
		return nil
	}
	var roots []string
	for _, root := range w.confined.Roots() {
		roots = append(roots, root.Path)
	}
	if _, ok := confine.LiesIn(file, roots); ok {
		if p := w.reached(file); p != nil {
			return content(p.Workspace, p.path, gitignore.MaxFile)
		}
		return nil
	}
	text, _, err := overlay.ReadFile(unix.AT_FDCWD, file, 0, gitignore.MaxFile)
	if errors.Is(err, overlay.ErrTooLarge) {
		return make([]byte, gitignore.MaxFile+1) // of which the Tree tells
	}
	return text
}

// content reads a small file. It returns nil if it cannot open the file.
func content(ws workspace.Workspace, path string, most int) []byte {
	f, err := workspace.Open(context.Background(), ws, path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, int64(most)+1))
	return text
}

// found prints the results of grep.
type found struct {
	*work
	form    lineForm
	written bool

	mu  sync.Mutex
	odd map[string]bool // paths that would be read as two
}

func (f *found) Append(text []byte, l grep.Line, group bool) []byte {
	end := byte('\n')
	if f.zero {
		end = 0
	}
	if !f.json && strings.IndexByte(l.Path, end) >= 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.odd[l.Path] = true
		return text
	}
	return f.form(text, l, group, end)
}

func (f *found) Write(text []byte) error {
	if !f.written {
		text = bytes.TrimPrefix(text, []byte(separator))
		f.written = true
	}
	if _, err := f.ctx.Stdout.Write(text); err != nil {
		return &outputError{err}
	}
	return nil
}

func (f *found) Failed(path string, err error) error {
	if err == grep.ErrIgnoreList {
		f.ctx.Warn("%q is not applied: %v", path, err)
		return nil
	}
	return f.told(f.failed("grep", path, unsearched(path, err)))
}

// unsearched makes a file's error name the file.
func unsearched(path string, err error) error {
	if errors.Is(err, grep.ErrBinary) || errors.Is(err, grep.ErrLongLine) {
		return &badRequest{fmt.Errorf("cannot grep %q: %w", path, err)}
	}
	return err
}

// lineForm formats a line, and appends it to a text.
type lineForm func(text []byte, l grep.Line, group bool, end byte) []byte

func formOf(q grep.Query) lineForm {
	switch {
	case q.FilesOnly:
		return pathLine
	case q.Before+q.After > 0:
		return groupedLine
	}
	return plainLine
}

// separator separates groups of lines with context.
const separator = "--\n"

func groupedLine(text []byte, l grep.Line, group bool, end byte) []byte {
	if group {
		text = append(text, separator...)
	}
	return plainLine(text, l, group, end)
}

func plainLine(text []byte, l grep.Line, _ bool, end byte) []byte {
	mark := byte(':')
	if l.Context {
		mark = '-'
	}
	text = append(append(text, l.Path...), mark)
	text = append(strconv.AppendInt(text, l.Number, 10), mark)
	return append(append(text, l.Text...), end)
}

func pathLine(text []byte, l grep.Line, _ bool, end byte) []byte {
	return append(append(text, l.Path...), end)
}

// visible replaces the characters that a terminal could interpret.
func visible(form lineForm) lineForm {
	return func(text []byte, l grep.Line, group bool, end byte) []byte {
		l.Path, l.Text = printable(l.Path), []byte(printable(string(l.Text)))
		return form(text, l, group, end)
	}
}

// onOneLine keeps a path from looking like lines of other files.
func onOneLine(form lineForm) lineForm {
	return func(text []byte, l grep.Line, group bool, end byte) []byte {
		if strings.Contains(l.Path, "\n") {
			l.Path = printable(l.Path)
		}
		return form(text, l, group, end)
	}
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func jsonLine(text []byte, l grep.Line, _ bool, _ byte) []byte {
	r := record{Context: l.Context}
	r.setPath(l.Path)
	if l.Number > 0 {
		r.Line = &l.Number
		if line := string(l.Text); utf8.ValidString(line) {
			r.Text = &line
		} else {
			r.TextRaw = l.Text
		}
	}
	out := bytes.NewBuffer(text)
	_ = cli.JSON(out).Encode(r) // a bytes.Buffer takes everything
	return out.Bytes()
}
