package hosts

import "strings"

// apt reads the sources of both forms: sources.list(5).
func (s *survey) apt() {
	lists := append([]string{s.system("/etc/apt/sources.list")}, s.glob(s.system("/etc/apt/sources.list.d/*.list"))...)
	for _, path := range lists {
		if f := s.read(System, path); f != nil {
			for line := range strings.Lines(f.text) {
				s.url(setting{aptLine(line), f.from})
			}
		}
	}
	for _, path := range s.glob(s.system("/etc/apt/sources.list.d/*.sources")) {
		if f := s.read(System, path); f != nil {
			for _, uris := range deb822(f.text) {
				s.words([]setting{{uris, f.from}})
			}
		}
	}
}

// aptLine returns the URI of "deb [option=value ...] URI suite ...", or "".
func aptLine(line string) string {
	kind, rest, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), "\t", " "), " ")
	if kind != "deb" && kind != "deb-src" {
		return ""
	}
	rest = strings.TrimLeft(rest, " ")
	if strings.HasPrefix(rest, "[") {
		_, rest, _ = strings.Cut(rest, "]")
	}
	uri, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	return uri
}

// deb822 returns the lines of URIs of the paragraphs that are not turned off.
func deb822(text string) []string {
	var all []string
	var uris []string
	enabled, field := true, ""
	end := func() {
		if enabled {
			all = append(all, uris...)
		}
		uris, enabled, field = nil, true, ""
	}
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		name, value, ok := strings.Cut(trimmed, ":")
		switch {
		case line[0] == '#':
		case trimmed == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			if field == "uris" {
				uris = append(uris, trimmed)
			}
		case ok:
			field = strings.ToLower(strings.TrimSpace(name))
			value = strings.TrimSpace(value)
			if field == "uris" {
				uris = []string{value}
			}
			if field == "enabled" {
				enabled = !strings.Contains(" no false without off disable 0 ", " "+strings.ToLower(value)+" ")
			}
		}
	}
	end()
	return all
}
