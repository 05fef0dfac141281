package objects

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const ident = "A <a@b> 1700000000 +0000"

func zip(data string) []byte {
	var b bytes.Buffer
	_ = deflate(&b, nil, strings.NewReader(data), uint64(len(data)))
	return b.Bytes()
}

// raw returns a binary ID.
func raw(id string) string {
	b, _ := hex.DecodeString(id)
	return string(b)
}

// loose writes a file to the path of a loose object.
func (r *repo) loose(id string, data []byte) string {
	path := filepath.Join(r.objects(), loosePath(id))
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	_ = os.Remove(path)
	require.NoError(r.t, os.WriteFile(path, data, 0o644))
	return path
}

func idOf(kind, content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(content), content))
	return hex.EncodeToString(sum[:])
}

// Objects with correct names. refused is the reason; without one they land.
func TestFormats(t *testing.T) {
	host := newRepo(t, SHA1)
	head := host.commit("f", "x")
	file := host.git("rev-parse", "HEAD:f")
	root := host.git("rev-parse", "HEAD^{tree}")
	badModules := host.object("blob", "[submodule \"a\"]\n\tupdate = !x\n")
	oddModules := host.object("blob", "[submodule \"a\"]\n\tpath = a\n[broken\n\tupdate = !x\n")
	dotdot := host.object("blob", "[submodule \"a/../b\"]\n\turl = x\n")
	dash := host.object("blob", "[submodule \"a\"]\n\turl = -x\n")
	newline := host.object("blob", "[submodule \"a\"]\n\turl = https://h/%0ax\n")
	longLine := host.object("blob", strings.Repeat("x", 3000)+"\n")
	entry := func(mode, name, id string) string { return mode + " " + name + "\x00" + raw(id) }
	one := func(name string) string { return entry("100644", name, file) }
	body := "author " + ident + "\ncommitter " + ident + "\n\nx"
	other := strings.Repeat("12", 20)
	null := strings.Repeat("0", 40)

	tests := []struct{ name, kind, content, refused string }{
		{"empty tree", "tree", "", ""},
		{"tree with a file and a directory", "tree", one("a") + entry("40000", "b", root), ""},
		{"directory sorts with its slash", "tree", one("a.c") + entry("40000", "a", root) + one("a0"), ""},
		{"mode 100664", "tree", entry("100664", "a", file), ""},
		{"zero-padded mode", "tree", entry("040000", "a", root), ""},
		{"submodule that nobody has", "tree", entry("160000", "a", other), ""},
		{"link", "tree", entry("120000", "a", file), ""},
		{"mode of a FIFO", "tree", entry("10644", "a", file), "mode"},
		{"mode that is no number", "tree", entry("10064x", "a", file), "malformed"},
		{"tree that ends early", "tree", one("a")[:20], "malformed"},
		{"unsorted", "tree", one("b") + one("a"), "not sorted"},
		{"directory sorted as a file", "tree", entry("40000", "a", root) + one("a.c"), "not sorted"},
		{"duplicate", "tree", one("a") + one("a"), "duplicate"},
		{"file and directory of one name", "tree", one("a") + one("a.c") + entry("40000", "a", root), "duplicate"},
		{"empty name", "tree", one(""), "empty name"},
		{"slash", "tree", one("a/b"), "slash"},
		{"dot", "tree", one("."), `"."`},
		{"dot dot", "tree", one(".."), `".."`},
		{".git", "tree", one(".git"), ".git"},
		{".GIT", "tree", one(".GIT"), ".git"},
		{"git~1", "tree", one("git~1"), ".git"},
		{".git with a dot", "tree", one(".git. ."), ".git"},
		{".git as a stream", "tree", one(".git:x"), ".git"},
		{".git behind a backslash", "tree", one("a\\.git"), ".git"},
		{".git for HFS+", "tree", one(".g\u200cit"), ".git"},
		{".gitx", "tree", one(".gitx"), ""},
		{"gitmodules link", "tree", entry("120000", ".gitmodules", file), "symbolic link"},
		{"gitmodules link for NTFS", "tree", entry("120000", "GITMOD~1", file), "symbolic link"},
		{"gitmodules link for NTFS, by number", "tree", entry("120000", "GI7EBA~1", file), "symbolic link"},
		{"gitmodules directory", "tree", entry("40000", ".gitmodules", root), "not a file"},
		{"gitmodules with a command", "tree", entry("100644", ".gitmodules", badModules), "update command"},
		{"gitmodules that git cannot parse", "tree", entry("100644", ".gitmodules", oddModules), ""},
		{"gitmodules with dots", "tree", entry("100644", ".gitmodules", dotdot), "name"},
		{"gitmodules with an option", "tree", entry("100644", ".gitmodules", dash), "url"},
		{"gitmodules with a newline", "tree", entry("100644", ".gitmodules", newline), "url"},
		{"attributes with a long line", "tree", entry("100644", ".gitattributes", longLine), "line"},
		{"null ID", "tree", entry("160000", "a", null), "null"},
		{"missing file", "tree", entry("100644", "a", other), "missing"},
		{"file as a directory", "tree", entry("40000", "a", file), "as a tree"},
		{"directory as a file", "tree", entry("100644", "a", root), "as a blob"},

		{"commit", "commit", "tree " + root + "\nparent " + head + "\n" + body, ""},
		{"commit with more headers", "commit", "tree " + root + "\nauthor " + ident + "\ncommitter " + ident + "\ngpgsig a\n b\nx-y z\n\nx", ""},
		{"commit without a message", "commit", "tree " + root + "\nauthor " + ident + "\ncommitter " + ident + "\n", ""},
		{"commit with NUL in the message", "commit", "tree " + root + "\n" + body + "\x00", ""},
		{"commit with an empty name", "commit", "tree " + root + "\nauthor  <> 1 +0000\ncommitter " + ident + "\n\n", ""},
		{"commit without a tree", "commit", body, "no tree line"},
		{"commit with a missing tree", "commit", "tree " + other + "\n" + body, "missing"},
		{"commit with a missing parent", "commit", "tree " + root + "\nparent " + other + "\n" + body, "missing"},
		{"commit with a blob as tree", "commit", "tree " + file + "\n" + body, "as a tree"},
		{"commit with a tree as parent", "commit", "tree " + root + "\nparent " + root + "\n" + body, "as a commit"},
		{"commit without author", "commit", "tree " + root + "\ncommitter " + ident + "\n\n", "no author"},
		{"commit with two authors", "commit", "tree " + root + "\nauthor " + ident + "\nauthor " + ident + "\ncommitter " + ident + "\n\n", "several"},
		{"commit without committer", "commit", "tree " + root + "\nauthor " + ident + "\n\n", "no committer"},
		{"commit with NUL in a header", "commit", "tree " + root + "\nauthor \x00" + ident + "\ncommitter " + ident + "\n\n", "NUL"},
		{"commit with unterminated headers", "commit", "tree " + root + "\nauthor " + ident + "\ncommitter " + ident, "unterminated"},
		{"name without a blank", "commit", "tree " + root + "\nauthor A<a@b> 1 +0000\ncommitter " + ident + "\n\n", "name"},
		{"no email", "commit", "tree " + root + "\nauthor A 1 +0000\ncommitter " + ident + "\n\n", "name"},
		{"bad email", "commit", "tree " + root + "\nauthor A <a<b> 1 +0000\ncommitter " + ident + "\n\n", "email"},
		{"bad date", "commit", "tree " + root + "\nauthor A <a> x +0000\ncommitter " + ident + "\n\n", "date"},
		{"zero-padded date", "commit", "tree " + root + "\nauthor A <a> 01 +0000\ncommitter " + ident + "\n\n", "date"},
		{"overflowing date", "commit", "tree " + root + "\nauthor A <a> 99999999999999999999 +0000\ncommitter " + ident + "\n\n", "date"},
		{"no blank before the date", "commit", "tree " + root + "\nauthor A <a>1 +0000\ncommitter " + ident + "\n\n", "date"},
		{"bad time zone", "commit", "tree " + root + "\nauthor A <a> 1 0000\ncommitter " + ident + "\n\n", "zone"},

		{"tag", "tag", "object " + head + "\ntype commit\ntag x\ntagger " + ident + "\n\nx", ""},
		{"tag without tagger", "tag", "object " + root + "\ntype tree\ntag xxxxxxxxxxxxxxx\n\nx", ""},
		{"tag of a missing object", "tag", "object " + other + "\ntype commit\ntag x\ntagger " + ident + "\n\nx", "missing"},
		{"tag of another kind", "tag", "object " + head + "\ntype tree\ntag x\ntagger " + ident + "\n\nx", "as a tree"},
		{"tag of an unknown type", "tag", "object " + head + "\ntype x\ntag x\ntagger " + ident + "\n\nx", "type"},
		{"tag without a name", "tag", "object " + head + "\ntype commit\ntagger " + ident + "\n\nx", "tag line"},
		{"tag without object", "tag", "type commit\ntag x\ntagger " + ident + "\n\nx", "object line"},
	}
	box := host.box()
	for _, test := range tests {
		id := idOf(test.kind, test.content)
		box.loose(id, zip(fmt.Sprintf("%s %d\x00%s", test.kind, len(test.content), test.content)))
	}
	result := host.land(host.lander(Options{}), box)
	said, _ := box.try("", "fsck", "--full", "--no-dangling", "--no-progress")
	refused := map[string]string{}
	for _, r := range result.Refused {
		refused[r.Name] = r.Reason
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			id := idOf(test.kind, test.content)
			reason, bad := refused[id]
			assert.Equal(t, test.refused != "", bad, reason)
			assert.Contains(t, reason, test.refused)
			_, err := os.Stat(filepath.Join(host.objects(), loosePath(id)))
			assert.Equal(t, bad, err != nil)
			// git checks the references of objects only from the refs on.
			if bad && !strings.Contains(reason, "refers to") && !strings.HasPrefix(reason, ".git") {
				assert.Contains(t, said, id)
			}
		})
	}
	for _, id := range []string{badModules, dotdot, dash, newline, longLine} {
		assert.Contains(t, said, "error in blob "+id)
	}
}

