package hostrule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pikuri/lib/internal/usertable"
)

// Lookup returns the rules of a set by its name: Sets.Rules, or a function that
// loads the sets at its first call.
type Lookup func(set string) (Rules, error)

// From reads the value of an option or a line of a list: a rule, or "@NAME" for the
// rules of a set. origin is the Origin of the rule; those of a set have their own.
// Without a Lookup there are no sets.
func From(text, origin string, sets Lookup) (Rules, error) {
	if set, ok := strings.CutPrefix(strings.Trim(text, " \t"), "@"); ok {
		if sets == nil {
			return nil, fmt.Errorf("sets such as %q cannot be used here: type their rules", "@"+set)
		}
		return sets(set)
	}
	r, err := Parse(text)
	if err != nil {
		return nil, err
	}
	r.Origin = origin
	return Rules{r}, nil
}

// FromList reads a list by its lines: one rule or "@NAME" a line. A "#" at the
// beginning of a line or behind a blank begins a comment; lines that hold nothing
// else are skipped. file is the list as it was named, "-" for standard input: it is
// for messages and origins.
func FromList(file string, lines []string, sets Lookup) (Rules, error) {
	name, origin := fmt.Sprintf("%q", file), "list "+file
	if file == "-" {
		name, origin = "standard input", "standard input"
	}
	var rules Rules
	for i, line := range lines {
		line = strings.Trim(withoutComment(line), " \t")
		if line == "" {
			continue
		}
		more, err := From(line, fmt.Sprintf("%s line %d", origin, i+1), sets)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, i+1, err)
		}
		if rules = append(rules, more...); len(rules) > MaxRules {
			return nil, fmt.Errorf("%s: line %d: %w", name, i+1, rules.Check())
		}
	}
	return rules, nil
}

func withoutComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

// SetsFile is the file of the user's own sets, hosts.tsv in ~/.config/pikuri, or "" if
// the home is unknown. Refuse it with confine.RefuseWritable before LoadSets: a sandboxed
// command could have written it.
func SetsFile(home string, getenv func(string) string) string {
	return usertable.Path(home, getenv, "hosts.tsv")
}

// Sets are named sets of rules that a user keeps in a file.
type Sets struct {
	file string
	sets map[string]Rules
}

// LoadSets reads a table of sets: set, rule and, if need be, "private" a row, with
// one tab between them. A file that does not exist has no sets. It refuses a file
// that another user could have written.
func LoadSets(file string) (Sets, error) {
	s := Sets{file: file, sets: map[string]Rules{}}
	text, err := usertable.Read(file)
	if err != nil {
		return Sets{}, err
	}
	for number, row := range usertable.Rows(text) {
		if err := s.add(row); err != nil {
			return Sets{}, fmt.Errorf("%q: line %d: %w", file, number, err)
		}
	}
	return s, nil
}

func (s *Sets) add(row string) error {
	column := strings.Split(row, "\t")
	if len(column) < 2 || len(column) > 3 {
		return fmt.Errorf("%d columns, want 2 or 3 with one tab between them: set, rule, \"private\"", len(column))
	}
	set, rule := column[0], column[1]
	if !isSetName(set) {
		return fmt.Errorf("%q is no name of a set: type letters, digits, \".\", \"-\" and \"_\"", set)
	}
	if len(column) == 3 && column[2] != "-" {
		rule += " " + column[2]
	}
	r, err := Parse(rule)
	if err != nil {
		return err
	}
	r.Origin = fmt.Sprintf("set @%s of %s", set, s.file)
	s.sets[set] = append(s.sets[set], r)
	return nil
}

// Rules returns the rules of a set.
func (s Sets) Rules(set string) (Rules, error) {
	if rules, ok := s.sets[set]; ok {
		return slices.Clone(rules), nil
	}
	file := s.file
	if file == "" {
		return nil, fmt.Errorf("there is no set %q: set HOME, sets are in ~/.config/pikuri/hosts.tsv", "@"+set)
	}
	if len(s.sets) == 0 {
		return nil, fmt.Errorf("there is no set %q: %q has no sets; add a row: set, tab, NAME:PORT", "@"+set, file)
	}
	there := "@" + strings.Join(slices.Sorted(maps.Keys(s.sets)), ", @")
	return nil, fmt.Errorf("there is no set %q in %q: it has %s", "@"+set, file, there)
}

func isSetName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isNameByte(c) && c != '.' && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return name != "" && name[0] != '.' && name[0] != '-'
}
