// Package blocked finds out which paths and hosts of a command's output ran into the
// fence.
//
// The words of the output, and the paths of system calls that failed, are only questions. A fact follows from the plan and the
// host: a path exists on the host and is not in the sandbox; or the host lets the user
// write where the plan does not. If the host would have refused as well, or has
// nothing there either, there is no fact.
//
// The command chooses the words, and a model reads the facts. So a command can
// learn which names the user can see on the host, and no other fact. It learns nothing of
// names behind a mask, behind --deny and --deny-read, among the session directories, or
// below a directory that another user has closed, also if the caller is root.
//
// The facts name no option that pk refuses, or that shows credentials.
package blocked

import (
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/gitconfig"
	"pikuri/lib/hostrule"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/lazy"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/mountinfo"
	"pikuri/lib/pattern"
	"pikuri/lib/session"
	"pikuri/lib/toolchain"
	"pikuri/lib/trace"
)

// Fact is a path or a host that the command could not reach, or a file that is lost. A
// record in JSON sets the twins in base64, of names that are not UTF-8.
type Fact struct {
	Path       string `json:"path,omitempty"` // as called in the sandbox
	PathBase64 string `json:"path_base64,omitempty"`
	Word       string `json:"word,omitempty"` // of the output that led to it
	WordBase64 string `json:"word_base64,omitempty"`

	Host   string `json:"host,omitempty"`
	Access Access `json:"access"`
	Rule   string `json:"rule,omitempty"`   // of the plan
	Option string `json:"option,omitempty"` // that would allow it; "" for none
}

// Access is the kind of refusal.
type Access string

// The kinds of access.
const (
	NotShown  Access = "not shown" // the host has it, the sandbox does not
	ReadOnly  Access = "read-only" // the user can write it on the host
	Masked    Access = "masked"    // a mask hides it
	Protected Access = "protected" // it lies in a writable root, and cannot be written or moved
	NoNetwork Access = "no network"
	Lost      Access = "lost" // the command wrote it, in a place that ends with the command
)

// Most is how many facts a command has at most.
const Most = 5

// Bounds of the work. A word costs some system calls for each of its components.
const (
	maxWords = 300
	maxSteps = 3000 // names in all words
	maxWord  = 1024
	maxText  = 64 << 10 // of the end of the output
)

// Line is the fact in words. home is shortened to ~.
func (f Fact) Line(home string) string {
	line := fmt.Sprintf("%s is %s", bwrap.Quoted(f.Path), f.Access)
	switch f.Access {
	case NoNetwork:
		if line = string(f.Access); f.Host != "" {
			line += ": " + f.Host
		}
	case Lost:
		line = fmt.Sprintf("wrote %s, which is lost with the command", bwrap.Quoted(f.Path))
	}
	if f.Rule != "" {
		line += fmt.Sprintf(" (%s)", strings.ReplaceAll(f.Rule, "default: ", ""))
	}
	switch {
	case f.Option == "":
	case f.Access == NotShown:
		line += fmt.Sprintf("; %s shows it", f.Option)
	case f.Access == Lost:
		line += fmt.Sprintf("; %s keeps it", f.Option)
	default:
		line += fmt.Sprintf("; %s allows it", f.Option)
	}
	if home == "" || home == "/" {
		return line
	}
	return strings.TrimPrefix(strings.ReplaceAll(" "+line, " "+home+"/", " ~/"), " ")
}

// Command is a command that has ended.
type Command struct {
	Plan   *bwrap.Plan
	Dir    string              // the working directory at the start, as called in the sandbox; "": not known
	Text   string              // of the command
	Getenv func(string) string // the caller's environment
	Closed func(string) bool   // reports whether the machine's policy refuses an option; nil: none
	Traced bool                // its system calls were traced
	Failed []trace.Failure     // those that failed, the latest first
}

