package hosts

import (
	"path/filepath"
	"strings"

	"pikuri/lib/gitconfig"
)

// git reads the remotes of the repository around the project.
func (s *survey) git() {
	if !s.WithProject || s.Project == "" {
		return
	}
	repository, ok := gitconfig.Around(s.Project)
	if !ok {
		return
	}
	path := filepath.Join(repository.CommonDir, "config")
	entries := s.gitEntries(Project, path)
	instead := rewrites(entries)
	for _, p := range []place{{User, s.below(".gitconfig")}, {User, s.config("git/config")}, {System, s.system("/etc/gitconfig")}} {
		for prefix, base := range rewrites(s.gitEntries(p.level, p.path)) {
			if _, ok := instead[prefix]; !ok {
				instead[prefix] = base
			}
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Key, "remote.") && (strings.HasSuffix(e.Key, ".url") || strings.HasSuffix(e.Key, ".pushurl")) {
			s.remote(setting{rewrite(e.Value, instead), Source{s.tool, Project, path}})
		}
	}
}

func (s *survey) gitEntries(level Level, path string) []gitconfig.Entry {
	f := s.read(level, path)
	if f == nil {
		return nil
	}
	entries, err := gitconfig.Parse(path, []byte(f.text))
	if err != nil {
		s.note("%v; what follows is left out", err)
	}
	return entries
}

// rewrites returns the bases of url.BASE.insteadOf by the prefix that each
// replaces: git-config(1).
func rewrites(entries []gitconfig.Entry) map[string]string {
	instead := map[string]string{}
	for _, e := range entries {
		base, ok := strings.CutPrefix(e.Key, "url.")
		base, of := strings.CutSuffix(base, ".insteadof")
		if ok && of && e.Value != "" {
			instead[e.Value] = base
		}
	}
	return instead
}

// rewrite replaces the longest matching prefix of the URL.
func rewrite(url string, instead map[string]string) string {
	longest := ""
	for prefix := range instead {
		if strings.HasPrefix(url, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	if longest == "" {
		return url
	}
	return instead[longest] + url[len(longest):]
}

// remote adds the host of a URL, or of the form [user@]host:path. A path in which "/"
// comes before ":" is a local one, and "helper::" runs a program.
func (s *survey) remote(v setting) {
	if strings.Contains(v.value, "://") {
		s.url(v)
		return
	}
	if before, rest, ok := strings.Cut(v.value, "["); ok && !strings.ContainsAny(before, "/:") { // [host:port]:path, or [::1]:path
		host, _, _ := strings.Cut(rest, "]")
		if strings.Count(host, ":") > 1 {
			host = "[" + host + "]"
		}
		s.url(v.with("ssh://" + host))
		return
	}
	host, path, ok := strings.Cut(v.value, ":")
	if ok && !strings.Contains(host, "/") && !strings.HasPrefix(path, ":") {
		s.url(v.with("ssh://" + host))
	}
}
