package confine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

// workspace opens base/proj with base/ro readable and base/rw writable.
func workspace(t testing.TB, base string, openat2 bool) *Workspace {
	t.Helper()
	cfg := Config{
		ProjectRoot: base + "/proj",
		Readable:    []string{base + "/ro"},
		Writable:    []string{base + "/rw"},
	}
	w, err := open(cfg, fsat.Opener{Openat2: openat2})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// everyWay runs test with both resolvers.
func everyWay(t *testing.T, test func(t *testing.T, openat2 bool)) {
	for name, openat2 := range resolvers {
		t.Run(name, func(t *testing.T) { test(t, openat2) })
	}
}

// attacks are trees and paths that have got past one resolver or another, or
// were thought up to get past this one. want is the answer below the base, ""
// for a refusal.
var attacks = []struct {
	name  string
	tree  []string
	input string
	mode  Mode
	want  string
}{
	{"dangling link, trailing slash", []string{"proj/l => ../out/new"}, "l/", Write, ""},
	{"dangling link behind a missing name", []string{"proj/l => ../out/new"}, "missing/../l", Write, ""},
	{"missing name, then a link out", []string{"proj/l => ../out"}, "missing/../l/f", Read, ""},
	{"target through a missing name, then a link out", []string{"proj/l => missing/../k", "proj/k => ../out"}, "l/f", Read, ""},
	{"target through a file, then a link out", []string{"proj/f", "proj/l => f/../k", "proj/k => ../out"}, "l/f", Read, ""},
	{"target through a child of a file, then a link out", []string{"proj/f", "proj/l => f/x/../../k", "proj/k => ../out"}, "l/f", Read, ""},
	{"target missing inside, climbing out", []string{"proj/l => a/b/../../../out/new"}, "l", Write, ""},
	{"target missing outside, climbing in", []string{"proj/l => ../gone/../proj/x"}, "l", Read, "proj/x"},
	{"link to itself by the way of missing names", []string{"proj/l => a/../l"}, "l/x", Write, ""},
	{"two links that double each other", []string{"proj/a => b/b", "proj/b => a/a"}, "a", Read, ""},
	{"link to the parent of the project", []string{"proj/up => .."}, "up/out/f", Read, ""},
	{"link to the parent, lexically back inside", []string{"proj/d/", "proj/up => ../out/d"}, "up/../x", Read, ""},
	{"link to a sibling whose name begins the same", []string{"proj-evil/f", "proj/l => ../proj-evil"}, "l/f", Read, ""},
	{"link into a readable root, for writing", []string{"proj/l => ../ro/new"}, "l", Write, ""},
	{"link into a readable root, for reading", []string{"proj/l => ../ro/new"}, "l", Read, "ro/new"},
	{"link from a readable into a writable root", []string{"ro/l => ../rw/new"}, "../ro/l", Write, "rw/new"},
	{"kernel's reading is only readable", []string{"ro/d/", "ro/x", "proj/l => ../ro/d"}, "l/../x", Write, ""},
	{"kernel's reading is readable too", []string{"ro/d/", "proj/l => ../ro/d"}, "l/../x", Read, "proj/x"},
	{"lexical reading is outside", []string{"rw/d/", "proj/d/", "l => proj/d"}, "../l/../x", Read, ""},
	{"dots that are names", []string{"proj/.../"}, ".../....", Read, "proj/.../...."},
	{"blank names", nil, " / ", Write, "proj/ / "},
	{"backslash and percent", nil, `..\..\%2e%2e`, Read, `proj/..\..\%2e%2e`},
	{"link with a newline in its target", []string{"proj/l => a\nb"}, "l", Read, "proj/a\nb"},
	{"link to /proc/self", []string{"proj/l => /proc/self"}, "l/status", Read, ""},
	{"link to /proc/self/root", []string{"proj/l => /proc/self/root"}, "l{base}/proj/x", Read, ""},
	{"link to /proc/self/ns/net", []string{"proj/l => /proc/self/ns/net"}, "l", Read, ""},
	{"link to /proc/thread-self/cwd", []string{"proj/l => /proc/thread-self/cwd"}, "l", Read, ""},
	{"link through /proc and out again", []string{"proj/l => /proc/self/../..{base}/proj/x"}, "l", Read, ""},
	{"link to /dev/fd", []string{"proj/l => /dev/fd/9"}, "l", Write, ""},
	{"link with double slashes", []string{"proj/l => //{base}//out//f"}, "l", Read, ""},
	{"link to the directory itself, often", []string{"proj/l => ."}, strings.Repeat("l/", 40) + "x", Read, "proj/x"},
	{"link to the directory itself, too often", []string{"proj/l => ."}, strings.Repeat("l/", 41) + "x", Read, ""},
	{"root through a link, for writing", []string{"l => ro"}, "{base}/l/x", Write, ""},
	{"root through a link, for reading", []string{"l => ro"}, "{base}/l/x", Read, "ro/x"},
}

func TestAttacks(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		for _, row := range attacks {
			t.Run(row.name, func(t *testing.T) {
				base := confinetest.Tree(t, append([]string{"proj/", "ro/", "rw/", "out/d/", "out/f"}, row.tree...)...)
				w := workspace(t, base, openat2)
				input := strings.ReplaceAll(row.input, "{base}", base)
				where, err := w.Resolve(input, row.mode)
				again, againErr := w.Batch(Request{Mode: row.mode}).Resolve(input)
				assert.Equal(t, where, again)
				assert.Equal(t, err, againErr)
				if row.want == "" {
					assert.Error(t, err)
					assert.Empty(t, where)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, base+"/"+row.want, where)
			})
		}
	})
}

