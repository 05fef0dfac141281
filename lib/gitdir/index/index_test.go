package index

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is a git repository in a directory of its own.
type repository struct {
	t      *testing.T
	dir    string
	hexLen int
}

func newRepository(t *testing.T, format string) *repository {
	r := &repository{t, t.TempDir(), 40}
	if format == "sha256" {
		r.hexLen = 64
	}
	r.git("init", "-q", "--object-format="+format, ".")
	return r
}

func (r *repository) git(args ...string) string {
	out, err := r.try("", args...)
	require.NoError(r.t, err, "%v: %s", args, out)
	return out
}

func (r *repository) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *repository) write(name, content string) {
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(r.t, os.WriteFile(path, []byte(content), 0o666))
}

func (r *repository) index() []byte {
	data, err := os.ReadFile(filepath.Join(r.dir, ".git/index"))
	require.NoError(r.t, err)
	return data
}

func (r *repository) install(data []byte) {
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, ".git/index"), data, 0o666))
}

func (r *repository) parse() *Index {
	x, err := Parse(r.index(), r.hexLen, nil)
	require.NoError(r.t, err)
	return x
}

func entries(x *Index) []Entry { return x.Changed(new(Index)) }

func gitlinks(x *Index) []Entry {
	return slices.DeleteFunc(entries(x), func(e Entry) bool { return e.Mode != ModeGitlink })
}

// list is the output of `git ls-files -s -z`.
func list(x *Index) string {
	var b strings.Builder
	for _, e := range entries(x) {
		fmt.Fprintf(&b, "%06o %s %d\t%s\x00", e.Mode, e.ID, e.Stage, e.Path)
	}
	return b.String()
}

// agree checks that git and Parse read the same, and that git reads the same from the
// result of Encode.
func (r *repository) agree() *Index {
	r.t.Helper()
	x := r.parse()
	want := r.git("ls-files", "-s", "-z")
	require.Equal(r.t, want, list(x))
	require.NoError(r.t, x.Check())
	data := x.Encode()
	r.install(data)
	assert.Equal(r.t, want, r.git("ls-files", "-s", "-z"))
	again, err := Parse(data, r.hexLen, nil)
	require.NoError(r.t, err)
	assert.True(r.t, SameContent(x, again))
	assert.True(r.t, again.kept, "Encode is stable")
	assert.Equal(r.t, x.Trees(), again.Trees())
	var links []string
	for _, e := range gitlinks(x) {
		links = append(links, e.Path)
	}
	fast, err := GitlinksOf(data, r.hexLen)
	require.NoError(r.t, err)
	assert.Equal(r.t, links, fast)
	assert.Equal(r.t, len(links) > 0, mayHaveGitlinks(r.t, data))
	return x
}

func mayHaveGitlinks(t *testing.T, data []byte) bool {
	t.Helper()
	may, err := MayHaveGitlinks(bytes.NewReader(data))
	require.NoError(t, err)
	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(data)), iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(data)))} {
		other, err := MayHaveGitlinks(r)
		require.NoError(t, err)
		assert.Equal(t, may, other)
	}
	return may
}

func TestMayHaveGitlinks(t *testing.T) {
	entries := make([]Entry, 3000) // 216 KB
	for i := range entries {
		entries[i] = Entry{Path: fmt.Sprintf("d/%04d", i), Mode: ModeFile}
	}
	assert.False(t, mayHaveGitlinks(t, forge(entries...)))
	for i := 0; i < len(entries); i += 97 {
		entries[i].Mode = ModeGitlink
		assert.True(t, mayHaveGitlinks(t, forge(entries...)), i)
		entries[i].Mode = ModeFile
	}
	for name, data := range map[string][]byte{
		"split":      sum([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x14" + strings.Repeat("x", 20))),
		"no version": []byte("DIRC\x00\x00\x00\x05\x00\x00\x00\x00"),
		"no index":   []byte("no index at all"),
		"short":      []byte("DIRC"),
		"empty":      {},
	} {
		assert.True(t, mayHaveGitlinks(t, data), name)
	}
	_, err := MayHaveGitlinks(io.MultiReader(bytes.NewReader(forge(entries[0])), iotest.ErrReader(errShort)))
	assert.ErrorIs(t, err, errShort)
}

// input is a random tree for `git update-index --index-info`: files, links, gitlinks
// and conflicts.
func (r *repository) input(random *rand.Rand) string {
	id := strings.TrimSpace(r.git("hash-object", "-w", "-t", "blob", "/dev/null"))
	names := []string{"a", "b-", "b.c", "b", "ü", "git", ".gitx", "x y", strings.Repeat("long", 60), "0", "a\\b", ".gitmodules"}
	var b strings.Builder
	for range 40 {
		path := names[random.IntN(len(names))]
		for range random.IntN(5) {
			path += "/" + names[random.IntN(len(names))]
		}
		path += strconv.Itoa(random.IntN(9))
		mode := []string{"100644", "100755", "120000", "160000"}[random.IntN(4)]
		if random.IntN(9) > 0 {
			fmt.Fprintf(&b, "%s %s 0\t%s\x00", mode, id, path)
			continue
		}
		fmt.Fprintf(&b, "0 %s\t%s\x00", strings.Repeat("0", r.hexLen), path)
		for stage := 1; stage <= 3; stage++ {
			if random.IntN(3) > 0 {
				fmt.Fprintf(&b, "100644 %s %d\t%s\x00", id, stage, path)
			}
		}
	}
	return b.String()
}

func TestAgreesWithGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		for version := 2; version <= 4; version++ {
			t.Run(fmt.Sprint(format, " version ", version), func(t *testing.T) {
				r := newRepository(t, format)
				random := rand.New(rand.NewPCG(1, uint64(version)))
				for range 4 {
					out, err := r.try(r.input(random), "update-index", "--replace", "--index-version="+strconv.Itoa(version), "-z", "--index-info")
					require.NoError(t, err, out)
					r.git("update-index", "--force-write-index", "--index-version="+strconv.Itoa(version))
					if x := r.agree(); version != 3 { // git writes 2 where 3 is not needed
						assert.Equal(t, version, x.Version)
					}
				}
			})
		}
	}
}

