package gitconfig

import (
	"cmp"
	"maps"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/gitplace"
)

// setting is an entry of a configuration, or a variable with its name as the key.
type setting struct {
	Entry
	kind kindOfSetting
	read *reading // of a command
}

type kindOfSetting byte

const (
	noFile     kindOfSetting = iota
	perhaps                  // a word with a slash that names a file may be run
	runs                     // a shell runs it
	runsFile                 // git runs the file
	programs                 // a directory of programs
	reads                    // a file
	borrows                  // directories of objects
	partial                  // an index that is not whole
	repository               // another git directory, by a URL or a path
)

// variables are git's, and those of programs that git starts, by kind.
var variables = map[string]kindOfSetting{
	"GIT_SSH_COMMAND": runs, "GIT_EDITOR": runs, "GIT_SEQUENCE_EDITOR": runs, "VISUAL": runs, "EDITOR": runs, "GIT_PAGER": runs, "PAGER": runs,
	"GIT_EXTERNAL_DIFF": runs, "GIT_DIFFTOOL_EXTCMD": runs, "BROWSER": runs, "LESSOPEN": runs, "LESSCLOSE": runs,
	"GIT_SSH": runsFile, "GIT_ASKPASS": runsFile, "SSH_ASKPASS": runsFile, "GIT_PROXY_COMMAND": runsFile,
	"GIT_EXEC_PATH": programs, "GIT_TEMPLATE_DIR": programs,
	"GIT_CONFIG_GLOBAL": reads, "GIT_CONFIG_SYSTEM": reads, "GIT_INDEX_FILE": reads, "GIT_SHALLOW_FILE": reads, "GIT_GRAFT_FILE": reads, "GIT_CONFIG": reads,
	"GIT_TRACE": reads, "GIT_TRACE_SETUP": reads, "GIT_TRACE_PACKET": reads, "GIT_TRACE_PERFORMANCE": reads, "GIT_TRACE_CURL": reads,
	"GIT_TRACE2": reads, "GIT_TRACE2_EVENT": reads, "GIT_TRACE2_PERF": reads,
	"GIT_OBJECT_DIRECTORY": borrows, "GIT_ALTERNATE_OBJECT_DIRECTORIES": borrows,
	"GIT_DIR": repository, "GIT_COMMON_DIR": repository, "GIT_WORK_TREE": noFile, "PATH": noFile,
}

// kindOfValue is the use that git makes of the value of a key, as gitconfig(5) and the manuals of
// git's own helpers say. A command too many does no harm: a word must still name a file.
func kindOfValue(key string) kindOfSetting {
	if kind, is := variables[key]; is {
		return kind
	}
	section, _, _ := strings.Cut(key, ".")
	name := cmp.Or(key[strings.LastIndexByte(key, '.')+1:], key)
	ends := func(suffixes ...string) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
	}
	switch key {
	case "core.hookspath", "init.templatedir":
		return programs
	case "commit.template", "trace2.normaltarget", "trace2.eventtarget", "trace2.perftarget":
		return reads
	case "core.splitindex", "index.sparse":
		return partial
	case "core.worktree", "blame.ignorerevsfile": // commands may change the latter by its usual name; gitdir renames one that git cannot read
		return noFile
	}
	switch section {
	case "alias", "pager":
		return runs
	case "include", "includeif", "branch", "safe", "maintenance", "url", "user", "author", "committer":
		return noFile
	}
	switch {
	case section == "remote" && (name == "url" || name == "pushurl"):
		return repository
	case section == "remote" && (name == "fetch" || name == "push"):
		return noFile
	case name == "program" || name == "askpass" || name == "gitproxy" || name == "path" || name == "smtpserver":
		return runsFile
	case ends("file", "skiplist", "cainfo", "capath", "sslcert", "sslkey"):
		return reads
	case ends("command", "cmd", "hook", "helper", "editor", "pager", "driver", "program"), slices.Contains(commandNames, name):
		return runs
	}
	return perhaps
}

