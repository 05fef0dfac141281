package gitconfig

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Named is a file or directory that the host's git runs, or reads as configuration: a
// hook is a link to it, or a configuration names it.
type Named struct{ Path, Why string } // Path is absolute and clean; links are not followed

// NamedFiles lists the Named in writable roots, for a repository with the git directories
// gitDir and commonDir and a work tree, all absolute; without a repository the first two
// are empty. It reads all configuration that git could come to read: all conditions of
// includes hold. A file that a command line names may be missing. An error is a
// configuration that cannot be read to its end. partial reports that git may keep a
// split or sparse index there.
func NamedFiles(workTree, gitDir, commonDir string, roots []string, getenv Getenv) (files []Named, partial bool, err error) {
	l := &loader{getenv: getenv, every: true, at: gitDirs{gitDir: gitDir, commonDir: commonDir}}
	if err := l.all(); err != nil {
		return nil, false, err
	}
	n := &namer{loader: l, workTree: workTree, roots: roots}
	if gitDir != "" {
		for _, dir := range []string{gitDir, commonDir, filepath.Join(commonDir, "info"), filepath.Join(commonDir, "hooks")} {
			n.links(dir, "a link in the git directory leads here")
		}
	}
	for _, e := range l.targets {
		n.name(e.Value, "a configuration includes it")
	}
	for _, e := range l.entries {
		n.entry(e)
	}
	return n.list, n.partial, nil
}

type namer struct {
	*loader
	workTree string
	roots    []string // in which a command can write
	list     []Named
	partial  bool
	tops     map[string]bool // names in the work tree
}

// name adds a path, if a command can write there.
func (n *namer) name(path, why string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(n.workTree, path)
	}
	path = filepath.Clean(path)
	in := slices.ContainsFunc(n.roots, func(root string) bool { return strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") })
	if in && !slices.ContainsFunc(n.list, func(o Named) bool { return o.Path == path }) {
		n.list = append(n.list, Named{path, why})
	}
}

// entry adds the files that one entry names.
func (n *namer) entry(e Entry) {
	switch e.Key {
	case "core.hookspath", "init.templatedir":
		dir, ok := n.expand(e.Value)
		if !ok || dir == "" {
			return
		}
		if filepath.Base(dir) == "_" { // husky's hooks run files beside this directory
			n.name(filepath.Dir(dir), "git runs hooks in it: "+e.Key)
		}
		n.name(dir, "git runs hooks in it: "+e.Key)
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(n.workTree, dir)
		}
		n.links(dir, "a hook leads here")
	case "core.attributesfile", "core.excludesfile":
		if file, ok := n.expand(e.Value); ok && file != "" {
			n.name(file, "git reads it: "+e.Key)
		}
	case "core.splitindex", "index.sparse":
		on, _ := e.Bool()
		n.partial = n.partial || on
	default:
		n.command(e)
	}
}

// links adds the targets of the symbolic links in a directory.
func (n *namer) links(dir, why string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		n.partial = n.partial || strings.HasPrefix(e.Name(), "sharedindex.")
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(dir, target)
			}
			n.name(target, why)
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			n.name(real, why)
		}
	}
}

// separators end a word of a command line, quoted or not.
const separators = " \t\n;&|()<>'\"`$={}"

// command names the files that the value of an entry mentions. A value can be a command
// line in a shell's syntax, so no attempt is made to understand it: a word is a file if
// there is one, seen from the top of the work tree, or from a directory that another
// word names. If git runs the value, a word with a slash is one even if nothing is there
// yet.
func (n *namer) command(e Entry) {
	value, ok := n.expand(e.Value)
	if !ok {
		return
	}
	dirs, runs := []string{n.workTree}, runs(e.Key)
	for i, word := range strings.FieldsFunc(strings.TrimPrefix(value, "!"), func(c rune) bool { return strings.ContainsRune(separators, c) }) {
		slash := strings.Contains(word, "/")
		if filepath.IsAbs(word) && slices.ContainsFunc(n.roots, func(root string) bool { return strings.HasPrefix(word, root+"/") }) {
			n.name(word, "git may run it: "+e.Key)
			continue
		}
		word = strings.TrimPrefix(word, n.workTree)
		word = filepath.Clean("/" + word)[1:]
		if word == "" || !strings.Contains(value, "/") && (i == 0 || !runs) {
			continue
		}
		for _, dir := range slices.Clone(dirs) {
			path := filepath.Join(dir, word)
			var st unix.Stat_t
			err := unix.ENOENT
			if dir != n.workTree || n.top(word) {
				err, _ = unix.Stat(path, &st).(unix.Errno)
			}
			switch {
			case err != 0:
				if runs && slash && !strings.HasPrefix(word, "dev/") && !strings.HasPrefix(word, "usr/") && !strings.HasPrefix(word, "bin/") {
					n.name(path, "git may run it: "+e.Key)
				}
			case st.Mode&unix.S_IFMT == unix.S_IFDIR:
				dirs = append(dirs, path)
			default:
				n.name(path, "git may run it: "+e.Key)
			}
		}
	}
}

// top reports whether the work tree has the first name of a path. Most words name
// nothing there.
func (n *namer) top(path string) bool {
	if n.tops == nil {
		n.tops = map[string]bool{}
		entries, _ := os.ReadDir(n.workTree) // names are there even after an error
		for _, e := range entries {
			n.tops[e.Name()] = true
		}
	}
	first, _, _ := strings.Cut(path, "/")
	return n.tops[first]
}

// runs reports whether git takes a value of a key for a command.
func runs(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	name := key[strings.LastIndexByte(key, '.')+1:]
	return slices.Contains(commandSections, section) || slices.Contains(commandNames, cmp.Or(name, key))
}

// commandSections hold commands under any name, and commandNames are the names that
// hold one in any section, as gitconfig(5) and the manuals of git's own helpers say. A
// name too many does no harm: a word must still name a file.
var (
	commandSections = []string{"alias", "pager"}
	commandNames    = []string{
		"fsmonitor", "sshcommand", "gitproxy", "askpass", "editor", "pager", "alternaterefscommand", "helper", "external",
		"command", "textconv", "cmd", "path", "clean", "smudge", "process", "driver", "program", "defaultkeycommand",
		"difffilter", "uploadpack", "receivepack", "vcs", "update", "packobjectshook", "browser", "tocmd", "cccmd",
		"headercmd", "sendmailcmd", "smtpserver", "httpd", "authorsprog", "proxycommand",
	}
)
