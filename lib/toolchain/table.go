// Package toolchain knows where compilers, interpreters, version managers and
// their caches live, which of them exist on this machine, and which files inside
// them are private.
//
// The table is data: toolchains.tsv describes its own format. Its rows are
// narrow: a cache without the login beside it, never a whole configuration
// directory.
package toolchain

import (
	_ "embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"pikuri/lib/internal/usertable"
)

//go:embed toolchains.tsv
var builtin string

// Kind says how the sandbox shows a path.
type Kind string

// The kinds.
const (
	Readable Kind = "readable" // read-only
	Overlay  Kind = "overlay"  // writable in appearance; writes stay in the session
)

// Row is one line of the table.
type Row struct {
	Kind      Kind
	Tool      string
	Path      string   // default place, as a template
	Plain     bool     // a file, not a directory
	Variables []string // templates that move it, the strongest first
	Inside    []string // patterns relative to the path: to be hidden
	Risks     []string // inside, but left visible: the tool needs them
	Beside    []string // outside: why the path is not larger
	Settings  []string // NAME=VALUE for the tool's environment, as templates
	Source    string   // where the layout is documented
	Unchecked bool     // the row has not been compared with its source

	File string // where the row stands
	Line int
	user bool // not one of the built-in rows, which tests vouch for
}

// Table is the list of rows, in the order of the output.
type Table struct {
	rows []Row

	// replaced are built-in rows that rows of the user replace. Their credentials
	// still are credentials.
	replaced []Row
}

// Load returns the built-in table. A test runs the checks of Parse on it, which
// take longer than the rest of a start.
func Load() (Table, error) { return parse("toolchains.tsv", builtin, false) }

// columns of a row.
const columns = 7

// unchecked marks a source that has not been read.
const unchecked = "unchecked "

// Parse reads a table from text. name is for messages, which give the line.
func Parse(name, text string) (Table, error) { return parse(name, text, true) }

func parse(name, text string, check bool) (Table, error) {
	t := Table{rows: make([]Row, 0, strings.Count(text, "\n"))}
	for number, line := range usertable.Rows(text) {
		row, err := parseRow(line)
		if check && err == nil {
			err = row.check()
		}
		if err != nil {
			return Table{}, fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		row.File, row.Line = name, number
		t.rows = append(t.rows, row)
	}
	return t, nil
}

func parseRow(line string) (Row, error) {
	field := strings.Split(line, "\t")
	if len(field) != columns {
		return Row{}, fmt.Errorf("%d columns, want %d with one tab between them", len(field), columns)
	}
	r := Row{Kind: Kind(field[0]), Tool: field[1], Variables: list(field[3]), Settings: list(field[5])}
	r.Path, r.Plain = strings.CutPrefix(field[2], "file:")
	r.Source, r.Unchecked = strings.CutPrefix(field[6], unchecked)
	return r, r.exclude(list(field[4]))
}

// check refuses a malformed row.
func (r *Row) check() error {
	if r.Kind != Readable && r.Kind != Overlay {
		return fmt.Errorf("kind %q is neither %q nor %q", r.Kind, Readable, Overlay)
	}
	if r.Plain && r.Kind == Overlay {
		return errors.New("an overlay is a directory, not a file")
	}
	if r.Tool == "" || r.Tool == "-" {
		return errors.New("the tool has no name")
	}
	if err := checkPath(r.Path); err != nil {
		return err
	}
	for _, v := range r.Variables {
		if !strings.HasPrefix(v, "$") {
			return fmt.Errorf("template %q does not begin with a variable", v)
		}
	}
	for _, s := range r.Settings {
		if name, _, ok := strings.Cut(s, "="); !ok || !isName(name) {
			return fmt.Errorf("setting %q is not NAME=VALUE", s)
		}
	}
	for _, b := range r.Beside {
		if err := checkPath(b); err != nil {
			return err
		}
	}
	for _, rel := range r.Inside {
		if err := checkPath(r.Path + "/" + rel); err != nil {
			return err
		}
	}
	return nil
}

// exclude sorts the excluded files by their marks.
func (r *Row) exclude(files []string) error {
	for _, f := range files {
		if inside, ok := strings.CutPrefix(f, "in:"); ok {
			rel, ok := below(r.Path, inside)
			if !ok {
				return fmt.Errorf("%q is not inside %q", inside, r.Path)
			}
			r.Inside = append(r.Inside, rel)
		} else if risk, ok := strings.CutPrefix(f, "risk:"); ok {
			r.Risks = append(r.Risks, risk)
		} else {
			r.Beside = append(r.Beside, f)
		}
	}
	return nil
}

// below returns file relative to dir. Both are patterns, compared as they are
// written.
func below(dir, file string) (string, bool) {
	rel, ok := strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && rel != ""
}

// checkPath refuses a path that is relative or not clean, and a malformed
// pattern.
func checkPath(p string) error {
	switch _, err := path.Match(p, ""); {
	case !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "~/"):
		return fmt.Errorf("path %q begins with neither %q nor %q", p, "/", "~/")
	case p != path.Clean(p) || p == "/":
		return fmt.Errorf("path %q is not clean, or is the root", p)
	case err != nil || strings.Contains(p, "**"):
		return fmt.Errorf("path %q is not a pattern that is understood here", p)
	}
	return nil
}

// isName reports whether s can be the name of a variable.
func isName(s string) bool {
	return s != "" && strings.IndexFunc(s, notInName) < 0 && (s[0] < '0' || s[0] > '9')
}

// list splits a column at its semicolons.
func list(column string) []string {
	if column == "-" {
		return nil
	}
	items := make([]string, 0, 1+strings.Count(column, ";"))
	for item := range strings.SplitSeq(column, ";") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Rows returns all rows, in order.
func (t Table) Rows() []Row { return slices.Clone(t.rows) }

// Tools returns the names of all tools, each once, in the order of the table.
func (t Table) Tools() []string {
	var names []string
	for _, r := range t.rows {
		if !slices.Contains(names, r.Tool) {
			names = append(names, r.Tool)
		}
	}
	return names
}
