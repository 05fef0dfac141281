package confine

import (
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

// showElsewhere moves each writable root to another directory, and has cfg show that
// in its place. The host keeps an empty root, or a hostile one: a link to outside for
// each directory, and a directory for each other file. Only keep, a directory, and the
// roots in it are still there.
func showElsewhere(t testing.TB, cfg *Config, hostile bool, keep string) {
	t.Helper()
	w, err := Open(*cfg)
	if err != nil {
		return // there is no root to show
	}
	defer w.Close()
	cfg.Shown = map[string]*os.File{}
	for _, root := range w.Roots() {
		around := func(r Root) bool { return r.Writable && r.Path != root.Path && r.Contains(root.Path) }
		if !root.Writable || !confinetest.IsDir(t, root.Path) || slices.ContainsFunc(w.Roots(), around) {
			continue
		}
		needed := map[string]bool{keep: true}
		for _, r := range w.Roots() {
			needed[r.Path] = r.Dir
		}
		cfg.Shown[root.Path] = moveAway(t, root.Path, hostile, needed)
	}
}

// moveAway moves a directory and returns it, open. A new one takes its place, with
// the needed names: true for a directory, false for a file.
func moveAway(t testing.TB, dir string, hostile bool, needed map[string]bool) *os.File {
	t.Helper()
	info, err := os.Stat(dir)
	require.NoError(t, err)
	there := confinetest.Dir(t) + "/tree"
	require.NoError(t, os.Rename(dir, there))
	require.NoError(t, os.Mkdir(dir, info.Mode().Perm()))
	t.Cleanup(func() { // steps of the case are undone by the names that they had
		os.RemoveAll(dir)
		os.Rename(there, dir)
	})
	for path, isDir := range needed {
		if path == dir || !fsat.Within(path, dir) {
			continue
		}
		if isDir {
			path += "/"
		}
		confinetest.Grow(t, dir, path[len(dir)+1:])
	}
	entries, err := os.ReadDir(there)
	require.NoError(t, err)
	for _, e := range entries {
		name := dir + "/" + e.Name()
		switch {
		case !hostile || exist(name):
		case e.IsDir():
			require.NoError(t, os.Symlink("/etc", name))
		default:
			require.NoError(t, os.Mkdir(name, 0o755))
		}
	}
	return openDir(t, there)
}

func openDir(t testing.TB, dir string) *os.File {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { file.Close() })
	return file
}

// everyTree runs test with both resolvers, on the host and with base/proj shown
// elsewhere. open returns base as a workspace, and the directory with the files of
// base/proj.
func everyTree(t *testing.T, test func(t *testing.T, open func(base string) (*Workspace, string))) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		t.Run("host", func(t *testing.T) {
			test(t, func(base string) (*Workspace, string) { return workspace(t, base, openat2), base + "/proj" })
		})
		t.Run("shown", func(t *testing.T) {
			test(t, func(base string) (*Workspace, string) {
				require.NoError(t, os.Rename(base+"/proj", base+"/seen"))
				require.NoError(t, os.Mkdir(base+"/proj", 0o755))
				require.NoError(t, os.Symlink("../out", base+"/proj/d"))
				return viewed(t, base, openat2, Config{}), base + "/seen"
			})
		})
	})
}

// viewed is workspace with base/seen for base/proj, and more of cfg.
func viewed(t testing.TB, base string, openat2 bool, cfg Config) *Workspace {
	t.Helper()
	cfg.ProjectRoot = base + "/proj"
	cfg.Readable = append(cfg.Readable, base+"/ro")
	cfg.Writable = append(cfg.Writable, base+"/rw")
	if cfg.Shown == nil {
		cfg.Shown = map[string]*os.File{}
	}
	cfg.Shown[base+"/proj"] = openDir(t, base+"/seen")
	w, err := open(cfg, fsat.Opener{Openat2: openat2})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	for _, dir := range cfg.Shown {
		dir.Close() // the workspace has its own
	}
	return w
}

// hostile are lines of a tree whose base/proj leads out wherever base/seen does not.
var hostile = []string{
	"ro/f", "rw/f", "out/f", "proj/d => ../out", "proj/f => ../out/f", "proj/new => ../out/made", "proj/only/host", "proj/in/", "proj/.git => ../out",
}

