package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitignore"
	"pikuri/lib/overlay"
)

// gather folds the entries of each directory that git ignores into one line. It uses the
// ignore rules of the project on the host, not the trial's version of them. Outside of
// repositories it folds nothing.
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
	project := p.trial.Project()
	around, ok := gitconfig.Around(project)
	below, inside := strings.CutPrefix(project+"/", around.WorkTree+"/")
	if !ok || !inside {
		return nil
	}
	var user []byte
	if file := gitconfig.ExcludesFile(project, os.LookupEnv); file != "" {
		user, _, _ = overlay.ReadFile(unix.AT_FDCWD, file, 0, gitignore.MaxFile+1)
	}
	tree := &gitignore.Tree{Root: "/", User: user, Read: func(path string, most int) []byte {
		text, _, _ := overlay.ReadFile(unix.AT_FDCWD, path, unix.O_NOFOLLOW, int64(most)+1)
		return text
	}}
	has := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	ignored, known := map[string]bool{}, map[string]*gitignore.Rules{}
	for _, l := range lines {
		if strings.HasSuffix(l.name, "/") && l.item.Root.Path == project {
			path := strings.TrimSuffix(l.item.Path, "/")
			ignored[path] = tree.Ignored(known, around.WorkTree, below+path, true, has)
		}
	}
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
