package gitconfig

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of the composed files, relative to the home in the sandbox. Excludes and
// Attributes are not in ~/.config, where they would be expected: that may be a
// symbolic link.
const (
	ConfigName     = ".gitconfig"
	ExcludesName   = ".gitignore_global"
	AttributesName = ".gitattributes_global"
)

// maxLists bounds the excludes and the attributes, in bytes.
const maxLists = 1 << 20

// Composed is the user's git configuration for a sandbox, reduced to data.
type Composed struct {
	Config     []byte            // of ConfigName
	Excludes   []byte            // of ExcludesName; nil for none
	Attributes []byte            // of AttributesName; nil for none
	Included   map[string][]byte // of files in the home that the repository's configuration includes, by their names there
	Env        []string          // the settings of GIT_CONFIG_COUNT that are data, and pk's own, as variables
	Missing    []string          // filters and merge drivers whose programs are not in the sandbox, for people
	Notes      []string          // files that could not be read, for people
}

// own are settings of pk's. Automatic packing costs time, and a sandbox that lives for
// one command gains nothing by it.
var own = []Entry{{Key: "gc.auto", Value: "0"}, {Key: "maintenance.auto", Value: "false"}}

// WholeIndex are settings with which git always writes a whole index. A split or a
// sparse one cannot be checked, so it would not land.
var WholeIndex = []Entry{{Key: "core.splitindex", Value: "false"}, {Key: "index.sparse", Value: "false"}}

// Compose makes the configuration for git in a sandbox that works in dir, an absolute
// path: from the system's and the user's files, with the includes that git would follow
// in dir, and from GIT_CONFIG_COUNT. Of the repository around dir, unless it is another user's, it reads the
// included files, and the conditions of includeIf look at it.
//
// set are further settings, which hold over all of these.
//
// The keys are those of an allow-list. A filter, merge driver or diff program is among
// them if has says that the sandbox has its program. A filter that is required stays
// required without its program: git then refuses to add or check out a file, instead of
// storing it unfiltered.
//
// Where git would stop, at a broken file, only pk's own settings are left, and Notes
// says why.
func Compose(dir string, getenv Getenv, has func(program string) bool, set ...Entry) Composed {
	l := &loader{getenv: getenv, at: discover(dir)}
	l.distrust()
	err := l.host()
	if err == nil {
		err = l.environment()
	}
	var c Composed
	for _, file := range l.closed {
		c.Notes = append(c.Notes, fmt.Sprintf("cannot read %q: permission denied", file))
	}
	if err != nil {
		if !errors.Is(err, unix.EMFILE) { // with EMFILE the start itself fails
			c.Notes = append(c.Notes, fmt.Sprintf("git in the sandbox goes without the user's configuration: %v", err))
		}
		l.entries = nil
	}
	c.Excludes = c.list(l, "core.excludesfile", "ignore")
	c.Attributes = c.list(l, "core.attributesfile", "attributes")
	known := map[string]bool{} // a program is named by several keys
	s := selection{has: func(program string) bool {
		if _, ok := known[program]; !ok {
			known[program] = has(program)
		}
		return known[program]
	}}
	for _, e := range l.entries {
		s.add(e)
	}
	if l.at.gitDir != "" {
		c.Missing = s.missing()
	}
	if c.Excludes != nil {
		s.kept = append(s.kept, Entry{Key: "core.excludesfile", Value: "~/" + ExcludesName})
	}
	if c.Attributes != nil {
		s.kept = append(s.kept, Entry{Key: "core.attributesfile", Value: "~/" + AttributesName})
	}
	repository := c.repository(l, s.has)
	signs := func(key string, in []Entry) bool {
		e, _ := last(in, key)
		on, _ := e.Bool()
		return on
	}
	for _, key := range signatures {
		if signs(key, repository) {
			set = append(slices.Clone(set), Entry{Key: key, Value: "false"})
		}
	}
	inEnv := func(e Entry) bool { return e.File == counter }
	c.Env = environ(append(slices.DeleteFunc(slices.Clone(s.kept), func(e Entry) bool { return !inEnv(e) }), set...))
	text := "# The user's git configuration, reduced to data. pk writes it anew for each command.\n"
	for _, line := range s.missing() {
		text += "# " + line + "\n"
	}
	for _, key := range signatures {
		if signs(key, slices.Concat(l.entries, repository)) {
			text += "# " + key + " is off: no key to sign with is in the sandbox\n"
		}
	}
	c.Config = append([]byte(text), Format(append(slices.DeleteFunc(s.kept, inEnv), own...))...)
	return c
}

var signatures = []string{"commit.gpgsign", "tag.gpgsign", "push.gpgsign"}

// repository returns the entries of the repository of a loader. It adds the files that they include: git in the sandbox
// reads them at the same places.
func (c *Composed) repository(of *loader, has func(string) bool) []Entry {
	l := &loader{getenv: of.getenv, at: of.at}
	if l.repository() != nil {
		return nil // git stops there, in the sandbox too
	}
	for _, in := range l.tops {
		name, inside := strings.CutPrefix(path.Clean(in.file), l.getenv.value("HOME")+"/")
		if !inside || slices.Contains([]string{ConfigName, ExcludesName, AttributesName}, name) {
			continue
		}
		s := selection{has: has}
		for _, e := range in.entries {
			s.add(e)
		}
		if c.Included == nil {
			c.Included = map[string][]byte{}
		}
		c.Included[name] = Format(s.kept)
	}
	return l.entries
}