func TestPhysicalReading(t *testing.T) {
	base := confinetest.Tree(t, "proj/b/c/", "proj/a => b/c", "proj/out => ../other/d", "proj/f", "other/d/", "ro/", "rw/")
	w := workspace(t, base, true)
	for _, row := range []struct{ name, input, want string }{
		{"no link", "b/../f", "/proj/f"},
		{"link inside", "a/../x", "/proj/b/x"},
		{"link outside", "out/../x", ""},
		{"missing name", "missing/../a/x", "/proj/b/c/x"},
	} {
		where, err := w.Lookup(row.input, Request{Physical: true})
		assert.Equal(t, row.want == "", err != nil, row.name)
		assert.Equal(t, row.want, strings.TrimPrefix(where, base), row.name)
	}
	where, err := w.Lookup("a/../x", Request{})
	require.NoError(t, err)
	assert.Equal(t, base+"/proj/x", where)
}

// With Existing, Lookup and stat(2) agree.
func TestExistingIsRequired(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/d/", "proj/f", "proj/l => f", "proj/gone => missing", "proj/a/fake => missing", "proj/dots => missing/../f",
			"proj/filedots => f/../f", "proj/slash => f/", "proj/dirslash => d/", "ro/", "rw/")
		w := workspace(t, base, openat2)
		for _, row := range []struct {
			input string
			want  error
		}{
			{"f", nil}, {"l", nil}, {"d/", nil}, {"d/.", nil}, {".", nil}, {"d/../f", nil}, {"dirslash", nil},
			{"missing", unix.ENOENT}, {"gone", unix.ENOENT}, {"f/x", unix.ENOTDIR},
			{"f/", unix.ENOTDIR}, {"l/", unix.ENOTDIR}, {"f/.", unix.ENOTDIR},
			{"f/..", unix.ENOTDIR}, {"missing/../f", unix.ENOENT}, {"a/fake/../../f", unix.ENOENT}, {"d/../f/", unix.ENOTDIR},
			{"dots", unix.ENOENT}, {"filedots", unix.ENOTDIR}, {"slash", unix.ENOTDIR},
		} {
			for _, physical := range []bool{false, true} {
				req := Request{Existing: true, Physical: physical}
				_, err := w.Lookup(row.input, req)
				assert.ErrorIs(t, err, row.want, "%s, %v", row.input, physical)
				_, err = w.Batch(req).Resolve(row.input)
				assert.ErrorIs(t, err, row.want, "%s, %v", row.input, physical)
				assert.ErrorIs(t, unix.Stat(base+"/proj/"+row.input, new(unix.Stat_t)), row.want, row.input)
			}
		}
	})
}

func TestSlashAtTheEnd(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/d/", "proj/f", "proj/l => f", "proj/ld => d", "proj/gone => missing", "ro/", "rw/")
		w := workspace(t, base, openat2)
		for _, row := range []struct {
			input, want string
		}{
			{"d/", "/proj/d"}, {"ld//", "/proj/d"}, {"new/", "/proj/new"}, {"gone/", "/proj/missing"}, {"f/x/", "/proj/f/x"},
			{"f/", ""}, {"l/", ""}, {"f/.", ""}, {"d/../f/", ""}, {"f/./", ""},
		} {
			for _, mode := range []Mode{Read, Write} {
				where, err := w.Resolve(row.input, mode)
				if row.want == "" {
					assert.ErrorIs(t, err, unix.ENOTDIR, row.input)
					continue
				}
				require.NoError(t, err, row.input)
				assert.Equal(t, base+row.want, where)
			}
		}
	})
}

func TestEveryByteInAName(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/", "ro/", "rw/")
		w := workspace(t, base, openat2)
		for b := 1; b < 256; b++ {
			if b == '/' {
				continue
			}
			name := "x" + string([]byte{byte(b)}) + "y"
			where, err := w.Resolve(name, Write)
			require.NoError(t, err)
			assert.Equal(t, base+"/proj/"+name, where)
		}
	})
}

