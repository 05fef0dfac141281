package confine

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
)

func TestRootsThatCannotBeUsed(t *testing.T) {
	base := confinetest.Tree(t, "d/", "f", "gone => missing", "loop => loop", "home/sub/")
	good := Config{ProjectRoot: base + "/d"}
	with := func(change func(*Config)) Config {
		cfg := good
		cfg.Home = base + "/home"
		change(&cfg)
		return cfg
	}
	for _, row := range []struct {
		name string
		cfg  Config
		want error
	}{
		{"good", with(func(*Config) {}), nil},
		{"readable file", with(func(c *Config) { c.Readable = []string{base + "/f"} }), nil},
		{"readable home", with(func(c *Config) { c.Readable = []string{base + "/home"} }), nil},
		{"readable system directory", with(func(c *Config) { c.Readable = []string{"/usr", "/"} }), nil},
		{"below home", with(func(c *Config) { c.ProjectRoot = base + "/home/sub" }), nil},
		{"project root without a name", with(func(c *Config) { c.ProjectRoot = "" }), ErrNoName},
		{"readable root without a name", with(func(c *Config) { c.Readable = []string{""} }), ErrNoName},
		{"missing project root", with(func(c *Config) { c.ProjectRoot = base + "/missing" }), unix.ENOENT},
		{"missing readable root", with(func(c *Config) { c.Readable = []string{base + "/missing"} }), unix.ENOENT},
		{"project root is a file", with(func(c *Config) { c.ProjectRoot = base + "/f" }), unix.ENOTDIR},
		{"writable root is a file", with(func(c *Config) { c.Writable = []string{base + "/f"} }), unix.ENOTDIR},
		{"scratch directory is a file", with(func(c *Config) { c.Temp = base + "/f" }), unix.ENOTDIR},
		{"dangling link", with(func(c *Config) { c.ProjectRoot = base + "/gone" }), unix.ENOENT},
		{"loop", with(func(c *Config) { c.Readable = []string{base + "/loop"} }), unix.ELOOP},
		{"through a file", with(func(c *Config) { c.Readable = []string{base + "/f/x"} }), unix.ENOTDIR},
		{"NUL", with(func(c *Config) { c.Readable = []string{base + "/d\x00"} }), ErrNUL},
		{"home as project root", with(func(c *Config) { c.ProjectRoot = base + "/home" }), ErrDenied},
		{"home as writable root", with(func(c *Config) { c.Writable = []string{base + "/home/."} }), ErrDenied},
		{"everything writable", with(func(c *Config) { c.Writable = []string{"/"} }), ErrDenied},
		{"/tmp as scratch directory", with(func(c *Config) { c.Temp = "/tmp" }), ErrDenied},
		{"a link that is not what it says", with(func(c *Config) { c.Readable = []string{"/proc/self/root/etc"} }), ErrProcLink},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, err := Open(row.cfg)
			if row.want == nil {
				require.NoError(t, err)
				w.Close()
				return
			}
			require.ErrorIs(t, err, row.want)
			_, typed := errors.AsType[*RootError](err)
			assert.True(t, typed)
		})
	}
}

// A shell stays in a directory that was removed.
func TestCurrentDirectoryThatIsGone(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Remove(dir))
	_, err := Open(Config{ProjectRoot: ".", Home: "/nonesuch"})
	require.ErrorIs(t, err, ErrNoCWD)
	failed, _ := errors.AsType[*RootError](err)
	assert.Equal(t, "cd to a directory that is there, or name the project with -C", failed.Hint())
	require.NoError(t, os.Mkdir(dir, 0o755)) // for the clean-up
}

func TestDeniedRoots(t *testing.T) {
	base := confinetest.Tree(t, "real/", "link => real")
	for _, row := range []struct {
		path, home string
		want       bool
	}{
		{"/", "", true}, {"/etc", "", true}, {"/usr", "", true}, {"/tmp", "", true},
		{"/run", "", true}, {"/home", "", true}, {"/home/ann", "", true}, {"/root", "", true},
		{"/home/ann/project", "", false}, {"/srv/www", "", false},
		{"/usr/share", "", true}, {"/usr/local", "", true}, {"/usr/src/app", "", false}, {"/usr/local/app", "", false},
		{"/var/tmp", "", true}, {"/var/tmp/x", "", false}, {"/var/www/html", "", false}, {"/var/lib/ann", "/var/lib/ann", true},
		{"/etc/nginx", "", true}, {"/dev/shm", "", true}, {"/dev/shm/x", "", false}, {"/opt/app", "", false}, {"/work", "", false},
		{"/export/home/ann", "/export/home/ann/", true},
		{"/export/home/ann/x", "/export/home/ann", false},
		{base + "/real", base + "/link", true},
		{base + "/real", "", false},
		{base + "/real", "real", false}, // a relative $HOME says nothing
	} {
		assert.Equal(t, row.want, DeniedRoot(row.path, row.home), "%q with home %q", row.path, row.home)
	}
	bin, err := view{}.walk("/bin")
	require.NoError(t, err)
	assert.True(t, DeniedRoot(bin, ""), "where /bin is: %q", bin)
}

