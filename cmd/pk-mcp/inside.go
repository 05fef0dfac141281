package main

import (
	"regexp"
	"strings"
)

var (
	quotedPath = regexp.MustCompile(`"/(?:[^"\\]|\\.)*"`)
	rootList   = regexp.MustCompile(` \("/[^)]*\)`)
	ofOptions  = regexp.MustCompile(`(?:^|[:;,]?(?: no)? )--[a-z].*`)
)

// inside removes the parts of a message of pk-bash or pk-fs that are useful only on the
// host: paths that the fence does not show, and options. It keeps the text that the model
// typed.
func (s *server) inside(message, typed string) string {
	s.children.mu.Lock()
	defer s.children.mu.Unlock()
	message = rootList.ReplaceAllString(message, "")
	message = quotedPath.ReplaceAllStringFunc(message, func(quoted string) string {
		path := strings.Trim(quoted, `"`)
		for _, r := range s.roots {
			below, ok := strings.CutPrefix(path+"/", strings.TrimSuffix(r.Path, "/")+"/")
			switch {
			case ok && s.isTmp(r):
				return `"/tmp/` + strings.TrimSuffix(below, "/") + `"`
			case ok:
				return quoted
			}
		}
		if strings.Contains(typed, path) {
			return quoted
		}
		return "a file outside"
	})
	if at := ofOptions.FindStringIndex(message); at != nil && !strings.Contains(typed, "--") {
		message = strings.TrimSpace(message[:at[0]] + ": the server's options forbid it")
	}
	return strings.TrimPrefix(message, ": ")
}

// isTmp reports whether a root of pk-fs is the session tmp, which is /tmp for commands.
func (s *children) isTmp(r root) bool {
	return s.session != "" && strings.Contains(r.Path, "/workspace-"+s.session+"/")
}
