package gitconfig

import (
	"path"
	"slices"
	"strings"

	"pikuri/lib/internal/lazy"
)

// reading is a command line of a configuration as a shell reads it, reduced to the words
// that may name files. A word too many does less harm than one too few: all branches are
// taken, and a quoted text may be a command line again. A parser of the whole grammar
// would refuse a line that is not quite a command line.
type reading struct {
	getenv Getenv
	vars   map[string][]expansion // that the line sets
	words  []mention
	made   []Entry // settings of its own: git -c NAME=VALUE, and variables of git's
	depth  int
	steps  int
	guess  int  // in how many words that are perhaps no command lines
	blind  bool // not all of it was read
	beside bool // it runs files of any name in its working directory
}

// mention is a word of a command line that may name a file.
type mention struct {
	expansion
	role  role
	guess bool // the text around it is perhaps no command line
}

type role byte

const (
	argument  role = iota
	command        // the first word of a command
	script         // that an interpreter reads
	directory      // of the commands that follow
)

// expansion is a word as the shell expands it, as far as that is known. A "." at its
// beginning may be the top of the work tree, or the git directory.
type expansion struct {
	text string // up to the first part that is not known
	rest string // of a pattern
	end  ending
}

type ending byte

const (
	whole    ending = iota
	pattern         // of the names of files
	given           // an argument of the user's, or of git's
	computed        // the output of a command, or a variable that is not set
)

const (
	maxNesting    = 16 // of brackets, and of command lines in words
	maxExpansions = 16 // of a word: a variable may have several values
	maxMentions   = 4096
	maxSteps      = 1 << 12 // texts and commands that are read: each level may read a word several times
)

func readCommand(line string, getenv Getenv) *reading {
	r := &reading{getenv: getenv}
	r.line(line)
	return r
}

// line reads a command line.
func (r *reading) line(text string) {
	s := &scanner{reading: r, rest: text}
	s.commands(false)
	if s.broken { // no shell runs it, but another program may
		r.guess++
		defer func() { r.guess-- }()
		for _, word := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\n;&|()<>'\"`$={}", c) }) {
			r.mention(argument, expansion{text: word})
		}
	}
}

// mention adds the expansions of a word, and the parts of it that may be a file's name:
// --file=NAME, -oNAME.
func (r *reading) mention(as role, word ...expansion) {
	for _, e := range word {
		if r.blind = r.blind || len(r.words) >= maxMentions; r.blind {
			return
		}
		add := func(e expansion) { r.words = append(r.words, mention{e, as, r.guess > 0}) }
		add(e)
		if as == command || as == directory {
			continue
		}
		rest := e
		if strings.HasPrefix(rest.text, "-") && len(rest.text) > 2 {
			rest.text = rest.text[2:]
			add(rest)
		}
		for range 8 {
			at := strings.IndexAny(rest.text, "=:,@")
			if at < 0 {
				break
			}
			rest.text = rest.text[at+1:]
			add(rest)
		}
	}
}

// piece is a part of a word.
type piece struct {
	text string
	kind kindOfPiece
}

type kindOfPiece byte

const (
	plain kindOfPiece = iota
	quoted
	wildcard
	parameter
	output // of a command
)

// written is a piece as text for another shell.
func (p piece) written() string {
	switch p.kind {
	case parameter:
		return "${" + p.text + "}"
	case output:
		return "$(" + p.text + ")"
	}
	return p.text
}

type scanner struct {
	*reading
	rest   string
	broken bool // a quote or a bracket has no end
}

// take takes n bytes of the rest.
func (s *scanner) take(n int) string {
	text := s.rest[:n]
	s.rest = s.rest[n:]
	return text
}

// until takes the rest up to an end, and drops the end.
func (s *scanner) until(end string) string {
	text, rest, found := strings.Cut(s.rest, end)
	s.rest, s.broken = rest, s.broken || !found
	return text
}