// commandNames are the names that hold a command in any section, besides those that their
// ending tells.
var commandNames = []string{
	"fsmonitor", "external", "textconv", "clean", "smudge", "process", "difffilter", "uploadpack", "receivepack", "vcs", "update", "browser",
	"httpd", "authorsprog", "tunnel", "args",
}

// settings reads entries, and adds the files that they include.
func (n *Names) settings(l *loader) []*setting {
	for _, e := range l.targets {
		n.name(e.Value, "a configuration includes it", false)
	}
	var all []*setting
	for _, e := range slices.Concat(l.entries, addresses(slices.Concat(n.hosts, l.entries))) {
		all = n.setting(all, e, 4)
	}
	return all
}

// address is the key of an address that git may use for a repository.
const address = "remote..url"

// addresses are those that other settings than remote.NAME.url give repositories: url.BASE.insteadOf, and
// branch.NAME.remote that names none.
func addresses(all []Entry) (made []Entry) {
	known, bases := map[string]bool{}, map[string][]string{}
	for _, e := range all {
		section, rest, _ := strings.Cut(e.Key, ".")
		dot := strings.LastIndexByte(rest, '.')
		switch {
		case dot < 0:
		case section == "remote" && rest[dot:] == ".url":
			known[rest[:dot]] = true
		case section == "url" && strings.HasSuffix(rest, "insteadof"):
			bases[rest[:dot]] = append(bases[rest[:dot]], e.Value)
		}
	}
	sorted := slices.Sorted(maps.Keys(bases))
	for _, base := range sorted { // for an address that the user types
		if strings.HasPrefix(base, "ext::") {
			made = append(made, Entry{Key: address, Value: base})
		}
	}
	for _, e := range all {
		switch kind := kindOfValue(e.Key); {
		case strings.HasPrefix(e.Key, "branch.") && strings.HasSuffix(e.Key, "remote"), e.Key == "remote.pushdefault":
			if known[e.Value] || e.Value == "." {
				continue
			}
			made = append(made, Entry{Key: address, Value: e.Value})
		case kind != repository:
			continue
		}
		for _, base := range sorted {
			for _, prefix := range bases[base] {
				if rest, is := strings.CutPrefix(e.Value, prefix); is {
					made = append(made, Entry{Key: address, Value: base + rest})
				}
			}
		}
	}
	return made
}

// oldRemotes are the addresses in the files of a repository that older versions of git made, gitrepository-layout(5).
func oldRemotes(gitDir string) (made []Entry) {
	read := func(dir, begin string) {
		_ = entries(gitDir+dir, func(name string, _ bool) {
			text, _ := readAt(unix.AT_FDCWD, gitDir+dir+name, 0, gitplace.MaxPointer)
			for line := range strings.Lines(string(text)) {
				if url, is := strings.CutPrefix(line, begin); is {
					url, _, _ = strings.Cut(strings.TrimSpace(url), "#")
					made = append(made, Entry{Key: "remote." + name + ".url", Value: url})
				}
			}
		})
	}
	read("/remotes/", "URL:")
	read("/branches/", "")
	return made
}

// setting appends a setting, and the settings that its command makes.
func (n *Names) setting(all []*setting, e Entry, depth int) []*setting {
	s := &setting{Entry: e, kind: kindOfValue(e.Key)}
	all = append(all, s)
	value := e.Value
	switch {
	case e.Key == "blame.ignorerevsfile" && filepath.Base(value) != ".git-blame-ignore-revs":
		s.kind = reads
	case s.kind == repository && strings.HasPrefix(value, "ext::"):
		s.kind, value = runs, value[len("ext::"):]
	case strings.HasPrefix(e.Key, "alias.") && !strings.HasPrefix(value, "!"):
		value = "git " + value
		if !slices.ContainsFunc(withCommands, func(word string) bool { return strings.Contains(value, word) }) {
			s.kind = perhaps
		}
	}
	if s.kind == perhaps && !strings.ContainsAny(value, "/=") && !strings.HasPrefix(e.Key, "alias.") || s.kind > runsFile || s.kind == noFile || depth == 0 {
		return all
	}
	s.read = readCommand(strings.TrimPrefix(value, "!"), n.getenv)
	if s.read.blind || s.read.beside && s.kind == runs {
		n.unknown(s)
	}
	for _, made := range s.read.made {
		all = n.setting(all, made, depth-1)
	}
	return all
}

