package fence

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"pikuri/lib/confine"
	"pikuri/lib/hostrun"
)

// HostRun knows the files of a writable root that programs on the host would run. Sandboxes
// protect them, and commands without one refuse to write them.
type HostRun struct {
	root  string
	rules func() (map[string]string, error) // by path
}

// NewHostRun is for the root at a path without symbolic links.
func NewHostRun(root string) *HostRun {
	return &HostRun{root, sync.OnceValues(func() (map[string]string, error) {
		list, err := Protected([]confine.Root{{Path: root, Writable: true, Dir: true}})
		rules := map[string]string{}
		for _, p := range list {
			if _, known := rules[p.Path]; !known && !p.Dir {
				rules[p.Path] = strings.TrimPrefix(p.Rule, "default: ")
			}
		}
		return rules, err
	})}
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
		rules, err := h.rules()
		for at := filepath.Join(h.root, place); err == nil; at = filepath.Dir(at) {
			if why, ok := rules[at]; ok || at == "/" {
				return why, nil
			}
		}
		return "", err
	}
}
