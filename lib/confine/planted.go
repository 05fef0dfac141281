package confine

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrPlanted is a root whose name leads through a link in a writable root, and
// out of that. Whoever writes there chooses what such a root is: a command line
// that was harmless yesterday would show today what it never named.
var ErrPlanted = errors.New("it leads out of a writable root, through a link in it")

// Planted reports whether name leads through a link that lies in one of the
// writable roots to a place outside that root. Names that do not resolve do
// not; opening them will tell.
func Planted(name string, writable []string) bool {
	typed, err := absolute(name)
	if err != nil {
		return false
	}
	final, err := walk(typed)
	if err != nil {
		return false
	}
	at, rest := "/", strings.Split(typed, "/")
	for budget := maxPlanted; len(rest) > 0 && budget > 0; budget-- {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		target, isLink := readlink(filepath.Join(at, name))
		if !isLink {
			at = filepath.Join(at, name) // ".." goes up: all links above are resolved
			continue
		}
		for _, root := range writable {
			if contains(root, at) && !contains(root, final) {
				return true
			}
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false
}

// maxPlanted bounds the walk: more components than a path and forty links can
// have. The path has resolved before, so it is not reached.
const maxPlanted = 41 * 4096 / 2

func readlink(path string) (string, bool) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(path, buf)
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

// refusePlanted looks at the claims once all roots are known.
func (w *Workspace) refusePlanted(cfg Config) error {
	var writable []string
	for _, r := range w.roots {
		if r.Writable {
			writable = append(writable, r.Path)
		}
	}
	for _, c := range cfg.claims() {
		if Planted(c.name, writable) {
			return &RootError{Name: c.name, Err: ErrPlanted, role: c.role, hint: fmt.Sprintf("name %q itself", resolved(c.name))}
		}
	}
	return nil
}

// resolved is where a name leads. The caller typed the name, and may know.
func resolved(name string) string {
	place, err := absolute(name)
	if err == nil {
		place, err = walk(place)
	}
	if err != nil {
		return name
	}
	return place
}

// LiesIn reports the first of the writable roots that name lies in, as it is
// typed or where it leads, or out of which it leads through a planted link. What
// a command may replace must not be where pk keeps its own.
func LiesIn(name string, writable []string) (root string, ok bool) {
	typed, err := absolute(name)
	if err != nil {
		return "", false
	}
	places := []string{path.Clean(typed), resolved(name)}
	for _, root := range writable {
		if contains(root, places[0]) || contains(root, places[1]) || Planted(name, []string{root}) {
			return root, true
		}
	}
	return "", false
}
