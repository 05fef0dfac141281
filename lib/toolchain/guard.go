package toolchain

import (
	_ "embed"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"pikuri/lib/confine"
)

//go:embed never.txt
var neverText string

// guard keeps dangerous places out, and works only when there is something to
// look at: on most machines no variable is set and no link leads away.
type guard struct {
	host  Host
	never []never

	prepared, homeKnown bool
	realHome            string
}

// refuses reports whether path must not be shown. A path that the table itself
// names was checked by a test; it is dangerous only when links in it lead
// somewhere else.
func (g *guard) refuses(path string, moved bool) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return true // gone meanwhile
	}
	if moved && g.dangerous(path) {
		return true
	}
	return (moved || real != g.expected(path)) && g.dangerous(real)
}

// expected is where path really is when no link below the home leads away. A
// home may itself be reached through a link.
func (g *guard) expected(path string) string {
	rel, ok := strings.CutPrefix(path, filepath.Clean(g.host.Home)+"/")
	if !ok || g.host.Home == "" {
		return path
	}
	return filepath.Join(g.home(), rel)
}

// home is the real place of the home.
func (g *guard) home() string {
	if !g.homeKnown {
		g.homeKnown = true
		g.realHome = filepath.Clean(g.host.Home)
		if real, err := filepath.EvalSymlinks(g.realHome); err == nil {
			g.realHome = real
		}
	}
	return g.realHome
}

// dangerous reports whether path is a place that must not be shown, lies in
// one, or contains one.
func (g *guard) dangerous(path string) bool {
	if confine.DeniedRoot(path, g.host.Home) {
		return true
	}
	g.prepare()
	for _, n := range g.never {
		if n.forbids(path) {
			return true
		}
	}
	return false
}

// prepare spells the patterns of never.txt out for this host. The home itself
// is no pattern, but whatever is at or above it contains one.
func (g *guard) prepare() {
	if g.prepared {
		return
	}
	g.prepared = true
	var homes []string
	if filepath.IsAbs(g.host.Home) {
		homes = []string{escape(filepath.Clean(g.host.Home)), escape(g.home())}
	}
	for _, n := range neverList() {
		rel, inHome := strings.CutPrefix(n.pattern, "~/")
		if !inHome {
			g.never = append(g.never, n)
			continue
		}
		for _, home := range homes {
			g.never = append(g.never, never{path.Join(home, rel), n.top})
		}
		for _, p := range g.relocated(rel) {
			g.never = append(g.never, never{p, n.top})
		}
	}
}

// relocated is where the base directory variables move a pattern below the
// home to, in addition: both places may be in use.
func (g *guard) relocated(rel string) []string {
	for _, base := range [][2]string{
		{".config/", "XDG_CONFIG_HOME"},
		{".local/share/", "XDG_DATA_HOME"},
		{".cache/", "XDG_CACHE_HOME"},
	} {
		rest, ok := strings.CutPrefix(rel, base[0])
		if dir := g.host.Getenv(base[1]); ok && filepath.IsAbs(dir) {
			return []string{path.Join(escape(filepath.Clean(dir)), rest)}
		}
	}
	return nil
}

// never is a line of never.txt.
type never struct {
	pattern string
	top     bool // what lies below it may be shown by a name of its own
}

var neverList = sync.OnceValue(func() []never {
	var list []never
	for line := range strings.Lines(neverText) {
		words := strings.Fields(line)
		if len(words) > 0 && words[0][0] != '#' {
			list = append(list, never{words[0], len(words) > 1 && words[1] == "top"})
		}
	}
	return list
})

// forbids reports whether to show dir is to show a match of the pattern, a
// part of one, or what contains one. Both are compared element by element.
func (n never) forbids(dir string) bool {
	want, have := elements(n.pattern), elements(dir)
	for i := range min(len(want), len(have)) {
		if ok, _ := path.Match(want[i], have[i]); !ok {
			return false
		}
	}
	return !n.top || len(have) <= len(want)
}

func elements(p string) []string {
	return strings.FieldsFunc(p, func(c rune) bool { return c == '/' })
}
