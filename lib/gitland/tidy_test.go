package gitland

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Files that stay are ones that git can read.
func TestUnreadableIsDropped(t *testing.T) {
	const rebase = `mkdir rebase-merge; echo x >rebase-merge/done; `
	for _, row := range []struct {
		name, upper string // a script in the upper layer
		gone, stays string
	}{
		{"FIFO in info", `mkdir -p info/d; mkfifo info/exclude info/d/f; echo x >info/attributes`, "info/exclude info/d/f", "info/attributes"},
		{"FIFO in the place of info", `mkfifo info`, "info", ""},
		{"link in info", `mkdir info; mkfifo f; ln -s ../f info/exclude; ln -s x unknown`, "f info/exclude", "unknown"},
		{"holes", `mkdir info; truncate -s 60G info/exclude unknown`, "info/exclude", "unknown"},
		{"configuration", `truncate -s 60G config`, "config", ""},
		{"configuration that is a FIFO", `mkfifo config`, "config", ""},
		{"work tree's configuration", `echo '[a' >config.worktree`, "config.worktree", ""},
		{"work tree's configuration that moves it", `printf '[core]\n\tworktree = /\n' >config.worktree`, "config.worktree", ""},
		{"work tree's configuration, and its work tree is the host's", `printf '[core]\n\tworktree = /host\n\tx = y\n' >config.worktree`, "", "config.worktree"},
		{"rebase", rebase + `mkfifo rebase-merge/head-name; truncate -s 60G rebase-merge/message; ln -s x rebase-merge/l`, "rebase-merge/head-name rebase-merge/message rebase-merge/l", "rebase-merge/done"},
		{"rebase that is a FIFO", `mkfifo rebase-merge`, "rebase-merge", ""},
		{"merge", `mkfifo MERGE_HEAD; echo x >MERGE_MODE`, "MERGE_HEAD", "MERGE_MODE"},
		{"HEAD and index of a rebase", rebase + `echo x >HEAD; echo x >index`, "HEAD index", "rebase-merge/done"},
		{"HEAD of a rebase", rebase + `git -C "$ROOT" rev-parse HEAD~1 >HEAD`, "", "HEAD"},
		{"branch of a cherry-pick", `echo x >CHERRY_PICK_HEAD; mkdir -p refs/heads; echo x >refs/heads/main`, "refs/heads/main", "CHERRY_PICK_HEAD"},
		{"objects of a rebase", rebase + `mkdir -p objects/pack objects/info; mkfifo objects/pack/p.idx; truncate -s 60G objects/pack/p.pack objects/info/alternates; git -C "$ROOT" rev-parse HEAD~1 >HEAD`, "objects/pack/p.idx objects/info/alternates", "objects/pack/p.pack"},
		{"new work tree", `mkdir -p worktrees/new; mkfifo worktrees/new/HEAD; echo x >worktrees/new/gitdir`, "worktrees/new/HEAD", "worktrees/new/gitdir"},
		{"FIFO in the place of a work tree's directory", `mkdir worktrees; mkfifo worktrees/wt`, "worktrees/wt", ""},
		{"large files of a new submodule", `mkdir -p modules/new/objects/pack; truncate -s 60G modules/new/config modules/new/objects/pack/p.pack`, "modules/new/config", "modules/new/objects/pack/p.pack"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(`repo .; git commit -q --allow-empty -m a; git worktree add -q wt; printf '[core]\n\tworktree = /host\n' >.git/config.worktree`)
			l := g.mount(g.Root+"-layers", `:`)
			g.Sh("ROOT=$PWD; cd " + l.Upper() + "; " + row.upper)
			told := strings.Join(g.landed(l), "\n")
			for _, name := range strings.Fields(row.gone) {
				assert.False(t, exists(l.Upper()+"/"+name), name)
				assert.Contains(t, told, "it is dropped")
			}
			for _, name := range strings.Fields(row.stays) {
				assert.True(t, exists(l.Upper()+"/"+name), name)
			}
		})
	}
}
