package sandboxflags

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Another user must not have been first in the place where root makes the cache of
// a user without a home.
func TestOwnCache(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes directories for others")
	}
	dir := filepath.Join(t.TempDir(), "pikuri")
	for range 2 { // made, and there
		path, err := ownCache(dir, 4321, 4322)
		require.NoError(t, err)
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(path, &st))
		assert.Equal(t, []uint32{4321, 4322, unix.S_IFDIR | 0o700}, []uint32{st.Uid, st.Gid, st.Mode})
		require.NoError(t, unix.Lstat(dir, &st))
		assert.Equal(t, []uint32{0, unix.S_IFDIR | 0o755}, []uint32{st.Uid, st.Mode})
		assert.Equal(t, dir+"/4321", path)
	}
	for _, test := range []struct {
		name  string
		plant func(t *testing.T, dir string) error
		want  string
	}{
		{"another user's", func(t *testing.T, dir string) error { return os.Chown(dir+"/4321", 4444, 4444) }, "belongs to uid 4444"},
		{"a symbolic link", func(t *testing.T, dir string) error {
			require.NoError(t, os.Remove(dir+"/4321"))
			return os.Symlink(t.TempDir(), dir+"/4321")
		}, "not a directory"},
		{"all of it another user's", func(t *testing.T, dir string) error { return os.Chown(dir, 4444, 4444) }, "belongs to uid 4444"},
	} {
		require.NoError(t, test.plant(t, dir))
		_, err := ownCache(dir, 4321, 4322)
		assert.ErrorContains(t, err, test.want, test.name)
	}
}
