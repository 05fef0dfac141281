package toolchain

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Host is what of a machine decides where things are.
type Host struct {
	Home   string // "" if unknown: rows below it are left out
	Getenv func(string) string
}

// Entry is one path that exists on a host.
type Entry struct {
	Kind Kind
	Tool string
	Path string // absolute; as the row names it, links and all
	Row  *Row   // where it comes from
}

// Present returns what of the table exists on the host as a directory or, if
// readable, as a file, in the order of the table and each path once. Links to
// such are kept as they are: a PATH that names the link would not find its
// target.
//
// A row that a variable moves to a dangerous place is left out. Dangerous is
// what shows a home, the top of a system directory or a place in never.txt, by
// its name or through links.
func (t Table) Present(h Host) []Entry {
	g := &guard{host: h}
	seen := make(map[string]bool, len(t.rows))
	entries := make([]Entry, 0, len(t.rows))
	for i := range t.rows {
		row := &t.rows[i]
		pattern, moved, ok := row.place(h)
		if !ok {
			continue
		}
		for _, path := range existing(pattern) {
			if seen[path] || row.Kind == Overlay && !isDir(path) || g.refuses(path, moved) {
				continue
			}
			seen[path] = true
			entries = append(entries, Entry{row.Kind, row.Tool, path, row})
		}
	}
	return entries
}

// Masks returns what exists inside the entries and must be hidden: files and
// directories, each once.
func Masks(entries []Entry) []string {
	var masks []string
	seen := map[string]bool{}
	for _, e := range entries {
		for _, m := range e.Masks() {
			if !seen[m] {
				seen[m] = true
				masks = append(masks, m)
			}
		}
	}
	return masks
}

// Masks returns what exists inside the entry and must be hidden.
func (e Entry) Masks() []string {
	var masks []string
	for _, inside := range e.Row.Inside {
		masks = append(masks, existing(escape(e.Path)+"/"+inside)...)
	}
	return masks
}

// place returns the pattern where the row's path is on the host, and whether a
// variable moved it there.
func (r *Row) place(h Host) (pattern string, moved, ok bool) {
	for _, template := range r.Variables {
		if p, ok := expand(template, h.Getenv); ok && filepath.IsAbs(p) {
			return p, true, true
		}
	}
	path := r.Path
	home, inHome := strings.CutPrefix(path, "~/")
	if inHome {
		if !filepath.IsAbs(h.Home) {
			return "", false, false
		}
		path = home
	}
	path, ok = expand(path, h.Getenv)
	if inHome {
		path = filepath.Join(escape(filepath.Clean(h.Home)), path)
	}
	return path, false, ok
}

// existing returns the files and directories that a pattern matches, sorted.
// Whatever cannot be looked at is not there; sockets and the like never are.
func existing(pattern string) []string {
	paths := []string{pattern}
	if strings.ContainsAny(pattern, meta) {
		paths, _ = filepath.Glob(pattern) // Parse has checked the pattern
	}
	found := paths[:0]
	for _, p := range paths {
		info, err := os.Stat(p)
		if err == nil && info.Mode()&fs.ModeType&^fs.ModeDir == 0 {
			found = append(found, p)
		}
	}
	return found
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
