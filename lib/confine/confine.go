// Package confine decides which paths may be read and written.
//
// A workspace is a project root and further roots, each a directory tree (or,
// for reading, a single file). Resolve answers where a path really is, every
// symbolic link followed, and refuses when that is not below a root, or cannot
// be told. It never opens what a path names and never creates anything.
//
// An answer is a snapshot. Whoever may rename things below a root can make a
// resolved path mean something else before it is opened; a caller that shares
// a root with such a process must not open the answer by its name. OpenFile
// resolves and opens without a moment in between.
//
// Hard links, bind mounts and device nodes below a root belong to the root.
//
// Rules narrow what the roots allow. They are held against the path as it was
// typed and against the place it leads to.
package confine

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Mode is what a path is to be used for. The roots that allow writing also
// allow reading.
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
// Names of roots are taken as the kernel would take them, relative ones from
// the working directory.
type Config struct {
	ProjectRoot        string   // writable; where relative paths begin
	Readable, Writable []string // further roots
	Temp               string   // scratch directory, writable; "" for none
	AliasTmp           bool     // /tmp means Temp, where there is one
	Home               string   // $HOME, which no writable root may be; "" if unknown

	Rules // narrow what the roots allow

	// AllowAll lets every path pass whose place can be told. Roots are then
	// only where relative paths and /tmp begin, and where rules apply.
	AllowAll bool
}

// Workspace answers for one set of roots. Its zero value refuses every path.
// It can be used by several goroutines at once, until Close.
type Workspace struct {
	roots    []heldRoot
	temp     string
	aliasTmp bool
	allowAll bool
	narrow   Rules
	home     string
	openat2  bool
	canon    func(string) (string, error)
}

// Open resolves the roots and holds on to them. Errors are of type *RootError
// and name the first root that cannot be used.
func Open(cfg Config) (*Workspace, error) {
	return open(cfg, hasOpenat2())
}

// open is Open with the choice of resolver made: it is made once for each
// workspace. A kernel that answers one lookup in the strong way and the next in
// the weak way is a kernel somebody is playing with.
func open(cfg Config, openat2 bool) (*Workspace, error) {
	w := &Workspace{allowAll: cfg.AllowAll, narrow: cfg.Rules, home: cfg.Home, openat2: openat2, canon: walk}
	if openat2 {
		w.canon = canonical
	}
	claims := cfg.claims()
	var places []string
	for _, c := range claims {
		held, err := c.open(cfg)
		if err != nil {
			w.Close()
			return nil, err
		}
		if c.role == roleTemp {
			w.temp, w.aliasTmp = held.Path, cfg.AliasTmp
		}
		places = append(places, held.Path)
		w.add(held)
	}
	if !cfg.AllowAll {
		if err := w.refusePlanted(claims, places); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
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

// add keeps one root for each place: a root named twice is writable if either
// name says so.
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

// Resolve returns where path is, absolute and with every symbolic link
// followed. What is missing at its end may be missing: the answer is then where
// it would be created. Errors are of type *Refusal.
//
// A relative path begins at the project root. ".." is taken lexically, as the
// one who typed it reads it; when the kernel reads it differently, through a
// link, its reading must be allowed as well.
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

// AliasTmp tells whether /tmp means Temp.
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

// Close lets go of the roots. Every path is refused from then on.
func (w *Workspace) Close() {
	for _, r := range w.roots {
		unix.Close(r.fd)
	}
	*w = Workspace{}
}

// contains tells whether path is root or below it. Both are canonical; the
// separator keeps /proj from containing /proj-evil.
func contains(root, path string) bool {
	if root == "/" || path == root {
		return true
	}
	return len(path) > len(root) && path[len(root)] == '/' && strings.HasPrefix(path, root)
}