func TestLengths(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/", "ro/", "rw/")
		w := workspace(t, base, openat2)
		room := unix.PathMax - 1 - len(base+"/proj/")
		longest := strings.Repeat("d/", room/2-1) + strings.Repeat("e", room%2+2)
		where, err := w.Resolve(longest, Write)
		require.NoError(t, err)
		assert.Len(t, where, 4095)

		_, err = w.Resolve(longest+"e", Write)
		assert.ErrorIs(t, err, unix.ENAMETOOLONG)
		_, err = w.Resolve("missing/"+strings.Repeat("n", 255), Write)
		assert.NoError(t, err)
		_, err = w.Resolve("missing/"+strings.Repeat("n", 256), Write)
		assert.ErrorIs(t, err, unix.ENAMETOOLONG)
	})
}

// Opening a FIFO without a writer blocks.
func TestNothingIsOpened(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/l => fifo", "ro/", "rw/")
		require.NoError(t, unix.Mkfifo(base+"/proj/fifo", 0o600))
		w := workspace(t, base, openat2)
		done := make(chan error)
		go func() {
			_, err := w.Lookup("l", Request{Existing: true})
			done <- err
		}()
		select {
		case err := <-done:
			assert.NoError(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("it waits for a writer")
		}
	})
}

func TestAliasOfTmp(t *testing.T) {
	base := confinetest.Tree(t, "proj/", "play/d/", "play/out => /tmp/pk-none", "other/")
	w, err := Open(Config{ProjectRoot: base + "/proj", Temp: base + "/play", AliasTmp: true})
	require.NoError(t, err)
	defer w.Close()
	assert.True(t, w.AliasTmp())
	for _, row := range []struct{ name, input, want string }{
		{"itself", "/tmp", "/play"},
		{"slash", "/tmp/", "/play"},
		{"file", "/tmp/f", "/play/f"},
		{"dots within", "/tmp/d/../f", "/play/f"},
		{"own name", "{base}/play/f", "/play/f"},
		{"parent", "/tmp/..", ""},
		{"back by its name", "/tmp/../play/f", ""},
		{"back by its name, from below", "/tmp/d/../../play/f", ""},
		{"hidden by dots and slashes", "/tmp/.//../play/f", ""},
		{"beginning the same", "/tmpfile", ""},
		{"a link in it means the host's /tmp", "/tmp/out", ""},
		{"sibling", "{base}/other", ""},
	} {
		where, err := w.Resolve(strings.ReplaceAll(row.input, "{base}", base), Write)
		assert.Equal(t, row.want == "", err != nil, row.name)
		assert.Equal(t, row.want, strings.TrimPrefix(where, base), row.name)
	}
}

func TestAllowAllStillRefusesWhatCannotBeTold(t *testing.T) {
	base := confinetest.Tree(t, "proj/loop => loop", "proj/l => /proc/self/root")
	w, err := Open(Config{ProjectRoot: base + "/proj", AllowAll: true})
	require.NoError(t, err)
	defer w.Close()
	for _, path := range []string{"loop", "l/etc", "", "a\x00"} {
		_, err := w.Resolve(path, Read)
		assert.Error(t, err, path)
	}
	where, err := w.Resolve("/etc/../etc/passwd", Write)
	require.NoError(t, err)
	assert.Equal(t, "/etc/passwd", where)
}

// A Batch remembers directories until Forget.
func TestBatchForgets(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/f", "out/f", "ro/", "rw/")
	b := workspace(t, base, true).Batch(Request{})
	where, err := b.Resolve("d/f")
	require.NoError(t, err)
	assert.Equal(t, base+"/proj/d/f", where)

	require.NoError(t, os.Rename(base+"/proj/d", base+"/proj/e"))
	require.NoError(t, os.Symlink("../out", base+"/proj/d"))
	b.Forget()
	_, err = b.Resolve("d/f")
	assert.ErrorIs(t, err, ErrOutside)
}

// A remembered directory does not excuse a link in it.
func TestBatchLooksAtEveryName(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/a", "proj/d/l => ../../out", "out/", "ro/", "rw/", "proj/k => d")
	b := workspace(t, base, true).Batch(Request{})
	for _, dir := range []string{"d/", "k/", "d/", "k/"} {
		where, err := b.Resolve(dir + "a")
		require.NoError(t, err)
		assert.Equal(t, base+"/proj/d/a", where)
		_, err = b.Resolve(dir + "l")
		assert.ErrorIs(t, err, ErrOutside)
	}
}

func TestBatchIsBounded(t *testing.T) {
	base := confinetest.Tree(t, "proj/", "ro/", "rw/")
	b := workspace(t, base, true).Batch(Request{})
	for i := range maxParents + 10 {
		_, err := b.Resolve(filepath.Join("d", strings.Repeat("x", i%200+1), string(rune('a'+i%26)), strings.Repeat("y", i/200+1), "f"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(b.parents), maxParents)
	}
}
