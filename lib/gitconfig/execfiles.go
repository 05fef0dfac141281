package gitconfig

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ExecFile is a file or directory that decides what git on the host runs. Whoever
// can write it, or replace it, runs commands as whoever uses git there.
type ExecFile struct {
	Path string // relative to the root
	Why  string // for people

	Exists bool
	Dir    bool
	ID           // of what was seen, if it exists
	Pins   []Pin // the directories between the root and it that exist, outermost first

	// Link tells that Path is a link. It must not be mounted over, since a mount
	// goes where the link leads. Where that is below the root, it is an exec file too.
	Link bool

	// Watch tells that ordinary work with git writes here. It cannot be made
	// read-only; what appeared in it is for people to look at.
	Watch bool
}

// when says when a file is an exec file.
type when int

const (
	always  when = iota
	watched      // git itself writes it
	present      // only if it exists: nothing names it but a configuration
)

// gitDirFiles are those of each git directory, commonFiles those that worktrees
// share.
var (
	gitDirFiles = []struct {
		name, why string
		when      when
	}{
		{"commondir", "it decides whose config and hooks are used", always},
		{"config.worktree", "git runs what it names: pagers, monitors, filters", always},
		{"rebase-merge", "its list may have lines that the next rebase --continue runs", watched},
	}
	commonFiles = []struct {
		name, why string
		when      when
	}{
		{"config", "git runs what it names: pagers, monitors, filters", always},
		{"hooks", "git runs them", always},
		{"info/attributes", "it decides which filters run", always},
		{"remotes", "it decides where push and fetch go, and so whose hooks run", always},
		{"branches", "it decides where push and fetch go, and so whose hooks run", always},
		{"modules", "a git directory waiting there is used when its submodule is set up", watched},
		{"worktrees", "git directories of worktrees", watched},
	}
)

// execFiles names those of one repository.
func (f *finder) execFiles(repo *Repo, at gitDirs) {
	if dir, inside := f.root.inside(at.gitDir); inside {
		for _, s := range gitDirFiles {
			repo.name(f, path.Join(dir, s.name), s.why, s.when)
		}
		if at.gitDir != at.commonDir {
			repo.name(f, path.Join(dir, "gitdir"), "it decides which directory is the worktree", always)
		}
	}
	if dir, inside := f.root.inside(at.commonDir); inside {
		for _, s := range commonFiles {
			repo.name(f, path.Join(dir, s.name), s.why, s.when)
		}
		f.linkedHooks(repo, path.Join(dir, "hooks"))
	}
	f.configured(repo, at, f.worktreeOf(repo, at.gitDir))
}

// name adds an exec file and, if a link is in the way, where it leads.
func (r *Repo) name(f *finder, rel, why string, when when) {
	if f.named[rel] {
		return
	}
	f.named[rel] = true
	seen := f.root.look(rel)
	if when == present && !seen.exists() {
		return
	}
	s := ExecFile{Path: rel, Why: why, Exists: seen.exists(), Dir: seen.mode == unix.S_IFDIR, ID: seen.id, Pins: seen.pins, Watch: when == watched}
	if seen.link != "" {
		s.Path, s.Link = seen.link, true
		f.named[seen.link] = true
		if target, inside := f.root.inside(f.root.follow(f.absolute(rel))); inside {
			r.name(f, target, why, when)
		}
	}
	if !slices.ContainsFunc(r.execFiles, func(old ExecFile) bool { return old.Path == s.Path }) {
		r.execFiles = append(r.execFiles, s)
	}
}

// maxHooks is how many hooks are looked at. Git knows some thirty, and each
// may have its sample.
const maxHooks = 128

// linkedHooks names what hooks that are links lead to.
func (f *finder) linkedHooks(repo *Repo, hooks string) {
	dir, inside := f.root.inside(f.root.follow(f.absolute(hooks)))
	if !inside {
		return
	}
	fd, err := f.root.openDir(dir)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	entries, _ := names(fd, maxHooks)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			target, inside := f.root.inside(f.root.follow(f.absolute(path.Join(dir, e.Name()))))
			if inside {
				repo.name(f, target, "a hook leads here", present)
			}
		}
	}
}

// worktreeOf is where relative names in a configuration start: the directory of
// .git, or what core.worktree says, or the git directory of a bare repository.
func (f *finder) worktreeOf(repo *Repo, gitDir string) string {
	if repo.DotGit != "" {
		return path.Dir(f.absolute(repo.DotGit))
	}
	return gitDir
}

