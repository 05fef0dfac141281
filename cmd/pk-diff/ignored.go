package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitignore"
	"pikuri/lib/overlay"
)

// gather folds the entries of each new or removed directory that git ignores into its line.
// It uses the ignore rules of the project on the host, not the trial's version of them. It
// folds entries only that git does not track, that came or went with the directory, and that
// land: the command must not be able to hide others behind a mode. Outside of repositories it
// folds nothing.
func (p *printer) gather(lines []line) []line {
	g, ok := p.gathering()
	if !ok {
		return lines
	}
	var kept []line
	for n := 0; n < len(lines); n++ {
		kept = append(kept, lines[n])
		head := &kept[len(kept)-1]
		if !g.gathers(*head) {
			continue
		}
		var others []line
		entries := 0
		for n+1 < len(lines) && strings.HasPrefix(lines[n+1].name, head.name) {
			if n++; g.folds(*head, lines[n]) {
				entries++
			} else {
				others = append(others, lines[n])
			}
		}
		if entries > 0 {
			if head.remark != "" {
				head.remark += "; "
			}
			head.remark += fmt.Sprintf("ignored by git, %s (--all lists them)", cli.Count(entries, "entry", "entries"))
		}
		kept = append(kept, others...)
	}
	return kept
}

// gathering knows the files that git on the host ignores and tracks.
type gathering struct {
	project string
	top     string // of the work tree
	below   string // the project in it, "" or with a slash at its end
	tree    *gitignore.Tree
	known   map[string]*gitignore.Rules
	tracked *index.Index
}

// gathering returns false if the project is in no work tree, or git's index cannot be read.
func (p *printer) gathering() (*gathering, bool) {
	project := p.trial.Project()
	around, ok := gitconfig.Around(project)
	below, inside := strings.CutPrefix(project+"/", around.WorkTree+"/")
	if !ok || !inside {
		return nil, false
	}
	tracked := new(index.Index)
	text, err := os.ReadFile(around.GitDir + "/index")
	if err == nil {
		tracked, err = index.ParseHost(text, 2*p.format().Size())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false
	}
	var user []byte
	if file := gitconfig.ExcludesFile(project, os.LookupEnv); file != "" {
		user, _, _ = overlay.ReadFile(unix.AT_FDCWD, file, 0, gitignore.MaxFile+1)
	}
	tree := &gitignore.Tree{Root: "/", User: user, Read: func(path string, most int) []byte {
		text, _, _ := overlay.ReadFile(unix.AT_FDCWD, path, unix.O_NOFOLLOW, int64(most)+1)
		return text
	}}
	return &gathering{project, around.WorkTree, below, tree, map[string]*gitignore.Rules{}, tracked}, true
}

// gathers reports whether entries are folded into a line.
func (g *gathering) gathers(head line) bool {
	if head.letter != "A" && head.letter != "D" || !strings.HasSuffix(head.name, "/") || head.item.Root.Path != g.project {
		return false
	}
	has := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	return g.tree.Ignored(g.known, g.top, g.below+head.item.Path, true, has)
}

func (g *gathering) folds(head, l line) bool {
	return l.letter == head.letter && l.item.Refused == "" && l.item.Conflict == "" && !l.item.Repository && !g.tracked.Has(g.below+l.item.Path)
}

// format is the hash function of the project's repository.
func (p *printer) format() objects.Format {
	around, ok := gitconfig.Around(p.trial.Project())
	if !ok {
		return objects.SHA1
	}
	format, _, _ := objects.FormatOf(around.CommonDir) // SHA-1 if it cannot be read
	return format
}
