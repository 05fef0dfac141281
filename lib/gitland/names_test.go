package gitland

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/gitconfig"
)

// Git takes these names for other things if no branch has them.
func TestMeans(t *testing.T) {
	t.Parallel()
	g := &guard{settings: []gitconfig.Entry{{Key: "remote.origin.url"}, {Key: "remote.a/b.url"}}}
	for name, other := range map[string]bool{
		"pk/command/heads/x": true, "PK/x": true, "remotes/origin/x": true, "refs/pk/x": true, "heads/x": true, "tags/x": true,
		"main-worktree/FETCH_HEAD": true, "worktrees/w/FETCH_HEAD": true, "FETCH_HEAD": true, "MERGE_MSG": true, "rebase-merge/message": true,
		"modules/m/refs/heads/x": true, "logs/refs/remotes/origin/x": true, "shallow": true,
		"origin": true, "origin/x": true, "a/b": true, "a/b/x": true,
		"main": false, "pkg/x": false, "pk": false, "origins": false, "a": false, "a/c": false, "fix/heads/x": false, "logs/rotate": false, "HEADER": false,
	} {
		assert.Equal(t, other, g.means(name), name)
	}
}
