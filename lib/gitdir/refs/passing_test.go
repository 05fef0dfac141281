package refs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Refs that git removes by itself leave nothing in the trash, unless a commit would be
// lost.
func TestRefsInPassing(t *testing.T) {
	t.Parallel()
	const bisect = "c 1; c 2; c 3; git bisect start HEAD HEAD~2 >/dev/null"
	for _, row := range []struct {
		name, host, session string
		trash               string
	}{
		{"bisect reset", bisect, "git bisect reset", ""},
		{"bisect goes on", bisect, "git bisect bad >/dev/null", ""},
		{"bisect that ends on another branch", bisect, "git bisect reset; git checkout -q --orphan o; git commit -q -m o", ""},
		{"rewritten", "c 1; git update-ref refs/rewritten/onto HEAD; c 2", "git update-ref -d refs/rewritten/onto", ""},
		{"rewritten, and only there", "c 1; git update-ref refs/rewritten/a $(git commit-tree -m x HEAD^{tree})", "git update-ref -d refs/rewritten/a", "refs/pk/trash/rewritten/a"},
		{"the worktree's", "c 1; git update-ref refs/worktree/a HEAD", "git update-ref -d refs/worktree/a", ""},
		{"its log knows more", "c 1; git update-ref --create-reflog refs/worktree/a $(git commit-tree -m x HEAD^{tree}); git update-ref refs/worktree/a HEAD", "git update-ref -d refs/worktree/a", "refs/pk/trash/worktree/a"},
		{"a branch that only a remote branch has", "c 1; git branch old $(git commit-tree -m x HEAD^{tree}); git update-ref refs/remotes/o/x old; git pack-refs --all", "git branch -q -D old", "refs/pk/trash/heads/old"},
		{"a branch in the same history", "c 1; c 2; git branch old HEAD~1", "git branch -q -D old", "refs/pk/trash/heads/old"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, row.host)
			before := w.reachable()
			w.session(row.session)

			changes, _ := w.changes()
			results, err := Apply(w.hostDir(), changes, w.options)
			require.NoError(t, err)
			found := ""
			for _, r := range results {
				assert.Equal(t, Landed, r.Outcome, r)
				if found == "" {
					found = r.Trash
				}
			}
			assert.Equal(t, row.trash, found)
			assert.Equal(t, row.trash != "", w.git("for-each-ref", "refs/pk") != "")
			w.sound(before)
		})
	}
}
