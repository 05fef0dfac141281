package mountinfo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	require.NoError(t, os.WriteFile(table, []byte(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 22 0:32 /in /a\040b\011c\134d rw,nosuid shared:1 master:2 - tmpfs a\040source rw,size=1k
37 22 0:33 / /cut rw -
39 22 0:35 / /white space rw - tmpfs  rw
38 22 0:34 / /short
`), 0o644))
	got, err := Read(table)
	require.NoError(t, err)
	assert.Equal(t, []Mount{
		{ID: "22", Parent: "1", Device: "254:0", Root: "/", Point: "/", Type: "ext4", Source: "/dev/vda"},
		{ID: "36", Parent: "22", Device: "0:32", Root: "/in", Point: "/a b\tc\\d", Type: "tmpfs", Source: "a source"},
		{ID: "39", Parent: "22", Device: "0:35", Root: "/", Point: "/white\u00a0space", Type: "tmpfs", Source: ""},
	}, got)
	_, err = Read(table + "x")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestTheKernelsOwnTable(t *testing.T) {
	got, err := Read("/proc/self/mountinfo")
	require.NoError(t, err)
	var points []string
	for _, m := range got {
		points = append(points, m.Point)
	}
	assert.Contains(t, points, "/")
	assert.Contains(t, points, "/proc")
}

func TestUnescape(t *testing.T) {
	for given, want := range map[string]string{
		`/plain`: "/plain", `/a\040b`: "/a b", `\`: `\`, `/a\04`: `/a\04`, `/a\999`: `/a\999`, `/a\0400`: "/a 0", `/a\777`: `/a\777`,
	} {
		assert.Equal(t, want, unescape(given), given)
	}
}

// FuzzTable puts any text into a table, and beside it a mount written as the
// kernel writes it (seq_path and mangle escape these four), which must be read
// unchanged.
func FuzzTable(f *testing.F) {
	f.Add("", "/", "/", "/dev/vda")
	f.Add("", "/a\u00a0b", "/a\rb", "")
	f.Add("36 22 0:32 /in /a\\040b rw shared:1 - tmpfs a\\040source rw\n37 22 0:33 / /cut rw -\n", "/a b", "/a\tb\\c", "a\nb")
	f.Add("\\\\\\0 - - - - - - - -", "/\\040", "/\\\\", "\\")
	escape := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)
	f.Fuzz(func(t *testing.T, table, root, point, source string) {
		_ = parse(table)
		line := "36 22 0:32 " + escape.Replace(root) + " " + escape.Replace(point) + " rw,nosuid shared:1 - tmpfs " + escape.Replace(source) + " rw"
		assert.Equal(t, []Mount{{ID: "36", Parent: "22", Device: "0:32", Root: root, Point: point, Type: "tmpfs", Source: source}}, parse(line))
	})
}