// Objects that git fsck passes, and for which other commands of git fail.
func TestWhatFsckPasses(t *testing.T) {
	host := newRepo(t, SHA1)
	head := host.commit("f", "x")
	root := host.git("rev-parse", "HEAD^{tree}")
	box := host.box()
	chain := func(n int) string { return strings.Repeat("[attr]a b\n", n) }
	few, many := host.object("blob", chain(maxMacros)), host.object("blob", " [attr]x\n"+chain(maxMacros))
	wide := func(n string) string { return host.object("blob", "x text\n* conflict-marker-size="+n+" text\n") }
	from := func(author string) string {
		return "tree " + root + "\nauthor A <a@b> " + author + "\ncommitter " + ident + "\n\nx"
	}
	merge := func(n int) string {
		return "tree " + root + "\n" + strings.Repeat("parent "+head+"\n", n) + "author " + ident + "\ncommitter " + ident + "\n\nx"
	}
	for _, test := range []struct{ name, kind, content, refused string }{
		{"the last date of a commit-graph", "commit", from("17179869183 +0000"), ""},
		{"a later date", "commit", from("17179869184 +0000"), "bad date"},
		{"the first date", "commit", from("0 +0000"), ""},
		{"the first date in a zone", "commit", from("5400 -0130"), ""},
		{"an earlier date", "commit", from("5399 -0130"), "before 1970"},
		{"an earlier date of the committer", "commit", strings.Replace(from("0 +0100"), ident, "A <a@b> 0 -0001", 1), "before 1970"},
		{"an earlier date of a tag", "tag", "object " + root + "\ntype tree\ntag x\ntagger A <a@b> 0 -0100\n\nx", "before 1970"},
		{"a large merge", "commit", merge(maxParents), ""},
		{"a larger merge", "commit", merge(maxParents + 1), "parents"},
		{"many macros", "tree", "100644 .gitattributes\x00" + raw(few), ""},
		{"more macros", "tree", "100644 .gitattributes\x00" + raw(many), "macros"},
		{"wide conflict markers", "tree", "100644 .gitattributes\x00" + raw(wide("0999")), ""},
		{"wider conflict markers", "tree", "100644 .gitattributes\x00" + raw(wide("+01000")), "conflict markers"},
	} {
		id := idOf(test.kind, test.content)
		box.loose(id, zip(fmt.Sprintf("%s %d\x00%s", test.kind, len(test.content), test.content)))
		said := ""
		for _, r := range host.land(host.lander(Options{}), box).Refused {
			if r.Name == id {
				said = r.Reason
			}
		}
		assert.Equal(t, test.refused == "", said == "", "%s: %s", test.name, said)
		assert.Contains(t, said, test.refused, test.name)
		_, err := os.Stat(filepath.Join(host.objects(), loosePath(id)))
		assert.Equal(t, test.refused != "", err != nil, test.name)
	}
}

