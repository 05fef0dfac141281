package bwrap

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/internal/fsat"
)

// Paint returns text in the colour of an access, or of a heading (Title). It changes no
// word.
type Paint func(what Access, text string) string

// Title is an argument of Paint only.
const Title Access = "title"

// A description fits a terminal of 80 columns: the path or name stands on the left, and
// the reason from ruleColumn on. A path is never broken, and may stick out.
const (
	width       = 80
	ruleColumn  = 44
	wordColumn  = 2
	thingColumn = wordColumn + len("read-only") + 2
)

// Describe formats the whole plan for the user: first the paths that can be written, then
// those that are protected or hidden, then the rest.
func (p *Plan) Describe(paint Paint) []string {
	var lines []string
	section := func(title string, rows []row) {
		if len(rows) == 0 {
			return
		}
		lines = append(lines, paint(Title, title))
		for _, r := range rows {
			lines = append(lines, r.lines(paint)...)
		}
	}
	section("Can be written:", p.rows(OpWritable, OpOverlay, OpEmpty))
	section("Cannot, though it lies there:", p.rows(OpProtect, OpMask))
	section("Can be read:", together(p.rows(OpReadOnly, OpCopy, OpData, OpProc, OpDev)))
	section("Watched, as nothing can be mounted there:", p.watchedRows())
	section("Sockets it can connect to:", p.socketRows())
	section("Variables the command does not get:", p.varRows(true))
	section("Variables it gets by an option or from pk:", p.varRows(false))
	var flags []row
	for _, f := range p.Flags() {
		flags = append(flags, row{things: []string{f.Text}, rule: f.Rule})
	}
	section("And:", flags)
	return lines
}

// row is one line of a description, or more where it has to be broken.
type row struct {
	access Access   // "" for variables, flags and the like
	dir    string   // the directory of the things, if there are several
	things []string // paths or names
	rule   string   // why
}

