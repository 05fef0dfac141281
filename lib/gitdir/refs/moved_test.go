package refs

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The host changes refs after the layer was mounted.
func TestMovedByTheHost(t *testing.T) {
	t.Parallel()
	const other = "echo o >o; git add o; git commit -q -m host"
	for _, row := range []struct {
		name, session, host string
		want                []string
		check               string // two equal revisions: the host's and "view:…", or the host's
	}{
		{"both commit", "c 4", other, []string{"landed HEAD", "kept refs/heads/main as refs/pk/s1/heads/main"}, "refs/pk/s1/heads/main view:main"},
		{"the host commits, the session packs", "git pack-refs --all", other, nil, "main main"},
		{"the host deletes what the session changes", "git branch -f old HEAD", "git branch -q -D old", []string{"landed refs/heads/old"}, "old view:old"},
		{"the session deletes what the host changes", "git branch -q -D old", "git branch -f old HEAD", []string{"kept refs/heads/old"}, "old main"},
		{"the session deletes what the host changes and packs", "git branch -q -D old", "git branch -f old HEAD; git pack-refs --all", []string{"kept refs/heads/old"}, "old main"},
		{"both the same", "git branch -f old HEAD", "git branch -f old HEAD", nil, "old main"},
		{"both make a branch", "git branch new HEAD~1", "git branch new HEAD", []string{"kept refs/heads/new as refs/pk/s1/heads/new"}, "refs/pk/s1/heads/new view:new"},
		{"both make branches in conflict", "git branch n/m HEAD~1", "git branch n HEAD", []string{"kept refs/heads/n/m as refs/pk/s1/heads/n/m"}, "refs/pk/s1/heads/n/m view:n/m"},
		{"the other way round", "git branch n HEAD~1", "git branch n/m HEAD", []string{"kept refs/heads/n as refs/pk/s1/heads/n"}, "refs/pk/s1/heads/n view:n"},
		{"the session goes on from the host's commit", "git branch -f old HEAD", "git branch -f old HEAD~1", []string{"landed refs/heads/old"}, "old view:old"},
		{"the host moves back", "c 4", "git reset -q --hard HEAD~1", []string{"landed HEAD", "kept refs/heads/main as refs/pk/s1/heads/main"}, "refs/pk/s1/heads/main view:main"},
		{"the host moves back, refs packed", "c 4; git pack-refs --all", "git reset -q --hard HEAD~2; git pack-refs --all", []string{"landed HEAD", "kept refs/heads/main as refs/pk/s1/heads/main"}, "refs/pk/s1/heads/main view:main"},
		{"the host moves forth and back", "c 4", other + "; git reset -q --hard HEAD~1", []string{"landed HEAD", "landed refs/heads/main"}, "main view:main"},
		{"the host moves back, the session to the same commit", "git reset -q --hard HEAD~1", "git reset -q --hard HEAD~1", []string{"landed HEAD"}, "main view:main"},
		{"the session goes on from where the host went back to", "git reset -q --hard HEAD~1; c 4", "git reset -q --hard HEAD~1", []string{"landed HEAD", "kept refs/heads/main as refs/pk/s1/heads/main"}, "refs/pk/s1/heads/main view:main"},
		{"both move a tag", "git tag -f v1 HEAD~1", "git tag -f v1 HEAD~2", []string{"landed refs/tags/v1"}, "v1 view:v1"},
		{"both move a tag apart", "git tag -f v1 HEAD~2", "git tag -f v1 HEAD~1", []string{"kept refs/tags/v1 as refs/pk/s1/tags/v1"}, "refs/pk/s1/tags/v1 view:v1"},
		{"the host makes a branch in a directory, the session packs another", "git branch d/x HEAD~1; git pack-refs --all", "git branch d/y", []string{"landed refs/heads/d/x"}, "d/x view:d/x"},
		{"a new branch stays apart, and HEAD's in its way", "git branch -m main main/x; c 4; git pack-refs --all", "git branch gone; git branch -q -D gone", []string{"kept HEAD", "kept refs/heads/main", "kept refs/heads/main/x as refs/pk/s1/heads/main/x"}, "main main"},
		{"the session leaves a detached commit", "git checkout -q --detach; c d; git checkout -q main; c 4", other, []string{"landed HEAD", "kept refs/heads/main as refs/pk/s1/heads/main"}, "refs/pk/trash/HEAD view:HEAD@{2}"},
		{"the session leaves a detached commit that a branch has", "git checkout -q --detach; c d; git branch d; git checkout -q main; c 4", other, []string{"landed HEAD", "landed refs/heads/d", "kept refs/heads/main as refs/pk/s1/heads/main"}, "d view:d"},
		{"both switch", "git checkout -q old", "git checkout -q --detach", []string{"kept HEAD"}, "HEAD main"},
		{"the session detaches, the host switches", "git checkout -q --detach", "git checkout -q old", []string{"kept HEAD as refs/pk/s1/HEAD"}, "refs/pk/s1/HEAD view:HEAD"},
		{"the session renames the branch, the host switches", "git branch -m main trunk", "git checkout -q old", []string{"kept HEAD", "landed refs/heads/main", "landed refs/heads/trunk"}, "HEAD old"},
		{"both stash", "echo s >>f; git stash -q", "echo h >>f; git stash -q", []string{"landed HEAD", "kept refs/stash as refs/pk/s1/stash"}, "refs/pk/s1/stash view:stash"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "c 1; c 2; c 3; git tag v1; git branch old HEAD~2")
			w.session(row.session)
			w.sh(w.tree, row.host)
			before := w.reachable()

			assert.ElementsMatch(t, row.want, w.land())

			mine, theirs, _ := strings.Cut(row.check, " ")
			id, inView := strings.CutPrefix(theirs, "view:")
			if inView {
				assert.Equal(t, w.seen(id), w.at(mine))
			} else {
				assert.Equal(t, w.at(theirs), w.at(mine))
			}
			w.sound(before)
			refs := w.git("for-each-ref")
			w.land()
			assert.Equal(t, refs, w.git("for-each-ref"), "the second time")
		})
	}
}

