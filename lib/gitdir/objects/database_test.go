package objects

import (
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