// TestShown: answers come from the shown directory, under the names of the root.
func TestShown(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, append(hostile, "seen/d/f", "seen/f", "seen/in => {base}/proj/d", "seen/out => /etc", "seen/l => d",
			"seen/up => ..", "seen/seen => ../seen", "seen/rw => ../rw", "seen/slash => f/", "seen/dirslash => d/", "seen/dots => d/../f", "seen/gone => missing",
			"seen/filedots => f/../f", "seen/deep => {base}/proj/in/f", "seen/proc => /proc/self")...)
		w := viewed(t, base, openat2, Config{})
		for _, row := range []struct {
			name, path, want string
			req              Request
			err              error
		}{
			{name: "directory that is a link on the host", path: "d/f", want: "/proj/d/f"},
			{name: "file that is a link on the host", path: "f", want: "/proj/f"},
			{name: "missing name that is a link on the host", path: "new", want: "/proj/new", req: Request{Mode: Write}},
			{name: "missing, to exist", path: "only/host", req: Request{Existing: true}, err: unix.ENOENT},
			{name: "missing, link itself", path: "new", req: Request{Existing: true, Itself: true}, err: unix.ENOENT},
			{name: "absolute link into the root", path: "in/f", want: "/proj/d/f", req: Request{Existing: true}},
			{name: "two absolute links", path: "deep", want: "/proj/d/f", req: Request{Existing: true}},
			{name: "absolute link outside", path: "out/passwd", err: ErrOutside},
			{name: "absolute link outside, to exist", path: "out/passwd", req: Request{Existing: true}, err: ErrOutside},
			{name: "relative link", path: "l/f", want: "/proj/d/f"},
			{name: "relative link above the root, and back", path: "up/proj/d/f", want: "/proj/d/f", req: Request{Existing: true}},
			{name: "relative link above the root", path: "up/out/f", err: ErrOutside},
			{name: "the shown directory by its own name", path: "seen/f", err: ErrOutside},
			{name: "another root", path: "rw/f", want: "/rw/f", req: Request{Mode: Write, Existing: true}},
			{name: "absolute", path: base + "/proj/d/f", want: "/proj/d/f"},
			{name: "the root", path: ".", want: "/proj", req: Request{Existing: true}},
			{name: "the root, with a slash", path: base + "/proj/", want: "/proj", req: Request{Existing: true}},
			{name: "a link itself", path: "in", want: "/proj/in", req: Request{Mode: Write, Itself: true, Existing: true}},
			{name: "a file, with a slash", path: "f/", err: unix.ENOTDIR},
			{name: "a directory, with a slash", path: "d/", want: "/proj/d"},
			{name: "a link to a file, with a slash", path: "slash", req: Request{Existing: true}, err: unix.ENOTDIR},
			{name: "a link to a directory, with a slash", path: "dirslash", want: "/proj/d", req: Request{Existing: true}},
			{name: "a link with dots", path: "dots", want: "/proj/f", req: Request{Existing: true}},
			{name: "a link with dots behind a file", path: "filedots", req: Request{Existing: true}, err: unix.ENOTDIR},
			{name: "a link to nothing", path: "gone", req: Request{Existing: true}, err: unix.ENOENT},
			{name: "dots, by the kernel", path: "in/../f", want: "/proj/f", req: Request{Physical: true, Existing: true}},
			{name: "a link to /proc", path: "proc/status", err: ErrProcLink},
		} {
			for _, resolve := range []func(string) (string, error){
				func(path string) (string, error) { return w.Lookup(path, row.req) },
				w.Batch(row.req).Resolve,
				func(path string) (string, error) { e := w.Explain(path, row.req); return e.Where, e.Err },
			} {
				where, err := resolve(row.path)
				assert.ErrorIs(t, err, row.err, row.name)
				if row.err == nil {
					assert.Equal(t, base+row.want, where, row.name)
				} else {
					assert.NotContains(t, err.Error(), "/seen", row.name)
				}
			}
		}
		steps := w.Explain("in", Request{}).Readings[0].Steps
		last := steps[len(steps)-1]
		assert.Equal(t, base+"/proj/d", last.Place)
		assert.Equal(t, "d", string(last.Kind))
		assert.Equal(t, base+"/proj", w.Shown(base+"/proj/d"))
		assert.Equal(t, base+"/proj", w.Shown(base+"/proj"))
		assert.Empty(t, w.Shown(base+"/projx"))
		assert.Empty(t, w.Shown(base+"/rw/f"))
	})
}

// Rules look at the files of the shown directory too.
func TestRulesOnShown(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, append(hostile, "seen/f", "seen/secret", "seen/l => secret", "seen/repo/HEAD", "seen/repo/objects/", "seen/repo/refs/", "seen/.git/config", "seen/d/")...)
		require.NoError(t, os.Link(base+"/seen/secret", base+"/seen/hard"))
		w := viewed(t, base, openat2, Config{Rules: rules(t, "deny secret")})
		for _, row := range []struct {
			path string
			mode Mode
			want string
		}{
			{"f", Write, ""}, {"secret", Read, "denied"}, {"l", Read, "denied"}, {"hard", Write, "hard-links"}, {"hard", Read, ""},
			{".git/config", Write, "git-directory"}, {"repo/objects/x", Write, "git-directory"}, {"repo/HEAD", Write, "git-directory"}, {"d/x", Write, ""},
		} {
			_, err := w.Resolve(row.path, row.mode)
			if row.want == "" {
				assert.NoError(t, err, row.path)
				continue
			}
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal, row.path)
			assert.Equal(t, row.want, refusal.Reason(), row.path)
		}
	})
}