// Other files at the paths of loose objects.
func TestLooseFiles(t *testing.T) {
	const text = "hello\n"
	id := idOf("blob", text)
	good := zip(fmt.Sprintf("blob %d\x00%s", len(text), text))
	for _, test := range []struct {
		name    string
		data    []byte
		refused string
	}{
		{"other content", zip("blob 2\x00ab"), "does not match"},
		{"empty", nil, "damaged"},
		{"truncated", good[:len(good)-8], "damaged"},
		{"without checksum", good[:len(good)-4], "damaged"},
		{"damaged", append([]byte{0x78, 0x9c, 0xff}, good[3:]...), "damaged"},
		{"longer than its header says", zip("blob 5\x00hello\n"), "longer"},
		{"shorter than its header says", zip("blob 60\x00hello\n"), ""},
		{"size with zeros in front", zip("blob 06\x00hello\n"), "damaged"},
		{"no size", zip("blob\x00hello\n"), "damaged"},
		{"unknown kind", zip("blub 6\x00hello\n"), "damaged"},
		{"endless header", zip(strings.Repeat("x", 1<<20)), "damaged"},
		{"too large", zip("blob 99999999999999\x00x"), "too large"},
		{"tree too large", zip("tree 999999999\x00x"), "too large"},
		{"bomb", zip("blob 6\x00" + strings.Repeat("\x00", 8<<20)), ""},
		{"bomb of a tree", zip("tree 6\x00" + strings.Repeat("\x00", 8<<20)), "not as long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := newRepo(t, SHA1)
			box := host.box()
			box.loose(id, test.data)
			l := host.lander(Options{})
			result := host.land(l, box)
			require.Len(t, result.Refused, 1)
			assert.Equal(t, id, result.Refused[0].Name)
			assert.Contains(t, result.Refused[0].Reason, test.refused)
			assert.Zero(t, result.Added)
			assert.Equal(t, result, host.land(l, box), "it stays refused")
			box.loose(id, good)
			assert.Equal(t, Result{Added: 1}, host.land(l, box), "another file may be good")
		})
	}
}

