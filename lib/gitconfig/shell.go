package gitconfig

import (
	"cmp"
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

	functions []string
	handed    bool // one of them, or a shell, gets a computed argument
	obeyed    bool // a parameter says which command git or a shell runs
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
	foreign         // a program of git's, or of another setting
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
	if r.obeyed && r.handed {
		r.unknown()
	}
	return r
}

// unknown adds a command of any name.
func (r *reading) unknown() { r.mention(command, expansion{end: computed}) }

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
		add := func(e expansion) {
			for i, m := range r.words {
				if as == directory && m.role == as && m.expansion == e && (m.guess || r.guess > 0) { // it is read twice
					r.words[i].guess = m.guess && r.guess > 0
					return
				}
			}
			r.words = append(r.words, mention{e, as, r.guess > 0})
		}
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
	input  *redirection
}

// redirection is an operator, such as "<<<", with its word.
type redirection struct {
	operator string
	word     []piece
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
	var to *redirection
	cases, labels := 0, false // a case statement is open; the labels of a branch are next
	flush := func() {
		switch {
		case word == nil:
			return
		case to != nil:
			to.word, to = word, nil
			s.arguments([][]piece{word})
		case labels && len(words) == 0 && literal(word) == "esac":
			cases, labels = cases-1, false
		default:
			words = append(words, word)
			first := slices.IndexFunc(words, func(word []piece) bool { return !slices.Contains(reserved, literal(word)) })
			if first >= 0 && len(words) == first+3 && literal(words[first]) == "case" && literal(word) == "in" {
				s.arguments(words[first+1:])
				words, cases, labels = nil, cases+1, true
			}
		}
		word = nil
	}
	end := func() {
		flush()
		if labels {
			s.arguments(words)
		} else {
			s.command(words)
		}
		words, s.input, to = nil, nil, nil
	}
	for s.rest != "" {
		switch c := s.rest[0]; c {
		case ' ', '\t':
			s.take(1)
			flush()
		case '<', '>':
			if strings.HasPrefix(s.rest[1:], "(") { // a process
				s.take(2)
				word = append(word, s.substitution())
				continue
			}
			if fd := literal(word); fd == "" || strings.Trim(fd, "0123456789") != "" {
				flush()
			}
			word, to = nil, &redirection{operator: s.take(len(s.rest) - len(strings.TrimLeft(s.rest, "<>")))}
			if c == '<' {
				s.input = to
			}
			switch {
			case strings.HasPrefix(s.rest, "&-"):
				s.take(2)
				to = nil
			case strings.HasPrefix(s.rest, "&"), strings.HasPrefix(s.rest, "|"), strings.HasPrefix(s.rest, "-") && to.operator == "<<":
				to.operator += s.take(1)
			}
		case '\n', ';', '&', '|', '(', ')':
			if c == '&' && strings.HasPrefix(s.rest, "&>") {
				s.take(1)
				continue
			}
			s.take(1)
			flush()
			if c == '(' && len(words) > 0 {
				s.functions = append(s.functions, literal(words[len(words)-1]))
			}
			end()
			switch {
			case c == '(' && !labels:
				s.commands(true)
			case c == ')' && labels:
				labels = false
			case c == ')' && bracket:
				return
			case c == ';' && cases > 0 && strings.HasPrefix(s.rest, ";"):
				labels = true
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
	end()
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
		if strings.HasPrefix(s.rest, `$"`) {
			s.take(1)
			return word
		}
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
		if text := s.until("'"); !strings.Contains(text, `\`) {
			return piece{text, quoted}
		}
		return piece{kind: output} // of any text
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
			values = printed(p.text)
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
				return append(longer, expansion{end: computed})
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
	if other := r.otherwise(op); strings.HasPrefix(strings.TrimPrefix(op, ":"), "=") {
		r.set(name, other)
	}
	if rest := strings.TrimPrefix(op, ":"); op != "" && (rest == "" || strings.IndexByte("-=+?", rest[0]) < 0) { // cuts something off
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

// printed lists the outputs that a command may have.
func printed(text string) (all []expansion) {
	for part := range strings.SplitSeq(text, "||") {
		all = append(all, outputOf(strings.Fields(strings.ReplaceAll(part, "2>/dev/null", ""))))
	}
	return all
}

func outputOf(words []string) expansion {
	switch {
	case slices.ContainsFunc(words, func(word string) bool { return strings.ContainsAny(word, ";|&<>()$`'\"") }):
		return expansion{end: computed}
	case len(words) > 0 && words[0] == "pwd":
		return expansion{text: "."}
	case len(words) < 2:
		return expansion{end: computed}
	}
	last := words[len(words)-1]
	switch {
	case words[0] == "which" || words[0] == "command" || words[0] == "echo" && len(words) == 2:
		return expansion{text: last}
	case words[0] == "git" && (last == "--exec-path" || words[1] == "var"):
		return expansion{end: foreign}
	case words[0] != "git" || !slices.Contains(words, "rev-parse"):
	case slices.Contains([]string{"--show-toplevel", "--git-dir", "--absolute-git-dir", "--git-common-dir", "--show-superproject-working-tree"}, last):
		return expansion{text: "."}
	case last == "--show-cdup" || last == "--show-prefix":
		return expansion{text: "./"}
	case words[len(words)-2] == "--git-path":
		return expansion{text: "./" + last}
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

// leading is the text of a word up to the first pattern or parameter.
func leading(word []piece) string {
	if n := slices.IndexFunc(word, func(p piece) bool { return p.kind > quoted }); n >= 0 {
		word = word[:n]
	}
	return written(word)
}

// after is a word without the first n bytes of its leading text.
func after(word []piece, n int) []piece {
	for i, p := range word {
		if p.kind > quoted || n < len(p.text) {
			rest := slices.Clone(word[i:])
			if p.kind <= quoted {
				rest[0].text = p.text[n:]
			}
			return rest
		}
		n -= len(p.text)
	}
	return nil
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
			if len(words) == 2 { // the parameters
				s.set(literal(words[1]), []expansion{{end: given}})
			}
			for _, value := range words[min(3, len(words)):] {
				s.assign(literal(words[1]), value, s.expand(value))
			}
			s.arguments(words[1:])
			return
		case word == "case":
			s.arguments(words[1:])
			return
		case (word == "function" || word == "coproc") && len(words) > 2 && literal(words[2]) == "{":
			s.functions = append(s.functions, literal(words[1]))
			words = words[3:]
		case slices.Contains(reserved, word) || s.assignment(words[0], true):
			words = words[1:]
		default:
			s.run(words)
			return
		}
	}
}

// assignment reads NAME=VALUE or NAME+=VALUE. An unquoted one is one for the shell, any for env.
func (s *scanner) assignment(word []piece, unquoted bool) bool {
	text := leading(word)
	if unquoted {
		text = leading(word[:1])
	}
	n := nameLength(text)
	op := strings.IndexByte(text, '=') + 1 - n
	if n == 0 || op != 1 && (op != 2 || text[n] != '+') || unquoted && word[0].kind != plain {
		return false
	}
	value := after(word, n+op)
	values := s.expand(value)
	if op == 2 {
		values = append(values, join(s.parameter(text[:n]), slices.Clone(values))...)
	}
	s.assign(text[:n], value, values)
	return true
}

// assign gives a variable values, of which a word is one.
func (s *scanner) assign(name string, word []piece, values []expansion) {
	s.set(name, values)
	s.maybe(word, values)
	for _, v := range values {
		if name == "PATH" {
			dirs := strings.Split(v.text, ":")
			for i, dir := range dirs {
				e := expansion{text: dir}
				if i == len(dirs)-1 {
					e.end = v.end
				}
				s.mention(directory, e)
			}
		}
		if slices.Contains(loaders, name) {
			s.mention(script, v)
		}
		if slices.Contains(libraries, name) {
			s.modulesIn(v)
		}
		if strings.HasPrefix(name, "GIT_CONFIG_VALUE_") || name == "GIT_CONFIG_PARAMETERS" {
			s.mention(command, v)
			s.mention(argument, v)
		}
	}
	if _, known := variables[name]; known {
		s.setting(name, word, values)
	}
}

// setting adds a setting that the line makes.
func (s *scanner) setting(key string, word []piece, values []expansion) {
	for _, v := range values {
		kind := kindOfValue(key)
		switch {
		case v.end == whole || key == "PATH":
			s.made = append(s.made, Entry{Key: key, Value: v.text})
		case kind == runs:
			s.code(word)
		case kind == runsFile || kind == programs:
			s.mention(command, v)
		}
	}
}

func (r *reading) set(name string, values []expansion) {
	if r.vars == nil {
		r.vars = map[string][]expansion{}
	}
	for _, v := range values {
		if slices.Contains(r.vars[name], v) {
			continue
		}
		if n := len(r.vars[name]); n >= maxExpansions-1 { // the last of them is for all others
			v = expansion{end: computed}
			r.vars[name] = r.vars[name][:maxExpansions-1]
		}
		r.vars[name] = append(r.vars[name], v)
	}
}

// nested reads a word, with those that follow, as a command line, if it can be one.
func (s *scanner) nested(word []piece, values []expansion, rest ...[]piece) {
	const separators = " \t\n;&|()<>`"
	parameters := false
	for _, p := range word {
		if p.kind <= quoted && strings.ContainsAny(p.text, separators) {
			s.line(written(word) + joined(rest))
			break
		}
		parameters = parameters || p.kind == parameter
	}
	for _, v := range values {
		if parameters && strings.ContainsAny(v.text, separators) {
			s.line(v.text + joined(rest))
		}
	}
}

// joined is words as text for another shell, each behind a blank.
func joined(words [][]piece) string {
	var text strings.Builder
	for _, word := range words {
		text.WriteString(" " + written(word))
	}
	return text.String()
}

// code reads words that a shell gets as a command line.
func (s *scanner) code(words ...[]piece) {
	s.line(joined(words))
	for _, word := range words {
		s.chosen(word)
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

// embedded reads a command in the arguments of a program that is not known to run one.
func (s *scanner) embedded(words [][]piece) {
	for i, word := range words {
		if _, is := wrappers[path.Base(literal(word))]; is {
			s.guess++
			s.command(words[i:])
			s.guess--
			return
		}
	}
}

// run reads a command with its arguments.
func (s *scanner) run(words [][]piece) {
	s.steps++
	if s.depth++; s.depth > maxNesting || s.steps > maxSteps {
		s.blind = true
	}
	defer func() { s.depth-- }()
	if s.blind {
		return
	}
	values, args := s.expand(words[0]), words[1:]
	var names []string
	for _, v := range values {
		if v.end == whole || words[0][0].kind != parameter || !strings.ContainsAny(v.text, " \t\n") { // the shell splits others, and so does nested
			s.mention(command, v)
		}
		if name := path.Base(v.text); v.text != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	s.nested(words[0], values, args...)
	s.arguments(args)
	for _, name := range names {
		s.options(name, args)
		s.program(name, args)
	}
}

// program reads the arguments of a program.
func (s *scanner) program(name string, args [][]piece) {
	wrapper, wraps := wrappers[name]
	switch {
	case slices.Contains(s.functions, name) || name == "set":
		s.hand(args)
	case name == "cd" || name == "pushd":
		dir := s.parameter("HOME")
		if operands := operands(args); len(operands) > 0 {
			dir = s.expand(operands[0])
		} else if len(args) > 0 && literal(args[len(args)-1]) == "-" {
			dir = []expansion{{end: computed}}
		}
		s.mention(directory, dir...)
	case name == "run-parts":
		if operands := operands(args); len(operands) > 0 {
			for _, dir := range s.expand(operands[len(operands)-1]) {
				if dir.text += "/"; dir.end == whole {
					dir.rest, dir.end = "*", pattern // it runs all files there
				}
				s.mention(script, dir)
			}
		}
	case name == "eval":
		s.code(args...)
	case name == "alias":
		for _, word := range args {
			if name, _, found := strings.Cut(leading(word), "="); found {
				s.code(after(word, len(name)+1))
			}
		}
	case name == "trap":
		if operands := operands(args); len(operands) > 0 {
			s.code(operands[0])
		}
	case name == "export" || name == "local" || name == "readonly" || name == "declare" || name == "typeset":
		for _, word := range args {
			s.assignment(word, false)
		}
	case name == "read" || name == "mapfile" || name == "readarray" || name == "getopts" || name == "printf" && len(args) > 1 && literal(args[0]) == "-v":
		for _, word := range args {
			if variable := literal(word); variable != "" && nameLength(variable) == len(variable) {
				s.assign(variable, nil, []expansion{{end: computed}})
			}
		}
	case name == "command" && len(args) > 0 && (literal(args[0]) == "-v" || literal(args[0]) == "-V"): // it prints
	case wraps:
		s.wrapped(name, wrapper, args)
	case name == "find" || name == "fd" || name == "fdfind":
		s.find(args)
	case name == "git":
		s.git(args)
	case name == "coverage" && len(args) > 0: // run -m MODULE
		s.interpreted("python", args[1:])
	case name == ".", slices.Contains(interpreters, strings.TrimRight(name, "0123456789.")), slices.Contains(shells, name):
		s.interpreted(name, args)
	default:
		s.embedded(args)
	}
}

// hand notes the arguments that become parameters.
func (s *scanner) hand(args [][]piece) {
	for _, word := range args {
		s.handed = s.handed || slices.ContainsFunc(s.expand(word), func(v expansion) bool { return v.end == computed })
	}
}

// wrapped reads the arguments of a program that runs the command in them.
func (s *scanner) wrapped(name string, w wrapper, args [][]piece) {
	mark, ended := "{}", false
	for i := 0; i < len(args); i++ {
		text := leading(args[i])
		option, value, tail := "", []piece(nil), literal(args[i]) != text
		switch {
		case ended || !strings.HasPrefix(text, "-"):
			if s.assignment(args[i], false) {
				continue
			}
			if w.operands--; w.operands >= 0 {
				continue
			}
			rest := args[i:]
			if name == "xargs" || name == "parallel" {
				if end := slices.IndexFunc(rest, func(word []piece) bool { return strings.HasPrefix(leading(word), ":::") }); end >= 0 {
					rest = rest[:end] // of parallel
				}
				rest = filled(rest, mark)
			}
			s.command(rest)
			return
		case strings.HasPrefix(text, "--"):
			start, _, attached := strings.Cut(text[2:], "=")
			for full := range strings.FieldsSeq(w.long) {
				if start != "" && strings.HasPrefix(full, start) {
					option = full
				}
			}
			switch {
			case attached:
				value, tail = after(args[i], len("--")+len(start)+1), false
			case option != "" && i+1 < len(args) && option != "replace":
				i++
				value = args[i]
			}
			ended = text == "--" && !tail
		default:
			if at := strings.IndexAny(text, w.short); at > 0 {
				option, tail = text[at:at+1], false
				if value = after(args[i], at+1); value == nil && i+1 < len(args) && option != "i" {
					i++
					value = args[i]
				}
			}
		}
		switch {
		case tail:
			s.unknown() // it may be any option
		case name == "env" && (option == "S" || option == "split-string"):
			s.code(slices.Concat([][]piece{{{text: "env"}}, value}, args[i+1:])...)
			return
		case option == "C" || option == "D" || option == "chdir":
			s.mention(directory, s.expand(value)...)
		case option == "I" || option == "i" || option == "replace":
			mark = cmp.Or(literal(value), mark)
		case option == "c" || option == "command":
			s.code(value)
			w.shell = false
		}
	}
	if w.shell {
		s.standardInput()
	}
}

// filled are words in which a program puts others, of any text, for a mark and at the end.
func filled(words [][]piece, mark string) [][]piece {
	all := make([][]piece, 0, len(words)+1)
	for _, word := range words {
		before, rest, found := strings.Cut(literal(word), mark)
		if found {
			word = []piece{{before, quoted}, {kind: output}, {rest, quoted}}
		}
		all = append(all, word)
	}
	return append(all, []piece{{kind: output}})
}

// find reads the arguments of find(1), and of fd.
func (s *scanner) find(args [][]piece) {
	for i, word := range args {
		switch option := literal(word); option {
		case "-execdir", "-okdir":
			s.mention(directory, expansion{end: computed})
			fallthrough
		case "-exec", "-ok", "-x", "-X", "--exec", "--exec-batch":
			rest := args[i+1:]
			if end := slices.IndexFunc(rest, func(word []piece) bool { return literal(word) == ";" }); end >= 0 {
				rest = rest[:end]
			}
			s.command(filled(rest, "{}"))
		}
	}
}

// git reads the arguments of git for other commands.
func (s *scanner) git(args [][]piece) {
	for i := 0; i < len(args); i++ {
		text, open := leading(args[i]), literal(args[i]) != leading(args[i])
		switch {
		case slices.Contains([]string{"-C", "--git-dir", "--work-tree", "--namespace", "--attr-source"}, text) && !open:
			i++
		case text == "-c" && !open:
			if i++; i < len(args) && !strings.Contains(leading(args[i]), "=") {
				s.chosen(args[i])
			}
		case strings.HasPrefix(text, "--exec-path") || strings.HasPrefix(text, "-") && !strings.Contains(text, "="):
			s.chosen(args[i])
		case strings.HasPrefix(text, "--config-env"):
			s.unknown()
		case !strings.HasPrefix(text, "-"):
			s.chosen(args[i])
			verb := literal(args[i])
			if verb != "" && !strings.ContainsAny(verb, "/=:") {
				s.mention(command, expansion{text: "git-" + verb}) // git looks for it in PATH if it has none of that name
			}
			s.verb(verb, args[i+1:])
			return
		}
	}
}

// chosen reads a word that says which command is run.
func (s *scanner) chosen(word []piece) {
	for _, v := range s.expand(word) {
		s.obeyed = s.obeyed || v.end == given
		if v.end == computed {
			s.unknown()
		}
	}
}

// verb reads the arguments of one of git's commands.
func (s *scanner) verb(verb string, args [][]piece) {
	for i, word := range args {
		text, rest := leading(word), args[i+1:]
		option, _, attached := strings.Cut(text, "=")
		var value []piece
		switch {
		case verb == "bisect" && text == "run":
			s.command(rest)
			return
		case verb == "submodule" && text == "foreach":
			for len(rest) > 0 && strings.HasPrefix(leading(rest[0]), "-") {
				rest = rest[1:]
			}
			s.mention(directory, expansion{end: computed})
			s.code(rest...)
			return
		case slices.Contains([]string{"--exec", "--extcmd", "--upload-pack", "--receive-pack", "--open-files-in-pager"}, option), verb == "filter-branch" && strings.HasSuffix(option, "-filter"):
			if attached {
				value = after(word, len(option)+1)
			}
		case strings.HasPrefix(text, "-x") && (verb == "rebase" || verb == "difftool"), strings.HasPrefix(text, "-u") && verb == "clone":
			value = after(word, len("-x"))
		case strings.HasPrefix(text, "-O") && verb == "grep":
			s.code(after(word, len("-O")))
			continue
		default:
			continue
		}
		if value == nil && len(rest) > 0 {
			value = rest[0]
		}
		s.code(value)
	}
}

// options reads the arguments that are options of many commands.
func (s *scanner) options(name string, args [][]piece) {
	for i, word := range args {
		option, value, attached := strings.Cut(literal(word), "=")
		if text := leading(word); slices.Contains(readers, name) && literal(word) != text {
			for _, start := range []string{"-f", "--file=", "--makefile=", "--rcfile=", "--init-file="} {
				if strings.HasPrefix(text, start) {
					s.mention(script, s.expand(after(word, len(start)))...)
				}
			}
		}
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
		case "-exec", "-x", "--exec":
			if !attached {
				s.guess++
				s.command(args[i+1:])
				s.guess--
			}
		case "--git-dir", "--work-tree", "--exec-path":
			for _, v := range next {
				if v.end == whole {
					s.made = append(s.made, Entry{Key: "GIT_" + strings.ToUpper(strings.ReplaceAll(option[2:], "-", "_")), Value: v.text})
				}
			}
		case "-cp", "-classpath", "--class-path":
			for _, v := range next {
				s.modulesIn(v)
			}
		case "-c":
			key := leading(args[min(i+1, len(args)-1)])
			if key, _, ok := strings.Cut(key, "="); ok && strings.Contains(key, ".") {
				value := after(args[i+1], len(key)+1)
				s.setting(lowerKey(key), value, s.expand(value))
			}
		}
	}
}

// interpreted reads the arguments of an interpreter. The first operand is its script, or a shell's with -c.
func (s *scanner) interpreted(name string, args [][]piece) {
	if strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy") || name == "ipython" {
		s.python(args)
		return
	}
	shell, code, standard := slices.Contains(shells, name), false, false
	for i := 0; i < len(args); i++ {
		text := leading(args[i])
		open := literal(args[i]) != text && !strings.Contains(text, "=")
		option := text != "" && (text[0] == '-' || text[0] == '+') && (len(text) > 1 || open)
		switch {
		case option && open:
			s.unknown() // it may be any option
		case text == "--" || text == "-":
		case text == "--version" || text == "--help":
			return
		case option && shell && (text == "--rcfile" || text == "--init-file"):
			i++
		case option && shell:
			if text[1] != text[0] {
				code = code || text[0] == '-' && strings.Contains(text, "c")
				standard = standard || text[0] == '-' && strings.Contains(text, "s")
				i += strings.Count(text, "o") + strings.Count(text, "O")
			}
		case strings.HasPrefix(text, "-I"):
			if text = text[2:]; text == "" && i+1 < len(args) {
				text = literal(args[i+1])
			}
			s.modulesIn(expansion{text: text})
		case option && text[0] == '-' && text[1] != '-' && strings.ContainsAny(text, "cem"):
			if i+1 < len(args) {
				s.code(args[i+1]) // a program in another language
			}
			return
		case option:
		default:
			switch {
			case code:
				s.code(args[i])
				s.hand(args[i+1:])
			case standard:
				s.standardInput()
			default:
				s.script(args[i])
			}
			return
		}
	}
	s.standardInput()
}

// script reads the name of a script.
func (s *scanner) script(word []piece) {
	values := s.expand(word)
	s.mention(script, values...)
	for _, v := range values {
		if strings.HasPrefix(v.text, "/dev/") || strings.HasPrefix(v.text, "/proc/") {
			s.standardInput() // or another file that is open
		}
	}
}

// standardInput reads the commands that a shell or an interpreter reads there.
func (s *scanner) standardInput() {
	switch {
	case s.input == nil || strings.Contains(s.input.operator, "&"):
		s.unknown()
	case s.input.operator == "<<<":
		s.code(s.input.word)
	case !strings.HasPrefix(s.input.operator, "<<"): // the scanner reads those lines
		s.mention(script, s.expand(s.input.word)...)
	}
}

// python reads the arguments of python(1). For a module, a program in the arguments or on standard input,
// and all that they import, it looks in the working directory first.
func (s *scanner) python(args [][]piece) {
	isolated := false
	for i := 0; i < len(args); i++ {
		text := literal(args[i])
		options, is := strings.CutPrefix(text, "-")
		at := strings.IndexAny(options, "cmWX-")
		flags := options
		if at >= 0 {
			flags = options[:at]
		}
		isolated = isolated || is && strings.ContainsAny(flags, "IP")
		switch {
		case text == "--check-hash-based-pycs":
			i++
		case text == "--version" || text == "--help" || text == "-V":
			return
		case !is || options == "":
			if options == "" && is {
				s.beside = s.beside || !isolated
				s.standardInput()
			} else {
				s.script(args[i])
			}
			return
		case at < 0 || options[at] == '-':
		case options[at] == 'W' || options[at] == 'X':
			if at+1 == len(options) {
				i++
			}
		default:
			value := options[at+1:]
			if value == "" && i+1 < len(args) {
				value = written(args[i+1])
				s.chosen(args[i+1])
			}
			if isolated {
				return
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
	s.standardInput()
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

// wrapper tells the arguments of a program before the command that it runs.
type wrapper struct {
	short, long string // options with a value
	operands    int
	shell       bool // without a command, it runs a shell
}

// operands are the arguments that are no options.
func operands(args [][]piece) [][]piece {
	return slices.DeleteFunc(slices.Clone(args), func(word []piece) bool { return strings.HasPrefix(literal(word), "-") })
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
	reserved = []string{"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "in", "esac", "function", "coproc"}

	// wrappers run the command that their arguments name. The options are those with a value, of their manuals.
	wrappers = map[string]wrapper{
		"builtin": {}, "busybox": {}, "chronic": {}, "command": {}, "dbus-run-session": {long: "config-file dbus-daemon"}, "entr": {}, "exec": {short: "a"},
		"chroot": {long: "groups userspec", operands: 1, shell: true},
		"chrt":   {short: "DPT", long: "sched-deadline sched-period sched-runtime", operands: 1},
		"doas":   {short: "aCu", shell: true},
		"env":    {short: "aCSu", long: "argv0 chdir split-string unset"},
		"flock":  {short: "cEw", long: "command conflict-exit-code timeout wait", operands: 1},
		"ionice": {short: "cn", long: "class classdata"},
		"nice":   {short: "n", long: "adjustment"}, "nohup": {}, "setsid": {}, "winpty": {}, "unbuffer": {},
		"nsenter":  {short: "GNSt", long: "net-socket setgid setuid target", shell: true},
		"parallel": {short: "adIjJLnNPS", long: "arg-file colsep delay delimiter joblog jobs max-args max-procs memfree results retries sshlogin tmpdir timeout workdir"},
		"prlimit":  {}, "runuser": {short: "cgGsuw", long: "command group shell supp-group user whitelist-environment"}, "setarch": {},
		"setpriv":   {long: "ambient-caps apparmor-profile bounding-set egid euid gid groups inh-caps pdeathsig regid reuid rgid ruid securebits selinux-label"},
		"script":    {short: "BcEIOTm", long: "command echo log-in log-io log-out log-timing logging-format output-limit", operands: maxMentions, shell: true},
		"ssh-agent": {short: "aEOPt"},
		"stdbuf":    {short: "eio", long: "error input output"},
		"strace":    {short: "abeEIoOpPsSuUX", long: "env interruptible output summary-sort-by trace trace-path user"},
		"su":        {short: "cgGsw", long: "command group session-command shell supp-group whitelist-environment", operands: maxMentions, shell: true},
		"sudo":      {short: "aCcDghpRrTtUu", long: "chdir chroot close-from command-timeout group host other-user prompt role type user", shell: true},
		"taskset":   {operands: 1}, "time": {short: "fo", long: "format output"},
		"timeout": {short: "ks", long: "kill-after signal", operands: 1},
		"unshare": {short: "GlRSw", long: "boottime load-interp map-group map-groups map-user map-users monotonic propagation root setgid setgroups setuid wd", shell: true},
		"watch":   {short: "nq", long: "equexit interval"},
		"xargs":   {short: "adEIiLnPs", long: "arg-file delimiter max-args max-chars max-procs process-slot-var replace"},

		// The first operand is a command of theirs, such as run.
		"bundle": {operands: 1}, "conda": {short: "np", long: "cwd name prefix", operands: 1}, "direnv": {operands: 2}, "hatch": {short: "e", long: "env", operands: 1},
		"pdm": {short: "p", long: "project venv", operands: 1}, "pipenv": {operands: 1}, "poetry": {short: "CP", long: "directory project", operands: 1}, "rye": {operands: 1},
		"uv": {short: "p", long: "directory env-file extra group index package project python with with-editable with-requirements", operands: 1},
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

	// shells read a command line after -c, and have no other options for code.
	shells = []string{"sh", "bash", "rbash", "dash", "ash", "ksh", "mksh", "yash", "zsh", "fish", "csh", "tcsh"}

	// interpreters, without their versions.
	interpreters = []string{
		"source", "python", "ipython", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun",
		"php", "lua", "luajit", "tclsh", "wish", "expect", "guile", "Rscript", "julia", "java", "osascript", "pwsh", "ts-node", "tsx",
	}
)