// Files are opened in the shown directory, and made there.
func TestOpenFileInShown(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, append(hostile, "seen/d/", "seen/abs => {base}/proj/d/f", "seen/out => ../out/f", "proj/one", "proj/dir/f", "seen/dir/")...)
		for _, name := range []string{"f", "d/f", "one", "dir/f"} {
			require.NoError(t, os.WriteFile(base+"/seen/"+name, []byte("shown"), 0o644))
		}
		cfg := Config{Readable: []string{base + "/proj/one", base + "/proj/dir"}} // roots in the shown one
		w := viewed(t, base, openat2, cfg)
		for _, path := range []string{"f", "d/f", "abs", base + "/proj/one", base + "/proj/dir/f"} {
			file, err := w.OpenFile(path, os.O_RDONLY, 0)
			require.NoError(t, err, path)
			text, err := io.ReadAll(file)
			require.NoError(t, err)
			assert.Equal(t, "shown", string(text), path)
			assert.True(t, strings.HasPrefix(file.Name(), base+"/proj/"), file.Name())
			file.Close()
		}
		file, err := w.OpenFile("new", os.O_WRONLY|os.O_CREATE, 0o600)
		require.NoError(t, err)
		file.Close()
		assert.FileExists(t, base+"/seen/new")
		assert.NoFileExists(t, base+"/out/made")
		_, err = w.OpenFile("out", os.O_RDONLY, 0)
		assert.ErrorIs(t, err, ErrOutside)
		for _, row := range []struct{ root, dir, name string }{
			{"/proj", "/seen", "/proj"}, {"/proj/dir", "/seen/dir", "/proj/dir"}, {"/proj/one", "/seen", "/proj"}, {"/rw", "/rw", "/rw"},
		} {
			dir, err := w.OpenRoot(Root{Path: base + row.root})
			require.NoError(t, err, row.root)
			assert.Equal(t, base+row.name, dir.Name())
			now, err := os.Readlink(fsat.Path(int(dir.Fd())))
			require.NoError(t, err)
			assert.Equal(t, base+row.dir, now)
			dir.Close()
		}
	})
}

// The innermost shown directory decides, and names above it are looked at first.
func TestShownInShown(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, append(hostile, "proj/a/b/", "seen/a/b/outer", "seen/back => {base}/proj/a/b/inner", "inner/inner", "inner/up => ../x")...)
		w := viewed(t, base, openat2, Config{
			Writable: []string{base + "/proj/a/b"},
			Shown:    map[string]*os.File{base + "/proj/a/b": openDir(t, base+"/inner")},
		})
		existing := Request{Existing: true}
		for path, want := range map[string]string{"a/b/inner": "/proj/a/b/inner", "back": "/proj/a/b/inner", "a/b": "/proj/a/b", "a/b/..": "/proj/a"} {
			where, err := w.Lookup(path, existing)
			require.NoError(t, err, path)
			assert.Equal(t, base+want, where)
		}
		_, err := w.Lookup("a/b/outer", existing)
		assert.ErrorIs(t, err, unix.ENOENT)
		where, err := w.Resolve("a/b/up", Write)
		require.NoError(t, err)
		assert.Equal(t, base+"/proj/a/x", where)
		assert.Equal(t, base+"/proj/a/b", w.Shown(base+"/proj/a/b/inner"))
		assert.False(t, w.PermitsAll(w.Roots()[0]), "a part of it is elsewhere")
		assert.True(t, w.PermitsAll(*w.RootOf(base+"/proj/a/b", Write)))

		require.NoError(t, os.Rename(base+"/seen/a", base+"/seen/moved"))
		require.NoError(t, os.Symlink("../../out", base+"/seen/a"))
		_, err = w.Resolve("a/b/inner", Read)
		assert.ErrorIs(t, err, ErrOutside)
	})
}

// A root whose name the host gives to another directory is not that root, even if
// Shown replaces it.
func TestReplacedRootThatIsShown(t *testing.T) {
	for _, replace := range []func(base string) error{
		func(base string) error { return os.Mkdir(base+"/proj", 0o755) },
		func(base string) error { return os.Symlink("old", base+"/proj") },
		func(string) error { return nil },
	} {
		everyWay(t, func(t *testing.T, openat2 bool) {
			base := confinetest.Tree(t, append(hostile, "seen/g")...)
			w := viewed(t, base, openat2, Config{})
			_, err := w.Resolve("g", Read)
			require.NoError(t, err)
			require.NoError(t, os.Rename(base+"/proj", base+"/old"))
			require.NoError(t, replace(base))
			_, err = w.Resolve("g", Read)
			assert.ErrorIs(t, err, ErrReplaced)
		})
	}
	everyWay(t, func(t *testing.T, openat2 bool) { // a link above it
		top := confinetest.Tree(t, "base/proj/", "base/seen/g", "base/ro/", "base/rw/")
		w := viewed(t, top+"/base", openat2, Config{})
		require.NoError(t, os.Rename(top+"/base", top+"/moved"))
		require.NoError(t, os.Symlink("moved", top+"/base"))
		_, err := w.Resolve("g", Read)
		assert.ErrorIs(t, err, ErrOutside)
	})
}