func TestFlags(t *testing.T) {
	r := newRepository(t, "sha1")
	for _, name := range []string{"assume", "skip", "plain", "new"} {
		r.write(name, name)
	}
	r.git("add", "assume", "skip", "plain")
	r.git("add", "-N", "new")
	r.git("update-index", "--assume-unchanged", "assume")
	r.git("update-index", "--skip-worktree", "skip")
	x := r.agree()
	assert.Equal(t, 3, x.Version)
	got := map[string]Flags{}
	for _, e := range entries(x) {
		got[e.Path] = e.Flags
	}
	assert.Equal(t, map[string]Flags{"assume": {AssumeValid: true}, "skip": {SkipWorktree: true}, "new": {IntentToAdd: true}, "plain": {}}, got)
	r.git("update-index", "--no-skip-worktree", "skip")
	assert.False(t, SameContent(x, r.parse()))
	assert.Empty(t, r.parse().Changed(x), "flags are no content")
}

func TestExtensions(t *testing.T) {
	has := func(x *Index, name string) bool { return bytes.Contains(x.Encode()[x.end:], []byte(name)) }
	files := func(r *repository) {
		for _, name := range []string{"a", "d/a", "d/e/a", "d/e/b", "d-e", "d.e", "z/a"} {
			r.write(name, name)
		}
		r.git("add", ".")
		r.git("commit", "-qm", "first")
	}
	t.Run("true trees stay", func(t *testing.T) {
		for _, format := range []string{"sha1", "sha256"} {
			r := newRepository(t, format)
			files(r)
			x := r.agree()
			assert.True(t, x.kept)
			assert.Len(t, x.Trees(), 4)
			assert.Contains(t, x.Trees(), strings.TrimSpace(r.git("rev-parse", "HEAD^{tree}")))
			r.write("d/e/c", "new")
			r.git("update-index", "--add", "d/e/c")
			assert.Len(t, r.agree().Trees(), 1, "z")
			r.git("rm", "-rqf", "--cached", "d")
			assert.Len(t, r.agree().Trees(), 1, "d is gone")
			x.DropTrees()
			assert.False(t, has(x, "TREE"))
			r.install(x.Encode())
			assert.Empty(t, r.git("diff", "--cached"))
		}
	})
	t.Run("a tree that is not that of the entries goes", func(t *testing.T) {
		r := newRepository(t, "sha1")
		files(r)
		first := r.parse()
		r.write("d/a", "other")
		r.git("add", "d/a")
		forged := slices.Concat(r.index()[:r.parse().end], first.data[first.end:len(first.data)-20])
		r.install(sum(forged))
		require.Empty(t, r.git("diff", "--cached"), "git believes the forged tree")
		x := r.agree()
		assert.Empty(t, x.Trees())
		assert.Contains(t, r.git("diff", "--cached"), "+other")
	})
	t.Run("untracked cache, file system monitor, resolved conflict", func(t *testing.T) {
		r := newRepository(t, "sha1")
		files(r)
		r.git("checkout", "-qb", "side")
		r.write("a", "side")
		r.git("commit", "-qam", "side")
		r.git("checkout", "-q", "-")
		r.write("a", "main")
		r.git("commit", "-qam", "main")
		_, err := r.try("", "merge", "side")
		require.Error(t, err)
		assert.Equal(t, []string{"1 a", "2 a", "3 a"}, stages(r.agree()))
		r.git("add", "a")
		r.git("update-index", "--untracked-cache")
		r.git("-c", "core.fsmonitor=true", "update-index", "--fsmonitor")
		data := r.index()
		for _, name := range []string{"REUC", "UNTR", "FSMN"} {
			require.Contains(t, string(data), name)
		}
		x := r.agree()
		for _, name := range []string{"REUC", "UNTR", "FSMN"} {
			assert.False(t, has(x, name), name)
		}
	})
	t.Run("offsets of entries", func(t *testing.T) {
		r := newRepository(t, "sha1")
		var b strings.Builder
		for i := range 300 {
			fmt.Fprintf(&b, "160000 %s 0\tm/%03d\x00", strings.Repeat("1", 40), i)
		}
		r.git("config", "index.threads", "3")
		cmd := exec.Command("git", "update-index", "-z", "--index-info")
		cmd.Dir, cmd.Stdin, cmd.Env = r.dir, strings.NewReader(b.String()), append(os.Environ(), "GIT_TEST_INDEX_THREADS=1")
		require.NoError(t, cmd.Run())
		x := r.agree()
		assert.False(t, has(x, "EOIE") || has(x, "IEOT"))
		assert.Len(t, gitlinks(x), 300)
	})
	t.Run("split index", func(t *testing.T) {
		r := newRepository(t, "sha1")
		files(r)
		r.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
		r.git("update-index", "--split-index")
		_, err := Parse(r.index(), 40, nil)
		var split *SplitError
		require.ErrorAs(t, err, &split)
		links, err := GitlinksOf(r.index(), 40)
		require.ErrorAs(t, err, &split)
		assert.Empty(t, links)
		assert.True(t, mayHaveGitlinks(t, r.index()))
		data, err := os.ReadFile(filepath.Join(r.dir, ".git", split.Shared))
		require.NoError(t, err)
		links, err = GitlinksOf(data, 40)
		require.NoError(t, err)
		assert.Equal(t, []string{"sub"}, links)
		_, err = GitlinksOf(sum([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x14"+strings.Repeat("\x00", 20))), 40)
		assert.NoError(t, err, "it names no other file")
	})
	t.Run("sparse index", func(t *testing.T) {
		r := newRepository(t, "sha1")
		files(r)
		r.git("sparse-checkout", "set", "--cone", "--sparse-index", "z")
		assert.ErrorContains(t, r.parse().Check(), `"d/": a sparse index`)
		x, err := Parse(r.index(), 40, r.index())
		require.NoError(t, err)
		assert.ErrorContains(t, x.Check(), "a sparse index", "the host's is one too")
		r.git("sparse-checkout", "set", "--cone", "--no-sparse-index", "z")
		r.agree()
	})
	t.Run("no checksum", func(t *testing.T) {
		r := newRepository(t, "sha1")
		files(r)
		data := r.index()
		r.install(append(data[:len(data)-20:len(data)-20], make([]byte, 20)...))
		x := r.parse()
		assert.Equal(t, data, x.Encode())
	})
	t.Run("unknown ones", func(t *testing.T) {
		r := newRepository(t, "sha1")
		files(r)
		body := r.index()[:len(r.index())-20]
		x, err := Parse(sum(append(bytes.Clone(body), "ABCD\x00\x00\x00\x01x"...)), 40, nil)
		require.NoError(t, err)
		assert.Equal(t, r.index(), x.Encode())
		_, err = Parse(sum(append(bytes.Clone(body), "abcd\x00\x00\x00\x01x"...)), 40, nil)
		assert.ErrorContains(t, err, `unknown extension "abcd"`)
	})
}

func stages(x *Index) (all []string) {
	for _, e := range entries(x) {
		if e.Stage > 0 {
			all = append(all, fmt.Sprint(e.Stage, " ", e.Path))
		}
	}
	return all
}

// sum appends the checksum of SHA-1.
func sum(body []byte) []byte {
	s := sha1.Sum(body)
	return append(body, s[:]...)
}

// forge makes an index of version 2 without git.
func forge(entries ...Entry) []byte {
	b := []byte("DIRC\x00\x00\x00\x02")
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		start := len(b)
		b = append(b, make([]byte, modeAt)...)
		b = binary.BigEndian.AppendUint32(b, e.Mode)
		b = append(b, make([]byte, 12)...)
		b = append(b, bytes.Repeat([]byte{1}, 20)...)
		b = binary.BigEndian.AppendUint16(b, uint16(e.Stage<<12|min(len(e.Path), flagLength)))
		b = append(b, e.Path...)
		b = append(b, make([]byte, (len(b)-start+8)&^7-(len(b)-start))...)
	}
	return sum(b)
}

// paths are test cases for verify_path: git decides, the package agrees.
var paths = []string{
	"a", "a/b", "a//b", "/a", "a/", ".", "..", "./a", "../out/x", "a/..", "a/./b", "a/../b", "...", "a/...", "..a", ".a",
	".git", ".GIT", ".gIt/hooks/x", "a/.git", "a/.git/config", ".git/hooks/x", ".gitx", ".gi", "git", ".git.x", ".git-rewrite",
	".git ", ".git.", ".git . ", ".git::$INDEX_ALLOCATION", ".git:x", ".git ::$INDEX_ALLOCATION/x", ".git :", "git~1", "GIT~1", "git~1 ", "git~1.", "git~1:x", "git~2", "git~11", "a/git~1/x",
	`a\.git`, `a\.git\x`, `.git\x`, `a\b`, `a\git~1`, `a\..\b`, `..\x`, `C:\x`, "C:/x",
	".g\u200cit", "\u200c.git", ".git\u200c", ".git\ufeff", ".g\u200ci\u202et\u206f", ".g\u0131t", ".g\u200bit", ".g\u200cit/x", "a/.g\u206ait/x", ".git\xff", "\xff.git", "\u212a", ".git\u2069",
	".gitmodules", ".GITMODULES", "a/.gitmodules", ".gitmodules ", ".gitmodules.", ".gitmodules:x", ".gitmodules::$DATA", ".g\u200citmodules", "gitmod~1", "gitmod~4", "gitmod~5", "GITMOD~2 .", "gi7eba~1", "gi7eb~12", "gi7e~123", "gi~12345", "g~123456", "~1234567", "gi7eba~0", "gi7ebax1", "gi7eba~1 ", "gi7eba~1x", "gi7d29~1", `x\.gitmodules`, `x\gitmod~1`, ".gitmodulesx", ".gitmodule",
}

// TestPaths compares with git on the paths above, with git's own options for other
// systems on.
func TestPaths(t *testing.T) {
	r := newRepository(t, "sha1")
	for _, mode := range []uint32{ModeFile, ModeLink} {
		for _, path := range paths {
			_, err := r.try("", "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true",
				"update-index", "--add", "--replace", "--cacheinfo", fmt.Sprintf("%o,%s,%s", mode, strings.Repeat("1", 40), path))
			if ours := checkPath(path, mode); err == nil {
				assert.NoError(t, ours, "%q %o", path, mode)
			} else {
				assert.Error(t, ours, "%q %o", path, mode)
			}
		}
	}
	assert.Error(t, checkPath(`\.git`, ModeFile), "git allows it outside Windows")
	assert.Error(t, checkPath("", ModeFile))
	assert.Error(t, checkPath("a\x00b", ModeFile))
}

func TestCheck(t *testing.T) {
	file := func(path string) Entry { return Entry{Path: path, Mode: ModeFile} }
	link := func(path string) Entry { return Entry{Path: path, Mode: ModeLink} }
	gitlink := func(path string) Entry { return Entry{Path: path, Mode: ModeGitlink} }
	stage := func(n int, e Entry) Entry { e.Stage = n; return e }
	for _, test := range []struct {
		name    string
		entries []Entry
		err     string
	}{
		{"nothing", nil, ""},
		{"files beside each other", []Entry{file("a"), file("a-b"), file("a.c/d"), file("aa/b"), file("b")}, ""},
		{"a hook", []Entry{file(".git/hooks/x")}, `".git/hooks/x": name is .git`},
		{"outside", []Entry{file("../out/x")}, `"../out/x": name ".."`},
		{"absolute", []Entry{file("/etc/x")}, `empty name`},
		{"below a link", []Entry{link("a"), file("a-b"), file("a.c"), file("a/b")}, `"a/b": "a" is not a directory`},
		{"far below a link", []Entry{file("a"), link("b/c"), file("b/c!"), file("b/c/d/e")}, `"b/c/d/e": "b/c" is not a directory`},
		{"below a file", []Entry{file("a"), file("a/b")}, `"a/b": "a" is not a directory`},
		{"below a gitlink", []Entry{gitlink("a"), file("a/.x")}, `"a/.x": "a" is not a directory`},
		{"file and directory in conflict", []Entry{stage(2, file("a")), stage(3, file("a/b"))}, ""},
		{"link and directory in conflict", []Entry{stage(2, link("a")), stage(3, file("a/b"))}, `"a/b": "a" is not a directory`},
		{"a directory", []Entry{{Path: "a", Mode: modeDirectory}}, "sparse index"},
		{"group may write", []Entry{{Path: "a", Mode: 0o100664}}, "unknown mode 100664"},
		{"set-user-ID", []Entry{{Path: "a", Mode: 0o104755}}, "unknown mode 104755"},
		{"a device", []Entry{{Path: "a", Mode: 0o020644}}, "unknown mode 20644"},
		{".gitmodules is a link", []Entry{link(".gitmodules")}, ".gitmodules cannot be a link"},
		{".gitmodules is a file", []Entry{file(".gitmodules")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, err := Parse(forge(test.entries...), 40, nil)
			require.NoError(t, err)
			if err := x.Check(); test.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	file := func(path string, stage int) Entry { return Entry{Path: path, Mode: ModeFile, Stage: stage} }
	good := forge(file("a", 0), file("b/c", 0))
	_, err := Parse(good, 40, nil)
	require.NoError(t, err)
	edit := func(at int, b ...byte) []byte {
		body := bytes.Clone(good[:len(good)-20])
		copy(body[at:], b)
		return sum(body)
	}
	body := good[:len(good)-20]
	const flags = headerSize + statSize + 20 // of the first entry
	for name, data := range map[string][]byte{
		"empty":                            {},
		"header only":                      good[:12],
		"wrong signature":                  edit(0, 'X'),
		"version 1":                        edit(7, 1),
		"version 5":                        edit(7, 5),
		"more entries than there are":      edit(11, 3),
		"a billion entries":                edit(8, 0x7f),
		"fewer entries than there are":     edit(11, 1),
		"wrong checksum":                   append(bytes.Clone(body), make([]byte, 19)...),
		"wrong order":                      forge(file("b", 0), file("a", 0)),
		"the same path twice":              forge(file("a", 0), file("a", 0)),
		"merged and in conflict":           forge(file("a", 0), file("a", 1)),
		"stages out of order":              forge(file("a", 2), file("a", 1)),
		"the same stage twice":             forge(file("a", 2), file("a", 2)),
		"path longer than it is":           edit(flags, 0, 5),
		"path far longer than the file":    edit(flags, 0x0f, 0xfe),
		"path shorter than it is":          edit(flags, 0, 0),
		"path said to be long":             edit(flags, 0x0f, 0xff),
		"extended flags in version 2":      edit(flags, 0x40, 1),
		"something in the padding":         edit(143, 'x'),
		"garbage behind the entries":       sum(append(bytes.Clone(body), "abc"...)),
		"extension longer than the file":   sum(append(bytes.Clone(body), "TREE\x00\x00\x00\x09x"...)),
		"extension of four gigabytes":      sum(append(bytes.Clone(body), "TREE\xff\xff\xff\xffx"...)),
		"version 4 with too long a prefix": sum(append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), append(make([]byte, 61), 1, 5, 'a', 0)...)),
		"version 4 with an endless number": sum(append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), append(make([]byte, 61), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)...)),
	} {
		_, err := Parse(data, 40, nil)
		assert.Error(t, err, name)
	}
	_, err = Parse(good, 64, nil)
	assert.Error(t, err, "the other hash")
	_, err = Parse(forge(file(strings.Repeat("a", maxPath+1), 0)), 40, nil)
	assert.ErrorContains(t, err, "too long")
}

// TestGrowth is an index of version 4 whose paths share a long prefix: written out they
// are a hundred times as long as the file.
func TestGrowth(t *testing.T) {
	body := []byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x00")
	length := 4000
	for i := range 2000 {
		tail, strip := fmt.Sprintf("%04d", i), []byte{4}
		if i == 0 {
			tail, strip = strings.Repeat("a", length)+tail, []byte{0}
		}
		body = append(body, make([]byte, 60)...)
		body = binary.BigEndian.AppendUint16(body, uint16(length+4))
		body = append(append(append(body, strip...), tail...), 0)
		body[11], body[10] = byte(i+1), byte((i+1)>>8)
	}
	_, err := Parse(sum(body), 40, nil)
	assert.ErrorContains(t, err, "its paths are too long")
}

func TestChanged(t *testing.T) {
	parse := func(entries ...Entry) *Index {
		x, err := Parse(forge(entries...), 40, nil)
		require.NoError(t, err)
		return x
	}
	base := parse(Entry{Path: "a", Mode: ModeFile}, Entry{Path: "b", Mode: ModeFile}, Entry{Path: "d", Mode: ModeFile, Stage: 1})
	now := parse(Entry{Path: "a", Mode: ModeExecutable}, Entry{Path: "b", Mode: ModeFile}, Entry{Path: "c", Mode: ModeFile}, Entry{Path: "d", Mode: ModeFile, Stage: 2})
	var got []string
	for _, e := range now.Changed(base) {
		got = append(got, e.Path)
	}
	assert.Equal(t, []string{"a", "c", "d"}, got)
	assert.Len(t, now.Changed(new(Index)), 4)
	assert.Empty(t, base.Changed(base))
	assert.False(t, SameContent(base, now))
}

// FuzzParse looks for panics, and for a result of Encode that reads differently.
func FuzzParse(f *testing.F) {
	f.Add(forge(Entry{Path: "a", Mode: ModeFile}, Entry{Path: "a/b", Mode: ModeLink}), false)
	f.Add(forge(Entry{Path: ".git/x", Mode: ModeFile, Stage: 1}, Entry{Path: ".git/x", Mode: ModeGitlink, Stage: 3}), true)
	f.Fuzz(func(t *testing.T, data []byte, long bool) {
		hexLen, end := 40, len(data)-sha1.Size
		if long {
			hexLen, end = 64, len(data)-sha256.Size
		}
		if end < 0 {
			return
		}
		clear(data[end:]) // the checksum of git's index.skipHash
		x, err := Parse(data, hexLen, nil)
		_, _ = GitlinksOf(data, hexLen)
		if err != nil {
			return
		}
		_ = x.Check()
		again, err := Parse(x.Encode(), hexLen, nil)
		require.NoError(t, err)
		require.True(t, SameContent(x, again))
		require.Empty(t, again.Changed(x))
		require.Equal(t, len(x.entries), len(again.entries))
	})
}

// TestMutations changes bytes of real indexes. From each that passes, git reads the same
// as Parse.
func TestMutations(t *testing.T) {
	r := newRepository(t, "sha1")
	random := rand.New(rand.NewPCG(3, 3))
	passed := 0
	for round := range 12 {
		version := strconv.Itoa(2 + round%3)
		out, err := r.try(r.input(random), "update-index", "--replace", "--index-version="+version, "-z", "--index-info")
		require.NoError(t, err, out)
		data := r.index()
		for range 200 {
			body := bytes.Clone(data[:len(data)-20])
			for range 1 + random.IntN(2) {
				at := random.IntN(len(body))
				body[at] = []byte{byte(random.Uint32()), '/', '.', 0, body[at] ^ 1, body[at] + 1}[random.IntN(6)]
			}
			body = sum(body)
			beside(t, body, data, "mutation")
			x, err := Parse(body, 40, data)
			if err != nil || x.Check() != nil || passed > 40*(round+1)/12 {
				continue
			}
			passed++
			r.install(x.Encode())
			require.Equal(t, list(x), r.git("ls-files", "-s", "-z"))
		}
		r.install(data)
	}
	assert.Greater(t, passed, 20)
}

// beside checks that an index is judged beside the host's as it is alone. It returns the
// errors of Parse and Check, and the number of trees that stay.
func beside(t *testing.T, data, hosts []byte, name string) (verdict string, trees int) {
	t.Helper()
	host, err := ParseHost(hosts, 40)
	require.NoError(t, err)
	x, err := Parse(bytes.Clone(data), 40, hosts)
	alone, want := Parse(bytes.Clone(data), 40, nil)
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(err), name)
	if err != nil {
		return err.Error(), 0
	}
	require.Equal(t, fmt.Sprint(alone.Check()), fmt.Sprint(x.Check()), name)
	require.Equal(t, list(alone), list(x), name)
	changed, old := x.Differences()
	require.Equal(t, alone.Changed(host), changed, name)
	require.Equal(t, host.Changed(alone), old, name)
	require.Equal(t, alone.Encode(), x.Encode(), name)
	require.Subset(t, alone.Trees(), x.Trees(), name)
	return fmt.Sprint(x.Check()), len(x.trees)
}