// Find returns the refusals of the fence, by the kept output of a command that failed, and
// by its system calls.
func (c Command) Find(output string) []Fact {
	if output == "" && len(c.Failed) == 0 {
		return nil
	}
	s := c.search()
	s.where = c.where(s.home, output)
	s.output(output)
	s.calls()
	return outermost(s.found)
}

func (s *search) output(output string) {
	lines := slices.Collect(strings.Lines(output[max(0, len(output)-maxText):]))
	for _, line := range slices.Backward(lines) { // the cause is near the end
		if s.done() {
			break
		}
		if n := len(s.found); complains().MatchString(line) {
			s.line(line)
			slices.Reverse(s.found[n:])
		}
	}
	slices.Reverse(s.found)
}

// outermost leaves out what the option of another fact shows as well.
func outermost(found []Fact) []Fact {
	return slices.DeleteFunc(slices.Clone(found), func(f Fact) bool {
		return f.Access == NotShown && slices.ContainsFunc(found, func(o Fact) bool {
			return o.Access == NotShown && o.Option != "" && o.Path != f.Path && fsat.Within(f.Path, o.Path)
		})
	})
}

func (s *search) done() bool {
	return s.words > maxWords || s.steps > maxSteps || len(s.found) >= Most
}

// complaint is the meaning of a line. It is found out once for all words of the line, which
// may be long.
type complaint struct {
	readOnly, busy, creates, missing bool

	device bool // a device cannot be made

	other bool // a cause that a name which is not there cannot have
}

func read(line string) complaint {
	says := complaint{readOnly: readOnly().MatchString(line), busy: busy().MatchString(line), creates: creates().MatchString(line), missing: missing().MatchString(line),
		device: device().MatchString(line)}
	says.other = !says.missing && !says.readOnly && other().MatchString(line)
	return says
}

// search is the work on one command.
type search struct {
	Command
	home    string
	where   where
	base    string   // of the session directories; "" for none
	hidden  []string // directories of the caller's PATH that are not shown
	inside  []string // directories of PATH in the sandbox
	words   int
	steps   int
	found   []Fact
	secrets func() func(path string) bool
}

func (c Command) search() *search {
	s := &search{Command: c, home: c.Getenv("HOME")}
	s.base, _ = session.Base(c.Getenv)
	for _, dir := range filepath.SplitList(c.Getenv("PATH")) {
		if filepath.IsAbs(dir) && c.Plan.Explain(dir).Access == bwrap.Absent {
			s.hidden = append(s.hidden, dir)
		}
	}
	for _, kv := range c.Plan.Env {
		if dirs, ok := strings.CutPrefix(kv, "PATH="); ok {
			s.inside = filepath.SplitList(dirs)
		}
	}
	s.secrets = sync.OnceValue(func() func(string) bool {
		host := toolchain.Host{Home: s.home, Getenv: c.Getenv}
		table, err := toolchain.LoadFor(host)
		return func(path string) bool { return err != nil || table.Danger(host, path) != "" }
	})
	return s
}