// withCommands are parts of those git commands that run another command.
var withCommands = []string{"exec", "-x", "foreach", "run", "pack", "extcmd", "pager", "-O", "filter", "-c"}

func (n *Names) unknown(s *setting) {
	if !slices.Contains(n.Unknown, s.Key) {
		n.Unknown = append(n.Unknown, s.Key)
	}
}

// gather adds the files that settings name, as seen from a place.
func (n *Names) gather(at ground, all []*setting) {
	for _, s := range all {
		if helper := s.transport(); helper != "" {
			n.inPath(helper, at, "git may run it: "+s.Key)
		}
		switch s.kind {
		case runs, perhaps:
			n.words(s, at)
			if s.Key == "PATH" {
				n.scripts(at)
			}
		case runsFile:
			n.each(s.Value, at, func(path string) {
				n.name(path, "git may run it: "+s.Key, true)
				n.interpreter(path, at)
			})
			n.words(s, at)
		case programs:
			n.each(s.Value, at, func(dir string) {
				why := "git runs hooks in it: " + s.Key
				if above, last := filepath.Split(dir); last == "_" { // husky's hooks run files beside this directory
					n.directory(strings.TrimSuffix(above, "/"), why, hooks)
				}
				n.directory(dir, why, hooks)
				n.links(dir+"/hooks", why)
				n.interpreters(dir, at)
				if s.Key == "core.hookspath" {
					n.hooks(at, dir)
				}
			})
		case reads:
			n.each(s.Value, at, func(path string) { n.name(path, "git reads it: "+s.Key, true) })
		case borrows:
			for dir := range strings.SplitSeq(s.Value, ":") {
				n.each(strings.Trim(dir, `"`), at, func(path string) { n.name(path, "git keeps objects in it: "+s.Key, false) })
			}
		case partial:
			on, _ := s.Bool()
			n.Partial = n.Partial || on
		case repository:
			n.remote(s, at)
		}
	}
}

// hooks are the names of githooks(5), and of the directories in a template.
var hooks = []string{
	"applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase",
	"post-checkout", "post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive", "post-update", "reference-transaction",
	"push-to-checkout", "pre-auto-gc", "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist",
	"p4-post-changelist", "p4-pre-submit", "post-index-change", "hooks", "info", "config",
}

// each calls fn with the paths that a file's name may stand for.
func (n *Names) each(name string, at ground, fn func(path string)) {
	l := loader{getenv: n.getenv}
	name, ok := l.expand(name)
	if !ok || name == "" {
		return
	}
	if filepath.IsAbs(name) {
		fn(name)
		return
	}
	for _, dir := range slices.Concat(at.tops, at.gitDirs) {
		fn(beneath(dir, name))
	}
}

// transport is the program of a URL: git runs git-remote-NAME for NAME::ADDRESS and NAME://ADDRESS, gitremote-helpers(7).
func (s *setting) transport() string {
	section, rest, _ := strings.Cut(s.Key, ".")
	url := s.Value
	switch section {
	case "url":
		url = rest
	case "remote", "branch", "submodule":
	default:
		return ""
	}
	name, address, _ := strings.Cut(url, ":")
	if !strings.HasPrefix(address, ":") && !strings.HasPrefix(address, "//") || strings.ContainsAny(name, "/ ") || slices.Contains(ownTransports, name) {
		return ""
	}
	return name
}

// ownTransports are done by git itself, or by a program in its own directory, which comes before PATH.
var ownTransports = []string{"http", "https", "ftp", "ftps", "file", "ssh", "git", "git+ssh", "ssh+git", "ext", "fd"}