// commands reads commands, within brackets up to the closing one.
func (s *scanner) commands(bracket bool) {
	s.steps++
	if s.depth++; s.depth > maxNesting || s.steps > maxSteps {
		s.blind, s.rest = true, ""
	}
	defer func() { s.depth-- }()
	var words [][]piece
	var word []piece
	flush := func() {
		if word != nil {
			words, word = append(words, word), nil
		}
	}
	for s.rest != "" {
		switch c := s.rest[0]; c {
		case ' ', '\t':
			s.take(1)
			flush()
		case '<', '>':
			s.take(1)
			flush()
			if strings.HasPrefix(s.rest, "(") { // a process
				s.take(1)
				s.substitution()
			}
		case '\n', ';', '&', '|', '(', ')':
			s.take(1)
			flush()
			s.command(words)
			words = nil
			if c == '(' {
				s.commands(true)
			}
			if c == ')' && bracket {
				return
			}
		case '#':
			if word != nil {
				word = append(word, piece{text: s.take(1)})
				continue
			}
			_, s.rest, _ = strings.Cut(s.rest, "\n")
		default:
			word = s.part(word)
		}
	}
	flush()
	s.command(words)
	s.broken = s.broken || bracket
}

// part reads one part of a word.
func (s *scanner) part(word []piece) []piece {
	switch s.rest[0] {
	case '\'':
		s.take(1)
		return append(word, piece{s.until("'"), quoted})
	case '"':
		s.take(1)
		return s.double(append(word, piece{kind: quoted}))
	case '\\':
		s.take(1)
		if text := s.take(min(1, len(s.rest))); text != "\n" {
			return append(word, piece{text, quoted})
		}
		return word
	case '$':
		return append(word, s.dollar())
	case '`':
		return append(word, s.backquoted())
	case '*', '?', '[':
		if end := strings.IndexAny(s.rest, "] \t\n;&|"); s.rest[0] == '[' && (end < 0 || s.rest[end] != ']') {
			return append(word, piece{s.take(1), plain}) // the command test
		}
		return append(word, piece{s.take(1), wildcard})
	case '{':
		inner, _, found := strings.Cut(s.rest[1:], "}")
		if found && !strings.ContainsAny(inner, " \t\n;") && (strings.Contains(inner, ",") || strings.Contains(inner, "..")) {
			s.take(len(inner) + 2)
			return append(word, piece{"*", wildcard})
		}
		return append(word, piece{s.take(1), plain})
	}
	n := strings.IndexAny(s.rest, " \t\n<>;&|()'\"\\$`*?[{")
	if n < 0 {
		n = len(s.rest)
	}
	return append(word, piece{s.take(n), plain})
}

// double reads to the end of a double quote.
func (s *scanner) double(word []piece) []piece {
	for s.rest != "" {
		switch s.rest[0] {
		case '"':
			s.take(1)
			return word
		case '$':
			word = append(word, s.dollar())
		case '`':
			word = append(word, s.backquoted())
		case '\\':
			text := s.take(min(2, len(s.rest)))
			if len(text) == 2 && strings.IndexByte("$`\"\\\n", text[1]) >= 0 {
				text = strings.TrimSuffix(text[1:], "\n")
			}
			word = append(word, piece{text, quoted})
		default:
			n := strings.IndexAny(s.rest, "\"$`\\")
			if n < 0 {
				n = len(s.rest)
			}
			word = append(word, piece{s.take(n), quoted})
		}
	}
	s.broken = true
	return word
}

// backquoted reads a command substitution of the old form.
func (s *scanner) backquoted() piece {
	s.take(1)
	var text strings.Builder
	for s.rest != "" {
		c := s.take(1)
		switch {
		case c == "`":
			s.line(text.String())
			return piece{text.String(), output}
		case c == `\` && s.rest != "" && strings.IndexByte("$`\\", s.rest[0]) >= 0:
			c = s.take(1)
		}
		text.WriteString(c)
	}
	s.broken = true
	return piece{kind: output}
}

// substitution reads commands up to the bracket.
func (s *scanner) substitution() piece {
	from := s.rest
	s.commands(true)
	return piece{strings.TrimSuffix(from[:len(from)-len(s.rest)], ")"), output}
}

