package hosts

import (
	"regexp"
	"strings"
)

// gem reads the sources of RubyGems and of the project's Gemfile, as text: people write
// both in few forms. gem environment lists the files, and gemfile(5) has the form of the
// Gemfile.
func (s *survey) gem() {
	configured := false
	for _, f := range []*file{s.read(User, s.gemrc()), s.read(System, s.system("/etc/gemrc"))} {
		if f == nil {
			continue
		}
		for _, url := range gemSources(f.text) {
			configured = configured || f.from.Level != Project
			s.url(setting{url, f.from})
		}
		if configured {
			break // the user's list takes the place of the system's
		}
	}
	if f := s.read(Project, s.inProjectDir("Gemfile")); f != nil {
		source := regexp.MustCompile(`(?m)^[ \t]*source[ \t(]*["']([^"'\s]+)["']`)
		for _, m := range source.FindAllStringSubmatch(f.text, -1) {
			s.url(setting{m[1], f.from})
		}
	}
	if !configured && !s.gemDefault() && s.program("gem") != "" {
		s.noDefault("source")
	}
}

func (s *survey) gemrc() string {
	if path := s.env["GEMRC"]; path != "" {
		return path
	}
	return s.below(".gemrc")
}

// gemSources returns the items of the list ":sources:".
func gemSources(text string) []string {
	var list []string
	inside := false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		item, isItem := strings.CutPrefix(trimmed, "-")
		switch {
		case trimmed == "" || trimmed[0] == '#':
		case inside && isItem:
			list = append(list, unquoted(strings.TrimSpace(item)))
		default:
			key, value, _ := strings.Cut(trimmed, "sources:")
			inside = (key == "" || key == ":") && strings.Contains(trimmed, "sources:")
			if inside {
				for _, item := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("[], \t", r) }) {
					list = append(list, unquoted(item))
				}
			}
		}
	}
	return list
}

// gemDefault adds the sources that an installed RubyGems has as its default, and
// reports whether there are any.
func (s *survey) gemDefault() bool {
	defaults := regexp.MustCompile(`def self\.default_sources\s+(?:@default_sources \|\|= )?%w\[([^\]]*)\]`)
	found := false
	for _, pattern := range []string{
		s.system("/usr/lib/ruby/*/rubygems/defaults.rb"),
		s.system("/usr/local/lib/ruby/*/rubygems/defaults.rb"),
		s.below(".rbenv/versions/*/lib/ruby/*/rubygems/defaults.rb"),
	} {
		for _, path := range s.glob(pattern) {
			f := s.read(Default, path)
			if f == nil {
				continue
			}
			if m := defaults.FindStringSubmatch(f.text); m != nil {
				s.words([]setting{{m[1], f.from}})
				found = true
			}
		}
	}
	return found
}
