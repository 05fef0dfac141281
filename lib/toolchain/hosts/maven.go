package hosts

import (
	"cmp"
	"encoding/xml"
	"path/filepath"
	"strings"
)

// mavenSettings holds the elements of settings.xml that name hosts: Settings
// Reference of Maven.
type mavenSettings struct {
	Mirrors []struct {
		URL     string `xml:"url"`
		Of      string `xml:"mirrorOf"`
		Blocked string `xml:"blocked"`
	} `xml:"mirrors>mirror"`
	Profiles []struct {
		Repositories []string `xml:"repositories>repository>url"`
		Plugins      []string `xml:"pluginRepositories>pluginRepository>url"`
	} `xml:"profiles>profile"`
}

func (s *survey) maven() {
	mirrored := false
	for _, f := range []*file{s.read(User, s.below(".m2/settings.xml")), s.read(System, s.mavenGlobal())} {
		if f == nil {
			continue
		}
		var settings mavenSettings
		if err := xml.Unmarshal([]byte(f.text), &settings); err != nil {
			s.note("%q: %v; left out", f.from.Place, err)
			continue
		}
		for _, m := range settings.Mirrors {
			if strings.TrimSpace(m.Blocked) == "true" {
				continue // its URL only says that nothing is reached
			}
			s.url(setting{s.expandMaven(f, m.URL), f.from})
			of := strings.Split(strings.ReplaceAll(m.Of, " ", ""), ",")
			for _, name := range of {
				mirrored = mirrored || name == "*" || name == "central" || name == "external:*"
			}
		}
		for _, p := range settings.Profiles {
			for _, url := range append(p.Repositories, p.Plugins...) {
				s.url(setting{s.expandMaven(f, url), f.from})
			}
		}
	}
	if !mirrored && s.program("mvn") != "" {
		s.noDefault("mirror of the central repository")
	}
}

// expandMaven knows ${env.NAME}.
func (s *survey) expandMaven(f *file, url string) string {
	return s.expand(f, strings.ReplaceAll(url, "${env.", "${"))
}

// mavenGlobal is the settings.xml of the installation.
func (s *survey) mavenGlobal() string {
	home := cmp.Or(s.env["MAVEN_HOME"], s.env["M2_HOME"])
	if program := s.program("mvn"); home == "" && program != "" {
		home = filepath.Dir(filepath.Dir(program))
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, "conf/settings.xml")
}