// configured names what the configuration of a repository names below the root.
func (f *finder) configured(repo *Repo, at gitDirs, worktree string) {
	l := &loader{getenv: f.host.getenv, every: true, at: at}
	_ = l.repository() // every: what can be read is, and nothing fails
	for _, e := range l.entries {
		if e.Key == "core.worktree" && repo.Kind == KindSubmodule {
			worktree = f.root.follow(beside(at.gitDir+"/config", e.Value))
			repo.linked(f, worktree+"/.git")
		}
	}
	for _, e := range slices.Concat(f.host.targets, l.targets) {
		f.mention(repo, "/", e.Value, "a configuration includes it", always)
	}
	budget := maxMentions
	for _, e := range slices.Concat(f.host.entries, l.entries) {
		if budget == 0 {
			break
		}
		budget -= f.entry(repo, l, worktree, e)
	}
}

// maxMentions is how many entries of a configuration are believed to name
// something in the project.
const maxMentions = 256

// entry names what one entry names, and returns 1 if it is of a kind that can.
func (f *finder) entry(repo *Repo, l *loader, worktree string, e Entry) int {
	value, ok := l.expand(e.Value)
	switch {
	case !ok || value == "":
		return 0
	case e.Key == "core.hookspath":
		f.hooksPath(repo, worktree, value)
	case e.Key == "core.attributesfile":
		f.mention(repo, worktree, value, "it decides which filters run", always)
	case runs(e.Key):
		for i, word := range strings.Fields(value) {
			word = strings.Trim(strings.TrimPrefix(word, "!"), `'";&|()`)
			if word != "" && (i > 0 || strings.Contains(word, "/")) {
				f.mention(repo, worktree, word, "git runs it: "+e.Key, present)
			}
		}
	default:
		return 0
	}
	return 1
}

// hooksPath names a directory of hooks. Those of husky lie in one called "_",
// and run what lies beside it.
func (f *finder) hooksPath(repo *Repo, worktree, value string) {
	dir := f.root.follow(path.Join(worktree, value))
	if strings.HasPrefix(value, "/") {
		dir = f.root.follow(value)
	}
	if path.Base(dir) == "_" {
		f.mention(repo, "/", path.Dir(dir), "git runs hooks in it: core.hooksPath", always)
	}
	f.mention(repo, worktree, value, "git runs hooks in it: core.hooksPath", always)
	if rel, inside := f.root.inside(dir); inside && rel != "" {
		f.linkedHooks(repo, rel)
	}
}

// mention names something that may be anywhere, if it is inside. The root itself
// is nothing that could be kept from being written.
func (f *finder) mention(repo *Repo, from, name, why string, when when) {
	if !strings.HasPrefix(name, "/") {
		name = strings.TrimSuffix(from, "/") + "/" + name
	}
	// As named, so that a link on the way is seen; failing that, where it leads.
	rel, inside := f.root.inside(path.Clean(name))
	if !inside {
		rel, inside = f.root.inside(f.root.follow(name))
	}
	if !inside || rel == "" || when == present && f.root.look(rel).mode == unix.S_IFDIR {
		return
	}
	repo.name(f, rel, why, when)
}

// runs reports whether the value of a key is a command.
func runs(key string) bool {
	section, name := key, key
	if i := strings.IndexByte(key, '.'); i >= 0 {
		section, name = key[:i], key[strings.LastIndexByte(key, '.')+1:]
	}
	names, ok := commandKeys[section]
	return ok && (len(names) == 0 || slices.Contains(names, name))
}

// commandKeys are the names in each section whose value git runs; without names,
// all.
var commandKeys = map[string][]string{
	"alias": {}, "pager": {},
	"core":        {"fsmonitor", "sshcommand", "gitproxy", "askpass", "editor", "pager", "alternaterefscommand"},
	"sequence":    {"editor"},
	"credential":  {"helper"},
	"diff":        {"external", "command", "textconv"},
	"difftool":    {"cmd", "path"},
	"filter":      {"clean", "smudge", "process"},
	"merge":       {"driver"},
	"mergetool":   {"cmd", "path"},
	"gpg":         {"program", "defaultkeycommand"},
	"interactive": {"difffilter"},
	"remote":      {"uploadpack", "receivepack", "vcs"},
	"submodule":   {"update"},
	"trailer":     {"command", "cmd"},
	"uploadpack":  {"packobjectshook"},
	"browser":     {"cmd", "path"},
	"man":         {"cmd", "path"},
	"web":         {"browser"},
	"sendemail":   {"tocmd", "cccmd", "headercmd", "sendmailcmd", "smtpserver"},
	"tar":         {"command"},
	"guitool":     {"cmd"},
}
