package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	quotedPath = regexp.MustCompile(`"/(?:[^"\\]|\\.)*"`)
	rootList   = regexp.MustCompile(` \("/[^)]*\)`)
	advice     = regexp.MustCompile(`(?:(?: until)?[:;,] (?:on the host\b|name a session\b|(?:use |run )?pk-[a-z]+ |mv [/'])| --[a-z]).*$`)
	ofCall     = regexp.MustCompile(`^(?:there is no |job "|[0-9]+ (?:jobs are|operations wait)|the loop is ending|the request |the working directory |the field "|` +
		`the (?:signal|cwd|command|timeout|wait_ms|input)\b|timeout must be |empty bash command|user declined )`)
	ofOptions = regexp.MustCompile(`(?:^|[:;,]?(?: no)? )--[a-z].*`)
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

// Texts for the model that replace messages about the setup of this server.
const (
	notAllowed = "the user's settings do not let this server run commands; see standard error of pk-mcp"
	noFence    = "no sandbox can be made for commands; see standard error of pk-mcp"
	notClean   = "something went wrong after the command; see standard error of pk-mcp"
)

// forModel returns a result of pk-bash as the model may see it. All messages of a result
// pass here. Those not known to be about the call may quote the user's files, and
// options that the model cannot give: they go to standard error instead.
func (s *server) forModel(r *result, typed, cwd string) *result {
	shown := *r
	switch {
	case r.Error == "":
	case ofCall.MatchString(r.Error), cwd != "" && (strings.HasPrefix(r.Error, fmt.Sprintf("cannot read %q:", cwd)) || strings.HasPrefix(r.Error, fmt.Sprintf("cannot begin in %q:", cwd))):
		shown.Error = s.inside(r.Error, typed)
	default:
		if s.stderr != nil {
			fmt.Fprintf(s.stderr, "pk-mcp: not told to the model: %s\n", oneLine(r.Error))
		}
		switch r.Outcome {
		case "refused":
			shown.Error = notAllowed
		case "sandbox-failed":
			shown.Error = noFence
		default:
			shown.Error = notClean
		}
	}
	shown.Git, shown.Ended, shown.Background = nil, nil, nil
	for _, line := range r.Git {
		shown.Git = append(shown.Git, s.inside(advice.ReplaceAllString(line, ""), typed))
	}
	for _, line := range r.Ended {
		shown.Ended = append(shown.Ended, s.inside(line, line))
	}
	for _, line := range r.Background {
		shown.Background = append(shown.Background, s.inside(line, line))
	}
	shown.Network = slices.Clone(r.Network)
	for i, c := range shown.Network {
		shown.Network[i].Reason = s.inside(c.Reason, typed)
	}
	return &shown
}

// isTmp reports whether a root of pk-fs is the session tmp, which is /tmp for commands.
func (s *children) isTmp(r root) bool {
	return s.session != "" && strings.Contains(r.Path, "/workspace-"+s.session+"/")
}
