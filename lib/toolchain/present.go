package toolchain

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
)

// Host is the part of a machine that decides where tools are.
type Host struct {
	Home   string // "" if unknown: rows below it are left out
	Getenv func(string) string
}

// Entry is one path that exists on a host.
type Entry struct {
	Kind     Kind
	Tool     string
	Path     string // absolute; as the row names it, links and all
	Row      *Row   // where it comes from
	Variable string // the template that moved it, or ""

	inside  []string // patterns below Path, of every row that names it
	foreign []string // absolute patterns of other rows, some of which may lie below Path
}

// Absence is a row that shows nothing on a host.
type Absence struct {
	Row      *Row
	Path     string // the expected path; "" if it is unknown
	Variable string
	Reason   string
}

// Present returns the rows of the table that exist on the host, in the order of
// the table and each path once: as a file if the row names one, else as a
// directory. A symbolic link to one keeps its own path: a PATH that names the link
// would not find its target.
//
// It leaves out a row that a variable moves to a dangerous place. Such a place
// shows a home, the top of a system directory, a place in never.txt or a
// credential of any row, by its name or through links.
func (t Table) Present(h Host) []Entry {
	entries, _ := t.Survey(h)
	return entries
}

// programs are the commands of tools whose command has another name.
var programs = map[string]string{
	"maven": "mvn", "pip": "pip3", "rubygems": "gem", "nuget": "dotnet", "coursier": "cs",
	"yarn-classic": "yarn", "yarn-berry": "yarn", "maven-wrapper": "mvn", "node-gyp": "npm",
}

// Missing returns the caches among absent rows that the host does not have yet,
// though it has the tool: the first run of the tool would make them.
func Missing(absent []Absence, h Host) []Entry {
	wanted := map[string]bool{} // programs, and whether they are there
	list := make([]string, len(absent))
	for i, a := range absent {
		if a.Row.Kind == Overlay && a.Path != "" && !strings.ContainsAny(a.Path, "*?[") && a.Reason == missing {
			list[i] = cmp.Or(programs[a.Row.Tool], a.Row.Tool)
			wanted[list[i]] = false
		}
	}
	if len(wanted) > 0 {
		lookInPath(h.Getenv("PATH"), wanted)
	}
	var entries []Entry
	for i, a := range absent {
		if wanted[list[i]] {
			entries = append(entries, Entry{Kind: Overlay, Tool: a.Row.Tool, Path: a.Path, Row: a.Row, Variable: a.Variable})
		}
	}
	return entries
}

// lookInPath notes the programs in the directories of a PATH. It reads each directory once,
// and on many machines /bin is /usr/bin: to ask for each program takes several times as long.
// A process that asks again reads those that have not changed from memory.
func lookInPath(path string, wanted map[string]bool) {
	known.Lock()
	defer known.Unlock()
	seen := map[directory]bool{}
	for _, name := range filepath.SplitList(path) {
		var st unix.Stat_t
		if !filepath.IsAbs(name) || unix.Stat(name, &st) != nil || seen[directory{st.Dev, st.Ino}] {
			continue
		}
		at := directory{st.Dev, st.Ino}
		seen[at] = true
		if known.lists[at].changed != st.Ctim {
			known.lists[at] = listing{st.Ctim, namesIn(name)}
		}
		for _, program := range known.lists[at].names {
			if found, ok := wanted[program]; ok && !found {
				wanted[program] = unix.Access(filepath.Join(name, program), unix.X_OK) == nil
			}
		}
	}
}

// known are directories of PATH, with their names in order.
var known = struct {
	sync.Mutex
	lists map[directory]listing
}{lists: map[directory]listing{}}

type directory struct{ device, inode uint64 }

type listing struct {
	changed unix.Timespec
	names   []string
}