// Messages in which programs complain of a path or a host.
var (
	complains  = lazy.Regexp(`(?i:not a git|no such|not found|cannot|can't|couldn.t|could not|unable|fail|error|denied|not permitted|read-only|exist|missing|invalid|busy|resolve|unreachable)|\bE[A-Z]{4,}\b`)
	readOnly   = lazy.Regexp(`(?i)read-only file ?system|\bEROFS\b`)
	busy       = lazy.Regexp(`(?i)resource busy|\bEBUSY\b`)
	creates    = lazy.Regexp(`(?i)creat|touch|writ|\bsav|^tee:`)
	missing    = lazy.Regexp(`(?i)no such file|not found|\bENOENT\b`)
	device     = lazy.Regexp(`(?i)(?:special file|mknod).*operation not permitted`)
	noFile     = lazy.Regexp(`(?i)no such file|\bENOENT\b`)
	other      = lazy.Regexp(`(?i)permission denied|already exists|is a directory|not empty|connection refused|in use|timed out|\b(?:EACCES|EEXIST|EISDIR|ENOTEMPTY|ECONNREFUSED|EADDRINUSE)\b`)
	noNetwork  = lazy.Regexp(`(?i)resolve host|resolve hostname|failure resolving|name resolution|name or service not known|no such host|network is unreachable|\b(?:ENOTFOUND|EAI_AGAIN|ENETUNREACH)\b|failed to resolve`) // not "FileNotFoundError"
	connects   = lazy.Regexp(`(?i)failed to connect to (\S+) port [0-9]`)                                                                                                                                                   // curl does not say why
	hostName   = lazy.Regexp(`(?i)(?:host|hostname|address(?: for)?|ENOTFOUND|EAI_AGAIN|lookup|resolve|resolving)[\s:'"‘(]+([a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+)`)
	quoted     = lazy.Regexp("(?:^|[\\s(\\[:=,])(?:['\"`]([^'\"`]+)['\"`]|[‘“]([^’”]+)[’”])")
	apostrophe = lazy.Regexp(`(?:^|[\s(\[:=,])(?:"([^"]*'[^"]*)"|'((?:[^']*'\\'')+[^']*)'|(/[^\s'"]*'[^\s"]*):\s)`) // of GNU programs, Python and, without quotes, bash
	number     = lazy.Regexp(`^[0-9]+$`)
)

// line looks at the words of one line.
func (s *search) line(line string) {
	if match := connects().FindStringSubmatch(line); match != nil && s.noNetwork() {
		if a, err := netip.ParseAddr(match[1]); err == nil && !a.IsLoopback() && !a.IsUnspecified() {
			s.offline(match[1])
			return
		}
	}
	if noNetwork().MatchString(line) && s.noNetwork() {
		host := ""
		if match := hostName().FindStringSubmatch(line); match != nil {
			host = match[1]
		}
		s.offline(host)
		return
	}
	if strings.Contains(line, "not a git repository") {
		s.repository()
	}
	says, before := read(line), len(s.found)
	var names []string
	for word, named := range words(line) {
		s.words++
		s.steps += strings.Count(word, "/")
		if s.done() {
			return
		}
		if word == "" || len(word) > maxWord {
			continue
		}
		if !strings.Contains(word, "/") && says.missing && (named || isProgram(word, line)) {
			s.program(word)
		}
		if named {
			s.word(word, line, says)
			names = append(names, word)
		}
	}
	for _, word := range names {
		if path := s.place(word); path != "" && says.missing && len(s.found) == before && !s.redirects(path) {
			s.parent(word, path)
		}
	}
}

// word looks at a word that may be a path. One like /home is often no path but an address
// of a web server: such a line has to say that a file is missing.
func (s *search) word(word, line string, says complaint) {
	path := s.place(word)
	if path == "" || filepath.Dir(path) == "/" && !noFile().MatchString(line) {
		return
	}
	if says.missing && s.redirects(path) {
		says.creates = true
	}
	find := s.path
	if says.device {
		find = s.copied
	}
	if f, ok := find(path, says); ok {
		f.Word = word
		s.add(f)
	}
}

