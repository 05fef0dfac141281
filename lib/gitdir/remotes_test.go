package gitdir

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
		{"many", `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "[remote \"r$i\"] url = https://evil.example/x" >>.git/config; done`, []string{
			"r1", "r10", "r11", "r12", "r2", "r3", "r4", "r5", "r6", "r7", `2 more`}},
		{"other settings", `git config branch.topic.remote origin; git config branch.topic.merge refs/heads/topic; git config branch.main.rebase true; git config remote.origin.tagOpt --tags`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.sh(`repo .; git remote add origin https://work.example/x; git remote add side https://work.example/y; git config remote.side.pushurl https://work.example/z; git config branch.main.remote origin`)
			told := g.landed(g.mount(g.root+"-layers", row.command))
			if assert.Len(t, told, len(row.told), "%q", told) {
				for i, line := range row.told {
					assert.Contains(t, told[i], line)
				}
			}
		})
	}
}