// A stream that Go's zlib reads and git's may not never gets to the host.
func TestBytesOfTheLayerAreNotCopied(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	small := zip("blob 2\x00ab")
	small[0], small[1] = 0x08, 0x1d // a window of 256 bytes
	box.loose(idOf("blob", "ab"), append(small, "garbage"...))
	assert.Equal(t, 1, host.land(host.lander(Options{}), box).Added)
	data, err := os.ReadFile(filepath.Join(host.objects(), loosePath(idOf("blob", "ab"))))
	require.NoError(t, err)
	assert.NotContains(t, string(data), "garbage")
	assert.Equal(t, byte(0x78), data[0])
}

func TestOtherFilesInTheLayer(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	outside := filepath.Join(t.TempDir(), "good")
	id := idOf("blob", "ab")
	require.NoError(t, os.WriteFile(outside, zip("blob 2\x00ab"), 0o644))
	path := box.loose(id, nil)
	require.NoError(t, os.Remove(path))
	for _, test := range []struct {
		name string
		make func() error
	}{
		{"link", func() error { return os.Symlink(outside, path) }},
		{"FIFO", func() error { return unix.Mkfifo(path, 0o644) }},
		{"socket", func() error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) }},
		{"directory", func() error { return os.Mkdir(path, 0o755) }},
		{"whiteout", func() error { return unix.Mknod(path, unix.S_IFCHR, 0) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, test.make())
			defer os.Remove(path)
			result := host.land(host.lander(Options{}), box)
			assert.Zero(t, result.Added)
			if test.name == "whiteout" {
				assert.Empty(t, result.Refused)
			} else {
				assert.Equal(t, []Refused{{loosePath(id), "it is not a regular file"}}, result.Refused)
			}
		})
	}
	t.Run("link in place of a directory", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Dir(path)))
		require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Dir(path)))
		require.NoError(t, os.Rename(outside, filepath.Join(filepath.Dir(outside), id[2:])))
		result := host.land(host.lander(Options{}), box)
		assert.Zero(t, result.Added)
		assert.Len(t, result.Refused, 1)
	})
	t.Run("temporary and unknown files", func(t *testing.T) {
		box.write(".git/objects/12/tmp_obj_abc", "x")
		box.write(".git/objects/zz/"+id[2:], "x")
		box.write(".git/objects/pack/tmp_pack_x", "x")
		box.write(".git/objects/pack/evil.idx", "x")
		box.write(".git/objects/"+id, "x")
		assert.Zero(t, host.land(host.lander(Options{}), box).Added)
	})
	t.Run("no layer", func(t *testing.T) {
		result, err := host.lander(Options{}).Land(-1)
		assert.NoError(t, err)
		assert.Equal(t, Result{}, result)
	})
}