// remote gathers the files of a repository on this machine, and the way to it: git runs its hooks in a push.
func (n *Names) remote(s *setting, at ground) {
	url, isURL := strings.CutPrefix(s.Value, "file://")
	if isURL {
		_, url, _ = strings.Cut(url, "/") // git looks at no host
		if decoded, err := neturl.PathUnescape("/" + url); err == nil {
			url = decoded
		}
	}
	if colon, slash := strings.IndexByte(url, ':'), strings.IndexByte(url, '/'); colon >= 0 && (slash < 0 || colon < slash) {
		return
	}
	if len(at.tops) > 0 {
		at.gitDirs = nil // git goes to the top first
	}
	n.each(url, at, func(path string) {
		_, in := n.inRoot(n.follow(path).Place)
		if in && strings.HasPrefix(s.Key, "GIT_") {
			n.name(path, s.Key, false)
			return
		}
		for _, end := range []string{"/.git", "", ".git/.git", ".git"} { // in the order of git
			n.dotGit(path+end, isURL || strings.Contains(url, "/")) // a word may be the name of a remote elsewhere
			if dirs, ok := openDotGit(path + end); ok {
				if !in { // else the host's is found there, and another one is no authority
					_ = n.Elsewhere("", dirs.gitDir, dirs.commonDir) // git may not be able to read it either
				}
				return
			}
		}
	})
}

// words adds the files that a command line mentions.
func (n *Names) words(s *setting, at ground) {
	if s.read == nil {
		return
	}
	dirs, lost := n.directories(s.read.words, at)
	lost = lost || strings.HasPrefix(s.Key, "submodule.") // git runs it in the submodule
	here := n.searchesHere() || slices.ContainsFunc(s.read.made, func(e Entry) bool { return e.Key == "PATH" })
	why, strong := "git may run it: "+s.Key, s.kind != perhaps
	for _, m := range s.read.words {
		slash := strings.Contains(m.text, "/")
		named := slash || m.role == script || slices.Contains(scriptEndings, filepath.Ext(m.text)) // also if it is missing
		switch {
		case m.role == directory, m.end == whole && strings.TrimSpace(m.text) == "", !strong && !slash && !(m.role == command && strings.HasPrefix(m.text, "git-")):
			continue
		case m.end != whole:
			if strong && !m.guess && m.role != argument {
				n.unfinished(s, m, dirs, at, why)
			}
			continue
		case m.role == command && !slash:
			n.inPath(m.text, at, why)
			if !here {
				continue
			}
			m.role, named = script, true
		}
		if !named && len(dirs) == len(at.tops) && !n.hasAny(at.tops, m.text) {
			continue
		}
		for _, path := range n.paths(m.text, dirs, at) {
			switch is := n.look(path); {
			case is == aFile:
				n.name(path, why, true)
				if strong {
					n.interpreter(path, at)
				}
			case is == aDirectory && m.role == script:
				for _, file := range []string{"__main__.py", "index.js", "package.json"} {
					n.name(path+"/"+file, why, true)
				}
			case is == missingFile && strong && named && !m.guess && (m.role != argument || !strings.ContainsAny(m.text, code)):
				n.name(path, why, true)
			}
		}
		if lost && !m.guess && m.role != argument && !filepath.IsAbs(m.text) {
			n.unknown(s)
		}
	}
}

// code are characters of programs in quotes, for awk and the like. A missing file with one in
// its name is none of a command's.
const code = "\n;&|()<>{}[]*$^\\\"`"

// scriptEndings are endings of the names of programs.
var scriptEndings = []string{".sh", ".bash", ".zsh", ".fish", ".py", ".pl", ".rb", ".js", ".mjs", ".cjs", ".ts", ".lua", ".php", ".awk", ".sed", ".mk", ".tcl", ".el", ".vim", ".jar", ".R"}