// isProgram reports whether a line complains that a word is no program.
func isProgram(word, line string) bool {
	for _, text := range []string{word + " not found", word + " ENOENT", "not found: " + word, "directory - " + word} {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

func (s *search) add(f Fact) {
	closed := func(word string) bool { return strings.HasPrefix(word, "--") && s.Closed(word[2:]) }
	if s.Closed != nil && slices.ContainsFunc(strings.Fields(f.Option), closed) {
		f.Option = ""
	}
	same := func(o Fact) bool { return o.Path == f.Path && o.Host == f.Host && o.Access == f.Access }
	if len(s.found) < Most && !slices.ContainsFunc(s.found, same) {
		s.found = append(s.found, f)
	}
}

// noNetwork reports whether the plan has a loopback alone.
func (s *search) noNetwork() bool {
	return !s.Plan.Net && (s.Plan.Gate == nil || !s.Plan.Gate.Allow)
}

// offline: the plan has no network, so the host does not matter.
func (s *search) offline(host string) {
	f := Fact{Host: host, Access: NoNetwork, Rule: "option --net none"}
	if _, err := hostrule.Parse(host); err == nil && !strings.HasSuffix(host, ".invalid") { // RFC 6761: there is none
		f.Option = "--net allow --allow-host " + host
	}
	s.add(f)
}

// repository finds the repository around the project root.
func (s *search) repository() {
	repo, ok := gitconfig.Around(s.Plan.Chdir)
	name := filepath.Join(repo.WorkTree, ".git")
	v := s.Plan.Explain(name)
	if !ok || repo.WorkTree == s.Plan.Chdir || !s.within(repo.WorkTree) || v.Access != bwrap.Absent || !s.inView(name) {
		return
	}
	f := Fact{Path: name, Word: ".git", Access: NotShown, Rule: v.Rule}
	if s.root(repo.WorkTree) != "" { // the project lies in it
		f.Option = option("-C", repo.WorkTree)
	}
	s.add(f)
}

// words yields the words of a line, and whether a word may be a path: it has a slash, or
// stands in quotes, or before a colon ("cat: NAME: Permission denied").
func words(line string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, match := range quoted().FindAllStringSubmatch(line, -1) {
			if !yield(match[1]+match[2], true) {
				return
			}
		}
		for _, match := range apostrophe().FindAllStringSubmatch(line, -1) {
			if !yield(match[1]+strings.ReplaceAll(match[2], `'\''`, "'")+match[3], true) {
				return
			}
		}
		for i, token := range strings.Fields(line) {
			parts := strings.FieldsFunc(token, func(r rune) bool { return strings.ContainsRune(":'\"`‘’“”«»()[]{}<>,;=|&", r) })
			for j, word := range parts {
				if at := strings.IndexByte(word, '/'); at > 0 && word[0] == '-' {
					word = word[at:] // -I/opt/include
				}
				named := i > 0 && j == len(parts)-1 && strings.HasSuffix(token, ":") && !number().MatchString(word)
				if !yield(strings.TrimRight(word, ".!?"), named || strings.Contains(word, "/")) {
					return
				}
			}
		}
	}
}

// program looks for a program that the caller has in a directory of PATH that is not
// shown.
func (s *search) program(name string) {
	if len(s.hidden) == 0 || s.Plan.FindCommand(name) == nil {
		return
	}
	for _, dir := range s.hidden {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) != nil || !s.inView(path) {
			continue
		}
		f := s.notShown(path, s.Plan.Explain(path))
		switch real := bwrap.Canonical(path); {
		case !fsat.Within(real, bwrap.Canonical(dir)) && s.Plan.Explain(real).Access == bwrap.Absent:
			f.Option = s.readable(around(dir, real)) // npm's programs are links
		case info.Mode()&0o004 != 0 && s.mayShow(path) && s.mayShow(dir): // programs are no credentials
			f.Option = option("--readable", dir)
		}
		f.Word = name
		s.add(f)
		return
	}
}