func TestAlternatesOfTheLayerAreNotFollowed(t *testing.T) {
	host := newRepo(t, SHA1)
	secret := newRepo(t, SHA1)
	id := secret.object("blob", "secret")
	box := newRepo(t, SHA1)
	box.write(".git/objects/info/alternates", secret.objects()+"\n")
	box.object("tree", "100644 a\x00"+raw(id))
	result := host.land(host.lander(Options{}), box)
	assert.Zero(t, result.Added)
	require.Len(t, result.Refused, 1)
	assert.Contains(t, result.Refused[0].Reason, "missing")
}

func TestHostObjectStaysAsItIs(t *testing.T) {
	host := newRepo(t, SHA1)
	id := host.object("blob", "x")
	box := newRepo(t, SHA1)
	box.loose(id, zip("blob 1\x00y"))
	assert.Equal(t, Result{}, host.land(host.lander(Options{}), box))
	assert.Equal(t, "x", host.git("cat-file", "-p", id))
}

func TestWhatRefersToARefusedObjectWaits(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	a := box.object("blob", "a")
	tree := box.object("tree", "100644 a\x00"+raw(a))
	above := box.object("tree", "40000 t\x00"+raw(tree))
	good, err := os.ReadFile(filepath.Join(box.objects(), loosePath(a)))
	require.NoError(t, err)
	box.loose(a, zip("blob 1\x00b"))
	l := host.lander(Options{})
	result := host.land(l, box)
	assert.Zero(t, result.Added)
	assert.Len(t, result.Refused, 3)
	box.loose(a, good)
	assert.Equal(t, Result{Added: 3}, host.land(l, box))
	host.git("cat-file", "-e", above)
}

// More objects than are published one by one: they go into a pack.
func TestManyTrees(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	var id, entry string
	p := newPackOf()
	for i := range 2000 {
		if i%100 == 0 {
			id, entry = idOf("blob", "x"), fmt.Sprintf("100644 f%d\x00", i)
		}
		content := entry + raw(id)
		if id = idOf("tree", content); i < 250 {
			box.loose(id, zip(fmt.Sprintf("tree %d\x00%s", len(content), content)))
		} else {
			p.add(id, tree, nil, content)
		}
		entry = "40000 d\x00"
	}
	p.write(box, nil)
	l := host.lander(Options{})
	result := host.land(l, box)
	assert.Zero(t, result.Added, "the file is missing")
	assert.Equal(t, 2000, len(result.Refused)+result.Omitted)
	box.loose(idOf("blob", "x"), zip("blob 1\x00x"))
	assert.Equal(t, Result{Added: 2001}, host.land(l, box))
	assert.Len(t, slices.Collect(maps.Keys(host.tree())), 2, "a pack and its index")
	host.git("cat-file", "-e", id)
}

// Directories that are nested too deeply for git do not land, also if they come in steps.
func TestTooDeepTrees(t *testing.T) {
	const above = 100
	trees := func(p *packOf, from string, entry string, n int) string {
		for range n {
			content := entry + raw(from)
			from, entry = idOf("tree", content), "40000 d\x00"
			p.add(from, tree, nil, content)
		}
		return from
	}
	for _, steps := range [][]int{{maxTreeDepth + above}, {maxTreeDepth - 1, 1, above}, {50, 50, maxTreeDepth - 100 + above}} {
		host := newRepo(t, SHA1)
		box := host.box()
		box.loose(idOf("blob", "x"), zip("blob 1\x00x"))
		l := host.lander(Options{})
		top, entry, added := idOf("blob", "x"), "100644 f\x00", 0
		var last Result
		for _, n := range steps {
			p := newPackOf()
			top, entry = trees(p, top, entry, n), "40000 d\x00"
			p.write(box, nil)
			last = host.land(l, box)
			added += last.Added
		}
		assert.Equal(t, 1+maxTreeDepth, added, steps)
		assert.Equal(t, above, len(last.Refused)+last.Omitted, steps)
		assert.Contains(t, last.Refused[0].Reason, "more than 128 directories in each other")
	}
}

// packOf builds a pack with its index by hand. Entries are written unchanged; offset is
// the position of the last one.
type packOf struct {
	data []byte
	list []indexed
}