// The host drops a commit, and then the session goes on from the one before.
func TestMovedBackBeforeTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; c 2; c 3")
	w.sh(w.tree, "git reset -q --hard HEAD~1")
	w.session("c 4")
	assert.ElementsMatch(t, []string{"landed HEAD", "landed refs/heads/main"}, w.land())
	assert.Equal(t, w.seen("main"), w.at("main"))
}

// A long command has landed a commit, which the host drops.
func TestMovedBackAfterLanding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1")
	w.session("c 2")
	assert.Len(t, w.land(), 2)
	w.sh(w.tree, "git reset -q --hard HEAD~1")
	before := w.at("main")
	w.sh(w.copy, "c 3")
	w.again("refs/heads/main", "logs/HEAD", "logs/refs/heads/main")
	assert.Contains(t, w.land(), "kept refs/heads/main as refs/pk/s1/heads/main")
	assert.Equal(t, before, w.at("main"))
	assert.Equal(t, w.seen("main"), w.at("refs/pk/s1/heads/main"))
}

// What a command removes lands in two steps, of which the first changes packed-refs.
func TestPackedRefsInSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; git tag v1; git tag v2; git tag v3; git pack-refs --all")
	w.options.Landed = map[string]string{}
	w.session("git tag -d v1")
	assert.Contains(t, w.land(), "landed refs/tags/v1")
	w.session("git tag -d v2")
	assert.Contains(t, w.land(), "landed refs/tags/v2")
	w.sh(w.tree, "git tag v4; git pack-refs --all")
	w.session("git tag -d v3")
	w.land()
	w.at("v4")
}

// A command's git writes an empty packed-refs; then the host packs its own refs.
func TestPackedByTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; git branch old; git tag v1; echo x >>f; git stash -q")
	w.put("packed-refs", packedHeader+" peeled fully-peeled sorted \n")
	w.whiteout("refs/heads/old")
	w.sh(w.tree, "git pack-refs --all")
	for _, line := range w.land() {
		assert.Contains(t, line, "refs/heads/old")
	}
	w.at("main")
	w.at("v1")
	w.at("stash")
}

// The host packs its refs; then a command's git deletes some, and removes their logs.
func TestRemovedAfterPacking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; git branch old; git branch same; echo x >>f; git stash -q")
	w.sh(w.tree, "git pack-refs --all")
	w.put("packed-refs", packedHeader+" peeled fully-peeled sorted \n")
	w.whiteout("logs/refs/heads/old")
	w.whiteout("logs/refs/stash")
	assert.ElementsMatch(t, []string{"landed refs/heads/old", "landed refs/stash"}, w.land())
	w.at("main")
	w.at("same")
}

