package clitest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pikuri/lib/cli"
)

// Consistent fails unless the help text of c, its man page and its three completion
// files name exactly the registered options, and the same ones with a value. words are
// the operands that c knows by name, for a command whose first operand is one: the
// texts have to name these too, and no others.
func Consistent(t *testing.T, c *cli.Command, words ...string) {
	t.Helper()
	root := Root(t)
	completion := func(shell string) string {
		return read(t, root, "scripts", "completions", c.Name+"."+shell)
	}
	for _, name := range c.OptionNames() {
		if long, ok := strings.CutPrefix(name, "--"); ok && len(cli.Classes(long)) != 1 {
			t.Errorf("option %q is in the lists %q of lib/cli/authority.go, and has to be in one", name, cli.Classes(long))
		}
	}
	for _, problem := range disagreements(registered(c, words), texts{
		help: c.Help,
		man:  read(t, root, "man", c.Name+".1"),
		bash: completion("bash"),
		zsh:  completion("zsh"),
		fish: completion("fish"),
	}) {
		t.Error(problem)
	}
}

// texts are the descriptions of a command for people and for shells.
type texts struct{ help, man, bash, zsh, fish string }

// told is the content of one source: each option as it is typed, with whether it
// takes a value, and the words.
type told struct {
	options map[string]bool
	words   []string
}

func registered(c *cli.Command, words []string) told {
	r := told{options: map[string]bool{}, words: words}
	takes := c.TakesValue()
	for _, name := range c.OptionNames() {
		r.options[name] = slices.Contains(takes, name)
	}
	return r
}

// disagreements lists the false statements and the omissions of each text.
func disagreements(r told, x texts) []string {
	var problems []string
	for _, source := range []struct {
		name string
		told told
	}{
		{"--help", toldByHelp(x.help)},
		{"man page", toldByMan(x.man, r.words)},
		{"bash completion", toldByBash(x.bash, r)},
		{"zsh completion", toldByZsh(x.zsh, r)},
		{"fish completion", toldByFish(x.fish)},
	} {
		for _, problem := range compare(r, source.told) {
			problems = append(problems, source.name+": "+problem)
		}
	}
	return problems
}

func compare(want, got told) []string {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for name, value := range want.options {
		switch has, ok := got.options[name]; {
		case !ok:
			add("option %q is missing", name)
		case has != value:
			add("option %q: takes a value is %t here, and registered as %t", name, has, value)
		}
	}
	for name := range got.options {
		if _, ok := want.options[name]; !ok {
			add("%q is not a registered option", name)
		}
	}
	for _, word := range want.words {
		if !slices.Contains(got.words, word) {
			add("operand %q is missing", word)
		}
	}
	for _, word := range got.words {
		if !slices.Contains(want.words, word) {
			add("%q is not an operand of this command", word)
		}
	}
	slices.Sort(problems)
	return problems
}

var (
	typed = regexp.MustCompile(`(^|[\s,\[|('/{*])(--?[a-zA-Z][a-z-]*)`)
	// A word in capitals behind an option stands for its value; so does a choice.
	valued = regexp.MustCompile(`--?[a-zA-Z][a-z-]*\s+([A-Z]+|[a-z]+\|[a-z|]+)`)
	// "  -x, --long VALUE  its effect": an entry of the list of options.
	entry = regexp.MustCompile(`(?m)^ +(-\w, |    )--[^\n]*`)
	// "  word OPERAND...   its effect".
	verbLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*)(?: [A-Z\[]\S*)*  +\S`)
)

// toldByHelp: an option that is mentioned anywhere has to exist. The list of
// options tells which take a value.
func toldByHelp(help string) told {
	r := told{options: map[string]bool{}}
	for _, m := range typed.FindAllStringSubmatch(help, -1) {
		r.options[m[2]] = false
	}
	for _, line := range entry.FindAllString(help, -1) {
		r.heading(line)
	}
	for _, m := range verbLine.FindAllStringSubmatch(help, -1) {
		r.words = append(r.words, m[1])
	}
	return r
}

// heading reads "-x, --long VALUE": both names take the value, and so do other
// names on the line.
func (r told) heading(line string) {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
	var names []string
	for _, m := range typed.FindAllStringSubmatch(line, -1) {
		names = append(names, m[2])
	}
	for _, name := range names {
		r.options[name] = r.options[name] || valued.MatchString(line)
	}
}

var (
	section = regexp.MustCompile(`(?m)^\.SH +`)
	tagged  = regexp.MustCompile(`(?m)^\.T[PQ].*\n(\..*)\n`)
	roff    = strings.NewReplacer(`\-`, "-", `\fB`, "", `\fR`, "", `\fI`, "", `\ `, " ", `"`, "")
	word    = regexp.MustCompile(`^[a-z][a-z-]*`)
)

// toldByMan: the options are the tags of the section OPTIONS; the words are the
// tags of the section that has the first of them.
func toldByMan(page string, words []string) told {
	r := told{options: map[string]bool{}}
	for _, s := range section.Split(page, -1) {
		var found []string
		for _, m := range tagged.FindAllStringSubmatch(s, -1) {
			_, tag, _ := strings.Cut(m[1], " ")
			tag = strings.Join(strings.Fields(roff.Replace(tag)), " ")
			if strings.HasPrefix(s, "OPTIONS") && strings.HasPrefix(tag, "-") {
				r.heading(tag)
			}
			if w := word.FindString(tag); w != "" {
				found = append(found, w)
			}
		}
		if len(words) > 0 && slices.Contains(found, words[0]) {
			r.words = found
		}
	}
	return r
}