// around is the innermost directory that holds both paths.
func around(dir, path string) string {
	for !fsat.Within(path, dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

// path compares a path with the plan and the host.
func (s *search) path(path string, says complaint) (Fact, bool) {
	v := s.Plan.Explain(path)
	if s.base != "" && fsat.Within(v.Place, s.base) || mountsByName(s.Plan.Table(), v.Place) {
		return Fact{}, false
	}
	m := s.mount(v.Mount)
	switch {
	case v.Access == bwrap.Hidden && says.missing && v.Place == v.Mount && !m.Blank:
		return Fact{}, false // it is there, and cannot be opened
	case v.Access == bwrap.Hidden:
		return Fact{Path: v.Mount, Access: Masked, Rule: m.Rule}, true
	case says.busy:
		return s.fixed(v.Place)
	case says.readOnly:
		return s.unwritable(v, m)
	case v.Access != bwrap.Absent || showsHost(m):
	case says.creates:
		return s.noDirectory(v.Place)
	case !says.other && s.inView(v.Place) && mayUse(v.Place):
		return s.notShown(v.Place, v), true
	}
	return Fact{}, false
}

// parent finds the directory of a name that neither the host has. A line does not say
// whether the command wanted to read it or to make it, but its directory is not shown
// either way. A directory of settings is no fact: programs look there for what few users have.
func (s *search) parent(word, path string) {
	dir := filepath.Dir(s.Plan.Explain(path).Place)
	v := s.Plan.Explain(dir)
	if v.Access != bwrap.Absent || showsHost(s.mount(v.Mount)) || !s.inView(dir) || !mayUse(dir) {
		return
	}
	if f := s.notShown(dir, v); f.Option != "" {
		f.Word = filepath.Dir(word)
		s.add(f)
	}
}

// noDirectory finds the directory that a command needed to make a file: the path, or its
// parent.
func (s *search) noDirectory(path string) (Fact, bool) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		path = filepath.Dir(path)
	}
	v := s.Plan.Explain(path)
	if v.Access != bwrap.Absent || showsHost(s.mount(v.Mount)) || !s.inView(v.Place) || !mayWrite(v.Place) {
		return Fact{}, false
	}
	f := s.notShown(v.Place, v)
	f.Option = s.writable(v.Place)
	return f, true
}

// mayUse asks the host. Where the user can neither read, write nor run a file there, the
// fence is not the cause.
func mayUse(path string) bool {
	return slices.ContainsFunc([]uint32{unix.R_OK, unix.W_OK, unix.X_OK}, func(mode uint32) bool {
		return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS) == nil
	})
}

// mayWrite reports whether the host lets the user write.
func mayWrite(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}

// mount is the mount at a place, but for pins; the zero Mount if there is none.
func (s *search) mount(place string) (found bwrap.Mount) {
	for _, m := range s.Plan.Mounts {
		if m.Dest == place && m.Op != bwrap.OpPin {
			found = m
		}
	}
	return found
}

// showsHost reports whether paths below the mount are the same on the host. The command
// may have removed a path that is missing.
func showsHost(m bwrap.Mount) bool {
	switch m.Op {
	case bwrap.OpReadOnly, bwrap.OpWritable, bwrap.OpOverlay, bwrap.OpProtect:
		return m.Source == m.Dest
	case bwrap.OpProc, bwrap.OpDev:
		return m.Dest == "/proc"
	}
	return false
}

func (s *search) notShown(place string, v bwrap.Verdict) Fact {
	f := Fact{Path: place, Access: NotShown, Rule: v.Rule, Option: s.readable(place)}
	if v.Mount == "" {
		f.Rule = ""
	}
	return f
}

// fixed finds a mount point, which the kernel neither renames nor removes. sed -i names the
// file that it could not rename, and has removed it: then the mount point lies beside.
func (s *search) fixed(place string) (Fact, bool) {
	at := slices.IndexFunc(s.Plan.Mounts, func(m bwrap.Mount) bool { return m.Dest == place })
	if _, err := os.Lstat(place); at < 0 && fsat.Absent(err) {
		at = s.only(func(m bwrap.Mount) bool {
			return m.Op == bwrap.OpProtect && filepath.Dir(m.Dest) == filepath.Dir(place) && s.names(filepath.Base(m.Dest))
		})
	}
	if at < 0 {
		return Fact{}, false
	}
	return Fact{Path: s.Plan.Mounts[at].Dest, Access: Protected, Rule: s.Plan.Mounts[at].Rule}, true
}

// names reports whether the text of the command has a path with a name at its end.
func (s *search) names(name string) bool {
	for word := range words(s.Text) {
		if filepath.Base(word) == name {
			return true
		}
	}
	return false
}

