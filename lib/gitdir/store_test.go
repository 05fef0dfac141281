package gitdir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestStoreOf(t *testing.T) {
	for _, row := range []struct {
		name, script            string
		borrowed, links, shared string
	}{
		{"an ordinary one", ``, "", "", ""},
		{"alternates", `printf '# x\n\n../../store\n"ROOT/q\\"uoted"\nROOT/gone\n' >.git/objects/info/alternates`, `.git/objects/../../store q"uoted gone`, "", ""},
		{"alternates of alternates", `mkdir -p s/info; echo ../../s >.git/objects/info/alternates; echo ROOT/t >s/info/alternates`, ".git/objects/../../s t", "", ""},
		{"alternates in a circle", `echo . >.git/objects/info/alternates`, ".git/objects/.", "", ""},
		{"links at all levels", `mkdir -p o/pack o/info; touch o/pack/p; ln -s ../../o/pack/p .git/objects/pack/l; mv .git/objects/info o/i; ln -s ../../o/i .git/objects/info; ln -s ../../r .git/refs/r; rm -r .git/logs/refs; ln -s / .git/logs/refs`,
			"", ".git/logs/refs .git/refs/r .git/objects/info .git/objects/pack/l", ""},
		{"links behind a link", `mv .git/objects o; ln -s ../o .git/objects; mv o/pack p; ln -s ../p o/pack; ln -s /x p/l`, "", ".git/objects .git/objects/pack .git/objects/pack/l", ""},
		{"refs are a link to everything", `rm -r .git/refs; ln -s / .git/refs`, "", ".git/refs", ""},
		{"packs and refs with other names", `git repack -qad; git pack-refs; ln .git/objects/pack/*.pack p; ln .git/packed-refs r; ln .git/HEAD h; ln .git/logs/HEAD l; ln .git/config c; git update-ref refs/heads/a/b HEAD; ln .git/refs/heads/a/b b`,
			"", "", ".git/HEAD .git/packed-refs .git/refs/heads/a/b .git/logs/HEAD .git/objects/pack/PACK"},
		{"loose objects with other names", `f=$(find .git/objects/?? -type f | head -n 1); mkdir .git/objects/zz; mv $f .git/objects/zz/f; ln .git/objects/zz/f g`, "", "", ".git/objects/zz/f"},
		{"packs of the alternates", `mkdir -p s/pack; echo x >s/pack/p; ln s/pack/p q; echo ../../s >.git/objects/info/alternates`, ".git/objects/../../s", "", ".git/objects/../../s/pack/p"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; mkdir -p .git/objects/info .git/objects/pack; ` + strings.ReplaceAll(row.script, "ROOT", g.Root))
			s := StoreOf([]string{g.Path(".git")}, nil)
			below := func(paths []string) string {
				var list []string
				for _, p := range paths {
					p = strings.TrimPrefix(p, g.Root+"/")
					if strings.HasSuffix(p, ".pack") {
						p = filepath.Dir(p) + "/PACK"
					}
					list = append(list, p)
				}
				return strings.Join(list, " ")
			}
			var shared []string
			for _, f := range s.Shared {
				shared = append(shared, f.Path)
			}
			assert.Equal(t, row.borrowed, below(s.Borrowed))
			assert.ElementsMatch(t, strings.Fields(row.links), strings.Fields(below(s.Links)))
			assert.ElementsMatch(t, strings.Fields(row.shared), strings.Fields(below(shared)))
		})
	}
}

// separated begins a command as a fence does, and reports whether it searched for names.
func (g ground) separated(covered ...string) (searched bool, err error) {
	r := g.begin()
	before := r.List.apart
	var st unix.Stat_t
	_ = unix.Lstat(g.Path(".git/index"), &st)
	links, err := filepath.Glob(g.State + "/layer/*")
	require.NoError(g, err)
	own := uint64(len(links))
	err = r.Separate(StoreOf([]string{g.Path(".git")}, map[[2]uint64]uint64{{st.Dev, st.Ino}: own}).Shared, append(covered, g.Path(".git")))
	l, lerr := openList(g.Root, r.List.file, nil)
	require.NoError(g, lerr)
	_, ended := r.End()
	require.NoError(g, ended)
	return l.apart != before, err
}

// A command writes through hard links to files of the host's repository.
func TestSeparate(t *testing.T) {
	for name, link := range map[string]string{
		"a copy of hard links":     `mkdir -p a/b/c/d; cp -al .git/objects .git/packed-refs .git/refs .git/logs .git/HEAD a/b/c/d`,
		"a clone that is not seen": `mkdir -p a/b/c; git clone -q . a/b/c/clone`,
		"names in a closed place":  `mkdir -p a/b/c; cp -al .git/objects .git/packed-refs a/b/c; chmod 0 a/b; chmod 0 a`,
		"names that are too deep":  `d=$(printf "$(printf 'd%.0s' $(seq 200))/%.0s" $(seq 15)); mkdir -p a/$d b/$d; cp -al .git/objects b/$d; mv b a/$d`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; git repack -qad; git pack-refs; git commit -q --allow-empty -m loose; chmod 600 .git/packed-refs; mkdir d; cd d; mkdir $(seq 300)`)
			require.Empty(t, g.command(func() {}))
			g.Sh(link + `; git rev-parse HEAD >head`)
			searched, err := g.separated()
			require.NoError(t, err)
			assert.True(t, searched)
			g.Sh(`chmod -R u+rwx a; find a -type f -execdir sh -c 'chmod u+w "$1"; : >"$1"' sh {} ';'; git fsck --full; test $(git rev-parse HEAD) = $(cat head); test -z "$(find .git -name 'tmp_*' -o -name '*.lock')"; test $(stat -c %a .git/packed-refs) = 600`)
			for range 2 {
				searched, err = g.separated()
				require.NoError(t, err)
				assert.False(t, searched)
			}
		})
	}
}