// TestBesideTheHosts has indexes that forge entries of the host's.
func TestBesideTheHosts(t *testing.T) {
	r := newRepository(t, "sha1")
	for _, name := range []string{"a", "d/a", "d/b", "d/e/a", "d/e/b", "l/x", "z/a", "z/b"} {
		r.write(name, name)
	}
	require.NoError(t, os.Symlink("d", filepath.Join(r.dir, "m")))
	r.git("add", ".")
	r.git("commit", "-qm", "first")
	hosts := r.index()
	host, err := Parse(bytes.Clone(hosts), 40, hosts)
	require.NoError(t, err)
	require.NotNil(t, host.hostRoot)
	require.Empty(t, host.gaps)
	raw := map[string][]byte{}
	var names []string
	for i := range host.entries {
		name, end := string(host.path(&host.entries[i])), host.end
		if i+1 < len(host.entries) {
			end = int(host.entries[i+1].at)
		}
		raw[name], names = hosts[host.entries[i].at:end], append(names, name)
	}
	tree := host.extensions()[8:]
	extension := func(name string, body []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte(name), uint32(len(body))), body...)
	}
	build := func(tail []byte, names ...string) []byte {
		b := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(len(names)))
		for _, name := range names {
			b = append(b, raw[name]...)
		}
		return sum(append(b, tail...))
	}
	edited := func(name, as string, edit func(raw []byte)) string {
		raw[as] = bytes.Clone(raw[name])
		edit(raw[as])
		return as
	}
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	}
	swap := func(old, new string) []string {
		list := slices.Clone(names)
		list[slices.Index(list, old)] = new
		return list
	}
	all := extension("TREE", tree)
	forged := func(at string, n int) []byte { // the ID of a subtree
		body := bytes.Clone(tree)
		at0 := bytes.Index(body, []byte(at))
		require.GreaterOrEqual(t, at0, 0)
		body[at0+len(at)+n] ^= 1
		return extension("TREE", body)
	}
	id := func(raw []byte) { raw[statSize] ^= 1 }
	path := func(to string) func([]byte) {
		return func(raw []byte) { copy(raw[statSize+22:], to) }
	}
	file := func(raw []byte) { binary.BigEndian.PutUint32(raw[modeAt:], ModeFile) }
	link := func(raw []byte) { binary.BigEndian.PutUint32(raw[modeAt:], ModeLink) }
	for _, row := range []struct {
		name    string
		data    []byte
		verdict string
		trees   bool
	}{
		{"the host's own", r.index(), "<nil>", true},
		{"made in the same way", build(all, names...), "<nil>", true},
		{"one entry is gone", build(all, without("d/b")...), "<nil>", false},
		{"the last one is gone", build(all, without("z/b")...), "<nil>", false},
		{"one has another object", build(all, swap("d/e/b", edited("d/e/b", "1", id))...), "<nil>", false},
		{"the first one has", build(all, swap("a", edited("a", "2", id))...), "<nil>", false},
		{"one more", build(all, slices.Insert(slices.Clone(names), 3, edited("d/b", "3", path("d/c")))...), "<nil>", false},
		{"one in the place of another", build(all, swap("d/b", edited("d/b", "4", path("d/c")))...), "<nil>", false},
		{"only times differ", build(all, swap("d/b", edited("d/b", "5", func(raw []byte) { raw[3] ^= 1 }))...), "<nil>", true},
		{"the mode differs", build(all, swap("d/b", edited("d/b", "6", link))...), "<nil>", false},
		{"to be added", build(all, swap("d/b", edited("d/b", "7", func(raw []byte) { raw[statSize+20] |= 0x10 }))...), "<nil>", false},
		{"an entry twice", build(all, slices.Insert(slices.Clone(names), 3, "d/b")...), `entry 3: "d/b" is not in order`, false},
		{"the first one at the end too", build(all, append(slices.Clone(names), "a")...), `entry 9: "a" is not in order`, false},
		{"two runs in the wrong order", build(all, append(slices.Clone(names[4:]), names[:4]...)...), `entry 5: "a" is not in order`, false},
		{"a later path before the host's", build(all, slices.Insert(slices.Clone(names), 1, edited("d/b", "8", path("d/z")))...), `entry 2: "d/a" is not in order`, false},
		{"a hook among the host's", build(all, slices.Insert(slices.Clone(names), 0, edited("d/e/a", "9", path(".git/")))...), `".git/": name is .git`, false},
		{"a link above the host's", build(all, slices.Insert(slices.Clone(names), 1, edited("m", "10", path("d")))...), `"d/a": "d" is not a directory`, false},
		{"a file above the host's", build(all, slices.Insert(slices.Clone(names), 1, edited("m", "11", func(raw []byte) { path("d")(raw); file(raw) }))...), `"d/a": "d" is not a directory`, false},
		{"something below the host's link", build(all, slices.Insert(slices.Clone(names), 7, edited("d/a", "12", path("m/a")))...), `"m/a": "m" is not a directory`, false},
		{"a forged subtree below unchanged entries", build(forged("e\x002 0\n", 3), names...), "<nil>", false},
		{"a forged tree above unchanged entries", build(forged("d\x004 1\n", 3), names...), "<nil>", false},
		{"a forged root", build(forged("\x009 3\n", 19), names...), "<nil>", false},
		{"a forged tree elsewhere than the change", build(forged("z\x002 0\n", 3), swap("d/b", "5")...), "<nil>", false},
		{"another count", build(extension("TREE", bytes.Replace(tree, []byte("e\x002 0"), []byte("e\x003 0"), 1)), names...), "<nil>", false},
		{"another tree's name", build(extension("TREE", bytes.Replace(tree, []byte("z\x002 0"), []byte("y\x002 0"), 1)), names...), "<nil>", false},
		{"only the subtree as the root", build(extension("TREE", host.hostRoot.down["z"].text), names...), "<nil>", false},
		{"the host's trees twice", build(extension("TREE", append(bytes.Clone(tree), tree...)), names...), "<nil>", false},
		{"more behind the host's trees", build(extension("TREE", append(bytes.Clone(tree), 0)), names...), "<nil>", false},
		{"the host's trees, cut off", build(extension("TREE", tree[:len(tree)-1]), names...), "<nil>", false},
		{"two extensions, the second one forged", build(append(bytes.Clone(all), forged("e\x002 0\n", 3)...), names...), "<nil>", true},
		{"an extension that is cut off", build(all[:len(all)-1], names...), `the extension "TREE" ends too early`, false},
		{"garbage behind", build(append(bytes.Clone(all), "abc"...), names...), "garbage after the entries", false},
		{"a link behind", build(append(bytes.Clone(all), extension("link", tree[:20])...), names...), "it is a split index", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			verdict, trees := beside(t, row.data, hosts, row.name)
			assert.Contains(t, verdict, row.verdict)
			assert.Equal(t, row.trees, trees > 0)
		})
	}
	changed := bytes.Clone(r.index())
	changed[len(changed)-1] ^= 1
	verdict, _ := beside(t, changed, hosts, "checksum")
	assert.Equal(t, "the checksum is wrong", verdict)
	r.git("update-index", "--skip-worktree", "d/b")
	data := bytes.Clone(r.index()[:len(r.index())-20])
	data[7] = 2
	verdict, _ = beside(t, sum(data), r.index(), "version 2 with entries of the host's version 3")
	assert.Equal(t, "entry 2: unknown flags", verdict)
	x, err := Parse(build(all, names...), 40, hosts)
	require.NoError(t, err)
	assert.Empty(t, x.Trees(), "the host has them all")
	x, err = Parse(build(all, swap("d/b", "5")...), 40, hosts)
	require.NoError(t, err)
	assert.Len(t, x.Trees(), 2, "d and the root are looked at, d/e and z are the host's")
}