// only is the index of the one mount that a test finds; -1 for none, and for several.
func (s *search) only(test func(bwrap.Mount) bool) int {
	at := slices.IndexFunc(s.Plan.Mounts, test)
	if at >= 0 && slices.ContainsFunc(s.Plan.Mounts[at+1:], test) {
		return -1
	}
	return at
}

// copied finds a masked file, which is a device node, by the path of its copy: no device can
// be made in a sandbox. Of several that end alike it names none.
func (s *search) copied(path string, _ complaint) (Fact, bool) {
	most, at := 0, -1
	for i, m := range s.Plan.Mounts {
		if m.Op != bwrap.OpMask || m.Dir || m.Blank {
			continue
		}
		switch n := alike(m.Dest, path); {
		case n > most:
			most, at = n, i
		case n == most:
			at = -1
		}
	}
	if at < 0 {
		return Fact{}, false
	}
	return Fact{Path: s.Plan.Mounts[at].Dest, Access: Masked, Rule: s.Plan.Mounts[at].Rule}, true
}

// alike counts the names at the ends of two paths that are the same.
func alike(a, b string) (n int) {
	for a != "/" && b != "/" && filepath.Base(a) == filepath.Base(b) {
		n, a, b = n+1, filepath.Dir(a), filepath.Dir(b)
	}
	return n
}

// unwritable finds a path that only the plan makes read-only.
func (s *search) unwritable(v bwrap.Verdict, m bwrap.Mount) (Fact, bool) {
	there := existing(v.Place)
	if !mayWrite(there) || !s.inView(there) {
		return Fact{}, false
	}
	f := Fact{Path: v.Place, Access: ReadOnly, Rule: m.Rule}
	switch m.Op {
	case bwrap.OpProtect:
		f.Access = Protected
	case bwrap.OpReadOnly:
		f.Option = s.widened(v.Place, m)
	case "", bwrap.OpEmpty:
		f.Option = s.writable(there)
	case bwrap.OpCopy, bwrap.OpData:
	default:
		return Fact{}, false
	}
	return f, true
}

// widened is the option for a place in a tree that is shown read-only.
func (s *search) widened(place string, m bwrap.Mount) string {
	switch below := strings.TrimPrefix(place, m.Dest+"/"); {
	case m.Root && strings.Contains(m.Rule, "--allow-write") && (below == place || existing(place) != place):
		return "" // the rule is for existing names
	case m.Root && strings.Contains(m.Rule, "--allow-write"):
		return option("--allow-write", pattern.Quote(below))
	case m.Root:
		return s.root(m.Dest)
	case strings.HasPrefix(m.Rule, "toolchain ") && !slices.Contains(s.Plan.Degraded, m.Dest) && !s.secrets()(m.Dest):
		return option("--overlay", m.Dest)
	}
	return ""
}

// option is an option as a shell takes it: the name may be the command's choice, and the
// user may type the line. It is "" if the name could not be read where it is shown.
func option(name, operand string) string {
	if !utf8.ValidString(operand) || strings.HasPrefix(operand, "-") || strings.ContainsFunc(operand, func(r rune) bool { return !unicode.IsPrint(r) || r == '\'' }) {
		return ""
	}
	return name + " " + shellword.Word(operand)
}

// existing is the innermost part of path that the host has.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// inView reports whether path exists where the user can see it without looking into a
// directory of another user. Root could look everywhere.
func (s *search) inView(path string) bool {
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	trail, err := confine.Follow(filepath.Dir(path))
	if err != nil {
		return false
	}
	// A link of the host's may lead to a hidden file.
	real := s.Plan.Explain(filepath.Join(trail.Place, filepath.Base(path)))
	secret := real.Access == bwrap.Hidden || s.base != "" && fsat.Within(real.Place, bwrap.Canonical(s.base))
	return !secret && ours(filepath.Dir(path)) && ours(trail.Place)
}