// lines formats a row in two columns.
func (r row) lines(paint Paint) []string {
	at := wordColumn
	if r.access != "" {
		at = thingColumn
	}
	left, right := fill(r.words(), ruleColumn-2-at), fill(strings.Fields(r.rule), width-ruleColumn)
	if len(left[0]) > ruleColumn-2-at {
		right = append([]string{""}, right...)
	}
	var lines []string
	for i := range max(len(left), len(right)) {
		var thing, why, word string
		if i < len(left) {
			thing = left[i]
		}
		if i < len(right) {
			why = right[i]
		}
		if i == 0 && r.access != "" {
			word = paint(r.access, fmt.Sprintf("%-*s", at-wordColumn-2, r.access)) + "  "
		} else {
			word = strings.Repeat(" ", at-wordColumn)
		}
		line := strings.Repeat(" ", wordColumn) + word + fmt.Sprintf("%-*s", ruleColumn-at, thing) + why
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// words joins the things to a list.
func (r row) words() []string {
	var words []string
	if r.dir != "" {
		words = append(words, r.dir+":")
	}
	for i, thing := range r.things {
		if i < len(r.things)-1 {
			thing += ","
		}
		words = append(words, thing)
	}
	return words
}

// fill joins words to lines of at most that many bytes. It does not break a word.
func fill(words []string, most int) []string {
	lines := []string{""}
	for _, word := range words {
		line := &lines[len(lines)-1]
		switch {
		case *line == "":
			*line = word
		case len(*line)+1+len(word) <= most:
			*line += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// crowd is the number of files of one directory that are listed together.
const crowd = 3

// together joins rows that differ only in the last name of their path, at the place of
// the first.
func together(rows []row) []row {
	count := map[kin]int{}
	for _, r := range rows {
		count[r.key()]++
	}
	at := map[kin]int{}
	var list []row
	for _, r := range rows {
		key := r.key()
		i, begun := at[key]
		switch {
		case count[key] < crowd || key.dir == "/":
			list = append(list, r)
		case begun:
			list[i].things = append(list[i].things, filepath.Base(r.things[0]))
		default:
			at[key] = len(list)
			list = append(list, row{access: r.access, dir: key.dir, things: []string{filepath.Base(r.things[0])}, rule: r.rule})
		}
	}
	return list
}

// kin has the properties that rows share if they are listed together.
type kin struct {
	access    Access
	dir, rule string
}

// key keeps a thing alone that is quoted, or has a remark.
func (r row) key() kin {
	if thing := r.things[0]; strings.ContainsAny(thing, " ,\"") {
		return kin{r.access, thing, r.rule}
	}
	return kin{r.access, filepath.Dir(r.things[0]), r.rule}
}

func (p *Plan) rows(ops ...Op) []row {
	var rows []row
	for _, m := range p.Mounts {
		op := m.Op
		if m.Sealed {
			op = OpReadOnly
		}
		if !slices.Contains(ops, op) {
			continue
		}
		what := Quoted(m.Dest)
		if m.showsHost() && m.Source != m.Dest {
			what += " (" + Quoted(m.Source) + ")"
		}
		rows = append(rows, row{access: m.access(), things: []string{what}, rule: m.Rule})
	}
	return rows
}

// watchedRows lists the watched names. The names of one tool in a root make one row,
// without the reason for each: there are many.
func (p *Plan) watchedRows() []row {
	var rows []row
	at := map[kin]int{}
	for _, w := range p.Watched {
		root, tool := p.writableRoot(w.Path), toolOf(w.Rule)
		if w.Link != "" || root == "" || tool == "" {
			what := Quoted(w.Path)
			if w.Link != "" {
				what += " -> " + Quoted(w.Link)
			}
			rows = append(rows, row{things: []string{what}, rule: w.Rule})
			continue
		}
		key := kin{dir: root, rule: tool}
		if _, begun := at[key]; !begun {
			at[key] = len(rows)
			rows = append(rows, row{dir: Quoted(root), rule: tool})
		}
		r := &rows[at[key]]
		r.things = append(r.things, Quoted(strings.TrimPrefix(w.Path, root+"/")))
	}
	return rows
}

// toolOf is the TOOL of a rule "default: TOOL: REASON", "" for other rules.
func toolOf(rule string) string {
	if part := strings.SplitN(rule, ": ", 3); len(part) == 3 && part[0] == "default" {
		return part[0] + ": " + part[1]
	}
	return ""
}

// writableRoot is the innermost writable directory of the host that holds path.
func (p *Plan) writableRoot(path string) string {
	root := ""
	for _, m := range p.Mounts {
		if m.Op == OpWritable && fsat.Within(path, m.Source) && len(m.Source) > len(root) {
			root = m.Source
		}
	}
	return root
}

// tooMany is the message if the search for sockets was cut short.
const tooMany = "there may be further sockets: the roots hold too many names to look at all of them"

func (p *Plan) socketRows() []row {
	var rows []row
	found, complete := p.Sockets()
	for _, socket := range found {
		rows = append(rows, row{things: []string{Quoted(socket)}, rule: p.Explain(socket).Rule})
	}
	if !complete {
		rows = append(rows, row{things: []string{"perhaps others"}, rule: tooMany})
	}
	return rows
}

// varRows has a row for each reason.
func (p *Plan) varRows(dropped bool) []row {
	var rows []row
	at := map[string]int{}
	for _, v := range p.Vars {
		if v.Dropped != dropped || !dropped && v.Rule == callers {
			continue
		}
		i, begun := at[v.Rule]
		if !begun {
			i = len(rows)
			at[v.Rule] = i
			rows = append(rows, row{rule: v.Rule})
		}
		rows[i].things = append(rows[i].things, Quoted(v.Name))
	}
	return rows
}

// Describe formats the verdict for the user: the answer first, the reason after.
func (v Verdict) Describe(paint Paint) string {
	at := thingColumn - wordColumn
	what := []string{Quoted(v.Path)}
	if v.Place != filepath.Clean(v.Path) {
		what = append(what, "-> "+Quoted(v.Place))
	}
	if v.Host != "" && v.Host != v.Place {
		what[len(what)-1] += ","
		what = append(what, "on the host "+Quoted(v.Host))
	}
	why := strings.Fields(v.Rule)
	if v.Mount != "" && v.Mount != v.Place {
		why[len(why)-1] += ","
		why = append(why, "at "+Quoted(v.Mount))
	}
	lines := append(fill(what, width-at), fill(why, width-at)...)
	return paint(v.Access, fmt.Sprintf("%-*s", at-2, v.Access)) + "  " + strings.Join(lines, "\n"+strings.Repeat(" ", at))
}

// Quoted is a path for messages: bare if that is unmistakable.
func Quoted(path string) string {
	if q := fmt.Sprintf("%q", path); q != `"`+path+`"` || strings.ContainsRune(path, ' ') || path == "" {
		return q
	}
	return path
}