// TestHostError has errors in the host's index, wherever the other one is compared with it.
func TestHostError(t *testing.T) {
	entries := []Entry{{Path: "a", Mode: ModeFile}, {Path: "b", Mode: ModeFile}, {Path: "c", Mode: ModeFile}}
	good := forge(entries...)
	at := bytes.Index(good, []byte("b\x00"))
	edited := func(edit func(data []byte)) []byte {
		data := bytes.Clone(good)
		edit(data)
		return data
	}
	for name, hosts := range map[string][]byte{
		"no index":     []byte("no index at all"),
		"version":      edited(func(data []byte) { data[7] = 5 }),
		"more entries": edited(func(data []byte) { data[11] = 4 }),
		"length":       edited(func(data []byte) { data[at-1] = 99 }),
		"padding":      edited(func(data []byte) { data[at+1] = 'x' }),
		"behind":       append(bytes.Clone(good), 0),
	} {
		_, err := ParseHost(hosts, 40)
		require.Error(t, err, name)
		for _, own := range [][]byte{good, forge(entries[:1]...), forge(entries[2]), forge()} {
			_, other := Parse(bytes.Clone(own), 40, hosts)
			host := new(HostError)
			require.ErrorAs(t, other, &host, name)
			assert.ErrorContains(t, err, host.Err.Error(), name)
		}
	}
	split := sum([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x14" + strings.Repeat("x", 20)))
	for _, hosts := range [][]byte{nil, split} {
		x, err := Parse(bytes.Clone(good), 40, hosts)
		require.NoError(t, err)
		changed, old := x.Differences()
		assert.Len(t, changed, 3)
		assert.Empty(t, old)
	}
}

// TestBesideTheHostsAtRandom has indexes that share entries with the host's, changed and
// moved.
func TestBesideTheHostsAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	make := func(other int) []byte {
		var entries []Entry
		for i := range 60 {
			e := Entry{Path: fmt.Sprintf("d%d/f%02d%s", i/20, i, strings.Repeat("x", i%9)), Mode: ModeFile}
			switch random.IntN(other) {
			case 0:
				continue
			case 1:
				e.Mode = ModeExecutable
			case 2:
				e.Stage = 1 + random.IntN(3)
			case 3:
				e.Path += "y"
			}
			entries = append(entries, e)
		}
		return forge(entries...)
	}
	for range 300 {
		verdict, _ := beside(t, make(5+random.IntN(200)), make(5+random.IntN(200)), "random")
		require.Equal(t, "<nil>", verdict)
	}
}

func BenchmarkParse(b *testing.B) {
	var entries []Entry
	for d := range 8 {
		for e := range 50 {
			for f := range 50 {
				entries = append(entries, Entry{Path: fmt.Sprintf("d%d/%d/f%d", d, e, f), Mode: ModeFile})
			}
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	data := forge(entries...)
	run := func(name string, data, host []byte) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				x, err := Parse(data, 40, host)
				if err == nil {
					err = x.Check()
				}
				require.NoError(b, err)
			}
		})
	}
	run("beside nothing", data, nil)
	entries[10_000].Mode = ModeExecutable
	run("beside the host's", forge(entries...), data)
	b.Run("the host's", func(b *testing.B) {
		for b.Loop() {
			_, err := ParseHost(data, 40)
			require.NoError(b, err)
		}
	})
	b.Run("gitlinks", func(b *testing.B) {
		for b.Loop() {
			may, err := MayHaveGitlinks(bytes.NewReader(data))
			require.NoError(b, err)
			require.False(b, may)
		}
	})
	b.Run("changed", func(b *testing.B) {
		x, err := Parse(forge(entries...), 40, data)
		require.NoError(b, err)
		for b.Loop() {
			changed, _ := x.Differences()
			require.Len(b, changed, 1)
		}
	})
}

func TestHas(t *testing.T) {
	x, err := Parse(forge(Entry{Path: "a", Mode: ModeFile}, Entry{Path: "b-c", Mode: ModeFile}, Entry{Path: "b/c", Mode: ModeFile}), 40, nil)
	require.NoError(t, err)
	for path, has := range map[string]bool{"a": true, "b": true, "b/c": true, "b-c": true, "b-": false, "a/b": false, "c": false, "": false} {
		assert.Equal(t, has, x.Has(path), path)
	}
}