// mountsByName reports whether the kernel would ask a server for a name at path. The
// command has chosen the name: the server could learn the command's secrets from it.
func mountsByName(table []mountinfo.Mount, path string) bool {
	var around mountinfo.Mount
	for _, m := range table {
		if fsat.Within(path, m.Point) && len(m.Point) >= len(around.Point) {
			around = m
		}
	}
	return path != around.Point && slices.Contains([]string{"autofs", "afs"}, around.Type)
}

// ours reports whether a directory and all above it belong to root or to the user, or are
// open to all users.
func ours(dir string) bool {
	for {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Uid != 0 && int(st.Uid) != os.Geteuid() && st.Mode&0o005 != 0o005 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// readable is the option that shows a file or a directory, "" if pk refuses it or it may
// hold credentials.
func (s *search) readable(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() || !s.open(path) || info.IsDir() && s.keepsSettings(path) || !s.mayShow(path) {
		return ""
	}
	return option("--readable", path)
}

// open reports whether neither a path nor a directory that leads to it from the home, or
// from the root directory, is hidden or closed to other users. Such a one may hold
// credentials: no list knows them all.
func (s *search) open(path string) bool {
	homes := []string{s.home, bwrap.Canonical(s.home)}
	for _, at := range []string{path, bwrap.Canonical(path)} {
		for ; at != "/" && !slices.Contains(homes, at); at = filepath.Dir(at) {
			info, err := os.Stat(at)
			if err != nil || strings.HasPrefix(filepath.Base(at), ".") || info.Mode()&0o004 == 0 || info.IsDir() && info.Mode()&0o001 == 0 {
				return false
			}
		}
	}
	return true
}

// ofServices are directories in which services keep settings and data.
var ofServices = []string{"/etc", "/var/backups", "/var/lib", "/var/log", "/var/mail", "/var/spool"}

// keepsSettings reports whether a directory is one of settings and data of services, which
// may be credentials.
func (s *search) keepsSettings(dir string) bool {
	return slices.ContainsFunc([]string{dir, bwrap.Canonical(dir)}, func(place string) bool {
		return !fsat.Within(place, s.home) && slices.ContainsFunc(ofServices, func(top string) bool { return fsat.Within(place, top) })
	})
}

// writable is the option that shows a directory writable, "" if pk refuses it or it may
// hold credentials.
func (s *search) writable(dir string) string {
	if !s.open(dir) || s.keepsSettings(dir) {
		return ""
	}
	return s.root(dir)
}

// root is writable for a directory that is shown.
func (s *search) root(dir string) string {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || confine.DeniedRoot(bwrap.Canonical(dir), s.home) || !s.mayShow(dir) {
		return ""
	}
	return option("--writable", dir)
}

// closed reports whether a place outside of the home is closed to other users, and open to
// the caller because of a group, or because the caller is root: /etc/shadow is one.
func (s *search) closed(path string) bool {
	var st unix.Stat_t
	if fsat.Within(path, s.home) || unix.Stat(path, &st) != nil {
		return false
	}
	return st.Mode&0o004 == 0 && (os.Geteuid() == 0 || int(st.Uid) != os.Geteuid())
}

func (s *search) mayShow(path string) bool {
	foreignTmp := s.mount("/tmp") // a --temp: nothing is mounted in it
	for _, place := range []string{path, bwrap.Canonical(path)} {
		switch {
		case fsat.Within(place, "/proc"), fsat.Within(place, "/dev"), fsat.Within(place, "/sys"):
			return false
		case fsat.Within(place, "/tmp") && foreignTmp.Op == bwrap.OpWritable && !foreignTmp.Own:
			return false
		case s.base != "" && fsat.Within(s.base, place):
			return false
		case s.secrets()(place), s.closed(place), bwrap.CheckRoot(place, s.home, s.Getenv) != nil:
			return false
		}
	}
	return true
}