func newPackOf() *packOf { return &packOf{data: []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")} }

func (p *packOf) add(id string, k kind, base any, data string) uint64 {
	at := uint64(len(p.data))
	o, _ := SHA1.parseID(id)
	head := appendHeader(nil, k, uint64(len(data)), 0)
	switch base := base.(type) {
	case int:
		head = appendHeader(nil, k, uint64(len(data)), uint64(int64(at)-int64(base)))
	case string:
		head = append(head, raw(base)...)
	}
	p.data = append(append(p.data, head...), zip(data)...)
	p.list = append(p.list, indexed{o, at, crc32.ChecksumIEEE(p.data[at:])})
	return at
}

func (p *packOf) write(r *repo, change func(idx []byte)) {
	binary.BigEndian.PutUint32(p.data[8:], uint32(len(p.list)))
	sum := sha1.Sum(p.data)
	idx := writeIndex(SHA1, p.list, sum[:])
	if change != nil {
		change(idx)
	}
	sum2 := sha1.Sum(idx)
	name := "pack-" + hex.EncodeToString(sum[:])
	r.write(".git/objects/pack/"+name+".pack", string(p.data)+string(sum[:]))
	r.write(".git/objects/pack/"+name+".idx", string(idx)+string(sum2[:]))
}

// delta makes a delta: the sizes, then operations.
func delta(base, result int, ops ...string) string {
	b := binary.AppendUvarint(nil, uint64(base))
	b = binary.AppendUvarint(b, uint64(result))
	return string(b) + strings.Join(ops, "")
}

func TestPacksMadeByHand(t *testing.T) {
	base := strings.Repeat("0123456789", 10)
	made := base + "!"
	baseID, madeID := idOf("blob", base), idOf("blob", made)
	good := delta(100, 101, "\x90\x64", "\x01!")
	other := strings.Repeat("12", 20)
	for _, test := range []struct {
		name    string
		build   func(p *packOf)
		change  func(idx []byte)
		added   int
		refused string
	}{
		{"base by offset", func(p *packOf) { p.add(baseID, blob, nil, base); p.add(madeID, offsetDelta, 12, good) }, nil, 2, ""},
		{"base by ID", func(p *packOf) { p.add(baseID, blob, nil, base); p.add(madeID, refDelta, baseID, good) }, nil, 2, ""},
		{"base behind it", func(p *packOf) { p.add(madeID, refDelta, baseID, good); p.add(baseID, blob, nil, base) }, nil, 2, ""},
		{"base missing", func(p *packOf) { p.add(madeID, refDelta, other, good) }, nil, 0, "its base"},
		{"base is itself", func(p *packOf) { p.add(madeID, refDelta, madeID, good) }, nil, 0, "its base"},
		{"cycle", func(p *packOf) { p.add(madeID, refDelta, baseID, good); p.add(baseID, refDelta, madeID, good) }, nil, 0, "its base"},
		{"base ahead of the pack", func(p *packOf) { p.add(madeID, offsetDelta, -1000, good) }, nil, 0, "malformed"},
		{"base not in the index", func(p *packOf) { p.add(madeID, offsetDelta, 3, good) }, nil, 0, "not in the index"},
		{"other content", func(p *packOf) { p.add(madeID, blob, nil, base) }, nil, 0, "does not match"},
		{"other kind", func(p *packOf) { p.add(madeID, tree, nil, made) }, nil, 0, "does not match"},
		{"kind 5", func(p *packOf) { p.add(madeID, 5, nil, made) }, nil, 0, "malformed"},
		{"delta for another size", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(99, 101, "\x90\x64", "\x01!"))
		}, nil, 1, "delta"},
		{"delta with a result too short", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(100, 101, "\x90\x64"))
		}, nil, 1, "delta"},
		{"delta with a result too long", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(100, 50, "\x90\x64"))
		}, nil, 1, "delta"},
		{"delta out of its base", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(100, 101, "\x91\x32\x64", "\x01!"))
		}, nil, 1, "delta"},
		{"delta that ends early", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(100, 101, "\x90\x64", "\x05!"))
		}, nil, 1, "delta"},
		{"delta with the reserved operation", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(100, 101, "\x00", "\x05!"))
		}, nil, 1, "delta"},
		{"delta that is a bomb", func(p *packOf) {
			p.add(baseID, blob, nil, base)
			p.add(madeID, offsetDelta, 12, delta(100, 1<<40, "\x90\x64"))
		}, nil, 1, "too large"},
		{"index with the IDs swapped", func(p *packOf) { p.add(baseID, blob, nil, base); p.add(madeID, blob, nil, made) }, func(idx []byte) {
			a, b := bytes.Clone(idx[8+1024:][:20]), idx[8+1024+20:][:20]
			copy(idx[8+1024:], b)
			copy(b, a)
		}, 0, "does not match"},
		{"index with offsets beyond the pack", func(p *packOf) { p.add(baseID, blob, nil, base) }, func(idx []byte) {
			binary.BigEndian.PutUint32(idx[8+1024+24:], 1<<30)
		}, 0, ""},
		{"index with a long offset that it lacks", func(p *packOf) { p.add(baseID, blob, nil, base) }, func(idx []byte) {
			binary.BigEndian.PutUint32(idx[8+1024+24:], 0xffffffff)
		}, 0, ""},
		{"index with offsets inside an entry", func(p *packOf) { p.add(baseID, blob, nil, base) }, func(idx []byte) {
			binary.BigEndian.PutUint32(idx[8+1024+24:], 14)
		}, 0, " "},
		{"index with a fanout that falls", func(p *packOf) { p.add(baseID, blob, nil, base) }, func(idx []byte) {
			binary.BigEndian.PutUint32(idx[8:], 7)
		}, 0, "not a pack index"},
		{"index that counts too many", func(p *packOf) { p.add(baseID, blob, nil, base) }, func(idx []byte) {
			binary.BigEndian.PutUint32(idx[8+255*4:], 1<<31)
		}, 0, "not a pack index"},
		{"index with its checksums wrong", func(p *packOf) { p.add(baseID, blob, nil, base) }, func(idx []byte) {
			idx[len(idx)-1]++
		}, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := newRepo(t, SHA1)
			box := host.box()
			p := newPackOf()
			test.build(p)
			p.write(box, test.change)
			l := host.lander(Options{})
			result := host.land(l, box)
			assert.Equal(t, test.added, result.Added)
			if test.refused == "" {
				assert.Empty(t, result.Refused)
			} else {
				require.NotEmpty(t, result.Refused)
				assert.Contains(t, result.Refused[0].Reason, test.refused)
			}
		})
	}
}

