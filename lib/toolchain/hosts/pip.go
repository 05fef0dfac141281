package hosts

import (
	"path/filepath"
	"regexp"
	"strings"
)

// pip reads indexes: its documentation, Configuration, lists the files and variables. The project has none of its own.
func (s *survey) pip() {
	layers := []*layer{
		s.variable("PIP_INDEX_URL", "index-url"),
		s.variable("PIP_EXTRA_INDEX_URL", "extra-index-url"),
		s.variable("PIP_FIND_LINKS", "find-links"),
	}
	for _, p := range s.pipFiles() {
		layers = append(layers, s.read(p.level, p.path).layer(pipKeys))
	}
	index := pick(layers, "index-url")
	s.words(index)
	s.words(pick(layers, "extra-index-url"))
	s.words(pick(layers, "find-links"))
	if !beyondProject(index) && !s.pipDefault() && (s.program("pip3") != "" || s.program("pip") != "") {
		s.noDefault("index-url")
	}
}

func pipKeys(text string) map[string][]string {
	values := map[string][]string{}
	for key, list := range pairs(text, true) {
		key = strings.ReplaceAll(strings.ToLower(key), "_", "-")
		values[key] = append(values[key], list...)
	}
	return values
}

type place struct {
	level Level
	path  string
}

// pipFiles are the strongest first.
func (s *survey) pipFiles() []place {
	own := s.env["PIP_CONFIG_FILE"]
	if own == "/dev/null" {
		return nil // no file counts then
	}
	places := []place{{User, own}}
	if dir := s.env["VIRTUAL_ENV"]; dir != "" {
		places = append(places, place{User, filepath.Join(dir, "pip.conf")})
	}
	places = append(places, place{User, s.config("pip/pip.conf")}, place{User, s.below(".pip/pip.conf")}, place{System, s.system("/etc/pip.conf")})
	dirs := filepath.SplitList(s.env["XDG_CONFIG_DIRS"])
	if len(dirs) == 0 {
		dirs = []string{s.system("/etc/xdg")}
	}
	for _, dir := range dirs {
		places = append(places, place{System, filepath.Join(dir, "pip/pip.conf")})
	}
	return places
}

// pipDefault adds the index that an installed pip has as its default, and where that
// index keeps its files, and reports whether there is one.
func (s *survey) pipDefault() bool {
	defaults := regexp.MustCompile(`(?m)^PyPI\s*=\s*PackageIndex\(\s*["']([^"'\s]+)["']\s*,\s*(?:file_storage_domain\s*=\s*)?["']([^"'\s]+)["']`)
	virtual := s.env["VIRTUAL_ENV"]
	if virtual != "" {
		virtual += "/lib/python3*/site-packages"
	}
	found := false
	for _, pattern := range []string{
		virtual,
		s.below(".local/lib/python3*/site-packages"),
		s.below(".pyenv/versions/*/lib/python3*/site-packages"),
		s.system("/usr/local/lib/python3*/*-packages"),
		s.system("/usr/lib/python3*/*-packages"),
	} {
		for _, dir := range s.glob(pattern) {
			f := s.read(Default, filepath.Join(dir, "pip/_internal/models/index.py"))
			if f == nil {
				continue
			}
			if m := defaults.FindStringSubmatch(f.text); m != nil {
				s.url(setting{m[1], f.from})
				s.url(setting{"https://" + m[2], f.from})
				found = true
			}
		}
	}
	return found
}
