package confine

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What the name of a root can be wrong with.
var (
	// ErrPlanted is a root whose name leads through a link in a writable root, and
	// out of that. Whoever writes there chooses what such a root is: a command line
	// that was harmless yesterday would show today what it never named.
	ErrPlanted = errors.New("it leads out of a writable root, through a link in it")

	// ErrMoved is a root whose name led somewhere else by the time it was looked
	// at: a link may have been there when it was opened, and be gone.
	ErrMoved = errors.New("it led somewhere else a moment ago")
)

// Planted looks at the way along name, which was found to lead to place, without
// links on the way. The answer is ErrPlanted if a link that lies in one of the
// writable roots leads to a place outside that root; ErrMoved if the way goes
// through a writable root, and to another place than that; or nil.
func Planted(name, place string, writable []string) error {
	typed, err := absolute(name)
	if err != nil {
		return nil // opening it will tell
	}
	at, rest, exposed := "/", strings.Split(typed, "/"), false
	for budget := maxPlanted; len(rest) > 0 && budget > 0; budget-- {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		target, isLink := readlink(filepath.Join(at, name))
		for _, root := range writable {
			if !contains(root, at) {
				continue
			}
			exposed = true
			if isLink && !contains(root, place) {
				return ErrPlanted
			}
		}
		if !isLink {
			at = filepath.Join(at, name) // ".." goes up: all links above are resolved
			continue
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	if exposed && at != place {
		return ErrMoved
	}
	return nil
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

// refusePlanted looks at the claims once all roots are known. places are what
// they were found to lead to.
func (w *Workspace) refusePlanted(claims []claim, places []string) error {
	var writable []string
	for _, r := range w.roots {
		if r.Writable {
			writable = append(writable, r.Path)
		}
	}
	for i, c := range claims {
		if err := Planted(c.name, places[i], writable); err != nil {
			return &RootError{Name: c.name, Err: err, role: c.role, hint: PlantedHint(err, places[i])}
		}
	}
	return nil
}

// PlantedHint is what to do about an answer of Planted. A place that was led to by
// surprise is not to be named.
func PlantedHint(err error, place string) string {
	if errors.Is(err, ErrMoved) {
		return "try again, or name a place that no command can change"
	}
	return fmt.Sprintf("name %q itself", place)
}

// LiesIn reports the first of the writable roots that name lies in, as it is
// typed or where it leads, or out of which it leads through a planted link. What
// a command may replace must not be where pk keeps its own.
func LiesIn(name string, writable []string) (root string, ok bool) {
	typed, err := absolute(name)
	if err != nil {
		return "", false
	}
	place, err := walk(typed)
	for _, root := range writable {
		switch {
		case contains(root, path.Clean(typed)):
			return root, true
		case err == nil && (contains(root, place) || Planted(name, place, []string{root}) != nil):
			return root, true
		}
	}
	return "", false
}
