package passwd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var nobody = Entry{GID: -1}

func TestFind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	text := "root:x:0:0:root:/root:/bin/sh\nbroken\nshort:x:1000\nu:x:1000:100::/srv/u:/bin/sh\nv:x:1000:7::/srv/v:/bin/sh\nw:x:8:none::/srv/w:/bin/sh\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	u := Entry{"u", "/srv/u", 100}
	for _, row := range []struct {
		name string
		want Entry
		got  Entry
	}{
		{"first of two with the uid, a broken line skipped", u, Find(file, 1000)},
		{"by name", u, FindName(file, "u")},
		{"the gid is not a number", Entry{"w", "/srv/w", -1}, Find(file, 8)},
		{"no such uid", nobody, Find(file, 7)},
		{"no such name", nobody, FindName(file, "")},
		{"no file", nobody, Find(file+".missing", 1000)},
	} {
		assert.Equal(t, row.want, row.got, row.name)
	}
}

func TestFindGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "group")
	require.NoError(t, os.WriteFile(file, []byte("root:x:0:\nstaff:x:50:5,u\n"), 0o600))
	assert.Equal(t, Entry{Name: "staff", GID: -1}, Find(file, 50))
}

// os/user believes these variables about the caller's own uid.
func TestTheEnvironmentIsNotAsked(t *testing.T) {
	for _, name := range []string{"USER", "LOGNAME", "HOME"} {
		t.Setenv(name, "/planted")
	}
	file := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	assert.Equal(t, nobody, Find(file, os.Getuid()))
	assert.Equal(t, nobody, FindName(file, "/planted"))
}

func TestNothingAsksTheLibrary(t *testing.T) {
	tree := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := fs.ReadFile(tree, path)
		assert.NotContains(t, string(text), `"os`+`/user"`, path)
		return err
	}))
}