// The user has cloned the repository elsewhere: a search finds nothing, and is not repeated
// until there are other links.
func TestSeparateOnce(t *testing.T) {
	g := newGround(t)
	out := filepath.Dir(g.Root) + "/out"
	g.Sh(`repo .; git repack -qad; git clone -q . ` + out)
	for _, want := range []bool{true, false, false} {
		searched, err := g.separated()
		require.NoError(t, err)
		assert.Equal(t, want, searched)
	}
	g.Sh(`mkdir ../y; ln .git/objects/pack/*.pack ../y/p`)
	_, err := g.separated()
	require.NoError(t, err)
	g.Sh(`mv ../y .`) // no inode tells that
	_, err = g.separated()
	require.NoError(t, err)
	g.Sh(`test $(stat -c %h .git/objects/pack/*.pack) = 3; mkdir -p x; ln .git/objects/pack/*.pack x/p`)
	searched, err := g.separated()
	require.NoError(t, err)
	assert.True(t, searched)
	g.Sh(`test $(stat -c %h .git/objects/pack/*.pack) = 1; rm -r x; git clone -q . clone`)
	searched, err = g.separated(g.Path("clone/.git"))
	require.NoError(t, err)
	assert.True(t, searched, "the other packs' files have new links")
	g.Sh(`test $(stat -c %h .git/objects/pack/*.pack) = 2`)
}

// Layers have links to the index, which call for no search. The user's do.
func TestSeparateIndex(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; mkdir -p ../state/layer; ln .git/index ../state/layer/index-x; ln .git/index ../state/layer/old-y`)
	searched, err := g.separated()
	require.NoError(t, err)
	assert.False(t, searched)
	g.Sh(`ln .git/index x`)
	searched, err = g.separated()
	require.NoError(t, err)
	assert.True(t, searched)
	g.Sh(`: >x; git diff --cached --exit-code`)
}

// The user's git holds the lock, or the copy cannot be made: the command does not start.
func TestSeparateFails(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; git pack-refs --all; ln .git/packed-refs x; touch .git/packed-refs.lock`)
	_, err := g.separated()
	assert.ErrorContains(t, err, `which has the name "`+g.Path("x")+`" too`)
	require.NoError(t, os.Remove(g.Path(".git/packed-refs.lock")))
	searched, err := g.separated()
	require.NoError(t, err)
	assert.True(t, searched)
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(g.Path(".git/packed-refs"), &st))
	assert.EqualValues(t, 1, st.Nlink)
}