// dollar reads the expansion that a dollar sign begins.
func (s *scanner) dollar() piece {
	s.take(1)
	switch {
	case s.rest == "":
	case s.rest[0] == '(':
		s.take(1)
		return s.substitution()
	case s.rest[0] == '{':
		s.take(1)
		return piece{s.braced(), parameter}
	case s.rest[0] == '\'':
		s.take(1)
		return piece{strings.ReplaceAll(s.until("'"), `\`, ""), quoted}
	case strings.IndexByte("@*#?-$!0123456789", s.rest[0]) >= 0:
		return piece{s.take(1), parameter}
	default:
		if n := nameLength(s.rest); n > 0 {
			return piece{s.take(n), parameter}
		}
	}
	return piece{"$", quoted}
}

// braced reads to the brace that ends a parameter.
func (s *scanner) braced() string {
	depth := 1
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return strings.TrimSuffix(s.take(i+1), "}")
			}
		}
	}
	s.broken = true
	return s.take(len(s.rest))
}

// nameLength is the length of the variable's name at the beginning of a text.
func nameLength(text string) int {
	n := 0
	for n < len(text) && (isLetter(text[n]) || text[n] == '_' || n > 0 && '0' <= text[n] && text[n] <= '9') {
		n++
	}
	return n
}

// expand expands a word.
func (r *reading) expand(word []piece) []expansion {
	all := []expansion{{}}
	for i, p := range word {
		values := []expansion{{text: p.text}}
		switch p.kind {
		case plain:
			values[0].text = r.tildes(p.text, i == 0, i == len(word)-1)
		case wildcard:
			values = []expansion{{rest: p.text, end: pattern}}
		case parameter:
			values = r.parameter(p.text)
		case output:
			values = []expansion{printed(p.text)}
		}
		all = join(all, values)
	}
	return all
}

// join appends one of values to each expansion.
func join(all, values []expansion) []expansion {
	if len(all) == 1 && len(values) == 1 && all[0].end == whole {
		values[0].text = all[0].text + values[0].text
		return values
	}
	var longer []expansion
	for _, e := range all {
		for _, v := range values {
			switch {
			case len(longer) == maxExpansions:
				return longer
			case e.end == whole:
				v.text = e.text + v.text
			case e.end == pattern && v.end <= pattern:
				v = expansion{e.text, e.rest + v.text + v.rest, pattern}
			default:
				v = expansion{e.text, e.rest, max(e.end, v.end)}
			}
			longer = append(longer, v)
		}
	}
	return longer
}

// tildes replaces the tildes that stand for a home, at the beginning of a word and in
// an assignment.
func (r *reading) tildes(text string, first, last bool) string {
	if !strings.Contains(text, "~") {
		return text
	}
	var all strings.Builder
	for text != "" {
		n := strings.IndexAny(text, "=:") + 1
		if n == 0 {
			n = len(text)
		}
		part := text[:n]
		text = text[n:]
		if name := strings.TrimRight(part, "=:"); first && strings.HasPrefix(name, "~") && (last || strings.Contains(name, "/") || name != part) {
			l := loader{getenv: r.getenv}
			if home, ok := l.expand(name); ok {
				part = home + part[len(name):]
			}
		}
		all.WriteString(part)
		first = true
	}
	return all.String()
}

// parameter lists the values of a parameter, as it is written between braces.
func (r *reading) parameter(text string) []expansion {
	n := nameLength(text)
	name, op := text[:n], text[n:]
	if n == 0 { // $1, $@, ${#x}
		op = strings.TrimLeft(strings.TrimLeft(text, "#!"), "0123456789@*?-$")
		return append(r.otherwise(op), expansion{end: given})
	}
	values := slices.Clone(r.vars[name])
	if value, set := r.getenv(name); set && name != "PWD" {
		values = append(values, expansion{text: value})
	}
	switch name {
	case "PWD", "GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE":
		values = append(values, expansion{text: "."})
	case "GIT_PREFIX":
		values = append(values, expansion{text: "./"})
	case "LOCAL", "REMOTE", "BASE", "MERGED", "IFS":
		values = append(values, expansion{end: given})
	}
	if op != "" && op[0] != ':' && op[0] != '-' && op[0] != '=' && op[0] != '+' && op[0] != '?' { // cuts something off
		for i, v := range values {
			values[i] = expansion{text: "", end: max(v.end, computed)}
		}
	}
	values = append(values, r.otherwise(op)...)
	if len(values) == 0 {
		values = []expansion{{end: computed}}
	}
	return values
}

// otherwise lists the values that a parameter has if it is not set, or if it is.
func (r *reading) otherwise(op string) []expansion {
	op = strings.TrimPrefix(op, ":")
	if op == "" || strings.IndexByte("-=+", op[0]) < 0 {
		return nil
	}
	s := &scanner{reading: r, rest: op[1:]}
	var word []piece
	for s.rest != "" && s.depth <= maxNesting {
		n := strings.IndexAny(s.rest, " \t\n<>;&|()#")
		if n == 0 {
			word = append(word, piece{s.take(1), quoted})
		} else {
			word = s.part(word)
		}
	}
	return r.expand(word)
}

// printed is the output of a command.
func printed(text string) expansion {
	words := strings.Fields(text)
	switch {
	case len(words) == 1 && words[0] == "pwd":
		return expansion{text: "."}
	case len(words) > 1 && (words[0] == "which" || words[0] == "command"):
		return expansion{end: given}
	case len(words) == 0 || words[0] != "git":
		return expansion{end: computed}
	}
	for i, word := range words {
		switch word {
		case "--show-toplevel", "--git-dir", "--absolute-git-dir", "--git-common-dir", "--show-superproject-working-tree":
			return expansion{text: "."}
		case "--show-cdup", "--show-prefix":
			return expansion{text: "./"}
		case "--git-path":
			if i+1 < len(words) {
				return expansion{text: "./" + words[i+1]}
			}
		case "--exec-path", "var":
			return expansion{end: given}
		}
	}
	return expansion{end: computed}
}

// literal is the text of a word without patterns and parameters, otherwise "".
func literal(word []piece) string {
	if slices.ContainsFunc(word, func(p piece) bool { return p.kind > quoted }) {
		return ""
	}
	return written(word)
}

// written is a word as text for another shell.
func written(word []piece) string {
	var text strings.Builder
	for _, p := range word {
		text.WriteString(p.written())
	}
	return text.String()
}

// command reads the words of one command.
func (s *scanner) command(words [][]piece) {
	for len(words) > 0 {
		word := literal(words[0])
		switch {
		case word == "for" || word == "select":
			if len(words) > 2 {
				for _, value := range words[2:] {
					s.set(literal(words[1]), s.expand(value))
				}
			}
			s.arguments(words[1:])
			return
		case word == "case":
			s.arguments(words[1:])
			return
		case slices.Contains(reserved, word) || s.assignment(words[0]):
			words = words[1:]
		default:
			s.run(words)
			return
		}
	}
}

// assignment reads NAME=VALUE.
func (s *scanner) assignment(word []piece) bool {
	if word[0].kind != plain {
		return false
	}
	n := nameLength(word[0].text)
	if n == 0 || !strings.HasPrefix(word[0].text[n:], "=") {
		return false
	}
	value := slices.Clone(word)
	value[0].text = word[0].text[n+1:]
	name, values := word[0].text[:n], s.expand(value)
	s.set(name, values)
	s.maybe(value, values)
	for _, v := range values {
		if name == "PATH" {
			for dir := range strings.SplitSeq(v.text, ":") {
				s.mention(directory, expansion{text: dir})
			}
		}
		if slices.Contains(loaders, name) {
			s.mention(script, v)
		}
		if slices.Contains(libraries, name) {
			s.modulesIn(v)
		}
		if _, known := variables[name]; known && v.end == whole {
			s.made = append(s.made, Entry{Key: name, Value: v.text})
		}
	}
	return true
}

func (r *reading) set(name string, values []expansion) {
	if r.vars == nil {
		r.vars = map[string][]expansion{}
	}
	if len(r.vars[name]) < maxExpansions {
		r.vars[name] = append(r.vars[name], values...)
	}
}

// nested reads a word as a command line, if it can be one.
func (s *scanner) nested(word []piece, values []expansion) {
	const separators = " \t\n;&|()<>`"
	parameters := false
	for _, p := range word {
		if p.kind <= quoted && strings.ContainsAny(p.text, separators) {
			s.line(written(word))
			break
		}
		parameters = parameters || p.kind == parameter
	}
	for _, v := range values {
		if parameters && strings.ContainsAny(v.text, separators) {
			s.line(v.text)
		}
	}
}

// maybe is nested for a word that no command is known to read as code.
func (s *scanner) maybe(word []piece, values []expansion) {
	s.guess++
	s.nested(word, values)
	s.guess--
}

// arguments reads words that no command is known to read as code.
func (s *scanner) arguments(words [][]piece) {
	for _, word := range words {
		values := s.expand(word)
		s.mention(argument, values...)
		s.maybe(word, values)
	}
}

// run reads a command with its arguments.
func (s *scanner) run(words [][]piece) {
	if s.steps++; s.steps > maxSteps {
		s.blind = true
		return
	}
	values := s.expand(words[0])
	for _, v := range values {
		if v.end == whole || words[0][0].kind != parameter || !strings.ContainsAny(v.text, " \t\n") { // the shell splits others, and so does nested
			s.mention(command, v)
		}
	}
	s.nested(words[0], values)
	name := path.Base(values[0].text)
	if values[0].text == "" {
		name = "" // it is not known
	}
	args := words[1:]
	s.arguments(args)
	s.options(name, args)
	switch {
	case name == "cd" || name == "pushd":
		if operands := operands(args); len(operands) > 0 {
			s.mention(directory, s.expand(operands[0])...)
		}
	case name == "run-parts":
		if operands := operands(args); len(operands) > 0 {
			for _, dir := range s.expand(operands[len(operands)-1]) {
				if dir.text += "/"; dir.end == whole {
					dir.rest, dir.end = "*", pattern // it runs all files there
					s.mention(script, dir)
				}
			}
		}
	case name == "eval":
		line := ""
		for _, word := range args {
			line += written(word) + " "
		}
		s.line(line)
	case name == "export" || name == "local" || name == "readonly" || name == "declare" || name == "typeset":
		for _, word := range args {
			s.assignment(word)
		}
	case slices.Contains(wrappers, name):
		for len(args) > 0 && s.assignment(args[0]) {
			args = args[1:]
		}
		for i, rest := range suffixes(args) { // an operand may be an option's value
			if i < 3 && s.depth < maxNesting {
				s.depth++
				s.run(rest)
				s.depth--
			}
		}
	case name == "git":
		if verb := verb(args); verb != "" && !strings.ContainsAny(verb, "/=:") {
			s.mention(command, expansion{text: "git-" + verb}) // git looks for it in PATH if it has none of that name
		}
	case name == "coverage" && len(args) > 0: // run -m MODULE
		s.interpreted("python", args[1:])
	case name == "" && slices.ContainsFunc(args, func(word []piece) bool { return strings.HasPrefix(literal(word), "-m") }):
		s.python(args)
	case name == ".", slices.Contains(interpreters, strings.TrimRight(name, "0123456789.")):
		s.interpreted(name, args)
	}
}

// verb is the name of git's command in its arguments, if it is a plain word.
func verb(args [][]piece) string {
	for i := 0; i < len(args); i++ {
		switch word := literal(args[i]); {
		case slices.Contains([]string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--attr-source", "--config-env"}, word):
			i++
		case !strings.HasPrefix(word, "-"):
			return word
		}
	}
	return ""
}

// options reads the arguments that are options of many commands.
func (s *scanner) options(name string, args [][]piece) {
	for i, word := range args {
		option, value, attached := strings.Cut(literal(word), "=")
		next := []expansion{{text: value}}
		if !attached {
			if i+1 == len(args) {
				return
			}
			next = s.expand(args[i+1])
		}
		switch option {
		case "-f", "--file", "--makefile", "--rcfile", "--init-file":
			if slices.Contains(readers, name) {
				s.mention(script, next...)
			}
		case "-C", "--directory", "--chdir", "--cwd", "--prefix":
			s.mention(directory, next...)
		case "-exec", "-execdir", "-ok", "-okdir", "-x", "--exec":
			if !attached && s.depth < maxNesting {
				s.depth++
				s.run(args[i+1:])
				s.depth--
			}
		case "--git-dir", "--work-tree", "--exec-path":
			for _, v := range next {
				if v.end == whole {
					s.made = append(s.made, Entry{Key: "GIT_" + strings.ToUpper(strings.ReplaceAll(option[2:], "-", "_")), Value: v.text})
				}
			}
		case "-S", "--split-string":
			if name == "env" && !attached {
				s.line(written(args[i+1]))
			} else if name == "env" {
				s.line(value)
			}
		case "-cp", "-classpath", "--class-path":
			for _, v := range next {
				s.modulesIn(v)
			}
		case "-c":
			for _, v := range next {
				if key, value, ok := strings.Cut(v.text, "="); ok && strings.Contains(key, ".") && v.end == whole {
					s.made = append(s.made, Entry{Key: lowerKey(key), Value: value})
				}
			}
		}
	}
}

// interpreted reads the arguments of an interpreter. The first operand is its script.
func (s *scanner) interpreted(name string, args [][]piece) {
	if strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy") || name == "ipython" {
		s.python(args)
		return
	}
	for i, word := range args {
		text := literal(word)
		switch {
		case text == "--":
		case strings.HasPrefix(text, "-I"):
			if text = text[2:]; text == "" && i+1 < len(args) {
				text = literal(args[i+1])
			}
			s.modulesIn(expansion{text: text})
		case strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--") && strings.ContainsAny(text, "cem"):
			if i+1 < len(args) {
				s.line(written(args[i+1])) // the shell's -c, or a program in another language
			}
			return
		case strings.HasPrefix(text, "-") && text != "-", strings.HasPrefix(text, "+"):
		default:
			s.mention(script, s.expand(word)...)
			return
		}
	}
}

// python reads the arguments of python(1). For a module, a program in the arguments or on standard input,
// and all that they import, it looks in the working directory first.
func (s *scanner) python(args [][]piece) {
	for i := 0; i < len(args); i++ {
		text := literal(args[i])
		options, is := strings.CutPrefix(text, "-")
		switch at := strings.IndexAny(options, "cmIPWX-"); {
		case text == "--check-hash-based-pycs":
			i++
		case !is || options == "":
			if options == "" && is {
				s.beside = true
			} else {
				s.mention(script, s.expand(args[i])...)
			}
			return
		case at < 0 || options[at] == '-':
		case options[at] == 'I' || options[at] == 'P':
			return
		case options[at] == 'W' || options[at] == 'X':
			if at+1 == len(options) {
				i++
			}
		default:
			value := options[at+1:]
			if value == "" && i+1 < len(args) {
				value = written(args[i+1])
			}
			s.beside = true
			if options[at] == 'm' {
				s.module(value)
			}
			for _, names := range imports().FindAllStringSubmatch(value, -1) {
				for name := range strings.SplitSeq(names[1]+names[2], ",") {
					s.module(strings.TrimSpace(name))
				}
			}
			return
		}
	}
}

// imports finds the modules of a program.
var imports = lazy.Regexp(`\bfrom\s+([\w.]+)|\bimport\s+([\w.]+(?:\s*,\s*[\w.]+)*)`)

// module mentions the files of a module of Python.
func (s *scanner) module(name string) {
	first, _, _ := strings.Cut(name, ".")
	for _, file := range []string{first, strings.ReplaceAll(name, ".", "/")} {
		for _, end := range []string{".py", ".so", "/__init__.py", "/__main__.py"} {
			s.mention(script, expansion{text: file + end})
		}
		s.mention(script, expansion{text: file + ".", rest: "*.so", end: pattern})
	}
}

// modulesIn mentions the files in directories from which an interpreter takes modules.
func (s *scanner) modulesIn(dirs expansion) {
	for dir := range strings.SplitSeq(dirs.text, ":") {
		if dir != "" {
			s.mention(script, expansion{text: dir + "/", rest: "*", end: pattern})
		}
	}
}

// operands are the arguments that are no options.
func operands(args [][]piece) [][]piece {
	return slices.DeleteFunc(slices.Clone(args), func(word []piece) bool { return strings.HasPrefix(literal(word), "-") })
}

// suffixes are the arguments from each operand on.
func suffixes(args [][]piece) (all [][][]piece) {
	for i, word := range args {
		if !strings.HasPrefix(literal(word), "-") {
			all = append(all, args[i:])
		}
	}
	return all
}

// lowerKey writes a key as Parse does.
func lowerKey(key string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return strings.ToLower(key)
	}
	return strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
}

var (
	reserved = []string{"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "time", "in", "esac", "function", "coproc"}

	// wrappers run the command that their arguments name.
	wrappers = []string{
		"env", "exec", "command", "builtin", "nohup", "nice", "ionice", "setsid", "sudo", "doas", "timeout", "stdbuf", "unbuffer", "xargs",
		"uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda", "chronic", "watch", "parallel", "entr", "chrt", "taskset", "busybox", "unshare", "nsenter", "winpty", "script", "direnv",
	}

	// readers take a program from the file that an option names. To others, -f is no more
	// than a force.
	readers = []string{"make", "gmake", "bmake", "ninja", "just", "rake", "task", "awk", "gawk", "mawk", "sed", "perl", "bash", "sh", "gdb", "psql", "ant", "mvn", "docker-compose"}

	// loaders are variables whose value a program reads or loads as it starts: bash(1), sh(1),
	// ld.so(8), python(1).
	loaders = []string{"BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "PYTHONSTARTUP"}

	// libraries are variables of directories from which an interpreter takes modules: python(1), perlrun(1),
	// ruby(1), java(1), nodejs.org/api/modules.html.
	libraries = []string{"PYTHONPATH", "PERL5LIB", "RUBYLIB", "CLASSPATH", "NODE_PATH"}

	// interpreters, without their versions.
	interpreters = []string{
		"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "source", "python", "ipython", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun",
		"php", "lua", "luajit", "tclsh", "wish", "expect", "guile", "Rscript", "julia", "java", "osascript", "pwsh", "ts-node", "tsx",
	}
)