// Two packs that make each an object from the other one's.
func TestDeltasAcrossPacks(t *testing.T) {
	a := strings.Repeat("0123456789", 10)
	b := a + "!"
	aID, bID := idOf("blob", a), idOf("blob", b)
	host := newRepo(t, SHA1)
	box := host.box()
	one, two := newPackOf(), newPackOf()
	one.add(aID, blob, nil, a)
	one.add(bID, refDelta, aID, delta(100, 101, "\x90\x64", "\x01!"))
	two.add(bID, blob, nil, b)
	two.add(aID, refDelta, bID, delta(101, 100, "\x90\x64"))
	for i := range 300 {
		text := fmt.Sprint(i)
		one.add(idOf("blob", text), blob, nil, text)
	}
	one.write(box, nil)
	two.write(box, nil)
	assert.Equal(t, Result{Added: 302}, host.land(host.lander(Options{}), box))
	assert.Equal(t, a, host.git("cat-file", "-p", aID))
	assert.Equal(t, b, host.git("cat-file", "-p", bID))
}

func TestAPackWithADamagedObjectLandsTheRest(t *testing.T) {
	base := strings.Repeat("0123456789", 10)
	host := newRepo(t, SHA1)
	box := host.box()
	p := newPackOf()
	bad := "40000 .git\x00" + strings.Repeat("x", 20)
	emptyTree := idOf("tree", "")
	worse := "40000 a\x00" + raw(emptyTree) // made from a tree that is refused
	p.add(idOf("tree", bad), tree, nil, bad)
	p.add(emptyTree, tree, nil, "")
	p.add(idOf("tree", worse), refDelta, idOf("tree", bad), delta(len(bad), len(worse), string([]byte{byte(len(worse))})+worse))
	p.add(strings.Repeat("12", 20), blob, nil, "x")
	for i := range 300 {
		text := base + fmt.Sprint(i)
		p.add(idOf("blob", text), blob, nil, text)
	}
	p.write(box, nil)
	result := host.land(host.lander(Options{}), box)
	assert.Equal(t, 302, result.Added)
	assert.Len(t, result.Refused, 2)
	host.git("cat-file", "-e", idOf("tree", worse))
	packs, _ := filepath.Glob(host.objects() + "/pack/*.idx")
	require.Len(t, packs, 1)
	host.git("verify-pack", packs[0])
}