var (
	offered   = regexp.MustCompile(`(?:-W |=)'([^']*)'`)
	caseBlock = regexp.MustCompile(`(?s)case \$\w+ in\n(.*?)\n\s*esac`)
	pattern   = regexp.MustCompile(`(?m)^\s*(--?[^*)]*)\)`)
	single    = regexp.MustCompile(`\[\[ \$prev == (--?\S+) \]\]`)
)

// toldByBash: an option is a name that is offered. An option with a value must be in
// every `case`, since the word after it is completed otherwise.
func toldByBash(text string, want told) told {
	text = strings.ReplaceAll(text, "\\\n", "")
	r := told{options: map[string]bool{}}
	for _, m := range offered.FindAllStringSubmatch(text, -1) {
		offers := strings.Fields(m[1])
		if slices.Equal(offers, want.words) {
			r.words = offers
		}
		for _, name := range offers {
			if strings.HasPrefix(name, "-") {
				r.options[name] = false
			}
		}
	}
	var blocks [][]string
	for _, block := range caseBlock.FindAllStringSubmatch(text, -1) {
		var names []string
		for _, m := range pattern.FindAllStringSubmatch(block[1], -1) {
			names = append(names, strings.Fields(strings.ReplaceAll(m[1], "|", " "))...)
		}
		blocks = append(blocks, names)
	}
	if m := single.FindStringSubmatch(text); m != nil {
		blocks = append(blocks, m[1:])
	}
	for _, names := range blocks {
		r.mention(want, names)
	}
	for name := range r.options {
		r.options[name] = len(blocks) > 0 && inAll(blocks, name)
	}
	for _, names := range blocks {
		for _, name := range names {
			// A switch in one of the blocks is an error already.
			if value, ok := want.options[name]; ok && !value && r.has(name) {
				r.options[name] = true
			}
		}
	}
	return r
}

func inAll(blocks [][]string, name string) bool {
	for _, names := range blocks {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

func (r told) has(name string) bool { _, ok := r.options[name]; return ok }

// mention reads names that a text has in passing. They do not describe an
// option, but the option must exist.
func (r told) mention(want told, names []string) {
	for _, name := range names {
		if word.MatchString(strings.TrimLeft(name, "-")) && !want.has(name) {
			r.options[name] = false
		}
	}
}

var (
	zshSpec = regexp.MustCompile(`^(?:\(([^)]*)\))?\*?(?:\{([^}]*)\}|(--?[a-zA-Z][a-z-]*))\[[^\]]*\](:?)`)
	zshWord = regexp.MustCompile(`(?m)(?:^\t'|[( ])([a-z][a-z-]*)(?:\\:"|:[^'\n]*'$)`)
)

// toldByZsh reads the specifications of _arguments, one a line.
func toldByZsh(text string, want told) told {
	r := told{options: map[string]bool{}}
	var excluded []string
	for _, line := range strings.Split(text, "\n") {
		m := zshSpec.FindStringSubmatch(strings.ReplaceAll(strings.TrimSpace(line), "'", ""))
		if m == nil {
			continue
		}
		for _, name := range strings.Split(m[2]+m[3], ",") {
			r.options[name] = m[4] != ""
		}
		excluded = append(excluded, strings.Fields(m[1])...)
	}
	r.mention(want, excluded)
	for _, m := range zshWord.FindAllStringSubmatch(text, -1) {
		r.words = append(r.words, m[1])
	}
	return r
}

var (
	fishOption = regexp.MustCompile(`(?m)^complete .*$`)
	fishName   = regexp.MustCompile(` -([ls]) (\S+)`)
	fishValue  = regexp.MustCompile(` -[xr]( |$)`)
	fishWord   = regexp.MustCompile(`__fish_is_first_arg'? -a (\S+)`)
)

func toldByFish(text string) told {
	r := told{options: map[string]bool{}}
	for _, line := range fishOption.FindAllString(text, -1) {
		line, _, _ = strings.Cut(line, " -d ")
		for _, m := range fishName.FindAllStringSubmatch(line, -1) {
			name := "-" + m[2]
			if m[1] == "l" {
				name = "--" + m[2]
			}
			r.options[name] = fishValue.MatchString(line)
		}
		if m := fishWord.FindStringSubmatch(line); m != nil {
			r.words = append(r.words, m[1])
		}
	}
	return r
}

// Everywhere fails when a command has no test that calls Consistent.
func Everywhere(t *testing.T) {
	t.Helper()
	commands, err := filepath.Glob(filepath.Join(Root(t), "cmd", "*"))
	if err != nil || len(commands) == 0 {
		t.Fatalf("no commands: %v", err)
	}
	for _, dir := range commands {
		tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if !slices.ContainsFunc(tests, func(file string) bool {
			return strings.Contains(read(t, file), "clitest.Consistent(t, command()")
		}) {
			t.Errorf("%s: no test calls clitest.Consistent", filepath.Base(dir))
		}
	}
}
