package gitland

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A user learns to where the next push will go, in whatever way a command has changed it.
func TestRemotesAreNamed(t *testing.T) {
	for _, row := range []struct {
		name, command string
		told          []string
	}{
		{"URL for pushes", `git remote set-url --push origin https://evil.example/x`, []string{`the pushurl of the remote "origin" is now "https://evil.example/x"`}},
		{"URL", `git remote set-url origin git@evil.example:x`, []string{`the url of the remote "origin" is now "git@evil.example:x"`}},
		{"further URL", `git remote set-url --add origin https://evil.example/x`, []string{`the url of the remote "origin" is now "https://work.example/x", "https://evil.example/x"`}},
		{"URL for pushes removed", `git config --unset remote.side.pushurl`, []string{`the pushurl of the remote "side" is now none`}},
		{"remote for a branch", `git remote add evil https://evil.example/x; git config branch.main.remote evil`, []string{
			`the remote of the branch "main" is now "evil"`, `the url of the remote "evil" is now "https://evil.example/x"`}},
		{"branches that are fetched", `git config remote.origin.fetch +refs/heads/main:refs/remotes/origin/main; git remote add new https://work.example/n`, []string{
			`the fetch of the remote "origin" is now "+refs/heads/main:refs/remotes/origin/main"`, `the url of the remote "new" is now "https://work.example/n"`}},
		{"no branches are fetched", `git config --unset remote.origin.fetch`, []string{`the fetch of the remote "origin" is now none`}},
		{"upstream of a branch that the command moves", `git update-ref refs/heads/topic $(git commit-tree -p topic -m m topic^{tree}); git config branch.topic.remote side; git config branch.topic.merge refs/heads/main; git config branch.topic.rebase true`, []string{
			`git pull on the branch "topic" now merges "refs/heads/main"`, `the setting rebase of the branch "topic", for git pull, is now "true"`, `the remote of the branch "topic" is now "side"`}},
		{"upstream of a branch that the command makes again", `git update-ref -d refs/heads/up; git branch up; git config branch.up.merge refs/heads/up; git config branch.up.rebase true`, []string{
			`git pull on the branch "up" now merges "refs/heads/up"`, `the setting rebase of the branch "up", for git pull, is now "true"`}},
		{"upstream of a new branch", `git branch new; git config branch.new.remote origin; git config branch.new.merge refs/heads/main; git config branch.new.rebase true`, nil},
		{"upstream of a branch that is to come", `git config branch.new.remote origin; git config branch.new.merge refs/heads/main`, []string{`git pull on the branch "new" now merges "refs/heads/main"`}},
		{"upstream of an old branch at origin", `git config branch.topic.remote origin; git config branch.topic.merge refs/heads/topic`, nil},
		{"a branch that goes", `git branch -q -D up`, nil},
		{"many before one of the host's", `for i in 1 2 3 4 5 6 7 8 9 10; do git remote add a$i https://evil.example/x; git config branch.a$i.merge refs/heads/main; git config branch.a$i.remote a$i; done; git remote set-url origin https://evil.example/o; git config branch.topic.remote .`, []string{
			`the url of the remote "origin" is now "https://evil.example/o"`, `the remote of the branch "topic" is now "."`, "a1", "a10", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "11 more"}},
		{"many", `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "[remote \"r$i\"] url = https://evil.example/x" >>.git/config; done`, []string{
			"r1", "r10", "r11", "r12", "r2", "r3", "r4", "r5", "r6", "r7", `2 more`}},
		{"other settings", `git config branch.topic.remote origin; git config branch.topic.merge refs/heads/topic; git config remote.origin.tagOpt --tags`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; git remote add origin https://work.example/x; git remote add side https://work.example/y; git config remote.side.pushurl https://work.example/z; git config branch.main.remote origin; git branch topic; git branch up; git config branch.up.merge refs/heads/main`)
			told := g.landed(g.mount(g.Root+"-layers", row.command))
			if assert.Len(t, told, len(row.told), "%q", told) {
				for i, line := range row.told {
					assert.Contains(t, told[i], line)
				}
			}
		})
	}
}
