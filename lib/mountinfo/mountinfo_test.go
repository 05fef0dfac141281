package mountinfo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	require.NoError(t, os.WriteFile(table, []byte(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 22 0:32 /in /a\040b\011c\134d rw,nosuid shared:1 master:2 - tmpfs a\040source rw,size=1k
37 22 0:33 / /cut rw -
38 22 0:34 / /short
`), 0o644))
	got, err := Read(table)
	require.NoError(t, err)
	assert.Equal(t, []Mount{
		{Root: "/", Point: "/", Type: "ext4", Source: "/dev/vda"},
		{Root: "/in", Point: "/a b\tc\\d", Type: "tmpfs", Source: "a source"},
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
