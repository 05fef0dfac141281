package hosts

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
)

// npm reads registries: npmrc(5) lists the files, the strongest first.
func (s *survey) npm() {
	dir := s.npmDir()
	layers := []*layer{
		s.npmrc(s.read(Project, s.inProjectDir(".npmrc"))),
		s.npmrc(s.read(User, cmp.Or(s.npmVariable("userconfig"), s.below(".npmrc")))),
		s.npmrc(s.read(System, s.npmGlobal())),
	}
	if dir != "" {
		layers = append(layers, s.npmrc(s.read(Default, filepath.Join(dir, "npmrc"))))
	}
	layers = append(s.npmVariables(), layers...)
	for _, key := range keys(layers) {
		if key == "registry" || strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry") {
			s.urls(pick(layers, key))
		}
	}
	if !beyondProject(pick(layers, "registry")) && s.program("npm") != "" && !s.npmDefault(dir) {
		s.noDefault("registry")
	}
}

// npmVariables: the names are npm_config_KEY, in any case.
func (s *survey) npmVariables() []*layer {
	var layers []*layer
	for _, kv := range s.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if key, ok := strings.CutPrefix(strings.ToLower(name), "npm_config_"); ok && strings.HasSuffix(key, "registry") {
			layers = append(layers, s.variable(name, key))
		}
	}
	return layers
}

func (s *survey) npmVariable(key string) string {
	return cmp.Or(s.env["npm_config_"+key], s.env["NPM_CONFIG_"+strings.ToUpper(key)])
}

func (s *survey) npmrc(f *file) *layer {
	return f.layer(func(text string) map[string][]string {
		values := pairs(text, false)
		for _, list := range values {
			for i := range list {
				list[i] = s.expand(f, list[i])
			}
		}
		return values
	})
}

// npmDir is where npm is installed: its program is a link to bin/npm-cli.js there.
func (s *survey) npmDir() string {
	program := s.program("npm")
	if !strings.HasSuffix(program, "/bin/npm-cli.js") {
		return ""
	}
	return filepath.Dir(filepath.Dir(program))
}

// npmGlobal is the npmrc of the installation: in etc below the prefix, the directory of
// node.
func (s *survey) npmGlobal() string {
	if path := s.npmVariable("globalconfig"); path != "" {
		return path
	}
	prefix := cmp.Or(s.npmVariable("prefix"), s.env["PREFIX"])
	if node := s.program("node"); prefix == "" && node != "" {
		prefix = filepath.Dir(filepath.Dir(node))
	}
	if prefix == "" {
		return ""
	}
	return filepath.Join(prefix, "etc/npmrc")
}

// npmDefault adds the registry that npm's own files give as the default of the option,
// and reports whether one does. They are read as text.
func (s *survey) npmDefault(dir string) bool {
	if dir == "" {
		return false
	}
	const definitions = "@npmcli/config/lib/definitions/definitions.js"
	defaults := regexp.MustCompile(`(?:define|new Definition)\(\s*['"]registry['"]\s*,\s*\{\s*default:\s*['"]([^'"\s]+)['"]`)
	for _, path := range []string{
		filepath.Join(dir, "node_modules", definitions),
		filepath.Join(filepath.Dir(dir), definitions), // Debian has the modules side by side
		filepath.Join(dir, "lib/utils/config/definitions.js"),
	} {
		if f := s.read(Default, path); f != nil {
			if m := defaults.FindStringSubmatch(f.text); m != nil {
				s.url(setting{m[1], f.from})
				return true
			}
		}
	}
	return false
}

// yarn reads .yarnrc.yml as text: registries stand at the top, where a variable wins
// over them, and in scopes: Yarn's documentation,
// Settings.
func (s *survey) yarn() {
	registry := regexp.MustCompile(`(?m)^([ \t]*)["']?npm(?:Registry|Publish)(?:Server|Registry)["']?:[ \t]*["']?([^"'\s#]+)`)
	found := false
	if l := s.variable("YARN_NPM_REGISTRY_SERVER", "registry"); l != nil {
		found = true
		s.urls(pick([]*layer{l}, "registry"))
	}
	replaced := found
	for _, f := range []*file{s.read(User, s.below(".yarnrc.yml")), s.read(Project, s.inProjectDir(".yarnrc.yml"))} {
		if f == nil {
			continue
		}
		for _, m := range registry.FindAllStringSubmatch(f.text, -1) {
			if replaced && m[1] == "" && f.from.Level != Project {
				continue
			}
			found = found || f.from.Level != Project
			s.url(setting{s.expand(f, m[2]), f.from})
		}
	}
	if !found && s.program("yarn") != "" {
		s.noDefault("npmRegistryServer")
	}
}
