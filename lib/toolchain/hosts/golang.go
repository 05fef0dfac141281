package hosts

import (
	"path/filepath"
	"strings"
)

// golang reads GOPROXY, GOSUMDB and the patterns of private modules: from the
// environment, the file of `go env -w`, and the defaults that a Go installation
// has in go.env since 1.21. Go Modules Reference, Environment variables.
func (s *survey) golang() {
	names := []string{"GOPROXY", "GOSUMDB", "GONOPROXY", "GOPRIVATE"}
	var layers []*layer
	for _, name := range names {
		layers = append(layers, s.variable(name, name))
	}
	assignments := func(text string) map[string][]string { return pairs(text, false) }
	layers = append(layers, s.read(User, s.goEnv()).layer(assignments), s.goDefaults().layer(assignments))

	proxies := pick(layers, "GOPROXY")
	for _, v := range proxies {
		for proxy := range strings.FieldsFuncSeq(v.value, func(r rune) bool { return r == ',' || r == '|' }) {
			s.url(v.with(proxy)) // "direct" and "off" are no URLs
		}
	}
	for _, v := range pick(layers, "GOSUMDB") {
		s.sumDB(v)
	}
	private := pick(layers, "GONOPROXY")
	if len(private) == 0 {
		private = pick(layers, "GOPRIVATE")
	}
	for _, v := range private {
		for pattern := range strings.SplitSeq(v.value, ",") {
			s.module(v.with(strings.TrimSpace(pattern)))
		}
	}
	if !beyondProject(proxies) && s.program("go") != "" {
		s.noDefault("GOPROXY")
	}
}

func (s *survey) goEnv() string {
	if path := s.env["GOENV"]; path != "" {
		return path // "off" is no absolute path
	}
	return s.config("go/env")
}

func (s *survey) goDefaults() *file {
	root := s.env["GOROOT"]
	if program := s.program("go"); root == "" && program != "" {
		root = filepath.Dir(filepath.Dir(program))
	}
	if root == "" {
		return nil
	}
	return s.read(Default, filepath.Join(root, "go.env"))
}

// sumDB adds a checksum database: "NAME", "NAME+KEY", or either with a URL behind it.
func (s *survey) sumDB(v setting) {
	words := strings.Fields(v.value)
	switch {
	case len(words) == 0 || words[0] == "off":
	case len(words) > 1:
		s.url(v.with(words[1]))
	default:
		name, _, _ := strings.Cut(words[0], "+")
		s.url(v.with("https://" + name))
	}
}

// module adds the host of a pattern of modules that are fetched without a proxy. Its
// first element is a host, in which "*" stands for dots too: path.Match.
func (s *survey) module(v setting) {
	host, _, _ := strings.Cut(v.value, "/")
	if host == "" || host == "none" {
		return
	}
	if strings.ContainsAny(host, " \t:@") {
		s.note("%q: %q is no pattern of a host; left out", v.from.Place, host)
		return
	}
	s.add(v.with(host + ":443"))
}