func TestRootsInOrder(t *testing.T) {
	base := confinetest.Tree(t, "proj/", "r/", "w/", "both/", "play/", "f", "link => r")
	w, err := Open(Config{
		ProjectRoot: base + "/proj",
		Readable:    []string{base + "/f", base + "/link", base + "/both", base + "/r"},
		Writable:    []string{base + "/w", base + "/both", base + "/proj"},
		Temp:        base + "/play",
	})
	require.NoError(t, err)
	defer w.Close()
	var got []string
	for _, r := range w.Roots() {
		got = append(got, r.Path[len(base):]+" writable="+strconv.FormatBool(r.Writable)+" dir="+strconv.FormatBool(r.Dir))
	}
	assert.Equal(t, []string{
		"/proj writable=true dir=true",
		"/f writable=false dir=false",
		"/r writable=false dir=true",
		"/both writable=true dir=true",
		"/w writable=true dir=true",
		"/play writable=true dir=true",
	}, got)
	assert.Equal(t, base+"/proj", w.ProjectRoot())
	assert.Equal(t, base+"/play", w.Temp())
	assert.False(t, w.AliasTmp())
}

func TestReadableFile(t *testing.T) {
	base := confinetest.Tree(t, "proj/l => ../f", "f", "f.bak")
	w, err := Open(Config{ProjectRoot: base + "/proj", Readable: []string{base + "/f"}})
	require.NoError(t, err)
	defer w.Close()
	where, err := w.Resolve("l", Read)
	require.NoError(t, err)
	assert.Equal(t, base+"/f", where)
	for _, path := range []string{"../f.bak", "../f/x", "..", "../f/../f.bak"} {
		_, err := w.Resolve(path, Read)
		assert.Error(t, err, path)
	}
	_, err = w.Resolve("l", Write)
	assert.Error(t, err)
}

// A replacement of a root is not the root, even if it looks the same.
func TestReplacedRoot(t *testing.T) {
	replace := map[string]func(base string) error{
		"by a new directory": func(base string) error { return os.Mkdir(base+"/proj", 0o755) },
		"by a link to it":    func(base string) error { return os.Symlink("old", base+"/proj") },
		"by a link away":     func(base string) error { return os.Symlink("out", base+"/proj") },
		"by nothing":         func(string) error { return nil },
	}
	for name, replace := range replace {
		t.Run(name, func(t *testing.T) {
			base := confinetest.Tree(t, "proj/", "out/", "ro/", "rw/")
			w := workspace(t, base, true)
			_, err := w.Resolve("f", Read)
			require.NoError(t, err)
			require.NoError(t, os.Rename(base+"/proj", base+"/old"))
			require.NoError(t, replace(base))
			_, err = w.Resolve("f", Read)
			assert.Error(t, err)
		})
	}
}

func TestCloseDeniesAndReleases(t *testing.T) {
	before := descriptors(t)
	base := confinetest.Tree(t, "proj/", "ro/", "rw/")
	w := workspace(t, base, true)
	assert.Equal(t, before+3, descriptors(t))
	w.Close()
	assert.Equal(t, before, descriptors(t))
	_, err := w.Resolve("x", Read)
	assert.Error(t, err)
	_, err = Open(Config{ProjectRoot: base + "/proj", Readable: []string{base + "/ro", base + "/missing"}})
	assert.Error(t, err)
	assert.Equal(t, before, descriptors(t))
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// An unreadable directory may hold a link to anywhere.
func TestDirectoryThatCannotBeSearched(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can search every directory; the test of cmd/pk-resolve runs this as another user")
	}
	base := confinetest.Tree(t, "proj/locked/a", "proj/l => locked/a", "ro/", "rw/")
	require.NoError(t, os.Chmod(base+"/proj/locked", 0))
	defer os.Chmod(base+"/proj/locked", 0o755)
	everyWay(t, func(t *testing.T, openat2 bool) {
		w := workspace(t, base, openat2)
		for _, path := range []string{"locked/a", "locked/missing/x", "l", "locked/../locked/a"} {
			_, err := w.Resolve(path, Read)
			assert.ErrorIs(t, err, unix.EACCES, path)
		}
		_, err := w.Resolve("locked", Read)
		assert.NoError(t, err)
	})
}
