package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/objects"
)

// gitTime bounds the wait for git, which reads the rules of the project.
const gitTime = 10 * time.Second

// gather makes one line of those in each directory that git ignores. The rules are those
// of the project, and git runs there: it reads nothing that the trial has written. Without git, or
// outside of repositories, nothing is ignored.
func (p *printer) gather(lines []line) []line {
	if len(lines) == 0 {
		return lines
	}
	ignored := p.ignoredOf(lines)
	var kept []line
	for n := 0; n < len(lines); n++ {
		l := lines[n]
		if !ignored[strings.TrimSuffix(l.item.Path, "/")] || !strings.HasSuffix(l.name, "/") || l.item.Root.Path != p.trial.Project() {
			kept = append(kept, l)
			continue
		}
		entries := 0
		for n+1 < len(lines) && strings.HasPrefix(lines[n+1].name, l.name) {
			n++
			entries++
		}
		if entries > 0 {
			l.remark = fmt.Sprintf("ignored by git, %d entries (--all lists them)", entries)
		}
		kept = append(kept, l)
	}
	return kept
}

// ignoredOf returns the directories among the lines that git ignores.
func (p *printer) ignoredOf(lines []line) map[string]bool {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil
	}
	var names bytes.Buffer
	for _, l := range lines {
		if strings.HasSuffix(l.name, "/") && l.item.Root.Path == p.trial.Project() {
			names.WriteString(l.item.Path + "/\x00")
		}
	}
	if names.Len() == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), gitTime)
	defer stop()
	cmd := exec.CommandContext(ctx, git, "-C", p.trial.Project(), "-c", "core.fsmonitor=false", "check-ignore", "--no-index", "--stdin", "-z")
	cmd.Stdin = &names
	out, _ := cmd.Output() // 1: none is ignored; 128: no repository
	ignored := map[string]bool{}
	for name := range strings.SplitSeq(string(out), "\x00") {
		ignored[strings.TrimSuffix(name, "/")] = true
	}
	delete(ignored, "")
	return ignored
}

// format is the hash function of the project's repository.
func (p *printer) format() objects.Format {
	around, ok := gitconfig.Around(p.trial.Project())
	if !ok {
		return objects.SHA1
	}
	format, _, _ := gitdir.FormatOf(around.CommonDir) // SHA-1 if it cannot be read
	return format
}