func TestShownThatCannotBeUsed(t *testing.T) {
	base := confinetest.Tree(t, "proj/", "file", "link => proj", "seen/f")
	before := descriptors(t)
	closed, err := os.Open(base + "/seen")
	require.NoError(t, err)
	closed.Close()
	seen, err := os.Open(base + "/seen")
	require.NoError(t, err)
	defer seen.Close()
	file, err := os.Open(base + "/seen/f")
	require.NoError(t, err)
	defer file.Close()
	for _, row := range []struct {
		name, place string
		dir         *os.File
		want        error
	}{
		{"good", base + "/proj", seen, nil},
		{"no root", base + "/other", seen, ErrNoRoot},
		{"below a root", base + "/proj/d", seen, ErrNoRoot},
		{"root by a link", base + "/link", seen, ErrNoRoot},
		{"root that is a file", base + "/file", seen, unix.ENOTDIR},
		{"a file to show", base + "/proj", file, unix.ENOTDIR},
		{"nothing to show", base + "/proj", nil, unix.EBADF},
		{"a closed directory to show", base + "/proj", closed, unix.EBADF},
	} {
		w, err := Open(Config{ProjectRoot: base + "/link", Readable: []string{base + "/file"}, Shown: map[string]*os.File{row.place: row.dir}})
		assert.ErrorIs(t, err, row.want, row.name)
		if err == nil {
			w.Close()
		}
	}
	assert.Equal(t, before+2, descriptors(t))
	_, err = Open(Config{ProjectRoot: base + "/seen", Home: base + "/seen", Shown: map[string]*os.File{base + "/seen": seen}})
	assert.ErrorIs(t, err, ErrDenied, "the host's path is checked")
}

// TestRandomShownTrees: trees answer alike, on the host and shown elsewhere.
func TestRandomShownTrees(t *testing.T) {
	var allowed, refused int
	for i := range 26 {
		if !confinetest.Mine(i) {
			continue
		}
		random := rand.New(rand.NewPCG(7, uint64(i)))
		base := confinetest.Tree(t, "proj/", "ro/", "rw/", "out/")
		grow(t, random, base)
		a, r := compareShown(t, random, base)
		allowed, refused = allowed+a, refused+r
		os.RemoveAll(base)
	}
	t.Logf("%d answers, %d refusals", allowed, refused)
	assert.NotZero(t, allowed)
	assert.NotZero(t, refused)
}

func compareShown(t *testing.T, random *rand.Rand, base string) (allowed, refused int) {
	type answer struct {
		where string
		err   error
	}
	paths := make([]string, 50)
	for i := range paths {
		paths[i] = randomPath(random, base)
	}
	var requests []Request
	for i := range 16 {
		requests = append(requests, Request{Mode(i & 1), i&2 != 0, i&4 != 0, i&8 != 0})
	}
	cfg := Config{ProjectRoot: base + "/proj", Readable: []string{base + "/ro"}, Writable: []string{base + "/rw"}, Rules: rules(t, "deny **/a/a")}
	ask := func(cfg Config, openat2 bool) (answers []answer) {
		w, err := open(cfg, fsat.Opener{Openat2: openat2})
		require.NoError(t, err)
		defer w.Close()
		for _, req := range requests {
			batch := w.Batch(req)
			defer batch.Forget()
			for _, path := range paths {
				where, err := w.Lookup(path, req)
				again, againErr := batch.Resolve(path)
				require.Equal(t, answer{where, err}, answer{again, againErr}, "%q", path)
				answers = append(answers, answer{where, err})
			}
		}
		return answers
	}
	want := ask(cfg, true)
	showElsewhere(t, &cfg, true, "")
	require.Len(t, cfg.Shown, 2)
	for _, openat2 := range resolvers {
		got := ask(cfg, openat2)
		for i := range want {
			require.Equal(t, want[i], got[i], "%q, %+v", paths[i%len(paths)], requests[i/len(paths)])
		}
	}
	for _, a := range want {
		if a.err == nil {
			allowed++
		}
	}
	for _, dir := range cfg.Shown {
		dir.Close()
	}
	return allowed, len(want) - allowed
}
