package objects

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shallow are options with which the host's file names the commits that land without
// their parents. It is at no time late.
func (r *repo) shallow(cut *[]string, ids ...string) Options {
	return Options{
		Shallow: func(id string) bool { return slices.Contains(ids, id) },
		Cut: func(commits []string) error {
			for _, id := range commits {
				_, err := r.try("", "cat-file", "-e", id)
				assert.Error(r.t, err, "it has landed before")
			}
			*cut = append(*cut, commits...)
			r.write(".git/shallow", strings.Join(*cut, "\n")+"\n")
			return nil
		},
	}
}

func TestShallow(t *testing.T) {
	full := newRepo(t, SHA1)
	full.commit("a", "1")
	full.commit("b", "2")
	host, box := newRepo(t, SHA1), newRepo(t, SHA1)
	box.git("fetch", "-q", "--depth=1", "file://"+full.dir, "main")
	id := box.git("rev-parse", "FETCH_HEAD")

	var cut []string
	assert.Equal(t, 3, host.land(host.lander(Options{}), box).Added, "not the commit")
	assert.Equal(t, Result{Added: 1}, host.land(host.lander(host.shallow(&cut, id)), box))
	assert.Equal(t, []string{id}, cut)

	t.Run("its file cannot be written", func(t *testing.T) {
		host := newRepo(t, SHA1)
		o := host.shallow(&cut, id)
		o.Cut = func([]string) error { return errors.New("no") }
		fd, err := unix.Open(box.objects(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		_, err = host.lander(o).Land(fd)
		require.Error(t, err)
		_, err = host.try("", "cat-file", "-e", id)
		require.Error(t, err)
	})
	t.Run("its parents are on the host, or land too", func(t *testing.T) {
		var cut []string
		host := newRepo(t, SHA1)
		old := host.commit("h", "1")
		box := host.box()
		one := box.commit("x", "1")
		two := box.commit("y", "1")
		assert.Equal(t, Result{Added: 4}, host.land(host.lander(host.shallow(&cut, old, one, two)), box))
		assert.Empty(t, cut, "nobody needs it")
	})
	t.Run("a parent is damaged", func(t *testing.T) {
		var cut []string
		host := newRepo(t, SHA1)
		host.commit("h", "1")
		box := host.box()
		one := box.commit("x", "1")
		two := box.commit("y", "1")
		box.loose(one, []byte("x"))
		assert.NotEmpty(t, host.land(host.lander(host.shallow(&cut, two)), box).Refused)
		assert.Equal(t, []string{two}, cut)
	})
}

// partial makes a repository a partial clone of another.
func (r *repo) partial(of, filter string) {
	r.git("remote", "add", "origin", "file://"+of)
	r.git("config", "remote.origin.promisor", "true")
	r.git("config", "remote.origin.partialclonefilter", filter)
}

// promisors names the objects in packs that have the mark.
func (r *repo) promisors() (ids []string) {
	marks, err := filepath.Glob(r.objects() + "/pack/*.promisor")
	require.NoError(r.t, err)
	for _, mark := range marks {
		for line := range strings.Lines(r.showIndex(strings.TrimSuffix(mark, ".promisor") + ".idx")) {
			ids = append(ids, strings.Fields(line)[1])
		}
	}
	return ids
}

func (r *repo) showIndex(file string) string {
	data, err := os.ReadFile(file)
	require.NoError(r.t, err)
	return r.gitIn(string(data), "show-index")
}

var blobs = Options{Promised: []string{"blob"}}

// collect lets the host's git drop all that it does not need.
func (r *repo) collect() {
	r.t.Helper()
	r.git("-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
	r.fsck()
}

func TestPartial(t *testing.T) {
	up := newRepo(t, SHA1)
	up.commit("a", "1")
	up.commit("d/b", "2")
	up.git("config", "uploadpack.allowFilter", "true")
	up.git("config", "uploadpack.allowAnySHA1InWant", "true")
	clone := func(t *testing.T, filter string) (host, box *repo) {
		host, box = newRepo(t, SHA1), newRepo(t, SHA1)
		for _, r := range []*repo{host, box} {
			r.partial(up.dir, filter)
		}
		return host, box
	}
	for _, row := range []struct {
		filter  string
		options Options
		added   int
	}{{"blob:none", blobs, 5}, {"tree:0", Options{Promised: []string{"blob", "tree"}}, 2}} {
		t.Run(row.filter, func(t *testing.T) {
			host, box := clone(t, row.filter)
			box.git("fetch", "-q", "--filter="+row.filter, "origin", "main")
			id := box.git("rev-parse", "FETCH_HEAD")
			l := host.lander(row.options)
			assert.Equal(t, row.added, host.land(l, box).Added)
			host.git("update-ref", "refs/heads/landed", id)
			host.git("remote", "set-url", "origin", "file:///nonexistent")
			host.collect()
			assert.Zero(t, host.land(l, box).Added)
			host.git("remote", "set-url", "origin", "file://"+up.dir)
			host.git("checkout", "-q", "landed")
			host.commit("c", "3")
			host.collect()
			host.git("push", "-q", "origin", "HEAD:refs/heads/"+strings.ReplaceAll(row.filter, ":", "-"))
			up.fsck()
		})
	}

	// A command marks what it has made as promised by the remote.
	t.Run("commit on top of the host's", func(t *testing.T) {
		host, _ := clone(t, "blob:none")
		mine := host.commit("h", "precious")
		host.git("repack", "-qad")
		box := host.box()
		box.commit("x", "1")
		pack := box.gitIn(box.git("rev-list", "--objects", "--all", "^"+mine, "--no-object-names"), "pack-objects", "-q", box.objects()+"/pack/pack")
		box.git("prune-packed")
		box.write(".git/objects/pack/pack-"+pack+".promisor", "")
		host.land(host.lander(blobs), box)
		host.git("update-ref", "refs/heads/main", box.git("rev-parse", "HEAD"))
		host.collect()
		assert.Equal(t, "precious", host.git("show", mine+":h"))
	})
	// It pretends that the remote has a file that the user is about to commit.
	t.Run("file that the host makes later", func(t *testing.T) {
		host, _ := clone(t, "blob:none")
		host.commit("h", "1")
		box := host.box()
		id := box.commit("x", "later")
		require.NoError(t, os.Remove(filepath.Join(box.objects(), loosePath(idOf("blob", "later")))))
		assert.Equal(t, 2, host.land(host.lander(blobs), box).Added)
		host.fsck()
		host.git("update-ref", "refs/heads/evil", id)
		host.commit("x", "later") // the same tree
		host.git("branch", "-D", "evil", "-q")
		host.collect()
		assert.Equal(t, "later", host.git("show", "HEAD:x"))
		for _, id := range host.promisors() {
			assert.Equal(t, "tree", host.git("cat-file", "-t", id))
			host.git("tag", "-f", "it", id) // a command can make one
		}
		host.collect()
		assert.Equal(t, "later", host.git("show", "HEAD:x"))
		host.git("tag", "-f", "it", idOf("blob", "later"))
		host.collect()
		assert.Equal(t, "later", host.git("show", "HEAD:x"))
	})
	t.Run("what cannot be missing", func(t *testing.T) {
		host, _ := clone(t, "blob:none")
		head := host.commit("h", "1")
		root := host.git("rev-parse", "HEAD^{tree}")
		body := "author " + ident + "\ncommitter " + ident + "\n\nx"
		none := strings.Repeat("12", 20)
		for _, row := range []struct{ name, kind, content string }{
			{"parent", "commit", "tree " + root + "\nparent " + none + "\n" + body},
			{"tree of a commit", "commit", "tree " + none + "\nparent " + head + "\n" + body},
			{"tree of a tree", "tree", "40000 a\x00" + raw(none)},
			{"object of a tag", "tag", "object " + none + "\ntype commit\ntag x\n\nx"},
			{"one object as two kinds", "tree", "40000 a\x00" + raw(none) + "100644 b\x00" + raw(none)},
		} {
			box := host.box()
			id := box.object(row.kind, row.content)
			result := host.land(host.lander(blobs), box)
			require.Len(t, result.Refused, 1, row.name)
			assert.Equal(t, id, result.Refused[0].Name)
			assert.Contains(t, result.Refused[0].Reason, "missing")
		}
		box := host.box()
		box.object("tree", "100644 a\x00"+raw(none)+"40000 b\x00"+raw(none))
		assert.Len(t, host.land(host.lander(Options{Promised: []string{"blob", "tree"}}), box).Refused, 1)
	})
	// First the tree that gives it a name, then the file.
	t.Run(".gitmodules that comes later", func(t *testing.T) {
		host, _ := clone(t, "blob:none")
		host.commit("h", "1")
		box := host.box()
		const bad = "[submodule \"a\"]\n\tupdate = !x\n"
		id := box.object("blob", bad)
		box.object("tree", "100644 .gitmodules\x00"+raw(id))
		file := filepath.Join(box.objects(), loosePath(id))
		require.NoError(t, os.Rename(file, file+".later"))
		l := host.lander(blobs)
		assert.Equal(t, 1, host.land(l, box).Added)
		require.NoError(t, os.Rename(file+".later", file))
		result := host.land(l, box)
		require.Len(t, result.Refused, 1)
		assert.Contains(t, result.Refused[0].Reason, "update command")
		box.gitIn(id, "pack-objects", "-q", box.objects()+"/pack/pack")
		require.NoError(t, os.Remove(file))
		assert.Len(t, host.land(host.lander(blobs), box).Refused, 1)
	})
	t.Run("blobs of an index", func(t *testing.T) {
		host, _ := clone(t, "blob:none")
		host.commit("h", "1")
		l := host.lander(blobs)
		refused, err := l.Promise([]string{idOf("blob", "a"), idOf("blob", "b")})
		require.NoError(t, err)
		assert.Empty(t, refused)
		host.git("update-index", "--add", "--info-only", "--cacheinfo", "100644,"+idOf("blob", "a")+",a")
		host.git("update-index", "--skip-worktree", "a")
		host.git("commit", "-q", "-m", "a")
		host.collect()
		for _, bad := range []string{"", "x", strings.Repeat("0", 40)} {
			refused, err := l.Promise([]string{bad})
			require.NoError(t, err)
			assert.Equal(t, bad, refused)
		}
		refused, err = host.lander(Options{}).Promise([]string{idOf("blob", "a")})
		require.NoError(t, err)
		assert.NotEmpty(t, refused)
	})
}

func TestBudget(t *testing.T) {
	host := newRepo(t, SHA1)
	host.commit("h", "1")
	box := host.box()
	box.commit("a", strings.Repeat("a", 100000))
	box.commit("b", strings.Repeat("b", 100000))

	result := host.land(host.lander(Options{Budget: &Budget{done: leastWork - 500}}), box)
	assert.True(t, result.Later)
	assert.Less(t, result.Added, 6)
	assert.Equal(t, Result{Added: 6 - result.Added}, host.land(host.lander(Options{}), box))

	// Many names for one file that is small, and large inflated.
	box = host.box()
	bomb := box.loose(strings.Repeat("a", 40), zip("blob 100000\x00"+strings.Repeat("\x00", 100000)))
	for i := range 100 {
		name := filepath.Join(box.objects(), loosePath(strings.Repeat("b", 38)+string([]byte{'0' + byte(i/10), '0' + byte(i%10)})))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.Link(bomb, name))
	}
	b := &Budget{wasted: maxWasted - 500000}
	result = host.land(host.lander(Options{Budget: b}), box)
	assert.False(t, result.Later)
	assert.LessOrEqual(t, b.done, uint64(700000))

	b = new(Budget)
	for range 3 {
		host.land(host.lander(Options{Budget: b}), box)
	}
	assert.Equal(t, uint64(3*101*100000), b.wasted)
	assert.Less(t, b.files, uint64(3*2*4096), "one file")

	var st unix.Stat_t
	sparse := filepath.Join(t.TempDir(), "sparse")
	require.NoError(t, os.WriteFile(sparse, nil, 0o644))
	require.NoError(t, os.Truncate(sparse, 1<<40))
	require.NoError(t, unix.Lstat(sparse, &st))
	b = new(Budget)
	b.Grant(&st)
	assert.False(t, b.Spend(leastWork+1<<20))
	assert.False(t, b.Spend(1), "it ends there")
}
