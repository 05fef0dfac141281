package refs

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each scene runs git in the view. The host has to end with the refs of the view,
// and with all commits that it ever had.
func TestScenes(t *testing.T) {
	t.Parallel()
	const history = "c 1; c 2; c 3; git branch old HEAD~1; git tag v1; git tag -a -m a v2"
	for _, row := range []struct{ name, host, session, want string }{
		{"nothing", history, "true", ""},
		{"a commit", history, "c 4", "HEAD main"},
		{"two commits", history, "c 4; c 5", "HEAD main"},
		{"an amended commit", history, "git commit -q --amend -m x", "HEAD main"},
		{"a hard reset", history, "git reset -q --hard HEAD~2", "HEAD main"},
		{"a commit and gc", history, "c 4; git gc -q", "HEAD main"},
		{"gc alone", history, "git gc -q --prune=now", ""},
		{"packed refs on the host", history + "; git pack-refs --all", "c 4", "HEAD main"},
		{"packed refs on the host, gc", history + "; git pack-refs --all; c 9", "git pack-refs --all", ""},
		{"packed refs on the host, deletion", history + "; git pack-refs --all", "git branch -q -D old", "-old"},
		{"deletion of a packed and loose ref", history + "; git pack-refs --all; git branch -f old HEAD", "git branch -q -D old", "-old"},
		{"first commit", "true", "c 1", "HEAD main"},
		{"unborn branch of another name", "true", "git checkout -q -b x; c 1", "HEAD x"},
		{"new branch, checked out", history, "git checkout -q -b new; c 4", "HEAD new"},
		{"detached", history, "git checkout -q --detach HEAD~1", "HEAD"},
		{"orphan", history, "git checkout -q --orphan o", "HEAD"},
		{"orphan with a commit", history, "git checkout -q --orphan o; c o", "HEAD o"},
		{"commit, then an orphan with a commit", history, "c 4; git checkout -q --orphan o; c o; c p", "HEAD main o"},
		{"branch of a deep name", history, "git branch a/b/c", "a/b/c"},
		{"branch renamed", history, "git branch -m main trunk", "HEAD -main trunk"},
		{"branch renamed below itself", history, "git branch -m old old/er", "-old old/er"},
		{"branch renamed to its directory", history + "; git branch d/e HEAD~2", "git branch -m d/e d", "d -d/e"},
		{"branch renamed to its directory, packed", history + "; git branch d/e HEAD~2; git pack-refs --all", "git branch -m d/e d", "d -d/e"},
		{"tag packed beside a file of the host's", history + "; git tag rel/0", "git tag -a -m x rel/2; git pack-refs --all", "refs/tags/rel/2"},
		{"tag packed in place of the host's", history + "; git tag rel/1", "git tag -d rel/1; git tag -a -m x rel/2; git gc -q", "-refs/tags/rel/1 refs/tags/rel/2"},
		{"tag packed below a deleted one", history + "; git tag r", "git tag -d r; git tag -a -m x r/1; git gc -q", "-refs/tags/r refs/tags/r/1"},
		{"commit packed beside a file of the host's", history + "; git update-ref refs/x/a HEAD", "git update-ref refs/x/b $(git commit-tree -m x -p HEAD HEAD^{tree}); git pack-refs --all", "refs/x/b"},
		{"branch packed beside a file of the host's", history + "; git branch f/a", "git checkout -q -b f/b; c 4; git gc -q", "HEAD f/b"},
		{"branch of HEAD renamed below itself, packed", history + "; git branch -m f", "git branch -m f/x; c 4; git gc -q", "HEAD -f f/x"},
		{"branch moved to another", history, "git branch -f old main~2", "old"},
		{"branch moved back, and another to it", history, "git branch -f old main; git reset -q --hard HEAD~2", "HEAD main old"},
		{"branch moved back, and the others deleted", history, "git reset -q --hard HEAD~2; git branch -q -D old; git tag -d v1; git tag -d v2", "HEAD main -old -refs/tags/v1 -refs/tags/v2"},
		{"detached commit left", history + "; git checkout -q --detach; c only", "git checkout -q main", "HEAD"},
		{"detached commit left for an orphan", history + "; git checkout -q --detach; c only", "git checkout -q --orphan o", "HEAD"},
		{"detached commit amended", history + "; git checkout -q --detach; c only", "git commit -q --amend -m x", "HEAD"},
		{"remote's branch moved back", history + "; git update-ref refs/remotes/o/x $(git commit-tree -m only HEAD^{tree})", "git update-ref refs/remotes/o/x main", "refs/remotes/o/x"},
		{"notes made anew", history + "; git notes add -m n", "git update-ref -d refs/notes/commits; git notes add -m m HEAD~1", "refs/notes/commits"},
		{"branch of the same name as one in the trash", history + "; git update-ref refs/pk/trash/heads/main HEAD~2; git update-ref refs/pk/trash/heads/main-2 HEAD~1", "git commit -q --amend -m x", "HEAD main"},
		{"branch deleted", history + "; git branch gone; git checkout -q gone; c lost; git checkout -q main", "git branch -q -D gone", "-gone"},
		{"everything deleted", history + "; git checkout -q old; c 8; git checkout -q main",
			`git for-each-ref --format="delete %(refname)" | git update-ref --stdin`, "HEAD -main -old -refs/tags/v1 -refs/tags/v2"},
		{"everything deleted, packed", history + "; git pack-refs --all",
			`git for-each-ref --format="delete %(refname)" | git update-ref --stdin`, "HEAD -main -old -refs/tags/v1 -refs/tags/v2"},
		{"tag moved", history, "git tag -f v1 HEAD~2", "refs/tags/v1"},
		{"annotated tag moved", history, "git tag -f -a -m b v2 HEAD~2", "refs/tags/v2"},
		{"note", history, "git notes add -m n", "refs/notes/commits"},
		{"bisect", history, "git bisect start HEAD HEAD~2 >/dev/null", "HEAD refs/bisect/bad refs/bisect/good-*"},
		{"remote with a HEAD", history, "git update-ref refs/remotes/o/main HEAD; git symbolic-ref refs/remotes/o/HEAD refs/remotes/o/main", "refs/remotes/o/HEAD refs/remotes/o/main"},
		{"remote removed", history + "; git remote add o x; git update-ref refs/remotes/o/main HEAD~1; git symbolic-ref refs/remotes/o/HEAD refs/remotes/o/main",
			"git remote rm o", "-refs/remotes/o/HEAD -refs/remotes/o/main"},
		{"stash", history, "echo x >>f; git stash -q", "HEAD refs/stash"},
		{"second stash", history + "; echo x >>f; git stash -q", "echo y >>f; git stash -q", "HEAD refs/stash"},
		{"stash popped", history + "; echo x >>f; git stash -q", "git stash pop -q", "-refs/stash"},
		{"newer stash dropped", history + "; echo x >>f; git stash -q; echo y >>f; git stash -q", "git stash drop -q", "refs/stash"},
		{"older stash dropped", history + "; echo x >>f; git stash -q; echo y >>f; git stash -q", "git stash drop -q stash@{1}", "refs/stash"},
		{"stashes cleared", history + "; echo x >>f; git stash -q; echo y >>f; git stash -q", "git stash clear", "-refs/stash"},
		{"rebase", history + "; git checkout -q old; echo n >g; git add g; git commit -q -m g", "git rebase -q main", "HEAD old"},
		{"merge", history + "; git checkout -q old; echo n >g; git add g; git commit -q -m g", "git merge -q --no-edit main", "HEAD old"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, row.host)
			before, held := w.reachable(), w.held()
			w.session(row.session)

			lines := w.land()

			view := "\n" + w.refs(w.copy)
			got := []string{}
			for _, line := range lines {
				name, ok := strings.CutPrefix(line, "landed ")
				require.True(t, ok, lines)
				if name != head && !strings.Contains(view, "\n"+name+" ") {
					name = "-" + name
				}
				got = append(got, strings.Replace(name, heads, "", 1))
			}
			want := strings.Fields(row.want)
			require.Len(t, got, len(want), lines)
			for i := range want {
				assert.Truef(t, got[i] == want[i] || strings.HasSuffix(want[i], "*") && strings.HasPrefix(got[i], strings.TrimSuffix(want[i], "*")), "%q, want %q", got, want)
			}
			assert.Equal(t, view, "\n"+w.refs(w.tree))
			if row.name == "orphan with a commit" {
				assert.Equal(t, "pk: s1: commit (initial): o", w.git("reflog", "-1", "--format=%gs", "o"))
			}
			if strings.Contains(row.name, "stash") {
				assert.Equal(t, run(t, w.copy, "git", "stash", "list"), run(t, w.tree, "git", "stash", "list"))
			}
			w.sound(before)
			assert.Empty(t, w.land(), "the second time")
			if strings.HasPrefix(row.want, "HEAD") {
				view, err := os.ReadFile(w.view + "/logs/HEAD")
				require.NoError(t, err)
				host, err := os.ReadFile(w.host + "/logs/HEAD")
				require.NoError(t, err)
				if !strings.HasPrefix(row.name, "everything") { // git logs that HEAD's branch went
					assert.Equal(t, string(view), strings.ReplaceAll(string(host), "\tpk: s1: ", "\t"))
				}
			}
			w.forget()
			w.hold(held)
		})
	}
}