func TestLongChainOfDeltas(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	p := newPackOf()
	text := strings.Repeat("0123456789", 10)
	at := p.add(idOf("blob", text), blob, nil, text)
	for i := range 6000 { // each takes the first 90 bytes, and adds a number
		next := text[:90] + fmt.Sprintf("%010d", i)
		at = p.add(idOf("blob", next), offsetDelta, int(at), delta(100, 100, "\x90\x5a", "\x0a"+next[90:]))
	}
	p.write(box, nil)
	assert.Equal(t, Result{Added: 6001}, host.land(host.lander(Options{}), box))
}

func TestLargeBlobs(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	large := strings.Repeat("x", maxWhole+1)
	p := newPackOf()
	p.add(idOf("blob", "wrong"), blob, nil, large)
	p.add(idOf("blob", large), blob, nil, large)
	p.add(idOf("blob", "small"), blob, nil, "small")
	p.write(box, nil)
	result := host.land(host.lander(Options{}), box)
	assert.Equal(t, 2, result.Added)
	assert.Len(t, result.Refused, 1)
}

// A command keeps changing files while they are read: only correct objects may land.
func TestLayerThatChanges(t *testing.T) {
	host := newRepo(t, SHA1)
	box := host.box()
	p := newPackOf()
	for i := range 50 {
		text := strings.Repeat(fmt.Sprint(i), 100)
		p.add(idOf("blob", text), blob, nil, text)
	}
	p.write(box, nil)
	path := box.loose(idOf("blob", "ab"), zip("blob 2\x00ab"))
	packs, _ := filepath.Glob(box.objects() + "/pack/*.pack")
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.WriteFile(path, zip("blob 2\x00a"+string(rune('a'+i%3))), 0o644)
			if f, err := os.OpenFile(packs[0], os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteAt([]byte{byte(i)}, int64(20+i%1000))
				_ = f.Truncate(int64(len(p.data) - i%500))
				_, _ = f.WriteAt(p.data, 0)
				_ = f.Close()
			}
		}
	}()
	fd, err := unix.Open(box.objects(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for range 30 {
		_, err := host.lander(Options{}).Land(fd)
		require.NoError(t, err)
	}
	close(stop)
	<-done
	host.fsck()
}

func FuzzReadPack(f *testing.F) {
	base := strings.Repeat("0123456789", 10)
	p := newPackOf()
	p.add(idOf("blob", base), blob, nil, base)
	p.add(idOf("blob", base+"!"), offsetDelta, 12, delta(100, 101, "\x90\x64", "\x01!"))
	sum := sha1.Sum(p.data)
	f.Add(p.data, writeIndex(SHA1, p.list, sum[:]))
	f.Fuzz(func(t *testing.T, pack, idx []byte) {
		if len(pack) > 1<<16 || len(idx) > 1<<16 {
			return
		}
		dir, layer := t.TempDir(), t.TempDir()
		require.NoError(t, os.Mkdir(layer+"/pack", 0o755))
		require.NoError(t, os.WriteFile(layer+"/pack/pack-x.pack", pack, 0o644))
		require.NoError(t, os.WriteFile(layer+"/pack/pack-x.idx", append(idx, make([]byte, 20)...), 0o644))
		d, err := Open(dir, SHA1)
		require.NoError(t, err)
		defer d.Close()
		fd, err := unix.Open(layer, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		l := NewLander(d, SHA1, Options{})
		_, err = l.Land(fd)
		require.NoError(t, err)
		for id := range l.landed {
			k, data, err := d.read(id, maxRead)
			require.NoError(t, err)
			require.Equal(t, id, SHA1.name(k, data))
		}
	})
}

func FuzzApplyDelta(f *testing.F) {
	f.Add([]byte("0123456789"), []byte(delta(10, 11, "\x90\x0a", "\x01!")))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		out, err := applyDelta(base, delta, 1<<20)
		if err == nil {
			_, size, _, _ := deltaSizes(delta)
			require.EqualValues(t, size, len(out))
		}
	})
}

func FuzzCheck(f *testing.F) {
	f.Add(byte(commit), []byte("tree "+strings.Repeat("12", 20)+"\nauthor "+ident+"\ncommitter "+ident+"\n\nx"))
	f.Add(byte(tree), []byte("100644 a\x00"+strings.Repeat("x", 20)))
	f.Add(byte(tag), []byte("object "+strings.Repeat("12", 20)+"\ntype tree\ntag x\ntagger "+ident+"\n\nx"))
	f.Fuzz(func(t *testing.T, k byte, data []byte) {
		_ = check(SHA1, kind(k), data, func(ref) error { return nil })
		_ = checkSpecial(".gitmodules", data)
		_, _, _, _ = openLoose(io.LimitReader(bytes.NewReader(data), 1<<20))
	})
}
