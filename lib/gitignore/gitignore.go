// Package gitignore reports which files git ignores, without git: from the .gitignore of
// each directory, a repository's info/exclude and the user's list. It answers as git
// check-ignore --no-index does, so it also reports tracked files.
//
// An attacker with write access to the tree controls these lists. Matching takes time
// proportional to the length of a rule times the length of a path.
package gitignore

import (
	"path"
	"strings"

	"pikuri/lib/internal/gitplace"
)

const (
	// FileName is the list of a directory.
	FileName = ".gitignore"

	// MaxFile bounds a list; the package skips a longer one. Git's own bound is 100 MiB.
	MaxFile = 4 << 20
)

// Tree is the tree with the lists. Paths are relative to its root, which is "."; with the
// root "/" they are absolute.
type Tree struct {
	// Read returns the content of a regular file, nil if it is missing or may not be read.
	// It follows no symbolic link, and reads at most max+1 bytes.
	Read func(path string, max int) []byte

	Root   string // the root's absolute path, which a .git file may name
	User   []byte // the list of the user, for all repositories
	Inside bool   // the root lies in a repository that begins above it

	// TooLong is called for a list of more than MaxFile bytes, which is ignored, perhaps
	// several times; path is "" for the user's. It may be nil.
	TooLong func(path string)
}

// Ignored reports whether git ignores a path below top, the top of a repository. It checks
// the directories above the path too, and remembers their rules in known: a directory takes
// those of the one above it, however many there are.
func (t *Tree) Ignored(known map[string]*Rules, top, below string, isDir bool, has func(path string) bool) bool {
	above, name := cutLast(below)
	rules := t.rulesOf(known, top, above, has)
	return rules == everything || rules.Ignore(inTop(top, above), name, isDir)
}

// everything is the rules in a directory that git ignores.
var everything = new(Rules)

// rulesOf are the rules that apply in a directory below top, or in top itself, which is "".
func (t *Tree) rulesOf(known map[string]*Rules, top, below string, has func(path string) bool) *Rules {
	dir := inTop(top, below)
	rules, ok := known[dir]
	if ok {
		return rules
	}
	ignored := false
	if below != "" {
		above, name := cutLast(below)
		rules = t.rulesOf(known, top, above, has)
		ignored = rules == everything || rules.Ignore(inTop(top, above), name, true)
	}
	if ignored {
		rules = everything
	} else {
		rules = t.Enter(rules, dir, has(join(dir, ".git")), has(join(dir, FileName)))
	}
	known[dir] = rules
	return rules
}

// cutLast takes the last name off a path; above is "" for one name.
func cutLast(below string) (above, name string) {
	if slash := strings.LastIndexByte(below, '/'); slash >= 0 {
		return below[:slash], below[slash+1:]
	}
	return "", below
}

func inTop(top, below string) string {
	if below == "" {
		return top
	}
	return join(top, below)
}

// Rules are the rules that apply in a directory. A nil *Rules ignores nothing.
type Rules struct {
	parent *Rules // which hold if none of these matches
	dir    string
	rules  []rule
	inside bool // a repository
}

// Enter returns the rules for the entries of dir. parent holds the rules of the directory
// above, nil for the root. hasGit and hasList report whether dir has a .git and a
// .gitignore.
func (t *Tree) Enter(parent *Rules, dir string, hasGit, hasList bool) *Rules {
	r := parent
	if hasGit || parent == nil && t.Inside {
		r = (&Rules{dir: dir, inside: true}).with(t.fitting("", t.User))
		if hasGit {
			r = r.with(t.list(t.exclude(dir)))
		}
	}
	if !hasList || r == nil || !r.inside {
		return r
	}
	return (&Rules{parent: r, dir: dir, inside: true}).with(t.list(join(dir, FileName)))
}

func (t *Tree) list(path string) []byte { return t.fitting(path, t.Read(path, MaxFile)) }

// fitting returns a list, or nothing if it is too long.
func (t *Tree) fitting(path string, list []byte) []byte {
	if len(list) <= MaxFile {
		return list
	}
	if t.TooLong != nil {
		t.TooLong(path)
	}
	return nil
}

// exclude names the list of the repository whose top is dir.
func (t *Tree) exclude(dir string) string {
	git := join(dir, ".git")
	beside := func(dir, name string) string {
		if !strings.HasPrefix(name, "/") {
			return path.Join(dir, name)
		}
		if t.Root != "/" {
			name = strings.TrimPrefix(name, t.Root+"/") // elsewhere, it is no path of the tree
		}
		return name
	}
	if target, ok := gitplace.GitFile(t.Read(git, gitplace.MaxPointer)); ok {
		git = beside(dir, target)
	}
	if common := gitplace.Pointer(t.Read(git+"/commondir", gitplace.MaxPointer)); common != "" {
		git = beside(git, common)
	}
	return git + "/info/exclude"
}

// with adds the rules of a list after the others.
func (r *Rules) with(list []byte) *Rules {
	text := strings.TrimPrefix(string(list), "\ufeff")
	for line := range strings.SplitSeq(text, "\n") {
		if rule, ok := parse(gitplace.CString(strings.TrimSuffix(line, "\r"))); ok {
			r.rules = append(r.rules, rule)
		}
	}
	return r
}

// Ignore reports whether a rule ignores the entry name of dir itself. Git also ignores each
// entry below an ignored directory; the caller checks the directories above.
func (r *Rules) Ignore(dir, name string, isDir bool) bool {
	rule := r.last(dir, name, isDir)
	return rule != nil && !rule.negated
}

// last returns the rule that decides on an entry of dir, or nil.
func (r *Rules) last(dir, name string, isDir bool) *rule {
	for ; r != nil; r = r.parent {
		below := ""
		path := func() string {
			if below == "" {
				below = join(dir, name)
				if r.dir != "." {
					below = below[len(r.dir)+1:]
				}
			}
			return below
		}
		for i := len(r.rules) - 1; i >= 0; i-- {
			rule := &r.rules[i]
			if (!rule.dirOnly || isDir) && rule.matches(path, name) {
				return rule
			}
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
