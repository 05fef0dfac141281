package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"pikuri/lib/cli"
	"pikuri/lib/edit"
	"pikuri/lib/lines"
	"pikuri/lib/workspace"
)

// textFlags are the options of the verbs that read or change lines.
type textFlags struct {
	old, new  textFlag
	all       bool
	lines     lines.Range
	tail      int
	numbers   bool
	from      string
	dryRun    bool
	selection string // the option that says which lines
}

// textFlag is a text, from the command line or from a file.
type textFlag struct {
	option, text, file string
}

func (f *textFlag) options(name string) []cli.Option {
	given := func(option string, set func(string)) cli.Option {
		return cli.Func(func(v string) error {
			if f.option != "" {
				return fmt.Errorf("there is a --%s already", f.option)
			}
			f.option = option
			set(v)
			return nil
		}, option, "")
	}
	return []cli.Option{
		given(name, func(v string) { f.text = v }),
		given(name+"-from", func(v string) { f.file = v }).FromInput(),
	}
}

// maxText bounds a text that pk-fs reads whole, in bytes.
const maxText = 64 << 20

// read returns the text.
func (f *textFlag) read(w *work) (string, error) {
	var text strings.Builder
	name := f.file
	switch f.file {
	case "":
		return f.text, nil
	case "-":
		name = "standard input"
		if _, err := w.take(&text, maxText+1); err != nil {
			return "", err
		}
	default:
		file, err := os.Open(f.file)
		if err == nil {
			defer file.Close()
			_, err = io.Copy(&text, io.LimitReader(file, maxText+1))
		}
		if err != nil {
			return "", fmt.Errorf("cannot read %q: %w", f.file, cause(err))
		}
	}
	if text.Len() > maxText { // half of a patch would be another one
		return "", fmt.Errorf("cannot read %q: it is longer than %d MiB", name, maxText>>20)
	}
	return text.String(), nil
}

// check refuses an edit without an old or a new text.
func (t *textFlags) check() error {
	for name, f := range map[string]textFlag{"old": t.old, "new": t.new} {
		if f.option == "" {
			return cli.WithHint(cli.Usage("edit needs --%s or --%s-from", name, name), "pk-fs edit --old TEXT --new TEXT PATH")
		}
	}
	if t.old.file == "-" && t.new.file == "-" {
		return cli.Usage("standard input can be read only once")
	}
	return nil
}

func (t *textFlags) options() []cli.Option {
	return append(append(t.old.options("old"), t.new.options("new")...),
		cli.Switch(&t.all, "all", ""),
		cli.Func(t.setLines, "lines", ""),
		cli.Func(t.setHead, "head", ""),
		cli.Func(t.setTail, "tail", ""),
		cli.Switch(&t.numbers, "number", "n"),
		cli.Name(&t.from, "from", "").FromInput(),
		cli.Switch(&t.dryRun, "dry-run", ""),
	)
}

// setLines parses A-B, A- or A.
func (t *textFlags) setLines(v string) error {
	first, last, isRange := strings.Cut(v, "-")
	var err, endErr error
	t.lines.First, err = strconv.ParseInt(first, 10, 64)
	t.lines.Last = t.lines.First
	if isRange {
		t.lines.Last = 0
		if last != "" {
			t.lines.Last, endErr = strconv.ParseInt(last, 10, 64)
		}
	}
	if err != nil || endErr != nil || t.lines.First < 1 || last != "" && t.lines.Last < t.lines.First {
		return fmt.Errorf("%q is no range of lines, such as 10-20, 10- or 10", v)
	}
	return t.selects("--lines")
}

func (t *textFlags) setHead(v string) error {
	n, err := number(v)
	t.lines = lines.Range{First: 1, Last: int64(n)}
	return errors.Join(err, t.selects("--head"))
}

func (t *textFlags) setTail(v string) (err error) {
	t.tail, err = number(v)
	return errors.Join(err, t.selects("--tail"))
}

func (t *textFlags) selects(option string) error {
	if t.selection != "" && t.selection != option {
		return fmt.Errorf("there is a %s already", t.selection)
	}
	t.selection = option
	return nil
}

func number(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number of lines", v)
	}
	return n, nil
}

