package hosts

import (
	"cmp"
	"path/filepath"
	"strings"
)

// cargo reads registries and sources, replaced ones too: The Cargo Book,
// Configuration.
func (s *survey) cargo() {
	layers := s.cargoVariables()
	for dir := filepath.Clean(s.Project); s.WithProject && filepath.IsAbs(dir); dir = filepath.Dir(dir) {
		layers = append(layers, s.cargoConfig(Project, filepath.Join(dir, ".cargo")))
		if dir == "/" {
			break
		}
	}
	layers = append(layers, s.cargoConfig(User, cmp.Or(s.env["CARGO_HOME"], s.below(".cargo"))))
	replaced := false
	for _, key := range keys(layers) {
		picked := pick(layers, key)
		if isRegistry(key) {
			s.urls(picked)
		}
		replaced = replaced || key == "source.crates-io.replace-with" && beyondProject(picked)
	}
	if !replaced && s.program("cargo") != "" {
		s.noDefault("replacement of the default registry")
	}
}

// isRegistry knows registries.NAME.index, source.NAME.registry and source.NAME.git.
func isRegistry(key string) bool {
	table, rest, _ := strings.Cut(key, ".")
	name := rest[strings.LastIndexByte(rest, '.')+1:]
	return table == "registries" && name == "index" || key == "registry.index" ||
		table == "source" && (name == "registry" || name == "git")
}

// cargoVariables are those of registries, CARGO_REGISTRIES_NAME_INDEX.
func (s *survey) cargoVariables() []*layer {
	var layers []*layer
	for _, kv := range s.Environ {
		name, _, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, "CARGO_REGISTRIES_")
		if of, index := strings.CutSuffix(rest, "_INDEX"); ok && index {
			key := strings.ReplaceAll(strings.ToLower(of), "_", "-")
			layers = append(layers, s.variable(name, "registries."+key+".index"))
		}
	}
	return layers
}

// cargoConfig reads "config" of a directory, and only without one "config.toml", as
// Cargo does.
func (s *survey) cargoConfig(level Level, dir string) *layer {
	if dir == "" {
		return nil
	}
	f := s.read(level, filepath.Join(dir, "config"))
	if f == nil {
		f = s.read(level, filepath.Join(dir, "config.toml"))
	}
	return f.layer(func(text string) map[string][]string {
		values, err := parseTOML(text)
		if err != nil {
			s.note("%q: %v; what follows is left out", f.from.Place, err)
		}
		return values
	})
}
