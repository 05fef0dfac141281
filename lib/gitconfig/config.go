package gitconfig

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of one configuration. Real ones are a few files of a few KiB; the limits
// keep a planted one from delaying the start of a command.
const (
	maxFile     = 16 << 20 // bytes in a file
	maxTotal    = 64 << 20 // bytes in all files together
	maxDepth    = 10       // files that include each other: git's own limit
	maxIncludes = 256      // included files in all
)

// last returns the entry that holds for a key, whose section and name are in lower
// case: of entries in the order in which git reads them, the last one.
func last(entries []Entry, key string) (Entry, bool) {
	for _, e := range slices.Backward(entries) {
		if e.Key == key {
			return e, true
		}
	}
	return Entry{}, false
}

// loader reads one configuration.
type loader struct {
	getenv Getenv
	at     gitDirs

	// every reads all that git could ever read: all conditions hold, a mistake ends a
	// file and not the reading, and no file is read twice.
	every   bool
	visited map[string]bool
	targets []Entry // every: the targets of includes, as absolute paths

	entries  []Entry
	closed   []string   // files that may not be read
	tops     []included // by files of a scope
	depth    int
	includes int
	total    int64
	urls     []string // of remotes, once a condition asks for them
	counting bool     // reading in order to know urls
	knows    bool     // urls are known
}

// all reads the scopes in git's order.
func (l *loader) all() error {
	if err := l.host(); err != nil {
		return err
	}
	return l.repository()
}

// host reads the files outside of any repository.
func (l *loader) host() error {
	for _, file := range l.hostFiles() {
		if err := l.scope(file, true); err != nil {
			return err
		}
	}
	return nil
}

// repository reads the repository's files. Git reads config.worktree only if config
// itself enables it, not a file that config includes.
func (l *loader) repository() error {
	if l.at.commonDir == "" {
		return nil
	}
	config := l.at.commonDir + "/config"
	if err := l.scope(config, false); err != nil {
		return err
	}
	if !l.every && !l.wantsWorktree(config) {
		return nil
	}
	return l.scope(l.at.gitDir+"/config.worktree", false)
}

// wantsWorktree reports whether the repository's config asks for config.worktree.
// A config that does not say which version its format has cannot ask.
func (l *loader) wantsWorktree(config string) bool {
	want, version := false, false
	for _, e := range l.entries {
		switch {
		case e.File != config:
		case e.Key == "core.repositoryformatversion":
			version = true
		case e.Key == "extensions.worktreeconfig":
			want, _ = e.Bool()
		}
	}
	return want && version
}

// scope reads the file of a scope, if there is one. A file of the host that may not be
// read, or cannot be reached, is not there for git either; one of a repository has to
// be readable.
func (l *loader) scope(file string, mayBeClosed bool) error {
	err := l.file(file)
	if missing(err) || mayBeClosed && unreachable(file, err) {
		return nil
	}
	if mayBeClosed && errors.Is(err, unix.EACCES) {
		l.closed = append(l.closed, file)
		return nil
	}
	return err
}

// counter is the variable that says how many settings are in the environment.
const counter = "GIT_CONFIG_COUNT"

// environment adds the settings that git-config(1) documents for the environment:
// GIT_CONFIG_COUNT, GIT_CONFIG_KEY_0, GIT_CONFIG_VALUE_0 and so on. They hold over
// all files. Includes among them are not followed.
func (l *loader) environment() error {
	text := l.getenv.value(counter)
	if text == "" {
		return nil
	}
	count, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("variable %s: %q is not a number", counter, text)
	}
	for i := range count {
		key, hasKey := l.getenv(fmt.Sprintf("GIT_CONFIG_KEY_%d", i))
		value, hasValue := l.getenv(fmt.Sprintf("GIT_CONFIG_VALUE_%d", i))
		first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
		if !hasKey || !hasValue || first <= 0 {
			return fmt.Errorf("variable %s: setting %d is missing, or has no section", counter, i)
		}
		key = strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
		l.entries = append(l.entries, Entry{Key: key, Value: value, File: counter})
	}
	return nil
}

