package toolchain

import (
	_ "embed"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"pikuri/lib/confine"
)

//go:embed never.txt
var neverText string

// denylist keeps out paths that would show credentials. It is filled on demand:
// on most machines no variable is set and no link leads away.
type denylist struct {
	table Table
	host  Host

	never  nevers   // see prepared
	beside nevers   // see neighbours
	inside []string // see insiders

	homeKnown bool
	realHome  string
}

func newDenylist(t Table, h Host) *denylist { return &denylist{table: t, host: h} }

// refusal returns the reason not to show path, or "". A path of the built-in table
// is trusted, since tests have checked it: only its links can make it dangerous.
func (d *denylist) refusal(path string, trusted bool) string {
	trail, err := confine.Follow(path)
	if err != nil {
		return "a link that leads nowhere"
	}
	real := trail.Place
	if !trusted {
		if why := d.danger(path, false); why != "" {
			return why
		}
	}
	if trusted && real == d.expected(path) || !trusted && real == path {
		return ""
	}
	if why := d.danger(real, trusted); why != "" {
		return fmt.Sprintf("leads to %q: %s", real, why)
	}
	return ""
}

// expected is the location of path if there is no link below the home. The home
// itself may be behind a link.
func (d *denylist) expected(path string) string {
	rel, ok := strings.CutPrefix(path, filepath.Clean(d.host.Home)+"/")
	if !ok || d.host.Home == "" {
		return path
	}
	return filepath.Join(d.home(), rel)
}

// home is the location of the home.
func (d *denylist) home() string {
	if !d.homeKnown {
		d.homeKnown = true
		d.realHome = resolved(filepath.Clean(d.host.Home))
	}
	return d.realHome
}

// danger returns the reason not to show path, or "": it is a secret place, lies in
// one, or contains one. For a path that is not of the table, the files that rows
// name beside them are secret too.
func (d *denylist) danger(path string, trusted bool) string {
	if confine.SystemTop(path, d.host.Home) {
		return "it is a home, a system directory, or holds one"
	}
	have := elements(path)
	shown := d.prepared().find(have)
	if shown == "" && !trusted {
		shown = d.neighbours().find(have)
	}
	if shown == "" {
		return ""
	}
	return fmt.Sprintf("it would show %q", shown)
}

// Danger returns the reason why path shows credentials, or a whole system directory or
// home, "" if it does not.
func (t Table) Danger(h Host, path string) string { return newDenylist(t, h).danger(path, false) }

// prepared expands never.txt for this host.
func (d *denylist) prepared() nevers {
	if d.never == nil {
		for _, n := range neverList() {
			for _, p := range d.spelled(n.pattern) {
				d.never = append(d.never, newNever(p, n.top))
			}
		}
	}
	return d.never
}

// Exposed returns up to most places of never.txt that exist on the host: a
// command without a sandbox can reach them.
func Exposed(h Host, most int) []string {
	d := newDenylist(Table{}, h)
	var places []string
	for _, n := range neverList() {
		for _, p := range d.spelled(n.pattern) {
			if places = append(places, existing(p)...); len(places) >= most {
				return places[:most]
			}
		}
	}
	return places
}

// neighbours expands the files that rows name beside them.
func (d *denylist) neighbours() nevers {
	if d.beside == nil {
		for _, r := range d.table.known() {
			for _, b := range r.Beside {
				for _, p := range d.spelled(b) {
					d.beside = append(d.beside, newNever(p, false))
				}
			}
		}
	}
	return d.beside
}

// insiders are the patterns of the files that all rows hide, at their default
// places: a path that is not of the table may contain one.
func (d *denylist) insiders() []string {
	if d.inside == nil {
		for _, r := range d.table.rows {
			for _, rel := range r.Inside {
				d.inside = append(d.inside, d.spelled(r.Path+"/"+rel)...)
			}
		}
	}
	return d.inside
}

// spelled expands a pattern of the table: below the home by both of its names, and
// where a base directory variable moves it, since both may be in use.
func (d *denylist) spelled(pattern string) []string {
	rel, inHome := strings.CutPrefix(pattern, "~/")
	if !inHome {
		return []string{pattern}
	}
	var list []string
	if filepath.IsAbs(d.host.Home) {
		list = append(list, path.Join(escape(filepath.Clean(d.host.Home)), rel))
		if real := path.Join(escape(d.home()), rel); real != list[0] {
			list = append(list, real)
		}
	}
	for _, base := range [][2]string{
		{".config/", "XDG_CONFIG_HOME"},
		{".local/share/", "XDG_DATA_HOME"},
		{".local/state/", "XDG_STATE_HOME"},
		{".cache/", "XDG_CACHE_HOME"},
	} {
		rest, ok := strings.CutPrefix(rel, base[0])
		if dir := d.host.Getenv(base[1]); ok && filepath.IsAbs(dir) {
			list = append(list, path.Join(escape(filepath.Clean(dir)), rest))
		}
	}
	return list
}

// never is a place that must not be shown.
type never struct {
	pattern  string
	elements []string
	top      bool // paths below it may be shown by names of their own
}

func newNever(pattern string, top bool) never {
	return never{pattern, elements(pattern), top}
}

type nevers []never

// find returns the pattern that forbids a path, given as elements, or "".
func (list nevers) find(path []string) string {
	for i := range list {
		if list[i].forbids(path) {
			return unescape(list[i].pattern)
		}
	}
	return ""
}

var neverList = sync.OnceValue(func() nevers {
	var list nevers
	for line := range strings.Lines(neverText) {
		words := strings.Fields(line)
		if len(words) > 0 && words[0][0] != '#' {
			list = append(list, newNever(words[0], len(words) > 1 && words[1] == "top"))
		}
	}
	return list
})

// forbids reports whether showing a directory would show a match of the pattern:
// the directory is a match, contains one, or lies in one. Pattern and directory
// are compared element by element.
func (n never) forbids(dir []string) bool {
	for i := range min(len(n.elements), len(dir)) {
		if n.elements[i] == dir[i] {
			continue
		}
		if ok, _ := path.Match(n.elements[i], dir[i]); !ok {
			return false
		}
	}
	return !n.top || len(dir) <= len(n.elements)
}

func elements(p string) []string {
	return strings.FieldsFunc(p, func(c rune) bool { return c == '/' })
}