// directories lists the directories that a command line names, and the tops. lost tells
// that it changes to another one.
func (n *Names) directories(words []mention, at ground) (dirs []string, lost bool) {
	dirs = slices.Clone(at.tops)
	for _, m := range words {
		if m.end != whole || m.text == "" {
			lost = lost || m.role == directory && m.end != whole && m.end != foreign
			continue
		}
		if m.role != directory && len(dirs) == len(at.tops) && !filepath.IsAbs(m.text) && !n.hasAny(at.tops, m.text) {
			continue
		}
		for _, path := range n.paths(m.text, dirs, at) {
			is := n.look(path)
			if (is == aDirectory || is == missingFile && m.role == directory) && len(dirs) < maxDirectories && !slices.Contains(dirs, path) {
				dirs = append(dirs, path)
			}
		}
	}
	return dirs, lost
}

// maxDirectories bounds the directories of one command line.
const maxDirectories = 64

// paths lists the paths that a word may stand for.
func (n *Names) paths(word string, dirs []string, at ground) []string {
	if filepath.IsAbs(word) {
		return []string{word}
	}
	if strings.HasPrefix(filepath.Clean(word), "..") {
		dirs = slices.Concat(dirs, at.gitDirs) // other names there are those of git's files
	}
	paths := make([]string, len(dirs))
	for i, dir := range dirs {
		paths[i] = beneath(dir, word)
		if _, known := n.seen[paths[i]]; !known && i < len(at.tops) && !n.has(dir, word) {
			n.seen[paths[i]] = missingFile
			if top := n.follow(dir); !strings.Contains(word, "..") {
				n.walked[paths[i]] = confine.Trail{Place: filepath.Join(top.Place, word), Links: top.Links}
			}
		}
	}
	return paths
}

// unfinished adds the files that a pattern, or a word that is not known to its end, may
// stand for: the directory of all of them.
func (n *Names) unfinished(s *setting, m mention, dirs []string, at ground, why string) {
	dir, name := "", m.text
	if slash := strings.LastIndexByte(m.text, '/'); slash >= 0 {
		dir, name = m.text[:slash+1], m.text[slash+1:]
	}
	if dir == "" && m.end == foreign {
		return
	}
	for _, path := range n.paths(dir+".", dirs, at) {
		path = strings.TrimSuffix(path, "/.")
		if !slices.Contains(at.tops, path) && !n.isTop(n.follow(path).Place) {
			n.name(path, why, false)
			n.links(path, why)
			continue
		}
		if m.end == pattern {
			files, _ := filepath.Glob(beneath(path, name+m.rest))
			for _, file := range files {
				n.name(file, why, true)
			}
		}
		if m.end != foreign {
			n.unknown(s)
		}
	}
}

// inPath adds the program of a name in PATH, if a root holds it, or may get it, and those that git runs for
// that name. Any shell runs a program of another's name in a directory of PATH.
func (n *Names) inPath(name string, at ground, why string) {
	if n.programs == nil {
		n.readPath()
	}
	for _, prefix := range []string{"", "git-", "git-credential-", "git-remote-"} {
		n.program(prefix+name, at, why)
	}
}

func (n *Names) program(name string, at ground, why string) {
	for _, dir := range n.searched {
		for _, path := range n.paths(filepath.Join(dir, name), at.tops, at) {
			n.name(path, why, true)
		}
	}
	for _, path := range n.programs[name] {
		n.name(path, why, true)
	}
}

// scripts adds the programs that git's own scripts run.
func (n *Names) scripts(at ground) {
	const why = "a script of git's may run it: PATH"
	here := n.searchesHere()
	for _, name := range inScripts {
		n.program(name, at, why)
		if here {
			for _, path := range n.paths(name, at.tops, at) {
				n.name(path, why, true)
			}
		}
	}
	for _, dir := range at.gitDirs {
		n.interpreters(dir+"/hooks", at)
	}
}

// interpreters is interpreter for the hooks in a directory.
func (n *Names) interpreters(dir string, at ground) {
	_ = entries(dir, func(name string, _ bool) {
		if slices.Contains(hooks, name) {
			n.interpreter(dir+"/"+name, at)
		}
	})
}