// namesIn returns the names in a directory.
func namesIn(dir string) (names []string) {
	fd, err := fsat.Openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	_ = fsat.Each(fd, func(e fsat.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	return names
}

// missing is the reason for a row whose path does not exist.
const missing = "does not exist"

// Survey is Present, with the rows that are absent.
func (t Table) Survey(h Host) ([]Entry, []Absence) {
	s := &survey{table: t, denied: newDenylist(t, h), at: make(map[string]int, len(t.rows))}
	for i := range t.rows {
		s.row(&t.rows[i])
	}
	return s.entries, s.absent
}

type survey struct {
	table   Table
	denied  *denylist
	at      map[string]int // path to index in entries
	entries []Entry
	absent  []Absence
}

func (s *survey) row(r *Row) {
	where, reason := r.locate(s.denied.host)
	miss := func(path, reason string) {
		s.absent = append(s.absent, Absence{r, path, where.variable, reason})
	}
	if reason != "" {
		miss("", reason)
		return
	}
	paths := matches(where.pattern)
	if len(paths) == 0 {
		miss(unescape(where.pattern), missing)
	}
	trusted := !r.user && !where.elsewhere
	for _, path := range paths {
		if why := r.unfit(path); why != "" {
			miss(path, why)
		} else if i, ok := s.at[path]; ok {
			s.entries[i].inside = append(s.entries[i].inside, r.Inside...)
			if s.entries[i].Row != r {
				miss(path, "shown already, by a row of "+s.entries[i].Tool)
			}
		} else if why := s.denied.refusal(path, trusted); why != "" {
			miss(path, why)
		} else {
			s.at[path] = len(s.entries)
			e := Entry{Kind: r.Kind, Tool: r.Tool, Path: path, Row: r, Variable: where.variable, inside: slices.Clip(r.Inside)}
			if !trusted {
				e.foreign = s.denied.insiders()
			}
			s.entries = append(s.entries, e)
		}
	}
}

// unfit returns the reason why an existing file does not fit the row, or "".
func (r *Row) unfit(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "a link that leads nowhere"
	case r.Plain && !info.Mode().IsRegular():
		return "not a file"
	case !r.Plain && !info.IsDir():
		return "not a directory"
	}
	return ""
}

// Masks returns the existing files and directories inside the entries that must be
// hidden, each once.
func Masks(entries []Entry) []string {
	var masks []string
	seen := map[string]bool{}
	for _, e := range entries {
		for _, m := range e.Masks() {
			if !seen[m] {
				seen[m] = true
				masks = append(masks, m)
			}
		}
	}
	return masks
}

// Masks returns the existing files and directories inside the entry that must be
// hidden.
func (e Entry) Masks() []string {
	var masks []string
	for _, inside := range e.inside {
		masks = append(masks, existing(escape(e.Path)+"/"+inside)...)
	}
	for _, pattern := range e.foreign {
		for _, path := range existing(pattern) {
			if fsat.Within(path, e.Path) {
				masks = append(masks, path)
			}
		}
	}
	return masks
}

// Links returns the links on the way to the entry's location.
func (e Entry) Links() []confine.Link { return confine.Links(e.Path) }

// Settings returns the variables that the entry's tool needs, as NAME=VALUE, for a
// project at the given path.
func (e Entry) Settings(project string) []string {
	var settings []string
	fill := strings.NewReplacer("{path}", e.Path, "{project}", project)
	for _, s := range e.Row.Settings {
		settings = append(settings, fill.Replace(s))
	}
	return settings
}

// location is where a row's path is on a host.
type location struct {
	pattern   string
	variable  string // the template of the variable, or ""
	elsewhere bool   // which is not the default
}

// locate returns the row's path on the host, or the reason why it is unknown.
func (r *Row) locate(h Host) (location, string) {
	for _, template := range r.Variables {
		if p, ok := expand(template, h.Getenv); ok && filepath.IsAbs(p) {
			usual, _ := spell(r.Path, h)
			return location{p, template, p != usual}, ""
		}
	}
	pattern, reason := spell(r.Path, h)
	return location{pattern: pattern}, reason
}

// spell expands the home and the variables in a path of the table, or returns the
// reason why it cannot.
func spell(path string, h Host) (pattern, missing string) {
	rel, inHome := strings.CutPrefix(path, "~/")
	if inHome {
		if !filepath.IsAbs(h.Home) {
			return "", "the home is not known"
		}
		path = rel
	}
	path, ok := expand(path, h.Getenv)
	if !ok {
		return "", "a variable in its path is not set"
	}
	if inHome {
		path = filepath.Join(escape(filepath.Clean(h.Home)), path)
	}
	return path, ""
}

// matches returns the files of any type that a pattern matches, sorted.
func matches(pattern string) []string {
	if !strings.ContainsAny(pattern, meta) {
		if _, err := os.Lstat(pattern); err != nil {
			return nil
		}
		return []string{pattern}
	}
	paths, _ := filepath.Glob(pattern) // Parse has checked the pattern
	return paths
}

// existing returns the files and directories that a pattern matches, sorted. It
// leaves out files whose type cannot be read.
func existing(pattern string) []string {
	return slices.DeleteFunc(matches(pattern), func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir() && !info.Mode().IsRegular()
	})
}