func (w *work) edit() error {
	old, err := w.old.read(w)
	if err != nil {
		return err
	}
	with, err := w.new.read(w)
	if err != nil {
		return err
	}
	typed := w.args[0]
	result, err := w.replace(typed, edit.Replacement{Old: old, New: with, All: w.all, IfHash: w.ifUnchanged})
	if err != nil {
		if match, ok := errors.AsType[*edit.MatchError](err); ok && len(match.Lines) > 0 {
			return cli.WithHint(err, "give more of the lines around it, or --all")
		}
		return err
	}
	diff := result.Diff(typed)
	if w.json {
		r := record{SHA256: result.Hash(), Replaced: &result.Replaced}
		r.setDiff(diff)
		return w.answers().write(r, typed)
	}
	_, err = fmt.Fprintf(w.ctx.Stdout, "%ssha256 %s\n", diff, result.Hash())
	if err != nil {
		return &outputError{err}
	}
	return nil
}

// replace replaces a text in a file.
func (w *work) replace(typed string, r edit.Replacement) (*edit.Result, error) {
	p, err := w.file("edit", typed, toWrite)
	if err != nil {
		return nil, err
	}
	result, err := edit.File(context.Background(), p.Workspace, p.path, r)
	if match, ok := errors.AsType[*edit.MatchError](err); ok {
		return nil, fmt.Errorf("cannot edit %q: %w", typed, match)
	}
	return result, w.failed("edit", typed, err)
}

// setDiff adds a diff to an answer, in base64 if it is not UTF-8.
func (r *record) setDiff(diff []byte) {
	if utf8.Valid(diff) {
		r.Diff = string(diff)
	} else {
		r.DiffRaw = diff
	}
}

func (w *work) patch() error {
	f := w.from
	if f == "" {
		f = "-"
	}
	text, err := (&textFlag{file: f}).read(w)
	if err != nil {
		return err
	}
	plan, err := w.checked(text)
	if err == nil && !w.json {
		for _, path := range changed(plan) {
			err = cmp.Or(err, w.answers().judge(path))
		}
	}
	if err == nil && !w.dryRun {
		err = w.landed(plan)
	}
	if err != nil {
		return err
	}
	for _, c := range plan.Files() {
		if w.json {
			r := record{Action: string(c.Action), SHA256: c.SHA256}
			if utf8.ValidString(c.To) {
				r.To = c.To
			} else {
				r.ToRaw = []byte(c.To)
			}
			err = w.answers().write(r, c.Path)
		} else if c.To != "" {
			err = w.answers().line(fmt.Sprintf("%s\t%s\t%s", c.Action, c.Path, c.To))
		} else {
			err = w.answers().line(fmt.Sprintf("%s\t%s", c.Action, c.Path))
		}
		if err := w.told(err); err != nil {
			return err
		}
	}
	return nil
}

// checked parses a patch, and checks it against the files.
func (w *work) checked(text string) (*edit.Plan, error) {
	changes, err := edit.Parse(text)
	if err != nil {
		return nil, &badRequest{fmt.Errorf("cannot patch: %w", err)}
	}
	plan, err := edit.Check(context.Background(), changes, func(name string, keepsLink bool) (workspace.Workspace, string, error) {
		req := toWrite
		if keepsLink {
			req = itself
		}
		p, err := w.file("patch", name, req)
		if err != nil {
			return nil, "", err
		}
		return p.Workspace, p.path, nil
	})
	return plan, w.unpatched(err)
}

func (w *work) landed(plan *edit.Plan) error {
	return w.change("patch", "", changed(plan), func() error { return w.unpatched(plan.Apply(context.Background())) })
}

// unpatched logs a refusal.
func (w *work) unpatched(err error) error {
	if e, ok := errors.AsType[*workspace.Error](err); ok {
		w.refusal("patch", e.Path, err)
	}
	return err
}

func (w *work) read() error {
	typed := w.args[0]
	p, err := w.at("read", typed, toRead)
	if err != nil {
		return err
	}
	f, err := workspace.Open(context.Background(), p.Workspace, p.path)
	if err != nil {
		return w.failed("read", typed, err)
	}
	defer f.Close()
	w.textFlags.lines.Numbers = w.numbers
	out := &outlets{to: w.ctx.Stdout}
	if err = w.toTail(f); err == nil {
		err = lines.Copy(out, f, w.textFlags.lines)
	}
	switch {
	case out.err != nil:
		return &outputError{out.err}
	case err == lines.ErrBinary, err == lines.ErrLongLine:
		return cli.WithHint(fmt.Errorf("cannot read %q: %w", typed, err), "pk-fs cat prints it")
	}
	return w.failed("read", typed, err)
}

// toTail moves to the last lines if the user has given --tail.
func (w *work) toTail(f io.ReadSeeker) (err error) {
	if w.tail == 0 {
		return nil
	}
	if err = lines.Tail(f, int64(w.tail)); err == nil && w.numbers {
		w.textFlags.lines.Before, err = lines.Count(f)
	}
	return err
}
