// Package hosts reads which hosts the tools of a machine are configured to reach:
// registries, proxies of modules, package archives, remotes of git. The files are
// data of other tools. The package runs nothing and sends nothing.
//
// It has no hosts of its own. Where a tool has a default, the package reads it from the
// tool's files if they have it as text, and otherwise notes it as unknown.
package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/hostrule"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// The limits of reading: these files are small, and some have an untrusted
// author.
const (
	maxFile  = 1 << 20
	maxFiles = 256 // of one pattern
	maxNotes = 64
)

// Level says which authority wrote a setting.
type Level string

// The levels.
const (
	Environment Level = "environment" // variables of the caller
	User        Level = "user"        // files in the user's home
	System      Level = "system"      // files of the machine
	Default     Level = "default"     // files of the tool itself
	Project     Level = "project"     // files of the project, which may have any author
)

// Source is a place that names a host.
type Source struct {
	Tool  string
	Level Level
	Place string // the file, or "$VARIABLE"
}

// Entry is one port of a host, or of the hosts below a name.
type Entry struct {
	Rule    hostrule.Rule // with one port
	Sources []Source      // in the order in which they were read, each once
}

// Machine holds the facts that decide where the tools look.
type Machine struct {
	Home    string   // "" if unknown
	Environ []string // NAME=VALUE
	Project string   // the directory of the project, absolute

	// WithProject takes the project's files into account too. A repository could name
	// any host in them.
	WithProject bool

	root string // for tests: the prefix of the system's paths
}

// readers are the tools, by the names that the table of tool chains has for them.
var readers = []struct {
	tool string
	read func(*survey)
}{
	{"apt", (*survey).apt},
	{"cargo", (*survey).cargo},
	{"git", (*survey).git},
	{"go", (*survey).golang},
	{"maven", (*survey).maven},
	{"npm", (*survey).npm},
	{"pip", (*survey).pip},
	{"rubygems", (*survey).gem},
	{"yarn-berry", (*survey).yarn},
}

// Tools returns the names of the tools that Survey knows.
func Tools() []string {
	var names []string
	for _, r := range readers {
		names = append(names, r.tool)
	}
	return names
}

// Survey returns the hosts that the tools are configured to reach, sorted by name and
// port, each once; it skips tools that wants refuses. Each note names an omission and
// its reason, on one line. Neither result has a user's name or password.
func Survey(m Machine, wants func(tool string) bool) ([]Entry, []string) {
	s := &survey{Machine: m, env: map[string]string{}, found: map[string]*Entry{}}
	for _, kv := range m.Environ {
		name, value, _ := strings.Cut(kv, "=")
		s.env[name] = value
	}
	for _, r := range readers {
		if wants(r.tool) {
			s.tool = r.tool
			r.read(s)
		}
	}
	var entries []Entry
	for _, e := range s.found {
		entries = append(entries, *e)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Rule.Name, b.Rule.Name), strings.Compare(b.Rule.Host(), a.Rule.Host()), int(a.Rule.Ports[0])-int(b.Rule.Ports[0]))
	})
	if s.unsaid > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%d more, which are not printed", s.unsaid))
	}
	return entries, s.notes
}

type survey struct {
	Machine
	env    map[string]string
	tool   string // that is being read
	found  map[string]*Entry
	notes  []string
	unsaid int // notes beyond maxNotes
}

// note adds a note about an omission, each once.
func (s *survey) note(format string, args ...any) {
	text := s.tool + ": " + fmt.Sprintf(format, args...)
	switch {
	case slices.Contains(s.notes, text):
	case len(s.notes) < maxNotes:
		s.notes = append(s.notes, text)
	default:
		s.unsaid++
	}
}

// noDefault notes that an installed tool has a default that the package does not know.
func (s *survey) noDefault(what string) {
	s.note("no %s is configured: its built-in default is not known here", what)
}

// setting is a value of a tool's configuration, and its source.
type setting struct {
	value string
	from  Source
}

