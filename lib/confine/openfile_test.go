package confine

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

func TestOpenFile(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/d/f", "proj/in => {base}/proj/d", "proj/out => ../out", "proj/ro => ../ro", "proj/new => d/made",
			"ro/f", "rw/", "out/f", "one")
		require.NoError(t, unix.Mkfifo(base+"/proj/fifo", 0o600))
		socket, err := net.Listen("unix", base+"/proj/sock")
		require.NoError(t, err)
		defer socket.Close()
		w, err := open(Config{ProjectRoot: base + "/proj", Readable: []string{base + "/ro", base + "/one"}, Writable: []string{base + "/rw"}}, fsat.Opener{Openat2: openat2})
		require.NoError(t, err)
		defer w.Close()
		for _, row := range []struct {
			name, path string
			flag       int
			want       error
		}{
			{"file", "d/f", os.O_RDONLY, nil},
			{"absolute link inside", "in/f", os.O_RDWR, nil},
			{"link outside", "out/f", os.O_RDONLY, ErrOutside},
			{"readable, reading", "ro/f", os.O_RDONLY, nil},
			{"readable, writing", "ro/f", os.O_WRONLY, ErrOutside},
			{"readable, truncating", "ro/f", os.O_TRUNC, ErrOutside},
			{"readable, creating", "ro/f", os.O_CREATE, ErrOutside},
			{"readable, appending", "ro/f", os.O_APPEND, ErrOutside},
			{"readable file", "../one", os.O_RDONLY, nil},
			{"directory", "d", os.O_RDONLY, nil},
			{"the root itself", ".", os.O_RDONLY, nil},
			{"missing", "none", os.O_RDONLY, unix.ENOENT},
			{"below a file", "d/f/x", os.O_RDONLY, unix.ENOTDIR},
			{"dangling link", "new", os.O_WRONLY | os.O_CREATE, nil},
			{"created, exclusively", "d/made", os.O_WRONLY | os.O_CREATE | os.O_EXCL, unix.EEXIST},
			{"FIFO, reading", "fifo", os.O_RDONLY, ErrSpecial},
			{"FIFO, writing", "fifo", os.O_WRONLY, unix.ENXIO},
			{"FIFO, both", "fifo", os.O_RDWR, ErrSpecial},
			{"socket", "sock", os.O_RDONLY, unix.ENXIO},
		} {
			file, err := w.OpenFile(row.path, row.flag, 0o644)
			assert.ErrorIs(t, err, row.want, row.name)
			if err == nil {
				assert.NoError(t, file.Close())
			}
		}
		assert.FileExists(t, base+"/proj/d/made")
		text, err := os.ReadFile(base + "/ro/f")
		require.NoError(t, err)
		assert.Equal(t, "text\n", string(text), "nothing was truncated")
	})
}

func TestOpenFileHoldsToRules(t *testing.T) {
	base := confinetest.Tree(t, "proj/secret/key", "proj/pub/f")
	require.NoError(t, os.Link(base+"/proj/secret/key", base+"/proj/pub/hard"))
	w, err := Open(Config{ProjectRoot: base + "/proj", Rules: rules(t, "deny-read secret", "allow-write pub/**", "allow-write secret/**")})
	require.NoError(t, err)
	defer w.Close()
	for _, row := range []struct {
		path string
		flag int
		ok   bool
	}{
		{"pub/f", os.O_RDWR, true},
		{"pub/hard", os.O_WRONLY | os.O_TRUNC, false},
		{"secret/new", os.O_WRONLY | os.O_CREATE, true},
		{"secret/new", os.O_RDWR, false},
		{"secret/new", os.O_RDONLY, false},
		{"x", os.O_CREATE, false},
	} {
		file, err := w.OpenFile(row.path, row.flag, 0o600)
		assert.Equal(t, row.ok, err == nil, "%s: %v", row.path, err)
		if err == nil {
			assert.NoError(t, file.Close())
		}
	}
	text, err := os.ReadFile(base + "/proj/secret/key")
	require.NoError(t, err)
	assert.Equal(t, "text\n", string(text))
}

// While an attacker swaps a directory for a link to outside and back, OpenFile opens
// the right file or nothing. Resolving and then opening by name is tried as well: if
// that is never fooled, the attack proves nothing.
func TestSwappingAttackerOfWhatIsOpened(t *testing.T) {
	everyTree(t, func(t *testing.T, open func(base string) (*Workspace, string)) {
		base := confinetest.Tree(t, "proj/d/f", "proj/evil => ../out", "out/f", "ro/", "rw/")
		require.NoError(t, os.WriteFile(base+"/out/f", []byte("SECRET"), 0o644))
		w, tree := open(base)
		stop := attack(t, tree+"/d", tree+"/evil")
		var opened, refused, fooled int
		for begun := time.Now(); goOn(begun, confinetest.Share(500*time.Millisecond), opened > 0 && fooled > 0); {
			file, err := w.OpenFile("d/f", os.O_RDWR, 0)
			if err != nil {
				refused++
			} else {
				opened++
				text, err := io.ReadAll(file)
				require.NoError(t, err)
				require.Equal(t, "text\n", string(text))
				_, err = file.WriteAt([]byte("text\n"), 0)
				require.NoError(t, err)
				file.Close()
			}
			if made, err := w.OpenFile("d/new", os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
				made.Close()
			}
			if where, err := w.Resolve("d/f", Read); err == nil {
				if text, err := os.ReadFile(tree + strings.TrimPrefix(where, base+"/proj")); err == nil && strings.HasPrefix(string(text), "SECRET") {
					fooled++
				}
			}
		}
		stop()
		t.Logf("%d opened, %d refused; by name, %d read what is outside", opened, refused, fooled)
		assert.NotZero(t, opened)
		assert.NotZero(t, fooled, "the attack is no attack")
		assert.NoFileExists(t, base+"/out/new")
		text, err := os.ReadFile(base + "/out/f")
		require.NoError(t, err)
		assert.Equal(t, "SECRET", string(text))
	})
}
