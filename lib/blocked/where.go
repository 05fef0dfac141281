package blocked

import (
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/bwrap"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/lazy"
	"pikuri/lib/trace"
)

// where is the working directory of a command, as far as its text tells. Relative paths of
// another directory must not be taken for those of the project.
type where struct {
	dir     string // "": it may have been in several
	operand string // the operand of cd, or of make -C, relative to from; "" for none
	from    string
}

const operand = `('[^']*'|"[^"$\x60\\]*"|~?[\w./@%+,:-]+)`

var (
	cdFirst  = lazy.Regexp(`^\s*cd\s+` + operand + `[ \t]*(?:&&|;|\n|$)`)
	moves    = lazy.Regexp(`(?:(?:^|[^\w./-])(?:cd|pushd|popd)(?:[ \t]+|[^\w./-]|$)|(?:^|[^\w-])-C\s*|--(?:directory|chdir|cwd)[=\s]\s*|npm\s[^\n;&|]*--prefix[=\s]\s*|\b(?:f?chdir|execdir|cwd)\b)` + operand + `?`)
	redirect = lazy.Regexp(`>[>|&]?[ \t]*` + operand)
	hasMoved = lazy.Regexp(`\bcd: |Entering directory`)
)

// where follows a cd at the beginning of the text. After any other change of the working
// directory it is not known. A script may change it, too: its messages name few relative
// paths that also lead somewhere from here.
func (c Command) where(home, output string) where {
	w, text := where{dir: c.Dir}, c.Text
	if first := cdFirst().FindStringSubmatch(text); first != nil && !strings.HasPrefix(first[1], "-") {
		to := unquoted(first[1])
		if rest, ok := strings.CutPrefix(first[1], "~/"); ok {
			to = filepath.Join(home, rest)
		}
		if hasMoved().MatchString(output) { // cd has failed
			return where{operand: to, from: c.Dir}
		}
		w.dir, text = bwrap.Canonical(joined(c.Dir, to)), text[len(first[0]):]
	}
	for _, move := range moves().FindAllStringSubmatch(text, -1) {
		if !number().MatchString(move[1]) { // grep -C 3
			return where{operand: unquoted(move[1]), from: w.dir}
		}
	}
	if hasMoved().MatchString(output) {
		w.dir = ""
	}
	return w
}

func unquoted(word string) string {
	if strings.HasPrefix(word, "'") || strings.HasPrefix(word, `"`) {
		return word[1 : len(word)-1]
	}
	return word
}

// redirects reports whether the text of the command sends an output to a path. Bash says only
// that the file is missing, as it does of one that is to be read.
func (s *search) redirects(path string) bool {
	return slices.ContainsFunc(redirect().FindAllStringSubmatch(s.Text, maxWords), func(match []string) bool {
		return s.place(unquoted(match[1])) == path
	})
}

func joined(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// place is the path that a word means, "" if that is not known.
func (s *search) place(word string) string {
	path := ""
	switch rest, below := strings.CutPrefix(word, "~/"); {
	case below && s.home != "":
		path = filepath.Join(s.home, rest)
	case filepath.IsAbs(word):
		path = filepath.Clean(word)
	case word == s.where.operand && s.where.from != "":
		path = filepath.Join(s.where.from, word)
	case s.where.dir != "":
		path = filepath.Join(s.where.dir, word)
	}
	if s.Traced && !slices.ContainsFunc(s.Failed, func(f trace.Failure) bool { return string(f.Path) == path }) {
		return ""
	}
	return path
}

// within reports whether the command ran in a directory or below it.
func (s *search) within(dir string) bool {
	at := s.where.dir
	if at == "" && s.where.from != "" {
		at = joined(s.where.from, s.where.operand)
	}
	return at != "" && fsat.Within(at, dir)
}
