package objects

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sameAsGit compares all objects of a repository with git's output about them.
func sameAsGit(t *testing.T, d *Database, r *repo) {
	t.Helper()
	lines := r.git("cat-file", "--batch-all-objects", "--batch-check")
	require.NotEmpty(t, lines)
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		assert.True(t, d.Has(fields[0]))
		assert.Equal(t, fields[0], d.Whole(fields[0][:12]))
		assert.Empty(t, d.Whole(fields[0][:12]+strings.Repeat("0", 8)))
		if strings.Count(lines, "\n"+fields[0][:2]) > 1 {
			assert.Empty(t, d.Whole(fields[0][:2]), "there are several")
		}
		kind, err := d.Kind(fields[0])
		assert.NoError(t, err)
		assert.Equal(t, fields[1], kind)
		kind, data, err := d.Read(fields[0])
		require.NoError(t, err)
		assert.Equal(t, fields[1], kind)
		id, _ := r.format.parseID(fields[0])
		assert.Equal(t, id, r.format.name(kindOf(kind), data))
	}
}

func TestReadsWhatGitWrote(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		r := newRepo(t, f)
		r.history(30, "file")
		r.git("repack", "-adq")
		d := r.open()
		sameAsGit(t, d, r)
		loose := r.commit("more", "x")
		assert.True(t, d.Has(loose))
		r.git("tag", "-a", "-m", "x", "v1")
		sameAsGit(t, d, r)
		r.git("-c", "pack.indexVersion=1", "gc", "-q", "--prune=now")
		sameAsGit(t, d, r) // by the same Database, whose packs are gone
		borrower := newRepo(t, f)
		borrower.write(".git/objects/info/alternates", "# comment\n/nonexistent\n\""+r.objects()+"\"\n")
		sameAsGit(t, borrower.open(), r)
	})
}

func TestIndexVersion1(t *testing.T) {
	r := newRepo(t, SHA1)
	r.history(20, "file")
	r.git("repack", "-adq")
	packs, _ := filepath.Glob(r.objects() + "/pack/*.pack")
	require.Len(t, packs, 1)
	idx := strings.TrimSuffix(packs[0], "pack") + "idx"
	require.NoError(t, os.Remove(idx))
	r.git("index-pack", "--index-version=1", "-o", idx, packs[0])
	sameAsGit(t, r.open(), r)
	host := newRepo(t, SHA1)
	result := host.land(host.lander(Options{}), r)
	assert.Empty(t, result.Refused)
	assert.NotZero(t, result.Added)
}

func TestObjectsThatAreNotThere(t *testing.T) {
	r := newRepo(t, SHA1)
	d := r.open()
	for _, id := range []string{"", "x", strings.Repeat("1", 40), strings.Repeat("1", 64), strings.Repeat("A", 40), "../../config" + strings.Repeat("1", 28)} {
		assert.False(t, d.Has(id), id)
		_, err := d.Kind(id)
		assert.Error(t, err, id)
		_, _, err = d.Read(id)
		assert.Error(t, err, id)
	}
	_, err := d.Kind(strings.Repeat("1", 40))
	assert.ErrorIs(t, err, ErrNotFound)
	_, err = Open(filepath.Join(r.dir, "none"), SHA1)
	assert.Error(t, err)
}

func TestAlternatesThatLeadInACircle(t *testing.T) {
	a, b := newRepo(t, SHA1), newRepo(t, SHA1)
	a.write(".git/objects/info/alternates", b.objects()+"\n")
	b.write(".git/objects/info/alternates", a.objects()+"\n")
	id := b.object("blob", "x")
	assert.True(t, a.open().Has(id))
}

func TestModesOfASharedRepository(t *testing.T) {
	host := newRepo(t, SHA1)
	require.NoError(t, os.Chmod(host.objects(), 0o770|os.ModeSetgid))
	box := host.box()
	id := box.object("blob", "x")
	host.land(host.lander(Options{}), box)
	path := filepath.Join(host.objects(), loosePath(id))
	file, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o440), file.Mode())
	dir, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|os.ModeSetgid|0o770, dir.Mode())
}

// Git reads headers by their places, and IDs in either case. It ignores them elsewhere.
func TestHeadersAsGitReadsThem(t *testing.T) {
	r := newRepo(t, SHA1)
	other := r.commit("one", "1")
	parent := r.commit("two", "2")
	tree := r.git("rev-parse", parent+"^{tree}")
	d := r.open()
	const people = "author A <a@a> 1700000000 +0000\ncommitter A <a@a> 1700000001 +0000\n"
	write := func(kind, text string) string {
		r.write("object", text)
		return r.git("hash-object", "-t", kind, "-w", "--literally", "object")
	}
	for name, c := range map[string]struct {
		kind, text string
		want       Header
	}{
		"headers again":        {"commit", "tree " + tree + "\nparent " + parent + "\n" + people + "tree " + other + "\nparent " + other + "\ncommitter B <b@b> 5 +0000\n\nm\n", Header{tree, []string{parent}, 1700000001, ""}},
		"in capitals":          {"commit", "tree " + strings.ToUpper(tree) + "\nparent " + strings.ToUpper(parent) + "\n" + people + "\nm\n", Header{tree, []string{parent}, 1700000001, ""}},
		"a header between":     {"commit", "tree " + tree + "\nencoding x\nparent " + parent + "\n" + people + "\nm\n", Header{Tree: tree}},
		"no people":            {"commit", "tree " + tree + "\nparent " + parent + "\n\nm\n", Header{Tree: tree, Parents: []string{parent}}},
		"an object of a tag":   {"tag", "object " + parent + "\ntype commit\ntag t\nobject " + other + "\n\nm\n", Header{Parents: []string{parent}, Time: math.MaxInt64, Name: "t"}},
		"a tree":               {"tree", "", Header{Tree: SHA1.hex(SHA1.emptyTree()), Time: math.MaxInt64}},
		"a file":               {"blob", "x", Header{Time: math.MaxInt64}},
		"a message that fools": {"commit", "tree " + tree + "\n" + people + "\nparent " + parent + "\n", Header{Tree: tree, Time: 1700000001}},
	} {
		id := write(c.kind, c.text)
		got, err := d.Header(id)
		assert.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
		if c.kind == "commit" {
			assert.Equal(t, append([]string{c.want.Tree}, c.want.Parents...), strings.Fields(r.git("log", "-1", "--format=%T %P", id)), name)
		}
	}
	for name, text := range map[string]string{"no tree": people + "\nm\n", "a short tree": "tree " + tree[:39] + "\n" + people + "\n", "a short parent": "tree " + tree + "\nparent " + parent[:39] + "\n" + people + "\n"} {
		_, err := d.Header(write("commit", text))
		assert.EqualError(t, err, "it is malformed", name)
	}
	_, err := d.Tree(parent)
	assert.ErrorContains(t, err, "is no tree")
}

// Git takes any permissions of directories, links and submodules for none.
func TestModesAsGitReadsThem(t *testing.T) {
	for mode, want := range map[uint64]uint64{0o40755: 0o40000, 0o120777: 0o120000, 0o160644: 0o160000, 0o100600: 0o100644, 0o100711: 0o100755, 0o100644: 0o100644, 0o10644: 0o10644} {
		assert.Equal(t, want, canonical(mode), "%o", mode)
	}
}
