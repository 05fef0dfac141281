// Package hostrun knows which files of a project make programs on the host run code
// merely because the project is opened, entered or listed: editors, agents, and
// programs that a shell's prompt starts. Git's own files are not in it.
package hostrun

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
)

//go:embed hostrun.tsv
var table string

// Row is a path that a tool takes code from.
type Row struct {
	Tool   string
	Path   string // below the top of a root
	Needs  string // a directory; if it has only files named *.sample, the row does not count; "" for none
	Why    string // how code comes to run
	Source string // the page that documents it; "unchecked " before it if it has not been read
}

// Rows is the table.
var Rows = sync.OnceValue(func() []Row {
	rows, err := parse(table)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return rows
})

// columns of a row.
const columns = 5

func parse(text string) ([]Row, error) {
	rows := make([]Row, 0, strings.Count(text, "\n"))
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		field := strings.Split(line, "\t")
		if len(field) != columns {
			return nil, fmt.Errorf("hostrun.tsv: line %d: %d columns, want %d", number, len(field), columns)
		}
		row := Row{Tool: field[0], Path: field[1], Needs: field[2], Why: field[3], Source: field[4]}
		if row.Needs == "-" {
			row.Needs = ""
		}
		for _, row.Path = range spelled(field[1]) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// spelled lists the paths that a path with braces stands for.
func spelled(path string) []string {
	before, rest, found := strings.Cut(path, "{")
	if !found {
		return []string{path}
	}
	choices, after, _ := strings.Cut(rest, "}")
	ends := spelled(after)
	var paths []string
	for choice := range strings.SplitSeq(choices, ",") {
		for _, end := range ends {
			paths = append(paths, before+choice+end)
		}
	}
	return paths
}

// Files lists the paths to protect in a writable root, existing or not.
func Files(root string) []bwrap.Protected {
	rows := Rows()
	list := make([]bwrap.Protected, 0, len(rows))
	counts := map[string]bool{} // by Needs
	for _, r := range rows {
		does, known := counts[r.Needs]
		if !known {
			does = r.counts(root)
			counts[r.Needs] = does
		}
		if does {
			list = append(list, r.in(root))
		}
	}
	return list
}

func (r Row) in(root string) bwrap.Protected {
	return bwrap.Protected{Path: filepath.Join(root, r.Path), Rule: fmt.Sprintf("default: %s: %s", r.Tool, r.Why), Default: true}
}

// gitHooks is the directory of rows that need a hook.
const gitHooks = ".git/hooks"

// Hooked lists the paths to protect in a work tree of git's if there is a hook in hooks, a directory that
// git looks for them in.
func Hooked(workTree, hooks string) (list []bwrap.Protected) {
	if has, err := holds(hooks); !has && (err == nil || fsat.Absent(err)) {
		return nil
	}
	for _, r := range Rows() {
		if r.Needs == gitHooks {
			list = append(list, r.in(workTree))
		}
	}
	return list
}

// counts reports whether a row applies to the current content of a root.
func (r Row) counts(root string) bool {
	if r.Needs == "" {
		return true
	}
	has, err := holds(filepath.Join(root, r.Needs))
	return has || err != nil && !os.IsNotExist(err)
}

// holds reports whether a directory has a file other than *.sample.
func holds(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".sample") }), err
}

// Places are the places of a root that rows cover, by their names and because symbolic links
// of the project lead there.
type Places struct {
	root   string
	named  map[string]Row // by path below the root, in lower case
	behind map[string]Row // by absolute path
}

// In looks for the places in a root.
func In(root string) Places {
	p := Places{root, map[string]Row{}, map[string]Row{}}
	counts, there := map[string]bool{}, map[string]bool{} // by Needs; by the first names of rows
	ask := func(known map[string]bool, key string, find func() bool) bool {
		if _, asked := known[key]; !asked {
			known[key] = find()
		}
		return known[key]
	}
	for _, r := range Rows() {
		if !ask(counts, r.Needs, func() bool { return r.counts(root) }) {
			continue
		}
		add(p.named, strings.ToLower(r.Path), r)
		top, _, _ := strings.Cut(r.Path, "/")
		if ask(there, top, func() bool { _, err := os.Lstat(filepath.Join(root, top)); return err == nil }) {
			for _, place := range Behind(filepath.Join(root, r.Path)) {
				add(p.behind, place, r)
			}
		}
	}
	return p
}

func add(rows map[string]Row, path string, r Row) {
	if _, known := rows[path]; !known {
		rows[path] = r
	}
}

// Holding returns the row that covers a place. place is relative to the root, and contains
// no symbolic link. Holding ignores case, as some directories do.
func (p Places) Holding(place string) (Row, bool) {
	for at := strings.ToLower(place); at != "."; at = filepath.Dir(at) {
		if r, ok := p.named[at]; ok {
			return r, true
		}
	}
	for at := filepath.Join(p.root, place); len(p.behind) > 0; at = filepath.Dir(at) {
		if r, ok := p.behind[at]; ok || at == "/" {
			return r, ok
		}
	}
	return Row{}, false
}

// Behind lists the symbolic links on the way along a path, and the place to which they
// lead, which may be missing. A change of any of them changes the file at path.
func Behind(path string) (places []string) {
	trail, err := confine.Follow(path)
	if err != nil || len(trail.Links) == 0 {
		return nil
	}
	for _, l := range trail.Links {
		places = append(places, l.Place)
	}
	return append(places, trail.Place)
}