// interpreter adds the program in PATH that env(1) runs for a script, as its first line says.
func (n *Names) interpreter(script string, at ground) {
	if n.programs == nil {
		n.readPath()
	}
	here := n.searchesHere()
	if len(n.searched)+len(n.programs) == 0 && !here {
		return
	}
	name := interpreter(script)
	if name == "" || strings.Contains(name, "/") {
		return
	}
	why := "env may run it for " + script
	n.program(name, at, why)
	if here {
		for _, path := range n.paths(name, at.tops, at) {
			n.name(path, why, true)
		}
	}
}

// firstLine is how much of a script the kernel looks at: BINPRM_BUF_SIZE.
const firstLine = 256

func interpreter(script string) string {
	f, err := os.OpenFile(script, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text := make([]byte, firstLine)
	size, _ := f.Read(text)
	line, _, _ := strings.Cut(string(text[:size]), "\n")
	line, is := strings.CutPrefix(line, "#!")
	words := strings.Fields(line)
	if !is || len(words) < 2 || filepath.Base(words[0]) != "env" {
		return ""
	}
	for _, m := range readCommand(line, func(string) (string, bool) { return "", false }).words {
		if m.role == command && m.end == whole && !m.guess && !strings.Contains(m.text, "/") && m.text != "env" {
			return m.text
		}
	}
	return ""
}

// readPath lists the directories of PATH in a root, and programs that may be in one.
func (n *Names) readPath() {
	n.programs = map[string][]string{}
	for _, dir := range filepath.SplitList(n.getenv.value("PATH")) {
		if !filepath.IsAbs(dir) {
			if filepath.Clean(dir) != "." {
				n.searched = append(n.searched, dir)
			}
			continue
		}
		if slices.Contains(systemPath, dir) {
			continue
		}
		trail := n.follow(dir)
		_, shown := n.inRoot(trail.Place)
		for _, l := range trail.Links {
			_, in := n.inRoot(l.Place)
			shown = shown || in
		}
		if shown {
			n.searched = append(n.searched, dir)
		}
		_ = entries(dir, func(name string, link bool) {
			if shown || link {
				n.programs[name] = append(n.programs[name], dir+"/"+name)
			}
		})
	}
}

// unset are programs that git looks for in PATH if no setting names another one: git-config(1), git-var(1).
var unset = []string{"git", "less", "pager", "vi", "editor", "sensible-editor", "ssh", "ssh-keygen", "gpg", "gpgsm", "git-lfs"}

// inScripts are programs that git's scripts, and the libraries of these, run or read by name: git-sh-setup(1), git-mergetool(1),
// git-web--browse(1) and the others. Those built into a shell are not among them, nor any other program of PATH: a
// project's own bin/test or .venv/bin/python is the command's to write.
var inScripts = strings.Fields(`
	awk basename cat chmod cmp comm cp cut date diff dirname egrep env expr fgrep find grep head id ln ls mkdir mktemp mv od perl readlink
	rm rmdir sed seq sleep sort tail tee touch tr tty uname uniq wc xargs gettext.sh gettext ngettext envsubst
	gitk wish man info emacsclient crontab systemctl sendmail gzip bzip2 xz cvs svn p4
	vim gvim vimdiff gvimdiff nvim emacs meld kdiff3 kompare opendiff tkdiff xxdiff tortoisemerge diffuse diffmerge ecmerge bcompare bcomp
	p4merge smerge compare guiffy DeltaWalker CodeMerge CodeCompare tortoisegitmerge
	firefox iceweasel seamonkey iceape chrome google-chrome chromium chromium-browser konqueror kfmclient opera w3m elinks links lynx dillo
	open cygstart xdg-open lighttpd httpd apache2 webrick mongoose plackup`)

// systemPath are the directories of PATH that hold the system's programs.
var systemPath = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/games"}

// searchesHere reports whether PATH names the working directory.
func (n *Names) searchesHere() bool {
	return slices.ContainsFunc(filepath.SplitList(n.getenv.value("PATH")), func(dir string) bool { return filepath.Clean(dir) == "." })
}