// variables adds the files that variables could make git read, with the variables that name
// files as entries of their own. Git stops at a mistake; this goes on.
func (l *loader) variables() error {
	_ = l.environment()
	l.parameters()
	for _, e := range l.entries {
		if e.File != counter && e.File != parameters {
			continue
		}
		if file, ok := l.expand(e.Value); ok && path.IsAbs(file) { // git follows no others
			if err := l.include(e); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if value := l.getenv.value(name); value != "" {
			l.entries = append(l.entries, Entry{Key: name, Value: value})
		}
	}
	return nil
}

// parameters is the variable in which git hands over the settings of its option -c.
const parameters = "GIT_CONFIG_PARAMETERS"

// parameters adds the settings of git -c: quoted words, NAME=VALUE or, since git 2.31,
// NAME in quotes of its own.
func (l *loader) parameters() {
	s := &scanner{reading: &reading{getenv: l.getenv}, rest: l.getenv.value(parameters)}
	for s.rest != "" {
		var word []piece
		for s.rest != "" && !strings.HasPrefix(s.rest, " ") {
			word = s.part(word)
		}
		if key, value, ok := strings.Cut(written(word), "="); ok || len(word) > 0 {
			l.entries = append(l.entries, Entry{Key: lowerKey(key), Value: value, NoValue: !ok, File: parameters})
		}
		s.rest = strings.TrimLeft(s.rest, " ")
	}
}

// unreachable reports whether a file was not read because a directory above it is
// closed or missing, or links loop.
func unreachable(file string, err error) bool {
	if err == nil {
		return false
	}
	_, err = os.Lstat(file)
	return err != nil
}

func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// hostFiles are the system's file and the user's two. The build of git decides which
// system file it reads: /etc/gitconfig for a distribution's git, one below /usr/local
// for a git that was built there.
func (l *loader) hostFiles() []string {
	var files []string
	no := Entry{Value: l.getenv.value("GIT_CONFIG_NOSYSTEM")}
	if off, _ := no.Bool(); !off {
		files = append(files, l.systemFile())
	}
	if file, set := l.getenv("GIT_CONFIG_GLOBAL"); set {
		return append(files, file)
	}
	return append(files, l.getenv.userFiles()...)
}

// allFiles lists the files of configuration outside any repository that git reads for
// this user with any set of variables, as absolute paths, whether they exist or not.
func (get Getenv) allFiles() []string {
	files := []string{"/etc/gitconfig", "/usr/local/etc/gitconfig"}
	for _, dir := range get.userDirs() {
		files = append(files, dir+"/config")
	}
	if home := get.value("HOME"); home != "" {
		files = append(files, home+"/.gitconfig")
	}
	for _, name := range []string{"GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"} {
		if file := get.value(name); file != "" {
			files = append(files, absolute(file))
		}
	}
	return slices.DeleteFunc(files, func(file string) bool { return !path.IsAbs(file) })
}

// lists are the files that git reads without a setting, besides its configuration.
func (get Getenv) lists() []string {
	files := []string{"/etc/gitattributes"}
	for _, dir := range get.userDirs() {
		files = append(files, dir+"/attributes", dir+"/ignore")
	}
	return files
}

// userDirs are the directories that hold the user's files for git.
func (get Getenv) userDirs() []string {
	dirs := []string{get.userConfig()}
	if home := get.value("HOME"); home != "" {
		dirs = append(dirs, home+"/.config/git")
	}
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return !path.IsAbs(dir) })
}

func (get Getenv) userFiles() []string {
	var files []string
	if dir := get.userConfig(); dir != "" {
		files = append(files, dir+"/config")
	}
	if home := get.value("HOME"); home != "" {
		files = append(files, home+"/.gitconfig")
	}
	return files
}

// userConfig is the directory of the user's files for git, or "".
func (get Getenv) userConfig() string {
	if xdg := get.value("XDG_CONFIG_HOME"); xdg != "" {
		return xdg + "/git"
	}
	if home := get.value("HOME"); home != "" {
		return home + "/.config/git"
	}
	return ""
}

func (l *loader) systemFile() string {
	if file, set := l.getenv("GIT_CONFIG_SYSTEM"); set {
		return file
	}
	const usual, local = "/etc/gitconfig", "/usr/local/etc/gitconfig"
	if _, err := os.Lstat(usual); err != nil {
		return local
	}
	return usual
}

// file reads one file and, at the place of each include, the included file.
func (l *loader) file(name string) error {
	if l.every && l.visited[name] {
		return nil
	}
	text, err := readAt(unix.AT_FDCWD, name, 0, min(maxFile, maxTotal-l.total))
	if err != nil {
		return fmt.Errorf("cannot read %q: %w", name, err)
	}
	l.total += int64(len(text))
	if l.every {
		if l.visited == nil {
			l.visited = map[string]bool{}
		}
		l.visited[name] = true
	}
	entries, bad := Parse(name, text)
	for _, e := range entries {
		l.entries = append(l.entries, e)
		if err := l.include(e); err != nil {
			return err
		}
	}
	return l.forgiven(bad)
}

// forgiven drops an error if every is set.
func (l *loader) forgiven(err error) error {
	if l.every {
		return nil
	}
	return err
}

// included is a file, with its entries and those of the files that it includes.
type included struct {
	file    string
	entries []Entry
}

// include reads the file that an entry includes, if the entry is an include whose
// condition holds.
func (l *loader) include(e Entry) error {
	condition, conditional, ok := includes(e.Key)
	if !ok || conditional && !l.every && !l.holds(condition, e) {
		return nil
	}
	file, err := l.includedBy(e)
	if err != nil {
		return l.forgiven(err)
	}
	if l.every {
		l.targets = append(l.targets, Entry{Key: e.Key, Value: file, File: e.File, Line: e.Line})
	}
	if l.depth == maxDepth || l.includes == maxIncludes {
		return fmt.Errorf("%q, line %d: more files are included than make sense", e.File, e.Line)
	}
	from := len(l.entries)
	l.depth++
	l.includes++
	err = l.file(file)
	l.depth--
	if l.depth == 0 {
		l.tops = append(l.tops, included{file, l.entries[from:len(l.entries):len(l.entries)]})
	}
	if missing(err) {
		return nil
	}
	return err
}

// includes takes include.path and includeIf.CONDITION.path apart.
func includes(key string) (condition string, conditional, ok bool) {
	if key == "include.path" {
		return "", false, true
	}
	condition, ok = strings.CutPrefix(key, "includeif.")
	if ok {
		condition, ok = strings.CutSuffix(condition, ".path")
	}
	return condition, true, ok
}

// includedBy is the name of the file that an entry includes. A relative name is relative
// to the directory of the including file.
func (l *loader) includedBy(e Entry) (string, error) {
	if e.NoValue {
		return "", fmt.Errorf("%q, line %d: %q has no value", e.File, e.Line, e.Key)
	}
	file, ok := l.expand(e.Value)
	if !ok {
		return "", fmt.Errorf("%q, line %d: cannot expand %q", e.File, e.Line, e.Value)
	}
	if !strings.HasPrefix(file, "/") {
		dir, _ := path.Split(e.File)
		file = dir + file
	}
	return file, nil
}