func (v setting) with(value string) setting { v.value = value; return v }

// layer is one place with its settings; nil if the place does not exist.
type layer struct {
	from   Source
	values map[string][]string
}

// pick returns the values of a key in the strongest layer. Layers of the project add
// to them and replace none.
func pick(layers []*layer, key string) []setting {
	var picked []setting
	found := false
	for _, l := range layers {
		if l == nil || len(l.values[key]) == 0 || found && l.from.Level != Project {
			continue
		}
		found = found || l.from.Level != Project
		for _, v := range l.values[key] {
			picked = append(picked, setting{v, l.from})
		}
	}
	return picked
}

// keys returns the keys of all layers, sorted.
func keys(layers []*layer) []string {
	all := map[string]bool{}
	for _, l := range layers {
		if l != nil {
			for k := range l.values {
				all[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// beyondProject reports whether a source outside the project gives one of the settings.
func beyondProject(settings []setting) bool {
	return slices.ContainsFunc(settings, func(v setting) bool { return v.from.Level != Project })
}

// variable is the layer of one variable as a key; nil if it is not set.
func (s *survey) variable(name, key string) *layer {
	if s.env[name] == "" {
		return nil
	}
	return &layer{Source{s.tool, Environment, "$" + name}, map[string][]string{key: {s.env[name]}}}
}

// file is the text of a file and its source.
type file struct {
	text string
	from Source
}

// layer makes a layer of a file by a parser; nil without a file.
func (f *file) layer(parse func(text string) map[string][]string) *layer {
	if f == nil {
		return nil
	}
	return &layer{f.from, parse(f.text)}
}

// read reads a file; nil if it does not exist or must not count. A file in the
// project has the level Project even if a user's setting names it: a command of the
// sandbox can write there.
func (s *survey) read(level Level, path string) *file {
	if !filepath.IsAbs(path) {
		return nil
	}
	if level == Project && !s.WithProject {
		return nil
	}
	text, _, err := overlay.ReadFile(unix.AT_FDCWD, path, 0, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || path == "/dev/null":
		return nil
	case err != nil:
		s.note("cannot read %q: %v", path, err)
		return nil
	case level != Project && s.inProject(path):
		if !s.WithProject {
			if level != Default { // a tool that is installed there: other copies tell the same
				s.note("%q lies in the project: --project prints what it names", path)
			}
			return nil
		}
		level = Project
	}
	return &file{string(text), Source{s.tool, level, path}}
}

// inProject reports whether a path lies in the project, through links or not. A project
// that contains the home does not count: pk refuses it as a root.
func (s *survey) inProject(path string) bool {
	if s.Project == "" || fsat.Within(s.Home, s.Project) {
		return false
	}
	_, ok := confine.LiesIn(path, []string{s.Project})
	return ok
}

// system is a path of the system's.
func (s *survey) system(path string) string { return s.root + path }

// below is a path in the home, or "" without one.
func (s *survey) below(path string) string {
	if !filepath.IsAbs(s.Home) {
		return ""
	}
	return filepath.Join(s.Home, path)
}

// config is a path in the user's configuration directory.
func (s *survey) config(path string) string {
	if dir := s.env["XDG_CONFIG_HOME"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, path)
	}
	return s.below(filepath.Join(".config", path))
}

// inProjectDir is a path in the project.
func (s *survey) inProjectDir(path string) string {
	if s.Project == "" {
		return ""
	}
	return filepath.Join(s.Project, path)
}

// glob returns the files that match, sorted.
func (s *survey) glob(pattern string) []string {
	paths, _ := filepath.Glob(pattern)
	if len(paths) > maxFiles {
		s.note("only the first %d files of %q were read", maxFiles, pattern)
		paths = paths[:maxFiles]
	}
	return paths
}

// program returns where a program of the PATH really is, or "".
func (s *survey) program(name string) string {
	for _, dir := range filepath.SplitList(s.env["PATH"]) {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || unix.Access(path, unix.X_OK) != nil {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
	}
	return ""
}