// ExcludesFile returns the absolute path of the user's list of files that git ignores in
// every repository, "" for none. Git in dir reads this list unless dir's repository names
// another one.
func ExcludesFile(dir string, getenv Getenv) string {
	l := &loader{getenv: getenv, at: discover(dir)}
	l.distrust()
	if l.host() != nil || l.environment() != nil {
		return ""
	}
	return l.listFile("core.excludesfile", "ignore")
}

// listFile returns the absolute path in the setting key, or the user's default.
func (l *loader) listFile(key, usual string) string {
	e, set := last(l.entries, key)
	file, ok := l.expand(e.Value)
	if !set {
		if dir := l.getenv.userConfig(); dir != "" {
			file = dir + "/" + usual
		}
	}
	if !ok || !strings.HasPrefix(file, "/") {
		return ""
	}
	return file
}

// list reads the file that key names, or the user's default one. The system's
// attributes come before the user's, as git reads them.
func (c *Composed) list(l *loader, key, usual string) []byte {
	var text []byte
	read := func(file string) {
		more, err := readAt(unix.AT_FDCWD, file, 0, maxLists-int64(len(text)))
		if err != nil && !missing(err) && !unreachable(file, err) && !errors.Is(err, unix.EMFILE) {
			c.Notes = append(c.Notes, fmt.Sprintf("git in the sandbox goes without %q: %v", file, err))
		}
		if len(text) > 0 && len(more) > 0 {
			text = append(bytes.TrimSuffix(text, []byte("\n")), '\n')
			more = bytes.TrimPrefix(more, []byte("\ufeff"))
		}
		text = append(text, more...)
	}
	no := Entry{Value: l.getenv.value("GIT_ATTR_NOSYSTEM")}
	if off, _ := no.Bool(); key == "core.attributesfile" && !off {
		read("/etc/gitattributes")
	}
	if file := l.listFile(key, usual); file != "" {
		read(file)
	}
	return text
}

// environ writes settings as git reads them from the environment.
func environ(entries []Entry) []string {
	if len(entries) == 0 {
		return nil
	}
	env := []string{fmt.Sprintf("%s=%d", counter, len(entries))}
	for i, e := range entries {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, e.Key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, e.Value))
	}
	return env
}

// selection is the part of a configuration that a sandbox gets.
type selection struct {
	has  func(program string) bool
	kept []Entry
	lost []Entry // filters and merge drivers without their program
}

// add keeps or drops one entry. The last entry of a key holds: dropping it drops
// earlier ones too, unless all of them count.
func (s *selection) add(e Entry) {
	section, sub, _, _ := splitKey(e.Key)
	is := kindOf(e.Key)
	if is == leftOut {
		return
	}
	same := func(old Entry) bool { return old.Key == e.Key }
	s.lost = slices.DeleteFunc(s.lost, same)
	ok := !secret(e.Value) && !secret(sub)
	switch is {
	case isProgram:
		ok = ok && s.program(e.Value) == ""
		if !ok && section != "diff" {
			s.lost = append(s.lost, e)
		}
	case isURL:
		_, isRemote := parseURL(e.Value)
		ok = ok && (isRemote || e.Value == "")
	case isURLSub:
		u, isRemote := parseURL(sub)
		// Without the user's key, ssh cannot fetch a repository that https can.
		ok = ok && isRemote && !((u.scheme == "ssh" || u.scheme == "") && strings.HasSuffix(e.Key, ".insteadof") && strings.Contains(e.Value, "://"))
	case isAlias:
		ok = ok && !strings.HasPrefix(e.Value, "!") && !strings.Contains(strings.ToLower(e.Value), "extraheader")
	}
	if ok {
		s.kept = append(s.kept, e)
	} else if is != isURLSub {
		s.kept = slices.DeleteFunc(s.kept, same)
	}
}

// program returns the program of a shell's command that the sandbox lacks, or "".
func (s *selection) program(command string) string {
	fields := strings.Fields(command)
	if len(fields) == 0 {
		return ""
	}
	program := strings.Trim(fields[0], `"'`)
	if program == "git" && len(fields) > 1 {
		program = "git-" + fields[1]
		if s.has("/usr/lib/git-core/" + program) {
			return ""
		}
	}
	plain := strings.TrimFunc(program, func(r rune) bool {
		return r < 0x80 && (isKey(byte(r)) || strings.ContainsRune("._+/", r))
	}) == ""
	if !plain || strings.Contains(program, "/") && program[0] != '/' || !s.has(program) {
		return program
	}
	return ""
}

// missing returns a line for each filter and driver that was lost.
func (s *selection) missing() []string {
	var lines []string
	for _, e := range s.lost {
		section, sub, _, _ := splitKey(e.Key)
		what := "filter"
		if section == "merge" {
			what = "merge driver"
		}
		line := fmt.Sprintf("git %s %q is not in the sandbox: %q is missing", what, sub, s.program(e.Value))
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
