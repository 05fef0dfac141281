package toolchain

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
)

// Leak is a credential that is shown.
type Leak struct {
	Entry Entry  // the entry that shows it
	Path  string // where it is seen
}

// Secrets returns the patterns of the files that must not be seen, as the table
// writes them: the places of never.txt and the credentials of rows, without the
// files that a tool needs.
func (t Table) Secrets() []string {
	var secrets []string
	for _, n := range neverList() {
		secrets = append(secrets, n.pattern)
	}
	for _, r := range t.known() {
		secrets = append(secrets, r.Beside...)
		for _, rel := range r.Inside {
			secrets = append(secrets, r.Path+"/"+rel)
		}
	}
	return secrets
}

// Check looks for credentials that the entries show, with the masks applied: the
// places of never.txt and the credentials of all rows, in any entry. A file that a
// tool needs counts if it holds a password or an address with a login.
func (t Table) Check(h Host, entries []Entry, masks []string) []Leak {
	c := &checker{denied: newDenylist(t, h), entries: entries, seen: map[string]bool{}}
	for _, m := range masks {
		c.masks = append(c.masks, m, resolved(m))
	}
	for _, e := range entries {
		c.real = append(c.real, resolved(e.Path))
	}
	for _, n := range neverList() {
		if !n.top {
			c.patterns(c.denied.spelled(n.pattern))
		}
	}
	for _, r := range t.known() {
		c.row(r)
	}
	return c.leaks
}

type checker struct {
	denied  *denylist
	entries []Entry
	real    []string // where the entries really are
	masks   []string
	seen    map[string]bool
	leaks   []Leak
}

// row looks for the files that a row excludes, at its default place and where a
// variable moves it.
func (c *checker) row(r Row) {
	for _, b := range r.Beside {
		c.patterns(c.denied.spelled(b))
	}
	places := c.denied.spelled(r.Path)
	if where, missing := r.locate(c.denied.host); missing == "" {
		places = append(places, where.pattern)
	}
	for _, place := range places {
		for _, rel := range r.Inside {
			c.patterns([]string{place + "/" + rel})
		}
		for _, risk := range r.Risks {
			rel, ok := below(r.Path, risk)
			if !ok {
				continue
			}
			for _, file := range deep(place + "/" + rel) {
				if holdsLogin(file) {
					c.path(file)
				}
			}
		}
	}
}

func (c *checker) patterns(list []string) {
	for _, pattern := range list {
		for _, p := range matches(pattern) {
			c.path(p)
		}
	}
}

// path notes a credential that an entry shows, perhaps by another name.
func (c *checker) path(secret string) {
	real := resolved(secret)
	if c.seen[real] || c.hidden(secret) || c.hidden(real) {
		return
	}
	for i, e := range c.entries {
		if fsat.Within(real, c.real[i]) || fsat.Within(c.real[i], real) {
			c.seen[real] = true
			c.leaks = append(c.leaks, Leak{e, filepath.Join(e.Path, strings.TrimPrefix(real, c.real[i]))})
			return
		}
	}
}

func (c *checker) hidden(path string) bool {
	return slices.ContainsFunc(c.masks, func(m string) bool { return fsat.Within(path, m) })
}

func resolved(path string) string {
	trail, _ := confine.Follow(path) // on an error, as far as it leads
	return trail.Place
}

// maxDeep bounds a search at any depth, as a cache may be huge.
const maxDeep = 100_000

// deep is matches for patterns with one ** in them.
func deep(pattern string) []string {
	dirs, name, any := strings.Cut(pattern, "/**/")
	if !any {
		return matches(pattern)
	}
	var found []string
	visited := 0
	for _, dir := range matches(dirs) {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if visited++; visited > maxDeep {
				return fs.SkipAll
			}
			if ok, _ := path.Match(name, filepath.Base(p)); ok && err == nil && !d.IsDir() {
				found = append(found, p)
			}
			return nil
		})
	}
	return found
}

// maxConfig is the largest file that is searched for logins: such files are written
// by hand, or by a tool a line at a time.
const maxConfig = 1 << 20

// logins matches a user or a token before a host, and a password. Over ssh, a name
// alone is no secret.
var logins = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`https?://[^/\s@<>"']+@|<(password|passphrase|privateKey)>[^<$]`)
})

var comments = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)<!--.*?-->`) })

func holdsLogin(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxConfig {
		return false
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	return logins().Match(comments().ReplaceAll(text, nil))
}
