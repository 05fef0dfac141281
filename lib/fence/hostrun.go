package fence

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/hostrun"
	"pikuri/lib/internal/fsat"
)

// HostRun knows the files of a writable root that programs on the host would run. Sandboxes
// protect them, and commands without one refuse to write them.
type HostRun struct {
	root  string
	rules func() (rules, error)
}

// rules are the reasons by path.
type rules struct {
	held  map[string]string // neither this path nor a path below it is written
	ways  map[string]string // no link comes there
	named map[string]string // of these: no file either, which could say where a repository is
}

// NewHostRun is for the root at a path without symbolic links.
func NewHostRun(root string) *HostRun {
	return &HostRun{root, sync.OnceValues(func() (rules, error) {
		list, err := Protected([]confine.Root{{Path: root, Writable: true, Dir: true}})
		r := rules{map[string]string{}, map[string]string{}, map[string]string{}}
		for _, p := range slices.Backward(list) { // of several the first counts
			why := strings.TrimPrefix(p.Rule, "default: ")
			switch {
			case !p.Way:
				r.held[p.Path] = why
			case p.Tracked && !p.Link:
				r.named[p.Path] = why
				fallthrough
			default:
				r.ways[p.Path] = why
			}
		}
		return r, err
	})}
}

// Moved tells why a file or directory must not come to a place, "" if it may. A link, also one in a directory, must not
// come to a path of these rules, or above it. from is absolute, to relative to the root, both without symbolic links above
// their last names.
func (h *HostRun) Moved(from, to string) (why string, err error) {
	r, err := h.rules()
	to = filepath.Join(h.root, to)
	for _, rules := range []map[string]string{r.held, r.ways} {
		for path, why := range rules {
			if !fsat.Within(path, to) {
				continue
			}
			for at := from + strings.TrimPrefix(path, to); fsat.Within(at, from); at = filepath.Dir(at) {
				if fsat.IsLink(unix.AT_FDCWD, at) {
					return why, err
				}
			}
		}
	}
	return "", err
}

// Look returns a function that tells why a place is not to be written, "" if it may be. place is
// relative to the root, and contains no symbolic link. Those that lead to such files are
// where they were at the call of Look.
func (h *HostRun) Look() func(place string) (why string, err error) {
	tools := hostrun.In(h.root)
	return func(place string) (string, error) {
		if row, ok := tools.Holding(place); ok {
			return fmt.Sprintf("%s on the host would run it: %s", row.Tool, row.Why), nil
		}
		r, err := h.rules()
		if why, ok := r.named[filepath.Join(h.root, place)]; ok {
			return why, err
		}
		for at := filepath.Join(h.root, place); err == nil; at = filepath.Dir(at) {
			if why, ok := r.held[at]; ok || at == "/" {
				return why, nil
			}
		}
		return "", err
	}
}