// A long command lands several times. The layer stays as it is.
func TestLandingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1")
	w.session("c 2; git branch d/x; git tag t; echo s >>f; git stash -q")
	assert.Len(t, w.land(), 5)
	assert.Empty(t, w.land(), "nothing new")

	w.sh(w.copy, "c 3; git commit -q --amend -m x; git branch -f d/x; git stash drop -q; git checkout -q -b new")
	w.again("refs/heads/main", "refs/heads/d/x", "refs/heads/new", "HEAD", "logs/HEAD", "logs/refs/heads/main")
	require.NoError(t, os.Remove(w.upper+"/refs/stash"))
	require.NoError(t, os.Remove(w.upper+"/logs/refs/stash"))
	require.NoError(t, os.Remove(w.upper+"/refs/tags/t"))
	assert.ElementsMatch(t, []string{"landed HEAD", "landed refs/heads/d/x", "landed refs/heads/main",
		"landed refs/heads/new", "landed refs/stash", "landed refs/tags/t"}, w.land())
	assert.Equal(t, w.seen("main"), w.at("main"))
	assert.Equal(t, "pk: s1: commit (amend): x\npk: s1: commit: 3\npk: s1: commit: 2", w.git("reflog", "-3", "--format=%gs", "main"))
	assert.Equal(t, strings.TrimSpace(w.sh(w.copy, "git reflog -4 --format=%gs")), strings.ReplaceAll(w.git("reflog", "-4", "--format=%gs"), "pk: s1: ", ""))
	assert.Empty(t, w.land())

	// The host changes further, the layer does not.
	w.sh(w.tree, "git reset -q --hard; git checkout -q main; c host; git branch -D new -q")
	assert.Empty(t, w.land())
}

// again copies files of the view into the layer.
func (w *world) again(names ...string) {
	for _, name := range names {
		data, err := os.ReadFile(w.view + "/" + name)
		require.NoError(w.t, err)
		w.put(name, string(data))
	}
	run(w.t, "", "cp", "-rn", w.view+"/objects/.", w.host+"/objects")
	w.kinds = nil
}

// Several values of one ref that the host has moved.
func TestKeptNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1")
	w.session("c 2")
	w.sh(w.tree, "git commit -q --amend -m host")
	kept := func() string {
		changes, _ := w.changes()
		results, err := Apply(w.hostDir(), changes, w.options)
		require.NoError(t, err)
		return results[len(results)-1].Kept
	}
	assert.Equal(t, "refs/pk/s1/heads/main", kept())
	w.session("c 3")
	assert.Equal(t, "refs/pk/s1/heads/main", kept(), "the next commit")
	assert.Equal(t, w.seen("main"), w.at("refs/pk/s1/heads/main"))
	w.session("git commit -q --amend -m 4")
	assert.Equal(t, "refs/pk/s1/heads/main-2", kept(), "another commit")
	assert.Equal(t, "refs/pk/s1/heads/main-2", kept(), "the same commit")
	w.options.Session = "trash"
	assert.Equal(t, "refs/pk/session-trash/heads/main", kept())
	w.options.Session = "a..b"
	assert.Equal(t, "refs/pk/session-a__b/heads/main", kept())
	w.sound(nil)
}

// The value of a branch is that of a time, or it is not known.
func TestThen(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, before, after string
		known               bool
	}{
		{"as it was", "git branch b", ":", true},
		{"packed as it was", "git branch b; git pack-refs --all", ":", true},
		{"packed, and others since", "git branch b; git pack-refs --all", "git branch c; git pack-refs --all", true},
		{"moved", "git branch b", "git branch -f b HEAD~1", false},
		{"moved and packed", "git branch b; git pack-refs --all", "git branch -f b HEAD~1; git pack-refs --all", false},
		{"new", ":", "git branch b", false},
		{"missing", ":", ":", true},
		{"a symbolic reference", "git symbolic-ref refs/heads/b refs/heads/main", ":", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "c 1; c 2; "+row.before)
			packed := w.host + "/packed-then"
			w.sh(w.tree, "cp .git/packed-refs "+packed+" 2>/dev/null || :")
			began := Now()
			for tick := began; began.Equal(tick); began = Now() { // a ref made in the same tick of the clock counts as later
				time.Sleep(time.Millisecond)
			}
			w.sh(w.tree, row.after)
			id, known := Then(w.hostDir(), "refs/heads/b", began, packed)
			assert.Equal(t, row.known, known)
			if has := strings.TrimSpace(w.sh(w.tree, "git rev-parse -q --verify b || :")); has != "" && row.name != "a symbolic reference" {
				assert.Equal(t, has, id)
			}
		})
	}
}
