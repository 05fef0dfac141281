// Package confine decides which paths may be read and written.
//
// A workspace is a project root and further roots, each a directory tree (or,
// for reading, a single file). Resolve returns the real location of a path, every
// symbolic link followed. It refuses a location that is below no root or that
// cannot be determined. It opens no file and creates none.
//
// An answer is a snapshot: a process that may rename files below a root can make
// the answer mean another file before it is opened. A caller that shares a root
// with such a process uses OpenFile, which resolves and opens in one step.
//
// Hard links, bind mounts and device nodes below a root belong to the root.
//
// Rules restrict the access that roots give. They apply to the path as typed and
// to the place it leads to.
package confine

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Mode is the intended use of a path. A root that allows writing also allows
// reading.
type Mode int

const (
	Read Mode = iota
	Write
)

func (m Mode) String() string {
	if m == Write {
		return "write"
	}
	return "read"
}

// Config describes a workspace. Its zero value describes none: Open refuses it.
//
// The kernel's rules apply to the names of roots; relative ones begin at the
// working directory.
type Config struct {
	ProjectRoot        string   // writable; where relative paths begin
	Readable, Writable []string // further roots
	Temp               string   // scratch directory, writable; "" for none
	AliasTmp           bool     // /tmp means Temp, where there is one
	Home               string   // $HOME, which no writable root may be; "" if unknown

	Rules // restrict what the roots allow

	// GitDirs lets git directories below a root be written. The root itself may lie
	// in one.
	GitDirs bool

	// Shown maps the path of a root, resolved, to an open directory that replaces it,
	// such as the merged directory of an overlay that another namespace has mounted.
	// Files of the root are looked up and opened there; answers, rules, messages and
	// the targets of links keep the root's path. The innermost such root decides.
	// Roots are still checked, and recognized later, by the host's directories. The
	// caller guarantees that the two belong together, and may close the directory
	// after Open.
	Shown map[string]*os.File

	// AllowAll allows every path whose location can be determined. Roots are then
	// only where relative paths and /tmp begin, and where rules apply.
	AllowAll bool
}

// Workspace is a set of open roots. Its zero value refuses every path. Several
// goroutines can use it at once, until Close.
type Workspace struct {
	roots    []heldRoot
	temp     string
	aliasTmp bool
	allowAll bool
	narrow   Rules
	gitToo   bool
	home     string
	view     view
	canon    func(string) (string, error)
}

// Open resolves the roots and keeps them open. Errors are of type *RootError and
// name the first root that cannot be used.
func Open(cfg Config) (*Workspace, error) {
	return open(cfg, fsat.Kernel())
}

// open is Open with a choice of system calls.
func open(cfg Config, opener fsat.Opener) (*Workspace, error) {
	w := &Workspace{allowAll: cfg.AllowAll, narrow: cfg.Rules, gitToo: cfg.GitDirs, home: cfg.Home, view: view{opener: opener}}
	w.narrow.Protect = bothPlaces(cfg.Protect)
	claims := cfg.claims()
	var trails []Trail
	for _, c := range claims {
		held, trail, err := c.open(cfg)
		if err != nil {
			w.Close()
			return nil, err
		}
		if c.role == roleTemp {
			w.temp, w.aliasTmp = held.Path, cfg.AliasTmp
		}
		trails = append(trails, trail)
		w.add(held)
	}
	if !cfg.AllowAll {
		if err := w.refuseEscapes(claims, trails); err != nil {
			w.Close()
			return nil, err
		}
	}
	for _, place := range slices.Sorted(maps.Keys(cfg.Shown)) {
		if err := w.show(place, cfg.Shown[place]); err != nil {
			w.Close()
			return nil, err
		}
	}
	w.canon = w.view.walk
	if opener.Openat2 {
		w.canon = w.view.canonical
	}
	return w, nil
}

// refuseEscapes checks the names of the roots once all of them are known.
func (w *Workspace) refuseEscapes(claims []claim, trails []Trail) error {
	var writable []string
	for _, r := range w.roots {
		if r.Writable {
			writable = append(writable, r.Path)
		}
	}
	for i, c := range claims {
		if err := trails[i].EscapesThroughLink(writable); err != nil {
			return &RootError{Name: c.name, Err: err, role: c.role, hint: fmt.Sprintf("name %q itself", trails[i].Place)}
		}
	}
	return nil
}

// claims lists the roots that cfg asks for, the project root first.
func (cfg Config) claims() []claim {
	claims := []claim{{roleProject, cfg.ProjectRoot}}
	for _, name := range cfg.Readable {
		claims = append(claims, claim{roleReadable, name})
	}
	for _, name := range cfg.Writable {
		claims = append(claims, claim{roleWritable, name})
	}
	if cfg.Temp != "" {
		claims = append(claims, claim{roleTemp, cfg.Temp})
	}
	return claims
}

// add keeps one root for each place. A root that is named twice is writable if it
// is named as writable once.
func (w *Workspace) add(held heldRoot) {
	for i := range w.roots {
		if w.roots[i].Path == held.Path {
			w.roots[i].Writable = w.roots[i].Writable || held.Writable
			w.roots[i].scratch = w.roots[i].scratch || held.scratch
			unix.Close(held.fd)
			return
		}
	}
	w.roots = append(w.roots, held)
}

// Resolve returns the location of path, absolute and with every symbolic link
// followed. The end of path may be missing: the answer is then the place where it
// would be created. Errors are of type *Refusal.
//
// A relative path begins at the project root. ".." is taken lexically; where the
// kernel finds another place because of a link, that place must be allowed too.
func (w *Workspace) Resolve(path string, mode Mode) (string, error) {
	return w.Lookup(path, Request{Mode: mode})
}

// Lookup is Resolve with all its choices.
func (w *Workspace) Lookup(path string, req Request) (string, error) {
	once := Batch{workspace: w, Request: req}
	return once.Resolve(path)
}

// ProjectRoot returns the resolved project root, "" for the zero value.
func (w *Workspace) ProjectRoot() string {
	if len(w.roots) == 0 {
		return ""
	}
	return w.roots[0].Path
}

// Temp returns the resolved scratch directory, or "".
func (w *Workspace) Temp() string { return w.temp }

// AliasTmp reports whether /tmp means Temp.
func (w *Workspace) AliasTmp() bool { return w.aliasTmp }

// Roots returns the roots: the project root, the readable and the writable ones
// in the order they were given, the scratch directory. No place comes twice.
func (w *Workspace) Roots() []Root {
	var roots []Root
	for _, r := range w.roots {
		roots = append(roots, r.Root)
	}
	return roots
}

// Close closes the roots. Every path is refused afterwards.
func (w *Workspace) Close() {
	for _, r := range w.roots {
		unix.Close(r.fd)
	}
	for _, s := range w.view.shown {
		unix.Close(s.fd)
	}
	*w = Workspace{}
}
